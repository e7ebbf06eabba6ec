//! Recordings: whole reviews and their responses in files, for `portcullis replay`.
//!
//! ```text
//! worker ──RecordedReview──▶ [queue, bounded] ──▶ writer thread: redaction ─▶ line ─▶ files, bounded by bytes and age
//!                                └── full: dropped and counted
//! replay ◀── RecordLine ◀── one line of a file
//! ```
//!
//! No response waits for redaction or for a disk: a worker copies a SubjectAccessReview once, and
//! hands over an AdmissionReview as it was decoded. A review that redaction cannot parse is not
//! recorded.
//!
//! The files are bounded by their total size and by age. The oldest are removed first.

mod read;
mod redaction;
mod review;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::iter;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use portcullis_cel::json;
use portcullis_cel::json::{Document, ObjectWriter, escape_bytes, write_list, write_string};
use portcullis_policy::model::{Cause, Time};
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{OffsetDateTime, PrimitiveDateTime};

pub(crate) use read::decision_of;
pub use read::{CallLine, RecordLine, RecordingError, RecordingHeader};
pub(crate) use redaction::QuotedSecrets;
pub use review::{ObjectState, RecordedBody, RecordedCall, RecordedDecision, RecordedReview, object_state};

use crate::config;
use crate::config::{FileFormat, FolderBounds, Redact};
use crate::telemetry::metrics::IntCounter;
use crate::telemetry::{BatchWriter, BoundedFolder, QueueSettings, SwitchedQueue, WriteQueue};

use redaction::{Redaction, TooManyPlaces, into_line, redacted_patch};

/// The most bytes of reviews in the queue: twice the default of `limits.bodyBytes`.
const MAX_PENDING_BYTES: usize = 64 << 20;

/// The current recording, if reviews are recorded.
#[derive(Debug)]
pub struct Recordings {
    queue: SwitchedQueue<config::RecordingSettings, Vec<RecordedReview>>,
    dropped: IntCounter,
    columns: Option<OpenColumns>,
}

/// Opens the folder of recordings in the Parquet format. The counter counts lost reviews.
pub(crate) type OpenColumns =
    fn(&config::RecordingSettings, &IntCounter, SystemTime) -> io::Result<Box<dyn RecordingSink>>;

/// Files to which the lines of reviews are appended.
pub(crate) trait RecordingSink: Send {
    /// Appends lines, each with its line break.
    ///
    /// # Errors
    ///
    /// The lines are lost.
    fn append(&mut self, lines: &[u8], now: SystemTime) -> io::Result<()>;

    /// Does periodic work such as rotation, and returns the time until it should be called again.
    fn maintain(&mut self, now: SystemTime) -> Duration;

    /// The most bytes that may be appended at once.
    fn max_append_bytes(&self) -> usize;

    /// Writes what is buffered.
    fn flush(&mut self, now: SystemTime);
}

/// The version of the format that is written, and the newest that can be read.
pub const FORMAT_VERSION: u64 = 1;

/// The prefix of the name of each file. Other files in the folder are not touched.
pub const PREFIX: &str = "recording-";

const SUFFIX: &str = ".jsonl";

/// The least number of files among which the size and age limits are divided, because only whole
/// files can be removed.
const MIN_FILES: u32 = 16;

