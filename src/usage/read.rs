//! Reads usage files, and merges them: the counts of equal rows are added.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use memchr::memmem;
use serde::Deserialize;

use super::files::{SUFFIX, is_usage_file};
use super::table::FORMAT_VERSION;
use crate::config::files;
use portcullis_policy::explain::logged::{LoggedAttributes, LoggedDecision, LoggedObject, LoggedSelector};

/// The longest line that is read. The longest line of the gateway has less than a tenth of that.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// The most bytes of distinct rows that are collected for merging before they are passed on.
const MAX_MERGED_BYTES: usize = 256 << 20;

/// The memory of a collected row in addition to its text, in bytes.
const ROW_BYTES: usize = 128;

/// The beginning of the decision in a row.
const ANSWER: &[u8] = b",\"decision\":\"";

/// The beginning of the counts in a row.
const COUNTS: &[u8] = b",\"count\":";

/// A row of one or more files: a question, the decision, and how often both occurred.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UsageRow<'l> {
    /// The cluster.
    #[serde(borrow)]
    pub cluster: Cow<'l, str>,
    /// The caller, if it uses a path token; otherwise empty.
    #[serde(borrow)]
    pub caller: Cow<'l, str>,
    /// The user; empty if several users are counted together.
    #[serde(borrow)]
    pub user: Cow<'l, str>,
    /// The digest of the user's groups.
    #[serde(borrow)]
    pub groups_digest: Cow<'l, str>,
    /// The digest of the user's `extra`.
    #[serde(borrow)]
    pub extra_digest: Cow<'l, str>,
    /// The digest of the selectors.
    #[serde(borrow)]
    pub selectors_digest: Cow<'l, str>,
    /// Whether it counts several questions, of which only the verb is known.
    pub other: bool,
    /// The endpoint: `authorize`, `validate` or `mutate`.
    #[serde(borrow)]
    pub endpoint: Cow<'l, str>,
    /// The attributes of the request.
    #[serde(borrow)]
    pub attributes: LoggedAttributes<'l>,
    /// The decision.
    #[serde(borrow)]
    pub decision: Cow<'l, str>,
    /// The object that decided.
    #[serde(borrow)]
    pub cause: Option<LoggedObject<'l>>,
    /// The policies in Shadow that would have decided otherwise.
    #[serde(borrow)]
    pub shadow: Vec<LoggedObject<'l>>,
    /// The exceptions that lifted denials.
    #[serde(borrow)]
    pub exceptions: Vec<LoggedObject<'l>>,
    /// Whether strings were truncated.
    pub truncated: bool,
    /// How often it occurred.
    pub count: u64,
    /// The first time, RFC 3339.
    #[serde(borrow)]
    pub first: Cow<'l, str>,
    /// The last time.
    #[serde(borrow)]
    pub last: Cow<'l, str>,
}

/// Where a row occurred first.
#[derive(Debug, Clone, Copy)]
pub struct RowPlace<'f> {
    /// The file.
    pub file: &'f Path,
    /// The line in it, from 1.
    pub line: u64,
}

/// Why usage files cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UsageError {
    /// A file or folder cannot be read.
    #[error("{source}")]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A folder contains no usage file.
    #[error("there is no file of usage in `{}`: name the folder of `usage.folder`", .0.display())]
    Empty(PathBuf),
    /// A file does not begin with the header of a usage file.
    #[error("`{}` is not a file of usage: the first line does not contain `portcullisUsage`", .0.display())]
    NoUsage(PathBuf),
    /// A row is invalid.
    #[error("{0}")]
    Broken(String),
    /// There are too many distinct rows.
    #[error("there are too many different questions: name fewer files of usage")]
    TooMany,
    /// A file has a format of a later version.
    #[error(
        "`{}` has format {found} of usage, which is newer than this program, which reads up to {FORMAT_VERSION}: use the version of portcullis that wrote it, or a later one",
        .path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version of its format.
        found: u64,
    },
}

/// Receives the rows that are read.
pub trait UsageReader {
    /// The error with which the receiver stops the reading.
    type Error: From<UsageError>;

