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
//! Clusters and their users take turns ([`JobQueue`]). The queues are bounded by the permits that every
//! job holds. No job waits beyond its deadline.

mod queue;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{io, thread};

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::oneshot;
use tokio::time::timeout_at;

pub(crate) use queue::JobOwner;

use queue::{JobQueue, RunningLimits};

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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap()
            .block_on(future)
    }

    /// Whose it is, of somebody in this cluster.
    fn of(cluster: &str) -> JobOwner {
        JobOwner {
            share: cluster.into(),
            user: "jane".into(),
        }
    }

    /// Later than any test runs.
    fn much_later() -> Instant {
        Instant::now() + Duration::from_secs(600)
    }

    #[test]
    fn what_runs_notices_when_nobody_waits_any_more() {
        let pool = Pool::start("test", 1, 2).unwrap();
        let (begin, begun) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        block_on(async {
            let mut waiting = Box::pin(
                pool.run(JobClass::Large, of("east"), much_later(), move |is_over| {
                    begin.send(()).unwrap();
                    while !is_over() {
                        thread::yield_now();
                    }
                    end.send(()).unwrap();
                }),
            );
            assert!(futures_util::poll!(&mut waiting).is_pending());
            begun.recv().unwrap();
        });
        ended.recv().unwrap();
    }

    #[test]
    fn what_takes_much_memory_has_few_threads_however_many_processors_there_are() {
        assert_eq!(large_threads(64, usize::MAX), 128);
        assert_eq!(large_threads(64, 4), 4);
        assert_eq!(large_threads(2, 16), 4);
        assert_eq!(
            large_threads(1, 16),
            4,
            "one for each of two users of two clusters"
        );
        assert_eq!(large_threads(1, 0), 2, "one for each of two clusters");
    }

    #[test]
    fn a_cluster_has_half_of_the_threads_and_a_user_half_of_these() {
        for (threads, of_cluster, of_user) in [(2, 1, 1), (4, 2, 1), (128, 64, 32)] {
            assert_eq!(shares(threads), RunningLimits { of_cluster, of_user });
        }
    }

    #[test]
    fn a_job_that_breaks_takes_no_thread_away() {
        let pool = Pool::start("test", 1, 2).unwrap();
        block_on(async {
            let broken: Result<u8, _> = pool
                .run(JobClass::Small, of("east"), much_later(), |_| {
                    panic!("on purpose")
                })
                .await;
            assert_eq!(broken, Err(JobError::Panicked));
            assert_eq!(
                pool.run(JobClass::Small, of("east"), much_later(), |_| 7).await,
                Ok(7)
            );
        });
    }

    #[test]
    fn nobody_waits_for_a_thread_beyond_the_deadline() {
        let pool = Pool::start("test", 1, 2).unwrap();
        let (release, held) = mpsc::channel::<()>();
        block_on(async {
            let mut holding =
                Box::pin(pool.run(JobClass::Large, of("east"), much_later(), move |_| held.recv()));
            assert!(futures_util::poll!(&mut holding).is_pending());
            let soon = Instant::now() + Duration::from_millis(20);
            let waited = pool
                .run(JobClass::Large, of("east"), soon, |_| panic!("it never begins"))
                .await;
            assert_eq!(waited, Err::<(), _>(JobError::TooLate));
            drop(release);
            assert!(holding.await.is_ok(), "and takes no thread later either");
            assert_eq!(
                pool.run(JobClass::Large, of("east"), much_later(), |_| 7).await,
                Ok(7)
            );
        });
    }

    #[test]
    fn work_that_runs_notices_its_deadline() {
        let pool = Pool::start("test", 1, 2).unwrap();
        let soon = Instant::now() + Duration::from_millis(20);
        let (end, ended) = mpsc::channel();
        let work = move |is_over: &dyn Fn() -> bool| {
            while !is_over() {
                thread::yield_now();
            }
            end.send(()).unwrap();
        };
        // Which of the two comes first at the deadline, its end or the timer, is left to chance.
        let _either = block_on(pool.run(JobClass::Large, of("east"), soon, work));
        ended.recv().unwrap();
    }

    #[test]
    fn a_small_job_that_waits_for_a_processor_keeps_its_slice() {
        let pool = Pool::start("test", 1, 2).unwrap();
        let wait = |is_over: &dyn Fn() -> bool| {
            thread::sleep(2 * SMALL_JOB_TIME);
            is_over()
        };
        let over = block_on(pool.run(JobClass::Small, of("east"), much_later(), wait));
        assert_eq!(over, Ok(false));
    }

    #[test]
    fn costly_jobs_hold_up_no_small_one() {
        let pool = Pool::start("test", 1, 2).unwrap();
        let spin = |is_over: &dyn Fn() -> bool| {
            while !is_over() {
                thread::yield_now();
            }
        };
        block_on(async {
            // Each has its slice among the small ones, then a thread of the others.
            for _ in 0..4 {
                assert_eq!(
                    pool.run(JobClass::Small, of("east"), much_later(), spin).await,
                    Ok(())
                );
            }
            let mut large = Box::pin(pool.run(JobClass::Large, of("east"), much_later(), spin));
            assert!(futures_util::poll!(&mut large).is_pending());
            assert_eq!(
                pool.run(JobClass::Small, of("east"), much_later(), |_| 7).await,
                Ok(7)
            );
            assert!(futures_util::poll!(&mut large).is_pending());
        });
    }

    #[test]
    fn a_cluster_that_compiles_holds_up_no_other() {
        let pool = Pool::start("test", 1, 2).unwrap().compiling().unwrap();
        let spin = |is_over: &dyn Fn() -> bool| {
            while !is_over() {
                thread::yield_now();
            }
        };
        block_on(async {
            for size in [JobClass::Compiling, JobClass::Large] {
                let held = |_| Box::pin(pool.run(size, of("east"), much_later(), spin));
                let mut held: Vec<_> = (0..4).map(held).collect();
                for held in &mut held {
                    assert!(futures_util::poll!(held).is_pending());
                }
                assert_eq!(pool.run(size, of("west"), much_later(), |_| 7).await, Ok(7));
            }
        });
    }

    #[test]
    fn what_compiles_holds_up_nothing_else() {
        let pool = Pool::start("test", 1, 2).unwrap().compiling().unwrap();
        let spin = |is_over: &dyn Fn() -> bool| {
            while !is_over() {
                thread::yield_now();
            }
        };
        block_on(async {
            let held = ["a", "b", "c", "d"]
                .map(|cluster| Box::pin(pool.run(JobClass::Compiling, of(cluster), much_later(), spin)));
            let mut held = held;
            for held in &mut held {
                assert!(futures_util::poll!(held).is_pending());
            }
            let large = pool.run(JobClass::Large, of("east"), much_later(), |_| 7);
            assert_eq!(large.await, Ok(7));
        });
    }
}
