//! The validating phase: policies, then all webhooks concurrently.
//!
//! ```text
//! policies ─▶ webhooks that match ─▶ all calls concurrently ─▶ the first denial, in their order
//! ```
//!
//! Follows `Dispatch` of `apiserver/pkg/admission/plugin/webhook/validating/dispatcher.go`, which
//! returns the denial that arrives first; here the denial does not depend on response times.

use std::sync::Arc;

use super::ask::{self, WebhookMatch};
use super::reply::{self, WebhookFailure, add_warnings_and_annotations, cause};
use crate::admission::candidates::ListedWebhook;
use crate::admission::exceptions::{self, ExceptionMatcher};
use crate::admission::run::{RunContext, TraceStep};
use crate::admission::webhook::{Call, Verdict, Webhook, WebhookCallResult, WebhookReply, WebhookResult};
use crate::admission::{
    AdmissionSet, ChangeError, Denial, Outcome, Phase, Request, RunOptions, StatusCause, StatusDetails,
    outcome,
};
use crate::authorization::{Authorization, Shadow};
use crate::model::{Attributes, Cause, Decision, StatusReason};

/// The state between the two steps.
#[derive(Debug, Clone)]
pub(crate) struct ValidatingPhase {
    /// The outcome of the policies.
    outcome: Outcome,
    match_webhooks: Vec<MatchedWebhook>,
}

/// A webhook that matched.
#[derive(Debug, Clone)]
struct MatchedWebhook {
    webhook: Arc<Webhook>,
    cause: Cause<'static>,
    /// Why it is not called, if so.
    failure: Option<WebhookFailure>,
}

// === impl ValidatingPhase ===

impl ValidatingPhase {
    /// Evaluates the policies, and adds the outcomes of the steps before: `begun` of
    /// [`enforce_authorization`] and [`validate_own_kinds`], `reviewed` of
    /// `reauthorization::review`.
    pub(crate) fn new(
        set: &AdmissionSet,
        context: RunContext<'_>,
        begun: Outcome,
        reviewed: Outcome,
    ) -> Self {
        let mut outcome = set.validate(context);
        outcome.evaluations.extend(reviewed.evaluations);
        outcome.policy_shadows = reviewed.policy_shadows;
        for warning in begun.warnings.iter() {
            outcome.warnings.push(warning);
        }
        outcome.policy_shadows.extend(begun.policy_shadows);
        Self {
            outcome,
            match_webhooks: Vec::new(),
        }
    }

    /// Matches the webhooks, and returns the calls to make; empty if the request is denied already.
    pub(crate) fn match_webhooks(&mut self, set: &AdmissionSet, context: RunContext<'_>) -> Vec<Call> {
        let RunContext { request, run, .. } = context;
        if self.outcome.denial.is_some() {
            return Vec::new();
        }
        if let Some(recorder) = run.recorder {
            set.validating_webhooks.record_others(request, run.only, recorder);
        }
        let mut calls = Vec::new();
        let candidates = set.validating_webhooks.candidates(request, run.only);
        for (_, listed) in &candidates {
            let call = match set.matches(listed, context, request.object) {
                Ok(WebhookMatch::NoMatch) => continue,
                Ok(WebhookMatch::Match(matched)) => ask::call(listed, request, matched),
                Ok(WebhookMatch::Error(failure)) => Err(failure),
                Err(_) if listed.is_shadow => continue,
                Err(denial) => {
                    self.outcome.denial = Some(*denial);
                    self.outcome.cause = Some(cause(Phase::Validate, listed));
                    break;
                }
            };
            calls.extend(self.ask(listed, call, context));
        }
        // Conditions may have failed because the deadline passed.
        if !candidates.is_empty() && run.deadline.has_passed() {
            (self.outcome.denial, self.outcome.cause) = (Some(outcome::timeout()), None);
        }
        if self.outcome.denial.is_some() {
            self.match_webhooks.clear();
            calls.clear();
        }
        calls
    }

    fn ask(
        &mut self,
        listed: &ListedWebhook,
        call: Result<Call, WebhookFailure>,
        context: RunContext<'_>,
    ) -> Option<Call> {
        let (call, failure) = match call {
            Ok(call) => (Some(call), None),
            Err(failure) => (None, Some(failure)),
        };
        if let Some(call) = &call {
            context.run.record(|| TraceStep::Called {
                call,
                is_shadow: listed.is_shadow,
            });
        }
        if listed.is_shadow {
            self.outcome.shadows.extend(call);
            return None;
        }
        self.match_webhooks.push(MatchedWebhook {
            webhook: Arc::clone(&listed.webhook),
            cause: cause(Phase::Validate, listed),
            failure,
        });
        call
    }

    /// Handles the results of the calls, and completes the outcome.
    pub(crate) fn complete(
        mut self,
        set: &AdmissionSet,
        context: RunContext<'_>,
        answers: Vec<WebhookCallResult>,
    ) -> Outcome {
        let mut answers = answers.into_iter();
        for (index, matched) in std::mem::take(&mut self.match_webhooks).into_iter().enumerate() {
            let answer = match matched.failure {
                None => answers.next(),
                Some(_) => None,
            };
            self.settle((set, context), index, matched, answer);
        }
        let Outcome {
            exceptions,
            audit_annotations,
            ..
        } = &mut self.outcome;
        exceptions::write_annotation(exceptions, audit_annotations);
        self.outcome
    }

