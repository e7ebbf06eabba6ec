//! The result of authorization: decision, reason, cause and, if nothing matched, the near misses;
//! and its trace, which lists every policy and binding considered.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::access_request::AccessGrant;
use super::{
    AccessRequest, AuthorizationPolicy, Binding, Criterion, Effect, Mode, RoleKind, Subject, SubjectKind,
};
use crate::model::{Cause, CauseKind, Decision, PolicyResult, cut};
use portcullis_cel::write_quoted;

/// A decision and what it is based on. It borrows from the policy set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authorization<'s> {
    /// The decision.
    pub decision: Decision,
    /// Why, for the user. Empty if there is no opinion;
    /// [`PolicySet::unmatched`](super::PolicySet::unmatched) then gives details.
    pub reason: AuthorizationReason<'s>,
    /// The object that decided; `None` if there is no opinion.
    pub cause: Option<Cause<'s>>,
    /// What each policy in mode Shadow that applies would have decided, by name. This did not
    /// change the decision.
    pub shadow: Vec<Shadow>,
    /// The number of rules of bindings and policies that were compared with the request.
    pub compared_rules: usize,
}

/// What a policy in mode Shadow would have decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shadow {
    /// The policy's kind.
    pub kind: CauseKind,
    /// The policy's name.
    pub name: Arc<str>,
    /// What it would have decided if it were enforced. If a condition could not be evaluated, this
    /// follows its failure policy.
    pub decision: Decision,
    /// Why a condition could not be evaluated.
    pub error: Option<String>,
}

/// Why nothing decided, for the log and the command line. It is not shown to the user.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NearMisses {
    /// The number of bindings that apply to the user and namespace of the request. At most 1,000
    /// are counted for each of the user's names and groups.
    pub bindings: usize,
    /// The number of AuthorizationPolicies in force.
    pub policies: usize,
    /// The errors about bound roles that do not exist, worded like those of kube-apiserver, and why
    /// Allows with objectConditions do not grant; at most [`NearMisses::MAX_ERRORS`] of each.
    pub errors: Vec<String>,
    /// The bindings and policies that come nearest to matching, the nearest first, each with its
    /// nearest rule and the criterion that is not met; at most [`NearMisses::MAX_NEAREST`].
    pub nearest: Vec<TraceEntry>,
}

/// Why a request was decided, for the user; at most [`AuthorizationReason::MAX_BYTES`] when
/// written. It borrows from the objects that it names, so that a decision needs no allocation for
/// it.
#[derive(Clone, Default)]
pub struct AuthorizationReason<'a>(ReasonParts<'a>);

/// The objects that a reason names.
#[derive(Clone, Default)]
enum ReasonParts<'a> {
    #[default]
    Empty,
    Grant {
        binding: &'a Binding,
        subject: Option<&'a Subject>,
    },
    Policy {
        policy: &'a AuthorizationPolicy,
        decision: Decision,
        /// The condition that could not be evaluated, if that decides.
        failed: Option<&'a str>,
    },
    Access(&'a AccessGrant),
    Text(String),
}

/// The most bytes of a reason besides the names in it.
const MAX_FIXED_BYTES: usize = 128;

/// How many bytes each byte of a name can become when it is quoted.
const MAX_QUOTED_FACTOR: usize = 4;

// === impl Authorization ===

impl Authorization<'_> {
    /// No opinion, for a reason that does not come from a policy.
    #[must_use]
    pub fn no_opinion(reason: &str) -> Self {
        Self {
            decision: Decision::NoOpinion,
            reason: reason.to_owned().into(),
            cause: None,
            shadow: Vec::new(),
            compared_rules: 0,
        }
    }

    /// Converts to an authorization that owns its strings.
    #[must_use]
    pub fn into_owned(self) -> Authorization<'static> {
        Authorization {
            decision: self.decision,
            reason: self.reason.into_owned(),
            cause: self.cause.map(Cause::into_owned),
            shadow: self.shadow,
            compared_rules: self.compared_rules,
        }
    }
}

// === impl NearMisses ===

impl NearMisses {
    /// The maximum of errors about missing roles, and of those about Allows with objectConditions.
    pub const MAX_ERRORS: usize = 10;

    /// The maximum of `nearest`.
    pub const MAX_NEAREST: usize = 5;
}

// === impl AuthorizationReason ===

impl<'a> AuthorizationReason<'a> {
    /// The maximum length of a reason in bytes; a longer one is cut and ends in `…`.
    pub const MAX_BYTES: usize = 1024;

    /// The reason that `binding` allows the request, with the subject that is the user.
    pub(crate) const fn of_grant(binding: &'a Binding, subject: Option<&'a Subject>) -> Self {
        Self(ReasonParts::Grant { binding, subject })
    }

