//! Other authorizers: match conditions, order, failure policy.
//!
//! ```text
//! no opinion ─▶ each in order: matchConditions ─ all hold ─▶ called ─ responded ─┐
//!                                    │      └ error ─▶ failurePolicy ────────────┤
//!                                    └ one false ─▶ skipped            first Allow or Deny decides
//! ```
//!
//! This module makes no calls: the owner of a [`Consultation`] calls the authorizers and passes it
//! their [`Opinion`]s.
//!
//! It follows `apiserver/plugin/pkg/authorizer/webhook/webhook.go` and
//! `apiserver/pkg/authorization/{cel/matcher,union/union}.go`.

use std::borrow::Cow;

use super::condition::{Condition, ConditionsResult, RequestActivation};
use super::{Authorization, FailurePolicy};
use crate::model::{Attributes, Cause, CauseKind, Deadline, Decision, cut};
use portcullis_cel::quote;

/// The versions of `authorization.k8s.io` in which SubjectAccessReviews are sent and received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SubjectAccessReviewVersion {
    /// `authorization.k8s.io/v1`: the groups are in the field `groups`.
    V1,
    /// `authorization.k8s.io/v1beta1`: the groups are in the field `group`.
    V1beta1,
}

/// One of `authorization.webhooks`: when to call it, and what its failure means.
#[derive(Debug, Clone, PartialEq)]
pub struct Authorizer {
    /// `name`.
    pub name: String,
    /// `matchConditions`: the authorizer is called if all of them hold.
    pub match_conditions: Vec<Condition>,
    /// Its decision if the call fails.
    pub failure_policy: FailurePolicy,
}

/// Whether an authorizer is to be called for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Relevance {
    /// All match conditions hold.
    Called,
    /// The condition of this name is false.
    Skipped(String),
    /// No condition is false, but one could not be evaluated, for this reason.
    Failed(String),
}

/// The response of an authorizer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opinion {
    /// Its decision.
    pub decision: Decision,
    /// Its reason; may be empty.
    pub reason: String,
    /// The error, which an authorizer may report along with a decision.
    pub error: Option<String>,
}

/// The response of an authorizer, and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedOpinion {
    /// The `name` of the authorizer.
    pub name: String,
    /// Its response.
    pub opinion: Opinion,
}

/// The opinions of the authorizers about one request, collected one by one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consultation {
    authorization: Authorization<'static>,
    is_protected: bool,
    reasons: Vec<String>,
    errors: Vec<String>,
    /// The opinions so far, if they are kept.
    taken: Option<Vec<NamedOpinion>>,
}

// === impl Authorizer ===

impl Authorizer {
    /// Whether to call the authorizer for `attributes`. Conditions are evaluated in their order, up
    /// to the first that is false. One that is not evaluated by the deadline is an error.
    #[must_use]
    pub fn relevance(&self, attributes: &Attributes<'_>, deadline: Deadline<'_>) -> Relevance {
        let activation = RequestActivation::new(attributes).until(deadline);
        match Condition::all(&self.match_conditions, &activation) {
            ConditionsResult::AllTrue => Relevance::Called,
            ConditionsResult::False(name) => Relevance::Skipped(name.to_owned()),
            ConditionsResult::Error(name, error) => Relevance::Failed(format!("{name}: {error}")),
        }
    }

    /// The opinion that stands for a call that failed with `error`.
    #[must_use]
    pub fn failed(&self, error: impl Into<String>) -> Opinion {
        Opinion {
            decision: match self.failure_policy {
                FailurePolicy::Deny => Decision::Deny,
                FailurePolicy::NoOpinion => Decision::NoOpinion,
            },
            reason: String::new(),
            error: Some(error.into()),
        }
    }
}

// === impl Consultation ===

impl Consultation {
    /// The maximum length of the error message, in bytes.
    pub const MAX_ERROR_BYTES: usize = 1024;

