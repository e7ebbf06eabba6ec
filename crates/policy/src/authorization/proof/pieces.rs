//! The requests that each rule of a policy set allows or denies, as regions.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::condition::Side;
use super::grants::{add, granted, is_in_reach, of_access, of_bindings};
use super::region::Region;
use super::rules::{PolicyRegions, RuleRegion, never_denied, never_denied_callers, of_role};
use super::sets::{GroupSet, Patterns, TextSet, has_word};
use super::{ProofLimitError, RegionBudget, WorkLimit};
use crate::authorization::index::BoundRole;
use crate::authorization::matching::{ResourcePattern, Wildcard};
use crate::authorization::never_deny::MASTERS;
use crate::authorization::rbac::WildcardSet;
use crate::authorization::{
    AccessGrant, AuthorizationInvariant, AuthorizationPolicy, Effect, Mode, PolicySet, ResourceRule, Role,
};
use crate::model::{Cause, CauseKind, Decision, Time};

/// The rules of a policy set as regions, which are computed when they are needed.
pub(crate) struct RegionsOfSet<'s> {
    set: &'s PolicySet,
    never_denied: Vec<Region>,
    policies: Vec<PolicyPieces<'s>>,
    /// The AccessRequests that are taken into account.
    accesses: Vec<&'s AccessGrant>,
    limit: WorkLimit<'s>,
}

/// A rule that decides requests, unless an earlier one does.
pub(crate) struct DecidingRule<'s> {
    pub(crate) decision: Decision,
    pub(crate) cause: Cause<'s>,
    pub(crate) regions: Vec<Region>,
}

/// An AuthorizationPolicy, with its regions once they are needed.
pub(crate) struct PolicyPieces<'s> {
    set: &'s PolicySet,
    pub(crate) policy: &'s AuthorizationPolicy,
    /// The AccessRequests that lift it.
    lifted_by: Vec<&'s AccessGrant>,
    limit: WorkLimit<'s>,
    regions: OnceCell<Result<PolicyRegions, ProofLimitError>>,
}

// === impl RegionsOfSet ===

impl<'s> RegionsOfSet<'s> {
    /// Includes the AccessRequests that grant at `now` or later; none if it is `None`.
    pub(crate) fn new(
        set: &'s PolicySet,
        now: Option<Time>,
        limit: WorkLimit<'s>,
    ) -> Result<Self, ProofLimitError> {
        let accesses = set.access_grants.as_deref().zip(now);
        let accesses = accesses.map_or_else(Vec::new, |(grants, now)| grants.ending_after(now));
        let enforced = set
            .authorization_policies()
            .filter(|policy| policy.mode == Mode::Enforce)
            // Other Allows cannot grant anything.
            .filter(|policy| policy.effect.refuses() || set.may_grant(policy));
        limit.check_deadline()?;
        Ok(Self {
            never_denied: never_denied(set.never_deny()),
            policies: enforced
                .map(|policy| PolicyPieces::new(set, policy, lifting(policy, &accesses), limit))
                .collect(),
            accesses,
            set,
            limit,
        })
    }

