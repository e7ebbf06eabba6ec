//! The pages of columns in a file from an untrusted source: the sizes that they declare are
//! checked.
//!
//! The library that decodes them trusts the sizes in a file: a page of 40 bytes may declare 2 GB,
//! or a dictionary of two billion entries. Therefore the metadata and the page headers, which are
//! in Thrift's compact protocol, are checked here before the library allocates memory for them.

use std::io;

use bytes::{Buf as _, Bytes};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use super::MAX_GROUP_ROWS;
use crate::config::files;

/// The most bytes of the metadata of a file. A row group of `pack` takes 4 KB of it.
pub(crate) const MAX_METADATA_BYTES: usize = 4 << 20;

/// The most items of all lists in the metadata. Each takes up to 1 KB in memory.
const MAX_METADATA_ITEMS: usize = 1 << 16;

/// The most rows of a row group that is read. Other programs may write larger ones than `pack`.
pub(crate) const MAX_FOREIGN_GROUP_ROWS: usize = MAX_GROUP_ROWS << 4;

const MAX_DEPTH: usize = 16;

/// The encodings that are accepted: plain, dictionary, run-length (levels and booleans), and delta
/// (times). Others take memory for as many values as they declare.
const ENCODINGS: [i64; 5] = [0, 2, 3, 5, 8];

/// Why a file cannot be read safely.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BoundsError(&'static str);

const CUT: BoundsError = BoundsError("its metadata or the header of a page is cut or damaged");

/// Checks a file's metadata.
///
/// # Errors
///
/// It is incomplete, or exceeds a limit.
pub(crate) fn check_metadata(bytes: &[u8]) -> Result<(), BoundsError> {
    let mut walk = ThriftWalk {
        rest: bytes,
        items: MAX_METADATA_ITEMS,
    };
    walk.fields(0, &mut |_, _, _| Ok(()))
}

/// Checks the consecutive pages of a column in a row group, of which each may have `most` bytes
/// decompressed, and returns the size of the largest.
///
/// # Errors
///
/// A page is incomplete, or exceeds a limit.
pub(crate) fn check_pages(mut chunk: &[u8], most: usize) -> Result<usize, BoundsError> {
    let mut largest = 0;
    while !chunk.is_empty() {
        let mut walk = ThriftWalk {
            rest: chunk,
            items: MAX_METADATA_ITEMS,
        };
        let mut header = PageClaims::default();
        walk.fields(0, &mut |parents, field, value| header.note(parents, field, value))?;
        let (bytes, compressed) = header.check(most)?;
        largest = largest.max(bytes);
        chunk = walk.rest.get(compressed..).ok_or(CUT)?;
    }
    Ok(largest)
}

/// The sizes and encodings that a page header declares.
#[derive(Debug, Default)]
struct PageClaims {
    bytes: i64,
    compressed: i64,
    /// The values of a data page.
    values: Option<i64>,
    dictionary: i64,
    has_other_encoding: bool,
}

/// A field that is not a list, or the beginning of a struct.
#[derive(Debug, Clone, Copy)]
enum FieldValue {
    Flag,
    /// A signed number, with its Thrift type.
    Number(u8, i64),
    Struct,
    Other,
}

/// Thrift's compact type of a 32-bit number.
const I32: u8 = 5;

// === impl PageClaims ===

impl PageClaims {
    /// Records a field of `PageHeader` in parquet.thrift, or of the header within it of a data page
    /// (5), a dictionary page (7), or a data page of version 2 (8). The library reads each field as
    /// the type that parquet.thrift gives it, so a field of another type is an error.
    fn note(&mut self, parents: &[i16], field: i16, value: FieldValue) -> Result<(), BoundsError> {
        let number = match value {
            FieldValue::Number(I32, number) => Some(number),
            _ => None,
        };
        let is_expected = match (parents, field) {
            ([], 1..=4) | ([5], 1..=4) | ([7], 1..=2) | ([8], 1..=6) => number.is_some(),
            ([], 5..=8) | ([5], 5) | ([8], 8) => matches!(value, FieldValue::Struct),
            ([7], 3) | ([8], 7) => matches!(value, FieldValue::Flag),
            // Statistics, and the header of an index page, which the library ignores.
            ([6] | [_, _, ..], _) => true,
            _ => false,
        };
        if !is_expected {
            return Err(CUT);
        }
        match (parents, field, number) {
            ([], 2, Some(number)) => self.bytes = number,
            ([], 3, Some(number)) => self.compressed = number,
            ([7], 1, Some(number)) => self.dictionary = number,
            ([5 | 8], 1, Some(number)) => self.values = Some(number),
            ([5], 2..=4, Some(number)) | ([7], 2, Some(number)) | ([8], 4, Some(number)) => {
                self.has_other_encoding |= !ENCODINGS.contains(&number);
            }
            _ => {}
        }
        Ok(())
    }

