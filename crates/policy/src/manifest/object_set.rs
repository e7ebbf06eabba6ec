//! The valid objects of all sources.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::lint::{self, SourceLint};
use super::namespace;
use super::source::{Options, Source};
use super::source_objects::SourceObjects;
use super::validated::{ManifestObject, ObjectIdentity, ValidatedObject};
use crate::document::Document;
use crate::field::{Fault, FaultKind, Faults, FieldPath};
use crate::model::groups::RBAC;

/// The objects of several sources, valid individually and together.
pub struct ObjectSet {
    sources: Vec<Arc<SourceObjects>>,
    findings: SourceLint,
}

/// The difference between two sets. A changed object is in both lists.
#[derive(Debug, Default)]
pub struct SetDifference<'s> {
    /// Objects only in the newer set.
    pub added: Vec<&'s Arc<ValidatedObject>>,
    /// Objects only in the earlier set.
    pub removed: Vec<&'s Arc<ValidatedObject>>,
}

/// Reads and validates `sources`, like [`load`](super::load), but does not assemble them.
#[must_use]
pub fn read(sources: &[Source], options: &Options) -> (Option<ObjectSet>, Faults) {
    let read = |source| Arc::new(SourceObjects::read(source, options.cel_version, None));
    ObjectSet::new(sources.iter().map(read).collect(), options, None)
}

impl ObjectSet {
    /// Returns the set of `sources`, and all errors and warnings, which do not depend on `earlier`:
    /// the earlier set only saves work. If there is an error, there is no set.
    #[must_use]
    pub fn new(
        sources: Vec<Arc<SourceObjects>>,
        options: &Options,
        earlier: Option<&Self>,
    ) -> (Option<Self>, Faults) {
        let mut faults = Faults::new();
        for source in &sources {
            faults.extend(source.faults().iter().cloned());
        }
        if may_have_duplicates(&sources, earlier) {
            refuse_duplicates(sources.iter().flat_map(|source| source.objects()), &mut faults);
        }
        let others: Vec<&ManifestObject> = sources.iter().flat_map(|source| source.others()).collect();
        namespace::require_known_namespaces(&others, options, &mut faults);
        if faults.has_errors() {
            return (None, faults);
        }
        let findings = earlier.map(|earlier| &earlier.findings);
        let findings = lint::lint(&sources, options, findings, &mut faults);
        (Some(Self { sources, findings }), faults)
    }

    /// The sources, in order.
    #[must_use]
    pub fn sources(&self) -> &[Arc<SourceObjects>] {
        &self.sources
    }

    /// The objects, in order.
    pub fn objects(&self) -> impl Iterator<Item = &Arc<ValidatedObject>> {
        let objects = self.sources.iter().flat_map(|source| source.objects());
        objects.map(|object| &object.valid)
    }

    /// The objects that are not role bindings, in order.
    pub fn non_bindings(&self) -> impl Iterator<Item = &Arc<ValidatedObject>> {
        let objects = self.sources.iter().flat_map(|source| source.others());
        objects.map(|object| &object.valid)
    }

    /// The objects with expressions, and their bindings, with their documents, in order.
    pub fn documents_of_policies(&self) -> impl Iterator<Item = (&Arc<ValidatedObject>, Document)> {
        let objects = self.sources.iter().flat_map(|source| source.others());
        let objects = objects.filter(|object| object.has_expressions());
        objects.map(|object| (&object.valid, object.document.unpack()))
    }

    /// The RBAC role or binding of this kind, namespace and name in each source, with its document.
    pub fn documents_of_rbac(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> impl Iterator<Item = (&Arc<ValidatedObject>, Document)> {
        let objects = self.sources.iter().flat_map(|source| source.objects());
        objects
            .filter(move |object| {
                let identity = object.identity();
                identity.group() == RBAC
                    && (identity.kind(), identity.namespace(), identity.name()) == (kind, namespace, name)
            })
            .map(|object| (&object.valid, object.document.unpack()))
    }

    /// The sources, without the objects in `identities`.
    #[must_use]
    pub fn without(&self, identities: &HashSet<&ObjectIdentity>) -> Vec<Arc<SourceObjects>> {
        let digests: HashSet<u64> = identities.iter().map(|identity| identity.digest()).collect();
        let without = |source: &Arc<SourceObjects>| {
            if source.identities().iter().any(|own| digests.contains(own)) {
                Arc::new(source.without(identities))
            } else {
                Arc::clone(source)
            }
        };
        self.sources.iter().map(without).collect()
    }

    /// Whether an object of this set may have one of `identities`, given as digests.
    #[must_use]
    pub fn may_have(&self, identities: &HashSet<u64>) -> bool {
        let mut own = self.sources.iter().flat_map(|source| source.identities());
        !identities.is_empty() && own.any(|identity| identities.contains(identity))
    }

    /// The objects in `wanted`, which are compared by address, with their documents. Only sources
    /// that `other` does not contain are searched.
    pub fn documents_among<'s>(
        &'s self,
        wanted: &[&Arc<ValidatedObject>],
        other: &Self,
    ) -> impl Iterator<Item = (&'s Arc<ValidatedObject>, Document)> {
        let wanted: HashSet<_> = wanted.iter().map(|object| Arc::as_ptr(object)).collect();
        self.objects_of_own_sources(other)
            .filter(move |object| wanted.contains(&Arc::as_ptr(&object.valid)))
            .map(|object| (&object.valid, object.document.unpack()))
    }

