//! A queue before a file or pipe that may be slow, full or stuck.
//!
//! ```text
//! worker ──item──▶ [what waits, bounded in bytes] ──batch──▶ writer thread ──▶ file or pipe
//!                        └── full: dropped and counted
//! ```
//!
//! Who has something to write adds it to memory and never waits for a disk or for the
//! reader of a pipe.

mod writer;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use prometheus::IntCounter;

/// Writes what has gathered. Runs on a thread of its own.
pub(crate) trait BatchWriter<B>: Send + 'static {
    /// Writes `batch`, which holds so many items, and leaves it empty. How many were lost.
    fn write(&mut self, batch: &mut B, items: u64) -> u64;

    /// Makes the file or pipe anew, once this was asked for.
    fn reopen(&mut self) {}

    /// There is nothing to write at the moment. After how long to be told so again, if ever.
    fn rest(&mut self) -> Option<Duration> {
        None
    }
}

/// Takes items, which gather in a `B`. Cheap to clone; the writer ends with the last clone.
#[derive(Debug)]
pub(crate) struct WriteQueue<B> {
    queue: Arc<Queue<B>>,
    _last: Arc<Closer<B>>,
}

/// What a queue is like.
pub(crate) struct QueueSettings {
    /// The name of the writer's thread.
    pub(crate) thread: &'static str,
    /// Bytes that may wait for the writer.
    pub(crate) limit: usize,
    /// Counts lost items.
    pub(crate) dropped: IntCounter,
}

/// Ends the writer when the last clone is gone.
#[derive(Debug)]
struct Closer<B>(Arc<Queue<B>>);

/// What those who have items and the writer share.
#[derive(Debug)]
struct Queue<B> {
    state: Mutex<State<B>>,
    /// There is something to write, or the queue ends.
    wake: Condvar,
    /// Everything so far is written.
    written: Condvar,
    dropped: IntCounter,
    limit: usize,
}

#[derive(Debug, Default)]
struct State<B> {
    pending: B,
    items: u64,
    bytes: usize,
    /// The writer holds a batch.
    writing: bool,
    reopen: bool,
    closed: bool,
}

// === impl WriteQueue ===

impl<B: Default + Send + 'static> WriteQueue<B> {
    /// Starts the thread of `writer`.
    ///
    /// # Errors
    /// When no thread can be started.
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
            .spawn(move || writer::run(&writers, writer))?;
        Ok(Self {
            _last: Arc::new(Closer(Arc::clone(&queue))),
            queue,
        })
    }

    /// Has `add` add an item of so many bytes, or drops and counts it when the queue is full.
    pub(crate) fn push(&self, bytes: usize, add: impl FnOnce(&mut B)) {
        self.queue.push(bytes, add);
    }

    /// Has the sink made anew before the next item.
    pub(crate) fn reopen(&self) {
        self.queue.state().reopen = true;
    }

    /// Waits until every item so far is written, `limit` at most. Whether it is.
    pub(crate) fn flush(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let mut state = self.queue.state();
        while state.writing || state.items > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = match self.queue.written.wait_timeout(state, left) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        true
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
    /// The state. No code that holds it can panic, so poisoning means nothing here.
    fn state(&self) -> MutexGuard<'_, State<B>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
        // A writer that holds a batch looks again by itself.
        let wake = was_empty && !state.writing;
        drop(state);
        if wake {
            self.wake.notify_one();
        }
    }
}
