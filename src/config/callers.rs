//! `callers`: the clients that may send reviews, their endpoints and their cluster. Client
//! certificates can be selected by patterns of their subject alternative names.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use portcullis_policy::field::{FaultKind, Place, unsupported_value};

use super::jwt::{self, Jwt};
use super::section::Section;
use super::server::Server;

/// An entry of `callers`. A request comes from this caller if it matches every field that is
/// present.
#[derive(Debug, Clone, PartialEq)]
pub struct CallerEntry {
    /// The place of the entry, for errors of the files that it names.
    pub place: Place,
    /// A kubeconfig, as an absolute path: the credentials of any of its users match.
    pub kubeconfig: Option<PathBuf>,
    /// The client certificates, issued by `server.tls.clientCA`, that match.
    pub client_certificate: Option<ClientCertificate>,
    /// The signed tokens that match.
    pub jwt: Option<Jwt>,
    /// The file of tokens that match when the path of a request ends with one, as an absolute path.
    pub path_token: Option<PathBuf>,
    /// The service account tokens that match, each bound to a webhook configuration of the cluster
    /// (KEP-6060). The audiences are URLs of webhooks.
    pub webhook_token: Option<Jwt>,
    /// The endpoints that the caller may use.
    pub endpoints: Endpoints,
    /// The cluster for which the caller sends requests.
    pub cluster: String,
    /// Whether the console shows the caller all clusters instead of only its own.
    pub sees_all_clusters: bool,
}

/// Which client certificates match: for every list that is not empty, the certificate must have one
/// of its items.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientCertificate {
    /// The subject's common name.
    pub common_names: Vec<String>,
    /// The subject's organizations.
    pub organizations: Vec<String>,
    /// Patterns of the subject alternative names.
    pub sans: Vec<SanPattern>,
}

/// An endpoint for reviews, and a label of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Endpoint {
    /// `/authorize`.
    Authorize,
    /// `/validate` and the paths below it.
    Validate,
    /// `/mutate` and the paths below it.
    Mutate,
}

/// A set of [`Endpoint`]s and the console.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Endpoints(u8);

/// The value of `consoleClusters` for all clusters.
const ALL_CLUSTERS: &str = "*";

/// The name of the console in `endpoints`.
const CONSOLE: &str = "console";

/// The cluster of a caller whose entry has no `cluster`.
pub const DEFAULT_CLUSTER: &str = "default";

/// A pattern of subject alternative names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SanPattern {
    /// `name.example.com`: this DNS name, ignoring case.
    Dns(String),
    /// `*.example.com`: DNS names with exactly one label more. Holds `example.com`.
    DnsBelow(String),
    /// `10.0.0.1`, `2001:db8::1`: this IP address.
    Ip(IpAddr),
    /// `spiffe://example.com/apiserver`: exactly this URI.
    Uri(String),
    /// `api@example.com`: exactly this e-mail address.
    Email(String),
}

// === impl Endpoint ===

impl Endpoint {
    pub const ALL: [Self; 3] = [Self::Authorize, Self::Validate, Self::Mutate];

    /// The name in the configuration, logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Authorize => "authorize",
            Self::Validate => "validate",
            Self::Mutate => "mutate",
        }
    }

    /// The index in [`Endpoint::ALL`].
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
    pub const NONE: Self = Self(0);
    /// All endpoints for reviews: the default.
    pub const REVIEWS: Self = Self(7);
    /// The endpoints for admission: `pathToken` and `webhookToken` allow no others.
    pub const ADMISSION: Self = Self(6);
    /// The console, which must be listed explicitly.
    pub const CONSOLE: Self = Self(8);

    #[must_use]
    pub const fn contains(self, endpoint: Endpoint) -> bool {
        self.0 & endpoint.bit() != 0
    }

    #[must_use]
    pub const fn contains_console(self) -> bool {
        self.0 & Self::CONSOLE.0 != 0
    }

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
            |other: &&CallerEntry| other.matches_same_credentials(&caller) && other.cluster != caller.cluster;
        if let Some(other) = callers.iter().find(elsewhere) {
            section.fault(
                "cluster",
                FaultKind::Invalid,
                conflicting_cluster_message(&caller.cluster, other),
            );
        }
        callers.push(caller);
    }
    callers
}

