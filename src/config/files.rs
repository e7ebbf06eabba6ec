//! Access to files: the disk, or memory in tests.
//!
//! A file that the gateway keeps for itself is replaced as a whole ([`replace`]).
//!
//! All files that users name are opened here. Only regular files are accepted, and what is kept of
//! one is bounded: reading a FIFO would block until somebody writes to it, and a device never ends.

mod scope;

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsString;
use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, BufWriter, Read as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use scope::FileScope;

pub(crate) use scope::{KeyFolderOwner, unsafe_for_keys};

/// The most bytes of a configuration, kubeconfig, certificate, key, token or JWKS.
pub const CONFIGURATION_BYTES: usize = 16 << 20;

/// The most bytes of one file of manifests.
pub const MANIFEST_BYTES: usize = 64 << 20;

/// What is being read, for who waits for it.
static PENDING: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A source of files.
pub trait Files {
    /// The content of `path`.
    ///
    /// # Errors
    ///
    /// Those of [`read`], whose bound is [`CONFIGURATION_BYTES`].
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
}

/// The file system.
#[derive(Debug, Clone, Copy)]
pub struct Disk;

/// The content of the regular file at `path`, links followed. Blocks as long as
/// its file system does.
///
/// # Errors
///
/// Those of [`fs::read`], in the words of [`describe`]; there is something else than a regular
/// file, or one of more than `most` bytes.
pub fn read(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    FileScope::Anywhere.read(path, most)
}

/// The same, of a file that must be text.
///
/// # Errors
///
/// Those of [`read`]; it is not UTF-8.
pub fn read_text(path: &Path, most: usize) -> io::Result<String> {
    text(read(path, most)?)
}

fn text(content: Vec<u8>) -> io::Result<String> {
    let not_text = |_| io::Error::new(io::ErrorKind::InvalidData, "is not UTF-8");
    String::from_utf8(content).map_err(not_text)
}

/// Opens the regular file at `path`, links followed, to be read bit by bit.
///
/// # Errors
///
/// Those of [`File::open`]; there is something else than a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    open_regular(path, OpenOptions::new().read(true))
}

/// Opens the file at `path` to append to it; where there is none it is made with `mode`.
///
/// # Errors
///
/// Those of [`open`].
pub fn append(path: &Path, mode: u32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    open_regular(path, options.append(true).create(true).mode(mode))
}

/// The rest of `input`, such as standard input.
///
/// # Errors
///
/// It cannot be read, or has more than `most` bytes.
pub fn read_rest(input: impl io::Read, length: usize, most: usize) -> io::Result<Vec<u8>> {
    let mut content = Vec::with_capacity(length);
    input.take(most as u64 + 1).read_to_end(&mut content)?;
    if content.len() > most {
        return Err(too_large(most));
    }
    Ok(content)
}

/// What went wrong with a file, with what to do about it where that is known.
#[must_use]
pub fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file or folder: make it, or correct the path".to_owned(),
        io::ErrorKind::PermissionDenied => {
            "permission denied: give the user as whom this program runs the right to it".to_owned()
        }
        _ => {
            let text = error.to_string();
            // The number says no more than the words before it.
            let words = text.rsplit_once(" (os error ");
            words.map_or(text.clone(), |(words, _)| words.to_owned())
        }
    }
}

/// What the name of a file ends with until [`replace`] puts it in its place.
pub const NEW_FILE_ENDING: &str = ".new";

/// `path` with `ending` after its name: a file that is in the same folder.
#[must_use]
pub fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    name.into()
}

/// Puts what `write` writes at `path`, as a whole or not at all, for the owner alone: it may hold
/// credentials. Folders that are missing are made. Blocks until it is on the disk.
///
/// # Errors
///
/// The file beside it cannot be written, or not put in its place.
pub fn replace(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)?;
    let beside = with_ending(path, NEW_FILE_ENDING);
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&beside)?;
    let mut writer = BufWriter::new(file);
    write(&mut writer)?;
    writer
        .into_inner()
        .map_err(io::IntoInnerError::into_error)?
        .sync_all()?;
    fs::rename(&beside, path)?;
    File::open(folder)?.sync_all()
}

/// Does what may wait for the file system at `path`; [`pending`] reports it meanwhile.
pub fn observed<T>(path: &Path, act: impl FnOnce() -> T) -> T {
    #[cfg(test)]
    OBSERVED.set(OBSERVED.get() + 1);
    let _pending = PendingRead::begin(path);
    act()
}

#[cfg(test)]
thread_local! {
    static OBSERVED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// How often this thread asked a file system for anything.
#[cfg(test)]
pub(crate) fn observed_by_this_thread() -> usize {
    OBSERVED.get()
}

/// What is being read at this moment.
#[must_use]
pub fn pending() -> Vec<PathBuf> {
    let mut paths = of_all_threads().clone();
    paths.sort();
    paths.dedup();
    paths
}

/// A path among those that are read.
struct PendingRead<'p>(&'p Path);

fn of_all_threads() -> MutexGuard<'static, Vec<PathBuf>> {
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `check` is asked of the file once it is open.
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
    // It may have grown, and some say no length at all.
    read_rest(file, length, most)
}

fn too_large(most: usize) -> io::Error {
    let message = format!("is larger than the limit of {most} bytes");
    io::Error::new(io::ErrorKind::FileTooLarge, message)
}

fn open_regular(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    // Anything else is not even opened: that alone has effects on some devices.
    match fs::metadata(path) {
        Ok(metadata) => check_type(metadata.file_type())?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    // Without waiting for the other end of a FIFO that came in the file's place.
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
        of_all_threads().push(path.to_owned());
        Self(path)
    }
}

