//! Syntax checks for names, labels, metadata and label selectors of Kubernetes, as in API
//! validation (`apimachinery/pkg/util/validation/validation.go` and `pkg/api/validate/content`).
//!
//! `Err` contains the rule that is broken.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, ObjectMeta};

use super::report::{Report, SyntaxResult};
use crate::field::FieldPath;
use crate::model::{is_label_key, label_key_faults, label_value_faults};

const SUBDOMAIN: &str = "must be a DNS subdomain: at most 253 of a-z, 0-9, `-` and `.`, each part beginning \
                         and ending with a letter or digit";
const LABEL: &str =
    "must be a DNS label: at most 63 of a-z, 0-9 and `-`, beginning and ending with a letter or digit";
const LABEL_1035: &str = "must be a DNS label: at most 63 of a-z, 0-9 and `-`, beginning with a letter and ending with a letter or digit";
const QUALIFIED: &str = "must be a qualified name: an optional DNS subdomain and `/`, then at most 63 of \
                         A-Z, a-z, 0-9, `-`, `_` and `.`, beginning and ending with a letter or digit";

/// A name of most objects (`IsDNS1123Subdomain`).
pub fn dns_subdomain(text: &str) -> SyntaxResult {
    let valid = text.len() <= 253 && text.split('.').all(|part| dns_part(part, usize::MAX));
    valid.then_some(()).ok_or(SUBDOMAIN)
}

/// A name of a Namespace (`IsDNS1123Label`).
pub(crate) fn dns_label(text: &str) -> SyntaxResult {
    dns_part(text, 63).then_some(()).ok_or(LABEL)
}

/// An API version, or a kind in lower case (`IsDNS1035Label`).
pub(crate) fn dns_1035_label(text: &str) -> SyntaxResult {
    let begins_with_letter = text.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
    (begins_with_letter && dns_part(text, 63))
        .then_some(())
        .ok_or(LABEL_1035)
}

/// A name of an RBAC object, which must be one segment of a URL path (`IsPathSegmentName`).
pub(crate) fn path_segment(text: &str) -> SyntaxResult {
    match text {
        "." | ".." => Err("must not be `.` or `..`"),
        _ if text.contains(['/', '%']) => Err("must not contain `/` or `%`"),
        _ => Ok(()),
    }
}

/// An annotation key, or the name of a condition (`IsQualifiedName`).
pub(crate) fn qualified_name(text: &str) -> SyntaxResult {
    is_label_key(text).then_some(()).ok_or(QUALIFIED)
}

fn dns_part(part: &str, longest: usize) -> bool {
    let edge = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    matches_charset(part, longest, edge, |byte| edge(byte) || *byte == b'-')
}

fn matches_charset(
    text: &str,
    longest: usize,
    edge: impl Fn(&u8) -> bool,
    inner: impl Fn(&u8) -> bool,
) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= longest
        && bytes.first().is_some_and(&edge)
        && bytes.last().is_some_and(&edge)
        && bytes.iter().all(inner)
}

// The fields of `metadata` that are read from policies, as checked by `ValidateObjectMeta` of
// `apimachinery/pkg/api/validation/objectmeta.go`.

/// The scope of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KindScope {
    Cluster,
    Namespaced,
}

/// Like [`validate_metadata`], for cluster-scoped kinds whose names are DNS subdomains: all except
/// RBAC's.
pub(crate) fn validate_cluster_scoped(metadata: &ObjectMeta, report: &mut Report<'_>) {
    validate_metadata(metadata, KindScope::Cluster, dns_subdomain, report);
}

/// Checks name, namespace, labels and annotation keys. Fields that the API server sets (uid,
/// managedFields, …) are not checked.
pub(crate) fn validate_metadata(
    metadata: &ObjectMeta,
    scope: KindScope,
    name: fn(&str) -> SyntaxResult,
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
        report.syntax(&annotations.key(key), key, qualified_name(&key.to_lowercase()));
    }
}

