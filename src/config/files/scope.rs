//! Which files may be used on behalf of whom. Files that are named by users other than the
//! gateway's administrator, and the targets of their links, must be below a folder of theirs;
//! otherwise the gateway would read or write files of others for them. Also the walk through a
//! folder of manifests, and which folders are safe for private keys.

use std::collections::{BTreeSet, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{StatVfsMountFlags, statvfs};

use super::{CONFIGURATION_BYTES, Files, describe, read_bounded, text, with_pending_path};

/// Where the files that a user names may be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum FileScope {
    /// Anywhere: the gateway's administrator names them.
    #[default]
    Anywhere,
    /// Below this folder, an absolute path, even after links are followed.
    Below(Arc<Path>),
}

/// Where to write a file. Its folder is kept open, so that a link that replaces the folder does not
/// lead elsewhere.
#[derive(Debug)]
pub(crate) struct PlacedFile {
    path: PathBuf,
    _folder: Option<File>,
}

/// How many levels of folders may be nested.
const MAX_DEPTH: usize = 32;

/// A path counts as one more entry for each such number of bytes, because names take memory, too.
const PATH_BYTES_OF_AN_ENTRY: usize = 256;

/// Which entries of a folder are considered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FolderRule {
    /// Entries whose name does not begin with a dot. Kubernetes names the targets of the links in a
    /// mounted ConfigMap or Secret with a dot.
    Visible,
    /// All entries, as for `kubectl apply --recursive`.
    All,
}

/// The manifests (`*.yaml`, `*.yml` and `*.json`) in a folder and its subfolders. Symbolic links
/// are followed; a file that has several names is listed once, by the first of them.
pub(crate) struct FolderWalk {
    /// The files; those of one folder are in byte order.
    pub(crate) files: Vec<PathBuf>,
    /// The folders that were entered.
    pub(crate) folders: BTreeSet<PathBuf>,
    /// What could not be followed or read; the walk continued without it.
    pub(crate) errors: Vec<(PathBuf, io::Error)>,
    /// Whether the walk ended early because there were more entries than the limit.
    pub(crate) exceeded_limit: bool,
    /// The folders of tenants whose walk ended early.
    pub(crate) folders_over_limit: Vec<PathBuf>,
    /// The limit of entries for each direct subfolder, if these are the folders of tenants.
    tenant_entries: Option<usize>,
    max_entries: usize,
    /// How many further entries are allowed.
    entries_left: usize,
    scope: FileScope,
    rule: FolderRule,
    /// The real paths of the files and folders found so far.
    real: HashSet<PathBuf>,
}

/// What is known of an entry of a folder before links are followed.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct FolderEntry {
    path: PathBuf,
    /// `None` if it is a link.
    is_folder: Option<bool>,
}

// === impl FileScope ===

impl FileScope {
    /// The scope of a tenant whose files are in `folder`.
    #[must_use]
    pub fn below(folder: &Path) -> Self {
        Self::Below(folder.into())
    }

    /// Whether a file with this path may be in the scope, before links are followed.
    #[must_use]
    pub fn contains(&self, path: &Path) -> bool {
        match self {
            Self::Anywhere => true,
            Self::Below(folder) => path.starts_with(folder),
        }
    }

    /// Reads the regular file at `path`, like [`super::read`].
    ///
    /// # Errors
    ///
    /// As for [`super::read`]; also if the file is outside of the folder.
    pub fn read(&self, path: &Path, most: usize) -> io::Result<Vec<u8>> {
        let content = with_pending_path(path, || {
            self.check_name(path)?;
            read_bounded(path, most, |file| self.check_file(file))
        });
        content.map_err(|error| io::Error::new(error.kind(), describe(&error)))
    }

    /// Like [`FileScope::read`], for a text file.
    ///
    /// # Errors
    ///
    /// As for [`FileScope::read`]; also if the file is not UTF-8.
    pub fn read_text(&self, path: &Path, most: usize) -> io::Result<String> {
        text(self.read(path, most)?)
    }

