//! Determines the extent to which subjects are allowed what steps need: in which namespaces, for
//! which names, and whether with limits.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use super::actors::{Actor, Area, Extent, HeldRole, Names, Question, QuestionName};
use crate::authorization::access::query::{
    self, AccessQuery, DenyEffects, GrantScope, GrantSource, GrantingRule, NameSet, UNNAMED, fitting_rules,
};
use crate::authorization::access::{
    ApplicableDenies, Openness, SubjectScope, limits_of_conditions, limits_of_names, limits_of_policy,
    limits_of_rule,
};
use crate::authorization::{OpenRequest, OpenResource, OpenTarget, PolicySet, ResourceRule, Subject, Within};
use crate::model::{Time, User};

/// A rule that allows something, with its limits, and the policies that refute it.
pub(crate) struct Allowance<'s> {
    pub(crate) source: Option<GrantSource<'s>>,
    pub(crate) limits: Vec<String>,
    /// The names of the Deny policies that deny all of it.
    pub(crate) refuted_by: Vec<Arc<str>>,
}

/// The questions for all subjects.
pub(crate) struct Questions<'s> {
    set: &'s PolicySet,
    now: Time,
    namespaces: &'s [String],
    /// In the order of the list from which they were made.
    asked: Vec<AskedQuestion<'s>>,
    all_denies: BTreeSet<usize>,
}

/// A question, and the rules that grant it to subjects.
struct AskedQuestion<'s> {
    request: &'s OpenRequest,
    name: QuestionName,
    query: AccessQuery<'s>,
    of_bindings: HashMap<SubjectScope, Vec<Granted<'s>>>,
    of_policies: Vec<Granted<'s>>,
    known: HashMap<GrantScope<'s>, Rc<Vec<GrantedPart>>>,
}

/// What a rule grants.
#[derive(Clone, Copy)]
struct Granted<'s> {
    /// `None` for a role that the actor may grant itself.
    source: Option<GrantSource<'s>>,
    requests: GrantScope<'s>,
}

/// A part of what is granted that is touched by the same Deny policies throughout.
struct GrantedPart {
    names: Names,
    area: Area,
    effects: Rc<DenyEffects>,
}

// === impl Questions ===

impl<'s> Questions<'s> {
    /// Questions for `requests`, each with the kind of its name.
    pub(crate) fn new(
        set: &'s PolicySet,
        namespaces: &'s [String],
        requests: impl Iterator<Item = (&'s OpenRequest, QuestionName)>,
        now: Time,
    ) -> Self {
        let asked = requests.map(|(request, name)| AskedQuestion::new(set, request, name, now));
        Self {
            set,
            now,
            namespaces,
            asked: asked.collect(),
            all_denies: set.denies_in_force(now).map(|indexed| indexed.place).collect(),
        }
    }

    /// The Deny policies that may apply to `actor`. The groups of service accounts are known.
    pub(crate) fn denies_for(&self, actor: &Actor) -> ApplicableDenies<'s> {
        let scope = actor.scope();
        if scope.is_masters() {
            return ApplicableDenies::new();
        }
        match scope.as_account() {
            Some(user) => self.set.denies_for_user(&user, self.now),
            None => self.set.denies_for(&scope, &self.all_denies, self.now),
        }
    }

    /// The extent to which `actor` is allowed the question at the index `place`.
    pub(crate) fn reaches(
        &mut self,
        actor: &Actor,
        place: usize,
        denies: &ApplicableDenies<'s>,
    ) -> Vec<Extent> {
        let (namespaces, set) = (self.namespaces, self.set);
        let Some(asked) = self.asked.get_mut(place) else {
            return Vec::new();
        };
        let mut merged: BTreeMap<(bool, bool, Names), Area> = BTreeMap::new();
        for granted in asked.granted_to(actor, set) {
            let limited = asked.has_limits(&granted, actor);
            for part in &*asked.parts(&granted, namespaces) {
                let Some(area) = within(actor, asked.request, &part.area) else {
                    continue;
                };
                let is_refuted = !part.effects.leave_some(denies);
                let is_limited = limited || !is_refuted && part.effects.denied_by(denies).next().is_some();
                let merged = merged.entry((is_refuted, is_limited, part.names.clone()));
                merged
                    .and_modify(|known| *known = known.or(&area))
                    .or_insert(area);
            }
        }
        let reach = |((is_refuted, is_limited, names), area)| Extent {
            is_refuted,
            is_limited,
            names,
            area,
        };
        merged.into_iter().map(reach).collect()
    }

