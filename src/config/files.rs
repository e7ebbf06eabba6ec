//! Access to files, on the disk or in memory (tests).
//!
//! Files that the gateway writes for itself are replaced atomically ([`replace`]).
//!
//! All files that users name are opened here. Only regular files are accepted, up to a maximum
//! size: reading a FIFO would block until somebody writes to it, and a device may have no end.

mod scope;

use std::ffi::OsString;
use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, BufWriter, Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use scope::FileScope;
pub(crate) use scope::{FolderRule, FolderWalk, KeyFolderOwner, is_manifest, unsafe_for_keys};

/// The maximum size of a configuration, kubeconfig, certificate, key, token or JWKS, in bytes.
pub const CONFIGURATION_BYTES: usize = 16 << 20;

/// The maximum size of one file of manifests, in bytes.
pub const MANIFEST_BYTES: usize = 64 << 20;

/// The paths that are being read now, to show on which files the gateway waits.
static PENDING: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A source of files.
pub trait Files {
    /// The content of `path`.
    ///
    /// # Errors
    ///
    /// As for [`read`], with the limit [`CONFIGURATION_BYTES`].
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
}

/// The file system.
#[derive(Debug, Clone, Copy)]
pub struct Disk;

/// Reads the regular file at `path`, following links. May block for as long as the file system
/// does.
///
/// # Errors
///
/// As for [`fs::read`], with the message of [`describe`]. Also if `path` is not a regular file, or
/// has more than `most` bytes.
pub fn read(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let content = with_pending_path(path, || read_bounded(path, most, |_| Ok(())));
    content.map_err(|error| io::Error::new(error.kind(), describe(&error)))
}

/// Like [`read`], for a text file.
///
/// # Errors
///
/// As for [`read`]; also if the file is not UTF-8.
pub fn read_text(path: &Path, most: usize) -> io::Result<String> {
    text(read(path, most)?)
}

fn text(content: Vec<u8>) -> io::Result<String> {
    let not_text = |_| io::Error::new(io::ErrorKind::InvalidData, "is not UTF-8");
    String::from_utf8(content).map_err(not_text)
}

/// Opens the regular file at `path`, following links, to be read in parts.
///
/// # Errors
///
/// As for [`File::open`]; also if `path` is not a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    open_regular(path, OpenOptions::new().read(true))
}

/// Opens the file at `path` for appending, and creates it with `mode` if it does not exist.
///
/// # Errors
///
/// As for [`open`].
pub fn append(path: &Path, mode: u32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    open_regular(path, options.append(true).create(true).mode(mode))
}

/// Reads the rest of `input`, such as standard input. `length` is the expected number of bytes.
///
/// # Errors
///
/// The input cannot be read, or has more than `most` bytes.
pub fn read_rest(input: impl io::Read, length: usize, most: usize) -> io::Result<Vec<u8>> {
    let mut content = Vec::with_capacity(length);
    input.take(most as u64 + 1).read_to_end(&mut content)?;
    if content.len() > most {
        return Err(too_large(most));
    }
    Ok(content)
}

/// Describes an error of a file and, if known, the remedy.
#[must_use]
pub fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "there is no such file or folder: put it there, or correct the path".to_owned()
        }
        io::ErrorKind::PermissionDenied => {
            "permission denied: allow the user that this program runs as to read it".to_owned()
        }
        _ => {
            let text = error.to_string();
            // The message already says what the number means.
            let words = text.rsplit_once(" (os error ");
            words.map_or(text.clone(), |(words, _)| words.to_owned())
        }
    }
}

/// The suffix of a new file until [`replace`] renames it.
pub const NEW_FILE_ENDING: &str = ".new";

/// `path` with `ending` appended to the file name.
#[must_use]
pub fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    name.into()
}

/// Atomically replaces the file at `path` by what `write` writes. Only the owner may read it,
/// because it may hold credentials. Missing folders are created. Blocks until the file is synced to
/// the disk.
///
/// # Errors
///
/// The new file cannot be written next to `path`, or not be renamed.
pub fn replace(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    replace_with_mode(path, 0o600, write)
}

/// Atomically replaces the file at `path` by `text`, like [`replace`]. The umask determines who may
/// read it.
///
/// # Errors
///
/// As for [`replace`]; also if `path` is a link or not a regular file.
pub fn replace_report(path: &Path, text: &str) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) => check_type(found.file_type())?,
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Err(_) => {}
    }
    replace_with_mode(path, 0o666, |file| file.write_all(text.as_bytes()))
}

fn replace_with_mode(
    path: &Path,
    mode: u32,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let folder = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    fs::create_dir_all(folder)?;
    let beside = with_ending(path, NEW_FILE_ENDING);
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&beside)?;
    let written = write_through(file, write).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // Otherwise files with a different name each time would use up a disk that is nearly full.
        let _removed = fs::remove_file(&beside);
    }
    written?;
    File::open(folder)?.sync_all()
}

fn write_through(file: File, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    let mut writer = BufWriter::new(file);
    write(&mut writer)?;
    let file = writer.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.sync_all()
}

