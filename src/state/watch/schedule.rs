//! Decides which changes in the watched folders affect the loaded files, and when to read these:
//! shortly after a change, when no more changes arrive.

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use notify::EventKind;
use notify::event::ModifyKind;

use crate::config::{ClusterEntry, Config, LogPath, files};

/// How long no file must have changed before the files are read: an editor, or copying a folder,
/// writes several times.
const MIN_QUIET_TIME: Duration = Duration::from_millis(100);

/// The maximum time after the first change before the files are read, even if they still change.
const MAX_DELAY: Duration = Duration::from_secs(2);

/// The same for objects of clusters: a changed label has to take effect within a second.
const MAX_SOURCE_DELAY: Duration = Duration::from_millis(400);

/// What has to be reloaded.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReloadRequest {
    /// The files have to be loaded even if they did not change.
    pub(crate) is_forced: bool,
    /// Files changed.
    is_changed: bool,
    /// Watched objects changed.
    pub(crate) watched_objects_changed: bool,
}

/// Requests reloads, from any thread.
#[derive(Clone)]
pub struct Trigger(Arc<dyn Fn(ReloadRequest) + Send + Sync>);

/// The requested reloads, and when to do them.
#[derive(Debug)]
pub(crate) struct Schedule {
    requested: ReloadRequest,
    /// The times of the first and the last request.
    since: Option<(Instant, Instant)>,
    /// When the files were last read.
    read_at: Instant,
    /// Changes are not acted on before this time.
    rest_end: Instant,
}

// === impl ReloadRequest ===

impl ReloadRequest {
    pub(crate) const FORCED: Self = Self {
        is_forced: true,
        is_changed: false,
        watched_objects_changed: false,
    };
    pub(crate) const CHANGED: Self = Self {
        is_forced: false,
        is_changed: true,
        watched_objects_changed: false,
    };
    pub(crate) const CLUSTER_OBJECTS_CHANGED: Self = Self {
        is_forced: false,
        is_changed: false,
        watched_objects_changed: true,
    };

    /// Whether the files do not have to be read.
    pub(crate) const fn is_for_watched_objects_only(self) -> bool {
        self.watched_objects_changed && !self.is_forced && !self.is_changed
    }

    const fn and(self, other: Self) -> Self {
        Self {
            is_forced: self.is_forced || other.is_forced,
            is_changed: self.is_changed || other.is_changed,
            watched_objects_changed: self.watched_objects_changed || other.watched_objects_changed,
        }
    }
}

// === impl Trigger ===

impl Trigger {
    /// A trigger that passes each request to `request`.
    pub(crate) fn new(request: impl Fn(ReloadRequest) + Send + Sync + 'static) -> Self {
        Self(Arc::new(request))
    }

    /// Requests that the files are loaded again soon, even if they did not change.
    pub fn reload(&self) {
        (self.0)(ReloadRequest::FORCED);
    }

    /// Requests that the current objects of the [`ManifestSource`](crate::state::ManifestSource)
    /// are put in force soon.
    pub fn refresh(&self) {
        (self.0)(ReloadRequest::CLUSTER_OBJECTS_CHANGED);
    }
}

// === impl Schedule ===

impl Schedule {
    /// A schedule without requests, whose files were read at `now`.
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            requested: ReloadRequest {
                is_forced: false,
                is_changed: false,
                watched_objects_changed: false,
            },
            since: None,
            read_at: now,
            rest_end: now,
        }
    }

    pub(crate) fn request(&mut self, requested: ReloadRequest, now: Instant) {
        self.requested = self.requested.and(requested);
        let first = self.since.map_or(now, |(first, _)| first);
        self.since = Some((first, now));
    }

    /// When to do what was requested: explicit requests at once, and changes when no more arrive
    /// and the rest after the last update is over.
    pub(crate) fn requested_at(&self) -> Option<Instant> {
        let (first, last) = self.since?;
        if self.requested.is_forced {
            return Some(first);
        }
        let longest = if self.requested.is_for_watched_objects_only() {
            MAX_SOURCE_DELAY
        } else {
            MAX_DELAY
        };
        Some((last + MIN_QUIET_TIME).min(first + longest).max(self.rest_end))
    }

    /// When to check the files although nothing was requested.
    pub(crate) fn poll_at(&self, interval: Duration) -> Option<Instant> {
        self.read_at.checked_add(interval)
    }

    /// Takes the request, so that nothing is requested any more.
    pub(crate) fn take(&mut self) -> ReloadRequest {
        self.since = None;
        std::mem::take(&mut self.requested)
    }

    pub(crate) fn read_at(&mut self, now: Instant) {
        self.read_at = now;
    }

    pub(crate) fn rest_until(&mut self, rested: Instant) {
        self.rest_end = rested;
    }
}

