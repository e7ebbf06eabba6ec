//! A queue of lines for a file or pipe that may be slow, full or stuck.
//!
//! ```text
//! worker ──line──▶ [pending bytes, bounded] ──batch──▶ writer thread ──▶ file or pipe
//!                        └── full: dropped and counted
//! ```
//!
//! Writing a line appends it to memory and never waits for a disk or for the reader of a
//! pipe.

mod writer;

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use prometheus::IntCounter;

/// Where lines go.
pub(super) type LogSink = Box<dyn Write + Send>;

/// Takes lines. Cheap to clone; the writer ends with the last clone.
#[derive(Debug, Clone)]
pub(super) struct LineQueue {
    queue: Arc<Queue>,
    _last: Arc<Closer>,
}

/// What a queue is like.
pub(super) struct QueueSettings {
    /// The name of the writer's thread.
    pub(super) thread: &'static str,
    /// Bytes that may wait for the writer.
    pub(super) limit: usize,
    /// Counts lost lines.
    pub(super) dropped: IntCounter,
    /// Says that the sink failed; of writing once until that succeeds again.
    pub(super) report: fn(WriteFailure, &io::Error),
}

/// What a sink failed at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteFailure {
    /// Being made anew: the one before stays.
    Reopen,
    /// Being written: the lines are lost.
    Write,
}

/// Ends the writer when the last clone is gone.
#[derive(Debug)]
struct Closer(Arc<Queue>);

/// What those who have lines and the writer share.
#[derive(Debug)]
struct Queue {
    state: Mutex<State>,
    /// There is something to write, or the queue ends.
    wake: Condvar,
    /// Everything so far is written.
    written: Condvar,
    dropped: IntCounter,
    limit: usize,
}

#[derive(Debug, Default)]
struct State {
    pending: Vec<u8>,
    lines: u64,
    /// The writer holds a batch.
    writing: bool,
    reopen: bool,
    closed: bool,
}

// === impl LineQueue ===

impl LineQueue {
    /// Starts the writer to `sink`; `reopen` makes another one after [`LineQueue::reopen`],
    /// or fails, in which case the one before stays.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(super) fn start(
        sink: LogSink,
        reopen: impl Fn() -> io::Result<LogSink> + Send + 'static,
        settings: QueueSettings,
    ) -> io::Result<Self> {
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
            .spawn(move || writer::run(&writers, sink, &reopen, settings.report))?;
        Ok(Self {
            _last: Arc::new(Closer(Arc::clone(&queue))),
            queue,
        })
    }

    /// Queues a line, which ends in a line break, or drops and counts it when the queue is full.
    pub(super) fn push(&self, line: &[u8]) {
        self.queue.push(line);
    }

    /// Has the sink made anew before the next line.
    pub(super) fn reopen(&self) {
        self.queue.state().reopen = true;
    }

    /// Waits until every line so far is written, `limit` at most. Whether it is.
    pub(super) fn flush(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let mut state = self.queue.state();
        while state.writing || !state.pending.is_empty() {
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

impl Drop for Closer {
    fn drop(&mut self) {
        self.0.state().closed = true;
        self.0.wake.notify_one();
    }
}

// === impl Queue ===

impl Queue {
    /// The state. No code that holds it can panic, so poisoning means nothing here.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: &[u8]) {
        let mut state = self.state();
        if state.pending.len() + line.len() > self.limit {
            drop(state);
            self.dropped.inc();
            return;
        }
        let was_empty = state.pending.is_empty();
        state.pending.extend_from_slice(line);
        state.lines += 1;
        // A writer that holds a batch looks again by itself.
        let wake = was_empty && !state.writing;
        drop(state);
        if wake {
            self.wake.notify_one();
        }
    }
}
