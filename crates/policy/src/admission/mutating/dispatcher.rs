//! Applies the MutatingAdmissionPolicies that match a request, one after another.
//!
//! ```text
//! pass 1: which policies apply to the object received ─▶ each changes it in turn
//! pass 2: if the object changed, the match conditions of all policies that apply,
//!         and the policies with IfNeeded that ran
//! then:   the policies of initializers, if the object is created
//! ```
//!
//! Follows `apiserver/pkg/admission/plugin/policy/mutating/dispatcher.go` and
//! `reinvocationcontext.go`. Static policies run first; otherwise policies run in the order of
//! their names, and so do their bindings and parameters.

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;

use super::{MutatingPolicy, MutationError};
use crate::admission::candidates::BoundPolicy;
use crate::admission::changes::{ChangeError, ChangedObject};
use crate::admission::initializers::{self, InstalledInitializer};
use crate::admission::invocation::{
    InvocationError, as_sent, binding_matches, policy_matches, run_step, worse,
};
use crate::admission::matching::MatchedResource;
use crate::admission::run::{RunContext, TraceStep};
use crate::admission::variables::{Inputs, MatchConditions, NamespaceObject, RequestView};
use crate::admission::webhook::{Reinvocation, ReinvocationState};
use crate::admission::{
    AdmissionSet, Denial, FailurePolicy, Operation, PolicyBinding, PolicyEvaluation, Request, StatusCause,
    outcome,
};
use crate::model::{Cause, CauseKind, PolicyResult, StatusReason};
use portcullis_cel::json::patch::{self, PatchBudget};
use portcullis_cel::json::{Document, Node, diff};

const KIND: CauseKind = CauseKind::MutatingAdmissionPolicy;

/// One evaluation of a policy: with one binding and one parameter.
pub(crate) struct Invocation<'s> {
    place: usize,
    policy: &'s MutatingPolicy,
    binding: &'s PolicyBinding,
    matched: MatchedResource<'s>,
    param: Option<Arc<Document<'static>>>,
    /// The index of the parameter.
    number: usize,
}

/// One pass over the policies.
pub(crate) struct Pass<'p> {
    context: RunContext<'p>,
    /// The context with the recorder, even if the pass as a whole is not recorded.
    recorded: RunContext<'p>,
    state: &'p mut MutationState,
    is_changed: bool,
}

impl AdmissionSet {
    /// Applies the policies of the initializers that match the object, and removes the list of
    /// pending initializers.
    pub(crate) fn initialize(&self, state: &mut MutationState, context: RunContext<'_>) {
        let request = context.request;
        let mut initializers = self.initializers.of(request).peekable();
        if is_exempt(request) || initializers.peek().is_none() {
            return;
        }
        let mut last = "";
        for installed in initializers {
            last = &installed.initializer.name;
            if context.run.deadline.has_passed() || state.failure.is_some() {
                return;
            }
            context.run.record(|| TraceStep::Initializer {
                configuration: &installed.configuration,
                name: &installed.initializer.name,
                is_there: installed.policy.is_some(),
            });
            self.initialize_by(installed, state, context);
        }
        state.complete(last, context);
    }

    fn initialize_by(
        &self,
        installed: &InstalledInitializer,
        state: &mut MutationState,
        context: RunContext<'_>,
    ) {
        let Some(policy) = &installed.policy else {
            let missing = installed.missing(self.failure_policy);
            state.refusals.extend(missing.map(|message| PolicyRefusal {
                policy: installed.initializer.name.clone(),
                message,
                reason: StatusReason::InternalError,
            }));
            return;
        };
        // With a state of its own, because initializers do not share the positions of other
        // policies.
        let mut own = MutationState::new();
        own.object = state.object.take();
        std::mem::swap(&mut own.budget, &mut state.budget);
        let object = own.object.clone();
        let seen = object
            .as_ref()
            .map(|object| object.root())
            .or(context.request.object);
        let mut pass = Pass::new(context, &mut own);
        let mut invocations = Vec::new();
        self.invocations(0, policy, seen, &mut pass, &mut invocations);
        let namespace = self.namespace_of(context.request);
        for invocation in &invocations {
            pass.invoke(invocation, namespace.as_variable(), false);
        }
        (state.object, state.budget, state.failure) = (own.object, own.budget, own.failure);
        state.refusals.append(&mut own.refusals);
    }
}