/// The message if the credential of `other` is also used in an entry with another `cluster`.
pub(crate) fn conflicting_cluster_message(cluster: &str, other: &CallerEntry) -> String {
    format!(
        "`{cluster}`: the same credential is for the cluster `{}` in {}",
        other.cluster, other.place.path
    )
}

impl CallerEntry {
    /// Whether both entries match the same credentials.
    fn matches_same_credentials(&self, other: &Self) -> bool {
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
        require_alone(section, "webhookToken");
    }
    let endpoints = endpoints(section);
    let cluster = section.text("cluster").unwrap_or(DEFAULT_CLUSTER).to_owned();
    let sees_all_clusters = console_clusters(section, endpoints);
    if CREDENTIAL_FIELDS
        .iter()
        .all(|field| section.value(field).is_none())
    {
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

/// Whether the console shows the caller all clusters.
fn console_clusters(section: &Section<'_>, endpoints: Endpoints) -> bool {
    let texts = section.texts("consoleClusters");
    for (index, text) in texts.iter().filter(|(_, text)| *text != ALL_CLUSTERS) {
        let message = format!(
            "`{text}`: only `*` is supported, for every cluster; without it the console shows the caller's \
            own cluster"
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

/// The fields that select a caller's credentials.
const CREDENTIAL_FIELDS: [&str; 5] = [
    "kubeconfig",
    "clientCertificate",
    "jwt",
    "pathToken",
    "webhookToken",
];

/// Requires `field` to be the only one of [`CREDENTIAL_FIELDS`] in the entry.
fn require_alone(entry: &Section<'_>, field: &str) {
    for other in CREDENTIAL_FIELDS.iter().filter(|other| **other != field) {
        if entry.value(other).is_some() {
            let message = format!("cannot be combined with `{field}`: add a separate entry for it");
            entry.fault(other, FaultKind::Invalid, message);
        }
    }
}

/// Reads the file of tokens. The entry must have no other credential, because those of a request
/// with a path token are ignored.
fn path_token(entry: &Section<'_>) -> Option<PathBuf> {
    let section = entry.optional("pathToken", &["file"])?;
    require_alone(entry, "pathToken");
    section.required_path("file", "the file with the tokens, one in each line")
}

/// Reads `endpoints`. If absent or empty: all endpoints for reviews, or those for admission if the
/// entry has `pathToken` or `webhookToken`.
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
                format!("`{text}`: a caller with `{field}` may only use `validate` and `mutate`: {why}");
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
    /// Parses a pattern, whose form determines its type.
    ///
    /// # Errors
    ///
    /// Why `text` is not a pattern.
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

    /// Whether the pattern matches a certificate's DNS name. A wildcard name such as
    /// `*.example.com` is only matched by the same pattern.
    #[must_use]
    pub fn matches_dns(&self, name: &str) -> bool {
        match self {
            Self::Dns(expected) => name.eq_ignore_ascii_case(expected),
            Self::DnsBelow(parent) => name
                .split_once('.')
                .is_some_and(|(label, rest)| !label.is_empty() && rest.eq_ignore_ascii_case(parent)),
            _ => false,
        }
    }

    /// Whether the pattern matches a certificate's IP address, of 4 or 16 bytes.
    #[must_use]
    pub fn matches_ip(&self, address: &[u8]) -> bool {
        match self {
            Self::Ip(IpAddr::V4(expected)) => expected.octets() == address,
            Self::Ip(IpAddr::V6(expected)) => expected.octets() == address,
            _ => false,
        }
    }

    /// Whether the pattern matches a certificate's URI.
    #[must_use]
    pub fn matches_uri(&self, uri: &str) -> bool {
        matches!(self, Self::Uri(expected) if expected == uri)
    }

    /// Whether the pattern matches a certificate's e-mail address.
    #[must_use]
    pub fn matches_email(&self, address: &str) -> bool {
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
