//! The statuses that refuse a request, in the API server's words.
//!
//! `apimachinery/pkg/api/errors/errors.go`,
//! `apiserver/pkg/admission/plugin/webhook/errors/statuserror.go`,
//! `apiserver/pkg/util/webhook/error.go`.

use crate::engine::admission::webhook::Webhook;
use crate::engine::admission::{Denial, Details, Reason, Request, StatusCause};

/// A webhook that could not be asked or believed, and whose failurePolicy is Fail.
pub(super) fn failed_call(webhook: &Webhook, why: &str) -> Denial {
    internal(format!("failed calling webhook \"{}\": {why}", webhook.name))
}

/// `NewInternalError`.
pub(super) fn internal(why: String) -> Denial {
    Denial {
        message: format!("Internal error occurred: {why}"),
        details: Details {
            causes: vec![StatusCause::of(why)],
            ..Details::default()
        },
        ..of(Reason::InternalError)
    }
}

/// `NewDryRunUnsupportedErr`.
pub(super) fn no_dry_run(webhook: &Webhook) -> Denial {
    Denial {
        message: format!("admission webhook \"{}\" does not support dry run", webhook.name),
        ..of(Reason::BadRequest)
    }
}

/// `NewForbidden`: conditions that could not be evaluated.
pub(super) fn forbidden(request: &Request<'_>, why: &str) -> Denial {
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
        details: Details {
            name: request.name.to_string(),
            group: resource.group.to_string(),
            kind: resource.resource.to_string(),
            ..Details::default()
        },
        ..of(Reason::Forbidden)
    }
}

/// `NewNotFound`, of a namespace.
pub(super) fn unknown_namespace(name: &str, message: String) -> Denial {
    Denial {
        message,
        details: Details {
            name: name.to_owned(),
            kind: "namespaces".to_owned(),
            ..Details::default()
        },
        ..of(Reason::NotFound)
    }
}

/// `NewTimeoutError`: the deadline of the request itself passed.
pub(super) fn timeout() -> Denial {
    Denial {
        message: "Timeout: request did not complete within requested timeout".to_owned(),
        ..of(Reason::Timeout)
    }
}

/// A webhook that was not asked, because it has too many calls already: an API server
/// has no such limit; it would wait until the deadline.
pub(super) fn not_made(webhook: &Webhook, why: &str) -> Denial {
    Denial {
        message: format!("Timeout: webhook \"{}\" was not called: {why}", webhook.name),
        ..of(Reason::Timeout)
    }
}

fn of(reason: Reason) -> Denial {
    Denial {
        status: Denial::FAILURE.into(),
        reason: reason.as_str().into(),
        code: reason.code(),
        message: String::new(),
        details: Details::default(),
    }
}