    /// Receives a row. Equal rows are merged into one, unless there are very many distinct rows.
    ///
    /// # Errors
    ///
    /// An error stops the reading.
    fn row(&mut self, row: UsageRow<'_>, place: RowPlace<'_>) -> Result<(), Self::Error>;

    /// Receives the place of an invalid line, and the reason.
    fn broken(&mut self, place: RowPlace<'_>, why: &str);
}

/// The first line of a file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct UsageHeader {
    portcullis_usage: u64,
    #[serde(default)]
    hour: String,
}

/// How often each question was asked, with any decision.
#[derive(Debug)]
pub struct UsageWeights(MergedRows);

/// How often a question was asked, and when.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageWeight {
    /// How often it was asked.
    pub count: u64,
    /// The first time, RFC 3339.
    pub first: String,
    /// The last time.
    pub last: String,
}

/// Rows that differ only in their counts, by their text before the counts.
#[derive(Debug, Default)]
struct MergedRows {
    by_text: HashMap<Box<[u8]>, MergedCounts>,
    bytes: usize,
    /// Whether rows that differ only in the decision are merged, too.
    without_answer: bool,
}

/// Accepts only rows that can be merged, and keeps the message about the first other one.
struct BrokenRows(Option<String>);

#[derive(Debug, Clone, Copy)]
struct MergedCounts {
    count: u64,
    first: WrittenTime,
    last: WrittenTime,
    /// The index of the file and the line of the first of the merged rows.
    file: usize,
    line: u64,
}

/// A time as it is written, `2026-01-01T00:00:00Z`: comparing the bytes compares the times.
type WrittenTime = [u8; 20];

/// Reads the files at `paths`, and those in the folders among them. Returns the number of files.
///
/// # Errors
///
/// A file cannot be read or is not a file of usage, or `reader` returns an error.
pub fn read_usage<R: UsageReader>(paths: &[PathBuf], reader: &mut R) -> Result<usize, R::Error> {
    let files = usage_files(paths)?;
    let mut merged = MergedRows::default();
    for (index, path) in files.iter().enumerate() {
        merged.add_file(&files, index, path, reader)?;
    }
    merged.hand_on(&files, reader)?;
    Ok(files.len())
}

/// The files at `paths`, and those in the folders among them, the oldest first.
pub(crate) fn usage_files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, UsageError> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let unreadable = |source| UsageError::Unreadable {
            path: path.clone(),
            source,
        };
        let before = files.len();
        for entry in fs::read_dir(path).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let name = entry.file_name();
            let is_usage = |name: &str| name.ends_with(SUFFIX) && is_usage_file(name);
            if name.to_str().is_some_and(is_usage) {
                files.push(entry.path());
            }
        }
        if files.len() == before {
            return Err(UsageError::Empty(path.clone()));
        }
    }
    files.sort();
    files.dedup();
    Ok(files)
}

// === impl UsageWeights ===

impl UsageWeights {
    /// Reads the files at `paths`, and those in the folders among them.
    ///
    /// # Errors
    ///
    /// A file cannot be read, is not a file of usage, or has a row that cannot be read.
    pub fn read(paths: &[PathBuf]) -> Result<Self, UsageError> {
        let files = usage_files(paths)?;
        let mut merged = MergedRows {
            without_answer: true,
            ..MergedRows::default()
        };
        let mut broken = BrokenRows(None);
        for (index, path) in files.iter().enumerate() {
            merged.add_file(&files, index, path, &mut broken)?;
            if let Some(broken) = broken.0.take() {
                return Err(UsageError::Broken(broken));
            }
        }
        Ok(Self(merged))
    }

    /// How often the question with this text (`question_text`) was asked; `None` if it never was,
    /// or if it was counted only together with others.
    #[must_use]
    pub fn of(&self, question: &str) -> Option<UsageWeight> {
        let counts = self.0.by_text.get(question.as_bytes())?;
        let text = |time: &WrittenTime| String::from_utf8_lossy(time).into_owned();
        Some(UsageWeight {
            count: counts.count,
            first: text(&counts.first),
            last: text(&counts.last),
        })
    }
}

// === impl UsageWeight ===

impl UsageWeight {
    /// Adds the count of `more`, and extends the period by it.
    pub fn add(&mut self, more: Self) {
        self.count = self.count.saturating_add(more.count);
        self.first = std::mem::take(&mut self.first).min(more.first);
        self.last = std::mem::take(&mut self.last).max(more.last);
    }