/// The largest file, in bytes.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// The time at which a file was created, as its name has it.
const TIMESTAMP_FORMAT: &[BorrowedFormatItem<'_>] =
    format_description!("[year][month][day]T[hour][minute][second].[subsecond digits:6]Z");

/// Recording files in the JSON format.
#[derive(Debug)]
pub(crate) struct RecordingFiles {
    folder: BoundedFolder,
    open: Option<OpenFile>,
}

/// The file that is being written.
#[derive(Debug)]
struct OpenFile {
    file: File,
    path: PathBuf,
    /// The bytes of complete lines, including the header. If 0, nothing in the file is worth
    /// keeping.
    length: u64,
    begun: SystemTime,
}

/// The buffered bytes at which lines are written, even if more of the batch are to follow.
const BATCH_BYTES: usize = 1 << 20;

/// The capacity in bytes that the line buffer keeps between batches.
const SPARE_BYTES: usize = 256 << 10;

/// Writes reviews to files.
pub(crate) struct RecordingWriter {
    files: Box<dyn RecordingSink>,
    redact: Vec<Redact>,
    /// The lines that are not written yet, and their number.
    lines: String,
    count: u64,
    /// Whether the last write failed.
    is_broken: bool,
}

// === impl Recordings ===

impl Recordings {
    /// Records nothing until [`follow`](Self::follow). `dropped` counts lost reviews.
    #[must_use]
    pub fn new(dropped: IntCounter) -> Self {
        Self {
            queue: SwitchedQueue::new(),
            dropped,
            columns: None,
        }
    }

    /// Uses `columns` to open the folder if the settings have `format: parquet`.
    pub(crate) fn with_columns(self, columns: OpenColumns) -> Self {
        let columns = Some(columns);
        Self { columns, ..self }
    }

    /// Records according to `settings` from now on, or stops recording if `None`. Queued reviews
    /// are still written.
    ///
    /// # Errors
    ///
    /// The folder cannot be created or read, or the thread cannot be started. Nothing is recorded
    /// then.
    pub fn follow(&self, settings: Option<&config::RecordingSettings>) -> io::Result<()> {
        self.queue.apply(settings, |settings| {
            let now = SystemTime::now();
            let files: Box<dyn RecordingSink> = match settings.format {
                FileFormat::Json => Box::new(RecordingFiles::open(&settings.files, now)?),
                FileFormat::Parquet => {
                    let open = self.columns.ok_or(io::ErrorKind::Unsupported)?;
                    open(settings, &self.dropped, now)?
                }
            };
            let writer = RecordingWriter::new(files, settings);
            let queue = QueueSettings {
                thread: "recording",
                limit: MAX_PENDING_BYTES,
                dropped: self.dropped.clone(),
            };
            WriteQueue::start(writer, queue)
        })
    }

    /// Whether reviews are recorded.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.queue.is_on()
    }

    /// Queues the review, or drops and counts it if the queue is full. `review` is called only if
    /// reviews are recorded.
    pub fn record(&self, review: impl FnOnce() -> RecordedReview) {
        self.queue.push(|queue| {
            let review = review();
            let bytes = review.bytes();
            queue.push(bytes, |pending| pending.push(review));
        });
    }

    /// Waits until every queued review is written, for `limit` at most, and returns whether it is.
    #[must_use]
    pub fn flush(&self, limit: Duration) -> bool {
        self.queue.flush(limit)
    }
}

// === impl RecordingFiles ===

impl RecordingFiles {
    /// Creates the folder if it is missing, and removes files beyond the bounds.
    ///
    /// # Errors
    ///
    /// The folder cannot be created or read.
    pub(crate) fn open(bounds: &FolderBounds, now: SystemTime) -> io::Result<Self> {
        Ok(Self {
            folder: BoundedFolder::open(bounds, time_of_name, now)?,
            open: None,
        })
    }

    fn max_file_bytes(&self) -> u64 {
        (self.folder.bounds().max_bytes / u64::from(MIN_FILES)).min(MAX_FILE_BYTES)
    }

    fn is_full(&self, open: &OpenFile, more: u64, now: SystemTime) -> bool {
        let since = now.duration_since(open.begun).unwrap_or_default();
        open.length + more > self.max_file_bytes() || since >= self.folder.bounds().max_age / MIN_FILES
    }
}

impl RecordingSink for RecordingFiles {
    /// Appends lines, which must fit into one file together. Afterwards either all or none of them
    /// are in a file, unless the process ends meanwhile.
    ///
    /// # Errors
    ///
    /// The lines could not be written, or the file was removed. No file without lines is left.
    fn append(&mut self, lines: &[u8], now: SystemTime) -> io::Result<()> {
        let length = lines.len() as u64;
        let is_over = |open: &OpenFile| self.is_full(open, length, now) || !open.is_there();
        if self.open.as_ref().is_some_and(is_over) {
            self.open = None;
        }
        let header = if self.open.is_none() {
            header().len() as u64
        } else {
            0
        };
        if self.open.is_none() || !self.folder.has_room(length) {
            let open = self.open.as_ref().map(|open| open.path.as_path());
            self.folder.enforce_bounds(header + length, open, now)?;
        }
        let mut open = match self.open.take() {
            Some(open) => open,
            None => OpenFile::create(self.folder.path(), now)?,
        };
        let written = open.append(lines);
        if written.is_ok() {
            self.folder.add(header + length);
        }
        if open.length > 0 {
            self.open = Some(open);
        }
        written
    }

    /// Closes the current file when it is due, and removes files that are too old. Returns the time
    /// until it should be called again.
    fn maintain(&mut self, now: SystemTime) -> Duration {
        if self.open.as_ref().is_some_and(|open| self.is_full(open, 0, now)) {
            self.open = None;
        }
        let pause = self.folder.check_interval(MIN_FILES);
        let since = now.duration_since(self.folder.read_at()).unwrap_or(pause);
        if since < pause {
            return pause - since;
        }
        let open = self.open.as_ref().map(|open| open.path.as_path());
        self.folder.try_enforce_bounds(open, now);
        pause
    }

