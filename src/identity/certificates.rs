//! The certificates that a configuration names: when they expire, and whether the
//! server's certificate is valid for its host names.
//!
//! ```text
//! Config ──▶ of_configuration: each certificate once ──┬─▶ metric, one series each
//!                                                      ├─▶ warnings of `check`
//!                                                      └─▶ Reminders: the log, at 30, 7 and 1 days
//! ```

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use openssl::asn1::{Asn1Time, Asn1TimeRef};
use openssl::error::ErrorStack;
use openssl::stack::Stack;
use openssl::x509::store::X509StoreBuilder;
use openssl::x509::verify::{X509CheckFlags, X509VerifyFlags, X509VerifyParam};
use openssl::x509::{X509, X509PurposeId, X509StoreContext};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::config::kubeconfig::{self, Cluster, Kubeconfig, client};
use crate::config::{Config, Files};
use portcullis_policy::field::{Fault, FaultKind, Faults, FieldPath, Place};

/// The expiry of a certificate. In a file with several certificates, the earliest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expiry {
    /// The file that contains the certificate, or the kubeconfig that names it.
    pub file: PathBuf,
    /// The user in that kubeconfig, or empty.
    pub name: String,
    /// What the certificate is used for.
    pub used_for: Use,
    /// Its `notAfter`.
    pub at: SystemTime,
    /// The field that names it.
    pub place: Place,
}

/// What a certificate is used for: the values of the label `use`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Use {
    /// The gateway's own certificate.
    Server,
    /// The CAs of callers' certificates.
    ClientCa,
    /// A caller's certificate, and the CAs with which it verifies the gateway.
    Caller,
    /// The client certificate for webhooks and authorizers behind the gateway, and their CAs.
    Upstream,
    /// The client certificate for API servers that are watched, and their CAs.
    Cluster,
}

/// The time before the expiry of a certificate from which `check` warns.
pub const NOTICE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Warns of each host in a kubeconfig of callers for which the server's certificate is not valid,
/// and of each CA there that did not sign it. Expiry is not checked here.
#[must_use]
pub fn host_warnings(config: &Config, files: &dyn Files) -> Faults {
    let mut faults = Faults::new();
    let chain = files
        .read(&config.server.tls.certificate)
        .ok()
        .and_then(|pem| X509::stack_from_pem(&pem).ok());
    let Some(served) = chain.as_deref().and_then(ServedCertificate::new) else {
        return faults;
    };
    for path in config.caller_kubeconfigs() {
        let (kubeconfig, _) = kubeconfig::read(files, path);
        faults.extend(served.misfits(&kubeconfig));
    }
    faults
}

/// The server's certificate, with its intermediates.
pub(crate) struct ServedCertificate<'s> {
    certificate: &'s X509,
    intermediates: &'s [X509],
}

// === impl Use ===

impl Use {
    /// The value of the label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::ClientCa => "clientCA",
            Self::Caller => "caller",
            Self::Upstream => "upstream",
            Self::Cluster => "cluster",
        }
    }
}

// === impl Expiry ===

impl Expiry {
    /// A warning if the certificate has expired at `now` or expires within [`NOTICE`].
    #[must_use]
    pub fn warning(&self, now: SystemTime) -> Option<Fault> {
        let end = rfc3339(self.at);
        let message = match self.at.duration_since(now) {
            Err(_) => format!("the certificate expired on {end}"),
            Ok(left) if left <= NOTICE => format!("the certificate ends in {}, on {end}", days(left)),
            Ok(_) => return None,
        };
        let message =
            format!("{message}: renew it (if `init` created it, with `portcullis init DIR --renew`)");
        Some(Fault::warning(self.place.clone(), FaultKind::Invalid, message))
    }
}

/// A warning for each certificate that has expired at `now` or expires within [`NOTICE`].
#[must_use]
pub fn warnings(expiries: &[Expiry], now: SystemTime) -> Faults {
    let mut faults = Faults::new();
    faults.extend(expiries.iter().filter_map(|expiry| expiry.warning(now)));
    faults
}