    /// The difference from `earlier`. The cost depends only on the sources that changed.
    #[must_use]
    pub fn since<'s>(&'s self, earlier: &'s Self) -> SetDifference<'s> {
        let own = |set: &'s Self, other: &Self| -> Vec<&'s Arc<ValidatedObject>> {
            let objects = set.objects_of_own_sources(other);
            objects.map(|object| &object.valid).collect()
        };
        let (mut added, mut removed) = (own(self, earlier), own(earlier, self));
        let pointers = |objects: &[&Arc<ValidatedObject>]| -> HashSet<_> {
            objects.iter().map(|object| Arc::as_ptr(object)).collect()
        };
        let (come, gone) = (pointers(&added), pointers(&removed));
        added.retain(|object| !gone.contains(&Arc::as_ptr(object)));
        removed.retain(|object| !come.contains(&Arc::as_ptr(object)));
        SetDifference { added, removed }
    }

    /// The objects of sources that `other` does not contain.
    fn objects_of_own_sources<'s>(
        &'s self,
        other: &Self,
    ) -> impl Iterator<Item = &'s ManifestObject> + use<'s> {
        let others: HashSet<_> = other.sources.iter().map(Arc::as_ptr).collect();
        let sources = self.sources.iter();
        sources
            .filter(move |source| !others.contains(&Arc::as_ptr(source)))
            .flat_map(|source| source.objects())
    }
}

/// Returns the errors and warnings that [`ObjectSet::new`] cannot find in `sources` because of
/// other errors: further errors of faulty objects, and all warnings. For `check`: reads each source
/// again, and faulty objects once more without their invalid values.
#[must_use]
pub fn hidden_faults(sources: &[Source], options: &Options) -> Faults {
    let mut faults = Faults::new();
    let mut read = |source| {
        Arc::new(SourceObjects::read_mended(
            source,
            options.cel_version,
            &mut faults,
        ))
    };
    let mended: Vec<_> = sources.iter().map(&mut read).collect();
    lint::lint(&mended, options, None, &mut faults);
    faults
}

/// Whether two objects of `sources` may have the same identity and apply to one cluster. `earlier`
/// has no such duplicates, so one of them must be in a new source.
fn may_have_duplicates(sources: &[Arc<SourceObjects>], earlier: Option<&ObjectSet>) -> bool {
    let known: HashSet<_> = earlier
        .iter()
        .flat_map(|set| &set.sources)
        .map(Arc::as_ptr)
        .collect();
    let mut seen_sources = HashSet::new();
    let (old, new): (Vec<_>, Vec<_>) = sources
        .iter()
        // The second occurrence of a source counts as new.
        .partition(|source| known.contains(&Arc::as_ptr(source)) && seen_sources.insert(Arc::as_ptr(source)));
    let Some(new) = NewIdentities::new(&new) else {
        return true;
    };
    old.into_iter().any(|source| new.may_duplicate(source))
}

type IdentitySet = HashSet<u64, foldhash::fast::FixedState>;

/// The digests of the identities of new objects.
struct NewIdentities<'s> {
    everywhere: IdentitySet,
    of: HashMap<&'s str, IdentitySet>,
    /// Those that apply to only one cluster, of all clusters together.
    of_single_clusters: OnceCell<IdentitySet>,
}

// === impl NewIdentities ===

