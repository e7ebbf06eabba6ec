//! The state of the mutating phase between two steps of a run.

use std::borrow::Cow;
use std::sync::Arc;

use crate::engine::StatusReason;
use crate::engine::admission::changes::{ChangeError, ChangedObject};
use crate::engine::admission::invocation::worse;
use crate::engine::admission::reinvocation::Reinvocable;
use crate::engine::admission::run::RunContext;
use crate::engine::admission::trace::TraceStep;
use crate::engine::admission::{Denial, PolicyEvaluation, Request, StatusCause, status};
use crate::engine::{Cause, CauseKind, PolicyResult};
use portcullis_cel::json::patch::{self, PatchBudget};
use portcullis_cel::json::{Document, Node, diff};

/// Place of the policy, binding, parameter.
type InvocationKey = (usize, String, usize);

/// What the policies have done so far, over both passes. It outlives a step of
/// the run.
#[derive(Debug, Clone)]
pub(crate) struct MutationState {
    /// The object after the last change; none yet.
    pub(crate) object: Option<Arc<ChangedObject>>,
    /// Whether a patch or a configuration was applied, so that the object was read from JSON.
    pub(crate) is_decoded: bool,
    /// What the patches of policies and webhooks may still take.
    pub(crate) budget: PatchBudget,
    pub(crate) refusals: Vec<PolicyRefusal>,
    /// What ends the request whatever failure policies say.
    pub(crate) failure: Option<PolicyFailure>,
    evaluations: Vec<PolicyEvaluation>,
    pub(crate) invocations: Reinvocable<InvocationKey>,
}

/// A change that was not made, and whose policy would have made it.
#[derive(Debug, Clone)]
pub(crate) struct PolicyFailure {
    pub(crate) policy: String,
    pub(crate) error: ChangeError,
}

/// Why a policy whose failure policy is Fail could not run.
#[derive(Debug, Clone)]
pub(crate) struct PolicyRefusal {
    pub(crate) policy: String,
    pub(crate) message: String,
    pub(crate) reason: StatusReason,
}

// === impl MutationState ===

impl MutationState {
    pub(crate) const fn new() -> Self {
        Self {
            object: None,
            is_decoded: false,
            budget: PatchBudget::new(),
            refusals: Vec::new(),
            failure: None,
            evaluations: Vec::new(),
            invocations: Reinvocable::new(),
        }
    }

    /// The object as it is now.
    pub(crate) fn object_of<'o>(&'o self, request: &Request<'o>) -> Option<Node<'o>> {
        self.object
            .as_ref()
            .map(|object| object.root())
            .or(request.object)
    }

    /// Whether any policy is to run in the second pass: then all that want to see changes, for
    /// upstream reports them at the end of a pass even of their own.
    pub(crate) fn are_to_run_again(&mut self) -> bool {
        self.invocations.require();
        self.invocations.is_any_required()
    }

    /// Passes to a recorder what the object is about to become.
    pub(crate) fn record_change(&self, context: RunContext<'_>, after: &Document<'_>) {
        let before = self.object_of(context.request);
        context.run.record(|| {
            let operations = before
                .map(|before| diff(before, after.root()))
                .unwrap_or_default();
            TraceStep::Changed {
                patch: patch::write(&operations),
            }
        });
    }

    /// Why the request is refused, if it is.
    pub(crate) fn refusal(&self, request: &Request<'_>) -> Option<(Denial, Cause<'static>)> {
        let cause = |policy: &str| Cause {
            kind: CauseKind::MutatingAdmissionPolicy,
            namespace: Cow::Borrowed(""),
            name: Cow::Owned(policy.to_owned()),
            rule: None,
        };
        if let Some(PolicyFailure { policy, error }) = &self.failure {
            let refusal = match error {
                ChangeError::Undecodable(why) => status::internal(why.clone()),
                error => status::unchanged(&format!("policy '{policy}' denied request"), error),
            };
            return Some((refusal, cause(policy)));
        }
        let first = self.refusals.first()?;
        let mut refusal = status::denial(request, first.message.clone(), first.reason);
        // Whatever the reason, upstream answers these as forbidden.
        refusal.code = StatusReason::Forbidden.code().into();
        let causes = self.refusals.iter().map(|fault| StatusCause::of(&fault.message));
        refusal.details.causes = causes.collect();
        Some((refusal, cause(&first.policy)))
    }

    /// What each policy came to, by its place.
    pub(crate) fn evaluations(&mut self) -> Vec<PolicyEvaluation> {
        std::mem::take(&mut self.evaluations)
    }

    /// Adds what the policy at `place` came to once more.
    pub(crate) fn evaluated(&mut self, place: usize, evaluation: PolicyResult) {
        self.add(place, evaluation, 0);
    }

    /// Adds what expressions of the policy at `place` cost.
    pub(crate) fn spent(&mut self, place: usize, cost: u64) {
        self.add(place, PolicyResult::NoMatch, cost);
    }

    fn add(&mut self, place: usize, result: PolicyResult, cost: u64) {
        let evaluations = &mut self.evaluations;
        match evaluations.iter_mut().find(|own| own.place == place) {
            Some(own) => {
                own.result = worse(own.result, result);
                own.cost += cost;
            }
            None => evaluations.push(PolicyEvaluation {
                kind: CauseKind::MutatingAdmissionPolicy,
                place,
                result,
                cost,
            }),
        }
    }
}
