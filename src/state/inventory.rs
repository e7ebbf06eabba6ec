//! What a reload changed, and which restrictions it took away, in the words of the log.
//!
//! A change that takes away more restrictions than `reload.maxRemoved` is not put in force: a
//! file that was cut, or written only in part, is a valid change otherwise.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use super::changed_settings::{ChangedSettings, MAX_NAMES};
use portcullis_policy::admission::webhook::Webhook;
use portcullis_policy::admission::{AdmissionPolicies, AdmissionSet, Phase, PolicyBinding, ValidationAction};
use portcullis_policy::authorization::{ClusterPolicySets, PolicySet};
use portcullis_policy::manifest::{ObjectIdentity, SetDifference, ValidatedObject};
use portcullis_policy::model::CauseKind;

/// An object and the only cluster that it holds for, if any.
type InventoryKey<'o> = (&'o ObjectIdentity, Option<&'o str>);

/// What a reload changed: settings, the objects in files, and the Denies no longer in force.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// Fields of the configuration, and files of certificates and credentials.
    pub settings: ChangedSettings,
    /// Objects that were not there before.
    pub added: LoadedObjects,
    /// Objects that say something else than before.
    pub changed: LoadedObjects,
    /// Objects that are there no more.
    pub removed: LoadedObjects,
    /// What refused requests and does so no more.
    pub vanished: Vec<Restriction>,
}

/// What refuses requests: a Deny or Limit in mode Enforce, a
/// ValidatingAdmissionPolicy that a binding has deny, or a configuration of webhooks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Restriction {
    /// Of the object, such as `AuthorizationPolicy`.
    pub kind: &'static str,
    /// The only cluster that it held for; `None`: every cluster.
    pub cluster: Option<String>,
    /// Its name.
    pub name: String,
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
        names.truncate(MAX_NAMES);
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
    /// What `difference` changes: an object that says the same as before is none of it, wherever
    /// it stands now.
    pub(crate) fn of(difference: &SetDifference<'_>) -> Self {
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
            ..Self::default()
        }
    }

    /// One line, such as `1 object added, 2 objects removed`; with the names of the objects where
    /// `named`. Before that, what changed besides objects.
    #[must_use]
    pub fn describe(&self, named: bool) -> String {
        let parts = [
            (&self.added, "added"),
            (&self.changed, "changed"),
            (&self.removed, "removed"),
        ];
        let objects: Vec<String> = parts
            .into_iter()
            .filter(|(objects, _)| objects.count > 0)
            .map(|(objects, what)| objects.describe(what, named))
            .collect();
        let objects = match objects.is_empty() {
            true => "no object changed".to_owned(),
            false => objects.join(", "),
        };
        self.settings.describe(named) + &objects
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

// === impl Restriction ===

impl Restriction {
    /// Its name, or `cluster/name` where it held for one cluster alone.
    #[must_use]
    pub fn in_cluster(&self) -> String {
        match &self.cluster {
            None => self.name.clone(),
            Some(cluster) => format!("{cluster}/{}", self.name),
        }
    }
}

impl fmt::Display for Restriction {
    /// `Kind/name`, or `Kind/cluster/name`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.in_cluster())
    }
}

/// What refuses requests in `before` and not in `after`, for every cluster or for one; sorted.
pub(crate) fn vanished(
    (policies, admission): (&ClusterPolicySets, &AdmissionPolicies),
    (policies_after, admission_after): (&ClusterPolicySets, &AdmissionPolicies),
) -> Vec<Restriction> {
    let denies = |cluster: Option<&str>| {
        let of = |policies: &'_ ClusterPolicySets| {
            Arc::clone(cluster.map_or(&policies.shared, |cluster| policies.for_cluster(cluster)))
        };
        vanished_denies(&of(policies), &of(policies_after))
    };
    let validations = |cluster: Option<&str>| {
        let of = |policies: &'_ AdmissionPolicies| {
            Arc::clone(cluster.map_or(&policies.shared, |cluster| policies.for_cluster(cluster)))
        };
        vanished_validations(&of(admission), &of(admission_after))
    };
    let clusters = policies.clusters.keys().chain(policies_after.clusters.keys());
    let mut vanished = by_cluster(CauseKind::AuthorizationPolicy.as_str(), clusters, denies);
    let clusters = || admission.clusters.keys().chain(admission_after.clusters.keys());
    let kind = CauseKind::ValidatingAdmissionPolicy.as_str();
    vanished.append(&mut by_cluster(kind, clusters(), validations));
    for (kind, phase) in [
        ("MutatingWebhookConfiguration", Phase::Mutate),
        ("ValidatingWebhookConfiguration", Phase::Validate),
    ] {
        let webhooks = |cluster: Option<&str>| {
            let of = |policies: &'_ AdmissionPolicies| {
                Arc::clone(cluster.map_or(&policies.shared, |cluster| policies.for_cluster(cluster)))
            };
            vanished_webhooks(&of(admission), &of(admission_after), phase)
        };
        vanished.append(&mut by_cluster(kind, clusters(), webhooks));
    }
    vanished
}

