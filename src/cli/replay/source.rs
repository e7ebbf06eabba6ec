//! The lines of recordings, one at a time.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::cli::Error;
use crate::recording::{PREFIX, RecordingError, RecordingHeader};
use portcullis_cel::json::Document;

/// The longest line that is read: the largest review, and its answers.
const LONGEST: u64 = 1 << 30;

/// What is read at once.
const BUFFER: usize = 1 << 20;

/// How often progress is shown.
const PAUSE: Duration = Duration::from_millis(200);

/// How many reviews pass between two looks at the clock.
const STRIDE: u64 = 256;

/// The files that are named, in order; of folders those of recordings, the oldest first.
///
/// # Errors
///
/// One cannot be read, or a folder has none.
pub(super) fn files(named: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    for path in named {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let mut within = recordings_of(path).map_err(|source| Error::file("read", path, source))?;
        if within.is_empty() {
            let path = path.display();
            return Err(Error::Usage(format!("there is no recording in `{path}`")));
        }
        within.sort();
        files.append(&mut within);
    }
    Ok(files)
}

fn recordings_of(folder: &Path) -> io::Result<Vec<PathBuf>> {
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
pub(super) struct RecordingFile {
    pub(super) path: PathBuf,
    /// The number of the line that was read last, from 1.
    pub(super) line: u64,
    /// Whether its last line is not whole.
    pub(super) is_cut: bool,
    reader: Box<dyn BufRead>,
    buffer: Vec<u8>,
}

// === impl RecordingFile ===

impl RecordingFile {
    /// # Errors
    ///
    /// It cannot be read, or is no recording, or one of a later version.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let reader: Box<dyn BufRead> = if path == Path::new("-") {
            Box::new(BufReader::with_capacity(BUFFER, io::stdin()))
        } else {
            let file = File::open(path).map_err(|source| Error::file("read", path, source))?;
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
        let header = RecordingHeader::read(&file.buffer);
        header.map_err(|error| file.unreadable(&error))?;
        Ok(file)
    }

    /// Goes to the next line that is whole. Whether there is one.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub(super) fn advance(&mut self) -> Result<bool, Error> {
        self.read()?;
        if self.buffer.is_empty() {
            return Ok(false);
        }
        if self.buffer.last() != Some(&b'\n') && Document::parse_bytes(&self.buffer).is_err() {
            self.is_cut = true;
            return Ok(false);
        }
        Ok(true)
    }

    /// This line.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer
    }

    fn read(&mut self) -> Result<(), Error> {
        self.buffer.clear();
        self.line += 1;
        let mut line = io::Read::take(&mut self.reader, LONGEST);
        let read = line.read_until(b'\n', &mut self.buffer);
        read.map(drop)
            .map_err(|source| Error::file("read", &self.path, source))
    }

    /// That this line cannot be used.
    pub(super) fn unreadable(&self, error: &RecordingError) -> Error {
        Error::Usage(format!(
            "cannot replay `{}`, line {}: {error}",
            self.path.display(),
            self.line
        ))
    }
}

/// Shows on a terminal how many reviews were replayed.
pub(super) struct ReplayProgress {
    is_shown: bool,
    count: u64,
    shown: Instant,
    is_any: bool,
}

// === impl ReplayProgress ===

impl Default for ReplayProgress {
    fn default() -> Self {
        Self {
            is_shown: io::stderr().is_terminal(),
            count: 0,
            shown: Instant::now(),
            is_any: false,
        }
    }
}

impl ReplayProgress {
    /// One review more.
    pub(super) fn advance(&mut self) {
        self.count += 1;
        if !self.is_shown || !self.count.is_multiple_of(STRIDE) || self.shown.elapsed() < PAUSE {
            return;
        }
        self.shown = Instant::now();
        self.is_any = true;
        // That it cannot be shown is no failure.
        let _ = write!(io::stderr(), "\r{} reviews replayed", self.count);
    }

    /// Takes it away.
    pub(super) fn end(self) {
        if self.is_any {
            let _ = write!(io::stderr(), "\r{:40}\r", "");
        }
    }
}
