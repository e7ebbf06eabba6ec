//! The state of watched clusters at one moment: their objects, and which webhooks of their webhook
//! configurations call this gateway.
//!
//! A webhook calls this gateway if its path is `/validate` or `/mutate`, or `/t/TOKEN/validate`
//! with the token of a caller of that cluster, and if the API server accepts this gateway's
//! certificate for the host that the webhook calls.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use serde_json::Value;

use crate::config::{AdmissionEvidence, ClusterEntry, Config, Endpoint};
use crate::identity::certificates::{ServedCertificate, host_of_url};
use crate::identity::tls::TlsContext;
use crate::identity::{Attestation, Authenticator, Caller};
use portcullis_policy::admission::matching::{CustomResources, Equivalents};
use portcullis_policy::admission::webhook::{Webhook, WebhookTarget};
use portcullis_policy::admission::{GatewayWebhooks, Phase, Registration, UnknownObjects};
use portcullis_policy::authorization::ReviewKnowledge;
use portcullis_policy::authorization::matching::ClusterScoped;
use portcullis_policy::manifest::ValidatedObject;
use portcullis_policy::model::Time;

/// The objects of one cluster at one moment.
#[derive(Debug, Clone, Default)]
pub struct WatchedObjects {
    pub cluster: String,
    /// The objects, each once, in no particular order. A part that did not change is shared with
    /// the previous moment.
    pub parts: Vec<Arc<WatchedPart>>,
    /// The kinds and objects of the cluster that are not contained in `parts`.
    pub unknown: UnknownObjects,
    /// The custom resources that are cluster-scoped according to their CustomResourceDefinitions.
    pub cluster_scoped: ClusterScoped,
    /// The resources that its CustomResourceDefinitions define.
    pub custom_resources: CustomResources,
    /// The webhook configurations of the API server, if they are watched to know what `/validate`
    /// sees.
    pub registrations: Option<Arc<WatchedWebhookConfigurations>>,
    /// The public keys of the API server's tokens, as JWKS, if they are needed and known.
    pub token_keys: Option<Arc<[u8]>>,
    /// A digest of the objects.
    pub digest: [u8; 32],
    /// Set while nothing is known about the cluster yet.
    pub unsynced: Option<UnsyncedCluster>,
}

/// The webhook configurations of an API server.
#[derive(Debug, PartialEq, Eq)]
pub enum WatchedWebhookConfigurations {
    /// All of them.
    Known(Vec<WatchedRegistration>),
    /// They are unknown, for this reason.
    Unproven(Arc<str>),
}

/// A webhook configuration of an API server.
#[derive(Debug)]
pub struct WatchedRegistration {
    pub configuration: Arc<ValidatedObject>,
    /// A digest of its content.
    pub digest: [u8; 32],
    /// Distinguishes it from a deleted one of the same name.
    pub uid: Box<str>,
    /// Since when it has been as it is, if that is known.
    pub since: Option<Time>,
}

/// A cluster about which nothing is known since the gateway started to follow it, or whose own
/// files are partly unknown: neither all grants nor all denials are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsyncedCluster {
    /// Until when requests are not decided without the missing objects; `None`: until faulty files
    /// are repaired.
    pub until: Option<Instant>,
    /// The gateway's own user name at the API server, if the credentials contain it.
    pub own_user: Option<String>,
}

/// The clusters whose policies are unknown until files are repaired. Their requests are not
/// decided, because an unknown Deny might apply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct UnknownClusters {
    /// Clusters with faulty files that no earlier files can replace.
    pub(crate) faulty: BTreeSet<String>,
    /// Clusters whose kubeconfigs cannot be used, so that nothing is learnt from their API servers.
    /// Their saved objects are in force.
    pub(crate) unreachable: BTreeSet<String>,
}

/// The response to a request for a cluster that is not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnsyncedResponse {
    /// The caller has to retry.
    Later,
    /// The request cannot be decided until files are repaired.
    Faulty,
    /// No opinion, at once.
    NoOpinion,
    /// A decision by the files only, because the cluster has been waited for long enough.
    Decided,
}

/// The content of a watched object, without what its API server adds.
pub trait WatchedText: fmt::Debug + Send + Sync {
    /// The content as JSON.
    fn to_json(&self) -> Value;
}

/// Some objects of a cluster.
#[derive(Debug, Default)]
pub struct WatchedPart {
    pub objects: Vec<Arc<ValidatedObject>>,
    /// The content of each object, in the same order; empty if not needed.
    pub texts: Vec<Arc<dyn WatchedText>>,
    /// A digest of the objects.
    pub digest: [u8; 32],
}

/// The maximum of webhooks that are named in the log because they do not count.
const MAX_NAMED: usize = 10;

