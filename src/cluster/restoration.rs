//! The saved sets of clusters, restored side by side.
//!
//! What one cluster saved may take minutes to compile, which delays neither the start of the
//! gateway nor the other clusters: where it takes long, the next one begins nevertheless. Until
//! all of a cluster is restored, nothing is known of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};
use std::{io, thread};

use super::reporter::Reporter;
use super::saved::{self, RestoredSet};
use super::store::Store;
use crate::config::FileScope;

/// How many are restored at once, not counting those that take longer than [`TURN`].
const MAX_AT_ONCE: usize = 4;

/// How long the next one waits for one of these.
const TURN: Duration = Duration::from_secs(1);

/// The saved set of a cluster, not read yet.
pub(crate) struct Restoration {
    pub(crate) file: (PathBuf, FileScope),
    /// The largest file.
    pub(crate) max_bytes: usize,
    pub(crate) store: Arc<Store>,
    pub(crate) reporter: Reporter,
    /// Dropped once it is restored, or cannot be.
    pub(crate) restoring: tokio::sync::watch::Sender<()>,
}

/// Restores all of them, and waits for that as long as `patience`. Those that take longer go on,
/// and report their end.
///
/// # Errors
///
/// There is no thread for it, and nothing is restored.
pub(crate) fn restore(all: Vec<Restoration>, patience: Duration) -> io::Result<()> {
    let (ended, ends) = channel();
    let mut left = all.len();
    spawn(move || restore_each(all, &ended))?;
    let until = Instant::now() + patience;
    let wait = || ends.recv_timeout(until.saturating_duration_since(Instant::now()));
    while left > 0 && wait().is_ok() {
        left -= 1;
    }
    Ok(())
}

fn restore_each(all: Vec<Restoration>, ended: &Sender<()>) {
    let (free, freed) = channel();
    for (number, restoration) in all.into_iter().enumerate() {
        if number >= MAX_AT_ONCE {
            let _one_or_too_long = freed.recv_timeout(TURN);
        }
        let (free, ended) = (free.clone(), ended.clone());
        let begun = spawn(move || {
            restoration.run();
            // Nobody may wait any more.
            let _ = free.send(());
            let _ = ended.send(());
        });
        if let Err(error) = begun {
            tracing::error!(%error, "cannot restore the saved set of a cluster");
        }
    }
}

fn spawn(run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new()
        .name("restore".to_owned())
        .spawn(run)
        .map(drop)
}

// === impl Restoration ===

impl Restoration {
    fn run(self) {
        if let Some(saved) = self.read() {
            self.store.restore(saved);
            self.reporter.changed();
        }
        drop(self.restoring);
    }

    fn read(&self) -> Option<RestoredSet> {
        let (path, scope) = &self.file;
        let cluster = &**self.reporter.cluster();
        let read = saved::read((path, scope), cluster, self.max_bytes);
        read.unwrap_or_else(|error| {
            let file = path.display();
            tracing::error!(cluster, %file, %error, "cannot use the cache file of the cluster");
            None
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::contents::SharedContents;
    use crate::cluster::memory::WatchedMemory;
    use crate::cluster::reporter::Signal;
    use portcullis_cel::Version;

    /// Longer than any test runs.
    const LONG: Duration = Duration::from_secs(20);

    fn mk_restoration(folder: &std::path::Path, cluster: &str) -> Restoration {
        let path = folder.join(cluster);
        saved::write_empty(&path, cluster);
        let memory = WatchedMemory::default();
        let store = Store::sharing(
            &Arc::<SharedContents>::default(),
            memory.cluster(),
            cluster,
            Version::NEWEST,
        );
        Restoration {
            file: (path, FileScope::Anywhere),
            max_bytes: 1 << 20,
            store: Arc::new(store),
            reporter: Reporter::new(cluster, Arc::<Signal>::default()),
            restoring: tokio::sync::watch::channel(()).0,
        }
    }

    #[test]
    fn saved_sets_that_take_long_hold_up_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let names = (0..=MAX_AT_ONCE).map(|number| format!("slow-{number}"));
        let mut all: Vec<_> = names.map(|name| mk_restoration(folder.path(), &name)).collect();
        let slow: Vec<_> = all.iter().map(|one| Arc::clone(&one.store)).collect();
        all.push(mk_restoration(folder.path(), "quick"));
        let quick = Arc::clone(&all.last().unwrap().store);
        let held: Vec<_> = slow.iter().map(|store| store.hold_up()).collect();
        restore(all, Duration::ZERO).unwrap();
        let start = Instant::now();
        while quick.is_unknown() {
            assert!(start.elapsed() < LONG, "it waits for the others");
            thread::yield_now();
        }
        drop(held);
        while slow.iter().any(|store| store.is_unknown()) {
            assert!(start.elapsed() < LONG, "they are not restored");
            thread::yield_now();
        }
    }
}
