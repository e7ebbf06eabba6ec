//! Watches files and reloads after changes.
//!
//! There are three triggers. Watches on the folders report changes at once; they watch folders
//! instead of files, because mounted Secrets and ConfigMaps change by replacing a link. Polling
//! finds changes that no watch reports (network file systems, links whose target changed). SIGHUP
//! requests a reload.
//!
//! ```text
//! events ─▶ due? ─▶ job, on its own thread ─▶ ended: put in force, or keep
//!             ▲                  └── not within the limit: reported, and the next may begin
//!             └──────────────────────────────┘
//! ```

pub(crate) mod schedule;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};
use std::{io, thread};

use super::files::Fingerprint;
use super::job::{LoadedSnapshot, ReloadExtent, ReloadJob, ReloadResult, Watches};
use super::{ReloadFailure, ReloadState, Restriction, Snapshot, load};
use crate::config;
use crate::identity::certificates::Reminders;
use portcullis_policy::field::{Fault, FaultKind, Faults, Place, Severity};
use schedule::{ReloadRequest, Schedule};

pub use schedule::Trigger;

/// How long a reload may take before it is reported, and no longer delays the next one.
pub const RELOAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Keeps a [`ReloadState`] up to date on its own thread, until dropped.
pub struct Reloader {
    events: Sender<ReloaderMessage>,
    trigger: Trigger,
    thread: Option<JoinHandle<()>>,
}

// === impl Reloader ===

impl Reloader {
    /// Starts to watch the files of `state`, whose configuration is at `path`. A reload that takes
    /// longer than `limit` ([`RELOAD_TIMEOUT`]) is reported to `observer` as failed. It
    /// nevertheless takes effect when it ends, unless a later one has.
    ///
    /// # Errors
    ///
    /// The operating system refuses a thread. If it refuses watches, this is only logged, since
    /// polling remains.
    pub fn start(
        state: Arc<ReloadState>,
        path: PathBuf,
        limit: Duration,
        observer: ReloadObserver,
    ) -> io::Result<Self> {
        let (sender, events) = channel();
        let mut worker = ReloadWorker::new(sender.clone(), state, path, limit, observer);
        worker.begin_to_watch();
        let thread = thread::Builder::new()
            .name("reload".into())
            .spawn(move || worker.run(&events))?;
        let events = sender.clone();
        // An error means that the reloader has stopped, so that nothing can be requested any more.
        let trigger = Trigger::new(move |request| drop(sender.send(ReloaderMessage::ReloadRequest(request))));
        Ok(Self {
            events,
            trigger,
            thread: Some(thread),
        })
    }

    /// A handle that requests reloads.
    #[must_use]
    pub fn trigger(&self) -> Trigger {
        self.trigger.clone()
    }
}

