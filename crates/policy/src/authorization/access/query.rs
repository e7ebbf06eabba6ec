//! Finds the rules of bindings and Allow policies that may allow a request, the requests that each
//! of them allows, and the Deny policies that touch these. Uses example requests, with names and
//! namespaces that represent all others that no rule distinguishes from them.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use super::{ApplicableDenies, DenyApplicability, OpenRequest, TouchingDenies, Within, may_apply};
use crate::authorization::index::{BoundRole, IndexedPolicy, IndexedRule, PolicyQuery};
use crate::authorization::matching::NamespacePattern;
use crate::authorization::rbac::compare_rule;
use crate::authorization::{AccessGrant, Binding, Criterion, PolicySet, ResourceRule, Role, RuleMatch};
use crate::model::{Attributes, CauseKind, NAMESPACE_NAME_LABEL, Requirement, Selectors, Time, User};

/// An open request, and the policies that may deny it.
pub(crate) struct AccessQuery<'s> {
    set: &'s PolicySet,
    request: &'s OpenRequest,
    denies: TouchingDenies<'s>,
    known: HashMap<GrantScope<'s>, Option<Rc<DenyEffects>>>,
}

/// The requests that a rule allows, in the open parts.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct GrantScope<'s> {
    pub(crate) names: NameSet<'s>,
    pub(crate) namespaces: NameSet<'s>,
    /// The rule, if it belongs to an Allow policy; `None` for RBAC.
    pub(crate) policy: Option<PolicyRulePlace>,
}

/// A rule of an Allow policy: the index of the policy, and that of the rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PolicyRulePlace {
    pub(crate) policy: usize,
    pub(crate) number: usize,
}

/// The effects of Deny policies on the requests that a rule allows.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct DenyEffects {
    /// For each example, the indexes of the policies that touch it. If one is empty, it is the
    /// last.
    tried: Vec<Vec<usize>>,
    /// The indexes of the policies that touch any of the requests.
    touching: BTreeSet<usize>,
}

/// The names or namespaces that a grant is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum NameSet<'s> {
    /// Any.
    Any,
    /// Any of these.
    OneOf(&'s [String]),
    /// This one.
    Only(&'s str),
}

/// A string that no object of an API server has in its name, and no manifest in its rules.
pub(crate) const UNNAMED: &str = "\u{10ffff}";

/// The maximum of examples for one rule. Beyond it, the rule is assumed to allow something, and
/// every Deny to touch some of it.
const MAX_EXAMPLES: usize = 50_000;

/// A rule that may allow a request.
pub(crate) struct GrantingRule<'s> {
    pub(crate) source: GrantSource<'s>,
    /// Its index in the role or policy.
    pub(crate) number: usize,
    pub(crate) granted: GrantScope<'s>,
}

/// The binding or policy to which a rule belongs.
#[derive(Clone, Copy)]
pub(crate) enum GrantSource<'s> {
    /// A binding, and the names to which the rule of its role is limited.
    Binding(&'s Binding, &'s [String]),
    /// A policy, and its rule if that is a resource rule.
    Policy(&'s IndexedPolicy, Option<&'s ResourceRule>),
}

// === impl AccessQuery ===

impl<'s> AccessQuery<'s> {
    /// A query for `request`, which `policies` may deny.
    pub(crate) fn new(
        set: &'s PolicySet,
        request: &'s OpenRequest,
        policies: impl Iterator<Item = &'s IndexedPolicy>,
    ) -> Self {
        Self {
            set,
            request,
            denies: TouchingDenies::touching(set, request, policies),
            known: HashMap::new(),
        }
    }

    /// The effects on the `granted` requests; `None` if there are no such requests. `rule` is the
    /// resource rule of an Allow policy.
    pub(crate) fn effects(
        &mut self,
        granted: GrantScope<'s>,
        rule: Option<&'s ResourceRule>,
    ) -> Option<Rc<DenyEffects>> {
        let mut key = granted;
        if rule.is_none() && !self.denies.depend_on_namespace() && !self.request.is_for_namespaces() {
            // No rule distinguishes between namespaces.
            key.namespaces = NameSet::Any;
        }
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let effects = self.compute_effects(key, rule).map(Rc::new);
        self.known.insert(key, effects.clone());
        effects
    }

