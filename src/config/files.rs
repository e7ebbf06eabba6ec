//! Where the outer ring reads its files from: a disk, or a test's own.

use std::io;
use std::path::Path;

/// A source of files.
pub trait Files {
    /// The content of `path`.
    ///
    /// # Errors
    ///
    /// Those of [`std::fs::read`].
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
}

/// The file system.
#[derive(Debug, Clone, Copy)]
pub struct Disk;

// === impl Disk ===

impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }
}

#[cfg(test)]
impl Files for std::collections::BTreeMap<std::path::PathBuf, Vec<u8>> {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.get(path)
            .cloned()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}
