//! Validation of the reply of a webhook behind the gateway, field by field, before any of
//! it counts.
//!
//! ```text
//! body ─json─▶ fields of the right types ─▶ version, uid, patch with patchType ─▶ Reply
//!         └────────── failed to call ┴────────────── received invalid ──────────▶ CallFailure
//! ```
//!
//! Facts: `VerifyAdmissionResponse` of
//! `apiserver/pkg/admission/plugin/webhook/request/admissionreview.go`; the checks before
//! it are those of `client-go`'s decoder.

mod rejection;
mod response;

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use response::Response;

use super::{AdmissionReviewError, ReviewVersion, excerpt, map, text};
use crate::api::text::utf8;
use crate::engine::admission::Phase;
use crate::engine::admission::webhook::{Call, CallFailure, WebhookReply};
use portcullis_cel::json::{self, Document, Kind, Node};

/// The only kind of a reply.
const KIND: &str = "AdmissionReview";

/// Reads the body of the reply to a [question](super::ask()).
///
/// JSON alone, as Go reads it: keys count by case, unknown ones are ignored, of
/// equal ones the last counts, a byte order mark is passed over. A reply in
/// `v1` names its kind and repeats the `uid`; its patch goes with a patchType,
/// and comes from mutating webhooks alone. One in `v1beta1` need not, and its
/// patches are JSON Patches. One in `v1alpha1` has a verdict and nothing else.
///
/// A reply that names another kind or version than was asked is none, in `v1beta1` too:
/// the decoder of an API server refuses it before it looks at the response.
///
/// # Errors
///
/// [`CallFailure::Failed`] for whatever else.
pub fn verify(call: &Call, uid: &str, phase: Phase, body: &[u8]) -> Result<WebhookReply, CallFailure> {
    let body = body.strip_prefix("\u{feff}".as_bytes()).unwrap_or(body);
    let document = Document::parse(utf8(body)).map_err(|error| undecodable(error.into()))?;
    let header = ReplyHeader::read(document.root()).map_err(undecodable)?;
    header
        .check(call.version)
        .map_err(|error| undecodable(error.into()))?;
    verify_decoded(call, uid, phase, document.root())
}

/// What is believed of a reply once it was decoded: `VerifyAdmissionResponse` alone, for
/// which the kind that a reply in `v1beta1` names is no matter.
///
/// # Errors
///
/// [`CallFailure::Failed`]: a field of the wrong type, no response, or one that breaks a
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

/// A reply whose fields are of the right types.
struct ReplyReview<'r> {
    header: ReplyHeader<'r>,
    response: Option<Response<'r>>,
}

struct ReplyHeader<'r> {
    kind: Cow<'r, str>,
    api_version: Cow<'r, str>,
}

/// Why it is no AdmissionReview of the version asked.
#[derive(Debug, thiserror::Error)]
enum Undecodable {
    #[error(transparent)]
    Malformed(#[from] json::Error),
    #[error("{0}")]
    Field(#[from] AdmissionReviewError),
    #[error(transparent)]
    Kind(#[from] WrongKind),
}

/// Why it is none that can be believed.
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

/// Its kind or version is another than was asked, or is missing where it must not.
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

    /// What is absent is taken for what was asked.
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

    /// Whether both are there, and are those of `version`.
    fn names(&self, version: ReviewVersion) -> bool {
        self.kind == KIND && self.api_version == version.api_version()
    }
}

const fn wrong(field: &'static str, expected: &'static str) -> AdmissionReviewError {
    AdmissionReviewError::Field { field, expected }
}
