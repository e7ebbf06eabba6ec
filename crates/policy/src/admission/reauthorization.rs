//! Authorizes the user's request again at `/validate`, now that its object is known. This is where the
//! `objectConditions` of AuthorizationPolicies are evaluated.
//!
//! ```text
//! AdmissionRequest ─▶ the access reviews by which it may have been allowed
//!                       │ no Allow with objectConditions matches any ─────▶ passes (shortly after a start,
//!                       │                                        only if something known allows it)
//!                       │ RBAC or another Allow allows it ────────────────▶ passes
//!                       │ the objectConditions of a matching Allow hold ──▶ passes
//!                       └ else: other authorizers are asked, then it is rejected
//! ```
//!
//! An AdmissionReview does not contain the verb of the request. An UPDATE may have been an update or a
//! patch, a CREATE also a patch or update of an object that did not exist, and a DELETE without a name is of a
//! collection. These have the same effect, so it suffices that one of them is allowed. A CONNECT may do more
//! with one verb than with another, so every verb that may have been allowed must pass.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ptr;
use std::sync::Arc;

use super::outcome::AlternativeGrants;
use super::run::{GrantReview, MatchFinding, PolicyExpression, RunContext, TraceStep};
use super::variables::{ExpressionResult, Inputs, MatchConditions, RequestView};
use super::{AdmissionSet, Operation, Outcome, PolicyEvaluation, Request, outcome};
use crate::authorization::condition::ConditionsResult;
use crate::authorization::{
    self, AuthorizationPolicy, AuthorizationReason, ConditionalPolicy, Effect, Mode, Shadow, conditions_of,
};
use crate::model::{Attributes, Cause, CauseKind, Decision, PolicyResult, Target};
use portcullis_cel::cost;

/// Why a request is rejected that no known policy allows.
const UNKNOWN_BEFORE: &str = "no policy that the gateway knows allows it, but the gateway has watched this \
    cluster for less than 10 minutes: an Allow with objectConditions that was removed earlier may have \
    granted it, so try again later";

/// The most policies that the message of a denial names.
const MAX_NAMED: usize = 5;

/// A group of access reviews that were all needed to allow a request.
type RequiredReviews<'r> = Vec<Attributes<'r>>;

/// The result of one access review.
enum ReviewResult<'s> {
    /// Allowed for every object, or because objectConditions hold.
    Allowed,
    /// No policy allows it, with or without objectConditions.
    NoMatch,
    /// Only policies with objectConditions allow it, and these do not hold.
    ConditionsFalse(Vec<(ConditionalPolicy<'s>, String)>),
}

/// Evaluates objectConditions for one run.
struct Reviewer<'r> {
    review: GrantReview<'r>,
    set: &'r AdmissionSet,
    context: RunContext<'r>,
    /// The results of objectConditions by the address of the policy, which can be reused because
    /// the object stays the same.
    known: RefCell<HashMap<usize, MatchConditions>>,
}

/// Applies policies with objectConditions to the request of `context`. A denial in the outcome ends
/// the run. Does nothing if the run is limited to one policy.
pub(crate) fn review(set: &AdmissionSet, context: RunContext<'_>) -> Outcome {
    let run = context.run;
    let review = run
        .reauthorization
        .filter(|_| run.only.is_none() && !run.requester_unknown);
    let mut outcome = Outcome::default();
    let Some(review) = review.filter(|review| review.policies.has_object_conditions(run.now)) else {
        return outcome;
    };
    let reviewer = Reviewer {
        review,
        set,
        context,
        known: RefCell::default(),
    };
    let ways = review_alternatives(context.request);
    let mut attributes = ways.iter().flatten();
    // Which review the API server made is not known, so all of them must be exempt.
    if attributes.all(|one| review.policies.is_never_refused(one, run.deadline)) {
        return outcome;
    }
    reviewer.deny(&mut outcome);
    if outcome.denial.is_none() && !review.is_allowed_elsewhere {
        reviewer.allow(&ways, &mut outcome);
    }
    if run.deadline.has_passed() {
        outcome = Outcome {
            denial: Some(outcome::timeout()),
            ..Outcome::default()
        };
    }
    outcome
}

// === impl Reviewer ===

