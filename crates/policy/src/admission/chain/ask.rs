//! Decides whether a webhook is called, and with which object and version.
//!
//! ```text
//! selectors, rules ─▶ version of the object ─▶ matchConditions ─▶ dry run ─▶ version of the review
//! ```
//!
//! Follows `ShouldCallHook` of `apiserver/pkg/admission/plugin/webhook/generic/webhook.go` and the
//! beginnings of `callAttrMutatingHook` and `callHook`.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use super::reply::{self, WebhookFailure};
use crate::admission::candidates::ListedWebhook;
use crate::admission::changes::{ChangeLimits, ObjectMemory};
use crate::admission::invocation::match_finding;
use crate::admission::matching::{MatchError, MatchedResource};
use crate::admission::run::{RunContext, TraceStep};
use crate::admission::variables::{Inputs, MatchConditions, NamespaceObject, RequestView};
use crate::admission::webhook::{Call, SideEffects, Verdict, Webhook, WebhookCallResult};
use crate::admission::{AdmissionSet, Denial, Request, outcome};
use portcullis_cel::json::Node;
use portcullis_cel::json::patch::PatchBudget;

/// Whether a webhook has to be called.
pub(crate) enum WebhookMatch {
    /// It does not match.
    NoMatch,
    /// It matches, by this resource.
    Match(MatchedResource<'static>),
    /// It matches, but cannot be called.
    Error(WebhookFailure),
}

impl AdmissionSet {
    /// Whether the webhook matches this request, with the object as changed so far.
    ///
    /// # Errors
    ///
    /// A denial of the request, whatever `failurePolicy` says.
    pub(crate) fn matches(
        &self,
        listed: &ListedWebhook,
        context: RunContext<'_>,
        object: Option<Node<'_>>,
    ) -> Result<WebhookMatch, Box<Denial>> {
        let webhook = &*listed.webhook;
        let subject = self.subject(context.request, object);
        let found = webhook.constraints.matches(subject);
        context.run.record(|| TraceStep::Webhook {
            webhook,
            finding: match_finding(&webhook.constraints, subject, &found),
        });
        let matched = match found {
            Ok(Some(matched)) => matched,
            Ok(None) => return Ok(WebhookMatch::NoMatch),
            Err(fault) => return Err(Box::new(refusal(&fault))),
        };
        if let Err(fault) = matched.as_sent(context.request) {
            return Ok(WebhookMatch::Error(WebhookFailure::Call(unconverted(&fault))));
        }
        match self.conditions(webhook, context, &matched, object) {
            MatchConditions::Match => Ok(WebhookMatch::Match(matched.into_owned())),
            MatchConditions::NoMatch(_) => Ok(WebhookMatch::NoMatch),
            MatchConditions::Error(why) => Err(Box::new(outcome::forbidden(context.request, &why))),
        }
    }

