//! A queue in front of a file or pipe that may be slow, full or stuck.
//!
//! ```text
//! worker 1 ──item──▶ [its pending items]    ─┐
//! worker 2 ──item──▶ [its pending items]    ─┼─batches──▶ writer thread ──▶ file or pipe
//! others   ──item──▶ [their pending items]  ─┘
//!                       └── together bounded in bytes; full: dropped and counted
//! ```
//!
//! A worker adds items to memory of its own, and never waits for a disk or for the reader of a pipe.
//! The items of one worker are written in order. [`LineQueue`] is a queue of lines of text,
//! [`SwitchedQueue`] one that a reload starts and stops.

use std::io::{self, Read as _, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use prometheus::IntCounter;

use super::per_worker::PerWorker;

/// The capacity in bytes that a batch keeps once it is written.
const SPARE_BYTES: usize = 256 << 10;

/// The pending items of a worker.
pub(crate) trait WriteBatch: Default + Send + 'static {
    /// Removes the items, and keeps memory for `spare` bytes of them at most.
    fn reset(&mut self, spare: usize);
}

/// Writes batches of items, on a thread of its own.
pub(crate) trait BatchWriter<B>: Send + 'static {
    /// Writes `batch`, which has this number of items and is reset afterwards. Returns the number of
    /// lost items.
    fn write(&mut self, batch: &mut B, items: u64) -> u64;

    /// Reopens the file or pipe after [`WriteQueue::reopen`].
    fn reopen(&mut self) {}

    /// Writes what is buffered, for [`WriteQueue::flush`].
    fn flush(&mut self) {}

    /// Called when the queue is empty. Returns the time after which to call it again, if ever.
    fn idle(&mut self) -> Option<Duration> {
        None
    }
}

/// A queue of items, which are collected in a `B` for each worker. Cheap to clone; the writer ends
/// with the last clone.
#[derive(Debug)]
pub(crate) struct WriteQueue<B> {
    queue: Arc<Queue<B>>,
    _last: Arc<Closer<B>>,
}

/// The settings of a queue.
pub(crate) struct QueueSettings {
    /// The name of the writer's thread.
    pub(crate) thread: &'static str,
    /// The most bytes of pending items, of all workers together.
    pub(crate) limit: usize,
    /// Counts lost items.
    pub(crate) dropped: IntCounter,
}

/// Closes the queue when the last clone is dropped.
#[derive(Debug)]
struct Closer<B>(Arc<Queue<B>>);

/// The state that the clones of a queue and its writer share.
#[derive(Debug)]
struct Queue<B> {
    waiting: PerWorker<Mutex<Waiting<B>>>,
    room: QueueRoom,
    /// Whether the writer waits for a byte from `wake`.
    is_idle: AtomicBool,
    /// Wakes the writer. Nonblocking. Every worker that notified a condition variable would write to it.
    wake: UnixStream,
    /// Whether to reopen the sink before the next item.
    reopen: AtomicBool,
    orders: Mutex<Orders>,
    /// Notified when everything was written for a flush, or the writer has ended.
    written: Condvar,
    dropped: IntCounter,
}

/// The pending items of a worker.
#[derive(Debug, Default)]
struct Waiting<B> {
    pending: B,
    items: u64,
    bytes: usize,
}

/// Bounds the bytes of pending items. A part of the limit, half of it at most, is divided among the workers. A worker
/// that needs more takes it from the common rest, whose count all workers write.
#[derive(Debug)]
struct QueueRoom {
    /// The bytes that each worker may hold without taking from the common part.
    own_limit: usize,
    common_limit: usize,
    /// The bytes that all workers hold of the common part.
    common: AtomicUsize,
}

/// Requests to the writer, and its replies.
#[derive(Debug, Default)]
struct Orders {
    flush: bool,
    /// Whether the writer is writing everything for a flush.
    flushing: bool,
    closed: bool,
    /// Whether the writer has ended, after writing everything.
    ended: bool,
}

/// The most bytes that a worker holds without taking from the common part: some thousand lines, more than a worker
/// writes before the writer takes them.
const MAX_OWN_BYTES: usize = 256 << 10;

// === impl WriteBatch ===

impl<T: Send + 'static> WriteBatch for Vec<T> {
    fn reset(&mut self, spare: usize) {
        self.clear();
        self.shrink_to(spare / size_of::<T>().max(1));
    }
}

// === impl WriteQueue ===