    /// Whether any Deny distinguishes between namespaces.
    pub(crate) fn asks_for_namespaces(&self) -> bool {
        self.denies.depend_on_namespace()
    }

    /// The names that occur in Deny policies.
    pub(crate) fn named_by_denies(&self) -> BTreeSet<&'s str> {
        let rules = self.denies.rules.iter();
        rules
            .flat_map(|(_, rule)| rule.names.iter().map(String::as_str))
            .collect()
    }

    fn compute_effects(
        &self,
        granted: GrantScope<'s>,
        rule: Option<&'s ResourceRule>,
    ) -> Option<DenyEffects> {
        let mut effects = DenyEffects::default();
        let all: Vec<&ResourceRule> = self.denies.rules.iter().map(|(_, rule)| *rule).collect();
        let own = rule.map(|rule| &rule.selectors);
        // The narrower the selectors of a request, the more rules allow it, and the fewer deny it.
        let narrow = joined(own.into_iter().chain(all.iter().map(|rule| &rule.selectors)));
        let mut tried = 0;
        for (namespace, name) in self.pairs(granted, rule, &all, false) {
            let example = self.request.example(&namespace, &name, narrow.clone());
            if !self.is_allowed(granted, &example) {
                continue;
            }
            tried += 1;
            let touched = if tried > MAX_EXAMPLES {
                Vec::new()
            } else {
                self.denies.touching_policies(self.set, &example)
            };
            let is_free = touched.is_empty();
            effects.touching.extend(&touched);
            effects.tried.push(touched);
            if is_free {
                break;
            }
        }
        if effects.tried.is_empty() {
            return None;
        }
        self.touch(granted, rule, &mut effects);
        Some(effects)
    }

    /// Adds all policies that touch some `granted` request: the wider its selectors, the more do.
    fn touch(&self, granted: GrantScope<'s>, rule: Option<&'s ResourceRule>, effects: &mut DenyEffects) {
        let wide = rule.map(|rule| rule.selectors.clone()).unwrap_or_default();
        let denies = &self.denies.rules;
        if self.denies.have_limits() {
            // A Limit without a rule for the verb and resource touches every example.
            for (namespace, name) in self.pairs(granted, rule, &[], true) {
                let example = self.request.example(&namespace, &name, wide.clone());
                if self.is_allowed(granted, &example) {
                    effects
                        .touching
                        .extend(self.denies.touching_policies(self.set, &example));
                }
            }
        } else if denies.is_empty() {
            let example = self.request.example("", "", wide);
            effects
                .touching
                .extend(self.denies.touching_policies(self.set, &example));
            return;
        }
        // Rules without names can be tried together.
        let all = denies.iter().map(|(indexed, rule)| (indexed.place, *rule));
        let (named, others): (Vec<_>, Vec<_>) = all.partition(|(_, rule)| !rule.names.is_empty());
        let (places, rules): (Vec<usize>, Vec<&ResourceRule>) = others.into_iter().unzip();
        self.touch_with((granted, rule), (&rules, &places), &wide, effects);
        for (place, deny) in named {
            self.touch_with((granted, rule), (&[deny], &[place]), &wide, effects);
        }
    }

    /// Adds the policies that touch an example that distinguishes between `rules`, until all
    /// policies at `places` have been found.
    fn touch_with(
        &self,
        (granted, rule): (GrantScope<'s>, Option<&'s ResourceRule>),
        (rules, places): (&[&ResourceRule], &[usize]),
        wide: &Selectors<'static>,
        effects: &mut DenyEffects,
    ) {
        let is_left = |effects: &DenyEffects| places.iter().any(|place| !effects.touching.contains(place));
        for (tried, (namespace, name)) in self.pairs(granted, rule, rules, true).into_iter().enumerate() {
            if !is_left(effects) {
                break;
            }
            if tried > MAX_EXAMPLES {
                effects.touching.extend(places);
            }
            let example = self.request.example(&namespace, &name, wide.clone());
            if self.is_allowed(granted, &example) {
                effects
                    .touching
                    .extend(self.denies.touching_policies(self.set, &example));
            }
        }
    }

    /// The namespaces and names of examples that distinguish between `granted` and `denies`. To
    /// escape all of `denies`, a name that no rule contains is the best choice.
    fn pairs(
        &self,
        granted: GrantScope<'s>,
        rule: Option<&'s ResourceRule>,
        denies: &[&ResourceRule],
        to_touch: bool,
    ) -> Vec<(String, String)> {
        let namespaces = match granted.namespaces {
            NameSet::Only(namespace) => vec![namespace.to_owned()],
            NameSet::OneOf(namespaces) => namespaces.to_vec(),
            NameSet::Any => match self.request.within() {
                Within::AnyNamespace => example_namespaces(self.set, rule, denies),
                Within::Namespace(namespace) => vec![namespace.clone()],
                Within::NoNamespace => vec![String::new()],
            },
        };
        let names = match granted.names {
            NameSet::Only(name) => vec![name.to_owned()],
            NameSet::OneOf(names) => names.to_vec(),
            NameSet::Any => self.any_names(rule, denies, to_touch),
        };
        if self.is_for_any_namespace_object() {
            return of_themselves(namespaces, &names, granted.names);
        }
        // If no rule has names, one name represents all.
        let are_named =
            !to_touch || self.request.is_for_namespaces() || denies.iter().any(|rule| !rule.names.is_empty());
        let names = names.get(..1).filter(|_| !are_named).unwrap_or(&names);
        let mut pairs = Vec::new();
        for namespace in &namespaces {
            let room = MAX_EXAMPLES.saturating_sub(pairs.len()) + 1;
            pairs.extend(
                names
                    .iter()
                    .take(room)
                    .map(|name| (namespace.clone(), name.clone())),
            );
        }
        pairs
    }

    /// The names of examples if any name is granted. For requests for Namespaces, the labels of the
    /// named Namespace may matter, too.
    fn any_names(
        &self,
        rule: Option<&'s ResourceRule>,
        denies: &[&ResourceRule],
        to_touch: bool,
    ) -> Vec<String> {
        let mut names = if to_touch {
            example_names(denies)
        } else {
            // A request may escape a Limit with a name that the Limit contains.
            let of_limits = self.denies.names_within_limits().map(str::to_owned);
            [UNNAMED.to_owned()].into_iter().chain(of_limits).collect()
        };
        if self.request.is_for_namespaces() && !self.is_for_any_namespace_object() {
            names.extend(example_namespaces(self.set, rule, denies));
        }
        names
    }

    /// Whether it is for Namespaces of any name, each of which is its own namespace.
    fn is_for_any_namespace_object(&self) -> bool {
        let is_anywhere = matches!(self.request.within(), Within::AnyNamespace);
        self.request.is_for_namespaces() && self.request.is_name_open() && is_anywhere
    }

    /// Whether the `granted` rule allows an example. For RBAC this is known already.
    fn is_allowed(&self, granted: GrantScope<'s>, example: &Attributes<'_>) -> bool {
        let Some(place) = granted.policy else {
            return true;
        };
        let query = self.set.query(example);
        let mut applying = self.set.policies.allow.applying_to(&query);
        applying.any(|rule| (rule.policy.place, rule.number) == (place.policy, place.number))
    }
}