    fn conditions(
        &self,
        webhook: &Webhook,
        context: RunContext<'_>,
        matched: &MatchedResource<'_>,
        object: Option<Node<'_>>,
    ) -> MatchConditions {
        let view = RequestView::for_conditions(context.request, matched);
        let inputs = Inputs {
            object,
            old_object: context.request.old_object,
            request: &view,
            params: None,
            namespace: NamespaceObject::Null,
            access: context.access,
            recorder: context.run.recorder,
            // The cost is reported only for policies.
            spent: &Cell::new(0),
        };
        let Webhook {
            match_conditions,
            failure_policy,
            ..
        } = webhook;
        MatchConditions::evaluate(
            match_conditions,
            *failure_policy,
            &self.webhook_environment,
            &inputs,
            context.run.deadline,
        )
    }
}

/// Creates the call of a webhook that matched, without the object.
pub(crate) fn call(
    listed: &ListedWebhook,
    request: &Request<'_>,
    matched: MatchedResource<'static>,
) -> Result<Call, WebhookFailure> {
    let webhook = &listed.webhook;
    if request.dry_run {
        match webhook.side_effects {
            None => return Err(WebhookFailure::Call("Webhook SideEffects is nil".to_owned())),
            Some(SideEffects::None | SideEffects::NoneOnDryRun) => {}
            Some(SideEffects::Some | SideEffects::Unknown) => {
                return Err(WebhookFailure::Fatal(Box::new(outcome::no_dry_run(webhook))));
            }
        }
    }
    let Some(version) = webhook.version else {
        let why = "could not create admission objects: webhook does not accept known AdmissionReview \
                   versions (v1, v1beta1)";
        return Err(WebhookFailure::Call(why.to_owned()));
    };
    let (resource, kind) = matched.into_parts();
    Ok(Call {
        webhook: webhook.clone(),
        version,
        kind,
        resource,
        object: None,
    })
}

/// Portcullis cannot convert objects, so it can send a webhook only the version that the API server
/// sent.
fn unconverted(fault: &MatchError) -> String {
    match fault {
        MatchError::OtherVersion { wanted, sent } => format!(
            "could not convert the object: the webhook is for {wanted} and the API server sent {sent}; \
            request {wanted} in the rules of this gateway's webhook configuration, so that the API server \
            converts the object, or {sent} in those of the webhook"
        ),
        other => other.to_string(),
    }
}

fn refusal(fault: &MatchError) -> Denial {
    match fault {
        MatchError::UnknownNamespace { name } => outcome::unknown_namespace(name, fault.to_string()),
        other => outcome::internal(other.to_string()),
    }
}

// Responses of webhooks in shadow mode.

/// What a webhook in shadow mode would have done.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// The webhook.
    pub webhook: Arc<Webhook>,
    /// Its verdict; a failure that its `failurePolicy` ignores allows the request.
    pub verdict: Verdict,
    /// The paths that it would have changed in the object as it was at its position in the chain.
    pub changed: Vec<String>,
    /// The duration of the call.
    pub took: Duration,
}

/// Evaluates the response to one of [`Outcome::shadows`](crate::admission::Outcome::shadows) of a
/// run for this request, within the budget of `memory`.
#[must_use]
pub fn shadow_result(
    call: &Call,
    request: &Request<'_>,
    answer: WebhookCallResult,
    memory: Option<&dyn ObjectMemory>,
) -> Comparison {
    let webhook = Arc::clone(&call.webhook);
    let object = call
        .object
        .as_ref()
        .map(|object| object.root())
        .or(request.object);
    let limits = ChangeLimits::of(request, memory);
    let judged = WebhookFailure::of_result(Some(answer.result)).and_then(|reply| match &reply.denial {
        Some(denial) => Err(WebhookFailure::Denial(Box::new(denial.clone()))),
        None => reply::patched(call, &reply, object, limits, &mut PatchBudget::new()),
    });
    let (verdict, changed) = match judged {
        Err(failure) => (failure.verdict(&webhook), Vec::new()),
        Ok(patched) => {
            let paths = object
                .zip(patched.as_ref())
                .map(|(object, patched)| reply::changed_paths(object, patched.object.root()));
            (Verdict::Allowed, paths.unwrap_or_default())
        }
    };
    Comparison {
        webhook,
        verdict,
        changed,
        took: answer.took,
    }
}

// === impl Comparison ===

impl Comparison {
    /// Whether it would have allowed the request.
    #[must_use]
    pub const fn allows(&self) -> bool {
        match &self.verdict {
            Verdict::Allowed => true,
            Verdict::Denied(_) => false,
            Verdict::Failed { is_ignored, .. } => *is_ignored,
        }
    }

    /// Why it would have denied the request, or failed; empty if it allows the request.
    #[must_use]
    pub fn reason(&self) -> &str {
        match &self.verdict {
            Verdict::Allowed => "",
            Verdict::Denied(message) | Verdict::Failed { message, .. } => message,
        }
    }
}
