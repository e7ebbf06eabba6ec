//! A thread pool for long admission reviews.
//!
//! ```text
//! small ─▶ a thread, for a short while ── done
//!                    └── not done: from the beginning ─▶ large ─▶ a thread, until the deadline
//! ```
//!
//! Workers never wait for these threads. Every job of the first kind has only a short
//! time slice, so an expensive one does not delay cheap ones: it starts again on separate
//! threads. The queue is bounded by the permits of admission, which every job holds. No
//! job waits beyond its deadline.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::time::timeout_at;

/// How long a small job may run.
const WHILE: Duration = Duration::from_millis(20);

/// The threads. They end soon after this is dropped.
pub(super) struct Pool {
    small: Sender<PoolJob>,
    large: Sender<PoolJob>,
    is_closing: Arc<AtomicBool>,
}

type PoolJob = Box<dyn FnOnce() + Send>;

/// What is known of a job before it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    /// It may be done in a short while, and stops where it is not.
    Small,
    /// It may take as long as there is time.
    Large,
}

/// Why a job did not come to an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unfinished {
    /// Its deadline passed, before it began or while it ran.
    TooLate,
    /// It broke off.
    Broken,
}

// === impl Pool ===

impl Pool {
    /// Starts so many threads for each size.
    pub(super) fn start(threads: usize) -> io::Result<Self> {
        Ok(Self {
            small: start("admission", threads)?,
            large: start("admission-large", threads)?,
            is_closing: Arc::default(),
        })
    }

    /// Runs `work` on one of the threads for its size, in the order of arrival. It
    /// may ask whether it is over: nobody waits for it any more, the deadline passed,
    /// or a small one has had its while. It does not begin if it is over before.
    ///
    /// # Errors
    ///
    /// Nobody waits beyond `deadline`.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        size: Size,
        deadline: Instant,
        work: impl FnOnce(&dyn Fn() -> bool) -> T + Send + 'static,
    ) -> Result<T, Unfinished> {
        let (answer, answered) = oneshot::channel();
        let is_closing = Arc::clone(&self.is_closing);
        let job = move || {
            let end = size.end(deadline);
            let is_over =
                || answer.is_closed() || is_closing.load(Ordering::Relaxed) || Instant::now() >= end;
            if !is_over() {
                let result = work(&is_over);
                // Who has gone away meanwhile needs no answer.
                drop(answer.send(result));
            }
        };
        let queue = match size {
            Size::Small => &self.small,
            Size::Large => &self.large,
        };
        queue.send(Box::new(job)).map_err(|_| Unfinished::Broken)?;
        match timeout_at(deadline.into(), answered).await {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(_)) if Instant::now() < deadline => Err(Unfinished::Broken),
            Ok(Err(_)) | Err(_) => Err(Unfinished::TooLate),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.is_closing.store(true, Ordering::Relaxed);
    }
}

// === impl Size ===

impl Size {
    /// When a job that begins now is to stop.
    fn end(self, deadline: Instant) -> Instant {
        match self {
            Self::Small => deadline.min(Instant::now() + WHILE),
            Self::Large => deadline,
        }
    }
}

fn start(name: &str, threads: usize) -> io::Result<Sender<PoolJob>> {
    let (jobs, queue) = mpsc::channel();
    let queue = Arc::new(Mutex::new(queue));
    for _ in 0..threads {
        let queue = Arc::clone(&queue);
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || run(&queue))?;
    }
    Ok(jobs)
}

fn run(queue: &Mutex<Receiver<PoolJob>>) {
    loop {
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        // One job that breaks must not take the thread from the others.
        if catch_unwind(AssertUnwindSafe(job)).is_err() {
            tracing::error!("panic while reviewing");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap()
            .block_on(future)
    }

    /// Later than any test runs.
    fn much_later() -> Instant {
        Instant::now() + Duration::from_secs(600)
    }

    #[test]
    fn what_runs_notices_when_nobody_waits_any_more() {
        let pool = Pool::start(1).unwrap();
        let (begin, begun) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        block_on(async {
            let mut waiting = Box::pin(pool.run(Size::Large, much_later(), move |is_over| {
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
        let pool = Pool::start(1).unwrap();
        block_on(async {
            let broken: Result<u8, _> = pool
                .run(Size::Small, much_later(), |_| panic!("on purpose"))
                .await;
            assert_eq!(broken, Err(Unfinished::Broken));
            assert_eq!(pool.run(Size::Small, much_later(), |_| 7).await, Ok(7));
        });
    }

    #[test]
    fn nobody_waits_for_a_thread_beyond_the_deadline() {
        let pool = Pool::start(1).unwrap();
        let (release, held) = mpsc::channel::<()>();
        block_on(async {
            let mut holding = Box::pin(pool.run(Size::Large, much_later(), move |_| held.recv()));
            assert!(futures_util::poll!(&mut holding).is_pending());
            let soon = Instant::now() + Duration::from_millis(20);
            let waited = pool.run(Size::Large, soon, |_| panic!("it never begins")).await;
            assert_eq!(waited, Err::<(), _>(Unfinished::TooLate));
            drop(release);
            assert!(holding.await.is_ok(), "and takes no thread later either");
            assert_eq!(pool.run(Size::Large, much_later(), |_| 7).await, Ok(7));
        });
    }

    #[test]
    fn work_that_runs_notices_its_deadline() {
        let pool = Pool::start(1).unwrap();
        let soon = Instant::now() + Duration::from_millis(20);
        let (end, ended) = mpsc::channel();
        let work = move |is_over: &dyn Fn() -> bool| {
            while !is_over() {
                thread::yield_now();
            }
            end.send(()).unwrap();
        };
        // Which of the two comes first at the deadline, its end or the timer, is left to chance.
        let _either = block_on(pool.run(Size::Large, soon, work));
        ended.recv().unwrap();
    }

    #[test]
    fn costly_jobs_hold_up_no_small_one() {
        let pool = Pool::start(1).unwrap();
        let spin = |is_over: &dyn Fn() -> bool| {
            while !is_over() {
                thread::yield_now();
            }
        };
        block_on(async {
            // Each has its while among the small ones, then a thread of the others.
            for _ in 0..4 {
                assert_eq!(pool.run(Size::Small, much_later(), spin).await, Ok(()));
            }
            let mut large = Box::pin(pool.run(Size::Large, much_later(), spin));
            assert!(futures_util::poll!(&mut large).is_pending());
            assert_eq!(pool.run(Size::Small, much_later(), |_| 7).await, Ok(7));
            assert!(futures_util::poll!(&mut large).is_pending());
        });
    }
}
