//! What is known of watched clusters at one moment: their objects, and which webhooks of their webhook
//! configurations call this gateway.
//!
//! A webhook does if its path is `/validate` or `/mutate`, or `/t/TOKEN/validate` with a token of a caller of that
//! cluster, and the API server would take any server with this gateway's certificate for the host that it calls.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use serde_json::Value;

use crate::config::{AdmissionKnowledge, ClusterEntry, Config, Endpoint};
use crate::identity::certificates::{ServedCertificate, host_of_url};
use crate::identity::tls::TlsContext;
use crate::identity::{Attestation, Authenticator, Caller};
use portcullis_policy::admission::matching::{CustomResources, Equivalents};
use portcullis_policy::admission::webhook::{Webhook, WebhookTarget};
use portcullis_policy::admission::{Phase, Registration, Registrations, UnknownObjects};
use portcullis_policy::authorization::ReviewKnowledge;
use portcullis_policy::authorization::matching::ClusterScoped;
use portcullis_policy::manifest::ValidatedObject;
use portcullis_policy::model::Time;

/// The objects of one cluster at one moment.
#[derive(Debug, Clone, Default)]
pub struct WatchedObjects {
    /// The cluster.
    pub cluster: String,
    /// Each object once, in an order of its own. A part in which nothing changed since the last
    /// moment is that moment's.
    pub parts: Vec<Arc<WatchedPart>>,
    /// What there is in the cluster and is not among them.
    pub unknown: UnknownObjects,
    /// The custom resources that its CustomResourceDefinitions give no namespace.
    pub cluster_scoped: ClusterScoped,
    /// What its CustomResourceDefinitions say.
    pub custom_resources: CustomResources,
    /// The webhook configurations that the API server runs, where they say what `/validate` sees.
    pub registrations: Option<Arc<WatchedRegistrations>>,
    /// The public keys of the tokens that its API server makes, as JWKS, where they are wanted and known.
    pub token_keys: Option<Arc<[u8]>>,
    /// Names their content: equal objects, equal digest.
    pub digest: [u8; 32],
    /// That nothing is known of the cluster yet; `None` where its objects are.
    pub unsynced: Option<UnsyncedCluster>,
}

/// The webhook configurations that an API server runs.
#[derive(Debug, PartialEq, Eq)]
pub enum WatchedRegistrations {
    /// Each of them.
    Known(Vec<WatchedRegistration>),
    /// They are not known, for this reason.
    Unproven(Arc<str>),
}

/// A webhook configuration that an API server runs.
#[derive(Debug)]
pub struct WatchedRegistration {
    /// It.
    pub configuration: Arc<ValidatedObject>,
    /// Names its content.
    pub digest: [u8; 32],
    /// Tells it from one of the same name that is deleted.
    pub uid: Box<str>,
    /// Since when it is as it is, where that is known.
    pub since: Option<Time>,
}

/// A cluster of which nothing is known since the gateway follows it, or of whose own files something
/// is not: neither all its grants nor all its denials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsyncedCluster {
    /// Until when its requests are not decided without what is not known; `None`: until somebody mends
    /// the files that keep it from being known.
    pub until: Option<Instant>,
    /// What its API server calls the gateway's own user, where the credentials say.
    pub own_user: Option<String>,
}

/// The clusters whose policies are not known until somebody mends files. Their requests are not
/// decided: a Deny may be among what is not known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct UnknownClusters {
    /// Files of their own have faults, and nothing stands in for these.
    pub(crate) faulty: BTreeSet<String>,
    /// What their kubeconfigs say cannot be used, so that nothing is learnt of their API servers. What
    /// was saved of them holds.
    pub(crate) unreachable: BTreeSet<String>,
}

/// How a request is answered of whose cluster nothing is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnsyncedAnswer {
    /// It is to be asked again.
    Later,
    /// Not at all, until files are mended.
    Faulty,
    /// Without opinion, at once.
    NoOpinion,
    /// By the files alone: it has waited for long enough.
    Decided,
}