    /// Whether `actor` is allowed everything in the question at the index `place`, and no Deny may
    /// touch it.
    pub(crate) fn is_fully_allowed(
        &mut self,
        actor: &Actor,
        place: usize,
        denies: &ApplicableDenies<'s>,
    ) -> bool {
        if matches!(actor, Actor::Holder(HeldRole { within: Some(_), .. })) {
            return false;
        }
        let set = self.set;
        let Some(asked) = self.asked.get_mut(place) else {
            return false;
        };
        asked.granted_to(actor, set).iter().any(|granted| {
            let rule = granted.source.and_then(GrantSource::rule);
            let is_anywhere = granted.requests.namespaces == NameSet::Any
                && !rule.is_some_and(ResourceRule::depends_on_namespace)
                && granted.requests.names == NameSet::Any;
            let effects = asked.query.effects(granted.requests, rule);
            let is_denied = |effects: Rc<DenyEffects>| effects.denied_by(denies).next().is_some();
            is_anywhere && !asked.has_limits(granted, actor) && !effects.is_none_or(is_denied)
        })
    }

    /// The rule that allows `actor` the question at the index `place`, in one namespace and for one
    /// name: the one with the fewest limits. A rule that Deny policies refute is only returned if
    /// there is no other.
    pub(crate) fn allowance(
        &mut self,
        actor: &Actor,
        place: usize,
        (namespace, name): (Option<usize>, Option<&str>),
        denies: &ApplicableDenies<'s>,
    ) -> Option<Allowance<'s>> {
        let (namespaces, set) = (self.namespaces, self.set);
        let asked = self.asked.get_mut(place)?;
        let mut best: Option<Allowance<'s>> = None;
        for granted in asked.granted_to(actor, set) {
            for part in &*asked.parts(&granted, namespaces) {
                let is_here = within(actor, asked.request, &part.area)
                    .is_some_and(|area| namespace.is_none_or(|namespace| area.contains(namespace)));
                if !is_here || name.is_some_and(|name| !part.names.include(name)) {
                    continue;
                }
                let found = asked.allowance(&granted, actor, &part.effects, denies);
                let worth = |one: &Allowance<'_>| (one.refuted_by.len(), one.limits.len());
                if best.as_ref().is_none_or(|best| worth(&found) < worth(best)) {
                    best = Some(found);
                }
            }
        }
        best
    }
}

/// The part of `area` in which `actor` may make the request.
fn within(actor: &Actor, request: &OpenRequest, area: &Area) -> Option<Area> {
    let Actor::Holder(HeldRole {
        within: Some(held), ..
    }) = actor
    else {
        return Some(area.clone());
    };
    match request.within() {
        Within::NoNamespace => None,
        Within::Namespace(_) | Within::AnyNamespace => held.and(area),
    }
}

// === impl AskedQuestion ===

impl<'s> AskedQuestion<'s> {
    fn new(set: &'s PolicySet, request: &'s OpenRequest, name: QuestionName, now: Time) -> Self {
        let mut of_bindings: HashMap<SubjectScope, Vec<Granted<'s>>> = HashMap::new();
        for granting in set.granted_by_bindings(request, set.bindings.iter()) {
            let GrantSource::Binding(binding, _) = granting.source else {
                continue;
            };
            let granted = Granted::from(granting);
            let subjects = binding.subjects.iter();
            let scopes = subjects.filter_map(|subject| SubjectScope::of_binding(subject, &binding.namespace));
            for scope in scopes.collect::<BTreeSet<_>>() {
                of_bindings.entry(scope).or_default().push(granted);
            }
        }
        Self {
            request,
            name,
            query: AccessQuery::new(set, request, set.denies_in_force(now)),
            of_bindings,
            of_policies: set
                .granted_by_policies(request, now)
                .into_iter()
                .map(Granted::from)
                .collect(),
            known: HashMap::new(),
        }
    }

