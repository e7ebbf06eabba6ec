//! What a reload changed, in the terms of whoever reads the log.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use portcullis_policy::authorization::{Policies, PolicySet};
use portcullis_policy::manifest::{ObjectIdentity, SetDifference, ValidatedObject};

/// The most names of each sort that a [`Change`] keeps.
const NAMES: usize = 10;

/// An object and the only cluster that it holds for, if any.
type InventoryKey<'o> = (&'o ObjectIdentity, Option<&'o str>);

/// What a reload changed: the objects in files, and the Denies no longer in force.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// Objects that were not there before.
    pub added: LoadedObjects,
    /// Objects that say something else than before.
    pub changed: LoadedObjects,
    /// Objects that are there no more.
    pub removed: LoadedObjects,
    /// AuthorizationPolicies that denied and do so no more: removed, in Shadow, or now of effect
    /// Allow. `name`, or `cluster/name` where a policy held for one cluster alone; sorted.
    pub vanished_denies: Vec<String>,
}

/// How many objects, and the names of the first of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoadedObjects {
    /// How many.
    pub count: usize,
    /// At most ten of them as `Kind/name` or `Kind/namespace/name`, sorted.
    pub names: Vec<String>,
}

// === impl LoadedObjects ===

impl LoadedObjects {
    fn of<'k>(keys: impl Iterator<Item = &'k InventoryKey<'k>>) -> Self {
        let mut names: Vec<String> = keys
            .map(|(identity, cluster)| match cluster {
                None => identity.to_string(),
                Some(cluster) => format!("{identity} of cluster {cluster}"),
            })
            .collect();
        names.sort();
        let count = names.len();
        names.truncate(NAMES);
        Self { count, names }
    }

    /// `2 objects added`, and their names where `named`.
    fn describe(&self, what: &str, named: bool) -> String {
        let objects = if self.count == 1 { "object" } else { "objects" };
        let mut text = format!("{} {objects} {what}", self.count);
        if named && self.count > 0 {
            let more = if self.count > self.names.len() {
                ", …"
            } else {
                ""
            };
            text.push_str(&format!(" ({}{more})", self.names.join(", ")));
        }
        text
    }
}

// === impl Change ===

impl Change {
    /// What `difference` comes to: an object that says the same as before is none of it, wherever
    /// it stands now.
    pub(super) fn of(difference: &SetDifference<'_>) -> Self {
        let (after, before) = (by_key(&difference.added), by_key(&difference.removed));
        let added = after.keys().filter(|key| !before.contains_key(key));
        let removed = before.keys().filter(|key| !after.contains_key(key));
        let changed = after.iter().filter_map(|(key, digest)| {
            let earlier = before.get(key)?;
            (earlier != digest).then_some(key)
        });
        Self {
            added: LoadedObjects::of(added),
            changed: LoadedObjects::of(changed),
            removed: LoadedObjects::of(removed),
            vanished_denies: Vec::new(),
        }
    }

    /// One line, such as `1 object added, 0 objects changed, 2 objects removed`; with the names of
    /// the objects where `named`.
    #[must_use]
    pub fn describe(&self, named: bool) -> String {
        [
            self.added.describe("added", named),
            self.changed.describe("changed", named),
            self.removed.describe("removed", named),
        ]
        .join(", ")
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe(true))
    }
}

/// What each object says.
fn by_key<'o>(objects: &[&'o Arc<ValidatedObject>]) -> HashMap<InventoryKey<'o>, u64> {
    let entry = |object: &&'o Arc<ValidatedObject>| ((object.identity(), object.cluster()), object.digest());
    objects.iter().map(entry).collect()
}

/// The policies that deny in `before` and not in `after`, for every cluster or for one.
pub(super) fn vanished_denies(before: &Policies, after: &Policies) -> Vec<String> {
    let everywhere = vanished(&before.shared, &after.shared);
    let mut names: BTreeSet<String> = everywhere.iter().map(|name| name.to_string()).collect();
    let had = before.clusters.keys();
    let come = after.clusters.keys();
    let come = come.filter(|cluster| !before.clusters.contains_key(*cluster));
    for cluster in had.chain(come) {
        let of_cluster = vanished(before.for_cluster(cluster), after.for_cluster(cluster));
        let own = of_cluster.difference(&everywhere);
        names.extend(own.map(|name| format!("{cluster}/{name}")));
    }
    names.into_iter().collect()
}