/// How an API server recognises the gateway, and the gateway an API server.
#[derive(Clone, Copy)]
pub(crate) struct GatewayIdentity<'i> {
    pub(crate) tls: &'i TlsContext,
    pub(crate) authenticator: &'i Authenticator,
    pub(crate) now: SystemTime,
}

/// What is known about the webhook configurations of a watched cluster.
#[derive(Debug, Clone)]
pub enum KnownWebhookConfigurations {
    /// The webhooks that call this gateway.
    Known(Arc<GatewayWebhooks>),
    /// The webhook configurations are unknown, for this reason.
    Unproven(Arc<str>),
}

/// What is known of each cluster whose webhook configurations are watched.
pub(crate) type RegistrationsByCluster = BTreeMap<String, KnownWebhookConfigurations>;

/// The endpoint of the gateway that a webhook calls.
struct CalledEndpoint<'w> {
    host: String,
    token: Option<&'w str>,
    phase: Phase,
}

/// What is known about the webhook configurations of the clusters of `config` with `admission:
/// Watched`. If this is the same as in `earlier`, it is shared.
pub(crate) fn known(
    config: &Config,
    watched: &[Arc<WatchedObjects>],
    identity: GatewayIdentity<'_>,
    earlier: Option<&RegistrationsByCluster>,
) -> RegistrationsByCluster {
    let entries = config.clusters.iter();
    let entries = entries.filter(|entry| entry.admission == AdmissionEvidence::Watched);
    let of_entry = |entry: &ClusterEntry| {
        let of_cluster = watched.iter().find(|one| one.cluster == entry.name);
        let earlier = earlier.and_then(|earlier| earlier.get(&entry.name));
        let of_cluster = of_cluster.map(AsRef::as_ref);
        let known = KnownWebhookConfigurations::of((&entry.name, of_cluster), config, identity, earlier);
        (entry.name.clone(), known)
    };
    entries.map(of_entry).collect()
}

fn registrations_of(
    (all, custom): (&[WatchedRegistration], &CustomResources),
    cluster: &str,
    config: &Config,
    identity: GatewayIdentity<'_>,
) -> GatewayWebhooks {
    let mut found = Vec::new();
    for WatchedRegistration {
        configuration, since, ..
    } in all
    {
        let kind = configuration.identity().kind();
        for webhook in configuration.webhooks() {
            let Some(called) = CalledEndpoint::of(webhook).filter(|called| called.is_called_by_kind(kind))
            else {
                continue;
            };
            let misses = identity.misses(&called, cluster, &webhook.client.ca_bundle);
            found.push(Registration::new(
                called.phase,
                Arc::clone(webhook),
                *since,
                misses,
            ));
        }
    }
    let equivalents = Equivalents::kubernetes().with(custom.clone());
    GatewayWebhooks::new(found, equivalents, config.admission.cel_version)
}

/// Logs which webhooks count, so that the author of an Allow that grants nothing can find out why.
fn log(cluster: &str, found: &GatewayWebhooks) {
    let name = |webhook: &Webhook| format!("{}/{}", webhook.configuration, webhook.name);
    let counted: Vec<String> = found.fit().map(name).collect();
    let unfit = found.unfit().take(MAX_NAMED);
    let others: Vec<String> = unfit
        .map(|(webhook, why)| format!("{}: {why}", name(webhook)))
        .collect();
    let (counted, others) = (counted.join(", "), others.join("; "));
    tracing::info!(
        cluster,
        counted,
        others,
        "the webhook configurations of the cluster that call this gateway"
    );
}

// === impl WatchedObjects ===

impl WatchedObjects {
    /// All objects.
    pub fn objects(&self) -> impl Iterator<Item = &Arc<ValidatedObject>> {
        self.parts.iter().flat_map(|part| &part.objects)
    }

    /// Whether the cluster has the webhook configuration of a token, and it calls the URL of the
    /// token. An unknown configuration does not count.
    pub(crate) fn has_configuration(&self, token: &Attestation) -> bool {
        let Some(WatchedWebhookConfigurations::Known(all)) = self.registrations.as_deref() else {
            return false;
        };
        all.iter().any(|one| {
            let identity = one.configuration.identity();
            let webhooks = one.configuration.webhooks();
            identity.kind() == token.kind
                && identity.name() == token.name
                && *one.uid == *token.uid
                && webhooks.iter().any(|webhook| token.calls(&webhook.client.target))
        })
    }

    /// The objects here that are not in `before`, and those in `before` that are not here.
    pub(crate) fn difference<'o>(
        &'o self,
        before: &'o Self,
    ) -> (Vec<&'o Arc<ValidatedObject>>, Vec<&'o Arc<ValidatedObject>>) {
        let (now, before): (Vec<_>, Vec<_>) = (self.parts.iter().collect(), before.parts.iter().collect());
        let objects = |parts: Vec<&'o Arc<WatchedPart>>| -> Vec<_> {
            parts.into_iter().flat_map(|part| &part.objects).collect()
        };
        let (come, gone) = (objects(without(&now, &before)), objects(without(&before, &now)));
        (without(&come, &gone), without(&gone, &come))
    }
}

