//! `metadata`, as `ValidateObjectMeta` of
//! `apimachinery/pkg/api/validation/objectmeta.go` checks what a policy reads of it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::names::{self, Syntax};
use super::report::Report;
use crate::engine::{label_key_faults, label_value_faults};
use crate::field::FieldPath;

/// Where objects of a kind live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KindScope {
    Cluster,
    Namespaced,
}

/// As [`validate`], for the kinds that belong to no namespace and whose names are
/// subdomains: all but RBAC's.
pub(crate) fn validate_cluster_scoped(metadata: &ObjectMeta, report: &mut Report<'_>) {
    validate(metadata, KindScope::Cluster, names::dns_subdomain, report);
}

/// Checks name, namespace, labels and annotation keys. What the API server
/// adds (uid, managedFields, …) is taken as it is.
pub(crate) fn validate(
    metadata: &ObjectMeta,
    scope: KindScope,
    name: fn(&str) -> Syntax,
    report: &mut Report<'_>,
) {
    let path = FieldPath::root().field("metadata");
    validate_name(metadata, &path.field("name"), name, report);
    validate_namespace(metadata, &path.field("namespace"), scope, report);
    if let Some(labels) = &metadata.labels {
        validate_labels(labels, &path.field("labels"), report);
    }
    let annotations = path.field("annotations");
    for key in metadata.annotations.iter().flat_map(BTreeMap::keys) {
        report.syntax(
            &annotations.key(key),
            key,
            names::qualified_name(&key.to_lowercase()),
        );
    }
}

fn validate_name(
    metadata: &ObjectMeta,
    path: &FieldPath,
    syntax: fn(&str) -> Syntax,
    report: &mut Report<'_>,
) {
    match metadata.name.as_deref() {
        None | Some("") => report.required(
            path,
            "an object needs a name; `generateName` is not supported in manifests",
        ),
        Some(name) => report.syntax(path, name, syntax(name)),
    }
}

fn validate_namespace(metadata: &ObjectMeta, path: &FieldPath, scope: KindScope, report: &mut Report<'_>) {
    match (scope, metadata.namespace.as_deref().unwrap_or_default()) {
        (KindScope::Cluster, "") => {}
        (KindScope::Cluster, _) => report.forbidden(
            path,
            "objects of this kind are cluster-scoped: remove the namespace",
        ),
        (KindScope::Namespaced, "") => report.required(path, "objects of this kind need a namespace"),
        (KindScope::Namespaced, namespace) => report.syntax(path, namespace, names::dns_label(namespace)),
    }
}

/// Checks the keys and values of labels. As upstream, whichever is wrong is
/// reported at the map, with the text that is wrong (`ValidateLabels` of
/// `apimachinery/pkg/apis/meta/v1/validation/validation.go`).
pub(crate) fn validate_labels(labels: &BTreeMap<String, String>, path: &FieldPath, report: &mut Report<'_>) {
    for (key, value) in labels {
        for fault in label_key_faults(key) {
            report.invalid_entry(path, key, key, fault);
        }
        for fault in label_value_faults(value) {
            report.invalid_entry(path, key, value, fault);
        }
    }
}
