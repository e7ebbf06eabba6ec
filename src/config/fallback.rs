//! The configuration with the last good version of each cluster file that has errors.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::clusters::{self, ReadFolder};
use super::{ClusterFile, Config, Disk, Files, files, load, parse_with};
use portcullis_policy::field::{Fault, Faults, Place};

/// The clusters whose files have errors, so that the last good version of the files is in force.
pub type HeldBack = BTreeMap<String, Faults>;

/// A configuration, and which parts of it are not in force.
#[derive(Debug)]
pub struct ConfigWithFallback {
    /// The configuration with the last good version of each cluster file that has errors; `None` if
    /// there are errors elsewhere.
    pub config: Option<Config>,
    /// The errors and warnings about `config`.
    pub faults: Faults,
    /// The errors of the cluster files that are held back: the last good version is used instead,
    /// or none if there was none.
    pub held_back: BTreeMap<PathBuf, Faults>,
    /// What is known of the held back files that have no last good version.
    pub unknown: UnknownEntries,
}

/// Entries of `clusters` that have errors, and no last good version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnknownEntries {
    /// The names of the entries whose names can be read.
    pub names: BTreeSet<String>,
    /// The tenants' folders with entries whose names cannot be read, or are not allowed in these
    /// folders.
    pub folders: BTreeSet<String>,
    /// Whether there are entries outside of tenants' folders whose names cannot be read.
    pub has_nameless: bool,
}

impl From<(Option<Config>, Faults)> for ConfigWithFallback {
    fn from((config, faults): (Option<Config>, Faults)) -> Self {
        Self {
            config,
            faults,
            held_back: BTreeMap::new(),
            unknown: UnknownEntries::default(),
        }
    }
}

// === impl UnknownEntries ===

impl UnknownEntries {
    /// Whether an entry whose name is unknown may be for the cluster `name`.
    pub(crate) fn may_be_for(&self, name: &str) -> bool {
        self.has_nameless
            || self
                .folders
                .iter()
                .any(|folder| clusters::folder_allows_name(folder, name))
    }

    /// The unknown entries among `files`, which are in `folder` on the disk: those that are
    /// `held_back` without an `earlier` version.
    fn find(
        (folder, files): (&Path, &[ClusterFile]),
        held_back: &BTreeMap<PathBuf, Faults>,
        earlier: &BTreeMap<&Path, &ClusterFile>,
    ) -> Self {
        let mut unknown = Self::default();
        let is_missing = |path: &Path| is_held(path, held_back) && !earlier.contains_key(path);
        for file in files.iter().filter(|file| is_missing(&file.path)) {
            match (tenant_folder(folder, &file.path), file.name()) {
                (Some(own), Some(name)) if !clusters::folder_allows_name(&own, &name) => {
                    unknown.folders.extend([own])
                }
                (_, Some(name)) => unknown.names.extend([name]),
                (own, None) => unknown.add_nameless(own),
            }
        }
        // A held back folder may have further files, which were not read.
        let is_read = |path: &Path| files.iter().any(|file| file.path == path);
        for path in held_back.keys().filter(|path| !is_read(path) && is_missing(path)) {
            unknown.add_nameless(tenant_folder(folder, path));
        }
        unknown
    }

    /// Adds an entry without a name in this folder of a tenant, if it is in one.
    fn add_nameless(&mut self, folder: Option<String>) {
        self.has_nameless |= folder.is_none();
        self.folders.extend(folder);
    }
}

/// The name of the direct subfolder of `clusters` that `path` is, or is in.
fn tenant_folder(clusters: &Path, path: &Path) -> Option<String> {
    let mut below = path.strip_prefix(clusters).ok()?.iter();
    let first = below.next()?;
    let is_folder = below.next().is_some() || !files::is_manifest(path);
    is_folder.then(|| first.to_string_lossy().into_owned())
}

/// Reads the configuration at `path`. Cluster files may be written by others than the gateway's
/// administrator, so an error in one of them must not hold back anything else. `earlier` are the
/// cluster files that were last in force.
#[must_use]
pub fn load_with_fallback(path: &Path, earlier: &[ClusterFile]) -> ConfigWithFallback {
    let loaded: ConfigWithFallback = load(path).into();
    let text = Disk
        .read(path)
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok());
    let (None, Some(text), Ok(absolute)) = (&loaded.config, text, std::path::absolute(path)) else {
        return loaded;
    };
    let folder = absolute.parent().unwrap_or(&absolute);
    let parse = |read: ReadFolder<'_>| parse_with(path, &text, folder, read);
    hold_back(parse, earlier).unwrap_or(loaded)
}