impl MutationState {
    /// Removes the list of pending initializers after the `last` one was applied. If that fails,
    /// the request is denied: an object must not be stored as uninitialized.
    fn complete(&mut self, last: &str, context: RunContext<'_>) {
        let Some(object) = self.object_of(context.request) else {
            return;
        };
        let Some(completion) = initializers::completion(object) else {
            return;
        };
        match completed(object, completion, context) {
            Ok(object) => {
                self.record_change(context, &object);
                self.object = Some(object);
            }
            Err(why) => self.refusals.push(PolicyRefusal {
                policy: last.to_owned(),
                message: format!("initializers cannot be taken from the object: {why}"),
                reason: StatusReason::InternalError,
            }),
        }
    }
}

/// Whether initializers never apply: to access and token reviews, and to policies and bindings.
fn is_exempt(request: &Request<'_>) -> bool {
    request.request_resource.is_virtual() || request.request_resource.is_policy()
}

/// Applies the JSON Patch `completion`.
fn completed(
    object: Node<'_>,
    completion: &'static str,
    context: RunContext<'_>,
) -> Result<Arc<ChangedObject>, String> {
    let written = Document::parse(completion).map_err(|error| error.to_string())?;
    let operations = patch::read(written.root()).map_err(|error| error.to_string())?;
    let tree = patch::apply(object, operations).map_err(|error| error.to_string())?;
    let changed = context.limits().object(tree.to_text());
    changed.map_err(|error| error.to_string())
}

// === impl AdmissionSet ===

impl AdmissionSet {
    /// Runs one pass over the MutatingAdmissionPolicies. Returns whether the object changed.
    pub(crate) fn mutate(&self, state: &mut MutationState, context: RunContext<'_>, is_second: bool) -> bool {
        // A DELETE has no object to change.
        let is_deletion = context.request.operation == Operation::Delete;
        if is_deletion || context.request.request_resource.is_virtual() {
            return false;
        }
        let mut pass = Pass::new(context, state);
        if is_second && !pass.state.invocations.is_any_required() {
            pass.context = context.unrecorded();
        }
        self.run_pass(&mut pass, is_second);
        pass.is_changed
    }

    /// The names of the bound policies. `place` in
    /// [`Outcome::evaluations`](crate::admission::Outcome::evaluations) is an index in this order.
    pub fn mutating_policies(&self) -> impl Iterator<Item = &str> {
        self.mutating.names()
    }

    fn run_pass(&self, pass: &mut Pass<'_>, is_second: bool) {
        // Selectors are matched against the object before the pass.
        let RunContext { request, run, .. } = pass.context;
        let object = pass.state.object.clone();
        let object = object.as_ref().map(|object| object.root()).or(request.object);
        let mut invocations = Vec::new();
        if let (Some(recorder), false) = (run.recorder, is_second) {
            self.mutating.record_others(KIND, request, run.only, recorder);
        }
        for (place, bound) in self.mutating.candidates(request, run.only) {
            if run.deadline.has_passed() {
                return;
            }
            self.invocations(place, bound, object, pass, &mut invocations);
        }
        let namespace = self.namespace_of(request);
        for invocation in &invocations {
            if run.deadline.has_passed() || pass.state.failure.is_some() {
                return;
            }
            pass.invoke(invocation, namespace.as_variable(), is_second);
        }
    }

    pub(crate) fn invocations<'s>(
        &'s self,
        place: usize,
        bound: &'s BoundPolicy<MutatingPolicy>,
        object: Option<Node<'_>>,
        pass: &mut Pass<'_>,
        invocations: &mut Vec<Invocation<'s>>,
    ) {
        let policy = &*bound.policy;
        let RunContext { request, run, .. } = pass.context;
        let subject = self.subject(request, object);
        let matched = match policy_matches(KIND, &policy.applicability, subject, run) {
            Ok(Some(matched)) => matched.into_owned(),
            Ok(None) => return pass.state.evaluated(place, PolicyResult::NoMatch),
            Err(why) => return pass.unusable(place, policy, None, &why),
        };
        for binding in bound.bindings_for(request) {
            match binding_matches(binding, subject, run) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(why) => {
                    pass.unusable(place, policy, Some(binding), &why);
                    continue;
                }
            }
            if let Err(fault) = as_sent(binding, &matched, pass.context) {
                pass.unusable(place, policy, None, &InvocationError::Policy(fault));
                continue;
            }
            match self.parameters_of(&policy.applicability, binding, pass.context) {
                Err(why) => pass.unusable(place, policy, Some(binding), &why),
                Ok(params) => {
                    invocations.extend(params.iter().cloned().enumerate().map(|(number, param)| {
                        Invocation {
                            place,
                            policy,
                            binding,
                            matched: matched.clone(),
                            param,
                            number,
                        }
                    }));
                }
            }
        }
    }
}