/// What `vanished` names for every cluster, and then what it names for one of them besides.
fn by_cluster<'c>(
    kind: &'static str,
    clusters: impl Iterator<Item = &'c String>,
    vanished: impl Fn(Option<&str>) -> BTreeSet<String>,
) -> Vec<Restriction> {
    let everywhere = vanished(None);
    let clusters: BTreeSet<&String> = clusters.collect();
    let of_clusters = clusters.into_iter().flat_map(|cluster| {
        let own: Vec<String> = vanished(Some(cluster)).difference(&everywhere).cloned().collect();
        own.into_iter().map(|name| (Some(cluster.clone()), name))
    });
    let all = everywhere
        .iter()
        .map(|name| (None, name.clone()))
        .chain(of_clusters);
    all.map(|(cluster, name)| Restriction { kind, cluster, name })
        .collect()
}

fn vanished_denies(before: &Arc<PolicySet>, after: &Arc<PolicySet>) -> BTreeSet<String> {
    if Arc::ptr_eq(before, after) || before.shares_policies(after) {
        return BTreeSet::new();
    }
    let still: HashSet<&Arc<str>> = after.enforced_denies().collect();
    let denies = before.enforced_denies().filter(|name| !still.contains(name));
    denies.map(|name| name.to_string()).collect()
}

fn vanished_validations(before: &Arc<AdmissionSet>, after: &Arc<AdmissionSet>) -> BTreeSet<String> {
    if Arc::ptr_eq(before, after) || before.policies_address() == after.policies_address() {
        return BTreeSet::new();
    }
    let still = denying(after);
    denying(before)
        .difference(&still)
        .map(|name| (*name).to_owned())
        .collect()
}

/// The names of the configurations of which a webhook is called no more.
fn vanished_webhooks(
    before: &Arc<AdmissionSet>,
    after: &Arc<AdmissionSet>,
    phase: Phase,
) -> BTreeSet<String> {
    if Arc::ptr_eq(before, after) {
        return BTreeSet::new();
    }
    let still: HashSet<(&str, &str)> = after.webhooks(phase).map(|webhook| names_of(webhook)).collect();
    let before = before.webhooks(phase).map(|webhook| names_of(webhook));
    let gone = before.filter(|names| !still.contains(names));
    gone.map(|(configuration, _)| configuration.to_owned()).collect()
}

fn names_of(webhook: &Webhook) -> (&str, &str) {
    (&webhook.configuration, &webhook.name)
}

