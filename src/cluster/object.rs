//! One watched object, decoded and validated, without the metadata that decides
//! nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use openssl::sha::sha256;
use serde_json::Value;

use super::kind::{WatchPurpose, WatchedKind};
use crate::document::{Document, Node};
use crate::field::{Fault, FaultKind, Faults, Place};
use crate::manifest::ValidatedObject;

/// What an object is called: its namespace, empty where it has none, and its name.
pub(super) type Name = (String, String);

/// An object as received, without what decides nothing.
#[derive(Debug, Clone)]
pub(super) struct ReceivedObject {
    pub(super) name: Name,
    /// Or why there is none.
    value: Result<Value, String>,
    /// Names the content.
    pub(super) digest: [u8; 32],
}

/// An object without fault.
#[derive(Debug, Clone)]
pub(super) struct Good {
    /// As JSON, for the file in which the set is saved.
    pub(super) text: Box<str>,
    pub(super) digest: [u8; 32],
    /// Only of what must be selected by them.
    pub(super) labels: BTreeMap<String, String>,
    pub(super) object: Arc<ValidatedObject>,
}

// === impl Received ===

impl ReceivedObject {
    /// The object `text`, of this name, kind and version. Lists leave the latter
    /// two out of their items.
    pub(super) fn new(kind: &WatchedKind, api_version: &str, name: Name, text: &str) -> Self {
        match serde_json::from_str(text) {
            Ok(value) => Self::of_value(kind, api_version, name, value),
            Err(error) => Self {
                name,
                value: Err(error.to_string()),
                digest: sha256(text.as_bytes()),
            },
        }
    }

    /// The same, read already.
    pub(super) fn of_value(kind: &WatchedKind, api_version: &str, name: Name, mut value: Value) -> Self {
        if let Value::Object(object) = &mut value {
            object.insert("apiVersion".into(), api_version.into());
            object.insert("kind".into(), kind.kind.as_str().into());
        }
        strip(kind, &mut value);
        Self {
            name,
            digest: sha256(value.to_string().as_bytes()),
            value: Ok(value),
        }
    }

    /// Reads and checks it. Blocks for as long as its expressions take to compile.
    ///
    /// # Errors
    ///
    /// Every fault of the object.
    pub(super) fn read(self, cluster: &Arc<str>) -> Result<Good, Faults> {
        let source: Arc<str> = format!("cluster {cluster}").into();
        let value = self
            .value
            .map_err(|message| unreadable(&source, &self.name, message))?;
        let text = value.to_string().into_boxed_str();
        let labels = labels_of(&value);
        let document = Document::new(Some(source), Node::from_json(value));
        let object = ValidatedObject::read(document, Arc::clone(cluster))?;
        Ok(Good {
            text,
            digest: self.digest,
            labels,
            object: Arc::new(object),
        })
    }
}

/// Takes away what decides nothing, and would make a change of an object that is
/// as it was: a type check of expressions that the API server notes, say. What
/// expressions can look at stays.
fn strip(kind: &WatchedKind, value: &mut Value) {
    let looked_at = kind.role == WatchPurpose::Parameter || kind.kind == "Namespace";
    if let Some(Value::Object(metadata)) = value.get_mut("metadata") {
        metadata.remove("managedFields");
        let noted = ["resourceVersion", "generation", "uid", "creationTimestamp"];
        for field in noted.iter().filter(|_| !looked_at) {
            metadata.remove(*field);
        }
        if let Some(Value::Object(annotations)) = metadata.get_mut("annotations")
            && !looked_at
        {
            annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        }
    }
    if let Value::Object(object) = value
        && !looked_at
    {
        object.remove("status");
    }
}

fn unreadable(source: &Arc<str>, (namespace, name): &Name, message: String) -> Faults {
    let place = Place {
        file: Some(Arc::clone(source)),
        object: if namespace.is_empty() {
            name.clone()
        } else {
            format!("{namespace}/{name}")
        },
        ..Place::default()
    };
    let mut faults = Faults::new();
    faults.push(Fault::error(place, FaultKind::Unreadable, message));
    faults
}

/// The name of the object `value`, as far as it has one.
pub(super) fn name_of(value: &Value) -> Name {
    let text = |field: &str| {
        let text = value
            .get("metadata")
            .and_then(|metadata| metadata.get(field)?.as_str());
        text.unwrap_or_default().to_owned()
    };
    (text("namespace"), text("name"))
}

fn labels_of(value: &Value) -> BTreeMap<String, String> {
    let labels = value
        .get("metadata")
        .and_then(|metadata| metadata.get("labels")?.as_object());
    let texts = labels.into_iter().flatten();
    texts
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}
