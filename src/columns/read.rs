//! Reads rows back as lines of JSON: only the requested columns, and equal adjacent rows once.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{ConvertedType, LogicalType, TimeUnit, Type};
use parquet::column::page::PageReader;
use parquet::file::metadata::{
    ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData,
};
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::schema::types::ColumnDescriptor;
use percent_encoding::percent_decode_str;

use super::pages::{
    ChunkBytes, ColumnError, MAX_FOREIGN_GROUP_ROWS, MAX_METADATA_BYTES, check_metadata, check_pages,
    damaged_error,
};
use super::runs::{RunReader, StoredRuns};
use super::{Column, RowKind, SCHEMA_VERSION, Values};
use crate::config::files;
use portcullis_cel::json::write_string;
use portcullis_policy::model::Time;

/// The first and last bytes of a file.
const MAGIC: &[u8] = b"PAR1";

/// The length of the metadata, and the magic number after it.
const FOOTER_BYTES: u64 = 8;

/// The extension of files that are read from a folder.
const ENDING: &str = "parquet";

/// The number of rows that are decoded at a time.
const BATCH_ROWS: usize = 4096;

/// The most bytes of the pages that the rows of a batch are in. A row group of `pack` has fewer.
const MAX_BATCH_PAGE_BYTES: usize = 512 << 20;

/// The most rows of a file: decided one after another, these take a quarter of an hour.
const MAX_FILE_ROWS: u64 = 1 << 28;

/// The most files in a folder, and the most levels of subfolders.
const MAX_FOLDER_FILES: usize = 1_000_000;
const MAX_FOLDER_DEPTH: usize = 8;

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read `{}` as packed by `portcullis pack`: {error}", .path.display())]
pub(crate) struct ColumnFileError {
    path: PathBuf,
    error: ColumnError,
}

/// A file that is being read.
#[derive(Debug)]
pub(crate) struct ColumnFile {
    path: PathBuf,
    file: File,
    metadata: ParquetMetaData,
    kind: RowKind,
    cluster: String,
    /// The position of each of our columns in the file.
    places: Vec<Option<usize>>,
}

/// A row, or several equal rows that are adjacent.
#[derive(Debug)]
pub(crate) struct StoredRow<'r> {
    /// The number of the first of these rows, from 1.
    pub(crate) number: u64,
    /// The requested members, as in the decision log or recording. If rows are not counted, this
    /// includes `time`.
    pub(crate) line: &'r str,
    pub(crate) count: u64,
    pub(crate) first: Time,
    pub(crate) last: Time,
}

/// Whether the file at `path` begins like a Parquet file.
pub(crate) fn is_column_file(path: &Path) -> bool {
    let mut begin = [0; MAGIC.len()];
    let read = files::open(path).and_then(|file| file.read_exact_at(&mut begin, 0));
    read.is_ok() && begin == MAGIC
}

/// The Parquet files in `folder` and its subfolders, sorted.
///
/// # Errors
///
/// The folder cannot be read, or has too many files or levels.
pub(crate) fn column_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    gather(folder, 0, &mut found)?;
    found.sort();
    Ok(found)
}

fn gather(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_hidden = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if path.is_dir() && !is_hidden {
            if depth >= MAX_FOLDER_DEPTH {
                let message = format!("folders are nested more than {MAX_FOLDER_DEPTH} levels deep");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
            }
            gather(&path, depth + 1, found)?;
        } else if path.extension().is_some_and(|ending| ending == ENDING) && !is_hidden {
            found.push(path);
        }
        if found.len() > MAX_FOLDER_FILES {
            let message = format!("it has more than {MAX_FOLDER_FILES} files");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
    }
    Ok(())
}

// === impl ColumnFile ===

impl ColumnFile {
    /// Opens the file of this kind at `path`.
    ///
    /// # Errors
    ///
    /// It is not such a file, has a later version, or its metadata exceeds a limit.
    pub(crate) fn open(path: &Path, kind: RowKind) -> Result<Self, ColumnFileError> {
        let path = path.to_owned();
        match Self::read(&path, kind) {
            Ok(file) => Ok(file),
            Err(error) => Err(ColumnFileError { path, error }),
        }
    }