impl<B: WriteBatch> WriteQueue<B> {
    /// Starts the thread of `writer`.
    ///
    /// # Errors
    /// The thread cannot be started, or no file descriptor is left.
    pub(crate) fn start(writer: impl BatchWriter<B>, settings: QueueSettings) -> io::Result<Self> {
        let (wake, woken) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let waiting = PerWorker::default();
        let queue = Arc::new(Queue {
            room: QueueRoom::new(settings.limit, waiting.len()),
            waiting,
            is_idle: AtomicBool::new(false),
            wake,
            reopen: AtomicBool::new(false),
            orders: Mutex::default(),
            written: Condvar::new(),
            dropped: settings.dropped,
        });
        let writers = Arc::clone(&queue);
        thread::Builder::new()
            .name(settings.thread.to_owned())
            .spawn(move || {
                run_writer(&writers, &woken, writer);
                writers.orders().ended = true;
                writers.written.notify_all();
            })?;
        Ok(Self {
            _last: Arc::new(Closer(Arc::clone(&queue))),
            queue,
        })
    }

    /// Calls `add` to add an item of this size, or drops and counts the item if the queue is full.
    pub(crate) fn push(&self, bytes: usize, add: impl FnOnce(&mut B)) {
        self.queue.push(bytes, add);
    }

    /// Reopens the sink before the next item.
    pub(crate) fn reopen(&self) {
        self.queue.reopen.store(true, Ordering::Relaxed);
    }

    /// Waits until every item is written, for `limit` at most, and returns whether it is.
    pub(crate) fn flush(&self, limit: Duration) -> bool {
        self.queue.orders().flush = true;
        self.queue.wake();
        let is_written = |orders: &Orders| !orders.flushing && !orders.flush;
        self.queue.wait_until(is_written, Instant::now() + limit)
    }
}

impl<B> Clone for WriteQueue<B> {
    fn clone(&self) -> Self {
        Self {
            queue: Arc::clone(&self.queue),
            _last: Arc::clone(&self._last),
        }
    }
}

impl<B> Drop for Closer<B> {
    fn drop(&mut self) {
        self.0.orders().closed = true;
        self.0.wake();
    }
}

// === impl QueueRoom ===

impl QueueRoom {
    fn new(limit: usize, places: usize) -> Self {
        let own_limit = (limit / 2 / places).min(MAX_OWN_BYTES);
        Self {
            own_limit,
            common_limit: limit - own_limit * places,
            common: AtomicUsize::new(0),
        }
    }

    /// The bytes of a worker that count towards the common part.
    const fn common_part(&self, bytes: usize) -> usize {
        bytes.saturating_sub(self.own_limit)
    }

    /// Lets a worker hold `after` instead of `before` bytes, and returns whether there is room for them.
    fn take(&self, before: usize, after: usize) -> bool {
        let more = self.common_part(after) - self.common_part(before);
        let taken = |common: usize| Some(common + more).filter(|common| *common <= self.common_limit);
        more == 0
            || self
                .common
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken)
                .is_ok()
    }

    /// Releases all bytes of a worker.
    fn give_back(&self, bytes: usize) {
        let part = self.common_part(bytes);
        if part > 0 {
            self.common.fetch_sub(part, Ordering::Relaxed);
        }
    }
}

// === impl Queue ===