/// Pairs of names and namespaces for requests for Namespaces, which are in the namespace that they
/// name.
fn of_themselves(namespaces: Vec<String>, names: &[String], part: NameSet<'_>) -> Vec<(String, String)> {
    let itself = |name: String| (name.clone(), name);
    match part {
        NameSet::Any => namespaces.into_iter().map(itself).collect(),
        _ if namespaces.len() == 1 => {
            let own = names
                .iter()
                .filter(|name| namespaces.contains(name) || name.is_empty());
            own.cloned().map(itself).collect()
        }
        _ => names.iter().cloned().map(itself).collect(),
    }
}

/// All requirements together.
fn joined<'a>(selectors: impl Iterator<Item = &'a Selectors<'static>>) -> Selectors<'a> {
    let mut all = Selectors::default();
    for one in selectors {
        let list = |from: &'a [Requirement<'a>]| from.iter().cloned();
        all.field.extend(list(&one.field));
        all.label.extend(list(&one.label));
    }
    all
}

/// The namespaces that distinguish between `rules` and `own`; also those whose labels are known, if
/// rules depend on labels or patterns.
fn example_namespaces(set: &PolicySet, own: Option<&ResourceRule>, rules: &[&ResourceRule]) -> Vec<String> {
    let mut found = vec![UNNAMED.to_owned(), String::new()];
    let mut asks = false;
    for rule in own.iter().chain(rules) {
        asks |= rule.depends_on_namespace();
        let patterns = rule.namespaces.iter().chain(&rule.exclude_namespaces);
        found.extend(patterns.map(example_of));
        let selector = rule.namespace_selector.iter();
        let named = selector.flat_map(|selector| selector.listed_values(NAMESPACE_NAME_LABEL));
        found.extend(named.map(str::to_owned));
    }
    // A namespace named by a selector may match a pattern, and the prefix of one pattern may match
    // another.
    if asks {
        found.extend(set.namespaces.known().map(str::to_owned));
    }
    let mut seen = HashSet::new();
    found.retain(|namespace| seen.insert(namespace.clone()));
    found
}