    /// The rules that allow `actor` something.
    fn granted_to(&self, actor: &Actor, set: &'s PolicySet) -> Vec<Granted<'s>> {
        let scope = match actor {
            Actor::Subject(scope) if scope.is_masters() => {
                return self.granted_by_role(&HeldRole::cluster_admin(), set);
            }
            Actor::Subject(scope) => scope,
            Actor::Holder(held) => return self.granted_by_role(held, set),
        };
        let groups = scope.implied_groups().into_iter().map(SubjectScope::Group);
        let mut scopes: BTreeSet<SubjectScope> = groups.collect();
        scopes.insert(scope.clone());
        let of_bindings = scopes.iter().filter_map(|scope| self.of_bindings.get(scope));
        let mut granted: Vec<Granted<'s>> = of_bindings.flatten().copied().collect();
        let applies = |granted: &&Granted<'s>| match granted.source {
            Some(GrantSource::Policy(indexed, _)) => {
                let is_of = |subject: &Subject| scope.is_matched_by(subject);
                let policy = &indexed.policy;
                policy.subjects.iter().any(is_of) && !policy.exclude_subjects.iter().any(is_of)
            }
            Some(GrantSource::Binding(..)) | None => false,
        };
        granted.extend(self.of_policies.iter().filter(applies).copied());
        granted
    }

    /// The rules of a role. The caller must restrict them to the namespaces in which it is held.
    fn granted_by_role(&self, held: &HeldRole, set: &'s PolicySet) -> Vec<Granted<'s>> {
        let granted = |names: &'s [String]| Granted {
            source: None,
            requests: GrantScope {
                names: query::names_of(self.request, names),
                namespaces: NameSet::Any,
                policy: None,
            },
        };
        if held.is_everything() {
            return vec![granted(&[])];
        }
        let role = set.roles.iter().find(|role| held.is(role));
        let rules = role.map(|role| fitting_rules(role, self.request));
        rules
            .into_iter()
            .flatten()
            .map(|(_, names)| granted(names))
            .collect()
    }

    /// What a rule grants, in parts.
    fn parts(&mut self, granted: &Granted<'s>, namespaces: &'s [String]) -> Rc<Vec<GrantedPart>> {
        if let Some(known) = self.known.get(&granted.requests) {
            return Rc::clone(known);
        }
        let mut parts = Vec::new();
        for (names, set) in self.names_in_parts(granted.requests.names) {
            for (area, effects) in self.areas(granted, set, namespaces) {
                let names = names.clone();
                parts.push(GrantedPart { names, area, effects });
            }
        }
        let parts = Rc::new(parts);
        self.known.insert(granted.requests, Rc::clone(&parts));
        parts
    }

    /// The names in parts: if names matter, each that the rule or a Deny policy contains is
    /// separate.
    fn names_in_parts(&self, granted: NameSet<'s>) -> Vec<(Names, NameSet<'s>)> {
        if self.name != QuestionName::Target {
            return vec![(Names::all(), granted)];
        }
        let only = |name: &'s str| (Names::Only(name.to_owned()), NameSet::Only(name));
        match granted {
            NameSet::Only(name) => vec![only(name)],
            NameSet::OneOf(names) => names.iter().map(|name| only(name)).collect(),
            NameSet::Any => {
                let named = self.query.named_by_denies();
                let others = named.iter().map(|name| (*name).to_owned()).collect();
                let others = (Names::Except(Rc::new(others)), NameSet::Only(UNNAMED));
                named.into_iter().map(only).chain([others]).collect()
            }
        }
    }

    /// The effects of Deny policies on what is granted for these names, by namespace.
    fn areas(
        &mut self,
        granted: &Granted<'s>,
        names: NameSet<'s>,
        namespaces: &'s [String],
    ) -> Vec<(Area, Rc<DenyEffects>)> {
        let rule = granted.source.and_then(GrantSource::rule);
        let granted = GrantScope {
            names,
            ..granted.requests
        };
        if let NameSet::Only(namespace) = granted.namespaces {
            let number = namespaces
                .binary_search_by(|known| known.as_str().cmp(namespace))
                .ok();
            let effects = self.query.effects(granted, rule);
            return number
                .zip(effects)
                .map(|(number, effects)| (Area::one(number), effects))
                .into_iter()
                .collect();
        }
        let asks = rule.is_some_and(|rule| rule.depends_on_namespace()) || self.query.asks_for_namespaces();
        if !asks || *self.request.within() != Within::AnyNamespace {
            let effects = self.query.effects(granted, rule);
            return effects
                .map(|effects| (Area::Everywhere, effects))
                .into_iter()
                .collect();
        }
        let mut areas: Vec<(BTreeSet<usize>, Rc<DenyEffects>)> = Vec::new();
        for (number, namespace) in namespaces.iter().enumerate() {
            let here = GrantScope {
                namespaces: NameSet::Only(namespace),
                ..granted
            };
            let Some(effects) = self.query.effects(here, rule) else {
                continue;
            };
            match areas.iter_mut().find(|(_, known)| *known == effects) {
                Some((area, _)) => _ = area.insert(number),
                None => areas.push(([number].into(), effects)),
            }
        }
        let in_area = |(area, effects)| (Area::In(Rc::new(area)), effects);
        areas.into_iter().map(in_area).collect()
    }

