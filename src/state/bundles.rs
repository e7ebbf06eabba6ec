//! Pulls the bundles among the manifests, and keeps those that may be in force.
//!
//! ```text
//! poll ─▶ pull ─▶ candidate ─▶ loaded with all other files ─▶ kept ─▶ reload, as after any change
//!                                   └─ faults: reported, and the last good one stays
//! ```
//!
//! A bundle is accepted only if the gateway's files have no fault with it, so that a restart finds
//! a set that loads. The list of bundles is read from the configuration on disk, because a bundle
//! that was just added must be pulled before the configuration can be in force.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant, SystemTime};
use std::{io, thread};

use futures_util::StreamExt as _;
use futures_util::stream;
use tokio::runtime::Runtime;

use super::watch::schedule::Trigger;
use super::{ManifestSource, ReloadState, Snapshot, load};
use crate::bundle::{self, Bundle, BundleError, BundleManifest};
use crate::config::{self, BundleSource, ManifestPath};

/// The maximum of concurrent pulls, each of which may need memory for a whole bundle.
const MAX_PULLS: usize = 4;

/// When a failed pull is retried if no bundle is kept yet, unless polls are more frequent.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Called after each pull, with the bundle and the result.
pub type BundleObserver = Arc<dyn Fn(&BundleSource, &PullResult) + Send + Sync>;

/// The manifest of the bundle that is kept after a pull, or why the newest one was not accepted.
pub type PullResult = Result<BundleManifest, BundleError>;

/// How often the configuration is read to find new bundles.
const CONFIGURATION_INTERVAL: Duration = Duration::from_secs(5);

/// The pause after a pull, as a multiple of the time that pull and reload took: a bundle that is
/// rejected again and again must not use up a processor.
const REST_FACTOR: u32 = 10;

/// Pulls bundles on its own thread, until dropped. A pull that is running then is not waited for.
pub struct BundlePuller {
    _stop: Sender<()>,
}

/// The state of the pulling thread.
struct PullerWorker {
    state: Arc<ReloadState>,
    /// The path of the configuration.
    path: PathBuf,
    trigger: Trigger,
    observer: BundleObserver,
    runtime: Runtime,
    /// When each bundle is to be pulled next.
    due: HashMap<PathBuf, Instant>,
    /// The last error of each bundle, so that it is not logged again after every poll.
    reported: BTreeMap<String, BundleError>,
}

// === impl BundlePuller ===

impl BundlePuller {
    /// Starts to pull the bundles of the configuration at `path`, whose manifests are those of
    /// `state`. New bundles come into force with `trigger`; each result is passed to `observer`.
    ///
    /// # Errors
    ///
    /// The operating system refuses a thread.
    pub fn start(
        state: Arc<ReloadState>,
        path: PathBuf,
        trigger: Trigger,
        observer: BundleObserver,
    ) -> io::Result<Self> {
        let (stop, stopped) = channel();
        let mut worker = PullerWorker {
            state,
            path,
            trigger,
            observer,
            runtime: bundle::runtime()?,
            due: HashMap::new(),
            reported: BTreeMap::new(),
        };
        thread::Builder::new()
            .name("bundles".to_owned())
            .spawn(move || worker.run(&stopped))?;
        Ok(Self { _stop: stop })
    }
}

// === impl PullerWorker ===