    fn read(path: &Path, kind: RowKind) -> Result<Self, ColumnError> {
        let file = files::open(path)?;
        let metadata = read_metadata(&file)?;
        check_groups(&metadata, file.metadata()?.len())?;
        let keys = metadata.file_metadata().key_value_metadata();
        let version = keys
            .into_iter()
            .flatten()
            .find(|entry| entry.key == kind.version_key());
        if let Some(version) = version.and_then(|entry| entry.value.as_ref())
            && version
                .parse::<u64>()
                .is_ok_and(|version| version > SCHEMA_VERSION)
        {
            return Err(ColumnError::Newer(version.clone()));
        }
        let places = places(kind, &metadata)?;
        Ok(Self {
            cluster: cluster_of(path)?,
            path: path.to_owned(),
            file,
            metadata,
            kind,
            places,
        })
    }

    /// Calls `each` with each row, of which the `wanted` columns are read. With `is_counted`, equal
    /// adjacent rows become one, and the line has no time. `wait_if_large` is called with the bytes of
    /// a row group before they are allocated.
    ///
    /// # Errors
    ///
    /// The file is damaged, or `each` failed.
    pub(crate) fn each_row<E: From<ColumnFileError>>(
        &self,
        wanted: impl Fn(&Column) -> bool,
        is_counted: bool,
        make_room: &dyn Fn(usize),
        each: &mut impl FnMut(StoredRow<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let columns = self.kind.columns().iter().zip(&self.places);
        let wanted: Vec<(&Column, usize)> = columns
            .filter(|(column, _)| column.holds != Values::TextList && wanted(column))
            .filter_map(|(column, place)| Some((column, (*place)?)))
            .collect();
        let mut number = 1;
        for (index, group) in self.metadata.row_groups().iter().enumerate() {
            let mut rows = usize::try_from(group.num_rows()).unwrap_or(usize::MAX);
            // It has no pages, and its columns lie nowhere.
            if rows == 0 {
                continue;
            }
            if rows > MAX_FOREIGN_GROUP_ROWS {
                let what = format!("row group {index} claims {rows} rows");
                return Err(self.failed(ColumnError::Damaged(what)).into());
            }
            let readers = guarded(index, || self.readers(group, &wanted, make_room));
            let mut readers = readers.map_err(|error| self.failed(error))?;
            while rows > 0 {
                let count = rows.min(BATCH_ROWS);
                let mut room = MAX_BATCH_PAGE_BYTES;
                let batch = guarded(index, || {
                    readers
                        .iter_mut()
                        .map(|reader| reader.read(count, &mut room))
                        .collect()
                });
                let batch = batch.map_err(|error| self.failed(error))?;
                self.emit_rows(&wanted, batch, count, (number, is_counted), each)?;
                rows -= count;
                number += count as u64;
            }
        }
        Ok(())
    }

    fn failed(&self, error: ColumnError) -> ColumnFileError {
        let path = self.path.clone();
        ColumnFileError { path, error }
    }

    fn readers(
        &self,
        group: &RowGroupMetaData,
        wanted: &[(&Column, usize)],
        make_room: &dyn Fn(usize),
    ) -> Result<Vec<RunReader>, ColumnError> {
        let mut chunks = Vec::new();
        for (_, place) in wanted {
            let chunk = group.columns().get(*place);
            let chunk = chunk.ok_or_else(|| ColumnError::Damaged("a column is missing".to_owned()))?;
            chunks.push((chunk, extent(chunk)?));
        }
        let total = chunks
            .iter()
            .try_fold(0_usize, |sum, (_, (_, length))| sum.checked_add(*length));
        let total = total.filter(|total| *total <= self.kind.most_group_bytes());
        let total = total.ok_or_else(|| {
            ColumnError::Damaged("a row group is larger than any that is written".to_owned())
        })?;
        make_room(total);
        let mut readers = Vec::new();
        for (chunk, (start, length)) in chunks {
            let mut bytes = vec![0; length];
            self.file.read_exact_at(&mut bytes, start)?;
            make_room(check_pages(&bytes, self.kind.most_page_bytes())?);
            let chunk_bytes = Arc::new(ChunkBytes {
                start,
                bytes: bytes.into(),
            });
            let rows = usize::try_from(group.num_rows()).unwrap_or_default();
            let pages = SerializedPageReader::new(chunk_bytes, chunk, rows, None).map_err(damaged_error)?;
            let pages: Box<dyn PageReader> = Box::new(pages);
            readers.push(RunReader::new(chunk.column_descr_ptr(), pages));
        }
        Ok(readers)
    }

    fn emit_rows<E: From<ColumnFileError>>(
        &self,
        wanted: &[(&Column, usize)],
        mut batch: Vec<StoredRuns>,
        count: usize,
        (number, is_counted): (u64, bool),
        each: &mut impl FnMut(StoredRow<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let is_time = |(column, _): &(&Column, usize)| column.holds == Values::Time;
        let of_time = wanted.iter().position(is_time);
        let (mut line, mut row) = (String::new(), 0);
        while row < count {
            batch.iter_mut().for_each(|values| values.go_to(row));
            let compared = batch.iter().enumerate();
            let compared = compared.filter(|(place, _)| Some(*place) != of_time);
            let end = match is_counted {
                true => compared.map(|(_, values)| values.end()).fold(count, usize::min),
                false => row + 1,
            };
            let times = of_time.and_then(|place| batch.get_mut(place));
            let times = times.and_then(|times| first_and_last(times, end));
            let [first, last] =
                times.ok_or_else(|| self.failed(ColumnError::Damaged("a row has no time".to_owned())))?;
            line.clear();
            self.write_line(wanted, &batch, (!is_counted).then_some(first), &mut line)
                .map_err(|error| self.failed(error))?;
            each(StoredRow {
                number: number + row as u64,
                line: &line,
                count: (end - row) as u64,
                first,
                last,
            })?;
            row = end;
        }
        Ok(())
    }

    fn write_line(
        &self,
        wanted: &[(&Column, usize)],
        batch: &[StoredRuns],
        time: Option<Time>,
        out: &mut String,
    ) -> Result<(), ColumnError> {
        out.push_str("{\"cluster\":");
        write_string(out, &self.cluster);
        let mut parent = "";
        for ((column, _), values) in wanted.iter().zip(batch) {
            if !values.has_value() || column.holds == Values::Time && time.is_none() {
                continue;
            }
            if column.parent != parent {
                out.push_str(if parent.is_empty() { "" } else { "}" });
                if !column.parent.is_empty() {
                    let _infallible = write!(out, ",\"{}\":{{", column.parent);
                }
                parent = column.parent;
            }
            let comma = if out.ends_with('{') { "" } else { "," };
            let _infallible = write!(out, "{comma}\"{}\":", column.name);
            match column.holds {
                Values::Time => write_string(out, &time.map(|time| time.to_string()).unwrap_or_default()),
                Values::Text => write_string(out, values.text()?),
                Values::Json | Values::TextList => out.push_str(values.text()?),
                Values::Whole | Values::Seconds | Values::Flag => values.write_number(column.holds, out),
            }
        }
        out.push_str(if parent.is_empty() { "}" } else { "}}" });
        Ok(())
    }
}

/// The first and the last time of the rows from the current one to `end`. `None` if one of them has
/// no time.
fn first_and_last(times: &mut StoredRuns, end: usize) -> Option<[Time; 2]> {
    let time = times.number()?;
    let (mut first, mut last) = (time, time);
    while times.end() < end {
        times.go_to(times.end());
        let time = times.number()?;
        (first, last) = (first.min(time), last.max(time));
    }
    Some([Time::from_microseconds(first)?, Time::from_microseconds(last)?])
}

/// The library checks damaged pages and yet panics on some. One such file must not end a process
/// that reads a thousand. After a panic nothing that the library worked on is used.
fn guarded<T>(group: usize, read: impl FnOnce() -> Result<T, ColumnError>) -> Result<T, ColumnError> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or(Err(ColumnError::Broken(group)))
}

fn read_metadata(file: &File) -> Result<ParquetMetaData, ColumnError> {
    let length = file.metadata()?.len();
    let footer = length.checked_sub(FOOTER_BYTES).ok_or(ColumnError::NoParquet)?;
    let mut end = [0; 8];
    file.read_exact_at(&mut end, footer)?;
    let [a, b, c, d, magic @ ..] = end;
    let size = u32::from_le_bytes([a, b, c, d]);
    let start = footer.checked_sub(u64::from(size));
    let (Some(start), true) = (start, magic == MAGIC) else {
        return Err(ColumnError::NoParquet);
    };
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    if size > MAX_METADATA_BYTES {
        return Err(ColumnError::Damaged(format!("it has {size} bytes of metadata")));
    }
    let mut bytes = vec![0; size];
    file.read_exact_at(&mut bytes, start)?;
    check_metadata(&bytes)?;
    guarded(0, || {
        ParquetMetaDataReader::decode_metadata(&bytes).map_err(damaged_error)
    })
}

/// Checks that the row groups of a file of `length` bytes do not share bytes, by which a small file
/// could have any number of rows, and that there are not too many rows.
pub(crate) fn check_groups(metadata: &ParquetMetaData, length: u64) -> Result<(), ColumnError> {
    let (mut bytes, mut rows) = (Some(0_u64), Some(0_u64));
    let add = |sum: Option<u64>, number: i64| sum?.checked_add(u64::try_from(number).ok()?);
    for group in metadata.row_groups() {
        rows = add(rows, group.num_rows());
        let columns = group.columns().iter().map(ColumnChunkMetaData::compressed_size);
        bytes = columns.fold(bytes, add);
    }
    if bytes.is_none_or(|bytes| bytes > length) {
        return Err(ColumnError::Damaged(
            "its row groups are larger than it is".to_owned(),
        ));
    }
    if rows.is_none_or(|rows| rows > MAX_FILE_ROWS) {
        return Err(ColumnError::Damaged(format!(
            "it claims more than {MAX_FILE_ROWS} rows"
        )));
    }
    Ok(())
}

/// The cluster in a folder name of the path.
fn cluster_of(path: &Path) -> Result<String, ColumnError> {
    let folder = |part: &std::ffi::OsStr| part.to_str()?.strip_prefix("cluster=").map(str::to_owned);
    let absolute = std::path::absolute(path)?;
    let mut folders = absolute
        .components()
        .rev()
        .filter_map(|part| folder(part.as_os_str()));
    let named = folders.next().ok_or(ColumnError::NoCluster)?;
    if named == "__HIVE_DEFAULT_PARTITION__" {
        return Ok(String::new());
    }
    let decoded = percent_decode_str(&named).decode_utf8();
    decoded
        .map(std::borrow::Cow::into_owned)
        .map_err(|_| ColumnError::NoCluster)
}

fn places(kind: RowKind, metadata: &ParquetMetaData) -> Result<Vec<Option<usize>>, ColumnError> {
    let schema = metadata.file_metadata().schema_descr();
    let has_reviews = schema
        .columns()
        .iter()
        .any(|found| found.path().string() == "review");
    if kind == RowKind::Decision && has_reviews {
        return Err(ColumnError::Recording);
    }
    let place = |column: &Column| {
        // Lists are written for other programs only.
        if column.holds == Values::TextList {
            return Ok(None);
        }
        let path = column.path();
        let mut all = schema.columns().iter();
        let Some(place) = all.position(|found| found.path().string() == path) else {
            return match column.is_required {
                true => Err(ColumnError::NoColumn(path)),
                false => Ok(None),
            };
        };
        match schema.columns().get(place) {
            Some(found) if column.holds.is_stored_in(found) => Ok(Some(place)),
            _ => Err(ColumnError::OtherType(path)),
        }
    };
    kind.columns().iter().map(place).collect()
}

// === impl Values ===

impl Values {
    fn is_stored_in(self, found: &ColumnDescriptor) -> bool {
        let is_time = || {
            let of_microseconds = Some(&LogicalType::timestamp(true, TimeUnit::MICROS));
            found.logical_type_ref() == of_microseconds
                || found.converted_type() == ConvertedType::TIMESTAMP_MICROS
        };
        found.max_rep_level() == 0
            && match (self, found.physical_type()) {
                (Self::Time, Type::INT64) => is_time(),
                (Self::Whole, Type::INT32 | Type::INT64)
                | (Self::Seconds, Type::DOUBLE)
                | (Self::Flag, Type::BOOLEAN)
                | (Self::Text | Self::Json, Type::BYTE_ARRAY) => true,
                _ => false,
            }
    }
}

/// The offset and length of a column's pages in the file.
pub(crate) fn extent(chunk: &ColumnChunkMetaData) -> Result<(u64, usize), ColumnError> {
    // Where the library begins to read.
    let start = chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset());
    if start > chunk.data_page_offset() {
        let message = "the dictionary of a column is behind its values".to_owned();
        return Err(ColumnError::Damaged(message));
    }
    let (start, length) = (u64::try_from(start), usize::try_from(chunk.compressed_size()));
    match (start, length) {
        (Ok(start), Ok(length)) => Ok((start, length)),
        _ => Err(ColumnError::Damaged("a column lies outside of it".to_owned())),
    }
}