    /// Adds `more` to a sum that may be `None`.
    pub fn add_to(sum: &mut Option<Self>, more: Self) {
        match sum {
            Some(sum) => sum.add(more),
            None => *sum = Some(more),
        }
    }
}

// === impl BrokenRows ===

impl UsageReader for BrokenRows {
    type Error = UsageError;

    /// Receives rows whose members are in another order than the gateway's.
    fn row(&mut self, _: UsageRow<'_>, place: RowPlace<'_>) -> Result<(), UsageError> {
        self.broken(place, "not as the gateway writes it");
        Ok(())
    }

    fn broken(&mut self, place: RowPlace<'_>, why: &str) {
        let told = || format!("{}:{}: {why}", place.file.display(), place.line);
        self.0.get_or_insert_with(told);
    }
}

// === impl MergedRows ===

impl MergedRows {
    fn add_file<R: UsageReader>(
        &mut self,
        files: &[PathBuf],
        index: usize,
        path: &Path,
        reader: &mut R,
    ) -> Result<(), R::Error> {
        each_line(path, reader, |reader, place, line| {
            self.add(index, place, line, reader)?;
            if self.bytes > MAX_MERGED_BYTES {
                if self.without_answer {
                    return Err(UsageError::TooMany.into());
                }
                self.hand_on(files, reader)?;
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Adds a row. A row whose members are in another order, as another program may write it, is
    /// passed on directly.
    fn add<R: UsageReader>(
        &mut self,
        file: usize,
        place: RowPlace<'_>,
        line: &[u8],
        reader: &mut R,
    ) -> Result<(), R::Error> {
        let Some((mut text, counts)) = split(line) else {
            return match serde_json::from_slice(line) {
                Ok(row) => reader.row(row, place),
                Err(error) => {
                    reader.broken(place, &format!("not a row of usage: {error}"));
                    Ok(())
                }
            };
        };
        if self.without_answer {
            // Within a string, these quotes would be escaped.
            text = memmem::find(text, ANSWER).map_or(text, |end| text.get(..end).unwrap_or(text));
        }
        if let Some(known) = self.by_text.get_mut(text) {
            known.count = known.count.saturating_add(counts.count);
            known.first = known.first.min(counts.first);
            known.last = known.last.max(counts.last);
            return Ok(());
        }
        self.bytes += text.len() + ROW_BYTES;
        let line = place.line;
        self.by_text
            .insert(text.into(), MergedCounts { file, line, ..counts });
        Ok(())
    }

    /// Passes the merged rows to `reader`, in the order in which they first occurred.
    fn hand_on<R: UsageReader>(&mut self, files: &[PathBuf], reader: &mut R) -> Result<(), R::Error> {
        self.bytes = 0;
        let mut rows: Vec<_> = std::mem::take(&mut self.by_text).into_iter().collect();
        rows.sort_unstable_by_key(|(_, counts)| (counts.file, counts.line));
        for (text, counts) in rows {
            let file = files.get(counts.file).map(PathBuf::as_path);
            let place = RowPlace {
                file: file.unwrap_or(Path::new("")),
                line: counts.line,
            };
            let text = [&text, b"}".as_slice()].concat();
            match serde_json::from_slice::<UsageRow<'_>>(&text) {
                Ok(row) => reader.row(
                    UsageRow {
                        count: counts.count,
                        first: String::from_utf8_lossy(&counts.first),
                        last: String::from_utf8_lossy(&counts.last),
                        ..row
                    },
                    place,
                )?,
                Err(error) => reader.broken(place, &format!("not a row of usage: {error}")),
            }
        }
        Ok(())
    }
}

/// Reads the `wanted` rows of the file at `path` without merging them. Returns the hour of the
/// file.
///
/// # Errors
///
/// The file cannot be read or is not a file of usage, or `reader` returns an error.
pub(crate) fn read_rows<R: UsageReader>(
    path: &Path,
    reader: &mut R,
    wanted: &dyn Fn(&[u8]) -> bool,
) -> Result<String, R::Error> {
    each_line(path, reader, |reader, place, line| {
        if !wanted(line) {
            return Ok(());
        }
        match serde_json::from_slice(line) {
            Ok(row) => reader.row(row, place),
            Err(error) => {
                reader.broken(place, &format!("not a row of usage: {error}"));
                Ok(())
            }
        }
    })
}

/// Calls `each` with each row of the file at `path`, and returns the hour of the file.
fn each_line<R: UsageReader>(
    path: &Path,
    reader: &mut R,
    mut each: impl FnMut(&mut R, RowPlace<'_>, &[u8]) -> Result<(), R::Error>,
) -> Result<String, R::Error> {
    let unreadable = |source: io::Error| UsageError::Unreadable {
        path: path.to_owned(),
        source: io::Error::new(source.kind(), files::describe(&source)),
    };
    let mut input = BufReader::with_capacity(1 << 16, files::open(path).map_err(unreadable)?);
    let (mut line, mut hour) = (Vec::new(), String::new());
    for number in 1.. {
        line.clear();
        let read = (&mut input).take(MAX_LINE_BYTES).read_until(b'\n', &mut line);
        if read.map_err(unreadable)? == 0 && number > 1 {
            break;
        }
        let place = RowPlace {
            file: path,
            line: number,
        };
        if number == 1 {
            hour = header(path, &line)?.hour;
        } else if !line.ends_with(b"\n") {
            reader.broken(place, "cut off, or longer than any line of a file of usage");
            break;
        } else if !line.starts_with(b"{\"digest\":") {
            each(reader, place, &line)?;
        }
    }
    Ok(hour)
}

fn header(path: &Path, line: &[u8]) -> Result<UsageHeader, UsageError> {
    match serde_json::from_slice::<UsageHeader>(line) {
        Err(_) => Err(UsageError::NoUsage(path.to_owned())),
        Ok(header) if header.portcullis_usage > FORMAT_VERSION => Err(UsageError::Newer {
            path: path.to_owned(),
            found: header.portcullis_usage,
        }),
        Ok(header) => Ok(header),
    }
}

/// Splits a row into the text before its counts, and the counts. Returns `None` if the counts are
/// not at the end, where the gateway writes them.
fn split(line: &[u8]) -> Option<(&[u8], MergedCounts)> {
    let (text, counts) = line.split_at_checked(memmem::rfind(line, COUNTS)?)?;
    let counts = counts.strip_prefix(COUNTS)?.strip_suffix(b"}\n")?;
    let end = counts.iter().position(|byte| *byte == b',')?;
    let (count, times) = counts.split_at_checked(end)?;
    let times = times.strip_prefix(b",\"first\":\"")?;
    let (first, times) = times.split_first_chunk()?;
    let last = times.strip_prefix(b"\",\"last\":\"")?.strip_suffix(b"\"")?;
    let counts = MergedCounts {
        count: str::from_utf8(count).ok()?.parse().ok()?,
        first: timestamp(first)?,
        last: timestamp(last.try_into().ok()?)?,
        file: 0,
        line: 0,
    };
    Some((text, counts))
}

/// Returns `time` if it has the one format in which strings compare like times.
fn timestamp(time: &WrittenTime) -> Option<WrittenTime> {
    let form = b"0000-00-00T00:00:00Z";
    let fits = |(byte, form): (&u8, &u8)| match form {
        b'0' => byte.is_ascii_digit(),
        form => byte == form,
    };
    time.iter().zip(form).all(fits).then_some(*time)
}

// === impl UsageRow ===

impl<'l> UsageRow<'l> {
    /// The row as a line of the decision log with the members that all counted decisions have in
    /// common.
    #[must_use]
    pub fn into_logged(mut self) -> LoggedDecision<'l> {
        if !self.selectors_digest.is_empty() {
            self.attributes.field_selector = Some(LoggedSelector::default());
        }
        LoggedDecision {
            time: self.last,
            cluster: self.cluster,
            caller: self.caller,
            endpoint: self.endpoint,
            user: self.user,
            attributes: self.attributes,
            decision: self.decision,
            cause: self.cause,
            shadow: self.shadow,
            exceptions: self.exceptions,
            truncated: self.truncated,
            ..LoggedDecision::default()
        }
    }
}