impl<'r> Reviewer<'r> {
    /// Applies Denies with objectConditions.
    fn deny(&self, outcome: &mut Outcome) {
        let run = self.context.run;
        for mode in [Mode::Shadow, Mode::Enforce] {
            let mut found: Vec<ConditionalPolicy<'r>> = Vec::new();
            for attributes in denied_reviews(self.context.request) {
                let policies = self.review.policies;
                for one in policies.conditional_policies((Effect::Deny, mode), &attributes, run.now) {
                    let is_known = found.iter().any(|known| Arc::ptr_eq(known.policy, one.policy));
                    if policies.is_lifted(one.policy, &attributes, run.now) {
                        continue;
                    }
                    let conditions = self.conditions(one.policy, &attributes);
                    if is_known || matches!(conditions, MatchConditions::NoMatch(_)) {
                        continue;
                    }
                    self.denied_by(&one, &conditions, outcome);
                    found.push(one);
                }
            }
        }
    }

    fn denied_by(&self, found: &ConditionalPolicy<'r>, conditions: &MatchConditions, outcome: &mut Outcome) {
        let policy = &**found.policy;
        let (decision, error) = match conditions {
            MatchConditions::Error(error) => {
                let refuses = policy.failure_policy == authorization::FailurePolicy::Deny;
                let decision = if refuses {
                    Decision::Deny
                } else {
                    Decision::NoOpinion
                };
                (decision, Some(error.clone()))
            }
            MatchConditions::Match | MatchConditions::NoMatch(_) => (Decision::Deny, None),
        };
        let result = match (policy.mode, &error) {
            (_, Some(_)) => PolicyResult::Error,
            (Mode::Shadow, None) => PolicyResult::ShadowDeny,
            (Mode::Enforce, None) => PolicyResult::Match,
        };
        outcome.evaluations.push(evaluation(found, result));
        if policy.mode == Mode::Shadow {
            outcome.policy_shadows.push(Shadow {
                kind: CauseKind::AuthorizationPolicy,
                name: policy.name.as_str().into(),
                decision,
                error,
            });
        } else if decision == Decision::Deny && outcome.denial.is_none() {
            let reason = AuthorizationReason::of_policy(policy, decision, None).to_string();
            let reason = match error {
                None => reason,
                Some(error) => format!("{reason} (its objectConditions have no result: {error})"),
            };
            self.refuse(found, &reason, outcome);
        }
    }

