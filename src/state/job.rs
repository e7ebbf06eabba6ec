//! Reads the files on a separate thread, so that a file system that does not respond blocks only
//! that thread.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use std::{io, thread};

use notify::{RecommendedWatcher, RecursiveMode, Watcher};

use super::files::{self, FileTimes, Fingerprint, SetFiles, SetNames};
use super::snapshot::Snapshot;
use super::watch::schedule::{ChangedNames, WatchFilter};
use super::{ReloadState, load};
use crate::config::{self, Config};
use crate::identity::Authenticator;
use crate::webhooks;
use crate::webhooks::authorizers::Authorizers;
use portcullis_policy::field::Faults;

/// How often a set is loaded again because it changed while it was loaded.
const ROUNDS: usize = 3;

/// A job that reads the files, and loads them if they changed.
pub(crate) struct ReloadJob {
    pub(crate) state: Arc<ReloadState>,
    /// The path of the configuration.
    pub(crate) path: PathBuf,
    pub(crate) watches: Watches,
    /// The files at the last job, whether it succeeded or not.
    pub(crate) last: Fingerprint,
    pub(crate) extent: ReloadExtent,
}

/// How much a job reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReloadExtent {
    /// The files that the watches reported, if nothing else can have changed.
    Changed,
    /// Every file.
    Everything,
    /// Every file. They are loaded even if their contents did not change.
    Forced,
}

/// The result of a job.
pub(crate) struct ReloadResult {
    pub(crate) watches: Watches,
    /// The files as they were read.
    pub(crate) seen: Fingerprint,
    /// The result of loading them, if they were loaded.
    pub(crate) loaded: Option<LoadedSnapshot>,
}

/// A set that was loaded, or the faults.
pub(crate) struct LoadedSnapshot {
    pub(crate) at: SystemTime,
    pub(crate) snapshot: Option<Snapshot>,
    pub(crate) faults: Faults,
}

/// The watched folders.
pub(crate) struct Watches {
    watcher: Option<RecommendedWatcher>,
    watched: BTreeSet<PathBuf>,
    filter: Arc<Mutex<WatchFilter>>,
    /// The names when everything was last read.
    names: SetNames,
}

// === impl ReloadJob ===

impl ReloadJob {
    /// Runs the job, and calls `ended` with its result; `None` if it panicked.
    ///
    /// # Errors
    ///
    /// The operating system refuses a thread.
    pub(crate) fn spawn(self, ended: impl FnOnce(Option<ReloadResult>) + Send + 'static) -> io::Result<()> {
        let run = move || ended(catch_unwind(AssertUnwindSafe(|| self.run())).ok());
        thread::Builder::new()
            .name("reload-files".to_owned())
            .spawn(run)
            .map(drop)
    }

    /// Loads the files if they changed.
    fn run(mut self) -> ReloadResult {
        let current = Arc::clone(&self.state.current());
        let touched = self.watches.take_touched();
        let result = match touched {
            ChangedNames::Names(names) if self.extent == ReloadExtent::Changed => {
                self.read_changed(&names, &current)
            }
            _ => None,
        };
        let (seen, loaded) = result.unwrap_or_else(|| self.read_everything(&current));
        ReloadResult {
            watches: self.watches,
            seen,
            loaded,
        }
    }

    /// Loads only the changed files among `names`. `None` if more files must be read.
    ///
    /// The watches report again any file that is written meanwhile.
    fn read_changed(
        &self,
        names: &BTreeSet<PathBuf>,
        current: &Snapshot,
    ) -> Option<(Fingerprint, Option<LoadedSnapshot>)> {
        // After a failure all faults have to be reported, and the files in force are not those that
        // were seen.
        if self.state.last_failure().is_some() || !current.is_as_written() {
            return None;
        }
        let files = self.watches.names.modified_files(names)?;
        let at = SystemTime::now();
        let seen = self.last.with_modified(&files, at)?;
        if seen == self.last {
            return Some((seen, None));
        }
        let (snapshot, faults) = load::reload_files(current, self.state.source(), &files, at)?;
        let snapshot = Some(snapshot);
        Some((seen, Some(LoadedSnapshot { at, snapshot, faults })))
    }

