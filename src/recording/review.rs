//! A review to record, with the calls to webhooks made for it. Each call is recorded with the
//! object that it was about, because a webhook's answer applies to that object only.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use openssl::sha::Sha256;

use super::redaction::{Redaction, TooManyPlaces, redacted_patch};
use crate::config::{Endpoint, hexadecimal};
use portcullis_cel::json::ObjectWriter;
use portcullis_policy::admission::webhook::{Call, CallFailure, WebhookCallResult, WebhookReply};
use portcullis_policy::admission::{GroupVersionKind, GroupVersionResource};
use portcullis_policy::api::OwnedAdmissionReview;
use portcullis_policy::authorization::authorizer::NamedOpinion;
use portcullis_policy::model::{Cause, Decision};

/// The memory of a review in addition to its strings.
const REVIEW_OVERHEAD_BYTES: usize = 1024;

/// A review with its caller and its decision.
#[derive(Debug)]
pub struct RecordedReview {
    /// The time for which it was decided.
    pub time: SystemTime,
    /// The endpoint of the request.
    pub endpoint: Endpoint,
    /// The only policy or webhook configuration to evaluate, from the path of the request.
    pub name: Option<String>,
    /// The cluster of the caller.
    pub cluster: String,
    /// The caller's name.
    pub caller: String,
    /// The revision of the snapshot that decided it.
    pub revision: Arc<str>,
    /// The decision.
    pub decision: RecordedDecision,
    /// The opinions of other authorizers, in the order of the calls.
    pub opinions: Vec<NamedOpinion>,
    /// The calls to webhooks behind the gateway, in their order.
    pub calls: Vec<RecordedCall>,
    /// The body of the request.
    pub body: RecordedBody,
}

/// The decision about a review.
#[derive(Debug)]
pub struct RecordedDecision {
    /// The decision itself.
    pub decision: Decision,
    /// The reason of the reply.
    pub reason: String,
    /// The object that decided.
    pub cause: Option<Cause<'static>>,
    /// The evaluation error; empty if there is none.
    pub error: String,
    /// The JSON Patch of the reply; empty if there is none.
    pub patch: String,
}

/// The body of a request.
#[derive(Debug)]
pub enum RecordedBody {
    /// A SubjectAccessReview.
    Access(Box<[u8]>),
    /// An AdmissionReview, which is decoded.
    Admission(Arc<OwnedAdmissionReview>),
}

// === impl RecordedReview ===

impl RecordedReview {
    /// The bytes of memory that it holds.
    pub(crate) fn bytes(&self) -> usize {
        let body = match &self.body {
            RecordedBody::Access(body) => body.len(),
            RecordedBody::Admission(review) => review.memory(),
        };
        let opinions = self.opinions.iter().map(|named| named.opinion.reason.len());
        let calls = self.calls.iter().map(RecordedCall::bytes);
        REVIEW_OVERHEAD_BYTES
            + body
            + self.decision.reason.len()
            + self.decision.patch.len()
            + opinions.sum::<usize>()
            + calls.sum::<usize>()
    }
}

/// The object of a call, compared with that of the review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectState {
    /// The object that was received.
    Received,
    /// An object that was changed before the call, with its digest.
    Changed(String),
    /// An object that was changed before the call, in a review of which something is redacted. Its
    /// digest is not recorded, because removed values could be guessed from it.
    Redacted,
}

/// The object that `call` is about.
#[must_use]
pub fn object_state(call: &Call) -> ObjectState {
    match &call.object {
        None => ObjectState::Received,
        Some(object) => {
            let mut digest = Sha256::new();
            // The digest of the object in one line, as it is recorded.
            for part in object.text().trim().split_inclusive(['\n', '\r']) {
                match part.strip_suffix(['\n', '\r']) {
                    None => digest.update(part.as_bytes()),
                    Some(line) => {
                        digest.update(line.as_bytes());
                        digest.update(b" ");
                    }
                }
            }
            let digest = digest.finish();
            ObjectState::Changed(hexadecimal(&digest))
        }
    }
}

// === impl ObjectState ===

impl ObjectState {
    /// The same state, without digest if the review `is_redacted`.
    #[must_use]
    pub fn within(self, is_redacted: bool) -> Self {
        match self {
            Self::Changed(_) if is_redacted => Self::Redacted,
            state => state,
        }
    }