/// The expiry of each certificate that `config` names, in its own files and in kubeconfigs. Files
/// that cannot be read are left out: the code that uses them reports that.
#[must_use]
pub fn of_configuration(config: &Config, files: &dyn Files) -> Vec<Expiry> {
    let mut collector = Collector {
        files,
        found: Vec::new(),
    };
    collector.own(config);
    collector.callers(config);
    collector.upstreams(config);
    for entry in &config.authorization.webhooks {
        collector.context(&entry.kubeconfig, Use::Upstream);
    }
    for entry in &config.clusters {
        collector.context(&entry.kubeconfig, Use::Cluster);
    }
    collector.found
}

struct Collector<'c> {
    files: &'c dyn Files,
    found: Vec<Expiry>,
}

// === impl Collector ===

impl Collector<'_> {
    fn own(&mut self, config: &Config) {
        let tls = &config.server.tls;
        self.file(&tls.certificate, Use::Server, &["server", "tls", "certificate"]);
        if let Some(authorities) = &tls.client_ca {
            self.file(authorities, Use::ClientCa, &["server", "tls", "clientCA"]);
        }
        if let Some(tls) = config.console.as_ref().and_then(|console| console.tls.as_ref()) {
            self.file(&tls.certificate, Use::Server, &["console", "tls", "certificate"]);
        }
    }

    fn callers(&mut self, config: &Config) {
        for path in config.caller_kubeconfigs() {
            let (kubeconfig, _) = kubeconfig::read(self.files, path);
            for user in &kubeconfig.users {
                self.pem(
                    user.certificate.as_deref(),
                    path,
                    &user.name,
                    Use::Caller,
                    &user.place,
                );
            }
            self.authorities(&kubeconfig.clusters, path, Use::Caller);
        }
    }

    fn upstreams(&mut self, config: &Config) {
        let of_clusters = config
            .clusters
            .iter()
            .filter_map(|entry| entry.upstreams.as_ref());
        for access in [&config.upstreams.access].into_iter().chain(of_clusters) {
            if let Some(bundle) = &access.ca_bundle {
                self.file(bundle, Use::Upstream, &["upstreams", "caBundle"]);
            }
            if let Some(path) = &access.kubeconfig {
                let (hosts, _) = client::by_host(self.files, path);
                for user in &hosts.users {
                    self.user(user, path, Use::Upstream);
                }
            }
        }
    }

    /// Adds the certificates of the current context: of its user and of its cluster.
    fn context(&mut self, path: &Path, used_for: Use) {
        let (Some(context), _, _) = client::of_context(self.files, path) else {
            return;
        };
        if let Some(user) = &context.user {
            self.user(user, path, used_for);
        }
        self.authorities(std::slice::from_ref(&context.cluster), path, used_for);
    }

    fn user(&mut self, user: &client::ClientUser, path: &Path, used_for: Use) {
        let pem = user.certificate.as_ref().map(|pair| pair.certificate.as_slice());
        self.pem(pem, path, &user.name, used_for, &user.place);
    }

    /// Adds the CAs of a kubeconfig's clusters as one entry with the earliest expiry.
    fn authorities(&mut self, clusters: &[Cluster], path: &Path, used_for: Use) {
        let ends = |cluster: &Cluster| {
            let at = cluster.authorities.as_deref().and_then(first_end)?;
            Some((at, cluster.place.clone()))
        };
        let first = clusters.iter().filter_map(ends).min_by_key(|(at, _)| *at);
        if let Some((at, place)) = first {
            self.push(at, path, "", used_for, place);
        }
    }

    fn file(&mut self, file: &Path, used_for: Use, path: &[&str]) {
        let place = Place {
            file: Some(file.to_string_lossy().into()),
            path: path
                .iter()
                .fold(FieldPath::root(), |path, field| path.field(field)),
            ..Place::default()
        };
        let pem = self.files.read(file).ok();
        self.pem(pem.as_deref(), file, "", used_for, &place);
    }

    fn pem(&mut self, pem: Option<&[u8]>, file: &Path, name: &str, used_for: Use, place: &Place) {
        if let Some(at) = pem.and_then(first_end) {
            self.push(at, file, name, used_for, place.clone());
        }
    }

    fn push(&mut self, at: SystemTime, file: &Path, name: &str, used_for: Use, place: Place) {
        self.found.push(Expiry {
            file: file.to_owned(),
            name: name.to_owned(),
            used_for,
            at,
            place,
        });
    }
}

