//! What is known of the objects of watched clusters at one moment.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;

use crate::config::Config;
use crate::identity::Attestation;
use portcullis_policy::admission::UnknownObjects;
use portcullis_policy::admission::matching::CustomResources;
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
    pub awaited: Option<UnsyncedCluster>,
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
        awaited: &mut HashMap<String, UnsyncedCluster>,
        own_user: impl Fn(&str) -> Option<String>,
    ) {
        for cluster in &self.faulty {
            let unknown = UnsyncedCluster {
                until: None,
                own_user: own_user(cluster),
            };
            awaited.insert(cluster.clone(), unknown);
        }
        // Of the others, what was saved is known.
        for cluster in &self.unreachable {
            if let Some(awaited) = awaited.get_mut(cluster) {
                awaited.until = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_awaited_is_awaited_for_a_while_and_not_by_everybody() {
        let start = Instant::now();
        let awaited = UnsyncedCluster {
            until: Some(start + Duration::from_secs(30)),
            own_user: Some("gateway".to_owned()),
        };
        let answer = |user: &str, is_protected: bool, seconds: u64| {
            awaited.answer(user, is_protected, start + Duration::from_secs(seconds))
        };
        assert_eq!(answer("jane", false, 29), UnsyncedAnswer::Later);
        assert_eq!(answer("jane", true, 29), UnsyncedAnswer::NoOpinion);
        assert_eq!(answer("gateway", false, 29), UnsyncedAnswer::NoOpinion);
        for user in ["jane", "gateway"] {
            assert_eq!(answer(user, false, 30), UnsyncedAnswer::Decided);
        }
        let faulty = UnsyncedCluster {
            until: None,
            ..awaited.clone()
        };
        let late = start + Duration::from_secs(1_000_000);
        assert_eq!(faulty.answer("jane", false, late), UnsyncedAnswer::Faulty);
        assert_eq!(faulty.answer("jane", true, late), UnsyncedAnswer::NoOpinion);
        assert_eq!(faulty.answer("gateway", false, late), UnsyncedAnswer::NoOpinion);
    }
}