    /// The reason that an AccessRequest allows the request.
    pub(crate) const fn of_access(grant: &'a AccessGrant) -> Self {
        Self(ReasonParts::Access(grant))
    }

    /// The reason that `policy` decides, perhaps because the condition `failed` could not be
    /// evaluated.
    pub(crate) const fn of_policy(
        policy: &'a AuthorizationPolicy,
        decision: Decision,
        failed: Option<&'a str>,
    ) -> Self {
        Self(ReasonParts::Policy {
            policy,
            decision,
            failed,
        })
    }

    /// Whether the reason is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        match &self.0 {
            ReasonParts::Empty => true,
            ReasonParts::Grant { .. } | ReasonParts::Policy { .. } | ReasonParts::Access(_) => false,
            ReasonParts::Text(text) => text.is_empty(),
        }
    }

    /// Writes the reason, in pieces if it is surely short.
    ///
    /// # Errors
    /// The errors of `out`.
    pub fn write(&self, out: &mut impl fmt::Write) -> fmt::Result {
        match &self.0 {
            ReasonParts::Text(text) => out.write_str(text),
            _ if self.is_surely_short() => self.write_whole(out),
            _ => {
                let mut whole = String::new();
                self.write_whole(&mut whole)?;
                out.write_str(&cut(whole, Self::MAX_BYTES))
            }
        }
    }

    /// Converts to a reason that owns its string.
    #[must_use]
    pub fn into_owned(self) -> AuthorizationReason<'static> {
        match self.0 {
            ReasonParts::Empty => AuthorizationReason::default(),
            ReasonParts::Text(text) => AuthorizationReason(ReasonParts::Text(text)),
            ReasonParts::Grant { .. } | ReasonParts::Policy { .. } | ReasonParts::Access(_) => {
                self.to_string().into()
            }
        }
    }

    /// Whether the reason fits in the maximum, whatever characters its names contain. Nearly every
    /// reason does, and is written without a buffer.
    fn is_surely_short(&self) -> bool {
        let (quoted, plain) = match &self.0 {
            ReasonParts::Empty => (0, 0),
            ReasonParts::Text(text) => (0, text.len()),
            ReasonParts::Grant { binding, subject } => {
                let names = binding.namespace.len() + binding.name.len() + binding.role.name.len();
                let subject = subject.map_or(0, |subject| subject.name.len() + subject.namespace.len());
                (names + binding.namespace.len() + subject, 0)
            }
            // Contains strings of users, of any length.
            ReasonParts::Access(_) => return false,
            ReasonParts::Policy { policy, failed, .. } => (
                policy.name.len() + failed.map_or(0, str::len),
                policy.reason.len(),
            ),
        };
        quoted
            .saturating_mul(MAX_QUOTED_FACTOR)
            .saturating_add(plain + MAX_FIXED_BYTES)
            <= Self::MAX_BYTES
    }

    fn write_whole(&self, out: &mut impl fmt::Write) -> fmt::Result {
        match &self.0 {
            ReasonParts::Empty => Ok(()),
            ReasonParts::Text(text) => out.write_str(text),
            ReasonParts::Grant { binding, subject } => write_grant(out, binding, *subject),
            ReasonParts::Access(grant) => write_access(out, grant),
            ReasonParts::Policy {
                policy,
                decision,
                failed,
            } => write_policy(out, policy, *decision, *failed),
        }
    }
}

impl fmt::Display for AuthorizationReason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f)
    }
}

impl fmt::Debug for AuthorizationReason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_string(), f)
    }
}

/// Reasons are equal if they are written alike.
impl PartialEq for AuthorizationReason<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for AuthorizationReason<'_> {}

/// Takes the string as the reason, cut if it is too long.
impl From<String> for AuthorizationReason<'_> {
    fn from(text: String) -> Self {
        Self(ReasonParts::Text(cut(text, Self::MAX_BYTES)))
    }
}

impl<'a> From<&'a AuthorizationReason<'_>> for Cow<'a, str> {
    fn from(reason: &'a AuthorizationReason<'_>) -> Self {
        match &reason.0 {
            ReasonParts::Empty => Cow::Borrowed(""),
            ReasonParts::Text(text) => Cow::Borrowed(text),
            ReasonParts::Grant { .. } | ReasonParts::Policy { .. } | ReasonParts::Access(_) => {
                Cow::Owned(reason.to_string())
            }
        }
    }
}