    /// Denies the request if only Allows allow it whose objectConditions do not hold.
    fn allow(&self, ways: &[RequiredReviews<'r>], outcome: &mut Outcome) {
        let now = self.context.run.now;
        let policies = self.review.policies;
        let touching = |attributes: &Attributes<'_>| {
            let current = policies.conditional_policies((Effect::Allow, Mode::Enforce), attributes, now);
            let current = current.into_iter().filter(|_| policies.reviewed().is_some());
            current
                .chain(policies.removed_policies(attributes, now))
                .collect::<Vec<_>>()
        };
        let touched: Vec<Vec<Vec<ConditionalPolicy<'_>>>> = ways
            .iter()
            .map(|reviews| reviews.iter().map(touching).collect())
            .collect();
        let is_connect = self.context.request.operation == Operation::Connect;
        if touched.iter().flatten().all(Vec::is_empty) {
            if policies.history_is_too_short(now) {
                self.allow_known(ways, outcome);
            }
            return;
        }
        let (mut refused, mut missing) = (Vec::new(), AlternativeGrants::new());
        for (reviews, touched) in ways.iter().zip(touched) {
            let results: Vec<ReviewResult<'_>> = reviews
                .iter()
                .zip(touched)
                .map(|(attributes, touching)| self.result(attributes, touching))
                .collect();
            let is_missing = |result: &ReviewResult<'_>| match result {
                ReviewResult::Allowed => false,
                ReviewResult::NoMatch => !is_connect,
                ReviewResult::ConditionsFalse(_) => true,
            };
            if !results.iter().any(is_missing) {
                return;
            }
            let lacking = reviews
                .iter()
                .zip(&results)
                .filter(|(_, result)| is_missing(result));
            missing.push(lacking.map(|(one, _)| one.clone().into_owned()).collect());
            let is_impossible = |result: &ReviewResult<'_>| matches!(result, ReviewResult::NoMatch);
            if is_connect || !results.iter().any(is_impossible) {
                refused.extend(results.into_iter().flat_map(|result| match result {
                    ReviewResult::ConditionsFalse(by) => by,
                    ReviewResult::Allowed | ReviewResult::NoMatch => Vec::new(),
                }));
            }
        }
        if let Some((first, _)) = refused.first() {
            let reason = denial_reason(&refused);
            self.refuse(first, &reason, outcome);
            outcome.missing_grants = missing;
        }
    }

    /// Denies a request that no Allow with objectConditions matches and no known policy allows: an
    /// Allow with objectConditions may have allowed it that was removed before the gateway started
    /// to watch.
    fn allow_known(&self, ways: &[RequiredReviews<'r>], outcome: &mut Outcome) {
        let request = self.context.request;
        // A CONNECT was allowed by one of its verbs.
        let ways: Vec<RequiredReviews<'r>> = match request.operation {
            Operation::Connect => ways.iter().flatten().map(|one| vec![one.clone()]).collect(),
            _ => ways.to_vec(),
        };
        let is_allowed =
            |reviews: &RequiredReviews<'r>| reviews.iter().all(|one| self.is_allowed_unconditionally(one));
        if ways.iter().any(is_allowed) {
            return;
        }
        outcome.denial = Some(outcome::forbidden(request, UNKNOWN_BEFORE));
        let owned = ways
            .into_iter()
            .map(|reviews| reviews.into_iter().map(Attributes::into_owned).collect());
        outcome.missing_grants = owned.collect();
    }

    fn is_allowed_unconditionally(&self, attributes: &Attributes<'_>) -> bool {
        let run = self.context.run;
        let answer = self
            .review
            .policies
            .authorize_unconditionally(attributes, run.now, run.deadline);
        answer.decision == Decision::Allow
    }

    fn result<'s>(
        &'s self,
        attributes: &Attributes<'_>,
        touching: Vec<ConditionalPolicy<'s>>,
    ) -> ReviewResult<'s> {
        if self.is_allowed_unconditionally(attributes) {
            return ReviewResult::Allowed;
        }
        let mut refused = Vec::new();
        for one in touching {
            let why = match one.applies {
                false => "the labels of the namespace do not match".to_owned(),
                true => match self.conditions(one.policy, attributes) {
                    MatchConditions::Match => return ReviewResult::Allowed,
                    MatchConditions::NoMatch(Some(name)) => format!("`{name}` is false"),
                    MatchConditions::NoMatch(None) => "one is false".to_owned(),
                    MatchConditions::Error(error) => error,
                },
            };
            refused.push((one, why));
        }
        match refused.is_empty() {
            true => ReviewResult::NoMatch,
            false => ReviewResult::ConditionsFalse(refused),
        }
    }

    /// Evaluates all conditions of a policy: those on the access review and those on the object.
    fn conditions(&self, policy: &'r AuthorizationPolicy, attributes: &Attributes<'_>) -> MatchConditions {
        let of_object = || self.object_conditions(policy);
        match conditions_of(policy, attributes, self.context.run.deadline) {
            ConditionsResult::AllTrue => of_object(),
            ConditionsResult::False(name) => MatchConditions::NoMatch(Some(name.to_owned())),
            ConditionsResult::Error(name, error) => match of_object() {
                of_false @ MatchConditions::NoMatch(_) => of_false,
                MatchConditions::Match | MatchConditions::Error(_) => {
                    MatchConditions::Error(format!("condition `{name}`: {error}"))
                }
            },
        }
    }

    fn object_conditions(&self, policy: &AuthorizationPolicy) -> MatchConditions {
        let address = ptr::from_ref(policy).addr();
        if let Some(known) = self.known.borrow().get(&address) {
            return known.clone();
        }
        let result = self.evaluate(policy);
        self.known.borrow_mut().insert(address, result.clone());
        result
    }

    fn evaluate(&self, policy: &AuthorizationPolicy) -> MatchConditions {
        let RunContext { request, access, run } = self.context;
        run.record(|| TraceStep::Policy {
            kind: CauseKind::AuthorizationPolicy,
            name: &policy.name,
            finding: MatchFinding::Applies {
                resource: &request.request_resource,
            },
        });
        let view = RequestView::as_sent(request);
        let namespace = self.set.namespace_of(request);
        let spent = Cell::new(0);
        let inputs = Inputs {
            object: request.object,
            old_object: request.old_object,
            request: &view,
            params: None,
            namespace: namespace.as_variable(),
            access,
            recorder: run.recorder,
            spent: &spent,
        };
        let mut budget = run.deadline.budget(cost::PER_BINDING);
        let mut sequence = inputs.sequence(&self.set.webhook_environment);
        let mut results = Vec::with_capacity(policy.object_conditions.len());
        for condition in &policy.object_conditions {
            let part = PolicyExpression::ObjectCondition(condition.name());
            match sequence.program(part, condition.expression(), condition.program(), &mut budget) {
                Ok(result) => results.push((condition.name(), result)),
                Err(error) => return MatchConditions::Error(error.to_string()),
            }
        }
        let results: Vec<(&str, &ExpressionResult<'_>)> =
            results.iter().map(|(name, result)| (*name, result)).collect();
        MatchConditions::combine(results, super::FailurePolicy::Fail)
    }

    fn refuse(&self, by: &ConditionalPolicy<'_>, reason: &str, outcome: &mut Outcome) {
        outcome.denial = Some(outcome::forbidden(self.context.request, reason));
        outcome.cause = Some(Cause {
            kind: CauseKind::AuthorizationPolicy,
            namespace: Cow::Borrowed(""),
            name: Cow::Owned(by.policy.name.clone()),
            rule: Some(by.rule),
        });
    }
}

