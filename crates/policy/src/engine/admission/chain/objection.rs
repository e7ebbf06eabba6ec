//! Failed and refused calls: whether they refuse the request, and what is kept of a
//! reply.

use std::borrow::Cow;

use super::annotations;
use crate::engine::admission::phase::Phase;
use crate::engine::admission::policy::FailurePolicy;
use crate::engine::admission::status;
use crate::engine::admission::webhook::{CallFailure, ReviewVersion, Verdict, Webhook, WebhookReply};
use crate::engine::admission::webhooks::Listed;
use crate::engine::admission::{Denial, Outcome};
use crate::engine::{Cause, CauseKind};

/// Why a webhook does not simply allow a request.
#[derive(Debug, Clone)]
pub(crate) enum Objection {
    /// It refuses.
    Denial(Box<Denial>),
    /// It could not be asked or not be believed: under its failurePolicy.
    Call(String),
    /// The request is refused, whatever it said and its failurePolicy says.
    Fatal(Box<Denial>),
    /// The deadline of the request itself passed, likewise.
    Expired,
    /// There are too many calls already, likewise.
    NotMade(String),
}

// === impl Objection ===

impl Objection {
    /// What a call came to, if there was an answer at all.
    pub(crate) fn to(result: Option<Result<WebhookReply, CallFailure>>) -> Result<WebhookReply, Self> {
        match result {
            Some(Ok(reply)) => Ok(reply),
            Some(Err(CallFailure::Failed(why))) => Err(Self::Call(why)),
            Some(Err(CallFailure::RequestExpired)) => Err(Self::Expired),
            Some(Err(CallFailure::NotMade(why))) => Err(Self::NotMade(why)),
            None => Err(Self::Call("failed to call webhook: nobody answered".to_owned())),
        }
    }

    pub(crate) fn verdict(&self, webhook: &Webhook) -> Verdict {
        let message = match self {
            Self::Denial(denial) => return Verdict::Denied(denial.message.clone()),
            Self::Call(why) | Self::NotMade(why) => why.clone(),
            Self::Fatal(denial) => denial.message.clone(),
            Self::Expired => CallFailure::RequestExpired.to_string(),
        };
        Verdict::Failed {
            message,
            is_ignored: self.is_ignored(webhook),
        }
    }

    pub(crate) fn is_ignored(&self, webhook: &Webhook) -> bool {
        matches!(self, Self::Call(_)) && webhook.failure_policy == FailurePolicy::Ignore
    }

    /// What refuses the request; none if the failure is passed over.
    pub(crate) fn refusal(self, webhook: &Webhook) -> Option<Denial> {
        if self.is_ignored(webhook) {
            return None;
        }
        Some(match self {
            Self::Denial(denial) | Self::Fatal(denial) => *denial,
            Self::Call(why) => status::failed_call(webhook, &why),
            Self::Expired => status::timeout(),
            Self::NotMade(why) => status::not_made(webhook, &why),
        })
    }
}

/// Passes on what the webhook says beside its verdict, also when it refuses.
pub(crate) fn add_warnings_and_annotations(outcome: &mut Outcome, webhook: &Webhook, reply: &WebhookReply) {
    annotations::own(&mut outcome.audit_annotations, webhook, &reply.audit_annotations);
    for warning in &reply.warnings {
        outcome.warnings.push(warning);
    }
}

/// The webhook as what refused the request.
pub(crate) fn cause(phase: Phase, listed: &Listed) -> Cause<'static> {
    let is_alpha = listed.webhook.version == Some(ReviewVersion::V1alpha1);
    Cause {
        kind: match phase {
            _ if is_alpha => CauseKind::ExternalAdmissionHookConfiguration,
            Phase::Mutate => CauseKind::MutatingWebhookConfiguration,
            Phase::Validate => CauseKind::ValidatingWebhookConfiguration,
        },
        namespace: Cow::Borrowed(""),
        name: Cow::Owned(listed.webhook.configuration.clone()),
        rule: Some(listed.position),
    }
}
