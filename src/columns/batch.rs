//! The values of columns, decoded some rows at a time from pages that were checked.

use std::fmt::Write as _;
use std::io;

use bytes::{Buf as _, Bytes};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use super::Values;
use super::bounds::BoundsError;
use crate::config::files;

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ColumnError {
    #[error("{}", files::describe(.0))]
    Io(#[from] io::Error),
    #[error("it is not a whole Parquet file: was it copied completely?")]
    NoParquet,
    #[error("it has no column `{0}`: is it one that `portcullis pack` wrote?")]
    NoColumn(String),
    #[error("the column `{0}` has another type than `portcullis pack` gives it")]
    OtherType(String),
    #[error(
        "version {0} of its columns is newer than this program: use the version of portcullis that wrote it, or a later one"
    )]
    Newer(String),
    #[error("it has reviews of a recording, not decisions: `portcullis replay` reads it")]
    Recording,
    #[error("it does not lie in a folder `cluster=NAME`, which says whose decisions these are")]
    NoCluster,
    #[error("it is refused: {0}")]
    Bounds(#[from] BoundsError),
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// The library gave up in the middle.
    #[error("it is damaged, in row group {0}")]
    Broken(usize),
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "what `map_err` calls takes the error"
)]
pub(crate) fn damaged(error: ParquetError) -> ColumnError {
    ColumnError::Damaged(error.to_string())
}

/// The pages of one column, which were checked, at their place in the file.
pub(crate) struct ChunkBytes {
    pub(crate) start: u64,
    pub(crate) bytes: Bytes,
}

// === impl ChunkBytes ===

impl ChunkBytes {
    fn behind(&self, start: u64) -> Result<Bytes, ParquetError> {
        let offset = start
            .checked_sub(self.start)
            .and_then(|offset| usize::try_from(offset).ok());
        match offset {
            Some(offset) if offset <= self.bytes.len() => Ok(self.bytes.slice(offset..)),
            _ => Err(ParquetError::EOF("a page lies outside of its column".to_owned())),
        }
    }
}

impl Length for ChunkBytes {
    fn len(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl ChunkReader for ChunkBytes {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        self.behind(start).map(bytes::Buf::reader)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let bytes = self.behind(start)?;
        if length > bytes.remaining() {
            return Err(ParquetError::EOF("a page lies outside of its column".to_owned()));
        }
        Ok(bytes.slice(..length))
    }
}

/// The values of a column in some rows.
pub(crate) enum StoredValues {
    Texts(Vec<Option<ByteArray>>),
    /// Flags are 0 and 1, seconds the bits of their `f64`.
    Numbers(Vec<Option<i64>>),
}

pub(crate) fn read_batch(
    readers: &mut [(ColumnReader, i16)],
    count: usize,
) -> Result<Vec<StoredValues>, ColumnError> {
    let mut batch = Vec::with_capacity(readers.len());
    for (reader, most) in readers {
        let most = *most;
        batch.push(match reader {
            ColumnReader::ByteArrayColumnReader(reader) => {
                StoredValues::Texts(values(reader, most, count, |text| text)?)
            }
            ColumnReader::Int64ColumnReader(reader) => {
                StoredValues::Numbers(values(reader, most, count, |number| number)?)
            }
            ColumnReader::Int32ColumnReader(reader) => {
                StoredValues::Numbers(values(reader, most, count, i64::from)?)
            }
            ColumnReader::DoubleColumnReader(reader) => {
                let bits = |number: f64| number.to_bits().cast_signed();
                StoredValues::Numbers(values(reader, most, count, bits)?)
            }
            ColumnReader::BoolColumnReader(reader) => {
                StoredValues::Numbers(values(reader, most, count, i64::from)?)
            }
            _ => return Err(ColumnError::Damaged("a column has another type".to_owned())),
        });
    }
    Ok(batch)
}

fn values<T: DataType, V>(
    reader: &mut ColumnReaderImpl<T>,
    most: i16,
    count: usize,
    convert: impl Fn(T::T) -> V,
) -> Result<Vec<Option<V>>, ColumnError> {
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    let (read, _, _) = reader
        .read_records(count, Some(&mut levels), None, &mut values)
        .map_err(damaged)?;
    if read != count {
        let what = "a column has fewer rows than its row group".to_owned();
        return Err(ColumnError::Damaged(what));
    }
    let mut values = values.into_iter().map(convert);
    if most == 0 {
        return Ok(values.map(Some).collect());
    }
    let value = |level: i16| (level == most).then(|| values.next()).flatten();
    Ok(levels.into_iter().map(value).collect())
}

// === impl StoredValues ===

impl StoredValues {
    pub(crate) fn has(&self, row: usize) -> bool {
        match self {
            Self::Texts(values) => matches!(values.get(row), Some(Some(_))),
            Self::Numbers(values) => matches!(values.get(row), Some(Some(_))),
        }
    }

    pub(crate) fn number(&self, row: usize) -> Option<i64> {
        match self {
            Self::Texts(_) => None,
            Self::Numbers(values) => values.get(row).copied().flatten(),
        }
    }

    pub(crate) fn text(&self, row: usize) -> Result<&str, ColumnError> {
        let bytes = match self {
            Self::Texts(values) => values.get(row).and_then(Option::as_ref).map(ByteArray::data),
            Self::Numbers(_) => None,
        };
        str::from_utf8(bytes.unwrap_or_default())
            .map_err(|_| ColumnError::Damaged("a text is not UTF-8".to_owned()))
    }

    pub(crate) fn write_number(&self, row: usize, holds: Values, out: &mut String) {
        let number = self.number(row).unwrap_or_default();
        // Writing to a String does not fail.
        let _infallible = match holds {
            Values::Flag => write!(out, "{}", number != 0),
            Values::Seconds => {
                let seconds = f64::from_bits(number.cast_unsigned());
                let seconds = if seconds.is_finite() { seconds } else { 0.0 };
                write!(out, "{seconds}")
            }
            _ => write!(out, "{number}"),
        };
    }

    pub(crate) fn is_same(&self, one: usize, other: usize) -> bool {
        match self {
            Self::Numbers(values) => values.get(one) == values.get(other),
            Self::Texts(values) => match (values.get(one), values.get(other)) {
                (Some(Some(one)), Some(Some(other))) => {
                    let (one, other) = (one.data(), other.data());
                    // Of a dictionary it is the same memory.
                    std::ptr::eq(one, other) || one == other
                }
                (Some(one), Some(other)) => one.is_none() && other.is_none(),
                _ => false,
            },
        }
    }
}
