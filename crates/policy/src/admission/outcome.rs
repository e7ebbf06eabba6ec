//! The outcome of a run: denial, warnings, audit annotations, patch.

use std::collections::BTreeMap;

use super::changes::ChangeError;
use super::exceptions::ExcusedDenials;
use super::webhook::{Call, Webhook, WebhookResult};
use super::{Denial, GroupVersionResource, Request, StatusCause, StatusDetails};
use crate::authorization::Shadow;
use crate::model::{Attributes, Cause, CauseKind, PolicyResult, StatusReason};

/// The result of one policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyEvaluation {
    /// Its kind.
    pub kind: CauseKind,
    /// Its index among the policies of its kind.
    pub place: usize,
    /// The worst result of its bindings and parameters.
    pub result: PolicyResult,
    /// The cost of its expressions, in the units of Kubernetes' CEL cost model.
    pub cost: u64,
}

/// Grants for which a rejected request could pass: any of these groups, if other authorizers allow
/// each of its checks.
pub type AlternativeGrants = Vec<Vec<Attributes<'static>>>;

/// The result of a run.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Why the request is rejected; `None` if it is allowed.
    pub denial: Option<Denial>,
    /// Warnings for the user.
    pub warnings: Warnings,
    /// Audit annotations, with keys such as `policy/key`. The first value of a key is kept.
    pub audit_annotations: BTreeMap<String, String>,
    /// The denials that AdmissionExceptions excused, each policy or webhook once.
    pub exceptions: Vec<ExcusedDenials>,
    /// The changes as a JSON Patch; empty if there are none.
    pub patch: String,
    /// The policy or webhook that rejected the request.
    pub cause: Option<Cause<'static>>,
    /// The result of each policy that was evaluated.
    pub evaluations: Vec<PolicyEvaluation>,
    /// The result of each webhook that matched, in the order of the calls.
    pub webhooks: Vec<WebhookResult>,
    /// The calls of webhooks in shadow mode, to be made after the reply is sent: they decide
    /// nothing.
    pub shadows: Vec<Call>,
    /// What AuthorizationPolicies with `objectConditions` in mode Shadow would have decided.
    pub policy_shadows: Vec<Shadow>,
    /// If the request is rejected for lack of a grant: the checks to ask other authorizers.
    pub missing_grants: AlternativeGrants,
    /// Whether the request is rejected because of an unknown role, whose creation may not have been
    /// observed yet.
    pub awaits_role: bool,
}

// The warnings of a review.

/// Messages for `Warning` headers, bounded as by the API server
/// (`apiserver/pkg/endpoints/filters/warning.go`).
///
/// Repeated messages and messages with control characters are dropped. Once all together exceed
/// [`Warnings::TOTAL`] characters, each is cut to [`Warnings::EACH`], and those past the limit are
/// dropped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Warnings {
    texts: Vec<String>,
    characters: usize,
    is_truncating: bool,
}

impl Warnings {
    /// The most characters of all messages together.
    pub const TOTAL: usize = 4096;
    /// The most characters of each message once [`TOTAL`](Self::TOTAL) is exceeded.
    pub const EACH: usize = 256;

    /// Adds a message.
    pub fn push(&mut self, text: &str) {
        if text.is_empty()
            || (self.is_truncating && self.characters >= Self::TOTAL)
            || text.chars().any(char::is_control)
        {
            return;
        }
        let shown = if self.is_truncating { cut(text) } else { text };
        if self.texts.iter().any(|one| one == shown) {
            return;
        }
        self.characters += shown.chars().count();
        self.texts.push(shown.to_owned());
        if self.characters > Self::TOTAL && !self.is_truncating {
            self.truncate();
        }
    }

    /// The messages, in the order added.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(String::as_str)
    }

    /// Whether there are no messages.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    fn truncate(&mut self) {
        self.is_truncating = true;
        for text in &mut self.texts {
            let length = cut(text).len();
            text.truncate(length);
        }
        self.characters = self.texts.iter().map(|text| text.chars().count()).sum();
    }
}

fn cut(text: &str) -> &str {
    let end = text
        .char_indices()
        .nth(Warnings::EACH)
        .map_or(text.len(), |(end, _)| end);
    text.get(..end).unwrap_or_default()
}

