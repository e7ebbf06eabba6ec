//! Reads recordings, line by line.

use std::collections::BTreeMap;
use std::hash::{Hash as _, Hasher};

use super::FORMAT_VERSION;
use super::review::ObjectState;
use crate::config::Endpoint;
use portcullis_cel::json::{self, Document, Kind, Node};
use portcullis_policy::admission::webhook::{Call, CallFailure, WebhookReply};
use portcullis_policy::admission::{Denial, StatusDetails};
use portcullis_policy::authorization::authorizer::{NamedOpinion, Opinion};
use portcullis_policy::model::{Decision, Time};

/// The first line of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordingHeader {
    /// The version of the format.
    pub version: u64,
}

/// Why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// A line is not JSON.
    #[error("{0}")]
    Malformed(#[from] json::JsonError),
    /// A line is longer than any line of a recording.
    #[error("the line is longer than {max_bytes} bytes, which no recording has")]
    TooLong {
        /// The maximum length of a line in bytes.
        max_bytes: u64,
    },
    /// The file does not begin like a recording.
    #[error("this is not a recording: the first line does not contain `portcullisRecording`")]
    NoRecording,
    /// A later version of the program wrote the file.
    #[error(
        "format {found} of recordings is newer than this program, which reads up to {FORMAT_VERSION}: use the version of portcullis that wrote it, or a later one"
    )]
    Newer {
        /// The version of the format.
        found: u64,
    },
    /// A field is missing, or has an invalid value.
    #[error("`{0}` is missing or has a value that it cannot have")]
    Field(&'static str),
}

/// One recorded review.
#[derive(Debug, Clone, Copy)]
pub struct RecordLine<'d> {
    root: Node<'d>,
    /// The time as of which it was decided.
    pub time: Time,
    /// The endpoint that received the review.
    pub endpoint: Endpoint,
    /// The decision in the reply.
    pub decision: Decision,
    /// The review.
    pub review: Node<'d>,
}

// === impl RecordingHeader ===

impl RecordingHeader {
    /// Reads the first line of a file.
    ///
    /// # Errors
    ///
    /// The file is not a recording, or one of a later version.
    pub fn read(line: &[u8]) -> Result<Self, RecordingError> {
        let document = Document::parse_bytes(line).map_err(|_| RecordingError::NoRecording)?;
        let version = document.root().get("portcullisRecording").and_then(Node::as_u64);
        match version {
            None | Some(0) => Err(RecordingError::NoRecording),
            Some(found) if found > FORMAT_VERSION => Err(RecordingError::Newer { found }),
            Some(version) => Ok(Self { version }),
        }
    }
}

// === impl RecordLine ===

impl<'d> RecordLine<'d> {
    /// Reads a line.
    ///
    /// # Errors
    ///
    /// A required field is missing or invalid.
    pub fn read(line: &'d Document<'d>) -> Result<Self, RecordingError> {
        let root = line.root();
        let text = |name: &'static str| {
            let text = root.get(name).and_then(Node::as_str);
            text.ok_or(RecordingError::Field(name))
        };
        let (endpoint, decision) = (text("endpoint")?, text("decision")?);
        Ok(Self {
            root,
            time: Time::parse(&text("time")?).ok_or(RecordingError::Field("time"))?,
            endpoint: Endpoint::ALL
                .into_iter()
                .find(|known| known.as_str() == endpoint)
                .ok_or(RecordingError::Field("endpoint"))?,
            decision: decision_of(&decision).ok_or(RecordingError::Field("decision"))?,
            review: root
                .get("review")
                .filter(|review| review.kind() == Kind::Object)
                .ok_or(RecordingError::Field("review"))?,
        })
    }

    /// The string in the field `name` of the line; empty if there is none.
    #[must_use]
    pub fn text(&self, name: &str) -> String {
        let text = self.root.get(name).and_then(Node::as_str);
        text.unwrap_or_default().into_owned()
    }

    /// Hashes everything that a decision may depend on except the time, and the recorded reply.
    pub(crate) fn hash_question(&self, hasher: &mut impl Hasher) {
        for (name, value) in self.root.entries() {
            if !matches!(&*name, "time" | "revision") {
                name.hash(hasher);
                value.raw().hash(hasher);
            }
        }
    }

    /// The object that decided, as `KIND/NAMESPACE/NAME`, without parts that it does not have;
    /// empty if no object decided.
    #[must_use]
    pub fn cause(&self) -> String {
        let Some(cause) = self.root.get("cause") else {
            return String::new();
        };
        let parts = ["kind", "namespace", "name"].map(|name| {
            let text = cause.get(name).and_then(Node::as_str);
            text.unwrap_or_default().into_owned()
        });
        let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        parts.join("/")
    }

    /// The JSON Patch of the reply.
    #[must_use]
    pub fn patch(&self) -> Option<Node<'d>> {
        self.root.get("patch")
    }

    /// The places in the review from which values were removed, as JSON Pointers.
    #[must_use]
    pub fn redacted(&self) -> Vec<String> {
        self.removed("/review")
    }

    /// Whether values were removed from the patch of the reply.
    #[must_use]
    pub fn is_patch_redacted(&self) -> bool {
        !self.removed("/patch").is_empty()
    }

    /// The places at or below `base` from which values were removed, relative to `base`.
    fn removed(&self, base: &str) -> Vec<String> {
        let Some(places) = self.root.get("redacted") else {
            return Vec::new();
        };
        let below = |place: Node<'_>| {
            let place = place.as_str()?;
            let rest = place.strip_prefix(base)?;
            (rest.is_empty() || rest.starts_with('/')).then(|| rest.to_owned())
        };
        places.items().filter_map(below).collect()
    }

    /// The opinions of other authorizers, in the order of the calls.
    ///
    /// # Errors
    ///
    /// An opinion has no name or no valid decision.
    pub fn opinions(&self) -> Result<Vec<NamedOpinion>, RecordingError> {
        let wrong = || RecordingError::Field("authorizers");
        let Some(list) = self.root.get("authorizers") else {
            return Ok(Vec::new());
        };
        let text = |node: Node<'_>, name: &str| {
            node.get(name)
                .and_then(Node::as_str)
                .map(|text| text.into_owned())
        };
        list.items()
            .map(|node| {
                let decision = text(node, "decision").as_deref().and_then(decision_of);
                Ok(NamedOpinion {
                    name: text(node, "name").ok_or_else(wrong)?,
                    opinion: Opinion {
                        decision: decision.ok_or_else(wrong)?,
                        reason: text(node, "reason").unwrap_or_default(),
                        error: text(node, "error"),
                    },
                })
            })
            .collect()
    }

    /// The recorded calls of webhooks.
    pub fn calls(&self) -> impl Iterator<Item = CallLine<'d>> + use<'d> {
        let redacted = self.removed("/webhooks");
        let calls = self.root.get("webhooks").into_iter().flat_map(Node::items);
        calls.enumerate().map(move |(index, node)| {
            let at = format!("/{index}/");
            CallLine {
                node,
                is_redacted: redacted.iter().any(|place| place.starts_with(&at)),
            }
        })
    }
}

