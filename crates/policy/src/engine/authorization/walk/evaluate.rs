//! Evaluates a policy one of whose rules applies: neverDeny, conditions, mode.

use crate::engine::authorization::condition::{Conditions, EvaluationFault};
use crate::engine::authorization::listed_policy::ListedPolicy;
use crate::engine::authorization::{Effect, FailurePolicy, Finding, Mode, Shadow};
use crate::engine::{CauseKind, Decision, PolicyResult};

use super::considered::Applied;
use super::{Walk, WalkRecorder};

impl<'s, R: WalkRecorder> Walk<'_, 's, '_, R> {
    /// What the policy comes to whose rule `rule` applies; `Some` where that decides.
    pub(super) fn evaluate(&mut self, listed: &'s ListedPolicy, rule: usize) -> Option<Applied<'s>> {
        let policy = &listed.policy;
        if policy.effect == Effect::Deny && self.request.is_protected() {
            self.recorder.evaluated(listed.place, PolicyResult::NoMatch);
            self.record_finding(policy, Finding::NeverDenied { rule });
            return None;
        }
        let (conditions, cost) = self.request.conditions(policy);
        if cost > 0 {
            self.recorder.spent(listed.place, cost);
        }
        match conditions {
            Conditions::Hold => self.applies(listed, rule),
            Conditions::False(condition) => {
                self.recorder.evaluated(listed.place, PolicyResult::NoMatch);
                if R::DETAILED {
                    let condition = condition.to_owned();
                    self.record_finding(policy, Finding::ConditionFalse { rule, condition });
                }
                None
            }
            Conditions::Failed(condition, fault) => self.failed(listed, rule, condition, &fault),
        }
    }

    fn applies(&mut self, listed: &'s ListedPolicy, rule: usize) -> Option<Applied<'s>> {
        let policy = &listed.policy;
        let decision = policy.effect.decision();
        let result = match (policy.mode, policy.effect) {
            (Mode::Enforce, _) => PolicyResult::Match,
            (Mode::Shadow, Effect::Allow) => PolicyResult::ShadowAllow,
            (Mode::Shadow, Effect::Deny) => PolicyResult::ShadowDeny,
        };
        self.recorder.evaluated(listed.place, result);
        self.record_finding(policy, Finding::Match { rule, decision });
        match policy.mode {
            Mode::Enforce => Some(Applied {
                policy,
                rule,
                failed: None,
            }),
            Mode::Shadow => {
                self.note_shadow(listed, decision, None);
                None
            }
        }
    }

    fn failed(
        &mut self,
        listed: &'s ListedPolicy,
        rule: usize,
        condition: &'s str,
        fault: &EvaluationFault,
    ) -> Option<Applied<'s>> {
        let policy = &listed.policy;
        // What it comes to where it counts, which in Shadow is noted alone.
        let decision = match (policy.effect, policy.failure_policy) {
            (Effect::Deny, FailurePolicy::Deny) => Decision::Deny,
            (Effect::Deny, FailurePolicy::NoOpinion) | (Effect::Allow, _) => Decision::NoOpinion,
        };
        self.recorder.evaluated(listed.place, PolicyResult::Error);
        if R::DETAILED {
            let finding = Finding::ConditionError {
                rule,
                condition: condition.to_owned(),
                error: fault.to_string(),
                decision,
            };
            self.record_finding(policy, finding);
        }
        match policy.mode {
            Mode::Enforce => (decision == Decision::Deny).then(|| Applied {
                policy,
                rule,
                failed: Some(condition),
            }),
            Mode::Shadow => {
                let error = format!("condition `{condition}`: {fault}");
                self.note_shadow(listed, decision, Some(error));
                None
            }
        }
    }

    fn note_shadow(&mut self, listed: &ListedPolicy, decision: Decision, error: Option<String>) {
        self.shadow.push(Shadow {
            kind: CauseKind::AuthorizationPolicy,
            name: listed.name.clone(),
            decision,
            error,
        });
    }
}
