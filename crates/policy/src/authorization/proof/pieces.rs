//! What each rule allows and denies, as regions.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::group_set::GroupSet;
use super::region::{ProofLimitError, Region, Side, WorkLimit};
use super::rules::{PolicyRegions, RuleRegion, never_denied, never_denied_callers, of_role};
use super::text_set::{Patterns, TextSet};
use crate::authorization::index::BoundRole;
use crate::authorization::matching::{ResourcePattern, Wildcard};
use crate::authorization::never_deny::MASTERS;
use crate::authorization::rbac::WildcardSet;
use crate::authorization::{
    AuthorizationInvariant, AuthorizationPolicy, Binding, Effect, Mode, PolicySet, ResourceRule, Role,
    Subject, SubjectKind,
};
use crate::engine::{Cause, CauseKind, Decision};

/// The rules of a policy set as regions, made when they are asked for.
pub(crate) struct Pieces<'s> {
    set: &'s PolicySet,
    never_denied: Vec<Region>,
    policies: Vec<PolicyPieces<'s>>,
    /// What each rule of a role allows to everybody.
    roles: HashMap<*const Role, Vec<RuleRegion>>,
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
    regions: OnceCell<PolicyRegions>,
}

// === impl Pieces ===

impl<'s> Pieces<'s> {
    pub(crate) fn new(set: &'s PolicySet, limit: WorkLimit<'s>) -> Result<Self, ProofLimitError> {
        let enforced = set
            .authorization_policies()
            .filter(|policy| policy.mode == Mode::Enforce);
        let mut roles = HashMap::new();
        for bound in set.bindings.iter() {
            if let Some(role) = &bound.role {
                roles.entry(Arc::as_ptr(role)).or_insert_with(|| of_role(role));
            }
        }
        limit.in_time()?;
        Ok(Self {
            never_denied: never_denied(set.never_deny()),
            policies: enforced.map(|policy| PolicyPieces::new(set, policy)).collect(),
            roles,
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
            let same = known.get(own.policy.name.as_str()).filter(|other| {
                let is_same_object = have_same_namespaces && std::ptr::eq(own.policy, other.policy);
                is_same_object || own.says_the_same_as(other)
            });
            if same.is_none() || own.policy.effect.refuses() && !is_same_protection {
                different.push(own);
            }
        }
        Ok(different)
    }

    /// The rules that decide requests of `within`, in the order in which they are asked: Denies and
    /// Limits, bindings, Allows.
    pub(crate) fn in_order(&self, within: &Region) -> Result<Vec<DecidingRule<'s>>, ProofLimitError> {
        let mut rules = self.policy_rules(true, within)?;
        for BoundRole { binding, role } in self.set.bindings.iter() {
            self.limit.in_time()?;
            let own = role.as_ref().and_then(|role| self.roles.get(&Arc::as_ptr(role)));
            for RuleRegion { rule, requests } in own.into_iter().flatten() {
                if !is_in_reach(binding, within) || !requests.meets(within) {
                    continue;
                }
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
            for (rule, regions) in pieces.rules_within(within, self.limit)? {
                rules.push(DecidingRule {
                    decision: pieces.policy.effect.decision(),
                    cause: Cause {
                        kind: CauseKind::AuthorizationPolicy,
                        namespace: Cow::Borrowed(""),
                        name: Cow::Borrowed(&pieces.policy.name),
                        rule,
                    },
                    regions: match refuse {
                        false => regions,
                        true => self.deniable(regions)?,
                    },
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
        let policies = self.policies.iter();
        for policy in policies.filter(|one| one.policy.effect.refuses() == refuse) {
            self.limit.in_time()?;
            policy.add_within(within, self.limit, regions)?;
        }
        Ok(())
    }

    /// What is allowed of `within`, Denies aside: the rules that meet it.
    ///
    /// # Errors
    /// The limit is reached.
    pub(crate) fn allowing(&self, within: &Region) -> Result<Vec<Region>, ProofLimitError> {
        let mut regions = self.granting(self.set.bindings.iter(), within);
        self.add_policies(false, within, &mut regions)?;
        Ok(regions)
    }

    /// What `bindings` allow of `within`.
    pub(crate) fn granting<'b>(
        &self,
        bindings: impl Iterator<Item = &'b BoundRole>,
        within: &Region,
    ) -> Vec<Region> {
        let mut regions = Vec::new();
        // Users of equal grants are one region.
        let mut users: BTreeMap<(usize, &str), Patterns> = BTreeMap::new();
        let mut rules: Vec<&Region> = Vec::new();
        let mut meeting: HashMap<*const Role, (usize, usize)> = HashMap::new();
        for BoundRole { binding, role } in bindings {
            let Some(role) = role else { continue };
            let (first, end) = *meeting.entry(Arc::as_ptr(role)).or_insert_with(|| {
                let first = rules.len();
                let own = self.roles.get(&Arc::as_ptr(role)).into_iter().flatten();
                let own = own.map(|rule| &rule.requests);
                rules.extend(own.filter(|rule| rule.meets(within)));
                (first, rules.len())
            });
            if first == end || !is_in_reach(binding, within) {
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
                        let rules = rules.get(first..end).into_iter().flatten();
                        let of_group = rules
                            .filter_map(|rule| in_namespace(rule, &binding.namespace)?.with_groups(&group));
                        regions.extend(of_group.filter(|region| region.meets(within)));
                    }
                    SubjectKind::User | SubjectKind::ServiceAccount
                        if within.side(Side::User).contains(&name) =>
                    {
                        for rule in first..end {
                            let users = users.entry((rule, &binding.namespace)).or_default();
                            users.exact.insert((*name).into());
                        }
                    }
                    SubjectKind::User | SubjectKind::ServiceAccount => {}
                }
            }
        }
        for ((rule, namespace), users) in users {
            let rule = rules.get(rule).and_then(|rule| in_namespace(rule, namespace));
            regions.extend(rule.and_then(|rule| rule.with(Side::User, &TextSet::of(users))));
        }
        regions
    }

    /// What is denied of `within`.
    pub(crate) fn denying(&self, within: &Region) -> Result<Vec<Region>, ProofLimitError> {
        let mut regions = Vec::new();
        self.add_policies(true, within, &mut regions)?;
        self.deniable(regions)
    }

    pub(crate) const fn set(&self) -> &'s PolicySet {
        self.set
    }

    /// What `policy` allows or denies, as far as it meets one of `within`.
    pub(crate) fn of_policy(
        &self,
        policy: &PolicyPieces<'_>,
        within: &[Region],
    ) -> Result<Vec<Region>, ProofLimitError> {
        let mut regions = Vec::new();
        for within in within {
            policy.add_within(within, self.limit, &mut regions)?;
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
        let rules = PolicyPieces::new(self.set, &invariant.forbidden);
        let masters = GroupSet {
            all: Patterns::exact([MASTERS]),
            none: Patterns::default(),
        };
        let mut outside = never_denied_callers(self.set.never_deny());
        let mut regions = Vec::new();
        for all in [false, true].into_iter().flat_map(Region::of_each_caller) {
            rules.add_within(&all, self.limit, &mut regions)?;
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
    const fn new(set: &'s PolicySet, policy: &'s AuthorizationPolicy) -> Self {
        Self {
            set,
            policy,
            regions: OnceCell::new(),
        }
    }

    fn regions(&self) -> &PolicyRegions {
        self.regions
            .get_or_init(|| PolicyRegions::new(self.set, self.policy))
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
        let has_word = |texts: &TextSet, words: &WildcardSet| {
            let mut words = words.as_slice().iter();
            is_requested(texts) || words.any(|word| word == WildcardSet::ALL || texts.contains(word))
        };
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

    fn says_the_same_as(&self, other: &PolicyPieces<'_>) -> bool {
        self.policy.effect == other.policy.effect && self.regions() == other.regions()
    }

    fn add_within(
        &self,
        within: &Region,
        limit: WorkLimit<'_>,
        regions: &mut Vec<Region>,
    ) -> Result<(), ProofLimitError> {
        for (_, of_rule) in self.rules_within(within, limit)? {
            regions.extend(of_rule);
        }
        Ok(())
    }

    /// What each of its rules says of `within`, by their places; what a Limit says, in no place.
    fn rules_within(
        &self,
        within: &Region,
        limit: WorkLimit<'_>,
    ) -> Result<BTreeMap<Option<usize>, Vec<Region>>, ProofLimitError> {
        let mut rules = BTreeMap::<Option<usize>, Vec<Region>>::new();
        if !self.may_meet(within) {
            return Ok(rules);
        }
        let PolicyRegions {
            rules: own,
            callers,
            held,
        } = self.regions();
        let held: Vec<&Region> = held.iter().filter(|held| held.meets(within)).collect();
        for RuleRegion { rule, requests } in own.iter().filter(|own| own.requests.meets(within)) {
            let of_callers = callers.iter().filter_map(|caller| requests.by(caller));
            let of_callers = of_callers.filter(|region| region.meets(within));
            let of_rule = rules.entry(*rule).or_default();
            if held.is_empty() {
                of_rule.extend(of_callers);
                continue;
            }
            for region in of_callers.filter_map(|region| region.intersection(within)) {
                of_rule.extend(region.without(&held, limit)?);
            }
        }
        Ok(rules)
    }
}
