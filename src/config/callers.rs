//! `callers`: the clients that may send reviews, their endpoints and their cluster. A client certificate may be
//! named by patterns of its subject alternative names.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use portcullis_policy::field::{FaultKind, Place, unsupported_value};

use super::jwt::{self, Jwt};
use super::section::Section;
use super::server::Server;

/// One entry: a request that meets every field that is there comes from this caller.
#[derive(Debug, Clone, PartialEq)]
pub struct CallerEntry {
    /// Where the entry stands, for faults of what it refers to.
    pub place: Place,
    /// A file each of whose users is meant, as an absolute path.
    pub kubeconfig: Option<PathBuf>,
    /// Certificates under `server.tls.clientCA` that are meant.
    pub client_certificate: Option<ClientCertificate>,
    /// Signed tokens that are meant.
    pub jwt: Option<Jwt>,
    /// The file of the tokens in the path of requests that are meant, as an absolute path.
    pub path_token: Option<PathBuf>,
    /// Service account tokens that are meant, each bound to a webhook configuration of the cluster
    /// (KEP-6060). The audiences are URLs of webhooks.
    pub webhook_token: Option<Jwt>,
    /// What the caller may use.
    pub endpoints: Endpoints,
    /// The cluster that the caller speaks for.
    pub cluster: String,
    /// Whether the console shows it every cluster, and not its own alone.
    pub sees_all_clusters: bool,
}

/// Certificates: every list that is not empty must hold something that the certificate has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientCertificate {
    /// The subject's common name.
    pub common_names: Vec<String>,
    /// Its organizations.
    pub organizations: Vec<String>,
    /// Its subject alternative names.
    pub sans: Vec<SanPattern>,
}

/// What takes reviews, and metrics count by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Endpoint {
    /// `/authorize`.
    Authorize,
    /// `/validate` and what is below.
    Validate,
    /// `/mutate` and what is below.
    Mutate,
}

/// A set of [`Endpoint`]s and the console: what a caller may use.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Endpoints(u8);

/// Every cluster, in `consoleClusters`.
const ALL_CLUSTERS: &str = "*";

/// The word for the console among `endpoints`.
const CONSOLE: &str = "console";

/// The cluster of a caller that names none.
pub const DEFAULT_CLUSTER: &str = "default";

/// Which subject alternative names are meant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SanPattern {
    /// `name.example.com`: this DNS name, whatever its case.
    Dns(String),
    /// `*.example.com`: DNS names with exactly one label more. Holds `example.com`.
    DnsBelow(String),
    /// `10.0.0.1`, `2001:db8::1`: this IP address.
    Ip(IpAddr),
    /// `spiffe://example.com/apiserver`: this URI, letter by letter.
    Uri(String),
    /// `api@example.com`: this e-mail address, letter by letter.
    Email(String),
}

// === impl Endpoint ===

impl Endpoint {
    /// Each of them.
    pub const ALL: [Self; 3] = [Self::Authorize, Self::Validate, Self::Mutate];

    /// The word of configuration, logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Authorize => "authorize",
            Self::Validate => "validate",
            Self::Mutate => "mutate",
        }
    }

    /// The place among all.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    const fn bit(self) -> u8 {
        match self {
            Self::Authorize => 1,
            Self::Validate => 2,
            Self::Mutate => 4,
        }
    }
}

// === impl Endpoints ===

impl Endpoints {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// All that take reviews, which is what an entry that names none is given.
    pub const REVIEWS: Self = Self(7);
    /// Those of admission: all that `pathToken` and `webhookToken` may be given.
    pub const ADMISSION: Self = Self(6);
    /// The console. Only an entry that names it is given it.
    pub const CONSOLE: Self = Self(8);

    /// Whether `endpoint` is one of them.
    #[must_use]
    pub const fn contains(self, endpoint: Endpoint) -> bool {
        self.0 & endpoint.bit() != 0
    }

    /// Whether the console is one of them.
    #[must_use]
    pub const fn contains_console(self) -> bool {
        self.0 & Self::CONSOLE.0 != 0
    }

    /// These and those of `other`.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl FromIterator<Endpoint> for Endpoints {
    fn from_iter<I: IntoIterator<Item = Endpoint>>(endpoints: I) -> Self {
        Self(
            endpoints
                .into_iter()
                .fold(0, |bits, endpoint| bits | endpoint.bit()),
        )
    }
}

impl std::fmt::Debug for Endpoints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let reviews = Endpoint::ALL.iter().filter(|endpoint| self.contains(**endpoint));
        let console = self.contains_console().then_some(CONSOLE);
        f.debug_set()
            .entries(reviews.map(|endpoint| endpoint.as_str()).chain(console))
            .finish()
    }
}

// === reading ===

