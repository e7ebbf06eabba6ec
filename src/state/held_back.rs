//! Holds back the faulty files of single clusters.
//!
//! Files for one cluster only may be written by its administrators. If they are faulty, or cause
//! faults in files for all clusters, the last good files of that cluster stay in force, and
//! everything else takes effect: no tenant can block the changes of others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::files::{FaultsByCluster, ManifestFiles};
use super::last_good::LastGoodSet;
use super::snapshot::Snapshot;
use crate::config::{ClusterEntry, ClusterFile, Config, HeldBack, UnknownEntries};
use portcullis_cel::Version;
use portcullis_policy::field::Faults;
use portcullis_policy::manifest::{ObjectSet, Options};

/// Files that can be in force.
pub(crate) struct UsableFiles {
    pub(crate) files: ManifestFiles,
    /// `None` if the files are faulty nevertheless.
    pub(crate) objects: Option<ObjectSet>,
    /// Warnings; if there are no objects, all faults.
    pub(crate) faults: Faults,
    /// The clusters whose files are held back without earlier files to replace them.
    pub(crate) missing: BTreeSet<String>,
}

/// Finds the files that can be in force.
struct UsableFilesFinder<'s> {
    files: &'s ManifestFiles,
    earlier: &'s EarlierClusterFiles,
    known: Option<&'s ObjectSet>,
    options: &'s Options,
}

/// The objects of `files`, of which some may be `unreadable`. With `earlier`, the files of each
/// cluster with faults are replaced by its earlier ones, and these faults are added to `held`.
pub(crate) fn usable_files(
    files: &ManifestFiles,
    mut unreadable: FaultsByCluster,
    (earlier, known): (Option<&EarlierClusterFiles>, Option<&ObjectSet>),
    options: &Options,
    held: &mut HeldBack,
) -> UsableFiles {
    let mut usable = match earlier {
        Some(earlier) => {
            unreadable.hold_back_clusters(held);
            let finder = UsableFilesFinder {
                files,
                earlier,
                known,
                options,
            };
            finder.find(held)
        }
        None => UsableFiles::new(files.clone(), known, options),
    };
    let mut faults = unreadable.together();
    faults.append(usable.faults);
    usable.objects = usable.objects.filter(|_| !faults.has_errors());
    if usable.objects.is_none() {
        // Nothing takes effect, so nothing is held back.
        usable.missing.clear();
        for of_cluster in std::mem::take(held).into_values() {
            faults.append(of_cluster);
        }
    }
    UsableFiles { faults, ..usable }
}

/// The files that were last in force, which replace faulty files of a cluster. At a start without
/// `reload.lastGood` there are none.
#[derive(Default)]
pub(crate) struct EarlierClusterFiles {
    pub(crate) cluster_files: Vec<ClusterFile>,
    pub(crate) manifests: ManifestFiles,
    /// The clusters whose files were all known.
    clusters: BTreeSet<String>,
    /// The clusters that had an entry in `clusters`.
    followed: BTreeSet<String>,
}

// === impl UsableFiles ===

impl UsableFiles {
    fn new(files: ManifestFiles, known: Option<&ObjectSet>, options: &Options) -> Self {
        let (objects, faults) = ObjectSet::new(files.objects(), options, known);
        Self {
            files,
            objects,
            faults,
            missing: BTreeSet::new(),
        }
    }

    /// Without the objects that would lock out users. Their faults are added to `held` if they are
    /// in the files of a cluster, otherwise to `held_objects`.
    pub(crate) fn without_lock_outs(
        self,
        (earlier, known): (Option<&ManifestFiles>, Option<&ObjectSet>),
        options: &Options,
        (held, held_objects): (&mut HeldBack, &mut Faults),
    ) -> Self {
        if self.objects.is_none() {
            return self;
        }
        let held_back = self.files.holding_back_lock_outs(earlier, &options.never_deny);
        let Some((files, mut faults)) = held_back else {
            return self;
        };
        faults.hold_back_clusters(held);
        held_objects.append(faults.together());
        let options = options_without(options, &self.missing);
        Self {
            missing: self.missing,
            ..Self::new(files, known, &options)
        }
    }
}

