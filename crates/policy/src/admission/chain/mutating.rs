//! The mutating phase: policies, webhooks, reinvocation and initializers, and the patch.
//!
//! ```text
//! pass 0: policies ─▶ webhook ─▶ webhook ─▶ …        each sees the object as changed so far
//!                        │ if the object changed
//! pass 1: policies ─▶ webhooks with IfNeeded after which the object changed
//!                        │
//!         initializers ─▶ the patch from the object received to the object now
//! ```
//!
//! Follows `Dispatch` of `apiserver/pkg/admission/plugin/webhook/mutating/dispatcher.go`, and
//! `apiserver/pkg/admission/reinvocation.go`.

use std::sync::Arc;
use std::time::Duration;

use super::ask::{self, WebhookMatch};
use super::reply::{self, PatchedObject, WebhookFailure, add_warnings_and_annotations, cause};
use crate::admission::access_requests::is_access_request_write;
use crate::admission::candidates::ListedWebhook;
use crate::admission::changes::{ChangeError, ChangedObject};
use crate::admission::mutating::MutationState;
use crate::admission::run::{RunContext, TraceStep};
use crate::admission::webhook::{
    Call, Reinvocation, ReinvocationState, Verdict, Webhook, WebhookCallResult, WebhookReply, WebhookResult,
};
use crate::admission::{AdmissionSet, Denial, Outcome, Phase, access_requests, outcome};
use crate::model::Cause;
use portcullis_cel::json::{Node, diff, patch as json_patch};

/// The state between two steps.
#[derive(Debug, Clone)]
pub(crate) struct MutatingPhase {
    policies: MutationState,
    webhooks: ReinvocationState<usize>,
    stage: MutatingStage,
    /// 0 in the first pass, 1 in the second (reinvocation).
    round: usize,
    /// The webhooks that could match, with their positions.
    candidates: Option<Vec<(usize, Arc<ListedWebhook>)>>,
    /// The call in flight.
    asked: Option<PendingCall>,
    /// Whether anything changed the object, so that there is a second pass.
    is_changed: bool,
    /// In the second pass: the object after the webhooks of the first; `None` if it is as received.
    last_output: Option<Arc<ChangedObject>>,
    outcome: Outcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MutatingStage {
    Policies,
    /// The index of the next candidate.
    Webhooks(usize),
    Initializers,
    End,
}

#[derive(Debug, Clone)]
struct PendingCall {
    place: usize,
    cause: Cause<'static>,
    call: Call,
}

// === impl MutatingPhase ===

impl MutatingPhase {
    pub(crate) fn new() -> Self {
        Self {
            policies: MutationState::new(),
            webhooks: ReinvocationState::new(),
            stage: MutatingStage::Policies,
            round: 0,
            candidates: None,
            asked: None,
            is_changed: false,
            last_output: None,
            outcome: Outcome::default(),
        }
    }

    /// Runs to the next call of a webhook, or to the end.
    pub(crate) fn advance(&mut self, set: &AdmissionSet, context: RunContext<'_>) -> Option<Call> {
        while self.stage != MutatingStage::End && self.outcome.denial.is_none() {
            if context.run.deadline.has_passed() {
                self.outcome.denial = Some(outcome::too_late(context.request));
                break;
            }
            match self.stage {
                MutatingStage::Policies => self.policies(set, context),
                MutatingStage::Webhooks(next) => {
                    if let Some(call) = self.webhook(next, set, context) {
                        return Some(call);
                    }
                }
                MutatingStage::Initializers => self.initializers(set, context),
                MutatingStage::End => {}
            }
        }
        None
    }

    fn policies(&mut self, set: &AdmissionSet, context: RunContext<'_>) {
        self.is_changed |= set.mutate(&mut self.policies, context, self.round > 0);
        self.stage = MutatingStage::Webhooks(0);
        self.refuse_by_policies(context);
        if self.round > 0 && self.is_other_than_last_output(context) {
            self.webhooks.require();
        }
    }

    fn refuse_by_policies(&mut self, context: RunContext<'_>) {
        if let Some((denial, cause)) = self.policies.refusal(context.request) {
            self.refuse(denial, Some(cause));
        }
    }

    /// `IsOutputChangedSinceLastWebhookInvocation`.
    fn is_other_than_last_output(&self, context: RunContext<'_>) -> bool {
        let last = self.last_output.as_ref().map(|object| object.root());
        match (
            last.or(context.request.object),
            self.policies.object_of(context.request),
        ) {
            (Some(last), Some(now)) => !last.same(now),
            (last, now) => last.is_some() != now.is_some(),
        }
    }

