//! Evaluates the policies of one group, up to the first that decides.

use std::sync::Arc;
use std::{fmt, ptr};

use super::{DecidingPolicy, NearestRule, Walk, WalkRecorder};
use crate::authorization::condition::{ConditionEvaluationError, ConditionsResult};
use crate::authorization::index::{BoundRole, IndexedPolicy, IndexedRule, PolicyGroup, UserRules};
use crate::authorization::rbac::RoleNotFoundError;
use crate::authorization::{
    AuthorizationPolicy, Binding, Criterion, Effect, FailurePolicy, Finding, Mode, NearMisses, NotGranted,
    RuleMatch, Shadow, TraceEntry,
};
use crate::model::{CauseKind, Decision, PolicyResult};

/// Why a policy applies.
#[derive(Clone, Copy)]
enum MatchReason {
    /// This rule of a Deny or Allow applies.
    Rule(usize),
    /// The request lies within no rule of a Limit. `rule` is the nearest, and `criterion` the first
    /// of its criteria that is not met.
    BeyondLimit {
        rule: Option<usize>,
        criterion: Criterion,
    },
}

impl<'s, R: WalkRecorder> Walk<'_, 's, '_, R> {
    /// The first policy of a group that decides.
    pub(crate) fn first_deciding(&mut self, group: &'s PolicyGroup) -> Option<DecidingPolicy<'s>> {
        let request = self.request;
        if R::DETAILED {
            let user = group.user_rules(request.user_ids());
            let mut policies = group.policies.iter();
            return policies.find_map(|policy| self.explain_policy(policy, group.rules_of(policy), &user));
        }
        if group.has_limits() {
            return self.first_deciding_with_limits(group);
        }
        let candidates = group.candidates(&request.query, || request.user_ids());
        let mut by_policy = candidates.chunk_by(is_of_same_policy);
        by_policy.find_map(|rules| self.evaluate_candidates(rules))
    }

    /// Does the same for a group with Limits. The index finds rules that match, but a Limit applies
    /// if none of its rules does: each Limit for the user is evaluated, in the order of all
    /// policies.
    fn first_deciding_with_limits(&mut self, group: &'s PolicyGroup) -> Option<DecidingPolicy<'s>> {
        let request = self.request;
        let candidates = group.candidates(&request.query, || request.user_ids());
        let mut others = candidates.chunk_by(is_of_same_policy).peekable();
        let limits = group.limits_for(request.user_ids());
        let covering = group.covering_candidates(&request.query, request.user_ids());
        let is_path = request.query.is_for_path();
        for limit in limits
            .into_iter()
            .filter(|limit| limit.policy.limits_requests(is_path))
        {
            let is_before = |rules: &&[&IndexedRule]| {
                let place = rules.first().map(|rule| rule.policy.place);
                place < Some(limit.place)
            };
            while let Some(rules) = others.next_if(is_before) {
                if let Some(deciding) = self.evaluate_candidates(rules) {
                    return Some(deciding);
                }
            }
            let own = covering.iter().filter(|rule| rule.policy.place == limit.place);
            let compare = |walk: &mut Self, rule| walk.compare(rule);
            if let Some(deciding) = self.evaluate_policy(limit, own.copied(), compare) {
                return Some(deciding);
            }
        }
        others.find_map(|rules| self.evaluate_candidates(rules))
    }

    /// Evaluates the policy of `rules`, and returns it if it decides.
    fn evaluate_candidates(&mut self, rules: &[&'s IndexedRule]) -> Option<DecidingPolicy<'s>> {
        let policy = &rules.first()?.policy;
        let compare = |walk: &mut Self, rule| walk.compare(rule);
        self.evaluate_policy(policy, rules.iter().copied(), compare)
    }

    /// Like [`Walk::evaluate_policy`], for a policy that the index might rule out.
    fn explain_policy(
        &mut self,
        policy: &'s IndexedPolicy,
        rules: &'s [IndexedRule],
        user: &UserRules<'_>,
    ) -> Option<DecidingPolicy<'s>> {
        let query = &self.request.query;
        let rules = rules.iter().filter(|rule| query.is_same_kind_as(rule));
        let is_user = user.compare(policy);
        let is_limit = policy.policy.effect == Effect::Limit;
        let is_about = policy.policy.limits_requests(query.is_for_path());
        if is_limit && self.request.is_in_force(&policy.policy) {
            let criterion = match is_user {
                RuleMatch::Mismatch(criterion) => Some(criterion),
                RuleMatch::Match => (!is_about).then_some(Criterion::Target),
            };
            if let Some(criterion) = criterion {
                self.record_finding(
                    &policy.policy,
                    Finding::NoMatch {
                        rule: None,
                        criterion,
                    },
                );
                return None;
            }
        }
        self.evaluate_policy(policy, rules, |walk, rule| match is_user {
            RuleMatch::Match => walk.compare(rule),
            mismatch @ RuleMatch::Mismatch(_) => mismatch,
        })
    }

    /// Evaluates a policy, and returns it if it decides. A Deny or Allow applies if one of `rules`
    /// does, a Limit if the request lies within none of them.
    fn evaluate_policy(
        &mut self,
        indexed: &'s IndexedPolicy,
        rules: impl Iterator<Item = &'s IndexedRule>,
        compare: impl Fn(&mut Self, &'s IndexedRule) -> RuleMatch,
    ) -> Option<DecidingPolicy<'s>> {
        if !self.request.is_in_force(&indexed.policy) {
            self.record_finding(&indexed.policy, Finding::NotInForce);
            return None;
        }
        let mut nearest = (None, Criterion::Target);
        for rule in rules {
            match compare(self, rule) {
                RuleMatch::Match if indexed.policy.effect == Effect::Limit => {
                    self.recorder.evaluated(indexed.place, PolicyResult::NoMatch);
                    self.record_finding(&indexed.policy, Finding::WithinLimit { rule: rule.number });
                    return None;
                }
                RuleMatch::Match => return self.decide_by(indexed, MatchReason::Rule(rule.number)),
                RuleMatch::Mismatch(criterion) if nearest.0.is_none() || nearest.1 < criterion => {
                    nearest = (Some(rule.number), criterion);
                }
                RuleMatch::Mismatch(_) => {}
            }
        }
        let (rule, criterion) = nearest;
        if indexed.policy.effect == Effect::Limit {
            return self.decide_by(indexed, MatchReason::BeyondLimit { rule, criterion });
        }
        self.recorder.evaluated(indexed.place, PolicyResult::NoMatch);
        self.record_finding(&indexed.policy, Finding::NoMatch { rule, criterion });
        None
    }

    /// Compares the request with everything in a rule but the subjects.
    pub(crate) fn compare(&mut self, rule: &IndexedRule) -> RuleMatch {
        self.compared_rules += 1;
        self.request.query.compare(rule)
    }

    /// Returns the policy, which applies, if it decides despite neverDeny, objectConditions,
    /// conditions, AccessRequests and its mode.
    fn decide_by(&mut self, indexed: &'s IndexedPolicy, applies: MatchReason) -> Option<DecidingPolicy<'s>> {
        let policy = &indexed.policy;
        let rule = applies.rule();
        if policy.effect.refuses() && self.request.is_protected() {
            self.recorder.evaluated(indexed.place, PolicyResult::NoMatch);
            self.record_finding(policy, Finding::NeverDenied { rule });
            return None;
        }
        if !policy.object_conditions.is_empty() && self.is_left_to_validate(indexed, rule) {
            return None;
        }
        let (conditions, cost) = self.request.conditions(policy);
        if cost > 0 {
            self.recorder.spent(indexed.place, cost);
        }
        if policy.liftable
            && !matches!(conditions, ConditionsResult::False(_))
            && self.is_lifted(indexed, rule)
        {
            return None;
        }
        match conditions {
            ConditionsResult::AllTrue => self.enforce_or_shadow(indexed, applies),
            ConditionsResult::False(condition) => {
                self.recorder.evaluated(indexed.place, PolicyResult::NoMatch);
                if R::DETAILED {
                    let condition = condition.to_owned();
                    self.record_finding(policy, Finding::ConditionFalse { rule, condition });
                }
                None
            }
            ConditionsResult::Error(condition, error) => {
                self.condition_failed(indexed, rule, condition, &error)
            }
        }
    }

    /// Whether an AccessRequest lifts a policy that applies.
    fn is_lifted(&mut self, indexed: &'s IndexedPolicy, rule: Option<usize>) -> bool {
        let policy = &indexed.policy;
        let Some(lifting) = self.request.access(Some(&policy.name), &mut self.compared_rules) else {
            return false;
        };
        if policy.mode == Mode::Enforce {
            self.lifted = self.lifted.or(Some(lifting));
        }
        self.recorder.evaluated(indexed.place, PolicyResult::NoMatch);
        if R::DETAILED {
            let by = lifting.0.request.name.clone();
            self.record_finding(policy, Finding::Lifted { rule, by });
        }
        true
    }

    /// Whether a policy with objectConditions decides nothing here.
    fn is_left_to_validate(&mut self, indexed: &'s IndexedPolicy, rule: Option<usize>) -> bool {
        let policy = &indexed.policy;
        let why = match (policy.mode, self.request.not_granted(policy)) {
            (Mode::Enforce, None) => return false,
            (_, Some(why)) => why,
            (Mode::Shadow, None) => NotGranted::AtValidate,
        };
        if R::DETAILED {
            let why = why.to_string();
            self.record_finding(policy, Finding::ObjectConditions { rule, why });
        }
        true
    }

    fn enforce_or_shadow(
        &mut self,
        indexed: &'s IndexedPolicy,
        applies: MatchReason,
    ) -> Option<DecidingPolicy<'s>> {
        let policy = &indexed.policy;
        let decision = policy.effect.decision();
        let result = match (policy.mode, policy.effect) {
            (Mode::Enforce, _) => PolicyResult::Match,
            (Mode::Shadow, Effect::Allow) => PolicyResult::ShadowAllow,
            (Mode::Shadow, Effect::Deny | Effect::Limit) => PolicyResult::ShadowDeny,
        };
        self.recorder.evaluated(indexed.place, result);
        self.record_finding(policy, applies.finding(decision));
        match policy.mode {
            Mode::Enforce => Some(DecidingPolicy {
                policy,
                rule: applies.rule(),
                failed: None,
            }),
            Mode::Shadow => {
                self.add_shadow(indexed, decision, None);
                None
            }
        }
    }

    fn condition_failed(
        &mut self,
        indexed: &'s IndexedPolicy,
        rule: Option<usize>,
        condition: &'s str,
        error: &ConditionEvaluationError,
    ) -> Option<DecidingPolicy<'s>> {
        let policy = &indexed.policy;
        let decision = match (policy.effect, policy.failure_policy) {
            (Effect::Deny | Effect::Limit, FailurePolicy::Deny) => Decision::Deny,
            (Effect::Deny | Effect::Limit, FailurePolicy::NoOpinion) | (Effect::Allow, _) => {
                Decision::NoOpinion
            }
        };
        self.recorder.evaluated(indexed.place, PolicyResult::Error);
        if R::DETAILED {
            let finding = Finding::ConditionError {
                rule,
                condition: condition.to_owned(),
                error: error.to_string(),
                decision,
            };
            self.record_finding(policy, finding);
        }
        match policy.mode {
            Mode::Enforce => (decision == Decision::Deny).then_some(DecidingPolicy {
                policy,
                rule,
                failed: Some(condition),
            }),
            Mode::Shadow => {
                let error = format!("condition `{condition}`: {error}");
                self.add_shadow(indexed, decision, Some(error));
                None
            }
        }
    }

    fn add_shadow(&mut self, indexed: &IndexedPolicy, decision: Decision, error: Option<String>) {
        self.shadow.push(Shadow {
            kind: CauseKind::AuthorizationPolicy,
            name: indexed.name.clone(),
            decision,
            error,
        });
    }

    fn record_finding(&mut self, policy: &AuthorizationPolicy, finding: Finding) {
        if R::DETAILED {
            self.recorder.record(TraceEntry::of_policy(policy, finding));
        }
    }
}

fn is_of_same_policy(one: &&IndexedRule, other: &&IndexedRule) -> bool {
    one.policy.place == other.policy.place
}

// === impl MatchReason ===

impl MatchReason {
    const fn rule(self) -> Option<usize> {
        match self {
            Self::Rule(rule) => Some(rule),
            Self::BeyondLimit { .. } => None,
        }
    }

    const fn finding(self, decision: Decision) -> Finding {
        match self {
            Self::Rule(rule) => Finding::Match { rule, decision },
            Self::BeyondLimit { rule, criterion } => Finding::BeyondLimit {
                rule,
                criterion,
                decision,
            },
        }
    }
}

// Near misses: the bindings and policies that came nearest if nothing decided, and missing roles.

/// The maximum of bindings for each subject, of rules of all bindings, and of rules of policies
/// that are compared to find near misses.
const MAX_COMPARED: usize = 1_000;

/// At most [`NearMisses::MAX_NEAREST`] near misses, the nearest first, and equally near ones in the
/// order in which they were added.
#[derive(Default)]
struct RankedMisses<'s>(Vec<NearMiss<'s>>);

struct NearMiss<'s> {
    object: NearMissObject<'s>,
    /// The nearest rule; `None` if there is none.
    rule: Option<usize>,
    criterion: Criterion,
}

