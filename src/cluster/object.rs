//! One watched object, decoded and validated, without metadata that has no effect on
//! decisions.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use openssl::sha::sha256;
use serde_json::Value;

use super::condition::NotedCondition;
use super::definition::{self, CustomDefinition};
use super::kind::{WatchPurpose, WatchedKind};
use portcullis_cel::Version;
use portcullis_policy::document::{Document, Node, PackedDocument};
use portcullis_policy::field::{Fault, FaultKind, Faults, Place};
use portcullis_policy::manifest::ValidatedObject;

/// What an object is called: its namespace, empty where it has none, and its name.
pub(super) type Name = (String, String);

/// An object as received, without what decides nothing.
#[derive(Debug, Clone)]
pub(super) struct ReceivedObject {
    pub(super) name: Name,
    /// As JSON, or why there is none.
    text: Result<Box<str>, String>,
    /// Names the content.
    pub(super) digest: [u8; 32],
    /// Of Portcullis' own kinds only.
    pub(super) noted: Noted,
}

/// What an API server notes of an object beside what it says. It decides nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Noted {
    pub(super) uid: String,
    pub(super) generation: i64,
    /// The condition that its status has.
    pub(super) condition: Option<NotedCondition>,
}

/// An object without fault.
#[derive(Debug, Clone)]
pub(super) struct Good {
    pub(super) content: Arc<GoodContent>,
    pub(super) object: Arc<ValidatedObject>,
}

/// What an object without fault says. Clusters whose objects say the same share it.
#[derive(Debug)]
pub(super) struct GoodContent {
    pub(super) name: Name,
    /// For the file in which the set is saved.
    pub(super) text: StoredText,
    pub(super) digest: [u8; 32],
    /// Only of what must be selected by them.
    pub(super) labels: BTreeMap<String, String>,
    /// The object of the first cluster that said this, where it has no expressions.
    pub(super) object: Option<Arc<ValidatedObject>>,
}

/// The text of an object as JSON, in little memory where there may be very many of its kind.
#[derive(Debug, Clone)]
pub(super) enum StoredText {
    Plain(Box<str>),
    Packed(PackedDocument),
}

/// An object with faults.
#[derive(Debug)]
pub(super) struct RefusedObject {
    /// As JSON; `None` where it is none.
    pub(super) text: Option<Box<str>>,
    pub(super) faults: Faults,
}

// === impl ReceivedObject ===

impl ReceivedObject {
    /// The object `text`, of this name, kind and version. Lists leave the latter
    /// two out of their items.
    pub(super) fn new(kind: &WatchedKind, api_version: &str, name: Name, text: &str) -> Self {
        let value = match kind.role {
            WatchPurpose::Definition => definition::reduced(text),
            _ => serde_json::from_str(text).map_err(|error| error.to_string()),
        };
        match value {
            Ok(value) => Self::of_value(kind, api_version, name, value),
            Err(error) => Self {
                name,
                text: Err(error),
                digest: sha256(text.as_bytes()),
                noted: Noted::default(),
            },
        }
    }

    /// The same, read already.
    pub(super) fn of_value(kind: &WatchedKind, api_version: &str, name: Name, mut value: Value) -> Self {
        if let Value::Object(object) = &mut value {
            object.insert("apiVersion".into(), api_version.into());
            object.insert("kind".into(), kind.kind.as_str().into());
        }
        let noted = if kind.is_own() {
            Noted::of(&value)
        } else {
            Noted::default()
        };
        strip(kind, &mut value);
        let text = value.to_string().into_boxed_str();
        Self {
            name,
            noted,
            digest: sha256(text.as_bytes()),
            text: Ok(text),
        }
    }

    /// The definition that it is, if it is one.
    pub(super) fn definition(&self) -> Option<CustomDefinition> {
        CustomDefinition::examined(&serde_json::from_str(self.text.as_ref().ok()?).ok()?)
    }

    /// How many bytes it has as JSON.
    pub(super) fn bytes(&self) -> usize {
        self.text.as_ref().map_or(0, |text| text.len())
    }

    /// The object `text`, as it was stored.
    pub(super) fn of_text(name: Name, digest: [u8; 32], text: &str) -> Self {
        Self {
            name,
            text: Ok(text.into()),
            digest,
            noted: Noted::default(),
        }
    }

    /// Reads and checks it. Blocks for as long as its expressions take to compile.
    ///
    /// # Errors
    ///
    /// Every fault of the object.
    pub(super) fn read(self, cluster: &Arc<str>, version: Version) -> Result<Good, RefusedObject> {
        let source: Arc<str> = format!("cluster {cluster}").into();
        let value = |text: &str| serde_json::from_str::<Value>(text).map_err(|error| error.to_string());
        let read = self.text.and_then(|text| Ok((value(&text)?, text)));
        let (value, text) = read.map_err(|message| RefusedObject {
            text: None,
            faults: unreadable(&source, &self.name, message),
        })?;
        let labels = labels_of(&value);
        let document = Document::new(Some(source), Node::from_json(value));
        let packed = PackedDocument::new(&document).of_no_file();
        match ValidatedObject::read(document, Arc::clone(cluster), version) {
            Ok(object) => {
                let object = Arc::new(object);
                let has_expressions = object.has_expressions();
                let content = GoodContent {
                    name: self.name,
                    text: if has_expressions {
                        StoredText::Plain(text)
                    } else {
                        StoredText::Packed(packed)
                    },
                    digest: self.digest,
                    labels,
                    object: (!has_expressions).then(|| Arc::clone(&object)),
                };
                Ok(Good {
                    content: Arc::new(content),
                    object,
                })
            }
            Err(faults) => Err(RefusedObject {
                text: Some(text),
                faults,
            }),
        }
    }
}

// === impl StoredText ===

impl StoredText {
    /// The very text that was stored.
    pub(super) fn get(&self) -> Cow<'_, str> {
        match self {
            Self::Plain(text) => Cow::Borrowed(text),
            Self::Packed(packed) => Cow::Owned(packed.unpack().root().to_json().to_string()),
        }
    }
}

// === impl Noted ===

impl Noted {
    pub(super) const NOTHING: Self = Self {
        uid: String::new(),
        generation: 0,
        condition: None,
    };

    fn of(value: &Value) -> Self {
        let metadata = value.get("metadata");
        let uid = metadata.and_then(|metadata| metadata.get("uid")?.as_str());
        let generation = metadata.and_then(|metadata| metadata.get("generation")?.as_i64());
        Self {
            uid: uid.unwrap_or_default().to_owned(),
            generation: generation.unwrap_or_default(),
            condition: NotedCondition::of(value),
        }
    }

    /// Whether both are of one object that nobody has written in between, but for its status.
    pub(super) fn is_as_written(&self, other: &Self) -> bool {
        self.uid == other.uid && self.generation == other.generation
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_text_is_given_as_it_was() {
        let limit = WatchedKind::of_object("example.com/v1", "Limit");
        let text = concat!(
            r#"{"apiVersion":"example.com/v1","kind":"Limit","list":[null,true,{"a":{}},[]],"#,
            r#""metadata":{"name":"b"},"numbers":[0,-1,18446744073709551615,0.1,-0.0,1e+300],"#,
            r#""texts":["","name","\"\\\n\u0001","é 漢"]}"#
        );
        let received = ReceivedObject::new(&limit, "example.com/v1", Name::default(), text);
        let stored = received.text.clone().unwrap();
        let good = received.read(&"east".into(), Version::NEWEST).unwrap();
        assert!(matches!(good.content.text, StoredText::Packed(_)));
        assert_eq!(good.content.text.get(), &*stored);
    }
}
