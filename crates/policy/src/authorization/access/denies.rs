//! The Deny policies that may touch a request that leaves something open. A Limit is one that touches
//! whatever none of its rules holds.

use std::collections::{BTreeMap, BTreeSet};

use crate::authorization::index::{IndexedPolicy, IndexedRule, PolicyQuery};
use crate::authorization::{AuthorizationPolicy, Criterion, Effect, PolicySet, ResourceRule, RuleMatch};
use crate::model::{Attributes, Target, Time, User};

use super::OpenRequest;
use super::subject_scope::SubjectScope;

/// Whether a Deny or Limit applies to some users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DenyApplicability {
    /// For none of them.
    Never,
    /// For some of them or, where it has conditions, for some of their requests.
    Possibly,
    /// For all of them, whatever else they ask.
    Always,
}

/// The Denies and Limits in force, by place, and whether each applies.
pub(crate) type ApplicableDenies<'s> = BTreeMap<usize, (&'s IndexedPolicy, DenyApplicability)>;

/// The rules of Denies that may touch a request, and of Limits that may hold it.
pub(crate) struct TouchingDenies<'s> {
    /// The policies in force, by place.
    policies: BTreeMap<usize, &'s IndexedPolicy>,
    /// The Limits among them that are for requests of this sort.
    limits: Vec<&'s IndexedPolicy>,
    /// Their rules that name the verb, group and resource.
    pub(crate) rules: Vec<(&'s IndexedPolicy, &'s ResourceRule)>,
}

// === impl TouchingDenies ===

impl<'s> TouchingDenies<'s> {
    /// Those of `policies` that may touch `request`.
    pub(crate) fn touching(
        set: &'s PolicySet,
        request: &OpenRequest,
        policies: impl Iterator<Item = &'s IndexedPolicy>,
    ) -> Self {
        let policies: BTreeMap<usize, &IndexedPolicy> =
            policies.map(|indexed| (indexed.place, indexed)).collect();
        let mut rules = Vec::new();
        let example = request.example("", request.name(), <_>::default());
        let query = set.query(&example);
        let is_path = query.is_for_path();
        let of_sort = policies
            .values()
            .filter(|indexed| indexed.policy.limits_requests(is_path));
        let limits = of_sort.copied().collect();
        for indexed in set.policies.deny.rules() {
            if let Some(rule) = indexed.resource_rule()
                && policies.contains_key(&indexed.policy.place)
                && may_apply(&query, indexed)
            {
                rules.push((&*indexed.policy, rule));
            }
        }
        Self {
            policies,
            limits,
            rules,
        }
    }

    /// The places of those that touch a request, ascending, each once.
    pub(crate) fn of(&self, set: &'s PolicySet, attributes: &Attributes<'_>) -> Vec<usize> {
        let is_resource = matches!(attributes.target, Target::Resource(_));
        let is_idle = is_resource && self.rules.is_empty() && self.limits.is_empty();
        if is_idle || self.policies.is_empty() || set.is_protected(attributes) {
            return Vec::new();
        }
        let query = set.query(attributes);
        let places = set
            .policies
            .deny
            .applying_to(&query)
            .map(|rule| rule.policy.place);
        let mut places: Vec<usize> = places.filter(|place| self.policies.contains_key(place)).collect();
        if !self.limits.is_empty() {
            let deny = &set.policies.deny;
            let holds = |limit: &&IndexedPolicy| {
                let mut rules = deny.rules_of(limit).iter();
                rules.any(|rule| query.is_of_sort(rule) && query.compare(rule).is_match())
            };
            let beyond = self.limits.iter().filter(|limit| !holds(limit));
            places.extend(beyond.map(|limit| limit.place));
            places.sort_unstable();
        }
        places.dedup();
        places
    }

    /// Whether there are Limits among them.
    pub(crate) fn have_limits(&self) -> bool {
        !self.limits.is_empty()
    }

