//! Which requests two policy sets decide differently.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::condition::{Outcomes, RegionCondition};
use super::grants::{granted, of_bindings};
use super::pieces::{DecidingRule, RegionsOfSet};
use super::region::Region;
use super::witness::Witness;
use super::{ProofLimitError, WorkLimit};
use crate::authorization::index::BoundRole;
use crate::authorization::{Binding, Effect, PolicySet};
use crate::model::{Attributes, Cause, Decision, Time, Validity};

/// The maximum of pairs of a part and a rule for which parts are widened, to describe them in fewer
/// words.
const MAX_WIDENED: usize = 50_000;

/// Requests that two policy sets decide differently.
#[derive(Debug, Clone)]
pub struct DecisionChange {
    /// The requests. Its conditions must have the outcomes that it lists.
    pub region: Region,
    /// The decision of the earlier set.
    pub before: Answer,
    /// The decision of the later set.
    pub after: Answer,
    /// An example of these requests, which both sets decided differently; `None` if none was found,
    /// because expressions decide.
    pub witness: Option<Witness>,
}

/// A decision, and its cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The decision.
    pub decision: Decision,
    /// The cause of the decision about the witness; `None` for no opinion, or without a witness.
    pub cause: Option<Cause<'static>>,
}

/// All requests that `new` decides differently than `old`, and no others. Regions with the same
/// decisions may overlap. Differences that end before `now` are left out. The time of a witness is
/// the first instant of its region's period.
///
/// Takes time proportional to the changes, and to the rules that overlap them.
///
/// # Errors
/// The limit is reached.
pub fn difference(
    old: &PolicySet,
    new: &PolicySet,
    now: Time,
    limit: WorkLimit<'_>,
) -> Result<Vec<DecisionChange>, ProofLimitError> {
    let (o, n) = (
        &RegionsOfSet::new(old, Some(now), limit)?,
        &RegionsOfSet::new(new, Some(now), limit)?,
    );
    let everything = [false, true].map(Region::of_each_caller).concat();
    let changed = Changed::between(o, n, &everything)?.from(now);
    let asked = ComparedSets { old, new, now };
    let mut changes = Vec::new();
    let mut add = |before, after, regions: Vec<Region>| {
        for region in regions {
            limit.check_deadline()?;
            let expected = [before, after].map(Answer::unknown);
            changes.push(asked.change(region, expected, |answers| {
                answers.each_ref().map(|answer| answer.decision) == [before, after]
            }));
        }
        Ok(())
    };
    // What no Deny denies, before and after: rules that allow are added or removed.
    let denied = |within: &Region| Ok([o.denying(within)?, n.denying(within)?].concat());
    add(
        Decision::NoOpinion,
        Decision::Allow,
        remaining(&changed.added_allows, limit, |within| {
            Ok([o.allowing(within)?, denied(within)?].concat())
        })?,
    )?;
    add(
        Decision::Allow,
        Decision::NoOpinion,
        remaining(&changed.removed_allows, limit, |within| {
            Ok([n.allowing(within)?, denied(within)?].concat())
        })?,
    )?;
    // What is no longer denied, or newly denied.
    let undenied = remaining(&changed.removed_denies, limit, |within| n.denying(within))?;
    let newly_denied = remaining(&changed.added_denies, limit, |within| o.denying(within))?;
    let allowed = |regions: &[Region], by: &RegionsOfSet<'_>| {
        let mut starts = Vec::new();
        for region in regions {
            let allowing = by.allowing(region)?;
            starts.extend(allowing.iter().filter_map(|allows| region.intersection(allows)));
        }
        remaining(&starts, limit, |_| Ok(Vec::new()))
    };
    add(Decision::Deny, Decision::Allow, allowed(&undenied, n)?)?;
    add(Decision::Allow, Decision::Deny, allowed(&newly_denied, o)?)?;
    add(
        Decision::Deny,
        Decision::NoOpinion,
        remaining(&undenied, limit, |within| n.allowing(within))?,
    )?;
    add(
        Decision::NoOpinion,
        Decision::Deny,
        remaining(&newly_denied, limit, |within| o.allowing(within))?,
    )?;
    add(Decision::NoOpinion, Decision::Allow, changed.unknown_added)?;
    add(Decision::Allow, Decision::NoOpinion, changed.unknown_removed)?;
    Ok(changes)
}

