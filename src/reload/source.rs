//! Manifest sources other than files.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use super::{Snapshot, Trigger};
use crate::config::{Config, HeldBack};
use portcullis_policy::authorization::matching::ClusterScoped;
use portcullis_policy::engine::admission::UnknownObjects;
use portcullis_policy::engine::admission::matching::CustomResources;
use portcullis_policy::field::Faults;
use portcullis_policy::manifest::{ObjectIdentity, ObjectSet, ValidatedObject};

/// Where objects come from beside the files, and change by themselves.
///
/// It reports a change by a [`Trigger`]. Its objects are
/// valid: a fault of one object affects no other.
pub trait ManifestSource: Send + Sync {
    /// Starts to follow its objects, and reports changes to `trigger`. Called once.
    ///
    /// # Errors
    ///
    /// The operating system refused a thread.
    fn start(&self, trigger: Trigger) -> io::Result<()>;

    /// The files that `config` names for it, and what is wrong with them. Blocks.
    fn check(&self, config: &Config) -> SourceFiles;

    /// What holds now for each cluster of `config`. Blocks where that must
    /// first be read from a disk; it waits for no server.
    fn objects(&self, config: &Config) -> Vec<Arc<WatchedObjects>>;

    /// `snapshot` is in force: its configuration says what to follow, its
    /// policies which parameters they take. Called again with each snapshot.
    fn follow(&self, snapshot: &Snapshot);

    /// How it stands with each cluster, in the order of the configuration.
    fn status(&self) -> Vec<SourceStatus>;
}

/// The files of a source.
#[derive(Debug, Default)]
pub struct SourceFiles {
    /// Every one.
    pub files: BTreeSet<PathBuf>,
    /// What is wrong with those that the gateway's administrator wrote.
    pub faults: Faults,
    /// What is wrong with those of a cluster, which is followed as before.
    pub of_clusters: HeldBack,
}

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
    /// What its API server calls the gateway's own user, as far as the credentials say.
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

/// How it stands with one cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceStatus {
    /// The cluster.
    pub cluster: String,
    /// What its objects are.
    pub origin: Origin,
    /// How many objects there are.
    pub objects: usize,
    /// How many have faults; of each the last good version holds, if there was one.
    pub faulty: usize,
    /// The faults of some of these.
    pub faults: Vec<Faults>,
    /// How many lists and watches have failed since the start.
    pub failures: u64,
    /// The kinds that are absent, or of which objects are, where that is not believed; each with
    /// the reason. What was known of them is in force.
    pub doubts: Vec<String>,
    /// The kinds of which something older may be in force than the API server has, each with the
    /// reason.
    pub outdated: Vec<String>,
    /// How many objects are too large to be taken, or have no room.
    pub left_out: LeftOutCounts,
}

/// How many objects of a cluster were left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeftOutCounts {
    /// Of RBAC, and Namespaces.
    pub rbac: usize,
    /// AuthorizationPolicies, policies and webhooks of admission, and the like.
    pub policies: usize,
    /// Parameters.
    pub parameters: usize,
}

/// Where the objects of a cluster are from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// There are none yet: the files alone hold.
    Nowhere,
    /// As they were when they were last saved.
    Saved,
    /// As the API server reports them.
    Live,
}

/// No such source: the files alone.
#[derive(Debug, Clone, Copy)]
pub struct FilesAlone;

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

// === impl FilesAlone ===

impl ManifestSource for FilesAlone {
    fn start(&self, _: Trigger) -> io::Result<()> {
        Ok(())
    }

    fn check(&self, _: &Config) -> SourceFiles {
        SourceFiles::default()
    }

    fn objects(&self, _: &Config) -> Vec<Arc<WatchedObjects>> {
        Vec::new()
    }

    fn follow(&self, _: &Snapshot) {}

    fn status(&self) -> Vec<SourceStatus> {
        Vec::new()
    }
}

/// `own` and what is `watched` beside it, to be one set. The same object cannot
/// hold twice: that of the files does, since users who may write to the API
/// server must not take away what the gateway's own files say.
pub(crate) fn together<'o>(
    own: &'o ObjectSet,
    watched: &'o [Arc<WatchedObjects>],
) -> Vec<&'o Arc<ValidatedObject>> {
    let mut clusters: HashMap<&ObjectIdentity, BTreeSet<Option<&str>>> = HashMap::new();
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    let mut all: Vec<_> = own.objects().collect();
    if !watched.is_empty() {
        for object in &all {
            clusters
                .entry(object.identity())
                .or_default()
                .insert(object.cluster());
        }
    }
    for object in watched.iter().flat_map(|watched| watched.objects()) {
        let cluster = object.cluster();
        let in_files = clusters
            .get(object.identity())
            .is_some_and(|of| of.contains(&None) || of.contains(&cluster));
        if in_files {
            *kinds.entry(object.identity().kind().to_owned()).or_default() += 1;
        } else {
            all.push(object);
        }
    }
    for (kind, count) in kinds {
        tracing::debug!(
            kind,
            count,
            "objects are both in files and in a cluster: using those of the files"
        );
    }
    all
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