/// The elements of `some` whose addresses are not among `others`.
fn without<'o, T>(some: &[&'o Arc<T>], others: &[&Arc<T>]) -> Vec<&'o Arc<T>> {
    let others: HashSet<*const T> = others.iter().map(|one| Arc::as_ptr(one)).collect();
    let others = |one: &&&'o Arc<T>| !others.contains(&Arc::as_ptr(one));
    some.iter().filter(others).copied().collect()
}

// === impl WatchedWebhookConfigurations ===

/// A representation of the content, for digests.
impl fmt::Display for WatchedWebhookConfigurations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(all) => all
                .iter()
                .try_for_each(|one| writeln!(f, "{:x?} {:?} {}", one.digest, one.since, one.uid)),
            Self::Unproven(why) => f.write_str(why),
        }
    }
}

impl PartialEq for WatchedRegistration {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.configuration, &other.configuration)
            && self.since == other.since
            && self.uid == other.uid
    }
}

impl Eq for WatchedRegistration {}

// === impl UnsyncedCluster ===

impl UnsyncedCluster {
    /// The response to a request of `user` at `now`. Protected requests are not delayed, or a
    /// gateway could not start in its own cluster; nor are those of the gateway's own user, because
    /// the objects that it waits for would never arrive.
    #[must_use]
    pub fn answer(&self, user: &str, is_protected: bool, now: Instant) -> UnsyncedResponse {
        match self.until {
            Some(until) if now >= until => UnsyncedResponse::Decided,
            _ if is_protected || self.own_user.as_deref() == Some(user) => UnsyncedResponse::NoOpinion,
            Some(_) => UnsyncedResponse::Later,
            None => UnsyncedResponse::Faulty,
        }
    }
}

// === impl UnknownClusters ===

impl UnknownClusters {
    /// Whether no request of any caller would be decided.
    pub(crate) fn affects_all_callers(&self, config: &Config) -> bool {
        !self.faulty.is_empty()
            && config
                .callers
                .iter()
                .all(|caller| self.faulty.contains(&caller.cluster))
    }

    /// Delays the requests of these clusters until files are repaired, except for protected
    /// requests and those of the gateway's `own_user`.
    pub(crate) fn delay_requests(
        &self,
        unsynced: &mut HashMap<String, UnsyncedCluster>,
        own_user: impl Fn(&str) -> Option<String>,
    ) {
        for cluster in &self.faulty {
            let unknown = UnsyncedCluster {
                until: None,
                own_user: own_user(cluster),
            };
            unsynced.insert(cluster.clone(), unknown);
        }
        // Of unreachable clusters, the saved objects are known.
        for cluster in &self.unreachable {
            if let Some(unsynced) = unsynced.get_mut(cluster) {
                unsynced.until = None;
            }
        }
    }
}

// === impl KnownWebhookConfigurations ===

impl KnownWebhookConfigurations {
    fn of(
        (cluster, watched): (&str, Option<&WatchedObjects>),
        config: &Config,
        identity: GatewayIdentity<'_>,
        earlier: Option<&Self>,
    ) -> Self {
        let listed = watched.and_then(|watched| Some((watched, watched.registrations.as_deref()?)));
        let all = match listed {
            None => return Self::Unproven("they have not been listed yet".into()),
            Some((_, WatchedWebhookConfigurations::Unproven(why))) => return Self::Unproven(Arc::clone(why)),
            Some((watched, WatchedWebhookConfigurations::Known(all))) => {
                (all.as_slice(), &watched.custom_resources)
            }
        };
        let found = registrations_of(all, cluster, config, identity);
        match earlier {
            Some(Self::Known(earlier)) if earlier.is_same(&found) => Self::Known(Arc::clone(earlier)),
            _ => {
                log(cluster, &found);
                Self::Known(Arc::new(found))
            }
        }
    }
}

impl From<&KnownWebhookConfigurations> for ReviewKnowledge {
    fn from(known: &KnownWebhookConfigurations) -> Self {
        match known {
            KnownWebhookConfigurations::Known(registrations) => {
                Self::Watched(Arc::<GatewayWebhooks>::clone(registrations))
            }
            KnownWebhookConfigurations::Unproven(why) => Self::Unproven(Arc::clone(why)),
        }
    }
}

// === keys of tokens ===

