//! The policies of one group, to the first that decides.

use crate::authorization::condition::{ConditionEvaluationError, ConditionsResult};
use crate::authorization::index::{IndexedPolicy, IndexedRule, PolicyGroup, UserRules};
use crate::authorization::{
    AuthorizationPolicy, Criterion, Effect, Event, FailurePolicy, Finding, Mode, RuleMatch, Shadow,
};
use crate::engine::{CauseKind, Decision, PolicyResult};

use super::{DecidingPolicy, Walk, WalkRecorder};

impl<'s, R: WalkRecorder> Walk<'_, 's, '_, R> {
    /// The first policy of a group that decides.
    pub(crate) fn first_deciding(&mut self, group: &'s PolicyGroup) -> Option<DecidingPolicy<'s>> {
        let request = self.request;
        if R::DETAILED {
            let user = group.user_rules(request.user_ids());
            let mut policies = group.policies.iter();
            return policies.find_map(|policy| self.explain_policy(policy, group.rules_of(policy), &user));
        }
        let candidates = group.candidates(&request.query, || request.user_ids());
        let mut by_policy = candidates.chunk_by(|one, other| one.policy.place == other.policy.place);
        by_policy.find_map(|rules| {
            let policy = &rules.first()?.policy;
            let compare = |walk: &mut Self, rule| walk.compare(rule);
            self.evaluate_policy(policy, rules.iter().copied(), compare)
        })
    }

    /// As [`Walk::evaluate_policy`], of a policy that the index may rule out.
    fn explain_policy(
        &mut self,
        policy: &'s IndexedPolicy,
        rules: &'s [IndexedRule],
        user: &UserRules<'_>,
    ) -> Option<DecidingPolicy<'s>> {
        let query = &self.request.query;
        let rules = rules.iter().filter(|rule| query.is_of_sort(rule));
        let is_user = user.compare(policy);
        self.evaluate_policy(policy, rules, |walk, rule| match is_user {
            RuleMatch::Match => walk.compare(rule),
            mismatch @ RuleMatch::Mismatch(_) => mismatch,
        })
    }

    /// The policy, if the first of `rules` that applies makes it decide.
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
                RuleMatch::Match => return self.rule_applies(indexed, rule.number),
                RuleMatch::Mismatch(criterion) if nearest.0.is_none() || nearest.1 < criterion => {
                    nearest = (Some(rule.number), criterion);
                }
                RuleMatch::Mismatch(_) => {}
            }
        }
        self.recorder.evaluated(indexed.place, PolicyResult::NoMatch);
        let (rule, criterion) = nearest;
        self.record_finding(&indexed.policy, Finding::NoMatch { rule, criterion });
        None
    }

    /// Whether a rule applies to the request, leaving subjects aside.
    pub(crate) fn compare(&mut self, rule: &IndexedRule) -> RuleMatch {
        self.visited += 1;
        self.request.query.compare(rule)
    }

    /// The policy whose rule `rule` applies, if it decides: neverDeny, conditions, mode.
    fn rule_applies(&mut self, indexed: &'s IndexedPolicy, rule: usize) -> Option<DecidingPolicy<'s>> {
        let policy = &indexed.policy;
        if policy.effect == Effect::Deny && self.request.is_protected() {
            self.recorder.evaluated(indexed.place, PolicyResult::NoMatch);
            self.record_finding(policy, Finding::NeverDenied { rule });
            return None;
        }
        let (conditions, cost) = self.request.conditions(policy);
        if cost > 0 {
            self.recorder.spent(indexed.place, cost);
        }
        match conditions {
            ConditionsResult::AllTrue => self.policy_applies(indexed, rule),
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

    fn policy_applies(&mut self, indexed: &'s IndexedPolicy, rule: usize) -> Option<DecidingPolicy<'s>> {
        let policy = &indexed.policy;
        let decision = policy.effect.decision();
        let result = match (policy.mode, policy.effect) {
            (Mode::Enforce, _) => PolicyResult::Match,
            (Mode::Shadow, Effect::Allow) => PolicyResult::ShadowAllow,
            (Mode::Shadow, Effect::Deny) => PolicyResult::ShadowDeny,
        };
        self.recorder.evaluated(indexed.place, result);
        self.record_finding(policy, Finding::Match { rule, decision });
        match policy.mode {
            Mode::Enforce => Some(DecidingPolicy {
                policy,
                rule,
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
        rule: usize,
        condition: &'s str,
        error: &ConditionEvaluationError,
    ) -> Option<DecidingPolicy<'s>> {
        let policy = &indexed.policy;
        let decision = match (policy.effect, policy.failure_policy) {
            (Effect::Deny, FailurePolicy::Deny) => Decision::Deny,
            (Effect::Deny, FailurePolicy::NoOpinion) | (Effect::Allow, _) => Decision::NoOpinion,
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
            self.recorder.record(Event::of_policy(policy, finding));
        }
    }
}