    /// The enforced policies whose requests differ from those of the policy with the same name in
    /// `others`.
    pub(crate) fn changed_policies<'p>(
        &'p self,
        others: &'p RegionsOfSet<'_>,
    ) -> Result<Vec<&'p PolicyPieces<'s>>, ProofLimitError> {
        let known: HashMap<&str, &PolicyPieces<'_>> = others
            .policies
            .iter()
            .map(|pieces| (pieces.policy.name.as_str(), pieces))
            .collect();
        let is_same_protection = self.never_denied == others.never_denied;
        let have_same_namespaces = self.set.has_same_namespaces(others.set);
        let mut different = Vec::new();
        for own in &self.policies {
            self.limit.check_deadline()?;
            let is_same = match known.get(own.policy.name.as_str()) {
                Some(other)
                    if have_same_namespaces
                        && !own.policy.liftable
                        && std::ptr::eq(own.policy, other.policy) =>
                {
                    true
                }
                Some(other) => own.says_the_same_as(other)?,
                None => false,
            };
            if !is_same || own.policy.effect.refuses() && !is_same_protection {
                different.push(own);
            }
        }
        Ok(different)
    }

    /// The rules that decide requests in `within`, in the order in which they are tried: Denies and
    /// Limits, AccessRequests that lift some of them, bindings, Allows, AccessRequests.
    pub(crate) fn in_order(&self, within: &Region) -> Result<Vec<DecidingRule<'s>>, ProofLimitError> {
        let mut rules = self.policy_rules(true, within)?;
        self.add_lifted(within, &mut rules)?;
        let mut roles: HashMap<*const Role, Vec<RuleRegion>> = HashMap::new();
        let mut room = self.limit.room();
        for BoundRole { binding, role } in self.bindings_in(within) {
            self.limit.check_deadline()?;
            let Some(role) = role.as_ref().filter(|_| is_in_reach(binding, within)) else {
                continue;
            };
            let own = match roles.entry(Arc::as_ptr(role)) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(unknown) => unknown.insert(of_role(role, within, &mut room)?),
            };
            for RuleRegion { rule, requests } in own {
                let mut regions = granted(binding, requests);
                regions.retain(|region| region.overlaps(within));
                rules.push(DecidingRule {
                    decision: Decision::Allow,
                    cause: Cause {
                        kind: binding.kind(),
                        namespace: Cow::Borrowed(&binding.namespace),
                        name: Cow::Borrowed(&binding.name),
                        rule: *rule,
                    },
                    regions,
                });
            }
        }
        rules.extend(self.policy_rules(false, within)?);
        for grant in &self.accesses {
            rules.extend(self.access_rules(grant, within)?);
        }
        rules.retain(|rule| !rule.regions.is_empty());
        Ok(rules)
    }

    /// What an AccessRequest grants within `within`, by the rules of its role.
    fn access_rules(
        &self,
        grant: &'s AccessGrant,
        within: &Region,
    ) -> Result<Vec<DecidingRule<'s>>, ProofLimitError> {
        let regions = of_access(grant, within, self.limit)?;
        let rule = |RuleRegion { rule, requests }| DecidingRule {
            decision: Decision::Allow,
            cause: Cause {
                kind: CauseKind::AccessRequest,
                namespace: Cow::Borrowed(""),
                name: Cow::Borrowed(&grant.request.name),
                rule,
            },
            regions: vec![requests],
        };
        Ok(regions.into_iter().map(rule).collect())
    }

    /// Adds what AccessRequests grant because they lift a policy.
    fn add_lifted(&self, within: &Region, rules: &mut Vec<DecidingRule<'s>>) -> Result<(), ProofLimitError> {
        for pieces in self.policies.iter().filter(|one| !one.lifted_by.is_empty()) {
            let whole = PolicyPieces::new(self.set, pieces.policy, Vec::new(), self.limit);
            let refused = self.rules_of(&whole, within)?.into_values().flatten();
            let refused: Vec<Region> = refused.collect();
            for grant in &pieces.lifted_by {
                for mut rule in self.access_rules(grant, within)? {
                    let granted = rule.regions.iter();
                    let lifted = granted.flat_map(|granted| {
                        refused.iter().filter_map(|refused| granted.intersection(refused))
                    });
                    rule.regions = lifted.collect();
                    rules.push(rule);
                }
            }
        }
        Ok(())
    }

    /// The rules of the policies that deny, or of those that allow.
    fn policy_rules(&self, refuse: bool, within: &Region) -> Result<Vec<DecidingRule<'s>>, ProofLimitError> {
        let mut rules = Vec::new();
        let policies = self.policies.iter();
        for pieces in policies.filter(|one| one.policy.effect.refuses() == refuse) {
            self.limit.check_deadline()?;
            for (rule, regions) in self.rules_of(pieces, within)? {
                rules.push(DecidingRule {
                    decision: pieces.policy.effect.decision(),
                    cause: Cause {
                        kind: CauseKind::AuthorizationPolicy,
                        namespace: Cow::Borrowed(""),
                        name: Cow::Borrowed(&pieces.policy.name),
                        rule,
                    },
                    regions,
                });
            }
        }
        Ok(rules)
    }

    /// Adds the regions in `within` of the policies that deny, or of those that allow.
    fn add_policies(
        &self,
        refuse: bool,
        within: &Region,
        regions: &mut Vec<Region>,
    ) -> Result<(), ProofLimitError> {
        let mut room = self.limit.room();
        let policies = self.policies.iter();
        for policy in policies.filter(|one| one.policy.effect.refuses() == refuse) {
            self.limit.check_deadline()?;
            policy.add_within(within, regions, &mut room)?;
        }
        Ok(())
    }

    /// What is allowed in `within`, disregarding Denies: the regions of the rules that overlap it.
    ///
    /// # Errors
    /// The limit is reached.
    pub(crate) fn allowing(&self, within: &Region) -> Result<Vec<Region>, ProofLimitError> {
        let mut regions = of_bindings(self.bindings_in(within), within, self.limit)?;
        self.add_policies(false, within, &mut regions)?;
        self.add_accesses(within, &mut regions)?;
        Ok(regions)
    }

    /// The bindings in the namespaces of `within`, which are few of a large set.
    fn bindings_in<'r>(&self, within: &'r Region) -> impl Iterator<Item = &'s BoundRole> + use<'r, 's> {
        let set = self.set;
        let is_one = |namespace: &str| !within.is_path && within.side(Side::Namespace).contains(namespace);
        set.bindings.in_namespaces(is_one)
    }

    /// Adds what AccessRequests grant in `within`.
    fn add_accesses(&self, within: &Region, regions: &mut Vec<Region>) -> Result<(), ProofLimitError> {
        for grant in &self.accesses {
            let granted = of_access(grant, within, self.limit)?;
            regions.extend(granted.into_iter().map(|rule| rule.requests));
        }
        Ok(())
    }

    /// What the AccessRequests grant in `within`, unless `others` shares them.
    pub(crate) fn accesses_besides(
        &self,
        others: &RegionsOfSet<'_>,
        within: &[Region],
    ) -> Result<Vec<Region>, ProofLimitError> {
        let mut regions = Vec::new();
        let is_same = match (&self.set.access_grants, &others.set.access_grants) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        if !is_same {
            for within in within {
                self.add_accesses(within, &mut regions)?;
            }
        }
        Ok(regions)
    }

    /// What is denied in `within`.
    pub(crate) fn denying(&self, within: &Region) -> Result<Vec<Region>, ProofLimitError> {
        let mut regions = Vec::new();
        self.add_policies(true, within, &mut regions)?;
        self.without_protected(regions)
    }

    /// The enforced policies, by name.
    pub(crate) fn policies(&self) -> &[PolicyPieces<'s>] {
        &self.policies
    }

    /// What each rule of `policy` decides in `within`, by its index; for a Limit, by `None`.
    pub(crate) fn rules_of(
        &self,
        policy: &PolicyPieces<'_>,
        within: &Region,
    ) -> Result<BTreeMap<Option<usize>, Vec<Region>>, ProofLimitError> {
        let mut rules = policy.rules_within(within, &mut self.limit.room())?;
        if policy.policy.effect.refuses() {
            for regions in rules.values_mut() {
                *regions = self.without_protected(std::mem::take(regions))?;
            }
        }
        Ok(rules)
    }

    pub(crate) const fn set(&self) -> &'s PolicySet {
        self.set
    }

    pub(crate) const fn limit(&self) -> WorkLimit<'s> {
        self.limit
    }

    /// What `policy` allows or denies in `within`.
    pub(crate) fn of_policy(
        &self,
        policy: &PolicyPieces<'_>,
        within: &[Region],
    ) -> Result<Vec<Region>, ProofLimitError> {
        let (mut regions, mut room) = (Vec::new(), self.limit.room());
        for within in within {
            policy.add_within(within, &mut regions, &mut room)?;
        }
        match policy.policy.effect.refuses() {
            false => Ok(regions),
            true => self.without_protected(regions),
        }
    }

    /// What `invariant` forbids: requests of system:masters and of the users in `neverDeny` are
    /// excepted.
    pub(crate) fn forbidden_by(
        &self,
        invariant: &AuthorizationInvariant,
    ) -> Result<Vec<Region>, ProofLimitError> {
        let rules = PolicyPieces::new(self.set, &invariant.forbidden, Vec::new(), self.limit);
        let masters = GroupSet {
            all: Patterns::exact([MASTERS]),
            none: Patterns::default(),
        };
        let mut outside = never_denied_callers(self.set.never_deny());
        let (mut regions, mut room) = (Vec::new(), self.limit.room());
        for all in [false, true].into_iter().flat_map(Region::of_each_caller) {
            rules.add_within(&all, &mut regions, &mut room)?;
            outside.extend(all.with_groups(&masters));
        }
        let outside: Vec<&Region> = outside.iter().collect();
        let mut left = Vec::new();
        for region in regions {
            left.extend(region.without(&outside, self.limit)?);
        }
        // The simplest callers come first, so that examples of them are found first.
        left.sort_by_key(|region| region.groups.all.exact.len());
        Ok(left)
    }

    /// The parts of `regions` that `neverDeny` does not protect.
    fn without_protected(&self, regions: Vec<Region>) -> Result<Vec<Region>, ProofLimitError> {
        let protected: Vec<&Region> = self.never_denied.iter().collect();
        let mut left = Vec::new();
        for region in regions {
            left.extend(region.without(&protected, self.limit)?);
        }
        Ok(left)
    }
}