/// `authenticator` with the keys that the API servers of `watched` clusters publish for their
/// tokens, if these differ from those in `known`.
pub(crate) fn with_published_keys(
    authenticator: &Arc<Authenticator>,
    watched: &[Arc<WatchedObjects>],
    known: &[Arc<WatchedObjects>],
) -> Arc<Authenticator> {
    let published = |watched: &[Arc<WatchedObjects>]| -> BTreeMap<String, Arc<[u8]>> {
        let keys = watched.iter();
        keys.filter_map(|one| Some((one.cluster.clone(), Arc::clone(one.token_keys.as_ref()?))))
            .collect()
    };
    let now = published(watched);
    if now == published(known) {
        return Arc::clone(authenticator);
    }
    let of_cluster = |cluster: &str| now.get(cluster).map(AsRef::as_ref);
    Arc::new(Authenticator::clone(authenticator).with_published_keys(of_cluster))
}

// === impl CalledEndpoint ===

impl<'w> CalledEndpoint<'w> {
    /// The endpoint that `webhook` calls, if nothing follows it in the path.
    fn of(webhook: &'w Webhook) -> Option<Self> {
        let (host, path) = match &webhook.client.target {
            WebhookTarget::Url(url) => {
                let (_, rest) = url.split_once("://")?;
                let (_, path) = rest.split_once('/')?;
                (host_of_url(url)?.to_owned(), path)
            }
            WebhookTarget::Service {
                namespace,
                name,
                path,
                ..
            } => (format!("{name}.{namespace}.svc"), path.strip_prefix('/')?),
        };
        let (token, endpoint) = match path.strip_prefix("t/").and_then(|rest| rest.split_once('/')) {
            Some((token, endpoint)) => (Some(token), endpoint),
            None => (None, path),
        };
        let phase = match endpoint {
            "validate" => Phase::Validate,
            "mutate" => Phase::Mutate,
            _ => return None,
        };
        Some(Self { host, token, phase })
    }

    /// Whether webhook configurations of `kind` call this endpoint.
    fn is_called_by_kind(&self, kind: &str) -> bool {
        match self.phase {
            Phase::Validate => kind == "ValidatingWebhookConfiguration",
            Phase::Mutate => kind == "MutatingWebhookConfiguration",
        }
    }

    const fn endpoint(&self) -> Endpoint {
        match self.phase {
            Phase::Validate => Endpoint::Validate,
            Phase::Mutate => Endpoint::Mutate,
        }
    }
}

// === impl GatewayIdentity ===

impl GatewayIdentity<'_> {
    /// Why a request of the API server of `cluster` does not reach this gateway, or is rejected by
    /// it.
    fn misses(&self, called: &CalledEndpoint<'_>, cluster: &str, authorities: &[u8]) -> Option<String> {
        let Some(served) = ServedCertificate::new(self.tls.chain()) else {
            return Some("the gateway has no certificate".to_owned());
        };
        let host = &called.host;
        if !served.is_for(host) {
            let names = served.names();
            return Some(format!(
                "it calls `{host}`, and the gateway's certificate is for {names}"
            ));
        }
        if authorities.is_empty() || !served.is_signed_by(authorities) {
            return Some("its caBundle does not verify the gateway's certificate".to_owned());
        }
        let token = called.token?;
        let (caller, _) = self.authenticator.by_path_token(token.as_bytes(), self.now);
        let may_call =
            |caller: &Caller| *caller.cluster == *cluster && caller.endpoints.contains(called.endpoint());
        (!caller.is_ok_and(|caller| may_call(&caller))).then(|| {
            format!("no entry of `callers` accepts the token in its path for cluster `{cluster}` and this endpoint")
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_awaited_is_awaited_for_a_while_and_not_by_everybody() {
        let start = Instant::now();
        let unsynced = UnsyncedCluster {
            until: Some(start + Duration::from_secs(30)),
            own_user: Some("gateway".to_owned()),
        };
        let answer = |user: &str, is_protected: bool, seconds: u64| {
            unsynced.answer(user, is_protected, start + Duration::from_secs(seconds))
        };
        assert_eq!(answer("jane", false, 29), UnsyncedResponse::Later);
        assert_eq!(answer("jane", true, 29), UnsyncedResponse::NoOpinion);
        assert_eq!(answer("gateway", false, 29), UnsyncedResponse::NoOpinion);
        for user in ["jane", "gateway"] {
            assert_eq!(answer(user, false, 30), UnsyncedResponse::Decided);
        }
        let faulty = UnsyncedCluster {
            until: None,
            ..unsynced.clone()
        };
        let late = start + Duration::from_secs(1_000_000);
        assert_eq!(faulty.answer("jane", false, late), UnsyncedResponse::Faulty);
        assert_eq!(faulty.answer("jane", true, late), UnsyncedResponse::NoOpinion);
        assert_eq!(faulty.answer("gateway", false, late), UnsyncedResponse::NoOpinion);
    }
}