fn evaluation(found: &ConditionalPolicy<'_>, result: PolicyResult) -> PolicyEvaluation {
    PolicyEvaluation {
        kind: CauseKind::AuthorizationPolicy,
        place: found.place,
        result,
        cost: 0,
    }
}

/// `allowed only where objectConditions hold, which do not: AuthorizationPolicy "a": …`.
fn denial_reason(refused: &[(ConditionalPolicy<'_>, String)]) -> String {
    let mut told: Vec<String> = Vec::new();
    for (found, why) in refused {
        let one = format!("AuthorizationPolicy \"{}\": {why}", found.policy.name);
        if !told.contains(&one) {
            told.push(one);
        }
    }
    let more = told.len().saturating_sub(MAX_NAMED);
    told.truncate(MAX_NAMED);
    let more = if more > 0 {
        format!("; and {more} more")
    } else {
        String::new()
    };
    format!(
        "allowed only where objectConditions hold, which do not: {}{more}",
        told.join("; ")
    )
}

// The access reviews by which a request may have been allowed.

/// Each group of access reviews by which the request may have been allowed. For a CONNECT, one
/// group with all verbs.
fn review_alternatives<'r>(request: &'r Request<'r>) -> Vec<RequiredReviews<'r>> {
    let name = request.name.as_ref();
    let one = |verb, name: &'r str| request.authorization_question(verb, Cow::Borrowed(name));
    match request.operation {
        Operation::Connect => vec![
            request
                .connect_verbs()
                .iter()
                .map(|verb| one(verb, name))
                .collect(),
        ],
        Operation::Update => vec![vec![one("update", name)], vec![one("patch", name)]],
        Operation::Delete if name.is_empty() => {
            // A field selector may narrow a collection to one name, which the access review then
            // contains.
            let of_object =
                |verb| old_name(request).map(|name| vec![request.authorization_question(verb, name)]);
            let mut ways = vec![vec![one("deletecollection", "")]];
            ways.extend(of_object("deletecollection"));
            ways.extend(of_object("delete"));
            ways
        }
        Operation::Delete => vec![vec![one("delete", name)]],
        Operation::Create if !request.subresource.is_empty() => vec![vec![one("create", name)]],
        // An apply or update creates an object that does not exist, and both access reviews contain
        // its name.
        Operation::Create if !name.is_empty() => vec![
            vec![one("create", "")],
            vec![one("patch", name), one("create", name)],
            vec![one("update", name), one("create", name)],
        ],
        Operation::Create => vec![vec![one("create", "")]],
    }
}

/// The access reviews for Denies: a Deny that matches one of them denies the request.
fn denied_reviews<'r>(request: &'r Request<'r>) -> Vec<Attributes<'r>> {
    let reviews = review_alternatives(request).into_iter().flatten();
    match request.operation {
        // Whether it was a patch or update is not known.
        Operation::Create => reviews
            .filter(|one| matches!(&one.target, Target::Resource(resource) if resource.verb == "create"))
            .collect(),
        Operation::Update | Operation::Delete | Operation::Connect => reviews.collect(),
    }
}

fn old_name<'r>(request: &'r Request<'r>) -> Option<Cow<'r, str>> {
    let name = request.old_object?.get("metadata")?.get("name")?.as_str()?;
    (!name.is_empty()).then_some(name)
}
