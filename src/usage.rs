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
mod read;
mod table;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};
use std::{fs, io};

use memchr::memmem::Finder;

use crate::config::{self, FolderBounds};
use crate::telemetry::decision_log::{CountedQuestion, Record};
use crate::telemetry::metrics::IntCounter;
use crate::telemetry::{QueueSettings, SwitchedQueue, WriteQueue};
use files::{UsageCounters, UsageWriter};
use portcullis_cel::json::write_string;
use portcullis_policy::explain::logged::LoggedObject;
use read::{read_rows, usage_files};
use table::UsageBatch;

pub use read::{RowPlace, UsageError, UsageReader, UsageRow, UsageWeight, UsageWeights, read_usage};

pub(crate) use table::question_text;

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

/// The most bytes of files that are read, the newest first.
const MAX_READ_BYTES: u64 = 256 << 20;

/// The most users that are told apart.
const MAX_USERS: usize = 10_000;

/// Which object.
#[derive(Debug, Clone, Copy)]
pub struct UsedObjectKey<'k> {
    /// The cluster whose decisions count.
    pub cluster: &'k str,
    /// `RoleBinding`.
    pub kind: &'k str,
    /// Empty where it has none.
    pub namespace: &'k str,
    /// Its name.
    pub name: &'k str,
}

/// What an object decided, would have decided in Shadow, or excused.
#[derive(Debug, Default)]
pub struct ObjectUsage {
    /// The hour of the oldest file that was read, RFC 3339; `None` where there is none.
    pub since: Option<String>,
    /// All of it.
    pub total: Option<UsageWeight>,
    /// By user; empty for users that usage counts together. Some thousands at most.
    pub by_user: BTreeMap<String, UsageWeight>,
}

/// Takes the rows of one object.
struct ObjectReader<'k> {
    key: UsedObjectKey<'k>,
    usage: ObjectUsage,
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

// === impl ObjectUsage ===

impl ObjectUsage {
    /// Reads the files in `folder`, the newest first, until `is_over` or much was read.
    ///
    /// # Errors
    ///
    /// One cannot be read, or is no file of usage.
    pub fn read(
        folder: &Path,
        key: UsedObjectKey<'_>,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Self, UsageError> {
        if let Err(source) = fs::read_dir(folder) {
            return Err(UsageError::Unreadable {
                path: folder.to_owned(),
                source: io::Error::new(source.kind(), config::files::describe(&source)),
            });
        }
        let mut files = match usage_files(&[folder.to_owned()]) {
            Err(UsageError::Empty(_)) => return Ok(Self::default()),
            files => files?,
        };
        files.reverse();
        let text = mention(key);
        let (finder, mut read) = (Finder::new(&text), 0);
        let mut reader = ObjectReader {
            key,
            usage: Self::default(),
        };
        for path in files {
            // One that is removed meanwhile says nothing.
            let Ok(found) = fs::metadata(&path) else { continue };
            read += found.len();
            if is_over() || (read > MAX_READ_BYTES && reader.usage.since.is_some()) {
                break;
            }
            let header = read_rows(&path, &mut reader, &|line| finder.find(line).is_some())?;
            reader.usage.since = Some(header);
        }
        Ok(reader.usage)
    }
}

/// What each row has that names the object.
fn mention(key: UsedObjectKey<'_>) -> String {
    // As rows are written: there is more than one way to escape.
    let quoted = |text: &str| {
        let mut quoted = String::new();
        write_string(&mut quoted, text);
        quoted
    };
    let name = quoted(key.name);
    if key.kind == "AdmissionException" {
        return format!("{{\"name\":{name},\"policy\":");
    }
    let namespace = match key.namespace {
        "" => String::new(),
        namespace => format!("\"namespace\":{},", quoted(namespace)),
    };
    format!("{{\"kind\":{},{namespace}\"name\":{name}", quoted(key.kind))
}

// === impl ObjectReader ===

impl UsageReader for ObjectReader<'_> {
    type Error = UsageError;

    fn row(&mut self, row: UsageRow<'_>, _: RowPlace<'_>) -> Result<(), UsageError> {
        let key = self.key;
        let is_it = |object: &LoggedObject<'_>| {
            (&*object.kind, &*object.namespace, &*object.name) == (key.kind, key.namespace, key.name)
        };
        let excuses =
            key.kind == "AdmissionException" && row.exceptions.iter().any(|one| one.name == key.name);
        let names_it = excuses || row.cause.iter().chain(&row.shadow).any(is_it);
        // What a caller with a token in its path claims is not proven.
        if row.cluster != key.cluster || !names_it || !row.caller.is_empty() {
            return Ok(());
        }
        let weight = UsageWeight {
            count: row.count,
            first: row.first.into_owned(),
            last: row.last.into_owned(),
        };
        let usage = &mut self.usage;
        UsageWeight::add_to(&mut usage.total, weight.clone());
        if let Some(known) = usage.by_user.get_mut(&*row.user) {
            known.add(weight);
        } else if usage.by_user.len() < MAX_USERS {
            usage.by_user.insert(row.user.into_owned(), weight);
        }
        Ok(())
    }

    /// Other commands name such lines.
    fn broken(&mut self, _: RowPlace<'_>, _: &str) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_found_however_its_name_is_escaped() {
        let folder = tempfile::tempdir().unwrap();
        let name = "a\u{8}\u{c}\"\u{e9}";
        let mut row =
            String::from(r#"{"cluster":"c","user":"u","decision":"Allow","cause":{"kind":"RoleBinding","#);
        row.push_str(r#""namespace":"n","name":"#);
        write_string(&mut row, name);
        row.push_str(r#","rule":0},"count":3,"first":"2026-01-01T00:00:00Z","last":"2026-01-01T00:10:00Z"}"#);
        let header = r#"{"portcullisUsage":1,"program":"p","hour":"2026-01-01T00:00:00Z"}"#;
        let file = folder.path().join("usage-20260101T00Z-a.jsonl");
        fs::write(file, format!("{header}\n{row}\n")).unwrap();
        let key = UsedObjectKey {
            cluster: "c",
            kind: "RoleBinding",
            namespace: "n",
            name,
        };
        let usage = ObjectUsage::read(folder.path(), key, &|| false).unwrap();
        assert_eq!(usage.total.map(|total| total.count), Some(3));
    }
}