impl<B> Queue<B> {
    /// Locks the requests to the writer.
    fn orders(&self) -> MutexGuard<'_, Orders> {
        locked(&self.orders)
    }

    /// Waits for the writer until `is_done` or the deadline, and returns whether it is done.
    fn wait_until(&self, is_done: impl Fn(&Orders) -> bool, deadline: Instant) -> bool {
        let mut orders = self.orders();
        while !is_done(&orders) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            orders = match self.written.wait_timeout(orders, left) {
                Ok((orders, _)) => orders,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        true
    }

    fn push(&self, bytes: usize, add: impl FnOnce(&mut B)) {
        let mut waiting = locked(self.waiting.own());
        let after = waiting.bytes.saturating_add(bytes);
        if !self.room.take(waiting.bytes, after) {
            drop(waiting);
            self.dropped.inc();
            return;
        }
        let was_empty = waiting.items == 0;
        add(&mut waiting.pending);
        waiting.bytes = after;
        waiting.items += 1;
        drop(waiting);
        // A writer that is not idle checks for more by itself. It sets `is_idle` before it locks this worker's items
        // for the last time: so either it finds this item, or `is_idle` is seen here.
        if was_empty && self.is_idle.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    fn wake(&self) {
        // It fails only if so many bytes are unread that the writer wakes anyway.
        let _unread = (&self.wake).write(&[0]);
    }

    /// Whether there is anything to do for the writer.
    fn has_work(&self) -> bool {
        let orders = self.orders();
        orders.flush || orders.closed || self.waiting.all().any(|waiting| locked(waiting).items > 0)
    }
}

/// How long the writer lets items accumulate, so that workers rarely have to wake it.
const MAX_BATCH_DELAY: Duration = Duration::from_millis(2);

/// The number of wake-ups that are read at once.
const WAKE_UPS: usize = 64;

/// Locks the mutex. Code that holds the lock does not panic, so poisoning is ignored.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes until the queue is closed and everything is written.
fn run_writer<B: WriteBatch>(queue: &Queue<B>, woken: &UnixStream, mut writer: impl BatchWriter<B>) {
    let mut spare = B::default();
    loop {
        wait(queue, woken, writer.idle());
        let is_closed = queue.orders().closed;
        if !is_closed {
            thread::sleep(MAX_BATCH_DELAY);
        }
        let flush = begin_flush(queue);
        for waiting in queue.waiting.all() {
            write_waiting(queue, waiting, &mut spare, &mut writer);
        }
        if flush {
            writer.flush();
            queue.orders().flushing = false;
            queue.written.notify_all();
        }
        if is_closed {
            return;
        }
    }
}

/// Waits until there is something to do, for `limit` at most.
fn wait<B>(queue: &Queue<B>, mut woken: &UnixStream, limit: Option<Duration>) {
    queue.is_idle.store(true, Ordering::Relaxed);
    // A timeout of zero is an error.
    let limit = limit.map(|limit| limit.max(Duration::from_millis(1)));
    if !queue.has_work() && woken.set_read_timeout(limit).is_ok() {
        // Neither the bytes nor a timeout matter: the writer checks what there is to do.
        let _wake_ups = woken.read(&mut [0; WAKE_UPS]);
    }
    queue.is_idle.store(false, Ordering::Relaxed);
}

/// Begins a flush if one is requested, and returns whether it is.
fn begin_flush<B>(queue: &Queue<B>) -> bool {
    let mut orders = queue.orders();
    orders.flushing = std::mem::take(&mut orders.flush);
    orders.flushing
}

/// Writes the pending items of a worker. `spare` is empty before and afterwards.
fn write_waiting<B: WriteBatch>(
    queue: &Queue<B>,
    waiting: &Mutex<Waiting<B>>,
    spare: &mut B,
    writer: &mut impl BatchWriter<B>,
) {
    let mut waiting = locked(waiting);
    let (items, bytes) = (
        std::mem::take(&mut waiting.items),
        std::mem::take(&mut waiting.bytes),
    );
    if items == 0 {
        return;
    }
    std::mem::swap(&mut waiting.pending, spare);
    drop(waiting);
    queue.room.give_back(bytes);
    if queue.reopen.swap(false, Ordering::Relaxed) {
        writer.reopen();
    }
    let lost = writer.write(spare, items);
    spare.reset(SPARE_BYTES);
    queue.dropped.inc_by(lost);
}

/// A queue that exists only while the configuration enables it, with the settings `S`.
#[derive(Debug)]
pub(crate) struct SwitchedQueue<S, B> {
    /// Whether there is a queue. If not, checking this is the only cost for a response.
    is_on: AtomicBool,
    active: ArcSwapOption<(S, WriteQueue<B>)>,
    /// The previous queue, which may still be writing its items.
    retired: Mutex<Option<Arc<Queue<B>>>>,
}

// === impl SwitchedQueue ===

impl<S: Clone + PartialEq, B: WriteBatch> SwitchedQueue<S, B> {
    /// Creates it without a queue.
    pub(crate) fn new() -> Self {
        Self {
            is_on: AtomicBool::new(false),
            active: ArcSwapOption::empty(),
            retired: Mutex::default(),
        }
    }

    /// Switches to a queue that `start` creates with `settings`, or to none. Items in the previous
    /// queue are still written.
    ///
    /// # Errors
    ///
    /// Those of `start`. There is no queue then.
    pub(crate) fn apply(
        &self,
        settings: Option<&S>,
        start: impl FnOnce(&S) -> io::Result<WriteQueue<B>>,
    ) -> io::Result<()> {
        if self.active.load().as_ref().map(|active| &active.0) == settings {
            return Ok(());
        }
        self.is_on.store(false, Ordering::Relaxed);
        if let Some(before) = self.active.swap(None) {
            *self.retired() = Some(Arc::clone(&before.1.queue));
        }
        if let Some(settings) = settings {
            self.active
                .store(Some(Arc::new((settings.clone(), start(settings)?))));
            self.is_on.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Calls `push` with the queue, if there is one.
    pub(crate) fn push(&self, push: impl FnOnce(&WriteQueue<B>)) {
        if self.is_on()
            && let Some(active) = self.active.load().as_ref()
        {
            push(&active.1);
        }
    }

    /// Waits until every item is written, for `limit` at most, and returns whether it is.
    pub(crate) fn flush(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let retired = self.retired().take();
        let is_retired_written =
            retired.is_none_or(|retired| retired.wait_until(|orders| orders.ended, deadline));
        let active = self.active.load();
        let left = deadline.saturating_duration_since(Instant::now());
        let is_written = active.as_ref().is_none_or(|active| active.1.flush(left));
        is_retired_written && is_written
    }

    fn retired(&self) -> MutexGuard<'_, Option<Arc<Queue<B>>>> {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The destination of lines.
pub(crate) type LogSink = Box<dyn Write + Send>;

/// A queue of lines. Cheap to clone; the writer ends with the last clone.
#[derive(Debug, Clone)]
pub(crate) struct LineQueue(WriteQueue<Vec<u8>>);

/// The settings of a queue of lines.
pub(crate) struct LineQueueSettings {
    /// The name of the writer's thread.
    pub(crate) thread: &'static str,
    /// The most bytes of lines in the queue.
    pub(crate) limit: usize,
    /// Counts lost lines.
    pub(crate) dropped: IntCounter,
    /// Reports that the sink failed. Consecutive failures to write are reported once.
    pub(crate) report: fn(WriteFailure, &io::Error),
}

/// The operation of a sink that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteFailure {
    /// Reopening: the previous sink stays in use.
    Reopen,
    /// Writing: the lines are lost.
    Write,
}

/// Writes lines to a sink.
struct LineWriter<R> {
    sink: LogSink,
    reopen: R,
    report: fn(WriteFailure, &io::Error),
    /// Whether the last write failed.
    broken: bool,
}

// === impl LineQueue ===

impl LineQueue {
    /// Starts writing to `sink`. After [`LineQueue::reopen`], `reopen` creates another sink; if it
    /// fails, the previous one stays in use.
    ///
    /// # Errors
    /// The thread cannot be started, or no file descriptor is left.
    pub(crate) fn start(
        sink: LogSink,
        reopen: impl Fn() -> io::Result<LogSink> + Send + 'static,
        settings: LineQueueSettings,
    ) -> io::Result<Self> {
        let writer = LineWriter {
            sink,
            reopen,
            report: settings.report,
            broken: false,
        };
        let settings = QueueSettings {
            thread: settings.thread,
            limit: settings.limit,
            dropped: settings.dropped,
        };
        WriteQueue::start(writer, settings).map(Self)
    }

    /// Queues a line, given in two parts and with its line break, or drops and counts it if the
    /// queue is full.
    pub(crate) fn push(&self, [start, end]: [&[u8]; 2]) {
        self.0.push(start.len() + end.len(), |pending| {
            pending.extend_from_slice(start);
            pending.extend_from_slice(end);
        });
    }

    /// Reopens the sink before the next line.
    pub(crate) fn reopen(&self) {
        self.0.reopen();
    }

    /// Waits until every line is written, for `limit` at most, and returns whether it is.
    pub(crate) fn flush(&self, limit: Duration) -> bool {
        self.0.flush(limit)
    }
}

// === impl LineWriter ===

impl<R: Fn() -> io::Result<LogSink> + Send + 'static> BatchWriter<Vec<u8>> for LineWriter<R> {
    fn write(&mut self, lines: &mut Vec<u8>, count: u64) -> u64 {
        let Err(error) = self.write_lines(lines) else {
            self.broken = false;
            return 0;
        };
        if !self.broken {
            (self.report)(WriteFailure::Write, &error);
        }
        self.broken = true;
        count
    }

    fn reopen(&mut self) {
        match (self.reopen)() {
            Ok(fresh) => (self.sink, self.broken) = (fresh, false),
            Err(error) => (self.report)(WriteFailure::Reopen, &error),
        }
    }
}

impl<R> LineWriter<R> {
    /// Writes lines. After a failure, the last line of the sink may be incomplete, so a line break
    /// is written first.
    fn write_lines(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.broken {
            self.sink.write_all(b"\n")?;
        }
        self.sink.write_all(lines)?;
        self.sink.flush()
    }
}

#[cfg(test)]
mod tests;
