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
        assert_eq!(running_limits(threads), RunningLimits { of_cluster, of_user });
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
        let mut holding = Box::pin(pool.run(JobClass::Large, of("east"), much_later(), move |_| held.recv()));
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
