//! What RBAC's bindings come to.

use crate::engine::Decision;
use crate::engine::authorization::index::Grant;
use crate::engine::authorization::rbac::{RoleFault, compare_rule};
use crate::engine::authorization::{Criterion, Event, Finding, Rule, RuleMatch};

use super::considered::NearestRule;
use super::event::binding_event;
use super::{Walk, WalkRecorder};

impl<'s, R: WalkRecorder> Walk<'_, 's, '_, R> {
    /// The first rule of a binding that allows.
    pub(super) fn rbac(&mut self) -> Option<Grant> {
        let request = self.request;
        let grants = &request.set.grants;
        let grant = grants.find(&request.who, &request.query, &mut self.visited);
        if R::DETAILED {
            for place in grants.applying(&request.who, &request.query, usize::MAX) {
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

    /// What a binding that applies to the user comes to, for the record.
    fn binding_event(&self, place: u32) -> Option<Event> {
        let binding = self.request.set.bindings.get(place)?;
        let finding = match self.rules_of(place) {
            Some(rules) => match self.nearest_rule(rules) {
                NearestRule::Allows(rule) => Finding::Match {
                    rule,
                    decision: Decision::Allow,
                },
                NearestRule::Mismatch(rule, criterion) => Finding::NoMatch {
                    rule: Some(rule),
                    criterion,
                },
                NearestRule::NoRule => Finding::NoMatch {
                    rule: None,
                    criterion: Criterion::Target,
                },
            },
            None => Finding::MissingRole {
                error: RoleFault::missing(&binding.role).to_string(),
            },
        };
        Some(binding_event(binding, finding))
    }

    /// The rules that a binding grants, if its role is there.
    pub(super) fn rules_of(&self, place: u32) -> Option<&'s [Rule]> {
        let set = self.request.set;
        set.grants
            .role_of(place)
            .and_then(|role| set.roles.get(role))
            .map(|role| role.rules.as_slice())
    }

    /// The first rule that allows, or else the one that comes nearest.
    pub(super) fn nearest_rule(&self, rules: &[Rule]) -> NearestRule {
        let mut nearest = None;
        for (rule, written) in rules.iter().enumerate() {
            match compare_rule(written, self.request.attributes) {
                RuleMatch::Match => return NearestRule::Allows(rule),
                RuleMatch::Mismatch(criterion) if nearest.is_none_or(|(_, other)| other < criterion) => {
                    nearest = Some((rule, criterion));
                }
                RuleMatch::Mismatch(_) => {}
            }
        }
        nearest.map_or(NearestRule::NoRule, |(rule, criterion)| {
            NearestRule::Mismatch(rule, criterion)
        })
    }
}
