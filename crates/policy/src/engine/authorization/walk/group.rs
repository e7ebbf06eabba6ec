//! The policies of one group, rule by rule, to the first that decides.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::engine::PolicyResult;
use crate::engine::authorization::index::{Candidate, Query, RuleBlocks, RuleQuery};
use crate::engine::authorization::listed_policy::ListedPolicy;
use crate::engine::authorization::policy_set::PolicyGroup;
use crate::engine::authorization::{AuthorizationPolicy, Criterion, Finding, RuleMatch};

use super::considered::{Applied, Considered, GroupProgress};
use super::event::policy_event;
use super::{Walk, WalkRecorder};

impl<'s, R: WalkRecorder> Walk<'_, 's, '_, R> {
    /// The first policy of a group that decides.
    pub(super) fn first_deciding(&mut self, group: &'s PolicyGroup) -> Option<Applied<'s>> {
        match &self.request.query {
            Query::Resource(query) => self.first_among(group, &group.candidates.resources, query),
            Query::Path(query) => self.first_among(group, &group.candidates.paths, query),
        }
    }

    fn first_among<Q: RuleQuery>(
        &mut self,
        group: &'s PolicyGroup,
        rules: &'s RuleBlocks<Q::Rule>,
        query: &Q,
    ) -> Option<Applied<'s>> {
        let mut progress = GroupProgress {
            current: None,
            untold: group.policies.iter(),
            applied: None,
        };
        let who = &self.request.who;
        rules.each(who, query, R::DETAILED, |candidate| {
            self.visit(&mut progress, query, &candidate)
        });
        if let Some(last) = progress.current.take() {
            self.leave(last);
        }
        if progress.applied.is_none() {
            self.record_others(progress.untold);
        }
        progress.applied
    }

    fn visit<Q: RuleQuery>(
        &mut self,
        progress: &mut GroupProgress<'s>,
        query: &Q,
        candidate: &Candidate<'s, Q::Rule>,
    ) -> ControlFlow<()> {
        let listed = candidate.listed;
        let mut current = match progress.current.take() {
            Some(current) if current.listed.place == listed.place => current,
            other => {
                other.into_iter().for_each(|other| self.leave(other));
                // Takes this one too, of which more is told.
                let before = progress.untold.by_ref();
                self.record_others(before.take_while(|other| other.place < listed.place));
                self.consider(listed)
            }
        };
        if !current.settled {
            match self.compare(query, candidate) {
                RuleMatch::Mismatch(criterion) => current.note(candidate.number, criterion),
                RuleMatch::Match => {
                    current.settled = true;
                    progress.applied = self.evaluate(listed, candidate.number);
                }
            }
        }
        progress.current = Some(current);
        match progress.applied {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    }

    /// A policy that does not hold now is left aside, whatever its rules say.
    fn consider(&mut self, listed: &'s ListedPolicy) -> Considered<'s> {
        let is_in_force = self.request.is_in_force(&listed.policy);
        if !is_in_force {
            self.record_finding(&listed.policy, Finding::NotInForce);
        }
        Considered {
            listed,
            nearest: None,
            settled: !is_in_force,
        }
    }

    /// Tells of the policy all of whose candidates were compared.
    fn leave(&mut self, considered: Considered<'s>) {
        let Considered {
            listed,
            nearest,
            settled,
        } = considered;
        if settled {
            return;
        }
        self.recorder.evaluated(listed.place, PolicyResult::NoMatch);
        if let Some((rule, criterion)) = nearest {
            let rule = Some(rule);
            self.record_finding(&listed.policy, Finding::NoMatch { rule, criterion });
        }
    }

    /// Tells of policies that have no rule for this sort of request.
    fn record_others<'p>(&mut self, others: impl Iterator<Item = &'p Arc<ListedPolicy>>) {
        if !R::DETAILED {
            return;
        }
        for ListedPolicy { policy, .. } in others.map(AsRef::as_ref) {
            let finding = if self.request.is_in_force(policy) {
                Finding::NoMatch {
                    rule: None,
                    criterion: Criterion::Target,
                }
            } else {
                Finding::NotInForce
            };
            self.record_finding(policy, finding);
        }
    }

    pub(super) fn record_finding(&mut self, policy: &AuthorizationPolicy, finding: Finding) {
        if R::DETAILED {
            self.recorder.record(policy_event(policy, finding));
        }
    }

    /// Whether a rule applies to the request and its user.
    pub(super) fn compare<Q: RuleQuery>(
        &mut self,
        query: &Q,
        candidate: &Candidate<'s, Q::Rule>,
    ) -> RuleMatch {
        if !candidate.is_subject {
            return RuleMatch::Mismatch(Criterion::Subjects);
        }
        if candidate.is_excluded {
            return RuleMatch::Mismatch(Criterion::ExcludeSubjects);
        }
        self.visited += 1;
        let effect = candidate.listed.policy.effect;
        query.compare(effect, candidate.rule, candidate.is_selected)
    }
}