// === impl Pass ===

impl<'p> Pass<'p> {
    pub(crate) const fn new(context: RunContext<'p>, state: &'p mut MutationState) -> Self {
        Self {
            context,
            recorded: context,
            state,
            is_changed: false,
        }
    }

    pub(crate) fn invoke(
        &mut self,
        invocation: &Invocation<'_>,
        namespace: NamespaceObject<'_>,
        is_second: bool,
    ) {
        let key = (
            invocation.place,
            invocation.binding.name.clone(),
            invocation.number,
        );
        let is_to_run = !is_second || self.state.invocations.is_required(&key);
        let context = if is_to_run {
            self.record_run(invocation);
            self.context
        } else {
            self.context.unrecorded()
        };
        // Conditions are evaluated even for a policy that is not reinvoked, because their errors
        // count.
        match self.conditions(invocation, context) {
            MatchConditions::Match => {}
            MatchConditions::NoMatch(_) => {
                return self.state.evaluated(invocation.place, PolicyResult::NoMatch);
            }
            MatchConditions::Error(message) => {
                if !is_to_run && self.recorded.run.recorder.is_some() {
                    self.record_run(invocation);
                    self.conditions(invocation, self.recorded);
                }
                return self.refuse(invocation, message);
            }
        }
        if !is_to_run {
            return;
        }
        self.state.evaluated(invocation.place, PolicyResult::Match);
        if self.mutations(invocation, namespace) {
            self.is_changed = true;
            self.state.invocations.require();
        }
        if invocation.policy.reinvocation == Reinvocation::IfNeeded {
            self.state.invocations.ran(key);
        }
    }

    fn record_run(&self, invocation: &Invocation<'_>) {
        self.recorded.run.record(|| {
            let param = invocation.param.as_deref().map(Document::root);
            run_step(&invocation.policy.applicability, invocation.binding, param)
        });
    }

    fn conditions(&mut self, invocation: &Invocation<'_>, context: RunContext<'_>) -> MatchConditions {
        let RunContext { request, access, run } = context;
        let view = RequestView::for_conditions(request, &invocation.matched)
            .with_unknown_requester(run.requester_unknown);
        let spent = Cell::new(0);
        let inputs = Inputs {
            object: self.state.object_of(request),
            old_object: request.old_object,
            request: &view,
            params: invocation.param.as_deref().map(Document::root),
            namespace: NamespaceObject::Null,
            access,
            recorder: run.recorder,
            spent: &spent,
        };
        let conditions = invocation.policy.conditions(&inputs, run.deadline);
        self.state.spent(invocation.place, spent.get());
        conditions
    }

    /// Applies the mutations of a policy. Returns whether the object changed.
    fn mutations(&mut self, invocation: &Invocation<'_>, namespace: NamespaceObject<'_>) -> bool {
        let RunContext { request, access, run } = self.context;
        let mut is_changed = false;
        for (index, mutation) in invocation.policy.mutations.iter().enumerate() {
            let spent = Cell::new(0);
            let changed = {
                let view = RequestView::new(request, &invocation.matched)
                    .with_unknown_requester(run.requester_unknown);
                let object = self.state.object.as_ref().map(|object| object.root());
                let inputs = Inputs {
                    object: object.or(request.object),
                    old_object: request.old_object,
                    request: &view,
                    params: invocation.param.as_deref().map(Document::root),
                    namespace,
                    access,
                    recorder: run.recorder,
                    spent: &spent,
                };
                let environment = &invocation.policy.environment;
                mutation.apply(index, environment, &inputs, self.context, &mut self.state.budget)
            };
            self.state.spent(invocation.place, spent.get());
            self.state.is_decoded |= changed.is_ok() && request.object.is_some();
            match changed {
                Ok(None) => {}
                Ok(Some(object)) => {
                    self.state.record_change(self.context, &object);
                    self.state.object = Some(object);
                    is_changed = true;
                }
                Err(MutationError::Unchanged(error)) => {
                    self.state.evaluated(invocation.place, PolicyResult::Error);
                    let policy = invocation.policy.applicability.name.clone();
                    self.state.failure = Some(PolicyFailure { policy, error });
                    return is_changed;
                }
                Err(fault) => self.refuse(invocation, fault.to_string()),
            }
        }
        is_changed
    }

