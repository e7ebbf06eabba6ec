//! Lists all subjects that may do something, with the objects that allow it, and their limits.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use super::query::{
    self, AccessQuery, DenyEffects, GrantScope, GrantSource, GrantingRule, NameSet, PolicyRulePlace,
};
use super::requests::{RuleTerms, requests_of_rule, shared_requests};
use super::subject_scope::SubjectScope;
use super::{ApplicableDenies, DenyApplicability, OpenRequest, Openness, Within};
use crate::authorization::index::{BoundRole, IndexedPolicy};
use crate::authorization::{Binding, Effect, PolicySet, ResourceRule, Rule, Subject};
use crate::model::{CauseKind, Deadline, Time, User};

/// The maximum of rules, names and words in a result. The number of subjects times the number of
/// policies that may deny them can exceed the memory of the process.
pub(crate) const MAX_ANSWER_ENTRIES: usize = 2_000_000;

/// A subject that may do what was queried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grantee {
    /// The subject; a service account always has its namespace.
    pub subject: Subject,
    /// Whether the `*` at the end of its name makes it a prefix.
    pub is_pattern: bool,
    /// The rules that allow it, in the order in which they are tried. Empty for `system:masters`,
    /// to which an API server allows everything without calling an authorizer.
    pub via: Vec<Via>,
    /// The names of the Deny policies that may deny it to some of these users, or for some
    /// requests.
    pub denied_by: Vec<Arc<str>>,
}

/// A rule that allows something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Via {
    /// The kind of the object.
    pub kind: CauseKind,
    /// Its namespace, to which it is restricted; empty for all.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The rule, numbered as in [`Cause::rule`](crate::model::Cause::rule).
    pub rule: usize,
    /// Restrictions on the requests, in the words of a manifest's fields. If empty, it allows all
    /// requests that were queried.
    pub limits: Vec<String>,
}

/// The rules found for each scope, with the effects of Deny policies.
type GrantsByScope = BTreeMap<SubjectScope, Vec<(Via, Rc<DenyEffects>)>>;

impl PolicySet {
    /// Lists all subjects that may do what `request` asks, at `now`, by kind and name.
    ///
    /// A user whom no listed subject matches, by name, group or pattern, may not. A Deny policy
    /// removes a subject if it certainly applies to all its users and to everything that they may
    /// do; if it may apply, it is listed with the subject. A user may be in any group.
    /// `system:masters` is always listed and never denied, because an API server does not call an
    /// authorizer.
    ///
    /// Takes time linear in the bindings, the policies and the result. `None` if the deadline
    /// passes, or the result would have more than 2,000,000 entries.
    #[must_use]
    pub fn who_can(&self, request: &OpenRequest, now: Time, deadline: Deadline<'_>) -> Option<Vec<Grantee>> {
        if let Some(set) = self.with_access_requests_bound(None, now) {
            return set.who_can(request, now, deadline);
        }
        let mut room = MAX_ANSWER_ENTRIES;
        let request = request.clone().normalized(&self.cluster_scoped);
        let mut query = AccessQuery::new(self, &request, self.denies_in_force(now));
        let mut found = GrantsByScope::new();
        found.insert(SubjectScope::masters(), Vec::new());
        let of_bindings = self.granted_by_bindings(&request, self.bindings.iter());
        for granting in of_bindings
            .into_iter()
            .chain(self.granted_by_policies(&request, now))
        {
            if let Some(effects) = query.effects(granting.granted, granting.source.rule()) {
                let noted = note(&mut found, &request, &granting, &effects);
                room = room.checked_sub(noted)?;
            }
            if deadline.has_passed() {
                return None;
            }
        }
        let mut grantees = Vec::new();
        for (scope, via) in found {
            let grantee = self.grantee(&scope, via, now);
            let denied_by = grantee.as_ref().map_or(0, |grantee| grantee.denied_by.len());
            room = room.checked_sub(denied_by).filter(|_| !deadline.has_passed())?;
            grantees.extend(grantee);
        }
        grantees.sort_by(|one, other| one.place().cmp(&other.place()));
        Some(grantees)
    }

    /// The subject of `scope`, if Deny policies leave some of what was found.
    fn grantee(
        &self,
        scope: &SubjectScope,
        mut found: Vec<(Via, Rc<DenyEffects>)>,
        now: Time,
    ) -> Option<Grantee> {
        let mut denied_by = Vec::new();
        if !scope.is_masters() {
            let touching: BTreeSet<usize> =
                found.iter().flat_map(|(_, effects)| effects.touching()).collect();
            let denies = self.denies_for(scope, &touching, now);
            found.retain(|(_, effects)| effects.leave_some(&denies));
            let places = found.iter().flat_map(|(_, effects)| effects.denied_by(&denies));
            let places: BTreeSet<usize> = places.collect();
            let names = places.iter().filter_map(|place| denies.get(place));
            denied_by = names.map(|(indexed, _)| indexed.name.clone()).collect();
            if found.is_empty() {
                return None;
            }
        }
        let (subject, is_pattern) = scope.subject();
        Some(Grantee {
            subject,
            is_pattern,
            via: found.into_iter().map(|(via, _)| via).collect(),
            denied_by,
        })
    }
}