/// The AccessRequests in `accesses` that lift `policy`.
fn lifting<'s>(policy: &AuthorizationPolicy, accesses: &[&'s AccessGrant]) -> Vec<&'s AccessGrant> {
    let accesses = accesses
        .iter()
        .filter(|grant| policy.liftable && grant.lifts(&policy.name));
    accesses.copied().collect()
}

// === impl PolicyPieces ===

impl<'s> PolicyPieces<'s> {
    const fn new(
        set: &'s PolicySet,
        policy: &'s AuthorizationPolicy,
        lifted_by: Vec<&'s AccessGrant>,
        limit: WorkLimit<'s>,
    ) -> Self {
        Self {
            set,
            policy,
            lifted_by,
            limit,
            regions: OnceCell::new(),
        }
    }

    fn regions(&self) -> Result<&PolicyRegions, ProofLimitError> {
        let made = self.regions.get_or_init(|| {
            let mut regions = PolicyRegions::new(self.set, self.policy, self.limit)?;
            // A policy does not affect requests for which it is lifted, like a Limit those within
            // its rules.
            for within in [false, true].into_iter().flat_map(Region::of_each_caller) {
                for grant in &self.lifted_by {
                    let lifted = of_access(grant, &within, self.limit)?;
                    regions
                        .exceptions
                        .extend(lifted.into_iter().map(|rule| rule.requests));
                }
            }
            Ok(regions)
        });
        made.as_ref().map_err(|error| *error)
    }

