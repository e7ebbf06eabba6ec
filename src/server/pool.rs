//! A thread pool for long reviews.
//!
//! ```text
//! small ─▶ a thread, for a short while ── done
//!                    └── not done: from the beginning ─▶ large ─▶ a thread, until the deadline
//! ```
//!
//! Workers never wait for these threads. Every job of the first kind has only a short slice
//! of processor time, so an expensive one does not delay cheap ones: it starts again on
//! separate threads. A cheap one that waits for a busy processor spends none of its slice.
//! Clusters and their users take turns; callers with a token in the path are a cluster of their own
//! here. The queues are bounded by the permits that every
//! job holds. No job waits beyond its deadline.

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

/// The longest body that a worker reads itself: a longer one takes more time than a change of threads.
pub(crate) const MAX_WORKER_BYTES: usize = 64 << 10;

/// How long a worker tries, before a review starts again on these threads.
pub(crate) const WORKER_TIME_SLICE: Duration = Duration::from_micros(500);

/// The processor time of a small job.
const SMALL_JOB_TIME: Duration = Duration::from_millis(20);

/// One for each of two clusters.
const MIN_LARGE: usize = 2;

/// The threads. They end soon after this is dropped.
pub(crate) struct Pool {
    small: Arc<JobQueue>,
    large: Arc<JobQueue>,
    compiling: Arc<JobQueue>,
    is_closing: Arc<AtomicBool>,
}

/// The class of a job, which selects its threads and its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobClass {
    /// It has [`SMALL_JOB_TIME`] of a processor, and starts again as a large one if that is too little.
    Small,
    /// It may run until the deadline.
    Large,
    /// It may run until the deadline, and may compile expressions.
    Compiling,
}

/// Why a job did not come to an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobError {
    /// Its deadline passed, before it began or while it ran.
    TooLate,
    /// It panicked.
    Panicked,
}

/// Work for one thread.
pub(crate) type PoolJob = Box<dyn FnOnce() + Send>;

/// Whose a job is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct JobOwner {
    /// [`Caller::share`](crate::identity::Caller::share).
    pub(crate) share: Arc<str>,
    /// Empty while it is not known.
    pub(crate) user: Arc<str>,
}

/// How many jobs may run at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunningLimits {
    pub(crate) of_cluster: usize,
    pub(crate) of_user: usize,
}

/// The jobs that wait, in turns by cluster, and within a cluster by user.
///
/// Of the clusters that have jobs each has its turn, however many another has; and no cluster
/// has more than a part of the threads at once, so that a job of another need not wait for the
/// end of its jobs. The same holds for the users of a cluster.
pub(crate) struct JobQueue {
    limits: RunningLimits,
    jobs: Mutex<QueuedJobs>,
    changed: Condvar,
}

#[derive(Default)]
struct QueuedJobs {
    /// Of each cluster that has some, whose turn is next first; of its users likewise.
    waiting: VecDeque<(Arc<str>, VecDeque<UserJobs>)>,
    /// How many run, of each cluster that has some.
    running: HashMap<Arc<str>, usize>,
    /// The same of each user.
    running_of_users: HashMap<JobOwner, usize>,
    is_closed: bool,
}

/// The jobs of one user, in the order of arrival.
struct UserJobs {
    owner: JobOwner,
    jobs: VecDeque<PoolJob>,
}

/// A job that was taken. It runs until this is dropped.
pub(crate) struct RunningJob<'q> {
    queue: &'q JobQueue,
    owner: JobOwner,
    pub(crate) job: Option<PoolJob>,
}

// === impl Pool ===

impl Pool {
    /// Starts the threads, called `name`, so many for small jobs and at most `max_large` for the
    /// others. Of these a cluster has half, and a user half of it. What compiles has threads of
    /// its own only in a pool that is [`compiling`](Self::compiling).
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

    /// The same with threads for what compiles.
    pub(crate) fn compiling(mut self) -> io::Result<Self> {
        self.compiling = start_shared("compile", MIN_LARGE)?;
        Ok(self)
    }

    /// Runs `work` of `owner` on one of the threads for its size, in the order of arrival
    /// among those of the owner. It may ask whether it is over: nobody waits for it any more,
    /// the deadline passed, or a small one has had its slice. It does not begin if it is over before.
    ///
    /// # Errors
    ///
    /// Nobody waits beyond `deadline`.
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
                // Who has gone away meanwhile needs no answer.
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
    /// The slice of a job that begins now on this thread.
    fn slice(self) -> Option<TimeSlice> {
        (self == Self::Small).then(TimeSlice::begin)
    }
}

/// The processor time that a job may take from its thread.
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

    /// Asks the kernel only where so much time has passed at all.
    fn is_over(&self) -> bool {
        self.begun.elapsed() >= SMALL_JOB_TIME
            && thread_time().saturating_sub(self.used_before) >= SMALL_JOB_TIME
    }
}

/// The processor time that this thread has used.
fn thread_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// How many threads there are for large jobs, where there are so many for small ones. From four
/// on neither a cluster nor one of its users has all of what the others of its kind wait for.
fn large_threads(threads: usize, max_large: usize) -> usize {
    (2 * threads).max(4).min(max_large).max(MIN_LARGE)
}

/// Starts so many threads, shared by clusters and their users.
fn start_shared(name: &str, threads: usize) -> io::Result<Arc<JobQueue>> {
    start(name, threads, shares(threads))
}

fn shares(threads: usize) -> RunningLimits {
    let of_cluster = threads / 2;
    let of_user = (of_cluster / 2).max(1);
    RunningLimits { of_cluster, of_user }
}

/// Starts so many threads, of which so many serve one owner at most.
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
        // One job that breaks must not take the thread from the others.
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

    /// Adds a job of `owner` behind the others that it has.
    pub(crate) fn push(&self, owner: JobOwner, job: PoolJob) {
        self.jobs().push(owner, job);
        self.changed.notify_one();
    }

    /// The next job, once there is one that may run; `None` once the queue is closed.
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

    /// Ends the threads that wait for jobs; the jobs that wait are dropped.
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

    /// The places of the cluster and of its user whose job is next.
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
