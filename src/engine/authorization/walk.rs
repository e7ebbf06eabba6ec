//! The walk through Deny policies, RBAC and Allow policies, recorded or not.

mod evaluate;
mod event;
mod reason;
mod unmatched;

use std::cell::OnceCell;
use std::ops::ControlFlow;

use super::condition::RequestActivation;
use super::index::{Candidate, Grant, Ids, InNamespace, Query};
use super::matching::{Narrowness, namespace_of, path_rule_mismatch, resource_rule_mismatch};
use super::policy_set::{PolicyGroup, PolicySet};
use super::trace::{Criterion, Event, Finding, Observer, Trace};
use super::{Authorization, AuthorizationPolicy, Rule, Shadow, rbac};
use crate::engine::{Attributes, Decision, PolicyResult, Target, Time};

use event::{binding_event, missing_role, policy_event};

/// What is reported of a walk.
pub(super) trait WalkRecorder {
    /// Whether what does not apply is wanted too.
    const DETAILED: bool;

    fn evaluated(&mut self, policy: usize, evaluation: PolicyResult);

    fn record(&mut self, event: Event);
}

/// Reports to an observer only.
pub(super) struct Quiet<'o, O>(pub(super) &'o mut O);

/// Keeps everything.
#[derive(Default)]
pub(super) struct Recording(pub(super) Trace);

/// One request on its way to a decision.
pub(super) struct Walk<'s, 'r, R> {
    set: &'s PolicySet,
    attributes: &'r Attributes<'r>,
    now: Time,
    who: Ids,
    query: Query<'s>,
    in_namespace: InNamespace<'s>,
    narrowness: Option<Narrowness<'r>>,
    activation: RequestActivation<'r>,
    /// Of its own, so that no policy in Shadow uses up what the others may cost.
    shadow_activation: RequestActivation<'r>,
    protected: OnceCell<bool>,
    visited: usize,
    shadow: Vec<Shadow>,
    recorder: R,
}

/// A policy whose rules are being compared.
struct Considered {
    policy: usize,
    /// The rule that came nearest, and what of it does not fit.
    nearest: Option<(usize, Criterion)>,
    /// One of its rules applies: the others do not matter.
    settled: bool,
}

/// The result of comparing a rule with a request. Absence has no meaning: a rule that
/// cannot be found neither applies nor does it vanish.
enum RuleMatch<'s> {
    /// It applies; its policy.
    Match(&'s AuthorizationPolicy),
    /// It does not; the first thing for which it does not.
    Mismatch(Criterion),
    /// It is not where the index says: a Deny holds, an Allow does not.
    Unresolved,
}

/// A policy that decides.
struct Applied {
    policy: usize,
    rule: usize,
    /// The condition that has no result, where that decides.
    failed: Option<String>,
}

// === impl Recorder ===

impl<O: Observer> WalkRecorder for Quiet<'_, O> {
    const DETAILED: bool = false;

    fn evaluated(&mut self, policy: usize, evaluation: PolicyResult) {
        self.0.evaluated(policy, evaluation);
    }

    fn record(&mut self, _: Event) {}
}

impl WalkRecorder for Recording {
    const DETAILED: bool = true;

    fn evaluated(&mut self, _: usize, _: PolicyResult) {}

    fn record(&mut self, event: Event) {
        self.0.record(event);
    }
}

// === impl Walk ===

impl<'s, 'r, R: WalkRecorder> Walk<'s, 'r, R> {
    pub(super) fn new(set: &'s PolicySet, attributes: &'r Attributes<'r>, now: Time, recorder: R) -> Self {
        let narrowness = match &attributes.target {
            Target::Resource(resource) => Some(Narrowness::new(&resource.selectors)),
            Target::NonResource { .. } => None,
        };
        let in_namespace = match &attributes.target {
            Target::Resource(request) => set.namespaces.find(namespace_of(request)),
            Target::NonResource { .. } => InNamespace::None,
        };
        Self {
            set,
            attributes,
            now,
            who: set.subjects.find(&attributes.user),
            query: Query::new(attributes, &set.symbols, in_namespace),
            in_namespace,
            narrowness,
            activation: RequestActivation::new(attributes),
            shadow_activation: RequestActivation::new(attributes),
            protected: OnceCell::new(),
            visited: 0,
            shadow: Vec::new(),
            recorder,
        }
    }