    /// Matches one webhook, and returns the call if there is one to make.
    fn webhook(&mut self, next: usize, set: &AdmissionSet, context: RunContext<'_>) -> Option<Call> {
        let RunContext { request, run, .. } = context;
        let candidates = self.candidates.get_or_insert_with(|| {
            if let Some(recorder) = run.recorder {
                set.mutating_webhooks.record_others(request, run.only, recorder);
            }
            set.mutating_webhooks.candidates(request, run.only)
        });
        let Some((place, listed)) = candidates.get(next).cloned() else {
            self.end_of_pass(context);
            return None;
        };
        self.stage = MutatingStage::Webhooks(next + 1);
        let listed = &*listed;
        // A webhook in shadow mode is called only in the first pass.
        if self.round > 0 && listed.is_shadow {
            return None;
        }
        // A webhook that is not called again is matched nevertheless, because an error of matching
        // denies the request.
        let is_to_run = self.round == 0 || self.webhooks.is_required(&place);
        let recorded = if is_to_run { context } else { context.unrecorded() };
        let matched = match set.matches(listed, recorded, self.policies.object_of(request)) {
            Ok(WebhookMatch::NoMatch) => return None,
            Ok(WebhookMatch::Match(matched)) => Ok(matched),
            Ok(WebhookMatch::Error(failure)) => Err(failure),
            Err(_) if listed.is_shadow => return None,
            // The conditions failed because the deadline passed; the next step returns that error.
            Err(_) if run.deadline.has_passed() => return None,
            Err(denial) => {
                self.refuse(*denial, Some(cause(Phase::Mutate, listed)));
                return None;
            }
        };
        if !is_to_run {
            return None;
        }
        let call = matched.and_then(|matched| ask::call(listed, request, matched));
        self.ask(place, listed, call, context)
    }

    fn ask(
        &mut self,
        place: usize,
        listed: &ListedWebhook,
        call: Result<Call, WebhookFailure>,
        context: RunContext<'_>,
    ) -> Option<Call> {
        let is_shadow = listed.is_shadow;
        match call {
            Ok(call) => {
                let object = self.policies.object.clone();
                let call = Call { object, ..call };
                let step = || TraceStep::Called {
                    call: &call,
                    is_shadow,
                };
                context.run.record(step);
                if is_shadow {
                    self.outcome.shadows.push(call);
                    return None;
                }
                let cause = cause(Phase::Mutate, listed);
                self.asked = Some(PendingCall {
                    place,
                    cause,
                    call: call.clone(),
                });
                Some(call)
            }
            Err(_) if is_shadow => None,
            Err(failure) => {
                let cause = cause(Phase::Mutate, listed);
                self.record_result(context, (place, cause), &listed.webhook, Err(failure), None);
                None
            }
        }
    }

    /// Starts the second pass if anything changed the object. Even if nothing is to be reinvoked,
    /// conditions may fail for the changed object.
    fn end_of_pass(&mut self, context: RunContext<'_>) {
        if self.round > 0 || !self.is_changed {
            self.stage = MutatingStage::Initializers;
            return;
        }
        self.round = 1;
        self.last_output.clone_from(&self.policies.object);
        self.stage = MutatingStage::Policies;
        if self.policies.are_to_run_again() | self.webhooks.is_any_required() {
            context.run.record(|| TraceStep::Reinvocation);
        }
    }

    fn initializers(&mut self, set: &AdmissionSet, context: RunContext<'_>) {
        self.stage = MutatingStage::End;
        if context.run.only.is_none() {
            set.initialize(&mut self.policies, context);
            self.refuse_by_policies(context);
        }
    }

    // === results of calls ===

    /// Handles the result of the call in flight.
    pub(crate) fn complete_call(&mut self, context: RunContext<'_>, answer: Option<WebhookCallResult>) {
        let Some(PendingCall { place, cause, call }) = self.asked.take() else {
            return;
        };
        let (result, took) = match answer {
            Some(WebhookCallResult { result, took }) => (Some(result), Some(took)),
            None => (None, None),
        };
        let result =
            WebhookFailure::of_result(result).and_then(|reply| self.take_reply(&call, &reply, context));
        self.record_result(context, (place, cause), &call.webhook, result, took);
    }