/// The parts of `starts` that are not in the regions that `others` returns for each, without
/// overlaps among `starts`.
fn remaining(
    starts: &[Region],
    limit: WorkLimit<'_>,
    others: impl Fn(&Region) -> Result<Vec<Region>, ProofLimitError>,
) -> Result<Vec<Region>, ProofLimitError> {
    let mut parts = Vec::new();
    for (place, start) in starts.iter().enumerate() {
        let others = others(start)?;
        let earlier = starts.iter().take(place);
        let others: Vec<&Region> = others.iter().chain(earlier).collect();
        let left = start.without(&others, limit)?;
        let meeting: Vec<&Region> = others.into_iter().filter(|other| other.overlaps(start)).collect();
        let is_worth_it = left.len().saturating_mul(meeting.len()) <= MAX_WIDENED;
        for part in left {
            limit.check_deadline()?;
            let wide = if is_worth_it {
                part.widened(start, &meeting)
            } else {
                part
            };
            if !parts.iter().any(|known: &Region| known.covers(&wide)) {
                parts.push(wide);
            }
        }
        if parts.len() > limit.parts {
            return Err(ProofLimitError::Parts);
        }
    }
    Ok(parts)
}

/// Two policy sets, and the time of the comparison.
struct ComparedSets<'s> {
    old: &'s PolicySet,
    new: &'s PolicySet,
    now: Time,
}

impl ComparedSets<'_> {
    /// The change of `region`, with its first request for whose answers `is_so` holds; if none is
    /// found, with the answers `expected`.
    fn change(
        &self,
        mut region: Region,
        expected: [Answer; 2],
        is_so: impl Fn(&[Answer; 2]) -> bool,
    ) -> DecisionChange {
        let at = region.period.not_before.unwrap_or(self.now);
        // Every change begins at `now` unless stated otherwise.
        region.period.not_before = region.period.not_before.filter(|start| *start > self.now);
        let found = Witness::find(&region, at, [self.old, self.new], |attributes, sets| {
            let answers = sets.map(|set| Answer::of(set, attributes, at));
            is_so(&answers).then_some(answers)
        });
        let (witness, [before, after]) = match found {
            Some((witness, answers)) => (Some(witness), answers),
            None => (None, expected),
        };
        DecisionChange {
            region,
            before,
            after,
            witness,
        }
    }
}

impl Answer {
    pub(crate) fn of(set: &PolicySet, attributes: &Attributes<'_>, at: Time) -> Self {
        let authorization = set.authorize(attributes, at);
        Self {
            decision: authorization.decision,
            cause: authorization.cause.map(Cause::into_owned),
        }
    }

    fn by(rule: &DecidingRule<'_>) -> Self {
        Self {
            decision: rule.decision,
            cause: Some(rule.cause.clone().into_owned()),
        }
    }

    const fn unknown(decision: Decision) -> Self {
        Self {
            decision,
            cause: None,
        }
    }
}

/// The requests that both sets decide alike but because of different rules. Like [`difference`],
/// except that a part without a witness has the causes that are expected.
///
/// # Errors
/// The limit is reached.
pub fn changed_causes(
    old: &PolicySet,
    new: &PolicySet,
    now: Time,
    limit: WorkLimit<'_>,
) -> Result<Vec<DecisionChange>, ProofLimitError> {
    let (o, n) = (
        &RegionsOfSet::new(old, Some(now), limit)?,
        &RegionsOfSet::new(new, Some(now), limit)?,
    );
    let everything = [false, true].map(Region::of_each_caller).concat();
    let changed = Changed::between(o, n, &everything)?.from(now);
    let changed = [
        changed.removed_allows,
        changed.added_allows,
        changed.removed_denies,
        changed.added_denies,
    ];
    let asked = ComparedSets { old, new, now };
    let mut changes = Vec::new();
    for start in remaining(&changed.concat(), limit, |_| Ok(Vec::new()))? {
        let (before, after) = (o.in_order(&start)?, n.in_order(&start)?);
        for (earlier, part) in decided(&before, &start, limit)? {
            for (later, part) in decided(&after, &part, limit)? {
                if earlier.decision != later.decision || earlier.cause == later.cause {
                    continue;
                }
                let expected = [earlier, later].map(Answer::by);
                let is_so = |answers: &[Answer; 2]| *answers == expected;
                changes.push(asked.change(part, expected.clone(), is_so));
            }
        }
        if changes.len() > limit.parts {
            return Err(ProofLimitError::Parts);
        }
    }
    Ok(changes)
}

/// The parts of `start` that `rules` decide, each with the first rule that does.
fn decided<'r, 's>(
    rules: &'r [DecidingRule<'s>],
    start: &Region,
    limit: WorkLimit<'_>,
) -> Result<Vec<(&'r DecidingRule<'s>, Region)>, ProofLimitError> {
    let (mut parts, mut left) = (Vec::new(), vec![start.clone()]);
    for rule in rules {
        for region in &rule.regions {
            let mut rest = Vec::new();
            for part in left {
                parts.extend(part.intersection(region).map(|both| (rule, both)));
                rest.extend(part.without(&[region], limit)?);
            }
            left = rest;
        }
        if parts.len() + left.len() > limit.parts {
            return Err(ProofLimitError::Parts);
        }
    }
    Ok(parts)
}

