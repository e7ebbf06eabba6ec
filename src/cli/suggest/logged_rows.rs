//! Reads decisions from logs with several threads, and combines equal ones.
//!
//! The relevant fields of a decision are serialized again, without its time. Equal lines in a part
//! of a file become one row, with a count and the first and last time.

use std::collections::HashMap;
use std::path::Path;

use super::usage::read_log;
use crate::cli::file_jobs::{FileJob, is_standard_input};
use crate::cli::output::CommandError;
use crate::columns::{Column, ColumnFile, RowKind, StoredRow, is_column_file};
use portcullis_policy::explain::logged::{LoggedAttributes, LoggedDecision, LoggedObject};
use portcullis_policy::model::Time;

/// The maximum memory for the rows of a part of a file, in bytes.
const MAX_PART_BYTES: usize = 8 << 20;

/// The memory for a row besides its line, which is held twice, in bytes.
const ROW_BYTES: usize = 160;

/// The relevant columns, in addition to those of attributes and causes.
const RELEVANT_COLUMNS: [&str; 8] = [
    "time",
    "caller",
    "endpoint",
    "user",
    "decision",
    "shadow",
    "exceptions",
    "truncated",
];

/// What a thread sends.
pub(crate) enum LogPart {
    Rows(Vec<LoggedRow>),
    /// The number of a line that cannot be read, and the reason.
    Broken(u64, String),
    /// The end of the file, with the number of lines that could be read.
    End {
        lines: u64,
    },
}

/// Equal decisions.
pub(crate) struct LoggedRow {
    /// The number of the first line or row, from 1.
    pub(crate) number: u64,
    /// The relevant fields, as a decision log line.
    line: String,
    pub(crate) count: u64,
    /// The first and the last time; `None` if the line has no valid time.
    pub(crate) times: Option<[Time; 2]>,
}

/// Collects the rows of a part of a file.
struct RowGatherer<'g, 'j> {
    job: &'g FileJob<'j, LogPart>,
    rows: Vec<LoggedRow>,
    /// The index of a row, by its line.
    places: HashMap<String, usize>,
    bytes: usize,
    lines: u64,
}

/// Reads a decision log, or a Parquet file of one.
///
/// # Errors
///
/// The file cannot be read, or is not a decision log.
pub(crate) fn read_rows(job: &FileJob<'_, LogPart>) -> Result<(), CommandError> {
    let mut gatherer = RowGatherer {
        job,
        rows: Vec::new(),
        places: HashMap::new(),
        bytes: 0,
        lines: 0,
    };
    if !is_standard_input(job.path) && is_column_file(job.path) {
        gatherer.read_columns()?;
    } else {
        gatherer.read_lines()?;
    }
    gatherer.send_rows()?;
    job.send(LogPart::End {
        lines: gatherer.lines,
    })
}

// === impl LoggedRow ===

impl LoggedRow {
    /// # Errors
    ///
    /// A Parquet file contains something other than a decision.
    pub(crate) fn decision(&self, file: &Path) -> Result<LoggedDecision<'_>, CommandError> {
        let (file, number) = (file.display(), self.number);
        serde_json::from_str(&self.line)
            .map_err(|error| CommandError::Usage(format!("`{file}`, row {number}: {error}")))
    }
}

// === impl RowGatherer ===

impl RowGatherer<'_, '_> {
    fn read_lines(&mut self) -> Result<(), CommandError> {
        let job = self.job;
        let mut sent = Ok(());
        let read = read_log(
            job.path,
            &mut |number, line| {
                let time = Time::parse(&line.time).map(|time| [time; 2]);
                let text = serde_json::to_string(&relevant_fields(line));
                let text = text.map_err(|error| CommandError::Usage(error.to_string()))?;
                self.add(number, &text, 1, time)
            },
            &mut |number, why| {
                let broken = job.send(LogPart::Broken(number, why.to_owned()));
                if sent.is_ok() {
                    sent = broken;
                }
            },
        );
        read.and(sent)
    }

    /// Reads the relevant columns.
    fn read_columns(&mut self) -> Result<(), CommandError> {
        let job = self.job;
        let columns = ColumnFile::open(job.path, RowKind::Decision)?;
        let is_wanted =
            |column: &Column| !column.parent.is_empty() || RELEVANT_COLUMNS.contains(&column.name);
        let make_room = |bytes| job.wait_if_large(bytes);
        columns.each_row(is_wanted, true, &make_room, &mut |row: StoredRow<'_>| {
            self.add(row.number, row.line, row.count, Some([row.first, row.last]))
        })
    }

    fn add(
        &mut self,
        number: u64,
        line: &str,
        count: u64,
        times: Option<[Time; 2]>,
    ) -> Result<(), CommandError> {
        self.lines += count;
        let place = self.places.get(line).and_then(|place| self.rows.get_mut(*place));
        if let Some(known) = place
            && let (Some([first, last]), Some([begin, end])) = (&mut known.times, times)
        {
            known.count += count;
            (*first, *last) = (begin.min(*first), end.max(*last));
            return Ok(());
        }
        self.places.insert(line.to_owned(), self.rows.len());
        self.bytes += ROW_BYTES + 2 * line.len();
        self.rows.push(LoggedRow {
            number,
            line: line.to_owned(),
            count,
            times,
        });
        if self.bytes > MAX_PART_BYTES {
            self.send_rows()?;
        }
        Ok(())
    }

    fn send_rows(&mut self) -> Result<(), CommandError> {
        self.places.clear();
        self.bytes = 0;
        self.job.send(LogPart::Rows(std::mem::take(&mut self.rows)))
    }
}

/// The relevant fields of a decision.
fn relevant_fields<'l>(line: &LoggedDecision<'l>) -> LoggedDecision<'l> {
    let object = |object: &LoggedObject<'l>| LoggedObject {
        kind: object.kind.clone(),
        namespace: object.namespace.clone(),
        name: object.name.clone(),
        rule: object.rule,
        ..LoggedObject::default()
    };
    LoggedDecision {
        cluster: line.cluster.clone(),
        caller: line.caller.clone(),
        endpoint: line.endpoint.clone(),
        user: line.user.clone(),
        attributes: LoggedAttributes {
            extra: Default::default(),
            ..line.attributes.clone()
        },
        decision: line.decision.clone(),
        cause: line.cause.as_ref().map(object),
        shadow: line.shadow.iter().map(object).collect(),
        exceptions: line.exceptions.iter().map(object).collect(),
        truncated: line.truncated,
        ..LoggedDecision::default()
    }
}
