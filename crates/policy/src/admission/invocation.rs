//! Determines the evaluations of a policy: whether it applies, which of its bindings do, and for
//! which parameters.
//!
//! ```text
//! policy matches ─▶ each binding matches ─▶ each parameter
//! ```
//!
//! Follows `apiserver/pkg/admission/plugin/policy/generic/policy_dispatcher.go`, for validating and
//! mutating policies alike.

use super::matching::{Constraints, MatchError, MatchInput, MatchedResource, Mismatch};
use super::parameters::CollectedParameters;
use super::run::{MatchFinding, RunContext, RunOptions, TraceStep};
use super::{AdmissionSet, Applicability, ParamError, PolicyBinding};
use crate::model::{CauseKind, PolicyResult};
use portcullis_cel::json::Node;

/// Why a policy could not be evaluated for a request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InvocationError {
    #[error("failed to configure policy: {0}")]
    Policy(MatchError),
    #[error("failed to configure binding: {0}")]
    Binding(MatchError),
    #[error("failed to configure policy: {0}")]
    ParamKind(ParamError),
    #[error("failed to configure binding: {0}")]
    Parameters(ParamError),
    #[error("failed to configure binding: failed to convert object version: {0}")]
    Version(MatchError),
}

/// The resource by which the policy matches; `None` if it does not apply.
pub(crate) fn policy_matches<'m>(
    kind: CauseKind,
    policy: &'m Applicability,
    subject: MatchInput<'m>,
    run: RunOptions<'_>,
) -> Result<Option<MatchedResource<'m>>, InvocationError> {
    let found = policy.constraints.matches(subject);
    run.record(|| TraceStep::Policy {
        kind,
        name: &policy.name,
        finding: match_finding(&policy.constraints, subject, &found),
    });
    found.map_err(InvocationError::Policy)
}

/// Whether the binding matches the request, too.
pub(crate) fn binding_matches(
    binding: &PolicyBinding,
    subject: MatchInput<'_>,
    run: RunOptions<'_>,
) -> Result<bool, InvocationError> {
    let Some(constraints) = &binding.constraints else {
        return Ok(true);
    };
    let found = constraints.matches(subject);
    run.record(|| TraceStep::Binding {
        name: &binding.name,
        finding: match_finding(constraints, subject, &found),
    });
    found
        .map(|found| found.is_some())
        .map_err(InvocationError::Binding)
}

/// Checks that the API server sent the object in the version that the policy matches.
pub(crate) fn as_sent(
    binding: &PolicyBinding,
    matched: &MatchedResource<'_>,
    context: RunContext<'_>,
) -> Result<(), MatchError> {
    let RunContext { request, run, .. } = context;
    matched.as_sent(request).inspect_err(|fault| {
        run.record(|| fails(binding, fault));
    })
}

impl AdmissionSet {
    /// The parameters for which the policy is evaluated under the binding, once for each: one
    /// `None` for a policy without parameters, and empty if no parameter was found and the binding
    /// allows that.
    pub(crate) fn parameters_of(
        &self,
        policy: &Applicability,
        binding: &PolicyBinding,
        context: RunContext<'_>,
    ) -> Result<CollectedParameters, InvocationError> {
        let RunContext { request, run, .. } = context;
        let (kind, reference) = (policy.param_kind.as_ref(), binding.param_ref.as_ref());
        let found = self.parameters.collect(kind, reference, &request.namespace);
        match &found {
            Ok(found) if found.is_empty() => run.record(|| no_parameter(binding)),
            Ok(_) => {}
            Err(fault) => run.record(|| fails(binding, fault)),
        }
        found.map_err(|fault| match fault {
            ParamError::NotServed(_) => InvocationError::ParamKind(fault),
            fault => InvocationError::Parameters(fault),
        })
    }
}

/// The result of matching, for a recorder.
pub(crate) fn match_finding<'f>(
    constraints: &Constraints,
    subject: MatchInput<'_>,
    found: &'f Result<Option<MatchedResource<'_>>, MatchError>,
) -> MatchFinding<'f> {
    match found {
        Ok(Some(matched)) => MatchFinding::Applies {
            resource: matched.resource(),
        },
        Ok(None) => MatchFinding::Misses(constraints.first_mismatch(subject)),
        Err(fault) => MatchFinding::Fails(fault.to_string()),
    }
}

const fn no_parameter(binding: &PolicyBinding) -> TraceStep<'_> {
    TraceStep::Binding {
        name: binding.name.as_str(),
        finding: MatchFinding::Misses(Mismatch::NoParameter),
    }
}

fn fails<'s>(binding: &'s PolicyBinding, fault: &dyn std::error::Error) -> TraceStep<'s> {
    TraceStep::Binding {
        name: &binding.name,
        finding: MatchFinding::Fails(fault.to_string()),
    }
}

/// The trace step for an evaluation of the policy with this parameter.
pub(crate) fn run_step<'s>(
    policy: &'s Applicability,
    binding: &'s PolicyBinding,
    parameter: Option<Node<'_>>,
) -> TraceStep<'s> {
    let of = |parameter: Node<'_>, field| {
        let text = parameter.pointer(field).and_then(Node::as_str);
        text.unwrap_or_default().into_owned()
    };
    TraceStep::Run {
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

/// The worse of two results of one policy, which metrics count.
pub(crate) const fn worse(one: PolicyResult, other: PolicyResult) -> PolicyResult {
    match (one, other) {
        (PolicyResult::Error, _) | (_, PolicyResult::Error) => PolicyResult::Error,
        (PolicyResult::Match, _) | (_, PolicyResult::Match) => PolicyResult::Match,
        _ => PolicyResult::NoMatch,
    }
}
