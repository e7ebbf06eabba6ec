//! Callers for tests: certificates, files in memory, a fixed time, signed tokens.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use openssl::pkey::{PKey, Private};
use openssl::x509::X509;

use crate::config;
use crate::identity::{Authenticator, Caller, Credentials, PeerCertificate, RecentToken, Refusal};
use crate::pki::Authority;
use portcullis_policy::field::Faults;

/// Seconds since 1970 at which the tests begin.
pub(crate) const START: i64 = 1_800_000_000;

/// `seconds` after the tests begin.
pub(crate) fn at(seconds: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(u64::try_from(START + seconds).unwrap())
}

pub(crate) fn rsa_key() -> &'static PKey<Private> {
    static KEY: OnceLock<PKey<Private>> = OnceLock::new();
    KEY.get_or_init(|| PKey::from_rsa(openssl::rsa::Rsa::generate(2048).unwrap()).unwrap())
}

// === certificates ===

/// The certificate of a client with this common name.
pub(crate) fn client(ca: &Authority, common_name: &str) -> X509 {
    ca.client(common_name, &[]).certificate
}

pub(crate) fn peer(certificate: &X509) -> PeerCertificate {
    PeerCertificate::new(certificate.clone(), [])
}

/// `client-certificate-data: …`.
pub(crate) fn certificate_data(certificate: &X509) -> String {
    format!(
        "client-certificate-data: {}",
        STANDARD.encode(certificate.to_pem().unwrap())
    )
}

// === files and authenticators ===

/// Files in memory, and the callers that refer to them.
#[derive(Clone, Default)]
pub(crate) struct World {
    pub(crate) files: BTreeMap<PathBuf, Vec<u8>>,
    pub(crate) callers: String,
    /// The API servers that are watched, as YAML.
    pub(crate) clusters: String,
}

impl World {
    /// With `callers` as YAML and the client CA `ca`.
    pub(crate) fn new(ca: &Authority, callers: &str) -> Self {
        let mut world = Self {
            files: BTreeMap::new(),
            callers: callers.to_owned(),
            clusters: "[]".to_owned(),
        };
        world.write("ca.crt", ca.pem());
        world
    }

    pub(crate) fn write(&mut self, name: &str, content: impl Into<Vec<u8>>) {
        self.files.insert(Path::new("/").join(name), content.into());
    }

    /// Writes a kubeconfig of these users, each a name and its fields.
    pub(crate) fn kubeconfig(&mut self, name: &str, users: &[(&str, &str)]) {
        let users: Vec<String> = users
            .iter()
            .map(|(name, fields)| format!("{{name: {name}, user: {{{fields}}}}}"))
            .collect();
        self.write(
            name,
            format!("apiVersion: v1\nkind: Config\nusers: [{}]\n", users.join(", ")),
        );
    }

    /// The authenticator and what is to be said of it.
    pub(crate) fn try_build(
        &self,
        previous: Option<&Authenticator>,
        now: SystemTime,
    ) -> (Authenticator, String) {
        let (built, faults) = self.read(previous, now);
        (built, faults.to_string())
    }

    fn read(&self, previous: Option<&Authenticator>, now: SystemTime) -> (Authenticator, Faults) {
        let text = format!(
            "apiVersion: config.portcullis.dev/v1alpha1\nkind: GatewayConfiguration\n\
             server: {{tls: {{certificate: s.crt, privateKey: s.key, clientCA: ca.crt}}}}\ncallers:\n{}\n\
             clusters: {}\n",
            self.callers, self.clusters
        );
        let (config, faults) = config::parse(Path::new("g.yaml"), &text, Path::new("/"));
        assert_eq!(faults.to_string(), "");
        Authenticator::build_from(&self.files, &config.unwrap(), previous, now)
    }

    pub(crate) fn build(&self) -> Authenticator {
        self.rebuild(None, 0)
    }

    pub(crate) fn rebuild(&self, previous: Option<&Authenticator>, seconds: i64) -> Authenticator {
        let (built, faults) = self.read(previous, at(seconds));
        assert!(!faults.has_errors(), "{faults}");
        built
    }
}

// === requests ===

/// Who shows these at a time: `NAME CLUSTER {ENDPOINTS} METHOD`, or the refusal.
pub(crate) fn seen_at(
    seconds: i64,
    authenticator: &Authenticator,
    peer: Option<&PeerCertificate>,
    authorization: Option<&str>,
) -> String {
    let credentials = Credentials {
        peer,
        authorization: authorization.map(str::as_bytes),
        ..Credentials::default()
    };
    let found = reported(&authenticator.authenticate(&credentials, at(seconds)));
    let on_connection = |recent: &RecentToken| {
        let recent = Some(recent);
        let credentials = Credentials {
            recent,
            ..credentials
        };
        reported(&authenticator.authenticate(&credentials, at(seconds)))
    };
    // What a connection remembers changes nothing, though it has served the whole test.
    match peer {
        None => RECENT.with(|recent| assert_eq!(on_connection(recent), found, "without a certificate")),
        Some(_) => {
            let recent = RecentToken::default();
            assert_eq!(
                [on_connection(&recent), on_connection(&recent)],
                [&*found, &*found]
            );
        }
    }
    found
}

thread_local! {
    /// Of a connection without a certificate.
    static RECENT: RecentToken = RecentToken::default();
}

/// [`seen_at`] the start.
pub(crate) fn seen(
    authenticator: &Authenticator,
    peer: Option<&PeerCertificate>,
    authorization: Option<&str>,
) -> String {
    seen_at(0, authenticator, peer, authorization)
}

fn reported(outcome: &Result<Arc<Caller>, Refusal>) -> String {
    match outcome {
        Ok(caller) => {
            format!(
                "{} {} {} {}",
                caller.name,
                caller.cluster,
                format!("{:?}", caller.endpoints).replace('"', ""),
                caller.method.as_str()
            )
        }
        Err(refusal) => format!("{} {} {refusal}", refusal.status(), refusal.method().as_str()),
    }
}

pub(crate) fn basic(pair: &str) -> String {
    format!("Basic {}", STANDARD.encode(pair))
}

pub(crate) fn base64url(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

pub(crate) fn unbase64url(text: &str) -> Vec<u8> {
    URL_SAFE_NO_PAD.decode(text).unwrap()
}
