//! Explains why nothing matched, and which rule came nearest.

use std::fmt;
use std::ops::ControlFlow;

use crate::engine::CauseKind;
use crate::engine::authorization::index::{Query, RuleBlocks, RuleQuery};
use crate::engine::authorization::rbac::RoleFault;
use crate::engine::authorization::{AuthorizationPolicy, Criterion, Event, Finding, RuleMatch, Unmatched};

use super::considered::NearestRule;
use super::event::{binding_event, policy_event};
use super::{Walk, WalkRecorder};

/// The most bindings of a subject, the most rules of all of them, and the most
/// rules of policies that are looked at.
const MAX_CONSIDERED: usize = 1_000;

impl<'s, R: WalkRecorder> Walk<'_, 's, '_, R> {
    pub(crate) fn unmatched(mut self) -> Unmatched {
        let request = self.request;
        let grants = &request.set.grants;
        let bindings = grants.applying(&request.who, &request.query, MAX_CONSIDERED);
        let (errors, binding) = self.nearest_binding(&bindings);
        let policy = self.nearest_policy();
        let nearest = if closeness(policy.as_ref()) > closeness(binding.as_ref()) {
            policy
        } else {
            binding
        };
        Unmatched {
            bindings: bindings.len(),
            policies: request.set.periods.holding(request.now),
            errors,
            nearest,
        }
    }

    /// Roles that are missing, and the binding that comes nearest.
    fn nearest_binding(&self, bindings: &[usize]) -> (Vec<String>, Option<Event>) {
        let (mut errors, mut nearest) = (Vec::new(), None);
        let mut left = MAX_CONSIDERED;
        for &place in bindings.iter().take(MAX_CONSIDERED) {
            let Some(binding) = self.request.set.bindings.get(place) else {
                continue;
            };
            if let Some(rules) = self.rules_of(place) {
                let considered = rules.get(..left).unwrap_or(rules);
                left -= considered.len();
                let (rule, criterion) = match self.nearest_rule(considered) {
                    NearestRule::Mismatch(rule, criterion) => (Some(rule), criterion),
                    NearestRule::Allows(rule) => (Some(rule), Criterion::Target),
                    NearestRule::NoRule => (None, Criterion::Target),
                };
                if nearest.is_none_or(|(_, _, nearest)| nearest < criterion) {
                    nearest = Some((binding, rule, criterion));
                }
            } else if errors.len() < Unmatched::MAX_ERRORS {
                let error = RoleFault::missing(&binding.role).to_string();
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
        let candidates = &self.request.set.allow.candidates;
        match &self.request.query {
            Query::Resource(query) => self.nearest_among(&candidates.resources, query),
            Query::Path(query) => self.nearest_among(&candidates.paths, query),
        }
    }

    fn nearest_among<Q: RuleQuery>(&mut self, rules: &'s RuleBlocks<Q::Rule>, query: &Q) -> Option<Event> {
        let request = self.request;
        let mut nearest = None::<(&AuthorizationPolicy, usize, Criterion)>;
        let mut considered = 0;
        rules.each(&request.who, query, true, |candidate| {
            let policy = &candidate.listed.policy;
            if !candidate.is_subject || !request.is_in_force(policy) {
                return ControlFlow::Continue(());
            }
            considered += 1;
            if let RuleMatch::Mismatch(criterion) = self.compare(query, &candidate)
                && nearest.is_none_or(|(_, _, nearest)| nearest < criterion)
            {
                nearest = Some((policy, candidate.number, criterion));
            }
            if considered < MAX_CONSIDERED {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        nearest.map(|(policy, rule, criterion)| {
            let rule = Some(rule);
            policy_event(policy, Finding::NoMatch { rule, criterion })
        })
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