    /// Resolves the links in `path`; an error if it leads out of the folder. The file may be
    /// replaced later: [`FileScope::read`] checks the file that it has opened.
    pub(crate) fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        let real = fs::canonicalize(path)?;
        if let Self::Below(folder) = self {
            self.check_real(folder, &real)?;
        }
        Ok(real)
    }

    /// Where to write the file for `path`.
    ///
    /// # Errors
    ///
    /// The folder of `path` does not exist, or is outside of the scope.
    pub(crate) fn place(&self, path: &Path) -> io::Result<PlacedFile> {
        let Self::Below(scope) = self else {
            return Ok(PlacedFile {
                path: path.to_owned(),
                _folder: None,
            });
        };
        self.check_name(path)?;
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(self.outside(scope));
        };
        let folder = File::open(folder)?;
        self.check_file(&folder)?;
        Ok(PlacedFile {
            path: descriptor(&folder).join(name),
            _folder: Some(folder),
        })
    }

    fn check_name(&self, path: &Path) -> io::Result<()> {
        match self {
            Self::Below(folder) if !self.contains(path) => Err(self.outside(folder)),
            _ => Ok(()),
        }
    }

    fn check_file(&self, file: &File) -> io::Result<()> {
        match self {
            Self::Anywhere => Ok(()),
            Self::Below(folder) => self.check_real(folder, &fs::read_link(descriptor(file))?),
        }
    }

    fn check_real(&self, folder: &Path, real: &Path) -> io::Result<()> {
        match real.starts_with(fs::canonicalize(folder)?) {
            true => Ok(()),
            false => Err(self.outside(folder)),
        }
    }

    /// The message does not reveal whether there is a file.
    fn outside(&self, folder: &Path) -> io::Error {
        io::Error::other(format!(
            "is outside of `{}`, where all files of this tenant must be: move it there, and remove links that \
            lead outside",
            folder.display()
        ))
    }
}

impl Files for FileScope {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.read(path, CONFIGURATION_BYTES)
    }
}

/// The path under which this process can access an open file.
fn descriptor(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

// === impl PlacedFile ===

impl PlacedFile {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// The mode bits that let the group and all others write.
const OTHERS_WRITE: u32 = 0o022;

/// Who may own a folder of private keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyFolderOwner {
    /// Root, and the user that runs this program, because the program writes keys there.
    Own,
    /// Any user, because the owner of the folder manages the keys.
    Any,
}

/// Why private keys are not safe in `folder`, with the remedy: others could replace the keys, or
/// have keys written where they can read them. `None` if the folder is safe, if it does not exist,
/// and if it is mounted read-only, as Kubernetes mounts Secrets.
pub(crate) fn unsafe_for_keys(folder: &Path, owner: KeyFolderOwner) -> Option<String> {
    let found = fs::symlink_metadata(folder).ok()?;
    let shown = folder.display();
    if found.is_symlink() {
        return Some(format!(
            "`{shown}` is a symbolic link: name the folder that it leads to"
        ));
    }
    if !found.is_dir() {
        return Some(format!("`{shown}` is not a folder"));
    }
    if is_foreign(found.uid(), owner) {
        let uid = found.uid();
        return Some(format!(
            "`{shown}` belongs to another user (uid {uid}), who could replace the keys in it: use a folder of your own"
        ));
    }
    let mode = found.permissions().mode() & 0o7777;
    if mode & OTHERS_WRITE != 0 && !is_read_only(folder) {
        return Some(format!(
            "others may write to `{shown}` (mode {mode:04o}), and so replace the keys in it: `chmod go-w {shown}`"
        ));
    }
    None
}

fn is_foreign(uid: u32, owner: KeyFolderOwner) -> bool {
    let own = [0, rustix::process::geteuid().as_raw()];
    owner == KeyFolderOwner::Own && !own.contains(&uid)
}

fn is_read_only(folder: &Path) -> bool {
    statvfs(folder).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY))
}

// === impl FolderWalk ===

impl FolderWalk {
    /// Walks `path`, following links to what is in `scope`, up to `max_entries` entries of folders,
    /// including those that are not manifests.
    pub(crate) fn new(scope: FileScope, rule: FolderRule, path: &Path, max_entries: usize) -> Self {
        Self::limited(scope, rule, path, (max_entries, None))
    }

    /// Walks the visible entries of `path`, each direct subfolder of which is a tenant's, with a
    /// limit of `tenant_entries`. Links in it must not lead out of it.
    pub(crate) fn of_tenants(path: &Path, max_entries: usize, tenant_entries: usize) -> Self {
        let (scope, limits) = (FileScope::below(path), (max_entries, Some(tenant_entries)));
        Self::limited(scope, FolderRule::Visible, path, limits)
    }

