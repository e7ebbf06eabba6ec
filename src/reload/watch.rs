//! Notices that a file changed, and has the set loaded again.
//!
//! Three ways lead here. Watches on the folders tell at once; they hang on the
//! folder and not on the file, because mounted Secrets and ConfigMaps change by
//! the swap of a link. A poll finds what no watch tells of (network file
//! systems, links whose far end moved). SIGHUP asks outright.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use notify::event::ModifyKind;
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};

use super::files::{self, Fingerprint};
use super::{Failure, State, load};
use crate::authentication::Authenticator;
use crate::authorizers::Authorizers;
use crate::config::{self, DecisionLog, LogPath};
use crate::field::{Faults, Severity};
use crate::upstream;

/// How long the files must be quiet before they are read: an editor or a
/// copy of a folder writes several times.
const QUIET: Duration = Duration::from_millis(100);

/// After this the files are read although they still change.
const PATIENCE: Duration = Duration::from_secs(2);

/// The same for objects of clusters: a label that changes is to hold within a second.
const SHORT_PATIENCE: Duration = Duration::from_millis(400);

/// How much longer than its last rebuild took the thread rests before the next:
/// a cluster that changes all the time must not cost a processor.
const REST: u32 = 4;

/// The longest such rest.
const LONGEST_REST: Duration = Duration::from_millis(400);

/// How often a set is loaded anew because it changed under the last load.
const ATTEMPTS: usize = 3;

