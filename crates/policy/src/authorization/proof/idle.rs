//! Finds parts of AuthorizationPolicies that have no effect: rules that never apply, Denies that
//! other policies make redundant, Allows of what RBAC grants, conditions that are always true or
//! false, and excluded subjects that are not subjects.

use std::collections::BTreeSet;

use super::grants::of_bindings;
use super::pieces::{PolicyPieces, RegionsOfSet};
use super::predicates::RegionExpression;
use super::region::Region;
use super::rules::{RuleRegion, applying_outcomes, of_subject, unconditional};
use super::{ProofLimitError, WorkLimit};
use crate::authorization::{AuthorizationPolicy, Effect, PolicySet};
use crate::model::{CauseKind, Time, Validity};

/// The maximum of enforced policies that are compared with each other.
const MAX_POLICIES: usize = 2_000;

/// A part of an AuthorizationPolicy that has no effect.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum RedundantPart {
    /// A rule, by its index among all rules: no request matches it.
    Rule(usize),
    /// The whole Deny or Limit: these other policies deny everything that it denies.
    Deny(Vec<String>),
    /// The whole Allow: these bindings grant everything that it allows.
    Allow(Vec<String>),
    /// A condition, by its index: for all requests that match the rules, it always lets the policy
    /// apply (`true`), or never does (`false`).
    Condition(usize, bool),
    /// An excluded subject, by its index: no subject of the policy overlaps it.
    Exclusion(usize),
}

/// The parts of policies in `set` that have no effect from `now` on, by policy. Policies that
/// depend on labels of Namespaces are skipped, because these may change.
///
/// # Errors
/// The limit is reached.
pub fn redundant_parts(
    set: &PolicySet,
    now: Time,
    limit: WorkLimit<'_>,
) -> Result<Vec<(String, RedundantPart)>, ProofLimitError> {
    let pieces = RegionsOfSet::new(set, None, limit)?;
    let mut search = IdleSearch {
        later: Validity {
            not_before: Some(now),
            not_after: None,
        },
        idle: BTreeSet::new(),
        pieces: &pieces,
        limit,
    };
    let mut found = Vec::new();
    if pieces.policies().len() > MAX_POLICIES {
        return Ok(found);
    }
    for policy in pieces.policies() {
        limit.check_deadline()?;
        match search.of_policy(policy) {
            Ok(parts) => found.extend(parts.into_iter().map(|part| (policy.policy.name.clone(), part))),
            // The policy has too many parts to be analysed.
            Err(ProofLimitError::Parts) => {}
            Err(late) => return Err(late),
        }
    }
    Ok(found)
}

struct IdleSearch<'p, 's> {
    pieces: &'p RegionsOfSet<'s>,
    later: Validity,
    /// The Denies that are redundant, which must not make others redundant.
    idle: BTreeSet<&'p str>,
    limit: WorkLimit<'p>,
}

