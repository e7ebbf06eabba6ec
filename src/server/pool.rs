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
//! Clusters take turns ([`queue`]). The queues are bounded by the permits that every
//! job holds. No job waits beyond its deadline.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::oneshot;
use tokio::time::timeout_at;

/// The processor time of a small job.
const SMALL_JOB_TIME: Duration = Duration::from_millis(20);

/// The threads. They end soon after this is dropped.
pub(crate) struct Pool {
    small: Arc<JobQueue>,
    large: Arc<JobQueue>,
    compiling: Arc<JobQueue>,
    is_closing: Arc<AtomicBool>,
}

/// What is known of a job before it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobSize {
    /// It may be done in a short while, and stops where it is not.
    Small,
    /// It may take as long as there is time.
    Large,
    /// The same of one that may compile expressions.
    Compiling,
}

/// Why a job did not come to an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobError {
    /// Its deadline passed, before it began or while it ran.
    TooLate,
    /// It broke off.
    Broken,
}

// === impl Pool ===

impl Pool {
    /// Starts the threads, called `name`, so many for small jobs. A cluster has at most half of
    /// the others. What compiles has threads of its own only in a pool that is
    /// [`compiling`](Self::compiling).
    pub(crate) fn start(name: &str, threads: usize) -> io::Result<Self> {
        let large = start(&format!("{name}-large"), 2 * threads, threads)?;
        Ok(Self {
            small: start(name, threads, threads)?,
            compiling: Arc::clone(&large),
            large,
            is_closing: Arc::default(),
        })
    }

    /// The same with threads for what compiles.
    pub(crate) fn compiling(mut self) -> io::Result<Self> {
        self.compiling = start("compile", 2, 1)?;
        Ok(self)
    }

    /// Runs `work` of `cluster` on one of the threads for its size, in the order of arrival
    /// among those of the cluster. It may ask whether it is over: nobody waits for it any more,
    /// the deadline passed, or a small one has had its slice. It does not begin if it is over before.
    ///
    /// # Errors
    ///
    /// Nobody waits beyond `deadline`.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        size: JobSize,
        cluster: &Arc<str>,
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
            JobSize::Small => &self.small,
            JobSize::Large => &self.large,
            JobSize::Compiling => &self.compiling,
        };
        queue.push(cluster, Box::new(job));
        match timeout_at(deadline.into(), answered).await {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(_)) if Instant::now() < deadline => Err(JobError::Broken),
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

// === impl JobSize ===

