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
mod writer;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwapOption;

use crate::config;
use crate::telemetry::metrics::IntCounter;
use crate::telemetry::{QueueSettings, WriteQueue};

pub use files::{FORMAT_VERSION, PREFIX};
pub use read::{CallLine, RecordLine, RecordingError, RecordingHeader};
pub use review::{ObjectState, RecordedBody, RecordedCall, RecordedDecision, RecordedReview, object_state};

pub(crate) use redaction::QuotedSecrets;
use writer::RecordingWriter;

/// Bytes that may wait for the writer: those of the largest review that is received, and as many.
const MAX_PENDING_BYTES: usize = 64 << 20;

/// Where reviews are recorded at present, if anywhere.
#[derive(Debug)]
pub struct Recordings {
    /// Whether there is an active one: all that an answer costs where nothing is recorded.
    is_on: AtomicBool,
    active: ArcSwapOption<ActiveRecording>,
    dropped: IntCounter,
}

/// What the configuration asks for, at work.
#[derive(Debug)]
struct ActiveRecording {
    settings: config::RecordingSettings,
    queue: WriteQueue<Vec<RecordedReview>>,
}

// === impl Recordings ===

impl Recordings {
    /// Nothing is recorded yet. `dropped` counts lost reviews.
    #[must_use]
    pub fn new(dropped: IntCounter) -> Self {
        Self {
            is_on: AtomicBool::new(false),
            active: ArcSwapOption::empty(),
            dropped,
        }
    }

    /// Records as `settings` say from now on, or no more. What waits is still written.
    ///
    /// # Errors
    ///
    /// The folder cannot be made or read, or no thread be started. Nothing is recorded then.
    pub fn follow(&self, settings: Option<&config::RecordingSettings>) -> io::Result<()> {
        let active = self.active.load();
        if active.as_ref().map(|active| &active.settings) == settings {
            return Ok(());
        }
        self.is_on.store(false, Ordering::Relaxed);
        self.active.store(None);
        if let Some(settings) = settings {
            let active = ActiveRecording::start(settings, &self.dropped)?;
            self.active.store(Some(Arc::new(active)));
            self.is_on.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether anything is recorded.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Queues the review, or drops and counts it when the queue is full. It is made only where
    /// something is recorded.
    pub fn record(&self, review: impl FnOnce() -> RecordedReview) {
        if !self.is_on() {
            return;
        }
        if let Some(active) = self.active.load().as_ref() {
            let review = review();
            let bytes = review.bytes();
            active.queue.push(bytes, |pending| pending.push(review));
        }
    }

    /// Waits until every review so far is written, `limit` at most. Whether it is.
    #[must_use]
    pub fn flush(&self, limit: Duration) -> bool {
        let active = self.active.load();
        active.as_ref().is_none_or(|active| active.queue.flush(limit))
    }
}

// === impl ActiveRecording ===

impl ActiveRecording {
    fn start(settings: &config::RecordingSettings, dropped: &IntCounter) -> io::Result<Self> {
        let writer = RecordingWriter::open(settings, SystemTime::now())?;
        let queue = QueueSettings {
            thread: "recording",
            limit: MAX_PENDING_BYTES,
            dropped: dropped.clone(),
        };
        Ok(Self {
            settings: settings.clone(),
            queue: WriteQueue::start(writer, queue)?,
        })
    }
}
