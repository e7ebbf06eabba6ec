//! Decisions and recorded reviews as rows of Parquet files, which `portcullis pack` writes and
//! `suggest` and `replay` read, by column, as DuckDB, ClickHouse and Spark do.
//!
//! ```text
//! lines of JSON ─▶ rows by cluster, date and hour ─▶ row groups ─▶ cluster=…/date=…/hour=…/….parquet
//!                                                                         │
//! suggest, replay ◀─ lines of JSON, duplicates once ◀───── checked pages ◀┘
//! ```
//!
//! The columns are the members of the lines, with the same names. Members that a line does not have
//! are null. The cluster is in the path only, as in Hive: a partition key cannot be a column of the
//! file, too.

mod folder;
mod log;
mod pages;
mod read;
mod rows;
mod runs;
mod write;

use std::fmt::Write as _;

pub(crate) use log::{DecisionFiles, recording_files};
pub(crate) use read::{ColumnFile, ColumnFileError, StoredRow, column_files, is_column_file};
pub(crate) use write::{PackedFiles, Packer};

/// The version of both schemas. It stays the same for changes that a reader of this version may
/// ignore.
pub(crate) const SCHEMA_VERSION: u64 = 1;

/// The most rows that are buffered and sorted together.
const MAX_GROUP_ROWS: usize = 1 << 18;

/// What the rows of a file represent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowKind {
    /// Lines of the decision log.
    Decision,
    /// Lines of a recording.
    Recording,
}

/// A column: a member of the line, or of the object `parent` in the line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    /// Empty for a member of the line itself.
    pub(crate) parent: &'static str,
    pub(crate) name: &'static str,
    holds: Values,
    is_required: bool,
}

/// The type of the values of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Values {
    /// An instant, to the microsecond.
    Time,
    Text,
    /// A list of strings; empty if the line has none.
    TextList,
    /// A list or object, as JSON.
    Json,
    Whole,
    Seconds,
    Flag,
}

const fn column(name: &'static str, holds: Values) -> Column {
    Column {
        parent: "",
        name,
        holds,
        is_required: false,
    }
}

const fn required(name: &'static str, holds: Values) -> Column {
    Column {
        is_required: true,
        ..column(name, holds)
    }
}

const fn attribute(name: &'static str, holds: Values) -> Column {
    Column {
        parent: "attributes",
        ..column(name, holds)
    }
}

const fn cause(name: &'static str, holds: Values) -> Column {
    Column {
        parent: "cause",
        ..column(name, holds)
    }
}

/// In the order of the members of a line.
const DECISION: &[Column] = &[
    required("time", Values::Time),
    column("revision", Values::Text),
    column("caller", Values::Text),
    required("endpoint", Values::Text),
    column("phase", Values::Text),
    column("uid", Values::Text),
    column("user", Values::Text),
    column("groups", Values::TextList),
    attribute("verb", Values::Text),
    attribute("operation", Values::Text),
    attribute("namespace", Values::Text),
    attribute("group", Values::Text),
    attribute("version", Values::Text),
    attribute("resource", Values::Text),
    attribute("subresource", Values::Text),
    attribute("name", Values::Text),
    attribute("kind", Values::Text),
    attribute("path", Values::Text),
    attribute("dryRun", Values::Flag),
    attribute("fieldSelector", Values::Json),
    attribute("labelSelector", Values::Json),
    attribute("extra", Values::Json),
    required("decision", Values::Text),
    column("reason", Values::Text),
    cause("kind", Values::Text),
    cause("namespace", Values::Text),
    cause("name", Values::Text),
    cause("rule", Values::Whole),
    column("nearMisses", Values::Json),
    column("shadow", Values::Json),
    column("exceptions", Values::Json),
    column("webhooks", Values::Json),
    column("evaluationError", Values::Text),
    column("durationSeconds", Values::Seconds),
    column("truncated", Values::Flag),
];

const RECORDING: &[Column] = &[
    required("time", Values::Time),
    required("endpoint", Values::Text),
    column("name", Values::Text),
    column("caller", Values::Text),
    column("revision", Values::Text),
    required("decision", Values::Text),
    column("reason", Values::Text),
    cause("kind", Values::Text),
    cause("namespace", Values::Text),
    cause("name", Values::Text),
    cause("rule", Values::Whole),
    column("evaluationError", Values::Text),
    column("patch", Values::Json),
    column("authorizers", Values::Json),
    column("webhooks", Values::Json),
    column("redacted", Values::Json),
    required("review", Values::Json),
];

// === impl RowKind ===

impl RowKind {
    /// The columns, in the order of the file.
    pub(crate) const fn columns(self) -> &'static [Column] {
        match self {
            Self::Decision => DECISION,
            Self::Recording => RECORDING,
        }
    }

    /// The prefix of the names of its files.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Decision => "decisions",
            Self::Recording => "recordings",
        }
    }

    /// The key in a file's metadata that holds the schema version.
    const fn version_key(self) -> &'static str {
        match self {
            Self::Decision => "portcullis.decisions",
            Self::Recording => "portcullis.recordings",
        }
    }

    /// The most bytes of one value. Some pages with such values are read as a whole.
    const fn most_value_bytes(self) -> usize {
        match self {
            // The gateway truncates strings at 2 KiB, and lists at 32 KiB.
            Self::Decision => 64 << 10,
            Self::Recording => 128 << 20,
        }
    }

    /// The most bytes of a page: what the library puts into one, plus the values of one batch.
    const fn most_page_bytes(self) -> usize {
        match self {
            Self::Decision => 8 << 20,
            // A row group of recordings is written once it has 64 MiB.
            Self::Recording => 256 << 20,
        }
    }

    /// The most compressed bytes of the columns that are read of a row group.
    const fn most_group_bytes(self) -> usize {
        match self {
            Self::Decision => 128 << 20,
            Self::Recording => 256 << 20,
        }
    }

    /// The schema in the notation of Parquet's documentation.
    fn schema(self) -> String {
        let mut text = format!("message {} {{\n", self.name());
        let mut parent = "";
        for column in self.columns() {
            if column.parent != parent {
                if !parent.is_empty() {
                    text.push_str("}\n");
                }
                if !column.parent.is_empty() {
                    // Writing to a String does not fail.
                    let _infallible = writeln!(text, "required group {} {{", column.parent);
                }
                parent = column.parent;
            }
            column.declare(&mut text);
        }
        text.push('}');
        text
    }
}

// === impl Column ===

impl Column {
    /// The path of the column in the line, such as `attributes.verb`.
    pub(crate) fn path(&self) -> String {
        let dot = if self.parent.is_empty() { "" } else { "." };
        format!("{}{dot}{}", self.parent, self.name)
    }

    fn declare(&self, text: &mut String) {
        let name = self.name;
        let occurs = if self.is_required { "required" } else { "optional" };
        let _infallible = match self.holds {
            Values::Time => writeln!(text, "{occurs} int64 {name} (TIMESTAMP(MICROS, true));"),
            Values::Text | Values::Json => writeln!(text, "{occurs} binary {name} (STRING);"),
            Values::TextList => writeln!(
                text,
                "required group {name} (LIST) {{ repeated group list {{ required binary element (STRING); }} }}"
            ),
            Values::Whole => writeln!(text, "{occurs} int64 {name};"),
            Values::Seconds => writeln!(text, "{occurs} double {name};"),
            Values::Flag => writeln!(text, "{occurs} boolean {name};"),
        };
    }
}

#[cfg(test)]
mod tests;