/// Determines which events in the watched folders matter. Files that the gateway writes itself next
/// to files that it reads must not cause a reload: the decision log with each of its lines, and the
/// saved objects of a cluster with each change.
#[derive(Debug, Default)]
pub(crate) struct WatchFilter {
    files: HashSet<PathBuf>,
    written: HashSet<PathBuf>,
    touched: ChangedNames,
}

/// The files and folders that changed since the last [`take_touched`](WatchFilter::take_touched).
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum ChangedNames {
    /// Anything may have changed.
    #[default]
    Anything,
    /// Only files with these names changed.
    Names(BTreeSet<PathBuf>),
}

/// If more names than this changed, everything is read.
const MAX_TOUCHED: usize = 1_000;

// === impl WatchFilter ===

impl WatchFilter {
    /// From now on, changes of `files` matter, and those of files that a gateway with `config`
    /// writes do not. Changes before this are kept.
    pub(crate) fn follow(&mut self, files: impl Iterator<Item = PathBuf>, config: &Config) {
        let log = config.decision_log.iter().filter_map(|log| match &log.path {
            LogPath::File(path) => Some(path.clone()),
            LogPath::Stdout | LogPath::Parquet(_) => None,
        });
        self.files = files.collect();
        self.written = log
            .chain(config.clusters.iter().flat_map(ClusterEntry::saved_files))
            .collect();
    }

    /// Records an event. Returns whether it matters.
    pub(crate) fn note(&mut self, event: &notify::Event) -> bool {
        let is_concerned = self.matters(event);
        if is_concerned {
            self.touched.add(event);
        }
        is_concerned
    }

    /// Takes the changes since the last call.
    pub(crate) fn take_touched(&mut self) -> ChangedNames {
        std::mem::replace(&mut self.touched, ChangedNames::NOTHING)
    }

    fn matters(&self, event: &notify::Event) -> bool {
        let writes = matches!(
            event.kind,
            EventKind::Modify(ModifyKind::Data(_) | ModifyKind::Metadata(_))
        );
        let matters = |path: &PathBuf| {
            let is_own = self.written.contains(path);
            // A name that is created or removed may be a link to another set.
            !is_own && (!writes || self.files.contains(path) || files::is_manifest(path))
        };
        !event.kind.is_access() && (event.paths.is_empty() || event.paths.iter().any(matters))
    }
}

// === impl ChangedNames ===

impl ChangedNames {
    const NOTHING: Self = Self::Names(BTreeSet::new());