/// Runs `act`, which may wait for the file system at `path`; meanwhile [`pending`] includes `path`.
pub fn with_pending_path<T>(path: &Path, act: impl FnOnce() -> T) -> T {
    #[cfg(test)]
    OBSERVED.set(OBSERVED.get() + 1);
    let _pending = PendingRead::begin(path);
    act()
}

#[cfg(test)]
thread_local! {
    static OBSERVED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// How many accesses to a file system this thread has made.
#[cfg(test)]
pub(crate) fn observed_by_this_thread() -> usize {
    OBSERVED.get()
}

/// The paths that are being read now.
#[must_use]
pub fn pending() -> Vec<PathBuf> {
    let mut paths = pending_paths().clone();
    paths.sort();
    paths.dedup();
    paths
}

/// Lists a path in [`PENDING`] until it is dropped.
struct PendingRead<'p>(&'p Path);

fn pending_paths() -> MutexGuard<'static, Vec<PathBuf>> {
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads a file that `check` accepts once it is open.
fn read_bounded(
    path: &Path,
    most: usize,
    check: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    check(&file)?;
    let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    if length > most {
        return Err(too_large(most));
    }
    // The file may have grown, and some files, as in `/proc`, report no length at all.
    read_rest(file, length, most)
}

/// The error for more than `most` bytes.
pub(crate) fn too_large(most: usize) -> io::Error {
    let message = format!("is larger than the limit of {most} bytes");
    io::Error::new(io::ErrorKind::FileTooLarge, message)
}

fn open_regular(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    // Other types are not even opened, because opening alone has effects on some devices.
    match fs::metadata(path) {
        Ok(metadata) => check_type(metadata.file_type())?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    // `O_NONBLOCK`: does not wait for the other end of a FIFO that has replaced the file.
    let file = options
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)?;
    check_type(file.metadata()?.file_type())?;
    Ok(file)
}

fn check_type(kind: FileType) -> io::Result<()> {
    let what = match kind {
        kind if kind.is_file() => return Ok(()),
        kind if kind.is_dir() => "a folder",
        kind if kind.is_symlink() => "a link",
        kind if kind.is_fifo() => "a named pipe (FIFO)",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    };
    let message = format!("is {what}; it must be a regular file");
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}

// === impl Disk ===

impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        read(path, CONFIGURATION_BYTES)
    }
}

// === impl PendingRead ===

impl<'p> PendingRead<'p> {
    fn begin(path: &'p Path) -> Self {
        pending_paths().push(path.to_owned());
        Self(path)
    }
}

impl Drop for PendingRead<'_> {
    fn drop(&mut self) {
        let mut paths = pending_paths();
        if let Some(place) = paths.iter().position(|path| path == self.0) {
            paths.swap_remove(place);
        }
    }
}

#[cfg(test)]
impl Files for std::collections::BTreeMap<PathBuf, Vec<u8>> {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.get(path)
            .cloned()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::process::Command;

    use super::*;

    fn refusal(path: &Path) -> String {
        read(path, 10).unwrap_err().to_string()
    }

    #[test]
    fn only_regular_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        assert!(
            Command::new("mkfifo")
                .arg(path("fifo"))
                .status()
                .unwrap()
                .success()
        );
        let _socket = UnixListener::bind(path("socket")).unwrap();
        symlink("/dev/zero", path("zero")).unwrap();
        symlink(path("fifo"), path("linked")).unwrap();
        for (name, what) in [
            ("fifo", "a named pipe (FIFO)"),
            ("linked", "a named pipe (FIFO)"),
            ("socket", "a socket"),
            ("zero", "a device"),
            ("", "a folder"),
        ] {
            let expected = format!("is {what}; it must be a regular file");
            assert_eq!(refusal(&path(name)), expected, "{name}");
        }
        let missing = read(&path("missing"), 10).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn what_cannot_be_written_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let full = |file: &mut BufWriter<File>| {
            file.write_all(b"half")?;
            Err(io::ErrorKind::StorageFull.into())
        };
        assert!(replace(&path, full).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        // The same if the file cannot be renamed.
        fs::create_dir_all(path.join("full")).unwrap();
        assert!(replace(&path, |file| file.write_all(b"all")).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_is_read_up_to_the_bound() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "0123456789").unwrap();
        assert_eq!(read(&path, 10).unwrap(), b"0123456789");
        fs::write(&path, "0123456789a").unwrap();
        assert_eq!(refusal(&path), "is larger than the limit of 10 bytes");
        // The system reports that these files are empty.
        assert_eq!(
            refusal(Path::new("/proc/self/status")),
            "is larger than the limit of 10 bytes"
        );
    }

    #[test]
    fn what_is_being_read_is_known() {
        let path = Path::new("a/file/of/this/test");
        let inner = with_pending_path(path, || with_pending_path(path, pending));
        assert!(inner.iter().any(|pending| pending == path));
        assert!(!pending().iter().any(|pending| pending == path));
    }
}
