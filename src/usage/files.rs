//! The files of usage, one an hour, and the thread that counts and writes them.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{OffsetDateTime, PrimitiveDateTime};

use super::table::{CountedIn, FORMAT_VERSION, UsageBatch, UsageTable, timestamp};
use crate::config::{FolderBounds, files};
use crate::telemetry::metrics::IntCounter;
use crate::telemetry::{BatchWriter, BoundedFolder};

/// What the name of each file begins with. Other files of the folder are left alone.
const PREFIX: &str = "usage-";

/// What it ends with.
pub(crate) const SUFFIX: &str = ".jsonl";

/// The hour in the name.
const HOUR_FORMAT: &[BorrowedFormatItem<'_>] = format_description!("[year][month][day]T[hour]Z");

/// How many characters the hour has.
const HOUR_LENGTH: usize = "20260101T00Z".len();

const HOUR_SECONDS: u64 = 3600;

/// How often counts go to the file: so much of them is lost where the process is killed.
const SAVE_INTERVAL: Duration = Duration::from_secs(60);

/// Memory for the counts of one hour.
const MAX_TABLE_BYTES: u64 = 64 << 20;

/// The part of `maxBytes` that an hour may take: 1 / this.
const HOUR_PART: u64 = 8;

/// Memory kept for the next batch.
const SPARE_BYTES: usize = 256 << 10;

/// What counts decisions.
#[derive(Debug, Clone)]
pub(crate) struct UsageCounters {
    /// Decisions that no file has.
    pub(crate) dropped: IntCounter,
    /// Decisions that are counted among others.
    pub(crate) other: IntCounter,
}

/// Counts decisions and writes the counts.
#[derive(Debug)]
pub(crate) struct UsageWriter {
    folder: BoundedFolder,
    counters: UsageCounters,
    /// How many clusters callers may speak for.
    clusters: Arc<AtomicUsize>,
    current: Option<OpenHour>,
    /// The last write failed.
    is_broken: bool,
}

/// The hour that is counted.
#[derive(Debug)]
struct OpenHour {
    /// Hours since 1970.
    hour: u64,
    path: PathBuf,
    table: UsageTable,
    /// How many decisions are in the file, and when it was written.
    saved: u64,
    saved_at: SystemTime,
}

// === impl UsageWriter ===

impl UsageWriter {
    /// # Errors
    ///
    /// The folder cannot be made or read.
    pub(crate) fn open(
        bounds: &FolderBounds,
        counters: UsageCounters,
        clusters: Arc<AtomicUsize>,
        now: SystemTime,
    ) -> io::Result<Self> {
        Ok(Self {
            folder: BoundedFolder::open(bounds, begun, now)?,
            counters,
            clusters,
            current: None,
            is_broken: false,
        })
    }

    /// Counts the questions of `batch`, in the hour of `now`.
    fn count(&mut self, batch: &UsageBatch, now: SystemTime) {
        self.end_hour(now);
        let hour = hours(now);
        let current = self.current.get_or_insert_with(|| {
            let bytes = MAX_TABLE_BYTES.min(self.folder.bounds().max_bytes / HOUR_PART);
            let clusters = self.clusters.load(Ordering::Relaxed);
            OpenHour {
                hour,
                path: self.folder.path().join(file_name(hour)),
                table: UsageTable::new(usize::try_from(bytes).unwrap_or(usize::MAX), clusters),
                saved: 0,
                saved_at: now,
            }
        });
        for (question, text) in batch.questions() {
            if current.table.count(question, text) == CountedIn::Other {
                self.counters.other.inc();
            }
        }
    }

    /// Writes what is due at `now`; after how long there may be more to do.
    fn save_due(&mut self, now: SystemTime) -> Duration {
        self.end_hour(now);
        let Some(current) = &self.current else {
            return SAVE_INTERVAL;
        };
        // A clock that was set back says nothing.
        let since = now.duration_since(current.saved_at).unwrap_or(SAVE_INTERVAL);
        if since < SAVE_INTERVAL {
            return SAVE_INTERVAL - since;
        }
        self.save(now);
        SAVE_INTERVAL
    }

    /// Ends the file of another hour than that of `now`. What could not be written is lost.
    fn end_hour(&mut self, now: SystemTime) {
        let is_over = self
            .current
            .as_ref()
            .is_some_and(|current| current.hour != hours(now));
        if is_over {
            self.save(now);
            self.folder.try_enforce_bounds(None, now);
            self.close();
        }
    }

    /// Forgets the hour, and counts what is in no file.
    fn close(&mut self) {
        if let Some(ended) = self.current.take() {
            self.counters
                .dropped
                .inc_by(ended.table.decisions() - ended.saved);
        }
    }

    /// Writes the counts so far, if there are new ones.
    fn save(&mut self, now: SystemTime) {
        let Some(current) = &mut self.current else { return };
        current.saved_at = now;
        if current.saved == current.table.decisions() {
            return;
        }
        let header = format!(
            "{{\"portcullisUsage\":{FORMAT_VERSION},\"program\":\"portcullis {}\",\"hour\":\"{}\"}}\n",
            env!("CARGO_PKG_VERSION"),
            timestamp(current.hour * HOUR_SECONDS)
        );
        let written = self.folder.create().and_then(|()| {
            files::replace(&current.path, |out| {
                out.write_all(header.as_bytes())?;
                current.table.write(out)
            })
        });
        match written {
            Ok(()) => {
                current.saved = current.table.decisions();
                self.is_broken = false;
            }
            Err(error) => {
                if !self.is_broken {
                    tracing::error!(%error, "cannot write the counts of decisions: trying again each minute");
                }
                self.is_broken = true;
            }
        }
        self.folder.try_enforce_bounds(Some(&current.path), now);
    }
}

impl BatchWriter<UsageBatch> for UsageWriter {
    fn write(&mut self, batch: &mut UsageBatch, _: u64) -> u64 {
        self.count(batch, SystemTime::now());
        batch.clear(SPARE_BYTES);
        0
    }

    fn flush(&mut self) {
        self.save(SystemTime::now());
    }

    fn idle(&mut self) -> Option<Duration> {
        Some(self.save_due(SystemTime::now()))
    }
}

impl Drop for UsageWriter {
    /// The configuration asks for no counts any more, or for others.
    fn drop(&mut self) {
        self.save(SystemTime::now());
        self.close();
    }
}

fn hours(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / HOUR_SECONDS
}

/// A name that no other file has: replicas may share the folder, and a process starts again.
fn file_name(hour: u64) -> String {
    let begun = OffsetDateTime::from(UNIX_EPOCH + Duration::from_secs(hour * HOUR_SECONDS));
    let hour = begun.format(HOUR_FORMAT).unwrap_or_default();
    format!("{PREFIX}{hour}-{}{SUFFIX}", uuid::Uuid::new_v4().simple())
}

/// When the hour of the file of this name began; `None` where it is no file of usage. One that was
/// not put in its place, because the process was killed, is one, too.
fn begun(name: &str) -> Option<SystemTime> {
    let hour = name.strip_prefix(PREFIX)?.get(..HOUR_LENGTH)?;
    let date = hour.strip_suffix('Z')?;
    let time = PrimitiveDateTime::parse(
        &format!("{date}00"),
        format_description!("[year][month][day]T[hour][minute]"),
    )
    .ok()?;
    Some(time.assume_utc().into())
}

/// Whether a file of this name is one of usage.
pub(crate) fn is_usage_file(name: &str) -> bool {
    begun(name).is_some()
}

#[cfg(test)]
mod tests;