    fn has_limits(&self, granted: &Granted<'s>, actor: &Actor) -> bool {
        !self.limits(granted, actor).is_empty()
    }

    /// Restrictions on the requests, other than the namespace and the name in the question.
    fn limits(&self, granted: &Granted<'s>, actor: &Actor) -> Vec<String> {
        let open = Openness {
            name: self.name == QuestionName::Any,
            namespace: false,
            counted_namespace: false,
        };
        match granted.source {
            None | Some(GrantSource::Binding(..)) => match granted.requests.names {
                NameSet::OneOf(names) if open.name => limits_of_names(names).into_iter().collect(),
                _ => Vec::new(),
            },
            Some(GrantSource::Policy(indexed, rule)) => {
                let policy = &indexed.policy;
                let of_rule = rule.map(|rule| limits_of_rule(policy.effect, rule, open));
                let mut limits = of_rule.unwrap_or_default();
                limits.extend(match actor {
                    Actor::Subject(scope) if scope.as_account().is_none() => {
                        limits_of_policy(policy, Some(scope))
                    }
                    Actor::Subject(_) | Actor::Holder(_) => limits_of_conditions(policy),
                });
                limits
            }
        }
    }

    fn allowance(
        &self,
        granted: &Granted<'s>,
        actor: &Actor,
        effects: &DenyEffects,
        denies: &ApplicableDenies<'s>,
    ) -> Allowance<'s> {
        let mut limits = self.limits(granted, actor);
        let named = |place: usize| denies.get(&place).map(|(indexed, _)| indexed.name.clone());
        let denied_by: Vec<Arc<str>> = effects.denied_by(denies).filter_map(named).collect();
        let is_refuted = !effects.leave_some(denies);
        if !is_refuted {
            limits.extend(
                denied_by
                    .iter()
                    .map(|name| format!("unless AuthorizationPolicy {name} denies it")),
            );
        }
        let refuted_by = effects.refuted_by(denies).into_iter().filter_map(named).collect();
        Allowance {
            source: granted.source,
            limits,
            refuted_by: if is_refuted { refuted_by } else { Vec::new() },
        }
    }
}

// === impl Granted ===

impl<'s> From<GrantingRule<'s>> for Granted<'s> {
    fn from(granting: GrantingRule<'s>) -> Self {
        Self {
            source: Some(granting.source),
            requests: granting.granted,
        }
    }
}

impl Question {
    /// The request in any namespace, or without one.
    pub(crate) fn request(&self) -> OpenRequest {
        OpenRequest {
            verb: self.verb.to_owned(),
            target: OpenTarget::Resource(OpenResource {
                group: self.group.to_owned(),
                resource: self.resource.to_owned(),
                subresource: self.subresource.to_owned(),
                name: match self.name {
                    QuestionName::None => Some(String::new()),
                    QuestionName::Is(name) => Some(name.to_owned()),
                    QuestionName::Any | QuestionName::Target => None,
                },
                within: match self.is_namespaced {
                    true => Within::AnyNamespace,
                    false => Within::NoNamespace,
                },
            }),
        }
    }
}

impl SubjectScope {
    /// The user, if it is a service account, all of whose groups are known.
    fn as_account(&self) -> Option<User<'static>> {
        let Self::User(name) = self else {
            return None;
        };
        let is_account = name.starts_with("system:serviceaccount:");
        is_account.then(|| User {
            name: name.clone().into(),
            groups: self.implied_groups().into_iter().map(Into::into).collect(),
            ..User::default()
        })
    }
}
