//! Converts a line to a row, and collects rows by column until they are written as a row group.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;

use bytes::Bytes;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};

use super::{Column, RowKind, Values};
use portcullis_cel::json::{Document, JsonError, Kind, Node};
use portcullis_policy::model::Time;

/// The assumed memory of a distinct value besides its bytes.
const VALUE_BYTES: usize = 128;

/// The number of strings in lists after which a batch is written.
const MAX_LIST_VALUES: usize = 1 << 16;

/// The columns by which decisions are sorted first, so that rows that are equal for `suggest` are
/// adjacent.
const SORTED_FIRST: [&str; 3] = ["user", "caller", "endpoint"];

/// The columns that differ in nearly all rows, by which decisions are sorted last.
const SORTED_LAST: [&str; 3] = ["uid", "webhooks", "reason"];

/// Why a line, or a file, cannot be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PackError {
    #[error("not a line of JSON: {0}")]
    NoJson(#[from] JsonError),
    #[error("not an object")]
    NoObject,
    /// A later version of the program wrote the line.
    #[error("the member `{0}` is not known: use the version of portcullis that wrote it, or a later one")]
    UnknownMember(String),
    #[error("`{0}` is missing")]
    Missing(String),
    #[error("`{0}` has a value that it cannot have")]
    Unexpected(String),
    #[error("`{name}` is longer than {most_bytes} bytes")]
    TooLong { name: String, most_bytes: usize },
    #[error("the cluster's name is too long for the name of a folder")]
    LongCluster,
    #[error("there are too many different hours and clusters: pack the log in parts")]
    TooManyFiles,
    #[error("cannot write `{}`: {source}", .path.display())]
    Unwritable { path: PathBuf, source: io::Error },
    #[error("cannot write a row group: {0}")]
    Parquet(#[from] ParquetError),
}

/// The rows of the next row group, by column.
pub(crate) struct WaitingRows {
    kind: RowKind,
    columns: Vec<WaitingColumn>,
    pub(crate) count: usize,
    pub(crate) bytes: usize,
}

enum WaitingColumn {
    /// Each distinct value once, and for each row the number of its value, from 1, or 0 if it has
    /// none.
    Values {
        rows: Vec<u32>,
        distinct: Vec<Bytes>,
        numbers: HashMap<Bytes, u32>,
    },
    Numbers(Vec<Option<i64>>),
}

/// The value of a column in a row.
pub(crate) enum Cell<'d> {
    Text(Cow<'d, str>),
    Number(i64),
}

// === impl PackError ===

impl PackError {
    /// Whether the error is in the line, so that other lines can be written.
    pub(crate) const fn is_of_line(&self) -> bool {
        !matches!(
            self,
            Self::TooManyFiles | Self::Unwritable { .. } | Self::Parquet(_)
        )
    }
}

/// The value of each column in the object `root`.
pub(crate) fn cells<'d>(kind: RowKind, root: Node<'d>) -> Result<Vec<Option<Cell<'d>>>, PackError> {
    if root.kind() != Kind::Object {
        return Err(PackError::NoObject);
    }
    let columns = kind.columns();
    let mut cells: Vec<Option<Cell<'d>>> = columns.iter().map(|_| None).collect();
    let mut next = 0;
    let mut take = |parent: &str, name: &str, node: Node<'d>| {
        let known = |(_, column): &(usize, &Column)| column.name == name && column.parent == parent;
        // Members usually have the order of the columns, so the search begins after the last one
        // found.
        let mut from_next = columns.iter().enumerate().cycle().skip(next).take(columns.len());
        let found = from_next.find(known);
        let (column, cell) = found
            .and_then(|(place, column)| {
                next = place + 1;
                Some((column, cells.get_mut(place)?))
            })
            .ok_or_else(|| {
                let dot = if parent.is_empty() { "" } else { "." };
                PackError::UnknownMember(format!("{parent}{dot}{name}"))
            })?;
        *cell = column.cell(node, kind.most_value_bytes())?;
        Ok::<(), PackError>(())
    };
    for (name, node) in root.entries() {
        match name.as_ref() {
            "cluster" => {}
            parent @ ("attributes" | "cause") => {
                for (name, node) in node.entries() {
                    take(parent, &name, node)?;
                }
            }
            name => take("", name, node)?,
        }
    }
    let missing = columns.iter().zip(&cells);
    let mut missing = missing.filter(|(column, cell)| column.is_required && cell.is_none());
    match missing.next() {
        Some((column, _)) => Err(PackError::Missing(column.path())),
        None => Ok(cells),
    }
}