impl Grantee {
    /// The sort key: kind, namespace and name.
    fn place(&self) -> (&'static str, &str, &str) {
        let Subject {
            kind,
            name,
            namespace,
        } = &self.subject;
        (kind.as_str(), namespace, name)
    }
}

/// Adds what a rule grants to each of its subjects. Returns their number.
fn note(
    found: &mut GrantsByScope,
    request: &OpenRequest,
    granting: &GrantingRule<'_>,
    effects: &Rc<DenyEffects>,
) -> usize {
    let subjects: BTreeSet<SubjectScope> = match granting.source {
        GrantSource::Binding(binding, _) => {
            let subjects = binding.subjects.iter();
            subjects
                .filter_map(|subject| SubjectScope::of_binding(subject, &binding.namespace))
                .collect()
        }
        GrantSource::Policy(indexed, _) => {
            let policy = &indexed.policy;
            let included = policy.subjects.iter().filter_map(SubjectScope::of_policy);
            let is_out = |scope: &SubjectScope| {
                let mut excluded = policy.exclude_subjects.iter();
                excluded.any(|subject| scope.is_matched_by(subject))
            };
            included.filter(|scope| !is_out(scope)).collect()
        }
    };
    let count = subjects.len();
    for scope in subjects {
        let via = via(request, granting, &scope);
        let entry = found.entry(scope).or_default();
        entry.push((via, Rc::clone(effects)));
    }
    count
}

fn via(request: &OpenRequest, granting: &GrantingRule<'_>, scope: &SubjectScope) -> Via {
    let open = request.openness();
    let limits = match granting.source {
        GrantSource::Binding(_, names) if open.name => super::limits_of_names(names).into_iter().collect(),
        GrantSource::Binding(..) => Vec::new(),
        GrantSource::Policy(indexed, rule) => {
            let policy = &indexed.policy;
            let of_rule = rule.map(|rule| super::limits_of_rule(policy.effect, rule, open));
            let mut limits = of_rule.unwrap_or_default();
            limits.extend(super::limits_of_policy(policy, Some(scope)));
            limits
        }
    };
    granting.source.via(granting.number, limits)
}

impl GrantSource<'_> {
    /// The rule with this index, as it is reported.
    pub(crate) fn via(self, rule: usize, mut limits: Vec<String>) -> Via {
        if let Self::Binding(Binding { until: Some(end), .. }, _) = self {
            limits.push(format!("until {end}"));
        }
        let (namespace, name) = self.names();
        Via {
            kind: self.kind(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            rule,
            limits,
        }
    }
}

// Lists everything that a user may do, rule by rule.

/// A rule that allows a user something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permission {
    /// As written; empty if the rule has none.
    pub verbs: Vec<String>,
    /// As written.
    pub api_groups: Vec<String>,
    /// As written.
    pub resources: Vec<String>,
    /// The names of objects; empty for all.
    pub names: Vec<String>,
    /// As written; empty for a rule of a RoleBinding.
    pub paths: Vec<String>,
    /// The object that allows it, and its limits except for `names`.
    pub via: Via,
    /// The names of the Deny policies that may deny some of it.
    pub denied_by: Vec<Arc<str>>,
}

/// How much of what an [`OpenRequest`] leaves open is allowed to a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AllowedShare {
    /// Nothing.
    None,
    /// Some of it: there are limits, or Deny policies that may apply.
    Partial,
    /// All of it.
    Full,
}