/// Told of each attempt that was made.
pub type Observer = Box<dyn Fn(Attempt<'_>) + Send>;

/// How an attempt to replace what is in force ended.
#[derive(Clone, Copy)]
pub enum Attempt<'a> {
    /// The files were read, and are in force.
    Reloaded(&'a State),
    /// Objects of clusters changed. The files were not read: where they are faulty, they still are.
    Refreshed(&'a State),
    /// The files have faults; what was in force still is.
    Failed(&'a Failure),
}

/// Keeps a [`State`] up to date on a thread of its own, until dropped.
pub struct Reloader {
    trigger: Trigger,
    thread: Option<JoinHandle<()>>,
}

/// Asks for a reload, from any thread.
#[derive(Clone)]
pub struct Trigger(Sender<Event>);

enum Event {
    /// A watch saw something.
    Changed,
    /// Somebody asks, whether or not anything changed.
    Asked,
    /// What is beside the files changed.
    Beside,
    /// The reloader is dropped.
    Stop,
}

// === impl Trigger ===

impl Trigger {
    /// Loads the files again soon, changed or not.
    pub fn reload(&self) {
        // An error means that the reloader has stopped: nothing to ask any more.
        let _ = self.0.send(Event::Asked);
    }

    /// Puts what the [`ManifestSource`](super::ManifestSource) has now beside the files, soon.
    pub fn refresh(&self) {
        let _ = self.0.send(Event::Beside);
    }
}

// === impl Reloader ===

impl Reloader {
    /// Starts to watch the files behind `state`, whose configuration is at `path`.
    ///
    /// # Errors
    ///
    /// The operating system refused a thread. That it refuses watches is only
    /// logged: the poll remains.
    pub fn start(state: Arc<State>, path: PathBuf, observer: Observer) -> io::Result<Self> {
        let (sender, events) = channel();
        let interest = Arc::new(Mutex::new(Interest::default()));
        let watcher = notify::recommended_watcher({
            let (sender, interest) = (sender.clone(), Arc::clone(&interest));
            move |event: notify::Result<notify::Event>| {
                let interest = interest.lock().unwrap_or_else(PoisonError::into_inner);
                if event.is_ok_and(|event| interest.is_concerned(&event)) {
                    let _ = sender.send(Event::Changed);
                }
            }
        })
        .map_err(|error| tracing::warn!(%error, "files cannot be watched, only polled"))
        .ok();
        let mut worker = Worker {
            state,
            path,
            observer,
            watcher,
            watched: BTreeSet::new(),
            interest,
            last: Fingerprint::none(),
            rested: Instant::now(),
        };
        worker.last = worker.look();
        let thread = thread::Builder::new()
            .name("reload".into())
            .spawn(move || worker.run(&events))?;
        Ok(Self {
            trigger: Trigger(sender),
            thread: Some(thread),
        })
    }

    /// A handle that asks for a reload.
    #[must_use]
    pub fn trigger(&self) -> Trigger {
        self.trigger.clone()
    }
}

impl Drop for Reloader {
    fn drop(&mut self) {
        let _ = self.trigger.0.send(Event::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Which of the events in the watched folders matter. A decision log beside the
/// configuration must not have everything read again with each of its lines.
#[derive(Debug, Default)]
struct Interest {
    files: BTreeSet<PathBuf>,
    log: Option<PathBuf>,
}

// === impl Interest ===

impl Interest {
    fn new(files: &[PathBuf], log: Option<&DecisionLog>) -> Self {
        let real = files.iter().filter_map(|file| file.canonicalize().ok());
        Self {
            files: files.iter().cloned().chain(real).collect(),
            log: log.and_then(|log| match &log.path {
                LogPath::File(path) => Some(path.clone()),
                LogPath::Stdout => None,
            }),
        }
    }

    fn is_concerned(&self, event: &notify::Event) -> bool {
        let writes = matches!(
            event.kind,
            EventKind::Modify(ModifyKind::Data(_) | ModifyKind::Metadata(_))
        );
        let matters = |path: &PathBuf| {
            let is_log = self.log.as_ref() == Some(path);
            // A name that comes or goes may be a link that leads to another set.
            !is_log && (!writes || self.files.contains(path) || files::is_manifest(path))
        };
        !event.kind.is_access() && (event.paths.is_empty() || event.paths.iter().any(matters))
    }
}

/// What the thread works with.
struct Worker {
    state: Arc<State>,
    path: PathBuf,
    observer: Observer,
    watcher: Option<RecommendedWatcher>,
    watched: BTreeSet<PathBuf>,
    interest: Arc<Mutex<Interest>>,
    /// What the files said at the last attempt, good or bad.
    last: Fingerprint,
    /// Before this nothing is rebuilt for what is beside the files.
    rested: Instant,
}

impl Worker {
    fn run(mut self, events: &Receiver<Event>) {
        let mut looked = Instant::now();
        loop {
            let interval = self.state.current().config.reload.interval;
            let told = match events.recv_timeout(interval.saturating_sub(looked.elapsed())) {
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => Told::default(),
                Ok(Event::Asked) => Told::of(&Event::Asked),
                Ok(event) => match settle(&event, events, self.rested) {
                    Some(told) => told,
                    None => return,
                },
            };
            if told.beside_alone() && looked.elapsed() < interval {
                self.refresh();
                continue;
            }
            looked = Instant::now();
            let seen = self.look();
            if told.asked || seen != self.last {
                self.last = self.reload_until_still(seen);
            } else if told.beside {
                self.refresh();
            }
        }
    }

    /// Reloads, and once more where the files changed while they were read or
    /// the new set names other files. Returns what was seen last.
    fn reload_until_still(&mut self, mut seen: Fingerprint) -> Fingerprint {
        for _ in 0..ATTEMPTS {
            self.reload();
            let after = self.look();
            if after == seen {
                break;
            }
            seen = after;
        }
        seen
    }

    /// Reads what the files say now, and watches the folders they are in.
    ///
    /// The configuration is read anew: what a faulty one names must be noticed,
    /// too, when it is mended.
    fn look(&mut self) -> Fingerprint {
        let snapshot = self.state.current();
        let (config, _) = config::load(&self.path);
        let config = config.as_ref().unwrap_or(&snapshot.config);
        let mut others = snapshot.authenticator.files().clone();
        others.extend(upstream::files(config));
        others.extend(snapshot.authorizers.files().iter().cloned());
        others.extend(self.state.source().check(config).0);
        if self.state.last_failure().is_some() {
            let (authenticator, _) = Authenticator::build(config, None, SystemTime::now());
            others.extend(authenticator.files().iter().cloned());
            let (authorizers, _) = Authorizers::build(config, &config::Disk, None);
            others.extend(authorizers.files().iter().cloned());
        }
        let files = files::all_files(&self.path, config, &others);
        let folders = files::folders_of(config, &files);
        let interest = Interest::new(&files, config.decision_log.as_ref());
        drop(snapshot);
        *self.interest.lock().unwrap_or_else(PoisonError::into_inner) = interest;
        self.watch(folders);
        files::fingerprint(&files)
    }

    fn watch(&mut self, folders: BTreeSet<PathBuf>) {
        let Some(watcher) = &mut self.watcher else { return };
        for gone in self.watched.difference(&folders) {
            // A folder that is gone has lost its watch already.
            let _ = watcher.unwatch(gone);
        }
        let mut watched = BTreeSet::new();
        for folder in folders {
            if self.watched.contains(&folder) && folder.is_dir() {
                watched.insert(folder);
            } else if let Err(error) = watcher.watch(&folder, RecursiveMode::NonRecursive) {
                tracing::warn!(folder = %folder.display(), %error, "this folder is only polled");
            } else {
                watched.insert(folder);
            }
        }
        self.watched = watched;
    }

    /// Puts in force what is beside the files now.
    fn refresh(&mut self) {
        let start = Instant::now();
        let current = self.state.current();
        let snapshot = load::refresh(&current, self.state.source());
        self.rested = Instant::now() + (start.elapsed() * REST).min(LONGEST_REST);
        let Some(snapshot) = snapshot.filter(|new| new.revision != current.revision) else {
            return;
        };
        tracing::info!(revision = %snapshot.revision, "the objects of clusters changed");
        warn_of_vanished_denies(&snapshot.vanished_denies(&current));
        drop(current);
        self.state.refresh(snapshot);
        (self.observer)(Attempt::Refreshed(&self.state));
    }

    fn reload(&self) {
        let current = self.state.current();
        let now = SystemTime::now();
        let (snapshot, faults) = load::load(&self.path, self.state.source(), Some(&current), now);
        log(&faults);
        if let Some(snapshot) = snapshot {
            let change = snapshot.since(&current);
            tracing::info!(revision = %snapshot.revision, "reloaded: {change}");
            warn_of_vanished_denies(&change.vanished_denies);
            warn_of_restart(&current.config, &snapshot.config);
            drop(current);
            self.state.replace(snapshot, change);
            (self.observer)(Attempt::Reloaded(&self.state));
        } else {
            tracing::error!(
                revision = %current.revision,
                faults = faults.len(),
                "the files have faults: the last good set stays in force"
            );
            let failure = Failure {
                at: now,
                faults: Arc::new(faults),
            };
            (self.observer)(Attempt::Failed(&failure));
            self.state.keep(failure);
        }
    }
}

/// What the worker was told of.
#[derive(Debug, Default, Clone, Copy)]
struct Told {
    asked: bool,
    files: bool,
    beside: bool,
}

// === impl Told ===

impl Told {
    fn of(event: &Event) -> Self {
        Self {
            asked: matches!(event, Event::Asked),
            files: matches!(event, Event::Changed),
            beside: matches!(event, Event::Beside),
        }
    }

    const fn and(self, other: Self) -> Self {
        Self {
            asked: self.asked || other.asked,
            files: self.files || other.files,
            beside: self.beside || other.beside,
        }
    }

    /// Whether the files need no look.
    const fn beside_alone(self) -> bool {
        self.beside && !self.asked && !self.files
    }
}

/// Waits from the first event on until all is quiet, and until `earliest`. What
/// came; `None` to stop.
fn settle(first: &Event, events: &Receiver<Event>, earliest: Instant) -> Option<Told> {
    let mut told = Told::of(first);
    let patience = if told.beside_alone() {
        SHORT_PATIENCE
    } else {
        PATIENCE
    };
    let latest = earliest.max(Instant::now() + patience);
    loop {
        let quiet = match events.recv_timeout(QUIET) {
            Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => return None,
            Ok(event) => {
                told = told.and(Told::of(&event));
                false
            }
            Err(RecvTimeoutError::Timeout) => true,
        };
        let now = Instant::now();
        if now >= latest || (quiet && now >= earliest) {
            return Some(told);
        }
    }
}

fn log(faults: &Faults) {
    for fault in faults.iter() {
        match fault.severity {
            Severity::Error => tracing::error!("{fault}"),
            Severity::Warning => tracing::warn!("{fault}"),
        }
    }
}

/// Each by name: whoever removed a Deny by mistake finds it in the log.
fn warn_of_vanished_denies(names: &[String]) {
    for policy in names {
        tracing::warn!(policy, "a Deny is no longer in force");
    }
}

/// Sockets are bound and queues made once.
fn warn_of_restart(old: &crate::config::Config, new: &crate::config::Config) {
    let changed = [
        ("server.address", old.server.address != new.server.address),
        ("admin.address", old.admin.address != new.admin.address),
        ("limits", old.limits != new.limits),
        ("decisionLog", old.decision_log != new.decision_log),
    ];
    for (field, _) in changed.into_iter().filter(|(_, changed)| *changed) {
        tracing::warn!("{field} changed: it takes effect at the next start");
    }
}

#[cfg(test)]
mod tests {
    use notify::event::{AccessKind, CreateKind, DataChange, RenameMode};

    use super::*;

    #[test]
    fn only_events_that_can_change_the_set_matter() {
        let log = DecisionLog {
            path: LogPath::File("/etc/p/decisions.json".into()),
        };
        let interest = Interest::new(&["/etc/p/token".into()], Some(&log));
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
            (rename, "/etc/p/..data", true),
            (EventKind::Access(AccessKind::Any), "/etc/p/token", false),
        ] {
            let event = notify::Event::new(kind).add_path(path.into());
            assert_eq!(interest.is_concerned(&event), matters, "{kind:?} {path}");
        }
    }
}
