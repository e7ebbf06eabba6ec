//! One line of a recording.

use super::digest::into_line;
use super::redaction::{Redaction, TooManyPlaces, redacted_patch};
use super::review::{RecordedBody, RecordedReview};
use crate::config::Redact;
use portcullis_cel::json::{self, Document, ObjectWriter, escape_bytes, write_list, write_string};
use portcullis_policy::engine::{Cause, Time};

/// Why a review is not recorded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LineError {
    /// It cannot be read, so that nothing can be removed from it.
    #[error(transparent)]
    Unreadable(#[from] json::Error),
    #[error(transparent)]
    TooManyPlaces(#[from] TooManyPlaces),
}

/// Appends the line of `review`, its line break included.
///
/// # Errors
///
/// What is appended then is no line.
pub(crate) fn write(out: &mut String, review: &RecordedReview, rules: &[Redact]) -> Result<(), LineError> {
    let (text, mut redaction) = match &review.body {
        RecordedBody::Access(body) => {
            let text = escape_bytes(body);
            // What is not one value would be more than one line, or none.
            Document::parse(text.as_ref())?;
            (into_line(text.into_owned()), Redaction::default())
        }
        RecordedBody::Admission(read) => Redaction::of_review(read.review(), rules)?,
    };
    let mut written = Ok(());
    ObjectWriter::write(out, |fields| {
        fields.text("time", &Time::from(review.time).to_string());
        fields.text("endpoint", review.endpoint.as_str());
        fields.text_if_any("name", review.name.as_deref().unwrap_or_default());
        fields.text("cluster", &review.cluster);
        fields.text("caller", &review.caller);
        fields.text("revision", &review.revision);
        written = write_decision(fields, review, &mut redaction);
        write_opinions(fields, review);
        if !review.calls.is_empty() {
            let out = fields.key("webhooks");
            write_list(out, review.calls.iter().enumerate(), |out, (index, call)| {
                let at = format!("/webhooks/{index}");
                ObjectWriter::write(out, |fields| {
                    written = written.and(call.write(fields, &mut redaction, &at));
                });
            });
        }
        fields.texts_if_any("redacted", redaction.places());
        fields.json("review", &text);
    });
    out.push('\n');
    Ok(written?)
}

fn write_decision(
    fields: &mut ObjectWriter<'_>,
    review: &RecordedReview,
    redaction: &mut Redaction,
) -> Result<(), TooManyPlaces> {
    let decided = &review.decision;
    fields.text("decision", decided.decision.as_str());
    fields.text_if_any("reason", redaction.scrubbed(&decided.reason));
    if let Some(cause) = &decided.cause {
        write_cause(fields, cause);
    }
    fields.text_if_any("evaluationError", redaction.scrubbed(&decided.error));
    if !decided.patch.is_empty() {
        let patch = redacted_patch(decided.patch.as_bytes(), redaction, "/patch")?;
        fields.json("patch", &patch);
    }
    Ok(())
}

fn write_cause(fields: &mut ObjectWriter<'_>, cause: &Cause<'_>) {
    fields.object("cause", |fields| {
        fields.text("kind", cause.kind.as_str());
        fields.text_if_any("namespace", &cause.namespace);
        fields.text_if_any("name", &cause.name);
        if let Some(rule) = cause.rule {
            fields.json("rule", &rule.to_string());
        }
    });
}

fn write_opinions(fields: &mut ObjectWriter<'_>, review: &RecordedReview) {
    if review.opinions.is_empty() {
        return;
    }
    fields.list("authorizers", &review.opinions, |out, named| {
        ObjectWriter::write(out, |fields| {
            fields.text("name", &named.name);
            fields.text("decision", named.opinion.decision.as_str());
            fields.text_if_any("reason", &named.opinion.reason);
            if let Some(error) = &named.opinion.error {
                fields.text("error", error);
            }
        });
    });
}

/// The first line of each file.
pub(crate) fn header() -> String {
    let mut out = format!("{{\"portcullisRecording\":{},\"program\":", super::FORMAT_VERSION);
    write_string(&mut out, concat!("portcullis ", env!("CARGO_PKG_VERSION")));
    out.push_str("}\n");
    out
}