impl Drop for PendingRead<'_> {
    fn drop(&mut self) {
        let mut paths = of_all_threads();
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

// The walk through a folder that the configuration or a user names.

/// How deep folders may be nested: a link that leads back up ends here.
const MAX_DEPTH: usize = 32;

/// Which entries of a folder count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FolderRule {
    /// Those that do not begin with a dot: what a mounted ConfigMap or Secret has behind its links
    /// counts once.
    Visible,
    /// All, as for `kubectl apply --recursive`; what links lead to again counts once.
    All,
}

/// What is in a folder and the folders below it: `*.yaml`, `*.yml` and `*.json`, symbolic links
/// followed.
pub(crate) struct FolderWalk {
    /// The files, each folder's in byte order.
    pub(crate) files: Vec<PathBuf>,
    /// The folders on the way.
    pub(crate) folders: BTreeSet<PathBuf>,
    /// What could not be followed or read; the walk went on beside it.
    pub(crate) errors: Vec<(PathBuf, io::Error)>,
    /// Whether there were more files and folders than it may have, so that it ended before its end.
    pub(crate) is_cut: bool,
    /// How many of either may still come.
    left: usize,
    scope: FileScope,
    rule: FolderRule,
    /// The real paths so far, where each counts once.
    real: HashSet<PathBuf>,
}

// === impl FolderWalk ===

impl FolderWalk {
    /// What is at and under `path`, at most so many files and folders, where links lead to what is
    /// in `scope`.
    pub(crate) fn new(scope: FileScope, rule: FolderRule, path: &Path, max_entries: usize) -> Self {
        let mut walk = Self {
            files: Vec::new(),
            folders: BTreeSet::new(),
            errors: Vec::new(),
            is_cut: false,
            left: max_entries,
            scope,
            rule,
            real: HashSet::new(),
        };
        match is_folder(path) {
            Ok(is_folder) => walk.take(path, is_folder, MAX_DEPTH),
            Err(error) => walk.fail(path, error),
        }
        walk
    }

    fn take(&mut self, path: &Path, is_folder: bool, depth: usize) {
        let Some(left) = self.left.checked_sub(1) else {
            if !std::mem::replace(&mut self.is_cut, true) {
                self.fail(path, io::Error::other("too many files, or circular links"));
            }
            return;
        };
        self.left = left;
        match self.is_new(path) {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => return self.fail(path, error),
        }
        if !is_folder {
            self.files.push(path.to_owned());
        } else if depth == 0 {
            let message = "folders nested too deeply, or a circular link";
            self.fail(path, io::Error::other(message));
        } else {
            self.folders.insert(path.to_owned());
            self.enter(path, depth - 1);
        }
    }

    fn enter(&mut self, folder: &Path, depth: usize) {
        let entries = match self.entries(folder) {
            Ok(entries) => entries,
            Err(error) => return self.fail(folder, error),
        };
        for (entry, known) in entries {
            if self.is_cut {
                return;
            }
            match known.map_or_else(|| self.follow(&entry), Ok) {
                Ok(is_folder) if is_folder || is_manifest(&entry) => self.take(&entry, is_folder, depth),
                Ok(_) => {}
                Err(error) => self.fail(&entry, error),
            }
        }
    }

    /// Whether a link leads to a folder.
    fn follow(&self, link: &Path) -> io::Result<bool> {
        observed(link, || self.scope.check_link(link))?;
        is_folder(link)
    }

    fn fail(&mut self, path: &Path, error: io::Error) {
        self.errors.push((path.to_owned(), error));
    }

    /// Whether what is at `path` counts: it has not been met by another name.
    fn is_new(&mut self, path: &Path) -> io::Result<bool> {
        if self.rule == FolderRule::Visible {
            return Ok(true);
        }
        let real = observed(path, || fs::canonicalize(path))?;
        Ok(self.real.insert(real))
    }

    /// What of a folder counts, in byte order, and whether it is a folder, where that is known
    /// without following a link.
    fn entries(&self, folder: &Path) -> io::Result<Vec<(PathBuf, Option<bool>)>> {
        let entry = |entry: io::Result<fs::DirEntry>| {
            let entry = entry?;
            let sort = entry.file_type().ok().filter(|sort| !sort.is_symlink());
            Ok((entry.path(), sort.map(|sort| sort.is_dir())))
        };
        let read = || -> io::Result<Vec<_>> { fs::read_dir(folder)?.map(entry).collect() };
        let mut entries = observed(folder, read)?;
        entries.retain(|(entry, _)| self.rule == FolderRule::All || !is_hidden(entry));
        entries.sort();
        Ok(entries)
    }
}

fn is_folder(path: &Path) -> io::Result<bool> {
    observed(path, || fs::metadata(path)).map(|metadata| metadata.is_dir())
}

fn is_hidden(path: &Path) -> bool {
    path.file_name()
        .is_none_or(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// Whether a folder's file of this name counts. As for kubectl, `.yaml` is all ending.
pub(crate) fn is_manifest(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let endings: [&[u8]; 3] = [b".yaml", b".yml", b".json"];
    endings.iter().any(|ending| name.ends_with(ending))
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
    fn a_file_is_read_up_to_the_bound() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "0123456789").unwrap();
        assert_eq!(read(&path, 10).unwrap(), b"0123456789");
        fs::write(&path, "0123456789a").unwrap();
        assert_eq!(refusal(&path), "is larger than the limit of 10 bytes");
        // The system says that these have no bytes.
        assert_eq!(
            refusal(Path::new("/proc/self/status")),
            "is larger than the limit of 10 bytes"
        );
    }

    #[test]
    fn what_is_being_read_is_known() {
        let path = Path::new("a/file/of/this/test");
        let inner = observed(path, || observed(path, pending));
        assert!(inner.iter().any(|pending| pending == path));
        assert!(!pending().iter().any(|pending| pending == path));
    }
}
