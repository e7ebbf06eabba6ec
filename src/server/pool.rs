//! Threads for what may take long: admission reviews beyond a moment.
//!
//! Workers never wait for them, and never run what they run. What waits is
//! bounded by the places of the admission lane: whoever asks holds one.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use tokio::sync::oneshot;

/// The threads. They end soon after this is dropped.
pub(super) struct Pool {
    jobs: Sender<Job>,
    is_closing: Arc<AtomicBool>,
}

type Job = Box<dyn FnOnce() + Send>;

// === impl Pool ===

impl Pool {
    /// Starts so many threads.
    pub(super) fn start(threads: usize) -> io::Result<Self> {
        let (jobs, queue) = mpsc::channel();
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..threads {
            let queue = Arc::clone(&queue);
            thread::Builder::new()
                .name("admission".to_owned())
                .spawn(move || run(&queue))?;
        }
        Ok(Self {
            jobs,
            is_closing: Arc::default(),
        })
    }

    /// Runs `work` on one of the threads, in the order of arrival. It is told
    /// whether anybody still waits for it, and does not begin if nobody does.
    /// `None` if it did not come to an end.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Fn() -> bool) -> T + Send + 'static,
    ) -> Option<T> {
        let (tell, told) = oneshot::channel();
        let is_closing = Arc::clone(&self.is_closing);
        let job = move || {
            let is_abandoned = || tell.is_closed() || is_closing.load(Ordering::Relaxed);
            if !is_abandoned() {
                let result = work(&is_abandoned);
                // Who has gone away meanwhile needs no answer.
                drop(tell.send(result));
            }
        };
        self.jobs.send(Box::new(job)).ok()?;
        told.await.ok()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.is_closing.store(true, Ordering::Relaxed);
    }
}

fn run(queue: &Mutex<Receiver<Job>>) {
    loop {
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        // One job that breaks must not take the thread from the others.
        if catch_unwind(AssertUnwindSafe(job)).is_err() {
            tracing::error!("an admission review broke off");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
            .block_on(future)
    }

    #[test]
    fn what_runs_is_told_when_nobody_waits_any_more() {
        let pool = Pool::start(1).unwrap();
        let (begin, begun) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        let mut waiting = Box::pin(pool.run(move |is_abandoned| {
            begin.send(()).unwrap();
            while !is_abandoned() {
                thread::yield_now();
            }
            end.send(()).unwrap();
        }));
        block_on(async { assert!(futures_util::poll!(&mut waiting).is_pending()) });
        begun.recv().unwrap();
        drop(waiting);
        ended.recv().unwrap();
    }

    #[test]
    fn a_job_that_breaks_takes_no_thread_away() {
        let pool = Pool::start(1).unwrap();
        block_on(async {
            assert_eq!(pool.run(|_| -> u8 { panic!("on purpose") }).await, None);
            assert_eq!(pool.run(|_| 7).await, Some(7));
        });
    }
}