// === impl UsableFilesFinder ===

impl UsableFilesFinder<'_> {
    fn find(&self, held: &mut HeldBack) -> UsableFiles {
        let whole = self.with_replaced(held);
        if whole.objects.is_some() {
            return whole;
        }
        whole.files.by_cluster(whole.faults).hold_back_clusters(held);
        let rest = self.with_replaced(held);
        if rest.objects.is_none() && self.hold_back_causes(&rest, held) {
            return self.with_replaced(held);
        }
        rest
    }

    /// The objects if the files of the clusters in `held` are replaced by earlier ones.
    fn with_replaced(&self, held: &HeldBack) -> UsableFiles {
        let missing = self.earlier.without_replacement(held);
        let files = self
            .files
            .with_earlier(&held.keys().cloned().collect(), &self.earlier.manifests);
        let options = options_without(self.options, &missing);
        UsableFiles {
            missing,
            ..UsableFiles::new(files, self.known, &options)
        }
    }

    /// Holds back the clusters whose files cause faults in files for all clusters, by what they
    /// contain or no longer contain. Returns whether there are any.
    fn hold_back_causes(&self, faulty: &UsableFiles, held: &mut HeldBack) -> bool {
        let suspects = faulty.files.changed_clusters(&self.earlier.manifests);
        let mut suspected = held.clone();
        suspected.extend(
            suspects
                .iter()
                .map(|cluster| (cluster.clone(), faulty.faults.clone())),
        );
        if self.with_replaced(&suspected).objects.is_none() {
            return false;
        }
        for cluster in suspects {
            let faults = suspected.remove(&cluster);
            if self.with_replaced(&suspected).objects.is_none() {
                suspected.extend(faults.map(|faults| (cluster, faults)));
            }
        }
        *held = suspected;
        true
    }
}

// === impl EarlierClusterFiles ===

impl EarlierClusterFiles {
    /// Manifests in which everything about these clusters was known.
    #[cfg(test)]
    pub(crate) fn of_manifests(manifests: ManifestFiles, clusters: BTreeSet<String>) -> Self {
        Self {
            manifests,
            clusters,
            ..Self::default()
        }
    }

    /// The files in force.
    pub(crate) fn of(snapshot: &Snapshot) -> Self {
        let folder = snapshot.config.cluster_folder.as_ref();
        Self {
            cluster_files: folder.map(|folder| folder.files.clone()).unwrap_or_default(),
            manifests: snapshot.manifests.files.clone(),
            clusters: known(&snapshot.config, &snapshot.unknown.faulty),
            followed: followed(&snapshot.config),
        }
    }

    /// The saved files. `config` is their configuration, if it can still be used.
    pub(crate) fn saved(saved: LastGoodSet, config: Option<&Config>) -> Self {
        let version = config.map_or(Version::NEWEST, |config| config.admission.cel_version);
        Self {
            clusters: config.map_or_else(BTreeSet::new, |config| known(config, &saved.unknown)),
            followed: config.map_or_else(BTreeSet::new, followed),
            cluster_files: saved.cluster_files,
            manifests: ManifestFiles::of_sources(saved.manifests, version),
        }
    }

    /// The clusters in `held` without earlier files to replace those that are held back.
    pub(crate) fn without_replacement(&self, held: &HeldBack) -> BTreeSet<String> {
        let held = held.keys().filter(|cluster| !self.clusters.contains(*cluster));
        held.cloned().collect()
    }

    /// The clusters whose entries are `unknown`. If the name in an entry cannot be read, it may be
    /// any cluster of a caller that has no other entry, within what an entry in a tenant's folder
    /// may name. Clusters that were known without an entry are not affected.
    pub(crate) fn unknown_clusters(&self, unknown: &UnknownEntries, config: &Config) -> BTreeSet<String> {
        let now = followed(config);
        let had_none = |name: &String| self.clusters.contains(name) && !self.followed.contains(name);
        let callers = config.callers.iter().map(|caller| &caller.cluster);
        let unsure = callers.filter(|name| unknown.may_be_for(name) && !now.contains(*name));
        let named = unknown.names.iter().chain(unsure);
        named.filter(|name| !had_none(name)).cloned().collect()
    }
}

