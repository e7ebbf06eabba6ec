//! The console: read-only web pages that show what is decided, and why.
//!
//! ```text
//! snapshot, recent decisions, metrics ──▶ views: one model each ──▶ templates ──▶ HTML
//!                                                      └──────────▶ serde ──────▶ JSON
//! ```
//!
//! A view is a pure function of the snapshot in force, the recent decisions, and the query of its
//! URL. Nothing here knows sockets: `server` listens, authenticates users and sends what
//! [`views::render`] returns. Neither credentials nor the content of objects under review reach the
//! console: it takes decisions from the decision log, which contains neither.
//!
//! Templates are compiled by askama, which escapes every value for HTML. Templates contain no
//! inline scripts or styles, because the Content-Security-Policy of the listener allows none.

mod history;
mod live;
pub(crate) mod page;
mod query;
mod recent_decisions;
pub mod views;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Instant, SystemTime};

use percent_encoding::percent_decode_str;

use crate::config::Config;
use crate::identity::Caller;
use crate::state::{ObjectChange, ObjectChanges, ReloadState, Snapshot, WrittenObjects};
use crate::telemetry::Metrics;
use portcullis_policy::authorization::ClusterPolicySets;
use portcullis_policy::model::Decision;

pub use history::{MetricsHistory, SAMPLE_INTERVAL};
pub use live::LiveStream;
pub use page::{Page, Representation, ViewError};
pub use query::ViewQuery;
pub use recent_decisions::{ClusterDecisions, DecisionSlice, KeptDecision, RecentDecisions};

// What the console keeps between requests, and which clusters a user may see.

/// The state of the console, kept for as long as the gateway runs.
#[derive(Debug)]
pub struct ConsoleState {
    /// The most recent decisions.
    decisions: Arc<RecentDecisions>,
    /// The recent decisions of each cluster to which some user is restricted. Each cluster has an
    /// equal share of the capacity and its own numbering, which reveals nothing of the decisions of
    /// other clusters.
    decisions_by_cluster: RwLock<BTreeMap<Arc<str>, Arc<RecentDecisions>>>,
    /// Every cluster that a configuration has named since the start.
    known_clusters: Mutex<BTreeSet<String>>,
    /// Samples of the metrics in the last hour.
    pub history: MetricsHistory,
    in_force: Mutex<(Arc<str>, SystemTime)>,
    /// What recent reloads changed.
    pub(crate) changes: ChangeHistory,
}

// === impl ConsoleState ===

impl ConsoleState {
    /// The state at `now`, when `revision` is in force. Up to `decisions` decisions are kept.
    #[must_use]
    pub fn new(decisions: usize, revision: &Arc<str>, now: SystemTime) -> Self {
        Self {
            decisions: Arc::new(RecentDecisions::new(decisions)),
            decisions_by_cluster: RwLock::default(),
            known_clusters: Mutex::default(),
            history: MetricsHistory::default(),
            in_force: Mutex::new((Arc::clone(revision), now)),
            changes: ChangeHistory::default(),
        }
    }

    /// Keeps separate decisions for each cluster to which a caller of `config` is restricted.
    pub fn separate_restricted_clusters(&self, config: &Config) {
        let callers = config.callers.iter().map(|caller| &caller.cluster);
        let watched = config.clusters.iter().map(|entry| &entry.name);
        let of_files = config.manifests.iter().filter_map(|entry| entry.cluster.as_ref());
        let named = callers.chain(watched).chain(of_files).cloned();
        self.known_clusters
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(named);
        let callers = config.callers.iter();
        let alone = callers.filter(|caller| caller.endpoints.contains_console() && !caller.sees_all_clusters);
        let mut of_clusters = self
            .decisions_by_cluster
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let mut kept = BTreeMap::new();
        for caller in alone {
            let cluster: Arc<str> = caller.cluster.as_str().into();
            let before = of_clusters.remove(&cluster);
            kept.entry(cluster)
                .or_insert_with(|| before.unwrap_or_else(|| Arc::new(self.decisions.empty_share(1))));
        }
        for recent in kept.values() {
            recent.set_limits_of(&self.decisions.empty_share(kept.len()));
        }
        *of_clusters = kept;
    }

    /// Keeps a decision about a request of `cluster`. `line` is its decision log line.
    pub fn push(&self, decision: Decision, cluster: &str, line: &[u8]) {
        self.decisions.push(decision, cluster, line);
        if let Some(own) = self.of_cluster(cluster) {
            own.push(decision, cluster, line);
        }
    }

