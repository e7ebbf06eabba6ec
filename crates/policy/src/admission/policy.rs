//! What validating and mutating policies have in common.

use super::environment::Expression;
use super::matching::Constraints;
use super::parameters::{ParamKind, ParamRef};

/// The end of the names of static policies, bindings and webhook configurations, which no API
/// server stores under such names: they come from files alone (KEP-5793).
pub const STATIC_SUFFIX: &str = ".static.k8s.io";

/// `FailurePolicyType`: what an error in a policy does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum FailurePolicy {
    /// The request is refused.
    #[default]
    Fail,
    /// As if the policy did not apply.
    Ignore,
}

/// The part of a policy that says when it applies.
#[derive(Debug)]
pub struct Applicability {
    /// `metadata.name`, by which policies are ordered.
    pub name: String,
    /// Whether it comes from a file under a name with [`STATIC_SUFFIX`]: it goes before
    /// others, and judges policies and bindings too, which others never see.
    pub is_static: bool,
    /// `spec.failurePolicy`.
    pub failure_policy: FailurePolicy,
    /// `spec.matchConstraints`.
    pub constraints: Constraints,
    /// `spec.matchConditions`: all must hold.
    pub match_conditions: Vec<CompiledMatchCondition>,
    /// `spec.paramKind`.
    pub param_kind: Option<ParamKind>,
}

/// One of `matchConditions`.
#[derive(Debug)]
pub struct CompiledMatchCondition {
    /// Its name.
    pub name: String,
    /// Of type bool.
    pub expression: Expression,
}

/// The part of a binding that both kinds have.
#[derive(Debug)]
pub struct PolicyBinding {
    /// `metadata.name`, by which the bindings of a policy are ordered.
    pub name: String,
    /// Whether it comes from a file under a name with [`STATIC_SUFFIX`]: only such a one
    /// has its policy judge policies and bindings.
    pub is_static: bool,
    /// `spec.policyName`.
    pub policy: String,
    /// `spec.paramRef`.
    pub param_ref: Option<ParamRef>,
    /// `spec.matchResources`, which narrows the policy's constraints.
    pub constraints: Option<Constraints>,
    /// `spec.validationActions`, in the order written; empty for a mutating policy's.
    pub actions: Vec<ValidationAction>,
}

/// `ValidationAction`: what a failed validation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ValidationAction {
    /// Refuses the request.
    Deny,
    /// Warns the user.
    Warn,
    /// Writes into the audit log.
    Audit,
}

// === impl ValidationAction ===

impl ValidationAction {
    /// As bindings spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deny => "Deny",
            Self::Warn => "Warn",
            Self::Audit => "Audit",
        }
    }

    /// The action that a binding spells so.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "Deny" => Some(Self::Deny),
            "Warn" => Some(Self::Warn),
            "Audit" => Some(Self::Audit),
            _ => None,
        }
    }
}
