//! Jobs that wait for threads, in turns by cluster and user. Callers with a token in the path are a
//! cluster of their own here.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

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
mod tests {
    use super::*;

    const LIMITS: RunningLimits = RunningLimits {
        of_cluster: 2,
        of_user: 1,
    };

    fn push(queue: &JobQueue, cluster: &str, user: &str, jobs: usize) {
        for _ in 0..jobs {
            let owner = JobOwner {
                share: cluster.into(),
                user: user.into(),
            };
            queue.push(owner, Box::new(|| ()));
        }
    }

    /// The next job, with its cluster and user.
    fn take(queue: &JobQueue) -> (RunningJob<'_>, String) {
        let taken = queue.take().unwrap();
        let of = format!("{}/{}", taken.owner.share, taken.owner.user);
        (taken, of)
    }

    fn may_run(queue: &JobQueue) -> bool {
        queue.jobs().turn(queue.limits).is_some()
    }

    #[test]
    fn clusters_and_their_users_have_their_turns_however_many_jobs_one_has() {
        let queue = JobQueue::new(LIMITS);
        push(&queue, "east", "mallory", 4);
        push(&queue, "west", "jane", 2);
        push(&queue, "north", "jane", 1);
        push(&queue, "east", "jane", 2);
        let order: Vec<_> = (0..9).map(|_| take(&queue).1).collect();
        assert_eq!(
            order[..4],
            ["east/mallory", "west/jane", "north/jane", "east/jane"]
        );
        assert_eq!(order[4..7], ["west/jane", "east/mallory", "east/jane"]);
        assert_eq!(order[7..], ["east/mallory", "east/mallory"]);
    }

    #[test]
    fn a_cluster_has_no_more_than_its_part_of_the_threads() {
        let queue = JobQueue::new(LIMITS);
        for user in ["jane", "joe", "mallory"] {
            push(&queue, "east", user, 5);
        }
        let [(first, _), _second] = [take(&queue), take(&queue)];
        assert!(!may_run(&queue), "of no other is a job there");
        push(&queue, "west", "jane", 1);
        assert_eq!(take(&queue).1, "west/jane");
        drop(first);
        assert_eq!(take(&queue).1, "east/mallory");
    }

    #[test]
    fn a_user_has_no_more_than_a_part_of_what_the_cluster_has() {
        let queue = JobQueue::new(LIMITS);
        push(&queue, "east", "mallory", 5);
        let (first, _) = take(&queue);
        assert!(!may_run(&queue), "of no other is a job there");
        push(&queue, "east", "jane", 1);
        assert_eq!(take(&queue).1, "east/jane");
        push(&queue, "west", "mallory", 1);
        assert_eq!(take(&queue).1, "west/mallory", "who is somebody else");
        drop(first);
        assert_eq!(take(&queue).1, "east/mallory");
    }

    #[test]
    fn a_closed_queue_has_no_jobs() {
        let queue = JobQueue::new(LIMITS);
        push(&queue, "east", "jane", 5);
        queue.close();
        assert!(queue.take().is_none());
        let jobs = queue.jobs();
        assert!(jobs.running.is_empty() && jobs.running_of_users.is_empty());
    }
}
