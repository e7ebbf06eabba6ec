//! How webhooks are called: the section `upstreams` of the configuration, with the files
//! that it names.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use openssl::x509::X509;

use super::client::{Addresses, ClientAuthorization, ClientIdentity, InvalidSettings, Settings, Url};
use crate::config::kubeconfig::client::{self, ByHost, ClientUser};
use crate::config::{Breaker, Config, Files};
use portcullis_policy::engine::admission::webhook::{ClientConfig, WebhookTarget};
use portcullis_policy::field::{Fault, FaultKind, Faults};

/// `User-Agent`: as the API server calls webhooks of admission.
pub const USER_AGENT: &str = "kube-apiserver-admission";

/// How webhooks are called: address, CA, credentials, limits.
#[derive(Debug)]
pub(super) struct CallSettings {
    pub(super) reply_bytes: usize,
    pub(super) in_flight: usize,
    pub(super) breaker: Option<Breaker>,
    is_http2: bool,
    via: String,
    addresses: Arc<Addresses>,
    /// Trusted beside each webhook's own.
    authorities: Option<Vec<u8>>,
    users: ByHost,
    /// What each user shows, by its name.
    credentials: HashMap<String, UpstreamCredentials>,
}

/// What a user of a kubeconfig shows.
#[derive(Debug, Clone, Default)]
pub struct UpstreamCredentials {
    /// In a header.
    pub authorization: ClientAuthorization,
    /// In the handshake.
    pub identity: Option<ClientIdentity>,
}

// === impl CallSettings ===

impl CallSettings {
    /// Reads the files of `upstreams`, and returns every one that was read or
    /// should have been.
    pub(super) fn read(config: &Config, files: &dyn Files) -> (Self, Vec<PathBuf>, Faults) {
        let upstreams = &config.upstreams;
        let mut faults = Faults::new();
        let (users, found) = match &upstreams.kubeconfig {
            Some(path) => client::by_host(files, path),
            None => Default::default(),
        };
        faults.append(found);
        let mut read = users.files.clone();
        read.extend(upstreams.ca_bundle.clone());
        let call_settings = Self {
            reply_bytes: upstreams.reply_bytes,
            in_flight: upstreams.in_flight,
            breaker: upstreams.breaker,
            is_http2: upstreams.is_http2,
            via: config.pseudonym(),
            addresses: Arc::new(Addresses::of(config)),
            authorities: authorities(config, files, &mut faults),
            credentials: credentials_of_all(&users, &mut faults),
            users,
        };
        (call_settings, read, faults)
    }

    /// How to call a webhook, and what is shown to it.
    pub(super) fn of(
        &self,
        webhook: &ClientConfig,
    ) -> Result<(Settings, ClientAuthorization), InvalidSettings> {
        let url = match &webhook.target {
            WebhookTarget::Url(url) => Url::parse(url)?,
            WebhookTarget::Service {
                namespace,
                name,
                port,
                path,
            } => Url::of_service(namespace, name, *port, path)?,
        };
        let user = self.users.user_for(&url.host_port());
        let credentials = user
            .and_then(|user| self.credentials.get(&user.name))
            .cloned()
            .unwrap_or_default();
        let own = Some(&webhook.ca_bundle).filter(|bundle| !bundle.is_empty());
        let settings = Settings {
            url,
            server_name: None,
            authorities: self.authorities.iter().chain(own).cloned().collect(),
            identity: credentials.identity,
            addresses: Arc::clone(&self.addresses),
            is_http2: self.is_http2,
            user_agent: USER_AGENT.to_owned(),
            via: self.via.clone(),
        };
        Ok((settings, credentials.authorization))
    }
}

/// What `user` shows.
///
/// # Errors
///
/// A certificate and key, or a token, that cannot be used.
pub fn credentials_of(user: &ClientUser) -> Result<UpstreamCredentials, InvalidSettings> {
    let authorization = match (&user.bearer, &user.basic) {
        (Some(bearer), _) => match &bearer.file {
            Some(path) => ClientAuthorization::token_file(path, &bearer.token)?,
            None => ClientAuthorization::bearer(&bearer.token)?,
        },
        (None, Some(basic)) => ClientAuthorization::basic(&basic.username, &basic.password)?,
        (None, None) => ClientAuthorization::None,
    };
    let identity = user.certificate.as_ref().map(|pair| ClientIdentity {
        certificate: pair.certificate.clone(),
        key: pair.key.clone(),
    });
    identity.iter().try_for_each(ClientIdentity::check)?;
    Ok(UpstreamCredentials {
        authorization,
        identity,
    })
}

fn credentials_of_all(users: &ByHost, faults: &mut Faults) -> HashMap<String, UpstreamCredentials> {
    let mut credentials = HashMap::new();
    for user in &users.users {
        match credentials_of(user) {
            Ok(by_user) => {
                credentials.insert(user.name.clone(), by_user);
            }
            Err(error) => {
                let message = format!("user `{}`: {error}", user.name);
                faults.push(Fault::error(user.place.clone(), FaultKind::Invalid, message));
            }
        }
    }
    credentials
}

fn authorities(config: &Config, files: &dyn Files, faults: &mut Faults) -> Option<Vec<u8>> {
    let path = config.upstreams.ca_bundle.as_ref()?;
    let place = &config.upstreams.place;
    let place = place.at(place.path.field("caBundle"));
    let named = |what: &str| format!("`{}`: {what}", path.display());
    match files.read(path) {
        Ok(pem) if X509::stack_from_pem(&pem).is_ok_and(|found| !found.is_empty()) => Some(pem),
        Ok(_) => {
            let message = named("contains no certificate in PEM, or an invalid one");
            faults.push(Fault::error(place, FaultKind::Invalid, message));
            None
        }
        Err(error) => {
            let message = named(&error.to_string());
            faults.push(Fault::error(place, FaultKind::Unreadable, message));
            None
        }
    }
}
