//! Why nothing decided.

use std::collections::HashSet;
use std::fmt;
use std::ops::ControlFlow;

use crate::engine::{CauseKind, Criterion, Event, Finding, Unmatched};

use super::{Recorder, Walk, policy_event};

/// The most bindings, and the most rules of policies, that are looked at.
const MAX_CONSIDERED: usize = 1_000;

impl<R: Recorder> Walk<'_, '_, R> {
    pub(in crate::engine) fn unmatched(mut self) -> Unmatched {
        let bindings = self.set.grants.applying(&self.who, &self.query);
        let mut nearest = self.nearest_policy();
        let (mut errors, mut seen) = (Vec::new(), HashSet::new());
        for &place in bindings.iter().take(MAX_CONSIDERED) {
            let Some(event) = self.binding_event(place) else {
                continue;
            };
            if let Finding::MissingRole { error } = &event.finding {
                if errors.len() < Unmatched::MAX_ERRORS && seen.insert(error.clone()) {
                    errors.push(error.clone());
                }
            } else if closeness(&event) > nearest.as_ref().and_then(closeness) {
                nearest = Some(event);
            }
        }
        Unmatched {
            bindings: bindings.len(),
            policies: self.set.policies.len(),
            errors,
            nearest,
        }
    }

    /// The policy that allows and comes nearest among those for this user.
    fn nearest_policy(&mut self) -> Option<Event> {
        let (who, query) = (
            self.who.clone(),
            std::mem::replace(&mut self.query, super::Query::NOTHING),
        );
        let mut nearest = None::<(usize, usize, Criterion)>;
        let mut considered = 0;
        self.set.allow.candidates.each(&who, &query, true, |candidate| {
            if !candidate.is_subject {
                return ControlFlow::Continue(());
            }
            considered += 1;
            let rule = self.rule_of(candidate);
            if let Some(criterion) = self.miss(candidate)
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
fn closeness(event: &Event) -> Option<Criterion> {
    match event.finding {
        Finding::NoMatch { criterion, .. } => Some(criterion),
        _ => None,
    }
}

impl fmt::Display for Unmatched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "none of {} bindings of the user and {} policies applies",
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
