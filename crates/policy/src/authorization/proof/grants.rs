//! The grants of bindings and AccessRequests, as regions.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::condition::{ConditionTest, Field, Outcomes, RegionCondition, Side};
use super::region::Region;
use super::rules::{RuleRegion, of_role};
use super::sets::{GroupSet, Patterns, TextSet};
use super::{ProofLimitError, RegionBudget, WorkLimit};
use crate::authorization::index::BoundRole;
use crate::authorization::{AccessGrant, Binding, Role, Subject, SubjectKind};
use portcullis_cel::predicate::TextTest;

/// What `bindings` allow within `within`.
///
/// # Errors
/// The limit is reached.
pub(crate) fn of_bindings<'b>(
    bindings: impl Iterator<Item = &'b BoundRole>,
    within: &Region,
    limit: WorkLimit<'_>,
) -> Result<Vec<Region>, ProofLimitError> {
    let (mut regions, mut room) = (Vec::new(), limit.room());
    // Users with the same grants are put into one region.
    let mut users: BTreeMap<((usize, usize), &str), Patterns> = BTreeMap::new();
    let (mut rules, mut rules_room) = (Vec::new(), limit.room());
    let mut meeting: HashMap<*const Role, (usize, usize)> = HashMap::new();
    for BoundRole { binding, role } in bindings {
        let Some(role) = role.as_ref().filter(|_| is_in_reach(binding, within)) else {
            continue;
        };
        let (first, end) = match meeting.entry(Arc::as_ptr(role)) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(unknown) => {
                limit.check_deadline()?;
                let first = rules.len();
                rules.extend(of_role(role, within, &mut rules_room)?);
                *unknown.insert((first, rules.len()))
            }
        };
        let own = || rules.get(first..end).into_iter().flatten();
        if first == end {
            continue;
        }
        for subject in &binding.subjects {
            let Some(name) = subject.authenticated_name(&binding.namespace) else {
                continue;
            };
            match subject.kind {
                // Rules out most groups of a large set of bindings at little cost.
                SubjectKind::Group if !within.may_be_in(&name) => {}
                SubjectKind::Group => {
                    let group = GroupSet {
                        all: Patterns::exact([&*name]),
                        none: Patterns::default(),
                    };
                    for RuleRegion { requests, .. } in own() {
                        let of_group = in_namespace(requests, &binding.namespace)
                            .and_then(|requests| requests.with_groups(&group))
                            .filter(|region| region.overlaps(within));
                        add(&mut regions, of_group, &mut room)?;
                    }
                }
                SubjectKind::User | SubjectKind::ServiceAccount
                    if within.side(Side::User).contains(&name) =>
                {
                    let users = users.entry(((first, end), &binding.namespace)).or_default();
                    users.exact.insert((*name).into());
                }
                SubjectKind::User | SubjectKind::ServiceAccount => {}
            }
        }
    }
    for (((first, end), namespace), users) in users {
        let users = TextSet::of(users);
        for RuleRegion { requests, .. } in rules.get(first..end).into_iter().flatten() {
            let of_users =
                in_namespace(requests, namespace).and_then(|requests| requests.with(Side::User, &users));
            add(&mut regions, of_users, &mut room)?;
        }
    }
    Ok(regions)
}

/// What an AccessRequest grants within `within`, by the rules of its role.
pub(crate) fn of_access(
    grant: &AccessGrant,
    within: &Region,
    limit: WorkLimit<'_>,
) -> Result<Vec<RuleRegion>, ProofLimitError> {
    let (mut regions, mut room) = (Vec::new(), limit.room());
    let requester = &grant.request.requester;
    let Some(role) = grant
        .role()
        .filter(|_| within.side(Side::User).contains(&requester.username))
    else {
        return Ok(regions);
    };
    let uid = uid_condition(&requester.uid);
    let bindings: Vec<Binding> = grant.bindings().collect();
    for RuleRegion { rule, requests } in of_role(role, within, &mut limit.room())? {
        let granted = bindings.iter().flat_map(|binding| granted(binding, &requests));
        for region in granted.filter_map(|region| region.during(grant.period())) {
            let of_uid = match &uid {
                Some(uid) => region.with_condition(uid, Outcomes::HOLDS),
                None => Some(region),
            };
            if let Some(requests) = of_uid.filter(|region| region.overlaps(within)) {
                room.take(requests.weight())?;
                regions.push(RuleRegion { rule, requests });
            }
        }
    }
    Ok(regions)
}

/// The condition that a request has this uid. `None` for the empty uid, which most users have and
/// which is not mentioned.
fn uid_condition(uid: &str) -> Option<RegionCondition> {
    let test = TextTest::Is(vec![uid.to_owned()]);
    let condition = || {
        RegionCondition::of(
            &test.expression("request.uid"),
            ConditionTest::Text(Field::Uid, Arc::new(test.clone())),
        )
    };
    (!uid.is_empty()).then(condition)
}

/// Whether a binding may grant anything in `within`.
pub(crate) fn is_in_reach(binding: &Binding, within: &Region) -> bool {
    binding.namespace.is_empty()
        || !within.is_path && within.side(Side::Namespace).contains(&binding.namespace)
}

/// The part of `all` that a binding grants if its role allows all of it.
pub(crate) fn granted(binding: &Binding, all: &Region) -> Vec<Region> {
    let Some(all) = in_namespace(all, &binding.namespace) else {
        return Vec::new();
    };
    let of = |subject: &Subject| {
        let name = subject.authenticated_name(&binding.namespace)?;
        match subject.kind {
            SubjectKind::Group => all.with_groups(&GroupSet {
                all: Patterns::exact([&*name]),
                none: Patterns::default(),
            }),
            SubjectKind::User | SubjectKind::ServiceAccount => {
                all.with(Side::User, &TextSet::exact([&*name]))
            }
        }
    };
    binding.subjects.iter().filter_map(of).collect()
}

/// The part of a role's rule that a binding in `namespace` grants.
fn in_namespace(rule: &Region, namespace: &str) -> Option<Region> {
    match namespace {
        "" => Some(rule.clone()),
        _ if rule.is_path => None,
        namespace => rule.with(Side::Namespace, &TextSet::exact([namespace])),
    }
}

/// Adds `region`, if there is one, within the limit.
pub(crate) fn add(
    regions: &mut Vec<Region>,
    region: Option<Region>,
    room: &mut RegionBudget<'_>,
) -> Result<(), ProofLimitError> {
    room.in_time()?;
    if let Some(region) = region {
        room.take(region.weight())?;
        regions.push(region);
    }
    Ok(())
}
