//! The decision log: one line of JSON for every decision, whether it allows or denies.
//!
//! No request waits for the file or pipe: if too many lines are queued, further ones are
//! dropped and counted. Lines are bounded too: long values are cut, and the line then has
//! `"truncated": true`.

mod question;
mod record;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use prometheus::IntCounter;

use crate::config::files;

use super::write_queue::{LineQueue, LineQueueSettings, LogSink, WriteFailure};

pub(crate) use question::{CountedQuestion, QuestionParts};
pub use record::{DecisionLine, LoggedQuestion, Record, ShadowDecision, TextRedaction};

/// Bytes that may wait for the writer: some ten thousand usual lines.
const MAX_PENDING_BYTES: usize = 8 << 20;

/// What a new file's owner and group may do.
const MODE: u32 = 0o640;

/// Where lines go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// Standard output.
    Stdout,
    /// A regular file; lines are appended, and its owner's group may read it.
    File(PathBuf),
}

/// A log that takes lines. Cheap to clone; the writer ends with the last clone.
#[derive(Debug, Clone)]
pub struct DecisionLog(LineQueue);

// === impl DecisionLog ===

impl DecisionLog {
    /// Opens the destination and starts the writer. `dropped` counts lost lines.
    ///
    /// # Errors
    /// When the file cannot be opened or no thread be started.
    pub fn open(destination: Destination, dropped: IntCounter) -> io::Result<Self> {
        let sink = destination.open()?;
        Self::start(sink, move || destination.open(), dropped, MAX_PENDING_BYTES)
    }

    fn start(
        sink: LogSink,
        reopen: impl Fn() -> io::Result<LogSink> + Send + 'static,
        dropped: IntCounter,
        limit: usize,
    ) -> io::Result<Self> {
        let settings = LineQueueSettings {
            thread: "decision-log",
            limit,
            dropped,
            report: |failure, error| match failure {
                WriteFailure::Reopen => {
                    tracing::error!(%error, "cannot reopen the decision log: still writing to the old file");
                }
                WriteFailure::Write => {
                    tracing::error!(%error, "cannot write to the decision log: lines are lost");
                }
            },
        };
        LineQueue::start(sink, reopen, settings).map(Self)
    }

    /// Queues the line of a decision, or drops and counts it when the queue is full.
    pub fn record(&self, record: &Record<'_>) {
        record.with_line(|line| self.write(line, true));
    }

    /// Queues a line that was made already, with the rules that came nearest or without.
    pub fn write(&self, line: &DecisionLine<'_>, with_near_misses: bool) {
        self.0.push(line.parts(with_near_misses));
    }

    /// Has a file opened again before the next line, after it was moved away.
    pub fn reopen(&self) {
        self.0.reopen();
    }

    /// Waits until every line so far is written, `limit` at most. Whether it is.
    #[must_use]
    pub fn flush(&self, limit: Duration) -> bool {
        self.0.flush(limit)
    }
}

// === impl Destination ===

impl Destination {
    fn open(&self) -> io::Result<LogSink> {
        Ok(match self {
            Self::Stdout => Box::new(io::stdout()),
            Self::File(path) => Box::new(files::append(path, MODE)?),
        })
    }
}

#[cfg(test)]
mod tests;