    /// The recent decisions of the visible clusters.
    #[must_use]
    pub fn decisions(&self, visible: &VisibleClusters) -> Arc<RecentDecisions> {
        match visible {
            VisibleClusters::All => Arc::clone(&self.decisions),
            // None are kept if the callers have changed a moment ago.
            VisibleClusters::One(cluster) => self.of_cluster(cluster).unwrap_or_default(),
        }
    }

    /// The clusters that `caller` may see: all if it is so configured, or if no other cluster than
    /// its own was ever configured.
    #[must_use]
    pub fn visible_to(&self, caller: &Caller) -> VisibleClusters {
        let named = self.known_clusters.lock().unwrap_or_else(PoisonError::into_inner);
        let is_alone = named.iter().all(|cluster| **cluster == *caller.cluster);
        match caller.sees_all_clusters || is_alone {
            true => VisibleClusters::All,
            false => VisibleClusters::One(Arc::clone(&caller.cluster)),
        }
    }

    fn of_cluster(&self, cluster: &str) -> Option<Arc<RecentDecisions>> {
        let of_clusters = self
            .decisions_by_cluster
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        of_clusters.get(cluster).cloned()
    }

    /// Notes that `revision` is in force from `now` on, unless it was already.
    pub fn revision_replaced(&self, revision: &Arc<str>, now: SystemTime) {
        let mut in_force = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        if in_force.0 != *revision {
            *in_force = (Arc::clone(revision), now);
        }
    }

    /// Keeps what `snapshot`, in force from `now` on, changes in the objects read from files.
    pub fn follow_changes(&self, snapshot: &Snapshot, now: SystemTime) {
        self.changes.follow(snapshot, now);
    }

    /// Takes a sample of `metrics` at `now`.
    pub fn sample(&self, metrics: &Metrics, now: SystemTime) {
        let mut clusters = self.decisions.clusters();
        let of_clusters = self
            .decisions_by_cluster
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        for own in of_clusters.values().flat_map(|own| own.clusters()) {
            if !clusters.iter().any(|known| known.cluster == own.cluster) {
                clusters.push(own);
            }
        }
        drop(of_clusters);
        self.history.push(now, metrics.sample(), clusters);
    }

    /// The time since which the present revision has been in force.
    #[must_use]
    pub fn since(&self) -> SystemTime {
        self.in_force.lock().unwrap_or_else(PoisonError::into_inner).1
    }
}

/// The clusters that a user may see.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum VisibleClusters {
    /// All clusters, and what is not specific to a cluster.
    All,
    /// This cluster. Nothing of other clusters is shown, and counts do not include them.
    One(Arc<str>),
}

// === impl VisibleClusters ===

impl VisibleClusters {
    #[must_use]
    pub fn contains(&self, cluster: &str) -> bool {
        self.only().is_none_or(|only| only == cluster)
    }

    /// The only visible cluster, unless all are visible.
    #[must_use]
    pub fn only(&self) -> Option<&str> {
        match self {
            Self::All => None,
            Self::One(cluster) => Some(cluster),
        }
    }
}

// The input of views: the data that they show, and the request.

/// The data that views show.
pub struct ViewContext<'c> {
    /// The snapshot in force, the same for the whole view.
    pub snapshot: &'c Arc<Snapshot>,
    /// The state of reloads and of watched clusters.
    pub state: &'c ReloadState,
    pub metrics: &'c Metrics,
    /// The state of the console.
    pub console: &'c ConsoleState,
    /// The recent decisions of the `visible` clusters.
    pub decisions: &'c RecentDecisions,
    /// The clusters that the user may see.
    pub visible: &'c VisibleClusters,
    /// The time at which the view is rendered.
    pub now: SystemTime,
    /// When a slow view must give up with [`ViewError::TooLate`].
    pub deadline: Instant,
}

/// A request for a view.
#[derive(Debug, Clone)]
pub struct ViewRequest {
    /// The path, as in the URL.
    pub path: String,
    /// The segments of the path, percent-decoded.
    pub segments: Vec<String>,
    /// The query of the URL.
    pub query: ViewQuery,
    /// The form that was sent by POST, if any.
    pub form: Option<ViewQuery>,
    /// The format of the response.
    pub representation: Representation,
}

// === impl ViewRequest ===