    /// Loads everything, and again if files changed while they were read, or the new set names
    /// other files.
    fn read_everything(&mut self, current: &Snapshot) -> (Fingerprint, Option<LoadedSnapshot>) {
        let last = self.last.clone();
        let is_forced = self.extent == ReloadExtent::Forced;
        let times = if is_forced {
            // A user who requests a reload may know that the file system does not maintain times.
            self.last = Fingerprint::none();
            FileTimes::Ignored
        } else {
            FileTimes::Trusted
        };
        let was_faulty = self.state.last_failure().is_some() || !current.is_as_written();
        let mut seen = self.fingerprint(current, was_faulty);
        let mut loaded = None;
        if is_forced || seen != last {
            for _ in 0..ROUNDS {
                let at = SystemTime::now();
                let (snapshot, faults) = load::reload(&self.path, self.state.source(), current, times, at);
                let after = self.fingerprint(snapshot.as_ref().unwrap_or(current), snapshot.is_none());
                loaded = Some(LoadedSnapshot { at, snapshot, faults });
                if after == seen {
                    break;
                }
                seen = after;
            }
        }
        (seen, loaded)
    }

    /// Reads the files, and watches their folders.
    pub(crate) fn fingerprint(&mut self, snapshot: &Snapshot, is_faulty: bool) -> Fingerprint {
        // Examines the configuration again, to notice changes of the files that a faulty one names,
        // too.
        let (examined, _) = config::load_valid_parts(&self.path);
        let config = examined.config.as_ref().unwrap_or(&snapshot.config);
        let mut found = self.files(config, snapshot, is_faulty);
        self.watches.names = found.take_names();
        // Watches first, so that files that are written while they are read are noticed.
        self.watches.follow(config, &found);
        let seen = files::fingerprint(&found.files, &self.last, SystemTime::now());
        self.last = seen.clone();
        seen
    }

    /// All files of the set that is loaded or would be.
    fn files(&self, config: &Config, snapshot: &Snapshot, is_faulty: bool) -> SetFiles {
        let mut others = snapshot.authenticator.files().clone();
        others.extend(webhooks::files(config));
        others.extend(snapshot.authorizers.files().iter().cloned());
        others.extend(self.state.source().check(config).files);
        if is_faulty {
            let (authenticator, _) = Authenticator::build(config, None, SystemTime::now());
            others.extend(authenticator.files().iter().cloned());
            let (authorizers, _) = Authorizers::build(config, &config::Disk, None);
            others.extend(authorizers.files().iter().cloned());
        }
        SetFiles::new(&self.path, config, &others)
    }
}

// === impl Watches ===

impl Watches {
    /// Watches nothing yet. `changed` is called with each change that matters.
    pub(crate) fn new(changed: impl Fn() + Send + 'static) -> Self {
        let interest = Arc::new(Mutex::new(WatchFilter::default()));
        let of_watcher = Arc::clone(&interest);
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let mut interest = of_watcher.lock().unwrap_or_else(PoisonError::into_inner);
            if event.is_ok_and(|event| interest.note(&event)) {
                changed();
            }
        });
        Self {
            watcher: watcher
                .map_err(|error| tracing::warn!(%error, "files cannot be watched and are only polled"))
                .ok(),
            watched: BTreeSet::new(),
            filter: interest,
            names: SetNames::default(),
        }
    }

    fn filter(&self) -> MutexGuard<'_, WatchFilter> {
        self.filter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the changes since the last call.
    fn take_touched(&self) -> ChangedNames {
        self.filter().take_touched()
    }

    fn follow(&mut self, config: &Config, found: &SetFiles) {
        let files = found.files.iter().chain(&found.real).cloned();
        self.filter().follow(files, config);
        self.watch(found.folders.clone());
    }

    fn watch(&mut self, folders: BTreeSet<PathBuf>) {
        let Some(watcher) = &mut self.watcher else { return };
        for gone in self.watched.difference(&folders) {
            // A folder that was deleted has lost its watch already.
            let _ = watcher.unwatch(gone);
        }
        let mut watched = BTreeSet::new();
        for folder in folders {
            let is_watched = self.watched.contains(&folder) && folder.is_dir();
            let watch = || watcher.watch(&folder, RecursiveMode::NonRecursive);
            match if is_watched {
                Ok(())
            } else {
                config::files::with_pending_path(&folder, watch)
            } {
                Ok(()) => {
                    watched.insert(folder);
                }
                Err(error) => {
                    tracing::warn!(folder = %folder.display(), %error, "this folder is only polled");
                }
            }
        }
        self.watched = watched;
    }
}

#[cfg(test)]
mod tests;