pub(crate) fn callers(root: &Section<'_>, server: Option<&Server>) -> Vec<CallerEntry> {
    let fields = [
        "kubeconfig",
        "clientCertificate",
        "jwt",
        "pathToken",
        "webhookToken",
        "endpoints",
        "cluster",
        "consoleClusters",
    ];
    let without_ca = server.is_some_and(|server| server.tls.client_ca.is_none());
    let mut callers: Vec<CallerEntry> = Vec::new();
    for item in root.items("callers") {
        let section = item.section(&fields);
        let Some(caller) = caller(&section) else { continue };
        if without_ca && caller.client_certificate.is_some() {
            let message = "needs `server.tls.clientCA`, the CA of the certificates";
            section.fault("clientCertificate", FaultKind::Invalid, message);
        }
        let elsewhere =
            |other: &&CallerEntry| other.means_the_same(&caller) && other.cluster != caller.cluster;
        if let Some(other) = callers.iter().find(elsewhere) {
            section.fault("cluster", FaultKind::Invalid, one_cluster(&caller.cluster, other));
        }
        callers.push(caller);
    }
    callers
}

/// Why a credential cannot speak for `cluster` too, where `other` has it speak for its own.
pub(crate) fn one_cluster(cluster: &str, other: &CallerEntry) -> String {
    format!(
        "`{cluster}`: the same credential speaks for `{}` in {}",
        other.cluster, other.place.path
    )
}

impl CallerEntry {
    /// Whether each credential that meets one of the two entries meets the other.
    fn means_the_same(&self, other: &Self) -> bool {
        self.kubeconfig == other.kubeconfig
            && self.client_certificate == other.client_certificate
            && self.jwt == other.jwt
            && self.path_token == other.path_token
            && self.webhook_token == other.webhook_token
    }
}

fn caller(section: &Section<'_>) -> Option<CallerEntry> {
    let kubeconfig = section.path("kubeconfig");
    let client_certificate = client_certificate(section);
    let jwt = jwt::jwt(section);
    let path_token = path_token(section);
    let webhook_token = jwt::webhook_token(section);
    if webhook_token.is_some() {
        stands_alone(section, "webhookToken");
    }
    let endpoints = endpoints(section);
    let cluster = section.text("cluster").unwrap_or(DEFAULT_CLUSTER).to_owned();
    let sees_all_clusters = console_clusters(section, endpoints);
    if PROOFS.iter().all(|field| section.value(field).is_none()) {
        let message = "set `kubeconfig`, `clientCertificate`, `jwt`, `pathToken` or `webhookToken`";
        section.fault_here(FaultKind::Required, message);
        return None;
    }
    let place = section.here();
    Some(CallerEntry {
        place,
        kubeconfig,
        client_certificate,
        jwt,
        path_token,
        webhook_token,
        endpoints,
        cluster,
        sees_all_clusters,
    })
}

/// Whether every cluster is shown.
fn console_clusters(section: &Section<'_>, endpoints: Endpoints) -> bool {
    let texts = section.texts("consoleClusters");
    for (index, text) in texts.iter().filter(|(_, text)| *text != ALL_CLUSTERS) {
        let message = format!(
            "`{text}`: supported is `*`, for every cluster; without it the console shows the caller's own"
        );
        section.fault_at("consoleClusters", *index, FaultKind::NotSupported, message);
    }
    if !texts.is_empty() && !endpoints.contains_console() {
        let message =
            "has no effect on a caller that may not see the console: add `console` to its `endpoints`";
        section.fault("consoleClusters", FaultKind::Invalid, message);
    }
    texts.iter().any(|(_, text)| *text == ALL_CLUSTERS)
}

fn client_certificate(entry: &Section<'_>) -> Option<ClientCertificate> {
    let section = entry.optional("clientCertificate", &["commonNames", "organizations", "sans"])?;
    let certificate = ClientCertificate {
        common_names: section.strings("commonNames"),
        organizations: section.strings("organizations"),
        sans: sans(&section),
    };
    if ["commonNames", "organizations", "sans"]
        .iter()
        .all(|field| section.texts(field).is_empty())
    {
        let message = "set `commonNames`, `organizations` or `sans`; otherwise every certificate of \
                       the CA would be accepted";
        section.fault_here(FaultKind::Required, message);
    }
    Some(certificate)
}

fn sans(section: &Section<'_>) -> Vec<SanPattern> {
    let mut sans = Vec::new();
    for (index, text) in section.texts("sans") {
        match SanPattern::parse(text) {
            Ok(pattern) => sans.push(pattern),
            Err(message) => {
                section.fault_at("sans", index, FaultKind::Invalid, format!("`{text}`: {message}"));
            }
        }
    }
    sans
}

/// The fields by which a caller is known.
const PROOFS: [&str; 5] = [
    "kubeconfig",
    "clientCertificate",
    "jwt",
    "pathToken",
    "webhookToken",
];