    /// Returns the object after the patch of the response, if the response allows the request.
    fn take_reply(
        &mut self,
        call: &Call,
        reply: &WebhookReply,
        context: RunContext<'_>,
    ) -> Result<Option<PatchedObject>, WebhookFailure> {
        add_warnings_and_annotations(&mut self.outcome, &call.webhook, reply);
        if let Some(denial) = &reply.denial {
            return Err(WebhookFailure::Denial(Box::new(denial.clone())));
        }
        let object = self.policies.object.clone();
        let object = object
            .as_ref()
            .map(|object| object.root())
            .or(context.request.object);
        let mut patched = reply::patched(call, reply, object, context.limits(), &mut self.policies.budget)?;
        if let Some(patched) = &mut patched {
            let is_first = !std::mem::replace(&mut self.policies.is_decoded, true);
            patched.is_changed |= is_first && reply::has_new_managed_fields(context.request);
        }
        Ok(patched)
    }

    fn record_result(
        &mut self,
        context: RunContext<'_>,
        (place, cause): (usize, Cause<'static>),
        webhook: &Arc<Webhook>,
        result: Result<Option<PatchedObject>, WebhookFailure>,
        took: Option<Duration>,
    ) {
        let at = (self.round, place);
        let (patched, failure) = match result {
            Ok(patched) => (patched, None),
            Err(failure) => (None, Some(failure)),
        };
        let result = WebhookResult {
            webhook: Arc::clone(webhook),
            round: self.round,
            index: place,
            verdict: failure
                .as_ref()
                .map_or(Verdict::Allowed, |failure| failure.verdict(webhook)),
            changed: self.paths(context, patched.as_ref()),
            took,
        };
        context.run.record(|| TraceStep::CallCompleted(&result));
        let is_changed = patched.as_ref().is_some_and(|patched| patched.is_changed);
        reply::annotate_mutation(&mut self.outcome.audit_annotations, at, webhook, is_changed);
        reply::annotate_paths(&mut self.outcome.audit_annotations, at, webhook, &result.changed);
        self.outcome.webhooks.push(result);
        if let Some(PatchedObject { object, .. }) = patched {
            self.policies.record_change(context, &object);
            self.policies.object = Some(object);
        }
        self.note_for_reinvocation(place, webhook, is_changed);
        let Some(failure) = failure else { return };
        if failure.is_ignored(webhook) {
            reply::annotate_failed_open(&mut self.outcome.audit_annotations, at, webhook);
        }
        if let Some(denial) = failure.refusal(webhook) {
            self.refuse(denial, Some(cause));
        }
    }

    fn paths(&self, context: RunContext<'_>, patched: Option<&PatchedObject>) -> Vec<String> {
        let before = self.policies.object_of(context.request);
        match (before, patched) {
            (Some(before), Some(patched)) => reply::changed_paths(before, patched.object.root()),
            _ => Vec::new(),
        }
    }

    /// Notes what reinvocation depends on, even for a call that failed.
    fn note_for_reinvocation(&mut self, place: usize, webhook: &Webhook, is_changed: bool) {
        if is_changed {
            self.is_changed = true;
            self.webhooks.require();
        }
        if webhook.reinvocation == Reinvocation::IfNeeded {
            self.webhooks.ran(place);
        }
    }

    fn refuse(&mut self, denial: Denial, cause: Option<Cause<'static>>) {
        self.outcome.denial = Some(denial);
        self.outcome.cause = cause;
    }

    // === end ===

    pub(crate) fn outcome(mut self, context: RunContext<'_>) -> Outcome {
        let mut outcome = self.outcome;
        outcome.evaluations = self.policies.evaluations();
        if outcome.denial.is_some() {
            return outcome;
        }
        if let Err(error) = author(&mut self.policies, context) {
            outcome.denial = Some(Denial::too_many_requests(error.to_string()));
            return outcome;
        }
        if let (Some(before), Some(after)) = (context.request.object, &self.policies.object) {
            let operations = diff(before, after.root());
            if !operations.is_empty() {
                outcome.patch = json_patch::write(&operations);
            }
        }
        outcome
    }
}

/// Sets authors and times of an AccessRequest, after all other changes.
fn author(state: &mut MutationState, context: RunContext<'_>) -> Result<(), ChangeError> {
    let RunContext { request, run, .. } = context;
    if run.only.is_some() || run.requester_unknown || !is_access_request_write(request) {
        return Ok(());
    }
    let authored = |object: Node<'_>| access_requests::with_authors(request, object.raw(), run.now);
    if let Some(text) = state.object_of(request).and_then(authored) {
        let object = context.limits().object(text)?;
        state.record_change(context, &object);
        state.object = Some(object);
    }
    Ok(())
}
