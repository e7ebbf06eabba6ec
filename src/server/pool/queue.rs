//! Jobs that wait for threads, in turns by cluster.
//!
//! Of the clusters that have jobs each has its turn, however many another has; and no cluster
//! has more than a part of the threads at once, so that a job of another need not wait for the
//! end of its jobs.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

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