    /// Parses the output of [`Display`](fmt::Display).
    pub(crate) fn parse(text: &str) -> Self {
        match text {
            "received" => Self::Received,
            "redacted" => Self::Redacted,
            digest => Self::Changed(digest.to_owned()),
        }
    }
}

impl fmt::Display for ObjectState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Received => "received",
            Self::Changed(digest) => digest,
            Self::Redacted => "redacted",
        })
    }
}

/// The memory of a call in addition to its strings.
const CALL_OVERHEAD_BYTES: usize = 512;

/// A call to a webhook, and its answer.
#[derive(Debug, Clone)]
pub struct RecordedCall {
    /// The call, without its object.
    call: Call,
    object: ObjectState,
    answer: WebhookCallResult,
    is_shadow: bool,
}

// === impl RecordedCall ===

impl RecordedCall {
    /// A call with its `answer`, which had no effect if it `is_shadow`. Of the object only a digest
    /// is kept, because it may be large and different for each webhook.
    #[must_use]
    pub fn new(call: Call, answer: WebhookCallResult, is_shadow: bool) -> Self {
        Self {
            object: object_state(&call),
            call: Call { object: None, ..call },
            answer,
            is_shadow,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        let reply = match &self.answer.result {
            Ok(reply) => reply.bytes(),
            Err(_) => 0,
        };
        CALL_OVERHEAD_BYTES + reply
    }

    /// Writes the call; `at` is the pointer to it in the line.
    ///
    /// # Errors
    ///
    /// [`TooManyPlaces`].
    pub(crate) fn write(
        &self,
        fields: &mut ObjectWriter<'_>,
        redaction: &mut Redaction,
        at: &str,
    ) -> Result<(), TooManyPlaces> {
        fields.text("webhook", &self.call.webhook.id());
        if self.is_shadow {
            fields.flag("shadow", true);
        }
        write_kind(fields, &self.call.kind);
        write_resource(fields, &self.call.resource);
        let object = self.object.clone().within(redaction.is_any());
        fields.text("object", &object.to_string());
        match &self.answer.result {
            Ok(reply) => write_reply(fields, reply, redaction, at),
            Err(failure) => {
                fields.text("failure", failure_name(failure));
                fields.text("message", redaction.scrubbed(&failure.to_string()));
                Ok(())
            }
        }
    }
}

const fn failure_name(failure: &CallFailure) -> &'static str {
    match failure {
        CallFailure::Failed(_) => "failed",
        CallFailure::RequestExpired => "requestExpired",
        CallFailure::NotMade(_) => "notMade",
    }
}

fn write_kind(fields: &mut ObjectWriter<'_>, kind: &GroupVersionKind<'_>) {
    fields.object("kind", |fields| {
        fields.text("group", &kind.group);
        fields.text("version", &kind.version);
        fields.text("kind", &kind.kind);
    });
}

fn write_resource(fields: &mut ObjectWriter<'_>, resource: &GroupVersionResource<'_>) {
    fields.object("resource", |fields| {
        fields.text("group", &resource.group);
        fields.text("version", &resource.version);
        fields.text("resource", &resource.resource);
    });
}

fn write_reply(
    fields: &mut ObjectWriter<'_>,
    reply: &WebhookReply,
    redaction: &mut Redaction,
    at: &str,
) -> Result<(), TooManyPlaces> {
    fields.flag("allowed", reply.denial.is_none());
    if let Some(denial) = &reply.denial {
        fields.object("status", |status| {
            status.text("reason", redaction.scrubbed(&denial.reason));
            status.json("code", &denial.code.to_string());
            status.text("message", redaction.scrubbed(&denial.message));
        });
    }
    if let Some(patch) = &reply.patch {
        let patch = redacted_patch(patch, redaction, &format!("{at}/patch"))?;
        fields.json("patch", &patch);
        fields.text_if_any("patchType", &reply.patch_type);
    }
    let warnings = reply.warnings.iter().map(|text| redaction.scrubbed(text));
    let warnings: Vec<&str> = warnings.collect();
    fields.texts_if_any("warnings", &warnings);
    if !reply.audit_annotations.is_empty() {
        fields.object("auditAnnotations", |annotations| {
            for (key, value) in &reply.audit_annotations {
                annotations.text(key, redaction.scrubbed(value));
            }
        });
    }
    Ok(())
}
