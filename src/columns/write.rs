//! Writes lines of JSON as rows, into files by cluster, date and hour.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use openssl::sha::Sha256;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::{ColumnPath, TypePtr};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tempfile::TempPath;

use super::rows::{PackError, WaitingRows, cells};
use super::{MAX_GROUP_ROWS, RowKind, SCHEMA_VERSION, Values};
use crate::config::hexadecimal;
use crate::telemetry::create_private_folder;
use portcullis_cel::json::{Document, Node};
use portcullis_policy::model::Time;

/// What rows may take that wait for their row group, of all partitions together.
pub(crate) const MAX_WAITING_BYTES: usize = 64 << 20;

/// How many partitions are written at the same time.
const MAX_OPEN_PARTITIONS: usize = 128;

/// The most files that one log or recording becomes.
const MAX_FILES: usize = 100_000;

/// The most row groups of a file: its metadata stays small.
const MAX_FILE_GROUPS: usize = 64;

/// After how many values a page may end, which bounds how much larger than others it can be.
const BATCH_ROWS: usize = 64;

/// How the temporary name of a file begins and ends.
pub(crate) const TEMPORARY: [&str; 2] = [".pack-", ".tmp"];

/// What stands in the name of a folder as it is; Hive escapes less, and reads all escapes.
const IN_FOLDER: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

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
    files: FileMaker,
    /// By the path below the folder.
    open: HashMap<PathBuf, OpenPartition>,
    written: Vec<WrittenFile>,
    /// How much waits in all of them.
    waiting: usize,
    rows: u64,
}

/// Makes the files of one kind.
pub(crate) struct FileMaker {
    kind: RowKind,
    folder: PathBuf,
    schema: TypePtr,
    properties: WriterPropertiesPtr,
}

/// A file that is being written, and its name until it is whole.
type BegunFile = (SerializedFileWriter<File>, TempPath);

/// A file that is whole, under the name that it has until it is persisted.
pub(crate) struct WrittenFile {
    temporary: TempPath,
    path: PathBuf,
    pub(crate) bytes: u64,
}

/// A partition whose rows are being gathered.
struct OpenPartition {
    rows: WaitingRows,
    file: Option<BegunFile>,
    groups: usize,
    digest: Sha256,
    /// The number of the row that it got last.
    used: u64,
}

// === impl Packer ===

impl Packer {
    /// # Errors
    ///
    /// None that depends on what is packed.
    pub(crate) fn new(kind: RowKind, folder: &Path) -> Result<Self, PackError> {
        Ok(Self {
            files: FileMaker::new(kind, folder)?,
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
        let kind = self.files.kind;
        let cells = cells(kind, root)?;
        let path = partition_of(root)?;
        if !self.open.contains_key(&path) {
            self.make_room()?;
        }
        self.rows += 1;
        let partition = self.open.entry(path).or_insert_with(|| OpenPartition::new(kind));
        partition.used = self.rows;
        digest_line(&mut partition.digest, line);
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
            packed.bytes += written.bytes;
            packed.files.push(written.persist()?);
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
        let rows = std::mem::replace(&mut partition.rows, WaitingRows::new(self.files.kind));
        self.waiting -= rows.bytes;
        if partition.file.is_none() {
            partition.file = Some(self.files.begin(path)?);
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
        if let Some(file) = partition.file {
            self.written
                .push(self.files.complete(path, file, partition.digest)?);
        }
        Ok(())
    }
}

// === impl FileMaker ===

impl FileMaker {
    /// # Errors
    ///
    /// None that depends on what is written.
    pub(crate) fn new(kind: RowKind, folder: &Path) -> Result<Self, PackError> {
        Ok(Self {
            kind,
            folder: folder.to_owned(),
            schema: Arc::new(parse_message_type(&kind.schema())?),
            properties: Arc::new(properties(kind)?),
        })
    }

    /// Begins a file of `partition`.
    ///
    /// # Errors
    ///
    /// It cannot be created.
    pub(crate) fn begin(&self, partition: &Path) -> Result<BegunFile, PackError> {
        let folder = self.folder.join(partition);
        // Another thread may just remove the empty folder.
        let file = temporary_file(&folder).or_else(|_| temporary_file(&folder));
        let (file, temporary) = file.map_err(|source| unwritable(&folder, source))?;
        let (schema, properties) = (self.schema.clone(), self.properties.clone());
        Ok((SerializedFileWriter::new(file, schema, properties)?, temporary))
    }

    /// Completes a file of `partition`, whose lines have this digest.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub(crate) fn complete(
        &self,
        partition: &Path,
        (mut writer, temporary): BegunFile,
        digest: Sha256,
    ) -> Result<WrittenFile, PackError> {
        writer.finish()?;
        let file = writer.inner();
        let length = file.sync_all().and_then(|()| file.metadata());
        let length = length.map_err(|source| unwritable(&temporary, source))?.len();
        let digest = digest.finish();
        let digest = hexadecimal(digest.get(..12).unwrap_or_default());
        let name = format!("{}-{digest}.parquet", self.kind.name());
        Ok(WrittenFile {
            temporary,
            path: self.folder.join(partition).join(name),
            bytes: length,
        })
    }
}

// === impl WrittenFile ===

impl WrittenFile {
    /// Gives it its name, in place of a file with the same rows.
    ///
    /// # Errors
    ///
    /// It cannot be renamed.
    pub(crate) fn persist(self) -> Result<PathBuf, PackError> {
        let path = self.path;
        let renamed = self.temporary.persist(&path);
        renamed.map_err(|error| unwritable(&path, error.error))?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|source| unwritable(&path, source))?;
        Ok(path)
    }
}

/// Adds a line to the digest of a file's lines.
pub(crate) fn digest_line(digest: &mut Sha256, line: &[u8]) {
    // Two lines are not the same as one with both.
    digest.update(&(line.len() as u64).to_le_bytes());
    digest.update(line);
}

fn unwritable(path: &Path, source: io::Error) -> PackError {
    PackError::Unwritable {
        path: path.to_owned(),
        source,
    }
}

/// A file in `folder` whose name no program takes for one of Parquet's.
fn temporary_file(folder: &Path) -> io::Result<(File, TempPath)> {
    create_private_folder(folder)?;
    let [begin, end] = TEMPORARY;
    let file = tempfile::Builder::new()
        .prefix(begin)
        .suffix(end)
        .tempfile_in(folder)?;
    Ok(file.into_parts())
}

/// The folders of the partition that the line `root` belongs to.
pub(crate) fn partition_of(root: Node<'_>) -> Result<PathBuf, PackError> {
    let cluster = root.get("cluster").and_then(Node::as_str);
    let cluster = cluster.ok_or_else(|| PackError::Missing("cluster".to_owned()))?;
    let time = root.get("time").and_then(Node::as_str).unwrap_or_default();
    partition(&cluster, &time)
}

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