    fn settle(
        &mut self,
        (set, context): (&AdmissionSet, RunContext<'_>),
        index: usize,
        matched: MatchedWebhook,
        answer: Option<WebhookCallResult>,
    ) {
        let MatchedWebhook {
            webhook,
            cause,
            failure,
        } = matched;
        let took = answer.as_ref().map(|answer| answer.took);
        let failure = match failure {
            Some(failure) => Some(failure),
            None => WebhookFailure::of_result(answer.map(|answer| answer.result))
                .and_then(|reply| self.take_reply(&webhook, &reply))
                .err(),
        };
        let result = WebhookResult {
            webhook: Arc::clone(&webhook),
            round: 0,
            index,
            verdict: failure
                .as_ref()
                .map_or(Verdict::Allowed, |failure| failure.verdict(&webhook)),
            changed: Vec::new(),
            took,
        };
        context.run.record(|| TraceStep::CallCompleted(&result));
        self.outcome.webhooks.push(result);
        let Some(failure) = failure else { return };
        if matches!(failure, WebhookFailure::Denial(_))
            && let Some(excused) = ExceptionMatcher::default().find(&webhook.id(), set, context)
        {
            return exceptions::add_excused(&mut self.outcome.exceptions, excused);
        }
        if failure.is_ignored(&webhook) {
            reply::validation_failed_open(&mut self.outcome.audit_annotations, index, &webhook);
        }
        if let (None, Some(denial)) = (&self.outcome.denial, failure.refusal(&webhook)) {
            self.outcome.denial = Some(denial);
            self.outcome.cause = Some(cause);
        }
    }

    fn take_reply(&mut self, webhook: &Webhook, reply: &WebhookReply) -> Result<(), WebhookFailure> {
        add_warnings_and_annotations(&mut self.outcome, webhook, reply);
        match &reply.denial {
            None => Ok(()),
            Some(denial) => Err(WebhookFailure::Denial(Box::new(denial.clone()))),
        }
    }
}

// Denies and Limits, for clusters whose API server uses no authorization webhook.

/// Applies Denies and Limits to a request if the set
/// [enforces](AdmissionSet::enforces_authorization) them, and returns the beginning of its outcome.
/// The request is denied if each of the [checks](Request::authorization_questions) that the API
/// server may have made would have been. Does nothing if the run is limited to one policy or
/// webhook configuration, or if the user is not known.
pub(crate) fn enforce_authorization(
    set: &AdmissionSet,
    request: &Request<'_>,
    run: RunOptions<'_>,
) -> Outcome {
    let mut outcome = Outcome::default();
    if !set.enforces_authorization || run.only.is_some() || run.requester_unknown {
        return outcome;
    }
    let questions = request.possible_authorization_checks();
    if questions.iter().any(Attributes::skips_authorization_webhook) {
        return outcome;
    }
    let answers = questions
        .iter()
        .map(|asked| run.access.refusal(asked, run.now, run.deadline));
    let answers: Vec<Authorization<'_>> = answers.collect();
    let is_in_all = |shadow: &Shadow| {
        let mut others = answers.iter();
        others.all(|answer| answer.shadow.iter().any(|other| other.name == shadow.name))
    };
    let Some(first) = answers.first() else {
        return outcome;
    };
    outcome.policy_shadows = first
        .shadow
        .iter()
        .filter(|shadow| is_in_all(shadow))
        .cloned()
        .collect();
    if answers.iter().all(|answer| answer.decision == Decision::Deny) {
        outcome.denial = Some(Denial::forbidden(first.reason.to_string()));
        outcome.cause = first.cause.clone().map(Cause::into_owned);
    }
    outcome
}

// Validation of Portcullis' own kinds.

/// Validates objects of Portcullis' own kinds, and adds the errors and warnings to `outcome`. Does
/// nothing if the run is limited to one policy or webhook configuration.
pub(crate) fn validate_own_kinds(request: &Request<'_>, run: RunOptions<'_>, outcome: &mut Outcome) {
    let validator = run.own_kinds.filter(|_| run.only.is_none());
    let Some(report) = validator.and_then(|validator| validator.validate(request, run)) else {
        return;
    };
    for warning in &report.warnings {
        outcome.warnings.push(warning);
    }
    outcome.awaits_role = report.awaits_role;
    if report.lacks_memory {
        outcome.denial = Some(Denial::too_many_requests(ChangeError::NoMemory.to_string()));
    } else if !report.faults.is_empty() {
        outcome.denial = Some(invalid(request, report.faults));
    } else if !report.forbidden.is_empty() {
        outcome.denial = Some(Denial::forbidden(report.forbidden.join("; ")));
    }
}

/// `NewInvalid` of `apimachinery/pkg/api/errors`.
fn invalid(request: &Request<'_>, causes: Vec<StatusCause>) -> Denial {
    let (kind, name) = (&request.request_kind, &request.name);
    let text = |cause: &StatusCause| format!("{}: {}", cause.field, cause.message);
    let texts: Vec<String> = causes.iter().map(text).collect();
    let faults = match texts.as_slice() {
        [only] => only.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    Denial {
        status: Denial::FAILURE.into(),
        reason: StatusReason::Invalid.as_str().into(),
        code: StatusReason::Invalid.code().into(),
        message: format!("{}.{} \"{name}\" is invalid: {faults}", kind.kind, kind.group),
        details: StatusDetails {
            name: name.to_string(),
            group: kind.group.to_string(),
            kind: kind.kind.to_string(),
            // kubectl prints the causes of an invalid object.
            causes,
            ..StatusDetails::default()
        },
    }
}
