//! Counts decisions, and writes the counts to one usage file for each hour.

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

/// The prefix of the names of usage files. Other files in the folder are not touched.
const PREFIX: &str = "usage-";

/// The suffix of the names of usage files.
pub(crate) const SUFFIX: &str = ".jsonl";

/// The format of the hour in the name.
const HOUR_FORMAT: &[BorrowedFormatItem<'_>] = format_description!("[year][month][day]T[hour]Z");

/// The length of the hour in the name.
const HOUR_LENGTH: usize = "20260101T00Z".len();

const HOUR_SECONDS: u64 = 3600;

/// How often counts are written. Those since the last write are lost if the process is killed.
const SAVE_INTERVAL: Duration = Duration::from_secs(60);

/// The maximum memory for the counts of one hour, in bytes.
const MAX_TABLE_BYTES: u64 = 64 << 20;

/// The counts of one hour may take `maxBytes` divided by this.
const HOUR_PART: u64 = 8;

/// Metrics about counted decisions.
#[derive(Debug, Clone)]
pub(crate) struct UsageCounters {
    /// The decisions that are in no file.
    pub(crate) dropped: IntCounter,
    /// The decisions that are counted together with other requests, instead of by themselves.
    pub(crate) other: IntCounter,
}

/// Counts decisions and writes the counts.
#[derive(Debug)]
pub(crate) struct UsageWriter {
    folder: BoundedFolder,
    counters: UsageCounters,
    /// The number of clusters that callers belong to.
    clusters: Arc<AtomicUsize>,
    current: Option<OpenHour>,
    /// Whether the last write failed.
    is_broken: bool,
}

/// The counts of the current hour.
#[derive(Debug)]
struct OpenHour {
    /// Hours since 1970.
    hour: u64,
    path: PathBuf,
    table: UsageTable,
    /// The number of decisions in the file, and the time of the last attempt to write it.
    saved: u64,
    saved_at: SystemTime,
}

// === impl UsageWriter ===

impl UsageWriter {
    /// # Errors
    ///
    /// The folder cannot be created or read.
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

    /// Counts the requests in `batch` in the hour of `now`.
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

    /// Writes the counts if this is due at `now`. Returns the time until it may be due again.
    fn save_due(&mut self, now: SystemTime) -> Duration {
        self.end_hour(now);
        let Some(current) = &self.current else {
            return SAVE_INTERVAL;
        };
        // If the clock was set back, the counts are written now.
        let since = now.duration_since(current.saved_at).unwrap_or(SAVE_INTERVAL);
        if since < SAVE_INTERVAL {
            return SAVE_INTERVAL - since;
        }
        self.save(now);
        SAVE_INTERVAL
    }

    /// Ends the current hour if `now` is in another one. Counts that cannot be written are lost.
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

    /// Drops the counts of the hour, and counts the decisions that were not written as dropped.
    fn close(&mut self) {
        if let Some(ended) = self.current.take() {
            self.counters
                .dropped
                .inc_by(ended.table.decisions() - ended.saved);
        }
    }

    /// Writes the counts of the hour so far, if they have changed.
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
    /// Writes the counts, because the configuration has changed or the process ends.
    fn drop(&mut self) {
        self.save(SystemTime::now());
        self.close();
    }
}

fn hours(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / HOUR_SECONDS
}

/// A unique file name, because replicas may share the folder, and a process may be restarted within
/// the hour.
fn file_name(hour: u64) -> String {
    let begun = OffsetDateTime::from(UNIX_EPOCH + Duration::from_secs(hour * HOUR_SECONDS));
    let hour = begun.format(HOUR_FORMAT).unwrap_or_default();
    format!("{PREFIX}{hour}-{}{SUFFIX}", uuid::Uuid::new_v4().simple())
}

/// The beginning of the hour in the file name `name`; `None` if it is not that of a usage file. The
/// temporary file that a killed process leaves behind counts as a usage file, too.
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

/// Whether `name` is that of a usage file.
pub(crate) fn is_usage_file(name: &str) -> bool {
    begun(name).is_some()
}

#[cfg(test)]
mod tests;
