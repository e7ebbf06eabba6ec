//! One review to be recorded, with the calls of webhooks made for it and the object that each was asked
//! about: its answer counts for no other.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use openssl::sha::Sha256;

use super::redaction::{Redaction, TooManyPlaces, redacted_patch};
use crate::config::{Endpoint, hexadecimal};
use portcullis_cel::json::ObjectWriter;
use portcullis_policy::admission::webhook::{Call, CallFailure, WebhookAnswer, WebhookReply};
use portcullis_policy::admission::{GroupVersionKind, GroupVersionResource};
use portcullis_policy::api::OwnedAdmissionReview;
use portcullis_policy::authorization::authorizer::NamedOpinion;
use portcullis_policy::model::{Cause, Decision};

/// What a review takes besides its texts.
const REVIEW_OVERHEAD_BYTES: usize = 1024;

/// A review, who asked, and what was answered.
#[derive(Debug)]
pub struct RecordedReview {
    /// For when it was decided.
    pub time: SystemTime,
    /// What was asked.
    pub endpoint: Endpoint,
    /// The only policy or webhook configuration that was to be asked: the end of the path.
    pub name: Option<String>,
    /// The cluster the caller speaks for.
    pub cluster: String,
    /// The caller's name.
    pub caller: String,
    /// The revision of what it was decided by.
    pub revision: Arc<str>,
    /// The answer.
    pub decision: RecordedDecision,
    /// What other authorizers said, in the order asked.
    pub opinions: Vec<NamedOpinion>,
    /// What webhooks behind the gateway said, in the order asked.
    pub calls: Vec<RecordedCall>,
    /// The review.
    pub body: RecordedBody,
}

/// What was answered.
#[derive(Debug)]
pub struct RecordedDecision {
    /// Whether it may be.
    pub decision: Decision,
    /// Why.
    pub reason: String,
    /// The object that decided.
    pub cause: Option<Cause<'static>>,
    /// What went wrong on the way; empty if nothing did.
    pub error: String,
    /// The JSON Patch of the reply; empty if there is none.
    pub patch: String,
}

/// A review as it was received.
#[derive(Debug)]
pub enum RecordedBody {
    /// A SubjectAccessReview.
    Access(Box<[u8]>),
    /// An AdmissionReview, which was read already.
    Admission(Arc<OwnedAdmissionReview>),
}

// === impl RecordedReview ===

impl RecordedReview {
    /// How much memory it holds.
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

/// The object of a call, as compared with that of the review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectState {
    /// As received.
    Received,
    /// Changed on the way: a digest of what it had become.
    Changed(String),
    /// Changed on the way, and something of it is redacted. No digest is kept of it, from
    /// which what was removed could be guessed.
    Redacted,
}

/// About which object `call` asks.
#[must_use]
pub fn object_state(call: &Call) -> ObjectState {
    match &call.object {
        None => ObjectState::Received,
        Some(object) => {
            let mut digest = Sha256::new();
            // As of the object in one line.
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
    /// The same in a review of which something is redacted, or not.
    #[must_use]
    pub fn within(self, is_redacted: bool) -> Self {
        match self {
            Self::Changed(_) if is_redacted => Self::Redacted,
            state => state,
        }
    }

    /// What [`Display`](fmt::Display) writes, read again.
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

/// What a call takes besides its texts.
const CALL_OVERHEAD_BYTES: usize = 512;

/// One webhook that was asked, and its answer.
#[derive(Debug, Clone)]
pub struct RecordedCall {
    /// What was asked, without the object.
    call: Call,
    object: ObjectState,
    answer: WebhookAnswer,
    is_shadow: bool,
}

// === impl RecordedCall ===

impl RecordedCall {
    /// `answer` is what came back, and decided nothing if it `is_shadow`. Of the object that was
    /// asked about a digest is kept: it may be large, and each webhook may be asked about another.
    #[must_use]
    pub fn new(call: Call, answer: WebhookAnswer, is_shadow: bool) -> Self {
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

    /// Writes it; `at` is its place in the line.
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
