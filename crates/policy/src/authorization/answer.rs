//! The result of authorization: decision, reason, cause, and why nothing matched; and its trace, every
//! policy and binding considered, as data.

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

/// The answer to one question, and what it rests on: it points to objects of the set that
/// was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authorization<'s> {
    /// The answer.
    pub decision: Decision,
    /// What decided, for the person who asked. Empty without opinion;
    /// [`PolicySet::unmatched`](super::PolicySet::unmatched) says more.
    pub reason: AuthorizationReason<'s>,
    /// The object that decided; `None` without opinion.
    pub cause: Option<Cause<'s>>,
    /// What policies in Shadow would have decided, by name. They changed nothing.
    pub shadow: Vec<Shadow>,
    /// How many rules of bindings and policies were compared with the request.
    pub visited: usize,
}

/// What a policy in Shadow would have decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shadow {
    /// Its kind.
    pub kind: CauseKind,
    /// Its name.
    pub name: Arc<str>,
    /// What it would have decided where it counts; by its failure policy where a
    /// condition had no result.
    pub decision: Decision,
    /// Why a condition had no result.
    pub error: Option<String>,
}

/// Why nothing decided: for the log and the command line, not for the person refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NearMisses {
    /// How many bindings apply to the user where the request is; of each of the
    /// user's names and groups at most 1,000 are counted.
    pub bindings: usize,
    /// How many AuthorizationPolicies hold at the time.
    pub policies: usize,
    /// Roles that are bound to the user and cannot be found, in kube-apiserver's
    /// words, and why Allows with objectConditions grant nothing; of either at most
    /// [`NearMisses::MAX_ERRORS`].
    pub errors: Vec<String>,
    /// The bindings and policies that fit best, the best first, each with its nearest rule and
    /// what of it does not fit; at most [`NearMisses::MAX_NEAREST`].
    pub nearest: Vec<TraceEntry>,
}

/// What decided, for the person who asked: at most [`AuthorizationReason::MAX_BYTES`] when it
/// is written. Until then it points to the objects that it names, so that a decision
/// allocates nothing for it.
#[derive(Clone, Default)]
pub struct AuthorizationReason<'a>(ReasonParts<'a>);

/// What a reason names.
#[derive(Clone, Default)]
enum ReasonParts<'a> {
    #[default]
    Nothing,
    Grant {
        binding: &'a Binding,
        subject: Option<&'a Subject>,
    },
    Policy {
        policy: &'a AuthorizationPolicy,
        decision: Decision,
        /// The condition that has no result, where that decides.
        failed: Option<&'a str>,
    },
    Access(&'a AccessGrant),
    Text(String),
}

/// The words around the names of a reason take at most so many bytes.
const MAX_WORDS_BYTES: usize = 128;

/// A quoted name takes at most so many times its bytes.
const MAX_QUOTED_FACTOR: usize = 4;

// === impl Authorization ===

impl Authorization<'_> {
    /// No opinion, for a reason that is no policy's.
    #[must_use]
    pub fn no_opinion(reason: &str) -> Self {
        Self {
            decision: Decision::NoOpinion,
            reason: reason.to_owned().into(),
            cause: None,
            shadow: Vec::new(),
            visited: 0,
        }
    }

    /// The same, with texts of its own.
    #[must_use]
    pub fn into_owned(self) -> Authorization<'static> {
        Authorization {
            decision: self.decision,
            reason: self.reason.into_owned(),
            cause: self.cause.map(Cause::into_owned),
            shadow: self.shadow,
            visited: self.visited,
        }
    }
}

// === impl NearMisses ===

impl NearMisses {
    /// The most missing roles, and the most Allows with objectConditions, that are named.
    pub const MAX_ERRORS: usize = 10;

    /// The most bindings and policies that are named as nearest.
    pub const MAX_NEAREST: usize = 5;
}

// === impl AuthorizationReason ===

impl<'a> AuthorizationReason<'a> {
    /// The longest reason, in bytes; a longer one is cut and ends in `…`.
    pub const MAX_BYTES: usize = 1024;

    /// That `binding` allows it, by the subject that applies to the user.
    pub(crate) const fn of_grant(binding: &'a Binding, subject: Option<&'a Subject>) -> Self {
        Self(ReasonParts::Grant { binding, subject })
    }

    /// That an AccessRequest allows it.
    pub(crate) const fn of_access(grant: &'a AccessGrant) -> Self {
        Self(ReasonParts::Access(grant))
    }

