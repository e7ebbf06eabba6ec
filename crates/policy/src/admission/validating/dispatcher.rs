//! Evaluates the ValidatingAdmissionPolicies that match a request, one after another.
//!
//! ```text
//! request ─▶ candidates ─▶ policy matches ─▶ each binding matches ─▶ each parameter
//!                                                                        │
//!       denial, warnings, audit annotations ◀── validationActions ◀── decisions
//! ```
//!
//! Follows `apiserver/pkg/admission/plugin/policy/validating/dispatcher.go`. Static policies run
//! first; otherwise policies run in the order of their names, which Kubernetes does not define.

use std::borrow::Cow;
use std::cell::{Cell, OnceCell};
use std::sync::Arc;

use super::{
    AnnotationBudget, Failures, PolicyAnnotations, ValidatingPolicy, ValidationDecision, ValidationResult,
};
use crate::admission::candidates::BoundPolicy;
use crate::admission::exceptions::{self, Exception, ExceptionMatcher};
use crate::admission::invocation::{
    InvocationError, as_sent, binding_matches, policy_matches, run_step, worse,
};
use crate::admission::matching::MatchedResource;
use crate::admission::run::{BindingDecision, RunContext, TraceStep};
use crate::admission::set::RequestNamespace;
use crate::admission::variables::{Inputs, RequestView};
use crate::admission::{
    AdmissionSet, Applicability, FailurePolicy, Outcome, PolicyBinding, PolicyEvaluation, ValidationAction,
    outcome,
};
use crate::model::{Cause, CauseKind, PolicyResult, StatusReason};
use portcullis_cel::json::Document;

const KIND: CauseKind = CauseKind::ValidatingAdmissionPolicy;

/// The cost between two checks of the deadline: some ten microseconds. Reading the clock takes as
/// long as a simple condition.
const COST_BETWEEN_DEADLINE_CHECKS: u64 = 512;

/// The cost of one policy, in addition to the cost of its expressions.
const COST_PER_POLICY: u64 = 64;

/// The effects of policies so far.
struct Dispatch<'d> {
    set: &'d AdmissionSet,
    context: RunContext<'d>,
    outcome: Outcome,
    failures: Failures,
    annotation_room: AnnotationBudget,
    excuses: ExceptionMatcher,
    /// The cost of the expressions of the current policy so far.
    spent: u64,
    /// The namespace of the request, looked up on first use.
    namespace: &'d OnceCell<RequestNamespace>,
}

// === impl AdmissionSet ===

impl AdmissionSet {
    /// Evaluates the ValidatingAdmissionPolicies.
    pub(crate) fn validate(&self, context: RunContext<'_>) -> Outcome {
        let RunContext { request, run, .. } = context;
        let mut dispatch = Dispatch {
            set: self,
            context,
            outcome: Outcome::default(),
            failures: Failures::default(),
            annotation_room: AnnotationBudget::default(),
            excuses: ExceptionMatcher::default(),
            spent: 0,
            namespace: &OnceCell::new(),
        };
        if request.request_resource.is_virtual() {
            return dispatch.outcome;
        }
        if let Some(recorder) = run.recorder {
            self.validating.record_others(KIND, request, run.only, recorder);
        }
        let mut until_look = 0;
        for (place, bound) in self.validating.candidates(request, run.only) {
            if until_look == 0 && run.deadline.has_passed() {
                break;
            }
            let result = self.validate_one(bound, &mut dispatch);
            let cost = std::mem::take(&mut dispatch.spent);
            dispatch.outcome.evaluations.push(PolicyEvaluation {
                kind: KIND,
                place,
                result,
                cost,
            });
            until_look = match until_look {
                0 => COST_BETWEEN_DEADLINE_CHECKS,
                left => left,
            };
            until_look = until_look.saturating_sub(cost.saturating_add(COST_PER_POLICY));
        }
        let Dispatch {
            mut outcome,
            failures,
            annotation_room,
            ..
        } = dispatch;
        failures.publish(&mut outcome.audit_annotations);
        annotation_room.publish(&mut outcome.audit_annotations);
        if run.deadline.has_passed() {
            (outcome.denial, outcome.cause) = (Some(outcome::too_late(request)), None);
        }
        outcome
    }

