//! Usage: how often each distinct question was asked in each hour, and how it was answered.
//!
//! ```text
//! worker ──question──▶ [queue, bounded] ──▶ writer thread: table of the hour ─▶ file, once a minute
//!                           └── full: dropped and counted
//! suggest, replay ◀── UsageRow ◀── one line of a file
//! ```
//!
//! An answer waits neither for counting nor for a disk. Memory is bounded, whatever is asked.
//! Adding the counts of equal rows merges files: of hours, restarts, replicas and clusters.

mod files;
mod object;
mod read;
mod table;

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use crate::config::FolderBounds;
use crate::telemetry::decision_log::{CountedQuestion, Record};
use crate::telemetry::metrics::IntCounter;
use crate::telemetry::{QueueSettings, SwitchedQueue, WriteQueue};

use files::{UsageCounters, UsageWriter};
use table::UsageBatch;

pub(crate) use table::question_text;

pub use object::{ObjectUsage, UsedObjectKey};
pub use read::{RowPlace, UsageError, UsageReader, UsageRow, UsageWeight, UsageWeights, read_usage};

/// Bytes that may wait for the writer: some ten thousand usual questions.
const MAX_PENDING_BYTES: usize = 8 << 20;

/// Where decisions are counted at present, if anywhere.
#[derive(Debug)]
pub struct UsageCounts {
    queue: SwitchedQueue<FolderBounds, UsageBatch>,
    clusters: Arc<AtomicUsize>,
    counters: UsageCounters,
}

thread_local! {
    /// Questions are written here, one after the other, and copied into the queue.
    static QUESTION: RefCell<String> = const { RefCell::new(String::new()) };
}

// === impl UsageCounts ===

impl UsageCounts {
    /// Nothing is counted yet. `dropped` counts decisions that no file will have, `other` those
    /// without a row of their own.
    #[must_use]
    pub fn new(dropped: IntCounter, other: IntCounter) -> Self {
        Self {
            queue: SwitchedQueue::new(),
            clusters: Arc::new(AtomicUsize::new(1)),
            counters: UsageCounters { dropped, other },
        }
    }

    /// Counts as `settings` say from now on, or no more, the decisions of so many clusters. What
    /// waits is still counted.
    ///
    /// # Errors
    ///
    /// The folder cannot be made or read, or no thread be started. Nothing is counted then.
    pub fn follow(&self, settings: Option<&FolderBounds>, clusters: usize) -> io::Result<()> {
        self.clusters.store(clusters, Ordering::Relaxed);
        self.queue.follow(settings, |bounds| {
            let (counters, clusters) = (self.counters.clone(), Arc::clone(&self.clusters));
            let writer = UsageWriter::open(bounds, counters, clusters, SystemTime::now())?;
            let queue = QueueSettings {
                thread: "usage",
                limit: MAX_PENDING_BYTES,
                dropped: self.counters.dropped.clone(),
            };
            WriteQueue::start(writer, queue)
        })
    }

    /// Whether anything is counted.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.queue.is_on()
    }

    /// Queues a decision, or drops and counts it when the queue is full.
    pub fn count(&self, record: &Record<'_>) {
        self.queue.push(|queue| {
            QUESTION.with_borrow_mut(|text| {
                text.clear();
                let question = CountedQuestion::write(record, text);
                let bytes = text.len() + size_of::<CountedQuestion>();
                queue.push(bytes, |batch| batch.push(question, text));
            });
        });
    }

    /// Waits until every decision so far is in a file, `limit` at most. Whether it is.
    #[must_use]
    pub fn flush(&self, limit: Duration) -> bool {
        self.queue.flush(limit)
    }
}