/// The earliest `notAfter` of the certificates in `pem`.
fn first_end(pem: &[u8]) -> Option<SystemTime> {
    let certificates = X509::stack_from_pem(pem).ok()?;
    certificates
        .iter()
        .filter_map(|certificate| system_time(certificate.not_after()).ok())
        .min()
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Reminds once at 30, 7 and 1 days before a certificate expires, and once after it has.
#[derive(Debug, Default)]
pub struct Reminders(HashMap<Certificate, ReminderStage>);

type Certificate = (PathBuf, String, Use);

/// How near the expiry is, in the order of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ReminderStage {
    Far,
    Month,
    Week,
    Day,
    Over,
}

// === impl Reminders ===

impl Reminders {
    /// The certificates to remind of at `now`: those that came a stage nearer to their expiry since
    /// the last call, or that are new and near it. A renewed certificate starts again at the first
    /// stage.
    pub fn due<'e>(&mut self, expiries: &'e [Expiry], now: SystemTime) -> Vec<&'e Expiry> {
        let mut stages = HashMap::new();
        let mut due = Vec::new();
        for expiry in expiries {
            let certificate = (expiry.file.clone(), expiry.name.clone(), expiry.used_for);
            let stage = ReminderStage::of(expiry.at, now);
            let before = self.0.get(&certificate).copied().unwrap_or(ReminderStage::Far);
            if stage > before {
                due.push(expiry);
            }
            // Of several certificates with one name, the one that expires first counts.
            let kept = stages.entry(certificate).or_insert(stage);
            *kept = stage.max(*kept);
        }
        self.0 = stages;
        due
    }
}

// === impl ReminderStage ===

impl ReminderStage {
    fn of(end: SystemTime, now: SystemTime) -> Self {
        match end.duration_since(now) {
            Err(_) => Self::Over,
            Ok(left) if left <= DAY => Self::Day,
            Ok(left) if left <= 7 * DAY => Self::Week,
            Ok(left) if left <= 30 * DAY => Self::Month,
            Ok(_) => Self::Far,
        }
    }
}

const SECONDS_PER_DAY: u64 = 24 * 60 * 60;