    fn limited(
        scope: FileScope,
        rule: FolderRule,
        path: &Path,
        (max_entries, tenant_entries): (usize, Option<usize>),
    ) -> Self {
        let mut walk = Self {
            files: Vec::new(),
            folders: BTreeSet::new(),
            errors: Vec::new(),
            exceeded_limit: false,
            folders_over_limit: Vec::new(),
            tenant_entries,
            max_entries,
            entries_left: max_entries,
            scope,
            rule,
            real: HashSet::new(),
        };
        match resolve(&FileScope::Anywhere, path) {
            Ok((real, is_folder)) => walk.visit(path, real, is_folder, MAX_DEPTH),
            Err(error) => walk.fail(path, error),
        }
        walk
    }

    fn visit(&mut self, path: &Path, real: PathBuf, is_folder: bool, depth: usize) {
        if !self.real.insert(real.clone()) {
            return;
        }
        if !is_folder {
            self.files.push(path.to_owned());
        } else if depth == 0 {
            self.fail(path, io::Error::other("folders nested too deeply"));
        } else {
            self.folders.insert(path.to_owned());
            self.enter(path, &real, depth - 1);
        }
    }

    fn enter(&mut self, folder: &Path, real: &Path, depth: usize) {
        let entries = match with_pending_path(folder, || self.entries(folder)) {
            Ok(entries) => entries,
            Err(error) => return self.fail(folder, error),
        };
        for FolderEntry { path, is_folder } in entries {
            if self.exceeded_limit {
                return;
            }
            let found = match (is_folder, path.file_name()) {
                (Some(is_folder), Some(name)) => Ok((real.join(name), is_folder)),
                _ => resolve(&self.scope, &path),
            };
            match (found, self.tenant_entries) {
                (Ok((_, true)), Some(max_entries)) => self.visit_tenant_folder(&path, max_entries),
                (Ok((real, is_folder)), _) if is_folder || is_manifest(&path) => {
                    self.visit(&path, real, is_folder, depth);
                }
                (Ok(_), _) => {}
                (Err(error), _) => self.fail(&path, error),
            }
        }
    }

    /// Walks the folder of a tenant. If its limit is exceeded, only the walk of this folder ends
    /// early.
    fn visit_tenant_folder(&mut self, folder: &Path, max_entries: usize) {
        let walk = Self::new(FileScope::below(folder), self.rule, folder, max_entries);
        if walk.exceeded_limit {
            self.folders_over_limit.push(folder.to_owned());
        }
        self.files.extend(walk.files);
        self.folders.extend(walk.folders);
        self.errors.extend(walk.errors);
    }

    fn fail(&mut self, path: &Path, error: io::Error) {
        self.errors.push((path.to_owned(), error));
    }

    /// The entries of `folder` that are considered, in byte order.
    fn entries(&mut self, folder: &Path) -> io::Result<Vec<FolderEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let path = entry.path();
            self.charge(&path)?;
            if self.rule == FolderRule::Visible && is_hidden(&path) {
                continue;
            }
            let sort = entry.file_type().ok().filter(|sort| !sort.is_symlink());
            let is_folder = sort.map(|sort| sort.is_dir());
            if is_folder != Some(false) || is_manifest(&path) {
                entries.push(FolderEntry { path, is_folder });
            }
        }
        entries.sort_unstable();
        Ok(entries)
    }

    fn charge(&mut self, path: &Path) -> io::Result<()> {
        let entries = 1 + path.as_os_str().len() / PATH_BYTES_OF_AN_ENTRY;
        match self.entries_left.checked_sub(entries) {
            Some(left) => self.entries_left = left,
            None => {
                self.exceeded_limit = true;
                return Err(io::Error::other(format!(
                    "with this folder there are more than {} files and folders: keep manifests in a separate \
                    folder",
                    self.max_entries
                )));
            }
        }
        Ok(())
    }
}

/// The real path of `path`, which must be in `scope`, and whether it is a folder.
fn resolve(scope: &FileScope, path: &Path) -> io::Result<(PathBuf, bool)> {
    with_pending_path(path, || {
        let real = scope.real_path(path)?;
        let is_folder = fs::metadata(&real)?.is_dir();
        Ok((real, is_folder))
    })
}