/// The names that distinguish between `rules`.
fn example_names(rules: &[&ResourceRule]) -> Vec<String> {
    let mut found = vec![UNNAMED.to_owned()];
    // Whether a request has a name only matters to rules with names.
    if rules.iter().any(|rule| !rule.names.is_empty()) {
        found.push(String::new());
        found.extend(rules.iter().flat_map(|rule| rule.names.iter().cloned()));
    }
    found
}

fn example_of(pattern: &NamespacePattern) -> String {
    match pattern {
        NamespacePattern::ClusterScope => String::new(),
        NamespacePattern::Named(name) => name.clone(),
        NamespacePattern::Prefix(prefix) => format!("{prefix}{UNNAMED}"),
    }
}

// === impl DenyEffects ===

impl DenyEffects {
    /// Whether some request remains that no Deny policy that always applies touches.
    pub(crate) fn leave_some(&self, denies: &ApplicableDenies<'_>) -> bool {
        let stops = |place: &usize| is_certain(denies, *place);
        self.tried.iter().any(|touched| !touched.iter().any(stops))
    }

    /// The indexes of the Deny policies that always apply and touch some example: those that refute
    /// the grant if nothing remains.
    pub(crate) fn refuted_by(&self, denies: &ApplicableDenies<'_>) -> BTreeSet<usize> {
        let touching = self.tried.iter().flatten().copied();
        touching.filter(|place| is_certain(denies, *place)).collect()
    }

    /// The indexes of the Deny policies that touch some request.
    pub(crate) fn touching(&self) -> impl Iterator<Item = usize> + '_ {
        self.touching.iter().copied()
    }

    /// The indexes of the Deny policies that touch some request and may apply.
    pub(crate) fn denied_by<'e>(
        &'e self,
        denies: &'e ApplicableDenies<'_>,
    ) -> impl Iterator<Item = usize> + 'e {
        let may_apply = |place: &&usize| {
            denies
                .get(place)
                .is_some_and(|(_, applicability)| *applicability != DenyApplicability::Never)
        };
        self.touching.iter().filter(may_apply).copied()
    }
}

/// Whether the Deny policy at the index `place` always applies.
fn is_certain(denies: &ApplicableDenies<'_>, place: usize) -> bool {
    let found = denies.get(&place);
    found.is_some_and(|(_, applicability)| *applicability == DenyApplicability::Always)
}

// === impl GrantSource ===

impl<'s> GrantSource<'s> {
    pub(crate) const fn kind(self) -> CauseKind {
        match self {
            Self::Binding(binding, _) => binding.kind(),
            Self::Policy(..) => CauseKind::AuthorizationPolicy,
        }
    }

    /// The namespace and name.
    pub(crate) fn names(self) -> (&'s str, &'s str) {
        match self {
            Self::Binding(binding, _) => (&binding.namespace, &binding.name),
            Self::Policy(indexed, _) => ("", &indexed.name),
        }
    }

    /// The resource rule of an Allow policy.
    pub(crate) const fn rule(self) -> Option<&'s ResourceRule> {
        match self {
            Self::Binding(..) => None,
            Self::Policy(_, rule) => rule,
        }
    }
}

// === impl PolicySet ===

impl PolicySet {
    /// This set with a binding in place of each AccessRequest in force at `now`, only those of
    /// `user` if one is given: for queries that leave the user or the request open. `None` if there
    /// is none in force. Lifted policies are not taken into account.
    pub(crate) fn with_access_requests_bound(&self, user: Option<&User<'_>>, now: Time) -> Option<Self> {
        let grants = self.access_grants.as_deref()?.in_force(now);
        let own = grants.into_iter();
        let own = own.filter(|grant| user.is_none_or(|user| grant.request.is_requested_by(user)));
        let bindings: Vec<Arc<Binding>> = own.flat_map(AccessGrant::bindings).map(Arc::new).collect();
        let mut set = Self {
            access_grants: None,
            ..self.clone()
        };
        set.bindings.add(&bindings, &set.roles);
        Some(set)
    }