    /// The names of the bound policies. `place` in [`Outcome::evaluations`] is an index in this
    /// order.
    pub fn validating_policies(&self) -> impl Iterator<Item = &str> {
        self.validating.names()
    }

    fn validate_one(
        &self,
        bound: &BoundPolicy<ValidatingPolicy>,
        dispatch: &mut Dispatch<'_>,
    ) -> PolicyResult {
        let policy = &*bound.policy;
        let RunContext { request, run, .. } = dispatch.context;
        let subject = self.subject(request, request.object);
        let matched = match policy_matches(KIND, &policy.applicability, subject, run) {
            Ok(Some(matched)) => matched,
            Ok(None) => return PolicyResult::NoMatch,
            Err(why) => return dispatch.unusable(&policy.applicability, None, &why),
        };
        let mut evaluation = PolicyResult::NoMatch;
        let mut annotations = PolicyAnnotations::default();
        for binding in bound.bindings_for(request) {
            let one = self
                .validate_binding(policy, binding, &matched, (&mut *dispatch, &mut annotations))
                .unwrap_or_else(|why| dispatch.unusable(&policy.applicability, Some(binding), &why));
            evaluation = worse(evaluation, one);
        }
        annotations.publish(
            &policy.applicability.name,
            &mut dispatch.outcome.audit_annotations,
        );
        evaluation
    }

    fn validate_binding(
        &self,
        policy: &ValidatingPolicy,
        binding: &PolicyBinding,
        matched: &MatchedResource<'_>,
        (dispatch, annotations): (&mut Dispatch<'_>, &mut PolicyAnnotations),
    ) -> Result<PolicyResult, InvocationError> {
        let context = dispatch.context;
        let RunContext { request, access, run } = context;
        if !binding_matches(binding, self.subject(request, request.object), run)? {
            return Ok(PolicyResult::NoMatch);
        }
        let params = self.parameters_of(&policy.applicability, binding, context)?;
        if params.is_empty() {
            return Ok(PolicyResult::NoMatch);
        }
        as_sent(binding, matched, context).map_err(InvocationError::Version)?;
        let namespace = dispatch.namespace.get_or_init(|| self.namespace_of(request));
        let view = RequestView::new(request, matched).with_unknown_requester(run.requester_unknown);
        let condition_view =
            RequestView::for_conditions(request, matched).with_unknown_requester(run.requester_unknown);
        let mut evaluation = PolicyResult::NoMatch;
        for (place, param) in params.iter().enumerate() {
            // For the first parameter, the deadline was checked before the policy.
            if place > 0 && run.deadline.has_passed() {
                break;
            }
            let spent = Cell::new(0);
            let inputs = Inputs {
                object: request.object,
                old_object: request.old_object,
                request: &view,
                params: param.as_deref().map(Document::root),
                namespace: namespace.as_variable(),
                access,
                recorder: run.recorder,
                spent: &spent,
            };
            run.record(|| run_step(&policy.applicability, binding, inputs.params));
            let validated = policy.validate(&inputs, &condition_view, run.deadline);
            dispatch.spent += spent.get();
            evaluation = worse(evaluation, validated.evaluation());
            dispatch.apply_binding(policy, binding, &validated, annotations);
        }
        Ok(evaluation)
    }
}

// === impl Dispatch ===

impl Dispatch<'_> {
    /// Applies the actions of a binding to the results of its policy.
    fn apply_binding(
        &mut self,
        policy: &ValidatingPolicy,
        binding: &PolicyBinding,
        validated: &ValidationResult,
        annotations: &mut PolicyAnnotations,
    ) {
        let name = &policy.applicability.name;
        for (index, decision) in validated.decisions.iter().enumerate() {
            let exception = self.apply_actions(&policy.applicability, binding, (index, decision));
            self.context.run.record(|| {
                TraceStep::Decided(BindingDecision {
                    policy: name,
                    binding: Some(&binding.name),
                    index: Some(index),
                    decision,
                    actions: &binding.actions,
                    exception: exception.as_deref(),
                })
            });
        }
        for failure in annotations.take(&validated.annotations, &mut self.annotation_room) {
            let error = ValidationDecision::Error {
                message: failure.clone(),
            };
            self.record_error(name, Some(binding), &error);
            self.deny(
                &policy.applicability,
                Some(binding),
                &failure,
                StatusReason::Invalid,
                None,
            );
        }
    }