    fn add(&mut self, event: &notify::Event) {
        let Self::Names(names) = self else { return };
        names.extend(event.paths.iter().cloned());
        // An event that reports lost events has no names.
        if event.paths.is_empty() || event.need_rescan() || names.len() > MAX_TOUCHED {
            *self = Self::Anything;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use notify::event::{AccessKind, CreateKind, DataChange, RenameMode};

    use super::*;
    use crate::config;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn changes_wait_until_all_is_quiet_but_not_for_ever() {
        let now = Instant::now();
        let mut schedule = Schedule::new(now);
        assert_eq!(schedule.requested_at(), None);
        schedule.request(ReloadRequest::CHANGED, now);
        assert_eq!(schedule.requested_at(), Some(now + ms(100)));
        schedule.request(ReloadRequest::CLUSTER_OBJECTS_CHANGED, now + ms(50));
        assert_eq!(schedule.requested_at(), Some(now + ms(150)));
        schedule.request(ReloadRequest::CHANGED, now + ms(1990));
        assert_eq!(schedule.requested_at(), Some(now + MAX_DELAY));
        schedule.rest_until(now + ms(5000));
        assert_eq!(schedule.requested_at(), Some(now + ms(5000)));
        let taken = schedule.take();
        assert!(taken.watched_objects_changed && !taken.is_forced && !taken.is_for_watched_objects_only());
        assert_eq!(schedule.requested_at(), None);
    }

    #[test]
    fn who_asks_waits_for_nothing() {
        let now = Instant::now();
        let mut schedule = Schedule::new(now);
        schedule.rest_until(now + ms(5000));
        schedule.request(ReloadRequest::CLUSTER_OBJECTS_CHANGED, now);
        schedule.request(ReloadRequest::FORCED, now + ms(10));
        assert_eq!(schedule.requested_at(), Some(now));
    }

    #[test]
    fn the_poll_counts_from_the_last_look() {
        let now = Instant::now();
        let mut schedule = Schedule::new(now);
        schedule.read_at(now + ms(70));
        assert_eq!(schedule.poll_at(ms(1000)), Some(now + ms(1070)));
        assert_eq!(schedule.poll_at(Duration::MAX), None);
    }

    /// Watches a cluster, whose objects it saves, and has a decision log.
    const CONFIGURATION: &str = r"
apiVersion: config.portcullis.dev/v1alpha1
kind: GatewayConfiguration
server: {address: '127.0.0.1:0', tls: {certificate: s.crt, privateKey: s.key, clientCA: ca.crt}}
callers: [{clientCertificate: {commonNames: [api]}}]
manifests: []
decisionLog: {path: decisions.json}
clusters: [{name: east, kubeconfig: east.kubeconfig, cacheFile: saved/east.json}]
";

    #[test]
    fn only_events_that_can_change_the_set_matter() {
        let (config, faults) = config::parse(Path::new("p.yaml"), CONFIGURATION, Path::new("/etc/p"));
        let config = config.unwrap_or_else(|| panic!("{faults}"));
        let mut filter = WatchFilter::default();
        filter.follow(["/etc/p/token".into()].into_iter(), &config);
        let write = EventKind::Modify(ModifyKind::Data(DataChange::Any));
        let create = EventKind::Create(CreateKind::File);
        let rename = EventKind::Modify(ModifyKind::Name(RenameMode::To));
        for (kind, path, matters) in [
            (write, "/etc/p/token", true),
            (write, "/etc/p/new.yaml", true),
            (write, "/etc/p/other.log", false),
            (write, "/etc/p/decisions.json", false),
            (create, "/etc/p/decisions.json", false),
            (create, "/etc/p/folder", true),
            (create, "/etc/p/saved/east.json.changes", false),
            (create, "/etc/p/saved/east.json.new", false),
            (rename, "/etc/p/saved/east.json", false),
            (create, "/etc/p/saved/west.json", true),
            (rename, "/etc/p/..data", true),
            (EventKind::Access(AccessKind::Any), "/etc/p/token", false),
        ] {
            let event = notify::Event::new(kind).add_path(path.into());
            assert_eq!(filter.note(&event), matters, "{kind:?} {path}");
        }
    }

    #[test]
    fn names_are_known_as_long_as_events_tell_them() {
        let event = |path: Option<&str>| notify::Event {
            paths: path.into_iter().map(PathBuf::from).collect(),
            ..notify::Event::new(EventKind::Create(CreateKind::File))
        };
        let names = |names: &[&str]| ChangedNames::Names(names.iter().map(PathBuf::from).collect());
        let mut filter = WatchFilter::default();
        assert_eq!(filter.take_touched(), ChangedNames::Anything);
        assert_eq!(filter.take_touched(), names(&[]));
        for path in ["/b.yaml", "/a.yaml", "/b.yaml"] {
            assert!(filter.note(&event(Some(path))));
        }
        assert_eq!(filter.take_touched(), names(&["/a.yaml", "/b.yaml"]));
        assert!(filter.note(&event(Some("/a.yaml"))) && filter.note(&event(None)));
        assert_eq!(filter.take_touched(), ChangedNames::Anything);
        let lost = event(Some("/a.yaml")).set_flag(notify::event::Flag::Rescan);
        assert!(filter.note(&lost));
        assert_eq!(filter.take_touched(), ChangedNames::Anything);
        for name in 0..=MAX_TOUCHED {
            assert!(filter.note(&event(Some(&format!("/{name}.yaml")))));
        }
        assert_eq!(filter.take_touched(), ChangedNames::Anything);
    }
}
