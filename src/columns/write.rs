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

/// The most bytes of rows that wait for their row group, in all partitions together.
pub(crate) const MAX_WAITING_BYTES: usize = 64 << 20;

/// The most partitions that are written concurrently.
const MAX_OPEN_PARTITIONS: usize = 128;

/// The most files that one log or recording is packed into.
const MAX_FILES: usize = 100_000;

/// The most row groups of a file, so that its metadata stays small.
const MAX_FILE_GROUPS: usize = 64;

/// The number of values after which a page may end, which bounds the size of a page.
const BATCH_ROWS: usize = 64;

/// The prefix and suffix of the temporary name of a file.
pub(crate) const TEMPORARY: [&str; 2] = [".pack-", ".tmp"];

/// The characters that are escaped in the name of a folder. Hive escapes fewer, and decodes all.
const IN_FOLDER: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// The result of packing one log or recording.
#[derive(Debug, Default)]
pub(crate) struct PackedFiles {
    pub(crate) rows: u64,
    /// Sorted.
    pub(crate) files: Vec<PathBuf>,
    /// The total size of the files.
    pub(crate) bytes: u64,
}

/// Packs the rows of one log or recording. No file gets its name before [`Packer::finish`]; without
/// it, the files are removed.
pub(crate) struct Packer {
    files: FileMaker,
    /// By the path below the folder.
    open: HashMap<PathBuf, OpenPartition>,
    written: Vec<WrittenFile>,
    /// The bytes of waiting rows in all partitions.
    waiting: usize,
    rows: u64,
}

/// Creates the files of one kind.
pub(crate) struct FileMaker {
    kind: RowKind,
    folder: PathBuf,
    schema: TypePtr,
    properties: WriterPropertiesPtr,
}

/// A file that is being written, with its temporary name.
type BegunFile = (SerializedFileWriter<File>, TempPath);

/// A complete file with its temporary name.
pub(crate) struct WrittenFile {
    temporary: TempPath,
    path: PathBuf,
    pub(crate) bytes: u64,
}

/// A partition whose rows are being collected.
struct OpenPartition {
    rows: WaitingRows,
    file: Option<BegunFile>,
    groups: usize,
    digest: Sha256,
    /// The number of the last row that was added.
    used: u64,
}

// === impl Packer ===

impl Packer {
    /// # Errors
    ///
    /// None that depends on the rows.
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
    /// The line is not of this kind, or the files cannot be written.
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

    /// Gives all files their names. A file replaces one with the same rows, so that packing a file
    /// twice has the same result as packing it once.
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

    /// Closes the least recently used partition if the maximum is reached.
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

    /// Writes a row group of the partition with the most bytes.
    fn write_largest(&mut self) -> Result<(), PackError> {
        // The path breaks ties, so that the same lines always result in the same files.
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
        // A group without rows has no pages, and readers look for them where the file begins.
        if partition.rows.count == 0 {
            return Ok(());
        }
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

    /// Completes and closes the file of a partition.
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
    /// None that depends on the rows.
    pub(crate) fn new(kind: RowKind, folder: &Path) -> Result<Self, PackError> {
        Ok(Self {
            kind,
            folder: folder.to_owned(),
            schema: Arc::new(parse_message_type(&kind.schema())?),
            properties: Arc::new(properties(kind)?),
        })
    }

    /// Creates a file of `partition`.
    ///
    /// # Errors
    ///
    /// It cannot be created.
    pub(crate) fn begin(&self, partition: &Path) -> Result<BegunFile, PackError> {
        let folder = self.folder.join(partition);
        // Another thread may remove the empty folder at the same time, so retry once.
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
    /// Renames the file to its final name, replacing one with the same rows.
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

/// Adds a line to the digest of the lines in a file.
pub(crate) fn digest_line(digest: &mut Sha256, line: &[u8]) {
    // With the length, two lines have another digest than one line with the bytes of both.
    digest.update(&(line.len() as u64).to_le_bytes());
    digest.update(line);
}

fn unwritable(path: &Path, source: io::Error) -> PackError {
    PackError::Unwritable {
        path: path.to_owned(),
        source,
    }
}

/// Creates a file in `folder` with a name that no program takes for a Parquet file.
fn temporary_file(folder: &Path) -> io::Result<(File, TempPath)> {
    create_private_folder(folder)?;
    let [begin, end] = TEMPORARY;
    let file = tempfile::Builder::new()
        .prefix(begin)
        .suffix(end)
        .tempfile_in(folder)?;
    Ok(file.into_parts())
}

/// The path of the partition that the line `root` belongs to.
pub(crate) fn partition_of(root: Node<'_>) -> Result<PathBuf, PackError> {
    let cluster = root.get("cluster").and_then(Node::as_str);
    let cluster = cluster.ok_or_else(|| PackError::Missing("cluster".to_owned()))?;
    let time = root.get("time").and_then(Node::as_str).unwrap_or_default();
    partition(&cluster, &time)
}

fn partition(cluster: &str, time: &str) -> Result<PathBuf, PackError> {
    let wrong = || PackError::Unexpected("time".to_owned());
    // Converted to UTC.
    let time = Time::parse(time).ok_or_else(wrong)?.to_string();
    let (date, clock) = time.split_once('T').ok_or_else(wrong)?;
    let hour = clock.get(..2).ok_or_else(wrong)?;
    let cluster = match cluster {
        // Hive's name for null or an empty string.
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
