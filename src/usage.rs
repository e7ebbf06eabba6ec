//! Usage: how often each distinct question was asked in each hour, and how it was answered.
//!
//! ```text
//! worker ──question──▶ [queue, bounded] ──▶ writer thread: table of the hour ─▶ file, once a minute
//!                           └── full: dropped and counted
//! suggest, replay ◀── UsageRow ◀── one line of a file
//! ```
//!
//! No response waits for counting or for a disk. Memory is bounded for any questions. Files of
//! hours, restarts, replicas and clusters are merged by adding the counts of equal rows.

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

/// The most bytes of questions in the queue: about ten thousand typical ones.
const MAX_PENDING_BYTES: usize = 8 << 20;

/// The current counts, if decisions are counted.
#[derive(Debug)]
pub struct UsageCounts {
    queue: SwitchedQueue<FolderBounds, UsageBatch>,
    clusters: Arc<AtomicUsize>,
    counters: UsageCounters,
}

thread_local! {
    /// The buffer in which each question is written before it is copied into the queue.
    static QUESTION: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The most bytes of files that are read, starting with the newest.
const MAX_READ_BYTES: u64 = 256 << 20;

/// The most users that are listed separately.
const MAX_USERS: usize = 10_000;

/// The object whose usage is read.
#[derive(Debug, Clone, Copy)]
pub struct UsedObjectKey<'k> {
    /// The cluster whose decisions are counted.
    pub cluster: &'k str,
    /// The kind, such as `RoleBinding`.
    pub kind: &'k str,
    /// Empty if the object has no namespace.
    pub namespace: &'k str,
    /// Its name.
    pub name: &'k str,
}

/// How often an object decided, would have decided in Shadow, or exempted a request.
#[derive(Debug, Default)]
pub struct ObjectUsage {
    /// The hour of the oldest file that was read, in RFC 3339; `None` if no file was read.
    pub since: Option<String>,
    /// The sum over all users.
    pub total: Option<UsageWeight>,
    /// By user, for some thousands at most. The empty name stands for users that the usage files
    /// count together.
    pub by_user: BTreeMap<String, UsageWeight>,
}

/// Adds up the rows that name one object.
struct ObjectReader<'k> {
    key: UsedObjectKey<'k>,
    usage: ObjectUsage,
}

// === impl UsageCounts ===

impl UsageCounts {
    /// Counts nothing until [`follow`](Self::follow). `dropped` counts decisions that are missing
    /// in the files, `other` those that have no row of their own.
    #[must_use]
    pub fn new(dropped: IntCounter, other: IntCounter) -> Self {
        Self {
            queue: SwitchedQueue::new(),
            clusters: Arc::new(AtomicUsize::new(1)),
            counters: UsageCounters { dropped, other },
        }
    }

    /// Counts the decisions of this number of clusters according to `settings` from now on, or
    /// stops if `None`. Queued decisions are still counted.
    ///
    /// # Errors
    ///
    /// The folder cannot be created or read, or the thread cannot be started. Nothing is counted
    /// then.
    pub fn follow(&self, settings: Option<&FolderBounds>, clusters: usize) -> io::Result<()> {
        self.clusters.store(clusters, Ordering::Relaxed);
        self.queue.apply(settings, |bounds| {
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

    /// Whether decisions are counted.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.queue.is_on()
    }

    /// Queues a decision, or drops and counts it if the queue is full.
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

    /// Waits until every queued decision is in a file, for `limit` at most, and returns whether it
    /// is.
    #[must_use]
    pub fn flush(&self, limit: Duration) -> bool {
        self.queue.flush(limit)
    }
}

// === impl ObjectUsage ===

impl ObjectUsage {
    /// Reads the files in `folder`, starting with the newest, until `is_over` or enough bytes were
    /// read.
    ///
    /// # Errors
    ///
    /// A file cannot be read, or is not a usage file.
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
        let text = row_pattern(key);
        let (finder, mut read) = (Finder::new(&text), 0);
        let mut reader = ObjectReader {
            key,
            usage: Self::default(),
        };
        for path in files {
            // A file that was removed meanwhile is skipped.
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

/// The string that every row naming the object contains.
fn row_pattern(key: UsedObjectKey<'_>) -> String {
    // Escaped as in the rows: JSON allows several ways to escape a character.
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
        // The identity that a caller with a path token claims is not proven, so its rows do not
        // count.
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

    /// Other commands report broken lines.
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