impl PullerWorker {
    fn run(&mut self, stopped: &Receiver<()>) {
        loop {
            let entries = entries(&self.path);
            self.due
                .retain(|path, _| entries.iter().any(|(_, entry)| entry.path == *path));
            let now = Instant::now();
            let is_due = |(_, entry): &&(Arc<BundleSource>, ManifestPath)| {
                self.due.get(&entry.path).is_none_or(|at| *at <= now)
            };
            let due: Vec<_> = entries.iter().filter(is_due).cloned().collect();
            if !due.is_empty() {
                self.pull(&due, now);
            }
            let next = self.due.values().min().copied();
            let wait = next.map_or(CONFIGURATION_INTERVAL, |next| {
                next.saturating_duration_since(Instant::now())
                    .min(CONFIGURATION_INTERVAL)
            });
            if stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    fn pull(&mut self, due: &[(Arc<BundleSource>, ManifestPath)], begun: Instant) {
        let current = Arc::clone(&self.state.current());
        let beside = (self.path.as_path(), self.state.source(), Some(&*current));
        let mut results = Vec::new();
        let (trigger, observer) = (&self.trigger, &self.observer);
        pull_all(&self.runtime, due, beside, |source, entry, result, is_new| {
            if is_new {
                trigger.reload();
            }
            observer(source, &result);
            results.push((source.clone(), entry.path.clone(), result));
        });
        let rest = begun.elapsed() * REST_FACTOR;
        for (source, path, result) in results {
            let is_kept = result.is_ok() || path.exists();
            let interval = if is_kept {
                source.poll_interval
            } else {
                source.poll_interval.min(RETRY_INTERVAL)
            };
            self.due
                .insert(path, Instant::now() + with_jitter(interval.max(rest)));
            self.report(&source, result);
        }
    }

    /// Logs an error once, and when it ends.
    fn report(&mut self, source: &BundleSource, result: PullResult) {
        let (bundle, reference) = (source.name.as_str(), &source.reference);
        match result {
            Ok(_) => {
                if self.reported.remove(bundle).is_some() {
                    tracing::info!(bundle, %reference, "the bundle is pulled again");
                }
            }
            Err(error) => {
                if self.reported.get(bundle) != Some(&error) {
                    tracing::error!(bundle, %reference, %error, "the bundle was rejected");
                }
                self.reported.insert(bundle.to_owned(), error);
            }
        }
    }
}

/// `interval` plus up to a tenth, so that gateways that were started together do not always query a
/// registry at the same time.
fn with_jitter(interval: Duration) -> Duration {
    let random = RandomState::new().build_hasher().finish();
    let share = (random % 1_000) as u32;
    interval.saturating_add(interval / 10_000 * share)
}

/// Pulls the bundles of the configuration at `path` once, if it has any. This is for the start,
/// before there is a snapshot, and for commands without a gateway. Blocks for at most the timeout
/// of each pull.
///
/// # Errors
///
/// The runtime cannot be created.
pub fn pull_bundles(
    path: &Path,
    source: &dyn ManifestSource,
) -> io::Result<Vec<(Arc<BundleSource>, PullResult)>> {
    let entries = entries(path);
    let mut results = Vec::new();
    if !entries.is_empty() {
        pull_all(
            &bundle::runtime()?,
            &entries,
            (path, source, None),
            |source, _, result, _| {
                results.push((Arc::new(source.clone()), result));
            },
        );
    }
    Ok(results)
}

/// The bundles of the configuration on disk, as far as it can be read.
fn entries(path: &Path) -> Vec<(Arc<BundleSource>, ManifestPath)> {
    let bundle = |entry: ManifestPath| Some((entry.bundle.clone()?, entry));
    config::manifests_at(path)
        .into_iter()
        .filter_map(bundle)
        .collect()
}

/// What the files of a bundle are loaded with: the path of the configuration, the other objects,
/// and the snapshot in force.
type LoadContext<'b> = (&'b Path, &'b dyn ManifestSource, Option<&'b Snapshot>);

/// Pulls these bundles, and passes each result to `done`, together with whether the bundle is new.
fn pull_all(
    runtime: &Runtime,
    entries: &[(Arc<BundleSource>, ManifestPath)],
    beside: LoadContext<'_>,
    mut done: impl FnMut(&BundleSource, &ManifestPath, PullResult, bool),
) {
    let pull = |(source, entry): &'_ (Arc<BundleSource>, ManifestPath)| {
        let (source, entry) = (Arc::clone(source), entry.clone());
        async move {
            let kept = Bundle::kept(&source, &entry.path).map(|bundle| bundle.manifest);
            let pulled = bundle::with_timeout(bundle::pull(&source, kept.as_ref().ok())).await;
            (source, entry, kept, pulled)
        }
    };
    runtime.block_on(async {
        let mut pulls = stream::iter(entries.iter().map(pull)).buffer_unordered(MAX_PULLS);
        while let Some((source, entry, kept, pulled)) = pulls.next().await {
            let taken = pulled.and_then(|pulled| match pulled {
                Some(bundle) => {
                    keep_if_valid(&bundle, &entry, kept.is_ok(), beside).map(|()| (bundle.manifest, true))
                }
                None => kept.map(|kept| (kept, false)),
            });
            let is_new = matches!(taken, Ok((_, true)));
            done(&source, &entry, taken.map(|(manifest, _)| manifest), is_new);
        }
    });
}

/// Keeps `bundle` in place of that of `entry`, unless the files would have faults with it. If none
/// is kept yet, the files cannot be loaded without it either, so this is not checked.
fn keep_if_valid(
    bundle: &Bundle,
    entry: &ManifestPath,
    is_any_kept: bool,
    (path, source, previous): LoadContext<'_>,
) -> Result<(), BundleError> {
    if is_any_kept {
        let candidate = entry.candidate();
        bundle.keep(&candidate.path)?;
        let tried = load::load_candidate(path, source, previous, &candidate, SystemTime::now());
        // If the file remains, the next pull overwrites it.
        let _ = fs::remove_file(&candidate.path);
        let (snapshot, faults) = tried;
        // The files load even if those of this cluster are faulty, because they would be held back.
        let is_held = |snapshot: &Snapshot| {
            let cluster = entry.cluster.as_ref();
            cluster.is_some_and(|cluster| snapshot.held_back.contains_key(cluster))
        };
        if snapshot.as_ref().is_none_or(is_held) {
            return Err(BundleError::Faulty(faults.to_string()));
        }
    }
    bundle.keep(&entry.path)?;
    let BundleManifest {
        name,
        sequence,
        digest,
        ..
    } = &bundle.manifest;
    tracing::info!(bundle = name, sequence, digest, "accepted a bundle");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_are_spread_over_a_tenth_of_their_interval() {
        let interval = Duration::from_secs(60);
        let spread: std::collections::BTreeSet<Duration> = (0..100).map(|_| with_jitter(interval)).collect();
        assert!(spread.len() > 10, "{spread:?}");
        assert!(
            spread
                .iter()
                .all(|one| (interval..interval * 11 / 10).contains(one)),
            "{spread:?}"
        );
    }
}
