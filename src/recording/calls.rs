//! Calls of webhooks behind the gateway, as they are recorded.

use super::digest::{ObjectState, object_state};
use super::redaction::{Redaction, TooManyPlaces, redacted_patch};
use portcullis_cel::json::ObjectWriter;
use portcullis_policy::engine::admission::webhook::{Call, CallFailure, WebhookAnswer, WebhookReply};
use portcullis_policy::engine::admission::{GroupVersionKind, GroupVersionResource};

/// What a call takes beside its texts.
const OVERHEAD: usize = 512;

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
        OVERHEAD + reply
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
