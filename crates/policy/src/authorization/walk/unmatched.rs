//! Why nothing decided: the bindings and policies that came nearest, and missing roles.

use std::fmt;
use std::ptr;

use crate::authorization::index::BoundRole;
use crate::authorization::rbac::RoleNotFoundError;
use crate::authorization::{AuthorizationPolicy, Binding, Criterion, Event, Finding, RuleMatch, Unmatched};
use crate::engine::CauseKind;

use super::{NearestRule, Walk, WalkRecorder};

/// The most bindings of a subject, the most rules of all of them, and the most rules of policies
/// that are compared.
const MAX_COMPARED: usize = 1_000;

/// At most [`Unmatched::MAX_NEAREST`], the nearest first; of those that are equally near, the one
/// that was added first.
#[derive(Default)]
struct NearMisses<'s>(Vec<NearMiss<'s>>);

struct NearMiss<'s> {
    object: NearMissObject<'s>,
    /// The rule that came nearest; `None` where there is none.
    rule: Option<usize>,
    criterion: Criterion,
}

/// What might have allowed.
#[derive(Clone, Copy)]
enum NearMissObject<'s> {
    Binding(&'s Binding),
    Policy(&'s AuthorizationPolicy),
}

impl<'s, R: WalkRecorder> Walk<'_, 's, '_, R> {
    pub(crate) fn unmatched(mut self) -> Unmatched {
        let request = self.request;
        let bindings = request.set.bindings.applying_to(request.attributes, MAX_COMPARED);
        let mut nearest = NearMisses::default();
        let errors = self.compare_bindings(&bindings, &mut nearest);
        self.compare_allow_policies(&mut nearest);
        Unmatched {
            bindings: bindings.len(),
            policies: request.set.policies.count_in_force(request.now),
            errors,
            nearest: nearest.into_events(),
        }
    }

    /// Adds bindings; the roles that are missing among theirs.
    fn compare_bindings(&self, bindings: &[&'s BoundRole], nearest: &mut NearMisses<'s>) -> Vec<String> {
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
            } else if errors.len() < Unmatched::MAX_ERRORS {
                let error = RoleNotFoundError::of(&bound.binding.role).to_string();
                if !errors.contains(&error) {
                    errors.push(error);
                }
            }
        }
        errors
    }

    /// Adds the policies that allow and are for this user.
    fn compare_allow_policies(&mut self, nearest: &mut NearMisses<'s>) {
        let request = self.request;
        let allow = &request.set.policies.allow;
        let rules = allow.rules_included(request.user_ids());
        let rules = rules.filter(|rule| request.query.is_of_sort(rule));
        let in_force = rules.filter(|rule| request.is_in_force(&rule.policy.policy));
        let user = allow.user_rules(request.user_ids());
        for rule in in_force.take(MAX_COMPARED) {
            let compared = match user.compare(&rule.policy) {
                RuleMatch::Match => self.compare(rule),
                mismatch @ RuleMatch::Mismatch(_) => mismatch,
            };
            if let RuleMatch::Mismatch(criterion) = compared {
                let policy = NearMissObject::Policy(&rule.policy.policy);
                nearest.add(policy, Some(rule.number), criterion);
            }
        }
    }
}

impl fmt::Display for Unmatched {
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

// === impl NearMisses ===

impl<'s> NearMisses<'s> {
    /// A rule of `object` does not fit in `criterion`: the later in the order of [`Criterion`], the
    /// nearer the rule. Each object counts once, with its nearest rule.
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
        if place < Unmatched::MAX_NEAREST {
            let miss = NearMiss {
                object,
                rule,
                criterion,
            };
            self.0.insert(place, miss);
            self.0.truncate(Unmatched::MAX_NEAREST);
        }
    }

    fn into_events(self) -> Vec<Event> {
        self.0.into_iter().map(NearMiss::into_event).collect()
    }
}

// === impl NearMiss ===

impl NearMiss<'_> {
    fn into_event(self) -> Event {
        let finding = Finding::NoMatch {
            rule: self.rule,
            criterion: self.criterion,
        };
        match self.object {
            NearMissObject::Binding(binding) => Event::of_binding(binding, finding),
            NearMissObject::Policy(policy) => Event::of_policy(policy, finding),
        }
    }
}

// === impl NearMissObject ===

impl NearMissObject<'_> {
    /// Whether both are the very same object.
    fn is(self, other: Self) -> bool {
        match (self, other) {
            (Self::Binding(one), Self::Binding(other)) => ptr::eq(one, other),
            (Self::Policy(one), Self::Policy(other)) => ptr::eq(one, other),
            _ => false,
        }
    }
}
