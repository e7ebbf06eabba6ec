//! The files of recordings, read line by line.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use crate::cli::output::CommandError;
use crate::config::files;
use crate::recording::{PREFIX, RecordingError, RecordingHeader};
use portcullis_cel::json::Document;

/// The most bytes of a line: twice what the gateway queues of reviews that are to be written.
pub(crate) const MAX_LINE_BYTES: u64 = 128 << 20;

/// How the first line of a recording begins.
pub(crate) const HEADER: &[u8] = b"{\"portcullisRecording\"";

/// What is read at once.
pub(crate) const BUFFER: usize = 1 << 20;

/// The files that are named, in order; of folders those of recordings, the oldest first.
///
/// # Errors
///
/// One cannot be read, or a folder has none.
pub(crate) fn recording_files(named: &[PathBuf]) -> Result<Vec<PathBuf>, CommandError> {
    let mut files = Vec::new();
    for path in named {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let mut within = recordings_of(path).map_err(|source| CommandError::file("read", path, source))?;
        if within.is_empty() {
            let path = path.display();
            return Err(CommandError::Usage(format!("there is no recording in `{path}`")));
        }
        within.sort();
        files.append(&mut within);
    }
    Ok(files)
}

pub(crate) fn recordings_of(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// One file that is being read.
pub(crate) struct RecordingFile {
    pub(crate) path: PathBuf,
    /// The number of the line that was read last, from 1.
    pub(crate) line: u64,
    /// Whether a recording in it ends with a line that is not whole.
    pub(crate) is_cut: bool,
    pub(crate) reader: Box<dyn BufRead>,
    pub(crate) buffer: Vec<u8>,
}

// === impl RecordingFile ===

impl RecordingFile {
    /// # Errors
    ///
    /// It cannot be read, or is no recording, or one of a later version.
    pub(crate) fn open(path: &Path) -> Result<Self, CommandError> {
        let reader: Box<dyn BufRead> = if path == Path::new("-") {
            Box::new(BufReader::with_capacity(BUFFER, io::stdin()))
        } else {
            let file = files::open(path).map_err(|source| CommandError::file("read", path, source))?;
            Box::new(BufReader::with_capacity(BUFFER, file))
        };
        let mut file = Self {
            path: path.to_owned(),
            line: 0,
            is_cut: false,
            reader,
            buffer: Vec::new(),
        };
        file.read()?;
        // A process that ended at once has left not even the first line.
        if file.buffer.is_empty() {
            file.is_cut = true;
            return Ok(file);
        }
        file.check_header()?;
        Ok(file)
    }

    /// Goes to the next line that is whole. Whether there is one.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub(crate) fn advance(&mut self) -> Result<bool, CommandError> {
        self.read()?;
        // Recordings may be put one behind the other.
        while self.buffer.starts_with(HEADER) {
            self.check_header()?;
            self.read()?;
        }
        if self.buffer.is_empty() {
            return Ok(false);
        }
        if self.buffer.last() != Some(&b'\n') && Document::parse_bytes(&self.buffer).is_err() {
            self.is_cut = true;
            return Ok(false);
        }
        Ok(true)
    }

    /// What this line says; none where it is cut off, and another recording begins behind it.
    ///
    /// # Errors
    ///
    /// It is no JSON.
    pub(crate) fn document(&self) -> Result<Option<Document<'_>>, CommandError> {
        match Document::parse_bytes(&self.buffer) {
            Ok(document) => Ok(Some(document)),
            Err(_) if self.buffer.windows(HEADER.len()).any(|part| part == HEADER) => Ok(None),
            Err(error) => Err(self.unreadable(&error.into())),
        }
    }

    fn check_header(&self) -> Result<(), CommandError> {
        let header = RecordingHeader::read(&self.buffer);
        header.map(drop).map_err(|error| self.unreadable(&error))
    }

    fn read(&mut self) -> Result<(), CommandError> {
        self.buffer.clear();
        self.line += 1;
        let mut line = io::Read::take(&mut self.reader, MAX_LINE_BYTES);
        let read = line.read_until(b'\n', &mut self.buffer);
        let read = read.map_err(|source| CommandError::file("read", &self.path, source))?;
        if read as u64 == MAX_LINE_BYTES {
            let error = RecordingError::TooLong {
                max_bytes: MAX_LINE_BYTES,
            };
            return Err(self.unreadable(&error));
        }
        Ok(())
    }

    /// That this line cannot be used.
    pub(crate) fn unreadable(&self, error: &RecordingError) -> CommandError {
        CommandError::Usage(format!(
            "cannot replay `{}`, line {}: {error}",
            self.path.display(),
            self.line
        ))
    }
}
