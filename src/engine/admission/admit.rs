//! The walk through the policies that apply to a request.
//!
//! ```text
//! request ─▶ candidates ─▶ policy matches ─▶ each binding matches ─▶ each parameter
//!                                                                        │
//!       denial, warnings, audit annotations ◀── validationActions ◀── decisions
//! ```
//!
//! `apiserver/pkg/admission/plugin/policy/validating/dispatcher.go`. Policies
//! run in the order of their names, where upstream leaves it open.

mod audit;
pub(super) mod mutate;
mod namespace;

use audit::{Annotations, Failures};

use super::authorizer::{Access, Authority};
use super::evaluation::Clock;
use super::exceptions::{self, Excuses};
use super::judge::Judge;
use super::matching::{Constraints, Fault, Matched, Subject};
use super::outcome::{Denial, Details, Outcome, Reason, StatusCause};
use super::policy::{Action, Applicability, Binding, FailurePolicy};
use super::set::{AdmissionSet, Bound};
use super::trace::{Finding, Miss, Recorder, Step};
use super::validating::{Decision, Validated, ValidatingPolicy};
use super::variables::{Given, NamespaceObject, RequestView};
use super::{GroupVersionResource, ParamFault, Request};
use crate::engine::{Cause, CauseKind, Evaluation, Time};
use crate::json::{Document, Node};

/// How to run the policies.
#[derive(Clone, Copy)]
pub struct Run<'r> {
    /// Only the policy of this name; all if there is none.
    pub only: Option<&'r str>,
    /// When to give up.
    pub clock: Clock<'r>,
    /// The instant for which it is decided.
    pub now: Time,
    /// What answers the questions about access that expressions put.
    pub access: &'r dyn Authority,
    /// Who judges the gateway's own kinds, if anybody.
    pub judge: Option<&'r dyn Judge>,
    /// Who hears of each step.
    pub recorder: Option<&'r dyn Recorder>,
}

/// Why a policy could not be run for a request.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error("failed to configure policy: {0}")]
    Policy(Fault),
    #[error("failed to configure binding: {0}")]
    Binding(Fault),
    #[error("failed to configure binding: {0}")]
    Parameters(ParamFault),
    #[error("failed to configure binding: failed to convert object version: {0}")]
    Version(Fault),
}

/// What all parts of a run have in common.
#[derive(Clone, Copy)]
pub(super) struct Context<'c> {
    pub(super) request: &'c Request<'c>,
    pub(super) access: &'c Access<'c>,
    pub(super) run: Run<'c>,
}

/// The walk so far.
struct Walk<'w> {
    set: &'w AdmissionSet,
    context: Context<'w>,
    request: &'w Request<'w>,
    access: &'w Access<'w>,
    outcome: Outcome,
    failures: Failures,
    excuses: Excuses,
}

// === impl Run ===

impl<'r> Run<'r> {
    /// Every policy as at `now`, without a deadline.
    #[must_use]
    pub const fn new(access: &'r dyn Authority, now: Time) -> Self {
        Self {
            only: None,
            clock: Clock { expired: &|| false },
            now,
            access,
            judge: None,
            recorder: None,
        }
    }

    /// Tells the recorder, if there is one.
    pub(super) fn tell<'s>(&self, step: impl FnOnce() -> Step<'s>) {
        if let Some(recorder) = self.recorder {
            recorder.record(step());
        }
    }
}

// === impl AdmissionSet ===

impl AdmissionSet {
    /// Runs the ValidatingAdmissionPolicies.
    pub(super) fn validate(&self, context: Context<'_>) -> Outcome {
        let Context { request, access, run } = context;
        let mut walk = Walk {
            set: self,
            context,
            request,
            access,
            outcome: Outcome::default(),
            failures: Failures::default(),
            excuses: Excuses::default(),
        };
        if request.request_resource.is_virtual() || request.request_resource.is_policy() {
            return walk.outcome;
        }
        let kind = CauseKind::ValidatingAdmissionPolicy;
        if let Some(recorder) = run.recorder {
            self.validating.tell_others(kind, request, run.only, recorder);
        }
        for (place, bound) in self.validating.candidates(request, run.only) {
            if run.clock.is_over() {
                break;
            }
            let evaluation = self.validate_one(bound, run, &mut walk);
            walk.outcome.evaluations.push((kind, place, evaluation));
        }
        let Walk {
            mut outcome,
            failures,
            ..
        } = walk;
        failures.publish(&mut outcome.audit_annotations);
        if run.clock.is_over() {
            (outcome.denial, outcome.cause) = (Some(too_late(request)), None);
        }
        outcome
    }

    /// The names of the policies that are bound, in the order of the places in
    /// [`Outcome::evaluations`].
    pub fn validating_policies(&self) -> impl Iterator<Item = &str> {
        self.validating.names()
    }

