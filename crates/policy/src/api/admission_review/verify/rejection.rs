//! The Status with which a webhook refuses (`ToStatusErr` of
//! `apiserver/pkg/admission/plugin/webhook/errors/statuserror.go`).

use super::wrong;
use crate::api::admission_review::{AdmissionReviewError, map, text};
use crate::engine::StatusReason;
use crate::engine::admission::webhook::WebhookReply;
use crate::engine::admission::{Denial, StatusCause, StatusDetails};
use portcullis_cel::json::{Kind, Node};

/// No refusal has a lower code.
const LOWEST_CODE: i32 = 400;

/// A refusal in v1 and v1beta1: its message names the webhook.
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

/// A refusal in v1alpha1: passed on as it is, and without Status an error of the
/// server (`plugin/pkg/admission/webhook/admission.go` of Kubernetes 1.7). A
/// code that would mean success is raised all the same.
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
    denial.reason = text(status.get("reason"), "status.reason")?.into_owned().into();
    denial.code = number(status, "code", "status.code")?;
    denial.message = text(status.get("message"), "status.message")?.into_owned();
    if let Some(written) = map(status.get("details"), "status.details")? {
        denial.details = details(written)?;
    }
    Ok(denial)
}

fn details(node: Node<'_>) -> Result<StatusDetails, AdmissionReviewError> {
    let text = |name, field| text(node.get(name), field).map(|text| text.into_owned());
    Ok(StatusDetails {
        name: text("name", "status.details.name")?,
        group: text("group", "status.details.group")?,
        kind: text("kind", "status.details.kind")?,
        uid: text("uid", "status.details.uid")?,
        causes: causes(node)?,
        retry_after_seconds: number(node, "retryAfterSeconds", "status.details.retryAfterSeconds")?,
    })
}

/// All are read, and the first are kept.
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
                reason: text(cause.get("reason"), "status.details.causes.reason")?.into_owned(),
                message: text(cause.get("message"), "status.details.causes.message")?.into_owned(),
                field: text(cause.get("field"), "status.details.causes.field")?.into_owned(),
            },
            _ => return Err(WRONG),
        };
        if kept.len() < WebhookReply::MAX_CAUSES {
            kept.push(cause);
        }
    }
    Ok(kept)
}

/// An `int32`; 0 where there is none.
fn number(node: Node<'_>, name: &str, field: &'static str) -> Result<i32, AdmissionReviewError> {
    match node.get(name).filter(|value| !value.is_null()) {
        None => Ok(0),
        Some(value) => value
            .as_i64()
            .and_then(|number| number.try_into().ok())
            .ok_or(wrong(field, "a number of 32 bits")),
    }
}
