//! AuthorizationPolicies, with an index of the rules that may apply to a request.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::authorization::matching::compare_path_rule;
use crate::authorization::{
    AuthorizationInvariant, AuthorizationPolicy, Criterion, Effect, Mode, NonResourceRule, ResourceRule,
    RuleMatch,
};
use crate::model::{LabelSelector, Time, Validity};

use super::rule_fields::{FieldMatch, RuleFields};
use super::{NamespaceSelectors, PolicyQuery, PolicyTerms};

/// The AuthorizationPolicies of a set. It depends on them only, so sets with the same policies
/// share it.
#[derive(Debug, Default)]
pub(crate) struct PolicyIndex {
    /// The policies in mode Shadow, then the Denies and Limits, then the Allows, each by name.
    pub(crate) policies: Vec<Arc<IndexedPolicy>>,
    pub(crate) shadow: PolicyGroup,
    /// Denies and Limits.
    pub(crate) deny: PolicyGroup,
    pub(crate) allow: PolicyGroup,
    /// Sorted by name. They do not take part in decisions.
    pub(crate) invariants: Vec<Arc<AuthorizationInvariant>>,
    pub(crate) selectors: NamespaceSelectors,
    pub(crate) terms: PolicyTerms,
    /// Whether any policy has objectConditions.
    pub(crate) has_object_conditions: bool,
    validities: ValidityCounts,
}

/// A policy of a set.
#[derive(Debug)]
pub(crate) struct IndexedPolicy {
    /// Its index among all policies of the set.
    pub(crate) place: usize,
    /// Its name, shared with metrics and logs.
    pub(crate) name: Arc<str>,
    pub(crate) policy: Arc<AuthorizationPolicy>,
    /// The range of its rules in its group.
    rules: Range<u32>,
}

/// Policies that are evaluated together.
#[derive(Debug, Default)]
pub(crate) struct PolicyGroup {
    pub(crate) policies: Vec<Arc<IndexedPolicy>>,
    /// The rules, in the order of the policies.
    rules: Vec<IndexedRule>,
    /// The fields of the rules of Denies and Allows.
    fields: RuleFields,
    /// The fields of the rules of Limits, which apply to the requests that do not lie within these
    /// rules.
    limits: RuleFields,
    has_limits: bool,
}

/// A rule of a policy.
#[derive(Debug)]
pub(crate) struct IndexedRule {
    pub(crate) policy: Arc<IndexedPolicy>,
    /// Its index among the rules of the policy, where non-resource rules come last.
    pub(crate) number: usize,
    pub(crate) rule: PolicyRule,
    /// The number of its `namespaceSelector`.
    selector: Option<u32>,
}

/// A rule for resources or for paths.
#[derive(Debug)]
pub(crate) enum PolicyRule {
    Resource(ResourceRule),
    NonResource(NonResourceRule),
}

/// The rules of the policies that apply to one user.
pub(crate) struct UserRules<'g> {
    included: FieldMatch<'g>,
    excluded: FieldMatch<'g>,
}

/// Counts the policies in force at a given time, without visiting each.
#[derive(Debug, Default)]
struct ValidityCounts {
    /// The number of policies that are in force at any time.
    count: usize,
    /// The beginnings of the policies' validity, ascending.
    starts: Vec<Time>,
    /// The ends of the policies' validity, ascending.
    ends: Vec<Time>,
}

/// The group of a policy, in the order in which groups are evaluated.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PolicyRank {
    Shadow,
    Deny,
    Allow,
    /// Allows with objectConditions come after those that allow whatever the object is.
    ConditionalAllow,
}

// === impl PolicyIndex ===

impl PolicyIndex {
    pub(crate) fn new(
        mut policies: Vec<Arc<AuthorizationPolicy>>,
        mut invariants: Vec<Arc<AuthorizationInvariant>>,
    ) -> Self {
        policies.sort_by(|one, other| (rank(one), &one.name).cmp(&(rank(other), &other.name)));
        invariants.sort_by(|one, other| one.name().cmp(other.name()));
        let (mut terms, mut selectors) = (PolicyTerms::default(), NamespaceSelectors::default());
        let mut group = |wanted: &[PolicyRank]| {
            let own = policies
                .iter()
                .enumerate()
                .filter(|(_, policy)| wanted.contains(&rank(policy)));
            PolicyGroup::new(own, &mut selectors, &mut terms)
        };
        let (shadow, deny) = (group(&[PolicyRank::Shadow]), group(&[PolicyRank::Deny]));
        let allow = group(&[PolicyRank::Allow, PolicyRank::ConditionalAllow]);
        for rule in invariants.iter().flat_map(|one| &one.forbidden.resource_rules) {
            rule.namespace_selector.iter().for_each(|selector| {
                selectors.add(selector);
            });
        }
        Self {
            validities: ValidityCounts::new(policies.iter().map(|policy| policy.validity)),
            policies: [&*shadow.policies, &*deny.policies, &*allow.policies].concat(),
            shadow,
            deny,
            allow,
            has_object_conditions: policies.iter().any(|one| !one.object_conditions.is_empty()),
            invariants,
            selectors,
            terms,
        }
    }