/// Has `field` be the only one of [`PROOFS`].
fn stands_alone(entry: &Section<'_>, field: &str) {
    for other in PROOFS.iter().filter(|other| **other != field) {
        if entry.value(other).is_some() {
            let message = format!("cannot stand beside `{field}`: make an entry of its own for it");
            entry.fault(other, FaultKind::Invalid, message);
        }
    }
}

/// The file of tokens, which stand alone in their entry: a request with one shows nothing else that
/// counts.
fn path_token(entry: &Section<'_>) -> Option<PathBuf> {
    let section = entry.optional("pathToken", &["file"])?;
    stands_alone(entry, "pathToken");
    section.required_path("file", "the file with the tokens, one in each line")
}

/// Absent or empty: all that take reviews; of `pathToken` and `webhookToken` those of admission.
fn endpoints(section: &Section<'_>) -> Endpoints {
    let of_admission = [
        ("pathToken", "users of the cluster can learn its token"),
        ("webhookToken", "its tokens are for webhook configurations"),
    ];
    let of_admission = of_admission
        .iter()
        .find(|(field, _)| section.value(field).is_some());
    let mut endpoints = Endpoints::NONE;
    let texts = section.texts("endpoints");
    for (index, text) in &texts {
        if let Some((field, why)) = of_admission
            && [Endpoint::Authorize.as_str(), CONSOLE].contains(text)
        {
            let message =
                format!("`{text}`: a caller with `{field}` may use `validate` and `mutate` alone: {why}");
            section.fault_at("endpoints", *index, FaultKind::NotSupported, message);
            continue;
        }
        match Endpoint::ALL.iter().find(|endpoint| endpoint.as_str() == *text) {
            Some(endpoint) => endpoints = endpoints.union([*endpoint].into_iter().collect()),
            None if *text == CONSOLE => endpoints = endpoints.union(Endpoints::CONSOLE),
            None => {
                let message = unsupported_value(text, &["authorize", "validate", "mutate", "console"]);
                section.fault_at("endpoints", *index, FaultKind::NotSupported, message);
            }
        }
    }
    match (texts.is_empty(), of_admission.is_some()) {
        (true, true) => Endpoints::ADMISSION,
        (true, false) => Endpoints::REVIEWS,
        (false, _) => endpoints,
    }
}

// === impl SanPattern ===

impl SanPattern {
    /// Reads a pattern; what it is follows from its form.
    ///
    /// # Errors
    ///
    /// What is wrong with `text`.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Ip(address));
        }
        if text.contains("://") {
            return Ok(Self::Uri(text.to_owned()));
        }
        if text.contains('@') {
            return Ok(Self::Email(text.to_owned()));
        }
        let below = text.strip_prefix("*.");
        let name = below.unwrap_or(text);
        if name.contains('*') {
            return Err("`*` may only be the whole first label, as in `*.example.com`");
        }
        if !name.split('.').all(is_label) {
            return Err("must be a DNS name, IP address, URI or e-mail address");
        }
        let name = name.to_ascii_lowercase();
        Ok(if below.is_some() {
            Self::DnsBelow(name)
        } else {
            Self::Dns(name)
        })
    }

    /// Whether a certificate's DNS name is meant. A name that is itself a
    /// pattern, `*.example.com`, is meant by the same pattern alone.
    #[must_use]
    pub fn means_dns(&self, name: &str) -> bool {
        match self {
            Self::Dns(expected) => name.eq_ignore_ascii_case(expected),
            Self::DnsBelow(parent) => name
                .split_once('.')
                .is_some_and(|(label, rest)| !label.is_empty() && rest.eq_ignore_ascii_case(parent)),
            _ => false,
        }
    }

    /// Whether a certificate's IP address, as 4 or 16 bytes, is meant.
    #[must_use]
    pub fn means_ip(&self, address: &[u8]) -> bool {
        match self {
            Self::Ip(IpAddr::V4(expected)) => expected.octets() == address,
            Self::Ip(IpAddr::V6(expected)) => expected.octets() == address,
            _ => false,
        }
    }

    /// Whether a certificate's URI is meant.
    #[must_use]
    pub fn means_uri(&self, uri: &str) -> bool {
        matches!(self, Self::Uri(expected) if expected == uri)
    }

    /// Whether a certificate's e-mail address is meant.
    #[must_use]
    pub fn means_email(&self, address: &str) -> bool {
        matches!(self, Self::Email(expected) if expected == address)
    }
}

impl fmt::Display for SanPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns(text) | Self::Uri(text) | Self::Email(text) => f.write_str(text),
            Self::DnsBelow(parent) => write!(f, "*.{parent}"),
            Self::Ip(address) => address.fmt(f),
        }
    }
}

fn is_label(label: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !label.is_empty() && label.len() <= 63 && label.bytes().all(known)
}

#[cfg(test)]
mod tests;
