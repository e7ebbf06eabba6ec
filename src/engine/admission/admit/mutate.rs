//! The walk through the mutating policies.
//!
//! ```text
//! pass 1: which policies apply to the object received ─▶ each changes it in turn
//! pass 2: if policies or webhooks changed it, those of IfNeeded that ran, once more
//! then:   the policies of initializers, if the object is created
//! ```
//!
//! `apiserver/pkg/admission/plugin/policy/mutating/dispatcher.go` and
//! `reinvocationcontext.go`. Policies run in the order of their names, their
//! bindings and parameters in that of theirs.

mod initialize;
mod typing;

use std::sync::Arc;

use super::{Context, Unusable, denial, fails, finding, no_parameter, runs, worse};
use crate::engine::admission::Denial;
use crate::engine::admission::Request;
use crate::engine::admission::chain::Reinvocable;
use crate::engine::admission::conditions::Conditions;
use crate::engine::admission::matching::Matched;
use crate::engine::admission::mutating::{MutatingPolicy, Reinvocation};
use crate::engine::admission::outcome::{Reason, StatusCause};
use crate::engine::admission::policy::{Binding, FailurePolicy};
use crate::engine::admission::set::{AdmissionSet, Bound};
use crate::engine::admission::trace::Step;
use crate::engine::admission::variables::{Given, NamespaceObject, RequestView};
use crate::engine::{Cause, CauseKind, Evaluation};
use crate::json::{Document, Node, diff, patch};

/// A policy, bound, with one parameter.
struct Invocation<'s> {
    place: usize,
    policy: &'s MutatingPolicy,
    binding: &'s Binding,
    matched: Matched<'s>,
    param: Option<Arc<Document<'static>>>,
    /// Which parameter of the binding it is.
    number: usize,
}

/// Place of the policy, binding, parameter.
type Key = (usize, String, usize);

/// What the policies have done so far, over both passes. It outlives a step of
/// the run.
#[derive(Debug, Clone)]
pub(in crate::engine::admission) struct Mutated {
    /// The object after the last change; none yet.
    pub(in crate::engine::admission) object: Option<Document<'static>>,
    faults: Vec<Refusal>,
    evaluations: Vec<(usize, Evaluation)>,
    invocations: Reinvocable<Key>,
}

/// One pass.
struct Walk<'w> {
    context: Context<'w>,
    so_far: &'w mut Mutated,
    is_changed: bool,
}

/// Why a policy whose failure policy is Fail could not run.
#[derive(Debug, Clone)]
struct Refusal {
    policy: String,
    message: String,
    reason: Reason,
}

// === impl AdmissionSet ===

impl AdmissionSet {
    /// Runs the MutatingAdmissionPolicies once, in the first pass or the second.
    /// True if the object is another one afterwards.
    pub(in crate::engine::admission) fn mutate(
        &self,
        so_far: &mut Mutated,
        context: Context<'_>,
        is_second: bool,
    ) -> bool {
        if is_exempt(context.request) {
            return false;
        }
        if is_second && !so_far.are_to_run_again() {
            return false;
        }
        let mut walk = Walk::new(context, so_far);
        self.pass(&mut walk, is_second);
        walk.is_changed
    }

    /// The names of the policies that are bound, in the order of the places in
    /// [`Outcome::evaluations`](crate::engine::admission::Outcome::evaluations).
    pub fn mutating_policies(&self) -> impl Iterator<Item = &str> {
        self.mutating.names()
    }

    fn pass(&self, walk: &mut Walk<'_>, is_second: bool) {
        // Selectors see the object as it is before the pass.
        let Context { request, run, .. } = walk.context;
        let object = walk.so_far.object.clone();
        let object = object.as_ref().map(Document::root).or(request.object);
        let mut invocations = Vec::new();
        if let (Some(recorder), false) = (run.recorder, is_second) {
            let kind = CauseKind::MutatingAdmissionPolicy;
            self.mutating.tell_others(kind, request, run.only, recorder);
        }
        for (place, bound) in self.mutating.candidates(request, run.only) {
            if run.clock.is_over() {
                return;
            }
            self.invocations(place, bound, object, walk, &mut invocations);
        }
        let namespace = self.namespace_of(request);
        for invocation in &invocations {
            if run.clock.is_over() {
                return;
            }
            walk.invoke(invocation, namespace.as_variable(), is_second);
        }
    }

