//! A queue in front of a file or pipe that may be slow, full or stuck.
//!
//! ```text
//! worker ──item──▶ [pending items, bounded in bytes] ──batch──▶ writer thread ──▶ file or pipe
//!                       └── full: dropped and counted
//! ```
//!
//! A worker adds items in memory, and never waits for a disk or for the reader of a pipe.
//! [`LineQueue`] is a queue of lines of text, [`SwitchedQueue`] one that a reload starts and stops.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use prometheus::IntCounter;

/// Writes batches of items, on a thread of its own.
pub(crate) trait BatchWriter<B>: Send + 'static {
    /// Writes `batch`, which has this number of items, and clears it. Returns the number of lost
    /// items.
    fn write(&mut self, batch: &mut B, items: u64) -> u64;

    /// Reopens the file or pipe after [`WriteQueue::reopen`].
    fn reopen(&mut self) {}

    /// Writes what is buffered, for [`WriteQueue::flush`].
    fn flush(&mut self) {}

    /// Called when the queue is empty. Returns the time after which to call it again, if ever.
    fn rest(&mut self) -> Option<Duration> {
        None
    }
}

/// A queue of items, which are collected in a `B`. Cheap to clone; the writer ends with the last
/// clone.
#[derive(Debug)]
pub(crate) struct WriteQueue<B> {
    queue: Arc<Queue<B>>,
    _last: Arc<Closer<B>>,
}

/// The settings of a queue.
pub(crate) struct QueueSettings {
    /// The name of the writer's thread.
    pub(crate) thread: &'static str,
    /// The most bytes of pending items.
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
    state: Mutex<State<B>>,
    /// Notified when there are items to write, or the queue is closed.
    wake: Condvar,
    /// Notified when a batch was written, or the writer has ended.
    written: Condvar,
    dropped: IntCounter,
    limit: usize,
}

#[derive(Debug, Default)]
struct State<B> {
    pending: B,
    items: u64,
    bytes: usize,
    /// Whether the writer is writing a batch.
    writing: bool,
    reopen: bool,
    flush: bool,
    closed: bool,
    /// Whether the writer has ended, after writing everything.
    ended: bool,
}

// === impl WriteQueue ===

impl<B: Default + Send + 'static> WriteQueue<B> {
    /// Starts the thread of `writer`.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start(writer: impl BatchWriter<B>, settings: QueueSettings) -> io::Result<Self> {
        let queue = Arc::new(Queue {
            state: Mutex::default(),
            wake: Condvar::new(),
            written: Condvar::new(),
            dropped: settings.dropped,
            limit: settings.limit,
        });
        let writers = Arc::clone(&queue);
        thread::Builder::new()
            .name(settings.thread.to_owned())
            .spawn(move || {
                run_writer(&writers, writer);
                writers.state().ended = true;
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
        self.queue.state().reopen = true;
    }

    /// Waits until every item is written, for `limit` at most, and returns whether it is.
    pub(crate) fn flush(&self, limit: Duration) -> bool {
        self.queue.state().flush = true;
        self.queue.wake.notify_one();
        let is_written = |state: &State<B>| !state.writing && !state.flush;
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
        self.0.state().closed = true;
        self.0.wake.notify_one();
    }
}

// === impl Queue ===

impl<B> Queue<B> {
    /// Locks the state. Code that holds the lock does not panic, so poisoning is ignored.
    fn state(&self) -> MutexGuard<'_, State<B>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the writer until `is_done` or the deadline, and returns whether it is done.
    fn wait_until(&self, is_done: impl Fn(&State<B>) -> bool, deadline: Instant) -> bool {
        let mut state = self.state();
        while !is_done(&state) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = match self.written.wait_timeout(state, left) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        true
    }

    fn push(&self, bytes: usize, add: impl FnOnce(&mut B)) {
        let mut state = self.state();
        if state.bytes + bytes > self.limit {
            drop(state);
            self.dropped.inc();
            return;
        }
        let was_empty = state.items == 0;
        add(&mut state.pending);
        state.bytes += bytes;
        state.items += 1;
        // A writer that is writing a batch checks for more afterwards.
        let wake = was_empty && !state.writing;
        drop(state);
        if wake {
            self.wake.notify_one();
        }
    }
}

/// How long the writer lets items accumulate, so that workers rarely have to wake it.
const MAX_BATCH_DELAY: Duration = Duration::from_millis(2);

/// The items that the writer takes at once.
struct Batch<B> {
    pending: B,
    items: u64,
    reopen: bool,
    flush: bool,
}

/// Writes until the queue is closed and everything is written.
fn run_writer<B: Default>(queue: &Queue<B>, mut writer: impl BatchWriter<B>) {
    let mut spare = B::default();
    while let Some(mut batch) = next(queue, &mut writer, std::mem::take(&mut spare)) {
        if batch.reopen {
            writer.reopen();
        }
        if batch.items > 0 {
            let lost = writer.write(&mut batch.pending, batch.items);
            queue.dropped.inc_by(lost);
        }
        if batch.flush {
            writer.flush();
        }
        spare = batch.pending;
        done(queue);
    }
}

/// Waits for items; `None` when there will be no more.
fn next<B>(queue: &Queue<B>, writer: &mut impl BatchWriter<B>, spare: B) -> Option<Batch<B>> {
    let mut limit = writer.rest();
    let mut state = queue.state();
    while state.items == 0 && !state.flush {
        if state.closed {
            return None;
        }
        let Some(rest) = limit else {
            state = queue.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        let (woken, waited) = queue
            .wake
            .wait_timeout(state, rest)
            .unwrap_or_else(PoisonError::into_inner);
        state = woken;
        if waited.timed_out() && state.items == 0 && !state.flush && !state.closed {
            drop(state);
            limit = writer.rest();
            state = queue.state();
        }
    }
    if !state.closed {
        // Items are added meanwhile. Because `writing` is set, they do not wake the writer.
        state.writing = true;
        drop(state);
        thread::sleep(MAX_BATCH_DELAY);
        state = queue.state();
    }
    state.writing = true;
    state.bytes = 0;
    Some(Batch {
        pending: std::mem::replace(&mut state.pending, spare),
        items: std::mem::take(&mut state.items),
        reopen: std::mem::take(&mut state.reopen),
        flush: std::mem::take(&mut state.flush),
    })
}

fn done<B>(queue: &Queue<B>) {
    queue.state().writing = false;
    queue.written.notify_all();
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

impl<S: Clone + PartialEq, B: Default + Send + 'static> SwitchedQueue<S, B> {
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
    pub(crate) fn follow(
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
            retired.is_none_or(|retired| retired.wait_until(|state| state.ended, deadline));
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

/// The capacity in bytes that a batch keeps.
const SPARE_BYTES: usize = 256 << 10;

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
    /// # Errors The thread cannot be started.
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
        let written = self.write_lines(lines);
        lines.clear();
        lines.shrink_to(SPARE_BYTES);
        let Err(error) = written else {
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
