//! Notices that a file changed, and has the set loaded again.
//!
//! Three ways lead here. Watches on the folders tell at once; they hang on the
//! folder and not on the file, because mounted Secrets and ConfigMaps change by
//! the swap of a link. A poll finds what no watch tells of (network file
//! systems, links whose far end moved). SIGHUP asks outright.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use notify::{RecommendedWatcher, RecursiveMode, Watcher};

use super::files::{self, Fingerprint};
use super::{Failure, State, load};
use crate::field::{Faults, Severity};

/// How long the files must be quiet before they are read: an editor or a
/// copy of a folder writes several times.
const QUIET: Duration = Duration::from_millis(100);

/// After so many quiet waits the files are read although they still change.
const PATIENCE: usize = 20;

/// How often a set is loaded anew because it changed under the last load.
const ATTEMPTS: usize = 3;

/// Told of each attempt that was made: the new state or why there is none.
pub type Observer = Box<dyn Fn(Result<&State, &Failure>) + Send>;

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
        let watcher = notify::recommended_watcher({
            let sender = sender.clone();
            move |event: notify::Result<notify::Event>| {
                if event.is_ok_and(|event| !event.kind.is_access()) {
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
            last: Fingerprint::none(),
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

/// What the thread works with.
struct Worker {
    state: Arc<State>,
    path: PathBuf,
    observer: Observer,
    watcher: Option<RecommendedWatcher>,
    watched: BTreeSet<PathBuf>,
    /// What the files said at the last attempt, good or bad.
    last: Fingerprint,
}

impl Worker {
    fn run(mut self, events: &Receiver<Event>) {
        loop {
            let interval = self.state.current().config.reload.interval;
            let asked = match events.recv_timeout(interval) {
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(Event::Asked) => true,
                Err(RecvTimeoutError::Timeout) => false,
                Ok(Event::Changed) => match settle(events) {
                    Some(asked) => asked,
                    None => return,
                },
            };
            let seen = self.look();
            if asked || seen != self.last {
                self.last = self.reload_until_still(seen);
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
    fn look(&mut self) -> Fingerprint {
        let snapshot = self.state.current();
        let files = files::all_files(&self.path, &snapshot.config, snapshot.authenticator.files());
        let folders = files::folders_of(&snapshot.config, &files);
        drop(snapshot);
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

    fn reload(&self) {
        let current = self.state.current();
        let now = SystemTime::now();
        let (snapshot, faults) = load(&self.path, Some(&current), now);
        log(&faults);
        if let Some(snapshot) = snapshot {
            tracing::info!(revision = %snapshot.revision, "reloaded");
            warn_of_restart(&current.config, &snapshot.config);
            drop(current);
            self.state.replace(snapshot);
            (self.observer)(Ok(&self.state));
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
            (self.observer)(Err(&failure));
            self.state.keep(failure);
        }
    }
}

/// Waits until the files are quiet. Whether somebody asked meanwhile; `None` to stop.
fn settle(events: &Receiver<Event>) -> Option<bool> {
    let mut asked = false;
    for _ in 0..PATIENCE {
        match events.recv_timeout(QUIET) {
            Ok(Event::Changed) => {}
            Ok(Event::Asked) => asked = true,
            Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => break,
        }
    }
    Some(asked)
}

fn log(faults: &Faults) {
    for fault in faults.iter() {
        match fault.severity {
            Severity::Error => tracing::error!("{fault}"),
            Severity::Warning => tracing::warn!("{fault}"),
        }
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