/// The rules that one set contains and the other does not, as regions.
#[derive(Default)]
pub(crate) struct Changed {
    pub(crate) added_allows: Vec<Region>,
    removed_allows: Vec<Region>,
    added_denies: Vec<Region>,
    pub(crate) removed_denies: Vec<Region>,
    /// What bindings may allow whose roles are in neither set.
    unknown_added: Vec<Region>,
    unknown_removed: Vec<Region>,
}

impl Changed {
    /// The differences among the rules that overlap one of `within`.
    pub(crate) fn between(
        o: &RegionsOfSet<'_>,
        n: &RegionsOfSet<'_>,
        within: &[Region],
    ) -> Result<Self, ProofLimitError> {
        let mut changed = Self::default();
        let (old, new) = (o.set(), n.set());
        let (removed, added) = changed_bindings(old, new);
        let limit = n.limit();
        let granted = |bindings: &[&BoundRole]| {
            let mut regions = Vec::new();
            for within in within {
                regions.extend(of_bindings(bindings.iter().copied(), within, limit)?);
            }
            Ok(regions)
        };
        changed.removed_allows = granted(&removed)?;
        changed.added_allows = granted(&added)?;
        let roles: HashSet<(&str, &str)> = old
            .roles()
            .iter()
            .chain(new.roles())
            .map(|role| role.key())
            .collect();
        let unknown = |bindings: Vec<&BoundRole>| {
            let unknown = bindings.into_iter().map(|bound| &*bound.binding);
            let unknown = unknown.filter(|binding| !roles.contains(&binding.role_key()));
            unknown.flat_map(of_unknown_role).collect()
        };
        (changed.unknown_removed, changed.unknown_added) = (unknown(removed), unknown(added));
        for (pieces, others, allows, denies) in [
            (o, n, &mut changed.removed_allows, &mut changed.removed_denies),
            (n, o, &mut changed.added_allows, &mut changed.added_denies),
        ] {
            for policy in pieces.changed_policies(others)? {
                let regions = pieces.of_policy(policy, within)?;
                match policy.policy.effect {
                    Effect::Allow => allows.extend(regions),
                    Effect::Deny | Effect::Limit => denies.extend(regions),
                }
            }
            allows.extend(pieces.accesses_besides(others, within)?);
        }
        Ok(changed)
    }
}

impl Changed {
    /// The part of the changes at `now` or later.
    pub(crate) fn from(mut self, now: Time) -> Self {
        let later = Validity {
            not_before: Some(now),
            not_after: None,
        };
        for regions in [
            &mut self.added_allows,
            &mut self.removed_allows,
            &mut self.added_denies,
            &mut self.removed_denies,
        ] {
            let kept = regions.iter().filter_map(|region| region.during(later));
            *regions = kept.collect();
        }
        self
    }
}

/// What a binding may allow, whatever the rules of its role are.
fn of_unknown_role(binding: &Binding) -> Vec<Region> {
    let role = &binding.role;
    let condition = RegionCondition::unknown(&format!(
        "the {} {} allows it, but is not among these policies",
        role.kind.as_str(),
        role.name
    ));
    let all = [false, true].into_iter().flat_map(Region::of_each_caller);
    let regions = all.flat_map(|all| granted(binding, &all));
    let regions = regions.filter_map(|region| region.with_condition(&condition, Outcomes::HOLDS));
    regions.collect()
}

/// The bindings of `old` that are not in `new` with the same role rules, and the reverse.
pub(crate) fn changed_bindings<'s>(
    old: &'s PolicySet,
    new: &'s PolicySet,
) -> (Vec<&'s BoundRole>, Vec<&'s BoundRole>) {
    let key = |bound: &'s BoundRole| (bound.binding.namespace.as_str(), bound.binding.name.as_str());
    let is_same = |one: &BoundRole, other: &BoundRole| {
        let roles = match (&one.role, &other.role) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other) || one.rules == other.rules,
            (None, None) => true,
            _ => false,
        };
        roles && (Arc::ptr_eq(&one.binding, &other.binding) || one.binding == other.binding)
    };
    let by_key = |bindings: &[&'s BoundRole]| -> HashMap<_, &'s BoundRole> {
        bindings.iter().map(|bound| (key(bound), *bound)).collect()
    };
    let without = |bindings: &[&'s BoundRole], others: &HashMap<_, &'s BoundRole>| {
        let bindings = bindings.iter().copied();
        bindings
            .filter(|bound| !others.get(&key(bound)).is_some_and(|other| is_same(bound, other)))
            .collect()
    };
    let of_old: Vec<&BoundRole> = old.bindings.not_shared_with(&new.bindings).collect();
    let of_new: Vec<&BoundRole> = new.bindings.not_shared_with(&old.bindings).collect();
    (
        without(&of_old, &by_key(&of_new)),
        without(&of_new, &by_key(&of_old)),
    )
}
