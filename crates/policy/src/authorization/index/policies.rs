//! AuthorizationPolicies, and which of their rules may apply to a request.

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

/// The AuthorizationPolicies of a set. Since it follows from them alone, sets with the same
/// policies share it.
#[derive(Debug, Default)]
pub(crate) struct PolicyIndex {
    /// Those in Shadow, then those that refuse, then those that allow, each by name.
    pub(crate) policies: Vec<Arc<IndexedPolicy>>,
    pub(crate) shadow: PolicyGroup,
    /// Denies and Limits.
    pub(crate) deny: PolicyGroup,
    pub(crate) allow: PolicyGroup,
    /// By name. No request meets them.
    pub(crate) invariants: Vec<Arc<AuthorizationInvariant>>,
    pub(crate) selectors: NamespaceSelectors,
    pub(crate) terms: PolicyTerms,
    /// Whether a policy has objectConditions.
    pub(crate) has_object_conditions: bool,
    validities: ValidityCounts,
}

/// A policy of a set.
#[derive(Debug)]
pub(crate) struct IndexedPolicy {
    /// Its place among all policies of the set.
    pub(crate) place: usize,
    /// Its name, as metrics and logs share it.
    pub(crate) name: Arc<str>,
    pub(crate) policy: Arc<AuthorizationPolicy>,
    /// Its rules among those of its group.
    rules: Range<u32>,
}

/// Policies that are walked together.
#[derive(Debug, Default)]
pub(crate) struct PolicyGroup {
    pub(crate) policies: Vec<Arc<IndexedPolicy>>,
    /// In the order of the policies.
    rules: Vec<IndexedRule>,
    /// Of the rules of Denies and Allows.
    fields: RuleFields,
    /// Of the rules of Limits, which apply to all requests but those that they hold.
    limits: RuleFields,
    has_limits: bool,
}

/// A rule of a policy.
#[derive(Debug)]
pub(crate) struct IndexedRule {
    pub(crate) policy: Arc<IndexedPolicy>,
    /// Its number among the policy's rules, the non-resource ones last.
    pub(crate) number: usize,
    pub(crate) rule: PolicyRule,
    /// The number of its `namespaceSelector`.
    selector: Option<u32>,
}

/// A rule of either sort.
#[derive(Debug)]
pub(crate) enum PolicyRule {
    Resource(ResourceRule),
    NonResource(NonResourceRule),
}

/// The rules whose policies are for one user.
pub(crate) struct UserRules<'g> {
    included: FieldMatch<'g>,
    excluded: FieldMatch<'g>,
}

/// The policies in force at a time are counted without looking at each.
#[derive(Debug, Default)]
struct ValidityCounts {
    /// How many policies are in force at some time.
    count: usize,
    /// The first instants of all policies, ascending.
    starts: Vec<Time>,
    /// The ends of all policies, ascending.
    ends: Vec<Time>,
}

/// Which group a policy belongs to, in the order in which groups are walked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PolicyRank {
    Shadow,
    Deny,
    Allow,
    /// With objectConditions: what allows whatever the object is comes first.
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

    /// How many policies are in force at `now`.
    pub(crate) fn count_in_force(&self, now: Time) -> usize {
        self.validities.count_at(now)
    }

    /// When policies begin and end.
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
    /// The group of `policies`, each with its place among all.
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

    /// Whether Limits are among its policies.
    pub(crate) const fn has_limits(&self) -> bool {
        self.has_limits
    }

    /// The Limits for the user of `ids`, in order.
    pub(crate) fn limits_for(&self, ids: &[u32]) -> SmallVec<[&IndexedPolicy; 4]> {
        let excluded = self.limits.of_excluded_subjects(ids);
        let mut found: SmallVec<[&IndexedPolicy; 4]> = SmallVec::new();
        for number in self.limits.of_subjects(ids).rules() {
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

    /// The rules of Limits for the user of `ids` that may hold `query`, in order.
    pub(crate) fn covering_candidates(
        &self,
        query: &PolicyQuery<'_, '_>,
        ids: &[u32],
    ) -> SmallVec<[&IndexedRule; 4]> {
        let numbers = self.limits.candidates(query, || ids);
        numbers.iter().filter_map(|number| self.rule(*number)).collect()
    }

    /// The rules of Denies or Allows that may apply to `query` if the user of `ids` asks, in order.
    /// `ids` is called only where a rule fits in all else.
    pub(crate) fn candidates<'i>(
        &self,
        query: &PolicyQuery<'_, '_>,
        ids: impl FnOnce() -> &'i [u32],
    ) -> SmallVec<[&IndexedRule; 4]> {
        let numbers = self.fields.candidates(query, ids);
        numbers.iter().filter_map(|number| self.rule(*number)).collect()
    }

    /// The rules of Denies or Allows that apply to `query`, leaving subjects aside, in order.
    pub(crate) fn applying_to(&self, query: &PolicyQuery<'_, '_>) -> impl Iterator<Item = &IndexedRule> {
        let candidates = self.fields.candidates_for_anyone(query).into_iter();
        let candidates = candidates.filter_map(|number| self.rule(number));
        candidates.filter(|rule| query.compare(rule).is_match())
    }

    /// The rules of policies for the user of `ids`, in order.
    pub(crate) fn rules_for(&self, ids: &[u32]) -> impl Iterator<Item = &IndexedRule> {
        let UserRules { included, excluded } = self.user_rules(ids);
        let included = included.rules().into_iter();
        let rules = included.filter(move |rule| !excluded.contains(*rule));
        rules.filter_map(|rule| self.rule(rule))
    }

    /// The rules of Denies or Allows one of whose policy's subjects is the user of `ids`, in order.
    pub(crate) fn rules_included(&self, ids: &[u32]) -> impl Iterator<Item = &IndexedRule> {
        let included = self.fields.of_subjects(ids).rules().into_iter();
        included.filter_map(|rule| self.rule(rule))
    }

    /// Which policies are for the user of `ids`.
    pub(crate) fn user_rules(&self, ids: &[u32]) -> UserRules<'_> {
        let (fields, limits) = (&self.fields, &self.limits);
        UserRules {
            included: fields.of_subjects(ids).or(limits.of_subjects(ids)),
            excluded: fields
                .of_excluded_subjects(ids)
                .or(limits.of_excluded_subjects(ids)),
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
    /// Whether a policy that has rules is for the user.
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
    /// The rule, if it is one for resources.
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
    /// Whether it is about a path, and not about a resource.
    pub(crate) const fn is_for_path(&self) -> bool {
        matches!(self, Self::NonResource(_))
    }

    /// Whether a rule is one for requests of this sort: for resources, or for paths.
    pub(crate) const fn is_of_sort(&self, rule: &IndexedRule) -> bool {
        matches!(
            (self, &rule.rule),
            (Self::Resource(_), PolicyRule::Resource(_)) | (Self::NonResource(_), PolicyRule::NonResource(_))
        )
    }

    /// Whether a rule of a Deny or Allow applies, or one of a Limit holds all of it, leaving subjects
    /// aside.
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
        // Of one policy, at most one of both is true: it begins before it ends.
        self.count - to_come - over
    }
}