impl ViewRequest {
    /// A request for the view at `path` with `query`, both as in a URL.
    #[must_use]
    pub fn new(path: &str, query: &str, representation: Representation) -> Self {
        let decoded = |segment| percent_decode_str(segment).decode_utf8_lossy().into_owned();
        Self {
            path: path.to_owned(),
            segments: path.split('/').skip(1).map(decoded).collect(),
            query: ViewQuery::parse(query),
            form: None,
            representation,
        }
    }
}

// The last revisions in force, any two of which can be compared.

/// The maximum number of revisions that are kept for one cluster.
const MAX_REVISIONS: usize = 20;

/// How many of the newest revisions keep their policies, so that their decisions can be compared.
/// Each revision may hold objects that no other holds.
const MAX_DECIDING_REVISIONS: usize = 5;

/// The maximum number of bytes of changed objects that all revisions keep together.
const MAX_CHANGED_BYTES: usize = 32 << 20;

/// The last revisions in force: for each cluster, those that changed an object of it.
#[derive(Debug, Default)]
pub(crate) struct ChangeHistory(Mutex<KeptChanges>);

#[derive(Default)]
struct KeptChanges {
    /// The revisions, oldest first. The changes of the oldest one are unknown.
    revisions: VecDeque<KnownRevision>,
    /// The objects of the newest revision.
    objects: Option<WrittenObjects>,
}

/// A revision, and what it changed.
#[derive(Debug, Clone)]
pub(crate) struct KnownRevision {
    pub(crate) revision: Arc<str>,
    /// When it came into force.
    pub(crate) since: SystemTime,
    /// The changes since the revision before; empty for the oldest revision.
    pub(crate) changes: Arc<ObjectChanges>,
    /// The policies of this revision, including watched objects; only kept for the newest
    /// revisions.
    pub(crate) policies: Option<ClusterPolicySets>,
}

// === impl ChangeHistory ===

impl ChangeHistory {
    /// Notes that `snapshot` is in force from `now` on. If its objects are the same as before, no
    /// revision is added.
    pub(crate) fn follow(&self, snapshot: &Snapshot, now: SystemTime) {
        let mut kept = self.kept();
        let objects = snapshot.written_objects();
        let changes = kept.objects.as_ref().map(|before| objects.changes_since(before));
        kept.objects = Some(objects);
        if changes.as_ref().is_some_and(|changes| changes.objects.is_empty()) {
            return;
        }
        kept.revisions.push_back(KnownRevision {
            revision: Arc::clone(&snapshot.revision),
            since: now,
            changes: Arc::new(changes.unwrap_or_default()),
            policies: Some(snapshot.policies.clone()),
        });
        kept.make_room();
        let deciding = kept.revisions.iter_mut().rev();
        deciding
            .skip(MAX_DECIDING_REVISIONS)
            .for_each(|earlier| earlier.policies = None);
    }

    /// The revisions that are kept, oldest first.
    pub(crate) fn revisions(&self) -> Vec<KnownRevision> {
        self.kept().revisions.iter().cloned().collect()
    }

    fn kept(&self) -> MutexGuard<'_, KeptChanges> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeptChanges {
    /// Forgets the oldest changes of the clusters that exceed a limit.
    fn make_room(&mut self) {
        loop {
            let mut taken: BTreeMap<Option<String>, [usize; 2]> = BTreeMap::new();
            for revision in self.revisions.iter().skip(1) {
                for (cluster, bytes) in revision.changes.bytes_by_cluster() {
                    let of_cluster = taken.entry(cluster).or_default();
                    of_cluster[0] += 1;
                    of_cluster[1] += bytes;
                }
            }
            if let Some((cluster, _)) = taken.iter().find(|(_, taken)| taken[0] >= MAX_REVISIONS) {
                self.forget_oldest(cluster);
                continue;
            }
            let bytes: usize = taken.values().map(|taken| taken[1]).sum();
            let largest = taken.iter().max_by_key(|(_, taken)| taken[1]);
            match largest.filter(|_| bytes > MAX_CHANGED_BYTES) {
                Some((cluster, _)) => self.leave_out_oldest(cluster),
                None => return,
            }
        }
    }