fn is_hidden(path: &Path) -> bool {
    path.file_name()
        .is_none_or(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// Whether a file of this name is a manifest. A file that is only named `.yaml` is one, as for
/// kubectl.
pub(crate) fn is_manifest(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let endings: [&[u8]; 3] = [b".yaml", b".yml", b".json"];
    endings.iter().any(|ending| name.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Files of two tenants, and links from the folder of one to the other's.
    fn mk_tenants() -> (tempfile::TempDir, FileScope) {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["east/deep", "west", "east-2"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        for name in ["east/own", "east/deep/own", "west/secret", "east-2/secret"] {
            fs::write(path(name), name).unwrap();
        }
        symlink(path("west/secret"), path("east/link")).unwrap();
        symlink("../../west", path("east/deep/up")).unwrap();
        symlink("deep/own", path("east/inner")).unwrap();
        let scope = FileScope::below(&path("east"));
        (folder, scope)
    }

    #[test]
    fn what_is_outside_is_not_read_whatever_leads_there() {
        let (folder, scope) = mk_tenants();
        let path = |name: &str| folder.path().join(name);
        for name in ["east/own", "east/deep/own", "east/inner"] {
            assert!(scope.read(&path(name), 100).is_ok(), "{name}");
        }
        for name in ["east/link", "east/deep/up/secret", "west/secret", "east-2/secret"] {
            let error = scope.read(&path(name), 100).unwrap_err().to_string();
            assert!(error.starts_with("is outside of "), "{name}: {error}");
            assert!(FileScope::Anywhere.read(&path(name), 100).is_ok(), "{name}");
        }
        // The message does not reveal whether the file exists.
        let missing = scope.read(&path("west/missing"), 100).unwrap_err().to_string();
        assert!(missing.starts_with("is outside of "), "{missing}");
        assert!(scope.real_path(&path("east/inner")).is_ok());
        assert!(scope.real_path(&path("east/link")).is_err());
        assert!(!scope.contains(&path("east-2/secret")));
    }

    #[test]
    fn a_folder_that_is_a_link_is_the_one_that_it_leads_to() {
        let (folder, _) = mk_tenants();
        let link = folder.path().join("mounted");
        symlink("east", &link).unwrap();
        let scope = FileScope::below(&link);
        assert!(scope.read(&link.join("own"), 100).is_ok());
        assert!(scope.read(&link.join("link"), 100).is_err());
    }

    #[test]
    fn nothing_is_written_outside() {
        let (folder, scope) = mk_tenants();
        let path = |name: &str| folder.path().join(name);
        for name in ["west/new", "east/deep/up/new", "east"] {
            assert!(scope.place(&path(name)).is_err(), "{name}");
        }
        let placed = scope.place(&path("east/deep/new")).unwrap();
        // The folder is replaced by a link after the check.
        fs::rename(path("east/deep"), path("east/moved")).unwrap();
        symlink(path("west"), path("east/deep")).unwrap();
        fs::write(placed.path(), "mine").unwrap();
        assert!(!path("west/new").exists());
        assert_eq!(fs::read(path("east/moved/new")).unwrap(), b"mine");
    }

    #[test]
    fn a_folder_for_keys_belongs_to_root_or_to_who_runs_the_program() {
        let own = rustix::process::geteuid().as_raw();
        assert!(!is_foreign(0, KeyFolderOwner::Own) && !is_foreign(own, KeyFolderOwner::Own));
        assert!(is_foreign(own + 1, KeyFolderOwner::Own));
        assert!(!is_foreign(own + 1, KeyFolderOwner::Any));
    }

    #[test]
    fn keys_are_not_safe_behind_links_and_where_others_write() {
        let top = tempfile::tempdir().unwrap();
        let folder = top.path().join("pki");
        let said = |folder: &Path| unsafe_for_keys(folder, KeyFolderOwner::Own);
        assert_eq!(said(&folder), None, "it is to be made");
        fs::create_dir(&folder).unwrap();
        for (mode, word) in [
            (0o755, ""),
            (0o700, ""),
            (0o775, "others may write"),
            (0o757, "(mode 0757)"),
            (0o1777, "chmod go-w"),
        ] {
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
            let said = said(&folder);
            assert_eq!(said.is_none(), word.is_empty(), "{mode:o}");
            assert!(said.unwrap_or_default().contains(word), "{mode:o}");
        }
        let link = top.path().join("link");
        symlink(&folder, &link).unwrap();
        assert!(said(&link).unwrap().contains("is a symbolic link"));
        fs::write(top.path().join("file"), "").unwrap();
        assert!(
            said(&top.path().join("file"))
                .unwrap()
                .contains("is not a folder")
        );
    }
}