    fn invocations<'s>(
        &'s self,
        place: usize,
        bound: &'s Bound<MutatingPolicy>,
        object: Option<Node<'_>>,
        walk: &mut Walk<'_>,
        invocations: &mut Vec<Invocation<'s>>,
    ) {
        let policy = &*bound.policy;
        let applicability = &policy.applicability;
        let Context { request, run, .. } = walk.context;
        let subject = self.subject(request, object);
        let found = applicability.constraints.matches(subject);
        run.tell(|| Step::Policy {
            kind: CauseKind::MutatingAdmissionPolicy,
            name: &applicability.name,
            finding: finding(&applicability.constraints, subject, &found),
        });
        let matched = match found {
            Ok(Some(matched)) => matched.into_owned(),
            Ok(None) => return walk.evaluated(place, Evaluation::NoMatch),
            Err(fault) => return walk.unusable(place, policy, None, &Unusable::Policy(fault)),
        };
        for binding in &bound.bindings {
            if let Some(constraints) = &binding.constraints {
                let found = constraints.matches(subject);
                run.tell(|| Step::Binding {
                    name: &binding.name,
                    finding: finding(constraints, subject, &found),
                });
                match found {
                    Ok(Some(_)) => {}
                    Ok(None) => continue,
                    Err(fault) => {
                        walk.unusable(place, policy, Some(binding), &Unusable::Binding(fault));
                        continue;
                    }
                }
            }
            if let Err(fault) = matched.as_sent(request) {
                run.tell(|| fails(binding, &fault));
                walk.unusable(place, policy, None, &Unusable::Policy(fault));
                continue;
            }
            let kind = applicability.param_kind.as_ref();
            match self
                .parameters
                .collect(kind, binding.param_ref.as_ref(), &request.namespace)
            {
                Err(fault) => {
                    run.tell(|| fails(binding, &fault));
                    walk.unusable(place, policy, Some(binding), &Unusable::Parameters(fault));
                }
                Ok(params) => {
                    if params.is_empty() {
                        run.tell(|| no_parameter(binding));
                    }
                    invocations.extend(params.into_iter().enumerate().map(|(number, param)| Invocation {
                        place,
                        policy,
                        binding,
                        matched: matched.clone(),
                        param,
                        number,
                    }));
                }
            }
        }
    }
}

// === impl Walk ===

impl<'w> Walk<'w> {
    const fn new(context: Context<'w>, so_far: &'w mut Mutated) -> Self {
        Self {
            context,
            so_far,
            is_changed: false,
        }
    }

    fn invoke(&mut self, invocation: &Invocation<'_>, namespace: NamespaceObject<'_>, is_second: bool) {
        let key = (
            invocation.place,
            invocation.binding.name.clone(),
            invocation.number,
        );
        self.context.run.tell(|| {
            let param = invocation.param.as_deref().map(Document::root);
            runs(&invocation.policy.applicability, invocation.binding, param)
        });
        match self.conditions(invocation) {
            Conditions::Match => {}
            Conditions::NoMatch(_) => return self.evaluated(invocation.place, Evaluation::NoMatch),
            Conditions::Error(message) => return self.refuse(invocation, message),
        }
        if is_second && !self.so_far.invocations.is_required(&key) {
            return;
        }
        self.evaluated(invocation.place, Evaluation::Match);
        if self.mutations(invocation, namespace) {
            self.is_changed = true;
            self.so_far.invocations.require();
        }
        if invocation.policy.reinvocation == Reinvocation::IfNeeded {
            self.so_far.invocations.ran(key);
        }
    }

    fn conditions(&self, invocation: &Invocation<'_>) -> Conditions {
        let Context { request, access, run } = self.context;
        let view = RequestView::for_conditions(request, &invocation.matched);
        let given = Given {
            object: self.so_far.object_of(request),
            old_object: request.old_object,
            request: &view,
            params: invocation.param.as_deref().map(Document::root),
            namespace: NamespaceObject::Null,
            access,
            recorder: run.recorder,
        };
        invocation.policy.conditions(&given, run.clock)
    }