    fn validate_one(&self, bound: &Bound<ValidatingPolicy>, run: Run<'_>, walk: &mut Walk<'_>) -> Evaluation {
        let policy = &*bound.policy;
        let request = walk.request;
        let applicability = &policy.applicability;
        let subject = self.subject(request, request.object);
        let found = applicability.constraints.matches(subject);
        run.tell(|| Step::Policy {
            kind: CauseKind::ValidatingAdmissionPolicy,
            name: &applicability.name,
            finding: finding(&applicability.constraints, subject, &found),
        });
        let matched = match found {
            Ok(Some(matched)) => matched,
            Ok(None) => return Evaluation::NoMatch,
            Err(fault) => return walk.unusable(applicability, None, &Unusable::Policy(fault)),
        };
        let mut evaluation = Evaluation::NoMatch;
        let mut annotations = Annotations::default();
        for binding in &bound.bindings {
            let one = self.validate_binding(policy, binding, &matched, run, (walk, &mut annotations));
            evaluation = worse(evaluation, one);
        }
        annotations.publish(&applicability.name, &mut walk.outcome.audit_annotations);
        evaluation
    }

    fn validate_binding(
        &self,
        policy: &ValidatingPolicy,
        binding: &Binding,
        matched: &Matched<'_>,
        run: Run<'_>,
        (walk, annotations): (&mut Walk<'_>, &mut Annotations),
    ) -> Evaluation {
        let request = walk.request;
        let applicability = &policy.applicability;
        let mut unusable = |fault| walk.unusable(applicability, Some(binding), &fault);
        if let Some(constraints) = &binding.constraints {
            let subject = self.subject(request, request.object);
            let found = constraints.matches(subject);
            run.tell(|| Step::Binding {
                name: &binding.name,
                finding: finding(constraints, subject, &found),
            });
            match found {
                Ok(Some(_)) => {}
                Ok(None) => return Evaluation::NoMatch,
                Err(fault) => return unusable(Unusable::Binding(fault)),
            }
        }
        let kind = applicability.param_kind.as_ref();
        let params = match self
            .parameters
            .collect(kind, binding.param_ref.as_ref(), &request.namespace)
        {
            Ok(params) if params.is_empty() => {
                run.tell(|| no_parameter(binding));
                return Evaluation::NoMatch;
            }
            Ok(params) => params,
            Err(fault) => {
                run.tell(|| fails(binding, &fault));
                return unusable(Unusable::Parameters(fault));
            }
        };
        if let Err(fault) = matched.as_sent(request) {
            run.tell(|| fails(binding, &fault));
            return unusable(Unusable::Version(fault));
        }
        let namespace = self.namespace_of(request);
        let (view, condition_view) = (
            RequestView::new(request, matched),
            RequestView::for_conditions(request, matched),
        );
        let mut evaluation = Evaluation::NoMatch;
        for param in &params {
            if run.clock.is_over() {
                break;
            }
            let given = Given {
                object: request.object,
                old_object: request.old_object,
                request: &view,
                params: param.as_deref().map(Document::root),
                namespace: namespace.as_variable(),
                access: walk.access,
                recorder: run.recorder,
            };
            run.tell(|| runs(applicability, binding, given.params));
            let for_conditions = Given {
                request: &condition_view,
                namespace: NamespaceObject::Null,
                ..given
            };
            let validated = policy.validate(&given, &for_conditions, run.clock);
            evaluation = worse(evaluation, validated.evaluation());
            walk.take(policy, binding, &validated, annotations);
        }
        evaluation
    }
}

// === impl Walk ===

impl Walk<'_> {
    /// What a binding makes of what its policy says.
    fn take(
        &mut self,
        policy: &ValidatingPolicy,
        binding: &Binding,
        validated: &Validated,
        annotations: &mut Annotations,
    ) {
        for (index, decision) in validated.decisions.iter().enumerate() {
            let Some((message, reason)) = decision.failure() else {
                continue;
            };
            for action in &binding.actions {
                match action {
                    Action::Deny if self.is_excused(&policy.applicability, decision) => {}
                    Action::Deny => {
                        self.deny(&policy.applicability, Some(binding), message, reason, Some(index))
                    }
                    Action::Warn => self.warn(&policy.applicability, binding, message),
                    Action::Audit => self.failures.push(binding, index, message),
                }
            }
        }
        for failure in annotations.take(&validated.annotations) {
            self.deny(
                &policy.applicability,
                Some(binding),
                &failure,
                Reason::Invalid,
                None,
            );
        }
    }