    /// The number of policies in force at `now`.
    pub(crate) fn count_in_force(&self, now: Time) -> usize {
        self.validities.count_at(now)
    }

    /// The times at which the validity of policies begins or ends.
    pub(crate) fn time_boundaries(&self) -> impl Iterator<Item = Time> {
        self.validities
            .starts
            .iter()
            .chain(&self.validities.ends)
            .copied()
    }
}

const fn rank(policy: &AuthorizationPolicy) -> PolicyRank {
    match (policy.mode, policy.effect) {
        (Mode::Shadow, _) => PolicyRank::Shadow,
        (Mode::Enforce, Effect::Deny | Effect::Limit) => PolicyRank::Deny,
        (Mode::Enforce, Effect::Allow) if policy.object_conditions.is_empty() => PolicyRank::Allow,
        (Mode::Enforce, Effect::Allow) => PolicyRank::ConditionalAllow,
    }
}

// === impl PolicyGroup ===

impl PolicyGroup {
    /// A group of `policies`, each with its index among all.
    fn new<'p>(
        policies: impl Iterator<Item = (usize, &'p Arc<AuthorizationPolicy>)>,
        selectors: &mut NamespaceSelectors,
        terms: &mut PolicyTerms,
    ) -> Self {
        let mut group = Self::default();
        for (place, policy) in policies {
            group.add(place, policy, selectors, terms);
        }
        group
    }

    fn add(
        &mut self,
        place: usize,
        policy: &Arc<AuthorizationPolicy>,
        selectors: &mut NamespaceSelectors,
        terms: &mut PolicyTerms,
    ) {
        let resource_rules = policy.resource_rules.iter().cloned().map(PolicyRule::Resource);
        let non_resource_rules = policy.non_resource_rules.iter().cloned();
        let rules: Vec<_> = resource_rules
            .chain(non_resource_rules.map(PolicyRule::NonResource))
            .collect();
        // No process has memory for 2^32 rules.
        let number = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        let first = self.rules.len();
        let indexed = Arc::new(IndexedPolicy {
            place,
            name: policy.name.as_str().into(),
            policy: Arc::clone(policy),
            rules: number(first)..number(first + rules.len()),
        });
        let fields = match policy.effect {
            Effect::Allow | Effect::Deny => &mut self.fields,
            Effect::Limit => &mut self.limits,
        };
        self.has_limits |= policy.effect == Effect::Limit;
        fields.add_subjects(policy, indexed.rules.clone(), terms);
        for (at, rule) in rules.into_iter().enumerate() {
            let selector = rule.namespace_selector().map(|selector| selectors.add(selector));
            match &rule {
                PolicyRule::Resource(rule) => {
                    let effect = policy.effect;
                    fields.add_resource_rule(number(first + at), effect, rule, selector, terms);
                }
                PolicyRule::NonResource(rule) => {
                    fields.add_non_resource_rule(number(first + at), rule, terms);
                }
            }
            self.rules.push(IndexedRule {
                policy: Arc::clone(&indexed),
                number: at,
                rule,
                selector,
            });
        }
        self.policies.push(indexed);
    }

    /// Whether the group contains Limits.
    pub(crate) const fn has_limits(&self) -> bool {
        self.has_limits
    }

    /// The Limits that apply to the user with these `ids`, in order.
    pub(crate) fn limits_for(&self, ids: &[u32]) -> SmallVec<[&IndexedPolicy; 4]> {
        let excluded = self.limits.excluding_user(ids);
        let mut found: SmallVec<[&IndexedPolicy; 4]> = SmallVec::new();
        for number in self.limits.including_user(ids).rules() {
            let Some(IndexedRule { policy, .. }) = self.rule(number) else {
                continue;
            };
            let is_known = found.last().is_some_and(|last| last.place == policy.place);
            if !is_known && !excluded.contains(number) {
                found.push(policy);
            }
        }
        found
    }

    /// The rules of Limits for the user with these `ids` that may include the request, in order.
    pub(crate) fn covering_candidates(
        &self,
        query: &PolicyQuery<'_, '_>,
        ids: &[u32],
    ) -> SmallVec<[&IndexedRule; 4]> {
        let numbers = self.limits.candidates(query, || ids);
        numbers.iter().filter_map(|number| self.rule(*number)).collect()
    }