/// `options` for validating files while the files of the `missing` clusters are unknown. Files for
/// all clusters are not faulty because of something that these lack, since their requests are not
/// decided.
pub(crate) fn options_without(options: &Options, missing: &BTreeSet<String>) -> Options {
    let mut options = options.clone();
    options.clusters.retain(|cluster| !missing.contains(cluster));
    options
}

/// The faults of entries, by the name of the cluster, or by the path of the entry if its name is
/// unknown or belongs to another entry: the name alone does not prove whose fault it is.
pub(crate) fn by_cluster(config: &Config, held_back: BTreeMap<PathBuf, Faults>) -> HeldBack {
    let folder = config.cluster_folder.as_ref().map(|folder| folder.path.as_path());
    let name = |path: &Path| {
        let file = path.display().to_string();
        let is_its = |entry: &&ClusterEntry| entry.place.file.as_deref() == Some(file.as_str());
        let below = folder.and_then(|folder| path.strip_prefix(folder).ok());
        let path = || below.unwrap_or(path).display().to_string();
        let entry = config.clusters.iter().find(is_its);
        entry.map_or_else(path, |entry| entry.name.clone())
    };
    let named = held_back.into_iter().map(|(path, faults)| (name(&path), faults));
    named.collect()
}

fn followed(config: &Config) -> BTreeSet<String> {
    config.clusters.iter().map(|entry| entry.name.clone()).collect()
}

