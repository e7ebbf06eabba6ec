//! What is known of the objects of watched clusters at one moment.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use portcullis_policy::authorization::matching::ClusterScoped;
use portcullis_policy::engine::admission::UnknownObjects;
use portcullis_policy::engine::admission::matching::CustomResources;
use portcullis_policy::manifest::ValidatedObject;

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
    /// Names their content: equal objects, equal digest.
    pub digest: [u8; 32],
    /// That nothing is known of the cluster yet; `None` where its objects are.
    pub awaited: Option<AwaitedCluster>,
}

/// A cluster of which nothing is known since the gateway follows it: neither its grants nor its
/// denials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwaitedCluster {
    /// Until when its requests are not decided without its objects.
    pub until: Instant,
    /// What its API server calls the gateway's own user, where the credentials say.
    pub own_user: Option<String>,
}

/// How a request is answered of whose cluster nothing is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AwaitedAnswer {
    /// It is to be asked again.
    Later,
    /// Without opinion, at once.
    NoOpinion,
    /// By the files alone: it has waited for long enough.
    Decided,
}

/// Some objects of a cluster.
#[derive(Debug, Default)]
pub struct WatchedPart {
    /// The objects.
    pub objects: Vec<Arc<ValidatedObject>>,
    /// Names their content.
    pub digest: [u8; 32],
}

// === impl WatchedObjects ===

impl WatchedObjects {
    /// Every object.
    pub fn objects(&self) -> impl Iterator<Item = &Arc<ValidatedObject>> {
        self.parts.iter().flat_map(|part| &part.objects)
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

// === impl AwaitedCluster ===

impl AwaitedCluster {
    /// How a request of `user` is answered at `now`. Those that are never denied are not held up,
    /// or a gateway could not start in its own cluster; nor is the gateway's own user, or what is
    /// awaited would never come.
    #[must_use]
    pub fn answer(&self, user: &str, is_protected: bool, now: Instant) -> AwaitedAnswer {
        if now >= self.until {
            AwaitedAnswer::Decided
        } else if is_protected || self.own_user.as_deref() == Some(user) {
            AwaitedAnswer::NoOpinion
        } else {
            AwaitedAnswer::Later
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
        let awaited = AwaitedCluster {
            until: start + Duration::from_secs(30),
            own_user: Some("gateway".to_owned()),
        };
        let answer = |user: &str, is_protected: bool, seconds: u64| {
            awaited.answer(user, is_protected, start + Duration::from_secs(seconds))
        };
        assert_eq!(answer("jane", false, 29), AwaitedAnswer::Later);
        assert_eq!(answer("jane", true, 29), AwaitedAnswer::NoOpinion);
        assert_eq!(answer("gateway", false, 29), AwaitedAnswer::NoOpinion);
        for user in ["jane", "gateway"] {
            assert_eq!(answer(user, false, 30), AwaitedAnswer::Decided);
        }
    }
}