/// What a watched object says, without what its API server adds.
pub trait WatchedText: fmt::Debug + Send + Sync {
    /// As JSON.
    fn to_json(&self) -> Value;
}

/// Some objects of a cluster.
#[derive(Debug, Default)]
pub struct WatchedPart {
    /// The objects.
    pub objects: Vec<Arc<ValidatedObject>>,
    /// What each of them says, in the same order; none where nobody looks.
    pub texts: Vec<Arc<dyn WatchedText>>,
    /// Names their content.
    pub digest: [u8; 32],
}

/// The most webhooks that do not count and are named in the log.
const MAX_NAMED: usize = 10;

/// By what an API server recognises the gateway, and the gateway an API server.
#[derive(Clone, Copy)]
pub(crate) struct GatewayIdentity<'i> {
    pub(crate) tls: &'i TlsContext,
    pub(crate) authenticator: &'i Authenticator,
    pub(crate) now: SystemTime,
}

/// What is known of the webhook configurations of a cluster that is watched.
#[derive(Debug, Clone)]
pub enum ClusterRegistrations {
    /// Which of them call this gateway.
    Known(Arc<Registrations>),
    /// It is not known which there are, for this reason.
    Unproven(Arc<str>),
}

/// That of each cluster that is watched for it.
pub(crate) type RegistrationsByCluster = BTreeMap<String, ClusterRegistrations>;

/// What a webhook calls, if that is one of the gateway's endpoints.
struct CalledEndpoint<'w> {
    host: String,
    token: Option<&'w str>,
    phase: Phase,
}

/// What is known of the registrations of the clusters of `config` with `admission: Watched`; where that is
/// the same as in `earlier`, it is that.
pub(crate) fn known(
    config: &Config,
    watched: &[Arc<WatchedObjects>],
    identity: GatewayIdentity<'_>,
    earlier: Option<&RegistrationsByCluster>,
) -> RegistrationsByCluster {
    let entries = config.clusters.iter();
    let entries = entries.filter(|entry| entry.admission == AdmissionKnowledge::Watched);
    let of_entry = |entry: &ClusterEntry| {
        let of_cluster = watched.iter().find(|one| one.cluster == entry.name);
        let earlier = earlier.and_then(|earlier| earlier.get(&entry.name));
        let of_cluster = of_cluster.map(AsRef::as_ref);
        let known = ClusterRegistrations::of((&entry.name, of_cluster), config, identity, earlier);
        (entry.name.clone(), known)
    };
    entries.map(of_entry).collect()
}