// === impl Column ===

impl Column {
    fn cell<'d>(&self, node: Node<'d>, most_bytes: usize) -> Result<Option<Cell<'d>>, PackError> {
        if node.is_null() {
            return Ok(None);
        }
        let cell = match self.holds {
            Values::Time => {
                let time = node.as_str().and_then(|text| Time::parse(&text));
                time.map(|time| Cell::Number(time.as_microseconds()))
            }
            Values::Text => node.as_str().map(Cell::Text),
            Values::TextList => {
                let is_list = node.kind() == Kind::Array;
                let is_text = is_list && node.items().all(|item| item.kind() == Kind::String);
                is_text.then(|| Cell::Text(node.raw().into()))
            }
            Values::Json => {
                let is_one = matches!(node.kind(), Kind::Array | Kind::Object);
                // If the patch of a webhook was not JSON, it was recorded as a string.
                let is_one = is_one || node.kind() == Kind::String;
                is_one.then(|| Cell::Text(node.raw().into()))
            }
            Values::Whole => node.as_i64().map(Cell::Number),
            Values::Seconds => node
                .as_f64()
                .map(|value| Cell::Number(value.to_bits().cast_signed())),
            Values::Flag => node.as_bool().map(|value| Cell::Number(i64::from(value))),
        };
        let cell = cell.ok_or_else(|| PackError::Unexpected(self.path()))?;
        match &cell {
            Cell::Text(text) if text.len() > most_bytes => Err(PackError::TooLong {
                name: self.path(),
                most_bytes,
            }),
            _ => Ok(Some(cell)),
        }
    }
}

// === impl WaitingRows ===

impl WaitingRows {
    pub(crate) fn new(kind: RowKind) -> Self {
        let columns = kind.columns().iter().map(|column| match column.holds {
            Values::Text | Values::TextList | Values::Json => WaitingColumn::Values {
                rows: Vec::new(),
                distinct: Vec::new(),
                numbers: HashMap::new(),
            },
            Values::Time | Values::Whole | Values::Seconds | Values::Flag => {
                WaitingColumn::Numbers(Vec::new())
            }
        });
        Self {
            kind,
            columns: columns.collect(),
            count: 0,
            bytes: 0,
        }
    }

    pub(crate) fn add(&mut self, cells: Vec<Option<Cell<'_>>>) {
        self.count += 1;
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            self.bytes += column.add(cell);
        }
    }

    pub(crate) fn write(self, file: &mut SerializedFileWriter<File>) -> Result<(), PackError> {
        let order = self.order();
        let mut group = file.next_row_group()?;
        for (column, waiting) in self.kind.columns().iter().zip(self.columns) {
            let Some(mut writer) = group.next_column()? else {
                break;
            };
            waiting.write(column, &order, &mut writer)?;
            writer.close()?;
        }
        group.close()?;
        Ok(())
    }

    /// The order in which rows are written. Recordings keep their order. Decisions are sorted so
    /// that equal ones are adjacent, in order of time: then they take little space, and a program
    /// that counts them compares each distinct one once.
    fn order(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..u32::try_from(self.count).unwrap_or(u32::MAX)).collect();
        if self.kind == RowKind::Recording {
            return order;
        }
        let rank = |column: &Column| {
            let place = |names: &[&str]| names.iter().position(|name| *name == column.name);
            match (place(&SORTED_FIRST), place(&SORTED_LAST)) {
                _ if !column.parent.is_empty() => 10,
                (Some(place), _) => place,
                (_, Some(place)) => 20 + place,
                _ => 10,
            }
        };
        let columns = self.kind.columns().iter().zip(&self.columns);
        let mut by_rank: Vec<(usize, &[u32])> = columns
            .filter_map(|(column, waiting)| match waiting {
                WaitingColumn::Values { rows, .. } => Some((rank(column), rows.as_slice())),
                WaitingColumn::Numbers(_) => None,
            })
            .collect();
        by_rank.sort_by_key(|(rank, _)| *rank);
        let times = self.columns.iter().find_map(|waiting| match waiting {
            WaitingColumn::Numbers(numbers) => Some(numbers.as_slice()),
            WaitingColumn::Values { .. } => None,
        });
        let times = times.unwrap_or_default();
        order.sort_by(|one, other| {
            let [one, other] = [*one, *other].map(|row| row as usize);
            let texts = by_rank
                .iter()
                .map(|(_, rows)| rows.get(one).cmp(&rows.get(other)));
            let texts = texts.into_iter().find(|order| order.is_ne());
            texts.unwrap_or_else(|| times.get(one).cmp(&times.get(other)))
        });
        order
    }
}