/// A binding or policy that might have allowed the request.
#[derive(Clone, Copy)]
enum NearMissObject<'s> {
    Binding(&'s Binding),
    Policy(&'s AuthorizationPolicy),
}

impl<'s, R: WalkRecorder> Walk<'_, 's, '_, R> {
    pub(crate) fn unmatched(mut self) -> NearMisses {
        let request = self.request;
        let bindings = request.set.bindings.applying_to(request.attributes, MAX_COMPARED);
        let mut nearest = RankedMisses::default();
        let mut errors = self.compare_bindings(&bindings, &mut nearest);
        errors.extend(self.compare_allow_policies(&mut nearest));
        NearMisses {
            bindings: bindings.len(),
            policies: request.set.policies.count_in_force(request.now),
            errors,
            nearest: nearest.into_events(),
        }
    }

    /// Adds the bindings to `nearest`. Returns the errors about missing roles.
    fn compare_bindings(&self, bindings: &[&'s BoundRole], nearest: &mut RankedMisses<'s>) -> Vec<String> {
        let mut errors = Vec::new();
        let mut left = MAX_COMPARED;
        for bound in bindings.iter().take(MAX_COMPARED) {
            if let Some(role) = &bound.role {
                let rules = role.rules.get(..left).unwrap_or(&role.rules);
                left -= rules.len();
                let (rule, criterion) = match self.nearest_rule(rules) {
                    NearestRule::Mismatch(rule, criterion) => (Some(rule), criterion),
                    NearestRule::Allows(rule) => (Some(rule), Criterion::Target),
                    NearestRule::NoRule => (None, Criterion::Target),
                };
                nearest.add(NearMissObject::Binding(&bound.binding), rule, criterion);
            } else if errors.len() < NearMisses::MAX_ERRORS {
                let error = RoleNotFoundError::of(&bound.binding.role).to_string();
                if !errors.contains(&error) {
                    errors.push(error);
                }
            }
        }
        errors
    }

    /// Adds the Allows for this user to `nearest`. Returns why those with objectConditions grant
    /// nothing although they apply.
    fn compare_allow_policies(&mut self, nearest: &mut RankedMisses<'s>) -> Vec<String> {
        let mut not_granted = Vec::new();
        let request = self.request;
        let allow = &request.set.policies.allow;
        let rules = allow.rules_included(request.user_ids());
        let rules = rules.filter(|rule| request.query.is_same_kind_as(rule));
        let in_force = rules.filter(|rule| request.is_in_force(&rule.policy.policy));
        let user = allow.user_rules(request.user_ids());
        for rule in in_force.take(MAX_COMPARED) {
            let compared = match user.compare(&rule.policy) {
                RuleMatch::Match => self.compare(rule),
                mismatch @ RuleMatch::Mismatch(_) => mismatch,
            };
            let policy = &rule.policy.policy;
            match compared {
                RuleMatch::Mismatch(criterion) => {
                    nearest.add(NearMissObject::Policy(policy), Some(rule.number), criterion);
                }
                RuleMatch::Match if policy.object_conditions.is_empty() => {}
                RuleMatch::Match => not_granted.extend(self.reason_not_granted(policy)),
            }
        }
        not_granted.truncate(NearMisses::MAX_ERRORS);
        not_granted
    }

    fn reason_not_granted(&self, policy: &Arc<AuthorizationPolicy>) -> Option<String> {
        let why = self.request.not_granted(policy)?;
        Some(format!(
            "AuthorizationPolicy `{}` with objectConditions grants nothing: {why}",
            policy.name
        ))
    }
}

impl fmt::Display for NearMisses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "none of the user's {} bindings and {} policies applies",
            self.bindings, self.policies
        )?;
        if let Some(event) = self.nearest.first()
            && let Finding::NoMatch { rule, criterion } = &event.finding
        {
            write!(f, "; nearest is {} `", event.kind)?;
            if event.kind == CauseKind::RoleBinding {
                write!(f, "{}/", event.namespace)?;
            }
            write!(f, "{}`, whose ", event.name)?;
            match rule {
                Some(rule) => write!(f, "rule {rule} does not fit in `{criterion}`")?,
                None => f.write_str("role has no rule")?,
            }
        }
        for error in &self.errors {
            write!(f, "; {error}")?;
        }
        Ok(())
    }
}

