//! The trace of a decision: every policy and binding considered, as data.

use serde::Serialize;

use super::rule_match::Criterion;
use super::{AuthorizationPolicy, Binding, Effect, Mode};
use crate::engine::{CauseKind, Decision, PolicyResult};

/// Everything considered for one request, in the order of the walk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Trace {
    /// What was considered, at most [`Trace::MAX_EVENTS`].
    pub events: Vec<Event>,
    /// How many more there were.
    pub omitted: usize,
}

/// One policy or binding, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// The kind of the object considered.
    pub kind: CauseKind,
    /// Its namespace; empty for cluster-scoped kinds.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Of a policy: what it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
    /// Of a policy: whether its answer counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Of a binding: the role bound, as `ClusterRole/view`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// What became of it.
    #[serde(flatten)]
    pub finding: Finding,
}

/// What became of a policy or binding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "result", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Finding {
    /// It applies. Of those that apply, the first in the trace that is enforced decides.
    Match {
        /// The rule that applies, as in [`Cause::rule`](crate::engine::Cause::rule).
        rule: usize,
        /// The answer it gives, or in Shadow would give.
        decision: Decision,
    },
    /// It does not apply.
    NoMatch {
        /// The rule that came nearest; absent where no rule was compared.
        #[serde(skip_serializing_if = "Option::is_none")]
        rule: Option<usize>,
        /// The first thing that did not fit, of the rule that came nearest.
        criterion: Criterion,
    },
    /// It does not hold at the time: `notBefore` is to come, or `notAfter` has passed.
    NotInForce,
    /// A Deny applies, but the user or path is in `neverDeny`.
    NeverDenied {
        /// The rule that applies.
        rule: usize,
    },
    /// A condition is false.
    ConditionFalse {
        /// The rule that applies but for it.
        rule: usize,
        /// The condition's name.
        condition: String,
    },
    /// A condition has no result, and none is false.
    ConditionError {
        /// The rule that applies but for it.
        rule: usize,
        /// The condition's name.
        condition: String,
        /// Why it has none.
        error: String,
        /// What this leads to.
        decision: Decision,
    },
    /// The role bound is not there, or of a kind that is none.
    MissingRole {
        /// As `kube-apiserver` words it.
        error: String,
    },
}

/// Called for each policy that is evaluated, with its index in
/// [`PolicySet::policies`](super::PolicySet::policies), at no cost beyond the call.
///
/// Policies that the index rules out are not evaluated, so they are not reported.
pub trait Observer {
    /// The policy `policy` came to `evaluation`.
    fn evaluated(&mut self, policy: usize, evaluation: PolicyResult);

    /// The conditions of the policy `policy` cost so many units of CEL.
    fn spent(&mut self, _policy: usize, _cost: u64) {}
}

/// An observer that wants to know nothing.
impl Observer for () {
    fn evaluated(&mut self, _: usize, _: PolicyResult) {}
}

impl<F: FnMut(usize, PolicyResult)> Observer for F {
    fn evaluated(&mut self, policy: usize, evaluation: PolicyResult) {
        self(policy, evaluation);
    }
}

// === impl Event ===

impl Event {
    pub(crate) fn of_policy(policy: &AuthorizationPolicy, finding: Finding) -> Self {
        Self {
            kind: CauseKind::AuthorizationPolicy,
            namespace: String::new(),
            name: policy.name.clone(),
            effect: Some(policy.effect),
            mode: Some(policy.mode),
            role: None,
            finding,
        }
    }

    pub(crate) fn of_binding(binding: &Binding, finding: Finding) -> Self {
        Self {
            kind: binding.kind(),
            namespace: binding.namespace.clone(),
            name: binding.name.clone(),
            effect: None,
            mode: None,
            role: Some(format!("{}/{}", binding.role.kind, binding.role.name)),
            finding,
        }
    }
}

// === impl Trace ===

impl Trace {
    /// The most events kept of one request.
    pub const MAX_EVENTS: usize = 10_000;

    pub(crate) fn record(&mut self, event: Event) {
        if self.events.len() < Self::MAX_EVENTS {
            self.events.push(event);
        } else {
            self.omitted += 1;
        }
    }
}
