//! Validates the reply of a webhook behind the gateway, field by field, before any of it takes
//! effect.
//!
//! ```text
//! body ─json─▶ fields of the right types ─▶ version, uid, patch with patchType ─▶ Reply
//!         └────────── failed to call ┴────────────── received invalid ──────────▶ CallFailure
//! ```
//!
//! Sources: `VerifyAdmissionResponse` of
//! `apiserver/pkg/admission/plugin/webhook/request/admissionreview.go`; the checks before it are
//! those of `client-go`'s decoder.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};

use super::{AdmissionReviewError, ReviewVersion, excerpt, flag, map, text};
use crate::admission::webhook::{Call, CallFailure, WebhookReply};
use crate::admission::{Denial, Phase, StatusCause, StatusDetails};
use crate::api::utf8;
use crate::model::{StatusReason, truncate_with_mark};
use portcullis_cel::json::{self, Document, Kind, Node};

/// The kind that a reply must have.
const KIND: &str = "AdmissionReview";

/// Validates the body of the reply to a [review](super::encode_review()).
///
/// The body must be JSON, and is read as Go reads it: keys are case-sensitive, unknown keys are
/// ignored, the last of several equal keys counts, and a byte order mark is skipped. A `v1` reply
/// names its kind and repeats the `uid`; its patch has a patchType, and only mutating webhooks may
/// send one. A `v1beta1` reply need not do so, and its patches are JSON Patches. A `v1alpha1` reply
/// only allows or denies.
///
/// A reply of another kind or version is invalid, in `v1beta1` too: an API server's decoder rejects
/// it before the response is validated.
///
/// # Errors
///
/// [`CallFailure::Failed`] for any other body.
pub fn verify(call: &Call, uid: &str, phase: Phase, body: &[u8]) -> Result<WebhookReply, CallFailure> {
    let body = body.strip_prefix("\u{feff}".as_bytes()).unwrap_or(body);
    let document = Document::parse(utf8(body)).map_err(|error| undecodable(error.into()))?;
    let header = ReplyHeader::read(document.root()).map_err(undecodable)?;
    header
        .check(call.version)
        .map_err(|error| undecodable(error.into()))?;
    verify_decoded(call, uid, phase, document.root())
}

/// Validates a decoded reply, as `VerifyAdmissionResponse` alone does: the kind and version of a
/// `v1beta1` reply are not checked.
///
/// # Errors
///
/// [`CallFailure::Failed`]: a field has the wrong type, the response is missing, or it breaks a
/// rule of its version.
pub fn verify_decoded(
    call: &Call,
    uid: &str,
    phase: Phase,
    reply: Node<'_>,
) -> Result<WebhookReply, CallFailure> {
    ReplyReview::read(call, reply)
        .map_err(undecodable)?
        .verified(call.version, uid, phase)
        .map_err(|error| CallFailure::Failed(format!("received invalid webhook response: {error}")))
}

fn undecodable(error: Undecodable) -> CallFailure {
    CallFailure::Failed(format!("failed to call webhook: {error}"))
}

/// A reply whose fields have the right types.
struct ReplyReview<'r> {
    header: ReplyHeader<'r>,
    response: Option<Response<'r>>,
}

struct ReplyHeader<'r> {
    kind: Cow<'r, str>,
    api_version: Cow<'r, str>,
}