/// The decision of one validation of a ValidatingAdmissionPolicy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValidationDecision {
    /// The validation holds.
    Admit,
    /// The validation fails.
    Deny {
        /// The message for the user.
        message: String,
        /// `reason`, for the status of the response.
        reason: StatusReason,
    },
    /// It could not be evaluated, and the failure policy is Fail.
    Error {
        /// The error.
        message: String,
    },
    /// It could not be evaluated, and the failure policy is Ignore.
    Ignored {
        /// The error.
        message: String,
    },
}

impl ValidationDecision {
    /// Message and reason, if the request is to be rejected.
    pub(crate) fn failure(&self) -> Option<(&str, StatusReason)> {
        match self {
            Self::Admit | Self::Ignored { .. } => None,
            Self::Deny { message, reason } => Some((message, *reason)),
            Self::Error { message } => Some((message, StatusReason::Invalid)),
        }
    }
}

// Constructors of denials, with the messages of the API server.
//
// `apimachinery/pkg/api/errors/errors.go`,
// `apiserver/pkg/admission/plugin/webhook/errors/statuserror.go`,
// `apiserver/pkg/util/webhook/error.go`.

/// The denial for a failed call of a webhook with `failurePolicy: Fail`.
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
        ..denial_for(StatusReason::InternalError)
    }
}

/// `NewDryRunUnsupportedErr`.
pub(crate) fn no_dry_run(webhook: &Webhook) -> Denial {
    Denial {
        message: format!("admission webhook \"{}\" does not support dry run", webhook.name),
        ..denial_for(StatusReason::BadRequest)
    }
}

/// `NewForbidden`.
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
        ..denial_for(StatusReason::Forbidden)
    }
}

/// `NewNotFound`, for a namespace.
pub(crate) fn unknown_namespace(name: &str, message: String) -> Denial {
    Denial {
        message,
        details: StatusDetails {
            name: name.to_owned(),
            kind: "namespaces".to_owned(),
            ..StatusDetails::default()
        },
        ..denial_for(StatusReason::NotFound)
    }
}

/// `NewTimeoutError`: the deadline of the request itself passed.
pub(crate) fn timeout() -> Denial {
    Denial {
        message: "Timeout: request did not complete within requested timeout".to_owned(),
        ..denial_for(StatusReason::Timeout)
    }
}

/// The denial for a webhook that was not called, because it has too many calls in flight. An API
/// server has no such limit, and would wait until the deadline.
pub(crate) fn call_limit_reached(webhook: &Webhook, why: &str) -> Denial {
    Denial {
        message: format!("Timeout: webhook \"{}\" was not called: {why}", webhook.name),
        ..denial_for(StatusReason::Timeout)
    }
}

/// The denial for a change by `by` that could not be made, whatever the failure policies.
pub(crate) fn change_failed(by: &str, error: &ChangeError) -> Denial {
    Denial {
        message: format!("{by}: {error}"),
        ..denial_for(error.reason())
    }
}

/// The denial for a review whose deadline passed, whatever the failure policies.
pub(crate) fn too_late(request: &Request<'_>) -> Denial {
    let message = "the deadline passed before every policy was evaluated".to_owned();
    denial(request, message, StatusReason::Timeout)
}

/// A denial that names the object, as `admission.NewForbidden` does.
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

fn denial_for(reason: StatusReason) -> Denial {
    Denial {
        status: Denial::FAILURE.into(),
        reason: reason.as_str().into(),
        code: reason.code().into(),
        message: String::new(),
        details: StatusDetails::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(texts: &[&str]) -> Vec<String> {
        let mut warnings = Warnings::default();
        texts.iter().for_each(|text| warnings.push(text));
        warnings.iter().map(str::to_owned).collect()
    }

    #[test]
    fn drops_repeated_empty_and_unprintable_texts() {
        assert_eq!(recorded(&["a", "", "a", "b\n", "é"]), ["a", "é"]);
    }

    #[test]
    fn cuts_every_text_once_all_are_too_long() {
        let (long, longer) = ("é".repeat(300), "x".repeat(4000));
        assert_eq!(recorded(&[&long]), [long.as_str()]);
        let cut = recorded(&[&long, &longer, "short"]);
        assert_eq!(cut, ["é".repeat(256), "x".repeat(256), "short".to_owned()]);
    }

    #[test]
    fn stops_at_the_bound() {
        let mut warnings = Warnings::default();
        for number in 0..10_000 {
            warnings.push(&format!("{number:>300}"));
        }
        let characters: usize = warnings.iter().map(|text| text.chars().count()).sum();
        assert!(characters < Warnings::TOTAL + Warnings::EACH, "{characters}");
    }
}
