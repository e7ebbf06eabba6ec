//! The answer to an AdmissionReview, as the API server's webhook client reads it
//! (`apiserver/pkg/admission/plugin/webhook/request/admissionreview.go`).

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::ReviewVersion;
use crate::engine::StatusReason;
use crate::engine::admission::{Denial, Outcome, Request, StatusCause, StatusDetails};
use crate::json::write_string;

/// The longest key of an audit annotation. The API server puts the webhook's
/// name and a slash before it, and drops what is then no qualified name.
const KEY_BYTES: usize = 63;

pub(super) fn encode(version: ReviewVersion, request: &Request<'_>, outcome: &Outcome) -> Vec<u8> {
    let mut out = String::with_capacity(256 + outcome.patch.len() * 4 / 3);
    match version {
        ReviewVersion::V1 => {
            out.push_str(r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"#)
        }
        ReviewVersion::V1beta1 => out.push_str(
            r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1","response":{"uid":"#,
        ),
        ReviewVersion::V1alpha1 => return alpha(outcome),
    }
    write_string(&mut out, &request.uid);
    verdict(&mut out, ",", outcome.denial.as_ref());
    if outcome.denial.is_none() && !outcome.patch.is_empty() {
        out.push_str(r#","patch":""#);
        STANDARD.encode_string(request.restored(outcome.patch.clone()), &mut out);
        out.push_str(r#"","patchType":"JSONPatch""#);
    }
    annotations(&mut out, &outcome.audit_annotations);
    warnings(&mut out, outcome);
    out.push_str("}}");
    out.into_bytes()
}

/// The outcome, or a refusal where the version has no room for its patch.
pub(super) fn within_version(version: ReviewVersion, mut outcome: Outcome) -> Outcome {
    let is_untellable = version == ReviewVersion::V1alpha1 && !outcome.patch.is_empty();
    if is_untellable && outcome.denial.is_none() {
        outcome.denial = Some(Denial {
            status: Denial::FAILURE.into(),
            reason: StatusReason::InternalError.as_str().into(),
            code: StatusReason::InternalError.code().into(),
            message: "the object would have to be changed, and a review of admission.k8s.io/v1alpha1 \
                      has no room for a patch"
                .to_owned(),
            details: StatusDetails::default(),
        });
    }
    outcome
}

fn alpha(outcome: &Outcome) -> Vec<u8> {
    let mut out =
        String::from(r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1alpha1","status":{"#);
    verdict(&mut out, "", outcome.denial.as_ref());
    out.push_str("}}");
    out.into_bytes()
}

fn verdict(out: &mut String, separator: &str, denial: Option<&Denial>) {
    out.push_str(separator);
    let Some(denial) = denial else {
        out.push_str(r#""allowed":true"#);
        return;
    };
    out.push_str(r#""allowed":false,"status":{"metadata":{},"status":"#);
    write_string(out, &denial.status);
    out.push_str(r#","message":"#);
    write_string(out, &denial.message);
    if !denial.reason.is_empty() {
        out.push_str(r#","reason":"#);
        write_string(out, &denial.reason);
    }
    details(out, &denial.details);
    out.push_str(r#","code":"#);
    out.push_str(&denial.code.to_string());
    out.push('}');
}

fn details(out: &mut String, details: &StatusDetails) {
    if details.is_empty() {
        return;
    }
    out.push_str(r#","details":{"#);
    let written = texts(
        out,
        &[
            ("name", &details.name),
            ("group", &details.group),
            ("kind", &details.kind),
            ("uid", &details.uid),
        ],
    );
    let mut separator = if written { "," } else { "" };
    for (position, cause) in details.causes.iter().enumerate() {
        out.push_str(if position > 0 { "," } else { separator });
        out.push_str(if position > 0 { "{" } else { r#""causes":[{"# });
        let StatusCause {
            reason,
            message,
            field,
        } = cause;
        texts(out, &[("reason", reason), ("message", message), ("field", field)]);
        out.push('}');
    }
    if !details.causes.is_empty() {
        out.push(']');
        separator = ",";
    }
    if details.retry_after_seconds != 0 {
        out.push_str(separator);
        out.push_str(r#""retryAfterSeconds":"#);
        out.push_str(&details.retry_after_seconds.to_string());
    }
    out.push('}');
}

/// Writes the members that are not empty; true if there is any.
fn texts(out: &mut String, members: &[(&str, &str)]) -> bool {
    let mut separator = "";
    for (name, value) in members.iter().filter(|(_, value)| !value.is_empty()) {
        out.push_str(separator);
        write_string(out, name);
        out.push(':');
        write_string(out, value);
        separator = ",";
    }
    !separator.is_empty()
}

fn annotations(out: &mut String, annotations: &BTreeMap<String, String>) {
    // Two keys that were told apart by a slash may become one.
    let mut keys: BTreeMap<String, &str> = BTreeMap::new();
    for (key, value) in annotations {
        keys.entry(annotation_key(key)).or_insert(value);
    }
    let mut separator = r#","auditAnnotations":{"#;
    for (key, value) in &keys {
        out.push_str(separator);
        write_string(out, key);
        out.push(':');
        write_string(out, value);
        separator = ",";
    }
    if !keys.is_empty() {
        out.push('}');
    }
}

fn warnings(out: &mut String, outcome: &Outcome) {
    let mut separator = r#","warnings":["#;
    for text in outcome.warnings.iter() {
        out.push_str(separator);
        write_string(out, text);
        separator = ",";
    }
    if !outcome.warnings.is_empty() {
        out.push(']');
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
