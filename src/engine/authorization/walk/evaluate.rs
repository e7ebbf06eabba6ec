//! Evaluates a policy one of whose rules applies: neverDeny, conditions, mode.

use crate::engine::authorization::condition::{Condition, Conditions, EvaluationFault};
use crate::engine::authorization::{AuthorizationPolicy, Effect, FailurePolicy, Finding, Mode, Shadow};
use crate::engine::{CauseKind, Decision, PolicyResult};

use super::{Applied, Walk, WalkRecorder};

impl<R: WalkRecorder> Walk<'_, '_, R> {
    /// What the policy comes to whose rule `rule` applies; `Some` where that decides.
    pub(super) fn evaluate(
        &mut self,
        policy: usize,
        written: &AuthorizationPolicy,
        rule: usize,
    ) -> Option<Applied> {
        if written.effect == Effect::Deny && self.is_protected() {
            self.recorder.evaluated(policy, PolicyResult::NoMatch);
            self.record_finding(policy, Finding::NeverDenied { rule });
            return None;
        }
        match self.conditions(written) {
            Conditions::Hold => self.applies(policy, written, rule),
            Conditions::False(condition) => {
                self.recorder.evaluated(policy, PolicyResult::NoMatch);
                if R::DETAILED {
                    self.record_finding(
                        policy,
                        Finding::ConditionFalse {
                            rule,
                            condition: condition.to_owned(),
                        },
                    );
                }
                None
            }
            Conditions::Failed(condition, fault) => self.failed(policy, written, rule, condition, &fault),
        }
    }

    fn is_protected(&self) -> bool {
        *self
            .protected
            .get_or_init(|| self.set.protection.covers(self.attributes))
    }

    fn conditions<'p>(&self, policy: &'p AuthorizationPolicy) -> Conditions<'p> {
        let activation = match policy.mode {
            Mode::Enforce => &self.activation,
            Mode::Shadow => &self.shadow_activation,
        };
        Condition::all(&policy.conditions, activation)
    }

    fn applies(&mut self, policy: usize, written: &AuthorizationPolicy, rule: usize) -> Option<Applied> {
        let decision = written.effect.decision();
        let evaluation = match (written.mode, written.effect) {
            (Mode::Enforce, _) => PolicyResult::Match,
            (Mode::Shadow, Effect::Allow) => PolicyResult::ShadowAllow,
            (Mode::Shadow, Effect::Deny) => PolicyResult::ShadowDeny,
        };
        self.recorder.evaluated(policy, evaluation);
        self.record_finding(policy, Finding::Match { rule, decision });
        match written.mode {
            Mode::Enforce => Some(Applied {
                policy,
                rule,
                failed: None,
            }),
            Mode::Shadow => {
                self.note_shadow(policy, decision, None);
                None
            }
        }
    }

    fn failed(
        &mut self,
        policy: usize,
        written: &AuthorizationPolicy,
        rule: usize,
        condition: &str,
        fault: &EvaluationFault,
    ) -> Option<Applied> {
        // What it comes to where it counts, which in Shadow is noted alone.
        let decision = if written.effect == Effect::Deny && written.failure_policy == FailurePolicy::Deny {
            Decision::Deny
        } else {
            Decision::NoOpinion
        };
        self.recorder.evaluated(policy, PolicyResult::Error);
        if R::DETAILED {
            let (condition, error) = (condition.to_owned(), fault.to_string());
            self.record_finding(
                policy,
                Finding::ConditionError {
                    rule,
                    condition,
                    error,
                    decision,
                },
            );
        }
        match written.mode {
            Mode::Enforce => (decision == Decision::Deny).then(|| Applied {
                policy,
                rule,
                failed: Some(condition.to_owned()),
            }),
            Mode::Shadow => {
                let error = format!("condition `{condition}`: {fault}");
                self.note_shadow(policy, decision, Some(error));
                None
            }
        }
    }

    fn note_shadow(&mut self, policy: usize, decision: Decision, error: Option<String>) {
        if let Some(name) = self.set.names.get(policy).cloned() {
            self.shadow.push(Shadow {
                kind: CauseKind::AuthorizationPolicy,
                name,
                decision,
                error,
            });
        }
    }
}
