//! `v1` Namespace: its labels, for selectors; and the error for selectors whose Namespaces are not
//! known.

use std::collections::{BTreeMap, BTreeSet};

use super::names;
use super::report::Report;
use super::source::Options;
use super::validated::{Content, ManifestObject};
use crate::authorization::AuthorizationPolicy;
use crate::document::{Document, Node, Value};
use crate::field::{Fault, FaultKind, Faults, FieldPath};

/// The label that the API server sets on every namespace.
pub(crate) use crate::model::NAMESPACE_NAME_LABEL as NAME_LABEL;

/// Returns the labels of the namespace, including that of its name. Other fields, including unknown
/// ones, are ignored.
pub(crate) fn labels(document: &Document, report: &mut Report<'_>) -> Option<BTreeMap<String, String>> {
    let path = FieldPath::root().field("metadata");
    let metadata = document.root().get("metadata");
    let name = metadata
        .and_then(|metadata| metadata.get("name"))
        .and_then(Node::as_str)
        .unwrap_or_default();
    if name.is_empty() {
        report.required(&path.field("name"), "an object needs a name");
    } else {
        report.syntax(&path.field("name"), name, names::dns_label(name));
    }
    let mut labels = BTreeMap::new();
    match metadata
        .and_then(|metadata| metadata.get("labels"))
        .map(|labels| &labels.value)
    {
        None | Some(Value::Null) => {}
        Some(Value::Map(entries)) => {
            for entry in entries {
                let path = path.field("labels").key(&entry.key);
                match &entry.value.value {
                    Value::String(value) => {
                        labels.insert(entry.key.clone(), value.clone());
                    }
                    _ => report.fault(
                        FaultKind::TypeInvalid,
                        &path,
                        "a label's value must be a string: put it in quotes",
                    ),
                }
            }
        }
        Some(_) => report.fault(
            FaultKind::TypeInvalid,
            &path.field("labels"),
            "labels must be a mapping",
        ),
    }
    super::names::validate_labels(&labels, &path.field("labels"), report);
    labels.insert(NAME_LABEL.to_owned(), name.to_owned());
    report.is_valid().then_some(labels)
}

// Policies that select namespaces by labels, although no Namespaces are known.

/// Adds an error for each `namespaceSelector` that needs labels in a cluster whose Namespaces are
/// neither in manifests nor watched.
pub(crate) fn require_known_namespaces(objects: &[&ManifestObject], options: &Options, faults: &mut Faults) {
    let sources = NamespaceSources::new(objects, options);
    for object in objects {
        let Some(policy) = object.rules_of_requests() else {
            continue;
        };
        let Some(unknown) = sources.missing(object.cluster.as_deref(), options) else {
            continue;
        };
        for index in rules_with_label_selectors(policy) {
            let place = object.document.place(selector_path(index));
            faults.push(Fault::error(place, FaultKind::Required, message(unknown)));
        }
    }
}

/// The indices of the rules whose selector needs other labels than that of the name.
pub(crate) fn rules_with_label_selectors(policy: &AuthorizationPolicy) -> impl Iterator<Item = usize> {
    let rules = policy.resource_rules.iter().enumerate();
    rules
        .filter(|(_, rule)| {
            let selector = rule.namespace_selector.as_ref();
            selector.is_some_and(|selector| !selector.requires_only_the_name())
        })
        .map(|(index, _)| index)
}

/// The path of the `namespaceSelector` of a rule.
pub(crate) fn selector_path(rule: usize) -> FieldPath {
    let rules = FieldPath::root().field("spec").field("resourceRules");
    rules.index(rule).field("namespaceSelector")
}

/// The error message for a selector in a cluster whose Namespaces are not known; `None` if clusters
/// have no names.
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
    /// Whether Namespaces of every cluster are known.
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

    /// The first cluster that a policy applies to and whose Namespaces are not known: `Some(None)`
    /// if clusters have no names.
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