/// Words the reason as kube-apiserver does (`pkg/registry/rbac/validation/rule.go`).
fn write_grant(out: &mut impl fmt::Write, binding: &Binding, subject: Option<&Subject>) -> fmt::Result {
    if binding.namespace.is_empty() {
        out.write_str("RBAC: allowed by ClusterRoleBinding ")?;
        write_quoted(out, &[&binding.name])?;
    } else {
        out.write_str("RBAC: allowed by RoleBinding ")?;
        write_quoted(out, &[&binding.name, "/", &binding.namespace])?;
    }
    out.write_str(match binding.role.kind {
        RoleKind::ClusterRole => " of ClusterRole ",
        RoleKind::Role => " of Role ",
    })?;
    write_quoted(out, &[&binding.role.name])?;
    match subject {
        Some(subject) => write_subject(out, subject, &binding.namespace),
        None => Ok(()),
    }
}

fn write_subject(out: &mut impl fmt::Write, subject: &Subject, binding_namespace: &str) -> fmt::Result {
    out.write_str(match subject.kind {
        SubjectKind::User => " to User ",
        SubjectKind::Group => " to Group ",
        SubjectKind::ServiceAccount => " to ServiceAccount ",
    })?;
    match (subject.kind, subject.namespace.is_empty()) {
        (SubjectKind::ServiceAccount, true) => write_quoted(out, &[&subject.name, "/", binding_namespace]),
        (SubjectKind::ServiceAccount, false) => write_quoted(out, &[&subject.name, "/", &subject.namespace]),
        (SubjectKind::User | SubjectKind::Group, _) => write_quoted(out, &[&subject.name]),
    }
}

/// `allowed by AccessRequest "name" of ClusterRole "edit" to User "alice" until …, approved by
/// "bob": reason`.
fn write_access(out: &mut impl fmt::Write, grant: &AccessGrant) -> fmt::Result {
    let request = &grant.request;
    out.write_str("allowed by AccessRequest ")?;
    write_quoted(out, &[&request.name])?;
    out.write_str(" of ClusterRole ")?;
    write_quoted(out, &[&request.role])?;
    out.write_str(" to User ")?;
    write_quoted(out, &[&request.requester.username])?;
    write!(out, " until {}", grant.until())?;
    for (place, name) in grant.approvers().enumerate() {
        out.write_str(if place == 0 { ", approved by " } else { ", " })?;
        write_quoted(out, &[name])?;
    }
    out.write_str(": ")?;
    out.write_str(&request.reason)
}

/// `denied by AuthorizationPolicy "name": reason`, or for a Limit `beyond the limit name: reason`.
fn write_policy(
    out: &mut impl fmt::Write,
    policy: &AuthorizationPolicy,
    decision: Decision,
    failed: Option<&str>,
) -> fmt::Result {
    match (policy.effect, decision) {
        (Effect::Limit, _) => write!(out, "beyond the limit {}", policy.name)?,
        (_, Decision::Deny) => {
            out.write_str("denied by AuthorizationPolicy ")?;
            write_quoted(out, &[&policy.name])?;
        }
        _ => {
            out.write_str("allowed by AuthorizationPolicy ")?;
            write_quoted(out, &[&policy.name])?;
        }
    }
    if decision == Decision::Allow && !policy.object_conditions.is_empty() {
        out.write_str(" where its objectConditions hold")?;
    }
    if !policy.reason.is_empty() {
        out.write_str(": ")?;
        out.write_str(&policy.reason)?;
    }
    if let Some(condition) = failed {
        out.write_str(" (condition ")?;
        write_quoted(out, &[condition])?;
        out.write_str(" could not be evaluated)")?;
    }
    Ok(())
}

/// Everything considered for one request, in the order of the walk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Trace {
    /// The entries, at most [`Trace::MAX_EVENTS`].
    pub events: Vec<TraceEntry>,
    /// The number of entries beyond that.
    pub omitted: usize,
}

/// A policy or binding that was considered, and whether it applies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TraceEntry {
    /// The kind of the policy or binding.
    pub kind: CauseKind,
    /// Its namespace; empty for cluster-scoped kinds.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The effect of a policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
    /// The mode of a policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// The role of a binding, as `ClusterRole/view`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Whether it applies, or why not.
    #[serde(flatten)]
    pub finding: Finding,
}

