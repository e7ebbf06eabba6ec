//! Constructors of denials, with the messages of the API server.
//!
//! `apimachinery/pkg/api/errors/errors.go`,
//! `apiserver/pkg/admission/plugin/webhook/errors/statuserror.go`,
//! `apiserver/pkg/util/webhook/error.go`.

use super::changes::ChangeError;
use super::denial::{Denial, StatusCause, StatusDetails};
use super::webhook::Webhook;
use super::{GroupVersionResource, Request};
use crate::engine::StatusReason;

/// A webhook that could not be asked or believed, and whose failurePolicy is Fail.
pub(crate) fn failed_call(webhook: &Webhook, why: &str) -> Denial {
    internal(format!("failed calling webhook \"{}\": {why}", webhook.name))
}

/// `NewInternalError`.
pub(crate) fn internal(why: String) -> Denial {
    Denial {
        message: format!("Internal error occurred: {why}"),
        details: StatusDetails {
            causes: vec![StatusCause::of(why)],
            ..StatusDetails::default()
        },
        ..of(StatusReason::InternalError)
    }
}

/// `NewDryRunUnsupportedErr`.
pub(crate) fn no_dry_run(webhook: &Webhook) -> Denial {
    Denial {
        message: format!("admission webhook \"{}\" does not support dry run", webhook.name),
        ..of(StatusReason::BadRequest)
    }
}

/// `NewForbidden`: conditions that could not be evaluated.
pub(crate) fn forbidden(request: &Request<'_>, why: &str) -> Denial {
    let resource = &request.request_resource;
    let qualified = match resource.group.as_ref() {
        "" => resource.resource.to_string(),
        group => format!("{}.{group}", resource.resource),
    };
    let message = match request.name.as_ref() {
        "" => format!("{qualified} is forbidden: {why}"),
        name => format!("{qualified} \"{name}\" is forbidden: {why}"),
    };
    Denial {
        message,
        details: StatusDetails {
            name: request.name.to_string(),
            group: resource.group.to_string(),
            kind: resource.resource.to_string(),
            ..StatusDetails::default()
        },
        ..of(StatusReason::Forbidden)
    }
}

/// `NewNotFound`, of a namespace.
pub(crate) fn unknown_namespace(name: &str, message: String) -> Denial {
    Denial {
        message,
        details: StatusDetails {
            name: name.to_owned(),
            kind: "namespaces".to_owned(),
            ..StatusDetails::default()
        },
        ..of(StatusReason::NotFound)
    }
}

/// `NewTimeoutError`: the deadline of the request itself passed.
pub(crate) fn timeout() -> Denial {
    Denial {
        message: "Timeout: request did not complete within requested timeout".to_owned(),
        ..of(StatusReason::Timeout)
    }
}

/// A webhook that was not asked, because it has too many calls already: an API server
/// has no such limit; it would wait until the deadline.
pub(crate) fn not_made(webhook: &Webhook, why: &str) -> Denial {
    Denial {
        message: format!("Timeout: webhook \"{}\" was not called: {why}", webhook.name),
        ..of(StatusReason::Timeout)
    }
}

/// A change that is not made, whatever the failure policies: `by` would have made it.
pub(crate) fn unchanged(by: &str, error: &ChangeError) -> Denial {
    Denial {
        message: format!("{by}: {error}"),
        ..of(error.reason())
    }
}

/// The refusal of what was not looked at to the end, whatever the failure policies.
pub(crate) fn too_late(request: &Request<'_>) -> Denial {
    let message = "the deadline passed before every policy was asked".to_owned();
    denial(request, message, StatusReason::Timeout)
}

/// A refusal that names the object, as `admission.NewForbidden` does.
pub(crate) fn denial(request: &Request<'_>, message: String, reason: StatusReason) -> Denial {
    let GroupVersionResource { group, resource, .. } = &request.request_resource;
    Denial {
        status: Denial::FAILURE.into(),
        reason: reason.as_str().into(),
        code: reason.code().into(),
        details: StatusDetails {
            name: object_name(request),
            group: group.to_string(),
            kind: resource.to_string(),
            causes: vec![StatusCause::of(message.clone())],
            ..StatusDetails::default()
        },
        message,
    }
}

fn object_name(request: &Request<'_>) -> String {
    if !request.name.is_empty() {
        return request.name.to_string();
    }
    let metadata = |field| {
        let name = request.object?.get("metadata")?.get(field)?.as_str()?;
        (!name.is_empty()).then(|| name.into_owned())
    };
    metadata("name")
        .or_else(|| metadata("generateName"))
        .unwrap_or_else(|| "Unknown".to_owned())
}

fn of(reason: StatusReason) -> Denial {
    Denial {
        status: Denial::FAILURE.into(),
        reason: reason.as_str().into(),
        code: reason.code().into(),
        message: String::new(),
        details: StatusDetails::default(),
    }
}
