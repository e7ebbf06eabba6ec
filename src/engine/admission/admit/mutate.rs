//! The walk through the mutating policies.
//!
//! ```text
//! pass 1: which policies apply to the object received ─▶ each changes it in turn
//! pass 2: if any changed it, those of IfNeeded that ran, once more
//! then:   the policies of initializers, if the object is created
//! ```
//!
//! `apiserver/pkg/admission/plugin/policy/mutating/dispatcher.go` and
//! `reinvocationcontext.go`. Policies run in the order of their names, their
//! bindings and parameters in that of theirs.

mod initialize;

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Run, Unusable, denial, fails, finding, no_parameter, runs, too_late, worse};
use crate::engine::admission::Request;
use crate::engine::admission::authorizer::{Access, Authorizer};
use crate::engine::admission::conditions::Conditions;
use crate::engine::admission::matching::Matched;
use crate::engine::admission::mutating::{MutatingPolicy, Reinvocation};
use crate::engine::admission::outcome::{Outcome, Reason, StatusCause};
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

/// The walk so far.
struct Walk<'w> {
    request: &'w Request<'w>,
    access: &'w Access<'w>,
    run: Run<'w>,
    /// The object after the last change; none yet.
    object: Option<Document<'static>>,
    faults: Vec<Refusal>,
    evaluations: Vec<(usize, Evaluation)>,
    /// Those that ran and want to see later changes.
    ran: BTreeSet<Key>,
    /// Those after which something changed.
    again: BTreeSet<Key>,
}

/// Why a policy whose failure policy is Fail could not run.
struct Refusal {
    policy: String,
    message: String,
    reason: Reason,
}

// === impl AdmissionSet ===

impl AdmissionSet {
    /// Runs the MutatingAdmissionPolicies.
    pub(in crate::engine::admission) fn mutate(&self, request: &Request<'_>, run: Run<'_>) -> Outcome {
        if request.request_resource.is_virtual() || request.request_resource.is_policy() {
            return Outcome::default();
        }
        let authorizer = Authorizer::new(run.access, request);
        let access = Access::new(&authorizer, request);
        let mut walk = Walk::new(request, &access, run);
        self.pass(&mut walk, false);
        if walk.object.is_some() {
            // The chain ends in telling all that ran of the change, so that one
            // is run again after a change of its own too.
            walk.again.append(&mut walk.ran);
            if !walk.again.is_empty() {
                run.tell(|| Step::Again);
                self.pass(&mut walk, true);
            }
        }
        if run.only.is_none() {
            self.initialize(&mut walk);
        }
        if run.clock.is_over() {
            return Outcome {
                denial: Some(too_late(request)),
                ..Outcome::default()
            };
        }
        walk.outcome()
    }

    /// The names of the policies that are bound, in the order of the places in
    /// [`Outcome::evaluations`].
    pub fn mutating_policies(&self) -> impl Iterator<Item = &str> {
        self.mutating.names()
    }