/// Why a body is not an AdmissionReview of the requested version.
#[derive(Debug, thiserror::Error)]
enum Undecodable {
    #[error(transparent)]
    Malformed(#[from] json::JsonError),
    #[error("{0}")]
    Field(#[from] AdmissionReviewError),
    #[error(transparent)]
    Kind(#[from] WrongKind),
}

/// Why a decoded reply is invalid.
#[derive(Debug, thiserror::Error)]
enum Invalid {
    #[error("webhook response was absent")]
    Absent,
    #[error("expected response.uid={expected:?}, got {found:?}")]
    Uid { expected: String, found: String },
    #[error(transparent)]
    Kind(#[from] WrongKind),
    #[error("webhook returned response.patch but not response.patchType")]
    PatchAlone,
    #[error("webhook returned response.patchType but not response.patch")]
    PatchTypeAlone,
    #[error("webhook returned invalid response.patchType of \"\"")]
    EmptyPatchType,
    #[error("validating webhook may not return response.patch")]
    PatchOfValidating,
    #[error("validating webhook may not return response.patchType")]
    PatchTypeOfValidating,
}

/// The kind or version is not the requested one, or is missing where it is required.
#[derive(Debug, thiserror::Error)]
#[error("expected webhook response of {asked}, Kind={KIND}, got {found}")]
struct WrongKind {
    asked: &'static str,
    found: String,
}

// === impl ReplyReview ===

impl<'r> ReplyReview<'r> {
    fn read(call: &Call, root: Node<'r>) -> Result<Self, Undecodable> {
        let header = ReplyHeader::read(root)?;
        let (question, answer) = match call.version {
            ReviewVersion::V1 | ReviewVersion::V1beta1 => ("request", "response"),
            ReviewVersion::V1alpha1 => ("spec", "status"),
        };
        map(root.get(question), question)?;
        let answer = map(root.get(answer), answer)?;
        let response = match call.version {
            ReviewVersion::V1 | ReviewVersion::V1beta1 => {
                answer.map(|node| Response::read(call, node)).transpose()?
            }
            ReviewVersion::V1alpha1 => Some(Response::read_alpha(call, answer)?),
        };
        Ok(Self { header, response })
    }

    fn verified(self, version: ReviewVersion, uid: &str, phase: Phase) -> Result<WebhookReply, Invalid> {
        let response = self.response.ok_or(Invalid::Absent)?;
        match version {
            ReviewVersion::V1 if response.uid != uid => Err(Invalid::Uid {
                expected: uid.to_owned(),
                found: excerpt(&response.uid),
            }),
            ReviewVersion::V1 if !self.header.names(version) => Err(self.header.wrong(version).into()),
            ReviewVersion::V1 => response.with_patch_of_its_type(phase),
            ReviewVersion::V1beta1 => Ok(response.with_json_patch(phase)),
            ReviewVersion::V1alpha1 => Ok(response.reply),
        }
    }
}

// === impl ReplyHeader ===

impl<'r> ReplyHeader<'r> {
    fn read(root: Node<'r>) -> Result<Self, Undecodable> {
        if root.kind() != Kind::Object {
            return Err(wrong("the reply", "a map").into());
        }
        Ok(Self {
            kind: text(root.get("kind"), "kind")?,
            api_version: text(root.get("apiVersion"), "apiVersion")?,
        })
    }

    /// An absent kind or version counts as the requested one.
    fn check(&self, version: ReviewVersion) -> Result<(), WrongKind> {
        let is_kind = self.kind.is_empty() || self.kind == KIND;
        if is_kind && (self.api_version.is_empty() || self.api_version == version.api_version()) {
            return Ok(());
        }
        Err(self.wrong(version))
    }

    fn wrong(&self, version: ReviewVersion) -> WrongKind {
        WrongKind {
            asked: version.api_version(),
            found: format!("{}, Kind={}", excerpt(&self.api_version), excerpt(&self.kind)),
        }
    }

    /// Whether kind and version are present, and are those of `version`.
    fn names(&self, version: ReviewVersion) -> bool {
        self.kind == KIND && self.api_version == version.api_version()
    }
}

const fn wrong(field: &'static str, expected: &'static str) -> AdmissionReviewError {
    AdmissionReviewError::Field { field, expected }
}

// Reads the Status of a webhook's denial (`ToStatusErr` of
// `apiserver/pkg/admission/plugin/webhook/errors/statuserror.go`).

/// The lowest code of a denial.
const LOWEST_CODE: i32 = 400;

/// A denial in v1 and v1beta1, whose message names the webhook.
pub(crate) fn denial(webhook: &str, status: Option<Node<'_>>) -> Result<Denial, AdmissionReviewError> {
    let mut denial = read(status)?;
    let denied = format!("admission webhook {webhook:?} denied the request");
    denial.message = match (denial.message.as_str(), denial.reason.as_ref()) {
        ("", "") => format!("{denied} without explanation"),
        ("", why) | (why, _) => format!("{denied}: {why}"),
    };
    denial.code = denial.code.max(LOWEST_CODE);
    Ok(denial)
}

/// A denial in v1alpha1: it is passed on unchanged, and becomes an internal error if there is no
/// Status (`plugin/pkg/admission/webhook/admission.go` of Kubernetes 1.7). A code below 400, which
/// would mean success, is raised.
pub(crate) fn verbatim(webhook: &str, status: Option<Node<'_>>) -> Result<Denial, AdmissionReviewError> {
    let mut denial = read(status)?;
    if status.is_none() {
        denial.message = format!("admission webhook {webhook:?} denied the request without explanation");
    }
    denial.code = match denial.code {
        0 => StatusReason::InternalError.code().into(),
        code => code.max(LOWEST_CODE),
    };
    Ok(denial)
}

fn read(status: Option<Node<'_>>) -> Result<Denial, AdmissionReviewError> {
    let mut denial = Denial {
        status: Denial::FAILURE.into(),
        reason: "".into(),
        code: 0,
        message: String::new(),
        details: StatusDetails::default(),
    };
    let Some(status) = status else {
        return Ok(denial);
    };
    map(status.get("metadata"), "status.metadata")?;
    text(status.get("kind"), "status.kind")?;
    text(status.get("apiVersion"), "status.apiVersion")?;
    let said = text(status.get("status"), "status.status")?;
    if !matches!(said.as_ref(), "" | "Success") {
        denial.status = said.into_owned().into();
    }
    denial.reason = beginning(status.get("reason"), "status.reason")?.into();
    denial.code = number(status, "code", "status.code")?;
    denial.message = beginning(status.get("message"), "status.message")?;
    if let Some(written) = map(status.get("details"), "status.details")? {
        denial.details = details(written)?;
    }
    Ok(denial)
}

fn details(node: Node<'_>) -> Result<StatusDetails, AdmissionReviewError> {
    Ok(StatusDetails {
        name: beginning(node.get("name"), "status.details.name")?,
        group: beginning(node.get("group"), "status.details.group")?,
        kind: beginning(node.get("kind"), "status.details.kind")?,
        uid: beginning(node.get("uid"), "status.details.uid")?,
        causes: causes(node)?,
        retry_after_seconds: number(node, "retryAfterSeconds", "status.details.retryAfterSeconds")?,
    })
}

/// A string, cut to the length that is passed on.
fn beginning(node: Option<Node<'_>>, field: &'static str) -> Result<String, AdmissionReviewError> {
    let text = text(node, field)?;
    Ok(truncate_with_mark(&text, WebhookReply::MAX_TEXT_BYTES).into_owned())
}

/// Validates all causes, and keeps the first [`WebhookReply::MAX_CAUSES`].
fn causes(details: Node<'_>) -> Result<Vec<StatusCause>, AdmissionReviewError> {
    const WRONG: AdmissionReviewError = wrong("status.details.causes", "a list of maps");
    let Some(causes) = details.get("causes").filter(|causes| !causes.is_null()) else {
        return Ok(Vec::new());
    };
    if causes.kind() != Kind::Array {
        return Err(WRONG);
    }
    let mut kept = Vec::new();
    for cause in causes.items() {
        let cause = match cause.kind() {
            Kind::Null => StatusCause::default(),
            Kind::Object => StatusCause {
                reason: beginning(cause.get("reason"), "status.details.causes.reason")?,
                message: beginning(cause.get("message"), "status.details.causes.message")?,
                field: beginning(cause.get("field"), "status.details.causes.field")?,
            },
            _ => return Err(WRONG),
        };
        if kept.len() < WebhookReply::MAX_CAUSES {
            kept.push(cause);
        }
    }
    Ok(kept)
}

/// An `int32`; 0 if absent.
fn number(node: Node<'_>, name: &str, field: &'static str) -> Result<i32, AdmissionReviewError> {
    match node.get(name).filter(|value| !value.is_null()) {
        None => Ok(0),
        Some(value) => value
            .as_i64()
            .and_then(|number| number.try_into().ok())
            .ok_or(wrong(field, "a number of 32 bits")),
    }
}

// `AdmissionResponse`: its fields, and the rules for patches in each version.

/// Base64 as Go reads it: padded, with unused trailing bits of any value.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// The only type of patch.
const JSON_PATCH: &str = "JSONPatch";

pub(crate) struct Response<'r> {
    pub(crate) uid: Cow<'r, str>,
    patch: Vec<u8>,
    /// `None` if the field is absent, which differs from an empty string.
    patch_type: Option<Cow<'r, str>>,
    /// The reply without patch and patchType.
    pub(crate) reply: WebhookReply,
}

// === impl Response ===

impl<'r> Response<'r> {
    /// Reads `response` of v1 and v1beta1.
    pub(crate) fn read(call: &Call, node: Node<'r>) -> Result<Self, AdmissionReviewError> {
        let is_allowed = flag(node.get("allowed"), "response.allowed")?;
        // Read even if the request is allowed: a field of the wrong type invalidates the whole
        // reply.
        let denial = denial(&call.webhook.name, map(node.get("status"), "response.status")?)?;
        let patch_type = node.get("patchType").filter(|value| !value.is_null());
        Ok(Self {
            uid: text(node.get("uid"), "response.uid")?,
            patch: bytes(node.get("patch"))?,
            patch_type: patch_type
                .map(|_| text(node.get("patchType"), "response.patchType"))
                .transpose()?,
            reply: WebhookReply {
                denial: (!is_allowed).then_some(denial),
                warnings: warnings(node)?,
                audit_annotations: annotations(node)?,
                ..WebhookReply::default()
            },
        })
    }

    /// Reads `status` of v1alpha1. If it is absent, the request is denied.
    pub(crate) fn read_alpha(call: &Call, node: Option<Node<'r>>) -> Result<Self, AdmissionReviewError> {
        let (is_allowed, status) = match node {
            None => (false, None),
            Some(node) => (
                flag(node.get("allowed"), "status.allowed")?,
                map(node.get("status"), "status.status")?,
            ),
        };
        let denial = verbatim(&call.webhook.name, status)?;
        Ok(Self {
            uid: Cow::Borrowed(""),
            patch: Vec::new(),
            patch_type: None,
            reply: WebhookReply {
                denial: (!is_allowed).then_some(denial),
                ..WebhookReply::default()
            },
        })
    }

    /// The rules of v1: patch and patchType must be present together, and only if the webhook is
    /// mutating.
    fn with_patch_of_its_type(self, phase: Phase) -> Result<WebhookReply, Invalid> {
        let has_patch = !self.patch.is_empty();
        match (phase, self.patch_type) {
            (Phase::Mutate, None) if has_patch => Err(Invalid::PatchAlone),
            (Phase::Mutate, Some(_)) if !has_patch => Err(Invalid::PatchTypeAlone),
            (Phase::Mutate, Some(patch_type)) if patch_type.is_empty() => Err(Invalid::EmptyPatchType),
            (Phase::Validate, _) if has_patch => Err(Invalid::PatchOfValidating),
            (Phase::Validate, Some(_)) => Err(Invalid::PatchTypeOfValidating),
            (_, patch_type) => Ok(WebhookReply {
                patch: has_patch.then(|| self.patch.into()),
                patch_type: patch_type.unwrap_or_default().into_owned(),
                ..self.reply
            }),
        }
    }

    /// The rules of v1beta1: a patch is a JSON Patch, whatever its type, and that of a validating
    /// webhook is ignored.
    pub(crate) fn with_json_patch(self, phase: Phase) -> WebhookReply {
        if phase == Phase::Validate || self.patch.is_empty() {
            return self.reply;
        }
        WebhookReply {
            patch: Some(self.patch.into()),
            patch_type: JSON_PATCH.to_owned(),
            ..self.reply
        }
    }
}

/// Reads `[]byte` as Go does: base64, in which line breaks are ignored, or a list of numbers.
fn bytes(node: Option<Node<'_>>) -> Result<Vec<u8>, AdmissionReviewError> {
    const WRONG: AdmissionReviewError = wrong("response.patch", "base64");
    let Some(node) = node else {
        return Ok(Vec::new());
    };
    match node.kind() {
        Kind::Null => Ok(Vec::new()),
        Kind::Array => node
            .items()
            .map(|item| {
                item.as_u64()
                    .and_then(|byte| u8::try_from(byte).ok())
                    .ok_or(WRONG)
            })
            .collect(),
        _ => {
            let mut text = node.as_str().ok_or(WRONG)?;
            if text.contains(['\r', '\n']) {
                text.to_mut()
                    .retain(|character| !matches!(character, '\r' | '\n'));
            }
            BASE64.decode(text.as_bytes()).map_err(|_| WRONG)
        }
    }
}

/// Validates all warnings, and keeps the first: a reply may have millions.
fn warnings(node: Node<'_>) -> Result<Vec<String>, AdmissionReviewError> {
    const WRONG: AdmissionReviewError = wrong("response.warnings", "a list of strings");
    let Some(written) = node.get("warnings").filter(|written| !written.is_null()) else {
        return Ok(Vec::new());
    };
    if written.kind() != Kind::Array {
        return Err(WRONG);
    }
    let (mut warnings, mut bytes) = (Vec::new(), 0);
    for item in written.items() {
        let text = match item.kind() {
            Kind::Null => "".into(),
            _ => item.as_str().ok_or(WRONG)?,
        };
        bytes += text.len();
        if warnings.len() < WebhookReply::MAX_WARNINGS && bytes <= WebhookReply::MAX_WARNING_BYTES {
            warnings.push(text.into_owned());
        }
    }
    Ok(warnings)
}

/// Validates all annotations, and keeps the first.
fn annotations(node: Node<'_>) -> Result<BTreeMap<String, String>, AdmissionReviewError> {
    const FIELD: &str = "response.auditAnnotations";
    const WRONG: AdmissionReviewError = wrong(FIELD, "a map of strings");
    /// The bytes counted for an annotation besides its strings.
    const ENTRY: usize = 64;
    let Some(written) = map(node.get("auditAnnotations"), FIELD)? else {
        return Ok(BTreeMap::new());
    };
    let (mut annotations, mut bytes) = (BTreeMap::new(), 0);
    for (key, value) in written.entries() {
        let value = match value.kind() {
            Kind::Null => "".into(),
            _ => value.as_str().ok_or(WRONG)?,
        };
        bytes += ENTRY + key.len() + value.len();
        if bytes <= WebhookReply::MAX_ANNOTATION_BYTES {
            annotations.insert(key.into_owned(), value.into_owned());
        }
    }
    Ok(annotations)
}

#[cfg(test)]
mod tests;