    /// Whether an exception lets pass that a validation does not hold. An error is
    /// no such thing.
    fn is_excused(&mut self, policy: &Applicability, decision: &Decision) -> bool {
        if !matches!(decision, Decision::Deny { .. }) {
            return false;
        }
        let excused = self.excuses.find(&policy.name, self.set, self.context);
        let is_excused = excused.is_some();
        if let Some(excused) = excused {
            exceptions::note(&mut self.outcome.exceptions, excused);
        }
        is_excused
    }

    fn warn(&mut self, policy: &Applicability, binding: &Binding, message: &str) {
        self.outcome.warnings.push(&format!(
            "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {message}",
            policy.name, binding.name
        ));
    }

    fn unusable(&mut self, policy: &Applicability, binding: Option<&Binding>, why: &Unusable) -> Evaluation {
        if policy.failure_policy == FailurePolicy::Fail {
            self.deny(policy, binding, &why.to_string(), Reason::Invalid, None);
        }
        Evaluation::Error
    }

    /// Refuses the request; the first refusal is the one that is told.
    fn deny(
        &mut self,
        policy: &Applicability,
        binding: Option<&Binding>,
        message: &str,
        reason: Reason,
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
        self.outcome.denial = Some(denial(self.request, message, reason));
        self.outcome.cause = Some(Cause {
            kind: CauseKind::ValidatingAdmissionPolicy,
            namespace: String::new(),
            name: name.clone(),
            rule,
        });
    }
}

// === steps ===

/// What the constraints found, for a recorder.
pub(super) fn finding<'f>(
    constraints: &Constraints,
    subject: Subject<'_>,
    found: &'f Result<Option<Matched<'_>>, Fault>,
) -> Finding<'f> {
    match found {
        Ok(Some(matched)) => Finding::Applies {
            resource: &matched.resource,
        },
        Ok(None) => Finding::Misses(constraints.miss(subject)),
        Err(fault) => Finding::Fails(fault.to_string()),
    }
}

const fn no_parameter(binding: &Binding) -> Step<'_> {
    Step::Binding {
        name: binding.name.as_str(),
        finding: Finding::Misses(Miss::NoParameter),
    }
}

fn fails<'s>(binding: &'s Binding, fault: &dyn std::error::Error) -> Step<'s> {
    Step::Binding {
        name: &binding.name,
        finding: Finding::Fails(fault.to_string()),
    }
}

fn runs<'s>(policy: &'s Applicability, binding: &'s Binding, parameter: Option<Node<'_>>) -> Step<'s> {
    let of = |parameter: Node<'_>, field| {
        let text = parameter.pointer(field).and_then(Node::as_str);
        text.unwrap_or_default().into_owned()
    };
    Step::Run {
        policy: &policy.name,
        binding: &binding.name,
        parameter: parameter.map(|parameter| {
            (
                of(parameter, "/metadata/namespace"),
                of(parameter, "/metadata/name"),
            )
        }),
    }
}

/// The refusal of what was not looked at to the end, whatever the failure policies.
pub(super) fn too_late(request: &Request<'_>) -> Denial {
    let message = "the deadline passed before every policy was asked".to_owned();
    denial(request, message, Reason::Timeout)
}

/// A refusal that names the object, as `admission.NewForbidden` does.
pub(super) fn denial(request: &Request<'_>, message: String, reason: Reason) -> Denial {
    let GroupVersionResource { group, resource, .. } = &request.request_resource;
    Denial {
        status: Denial::FAILURE.into(),
        reason: reason.as_str().into(),
        code: reason.code(),
        details: Details {
            name: object_name(request),
            group: group.to_string(),
            kind: resource.to_string(),
            causes: vec![StatusCause::of(message.clone())],
            ..Details::default()
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

/// Of two results of one policy, the one that metrics count.
const fn worse(one: Evaluation, other: Evaluation) -> Evaluation {
    match (one, other) {
        (Evaluation::Error, _) | (_, Evaluation::Error) => Evaluation::Error,
        (Evaluation::Match, _) | (_, Evaluation::Match) => Evaluation::Match,
        _ => Evaluation::NoMatch,
    }
}

// === impl Validated ===

impl Validated {
    fn evaluation(&self) -> Evaluation {
        let failed =
            |decision: &Decision| matches!(decision, Decision::Error { .. } | Decision::Ignored { .. });
        if self.decisions.iter().any(failed) {
            Evaluation::Error
        } else if self.decisions.is_empty() && self.annotations.is_empty() {
            Evaluation::NoMatch
        } else {
            Evaluation::Match
        }
    }
}

impl Decision {
    /// Message and reason, if the request is to be refused.
    fn failure(&self) -> Option<(&str, Reason)> {
        match self {
            Self::Admit | Self::Ignored { .. } => None,
            Self::Deny { message, reason } => Some((message, *reason)),
            Self::Error { message } => Some((message, Reason::Invalid)),
        }
    }
}