    /// Checks the header, and returns the size of the page and its compressed size, in bytes after
    /// the header.
    fn check(&self, most: usize) -> Result<(usize, usize), BoundsError> {
        let bytes = usize::try_from(self.bytes).map_err(|_| CUT)?;
        let is_within = |value: i64, most: usize| usize::try_from(value).is_ok_and(|value| value <= most);
        if bytes > most {
            return Err(BoundsError(
                "a page is larger than any that `portcullis pack` writes",
            ));
        }
        if self.has_other_encoding {
            return Err(BoundsError("a page is encoded as `portcullis pack` encodes none"));
        }
        // Each entry of a dictionary takes at least four bytes.
        let values = self.values.unwrap_or_default();
        if !is_within(self.dictionary, bytes / 4) || !is_within(values, MAX_FOREIGN_GROUP_ROWS) {
            return Err(BoundsError("a page claims more values than it can have"));
        }
        // Any number of such pages would add no row.
        if self.values == Some(0) {
            return Err(BoundsError("a page has no values"));
        }
        let compressed = usize::try_from(self.compressed).map_err(|_| CUT)?;
        Ok((bytes, compressed))
    }
}

/// What takes a field, with the numbers of the fields that it is in.
type NoteField<'n> = &'n mut dyn FnMut(&[i16], i16, FieldValue) -> Result<(), BoundsError>;

/// A walk over values in Thrift's compact protocol.
#[derive(Debug)]
struct ThriftWalk<'b> {
    rest: &'b [u8],
    /// The number of list items that are still allowed.
    items: usize,
}

// === impl ThriftWalk ===

impl ThriftWalk<'_> {
    /// Walks the fields of a struct within `depth` others, and calls `note` with each field, after
    /// the numbers of the fields that it is in.
    fn fields(&mut self, depth: usize, note: NoteField<'_>) -> Result<(), BoundsError> {
        self.fields_within(&mut Vec::new(), depth, note)
    }

    fn fields_within(
        &mut self,
        parents: &mut Vec<i16>,
        depth: usize,
        note: NoteField<'_>,
    ) -> Result<(), BoundsError> {
        if depth > MAX_DEPTH {
            return Err(CUT);
        }
        let mut field = 0_i16;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Ok(());
            }
            // The library cuts larger numbers.
            field = match i16::from(head >> 4) {
                0 => i16::try_from(self.number()?).map_err(|_| CUT)?,
                step => field.checked_add(step).ok_or(CUT)?,
            };
            match head & 0x0f {
                1 | 2 => note(parents, field, FieldValue::Flag)?,
                kind @ 4..=6 => {
                    let number = self.number()?;
                    note(parents, field, FieldValue::Number(kind, number))?;
                }
                12 => {
                    note(parents, field, FieldValue::Struct)?;
                    parents.push(field);
                    self.fields_within(parents, depth + 1, note)?;
                    parents.pop();
                }
                kind => {
                    note(parents, field, FieldValue::Other)?;
                    self.value(kind, depth + 1)?;
                }
            }
        }
    }

    /// Walks a value of `kind`, such as an item of a list.
    fn value(&mut self, kind: u8, depth: usize) -> Result<(), BoundsError> {
        match kind {
            1..=3 => self.skip(1),
            4..=6 => self.number().map(drop),
            7 => self.skip(8),
            8 => {
                let length = self.unsigned()?;
                self.skip(usize::try_from(length).map_err(|_| CUT)?)
            }
            9 | 10 => self.list(depth),
            12 => self.fields(depth, &mut |_, _, _| Ok(())),
            13 => self.skip(16),
            // Parquet has no maps.
            _ => Err(CUT),
        }
    }

    fn list(&mut self, depth: usize) -> Result<(), BoundsError> {
        if depth > MAX_DEPTH {
            return Err(CUT);
        }
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => usize::try_from(self.unsigned()?).map_err(|_| CUT)?,
            count => usize::from(count),
        };
        self.items = self
            .items
            .checked_sub(count)
            .ok_or(BoundsError("its metadata has more entries than are read"))?;
        (0..count).try_for_each(|_| self.value(head & 0x0f, depth + 1))
    }

    fn byte(&mut self) -> Result<u8, BoundsError> {
        let (first, rest) = self.rest.split_first().ok_or(CUT)?;
        self.rest = rest;
        Ok(*first)
    }

    fn skip(&mut self, count: usize) -> Result<(), BoundsError> {
        self.rest = self.rest.get(count..).ok_or(CUT)?;
        Ok(())
    }

    fn unsigned(&mut self) -> Result<u64, BoundsError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(CUT)
    }

    /// A signed number in zigzag encoding.
    fn number(&mut self) -> Result<i64, BoundsError> {
        let value = self.unsigned()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }
}

// The pages that were checked.

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ColumnError {
    #[error("{}", files::describe(.0))]
    Io(#[from] io::Error),
    #[error("it is not a complete Parquet file: copy it again")]
    NoParquet,
    #[error("it has no column `{0}`: only files that `portcullis pack` wrote can be read")]
    NoColumn(String),
    #[error("the column `{0}` has another type than `portcullis pack` gives it")]
    OtherType(String),
    #[error(
        "version {0} of its columns is newer than this program: use the version of portcullis that wrote it, or a later one"
    )]
    Newer(String),
    #[error("it has reviews of a recording, not decisions: `portcullis replay` reads it")]
    Recording,
    #[error("it must be in a folder `cluster=NAME`, which names the cluster of its decisions")]
    NoCluster,
    #[error("it is refused: {0}")]
    Bounds(#[from] BoundsError),
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// The library failed within a row group.
    #[error("it is damaged, in row group {0}")]
    Broken(usize),
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "what `map_err` calls takes the error"
)]
pub(crate) fn damaged_error(error: ParquetError) -> ColumnError {
    ColumnError::Damaged(error.to_string())
}

/// The checked pages of one column, with their offset in the file.
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
