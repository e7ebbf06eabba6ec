//! The settings for calling webhooks, from the section `upstreams` of the configuration and of its
//! `clusters`, and from the files that they name.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use openssl::x509::X509;

use super::client::{Addresses, ClientAuthorization, ClientIdentity, Settings, SettingsError, Url};
use crate::config::kubeconfig::client::{self, ByHost, ClientUser};
use crate::config::{BreakerLimits, ClusterEntry, Config, FileScope, Files, HeldBack, UpstreamAccess};
use portcullis_policy::admission::webhook::{ClientConfig, WebhookTarget};
use portcullis_policy::field::{Fault, FaultKind, Faults};

/// The `User-Agent` with which the API server calls admission webhooks.
pub const USER_AGENT: &str = "kube-apiserver-admission";

/// The settings for all webhooks.
#[derive(Debug)]
pub(crate) struct UpstreamSettings {
    pub(crate) reply_bytes: usize,
    /// The settings in `upstreams`, by the gateway's administrator.
    own: Arc<CallSettings>,
    /// The settings for each cluster. They contain nothing of another cluster.
    of_clusters: BTreeMap<String, Arc<CallSettings>>,
    /// The clusters with `upstreams` of their own, which also apply to their webhooks from files.
    separate: BTreeSet<String>,
}

/// The settings for some webhooks: addresses, CA, credentials, limits.
#[derive(Debug)]
pub(crate) struct CallSettings {
    pub(crate) in_flight: usize,
    pub(crate) breaker: Option<BreakerLimits>,
    is_http2: bool,
    via: String,
    addresses: Arc<Addresses>,
    /// The CAs that are trusted in addition to those of each webhook.
    authorities: Option<Vec<u8>>,
    users: ByHost,
    /// The credentials of each user, by name.
    credentials: HashMap<String, UpstreamCredentials>,
}

/// The credentials of a user of a kubeconfig.
#[derive(Debug, Clone, Default)]
pub struct UpstreamCredentials {
    /// Sent in the `Authorization` header.
    pub authorization: ClientAuthorization,
    /// Sent in the handshake.
    pub identity: Option<ClientIdentity>,
}

// === impl UpstreamSettings ===

impl UpstreamSettings {
    /// Reads the settings in `config`. Errors in the files of one cluster go to `held`, and its
    /// webhooks are called with the settings of `previous`, or not at all.
    pub(crate) fn read(config: &Config, previous: Option<&Self>, held: &mut HeldBack) -> (Self, Faults) {
        let (own, mut faults) = CallSettings::read(config, &config.upstreams.access, Addresses::of(config));
        let mut of_clusters = BTreeMap::new();
        for entry in &config.clusters {
            let (settings, found) = CallSettings::of_cluster(config, entry);
            let mut settings = Some(Arc::new(settings));
            if found.has_errors() && entry.is_written_by_tenant() {
                settings = previous.and_then(|previous| previous.of_clusters.get(&entry.name).cloned());
                held.entry(entry.name.clone()).or_default().append(found);
            } else {
                faults.append(found);
            }
            of_clusters.extend(settings.map(|settings| (entry.name.clone(), settings)));
        }
        let separate = config.clusters.iter().filter(|entry| entry.upstreams.is_some());
        let all = Self {
            reply_bytes: config.upstreams.reply_bytes,
            own: Arc::new(own),
            of_clusters,
            separate: separate.map(|entry| entry.name.clone()).collect(),
        };
        (all, faults)
    }

    /// The cluster whose settings apply to a webhook; `None` for those of the administrator. The
    /// webhook applies to `cluster` alone, or to all clusters if that is `None`.
    pub(crate) fn owner<'c>(&self, cluster: Option<&'c str>, is_watched: bool) -> Option<&'c str> {
        cluster.filter(|cluster| is_watched || self.separate.contains(*cluster))
    }

    /// The settings of this owner.
    pub(crate) fn of(&self, owner: Option<&str>) -> Option<&Arc<CallSettings>> {
        match owner {
            None => Some(&self.own),
            Some(cluster) => self.of_clusters.get(cluster),
        }
    }
}

// === impl CallSettings ===

impl CallSettings {
    /// The settings for the watched webhooks of a cluster.
    fn of_cluster(config: &Config, entry: &ClusterEntry) -> (Self, Faults) {
        let none = UpstreamAccess::default();
        let access = config.upstreams_of(entry).unwrap_or(&none);
        Self::read(config, access, Addresses::guarded(config, access))
    }

    fn read(config: &Config, access: &UpstreamAccess, addresses: Addresses) -> (Self, Faults) {
        let upstreams = &config.upstreams;
        let (users, mut faults) = users(access);
        let call_settings = Self {
            in_flight: upstreams.in_flight,
            breaker: upstreams.breaker,
            is_http2: upstreams.is_http2,
            via: config.pseudonym(),
            addresses: Arc::new(addresses),
            authorities: authorities(access, &mut faults),
            credentials: credentials_of_all(&users, &access.scope, &mut faults),
            users,
        };
        (call_settings, faults)
    }

    /// The settings and the credentials for calling a webhook of the cluster `tenant`.
    pub(crate) fn of(
        &self,
        webhook: &ClientConfig,
        tenant: Option<&str>,
    ) -> Result<(Settings, ClientAuthorization), SettingsError> {
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
            tenant: tenant.map(Arc::from),
            user_agent: USER_AGENT.to_owned(),
            via: self.via.clone(),
        };
        Ok((settings, credentials.authorization))
    }
}

/// Every file that `config` names for its upstreams.
pub(crate) fn files(config: &Config) -> Vec<PathBuf> {
    let of_clusters = config
        .clusters
        .iter()
        .filter_map(|entry| entry.upstreams.as_ref());
    let all = [&config.upstreams.access].into_iter().chain(of_clusters);
    let of = |access: &UpstreamAccess| {
        let mut files = users(access).0.files;
        files.extend(access.ca_bundle.clone());
        files.retain(|file| access.scope.contains(file));
        files
    };
    all.flat_map(of).collect()
}

fn users(access: &UpstreamAccess) -> (ByHost, Faults) {
    match &access.kubeconfig {
        Some(path) => client::by_host(&access.scope, path),
        None => Default::default(),
    }
}

/// The credentials of `user`, whose token file must be within `scope`.
///
/// # Errors
///
/// A certificate and key, or a token, that cannot be used.
pub fn credentials_of(user: &ClientUser, scope: &FileScope) -> Result<UpstreamCredentials, SettingsError> {
    let authorization = match (&user.bearer, &user.basic) {
        (Some(bearer), _) => match &bearer.file {
            Some(path) => ClientAuthorization::token_file((path, scope), &bearer.token)?,
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

fn credentials_of_all(
    users: &ByHost,
    scope: &FileScope,
    faults: &mut Faults,
) -> HashMap<String, UpstreamCredentials> {
    let mut credentials = HashMap::new();
    for user in &users.users {
        match credentials_of(user, scope) {
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

fn authorities(access: &UpstreamAccess, faults: &mut Faults) -> Option<Vec<u8>> {
    let path = access.ca_bundle.as_ref()?;
    let place = &access.place;
    let place = place.at(place.path.field("caBundle"));
    let named = |what: &str| format!("`{}`: {what}", path.display());
    match Files::read(&access.scope, path) {
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