impl Drop for Reloader {
    fn drop(&mut self) {
        let _ = self.events.send(ReloaderMessage::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// How long the thread rests after updating watched objects, as a multiple of the time that the
/// update took: a cluster that changes all the time must not use up a processor.
const REST_FACTOR: u32 = 4;

/// The maximum of this rest.
const MAX_REST: Duration = Duration::from_millis(400);

/// How many jobs may hang, each with its thread, before no more are started.
const MAX_HANGING: usize = 8;

/// How many jobs may hang before polls start no more, so that some are left for explicit requests.
const MAX_HANGING_POLLS: usize = MAX_HANGING / 2;

/// The state of the reloading thread.
struct ReloadWorker {
    events: Sender<ReloaderMessage>,
    state: Arc<ReloadState>,
    path: PathBuf,
    observer: ReloadObserver,
    limit: Duration,
    /// `None` while a job runs, which has them.
    watches: Option<Watches>,
    reminders: Reminders,
    /// The files at the last job, whether it succeeded or not.
    last: Fingerprint,
    running: Vec<RunningReload>,
    /// The number of the job started last.
    begun: u64,
    /// The number of the newest job whose result was used.
    applied: u64,
    schedule: Schedule,
}

/// A job that has not ended.
struct RunningReload {
    number: u64,
    since: Instant,
    /// Whether watched objects changed, too.
    includes_watched_objects: bool,
    /// Whether it was reported as taking too long.
    is_reported: bool,
}

// === impl ReloadWorker ===

impl ReloadWorker {
    fn new(
        events: Sender<ReloaderMessage>,
        state: Arc<ReloadState>,
        path: PathBuf,
        limit: Duration,
        observer: ReloadObserver,
    ) -> Self {
        Self {
            events,
            path,
            observer,
            limit,
            watches: None,
            reminders: Reminders::default(),
            last: Fingerprint::none(),
            running: Vec::new(),
            begun: 0,
            applied: 0,
            schedule: Schedule::new(Instant::now()),
            state,
        }
    }

    fn begin_to_watch(&mut self) {
        let mut job = self.job(ReloadExtent::Everything);
        let current = Arc::clone(&self.state.current());
        self.last = job.fingerprint(&current, false);
        self.watches = Some(job.watches);
        // These warnings were logged when the files were loaded.
        self.reminders.due(&current.expiries, SystemTime::now());
    }

    /// Logs warnings about certificates that expire soon.
    fn remind(&mut self, now: SystemTime) {
        let current = self.state.current();
        for expiry in self.reminders.due(&current.expiries, now) {
            if let Some(warning) = expiry.warning(now) {
                tracing::warn!("{warning}");
            }
        }
    }

    fn run(mut self, events: &Receiver<ReloaderMessage>) {
        loop {
            let now = Instant::now();
            self.report_hanging(now);
            if self.next_action_at().is_some_and(|at| at <= now) {
                self.act(now);
                continue;
            }
            let next = [self.next_action_at(), self.report_at()]
                .into_iter()
                .flatten()
                .min();
            let received = match next {
                Some(next) => events.recv_timeout(next.saturating_duration_since(now)),
                None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match received {
                Ok(ReloaderMessage::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(ReloaderMessage::ReloadRequest(requested)) => {
                    self.schedule.request(requested, Instant::now())
                }
                Ok(ReloaderMessage::Ended(number, result)) => {
                    self.ended(number, result.map(|result| *result))
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// When the next action is due; `None` while it has to wait for a job.
    fn next_action_at(&self) -> Option<Instant> {
        let is_busy = self.running.iter().any(|running| !running.is_reported);
        if is_busy || self.running.len() >= MAX_HANGING {
            return None;
        }
        let poll_interval = self.state.current().config.reload.poll_interval;
        let polls = self.running.len() < MAX_HANGING_POLLS;
        let poll = self.schedule.poll_at(poll_interval).filter(|_| polls);
        poll.into_iter().chain(self.schedule.requested_at()).min()
    }

    fn act(&mut self, now: Instant) {
        let poll_interval = self.state.current().config.reload.poll_interval;
        let is_polled = self.schedule.poll_at(poll_interval).is_some_and(|at| at <= now);
        let requested = self.schedule.take();
        self.remind(SystemTime::now());
        if requested.is_for_watched_objects_only() && !is_polled {
            self.refresh();
        } else {
            let extent = match requested {
                ReloadRequest { is_forced: true, .. } => ReloadExtent::Forced,
                _ if is_polled => ReloadExtent::Everything,
                _ => ReloadExtent::Changed,
            };
            self.begin(requested, extent, now);
        }
    }

    // === jobs ===

    fn begin(&mut self, requested: ReloadRequest, extent: ReloadExtent, now: Instant) {
        if extent != ReloadExtent::Changed {
            self.schedule.read_at(now);
        }
        self.begun += 1;
        let number = self.begun;
        let events = self.events.clone();
        let job = self.job(extent);
        let begun = job.spawn(move |result| {
            // An error means that the reloader has stopped, and needs no result.
            let _ = events.send(ReloaderMessage::Ended(number, result.map(Box::new)));
        });
        match begun {
            Ok(()) => self.running.push(RunningReload {
                number,
                since: now,
                includes_watched_objects: requested.watched_objects_changed,
                is_reported: false,
            }),
            Err(error) => self.fail(
                vec![fault(format!("cannot start a thread to read the files: {error}"))],
                false,
            ),
        }
    }

    fn job(&mut self, extent: ReloadExtent) -> ReloadJob {
        let events = self.events.clone();
        let changed = move || drop(events.send(ReloaderMessage::ReloadRequest(ReloadRequest::CHANGED)));
        ReloadJob {
            state: Arc::clone(&self.state),
            path: self.path.clone(),
            watches: self.watches.take().unwrap_or_else(|| Watches::new(changed)),
            last: self.last.clone(),
            extent,
        }
    }

    fn ended(&mut self, number: u64, result: Option<ReloadResult>) {
        let place = self.running.iter().position(|running| running.number == number);
        let Some(running) = place.map(|place| self.running.swap_remove(place)) else {
            return;
        };
        let Some(result) = result else {
            let message = "the reload panicked; please report this bug".to_owned();
            return self.fail(vec![fault(message)], false);
        };
        // A later job has ended already, and may have read newer files.
        if number < self.applied {
            return;
        }
        self.applied = number;
        self.last = result.seen;
        self.watches = Some(result.watches);
        let is_loaded = result.loaded.is_some();
        if let Some(loaded) = result.loaded {
            self.put_in_force(loaded);
        } else if running.is_reported {
            // This reload was reported as failed; only a complete one shows that all is well.
            self.schedule.request(ReloadRequest::FORCED, Instant::now());
        }
        // Watched objects that changed meanwhile may have been too late for this reload.
        if running.is_reported || running.includes_watched_objects && !is_loaded {
            self.refresh();
        }
    }

    fn put_in_force(&self, loaded: LoadedSnapshot) {
        let LoadedSnapshot { at, snapshot, faults } = loaded;
        let Some(snapshot) = snapshot else {
            let failure = ReloadFailure {
                at,
                faults: Arc::new(faults),
                is_hanging: false,
            };
            return self.keep(failure);
        };
        log(&faults, &snapshot);
        let current = Arc::clone(&self.state.current());
        let change = snapshot.since(&current);
        tracing::info!(revision = %snapshot.revision, "reloaded: {change}");
        self.log_vanished(&change.vanished);
        warn_of_restart(&current.config, &snapshot.config);
        self.state.replace(snapshot, change);
        (self.observer)(ReloadAttempt::Reloaded(&self.state));
    }

    fn log_vanished(&self, restrictions: &[Restriction]) {
        log_removed_restrictions(restrictions);
        if !restrictions.is_empty() {
            (self.observer)(ReloadAttempt::RestrictionsRemoved(restrictions));
        }
    }

    fn keep(&self, failure: ReloadFailure) {
        log_faults(&failure.faults);
        let revision = &self.state.current().revision;
        let faults = failure.faults.len();
        if failure.is_hanging {
            tracing::error!(%revision, "a reload has not finished: the last good set stays in force");
        } else {
            tracing::error!(%revision, faults, "the files have errors: the last good set stays in force");
        }
        (self.observer)(ReloadAttempt::Failed(&failure));
        self.state.record_failure(failure);
    }

    fn fail(&self, found: Vec<Fault>, is_hanging: bool) {
        let mut faults = Faults::new();
        faults.extend(found);
        self.keep(ReloadFailure {
            at: SystemTime::now(),
            faults: Arc::new(faults),
            is_hanging,
        });
    }

    // === jobs that hang ===

    fn report_at(&self) -> Option<Instant> {
        let waiting = self.running.iter().filter(|running| !running.is_reported);
        waiting.map(|running| running.since + self.limit).min()
    }

    fn report_hanging(&mut self, now: Instant) {
        if self.report_at().is_none_or(|at| at > now) {
            return;
        }
        for running in &mut self.running {
            running.is_reported |= running.since + self.limit <= now;
        }
        self.fail(hanging(self.limit), true);
        if self.running.len() >= MAX_HANGING {
            tracing::error!(
                "{MAX_HANGING} reloads hang, so no further reload starts until one ends: repair the file \
                system, or restart the gateway"
            );
        }
    }

    // === objects of watched clusters ===

    /// Puts the current objects of watched clusters in force.
    fn refresh(&mut self) {
        let start = Instant::now();
        let current = self.state.current();
        let snapshot = load::refresh(&current, self.state.source(), SystemTime::now());
        let rest = (start.elapsed() * REST_FACTOR).min(MAX_REST);
        self.schedule.rest_until(Instant::now() + rest);
        let Some(snapshot) = snapshot.filter(|new| new.revision != current.revision) else {
            return;
        };
        tracing::info!(revision = %snapshot.revision, "the objects of clusters changed");
        self.log_vanished(&snapshot.removed_restrictions(&current));
        drop(current);
        self.state.put_in_force(snapshot);
        (self.observer)(ReloadAttempt::Refreshed(&self.state));
    }
}

// Messages to and from the reloading thread, and what is logged of reloads.

/// Called after each attempt.
pub type ReloadObserver = Box<dyn Fn(ReloadAttempt<'_>) + Send>;

/// The result of an attempt to replace the snapshot in force.
#[derive(Clone, Copy)]
pub enum ReloadAttempt<'a> {
    /// The files were read, and are in force.
    Reloaded(&'a ReloadState),
    /// Objects of clusters changed. The files were not read: if they were faulty, they still are.
    Refreshed(&'a ReloadState),
    /// These restrictions are about to be removed.
    RestrictionsRemoved(&'a [Restriction]),
    /// The files have faults, or are still being read; the snapshot in force stays.
    Failed(&'a ReloadFailure),
}

pub(crate) enum ReloaderMessage {
    /// A reload is requested.
    ReloadRequest(ReloadRequest),
    /// The job with this number ended, without a result if it panicked.
    Ended(u64, Option<Box<ReloadResult>>),
    /// The reloader is dropped.
    Stop,
}

/// The faults of a reload that takes longer than `limit`, one for each file that it is still
/// reading.
pub(crate) fn hanging(limit: Duration) -> Vec<Fault> {
    let pending = config::files::pending();
    if pending.is_empty() {
        let message = format!("the reload has not finished after {limit:?}; it takes effect when it does");
        return vec![fault(message)];
    }
    let of = |path: PathBuf| Fault {
        place: Place::of_file(&path),
        ..fault(format!(
            "the reload has not finished after {limit:?} and is reading this file: check its file system"
        ))
    };
    pending.into_iter().map(of).collect()
}

pub(crate) fn fault(message: String) -> Fault {
    Fault::error(Place::default(), FaultKind::Unreadable, message)
}

/// Logs the faults of the files from which `loaded` comes, and the clusters whose files are held
/// back or unknown.
pub fn log(faults: &Faults, loaded: &Snapshot) {
    log_faults(faults);
    for (cluster, faults) in loaded.held_back.iter() {
        tracing::error!(
            cluster,
            faults = faults.len(),
            "the cluster's own files have errors: their last good version stays in force, everything else \
            takes effect"
        );
    }
    for cluster in loaded.unknown_clusters() {
        tracing::error!(
            cluster,
            "the policies of the cluster are not known, because its own files have errors and there is no \
            earlier version: its requests are answered with 503 until these are corrected"
        );
    }
}

fn log_faults(faults: &Faults) {
    for fault in faults.iter() {
        match fault.severity {
            Severity::Error => tracing::error!("{fault}"),
            Severity::Warning => tracing::warn!("{fault}"),
        }
    }
}

/// Logs each restriction by name, so that an administrator who removed one by mistake finds it.
pub(crate) fn log_removed_restrictions(restrictions: &[Restriction]) {
    for restriction in restrictions {
        let (kind, name) = (restriction.kind, restriction.in_cluster());
        tracing::warn!(kind, name, "a restriction is no longer in force");
    }
}

/// Warns of changed settings that cannot take effect without a restart, because sockets are bound
/// and queues created once.
pub(crate) fn warn_of_restart(old: &config::Config, new: &config::Config) {
    let console = |config: &config::Config| config.console.clone();
    let address = |config| console(config).map(|console| console.address);
    let max_decisions = |config| console(config).map(|console| console.max_decisions);
    let has_tls = |config| console(config).map(|console| console.tls.is_some());
    // A decision log in a folder can be moved without a restart.
    let lines = |config: &config::Config| {
        let log = config.decision_log.as_ref().filter(|log| log.folder().is_none());
        log.map(|log| log.path.clone())
    };
    let changed = [
        ("server.address", old.server.address != new.server.address),
        ("admin.address", old.admin.address != new.admin.address),
        ("console.address", address(old) != address(new)),
        ("console.maxDecisions", max_decisions(old) != max_decisions(new)),
        ("console.tls", has_tls(old) != has_tls(new)),
        ("limits", old.limits != new.limits),
        ("decisionLog.path", lines(old) != lines(new)),
    ];
    for (field, _) in changed.into_iter().filter(|(_, changed)| *changed) {
        tracing::warn!("{field} changed: it takes effect at the next start");
    }
}
