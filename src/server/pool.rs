//! A thread pool for long reviews.
//!
//! ```text
//! small ─▶ a thread, for a short while ── done
//!                    └── not done: from the beginning ─▶ large ─▶ a thread, until the deadline
//! ```
//!
//! Workers never wait for these threads. A small job has only a short slice of processor time, so
//! an expensive one does not delay cheap ones: it restarts on the threads for large jobs. Time in
//! which a job waits for a busy processor does not count towards its slice. Clusters and their
//! users take turns; callers with a path token count as a cluster of their own here. The queues are
//! bounded by the permits that every job holds. No job waits beyond its deadline.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::oneshot;
use tokio::time::timeout_at;

/// The longest body that a worker decodes itself: a longer one takes more time than a change of
/// threads.
pub(crate) const MAX_WORKER_BYTES: usize = 64 << 10;

/// How long a worker tries before a review restarts on these threads.
pub(crate) const WORKER_TIME_SLICE: Duration = Duration::from_micros(500);

/// The processor time of a small job.
const SMALL_JOB_TIME: Duration = Duration::from_millis(20);

/// The least number of threads for large jobs: one for each of two clusters.
const MIN_LARGE_THREADS: usize = 2;

/// The pool. Its threads end soon after this is dropped.
pub(crate) struct Pool {
    small: Arc<JobQueue>,
    large: Arc<JobQueue>,
    compiling: Arc<JobQueue>,
    is_closing: Arc<AtomicBool>,
}

/// The class of a job, which selects its threads and its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobClass {
    /// It has [`SMALL_JOB_TIME`] of processor time, and is restarted as a large job if that is too
    /// little.
    Small,
    /// It may run until the deadline.
    Large,
    /// It may run until the deadline, and may compile expressions.
    Compiling,
}

/// Why a job has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobError {
    /// Its deadline passed, before it began or while it ran.
    TooLate,
    /// It panicked.
    Panicked,
}

/// Work for one thread.
pub(crate) type PoolJob = Box<dyn FnOnce() + Send>;

/// The cluster and user that a job is for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct JobOwner {
    /// [`Caller::share`](crate::identity::Caller::share).
    pub(crate) share: Arc<str>,
    /// Empty while it is not known.
    pub(crate) user: Arc<str>,
}

/// How many jobs may run at once, for one cluster and for one user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunningLimits {
    pub(crate) of_cluster: usize,
    pub(crate) of_user: usize,
}

/// The waiting jobs, in turns by cluster, and within a cluster by user.
///
/// Each cluster with waiting jobs has its turn, however many jobs another has. No cluster may use
/// more than a part of the threads at once, so that the jobs of another cluster do not have to wait
/// until its jobs end. The same holds for the users of a cluster.
pub(crate) struct JobQueue {
    limits: RunningLimits,
    jobs: Mutex<QueuedJobs>,
    changed: Condvar,
}

#[derive(Default)]
struct QueuedJobs {
    /// The waiting jobs by cluster and by user, both in the order of their turns.
    waiting: VecDeque<(Arc<str>, VecDeque<UserJobs>)>,
    /// The number of running jobs by cluster.
    running: HashMap<Arc<str>, usize>,
    /// The number of running jobs by user.
    running_of_users: HashMap<JobOwner, usize>,
    is_closed: bool,
}

/// The jobs of one user, in the order of arrival.
struct UserJobs {
    owner: JobOwner,
    jobs: VecDeque<PoolJob>,
}

/// A job that was taken from the queue. It counts as running until this is dropped.
pub(crate) struct RunningJob<'q> {
    queue: &'q JobQueue,
    owner: JobOwner,
    pub(crate) job: Option<PoolJob>,
}

// === impl Pool ===

impl Pool {
    /// Starts the threads, which are called `name`: `threads` for small jobs, and at most
    /// `max_large` for the others. A cluster may use half of the latter, and a user half of that.
    /// Jobs that compile share them, unless the pool is [`compiling`](Self::compiling).
    pub(crate) fn start(name: &str, threads: usize, max_large: usize) -> io::Result<Self> {
        let large = start_shared(&format!("{name}-large"), large_threads(threads, max_large))?;
        let all = RunningLimits {
            of_cluster: threads,
            of_user: threads,
        };
        Ok(Self {
            small: start(name, threads, all)?,
            compiling: Arc::clone(&large),
            large,
            is_closing: Arc::default(),
        })
    }