impl<'p> IdleSearch<'p, '_> {
    fn of_policy(&mut self, pieces: &'p PolicyPieces<'_>) -> Result<Vec<RedundantPart>, ProofLimitError> {
        let policy = pieces.policy;
        let mut found = exclusions(policy);
        if depends_on_labels(policy) {
            return Ok(found);
        }
        let conditions = self.conditions(policy)?;
        let is_never = conditions
            .iter()
            .any(|part| matches!(part, RedundantPart::Condition(_, false)));
        found.extend(conditions);
        if is_never {
            return Ok(found);
        }
        let regions = self.regions(pieces)?;
        if regions.is_empty() {
            return Ok(found);
        }
        let count = policy.resource_rules.len() + policy.non_resource_rules.len();
        let applying: BTreeSet<usize> = regions.iter().filter_map(|region| region.rule).collect();
        if policy.effect != Effect::Limit {
            let never = (0..count).filter(|rule| !applying.contains(rule));
            found.extend(never.map(RedundantPart::Rule));
        }
        let covered = match policy.effect.refuses() {
            true => self.denied_by_others(policy, &regions)?.map(RedundantPart::Deny),
            false => self.granted_by_rbac(&regions)?.map(RedundantPart::Allow),
        };
        found.extend(covered);
        Ok(found)
    }

    /// The requests that the policy decides, by rule, without those that `neverDeny` protects from
    /// a Deny or Limit.
    fn regions(&self, pieces: &PolicyPieces<'_>) -> Result<Vec<RuleRegion>, ProofLimitError> {
        let all = [false, true].into_iter().flat_map(Region::of_each_caller);
        let (mut regions, mut room) = (Vec::new(), self.limit.room());
        for all in all {
            for (rule, of_rule) in self.pieces.rules_of(pieces, &all)? {
                for requests in of_rule.iter().filter_map(|region| region.during(self.later)) {
                    room.take(requests.weight())?;
                    regions.push(RuleRegion { rule, requests });
                }
            }
        }
        Ok(regions)
    }

    /// The conditions with the same outcome for all requests that match the rules.
    fn conditions(&self, policy: &AuthorizationPolicy) -> Result<Vec<RedundantPart>, ProofLimitError> {
        let (about, _) = unconditional(self.pieces.set(), policy, self.limit)?;
        let about: Vec<Region> = about
            .iter()
            .filter_map(|rule| rule.requests.during(self.later))
            .collect();
        if about.is_empty() {
            return Ok(Vec::new());
        }
        let never = |expression: &RegionExpression, outcomes| {
            for region in &about {
                if !expression.parts(region, outcomes, self.limit)?.is_empty() {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        let applies = applying_outcomes(policy);
        let mut found = Vec::new();
        for (place, condition) in policy.conditions.iter().enumerate() {
            let expression = RegionExpression::new(condition.expression());
            if never(&expression, applies.others())? {
                found.push(RedundantPart::Condition(place, true));
            } else if never(&expression, applies)? {
                found.push(RedundantPart::Condition(place, false));
            }
        }
        Ok(found)
    }

    /// The other Denies and Limits that together deny all of `regions`; `None` if they do not.
    fn denied_by_others(
        &mut self,
        policy: &'p AuthorizationPolicy,
        regions: &[RuleRegion],
    ) -> Result<Option<Vec<String>>, ProofLimitError> {
        let mut names = BTreeSet::new();
        for RuleRegion { requests, .. } in regions {
            let (mut others, mut room) = (Vec::new(), self.limit.room());
            for other in self.pieces.policies() {
                let own = other.policy;
                let counts = own.effect.refuses()
                    && own.name != policy.name
                    && !self.idle.contains(own.name.as_str())
                    && !depends_on_labels(own);
                if counts {
                    let of_other = self.pieces.of_policy(other, std::slice::from_ref(requests))?;
                    if !of_other.is_empty() {
                        names.insert(own.name.clone());
                    }
                    for region in of_other {
                        room.take(region.weight())?;
                        others.push(region);
                    }
                }
            }
            let others: Vec<&Region> = others.iter().collect();
            if !requests.without(&others, self.limit)?.is_empty() {
                return Ok(None);
            }
        }
        self.idle.insert(&policy.name);
        for other in self
            .pieces
            .policies()
            .iter()
            .filter(|other| names.contains(&other.policy.name))
        {
            if self.is_within(regions, other)? {
                return Ok(Some(vec![other.policy.name.clone()]));
            }
        }
        Ok(Some(names.into_iter().collect()))
    }

    fn is_within(&self, regions: &[RuleRegion], other: &PolicyPieces<'_>) -> Result<bool, ProofLimitError> {
        for RuleRegion { requests, .. } in regions {
            let of_other = self.pieces.of_policy(other, std::slice::from_ref(requests))?;
            let of_other: Vec<&Region> = of_other.iter().collect();
            if !requests.without(&of_other, self.limit)?.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The bindings that together grant all of `regions`; `None` if they do not.
    fn granted_by_rbac(&self, regions: &[RuleRegion]) -> Result<Option<Vec<String>>, ProofLimitError> {
        let mut names = BTreeSet::new();
        for RuleRegion { requests, .. } in regions {
            let granting = of_bindings(self.pieces.set().bindings.iter(), requests, self.limit)?;
            let granting: Vec<&Region> = granting.iter().collect();
            if !requests.without(&granting, self.limit)?.is_empty() {
                return Ok(None);
            }
            let rules = self.pieces.in_order(requests)?.into_iter();
            let bindings = rules.filter(|rule| rule.cause.kind != CauseKind::AuthorizationPolicy);
            names.extend(bindings.map(|rule| match &*rule.cause.namespace {
                "" => format!("{} {}", rule.cause.kind.as_str(), rule.cause.name),
                namespace => format!("{} {namespace}/{}", rule.cause.kind.as_str(), rule.cause.name),
            }));
        }
        Ok(Some(names.into_iter().collect()))
    }
}

fn depends_on_labels(policy: &AuthorizationPolicy) -> bool {
    policy
        .resource_rules
        .iter()
        .any(|rule| rule.namespace_selector.is_some())
}

fn exclusions(policy: &AuthorizationPolicy) -> Vec<RedundantPart> {
    let all = Region::of_each_caller(false);
    let is_one = |excluded| {
        let mut subjects = policy.subjects.iter().flat_map(|subject| {
            let regions = all.iter().filter_map(move |all| of_subject(all, subject));
            regions.filter_map(move |region| of_subject(&region, excluded))
        });
        subjects.next().is_some()
    };
    let excluded = policy.exclude_subjects.iter().enumerate();
    let nobody = excluded.filter(|(_, subject)| !is_one(subject));
    nobody.map(|(place, _)| RedundantPart::Exclusion(place)).collect()
}
