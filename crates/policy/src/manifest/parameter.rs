//! Objects that admission policies take as parameters, of whatever kind.

use super::admission;
use super::report::Report;
use crate::document::{Document, Node, Value};
use crate::engine::admission::GroupVersionKind;
use crate::engine::admission::apply::{self, DecodeError, Reading};
use crate::field::{FaultKind, FieldPath};
use portcullis_cel::json;

/// Checks an object of a kind that is built into Kubernetes: each value is of its
/// field's type, as the API server demands (`data: {a: yes}` in a ConfigMap is
/// not). Fields that are not known may be those of later versions.
pub(crate) fn validate(document: &Document, report: &mut Report<'_>) {
    let (Some(object), Ok(nothing)) = (admission::json(document), json::Document::parse("{}")) else {
        return;
    };
    let api_version = document.text("apiVersion").unwrap_or_default();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = GroupVersionKind {
        group: group.into(),
        version: version.into(),
        kind: document.text("kind").unwrap_or_default().into(),
    };
    let decoded = apply::decode(&kind, nothing.root(), object.root(), Reading::Lenient);
    let Err(DecodeError::Mismatches(mismatches)) = decoded else {
        return;
    };
    for mismatch in mismatches.iter() {
        let path = field_path(document.root(), &mismatch.path);
        let mut message = mismatch.message.clone();
        if message.starts_with("expected string, got") {
            message.push_str("; put it in quotes");
        }
        report.fault(FaultKind::TypeInvalid, &path, message);
    }
}

/// `.data.a.yaml` as a path: the object decides which dots separate keys.
fn field_path(root: &Node, written: &str) -> FieldPath {
    let (mut path, mut node, mut rest) = (FieldPath::root(), root, written);
    while !rest.is_empty() {
        let step = match &node.value {
            Value::Map(entries) => {
                let found = entries.iter().filter_map(|entry| {
                    let rest = rest.strip_prefix('.')?.strip_prefix(entry.key.as_str())?;
                    let is_whole = rest.is_empty() || rest.starts_with(['.', '[']);
                    is_whole.then_some((entry, rest))
                });
                let longest = found.max_by_key(|(entry, _)| entry.key.len());
                longest.map(|(entry, rest)| (path.field(&entry.key), &entry.value, rest))
            }
            Value::List(items) => rest.strip_prefix('[').and_then(|rest| {
                let (index, rest) = rest.split_once(']')?;
                let index = index.parse().ok()?;
                items.get(index).map(|item| (path.index(index), item, rest))
            }),
            _ => None,
        };
        let Some(step) = step else { break };
        (path, node, rest) = step;
    }
    path
}

#[cfg(test)]
mod tests {
    use crate::manifest::{Options, Source, load};

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
             are in a namespace, and this one names none, so it is ignored: policies with this \
             parameter do not find it. Set `metadata.namespace`"
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
