//! The source files of the workspace's crates.

use std::path::{Path, PathBuf};

/// The folders of crates whose structure is checked. `crates/cel` has circles on purpose: a
/// function of a library may evaluate the body of a macro, and the evaluator calls functions.
pub(crate) const CRATES: [&str; 3] = ["crates/convert/src", "crates/policy/src", "src"];

pub(crate) struct Source {
    /// From the package's folder, with `/`.
    pub(crate) path: String,
    /// The folder of its crate: one of [`CRATES`].
    pub(crate) root: &'static str,
    pub(crate) text: String,
}

impl Source {
    /// The lines that are no comments, from 1.
    pub(crate) fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self
            .text
            .lines()
            .enumerate()
            .map(|(index, line)| (index + 1, line));
        lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
    }

    /// Its module, from the crate down; empty for `lib.rs`.
    pub(crate) fn module(&self) -> Vec<String> {
        let path = self.path.strip_prefix(self.root).unwrap_or(&self.path);
        path.trim_end_matches(".rs")
            .split('/')
            .filter(|part| !part.is_empty() && *part != "lib")
            .map(str::to_owned)
            .collect()
    }
}

pub(crate) fn sources() -> Vec<Source> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for root in CRATES {
        let mut paths = Vec::new();
        walk(&top.join(root), &mut paths);
        found.extend(paths.into_iter().map(|path| Source {
            path: path.strip_prefix(top).unwrap().to_string_lossy().into_owned(),
            root,
            text: std::fs::read_to_string(&path).unwrap(),
        }));
    }
    found
}

pub(crate) fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}