    /// The rules of `bindings` that allow `request`, except perhaps for its name.
    pub(crate) fn granted_by_bindings<'s>(
        &'s self,
        request: &'s OpenRequest,
        bindings: impl Iterator<Item = &'s BoundRole>,
    ) -> Vec<GrantingRule<'s>> {
        let mut fitting: HashMap<*const Role, Vec<(usize, &'s [String])>> = HashMap::new();
        let mut granting = Vec::new();
        for BoundRole { binding, role } in bindings {
            let (Some(role), Some(namespaces)) = (role, namespaces_of(request.within(), binding)) else {
                continue;
            };
            let rules = fitting.entry(Arc::as_ptr(role));
            let rules = rules.or_insert_with(|| fitting_rules(role, request));
            granting.extend(rules.iter().map(|&(number, names)| GrantingRule {
                source: GrantSource::Binding(binding, names),
                number,
                granted: GrantScope {
                    names: names_of(request, names),
                    namespaces,
                    policy: None,
                },
            }));
        }
        granting
    }

    /// The rules of Allow policies in force that may allow `request`.
    pub(crate) fn granted_by_policies<'s>(
        &'s self,
        request: &'s OpenRequest,
        now: Time,
    ) -> Vec<GrantingRule<'s>> {
        let example = request.example("", request.name(), <_>::default());
        let query = self.query(&example);
        let is_granting = |rule: &&IndexedRule| {
            rule.policy.policy.validity.contains(now)
                && self.may_grant(&rule.policy.policy)
                && match query {
                    PolicyQuery::Resource(_) => may_apply(&query, rule),
                    PolicyQuery::NonResource(_) => query.compare(rule).is_match(),
                }
        };
        let rules = self.policies.allow.rules().iter().filter(is_granting);
        let granting = |indexed: &'s IndexedRule| {
            let rule = indexed.resource_rule();
            GrantingRule {
                source: GrantSource::Policy(&indexed.policy, rule),
                number: indexed.number,
                granted: GrantScope {
                    names: names_of(request, rule.map_or(&[][..], |rule| rule.names.as_slice())),
                    namespaces: NameSet::Any,
                    policy: Some(PolicyRulePlace {
                        policy: indexed.policy.place,
                        number: indexed.number,
                    }),
                },
            }
        };
        rules.map(granting).collect()
    }
}

/// The rules of a role that allow `request`, except perhaps for its name, and the names to which
/// each is limited.
pub(crate) fn fitting_rules<'s>(role: &'s Role, request: &OpenRequest) -> Vec<(usize, &'s [String])> {
    let example = request.example("", request.name(), <_>::default());
    let mut fitting = Vec::new();
    for (number, rule) in role.rules.iter().enumerate() {
        match compare_rule(rule, &example) {
            RuleMatch::Match => fitting.push((number, rule.resource_names.as_slice())),
            RuleMatch::Mismatch(Criterion::Names) if request.is_name_open() => {
                fitting.push((number, rule.resource_names.as_slice()));
            }
            RuleMatch::Mismatch(_) => {}
        }
    }
    fitting
}

/// The requested namespaces in which a binding grants its role; `None` if there are none.
pub(crate) fn namespaces_of<'s>(within: &'s Within, binding: &'s Binding) -> Option<NameSet<'s>> {
    let namespace = binding.namespace.as_str();
    match within {
        _ if namespace.is_empty() => Some(NameSet::Any),
        Within::NoNamespace => None,
        Within::Namespace(asked) => (asked == namespace).then_some(NameSet::Only(namespace)),
        Within::AnyNamespace => Some(NameSet::Only(namespace)),
    }
}

pub(crate) fn names_of<'s>(request: &'s OpenRequest, names: &'s [String]) -> NameSet<'s> {
    if !request.is_name_open() {
        NameSet::Only(request.name())
    } else if names.is_empty() {
        NameSet::Any
    } else {
        NameSet::OneOf(names)
    }
}