    fn refuse(&mut self, invocation: &Invocation<'_>, message: String) {
        self.fail(
            invocation.place,
            invocation.policy,
            Some(invocation.binding),
            message,
            StatusReason::Invalid,
        );
    }

    fn unusable(
        &mut self,
        place: usize,
        policy: &MutatingPolicy,
        binding: Option<&PolicyBinding>,
        why: &InvocationError,
    ) {
        self.fail(place, policy, binding, why.to_string(), StatusReason::Forbidden);
    }

    fn fail(
        &mut self,
        place: usize,
        policy: &MutatingPolicy,
        binding: Option<&PolicyBinding>,
        message: String,
        reason: StatusReason,
    ) {
        self.state.evaluated(place, PolicyResult::Error);
        let applicability = &policy.applicability;
        if applicability.failure_policy == FailurePolicy::Ignore {
            return;
        }
        let name = &applicability.name;
        let message = match binding {
            Some(binding) => format!(
                "policy '{name}' with binding '{}' denied request: {message}",
                binding.name
            ),
            None => format!("policy \"{name}\" denied request: {message}"),
        };
        self.state.refusals.push(PolicyRefusal {
            policy: name.clone(),
            message,
            reason,
        });
    }
}

// The state of policies in the mutating phase, between two steps of a run.

/// Position of the policy, name of the binding, index of the parameter.
type InvocationKey = (usize, String, usize);

/// The effects of policies so far, in both passes. Kept between the steps of a run.
#[derive(Debug, Clone)]
pub(crate) struct MutationState {
    /// The object after the last change; `None` if it is as received.
    pub(crate) object: Option<Arc<ChangedObject>>,
    /// Whether a patch or configuration was applied, so that the object was decoded from JSON.
    pub(crate) is_decoded: bool,
    /// The remaining budget for patches of policies and webhooks.
    pub(crate) budget: PatchBudget,
    pub(crate) refusals: Vec<PolicyRefusal>,
    /// A failure that ends the request whatever the failure policies.
    pub(crate) failure: Option<PolicyFailure>,
    evaluations: Vec<PolicyEvaluation>,
    pub(crate) invocations: ReinvocationState<InvocationKey>,
}

/// A change that failed, and the policy that would have made it.
#[derive(Debug, Clone)]
pub(crate) struct PolicyFailure {
    pub(crate) policy: String,
    pub(crate) error: ChangeError,
}

/// An error of a policy with failure policy Fail.
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
            invocations: ReinvocationState::new(),
        }
    }

    /// The object as changed so far.
    pub(crate) fn object_of<'o>(&'o self, request: &Request<'o>) -> Option<Node<'o>> {
        self.object
            .as_ref()
            .map(|object| object.root())
            .or(request.object)
    }

    /// Whether policies run again in the second pass. If so, all with IfNeeded do: Kubernetes notes
    /// changes only at the end of a pass, so a policy's own change counts, too.
    pub(crate) fn are_to_run_again(&mut self) -> bool {
        self.invocations.require();
        self.invocations.is_any_required()
    }

    /// Records a change, before the object is replaced by `after`.
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

    /// The denial of the request and its cause, if any.
    pub(crate) fn refusal(&self, request: &Request<'_>) -> Option<(Denial, Cause<'static>)> {
        let cause = |policy: &str| Cause {
            kind: CauseKind::MutatingAdmissionPolicy,
            namespace: Cow::Borrowed(""),
            name: Cow::Owned(policy.to_owned()),
            rule: None,
        };
        if let Some(PolicyFailure { policy, error }) = &self.failure {
            let refusal = match error {
                ChangeError::Undecodable(why) => outcome::internal(why.clone()),
                error => outcome::change_failed(&format!("policy '{policy}' denied request"), error),
            };
            return Some((refusal, cause(policy)));
        }
        let first = self.refusals.first()?;
        let mut refusal = outcome::denial(request, first.message.clone(), first.reason);
        // Kubernetes uses this code whatever the reason.
        refusal.code = StatusReason::Forbidden.code().into();
        let causes = self.refusals.iter().map(|fault| StatusCause::of(&fault.message));
        refusal.details.causes = causes.collect();
        Some((refusal, cause(&first.policy)))
    }

    /// The result of each policy.
    pub(crate) fn evaluations(&mut self) -> Vec<PolicyEvaluation> {
        std::mem::take(&mut self.evaluations)
    }

    /// Adds a result of the policy at `place`.
    pub(crate) fn evaluated(&mut self, place: usize, evaluation: PolicyResult) {
        self.add(place, evaluation, 0);
    }

    /// Adds the cost of expressions of the policy at `place`.
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
