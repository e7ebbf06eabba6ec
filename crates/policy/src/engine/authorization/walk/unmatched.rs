//! Explains why nothing matched, and which rules came nearest.

use std::fmt;
use std::ops::ControlFlow;

use crate::engine::CauseKind;
use crate::engine::authorization::index::{Query, RuleBlocks, RuleQuery};
use crate::engine::authorization::rbac::RoleFault;
use crate::engine::authorization::{Criterion, Finding, RuleMatch, Unmatched};

use super::considered::NearestRule;
use super::near_misses::{NearMissObject, NearMisses};
use super::{Walk, WalkRecorder};

/// The most bindings of a subject, the most rules of all of them, and the most
/// rules of policies that are looked at.
const MAX_CONSIDERED: usize = 1_000;

impl<'s, R: WalkRecorder> Walk<'_, 's, '_, R> {
    pub(crate) fn unmatched(mut self) -> Unmatched {
        let request = self.request;
        let grants = &request.set.grants;
        let bindings = grants.applying(&request.who, &request.query, MAX_CONSIDERED);
        let mut nearest = NearMisses::default();
        let errors = self.note_bindings(&bindings, &mut nearest);
        self.note_policies(&mut nearest);
        Unmatched {
            bindings: bindings.len(),
            policies: request.set.periods.holding(request.now),
            errors,
            nearest: nearest.into_events(),
        }
    }

    /// Notes the bindings; the roles among theirs that are missing.
    fn note_bindings(&self, bindings: &[u32], nearest: &mut NearMisses<'s>) -> Vec<String> {
        let mut errors = Vec::new();
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
                nearest.note(NearMissObject::Binding(binding), rule, criterion);
            } else if errors.len() < Unmatched::MAX_ERRORS {
                let error = RoleFault::missing(&binding.role).to_string();
                if !errors.contains(&error) {
                    errors.push(error);
                }
            }
        }
        errors
    }

    /// Notes the policies that allow and are for this user.
    fn note_policies(&mut self, nearest: &mut NearMisses<'s>) {
        let candidates = &self.request.set.allow.candidates;
        match &self.request.query {
            Query::Resource(query) => self.note_rules(&candidates.resources, query, nearest),
            Query::Path(query) => self.note_rules(&candidates.paths, query, nearest),
        }
    }

    fn note_rules<Q: RuleQuery>(
        &mut self,
        rules: &'s RuleBlocks<Q::Rule>,
        query: &Q,
        nearest: &mut NearMisses<'s>,
    ) {
        let request = self.request;
        let mut considered = 0;
        rules.each(&request.who, query, true, |candidate| {
            let policy = &candidate.listed.policy;
            if !candidate.is_subject || !request.is_in_force(policy) {
                return ControlFlow::Continue(());
            }
            considered += 1;
            if let RuleMatch::Mismatch(criterion) = self.compare(query, &candidate) {
                nearest.note(NearMissObject::Policy(policy), Some(candidate.number), criterion);
            }
            if considered < MAX_CONSIDERED {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
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
