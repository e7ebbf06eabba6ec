//! One object as an API server tells of it: without what decides nothing, read and checked.

use std::collections::BTreeMap;
use std::sync::Arc;

use openssl::sha::sha256;
use serde_json::Value;

use super::kind::{Kind, Role};
use crate::document::{Document, Node};
use crate::field::Faults;
use crate::manifest::SoundObject;

/// What an object is called: its namespace, empty where it has none, and its name.
pub(super) type Name = (String, String);

/// An object as received, without what decides nothing.
#[derive(Debug, Clone)]
pub(super) struct Received {
    pub(super) name: Name,
    value: Value,
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
    pub(super) object: Arc<SoundObject>,
}

// === impl Received ===

impl Received {
    /// `value`, of this kind and version. Lists leave the two out of their items.
    pub(super) fn new(kind: &Kind, api_version: &str, mut value: Value) -> Self {
        if let Value::Object(object) = &mut value {
            object.insert("apiVersion".into(), api_version.into());
            object.insert("kind".into(), kind.kind.as_str().into());
            let decides = matches!(kind.group.as_str(), "" if kind.kind == "Namespace");
            if !decides && kind.role != Role::Parameter {
                // A type check of a policy's expressions that the API server notes is no change of it.
                object.remove("status");
            }
        }
        if let Some(Value::Object(metadata)) = value.get_mut("metadata") {
            metadata.remove("managedFields");
            if kind.role != Role::Parameter && kind.kind != "Namespace" {
                for field in ["resourceVersion", "generation", "uid", "creationTimestamp"] {
                    metadata.remove(field);
                }
                if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
                    annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
                }
            }
        }
        Self {
            name: name_of(&value),
            digest: sha256(value.to_string().as_bytes()),
            value,
        }
    }

    /// Reads and checks it. Blocks for as long as its expressions take to compile.
    ///
    /// # Errors
    ///
    /// Every fault of the object.
    pub(super) fn read(self, cluster: &Arc<str>) -> Result<Good, Faults> {
        let text = self.value.to_string().into_boxed_str();
        let labels = labels_of(&self.value);
        let source: Arc<str> = format!("cluster {cluster}").into();
        let document = Document::new(Some(source), Node::from_json(self.value));
        let object = SoundObject::read(document, Arc::clone(cluster))?;
        Ok(Good {
            text,
            digest: self.digest,
            labels,
            object: Arc::new(object),
        })
    }
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
