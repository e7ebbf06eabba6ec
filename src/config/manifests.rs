//! `manifests`: the files and folders from which policies are read.

use std::collections::HashSet;
use std::path::PathBuf;

use super::files::FileScope;
use super::section::{ListItem, Section};
use portcullis_policy::field::FaultKind;

/// A file or folder of Kubernetes objects.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ManifestPath {
    /// Absolute.
    pub path: PathBuf,
    /// The cluster whose requests alone these objects hold for; `None`: every cluster.
    pub cluster: Option<String>,
}

// === impl ManifestPath ===

impl ManifestPath {
    /// Where the files may be that it leads to. What holds for one cluster alone may be written by
    /// its administrators: it stays below the folder. Asks the file system what is there.
    #[must_use]
    pub fn scope(&self) -> FileScope {
        match (&self.cluster, self.path.parent()) {
            (None, _) => FileScope::Anywhere,
            (Some(_), Some(folder)) if !self.path.is_dir() => FileScope::below(folder),
            (Some(_), _) => FileScope::below(&self.path),
        }
    }
}

pub(crate) fn manifests(root: &Section<'_>) -> Vec<ManifestPath> {
    let (mut manifests, mut known) = (Vec::new(), HashSet::new());
    for item in root.items("manifests") {
        let Some(manifest) = manifest(&item) else { continue };
        if !known.insert(manifest.clone()) {
            item.fault(
                FaultKind::Duplicate,
                format!("`{}` is used twice", manifest.path.display()),
            );
        }
        manifests.push(manifest);
    }
    manifests
}

fn manifest(item: &ListItem<'_>) -> Option<ManifestPath> {
    if item.is_text() {
        return item.path().map(|path| ManifestPath { path, cluster: None });
    }
    let section = item.section(&["path", "cluster"]);
    let cluster = section.text("cluster").map(str::to_owned);
    let path = section.required_path("path", "a file or folder of Kubernetes YAML or JSON")?;
    Some(ManifestPath { path, cluster })
}
