//! One watched object, decoded and validated, without metadata that has no effect on
//! decisions.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use openssl::sha::sha256;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::condition::{NotedCondition, WrittenStatus};
use super::definition::{self, CustomDefinition};
use super::kind::{Name, WatchPurpose, WatchedKind};
use super::memory::ContentCharge;
use super::weight::{LeftOutReason, content_bytes, count_values};
use portcullis_cel::Version;
use portcullis_policy::document::{Document, Node, PackedDocument};
use portcullis_policy::field::{Fault, FaultKind, Faults, Place};
use portcullis_policy::manifest::ValidatedObject;
use portcullis_policy::model::{Time, cut};

/// How many faults of one object are kept, and the most bytes of each.
const MAX_FAULTS: usize = 20;
const MAX_FAULT_BYTES: usize = 1 << 10;

/// The most bytes that are kept of a `uid`, which has 36.
const MAX_UID_BYTES: usize = 128;

/// How many times as many values an object may have as it is written: those are taken away that
/// decide nothing.
const WRITTEN: usize = 4;

/// An object as received, without what decides nothing.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedObject {
    pub(crate) name: Name,
    /// As JSON, or why there is none.
    text: Result<Box<str>, String>,
    /// Names the content.
    pub(crate) digest: [u8; 32],
    /// Of Portcullis' own kinds and of registrations only.
    pub(crate) noted: ServerMetadata,
    /// How many bytes of memory its content takes.
    pub(crate) bytes: usize,
}

/// What an API server notes of an object besides what it says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ServerMetadata {
    pub(crate) uid: String,
    pub(crate) generation: i64,
    /// The condition that its status has.
    pub(crate) condition: Option<NotedCondition>,
    /// Of a registration, since when it says what it says, where that is known.
    pub(crate) since: Option<Time>,
}

/// What an object without fault says.
#[derive(Debug)]
pub(crate) struct ReadContent {
    pub(crate) name: Name,
    /// For the file in which the set is saved.
    pub(crate) text: StoredText,
    pub(crate) digest: [u8; 32],
    /// Only of what must be selected by them.
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) object: Arc<ValidatedObject>,
}

/// The text of an object as JSON, in little memory where there may be very many of its kind.
#[derive(Debug, Clone)]
pub(crate) enum StoredText {
    Plain(Box<str>),
    Packed(PackedDocument),
}

/// An object with faults.
#[derive(Debug)]
pub(crate) struct FaultyObject {
    /// As JSON; `None` where it is none.
    pub(crate) text: Option<Box<str>>,
    pub(crate) faults: Faults,
    /// What its content takes, where it is held.
    pub(crate) content: Option<ContentCharge>,
}

// === impl ReceivedObject ===

impl ReceivedObject {
    /// The object `text`, of this name, kind and version. Lists leave the latter
    /// two out of their items.
    ///
    /// # Errors
    ///
    /// It is larger than it may be. Nothing was made of it.
    pub(crate) fn new(
        kind: &WatchedKind,
        api_version: &str,
        name: Name,
        text: &[u8],
    ) -> Result<Self, LeftOutReason> {
        if kind.role == WatchPurpose::Definition {
            let reduced = std::str::from_utf8(text).map_err(|error| error.to_string());
            let reduced = reduced.and_then(definition::reduced);
            return Ok(Self::of_text(name, reduced.map(|value| value.to_string())));
        }
        // Before anything is made of it.
        kind.check_values(count_values(text), WRITTEN)?;
        let written = std::str::from_utf8(text).map_err(|error| error.to_string());
        let stripped = written.and_then(|text| {
            let stripped = stripped(kind, api_version, text);
            Ok((stripped.map_err(|error| error.to_string())?, text))
        });
        let (stripped, written) = match stripped {
            Ok(stripped) => stripped,
            Err(message) => return Ok(Self::of_text(name, Err(message))),
        };
        let (bytes, values) = (stripped.len(), count_values(stripped.as_bytes()));
        kind.check_bytes(bytes)?;
        kind.check_values(values, 1)?;
        // As it would be written again, so that equal objects have equal texts.
        let read: Result<Value, _> = serde_json::from_str(&stripped);
        let text = read
            .map(|value| value.to_string())
            .map_err(|error| error.to_string());
        let noted = match kind.role {
            WatchPurpose::Registration => ServerMetadata::of_registration(written),
            _ if kind.is_own() => ServerMetadata::of(written),
            _ => ServerMetadata::default(),
        };
        Ok(Self {
            noted,
            bytes: content_bytes(kind, bytes, values),
            ..Self::of_text(name, text)
        })
    }