    /// The rules of Denies or Allows that may apply to the request of the user with these `ids`, in
    /// order. `ids` is called only if a rule matches in all other fields.
    pub(crate) fn candidates<'i>(
        &self,
        query: &PolicyQuery<'_, '_>,
        ids: impl FnOnce() -> &'i [u32],
    ) -> SmallVec<[&IndexedRule; 4]> {
        let numbers = self.fields.candidates(query, ids);
        numbers.iter().filter_map(|number| self.rule(*number)).collect()
    }

    /// The rules of Denies or Allows that apply to `query`, disregarding subjects, in order.
    pub(crate) fn applying_to(&self, query: &PolicyQuery<'_, '_>) -> impl Iterator<Item = &IndexedRule> {
        let candidates = self.fields.candidates_for_anyone(query).into_iter();
        let candidates = candidates.filter_map(|number| self.rule(number));
        candidates.filter(|rule| query.compare(rule).is_match())
    }

    /// The rules of policies that apply to the user with these `ids`, in order.
    pub(crate) fn rules_for(&self, ids: &[u32]) -> impl Iterator<Item = &IndexedRule> {
        let UserRules { included, excluded } = self.user_rules(ids);
        let included = included.rules().into_iter();
        let rules = included.filter(move |rule| !excluded.contains(*rule));
        rules.filter_map(|rule| self.rule(rule))
    }

    /// The rules of Denies or Allows that have the user with these `ids` among their policy's
    /// subjects, in order.
    pub(crate) fn rules_included(&self, ids: &[u32]) -> impl Iterator<Item = &IndexedRule> {
        let included = self.fields.including_user(ids).rules().into_iter();
        included.filter_map(|rule| self.rule(rule))
    }

    /// The rules of the policies that apply to the user with these `ids`.
    pub(crate) fn user_rules(&self, ids: &[u32]) -> UserRules<'_> {
        let (fields, limits) = (&self.fields, &self.limits);
        UserRules {
            included: fields.including_user(ids).or(limits.including_user(ids)),
            excluded: fields.excluding_user(ids).or(limits.excluding_user(ids)),
        }
    }

    /// All rules, in order.
    pub(crate) fn rules(&self) -> &[IndexedRule] {
        &self.rules
    }

    /// The rules of a policy of this group.
    pub(crate) fn rules_of(&self, policy: &IndexedPolicy) -> &[IndexedRule] {
        let Range { start, end } = policy.rules;
        self.rules.get(start as usize..end as usize).unwrap_or_default()
    }

    fn rule(&self, number: u32) -> Option<&IndexedRule> {
        self.rules.get(number as usize)
    }
}

// === impl UserRules ===

impl UserRules<'_> {
    /// Whether a policy, which must have rules, applies to the user.
    pub(crate) fn compare(&self, policy: &IndexedPolicy) -> RuleMatch {
        let rule = policy.rules.start;
        if self.included.contains(rule) {
            RuleMatch::when(!self.excluded.contains(rule), Criterion::ExcludeSubjects)
        } else {
            RuleMatch::Mismatch(Criterion::Subjects)
        }
    }
}

// === impl IndexedRule ===

impl IndexedRule {
    /// The rule, if it is a resource rule.
    pub(crate) const fn resource_rule(&self) -> Option<&ResourceRule> {
        match &self.rule {
            PolicyRule::Resource(rule) => Some(rule),
            PolicyRule::NonResource(_) => None,
        }
    }
}

impl PolicyRule {
    fn namespace_selector(&self) -> Option<&LabelSelector> {
        match self {
            Self::Resource(rule) => rule.namespace_selector.as_ref(),
            Self::NonResource(_) => None,
        }
    }
}

// === impl PolicyQuery ===

impl PolicyQuery<'_, '_> {
    /// Whether the request is for a path instead of a resource.
    pub(crate) const fn is_for_path(&self) -> bool {
        matches!(self, Self::NonResource(_))
    }

    /// Whether a rule is for this kind of request: for resources, or for paths.
    pub(crate) const fn is_same_kind_as(&self, rule: &IndexedRule) -> bool {
        matches!(
            (self, &rule.rule),
            (Self::Resource(_), PolicyRule::Resource(_)) | (Self::NonResource(_), PolicyRule::NonResource(_))
        )
    }

    /// Whether a rule of a Deny or Allow applies, or a rule of a Limit includes the request,
    /// disregarding subjects.
    pub(crate) fn compare(&self, rule: &IndexedRule) -> RuleMatch {
        let effect = rule.policy.policy.effect;
        match (self, &rule.rule) {
            (Self::Resource(query), PolicyRule::Resource(resource_rule)) => {
                query.compare(effect, resource_rule, rule.selector)
            }
            (Self::NonResource(query), PolicyRule::NonResource(rule)) => {
                compare_path_rule(effect, rule, query.path, query.verb)
            }
            _ => RuleMatch::Mismatch(Criterion::Target),
        }
    }
}

// === impl ValidityCounts ===

impl ValidityCounts {
    fn new(policies: impl Iterator<Item = Validity>) -> Self {
        let mut counts = Self::default();
        for validity in policies {
            let (start, end) = (validity.not_before, validity.not_after);
            if start.zip(end).is_some_and(|(start, end)| end <= start) {
                continue;
            }
            counts.count += 1;
            counts.starts.extend(start);
            counts.ends.extend(end);
        }
        counts.starts.sort_unstable();
        counts.ends.sort_unstable();
        counts
    }

    fn count_at(&self, now: Time) -> usize {
        let to_come = self.starts.len() - self.starts.partition_point(|start| *start <= now);
        let over = self.ends.partition_point(|end| *end <= now);
        // No policy is counted in both: each begins before it ends.
        self.count - to_come - over
    }
}