    /// Starts with `own`, which has no opinion: it is the result unless an authorizer decides.
    /// `is_protected` says whether `neverDeny` protects the request.
    #[must_use]
    pub fn new(own: Authorization<'_>, is_protected: bool) -> Self {
        Self {
            authorization: own.into_owned(),
            is_protected,
            reasons: Vec::new(),
            errors: Vec::new(),
            taken: None,
        }
    }

    /// Whether `neverDeny` protects the request.
    #[must_use]
    pub const fn is_protected(&self) -> bool {
        self.is_protected
    }

    /// Keeps all opinions for [`Consultation::taken`] if `keeps`.
    #[must_use]
    pub fn keeping_opinions(self, keeps: bool) -> Self {
        let taken = keeps.then(Vec::new);
        Self { taken, ..self }
    }

    /// The opinions so far, in the order in which they were taken; empty if they are not kept.
    #[must_use]
    pub fn taken(&mut self) -> Vec<NamedOpinion> {
        self.taken.take().unwrap_or_default()
    }

    /// Takes the opinion of the authorizer `name`. Returns whether that decides, so that no other
    /// authorizer has to be called.
    pub fn take(&mut self, name: &str, opinion: Opinion) -> bool {
        if let Some(taken) = &mut self.taken {
            taken.push(NamedOpinion {
                name: name.to_owned(),
                opinion: opinion.clone(),
            });
        }
        let Opinion {
            decision,
            reason,
            error,
        } = opinion;
        if let Some(error) = error {
            self.errors.push(format!("authorizer `{name}`: {error}"));
        }
        match decision {
            Decision::NoOpinion => {
                self.reasons
                    .extend(Some(reason).filter(|reason| !reason.is_empty()));
                false
            }
            Decision::Deny if self.is_protected => {
                self.errors
                    .push(format!("authorizer `{name}` denies, but neverDeny overrides it"));
                false
            }
            Decision::Allow | Decision::Deny => {
                self.decide(name, decision, &reason);
                true
            }
        }
    }

    /// The decision, and the error messages, joined; empty if there were no errors.
    #[must_use]
    pub fn finish(self) -> (Authorization<'static>, String) {
        let mut authorization = self.authorization;
        if authorization.decision == Decision::NoOpinion {
            authorization.reason = self.reasons.join("\n").into();
        }
        (authorization, cut(self.errors.join("; "), Self::MAX_ERROR_BYTES))
    }