impl PolicySet {
    /// The rules that allow `user` something at `now`, in the order in which they are tried. The
    /// user has exactly the given groups.
    ///
    /// A rule is left out if Deny policies deny everything that it allows. `None` if the deadline
    /// passes, or the result would have more than 2,000,000 words.
    #[must_use]
    pub fn what_can(
        &self,
        user: &User<'_>,
        within: &Within,
        now: Time,
        deadline: Deadline<'_>,
    ) -> Option<Vec<Permission>> {
        if let Some(set) = self.with_access_requests_bound(Some(user), now) {
            return set.what_can(user, within, now, deadline);
        }
        let denies = self.denies_for_user(user, now);
        let (mut found, mut room) = (Vec::new(), MAX_ANSWER_ENTRIES);
        for BoundRole { binding, role } in self.bindings.bindings_of_user(user) {
            let is_elsewhere = match within {
                Within::AnyNamespace => false,
                Within::Namespace(namespace) => binding.namespace != *namespace,
                Within::NoNamespace => true,
            };
            if is_elsewhere && !binding.namespace.is_empty() {
                continue;
            }
            let rules = role.iter().flat_map(|role| &role.rules);
            for (number, rule) in rules.enumerate() {
                let terms = RuleTerms::of_role(rule, binding);
                let source = GrantSource::Binding(binding, &rule.resource_names);
                let left = self.remaining(source, number, &terms, (within, &denies, deadline));
                if deadline.has_passed() {
                    return None;
                }
                if let Some(denied_by) = left {
                    let permission = of_binding(binding, rule, number, denied_by);
                    room = room.checked_sub(permission.entries())?;
                    found.push(permission);
                }
            }
        }
        for rule in self.policies.allow.rules_for(&self.policies.terms.ids_of(user)) {
            let (indexed, number) = (&*rule.policy, rule.number);
            let terms = RuleTerms::of_policy(rule);
            let rule = rule.resource_rule();
            let source = GrantSource::Policy(indexed, rule);
            if indexed.policy.validity.contains(now)
                && self.may_grant(&indexed.policy)
                && let Some(denied_by) = self.remaining(source, number, &terms, (within, &denies, deadline))
            {
                let permission = of_policy((indexed, rule), number, &terms, (within, denied_by));
                room = room.checked_sub(permission.entries())?;
                found.push(permission);
            }
            if deadline.has_passed() {
                return None;
            }
        }
        Some(found)
    }

    /// How much of `request` is allowed to `user` at `now`.
    #[must_use]
    pub fn allowance(&self, user: &User<'_>, request: &OpenRequest, now: Time) -> AllowedShare {
        let request = request.clone().normalized(&self.cluster_scoped);
        let denies = self.denies_for_user(user, now);
        let mut query = AccessQuery::new(self, &request, denies.values().map(|(indexed, _)| *indexed));
        let ids = self.policies.terms.ids_of(user);
        let about = self.policies.allow.rules_for(&ids);
        let about: BTreeSet<usize> = about.map(|rule| rule.policy.place).collect();
        let of_policies = self.granted_by_policies(&request, now).into_iter();
        let of_policies = of_policies.filter(|granting| match granting.source {
            GrantSource::Policy(indexed, _) => about.contains(&indexed.place),
            GrantSource::Binding(..) => false,
        });
        let of_bindings =
            self.granted_by_bindings(&request, self.bindings.bindings_of_user(user).into_iter());
        let mut most = AllowedShare::None;
        for granting in of_bindings.into_iter().chain(of_policies) {
            let Some(effects) = query.effects(granting.granted, granting.source.rule()) else {
                continue;
            };
            if effects.leave_some(&denies) {
                let is_whole = granting.is_unlimited(&request) && effects.denied_by(&denies).next().is_none();
                most = most.max(if is_whole {
                    AllowedShare::Full
                } else {
                    AllowedShare::Partial
                });
            }
        }
        most
    }

    /// The names of the Deny policies that may deny some of what a rule allows; `None` if they deny
    /// all of it. The result is unreliable once the deadline has passed.
    fn remaining(
        &self,
        source: GrantSource<'_>,
        number: usize,
        terms: &RuleTerms<'_>,
        (within, denies, deadline): (&Within, &ApplicableDenies<'_>, Deadline<'_>),
    ) -> Option<Vec<Arc<str>>> {
        let certain = denies.values().filter(|(indexed, applicability)| {
            indexed.policy.effect == Effect::Limit && *applicability == DenyApplicability::Always
        });
        let parts = terms.within(certain.map(|(indexed, _)| *indexed), self);
        let (mut is_left, mut touching) = (parts.is_none(), BTreeSet::new());
        let requests = parts
            .iter()
            .flatten()
            .flat_map(|part| requests_of_rule(part, within, self));
        for request in requests {
            let policies = denies.values().map(|(indexed, _)| *indexed);
            is_left |= self.is_left(&request, (source, number), policies, (denies, &mut touching));
            if is_left || deadline.has_passed() {
                break;
            }
        }
        if !is_left {
            return None;
        }
        for (place, (indexed, applicability)) in denies {
            debug_assert_ne!(
                *applicability,
                DenyApplicability::Never,
                "of a user only those are listed that may hold"
            );
            // A Limit denies what its rules do not include, so all requests of the rule must be
            // tried.
            let requests: Box<dyn Iterator<Item = OpenRequest>> = match indexed.policy.effect {
                Effect::Limit => Box::new(requests_of_rule(terms, within, self)),
                Effect::Allow | Effect::Deny => {
                    Box::new(shared_requests(terms, &indexed.policy, within, self))
                }
            };
            for request in requests {
                if touching.contains(place) || deadline.has_passed() {
                    break;
                }
                let policies = std::iter::once(*indexed);
                self.is_left(&request, (source, number), policies, (denies, &mut touching));
            }
        }
        let names = touching.iter().filter_map(|place| denies.get(place));
        Some(names.map(|(indexed, _)| indexed.name.clone()).collect())
    }

