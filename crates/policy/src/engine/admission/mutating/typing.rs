//! Detects where an API server would see another object between two mutations: it decodes
//! objects of built-in kinds into their type, fills in defaults and encodes them again
//! (`dispatchOne` of `apiserver/pkg/admission/plugin/policy/mutating/dispatcher.go`). The
//! gateway does not do this, because the defaults are code; it only reports where the
//! next expression may see something else.

use crate::engine::admission::GroupVersionKind;
use crate::engine::admission::apply::Schemas;
use portcullis_cel::json::patch::PatchOperation;
use portcullis_cel::json::{Kind, Node, pointer};

/// The most pointers that are reported.
const MOST: usize = 16;

/// Pointers to what is empty among the values of `operations`, for an object of a
/// built-in `kind`: empty maps, lists and text, and `null`.
pub(super) fn empty(kind: &GroupVersionKind<'_>, operations: &[PatchOperation<'_>]) -> Vec<String> {
    let mut found = Vec::new();
    if Schemas::builtin().know(kind).is_ok() {
        for operation in operations {
            if let Some(value) = operation.value {
                search(value, &operation.path, &mut found);
            }
        }
    }
    found
}

/// Recurses by the depth of a value, which the parser bounds.
fn search(value: Node<'_>, at: &str, found: &mut Vec<String>) {
    let is_empty = match value.kind() {
        Kind::Null => true,
        Kind::Object | Kind::Array => value.is_empty(),
        Kind::String => value.is_str(""),
        Kind::Bool | Kind::Number => false,
    };
    if is_empty && found.len() < MOST {
        found.push(at.to_owned());
    }
    if value.kind() == Kind::Object {
        for (key, value) in value.entries() {
            search(value, &format!("{at}/{}", pointer::escape(&key)), found);
        }
    }
    if value.kind() == Kind::Array {
        for (index, item) in value.items().enumerate() {
            search(item, &format!("{at}/{index}"), found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_cel::json::{Document, diff};

    fn reported(kind: &str, after: &str) -> Vec<String> {
        let kind = GroupVersionKind {
            group: "".into(),
            version: "v1".into(),
            kind: kind.to_owned().into(),
        };
        let before = Document::parse("{}").unwrap();
        let after = Document::parse(after).unwrap();
        empty(&kind, &diff(before.root(), after.root()))
    }

    #[test]
    fn what_is_empty_in_a_built_in_kind_is_told() {
        let after = r#"{"metadata":{"labels":{},"name":""},"spec":{"containers":[{"env":[],"tty":false,"a/b":null}]}}"#;
        let expected = [
            "/metadata/labels",
            "/metadata/name",
            "/spec/containers/0/env",
            "/spec/containers/0/a~1b",
        ];
        assert_eq!(reported("Pod", after), expected);
        assert_eq!(reported("Sprocket", after), Vec::<String>::new());
        assert_eq!(
            reported("Pod", r#"{"metadata":{"labels":{"a":"b"}}}"#),
            Vec::<String>::new()
        );
    }
}
