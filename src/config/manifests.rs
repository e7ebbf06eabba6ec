//! `manifests`: the files and folders from which policies are read; `reload`: how changed files are
//! detected.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use super::files::FileScope;
use super::section::{ListItem, Section};
use portcullis_policy::field::{FaultKind, unsupported_value};

/// A file or folder of Kubernetes objects.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ManifestPath {
    /// Absolute.
    pub path: PathBuf,
    /// The cluster whose requests alone these objects hold for; `None`: every cluster.
    pub cluster: Option<String>,
}

/// When files are read again, besides watching them and SIGHUP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reload {
    /// The time from one look to the next.
    pub poll_interval: Duration,
    /// Where the configuration and manifests that were last in force are kept, for a start beside
    /// faulty ones; `None` for nowhere.
    pub last_good: Option<PathBuf>,
    /// How many Denies, validating policies and webhooks one change of the files may take away; `None`: any.
    pub max_removed: Option<usize>,
    /// Whether objects that lock out are held back (`refuse: [lockOut]`), until they are confirmed.
    pub refuses_lock_outs: bool,
}

/// What `refuse` may name.
const LOCK_OUT: &str = "lockOut";

/// As often as the API server looks at its own.
const fn default_poll_interval() -> Duration {
    Duration::from_secs(60)
}

pub(crate) fn reload(root: &Section<'_>) -> Reload {
    let section = root.section("reload", &["pollInterval", "lastGood", "maxRemoved", "refuse"]);
    let refused = section.texts("refuse");
    for (index, text) in refused.iter().filter(|(_, text)| *text != LOCK_OUT) {
        let message = unsupported_value(text, &[LOCK_OUT]);
        section.fault_at("refuse", *index, FaultKind::NotSupported, message);
    }
    let last_good = section.path("lastGood");
    if !refused.is_empty() && last_good.is_none() {
        let message = "without `reload.lastGood` a restart forgets the last good version of an object that is held \
                       back: set it";
        section.warn("refuse", FaultKind::Suspicious, message);
    }
    Reload {
        refuses_lock_outs: !refused.is_empty(),
        poll_interval: section
            .positive_duration("pollInterval")
            .unwrap_or_else(default_poll_interval),
        last_good,
        max_removed: section.count("maxRemoved").filter(|most| *most > 0),
    }
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
