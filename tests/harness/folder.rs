//! A folder of a test's own under `target/tmp`.

use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A fresh folder, removed when it is dropped.
pub(crate) struct Folder(TempDir);

impl Folder {
    /// Makes a folder whose name begins with `name`.
    pub(crate) fn new(name: &str) -> Self {
        let parent = Path::new(env!("CARGO_TARGET_TMPDIR"));
        fs::create_dir_all(parent).unwrap();
        Self(
            tempfile::Builder::new()
                .prefix(&format!("{name}-"))
                .tempdir_in(parent)
                .unwrap(),
        )
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file, its folders too, and returns its path.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }
}