    /// Whether a rule allows some of `request` that `policies` do not deny. Adds the policies that
    /// touch some of it to `touching`.
    fn is_left<'p>(
        &'p self,
        request: &'p OpenRequest,
        (source, number): (GrantSource<'p>, usize),
        policies: impl Iterator<Item = &'p IndexedPolicy>,
        (denies, touching): (&ApplicableDenies<'_>, &mut BTreeSet<usize>),
    ) -> bool {
        let granting = match source {
            GrantSource::Binding(binding, names) => {
                let Some(namespaces) = query::namespaces_of(request.within(), binding) else {
                    return false;
                };
                let names = if names.is_empty() {
                    NameSet::Any
                } else {
                    NameSet::OneOf(names)
                };
                GrantScope {
                    names,
                    namespaces,
                    policy: None,
                }
            }
            GrantSource::Policy(indexed, rule) => GrantScope {
                names: match rule.map(|rule| rule.names.as_slice()) {
                    None | Some([]) => NameSet::Any,
                    Some(names) => NameSet::OneOf(names),
                },
                namespaces: NameSet::Any,
                policy: Some(PolicyRulePlace {
                    policy: indexed.place,
                    number,
                }),
            },
        };
        let mut query = AccessQuery::new(self, request, policies);
        let Some(effects) = query.effects(granting, source.rule()) else {
            return false;
        };
        touching.extend(effects.denied_by(denies));
        effects.leave_some(denies)
    }
}

impl Permission {
    /// The number of its words and names.
    fn entries(&self) -> usize {
        let words = [
            &self.verbs,
            &self.api_groups,
            &self.resources,
            &self.names,
            &self.paths,
        ];
        let words: usize = words.into_iter().map(Vec::len).sum();
        words + self.denied_by.len() + self.via.limits.len() + 1
    }
}

impl GrantingRule<'_> {
    /// Whether it allows all open parts of the request.
    fn is_unlimited(&self, request: &OpenRequest) -> bool {
        let is_everywhere =
            !matches!(request.within(), Within::AnyNamespace) || self.source.names().0.is_empty();
        is_everywhere
            && match self.source {
                GrantSource::Binding(_, names) => !request.is_name_open() || names.is_empty(),
                GrantSource::Policy(indexed, rule) => limits_of(indexed, rule, request.openness()).is_empty(),
            }
    }
}

fn limits_of(indexed: &IndexedPolicy, rule: Option<&ResourceRule>, open: Openness) -> Vec<String> {
    let mut limits = rule.map_or_else(Vec::new, |rule| {
        super::limits_of_rule(indexed.policy.effect, rule, open)
    });
    limits.extend(super::limits_of_conditions(&indexed.policy));
    limits
}

fn of_binding(binding: &Binding, rule: &Rule, number: usize, denied_by: Vec<Arc<str>>) -> Permission {
    let is_cluster_wide = binding.namespace.is_empty();
    let paths = rule.non_resource_urls.iter().filter(|_| is_cluster_wide);
    Permission {
        verbs: rule.verbs.as_slice().to_vec(),
        api_groups: rule.api_groups.as_slice().to_vec(),
        resources: rule.resources.as_slice().to_vec(),
        names: rule.resource_names.clone(),
        paths: paths.map(ToString::to_string).collect(),
        via: GrantSource::Binding(binding, &rule.resource_names).via(number, Vec::new()),
        denied_by,
    }
}

fn of_policy(
    (indexed, rule): (&IndexedPolicy, Option<&ResourceRule>),
    number: usize,
    terms: &RuleTerms<'_>,
    (within, denied_by): (&Within, Vec<Arc<str>>),
) -> Permission {
    let open = Openness {
        name: false,
        namespace: matches!(within, Within::AnyNamespace),
        counted_namespace: !matches!(within, Within::Namespace(_)),
    };
    Permission {
        verbs: terms.verbs.as_slice().to_vec(),
        api_groups: terms
            .groups
            .as_ref()
            .map(|groups| groups.as_slice().to_vec())
            .unwrap_or_default(),
        resources: rule.map_or_else(Vec::new, |rule| {
            rule.resources.iter().map(ToString::to_string).collect()
        }),
        names: rule.map_or_else(Vec::new, |rule| rule.names.clone()),
        paths: terms.paths.iter().map(ToString::to_string).collect(),
        via: GrantSource::Policy(indexed, rule).via(number, limits_of(indexed, rule, open)),
        denied_by,
    }
}