/// The clusters that `config` names, without `unknown` ones.
fn known(config: &Config, unknown: &BTreeSet<String>) -> BTreeSet<String> {
    let callers = config.callers.iter().map(|caller| &caller.cluster);
    let manifests = config.manifests.iter().filter_map(|path| path.cluster.as_ref());
    let named = callers
        .chain(manifests)
        .chain(config.clusters.iter().map(|entry| &entry.name));
    named.filter(|name| !unknown.contains(*name)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use portcullis_cel::Version;
    use portcullis_policy::manifest::Source;

    fn deny(name: &str, more: &str) -> String {
        format!(
            "---\napiVersion: portcullis.dev/v1alpha1\nkind: AuthorizationPolicy\nmetadata: {{name: {name}}}\nspec:\n  \
             effect: Deny\n  subjects: [{{kind: User, name: joe}}]\n  \
             resourceRules: [{{verbs: [get], apiGroups: [''], resources: [pods]{more}}}]\n"
        )
    }

    const NAMESPACE: &str = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: team, labels: {a: b}}\n";

    fn files(texts: &[(Option<&str>, &str)]) -> ManifestFiles {
        let source = |(place, (cluster, text)): (usize, &(Option<&str>, &str))| Source {
            file: format!("{}-{place}.yaml", cluster.unwrap_or("all")),
            text: (*text).to_owned(),
            cluster: cluster.map(str::to_owned),
        };
        let sources = texts.iter().enumerate().map(source).collect();
        ManifestFiles::of_sources(sources, Version::NEWEST)
    }

    fn clusters() -> BTreeSet<String> {
        ["east", "west"].map(str::to_owned).into()
    }

    /// The usable files of `now` with these `earlier` ones, and what is held back.
    fn find_with(earlier: &EarlierClusterFiles, now: &[(Option<&str>, &str)]) -> (UsableFiles, HeldBack) {
        let options = Options {
            clusters: clusters(),
            ..Options::default()
        };
        let mut held = HeldBack::new();
        let unreadable = FaultsByCluster::default();
        let usable = usable_files(
            &files(now),
            unreadable,
            (Some(earlier), None),
            &options,
            &mut held,
        );
        (usable, held)
    }

    /// The names of the policies in force after `now` replaced `before`, and the clusters whose
    /// files are held back; `None` if nothing takes effect.
    fn usable(
        before: &[(Option<&str>, &str)],
        now: &[(Option<&str>, &str)],
    ) -> Option<(BTreeSet<String>, Vec<String>)> {
        let stand_ins = EarlierClusterFiles::of_manifests(files(before), clusters());
        let (usable, held) = find_with(&stand_ins, now);
        assert!(usable.missing.is_empty());
        let Some(objects) = usable.objects else {
            assert!(usable.faults.has_errors() && held.is_empty());
            return None;
        };
        assert!(!usable.faults.has_errors(), "{}", usable.faults);
        let policies = objects
            .objects()
            .filter(|object| object.authorization_policy().is_some());
        let named = policies.map(|object| {
            let cluster = object.cluster().unwrap_or("all");
            format!("{cluster}/{}", object.identity().name())
        });
        Some((named.collect(), held.into_keys().collect()))
    }

    fn expect(names: &[&str], held: &[&str]) -> Option<(BTreeSet<String>, Vec<String>)> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        Some((owned(names).into_iter().collect(), owned(held)))
    }

    #[test]
    fn a_cluster_with_faults_keeps_its_last_good_files_and_the_others_change() {
        let (a, b, c) = (deny("a", ""), deny("b", ""), deny("c", ""));
        let before = [(None, a.as_str()), (Some("east"), &b)];
        for faulty in [
            "kind: [",
            "apiVersion: portcullis.dev/v1alpha1\nkind: AuthorizationPolicy\nmetadata: {name: x}\n",
            "{",
            &format!("{c}{c}"),
        ] {
            let now = [(None, c.as_str()), (Some("east"), faulty), (Some("west"), &a)];
            let found = usable(&before, &now);
            assert_eq!(
                found,
                expect(&["all/c", "east/b", "west/a"], &["east"]),
                "{faulty}"
            );
        }
    }

    #[test]
    fn at_a_start_nothing_stands_in_for_a_cluster_with_faults_and_the_others_are_in_force() {
        let selecting = deny("a", ", namespaceSelector: {matchLabels: {a: b}}");
        let now = [
            (None, selecting.as_str()),
            (Some("east"), "kind: ["),
            (Some("west"), NAMESPACE),
        ];
        let (usable, held) = find_with(&EarlierClusterFiles::default(), &now);
        // That east has no Namespaces is not a fault of the files for all clusters.
        assert!(usable.objects.is_some(), "{}", usable.faults);
        assert_eq!(usable.missing, ["east".to_owned()].into());
        assert!(held.contains_key("east"));
        let (usable, held) = find_with(
            &EarlierClusterFiles::default(),
            &[(None, "kind: ["), (Some("east"), "{")],
        );
        assert!(usable.objects.is_none() && usable.missing.is_empty() && held.is_empty());
    }

    #[test]
    fn a_fault_of_what_holds_for_all_changes_nothing() {
        let a = deny("a", "");
        assert_eq!(
            usable(&[(None, &a)], &[(None, "kind: ["), (Some("east"), "kind: [")]),
            None
        );
    }

    #[test]
    fn an_object_that_clashes_with_one_of_all_is_held_back_wherever_it_stands() {
        let (a, b) = (deny("a", ""), deny("b", ""));
        let before = [(None, a.as_str()), (Some("east"), &b)];
        let expected = expect(&["all/a", "east/b"], &["east"]);
        assert_eq!(usable(&before, &[(None, &a), (Some("east"), &a)]), expected);
        assert_eq!(usable(&before, &[(Some("east"), &a), (None, &a)]), expected);
    }

    #[test]
    fn what_is_no_longer_there_and_makes_a_fault_of_all_is_held_back() {
        let selecting = deny("a", ", namespaceSelector: {matchLabels: {a: b}}");
        let before = [
            (None, selecting.as_str()),
            (Some("east"), NAMESPACE),
            (Some("west"), NAMESPACE),
        ];
        let b = deny("b", "");
        let now = [
            (None, selecting.as_str()),
            (Some("east"), b.as_str()),
            (Some("west"), &format!("{NAMESPACE}{b}")),
        ];
        // Only the cluster that lost its Namespaces is held back.
        assert_eq!(usable(&before, &now), expect(&["all/a", "west/b"], &["east"]));
    }
}