impl<'s> NewIdentities<'s> {
    /// Collects those of `sources`; `None` if two of them may be duplicates.
    fn new(sources: &[&'s Arc<SourceObjects>]) -> Option<Self> {
        let mut new = Self {
            everywhere: IdentitySet::default(),
            of: HashMap::new(),
            of_single_clusters: OnceCell::new(),
        };
        // Objects for every cluster can be duplicates of all others, so they come first.
        let (everywhere, of_clusters): (Vec<_>, Vec<_>) = sources
            .iter()
            .copied()
            .partition(|source| source.cluster().is_none());
        for source in everywhere.into_iter().chain(of_clusters) {
            let mut identities = source.identities().iter();
            let is_new = match source.cluster() {
                None => identities.all(|one| new.everywhere.insert(*one)),
                Some(cluster) => {
                    let own = new.of.entry(cluster).or_default();
                    identities.all(|one| !new.everywhere.contains(one) && own.insert(*one))
                }
            };
            if !is_new {
                return None;
            }
        }
        Some(new)
    }

    /// Whether an object of `source`, which is not new, may be a duplicate of a new one.
    fn may_duplicate(&self, source: &SourceObjects) -> bool {
        let has = |meeting: &IdentitySet| {
            let mut identities = source.identities().iter();
            !meeting.is_empty() && identities.any(|one| meeting.contains(one))
        };
        has(&self.everywhere)
            || match source.cluster() {
                None => has(self.of_single_clusters()),
                Some(cluster) => self.of.get(cluster).is_some_and(has),
            }
    }

    fn of_single_clusters(&self) -> &IdentitySet {
        let of_any = || self.of.values().flatten().copied().collect();
        self.of_single_clusters.get_or_init(of_any)
    }
}

/// Reports each object that applies to the same cluster as an earlier one with the same identity.
pub(crate) fn refuse_duplicates<'o>(objects: impl Iterator<Item = &'o ManifestObject>, faults: &mut Faults) {
    let mut seen = SeenObjects::default();
    for (place, object) in objects.enumerate() {
        if let Some(first) = seen.duplicate_of(object) {
            let path = FieldPath::root().field("metadata").field("name");
            let message = format!(
                "the same object is also at {}{}",
                position(first),
                reach(first, object)
            );
            faults.push(Fault::error(
                object.document.place(path),
                FaultKind::Duplicate,
                message,
            ));
        }
        seen.note(place, object);
    }
}

/// The first objects of each identity, with their positions.
#[derive(Default)]
struct SeenObjects<'o> {
    /// The first for any cluster.
    first: HashMap<&'o ObjectIdentity, &'o ManifestObject>,
    /// The first for only this cluster or, for `None`, for every cluster.
    of: HashMap<(&'o ObjectIdentity, Option<&'o str>), (usize, &'o ManifestObject)>,
}

impl<'o> SeenObjects<'o> {
    /// The first object of the same identity that applies to a cluster of `object`.
    fn duplicate_of(&self, object: &'o ManifestObject) -> Option<&'o ManifestObject> {
        let identity = object.identity();
        let Some(cluster) = object.cluster.as_deref() else {
            return self.first.get(identity).copied();
        };
        let meeting = [None, Some(cluster)].map(|of| self.of.get(&(identity, of)));
        let first = meeting.into_iter().flatten().min_by_key(|(place, _)| *place);
        first.map(|(_, object)| *object)
    }

    fn note(&mut self, place: usize, object: &'o ManifestObject) {
        let identity = object.identity();
        self.first.entry(identity).or_insert(object);
        let of = (identity, object.cluster.as_deref());
        self.of.entry(of).or_insert((place, object));
    }
}

fn position(object: &ManifestObject) -> String {
    let place = object.document.place(FieldPath::root());
    format!("{}:{}", place.file.as_deref().unwrap_or_default(), place.line)
}

/// Names the cluster that both apply to, unless it is obvious.
fn reach(first: &ManifestObject, second: &ManifestObject) -> String {
    match (&first.cluster, &second.cluster) {
        (None, Some(cluster)) => format!(" for every cluster, `{cluster}` included"),
        (Some(cluster), None) => {
            format!(" for the cluster `{cluster}`, and this one applies to every cluster")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::load;
    use portcullis_cel::Version;

    /// A source with one binding called `name`, for a cluster or for all.
    fn source(name: &str, cluster: Option<&str>, file: usize) -> Arc<SourceObjects> {
        let text = format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {{name: {name}}}\n\
             roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}}\nsubjects: []\n"
        );
        let source = Source {
            file: format!("{file}"),
            text,
            cluster: cluster.map(str::to_owned),
        };
        Arc::new(SourceObjects::read(&source, Version::NEWEST, None))
    }

    fn sources(of: &[(&str, Option<&str>)], first: usize) -> Vec<Arc<SourceObjects>> {
        let each = of.iter().zip(first..);
        each.map(|((name, cluster), file)| source(name, *cluster, file))
            .collect()
    }

