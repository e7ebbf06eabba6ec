//! Where files may be. What others than the gateway's administrator name, and what their links
//! lead to, stays below a folder of theirs: else they would have it read, or written, what is
//! somebody else's.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{CONFIGURATION_BYTES, Files, describe, observed, read_bounded, text};

/// Where the files of somebody may be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum FileScope {
    /// Anywhere: the gateway's administrator names them.
    #[default]
    Anywhere,
    /// Below this folder, an absolute path, wherever links lead.
    Below(Arc<Path>),
}

/// Where a file is to be written, in a folder that is held: a link that takes the place of the
/// folder does not lead elsewhere.
#[derive(Debug)]
pub(crate) struct PlacedFile {
    path: PathBuf,
    _folder: Option<File>,
}

// === impl FileScope ===

impl FileScope {
    /// That of a tenant whose files are in `folder`.
    #[must_use]
    pub fn below(folder: &Path) -> Self {
        Self::Below(folder.into())
    }

    /// Whether a file of this name may be one of theirs; where links lead is not asked.
    #[must_use]
    pub fn holds(&self, path: &Path) -> bool {
        match self {
            Self::Anywhere => true,
            Self::Below(folder) => path.starts_with(folder),
        }
    }

    /// The content of the regular file at `path`, as [`super::read`] gives it.
    ///
    /// # Errors
    ///
    /// Those of [`super::read`]; the file is outside of the folder.
    pub fn read(&self, path: &Path, most: usize) -> io::Result<Vec<u8>> {
        let content = observed(path, || {
            self.check_name(path)?;
            read_bounded(path, most, |file| self.check_file(file))
        });
        content.map_err(|error| io::Error::new(error.kind(), describe(&error)))
    }

    /// The same, of a file that must be text.
    ///
    /// # Errors
    ///
    /// Those of [`FileScope::read`]; it is not UTF-8.
    pub fn read_text(&self, path: &Path, most: usize) -> io::Result<String> {
        text(self.read(path, most)?)
    }

    /// Refuses a link that leads out of the folder. What is there later is another question:
    /// [`FileScope::read`] asks it of the file that it has opened.
    pub(crate) fn check_link(&self, path: &Path) -> io::Result<()> {
        match self {
            Self::Anywhere => Ok(()),
            Self::Below(folder) => self.check_real(folder, &fs::canonicalize(path)?),
        }
    }

    /// Where to write what is to be at `path`.
    ///
    /// # Errors
    ///
    /// Its folder is not there, or outside of the scope.
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
            Self::Below(folder) if !self.holds(path) => Err(self.outside(folder)),
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

    /// Says nothing of what is there.
    fn outside(&self, folder: &Path) -> io::Error {
        io::Error::other(format!(
            "is outside of `{}`, where all files of this tenant must be: put it there, and link to nothing outside",
            folder.display()
        ))
    }
}

impl Files for FileScope {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.read(path, CONFIGURATION_BYTES)
    }
}

/// The name under which this process finds what it has open.
fn descriptor(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

// === impl PlacedFile ===

impl PlacedFile {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
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
        assert!(scope.check_link(&path("east/inner")).is_ok());
        assert!(scope.check_link(&path("east/link")).is_err());
        assert!(!scope.holds(&path("east-2/secret")));
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
        // The folder gives way to a link after it was looked at.
        fs::rename(path("east/deep"), path("east/moved")).unwrap();
        symlink(path("west"), path("east/deep")).unwrap();
        fs::write(placed.path(), "mine").unwrap();
        assert!(!path("west/new").exists());
        assert_eq!(fs::read(path("east/moved/new")).unwrap(), b"mine");
    }
}