    /// That `policy` decides, perhaps because the condition `failed` has no result.
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

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        match &self.0 {
            ReasonParts::Nothing => true,
            ReasonParts::Grant { .. } | ReasonParts::Policy { .. } | ReasonParts::Access(_) => false,
            ReasonParts::Text(text) => text.is_empty(),
        }
    }

    /// Writes it, piece by piece.
    ///
    /// # Errors
    /// Those of `out`.
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

    /// The same, as text of its own.
    #[must_use]
    pub fn into_owned(self) -> AuthorizationReason<'static> {
        match self.0 {
            ReasonParts::Nothing => AuthorizationReason::default(),
            ReasonParts::Text(text) => AuthorizationReason(ReasonParts::Text(text)),
            ReasonParts::Grant { .. } | ReasonParts::Policy { .. } | ReasonParts::Access(_) => {
                self.to_string().into()
            }
        }
    }

    /// Whether it fits whatever characters the names have: so nearly every one is written
    /// at once.
    fn is_surely_short(&self) -> bool {
        let (quoted, plain) = match &self.0 {
            ReasonParts::Nothing => (0, 0),
            ReasonParts::Text(text) => (0, text.len()),
            ReasonParts::Grant { binding, subject } => {
                let names = binding.namespace.len() + binding.name.len() + binding.role.name.len();
                let subject = subject.map_or(0, |subject| subject.name.len() + subject.namespace.len());
                (names + binding.namespace.len() + subject, 0)
            }
            // Texts of users: as long as they like.
            ReasonParts::Access(_) => return false,
            ReasonParts::Policy { policy, failed, .. } => (
                policy.name.len() + failed.map_or(0, str::len),
                policy.reason.len(),
            ),
        };
        quoted
            .saturating_mul(MAX_QUOTED_FACTOR)
            .saturating_add(plain + MAX_WORDS_BYTES)
            <= Self::MAX_BYTES
    }

    fn write_whole(&self, out: &mut impl fmt::Write) -> fmt::Result {
        match &self.0 {
            ReasonParts::Nothing => Ok(()),
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

/// Those are the same that say the same.
impl PartialEq for AuthorizationReason<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for AuthorizationReason<'_> {}

/// A text that is at hand, cut if it is too long.
impl From<String> for AuthorizationReason<'_> {
    fn from(text: String) -> Self {
        Self(ReasonParts::Text(cut(text, Self::MAX_BYTES)))
    }
}

impl<'a> From<&'a AuthorizationReason<'_>> for Cow<'a, str> {
    fn from(reason: &'a AuthorizationReason<'_>) -> Self {
        match &reason.0 {
            ReasonParts::Nothing => Cow::Borrowed(""),
            ReasonParts::Text(text) => Cow::Borrowed(text),
            ReasonParts::Grant { .. } | ReasonParts::Policy { .. } | ReasonParts::Access(_) => {
                Cow::Owned(reason.to_string())
            }
        }
    }
}

/// As kube-apiserver words it (`pkg/registry/rbac/validation/rule.go`).
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

/// `allowed by AccessRequest "name" of ClusterRole "edit" to User "alice" until …, approved by "bob": reason`.
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

/// `denied by AuthorizationPolicy "name": reason`, of a Limit `beyond the limit name: reason`.
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
    /// What was considered, at most [`Trace::MAX_EVENTS`].
    pub events: Vec<TraceEntry>,
    /// How many more there were.
    pub omitted: usize,
}

/// One policy or binding that was considered, and the finding about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TraceEntry {
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
    /// Whether it applies, or why not.
    #[serde(flatten)]
    pub finding: Finding,
}

/// Whether a policy or binding applies, or why not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "result", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Finding {
    /// It applies. Of those that apply, the first in the trace that is enforced decides.
    Match {
        /// The rule that applies, as in [`Cause::rule`](crate::model::Cause::rule).
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
    /// A rule of a Limit holds all of the request.
    WithinLimit {
        /// That rule.
        rule: usize,
    },
    /// No rule of a Limit holds all of the request. It decides like a [`Finding::Match`].
    BeyondLimit {
        /// The rule that came nearest; absent where none was compared.
        #[serde(skip_serializing_if = "Option::is_none")]
        rule: Option<usize>,
        /// The first thing that did not fit, of that rule.
        criterion: Criterion,
        /// The answer it gives, or in Shadow would give.
        decision: Decision,
    },
    /// A Deny or Limit applies, but an AccessRequest lifts it.
    Lifted {
        /// The rule that applies; absent of a Limit.
        #[serde(skip_serializing_if = "Option::is_none")]
        rule: Option<usize>,
        /// The name of the AccessRequest.
        by: String,
    },
    /// A Deny or Limit applies, but the user or path is in `neverDeny`.
    NeverDenied {
        /// The rule that applies; absent of a Limit.
        #[serde(skip_serializing_if = "Option::is_none")]
        rule: Option<usize>,
    },
    /// It has objectConditions, and decides nothing before the object is known.
    ObjectConditions {
        /// The rule that applies.
        #[serde(skip_serializing_if = "Option::is_none")]
        rule: Option<usize>,
        /// Why.
        why: String,
    },
    /// A condition is false.
    ConditionFalse {
        /// The rule that applies but for it; absent of a Limit.
        #[serde(skip_serializing_if = "Option::is_none")]
        rule: Option<usize>,
        /// The condition's name.
        condition: String,
    },
    /// A condition has no result, and none is false.
    ConditionError {
        /// The rule that applies but for it; absent of a Limit.
        #[serde(skip_serializing_if = "Option::is_none")]
        rule: Option<usize>,
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
    /// The most events kept of one request.
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