    /// Walks to the first thing that decides.
    pub(super) fn decide(mut self) -> (Authorization, R) {
        let set = self.set;
        self.first_deciding(&set.shadow);
        let (decision, reason, cause) = if let Some(applied) = self.first_deciding(&set.deny) {
            self.by_policy(Decision::Deny, &applied)
        } else if let Some(grant) = self.rbac() {
            self.by_grant(grant)
        } else if let Some(applied) = self.first_deciding(&set.allow) {
            self.by_policy(Decision::Allow, &applied)
        } else {
            (Decision::NoOpinion, String::new(), None)
        };
        let Self {
            shadow,
            visited,
            recorder,
            ..
        } = self;
        (
            Authorization {
                decision,
                reason,
                cause,
                shadow,
                visited,
            },
            recorder,
        )
    }

    /// The first policy of a group that decides.
    fn first_deciding(&mut self, group: &'s PolicyGroup) -> Option<Applied> {
        let (who, query) = (
            std::mem::take(&mut self.who),
            std::mem::replace(&mut self.query, Query::NOTHING),
        );
        let (mut current, mut applied) = (None::<Considered>, None);
        let mut unrecorded = group.policies.start;
        group.candidates.each(&who, &query, R::DETAILED, |candidate| {
            if current
                .as_ref()
                .is_none_or(|current| current.policy != candidate.policy)
            {
                self.leave(current.take(), &mut unrecorded);
                self.record_other_target(unrecorded..candidate.policy);
                unrecorded = candidate.policy;
            }
            let current = current.get_or_insert_with(|| self.consider(candidate.policy));
            if current.settled {
                return ControlFlow::Continue(());
            }
            let rule = self.rule_of(candidate);
            match self.compare(candidate) {
                RuleMatch::Mismatch(criterion) => current.note(rule, criterion),
                RuleMatch::Match(policy) => {
                    current.settled = true;
                    applied = self.evaluate(candidate.policy, policy, rule);
                }
                RuleMatch::Unresolved if group.denies => {
                    current.settled = true;
                    applied = Some(Applied {
                        policy: candidate.policy,
                        rule,
                        failed: None,
                    });
                }
                RuleMatch::Unresolved => current.note(rule, Criterion::Target),
            }
            if applied.is_some() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        self.leave(current, &mut unrecorded);
        if applied.is_none() {
            self.record_other_target(unrecorded..group.policies.end);
        }
        (self.who, self.query) = (who, query);
        applied
    }

    /// A policy that does not hold now is left aside, whatever its rules say.
    fn consider(&mut self, policy: usize) -> Considered {
        let holds = self.holds(policy);
        if !holds {
            self.record_finding(policy, Finding::NotInForce);
        }
        Considered {
            policy,
            nearest: None,
            settled: !holds,
        }
    }

    /// Whether the policy holds now; one that is not there is judged by what its rules say.
    fn holds(&self, policy: usize) -> bool {
        let policy = self.set.policies.get(policy);
        policy.is_none_or(|policy| policy.validity.contains(self.now))
    }

    /// Reports a policy all of whose candidates were compared.
    fn leave(&mut self, considered: Option<Considered>, unrecorded: &mut usize) {
        let Some(Considered {
            policy,
            nearest,
            settled,
        }) = considered
        else {
            return;
        };
        *unrecorded = policy + 1;
        if !settled {
            self.recorder.evaluated(policy, PolicyResult::NoMatch);
            if R::DETAILED
                && let Some((rule, criterion)) = nearest
            {
                self.record_finding(
                    policy,
                    Finding::NoMatch {
                        rule: Some(rule),
                        criterion,
                    },
                );
            }
        }
    }

    /// Reports policies that have no rule for this type of request.
    fn record_other_target(&mut self, policies: std::ops::Range<usize>) {
        if R::DETAILED {
            for policy in policies {
                let finding = if self.holds(policy) {
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
    }

    fn record_finding(&mut self, policy: usize, finding: Finding) {
        if R::DETAILED
            && let Some(event) = self
                .set
                .policies
                .get(policy)
                .map(|policy| policy_event(policy, finding))
        {
            self.recorder.record(event);
        }
    }

    /// Whether a rule applies to the request and its user.
    fn compare(&mut self, candidate: Candidate) -> RuleMatch<'s> {
        if !candidate.is_subject {
            return RuleMatch::Mismatch(Criterion::Subjects);
        }
        if candidate.is_excluded {
            return RuleMatch::Mismatch(Criterion::ExcludeSubjects);
        }
        self.visited += 1;
        let set = self.set;
        let Some(policy) = set.policies.get(candidate.policy) else {
            return RuleMatch::Unresolved;
        };
        let mismatch = match (&self.attributes.target, &self.narrowness) {
            (Target::Resource(request), Some(narrowness)) => {
                let Some(rule) = policy.resource_rules.get(candidate.rule) else {
                    return RuleMatch::Unresolved;
                };
                let selected = rule.namespace_selector.as_ref().map(|selector| {
                    let name = namespace_of(request);
                    self.in_namespace
                        .selected_by(selector, name, candidate.is_selected)
                });
                resource_rule_mismatch(
                    policy.effect,
                    rule,
                    request,
                    selected,
                    narrowness,
                    &set.cluster_scoped,
                )
            }
            (Target::NonResource { path, verb }, _) => {
                let Some(rule) = policy.non_resource_rules.get(candidate.rule) else {
                    return RuleMatch::Unresolved;
                };
                path_rule_mismatch(policy.effect, rule, path, verb)
            }
            (Target::Resource(_), None) => return RuleMatch::Unresolved,
        };
        mismatch.map_or(RuleMatch::Match(policy), RuleMatch::Mismatch)
    }

    /// The rule's number among all of its policy's, the non-resource ones last.
    fn rule_of(&self, candidate: Candidate) -> usize {
        let before = match &self.attributes.target {
            Target::Resource(_) => 0,
            Target::NonResource { .. } => self
                .set
                .policies
                .get(candidate.policy)
                .map_or(0, |policy| policy.resource_rules.len()),
        };
        before + candidate.rule
    }

    fn rbac(&mut self) -> Option<Grant> {
        let grant = self.set.grants.find(&self.who, &self.query, &mut self.visited);
        if R::DETAILED {
            for place in self.set.grants.applying(&self.who, &self.query, usize::MAX) {
                if let Some(event) = self.binding_event(place) {
                    self.recorder.record(event);
                }
                if grant.is_some_and(|grant| grant.binding == place) {
                    break;
                }
            }
        }
        grant
    }

    /// What a binding that applies to the user comes to.
    fn binding_event(&self, place: usize) -> Option<Event> {
        let binding = self.set.bindings.get(place)?;
        let finding = match self.rules_of(place) {
            Some(rules) => match self.nearest_rule(rules) {
                (Some(rule), None) => Finding::Match {
                    rule,
                    decision: Decision::Allow,
                },
                (rule, Some(criterion)) => Finding::NoMatch { rule, criterion },
                (None, None) => Finding::NoMatch {
                    rule: None,
                    criterion: Criterion::Target,
                },
            },
            None => Finding::MissingRole {
                error: missing_role(binding).to_string(),
            },
        };
        Some(binding_event(binding, finding))
    }

    /// The rules that a binding grants, if its role is there.
    fn rules_of(&self, place: usize) -> Option<&'s [Rule]> {
        self.set
            .grants
            .role_of(place)
            .and_then(|role| self.set.roles.get(role))
            .map(|role| role.rules.as_slice())
    }

    /// The first rule that allows, or else the one that comes nearest and what
    /// of it does not fit.
    fn nearest_rule(&self, rules: &[Rule]) -> (Option<usize>, Option<Criterion>) {
        let mut nearest = (None, None);
        for (rule, written) in rules.iter().enumerate() {
            let Some(criterion) = rbac::rule_mismatch(written, self.attributes) else {
                return (Some(rule), None);
            };
            if nearest.1 < Some(criterion) {
                nearest = (Some(rule), Some(criterion));
            }
        }
        nearest
    }
}

// === impl Considered ===

impl Considered {
    fn note(&mut self, rule: usize, criterion: Criterion) {
        if self.nearest.is_none_or(|(_, nearest)| nearest < criterion) {
            self.nearest = Some((rule, criterion));
        }
    }
}