    fn pass(&self, walk: &mut Walk<'_>, is_second: bool) {
        // Selectors see the object as it is before the pass.
        let object = walk.object.clone();
        let object = object.as_ref().map(Document::root).or(walk.request.object);
        let mut invocations = Vec::new();
        if let (Some(recorder), false) = (walk.run.recorder, is_second) {
            let kind = CauseKind::MutatingAdmissionPolicy;
            self.mutating
                .tell_others(kind, walk.request, walk.run.only, recorder);
        }
        for (place, bound) in self.mutating.candidates(walk.request, walk.run.only) {
            if walk.run.clock.is_over() {
                return;
            }
            self.invocations(place, bound, object, walk, &mut invocations);
        }
        let namespace = self.namespace_of(walk.request);
        for invocation in &invocations {
            if walk.run.clock.is_over() {
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
        let subject = self.subject(walk.request, object);
        let found = applicability.constraints.matches(subject);
        walk.run.tell(|| Step::Policy {
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
                walk.run.tell(|| Step::Binding {
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
            if let Err(fault) = matched.as_sent(walk.request) {
                walk.run.tell(|| fails(binding, &fault));
                walk.unusable(place, policy, None, &Unusable::Policy(fault));
                continue;
            }
            let kind = applicability.param_kind.as_ref();
            match self
                .parameters
                .collect(kind, binding.param_ref.as_ref(), &walk.request.namespace)
            {
                Err(fault) => {
                    walk.run.tell(|| fails(binding, &fault));
                    walk.unusable(place, policy, Some(binding), &Unusable::Parameters(fault));
                }
                Ok(params) => {
                    if params.is_empty() {
                        walk.run.tell(|| no_parameter(binding));
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
    const fn new(request: &'w Request<'w>, access: &'w Access<'w>, run: Run<'w>) -> Self {
        Self {
            request,
            access,
            run,
            object: None,
            faults: Vec::new(),
            evaluations: Vec::new(),
            ran: BTreeSet::new(),
            again: BTreeSet::new(),
        }
    }

    fn invoke(&mut self, invocation: &Invocation<'_>, namespace: NamespaceObject<'_>, is_second: bool) {
        let key = (
            invocation.place,
            invocation.binding.name.clone(),
            invocation.number,
        );
        self.run.tell(|| {
            let param = invocation.param.as_deref().map(Document::root);
            runs(&invocation.policy.applicability, invocation.binding, param)
        });
        match self.conditions(invocation) {
            Conditions::Match => {}
            Conditions::NoMatch(_) => return self.evaluated(invocation.place, Evaluation::NoMatch),
            Conditions::Error(message) => return self.refuse(invocation, message),
        }
        if is_second && !self.again.contains(&key) {
            return;
        }
        self.evaluated(invocation.place, Evaluation::Match);
        let is_changed = self.mutations(invocation, namespace);
        if is_changed {
            self.again.append(&mut self.ran);
        }
        if invocation.policy.reinvocation == Reinvocation::IfNeeded {
            self.ran.insert(key);
        }
    }

    fn conditions(&self, invocation: &Invocation<'_>) -> Conditions {
        let view = RequestView::for_conditions(self.request, &invocation.matched);
        let given = Given {
            object: self.object.as_ref().map(Document::root).or(self.request.object),
            old_object: self.request.old_object,
            request: &view,
            params: invocation.param.as_deref().map(Document::root),
            namespace: NamespaceObject::Null,
            access: self.access,
            recorder: self.run.recorder,
        };
        invocation.policy.conditions(&given, self.run.clock)
    }

    /// Applies each mutation; true if the object is another one afterwards.
    fn mutations(&mut self, invocation: &Invocation<'_>, namespace: NamespaceObject<'_>) -> bool {
        let mut is_changed = false;
        for (index, mutation) in invocation.policy.mutations.iter().enumerate() {
            let changed = {
                let view = RequestView::new(self.request, &invocation.matched);
                let given = Given {
                    object: self.object.as_ref().map(Document::root).or(self.request.object),
                    old_object: self.request.old_object,
                    request: &view,
                    params: invocation.param.as_deref().map(Document::root),
                    namespace,
                    access: self.access,
                    recorder: self.run.recorder,
                };
                let environment = &invocation.policy.environment;
                let kind = &self.request.kind;
                mutation.apply(index, kind, environment, &given, self.run.clock)
            };
            match changed {
                Ok(None) => {}
                Ok(Some(object)) => {
                    self.tell_change(&object);
                    self.object = Some(object);
                    is_changed = true;
                }
                Err(fault) => self.refuse(invocation, fault.to_string()),
            }
        }
        is_changed
    }

    fn tell_change(&self, after: &Document<'_>) {
        let before = self.object.as_ref().map(Document::root).or(self.request.object);
        self.run.tell(|| Step::Changed {
            patch: before
                .map(|before| patch::write(&diff(before, after.root())))
                .unwrap_or_default(),
        });
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
        self.faults.push(Refusal {
            policy: name.clone(),
            message,
            reason,
        });
    }

    fn evaluated(&mut self, place: usize, evaluation: Evaluation) {
        match self.evaluations.iter_mut().find(|(own, _)| *own == place) {
            Some((_, own)) => *own = worse(*own, evaluation),
            None => self.evaluations.push((place, evaluation)),
        }
    }

    fn outcome(self) -> Outcome {
        let mut outcome = Outcome::default();
        let kind = CauseKind::MutatingAdmissionPolicy;
        outcome.evaluations = self
            .evaluations
            .into_iter()
            .map(|(place, evaluation)| (kind, place, evaluation))
            .collect();
        if let Some(first) = self.faults.first() {
            let mut refusal = denial(self.request, first.message.clone(), first.reason);
            // Whatever the reason, upstream answers these as forbidden.
            refusal.code = Reason::Forbidden.code();
            refusal.details.causes = self
                .faults
                .iter()
                .map(|fault| StatusCause::of(&fault.message))
                .collect();
            outcome.denial = Some(refusal);
            outcome.cause = Some(Cause {
                kind,
                namespace: String::new(),
                name: first.policy.clone(),
                rule: None,
            });
            return outcome;
        }
        if let (Some(before), Some(after)) = (self.request.object, &self.object) {
            let operations = diff(before, after.root());
            if !operations.is_empty() {
                outcome.patch = patch::write(&operations);
            }
        }
        outcome
    }
}