// === impl RankedMisses ===

impl<'s> RankedMisses<'s> {
    /// Adds a rule of `object` that fails at `criterion`: the later the criterion in the order of
    /// [`Criterion`], the nearer the rule. Each object is kept once, with its nearest rule.
    fn add(&mut self, object: NearMissObject<'s>, rule: Option<usize>, criterion: Criterion) {
        if let Some(known) = self.0.iter().position(|known| known.object.is(object)) {
            if self
                .0
                .get(known)
                .is_some_and(|known| known.criterion >= criterion)
            {
                return;
            }
            self.0.remove(known);
        }
        let place = self.0.partition_point(|known| known.criterion >= criterion);
        if place < NearMisses::MAX_NEAREST {
            let miss = NearMiss {
                object,
                rule,
                criterion,
            };
            self.0.insert(place, miss);
            self.0.truncate(NearMisses::MAX_NEAREST);
        }
    }

    fn into_events(self) -> Vec<TraceEntry> {
        self.0.into_iter().map(NearMiss::into_event).collect()
    }
}

// === impl NearMiss ===

impl NearMiss<'_> {
    fn into_event(self) -> TraceEntry {
        let finding = Finding::NoMatch {
            rule: self.rule,
            criterion: self.criterion,
        };
        match self.object {
            NearMissObject::Binding(binding) => TraceEntry::of_binding(binding, finding),
            NearMissObject::Policy(policy) => TraceEntry::of_policy(policy, finding),
        }
    }
}

// === impl NearMissObject ===

impl NearMissObject<'_> {
    /// Whether both are the same object in memory.
    fn is(self, other: Self) -> bool {
        match (self, other) {
            (Self::Binding(one), Self::Binding(other)) => ptr::eq(one, other),
            (Self::Policy(one), Self::Policy(other)) => ptr::eq(one, other),
            _ => false,
        }
    }
}
