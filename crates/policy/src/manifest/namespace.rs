//! `v1` Namespace: its labels, for selectors.

use std::collections::BTreeMap;

use super::names;
use super::report::Report;
use crate::document::{Document, Node, Value};
use crate::field::{FaultKind, FieldPath};

/// The label that the API server gives to every namespace.
pub(crate) use crate::engine::NAMESPACE_NAME_LABEL as NAME_LABEL;

/// The labels of the namespace, the one of its name included. The other
/// fields, and those of later versions, do not matter here.
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
    super::metadata::validate_labels(&labels, &path.field("labels"), report);
    labels.insert(NAME_LABEL.to_owned(), name.to_owned());
    report.is_valid().then_some(labels)
}
