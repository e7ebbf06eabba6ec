//! What a reload changed besides objects: fields of the configuration, and the files that hold
//! certificates, keys and credentials.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::config::files::{CONFIGURATION_BYTES, FileScope};
use portcullis_policy::document::{self, Node, Value};

/// The most names of each sort that a log line of a reload has.
pub(crate) const MAX_NAMES: usize = 10;

/// What each file holds, as a number that differs where the content does; `None` where it cannot be
/// read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FileContents(BTreeMap<PathBuf, Option<u64>>);

/// The fields and files that a reload found changed, sorted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangedSettings {
    /// Fields of the configuration, such as `callers` or `limits.inFlight`.
    pub fields: Vec<String>,
    /// Files other than the configuration and manifests.
    pub files: Vec<PathBuf>,
}

// === impl FileContents ===

impl FileContents {
    /// What `files` hold now. Those in the folder `of_clusters` are others' than the administrator's:
    /// links in it lead nowhere else.
    pub(crate) fn of(files: impl IntoIterator<Item = PathBuf>, of_clusters: Option<&Path>) -> Self {
        // Nobody who sees a number of this process can try out passwords by it.
        static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let content = |file: &Path| {
            let scope = match of_clusters.filter(|folder| file.starts_with(folder)) {
                Some(folder) => FileScope::below(folder),
                None => FileScope::Anywhere,
            };
            let content = scope.read(file, CONFIGURATION_BYTES).ok()?;
            Some(KEY.hash_one(content))
        };
        let read = files.into_iter().map(|file| {
            let content = content(&file);
            (file, content)
        });
        Self(read.collect())
    }

    /// The files that are not the same in `before`. One that only one of them knows is named by the
    /// field of the configuration.
    fn since(&self, before: &Self) -> Vec<PathBuf> {
        let is_changed = |(file, content): &(&PathBuf, &Option<u64>)| {
            before.0.get(*file).is_some_and(|before| before != *content)
        };
        self.0
            .iter()
            .filter(is_changed)
            .map(|(file, _)| file.clone())
            .collect()
    }
}

// === impl ChangedSettings ===

impl ChangedSettings {
    /// What differs between two configurations, as they are written, and the files besides.
    pub(crate) fn between(
        (before, files_before): (&str, &FileContents),
        (after, files_after): (&str, &FileContents),
    ) -> Self {
        Self {
            fields: changed_fields(before, after),
            files: files_after.since(files_before),
        }
    }

    /// Such as `configuration changed (limits.inFlight), `, with the names of files where `named`;
    /// empty where nothing did.
    pub(crate) fn describe(&self, named: bool) -> String {
        let files: Vec<String> = self.files.iter().map(|file| file.display().to_string()).collect();
        let mut text = String::new();
        if !self.fields.is_empty() {
            text.push_str(&format!("configuration changed ({}), ", listed(&self.fields)));
        }
        if !files.is_empty() {
            let plural = if files.len() == 1 { "" } else { "s" };
            let names = if named {
                format!(" ({})", listed(&files))
            } else {
                String::new()
            };
            text.push_str(&format!(
                "{} file{plural} of certificates or credentials changed{names}, ",
                files.len()
            ));
        }
        text
    }
}

fn listed(names: &[String]) -> String {
    let more = if names.len() > MAX_NAMES { ", …" } else { "" };
    let first: Vec<&str> = names.iter().take(MAX_NAMES).map(String::as_str).collect();
    first.join(", ") + more
}

/// The fields that two configurations do not have alike: of sections the field within.
fn changed_fields(before: &str, after: &str) -> Vec<String> {
    let root = |text| {
        let mut documents = document::parse(None, text).unwrap_or_default();
        documents.pop().map(document::Document::into_root)
    };
    let (Some(before), Some(after)) = (root(before), root(after)) else {
        return Vec::new();
    };
    let mut fields = Vec::new();
    for name in keys(&before, &after) {
        match (before.get(name), after.get(name)) {
            (Some(before), Some(after)) if before.says_the_same(after) => {}
            (Some(before), Some(after)) if is_section(before) && is_section(after) => {
                let within = keys(before, after).into_iter().filter(|field| {
                    let (before, after) = (before.get(field), after.get(field));
                    !matches!((before, after), (Some(before), Some(after)) if before.says_the_same(after))
                });
                fields.extend(within.map(|field| format!("{name}.{field}")));
            }
            _ => fields.push(name.to_owned()),
        }
    }
    fields.sort();
    fields
}

fn is_section(node: &Node) -> bool {
    matches!(node.value, Value::Map(_))
}

/// The keys of either, each once.
fn keys<'n>(before: &'n Node, after: &'n Node) -> Vec<&'n str> {
    let of = |node: &'n Node| match &node.value {
        Value::Map(entries) => entries.iter().map(|entry| entry.key.as_str()).collect(),
        _ => Vec::new(),
    };
    let mut keys = [of(before), of(after)].concat();
    keys.sort_unstable();
    keys.dedup();
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str =
        "server: {address: a}\nlimits: {inFlight: 1, bodyBytes: 2}\ncallers:\n- {kubeconfig: a}\n";

    #[test]
    fn changed_fields_are_named_and_lines_are_no_change() {
        for (after, expected) in [
            (
                "# a comment\ncallers: [{kubeconfig: a}]\nserver: {address: a}\nlimits: {bodyBytes: 2, inFlight: 1}\n",
                "",
            ),
            (
                "server: {address: a}\nlimits: {inFlight: 3, bodyBytes: 2}\ncallers: [{kubeconfig: a}]\n",
                "limits.inFlight",
            ),
            (
                "server: {address: b}\nlimits: {bodyBytes: 2}\ncallers: [{kubeconfig: b}]\n",
                "callers limits.inFlight server.address",
            ),
            (
                "server: {address: a}\nconsole: {address: c}\n",
                "callers console limits",
            ),
        ] {
            assert_eq!(changed_fields(BEFORE, after).join(" "), expected, "{after}");
        }
    }

    #[test]
    fn a_file_that_was_written_anew_with_the_same_content_has_not_changed() {
        let folder = tempfile::tempdir().unwrap();
        let [same, other, gone] = ["same", "other", "gone"].map(|name| folder.path().join(name));
        for file in [&same, &other, &gone] {
            std::fs::write(file, "one").unwrap();
        }
        let all = [same.clone(), other.clone(), gone.clone()];
        let before = FileContents::of(all.clone(), None);
        std::fs::write(&same, "one").unwrap();
        std::fs::write(&other, "two").unwrap();
        std::fs::remove_file(&gone).unwrap();
        let changed = ChangedSettings::between(("a: 1", &before), ("a: 1", &FileContents::of(all, None)));
        assert_eq!(changed.files, [gone, other]);
        let text = changed.describe(true);
        assert!(
            text.starts_with("2 files of certificates or credentials changed (/"),
            "{text}"
        );
        assert!(text.ends_with("/other), "), "{text}");
        assert!(
            !changed.describe(false).contains('/'),
            "names are for who may see them"
        );
    }

    #[test]
    fn a_link_of_a_cluster_leads_to_no_file_of_somebody_else() {
        let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (link, target) = (folder.path().join("link"), elsewhere.path().join("secret"));
        std::fs::write(&target, "one").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let of = |clusters: Option<&Path>| FileContents::of([link.clone()], clusters);
        assert_eq!(of(Some(folder.path())).0[&link], None);
        assert!(of(None).0[&link].is_some(), "the administrator's own");
    }
}