    fn of_text(name: Name, text: Result<String, String>) -> Self {
        let text = text.map(String::into_boxed_str);
        let (Ok(said) | Err(said)) = text.as_ref().map(|text| &**text).map_err(String::as_str);
        Self {
            name,
            digest: sha256(said.as_bytes()),
            noted: ServerMetadata::default(),
            bytes: said.len(),
            text,
        }
    }

    /// Who asks, of an AccessRequest.
    pub(crate) fn requester(&self, kind: &WatchedKind) -> Option<String> {
        if kind.role != WatchPurpose::AccessRequest {
            return None;
        }
        let object: Value = serde_json::from_str(self.text.as_ref().ok()?).ok()?;
        object
            .pointer("/spec/requester/username")?
            .as_str()
            .map(str::to_owned)
    }

    /// The definition that it is, if it is one.
    pub(crate) fn definition(&self) -> Option<CustomDefinition> {
        CustomDefinition::examined(&serde_json::from_str(self.text.as_ref().ok()?).ok()?)
    }

    /// The object `text`, as it was stored.
    pub(crate) fn stored(name: Name, digest: [u8; 32], text: &str) -> Self {
        Self {
            name,
            text: Ok(text.into()),
            digest,
            noted: ServerMetadata::default(),
            bytes: text.len(),
        }
    }

    /// Reads and checks it. Blocks for as long as its expressions take to compile.
    ///
    /// # Errors
    ///
    /// The faults of the object.
    pub(crate) fn read(self, cluster: &Arc<str>, version: Version) -> Result<ReadContent, FaultyObject> {
        let source: Arc<str> = format!("cluster {cluster}").into();
        let value = |text: &str| serde_json::from_str::<Value>(text).map_err(|error| error.to_string());
        let read = self.text.and_then(|text| Ok((value(&text)?, text)));
        let (value, text) = read.map_err(|message| FaultyObject {
            text: None,
            faults: unreadable(&source, &self.name, message),
            content: None,
        })?;
        let labels = labels_of(&value);
        let document = Document::new(Some(source), Node::from_json(value));
        let packed = PackedDocument::new(&document).of_no_file();
        match ValidatedObject::read(document, Arc::clone(cluster), version) {
            Ok(object) => Ok(ReadContent {
                name: self.name,
                text: if object.has_expressions() {
                    StoredText::Plain(text)
                } else {
                    StoredText::Packed(packed)
                },
                digest: self.digest,
                labels,
                object: Arc::new(object),
            }),
            Err(faults) => Err(FaultyObject {
                text: Some(text),
                faults: faults.bounded(MAX_FAULTS, MAX_FAULT_BYTES),
                content: None,
            }),
        }
    }
}

// === impl StoredText ===

impl StoredText {
    /// The very text that was stored.
    pub(crate) fn get(&self) -> Cow<'_, str> {
        match self {
            Self::Plain(text) => Cow::Borrowed(text),
            Self::Packed(packed) => Cow::Owned(packed.unpack().root().to_json().to_string()),
        }
    }
}

// === impl ServerMetadata ===

impl ServerMetadata {
    pub(crate) const NOTHING: Self = Self {
        uid: String::new(),
        generation: 0,
        condition: None,
        since: None,
    };

    /// Of an object as it was received.
    fn of(text: &str) -> Self {
        let written: WrittenObject = serde_json::from_str(text).unwrap_or_default();
        Self {
            uid: cut(written.metadata.uid, MAX_UID_BYTES),
            generation: written.metadata.generation,
            condition: written.status.and_then(NotedCondition::of),
            since: None,
        }
    }

