//! The Deny policies that may touch a request that leaves something open.

use std::collections::{BTreeMap, BTreeSet};

use crate::authorization::index::{IndexedPolicy, IndexedRule, PolicyQuery};
use crate::authorization::{AuthorizationPolicy, Criterion, PolicySet, ResourceRule, RuleMatch};
use crate::engine::{Attributes, Target, Time, User};

use super::open_request::OpenRequest;
use super::population::Population;

/// How far a Deny policy holds for some users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    /// For none of them.
    Never,
    /// For some of them or, where it has conditions, for some of their requests.
    Perhaps,
    /// For all of them, whatever else they ask.
    Always,
}

/// The Deny policies in force, by place, with how far they hold for whom it is about.
pub(super) type Holds<'s> = BTreeMap<usize, (&'s IndexedPolicy, Hold)>;

/// The rules of Deny policies that may touch a request.
pub(super) struct TouchingDenies<'s> {
    /// The policies in force that are looked at, by place.
    policies: BTreeMap<usize, &'s IndexedPolicy>,
    /// Their rules that name the verb, group and resource.
    pub(super) rules: Vec<(&'s IndexedPolicy, &'s ResourceRule)>,
}

// === impl TouchingDenies ===

impl<'s> TouchingDenies<'s> {
    /// Those of `policies` that may touch `request`.
    pub(super) fn touching(
        set: &'s PolicySet,
        request: &OpenRequest,
        policies: impl Iterator<Item = &'s IndexedPolicy>,
    ) -> Self {
        let policies: BTreeMap<usize, &IndexedPolicy> =
            policies.map(|listed| (listed.place, listed)).collect();
        let mut rules = Vec::new();
        let example = request.example("", request.name(), <_>::default());
        let query = set.query(&example);
        for indexed in set.policies.deny.rules() {
            if let Some(rule) = indexed.resource_rule()
                && policies.contains_key(&indexed.policy.place)
                && may_apply(&query, indexed)
            {
                rules.push((&*indexed.policy, rule));
            }
        }
        Self { policies, rules }
    }

    /// The places of those that touch a request, ascending, each once.
    pub(super) fn of(&self, set: &'s PolicySet, attributes: &Attributes<'_>) -> Vec<usize> {
        let is_idle = matches!(attributes.target, Target::Resource(_)) && self.rules.is_empty();
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
        places.dedup();
        places
    }

    /// Whether some touch a request or not according to its namespace.
    pub(super) fn ask_for_namespaces(&self) -> bool {
        let asks = |rule: &ResourceRule| !rule.namespaces.is_empty() || rule.namespace_selector.is_some();
        self.rules.iter().any(|(_, rule)| asks(rule))
    }
}

// === impl PolicySet ===

impl PolicySet {
    /// The numbers by which a request is looked up.
    pub(super) fn query<'s, 'r>(&'s self, attributes: &'r Attributes<'r>) -> PolicyQuery<'s, 'r> {
        PolicyQuery::new(
            attributes,
            &self.policies.terms,
            &self.namespaces,
            &self.cluster_scoped,
        )
    }

    /// How far the Deny policies at `places` hold for `population`.
    pub(super) fn holds_for<'s>(
        &'s self,
        population: &Population,
        places: &BTreeSet<usize>,
        now: Time,
    ) -> Holds<'s> {
        let is_protected = population.is_protected(&self.never_deny);
        let may_be_protected = population.may_be_protected(self.never_deny());
        let of = |listed: &'s IndexedPolicy| {
            let hold = match hold(&listed.policy, population) {
                _ if is_protected => Hold::Never,
                Hold::Always if may_be_protected => Hold::Perhaps,
                hold => hold,
            };
            (listed.place, (listed, hold))
        };
        let policies = self.denies_in_force(now);
        policies
            .filter(|listed| places.contains(&listed.place))
            .map(of)
            .collect()
    }

    /// The Deny policies in force, with how far they hold for `user`, of whom all groups are known.
    pub(super) fn holds_for_user(&self, user: &User<'_>, now: Time) -> Holds<'_> {
        let mut holds = Holds::new();
        if self.never_deny.matches_user(user) {
            return holds;
        }
        let user = self.policies.terms.ids_of(user);
        for rule in self.policies.deny.rules_for(&user) {
            let listed = &*rule.policy;
            if listed.policy.validity.contains(now) {
                let is_certain = listed.policy.conditions.is_empty();
                let hold = if is_certain { Hold::Always } else { Hold::Perhaps };
                holds.insert(listed.place, (listed, hold));
            }
        }
        holds
    }

    pub(super) fn denies_in_force(&self, now: Time) -> impl Iterator<Item = &IndexedPolicy> {
        let policies = self.policies.deny.policies.iter().map(AsRef::as_ref);
        policies.filter(move |listed| listed.policy.validity.contains(now))
    }
}

/// Whether a rule names the verb, group and resource of `query`; whether the rest of it fits is
/// not asked.
pub(super) fn may_apply(query: &PolicyQuery<'_, '_>, rule: &IndexedRule) -> bool {
    !matches!(
        query.compare(rule),
        RuleMatch::Mismatch(
            Criterion::Target | Criterion::Verbs | Criterion::ApiGroups | Criterion::Resources
        )
    )
}

fn hold(policy: &AuthorizationPolicy, population: &Population) -> Hold {
    let (subjects, excluded) = (&policy.subjects, &policy.exclude_subjects);
    let may_meet = subjects.iter().any(|subject| population.may_meet(subject));
    if !may_meet || excluded.iter().any(|subject| population.is_within(subject)) {
        Hold::Never
    } else if policy.conditions.is_empty()
        && subjects.iter().any(|subject| population.is_within(subject))
        && !excluded.iter().any(|subject| population.may_meet(subject))
    {
        Hold::Always
    } else {
        Hold::Perhaps
    }
}
