//! Recordings: whole reviews and their answers in files, for `portcullis replay`.
//!
//! ```text
//! worker ──RecordedReview──▶ [queue, bounded] ──▶ writer thread: redaction ─▶ line ─▶ files, bounded by bytes and age
//!                                └── full: dropped and counted
//! replay ◀── RecordLine ◀── one line of a file
//! ```
//!
//! An answer waits neither for redaction nor for a disk: a worker copies a SubjectAccessReview
//! once and hands over an AdmissionReview as it is, already read. What redaction cannot read is
//! not written.

mod files;
mod read;
mod redaction;
mod review;

use std::io;
use std::time::{Duration, SystemTime};

use crate::config;
use crate::telemetry::metrics::IntCounter;
use crate::telemetry::{QueueSettings, SwitchedQueue, WriteQueue};

pub use files::{FORMAT_VERSION, PREFIX};
pub use read::{CallLine, RecordLine, RecordingError, RecordingHeader};
pub use review::{ObjectState, RecordedBody, RecordedCall, RecordedDecision, RecordedReview, object_state};

use files::RecordingWriter;
pub(crate) use redaction::QuotedSecrets;

/// Bytes that may wait for the writer: those of the largest review that is received, and as many.
const MAX_PENDING_BYTES: usize = 64 << 20;

/// Where reviews are recorded at present, if anywhere.
#[derive(Debug)]
pub struct Recordings {
    queue: SwitchedQueue<config::RecordingSettings, Vec<RecordedReview>>,
    dropped: IntCounter,
}

// === impl Recordings ===

impl Recordings {
    /// Nothing is recorded yet. `dropped` counts lost reviews.
    #[must_use]
    pub fn new(dropped: IntCounter) -> Self {
        Self {
            queue: SwitchedQueue::new(),
            dropped,
        }
    }

    /// Records as `settings` say from now on, or no more. What waits is still written.
    ///
    /// # Errors
    ///
    /// The folder cannot be made or read, or no thread be started. Nothing is recorded then.
    pub fn follow(&self, settings: Option<&config::RecordingSettings>) -> io::Result<()> {
        self.queue.follow(settings, |settings| {
            let writer = RecordingWriter::open(settings, SystemTime::now())?;
            let queue = QueueSettings {
                thread: "recording",
                limit: MAX_PENDING_BYTES,
                dropped: self.dropped.clone(),
            };
            WriteQueue::start(writer, queue)
        })
    }

    /// Whether anything is recorded.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.queue.is_on()
    }

    /// Queues the review, or drops and counts it when the queue is full. It is made only where
    /// something is recorded.
    pub fn record(&self, review: impl FnOnce() -> RecordedReview) {
        self.queue.push(|queue| {
            let review = review();
            let bytes = review.bytes();
            queue.push(bytes, |pending| pending.push(review));
        });
    }

    /// Waits until every review so far is written, `limit` at most. Whether it is.
    #[must_use]
    pub fn flush(&self, limit: Duration) -> bool {
        self.queue.flush(limit)
    }
}