    /// Of a webhook configuration. Who may be shown an object before it was as it is now is not known: its
    /// fields are as old as the last write of one of them, or as it is where it was never changed.
    fn of_registration(text: &str) -> Self {
        let metadata = serde_json::from_str::<WrittenObject>(text)
            .unwrap_or_default()
            .metadata;
        let time = |text: Option<String>| Time::parse(&text?);
        let created = time(metadata.creation_timestamp);
        let writes = metadata
            .managed_fields
            .into_iter()
            .filter_map(|entry| time(entry.time));
        let written = writes.max().or(created.filter(|_| metadata.generation <= 1));
        Self {
            uid: cut(metadata.uid, MAX_UID_BYTES),
            since: created
                .zip(written)
                .map(|(created, written)| created.max(written)),
            ..Self::NOTHING
        }
    }

    /// Whether both are of one object that nobody has written in between, but for its status.
    pub(crate) fn is_as_written(&self, other: &Self) -> bool {
        self.uid == other.uid && self.generation == other.generation
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WrittenObject {
    metadata: WrittenMetadata,
    #[serde(deserialize_with = "as_far_as_valid")]
    status: Option<WrittenStatus>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WrittenMetadata {
    uid: String,
    generation: i64,
    #[serde(rename = "creationTimestamp")]
    creation_timestamp: Option<String>,
    #[serde(rename = "managedFields")]
    managed_fields: Vec<WrittenFieldsEntry>,
}

/// One of `managedFields`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct WrittenFieldsEntry {
    time: Option<String>,
}

/// A status of another form is none.
fn as_far_as_valid<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<WrittenStatus>, D::Error> {
    let text: &RawValue = Deserialize::deserialize(deserializer)?;
    Ok(serde_json::from_str(text.get()).ok())
}

/// The members of an object, as they are written.
type Members = BTreeMap<String, Box<RawValue>>;

/// The object `text` of this kind and version without what decides nothing, and would make a
/// change of an object that is as it was: a type check of expressions that the API server notes,
/// say. What expressions can look at stays.
fn stripped(kind: &WatchedKind, api_version: &str, text: &str) -> serde_json::Result<String> {
    let is_looked_at = kind.role == WatchPurpose::Parameter || kind.kind == "Namespace";
    let is_access_request = kind.role == WatchPurpose::AccessRequest;
    let mut object: Members = serde_json::from_str(text)?;
    object.insert("apiVersion".to_owned(), to_raw_value(api_version)?);
    object.insert("kind".to_owned(), to_raw_value(&kind.kind)?);
    let noted: &[&str] = match (is_looked_at, is_access_request) {
        (true, _) => &["managedFields"],
        // It grants from its creation on, as its status says.
        (false, true) => &["managedFields", "resourceVersion", "generation", "uid"],
        (false, false) => &[
            "managedFields",
            "resourceVersion",
            "generation",
            "uid",
            "creationTimestamp",
        ],
    };
    change(&mut object, "metadata", |metadata| {
        metadata.retain(|name, _| !noted.contains(&name.as_str()));
        if !is_looked_at {
            change(metadata, "annotations", |annotations| {
                annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
            });
        }
    });
    if is_access_request {
        change(&mut object, "status", |status| {
            status.remove("conditions");
        });
    } else if !is_looked_at {
        object.remove("status");
    }
    serde_json::to_string(&object)
}

/// Changes the members of a member, if it has any.
fn change(members: &mut Members, name: &str, change: impl FnOnce(&mut Members)) {
    let inner = members
        .get(name)
        .and_then(|text| serde_json::from_str(text.get()).ok());
    let changed = inner.and_then(|mut inner| {
        change(&mut inner);
        to_raw_value(&inner).ok()
    });
    if let Some(changed) = changed {
        members.insert(name.to_owned(), changed);
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

/// The name of the object `value`, if it has one.
pub(crate) fn name_of(value: &Value) -> Name {
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
        let received = ReceivedObject::new(&limit, "example.com/v1", Name::default(), text.as_bytes());
        let received = received.unwrap();
        let stored = received.text.clone().unwrap();
        let read = received.read(&"east".into(), Version::NEWEST).unwrap();
        assert!(matches!(read.text, StoredText::Packed(_)));
        assert_eq!(read.text.get(), &*stored);
    }
}
