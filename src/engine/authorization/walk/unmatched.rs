//! Explains why nothing matched, and which rule came nearest.

use std::fmt;
use std::ops::ControlFlow;

use crate::engine::CauseKind;
use crate::engine::authorization::index::Query;
use crate::engine::authorization::{Criterion, Event, Finding, Unmatched};

use super::event::{binding_event, missing_role, policy_event};
use super::{RuleMatch, Walk, WalkRecorder};

/// The most bindings of a subject, the most rules of all of them, and the most
/// rules of policies that are looked at.
const MAX_CONSIDERED: usize = 1_000;

impl<R: WalkRecorder> Walk<'_, '_, R> {
    pub(crate) fn unmatched(mut self) -> Unmatched {
        let bindings = self.set.grants.applying(&self.who, &self.query, MAX_CONSIDERED);
        let (errors, binding) = self.nearest_binding(&bindings);
        let policy = self.nearest_policy();
        let nearest = if closeness(policy.as_ref()) > closeness(binding.as_ref()) {
            policy
        } else {
            binding
        };
        Unmatched {
            bindings: bindings.len(),
            policies: self.set.periods.holding(self.now),
            errors,
            nearest,
        }
    }

    /// Roles that are missing, and the binding that comes nearest.
    fn nearest_binding(&self, bindings: &[usize]) -> (Vec<String>, Option<Event>) {
        let (mut errors, mut nearest) = (Vec::new(), None);
        let mut left = MAX_CONSIDERED;
        for &place in bindings.iter().take(MAX_CONSIDERED) {
            let Some(binding) = self.set.bindings.get(place) else {
                continue;
            };
            if let Some(rules) = self.rules_of(place) {
                let considered = rules.get(..left).unwrap_or(rules);
                left -= considered.len();
                let (rule, criterion) = self.nearest_rule(considered);
                let criterion = criterion.unwrap_or(Criterion::Target);
                if nearest.is_none_or(|(_, _, nearest)| nearest < criterion) {
                    nearest = Some((binding, rule, criterion));
                }
            } else if errors.len() < Unmatched::MAX_ERRORS {
                let error = missing_role(binding).to_string();
                if !errors.contains(&error) {
                    errors.push(error);
                }
            }
        }
        let event = nearest
            .map(|(binding, rule, criterion)| binding_event(binding, Finding::NoMatch { rule, criterion }));
        (errors, event)
    }

    /// The policy that allows and comes nearest among those for this user.
    fn nearest_policy(&mut self) -> Option<Event> {
        let (who, query) = (
            self.who.clone(),
            std::mem::replace(&mut self.query, Query::NOTHING),
        );
        let mut nearest = None::<(usize, usize, Criterion)>;
        let mut considered = 0;
        self.set.allow.candidates.each(&who, &query, true, |candidate| {
            if !candidate.is_subject || !self.holds(candidate.policy) {
                return ControlFlow::Continue(());
            }
            considered += 1;
            let rule = self.rule_of(candidate);
            if let RuleMatch::Mismatch(criterion) = self.compare(candidate)
                && nearest.is_none_or(|(_, _, nearest)| nearest < criterion)
            {
                nearest = Some((candidate.policy, rule, criterion));
            }
            if considered < MAX_CONSIDERED {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        self.query = query;
        let (policy, rule, criterion) = nearest?;
        let finding = Finding::NoMatch {
            rule: Some(rule),
            criterion,
        };
        self.set
            .policies
            .get(policy)
            .map(|policy| policy_event(policy, finding))
    }
}

/// How much of a rule fits: the later the first criterion that does not, the more.
fn closeness(event: Option<&Event>) -> Option<Criterion> {
    event.and_then(|event| match event.finding {
        Finding::NoMatch { criterion, .. } => Some(criterion),
        _ => None,
    })
}

impl fmt::Display for Unmatched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "none of the user's {} bindings and {} policies applies",
            self.bindings, self.policies
        )?;
        if let Some(event) = &self.nearest
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
