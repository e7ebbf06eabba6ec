//! Writes lines of JSON as rows, into files by cluster, date and hour.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use openssl::sha::Sha256;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::{ColumnPath, TypePtr};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tempfile::TempPath;

use super::{Column, MAX_GROUP_ROWS, RowKind, SCHEMA_VERSION, Values};
use crate::config::hexadecimal;
use portcullis_cel::json::{Document, JsonError, Kind, Node};
use portcullis_policy::model::Time;

/// What rows may take that wait for their row group, of all partitions together.
const MAX_WAITING_BYTES: usize = 64 << 20;

/// How many partitions are written at the same time.
const MAX_OPEN_PARTITIONS: usize = 128;

/// The most files that one log or recording becomes.
const MAX_FILES: usize = 100_000;

/// The most row groups of a file: its metadata stays small.
const MAX_FILE_GROUPS: usize = 64;

/// What a distinct value takes besides its text.
const VALUE_BYTES: usize = 128;

/// How many texts of lists are written at once.
const MAX_LIST_VALUES: usize = 1 << 16;

/// After how many values a page may end, which bounds how much larger than others it can be.
const BATCH_ROWS: usize = 64;

/// What stands in the name of a folder as it is; Hive escapes less, and reads all escapes.
const IN_FOLDER: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// The columns by which decisions are sorted first: of those that `suggest` reads, equal rows
/// stand together then.
const SORTED_FIRST: [&str; 3] = ["user", "caller", "endpoint"];

/// Those that differ each time, and are compared last.
const SORTED_LAST: [&str; 3] = ["uid", "webhooks", "reason"];

/// Why lines are not written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PackError {
    #[error("not a line of JSON: {0}")]
    NoJson(#[from] JsonError),
    #[error("not an object")]
    NoObject,
    /// A later version wrote it.
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
    #[error(
        "there are more than {MAX_FILES} different hours and clusters: is this the log of a gateway? Pack it in parts"
    )]
    TooManyFiles,
    #[error("cannot write `{}`: {source}", .path.display())]
    Unwritable { path: PathBuf, source: io::Error },
    #[error("cannot write a row group: {0}")]
    Parquet(#[from] ParquetError),
}

/// What one log or recording became.
#[derive(Debug, Default)]
pub(crate) struct PackedFiles {
    pub(crate) rows: u64,
    /// In order.
    pub(crate) files: Vec<PathBuf>,
    /// What they take together.
    pub(crate) bytes: u64,
}

/// Writes the rows of one log or recording. Nothing is in its place before [`Packer::finish`]; without
/// it, what was written is removed.
pub(crate) struct Packer {
    kind: RowKind,
    folder: PathBuf,
    schema: TypePtr,
    properties: WriterPropertiesPtr,
    /// By the path below the folder.
    open: HashMap<PathBuf, OpenPartition>,
    written: Vec<WrittenFile>,
    /// How much waits in all of them.
    waiting: usize,
    rows: u64,
}

/// A file that is whole, under the name that it has until then.
struct WrittenFile {
    temporary: TempPath,
    path: PathBuf,
    bytes: u64,
}

/// A partition whose rows are being gathered.
struct OpenPartition {
    rows: WaitingRows,
    file: Option<(SerializedFileWriter<File>, TempPath)>,
    groups: usize,
    digest: Sha256,
    /// The number of the row that it got last.
    used: u64,
}

/// Rows of the next row group, column by column.
struct WaitingRows {
    kind: RowKind,
    columns: Vec<WaitingColumn>,
    count: usize,
    bytes: usize,
}

enum WaitingColumn {
    /// Each distinct value once; of the rows the number of theirs, from 1, and 0 for none.
    Values {
        rows: Vec<u32>,
        distinct: Vec<Bytes>,
        numbers: HashMap<Bytes, u32>,
    },
    Numbers(Vec<Option<i64>>),
}

/// The value of a column in a row.
enum Cell<'d> {
    Text(Cow<'d, str>),
    Number(i64),
}

// === impl PackError ===

impl PackError {
    /// Whether it is the fault of the line, and others can be written without it.
    pub(crate) const fn is_of_line(&self) -> bool {
        !matches!(
            self,
            Self::TooManyFiles | Self::Unwritable { .. } | Self::Parquet(_)
        )
    }
}

// === impl Packer ===

impl Packer {
    /// # Errors
    ///
    /// None that depends on what is packed.
    pub(crate) fn new(kind: RowKind, folder: &Path) -> Result<Self, PackError> {
        Ok(Self {
            kind,
            folder: folder.to_owned(),
            schema: Arc::new(parse_message_type(&kind.schema())?),
            properties: Arc::new(properties(kind)?),
            open: HashMap::new(),
            written: Vec::new(),
            waiting: 0,
            rows: 0,
        })
    }