    /// Applies each mutation; true if the object is another one afterwards.
    fn mutations(&mut self, invocation: &Invocation<'_>, namespace: NamespaceObject<'_>) -> bool {
        let Context { request, access, run } = self.context;
        let mut is_changed = false;
        for (index, mutation) in invocation.policy.mutations.iter().enumerate() {
            let changed = {
                let view = RequestView::new(request, &invocation.matched);
                let given = Given {
                    object: self.so_far.object_of(request),
                    old_object: request.old_object,
                    request: &view,
                    params: invocation.param.as_deref().map(Document::root),
                    namespace,
                    access,
                    recorder: run.recorder,
                };
                let environment = &invocation.policy.environment;
                mutation.apply(index, &request.kind, environment, &given, run.clock)
            };
            match changed {
                Ok(None) => {}
                Ok(Some(object)) => {
                    self.so_far.tell_change(self.context, &object);
                    self.so_far.object = Some(object);
                    is_changed = true;
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
            Reason::Invalid,
        );
    }

    fn unusable(&mut self, place: usize, policy: &MutatingPolicy, binding: Option<&Binding>, why: &Unusable) {
        self.fail(place, policy, binding, why.to_string(), Reason::Forbidden);
    }

    fn fail(
        &mut self,
        place: usize,
        policy: &MutatingPolicy,
        binding: Option<&Binding>,
        message: String,
        reason: Reason,
    ) {
        self.evaluated(place, Evaluation::Error);
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
        self.so_far.faults.push(Refusal {
            policy: name.clone(),
            message,
            reason,
        });
    }

    fn evaluated(&mut self, place: usize, evaluation: Evaluation) {
        let evaluations = &mut self.so_far.evaluations;
        match evaluations.iter_mut().find(|(own, _)| *own == place) {
            Some((_, own)) => *own = worse(*own, evaluation),
            None => evaluations.push((place, evaluation)),
        }
    }
}

// === impl Mutated ===

impl Mutated {
    pub(in crate::engine::admission) const fn new() -> Self {
        Self {
            object: None,
            faults: Vec::new(),
            evaluations: Vec::new(),
            invocations: Reinvocable::new(),
        }
    }

    /// The object as it is now.
    pub(in crate::engine::admission) fn object_of<'o>(&'o self, request: &Request<'o>) -> Option<Node<'o>> {
        self.object.as_ref().map(Document::root).or(request.object)
    }

    /// Whether any policy is to run in the second pass, which there is if
    /// anything changed the object: then all that want to see changes, for
    /// upstream tells them at the end of a pass even of their own.
    pub(in crate::engine::admission) fn are_to_run_again(&mut self) -> bool {
        self.invocations.require();
        self.invocations.is_any_required()
    }

    /// Tells a recorder what the object is about to become.
    pub(in crate::engine::admission) fn tell_change(&self, context: Context<'_>, after: &Document<'_>) {
        let before = self.object_of(context.request);
        context.run.tell(|| {
            let operations = before
                .map(|before| diff(before, after.root()))
                .unwrap_or_default();
            Step::Changed {
                patch: patch::write(&operations),
                empty: typing::empty(&context.request.kind, &operations),
            }
        });
    }

    /// Why the request is refused, if it is.
    pub(in crate::engine::admission) fn refusal(&self, request: &Request<'_>) -> Option<(Denial, Cause)> {
        let first = self.faults.first()?;
        let mut refusal = denial(request, first.message.clone(), first.reason);
        // Whatever the reason, upstream answers these as forbidden.
        refusal.code = Reason::Forbidden.code();
        let causes = self.faults.iter().map(|fault| StatusCause::of(&fault.message));
        refusal.details.causes = causes.collect();
        let cause = Cause {
            kind: CauseKind::MutatingAdmissionPolicy,
            namespace: String::new(),
            name: first.policy.clone(),
            rule: None,
        };
        Some((refusal, cause))
    }

    /// What each policy came to, by its place.
    pub(in crate::engine::admission) fn evaluations(&mut self) -> Vec<(CauseKind, usize, Evaluation)> {
        let kind = CauseKind::MutatingAdmissionPolicy;
        let evaluations = std::mem::take(&mut self.evaluations);
        evaluations
            .into_iter()
            .map(|(place, evaluation)| (kind, place, evaluation))
            .collect()
    }
}

/// Reviews of access and policies are shown to no policy.
fn is_exempt(request: &Request<'_>) -> bool {
    request.request_resource.is_virtual() || request.request_resource.is_policy()
}
