//! A source's text, to its objects: streams of documents, and lists of either
//! sort, flattened.

use std::sync::Arc;

use super::Source;
use super::kind::group;
use crate::document::{self, Document, Entry, Node, Value};
use crate::field::{Fault, FaultKind, Faults, FieldPath};

/// Every object in `source`, in the order written.
pub fn documents(source: &Source, faults: &mut Faults) -> Vec<Document> {
    let mut objects = Vec::new();
    match document::parse(Some(&source.file), &source.text) {
        Ok(documents) => {
            documents
                .into_iter()
                .for_each(|document| flatten(document, &mut objects, faults));
        }
        Err(fault) => faults.push(fault),
    }
    objects
}

/// Adds `document`, or what it lists. Recursion is bounded by the parser's depth.
fn flatten(document: Document, objects: &mut Vec<Document>, faults: &mut Faults) {
    if !matches!(document.root().value, Value::Map(_)) {
        let place = document.place(FieldPath::root());
        faults.push(Fault::error(
            place,
            FaultKind::TypeInvalid,
            "a manifest must be a mapping",
        ));
        return;
    }
    let Some(defaults) = item_type(&document) else {
        objects.push(document);
        return;
    };
    let file = document.file().cloned();
    let Value::Map(entries) = document.into_root().value else {
        return;
    };
    let items = entries
        .into_iter()
        .find(|entry| entry.key == "items")
        .map(|entry| entry.value.value);
    let Some(Value::List(items)) = items else { return };
    for item in items {
        flatten(defaults.apply(file.clone(), item), objects, faults);
    }
}

/// What the items of a list are when they do not say so themselves. An API
/// server leaves it out in typed lists.
struct ItemType {
    api_version: Option<String>,
    kind: Option<String>,
}

/// `Some` for `v1` List, and for a `…List` with items.
fn item_type(document: &Document) -> Option<ItemType> {
    let (api_version, kind) = (document.text("apiVersion")?, document.text("kind")?);
    let element = kind.strip_suffix("List")?;
    let items = document.root().get("items").map(|items| &items.value);
    if !matches!(items, None | Some(Value::List(_) | Value::Null)) {
        return None;
    }
    if element.is_empty() && group(api_version).is_empty() {
        return Some(ItemType {
            api_version: None,
            kind: None,
        });
    }
    items.map(|_| ItemType {
        api_version: Some(api_version.to_owned()),
        kind: Some(element.to_owned()),
    })
}

impl ItemType {
    fn apply(&self, file: Option<Arc<str>>, mut item: Node) -> Document {
        let line = item.line;
        if let Value::Map(entries) = &mut item.value {
            for (key, value) in [("apiVersion", &self.api_version), ("kind", &self.kind)] {
                let absent = !entries.iter().any(|entry| entry.key == key);
                if let (true, Some(value)) = (absent, value) {
                    let value = Node::new(line, Value::String(value.clone()));
                    entries.insert(
                        0,
                        Entry {
                            key: key.to_owned(),
                            line,
                            column: 0,
                            value,
                        },
                    );
                }
            }
        }
        Document::new(file, item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> (Vec<String>, Faults) {
        let mut faults = Faults::new();
        let source = Source {
            file: "f.yaml".into(),
            text: text.into(),
            cluster: None,
        };
        let objects = documents(&source, &mut faults);
        (objects.iter().map(Document::object).collect(), faults)
    }

    #[test]
    fn streams_and_lists_are_flattened_in_order() {
        let (names, faults) = names(
            "apiVersion: v1\nkind: A\nmetadata: {name: one}\n---\n\
             apiVersion: v1\nkind: List\nitems:\n\
             - {apiVersion: v1, kind: B, metadata: {name: two}}\n\
             - {apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: C, metadata: {name: three}}]}\n",
        );
        assert_eq!(faults.to_string(), "");
        assert_eq!(names, ["A/one", "B/two", "C/three"]);
    }

    #[test]
    fn items_of_a_typed_list_take_its_type() {
        let (names, faults) = names(
            r#"{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleList",
                "items": [{"metadata": {"namespace": "ns", "name": "a"}}]}"#,
        );
        assert_eq!(faults.to_string(), "");
        assert_eq!(names, ["Role/ns/a"]);
    }

    #[test]
    fn an_empty_list_is_no_object() {
        assert_eq!(
            names("{apiVersion: v1, kind: List, items: null}").0,
            Vec::<String>::new()
        );
        assert_eq!(names("{apiVersion: v1, kind: List}").0, Vec::<String>::new());
    }

    #[test]
    fn a_kind_that_only_sounds_like_a_list_is_an_object() {
        let (names, _) = names("{apiVersion: example.com/v1, kind: AllowList, metadata: {name: a}}");
        assert_eq!(names, ["AllowList/a"]);
    }

    #[test]
    fn what_is_no_mapping_is_a_fault() {
        let (names, faults) = names("- a\n- b\n");
        assert_eq!(names, Vec::<String>::new());
        assert_eq!(
            faults.to_string(),
            "f.yaml:1: Invalid type: a manifest must be a mapping"
        );
    }
}
