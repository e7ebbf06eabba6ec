//! Policies that select namespaces by their labels, where no Namespaces are known.

use std::collections::BTreeSet;

use super::Options;
use super::object::{Content, ManifestObject};
use crate::authorization::AuthorizationPolicy;
use crate::field::{Fault, FaultKind, Faults, FieldPath};

/// Refuses each `namespaceSelector` that asks for labels of a cluster of whose
/// Namespaces neither the manifests nor a watch tell.
pub(crate) fn require(objects: &[&ManifestObject], options: &Options, faults: &mut Faults) {
    let sources = NamespaceSources::new(objects, options);
    for object in objects {
        let Content::Policy(policy) = &object.content else {
            continue;
        };
        let Some(unknown) = sources.missing(object.cluster.as_deref(), options) else {
            continue;
        };
        for index in asking(policy) {
            let place = object.document.place(at(index));
            faults.push(Fault::error(place, FaultKind::Required, message(unknown)));
        }
    }
}

/// The rules that ask for other labels than the name.
pub(crate) fn asking(policy: &AuthorizationPolicy) -> impl Iterator<Item = usize> {
    let rules = policy.resource_rules.iter().enumerate();
    rules
        .filter(|(_, rule)| {
            let selector = rule.namespace_selector.as_ref();
            selector.is_some_and(|selector| !selector.asks_for_the_name_alone())
        })
        .map(|(index, _)| index)
}

/// The path of the selector of a rule.
pub(crate) fn at(rule: usize) -> FieldPath {
    let rules = FieldPath::root().field("spec").field("resourceRules");
    rules.index(rule).field("namespaceSelector")
}

/// What is wrong with a selector, where the Namespaces are not known of a
/// cluster; of which one, where that has to be said.
pub(crate) fn message(cluster: Option<&str>) -> String {
    let of = cluster.map_or_else(String::new, |cluster| format!(" of the cluster `{cluster}`"));
    format!(
        "no labels are known, because there are no Namespaces{of} among the manifests or watched: \
         add their manifests, or add the cluster to `clusters`; only `kubernetes.io/metadata.name` \
         is always known"
    )
}

/// The clusters whose Namespaces are known.
pub(crate) struct NamespaceSources<'o> {
    /// Of every cluster's.
    all: bool,
    clusters: BTreeSet<&'o str>,
}

impl<'o> NamespaceSources<'o> {
    pub(crate) fn new(objects: &[&'o ManifestObject], options: &'o Options) -> Self {
        let namespaces = objects
            .iter()
            .filter(|object| matches!(object.content, Content::Namespace(_)));
        let of_files = namespaces.clone().filter_map(|object| object.cluster.as_deref());
        Self {
            all: namespaces.clone().any(|object| object.cluster.is_none()),
            clusters: of_files
                .chain(options.watched.iter().map(String::as_str))
                .collect(),
        }
    }

    /// The first cluster, of those that a policy is for, of whose Namespaces
    /// none are known: `Some(None)` where clusters have no names here.
    pub(crate) fn missing(&self, cluster: Option<&'o str>, options: &'o Options) -> Option<Option<&'o str>> {
        let is_missing = |cluster: &&str| !self.clusters.contains(cluster);
        match cluster {
            _ if self.all => None,
            Some(cluster) => Some(cluster).filter(is_missing).map(Some),
            None if options.clusters.is_empty() => self.clusters.is_empty().then_some(None),
            None => {
                let mut clusters = options.clusters.iter().map(String::as_str);
                clusters.find(is_missing).map(Some)
            }
        }
    }
}