    fn decide(&mut self, name: &str, decision: Decision, reason: &str) {
        let verb = if decision == Decision::Deny {
            "denied"
        } else {
            "allowed"
        };
        let mut reason_text = format!("{verb} by Webhook ");
        quote(&mut reason_text, name);
        if !reason.is_empty() {
            reason_text.push_str(": ");
            reason_text.push_str(reason);
        }
        self.authorization.decision = decision;
        self.authorization.reason = reason_text.into();
        self.authorization.cause = Some(Cause {
            kind: CauseKind::Webhook,
            namespace: Cow::Borrowed(""),
            name: Cow::Owned(name.to_owned()),
            rule: None,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::AuthorizationReason;
    use super::*;
    use crate::model::{Target, User};
    use portcullis_cel::Version;

    fn nothing() -> Authorization<'static> {
        Authorization {
            decision: Decision::NoOpinion,
            reason: AuthorizationReason::default(),
            cause: None,
            shadow: Vec::new(),
            compared_rules: 0,
        }
    }

    fn opinion(decision: Decision, reason: &str) -> Opinion {
        Opinion {
            decision,
            reason: reason.to_owned(),
            error: None,
        }
    }

    fn authorizer(failure_policy: FailurePolicy, conditions: &[&str]) -> Authorizer {
        let compile =
            |expression: &&str| Condition::compile(Version::NEWEST, expression, expression).unwrap();
        Authorizer {
            name: "w".into(),
            match_conditions: conditions.iter().map(compile).collect(),
            failure_policy,
        }
    }

    #[test]
    fn the_first_to_allow_or_deny_decides() {
        for (decision, verb) in [(Decision::Allow, "allowed"), (Decision::Deny, "denied")] {
            let mut consultation = Consultation::new(nothing(), false);
            assert!(!consultation.take("a", opinion(Decision::NoOpinion, "who is that")));
            assert!(consultation.take("b", opinion(decision, "so it is")));
            let (authorization, error) = consultation.finish();
            assert_eq!(authorization.decision, decision);
            assert_eq!(
                authorization.reason.to_string(),
                format!("{verb} by Webhook \"b\": so it is")
            );
            let cause = authorization.cause.unwrap();
            assert_eq!((cause.kind, &*cause.name), (CauseKind::Webhook, "b"));
            assert_eq!(error, "");
        }
    }

    #[test]
    fn reasons_without_opinion_are_joined_and_bounded() {
        let mut consultation = Consultation::new(nothing(), false);
        for reason in ["one", "", "two"] {
            consultation.take("a", opinion(Decision::NoOpinion, reason));
        }
        assert_eq!(consultation.clone().finish().0.reason.to_string(), "one\ntwo");
        consultation.take("a", opinion(Decision::NoOpinion, &"x".repeat(5000)));
        consultation.take(
            "a",
            authorizer(FailurePolicy::NoOpinion, &[]).failed("y".repeat(5000)),
        );
        let (authorization, error) = consultation.finish();
        assert_eq!(
            authorization.reason.to_string().len(),
            AuthorizationReason::MAX_BYTES
        );
        assert_eq!(error.len(), Consultation::MAX_ERROR_BYTES);
    }

    #[test]
    fn an_error_comes_to_the_failure_policy_and_is_told() {
        for (policy, decision) in [
            (FailurePolicy::NoOpinion, Decision::NoOpinion),
            (FailurePolicy::Deny, Decision::Deny),
        ] {
            let mut consultation = Consultation::new(nothing(), false);
            let decided = consultation.take("w", authorizer(policy, &[]).failed("refused"));
            assert_eq!(decided, decision == Decision::Deny);
            let (authorization, error) = consultation.finish();
            assert_eq!(authorization.decision, decision);
            assert_eq!(error, "authorizer `w`: refused");
        }
    }

    #[test]
    fn no_authorizer_holds_up_whom_never_deny_protects() {
        let mut consultation = Consultation::new(nothing(), true);
        assert!(!consultation.take("a", opinion(Decision::Deny, "no")));
        assert!(!consultation.take("b", authorizer(FailurePolicy::Deny, &[]).failed("down")));
        let unanswered = consultation.clone().finish();
        assert_eq!(
            (unanswered.0.decision, &*unanswered.0.reason.to_string()),
            (Decision::NoOpinion, "")
        );
        assert!(unanswered.1.contains("neverDeny overrides"), "{}", unanswered.1);
        assert!(consultation.take("c", opinion(Decision::Allow, "")));
    }

    #[test]
    fn a_false_condition_beats_one_without_result() {
        let request = Attributes {
            user: User {
                name: "alice".into(),
                ..User::default()
            },
            target: Target::NonResource {
                path: "/x".into(),
                verb: "get".into(),
            },
        };
        let (holds, fails) = (
            "request.user == 'alice'",
            "request.resourceAttributes.verb == 'get'",
        );
        let is_false = "request.user == 'bob'";
        let relevance = |conditions: &[&str]| {
            authorizer(FailurePolicy::Deny, conditions).relevance(&request, Deadline::NEVER)
        };
        assert_eq!(relevance(&[]), Relevance::Called);
        assert_eq!(relevance(&[holds]), Relevance::Called);
        assert_eq!(
            relevance(&[holds, fails, is_false]),
            Relevance::Skipped(is_false.into())
        );
        assert!(matches!(relevance(&[holds, fails, holds]), Relevance::Failed(_)));
    }
}