/// The decision with the name `text`.
pub(crate) fn decision_of(text: &str) -> Option<Decision> {
    [Decision::Allow, Decision::Deny, Decision::NoOpinion]
        .into_iter()
        .find(|decision| decision.as_str() == text)
}

/// A recorded call of a webhook, with its reply.
#[derive(Debug, Clone, Copy)]
pub struct CallLine<'d> {
    node: Node<'d>,
    /// Whether values were removed from the call.
    pub is_redacted: bool,
}

// === impl CallLine ===

impl CallLine<'_> {
    /// Whether this is a call of the same webhook, with the same kind and resource, as `call`.
    #[must_use]
    pub fn is_of(&self, call: &Call) -> bool {
        let is = |part: &str, field: &str, expected: &str| {
            let node = self.node.get(part).and_then(|part| part.get(field));
            node.is_some_and(|node| node.is_str(expected))
        };
        self.node
            .get("webhook")
            .is_some_and(|id| id.is_str(&call.webhook.id()))
            && is("kind", "group", &call.kind.group)
            && is("kind", "version", &call.kind.version)
            && is("kind", "kind", &call.kind.kind)
            && is("resource", "group", &call.resource.group)
            && is("resource", "version", &call.resource.version)
            && is("resource", "resource", &call.resource.resource)
    }

    /// The state of the object that was sent.
    #[must_use]
    pub fn object(&self) -> ObjectState {
        ObjectState::parse(&self.text("object"))
    }

    /// The patch in the reply.
    #[must_use]
    pub fn patch(&self) -> Option<Node<'_>> {
        self.node.get("patch")
    }

    /// The reply of the webhook.
    ///
    /// # Errors
    ///
    /// The call failed, or was not made.
    pub fn answer(&self) -> Result<WebhookReply, CallFailure> {
        match self.text("failure").as_str() {
            "" => {}
            "requestExpired" => return Err(CallFailure::RequestExpired),
            "notMade" => return Err(CallFailure::NotMade(self.text("message"))),
            _ => return Err(CallFailure::Failed(self.text("message"))),
        }
        let denied = self.node.get("allowed").and_then(Node::as_bool) == Some(false);
        let status = self.node.get("status");
        let of_status = |name: &str| status.and_then(|status| status.get(name));
        let text = |node: Option<Node<'_>>| node.and_then(Node::as_str).unwrap_or_default().into_owned();
        let code = of_status("code").and_then(Node::as_i64);
        Ok(WebhookReply {
            denial: denied.then(|| Denial {
                status: Denial::FAILURE.into(),
                reason: text(of_status("reason")).into(),
                code: code.and_then(|code| i32::try_from(code).ok()).unwrap_or(403),
                message: text(of_status("message")),
                details: StatusDetails::default(),
            }),
            patch: self.patch().map(|patch| match patch.as_str() {
                // A patch that was not JSON was recorded as a string.
                Some(text) => text.as_bytes().into(),
                None => patch.raw().as_bytes().into(),
            }),
            patch_type: self.text("patchType"),
            warnings: self.texts("warnings"),
            audit_annotations: self.annotations(),
        })
    }

    fn text(&self, name: &str) -> String {
        let text = self.node.get(name).and_then(Node::as_str);
        text.unwrap_or_default().into_owned()
    }

    fn texts(&self, name: &str) -> Vec<String> {
        let items = self.node.get(name).into_iter().flat_map(Node::items);
        items
            .filter_map(|item| Some(item.as_str()?.into_owned()))
            .collect()
    }

    fn annotations(&self) -> BTreeMap<String, String> {
        let entries = self
            .node
            .get("auditAnnotations")
            .into_iter()
            .flat_map(Node::entries);
        entries
            .filter_map(|(key, value)| Some((key.into_owned(), value.as_str()?.into_owned())))
            .collect()
    }
}

#[cfg(test)]
mod tests;