// === impl WaitingColumn ===

impl WaitingColumn {
    /// Adds the value of a row. Returns the memory that it takes in bytes.
    fn add(&mut self, cell: Option<Cell<'_>>) -> usize {
        match (self, cell) {
            (Self::Numbers(rows), Some(Cell::Number(number))) => {
                rows.push(Some(number));
                16
            }
            (Self::Numbers(rows), _) => {
                rows.push(None);
                16
            }
            (
                Self::Values {
                    rows,
                    distinct,
                    numbers,
                },
                Some(Cell::Text(text)),
            ) => {
                let text = text.as_bytes();
                let last = rows.last().copied().unwrap_or_default();
                let is_last = |known: &Bytes| known.as_ref() == text;
                // Many values are the same as in the line before.
                if last > 0 && distinct.get(last as usize - 1).is_some_and(is_last) {
                    rows.push(last);
                    return 4;
                }
                if let Some(number) = numbers.get(text) {
                    rows.push(*number);
                    return 4;
                }
                let number = u32::try_from(distinct.len() + 1).unwrap_or(u32::MAX);
                let value = Bytes::copy_from_slice(text);
                distinct.push(value.clone());
                numbers.insert(value, number);
                rows.push(number);
                text.len() + VALUE_BYTES
            }
            (Self::Values { rows, .. }, _) => {
                rows.push(0);
                4
            }
        }
    }

    fn write(
        self,
        column: &Column,
        order: &[u32],
        writer: &mut SerializedColumnWriter<'_>,
    ) -> Result<(), PackError> {
        match self {
            Self::Numbers(rows) => {
                let rows = order.iter().map(|row| rows.get(*row as usize).copied().flatten());
                match column.holds {
                    Values::Flag => write::<BoolType>(column, rows.map(|row| Some(row? != 0)), writer),
                    Values::Seconds => {
                        let seconds = rows.map(|row| Some(f64::from_bits(row?.cast_unsigned())));
                        write::<DoubleType>(column, seconds, writer)
                    }
                    _ => write::<Int64Type>(column, rows, writer),
                }
            }
            Self::Values { rows, distinct, .. } => {
                let value = |row: &u32| {
                    let number = rows.get(*row as usize).copied().unwrap_or_default() as usize;
                    distinct.get(number.checked_sub(1)?).cloned()
                };
                let values = order.iter().map(value);
                if column.holds == Values::TextList {
                    return write_lists(values, writer);
                }
                write::<ByteArrayType>(column, values.map(|value| value.map(ByteArray::from)), writer)
            }
        }
    }
}

fn write<T: DataType>(
    column: &Column,
    rows: impl Iterator<Item = Option<T::T>>,
    writer: &mut SerializedColumnWriter<'_>,
) -> Result<(), PackError> {
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    for row in rows {
        levels.push(i16::from(row.is_some()));
        values.extend(row);
    }
    let levels = (!column.is_required).then_some(levels.as_slice());
    writer.typed::<T>().write_batch(&values, levels, None)?;
    Ok(())
}

/// Writes lists of strings, each of which is given as JSON.
fn write_lists(
    rows: impl Iterator<Item = Option<Bytes>>,
    writer: &mut SerializedColumnWriter<'_>,
) -> Result<(), PackError> {
    let writer = writer.typed::<ByteArrayType>();
    let (mut values, mut defined, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        let before = values.len();
        if let Some(list) = row {
            let list = Document::parse_bytes(&list)?;
            let texts = list.root().items().filter_map(Node::as_str);
            values.extend(texts.map(|text| ByteArray::from(text.into_owned().into_bytes())));
        }
        let count = values.len() - before;
        // An empty list has one level without a value.
        defined.extend(std::iter::repeat_n(i16::from(count > 0), count.max(1)));
        repeated.push(0);
        repeated.extend(std::iter::repeat_n(1, count.saturating_sub(1)));
        // A list is stored as one value until it is written, so a batch may have any number of
        // strings.
        if defined.len() >= MAX_LIST_VALUES {
            writer.write_batch(&values, Some(&defined), Some(&repeated))?;
            values.clear();
            defined.clear();
            repeated.clear();
        }
    }
    if !defined.is_empty() {
        writer.write_batch(&values, Some(&defined), Some(&repeated))?;
    }
    Ok(())
}