    /// Adds threads for jobs that compile.
    pub(crate) fn compiling(mut self) -> io::Result<Self> {
        self.compiling = start_shared("compile", MIN_LARGE_THREADS)?;
        Ok(self)
    }

    /// Runs `work` of `owner` on a thread of its class; the jobs of one owner run in the order of
    /// arrival. `work` can check whether it should stop: because the result is no longer awaited,
    /// the deadline has passed, or its slice is used up. If that is so before it starts, it is not
    /// run.
    ///
    /// # Errors
    ///
    /// [`JobError::TooLate`] at `deadline`, or [`JobError::Panicked`].
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        size: JobClass,
        owner: JobOwner,
        deadline: Instant,
        work: impl FnOnce(&dyn Fn() -> bool) -> T + Send + 'static,
    ) -> Result<T, JobError> {
        let (answer, answered) = oneshot::channel();
        let is_closing = Arc::clone(&self.is_closing);
        let job = move || {
            let slice = size.slice();
            let is_over = || {
                answer.is_closed()
                    || is_closing.load(Ordering::Relaxed)
                    || Instant::now() >= deadline
                    || slice.as_ref().is_some_and(TimeSlice::is_over)
            };
            if !is_over() {
                let result = work(&is_over);
                // The receiver may be gone by now.
                drop(answer.send(result));
            }
        };
        let queue = match size {
            JobClass::Small => &self.small,
            JobClass::Large => &self.large,
            JobClass::Compiling => &self.compiling,
        };
        queue.push(owner, Box::new(job));
        match timeout_at(deadline.into(), answered).await {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(_)) if Instant::now() < deadline => Err(JobError::Panicked),
            Ok(Err(_)) | Err(_) => Err(JobError::TooLate),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.is_closing.store(true, Ordering::Relaxed);
        for queue in [&self.small, &self.large, &self.compiling] {
            queue.close();
        }
    }
}

// === impl JobClass ===

impl JobClass {
    /// The time slice of a job of this class that starts now on this thread.
    fn slice(self) -> Option<TimeSlice> {
        (self == Self::Small).then(TimeSlice::begin)
    }
}

/// The processor time that a job may use on its thread.
struct TimeSlice {
    begun: Instant,
    used_before: Duration,
}

// === impl TimeSlice ===

impl TimeSlice {
    fn begin() -> Self {
        Self {
            begun: Instant::now(),
            used_before: thread_time(),
        }
    }

    /// Whether the slice is used up. Makes a system call only after as much wall-clock time has
    /// passed.
    fn is_over(&self) -> bool {
        self.begun.elapsed() >= SMALL_JOB_TIME
            && thread_time().saturating_sub(self.used_before) >= SMALL_JOB_TIME
    }
}

/// The processor time that this thread has used.
fn thread_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// The number of threads for large jobs, given that for small ones. With four or more, neither one
/// cluster nor one of its users can occupy all threads that others wait for.
fn large_threads(threads: usize, max_large: usize) -> usize {
    (2 * threads).max(4).min(max_large).max(MIN_LARGE_THREADS)
}

/// Starts threads that clusters and their users share.
fn start_shared(name: &str, threads: usize) -> io::Result<Arc<JobQueue>> {
    start(name, threads, running_limits(threads))
}

fn running_limits(threads: usize) -> RunningLimits {
    let of_cluster = threads / 2;
    let of_user = (of_cluster / 2).max(1);
    RunningLimits { of_cluster, of_user }
}

/// Starts threads, of which clusters and users may use as many as `limits` permit.
fn start(name: &str, threads: usize, limits: RunningLimits) -> io::Result<Arc<JobQueue>> {
    let queue = Arc::new(JobQueue::new(limits));
    for _ in 0..threads {
        let queue = Arc::clone(&queue);
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || run(&queue))?;
    }
    Ok(queue)
}