    #[test]
    fn only_objects_that_hold_for_one_cluster_are_duplicates() {
        const EAST: Option<&str> = Some("east");
        const WEST: Option<&str> = Some("west");
        for (kept, new, expected) in [
            (&[("a", EAST)][..], &[("a", WEST)][..], false),
            (&[("a", EAST)], &[("a", EAST)], true),
            (&[("a", EAST)], &[("a", None)], true),
            (&[("a", None)], &[("a", WEST)], true),
            (&[("a", None)], &[("b", WEST), ("b", EAST)], false),
            (&[("a", None)], &[("b", WEST), ("a", EAST)], true),
            (&[("a", None)], &[("b", WEST), ("b", None)], true),
            (&[("a", EAST), ("b", None)], &[("a", WEST), ("c", WEST)], false),
            (&[], &[("a", WEST), ("a", EAST)], false),
            (&[], &[("a", WEST), ("a", WEST)], true),
            (&[], &[("a", WEST), ("a", None)], true),
        ] {
            let mut all = sources(kept, 0);
            let (earlier, faults) = ObjectSet::new(all.clone(), &Options::default(), None);
            let earlier = earlier.unwrap_or_else(|| panic!("{faults}"));
            all.extend(sources(new, kept.len()));
            assert_eq!(
                may_have_duplicates(&all, Some(&earlier)),
                expected,
                "{kept:?} {new:?}"
            );
            let (set, _) = ObjectSet::new(all, &Options::default(), Some(&earlier));
            assert_eq!(set.is_none(), expected, "{kept:?} {new:?}");
        }
    }

    #[test]
    fn a_duplicate_is_told_with_the_first_object_that_it_meets() {
        let of = [
            ("a", Some("east")),
            ("a", Some("west")),
            ("a", None),
            ("a", Some("west")),
            ("a", Some("north")),
            ("a", None),
        ];
        let (_, faults) = ObjectSet::new(sources(&of, 0), &Options::default(), None);
        let first = |fault: &crate::field::Fault| {
            let (_, at) = fault.message.split_once("also at ")?;
            let of = fault.place.file.as_deref()?;
            Some(format!("{of}: {}", at.split(':').next()?))
        };
        let found: Vec<String> = faults.iter().filter_map(first).collect();
        assert_eq!(found, ["2: 0", "3: 1", "4: 2", "5: 0"]);
    }

    fn faults(text: &str) -> String {
        let source = Source {
            file: "f.yaml".into(),
            text: text.into(),
            cluster: None,
        };
        load(&[source], &Options::default()).1.to_string()
    }

    #[test]
    fn a_value_of_another_type_is_a_fault_with_its_line() {
        let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: ns}\n\
                    data:\n  a.yaml: yes\n  b: 1\n  c: \"1\"\n";
        assert_eq!(
            faults(text),
            "f.yaml:5: ConfigMap/ns/c: data.a.yaml: Invalid type: expected string, got true; put it in quotes\n\
             f.yaml:6: ConfigMap/ns/c: data.b: Invalid type: expected string, got 1; put it in quotes"
        );
        let text = "{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: ns}, \
                    spec: {containers: [{name: a, image: 1}]}}";
        assert!(
            faults(text).contains("spec.containers[0].image: Invalid type"),
            "{}",
            faults(text)
        );
    }

    #[test]
    fn other_kinds_and_unknown_fields_are_free_of_form() {
        for text in [
            "{apiVersion: e.org/v1, kind: Limits, metadata: {name: c}, data: {a: yes}}",
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: ns}, later: {a: yes}}",
            "{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: ns}, \
              spec: {containers: [{name: a, resources: {limits: {cpu: 1}}, ports: [{containerPort: 1}]}]}}",
        ] {
            let faults = faults(text);
            assert!(!faults.contains("Invalid type"), "{faults}");
        }
    }

    #[test]
    fn an_object_that_lacks_its_namespace_is_no_parameter() {
        let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n";
        assert_eq!(
            faults(text),
            "f.yaml:3: ConfigMap/c: metadata.namespace: warning: Required value: objects of kind ConfigMap \
            are in a namespace, but this one has none, so it is ignored, and policies do not find it as a \
            parameter. Set `metadata.namespace`"
        );
        for text in [
            "{apiVersion: e.org/v1, kind: Limits, metadata: {name: c}}",
            "{apiVersion: v1, kind: Node, metadata: {name: c}}",
            "{apiVersion: apps/v1, kind: Deployment, metadata: {name: c, namespace: ns}}",
        ] {
            let faults = faults(text);
            assert!(!faults.contains("metadata.namespace"), "{faults}");
        }
    }
}