impl JobSize {
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

/// Starts so many threads, of which so many serve one cluster at most.
fn start(name: &str, threads: usize, of_one: usize) -> io::Result<Arc<JobQueue>> {
    let queue = Arc::new(JobQueue::new(of_one));
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

// Jobs that wait for threads, in turns by cluster.
//
// Of the clusters that have jobs each has its turn, however many another has; and no cluster
// has more than a part of the threads at once, so that a job of another need not wait for the
// end of its jobs.

/// Work for one thread.
pub(crate) type PoolJob = Box<dyn FnOnce() + Send>;

/// The jobs that wait.
pub(crate) struct JobQueue {
    /// How many jobs of one cluster may run at once.
    most_running: usize,
    jobs: Mutex<QueuedJobs>,
    changed: Condvar,
}

#[derive(Default)]
struct QueuedJobs {
    /// Of each cluster that has some, whose turn is next first.
    waiting: VecDeque<(Arc<str>, VecDeque<PoolJob>)>,
    /// How many run, of each cluster that has some.
    running: HashMap<Arc<str>, usize>,
    is_closed: bool,
}

/// A job that was taken. It runs until this is dropped.
pub(crate) struct RunningJob<'q> {
    queue: &'q JobQueue,
    cluster: Arc<str>,
    pub(crate) job: Option<PoolJob>,
}

// === impl JobQueue ===

impl JobQueue {
    pub(crate) fn new(most_running: usize) -> Self {
        Self {
            most_running,
            jobs: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    fn jobs(&self) -> MutexGuard<'_, QueuedJobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a job of `cluster` behind the others that it has.
    pub(crate) fn push(&self, cluster: &Arc<str>, job: PoolJob) {
        self.jobs().push(cluster, job);
        self.changed.notify_one();
    }

    /// The next job, once there is one that may run; `None` once the queue is closed.
    pub(crate) fn take(&self) -> Option<RunningJob<'_>> {
        let mut jobs = self.jobs();
        loop {
            if jobs.is_closed {
                return None;
            }
            if let Some((cluster, job)) = jobs.next(self.most_running) {
                let job = Some(job);
                let queue = self;
                return Some(RunningJob { queue, cluster, job });
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
    fn push(&mut self, cluster: &Arc<str>, job: PoolJob) {
        match self.waiting.iter_mut().find(|(own, _)| own == cluster) {
            Some((_, jobs)) => jobs.push_back(job),
            None => self.waiting.push_back((Arc::clone(cluster), [job].into())),
        }
    }

    fn next(&mut self, most_running: usize) -> Option<(Arc<str>, PoolJob)> {
        let running = |cluster: &Arc<str>| self.running.get(cluster).copied().unwrap_or_default();
        let turn = self
            .waiting
            .iter()
            .position(|(cluster, _)| running(cluster) < most_running)?;
        let (cluster, mut jobs) = self.waiting.remove(turn)?;
        let job = jobs.pop_front()?;
        if !jobs.is_empty() {
            self.waiting.push_back((Arc::clone(&cluster), jobs));
        }
        *self.running.entry(Arc::clone(&cluster)).or_default() += 1;
        Some((cluster, job))
    }

    fn end(&mut self, cluster: &Arc<str>) {
        if let Some(running) = self.running.get_mut(cluster) {
            *running -= 1;
            if *running == 0 {
                self.running.remove(cluster);
            }
        }
    }
}

impl Drop for RunningJob<'_> {
    fn drop(&mut self) {
        self.queue.jobs().end(&self.cluster);
        self.queue.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{LazyLock, mpsc};

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap()
            .block_on(future)
    }

    static EAST: LazyLock<Arc<str>> = LazyLock::new(|| "east".into());

    /// Later than any test runs.
    fn much_later() -> Instant {
        Instant::now() + Duration::from_secs(600)
    }

    #[test]
    fn what_runs_notices_when_nobody_waits_any_more() {
        let pool = Pool::start("test", 1).unwrap();
        let (begin, begun) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        block_on(async {
            let mut waiting = Box::pin(pool.run(JobSize::Large, &EAST, much_later(), move |is_over| {
                begin.send(()).unwrap();
                while !is_over() {
                    thread::yield_now();
                }
                end.send(()).unwrap();
            }));
            assert!(futures_util::poll!(&mut waiting).is_pending());
            begun.recv().unwrap();
        });
        ended.recv().unwrap();
    }

    #[test]
    fn a_job_that_breaks_takes_no_thread_away() {
        let pool = Pool::start("test", 1).unwrap();
        block_on(async {
            let broken: Result<u8, _> = pool
                .run(JobSize::Small, &EAST, much_later(), |_| panic!("on purpose"))
                .await;
            assert_eq!(broken, Err(JobError::Broken));
            assert_eq!(pool.run(JobSize::Small, &EAST, much_later(), |_| 7).await, Ok(7));
        });
    }

    #[test]
    fn nobody_waits_for_a_thread_beyond_the_deadline() {
        let pool = Pool::start("test", 1).unwrap();
        let (release, held) = mpsc::channel::<()>();
        block_on(async {
            let mut holding = Box::pin(pool.run(JobSize::Large, &EAST, much_later(), move |_| held.recv()));
            assert!(futures_util::poll!(&mut holding).is_pending());
            let soon = Instant::now() + Duration::from_millis(20);
            let waited = pool
                .run(JobSize::Large, &EAST, soon, |_| panic!("it never begins"))
                .await;
            assert_eq!(waited, Err::<(), _>(JobError::TooLate));
            drop(release);
            assert!(holding.await.is_ok(), "and takes no thread later either");
            assert_eq!(pool.run(JobSize::Large, &EAST, much_later(), |_| 7).await, Ok(7));
        });
    }

    #[test]
    fn work_that_runs_notices_its_deadline() {
        let pool = Pool::start("test", 1).unwrap();
        let soon = Instant::now() + Duration::from_millis(20);
        let (end, ended) = mpsc::channel();
        let work = move |is_over: &dyn Fn() -> bool| {
            while !is_over() {
                thread::yield_now();
            }
            end.send(()).unwrap();
        };
        // Which of the two comes first at the deadline, its end or the timer, is left to chance.
        let _either = block_on(pool.run(JobSize::Large, &EAST, soon, work));
        ended.recv().unwrap();
    }

    #[test]
    fn a_small_job_that_waits_for_a_processor_keeps_its_slice() {
        let pool = Pool::start("test", 1).unwrap();
        let wait = |is_over: &dyn Fn() -> bool| {
            thread::sleep(2 * SMALL_JOB_TIME);
            is_over()
        };
        let over = block_on(pool.run(JobSize::Small, &EAST, much_later(), wait));
        assert_eq!(over, Ok(false));
    }

    #[test]
    fn costly_jobs_hold_up_no_small_one() {
        let pool = Pool::start("test", 1).unwrap();
        let spin = |is_over: &dyn Fn() -> bool| {
            while !is_over() {
                thread::yield_now();
            }
        };
        block_on(async {
            // Each has its slice among the small ones, then a thread of the others.
            for _ in 0..4 {
                assert_eq!(pool.run(JobSize::Small, &EAST, much_later(), spin).await, Ok(()));
            }
            let mut large = Box::pin(pool.run(JobSize::Large, &EAST, much_later(), spin));
            assert!(futures_util::poll!(&mut large).is_pending());
            assert_eq!(pool.run(JobSize::Small, &EAST, much_later(), |_| 7).await, Ok(7));
            assert!(futures_util::poll!(&mut large).is_pending());
        });
    }

    #[test]
    fn a_cluster_that_compiles_holds_up_no_other() {
        let pool = Pool::start("test", 1).unwrap().compiling().unwrap();
        let spin = |is_over: &dyn Fn() -> bool| {
            while !is_over() {
                thread::yield_now();
            }
        };
        block_on(async {
            for size in [JobSize::Compiling, JobSize::Large] {
                let held = |_| Box::pin(pool.run(size, &EAST, much_later(), spin));
                let mut held: Vec<_> = (0..4).map(held).collect();
                for held in &mut held {
                    assert!(futures_util::poll!(held).is_pending());
                }
                let west: Arc<str> = "west".into();
                assert_eq!(pool.run(size, &west, much_later(), |_| 7).await, Ok(7));
            }
        });
    }

    fn push(queue: &JobQueue, cluster: &str, jobs: usize) {
        for _ in 0..jobs {
            queue.push(&cluster.into(), Box::new(|| ()));
        }
    }

    fn take(queue: &JobQueue) -> RunningJob<'_> {
        queue.take().unwrap()
    }

    #[test]
    fn clusters_have_their_turns_however_many_jobs_one_has() {
        let queue = JobQueue::new(10);
        push(&queue, "east", 5);
        push(&queue, "west", 2);
        push(&queue, "north", 1);
        let order: Vec<_> = (0..8).map(|_| take(&queue).cluster.to_string()).collect();
        assert_eq!(
            order,
            ["east", "west", "north", "east", "west", "east", "east", "east"]
        );
    }

    #[test]
    fn a_cluster_has_no_more_than_its_part_of_the_threads() {
        let queue = JobQueue::new(2);
        push(&queue, "east", 5);
        let [first, _second] = [take(&queue), take(&queue)];
        assert!(queue.jobs().next(2).is_none(), "of no other is a job there");
        push(&queue, "west", 1);
        assert_eq!(&*take(&queue).cluster, "west");
        drop(first);
        assert_eq!(&*take(&queue).cluster, "east");
    }

    #[test]
    fn a_closed_queue_has_no_jobs() {
        let queue = JobQueue::new(2);
        push(&queue, "east", 5);
        queue.close();
        assert!(queue.take().is_none());
        assert!(queue.jobs().running.is_empty());
    }
}