/// Whether a policy or binding applies, or why not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "result", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Finding {
    /// It applies. The first enforced match in the trace decides.
    Match {
        /// The rule that applies, numbered as in [`Cause::rule`](crate::model::Cause::rule).
        rule: usize,
        /// Its decision; in mode Shadow, what it would have decided.
        decision: Decision,
    },
    /// It does not apply.
    NoMatch {
        /// The nearest rule; absent if no rule was compared.
        #[serde(skip_serializing_if = "Option::is_none")]
        rule: Option<usize>,
        /// The first criterion of the nearest rule that is not met.
        criterion: Criterion,
    },
    /// It is not in force: `notBefore` is in the future, or `notAfter` has passed.
    NotInForce,
    /// The request lies wholly within a rule of the Limit.
    WithinLimit {
        /// The rule that contains the request.
        rule: usize,
    },
    /// The request lies wholly within no rule of the Limit. It decides like a [`Finding::Match`].
    BeyondLimit {
        /// The nearest rule; absent if none was compared.
        #[serde(skip_serializing_if = "Option::is_none")]
        rule: Option<usize>,
        /// The first criterion of that rule that is not met.
        criterion: Criterion,
        /// Its decision; in mode Shadow, what it would have decided.
        decision: Decision,
    },
    /// A Deny or Limit applies, but an AccessRequest lifts it.
    Lifted {
        /// The rule that applies; absent for a Limit.
        #[serde(skip_serializing_if = "Option::is_none")]
        rule: Option<usize>,
        /// The name of the AccessRequest.
        by: String,
    },
    /// A Deny or Limit applies, but the user or path is in `neverDeny`.
    NeverDenied {
        /// The rule that applies; absent for a Limit.
        #[serde(skip_serializing_if = "Option::is_none")]
        rule: Option<usize>,
    },
    /// It applies, but has objectConditions and therefore decides nothing at this point.
    ObjectConditions {
        /// The rule that applies.
        #[serde(skip_serializing_if = "Option::is_none")]
        rule: Option<usize>,
        /// Why it decides nothing.
        why: String,
    },
    /// A condition is false.
    ConditionFalse {
        /// The rule that otherwise applies; absent for a Limit.
        #[serde(skip_serializing_if = "Option::is_none")]
        rule: Option<usize>,
        /// The condition's name.
        condition: String,
    },
    /// A condition cannot be evaluated, and none is false.
    ConditionError {
        /// The rule that otherwise applies; absent for a Limit.
        #[serde(skip_serializing_if = "Option::is_none")]
        rule: Option<usize>,
        /// The condition's name.
        condition: String,
        /// Why it cannot be evaluated.
        error: String,
        /// The decision that follows from the failure policy.
        decision: Decision,
    },
    /// The bound role does not exist.
    MissingRole {
        /// The error, worded like that of kube-apiserver.
        error: String,
    },
}

/// Is called for each policy that is evaluated, with its index in
/// [`PolicySet::policies`](super::PolicySet::policies). It costs nothing but the call.
///
/// Policies that the index rules out are not evaluated, so they are not reported.
pub trait Observer {
    /// Reports the result of the policy with the index `policy`.
    fn evaluated(&mut self, policy: usize, evaluation: PolicyResult);

    /// Reports the CEL cost of the conditions of the policy with the index `policy`, in cost units.
    fn spent(&mut self, _policy: usize, _cost: u64) {}
}

/// An observer that ignores everything.
impl Observer for () {
    fn evaluated(&mut self, _: usize, _: PolicyResult) {}
}

impl<F: FnMut(usize, PolicyResult)> Observer for F {
    fn evaluated(&mut self, policy: usize, evaluation: PolicyResult) {
        self(policy, evaluation);
    }
}

// === impl TraceEntry ===

impl TraceEntry {
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

    pub(crate) fn of_access(request: &AccessRequest, finding: Finding) -> Self {
        Self {
            kind: CauseKind::AccessRequest,
            namespace: String::new(),
            name: request.name.clone(),
            effect: None,
            mode: None,
            role: Some(format!("ClusterRole/{}", request.role)),
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
    /// The maximum of entries for one request.
    pub const MAX_EVENTS: usize = 10_000;

    pub(crate) fn record(&mut self, event: TraceEntry) {
        if self.events.len() < Self::MAX_EVENTS {
            self.events.push(event);
        } else {
            self.omitted += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authorization::RoleRef;

    fn mk(name: &str) -> Binding {
        Binding {
            namespace: String::new(),
            name: name.into(),
            role: RoleRef {
                kind: RoleKind::ClusterRole,
                name: "view".into(),
            },
            subjects: vec![Subject::user("alice")],
            until: None,
        }
    }

    #[test]
    fn it_is_the_same_borrowed_owned_and_cut() {
        for character in ["x", "ü", "\u{7}", "\u{200b}"] {
            for length in [0, 1, 100, 160, 222, 224, 240, 480, 960, 1100] {
                let binding = mk(&character.repeat(length));
                let reason = AuthorizationReason::of_grant(&binding, binding.subjects.first());
                let mut whole = String::new();
                reason.write_whole(&mut whole).unwrap();
                let expected = cut(whole, AuthorizationReason::MAX_BYTES);
                assert_eq!(reason.to_string(), expected);
                assert_eq!(Cow::from(&reason), expected);
                assert_eq!(reason.clone().into_owned().to_string(), expected);
                assert!(!reason.is_empty() && reason == reason.clone().into_owned());
            }
        }
        assert!(AuthorizationReason::default().is_empty());
        assert_eq!(AuthorizationReason::default().to_string(), "");
    }
}