/// Converts the time of a certificate. A time before 1970 becomes 1970.
///
/// # Errors
///
/// OpenSSL cannot convert it.
pub fn system_time(time: &Asn1TimeRef) -> Result<SystemTime, ErrorStack> {
    let since = Asn1Time::from_unix(0)?.diff(time)?;
    let seconds = i64::from(since.days) * SECONDS_PER_DAY.cast_signed() + i64::from(since.secs);
    Ok(SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// Formats a time, such as `2027-01-31T00:00:00Z`.
#[must_use]
pub fn rfc3339(time: SystemTime) -> String {
    OffsetDateTime::from(time)
        .format(&Rfc3339)
        .unwrap_or_else(|_| "a time that cannot be written".to_owned())
}

/// Formats a duration as `3 days`, `1 day` or `5 hours`, rounded down.
pub(crate) fn days(left: Duration) -> String {
    let (count, unit) = match left.as_secs() {
        seconds if seconds >= SECONDS_PER_DAY => (seconds / SECONDS_PER_DAY, "day"),
        seconds => (seconds / 3600, "hour"),
    };
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {unit}{plural}")
}

// === impl ServedCertificate ===

impl<'s> ServedCertificate<'s> {
    /// The first certificate of a chain, with the others as intermediates.
    pub(crate) fn new(chain: &'s [X509]) -> Option<Self> {
        let (certificate, intermediates) = chain.split_first()?;
        Some(Self {
            certificate,
            intermediates,
        })
    }

    fn misfits(&self, kubeconfig: &Kubeconfig) -> Vec<Fault> {
        let mut faults = Vec::new();
        for called in &kubeconfig.clusters {
            let host = called
                .server_name
                .clone()
                .or_else(|| host_of_url(&called.server).map(str::to_owned));
            let field = if called.server_name.is_some() {
                "tls-server-name"
            } else {
                "server"
            };
            let place = |field| called.place.at(called.place.path.field(field));
            faults.extend(host.and_then(|host| self.host_warning(&host, place(field))));
            let authorities = called.authorities.as_deref().unwrap_or_default();
            if !authorities.is_empty() && !self.is_signed_by(authorities) {
                let message = "the server's certificate is not signed by this CA: the caller would \
                     not trust the gateway";
                faults.push(Fault::warning(
                    place("certificate-authority"),
                    FaultKind::Invalid,
                    message,
                ));
            }
        }
        if kubeconfig.clusters.is_empty() {
            // In a kubeconfig of an API server for admission, the names of the users are the hosts.
            let of_user = |user: &kubeconfig::User| {
                let host = host_of_user(&user.name)?;
                self.host_warning(host, user.place.clone())
            };
            faults.extend(kubeconfig.users.iter().filter_map(of_user));
        }
        faults
    }

    fn host_warning(&self, host: &str, place: Place) -> Option<Fault> {
        if self.is_for(host) {
            return None;
        }
        let message = format!(
            "the server's certificate is not valid for `{host}`, only for {}: the caller would not \
             trust the gateway",
            self.names()
        );
        Some(Fault::warning(place, FaultKind::Invalid, message))
    }

    /// Whether the certificate is valid for `host` by the rules of Go: only alternative names
    /// count, and `*` stands for one whole label.
    pub(crate) fn is_for(&self, host: &str) -> bool {
        self.verifies(std::slice::from_ref(self.certificate), |rules| {
            rules.set_hostflags(X509CheckFlags::NO_PARTIAL_WILDCARDS | X509CheckFlags::NEVER_CHECK_SUBJECT);
            match host.parse::<IpAddr>() {
                Ok(address) => rules.set_ip(address),
                Err(_) => rules.set_host(host),
            }
        })
    }

    /// Whether one of these CAs, in PEM, signed the certificate. Expiry is ignored.
    pub(crate) fn is_signed_by(&self, authorities: &[u8]) -> bool {
        X509::stack_from_pem(authorities).is_ok_and(|authorities| {
            self.verifies(&authorities, |rules| rules.set_purpose(X509PurposeId::SSL_SERVER))
        })
    }

    fn verifies(
        &self,
        authorities: &[X509],
        rule: impl FnOnce(&mut X509VerifyParam) -> Result<(), openssl::error::ErrorStack>,
    ) -> bool {
        self.try_verify(authorities, rule).unwrap_or(false)
    }

    fn try_verify(
        &self,
        authorities: &[X509],
        rule: impl FnOnce(&mut X509VerifyParam) -> Result<(), openssl::error::ErrorStack>,
    ) -> Result<bool, openssl::error::ErrorStack> {
        let mut rules = X509VerifyParam::new()?;
        rules.set_flags(X509VerifyFlags::PARTIAL_CHAIN | X509VerifyFlags::NO_CHECK_TIME)?;
        rule(&mut rules)?;
        let mut store = X509StoreBuilder::new()?;
        store.set_param(&rules)?;
        for authority in authorities {
            store.add_cert(authority.clone())?;
        }
        let mut untrusted = Stack::new()?;
        for certificate in self.intermediates {
            untrusted.push(certificate.clone())?;
        }
        X509StoreContext::new()?.init(&store.build(), self.certificate, &untrusted, |context| {
            context.verify_cert()
        })
    }

    /// The hosts that the certificate is valid for.
    pub(crate) fn names(&self) -> String {
        let names = self.certificate.subject_alt_names();
        let names: Vec<String> = names
            .iter()
            .flatten()
            .filter_map(|name| {
                let address = name.ipaddress().and_then(address);
                name.dnsname().map(str::to_owned).or(address)
            })
            .map(|name| format!("`{name}`"))
            .collect();
        if names.is_empty() {
            return "no name".to_owned();
        }
        names.join(", ")
    }
}

fn address(bytes: &[u8]) -> Option<String> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let v6 = <[u8; 16]>::try_from(bytes).map(IpAddr::from);
    v4.or(v6).ok().map(|address| address.to_string())
}

/// The host of `https://host:port/path`; an IP address without brackets.
pub(crate) fn host_of_url(url: &str) -> Option<&str> {
    let rest = url.split_once("://").map(|(_, rest)| rest)?;
    let authority = rest.split(['/', '?', '#']).next()?;
    host(authority)
}

/// The host in the name of a user, as an API server looks it up; `None` if it is a pattern.
fn host_of_user(name: &str) -> Option<&str> {
    host(name).filter(|host| !host.contains('*'))
}

fn host(authority: &str) -> Option<&str> {
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?.0,
        None => authority.rsplit_once(':').map_or(authority, |(host, _)| host),
    };
    Some(host).filter(|host| !host.is_empty())
}

#[cfg(test)]
mod tests;