    /// Adds the row of a line.
    ///
    /// # Errors
    ///
    /// It is no line of this kind, or the files cannot be written.
    pub(crate) fn add(&mut self, line: &[u8]) -> Result<(), PackError> {
        let document = Document::parse_bytes(line)?;
        let root = document.root();
        let cells = cells(self.kind, root)?;
        let cluster = root.get("cluster").and_then(Node::as_str);
        let cluster = cluster.ok_or_else(|| PackError::Missing("cluster".to_owned()))?;
        let time = root.get("time").and_then(Node::as_str).unwrap_or_default();
        let path = partition(&cluster, &time)?;
        if !self.open.contains_key(&path) {
            self.make_room()?;
        }
        self.rows += 1;
        let kind = self.kind;
        let partition = self.open.entry(path).or_insert_with(|| OpenPartition::new(kind));
        partition.used = self.rows;
        // Two lines are not the same as one with both.
        partition.digest.update(&(line.len() as u64).to_le_bytes());
        partition.digest.update(line);
        let before = partition.rows.bytes;
        partition.rows.add(cells);
        self.waiting += partition.rows.bytes - before;
        let is_full = partition.rows.count >= MAX_GROUP_ROWS;
        if is_full || self.waiting > MAX_WAITING_BYTES {
            self.write_largest()?;
        }
        Ok(())
    }

    /// Puts all files in their places. Those of the same rows replace each other, so that packing a file
    /// twice is packing it once.
    ///
    /// # Errors
    ///
    /// They cannot be written.
    pub(crate) fn finish(mut self) -> Result<PackedFiles, PackError> {
        let mut open: Vec<PathBuf> = self.open.keys().cloned().collect();
        open.sort();
        open.iter().try_for_each(|path| self.close(path))?;
        let mut packed = PackedFiles {
            rows: self.rows,
            ..PackedFiles::default()
        };
        for written in self.written {
            let path = written.path;
            let unwritable = |source| unwritable(&path, source);
            let renamed = written.temporary.persist(&path);
            renamed.map_err(|error| unwritable(error.error))?;
            let folder = path.parent().unwrap_or(Path::new("."));
            let synced = File::open(folder).and_then(|folder| folder.sync_all());
            synced.map_err(unwritable)?;
            packed.bytes += written.bytes;
            packed.files.push(path);
        }
        packed.files.sort();
        Ok(packed)
    }

    /// Closes the partition that was used longest ago, where one more would be too many.
    fn make_room(&mut self) -> Result<(), PackError> {
        if self.written.len() + self.open.len() >= MAX_FILES {
            return Err(PackError::TooManyFiles);
        }
        if self.open.len() < MAX_OPEN_PARTITIONS {
            return Ok(());
        }
        let oldest = self.open.iter().min_by_key(|(_, partition)| partition.used);
        let oldest = oldest.map(|(path, _)| path.clone());
        oldest.map_or(Ok(()), |path| self.close(&path))
    }

    /// Writes a row group of the partition with the most rows.
    fn write_largest(&mut self) -> Result<(), PackError> {
        // Of equal ones always the same: the same lines become the same files.
        let size = |(path, partition): &(&PathBuf, &OpenPartition)| (partition.rows.bytes, (*path).clone());
        let largest = self.open.iter().max_by_key(size);
        let Some(path) = largest.map(|(path, _)| path.clone()) else {
            return Ok(());
        };
        self.write_group(&path)?;
        let groups = self.open.get(&path).map_or(0, |partition| partition.groups);
        if groups >= MAX_FILE_GROUPS {
            self.close(&path)?;
        }
        Ok(())
    }

    fn write_group(&mut self, path: &Path) -> Result<(), PackError> {
        let Some(partition) = self.open.get_mut(path) else {
            return Ok(());
        };
        let rows = std::mem::replace(&mut partition.rows, WaitingRows::new(self.kind));
        self.waiting -= rows.bytes;
        if partition.file.is_none() {
            let folder = self.folder.join(path);
            let (file, temporary) = temporary_file(&folder).map_err(|source| unwritable(&folder, source))?;
            let (schema, properties) = (self.schema.clone(), self.properties.clone());
            let writer = SerializedFileWriter::new(file, schema, properties)?;
            partition.file = Some((writer, temporary));
        }
        let Some((writer, _)) = &mut partition.file else {
            return Ok(());
        };
        partition.groups += 1;
        rows.write(writer)
    }

