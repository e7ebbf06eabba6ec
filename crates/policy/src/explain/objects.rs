//! The objects of a text of manifests, and what is read of them.

use serde_json::{Value, json};

use crate::document::{Document, Value as DocumentValue};
use crate::field::{Fault, FaultKind, Faults, FieldPath};
use crate::manifest;

/// Every object in the text of `file`, lists taken apart.
///
/// # Errors
///
/// It is no YAML or JSON, or has something else than objects.
pub fn read(file: &str, text: String) -> Result<Vec<Document>, Faults> {
    let source = manifest::Source {
        file: file.to_owned(),
        text,
        cluster: None,
    };
    let mut faults = Faults::new();
    let objects = manifest::documents(&source, &mut faults);
    if faults.has_errors() {
        return Err(faults);
    }
    Ok(objects)
}

/// The text at `path`; none where there is something else.
pub fn text(object: &Document, path: &[&str]) -> Option<String> {
    let node = path.iter().try_fold(object.root(), |node, name| node.get(name));
    node.and_then(|node| node.as_str()).map(str::to_owned)
}

/// Text that may be absent, but nothing else: `n` and `1` are none without quotes.
pub fn written_text(object: &Document, path: &[&str]) -> Result<Option<String>, Fault> {
    let node = path.iter().try_fold(object.root(), |node, name| node.get(name));
    match node.map(|node| (&node.value, node.as_str())) {
        None | Some((DocumentValue::Null, _)) => Ok(None),
        Some((_, Some(text))) => Ok(Some(text.to_owned())),
        Some((_, None)) => {
            let message = "must be text: put it in quotes".to_owned();
            Err(fault(object, path, FaultKind::TypeInvalid, message))
        }
    }
}

/// The text at `path`, which must be there.
pub fn required(object: &Document, path: &[&str]) -> Result<String, Fault> {
    text(object, path).filter(|text| !text.is_empty()).ok_or_else(|| {
        fault(
            object,
            path,
            FaultKind::Required,
            "a manifest needs it".to_owned(),
        )
    })
}

/// What is wrong at `path`.
pub fn fault(object: &Document, path: &[&str], kind: FaultKind, message: String) -> Fault {
    let path = path.iter().fold(FieldPath::root(), |path, name| path.field(name));
    Fault::error(object.place(path), kind, message)
}

/// Of an `apiVersion`; the core group is the empty text.
pub fn group_and_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// As an API server writes it into what it receives.
pub fn set_namespace(object: &mut Value, namespace: &str) {
    if namespace.is_empty() {
        return;
    }
    if let Some(object) = object.as_object_mut() {
        let metadata = object.entry("metadata").or_insert_with(|| json!({}));
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert("namespace".to_owned(), json!(namespace));
        }
    }
}