    /// Whether the words of a rule may overlap `within`. Does not compute the regions of the
    /// policy.
    fn may_meet(&self, within: &Region) -> bool {
        let effect = self.policy.effect;
        if effect == Effect::Limit {
            return self.policy.limits_requests(within.is_path);
        }
        let [verbs, groups, resources] =
            [Side::Verb, Side::ApiGroup, Side::Resource].map(|side| within.side(side));
        let is_requested = |texts: &TextSet| effect == Effect::Deny && texts.contains(WildcardSet::ALL);
        let has_word = |texts: &TextSet, words: &WildcardSet| is_requested(texts) || has_word(texts, words);
        let has_resource = |pattern: &ResourcePattern| match pattern {
            ResourcePattern::Everything | ResourcePattern::Subresource(Wildcard::Any, _) => true,
            ResourcePattern::Resource(name) | ResourcePattern::Subresource(Wildcard::Named(name), _) => {
                resources.contains(name)
            }
        };
        let meets = |rule: &ResourceRule| {
            (is_requested(resources) || rule.resources.iter().any(has_resource))
                && has_word(groups, &rule.api_groups)
                && has_word(verbs, &rule.verbs)
        };
        match within.is_path {
            true => !self.policy.non_resource_rules.is_empty(),
            false => self.policy.resource_rules.iter().any(meets),
        }
    }

    fn says_the_same_as(&self, other: &PolicyPieces<'_>) -> Result<bool, ProofLimitError> {
        Ok(self.policy.effect == other.policy.effect && self.regions()? == other.regions()?)
    }

    fn add_within(
        &self,
        within: &Region,
        regions: &mut Vec<Region>,
        room: &mut RegionBudget<'_>,
    ) -> Result<(), ProofLimitError> {
        regions.extend(self.rules_within(within, room)?.into_values().flatten());
        Ok(())
    }

    /// The regions in `within` of each rule, by its index; for a Limit, by `None`.
    fn rules_within(
        &self,
        within: &Region,
        room: &mut RegionBudget<'_>,
    ) -> Result<BTreeMap<Option<usize>, Vec<Region>>, ProofLimitError> {
        let mut rules = BTreeMap::<Option<usize>, Vec<Region>>::new();
        if !self.may_meet(within) {
            return Ok(rules);
        }
        let PolicyRegions {
            rules: own,
            callers,
            exceptions: held,
        } = self.regions()?;
        let held: Vec<&Region> = held.iter().filter(|held| held.overlaps(within)).collect();
        for RuleRegion { rule, requests } in own {
            room.in_time()?;
            if !requests.overlaps(within) {
                continue;
            }
            let of_rule = rules.entry(*rule).or_default();
            for caller in callers {
                let of_caller = requests.by(caller).filter(|region| region.overlaps(within));
                if held.is_empty() {
                    add(of_rule, of_caller, room)?;
                    continue;
                }
                let of_caller = of_caller.and_then(|region| region.intersection(within));
                if let Some(region) = of_caller {
                    for left in region.without(&held, self.limit)? {
                        add(of_rule, Some(left), room)?;
                    }
                }
            }
        }
        Ok(rules)
    }
}