    /// Completes the file of a partition.
    fn close(&mut self, path: &Path) -> Result<(), PackError> {
        self.write_group(path)?;
        let Some(partition) = self.open.remove(path) else {
            return Ok(());
        };
        let Some((mut writer, temporary)) = partition.file else {
            return Ok(());
        };
        writer.finish()?;
        let file = writer.inner();
        let length = file.sync_all().and_then(|()| file.metadata());
        let length = length.map_err(|source| unwritable(&temporary, source))?.len();
        let digest = partition.digest.finish();
        let digest = hexadecimal(digest.get(..12).unwrap_or_default());
        let name = format!("{}-{digest}.parquet", self.kind.name());
        self.written.push(WrittenFile {
            temporary,
            path: self.folder.join(path).join(name),
            bytes: length,
        });
        Ok(())
    }
}

fn unwritable(path: &Path, source: io::Error) -> PackError {
    PackError::Unwritable {
        path: path.to_owned(),
        source,
    }
}

/// A file in `folder` whose name no program takes for one of Parquet's.
fn temporary_file(folder: &Path) -> io::Result<(File, TempPath)> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let file = tempfile::Builder::new()
        .prefix(".pack-")
        .suffix(".tmp")
        .tempfile_in(folder)?;
    Ok(file.into_parts())
}

/// The folders of a partition.
fn partition(cluster: &str, time: &str) -> Result<PathBuf, PackError> {
    let wrong = || PackError::Unexpected("time".to_owned());
    // In UTC, whatever zone it is written in.
    let time = Time::parse(time).ok_or_else(wrong)?.to_string();
    let (date, clock) = time.split_once('T').ok_or_else(wrong)?;
    let hour = clock.get(..2).ok_or_else(wrong)?;
    let cluster = match cluster {
        // Hive's name of what is null or empty.
        "" => Cow::Borrowed("__HIVE_DEFAULT_PARTITION__"),
        cluster => Cow::from(utf8_percent_encode(cluster, IN_FOLDER)),
    };
    if cluster.len() > 200 {
        return Err(PackError::LongCluster);
    }
    Ok(PathBuf::from(format!(
        "cluster={cluster}/date={date}/hour={hour}"
    )))
}

fn properties(kind: RowKind) -> Result<WriterProperties, ParquetError> {
    let mut builder = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_created_by(concat!("portcullis ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(Some(vec![KeyValue::new(
            kind.version_key().to_owned(),
            SCHEMA_VERSION.to_string(),
        )]))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_write_batch_size(BATCH_ROWS)
        .set_data_page_row_count_limit(MAX_GROUP_ROWS);
    for column in kind.columns() {
        if column.holds == Values::Time {
            let path = ColumnPath::from(column.name);
            builder = builder
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
        }
    }
    Ok(builder.build())
}

/// The values of the columns in the object `root`.
fn cells<'d>(kind: RowKind, root: Node<'d>) -> Result<Vec<Option<Cell<'d>>>, PackError> {
    if root.kind() != Kind::Object {
        return Err(PackError::NoObject);
    }
    let columns = kind.columns();
    let mut cells: Vec<Option<Cell<'d>>> = columns.iter().map(|_| None).collect();
    let mut take = |parent: &str, name: &str, node: Node<'d>| {
        let known = |column: &Column| column.parent == parent && column.name == name;
        let place = columns.iter().position(known);
        let (column, cell) = place
            .and_then(|place| columns.get(place).zip(cells.get_mut(place)))
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
                // The patch of a webhook that was no JSON is a text.
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

// === impl OpenPartition ===

impl OpenPartition {
    fn new(kind: RowKind) -> Self {
        Self {
            rows: WaitingRows::new(kind),
            file: None,
            groups: 0,
            digest: Sha256::new(),
            used: 0,
        }
    }
}

// === impl WaitingRows ===

impl WaitingRows {
    fn new(kind: RowKind) -> Self {
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

    fn add(&mut self, cells: Vec<Option<Cell<'_>>>) {
        self.count += 1;
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            self.bytes += column.add(cell);
        }
    }

    fn write(self, file: &mut SerializedFileWriter<File>) -> Result<(), PackError> {
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

    /// Recordings stay in their order. Of decisions, equal ones stand together, from the first to the
    /// last: their columns take next to nothing then, and whoever counts them reads each once.
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
    /// Adds the value of one more row. How much more it takes.
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
                // Much is the same in each line.
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

/// Writes lists of texts, each of which is JSON.
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
        // An empty list is one place without a value.
        defined.extend(std::iter::repeat_n(i16::from(count > 0), count.max(1)));
        repeated.push(0);
        repeated.extend(std::iter::repeat_n(1, count.saturating_sub(1)));
        // A row waits as one value, however many texts that has.
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