/// The names of the policies that a binding has deny.
fn denying(set: &AdmissionSet) -> BTreeSet<&str> {
    let denies = |binding: &Arc<PolicyBinding>| binding.actions.contains(&ValidationAction::Deny);
    let bound = set.policies(Phase::Validate).into_iter();
    let denying = bound.filter(|(_, bindings)| bindings.iter().any(denies));
    denying.map(|(policy, _)| policy.name.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_policy::admission::AdmissionSettings;
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

    /// A policy on pods, and its binding with these actions.
    fn mk_validating(name: &str, actions: &str) -> String {
        format!(
            "---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {{name: {name}}}\nspec:\n  matchConstraints: {{resourceRules: [{{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}}]}}\n  validations: [{{expression: 'true'}}]\n---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {{name: {name}}}\nspec: {{policyName: {name}, validationActions: {actions}}}\n"
        )
    }

    fn mk_set(sources: &[Source]) -> (ObjectSet, (ClusterPolicySets, AdmissionPolicies)) {
        let (objects, faults) = manifest::read(sources, &Options::default());
        let objects = objects.unwrap_or_else(|| panic!("{faults}"));
        let manifests = manifest::assemble(objects.objects(), &Options::default());
        let admission = manifests.admission(&AdmissionSettings::default());
        (objects, (manifests.policies, admission))
    }

    /// What vanished, as it is written.
    fn vanished(
        before: &(ClusterPolicySets, AdmissionPolicies),
        after: &(ClusterPolicySets, AdmissionPolicies),
    ) -> Vec<String> {
        let found = super::vanished((&before.0, &before.1), (&after.0, &after.1));
        found.iter().map(ToString::to_string).collect()
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
            "1 object added (AuthorizationPolicy/comes), 1 object changed (AuthorizationPolicy/grows)"
        );
        assert_eq!(
            since(&before, &after).describe(false),
            "1 object changed, 1 object removed"
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
    fn a_deny_or_limit_that_is_gone_in_shadow_or_turned_to_allow_has_vanished() {
        let deny = |name| mk_policy(name, "Deny", "Enforce");
        let limit = mk_policy("unlimited", "Limit", "Enforce");
        let before = ["gone", "kept", "shadowed", "turned"].map(deny).concat() + &limit;
        let after = deny("kept")
            + &mk_policy("shadowed", "Deny", "Shadow")
            + &mk_policy("turned", "Allow", "Enforce")
            + &mk_policy("unlimited", "Limit", "Shadow");
        let (_, before) = mk_set(&[mk_source(before, None)]);
        let (_, after) = mk_set(&[mk_source(after, None)]);
        let expected = ["gone", "shadowed", "turned", "unlimited"];
        let expected = expected.map(|name| format!("AuthorizationPolicy/{name}"));
        assert_eq!(vanished(&before, &after), expected);
        assert!(vanished(&after, &after).is_empty());
    }

    #[test]
    fn a_deny_that_now_holds_for_every_cluster_has_not_vanished() {
        let deny = mk_policy("d", "Deny", "Enforce");
        let (_, one) = mk_set(&[mk_source(deny.clone(), Some("east"))]);
        let (_, all) = mk_set(&[mk_source(deny, None)]);
        assert!(vanished(&one, &all).is_empty());
        assert_eq!(vanished(&all, &one), ["AuthorizationPolicy/d"]);
        let (_, none) = mk_set(&[]);
        assert_eq!(vanished(&one, &none), ["AuthorizationPolicy/east/d"]);
    }

    /// A configuration of validating webhooks with these names.
    fn mk_webhooks(name: &str, webhooks: &[&str]) -> String {
        let webhook = |name: &&str| {
            format!(
                "  - {{name: {name}.example.com, clientConfig: {{url: 'https://127.0.0.1:1'}}, sideEffects: None, admissionReviewVersions: [v1], rules: [{{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}}]}}\n"
            )
        };
        let webhooks: String = webhooks.iter().map(webhook).collect();
        format!(
            "---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {{name: {name}}}\nwebhooks:\n{webhooks}"
        )
    }

    #[test]
    fn a_webhook_that_is_called_no_more_has_vanished() {
        let before =
            mk_webhooks("fewer", &["a", "b"]) + &mk_webhooks("gone", &["a"]) + &mk_webhooks("kept", &["a"]);
        let after = mk_webhooks("fewer", &["b", "c"]) + &mk_webhooks("kept", &["b", "a"]);
        let (_, shared) = mk_set(&[mk_source(before.clone(), None)]);
        let (_, without) = mk_set(&[mk_source(after, None)]);
        let expected = ["fewer", "gone"].map(|name| format!("ValidatingWebhookConfiguration/{name}"));
        assert_eq!(vanished(&shared, &without), expected);
        assert!(vanished(&shared, &shared).is_empty());
        let (_, of_east) = mk_set(&[mk_source(before, Some("east"))]);
        let (_, none) = mk_set(&[]);
        let expected =
            ["fewer", "gone", "kept"].map(|name| format!("ValidatingWebhookConfiguration/east/{name}"));
        assert_eq!(vanished(&of_east, &none), expected);
    }

    #[test]
    fn a_validating_policy_that_denies_no_more_has_vanished() {
        let deny = |name: &str| mk_validating(name, "[Deny]");
        let before = deny("gone") + &deny("kept") + &deny("warns") + &mk_validating("audits", "[Audit]");
        let after = deny("kept") + &mk_validating("warns", "[Warn]");
        let (_, shared) = mk_set(&[mk_source(before.clone(), None)]);
        let (_, without) = mk_set(&[mk_source(after, None)]);
        let expected = ["gone", "warns"].map(|name| format!("ValidatingAdmissionPolicy/{name}"));
        assert_eq!(vanished(&shared, &without), expected);
        assert!(vanished(&shared, &shared).is_empty());
        let (_, of_east) = mk_set(&[mk_source(before, Some("east"))]);
        let (_, none) = mk_set(&[]);
        let expected = ["gone", "kept", "warns"].map(|name| format!("ValidatingAdmissionPolicy/east/{name}"));
        assert_eq!(vanished(&of_east, &none), expected);
    }
}