    /// Forgets the oldest changes of `cluster`, if several revisions changed it. The next revision that
    /// changed `cluster` counts the forgotten objects as left out, unless comparisons start after them.
    fn forget_oldest(&mut self, cluster: &Option<String>) {
        let concerns = |revision: &KnownRevision| revision.changes.bytes_by_cluster().contains_key(cluster);
        let places = (0..).zip(&self.revisions).skip(1);
        let mut concerned = places.filter(|(_, one)| concerns(one)).map(|(place, _)| place);
        let (Some(oldest), Some(next)) = (concerned.next(), concerned.next()) else {
            return;
        };
        let Some(changes) = self.revisions.get_mut(oldest) else {
            return;
        };
        let left_out = Arc::make_mut(&mut changes.changes).leave_out(cluster);
        let is_empty = changes.changes.bytes_by_cluster().is_empty();
        if oldest == 1 && is_empty {
            self.revisions.pop_front();
            return;
        }
        if is_empty {
            self.revisions.remove(oldest);
        }
        if let Some(next) = self.revisions.get_mut(next - usize::from(is_empty)) {
            let left_out_of = &mut Arc::make_mut(&mut next.changes).left_out;
            *left_out_of.entry(cluster.clone()).or_default() += left_out;
        }
    }

    /// Of the oldest changes that still have objects of `cluster`, keeps only the number of
    /// objects.
    fn leave_out_oldest(&mut self, cluster: &Option<String>) {
        let has_objects = |revision: &&mut KnownRevision| {
            revision
                .changes
                .objects
                .keys()
                .any(|object| object.cluster == *cluster)
        };
        if let Some(oldest) = self.revisions.iter_mut().skip(1).find(has_objects) {
            let changes = Arc::make_mut(&mut oldest.changes);
            let left_out = changes.leave_out(cluster);
            changes.left_out.insert(cluster.clone(), left_out);
        }
    }
}

impl fmt::Debug for KeptChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.revisions).finish()
    }
}

/// The combined changes of consecutive `revisions`.
pub(crate) fn combined_changes(revisions: &[KnownRevision]) -> ObjectChanges {
    let mut all = ObjectChanges::default();
    for changes in revisions.iter().map(|revision| &revision.changes) {
        for (cluster, left_out) in &changes.left_out {
            *all.left_out.entry(cluster.clone()).or_default() += left_out;
        }
        for (object, change) in &changes.objects {
            let first = all.objects.entry(object.clone()).or_insert_with(|| ObjectChange {
                before: change.before.clone(),
                after: None,
            });
            first.after.clone_from(&change.after);
        }
    }
    all.objects
        .retain(|_, change| change.before != change.after || change.is_not_shown());
    all
}

#[cfg(test)]
mod tests {
    pub(crate) mod fixtures;

    use std::time::Duration;

    use super::*;
    use crate::state::ChangedObjectKey;

    #[test]
    fn the_texts_of_changed_objects_are_bounded_for_all_clusters_together() {
        let change = |cluster: &str, bytes: usize| {
            let object = ChangedObjectKey {
                object: "Role/a/b".to_owned(),
                cluster: Some(cluster.to_owned()),
            };
            let change = ObjectChange {
                before: None,
                after: Some("x".repeat(bytes)),
            };
            KnownRevision {
                revision: "a".into(),
                since: SystemTime::UNIX_EPOCH,
                changes: Arc::new(ObjectChanges {
                    objects: BTreeMap::from([(object, change)]),
                    left_out: BTreeMap::new(),
                }),
                policies: None,
            }
        };
        let mut kept = KeptChanges::default();
        kept.revisions.push_back(change("west", 0));
        kept.revisions.push_back(change("west", 10));
        for _ in 0..10 {
            kept.revisions.push_back(change("east", 5 << 20));
            kept.make_room();
        }
        let bytes = |of: &KnownRevision| of.changes.bytes_by_cluster().into_values().sum::<usize>();
        let all: usize = kept.revisions.iter().map(bytes).sum();
        assert!((25 << 20..=MAX_CHANGED_BYTES).contains(&all), "{all}");
        let revisions = &kept.revisions;
        assert_eq!((revisions.len(), revisions[1].changes.objects.len()), (12, 1));
        assert_eq!(revisions[2].changes.left_out[&Some("east".to_owned())], 1);
        assert_eq!(revisions[11].changes.objects.len(), 1);
    }

    #[test]
    fn the_same_revision_stays_in_force_since_it_came() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let state = ConsoleState::new(1, &"a".into(), at(1));
        state.revision_replaced(&"a".into(), at(2));
        assert_eq!(state.since(), at(1));
        state.revision_replaced(&"b".into(), at(3));
        assert_eq!(state.since(), at(3));
    }
}