/// Holds back more and more files until the others have no errors; `None` if errors remain.
fn hold_back(
    parse: impl Fn(ReadFolder<'_>) -> (Option<Config>, Faults),
    earlier: &[ClusterFile],
) -> Option<ConfigWithFallback> {
    let on_disk = OnceCell::new();
    let earlier: BTreeMap<&Path, &ClusterFile> =
        earlier.iter().map(|file| (file.path.as_path(), file)).collect();
    let mut held_back: BTreeMap<PathBuf, Faults> = BTreeMap::new();
    loop {
        let read = |folder: &Path| {
            let (files, faults) = on_disk.get_or_init(|| clusters::read_folder(folder));
            with_earlier_files((files, faults), &held_back, &earlier)
        };
        let (config, faults) = parse(&read);
        if config.is_some() {
            let files = on_disk.get().map_or(&[][..], |(files, _)| files);
            let folder = config.as_ref().and_then(|config| config.cluster_folder.as_ref());
            let folder = folder.map_or(Path::new(""), |folder| &folder.path);
            let unknown = UnknownEntries::find((folder, files), &held_back, &earlier);
            return Some(ConfigWithFallback {
                config,
                faults,
                unknown,
                held_back,
            });
        }
        let (files, unreadable) = on_disk.get()?;
        let mut faulty = faults_of_changed_files((files, unreadable), &earlier, faults);
        // If two entries have the same name, the one that newly took it is held back.
        if faulty.iter().any(|file| file.has_new_name) {
            faulty.retain(|file| file.has_new_name);
        }
        let before = held_back.len();
        for ChangedFaultyFile { path, fault, .. } in faulty {
            held_back.entry(path).or_default().push(fault);
        }
        if held_back.len() == before {
            return None;
        }
    }
}

/// A cluster file that has changed or cannot be read, and one of its errors.
struct ChangedFaultyFile {
    path: PathBuf,
    fault: Fault,
    /// Whether the cluster had another name or no file earlier.
    has_new_name: bool,
}

/// The `faults` in files that differ from their `earlier` version, or that cannot be read.
fn faults_of_changed_files(
    (files, unreadable): (&[ClusterFile], &Faults),
    earlier: &BTreeMap<&Path, &ClusterFile>,
    faults: Faults,
) -> Vec<ChangedFaultyFile> {
    let mut has_new_name: BTreeMap<String, bool> = BTreeMap::new();
    for file in unreadable.iter().filter_map(|fault| fault.place.file.as_deref()) {
        has_new_name.insert(file.to_owned(), !earlier.contains_key(Path::new(file)));
    }
    for file in files {
        let before = earlier.get(file.path.as_path());
        if before.is_none_or(|before| *before != file) {
            let is_new = before.is_none_or(|before| before.name() != file.name());
            has_new_name.insert(file.path.display().to_string(), is_new);
        }
    }
    let of_changed = |fault: Fault| {
        let file = fault.place.file.as_deref()?;
        let (path, has_new_name) = (PathBuf::from(file), *has_new_name.get(file)?);
        Some(ChangedFaultyFile {
            path,
            fault,
            has_new_name,
        })
    };
    faults.into_iter().filter_map(of_changed).collect()
}

/// Whether the file at `path` is held back, or a folder that contains it and has more files than
/// the limit.
fn is_held(path: &Path, held_back: &BTreeMap<PathBuf, Faults>) -> bool {
    path.ancestors().any(|path| held_back.contains_key(path))
}

/// The files on the disk, with the `earlier` version of those that are held back.
fn with_earlier_files(
    (files, unreadable): (&[ClusterFile], &Faults),
    held_back: &BTreeMap<PathBuf, Faults>,
    earlier: &BTreeMap<&Path, &ClusterFile>,
) -> (Vec<ClusterFile>, Faults) {
    let is_held = |path: &Path| is_held(path, held_back);
    let kept = files.iter().filter(|file| !is_held(&file.path));
    let stand_in = earlier.values().copied().filter(|file| is_held(&file.path));
    let mut all: Vec<ClusterFile> = kept.chain(stand_in).cloned().collect();
    all.sort_by(|one, other| one.path.cmp(&other.path));
    let is_told = |place: &Place| !place.file.as_deref().is_some_and(|file| is_held(Path::new(file)));
    let mut faults = Faults::new();
    faults.extend(unreadable.iter().filter(|fault| is_told(&fault.place)).cloned());
    (all, faults)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    const CONFIGURATION: &str = "apiVersion: config.portcullis.dev/v1alpha1\nkind: GatewayConfiguration\n\
        server: {address: '127.0.0.1:0', tls: {certificate: s.crt, privateKey: s.key}}\nclusters: clusters.d\n";

    /// A configuration whose clusters are in a folder, and the files last in force.
    struct Tenants {
        folder: tempfile::TempDir,
        earlier: Vec<ClusterFile>,
    }

    impl Tenants {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("c.yaml"), CONFIGURATION).unwrap();
            let mut tenants = Self {
                folder,
                earlier: Vec::new(),
            };
            for name in ["east", "west"] {
                tenants.write(&format!("{name}.yaml"), &entry(name));
            }
            let config = tenants.load().config.unwrap();
            tenants.earlier = config.cluster_folder.unwrap().files;
            assert_eq!(tenants.earlier.len(), 2);
            tenants
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join("clusters.d").join(name)
        }

        fn write(&self, name: &str, text: &str) {
            let path = self.path(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn load(&self) -> ConfigWithFallback {
            load_with_fallback(&self.folder.path().join("c.yaml"), &self.earlier)
        }

        /// The clusters in force, and the files that are held back.
        fn told(&self) -> (Vec<String>, Vec<String>) {
            let loaded = self.load();
            let config = loaded.config.unwrap_or_else(|| panic!("{}", loaded.faults));
            let clusters = config.clusters.into_iter().map(|entry| entry.name);
            let name = |path: &PathBuf| {
                let below = path.strip_prefix(self.folder.path().join("clusters.d")).unwrap();
                below.display().to_string()
            };
            (clusters.collect(), loaded.held_back.keys().map(name).collect())
        }
    }

    fn entry(name: &str) -> String {
        format!("name: {name}\nkubeconfig: {name}.kubeconfig\ncacheFile: {name}.saved\n")
    }

    #[test]
    fn a_faulty_entry_costs_nobody_else_a_change() {
        let tenants = Tenants::new();
        for faulty in [
            "name: [",
            "",
            "name: east\n",
            "name: west\nkubeconfig: k\ncacheFile: s\n",
            "name: east\nkubeconfig: ../k\ncacheFile: s\n",
            "name: east\nkubeconfig: k\ncacheFile: west.saved.changes\n",
        ] {
            tenants.write("east.yaml", faulty);
            tenants.write("north.yaml", &entry("north"));
            let (clusters, held) = tenants.told();
            assert_eq!(clusters, ["east", "north", "west"], "{faulty}");
            assert_eq!(held, ["east.yaml"], "{faulty}");
            let east = tenants.load().config.unwrap().clusters.remove(0);
            assert_eq!(east.cache_file, Some(tenants.path("east.saved")), "{faulty}");
        }
        // The file that had the name keeps it, even if both changed.
        tenants.write(
            "east.yaml",
            &entry("east").replace("kubeconfig: e", "kubeconfig: new-e"),
        );
        tenants.write("west.yaml", &entry("east"));
        assert_eq!(tenants.told().1, ["west.yaml"]);
        let east = tenants.load().config.unwrap().clusters.remove(0);
        assert_eq!(east.kubeconfig, tenants.path("new-east.kubeconfig"));
        tenants.write("west.yaml", &entry("west"));
        // A new file with errors has no effect.
        tenants.write("east.yaml", &entry("east"));
        tenants.write("aaa.yaml", "name: east\nkubeconfig: k\ncacheFile: east.saved\n");
        assert_eq!(
            tenants.told(),
            (
                vec!["east".into(), "north".into(), "west".into()],
                vec!["aaa.yaml".into()]
            )
        );
    }

    #[test]
    fn of_an_entry_without_an_earlier_one_the_name_is_told_as_far_as_it_is_known() {
        let mut tenants = Tenants::new();
        let unknown = |tenants: &Tenants| {
            let unknown = tenants.load().unknown;
            assert_eq!(unknown.folders, BTreeSet::new());
            (
                unknown.names.into_iter().collect::<Vec<_>>(),
                unknown.has_nameless,
            )
        };
        tenants.write("east.yaml", "name: east\n");
        assert_eq!(unknown(&tenants), (vec![], false), "the last good one stands in");
        tenants.earlier.clear();
        for (faulty, names, has_nameless) in [
            ("name: east\n", vec!["east"], false),
            ("name: 'east'\nkubeconfig: [\n", vec!["east"], false),
            ("kubeconfig: [\nname: east # it\n", vec![], true),
            ("kubeconfig: [\nname: east\nname: west\n", vec![], true),
            ("name: [", vec![], true),
            // Whether the name is meant cannot be known.
            (&entry("west"), vec!["west"], false),
        ] {
            tenants.write("east.yaml", faulty);
            let names = names.into_iter().map(str::to_owned).collect();
            assert_eq!(unknown(&tenants), (names, has_nameless), "{faulty}");
        }
        fs::remove_file(tenants.path("east.yaml")).unwrap();
        symlink("../c.yaml", tenants.path("east.yaml")).unwrap();
        assert_eq!(unknown(&tenants), (vec![], true));
    }

    #[test]
    fn a_folder_of_a_tenant_speaks_for_the_cluster_of_its_name_alone() {
        let mut tenants = Tenants::new();
        for (name, is_own) in [
            ("own", true),
            ("own.a", true),
            ("own-a", false),
            ("ow", false),
            ("prod", false),
            ("default", false),
        ] {
            tenants.write("own/entry.yaml", &entry(name));
            let (clusters, held) = tenants.told();
            assert_eq!(clusters.iter().any(|cluster| cluster == name), is_own, "{name}");
            assert_eq!(held.is_empty(), is_own, "{name}");
            assert_eq!(clusters.len(), 2 + usize::from(is_own));
        }
        let unknown = |tenants: &Tenants, name: &str| {
            let unknown = tenants.load().unknown;
            unknown.names.contains(name) || unknown.may_be_for(name)
        };
        tenants.earlier.clear();
        for faulty in ["name: [", "name: prod\nkubeconfig: [\n", &entry("prod")] {
            tenants.write("own/entry.yaml", faulty);
            for (name, expected) in [("own", true), ("own.a", true), ("own-a", false), ("prod", false)] {
                assert_eq!(unknown(&tenants, name), expected, "{faulty} {name}");
            }
        }
        for number in 0..1_001 {
            tenants.write(&format!("own/{number}.txt"), "");
        }
        assert_eq!(
            (unknown(&tenants, "own"), unknown(&tenants, "prod")),
            (true, false)
        );
        tenants.write("direct.yaml", "name: [");
        assert!(unknown(&tenants, "prod"));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_as_it_was() {
        let tenants = Tenants::new();
        fs::remove_file(tenants.path("east.yaml")).unwrap();
        symlink("../c.yaml", tenants.path("east.yaml")).unwrap();
        tenants.write("north.yaml", &entry("north"));
        let both = (
            vec!["east".into(), "north".into(), "west".into()],
            vec!["east.yaml".into()],
        );
        assert_eq!(tenants.told(), both);
        fs::remove_file(tenants.path("east.yaml")).unwrap();
        assert_eq!(
            tenants.told(),
            (vec!["north".into(), "west".into()], vec![]),
            "gone is gone"
        );
    }

    #[test]
    fn a_tenant_with_too_much_in_his_folder_costs_nobody_else_a_change() {
        let mut tenants = Tenants::new();
        tenants.write("own/entry.yaml", &entry("own"));
        tenants.earlier = tenants.load().config.unwrap().cluster_folder.unwrap().files;
        let all = || vec!["east".to_owned(), "own".to_owned(), "west".to_owned()];
        let file = |kind: &str, number: usize| match kind {
            "entries" => (format!("own/{number}.yaml"), entry(&format!("own.new-{number}"))),
            folder => (format!("{folder}/{number}.txt"), String::new()),
        };
        for (kind, count) in [("own", 1_001), ("own/deeper", 1_002), ("entries", 8)] {
            for (name, text) in (0..count).map(|number| file(kind, number)) {
                tenants.write(&name, &text);
            }
            let west = entry("west").replace("west.saved", &format!("west.{count}"));
            tenants.write("west.yaml", &west);
            let (clusters, held) = tenants.told();
            assert_eq!(clusters, all(), "{count}");
            assert_eq!(held.first().map(String::as_str), Some("own"));
            assert!(held.iter().all(|held| held.starts_with("own")), "{held:?}");
            let west = tenants.load().config.unwrap().clusters.pop().unwrap();
            assert_eq!(west.cache_file, Some(tenants.path(&format!("west.{count}"))));
            fs::remove_dir_all(tenants.path("own")).unwrap();
            tenants.write("own/entry.yaml", &entry("own"));
        }
        for number in 0..7 {
            tenants.write(&format!("own/{number}.yaml"), &entry(&format!("own.{number}")));
        }
        assert_eq!(tenants.told().0.len(), 10);
        assert_eq!(tenants.told().1, Vec::<String>::new());
    }

    #[test]
    fn a_link_of_a_tenant_does_not_lead_to_another() {
        let tenants = Tenants::new();
        tenants.write("theirs/entry.yaml", &entry("theirs"));
        fs::create_dir(tenants.path("own")).unwrap();
        symlink("../theirs", tenants.path("own/link")).unwrap();
        let (clusters, held) = tenants.told();
        assert_eq!(clusters, ["east", "theirs", "west"]);
        assert_eq!(held, ["own/link"]);
    }

    #[test]
    fn what_the_administrator_writes_is_not_held_back() {
        let tenants = Tenants::new();
        tenants.write("east.yaml", "name: [");
        let faulty = format!("{CONFIGURATION}what: 1\n");
        fs::write(tenants.folder.path().join("c.yaml"), faulty).unwrap();
        let loaded = tenants.load();
        assert!(loaded.config.is_none());
        let faults = loaded.faults.to_string();
        assert!(
            faults.contains("unknown field `what`") && faults.contains("east.yaml"),
            "{faults}"
        );
    }
}
