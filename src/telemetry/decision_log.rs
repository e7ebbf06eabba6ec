//! The decision log: one JSON object a line for every answer, allows too.
//!
//! ```text
//! worker ──line──▶ [pending bytes, bounded] ──batch──▶ writer thread ──▶ file or stdout
//!                        └── full: dropped and counted
//! ```
//!
//! A worker appends to memory and goes on; it never waits for a disk or a pipe.
//! Lines are bounded too: what a user makes long is cut and the line says so
//! with `"truncated": true`.

mod record;
mod writer;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use prometheus::IntCounter;

pub use record::{Question, Record, ShadowDecision};

/// Bytes that may wait for the writer: some ten thousand usual lines.
const PENDING_BYTES: usize = 8 << 20;

/// Where lines go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// Standard output.
    Stdout,
    /// A file; lines are appended, and its owner's group may read it.
    File(PathBuf),
}

/// A log that takes lines. Cheap to clone; the writer ends with the last clone.
#[derive(Debug, Clone)]
pub struct DecisionLog {
    queue: Arc<Queue>,
    _last: Arc<Closer>,
}

/// Ends the writer when the last log is gone.
#[derive(Debug)]
struct Closer(Arc<Queue>);

/// What workers and the writer share.
#[derive(Debug)]
struct Queue {
    state: Mutex<State>,
    /// There is something to write, or the log ends.
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

// === impl DecisionLog ===

impl DecisionLog {
    /// Opens the destination and starts the writer. `dropped` counts lost lines.
    ///
    /// # Errors
    /// When the file cannot be opened or no thread be started.
    pub fn open(destination: Destination, dropped: IntCounter) -> io::Result<Self> {
        let sink = destination.open()?;
        Self::start(sink, move || destination.open(), dropped, PENDING_BYTES)
    }

    fn start(
        sink: Box<dyn Write + Send>,
        reopen: impl Fn() -> io::Result<Box<dyn Write + Send>> + Send + 'static,
        dropped: IntCounter,
        limit: usize,
    ) -> io::Result<Self> {
        let queue = Arc::new(Queue {
            state: Mutex::default(),
            wake: Condvar::new(),
            written: Condvar::new(),
            dropped,
            limit,
        });
        let writers = Arc::clone(&queue);
        thread::Builder::new()
            .name("decision-log".to_owned())
            .spawn(move || writer::run(&writers, sink, &reopen))?;
        Ok(Self {
            _last: Arc::new(Closer(Arc::clone(&queue))),
            queue,
        })
    }

    /// Queues the line of a decision, or drops and counts it when the queue is full.
    pub fn record(&self, record: &Record<'_>) {
        record.with_line(|line| self.queue.push(line));
    }

    /// Has a file opened anew before the next line, after it was moved away.
    pub fn reopen(&self) {
        self.queue.state().reopen = true;
    }

    /// Waits until every line so far is written, `limit` at most. Whether it is.
    #[must_use]
    pub fn flush(&self, limit: Duration) -> bool {
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

// === impl Destination ===

impl Destination {
    fn open(&self) -> io::Result<Box<dyn Write + Send>> {
        Ok(match self {
            Self::Stdout => Box::new(io::stdout()),
            Self::File(path) => Box::new(append(path)?),
        })
    }
}

fn append(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o640);
    options.open(path)
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

#[cfg(test)]
mod tests;
