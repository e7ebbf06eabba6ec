//! `AdmissionResponse`: its fields, and which patch goes with which version.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};

use super::{Invalid, rejection, wrong};
use crate::api::admission_review::{AdmissionReviewError, flag, map, text};
use crate::engine::admission::Phase;
use crate::engine::admission::webhook::{Call, WebhookReply};
use portcullis_cel::json::{Kind, Node};

/// As Go reads base64: padded, and the bits that no byte takes may be anything.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// The only type of patch there is.
const JSON_PATCH: &str = "JSONPatch";

pub(crate) struct Response<'r> {
    pub(crate) uid: Cow<'r, str>,
    patch: Vec<u8>,
    /// `None` where there is none, which is not the same as an empty one.
    patch_type: Option<Cow<'r, str>>,
    /// Everything but patch and patchType.
    pub(crate) reply: WebhookReply,
}

// === impl Response ===

impl<'r> Response<'r> {
    /// `response`, of v1 and v1beta1.
    pub(crate) fn read(call: &Call, node: Node<'r>) -> Result<Self, AdmissionReviewError> {
        let is_allowed = flag(node.get("allowed"), "response.allowed")?;
        // Read in any case: a field of the wrong type spoils the whole reply.
        let denial = rejection::denial(&call.webhook.name, map(node.get("status"), "response.status")?)?;
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

    /// `status`, of v1alpha1. Where there is none, nothing is allowed.
    pub(crate) fn read_alpha(call: &Call, node: Option<Node<'r>>) -> Result<Self, AdmissionReviewError> {
        let (is_allowed, status) = match node {
            None => (false, None),
            Some(node) => (
                flag(node.get("allowed"), "status.allowed")?,
                map(node.get("status"), "status.status")?,
            ),
        };
        let denial = rejection::verbatim(&call.webhook.name, status)?;
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

    /// The rules of v1: patch and patchType both or neither, and only to mutate.
    pub(crate) fn with_patch_of_its_type(self, phase: Phase) -> Result<WebhookReply, Invalid> {
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

    /// The rules of v1beta1: whatever its type, a patch is a JSON Patch; that of
    /// a validating webhook is passed over.
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

/// `[]byte` as Go reads it: base64, in which line ends do not count, or a list
/// of numbers.
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

/// All are read, and the first are kept: a reply may have millions.
fn warnings(node: Node<'_>) -> Result<Vec<String>, AdmissionReviewError> {
    const WRONG: AdmissionReviewError = wrong("response.warnings", "a list of text");
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

/// All are read, and the first are kept.
fn annotations(node: Node<'_>) -> Result<BTreeMap<String, String>, AdmissionReviewError> {
    const FIELD: &str = "response.auditAnnotations";
    const WRONG: AdmissionReviewError = wrong(FIELD, "a map of text");
    /// What an annotation takes besides its texts.
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