fn registrations_of(
    (all, custom): (&[WatchedRegistration], &CustomResources),
    cluster: &str,
    config: &Config,
    identity: GatewayIdentity<'_>,
) -> Registrations {
    let mut found = Vec::new();
    for WatchedRegistration {
        configuration, since, ..
    } in all
    {
        let kind = configuration.identity().kind();
        for webhook in configuration.webhooks() {
            let Some(called) = CalledEndpoint::of(webhook).filter(|called| called.is_of(kind)) else {
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
    Registrations::new(found, equivalents, config.admission.cel_version)
}

/// Says which webhooks count, so that who wrote an Allow that grants nothing finds out why.
fn log(cluster: &str, found: &Registrations) {
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
    /// Every object.
    pub fn objects(&self) -> impl Iterator<Item = &Arc<ValidatedObject>> {
        self.parts.iter().flat_map(|part| &part.objects)
    }

    /// Whether the cluster has the webhook configuration of a token, and that calls the URL of the token. What
    /// is not known for certain is not there.
    pub(crate) fn has_configuration(&self, token: &Attestation) -> bool {
        let Some(WatchedRegistrations::Known(all)) = self.registrations.as_deref() else {
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

    /// The objects here that are not in `before`, and those there that are not here.
    pub(crate) fn unlike<'o>(
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

/// Those of `some` that are not among `others`, the very ones.
fn without<'o, T>(some: &[&'o Arc<T>], others: &[&Arc<T>]) -> Vec<&'o Arc<T>> {
    let others: HashSet<*const T> = others.iter().map(|one| Arc::as_ptr(one)).collect();
    let others = |one: &&&'o Arc<T>| !others.contains(&Arc::as_ptr(one));
    some.iter().filter(others).copied().collect()
}

// === impl WatchedRegistrations ===

/// What names its content.
impl fmt::Display for WatchedRegistrations {
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
    /// How a request of `user` is answered at `now`. Those that are never denied are not held up,
    /// or a gateway could not start in its own cluster; nor is the gateway's own user, or what is
    /// awaited would never come.
    #[must_use]
    pub fn answer(&self, user: &str, is_protected: bool, now: Instant) -> UnsyncedAnswer {
        match self.until {
            Some(until) if now >= until => UnsyncedAnswer::Decided,
            _ if is_protected || self.own_user.as_deref() == Some(user) => UnsyncedAnswer::NoOpinion,
            Some(_) => UnsyncedAnswer::Later,
            None => UnsyncedAnswer::Faulty,
        }
    }
}

// === impl UnknownClusters ===

impl UnknownClusters {
    /// Whether no request of anybody would be decided.
    pub(crate) fn leaves_nobody(&self, config: &Config) -> bool {
        !self.faulty.is_empty()
            && config
                .callers
                .iter()
                .all(|caller| self.faulty.contains(&caller.cluster))
    }

    /// Has requests of these wait until files are mended. Those of the gateway's `own_user` in a
    /// cluster do not, nor those that are never denied.
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
        // Of the others, what was saved is known.
        for cluster in &self.unreachable {
            if let Some(unsynced) = unsynced.get_mut(cluster) {
                unsynced.until = None;
            }
        }
    }
}

// === impl ClusterRegistrations ===

impl ClusterRegistrations {
    fn of(
        (cluster, watched): (&str, Option<&WatchedObjects>),
        config: &Config,
        identity: GatewayIdentity<'_>,
        earlier: Option<&Self>,
    ) -> Self {
        let listed = watched.and_then(|watched| Some((watched, watched.registrations.as_deref()?)));
        let all = match listed {
            None => return Self::Unproven("they have not been listed yet".into()),
            Some((_, WatchedRegistrations::Unproven(why))) => return Self::Unproven(Arc::clone(why)),
            Some((watched, WatchedRegistrations::Known(all))) => (all.as_slice(), &watched.custom_resources),
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

impl From<&ClusterRegistrations> for ReviewKnowledge {
    fn from(known: &ClusterRegistrations) -> Self {
        match known {
            ClusterRegistrations::Known(registrations) => {
                Self::Watched(Arc::<Registrations>::clone(registrations))
            }
            ClusterRegistrations::Unproven(why) => Self::Unproven(Arc::clone(why)),
        }
    }
}

// === keys of tokens ===

/// `authenticator` with the keys that the API servers of `watched` clusters publish for their tokens, where they
/// are not those that were `known` of them.
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
    /// That of `webhook`, if the path has no name after the endpoint.
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

    /// Whether a configuration of `kind` calls for its answer.
    fn is_of(&self, kind: &str) -> bool {
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
    /// Why a call by the API server of `cluster` does not reach this gateway, or is not answered by it.
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
        let caller = self.authenticator.by_path_token(token.as_bytes(), self.now);
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
        assert_eq!(answer("jane", false, 29), UnsyncedAnswer::Later);
        assert_eq!(answer("jane", true, 29), UnsyncedAnswer::NoOpinion);
        assert_eq!(answer("gateway", false, 29), UnsyncedAnswer::NoOpinion);
        for user in ["jane", "gateway"] {
            assert_eq!(answer(user, false, 30), UnsyncedAnswer::Decided);
        }
        let faulty = UnsyncedCluster {
            until: None,
            ..unsynced.clone()
        };
        let late = start + Duration::from_secs(1_000_000);
        assert_eq!(faulty.answer("jane", false, late), UnsyncedAnswer::Faulty);
        assert_eq!(faulty.answer("jane", true, late), UnsyncedAnswer::NoOpinion);
        assert_eq!(faulty.answer("gateway", false, late), UnsyncedAnswer::NoOpinion);
    }
}