    fn max_append_bytes(&self) -> usize {
        usize::try_from(self.max_file_bytes()).unwrap_or(usize::MAX)
    }

    /// Nothing is buffered.
    fn flush(&mut self, _: SystemTime) {}
}

/// The time at which the file of this name was created; `None` if it is not a recording.
fn time_of_name(name: &str) -> Option<SystemTime> {
    let text = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    let time = PrimitiveDateTime::parse(text, TIMESTAMP_FORMAT).ok()?;
    Some(time.assume_utc().into())
}

// === impl OpenFile ===

impl OpenFile {
    fn create(folder: &Path, now: SystemTime) -> io::Result<Self> {
        // The names may be taken: another process may write to the same folder.
        let times = iter::successors(Some(now), |time| Some(*time + Duration::from_micros(1)));
        let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
        for time in times.take(100) {
            let name = OffsetDateTime::from(time)
                .format(TIMESTAMP_FORMAT)
                .map_err(io::Error::other)?;
            let path = folder.join(format!("{PREFIX}{name}{SUFFIX}"));
            match OpenOptions::new()
                .append(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)
            {
                Ok(file) => {
                    return Ok(Self {
                        file,
                        path,
                        length: 0,
                        begun: time,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    /// Appends lines, after the header if the file is new.
    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let header = if self.length == 0 { header() } else { String::new() };
        let written = self
            .file
            .write_all(header.as_bytes())
            .and_then(|()| self.file.write_all(lines));
        if let Err(error) = written {
            self.undo();
            return Err(error);
        }
        self.length += (header.len() + lines.len()) as u64;
        if self.is_there() {
            return Ok(());
        }
        self.length = 0;
        Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("`{}` was removed", self.path.display()),
        ))
    }

    /// Removes what was written of the lines, because a reader would take half a line for the end
    /// of the process. If that fails too, the reader finds that line cut off.
    fn undo(&mut self) {
        if self.length == 0 {
            // Remove the file: a full disk still accepts empty files, and each batch would leave
            // one.
            drop(fs::remove_file(&self.path));
        } else if self.file.set_len(self.length).is_err() {
            self.length = 0;
        }
    }

    /// Whether the file still exists at its path: what is written to a file after it, or its
    /// folder, was removed is lost.
    fn is_there(&self) -> bool {
        let identity = |found: fs::Metadata| (found.dev(), found.ino());
        let (named, own) = (fs::symlink_metadata(&self.path), self.file.metadata());
        matches!((named.map(identity), own.map(identity)), (Ok(named), Ok(own)) if named == own)
    }
}

/// The first line of each file.
fn header() -> String {
    let mut out = format!("{{\"portcullisRecording\":{},\"program\":", FORMAT_VERSION);
    write_string(&mut out, concat!("portcullis ", env!("CARGO_PKG_VERSION")));
    out.push_str("}\n");
    out
}

// === impl RecordingWriter ===

impl RecordingWriter {
    pub(crate) fn new(files: Box<dyn RecordingSink>, settings: &config::RecordingSettings) -> Self {
        Self {
            files,
            redact: settings.redact.clone(),
            lines: String::new(),
            count: 0,
            is_broken: false,
        }
    }

    /// Adds the line of a review. Returns the number of lost reviews.
    fn add(&mut self, review: &RecordedReview) -> u64 {
        let before = self.lines.len();
        if let Err(error) = write(&mut self.lines, review, &self.redact) {
            self.lines.truncate(before);
            tracing::warn!(%error, "a review that cannot be redacted is not recorded");
            return 1;
        }
        let (length, most) = (self.lines.len() - before, self.files.max_append_bytes());
        if length > most {
            self.lines.truncate(before);
            tracing::warn!(bytes = length, most, "a review is too long to be recorded");
            return 1;
        }
        let mut lost = 0;
        if self.lines.len() > most {
            // The earlier lines are written first.
            let last = self.lines.split_off(before);
            lost = self.flush();
            self.lines = last;
        }
        self.count += 1;
        if self.lines.len() >= BATCH_BYTES {
            lost += self.flush();
        }
        lost
    }

    /// Writes the lines. Returns the number of lost reviews.
    fn flush(&mut self) -> u64 {
        if self.lines.is_empty() {
            return 0;
        }
        let written = self.files.append(self.lines.as_bytes(), SystemTime::now());
        self.lines.clear();
        self.lines.shrink_to(SPARE_BYTES);
        let count = std::mem::take(&mut self.count);
        match written {
            Ok(()) => {
                self.is_broken = false;
                0
            }
            Err(error) => {
                if !self.is_broken {
                    tracing::error!(%error, "cannot write to the recording: reviews are lost");
                }
                self.is_broken = true;
                count
            }
        }
    }
}

impl BatchWriter<Vec<RecordedReview>> for RecordingWriter {
    fn write(&mut self, reviews: &mut Vec<RecordedReview>, _: u64) -> u64 {
        let mut lost = 0;
        for review in reviews.drain(..) {
            lost += self.add(&review);
        }
        lost + self.flush()
    }

    fn flush(&mut self) {
        self.files.flush(SystemTime::now());
    }

    fn idle(&mut self) -> Option<Duration> {
        Some(self.files.maintain(SystemTime::now()))
    }
}

/// Why a review is not recorded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LineError {
    /// The review is not valid JSON, so nothing can be redacted in it.
    #[error(transparent)]
    Unreadable(#[from] json::JsonError),
    #[error(transparent)]
    TooManyPlaces(#[from] TooManyPlaces),
}

/// Appends the line of `review`, with its line break.
///
/// # Errors
///
/// `out` then ends with an incomplete line.
pub(crate) fn write(out: &mut String, review: &RecordedReview, rules: &[Redact]) -> Result<(), LineError> {
    let (text, mut redaction) = match &review.body {
        RecordedBody::Access(body) => {
            let text = escape_bytes(body);
            // A body that is not exactly one JSON value would break the format of one line per
            // review.
            Document::parse(text.as_ref())?;
            (into_line(text.into_owned()), Redaction::default())
        }
        RecordedBody::Admission(read) => Redaction::of_review(read.review(), rules)?,
    };
    let mut written = Ok(());
    ObjectWriter::write(out, |fields| {
        fields.text("time", &Time::from(review.time).to_string());
        fields.text("endpoint", review.endpoint.as_str());
        fields.text_if_any("name", review.name.as_deref().unwrap_or_default());
        fields.text("cluster", &review.cluster);
        fields.text("caller", &review.caller);
        fields.text("revision", &review.revision);
        written = write_decision(fields, review, &mut redaction);
        write_opinions(fields, review);
        if !review.calls.is_empty() {
            let out = fields.key("webhooks");
            write_list(out, review.calls.iter().enumerate(), |out, (index, call)| {
                let at = format!("/webhooks/{index}");
                ObjectWriter::write(out, |fields| {
                    written = written.and(call.write(fields, &mut redaction, &at));
                });
            });
        }
        fields.texts_if_any("redacted", redaction.places());
        fields.json("review", &text);
    });
    out.push('\n');
    Ok(written?)
}

fn write_decision(
    fields: &mut ObjectWriter<'_>,
    review: &RecordedReview,
    redaction: &mut Redaction,
) -> Result<(), TooManyPlaces> {
    let decided = &review.decision;
    fields.text("decision", decided.decision.as_str());
    fields.text_if_any("reason", redaction.scrubbed(&decided.reason));
    if let Some(cause) = &decided.cause {
        write_cause(fields, cause);
    }
    fields.text_if_any("evaluationError", redaction.scrubbed(&decided.error));
    if !decided.patch.is_empty() {
        let patch = redacted_patch(decided.patch.as_bytes(), redaction, "/patch")?;
        fields.json("patch", &patch);
    }
    Ok(())
}

fn write_cause(fields: &mut ObjectWriter<'_>, cause: &Cause<'_>) {
    fields.object("cause", |fields| {
        fields.text("kind", cause.kind.as_str());
        fields.text_if_any("namespace", &cause.namespace);
        fields.text_if_any("name", &cause.name);
        if let Some(rule) = cause.rule {
            fields.json("rule", &rule.to_string());
        }
    });
}

fn write_opinions(fields: &mut ObjectWriter<'_>, review: &RecordedReview) {
    if review.opinions.is_empty() {
        return;
    }
    fields.list("authorizers", &review.opinions, |out, named| {
        ObjectWriter::write(out, |fields| {
            fields.text("name", &named.name);
            fields.text("decision", named.opinion.decision.as_str());
            fields.text_if_any("reason", &named.opinion.reason);
            if let Some(error) = &named.opinion.error {
                fields.text("error", error);
            }
        });
    });
}

#[cfg(test)]
mod tests;