    /// The names that rules of Limits name.
    pub(crate) fn names_within_limits(&self) -> impl Iterator<Item = &'s str> {
        let rules = self.rules.iter();
        let of_limits = rules.filter(|(indexed, _)| indexed.policy.effect == Effect::Limit);
        of_limits.flat_map(|(_, rule)| rule.names.iter().map(String::as_str))
    }

    /// Whether some touch a request or not according to its namespace.
    pub(crate) fn ask_for_namespaces(&self) -> bool {
        self.rules.iter().any(|(_, rule)| rule.asks_for_namespaces())
    }
}

// === impl PolicySet ===

impl PolicySet {
    /// The numbers by which a request is looked up.
    pub(crate) fn query<'s, 'r>(&'s self, attributes: &'r Attributes<'r>) -> PolicyQuery<'s, 'r> {
        PolicyQuery::new(
            attributes,
            &self.policies.terms,
            &self.namespaces,
            &self.cluster_scoped,
        )
    }

    /// Whether the Denies and Limits at `places` apply to the users of `scope`.
    pub(crate) fn denies_for<'s>(
        &'s self,
        scope: &SubjectScope,
        places: &BTreeSet<usize>,
        now: Time,
    ) -> ApplicableDenies<'s> {
        let is_protected = scope.is_protected(&self.never_deny);
        let may_be_protected = scope.may_be_protected(self.never_deny());
        let of = |indexed: &'s IndexedPolicy| {
            let applicability = match applicability(&indexed.policy, scope) {
                _ if is_protected => DenyApplicability::Never,
                DenyApplicability::Always if may_be_protected => DenyApplicability::Possibly,
                applicability => applicability,
            };
            (indexed.place, (indexed, applicability))
        };
        let policies = self.denies_in_force(now);
        policies
            .filter(|indexed| places.contains(&indexed.place))
            .map(of)
            .collect()
    }

    /// The Denies and Limits in force that apply to `user`, of whom all groups are known.
    pub(crate) fn denies_for_user(&self, user: &User<'_>, now: Time) -> ApplicableDenies<'_> {
        let mut denies = ApplicableDenies::new();
        if self.never_deny.matches_user(user) {
            return denies;
        }
        let user = self.policies.terms.ids_of(user);
        for rule in self.policies.deny.rules_for(&user) {
            let indexed = &*rule.policy;
            if indexed.policy.validity.contains(now) {
                let is_certain = indexed.policy.is_unconditional();
                let applicability = if is_certain {
                    DenyApplicability::Always
                } else {
                    DenyApplicability::Possibly
                };
                denies.insert(indexed.place, (indexed, applicability));
            }
        }
        denies
    }

    pub(crate) fn denies_in_force(&self, now: Time) -> impl Iterator<Item = &IndexedPolicy> {
        let policies = self.policies.deny.policies.iter().map(AsRef::as_ref);
        policies.filter(move |indexed| indexed.policy.validity.contains(now))
    }
}

/// Whether a rule names the verb, group and resource of `query`; whether the rest of it fits is
/// not asked.
pub(crate) fn may_apply(query: &PolicyQuery<'_, '_>, rule: &IndexedRule) -> bool {
    !matches!(
        query.compare(rule),
        RuleMatch::Mismatch(
            Criterion::Target | Criterion::Verbs | Criterion::ApiGroups | Criterion::Resources
        )
    )
}

fn applicability(policy: &AuthorizationPolicy, scope: &SubjectScope) -> DenyApplicability {
    let (subjects, excluded) = (&policy.subjects, &policy.exclude_subjects);
    let may_meet = subjects.iter().any(|subject| scope.may_meet(subject));
    if !may_meet || excluded.iter().any(|subject| scope.is_within(subject)) {
        DenyApplicability::Never
    } else if policy.is_unconditional()
        && subjects.iter().any(|subject| scope.is_within(subject))
        && !excluded.iter().any(|subject| scope.may_meet(subject))
    {
        DenyApplicability::Always
    } else {
        DenyApplicability::Possibly
    }
}
