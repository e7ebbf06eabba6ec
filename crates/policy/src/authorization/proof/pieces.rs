//! What each rule allows and denies, as regions.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::condition::Side;
use super::limit::{ProofLimitError, RegionRoom, WorkLimit};
use super::region::Region;
use super::rules::{PolicyRegions, RuleRegion, never_denied, never_denied_callers, of_role};
use super::sets::{GroupSet, Patterns, TextSet, has_word};
use crate::authorization::index::BoundRole;
use crate::authorization::matching::{ResourcePattern, Wildcard};
use crate::authorization::never_deny::MASTERS;
use crate::authorization::rbac::WildcardSet;
use crate::authorization::{
    AuthorizationInvariant, AuthorizationPolicy, Binding, Effect, Mode, PolicySet, ResourceRule, Role,
    Subject, SubjectKind,
};
use crate::model::{Cause, CauseKind, Decision};

/// The rules of a policy set as regions, made when they are asked for.
pub(crate) struct Pieces<'s> {
    set: &'s PolicySet,
    never_denied: Vec<Region>,
    policies: Vec<PolicyPieces<'s>>,
    limit: WorkLimit<'s>,
}

/// A rule that decides requests that no rule before it decides.
pub(crate) struct DecidingRule<'s> {
    pub(crate) decision: Decision,
    pub(crate) cause: Cause<'s>,
    pub(crate) regions: Vec<Region>,
}

/// An AuthorizationPolicy, and what it says once that is asked for.
pub(crate) struct PolicyPieces<'s> {
    set: &'s PolicySet,
    pub(crate) policy: &'s AuthorizationPolicy,
    limit: WorkLimit<'s>,
    regions: OnceCell<Result<PolicyRegions, ProofLimitError>>,
}

// === impl Pieces ===

impl<'s> Pieces<'s> {
    pub(crate) fn new(set: &'s PolicySet, limit: WorkLimit<'s>) -> Result<Self, ProofLimitError> {
        let enforced = set
            .authorization_policies()
            .filter(|policy| policy.mode == Mode::Enforce)
            // The others grant nothing.
            .filter(|policy| policy.effect.refuses() || set.may_grant(policy));
        limit.in_time()?;
        Ok(Self {
            never_denied: never_denied(set.never_deny()),
            policies: enforced
                .map(|policy| PolicyPieces::new(set, policy, limit))
                .collect(),
            set,
            limit,
        })
    }