fn vanished<'a>(before: &'a Arc<PolicySet>, after: &Arc<PolicySet>) -> BTreeSet<&'a Arc<str>> {
    if Arc::ptr_eq(before, after) || before.shares_policies(after) {
        return BTreeSet::new();
    }
    let still: HashSet<&Arc<str>> = after.enforced_denies().collect();
    let denies = before.enforced_denies();
    denies.filter(|name| !still.contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_policy::manifest::{self, ObjectSet, Options, Source};

    fn mk_policy(name: &str, effect: &str, mode: &str) -> String {
        format!(
            "---\napiVersion: portcullis.dev/v1alpha1\nkind: AuthorizationPolicy\nmetadata: {{name: {name}}}\nspec:\n  effect: {effect}\n  mode: {mode}\n  subjects: [{{kind: User, name: joe}}]\n  nonResourceRules: [{{verbs: [get], paths: [/x]}}]\n"
        )
    }

    fn mk_source(text: String, cluster: Option<&str>) -> Source {
        Source {
            file: "policies.yaml".into(),
            text,
            cluster: cluster.map(str::to_owned),
        }
    }

    fn mk_set(sources: &[Source]) -> (ObjectSet, Policies) {
        let (objects, faults) = manifest::read(sources, &Options::default());
        let objects = objects.unwrap_or_else(|| panic!("{faults}"));
        let manifests = manifest::assemble(objects.objects(), &Options::default());
        (objects, manifests.policies)
    }

    fn since(after: &ObjectSet, before: &ObjectSet) -> Change {
        Change::of(&after.since(before))
    }

    #[test]
    fn a_change_counts_and_names_objects() {
        let one = mk_policy("stays", "Deny", "Enforce") + &mk_policy("grows", "Allow", "Enforce");
        let two = mk_policy("stays", "Deny", "Enforce")
            + &mk_policy("grows", "Allow", "Shadow")
            + &mk_policy("comes", "Allow", "Enforce");
        let (before, _) = mk_set(&[mk_source(one, None)]);
        let (after, _) = mk_set(&[mk_source(two, None)]);
        let change = since(&after, &before);
        assert_eq!(
            change.describe(true),
            "1 object added (AuthorizationPolicy/comes), 1 object changed (AuthorizationPolicy/grows), 0 objects removed"
        );
        assert_eq!(
            since(&before, &after).describe(false),
            "0 objects added, 1 object changed, 1 object removed"
        );
    }

    #[test]
    fn comments_and_order_are_no_change() {
        let (one, two) = (
            mk_policy("a", "Deny", "Enforce"),
            mk_policy("b", "Deny", "Enforce"),
        );
        let (before, _) = mk_set(&[mk_source(format!("{one}{two}"), None)]);
        let (after, _) = mk_set(&[mk_source(format!("# a comment\n{two}{one}"), None)]);
        assert_eq!(since(&after, &before), Change::default());
    }

    #[test]
    fn a_deny_that_is_gone_in_shadow_or_turned_to_allow_has_vanished() {
        let deny = |name| mk_policy(name, "Deny", "Enforce");
        let before = ["gone", "kept", "shadowed", "turned"].map(deny).concat();
        let after = deny("kept")
            + &mk_policy("shadowed", "Deny", "Shadow")
            + &mk_policy("turned", "Allow", "Enforce");
        let (_, before) = mk_set(&[mk_source(before, None)]);
        let (_, after) = mk_set(&[mk_source(after, None)]);
        assert_eq!(vanished_denies(&before, &after), ["gone", "shadowed", "turned"]);
        assert!(vanished_denies(&after, &after).is_empty());
    }

    #[test]
    fn a_deny_that_now_holds_for_every_cluster_has_not_vanished() {
        let deny = mk_policy("d", "Deny", "Enforce");
        let (_, one) = mk_set(&[mk_source(deny.clone(), Some("east"))]);
        let (_, all) = mk_set(&[mk_source(deny, None)]);
        assert!(vanished_denies(&one, &all).is_empty());
        assert_eq!(vanished_denies(&all, &one), ["d"]);
        let (_, none) = mk_set(&[]);
        assert_eq!(vanished_denies(&one, &none), ["east/d"]);
    }
}