    /// Applies `validationActions` if the validation does not hold. Returns the exception that
    /// excuses it, if any.
    fn apply_actions(
        &mut self,
        policy: &Applicability,
        binding: &PolicyBinding,
        (index, decision): (usize, &ValidationDecision),
    ) -> Option<Arc<Exception>> {
        let (message, reason) = decision.failure()?;
        let mut exception = None;
        for action in &binding.actions {
            match action {
                ValidationAction::Deny => {
                    exception = self.excuse(policy, decision);
                    if exception.is_none() {
                        self.deny(policy, Some(binding), message, reason, Some(index));
                    }
                }
                ValidationAction::Warn => self.warn(policy, binding, message),
                ValidationAction::Audit => {
                    self.failures
                        .push(binding, (index, message), &mut self.annotation_room);
                }
            }
        }
        exception
    }

    /// Returns the exception that excuses a failed validation. Errors are never excused.
    fn excuse(&mut self, policy: &Applicability, decision: &ValidationDecision) -> Option<Arc<Exception>> {
        if !matches!(decision, ValidationDecision::Deny { .. }) {
            return None;
        }
        let excused = self.excuses.find(&policy.name, self.set, self.context)?;
        let exception = Arc::clone(&excused.exception);
        exceptions::add_excused(&mut self.outcome.exceptions, excused);
        Some(exception)
    }

    /// Records an error that concerns more than one validation.
    fn record_error(&self, policy: &str, binding: Option<&PolicyBinding>, decision: &ValidationDecision) {
        self.context.run.record(|| {
            TraceStep::Decided(BindingDecision {
                policy,
                binding: binding.map(|binding| binding.name.as_str()),
                index: None,
                decision,
                actions: &[ValidationAction::Deny],
                exception: None,
            })
        });
    }

    fn warn(&mut self, policy: &Applicability, binding: &PolicyBinding, message: &str) {
        self.outcome.warnings.push(&format!(
            "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {message}",
            policy.name, binding.name
        ));
    }

    fn unusable(
        &mut self,
        policy: &Applicability,
        binding: Option<&PolicyBinding>,
        why: &InvocationError,
    ) -> PolicyResult {
        let message = why.to_string();
        let decision = match policy.failure_policy {
            FailurePolicy::Fail => ValidationDecision::Error { message },
            FailurePolicy::Ignore => ValidationDecision::Ignored { message },
        };
        self.record_error(&policy.name, binding, &decision);
        if policy.failure_policy == FailurePolicy::Fail {
            self.deny(policy, binding, &why.to_string(), StatusReason::Invalid, None);
        }
        PolicyResult::Error
    }

    /// Denies the request. The first denial is the one that is returned.
    fn deny(
        &mut self,
        policy: &Applicability,
        binding: Option<&PolicyBinding>,
        message: &str,
        reason: StatusReason,
        rule: Option<usize>,
    ) {
        if self.outcome.denial.is_some() {
            return;
        }
        let name = &policy.name;
        let message = match binding {
            Some(binding) => format!(
                "ValidatingAdmissionPolicy '{name}' with binding '{}' denied request: {message}",
                binding.name
            ),
            None => format!("ValidatingAdmissionPolicy '{name}' denied request: {message}"),
        };
        self.outcome.denial = Some(outcome::denial(self.context.request, message, reason));
        self.outcome.cause = Some(Cause {
            kind: CauseKind::ValidatingAdmissionPolicy,
            namespace: Cow::Borrowed(""),
            name: Cow::Owned(name.clone()),
            rule,
        });
    }
}

// === impl ValidationResult ===

impl ValidationResult {
    fn evaluation(&self) -> PolicyResult {
        let failed = |decision: &ValidationDecision| {
            matches!(
                decision,
                ValidationDecision::Error { .. } | ValidationDecision::Ignored { .. }
            )
        };
        if self.decisions.iter().any(failed) {
            PolicyResult::Error
        } else if self.decisions.is_empty() && self.annotations.is_empty() {
            PolicyResult::NoMatch
        } else {
            PolicyResult::Match
        }
    }
}