fn validate_name(
    metadata: &ObjectMeta,
    path: &FieldPath,
    syntax: fn(&str) -> SyntaxResult,
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
        (KindScope::Namespaced, namespace) => report.syntax(path, namespace, dns_label(namespace)),
    }
}

/// Checks the keys and values of labels. As in Kubernetes, errors have the path of the map, and
/// quote the invalid key or value (`ValidateLabels` of
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

// Label selectors, as checked by `ValidateLabelSelector` of
// `apimachinery/pkg/apis/meta/v1/validation/validation.go`.

/// Checks the labels and expressions of the selector at `path`.
pub(crate) fn validate_selector(selector: &LabelSelector, path: &FieldPath, report: &mut Report<'_>) {
    if let Some(labels) = &selector.match_labels {
        validate_labels(labels, &path.field("matchLabels"), report);
    }
    let expressions = path.field("matchExpressions");
    for (index, requirement) in selector.match_expressions.iter().flatten().enumerate() {
        validate_requirement(requirement, &expressions.index(index), report);
    }
}

fn validate_requirement(requirement: &LabelSelectorRequirement, path: &FieldPath, report: &mut Report<'_>) {
    let values = requirement.values.as_deref().unwrap_or_default();
    validate_requirement_parts(&requirement.key, &requirement.operator, values, path, report);
}

/// Checks the requirement at `path`, given its parts.
pub(crate) fn validate_requirement_parts(
    key: &str,
    operator: &str,
    values: &[String],
    path: &FieldPath,
    report: &mut Report<'_>,
) {
    validate_operator(operator, values, path, report);
    for fault in label_key_faults(key) {
        report.invalid(&path.field("key"), key, fault);
    }
    for (index, value) in values.iter().enumerate() {
        for fault in label_value_faults(value) {
            report.invalid(&path.field("values").index(index), value, fault);
        }
    }
}

fn validate_operator(operator: &str, values: &[String], path: &FieldPath, report: &mut Report<'_>) {
    match operator {
        "In" | "NotIn" if values.is_empty() => {
            let message = "must be specified when `operator` is 'In' or 'NotIn'";
            report.required(&path.field("values"), message);
        }
        "In" | "NotIn" => {}
        "Exists" | "DoesNotExist" if values.is_empty() => {}
        "Exists" | "DoesNotExist" => {
            let message = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            report.forbidden(&path.field("values"), message);
        }
        other => {
            // `Invalid` rather than `NotSupported`, as in Kubernetes.
            let rule = "not a valid selector operator: must be `In`, `NotIn`, `Exists` or `DoesNotExist`";
            report.invalid(&path.field("operator"), other, rule);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(check: fn(&str) -> SyntaxResult, valid: &[&str], invalid: &[&str]) {
        for text in valid {
            assert_eq!(check(text), Ok(()), "`{text}` should be accepted");
        }
        for text in invalid {
            assert!(check(text).is_err(), "`{text}` should be refused");
        }
    }

    #[test]
    fn subdomains() {
        let long = "a".repeat(254);
        table(
            dns_subdomain,
            &["a", "a-b.c0", "1.2.3"],
            &["", "A", "a_b", "-a", "a.", "a..b", "a b", &long],
        );
        assert_eq!(dns_subdomain(&"a".repeat(253)), Ok(()));
    }

    #[test]
    fn labels() {
        let long = "a".repeat(64);
        table(
            dns_label,
            &["default", "0", "a-1"],
            &["", "a.b", "a-", "é", &long],
        );
    }

    #[test]
    fn path_segments() {
        table(
            path_segment,
            &["system:node", "a b", "Ä", "..."],
            &[".", "..", "a/b", "50%"],
        );
    }

    #[test]
    fn qualified_names() {
        let long = "a".repeat(64);
        table(
            qualified_name,
            &[
                "app",
                "A_b.c",
                "example.com/app",
                "rbac.example.com/aggregate-to-view",
            ],
            &[
                "",
                "/app",
                "example.com/",
                "a/b/c",
                "Example.com/app",
                "-a",
                &long,
            ],
        );
    }
}