fn run(queue: &JobQueue) {
    while let Some(mut running) = queue.take() {
        let Some(job) = running.job.take() else { continue };
        // A job that panics must not end the thread.
        if catch_unwind(AssertUnwindSafe(job)).is_err() {
            tracing::error!("panic while reviewing");
        }
    }
}

// === impl JobQueue ===

impl JobQueue {
    pub(crate) fn new(limits: RunningLimits) -> Self {
        Self {
            limits,
            jobs: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    fn jobs(&self) -> MutexGuard<'_, QueuedJobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a job of `owner` after its other jobs.
    pub(crate) fn push(&self, owner: JobOwner, job: PoolJob) {
        self.jobs().push(owner, job);
        self.changed.notify_one();
    }

    /// Waits for a job that may run and takes it; `None` once the queue is closed.
    pub(crate) fn take(&self) -> Option<RunningJob<'_>> {
        let mut jobs = self.jobs();
        loop {
            if jobs.is_closed {
                return None;
            }
            if let Some((owner, job)) = jobs.next(self.limits) {
                let job = Some(job);
                let queue = self;
                return Some(RunningJob { queue, owner, job });
            }
            jobs = self.changed.wait(jobs).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the threads that wait for jobs, and drops the waiting jobs.
    pub(crate) fn close(&self) {
        let mut jobs = self.jobs();
        jobs.is_closed = true;
        let dropped = std::mem::take(&mut jobs.waiting);
        drop(jobs);
        drop(dropped);
        self.changed.notify_all();
    }
}

// === impl QueuedJobs ===

impl QueuedJobs {
    fn push(&mut self, owner: JobOwner, job: PoolJob) {
        let cluster = self.waiting.iter_mut().find(|(own, _)| *own == owner.share);
        let new = UserJobs {
            jobs: [job].into(),
            owner,
        };
        let Some((_, users)) = cluster else {
            let cluster = Arc::clone(&new.owner.share);
            return self.waiting.push_back((cluster, [new].into()));
        };
        match users.iter_mut().find(|user| user.owner == new.owner) {
            Some(user) => user.jobs.extend(new.jobs),
            None => users.push_back(new),
        }
    }

    fn next(&mut self, limits: RunningLimits) -> Option<(JobOwner, PoolJob)> {
        let (turn, user) = self.turn(limits)?;
        let (cluster, mut users) = self.waiting.remove(turn)?;
        let UserJobs { owner, mut jobs } = users.remove(user)?;
        let job = jobs.pop_front()?;
        if !jobs.is_empty() {
            let owner = owner.clone();
            users.push_back(UserJobs { owner, jobs });
        }
        *self.running.entry(Arc::clone(&cluster)).or_default() += 1;
        *self.running_of_users.entry(owner.clone()).or_default() += 1;
        if !users.is_empty() {
            self.waiting.push_back((cluster, users));
        }
        Some((owner, job))
    }

    /// The positions of the cluster, and of its user, whose job is next.
    fn turn(&self, limits: RunningLimits) -> Option<(usize, usize)> {
        let is_free = |user: &UserJobs| count(&self.running_of_users, &user.owner) < limits.of_user;
        let mut clusters = self.waiting.iter().enumerate();
        clusters.find_map(|(turn, (cluster, users))| {
            let user = users.iter().position(is_free)?;
            (count(&self.running, cluster) < limits.of_cluster).then_some((turn, user))
        })
    }

    fn end(&mut self, owner: &JobOwner) {
        release(&mut self.running, &owner.share);
        release(&mut self.running_of_users, owner);
    }
}

fn count<K: Hash + Eq>(running: &HashMap<K, usize>, key: &K) -> usize {
    running.get(key).copied().unwrap_or_default()
}

fn release<K: Hash + Eq>(running: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = running.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            running.remove(key);
        }
    }
}

impl Drop for RunningJob<'_> {
    fn drop(&mut self) {
        self.queue.jobs().end(&self.owner);
        self.queue.changed.notify_one();
    }
}

#[cfg(test)]
mod tests;