    /// The policies that are enforced and say something else than those of `others` by their name.
    pub(crate) fn policies_besides<'p>(
        &'p self,
        others: &'p Pieces<'_>,
    ) -> Result<Vec<&'p PolicyPieces<'s>>, ProofLimitError> {
        let known: HashMap<&str, &PolicyPieces<'_>> = others
            .policies
            .iter()
            .map(|pieces| (pieces.policy.name.as_str(), pieces))
            .collect();
        let is_same_protection = self.never_denied == others.never_denied;
        let have_same_namespaces = self.set.resolves_as(others.set);
        let mut different = Vec::new();
        for own in &self.policies {
            self.limit.in_time()?;
            let is_same = match known.get(own.policy.name.as_str()) {
                Some(other) if have_same_namespaces && std::ptr::eq(own.policy, other.policy) => true,
                Some(other) => own.says_the_same_as(other)?,
                None => false,
            };
            if !is_same || own.policy.effect.refuses() && !is_same_protection {
                different.push(own);
            }
        }
        Ok(different)
    }

    /// The rules that decide requests of `within`, in the order in which they are asked: Denies and
    /// Limits, bindings, Allows.
    pub(crate) fn in_order(&self, within: &Region) -> Result<Vec<DecidingRule<'s>>, ProofLimitError> {
        let mut rules = self.policy_rules(true, within)?;
        let mut roles: HashMap<*const Role, Vec<RuleRegion>> = HashMap::new();
        let mut room = self.limit.room();
        for BoundRole { binding, role } in self.set.bindings.iter() {
            self.limit.in_time()?;
            let Some(role) = role.as_ref().filter(|_| is_in_reach(binding, within)) else {
                continue;
            };
            let own = match roles.entry(Arc::as_ptr(role)) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(unknown) => unknown.insert(of_role(role, within, &mut room)?),
            };
            for RuleRegion { rule, requests } in own {
                let mut regions = granted(binding, requests);
                regions.retain(|region| region.meets(within));
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
        rules.retain(|rule| !rule.regions.is_empty());
        Ok(rules)
    }

    /// The rules of the policies that refuse, or of those that allow.
    fn policy_rules(&self, refuse: bool, within: &Region) -> Result<Vec<DecidingRule<'s>>, ProofLimitError> {
        let mut rules = Vec::new();
        let policies = self.policies.iter();
        for pieces in policies.filter(|one| one.policy.effect.refuses() == refuse) {
            self.limit.in_time()?;
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

    /// What the policies that refuse, or those that allow, say of `within`.
    fn add_policies(
        &self,
        refuse: bool,
        within: &Region,
        regions: &mut Vec<Region>,
    ) -> Result<(), ProofLimitError> {
        let mut room = self.limit.room();
        let policies = self.policies.iter();
        for policy in policies.filter(|one| one.policy.effect.refuses() == refuse) {
            self.limit.in_time()?;
            policy.add_within(within, regions, &mut room)?;
        }
        Ok(())
    }

    /// What is allowed of `within`, Denies aside: the rules that meet it.
    ///
    /// # Errors
    /// The limit is reached.
    pub(crate) fn allowing(&self, within: &Region) -> Result<Vec<Region>, ProofLimitError> {
        let mut regions = self.granting(self.set.bindings.iter(), within)?;
        self.add_policies(false, within, &mut regions)?;
        Ok(regions)
    }

    /// What `bindings` allow of `within`.
    ///
    /// # Errors
    /// The limit is reached.
    pub(crate) fn granting<'b>(
        &self,
        bindings: impl Iterator<Item = &'b BoundRole>,
        within: &Region,
    ) -> Result<Vec<Region>, ProofLimitError> {
        let (mut regions, mut room) = (Vec::new(), self.limit.room());
        // Users of equal grants are one region.
        let mut users: BTreeMap<((usize, usize), &str), Patterns> = BTreeMap::new();
        let (mut rules, mut rules_room) = (Vec::new(), self.limit.room());
        let mut meeting: HashMap<*const Role, (usize, usize)> = HashMap::new();
        for BoundRole { binding, role } in bindings {
            let Some(role) = role.as_ref().filter(|_| is_in_reach(binding, within)) else {
                continue;
            };
            let (first, end) = match meeting.entry(Arc::as_ptr(role)) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(unknown) => {
                    self.limit.in_time()?;
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
                    SubjectKind::Group => {
                        let group = GroupSet {
                            all: Patterns::exact([&*name]),
                            none: Patterns::default(),
                        };
                        for RuleRegion { requests, .. } in own() {
                            let of_group = in_namespace(requests, &binding.namespace)
                                .and_then(|requests| requests.with_groups(&group))
                                .filter(|region| region.meets(within));
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

    /// What is denied of `within`.
    pub(crate) fn denying(&self, within: &Region) -> Result<Vec<Region>, ProofLimitError> {
        let mut regions = Vec::new();
        self.add_policies(true, within, &mut regions)?;
        self.deniable(regions)
    }

    /// The policies that are enforced, by name.
    pub(crate) fn policies(&self) -> &[PolicyPieces<'s>] {
        &self.policies
    }

    /// What each rule of `policy` decides of `within`, by its place; what a Limit does, in no place.
    pub(crate) fn rules_of(
        &self,
        policy: &PolicyPieces<'_>,
        within: &Region,
    ) -> Result<BTreeMap<Option<usize>, Vec<Region>>, ProofLimitError> {
        let mut rules = policy.rules_within(within, &mut self.limit.room())?;
        if policy.policy.effect.refuses() {
            for regions in rules.values_mut() {
                *regions = self.deniable(std::mem::take(regions))?;
            }
        }
        Ok(rules)
    }

    pub(crate) const fn set(&self) -> &'s PolicySet {
        self.set
    }

    /// What `policy` allows or denies within the regions of `within`.
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
            true => self.deniable(regions),
        }
    }

    /// What `invariant` says that nobody may do: system:masters and those of `neverDeny` stand
    /// outside, whatever they ask.
    pub(crate) fn forbidden_by(
        &self,
        invariant: &AuthorizationInvariant,
    ) -> Result<Vec<Region>, ProofLimitError> {
        let rules = PolicyPieces::new(self.set, &invariant.forbidden, self.limit);
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
        // The simplest callers come first, and so do examples of them.
        left.sort_by_key(|region| region.groups.all.exact.len());
        Ok(left)
    }

    /// What of `regions` `neverDeny` does not protect.
    fn deniable(&self, regions: Vec<Region>) -> Result<Vec<Region>, ProofLimitError> {
        let protected: Vec<&Region> = self.never_denied.iter().collect();
        let mut left = Vec::new();
        for region in regions {
            left.extend(region.without(&protected, self.limit)?);
        }
        Ok(left)
    }
}

/// Whether a binding may say something of `within`.
fn is_in_reach(binding: &Binding, within: &Region) -> bool {
    binding.namespace.is_empty()
        || !within.is_path && within.side(Side::Namespace).contains(&binding.namespace)
}

/// What of `all` a binding to a role that allows all of it grants.
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

/// What of a role's rule a binding of `namespace` grants.
fn in_namespace(rule: &Region, namespace: &str) -> Option<Region> {
    match namespace {
        "" => Some(rule.clone()),
        _ if rule.is_path => None,
        namespace => rule.with(Side::Namespace, &TextSet::exact([namespace])),
    }
}

// === impl PolicyPieces ===

impl<'s> PolicyPieces<'s> {
    const fn new(set: &'s PolicySet, policy: &'s AuthorizationPolicy, limit: WorkLimit<'s>) -> Self {
        Self {
            set,
            policy,
            limit,
            regions: OnceCell::new(),
        }
    }

    fn regions(&self) -> Result<&PolicyRegions, ProofLimitError> {
        let made = self
            .regions
            .get_or_init(|| PolicyRegions::new(self.set, self.policy, self.limit));
        made.as_ref().map_err(|error| *error)
    }

    /// Whether the words of a rule may meet those of `within`: seen without making what the policy says.
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
        room: &mut RegionRoom<'_>,
    ) -> Result<(), ProofLimitError> {
        regions.extend(self.rules_within(within, room)?.into_values().flatten());
        Ok(())
    }

    /// What each of its rules says of `within`, by their places; what a Limit says, in no place.
    fn rules_within(
        &self,
        within: &Region,
        room: &mut RegionRoom<'_>,
    ) -> Result<BTreeMap<Option<usize>, Vec<Region>>, ProofLimitError> {
        let mut rules = BTreeMap::<Option<usize>, Vec<Region>>::new();
        if !self.may_meet(within) {
            return Ok(rules);
        }
        let PolicyRegions {
            rules: own,
            callers,
            held,
        } = self.regions()?;
        let held: Vec<&Region> = held.iter().filter(|held| held.meets(within)).collect();
        for RuleRegion { rule, requests } in own {
            room.in_time()?;
            if !requests.meets(within) {
                continue;
            }
            let of_rule = rules.entry(*rule).or_default();
            for caller in callers {
                let of_caller = requests.by(caller).filter(|region| region.meets(within));
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

/// Adds `region`, if there is one and room for it.
fn add(
    regions: &mut Vec<Region>,
    region: Option<Region>,
    room: &mut RegionRoom<'_>,
) -> Result<(), ProofLimitError> {
    room.in_time()?;
    if let Some(region) = region {
        room.take(region.weight())?;
        regions.push(region);
    }
    Ok(())
}
