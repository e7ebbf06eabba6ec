//! A watched object, decoded and validated, without metadata that does not affect decisions.

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

/// The maximum number of faults of an object that are kept, and of bytes of each.
const MAX_FAULTS: usize = 20;
const MAX_FAULT_BYTES: usize = 1 << 10;

/// The maximum number of bytes of a `uid`, which normally has 36.
const MAX_UID_BYTES: usize = 128;

/// The maximum number of values of an object as received, as a multiple of the maximum that applies
/// after fields that do not affect decisions are removed.
const MAX_RECEIVED_FACTOR: usize = 4;

/// An object as received, without the fields that do not affect decisions.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedObject {
    pub(crate) name: Name,
    /// As JSON, or why it cannot be read.
    text: Result<Box<str>, String>,
    /// A digest of the content.
    pub(crate) digest: [u8; 32],
    /// Only kept for Portcullis' own kinds and watched webhook configurations.
    pub(crate) server_metadata: ServerMetadata,
    /// The number of bytes of memory that its content takes.
    pub(crate) bytes: usize,
}

/// Metadata that the API server maintains.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ServerMetadata {
    pub(crate) uid: String,
    pub(crate) generation: i64,
    /// The condition in its status.
    pub(crate) condition: Option<NotedCondition>,
    /// Since when a webhook configuration has its content, if this is known.
    pub(crate) since: Option<Time>,
}

/// The content of a valid object.
#[derive(Debug)]
pub(crate) struct ReadContent {
    pub(crate) name: Name,
    /// The text for the cache file.
    pub(crate) text: StoredText,
    pub(crate) digest: [u8; 32],
    /// Only kept if the object must be selected by its labels.
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) object: Arc<ValidatedObject>,
}

/// The text of an object as JSON, packed if there may be very many objects of the kind.
#[derive(Debug, Clone)]
pub(crate) enum StoredText {
    Plain(Box<str>),
    Packed(PackedDocument),
}

/// An object with faults.
#[derive(Debug)]
pub(crate) struct FaultyObject {
    /// As JSON; `None` if it is not JSON.
    pub(crate) text: Option<Box<str>>,
    pub(crate) faults: Faults,
    /// The memory that its content takes, if it is kept.
    pub(crate) content: Option<ContentCharge>,
}

// === impl ReceivedObject ===

impl ReceivedObject {
    /// Reads the object `text`, of this name, kind and version. The items of lists lack the kind
    /// and version.
    ///
    /// # Errors
    ///
    /// The object is too large. It has not been decoded.
    pub(crate) fn new(
        kind: &WatchedKind,
        api_version: &str,
        name: Name,
        text: &[u8],
    ) -> Result<Self, LeftOutReason> {
        if kind.purpose == WatchPurpose::Definition {
            let reduced = std::str::from_utf8(text).map_err(|error| error.to_string());
            let reduced = reduced.and_then(definition::reduced);
            return Ok(Self::of_text(name, reduced.map(|value| value.to_string())));
        }
        // Checked before the object is decoded.
        kind.check_values(count_values(text), MAX_RECEIVED_FACTOR)?;
        let written = std::str::from_utf8(text).map_err(|error| error.to_string());
        let stripped = written.and_then(|text| {
            let stripped = without_irrelevant_fields(kind, api_version, text);
            Ok((stripped.map_err(|error| error.to_string())?, text))
        });
        let (stripped, written) = match stripped {
            Ok(stripped) => stripped,
            Err(message) => return Ok(Self::of_text(name, Err(message))),
        };
        let (bytes, values) = (stripped.len(), count_values(stripped.as_bytes()));
        kind.check_bytes(bytes)?;
        kind.check_values(values, 1)?;
        // The text is normalised, so that equal objects have equal texts.
        let read: Result<Value, _> = serde_json::from_str(&stripped);
        let text = read
            .map(|value| value.to_string())
            .map_err(|error| error.to_string());
        let noted = match kind.purpose {
            WatchPurpose::Registration => ServerMetadata::of_registration(written),
            _ if kind.is_own() => ServerMetadata::of(written),
            _ => ServerMetadata::default(),
        };
        Ok(Self {
            server_metadata: noted,
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
            server_metadata: ServerMetadata::default(),
            bytes: said.len(),
            text,
        }
    }

    /// The requester of an AccessRequest.
    pub(crate) fn requester(&self, kind: &WatchedKind) -> Option<String> {
        if kind.purpose != WatchPurpose::AccessRequest {
            return None;
        }
        let object: Value = serde_json::from_str(self.text.as_ref().ok()?).ok()?;
        object
            .pointer("/spec/requester/username")?
            .as_str()
            .map(str::to_owned)
    }

    /// The definition, if this is a CustomResourceDefinition.
    pub(crate) fn definition(&self) -> Option<CustomDefinition> {
        CustomDefinition::examined(&serde_json::from_str(self.text.as_ref().ok()?).ok()?)
    }

    /// The object `text`, as it was saved.
    pub(crate) fn stored(name: Name, digest: [u8; 32], text: &str) -> Self {
        Self {
            name,
            text: Ok(text.into()),
            digest,
            server_metadata: ServerMetadata::default(),
            bytes: text.len(),
        }
    }

    /// Decodes and validates the object. Blocks while its expressions are compiled.
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
    /// The same text that was stored.
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

    /// The metadata of an object as received.
    fn of(text: &str) -> Self {
        let written: WrittenObject = serde_json::from_str(text).unwrap_or_default();
        Self {
            uid: cut(written.metadata.uid, MAX_UID_BYTES),
            generation: written.metadata.generation,
            condition: written.status.and_then(NotedCondition::of),
            since: None,
        }
    }

    /// The metadata of a webhook configuration. Its content has existed since the last time in
    /// `managedFields` or, if it was never changed, since its creation; otherwise it is unknown
    /// since when.
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

    /// Whether both belong to the same object, and only its status was written in between.
    pub(crate) fn is_same_version(&self, other: &Self) -> bool {
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

/// An entry of `managedFields`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct WrittenFieldsEntry {
    time: Option<String>,
}

/// Treats a status of another form as absent.
fn as_far_as_valid<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<WrittenStatus>, D::Error> {
    let text: &RawValue = Deserialize::deserialize(deserializer)?;
    Ok(serde_json::from_str(text.get()).ok())
}

/// The fields of an object, as they are written.
type Members = BTreeMap<String, Box<RawValue>>;

/// The object `text` of this kind and version, without fields that do not affect decisions but
/// would make an unchanged object look changed, such as the type checking of expressions in a
/// status. Fields that expressions can read are kept.
fn without_irrelevant_fields(
    kind: &WatchedKind,
    api_version: &str,
    text: &str,
) -> serde_json::Result<String> {
    let is_looked_at = kind.purpose == WatchPurpose::Parameter || kind.kind == "Namespace";
    let is_access_request = kind.purpose == WatchPurpose::AccessRequest;
    let mut object: Members = serde_json::from_str(text)?;
    object.insert("apiVersion".to_owned(), to_raw_value(api_version)?);
    object.insert("kind".to_owned(), to_raw_value(&kind.kind)?);
    let noted: &[&str] = match (is_looked_at, is_access_request) {
        (true, _) => &["managedFields"],
        // Its creation and status determine whether it grants.
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

/// Changes the fields of the object in the field `name`, if there is one.
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

/// The name of the object `value`; empty if it has none.
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
