//! What waits, of several workers.

use std::sync::mpsc::{self, Receiver, Sender};

use super::super::per_worker::{become_worker, worker_count};
use super::*;

const LONG: Duration = Duration::from_secs(30);

/// A sink of numbers that waits for leave before it takes more.
struct NumberSink {
    leave: Receiver<()>,
    taken: Sender<Batch>,
}

impl BatchWriter<Batch> for NumberSink {
    fn write(&mut self, batch: &mut Batch, _: u64) -> u64 {
        // Once the test gives leave no more, all is taken.
        let _ended = self.leave.recv();
        self.taken.send(std::mem::take(batch)).unwrap();
        0
    }
}

type Numbers = WriteQueue<Batch>;

/// The worker and the number of each item.
type Batch = Vec<(usize, usize)>;

fn gated(limit: usize) -> (Numbers, IntCounter, Sender<()>, Receiver<Batch>) {
    let (give, leave) = mpsc::channel();
    let (taken, receive) = mpsc::channel();
    let dropped = IntCounter::new("dropped", "items").unwrap();
    let settings = QueueSettings {
        thread: "numbers",
        limit,
        dropped: dropped.clone(),
    };
    let queue = WriteQueue::start(NumberSink { leave, taken }, settings).unwrap();
    (queue, dropped, give, receive)
}

/// Writes nothing, and leaves each batch as it is.
struct NoSink;

impl BatchWriter<Batch> for NoSink {
    fn write(&mut self, _: &mut Batch, _: u64) -> u64 {
        0
    }
}

/// Each worker pushes so many items of `bytes`.
fn push_of_all_workers(queue: &Numbers, items: usize, bytes: usize) {
    thread::scope(|scope| {
        for worker in 0..worker_count() {
            scope.spawn(move || {
                become_worker(worker);
                (0..items).for_each(|item| queue.push(bytes, |batch| batch.push((worker, item))));
            });
        }
    });
}

#[test]
fn the_memory_of_large_batches_is_given_back() {
    const ITEMS: usize = 100_000;
    let dropped = IntCounter::new("dropped", "items").unwrap();
    let settings = QueueSettings {
        thread: "numbers",
        limit: 4 * ITEMS,
        dropped: dropped.clone(),
    };
    let queue = WriteQueue::start(NoSink, settings).unwrap();
    // The memory of a batch is that of the next but one.
    for _ in 0..2 {
        (0..ITEMS).for_each(|item| queue.push(1, |batch| batch.push((0, item))));
        assert!(queue.flush(LONG));
    }
    assert_eq!(dropped.get(), 0);
    for waiting in queue.queue.waiting.all() {
        let kept = &locked(waiting).pending;
        assert!(kept.is_empty());
        let bytes = kept.capacity() * size_of::<(usize, usize)>();
        assert!(bytes <= SPARE_BYTES, "a worker keeps {bytes} bytes");
    }
}

#[test]
fn nothing_of_any_worker_is_lost_and_each_ones_order_is_kept() {
    const ITEMS: usize = 10_000;
    let (queue, dropped, give, receive) = gated(ITEMS * (worker_count() + 1) * 4);
    drop(give);
    push_of_all_workers(&queue, ITEMS, 1);
    queue.push(1, |batch| batch.push((worker_count(), 0)));
    assert!(queue.flush(LONG));
    let mut next = vec![0; worker_count() + 1];
    for (worker, item) in receive.try_iter().flatten() {
        assert_eq!(item, next[worker], "of worker {worker}");
        next[worker] += 1;
    }
    assert_eq!((next.pop(), dropped.get()), (Some(1), 0));
    assert!(next.iter().all(|items| *items == ITEMS), "{next:?}");
}

#[test]
fn what_waits_of_all_workers_together_is_bounded() {
    const LIMIT: usize = 64 << 10;
    let (queue, dropped, give, receive) = gated(LIMIT);
    // The writer has this one in hand, and waits for leave.
    queue.push(1, |batch| batch.push((0, 0)));
    until_taken(&queue);
    push_of_all_workers(&queue, LIMIT, 16);
    drop(give);
    assert!(queue.flush(LONG));
    let written = receive.try_iter().flatten().count() - 1;
    assert!(written * 16 <= LIMIT, "{written} items");
    assert!(written * 16 > LIMIT / 2, "{written} items");
    assert_eq!(written as u64 + dropped.get(), (LIMIT * worker_count()) as u64);
    // What was written makes room.
    push_of_all_workers(&queue, 1, 16);
    assert!(queue.flush(LONG));
    assert_eq!(receive.try_iter().flatten().count(), worker_count());
    assert_eq!(queue.queue.room.common.load(Ordering::Relaxed), 0);
}

/// Waits until the writer has taken what waits.
fn until_taken(queue: &Numbers) {
    while queue.queue.waiting.all().any(|waiting| locked(waiting).items > 0) {
        thread::sleep(MAX_BATCH_DELAY);
    }
}

#[test]
fn one_worker_has_the_room_that_no_other_takes() {
    let (queue, dropped, give, receive) = gated(64 << 10);
    queue.push(1, |batch| batch.push((0, 0)));
    until_taken(&queue);
    let (own, common) = (queue.queue.room.own_limit, queue.queue.room.common_limit);
    assert!(own > 0 && common >= 32 << 10);
    (0..own + common).for_each(|item| queue.push(1, |batch| batch.push((0, item))));
    assert_eq!(dropped.get(), 0);
    queue.push(1, |batch| batch.push((0, 0)));
    assert_eq!(dropped.get(), 1);
    drop(give);
    assert!(queue.flush(LONG));
    assert_eq!(receive.try_iter().flatten().count(), 1 + own + common);
}
