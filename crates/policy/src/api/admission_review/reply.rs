//! The answer to an AdmissionReview, as the API server's webhook client reads it
//! (`apiserver/pkg/admission/plugin/webhook/request/admissionreview.go`).

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::ReviewVersion;
use crate::engine::StatusReason;
use crate::engine::admission::{Denial, Outcome, Request, StatusDetails};
use portcullis_cel::json::{ObjectWriter, write_string};

/// The longest key of an audit annotation. The API server puts the webhook's
/// name and a slash before it, and drops what is then no qualified name.
const KEY_BYTES: usize = 63;

pub(crate) fn encode(version: ReviewVersion, request: &Request<'_>, outcome: &Outcome) -> Vec<u8> {
    let mut out = String::with_capacity(256 + outcome.patch.len() * 4 / 3);
    ObjectWriter::write(&mut out, |review| {
        review.text("kind", "AdmissionReview");
        review.text("apiVersion", version.api_version());
        match version {
            ReviewVersion::V1 | ReviewVersion::V1beta1 => review.object("response", |response| {
                response.text("uid", &request.uid);
                verdict(response, outcome.denial.as_ref());
                if outcome.denial.is_none() && !outcome.patch.is_empty() {
                    patch(response, request.restored(outcome.patch.clone()));
                }
                annotations(response, &outcome.audit_annotations);
                warnings(response, outcome);
            }),
            ReviewVersion::V1alpha1 => {
                review.object("status", |status| verdict(status, outcome.denial.as_ref()));
            }
        }
    });
    out.into_bytes()
}

/// The outcome, or a refusal where the version has no room for its patch.
pub(crate) fn within_version(version: ReviewVersion, mut outcome: Outcome) -> Outcome {
    let is_without_patch = version == ReviewVersion::V1alpha1 && !outcome.patch.is_empty();
    if is_without_patch && outcome.denial.is_none() {
        outcome.denial = Some(Denial {
            status: Denial::FAILURE.into(),
            reason: StatusReason::InternalError.as_str().into(),
            code: StatusReason::InternalError.code().into(),
            message: "the object would have to be changed, but an AdmissionReview of \
                      admission.k8s.io/v1alpha1 has no field for a patch"
                .to_owned(),
            details: StatusDetails::default(),
        });
    }
    outcome
}

fn verdict(response: &mut ObjectWriter<'_>, denial: Option<&Denial>) {
    response.flag("allowed", denial.is_none());
    let Some(denial) = denial else { return };
    response.object("status", |status| {
        status.object("metadata", |_| {});
        status.text("status", &denial.status);
        status.text("message", &denial.message);
        status.text_if_any("reason", &denial.reason);
        if !denial.details.is_empty() {
            status.object("details", |fields| details(fields, &denial.details));
        }
        status.json("code", &denial.code.to_string());
    });
}

fn details(fields: &mut ObjectWriter<'_>, details: &StatusDetails) {
    fields.text_if_any("name", &details.name);
    fields.text_if_any("group", &details.group);
    fields.text_if_any("kind", &details.kind);
    fields.text_if_any("uid", &details.uid);
    if !details.causes.is_empty() {
        fields.list("causes", &details.causes, |out, cause| {
            ObjectWriter::write(out, |fields| {
                fields.text_if_any("reason", &cause.reason);
                fields.text_if_any("message", &cause.message);
                fields.text_if_any("field", &cause.field);
            });
        });
    }
    if details.retry_after_seconds != 0 {
        fields.json("retryAfterSeconds", &details.retry_after_seconds.to_string());
    }
}

fn patch(response: &mut ObjectWriter<'_>, patch: Vec<u8>) {
    let out = response.key("patch");
    out.push('"');
    STANDARD.encode_string(patch, out);
    out.push('"');
    response.text("patchType", "JSONPatch");
}

fn annotations(response: &mut ObjectWriter<'_>, annotations: &BTreeMap<String, String>) {
    // Two keys that differed only in a slash may become one.
    let mut keys: BTreeMap<String, &str> = BTreeMap::new();
    for (key, value) in annotations {
        keys.entry(annotation_key(key)).or_insert(value);
    }
    if !keys.is_empty() {
        response.object("auditAnnotations", |fields| {
            keys.iter().for_each(|(key, value)| fields.text(key, value));
        });
    }
}

fn warnings(response: &mut ObjectWriter<'_>, outcome: &Outcome) {
    if !outcome.warnings.is_empty() {
        response.list("warnings", outcome.warnings.iter(), write_string);
    }
}

/// A key without slash and of at most [`KEY_BYTES`]; of a longer one its
/// beginning, `-` and the hash of the whole.
fn annotation_key(key: &str) -> String {
    let key = key.replace('/', ".");
    if key.len() <= KEY_BYTES {
        return key;
    }
    let beginning = crate::engine::text::truncate(&key, KEY_BYTES - 9);
    format!("{beginning}-{:08x}", fnv1a(key.as_bytes()))
}

/// FNV-1a: the same in every build, which the keys in an audit log must be.
fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotation_keys_have_one_part_and_a_bounded_length() {
        assert_eq!(
            annotation_key("validation.policy.admission.k8s.io/validation_failure"),
            "validation.policy.admission.k8s.io.validation_failure"
        );
        let long = annotation_key(&format!("{}/key", "p".repeat(100)));
        assert_eq!(long.len(), KEY_BYTES);
        assert!(
            long.starts_with(&"p".repeat(54)) && long.as_bytes()[54] == b'-',
            "{long}"
        );
        assert_ne!(long, annotation_key(&format!("{}/kez", "p".repeat(100))));
        assert_eq!(fnv1a(b"a"), 0xe40c_292c);
    }
}
