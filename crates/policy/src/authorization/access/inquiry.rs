//! Which requests a grant allows, and which Deny policies touch them.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use crate::authorization::index::IndexedPolicy;
use crate::authorization::{PolicySet, ResourceRule};
use crate::engine::{Attributes, Requirement, Selectors};

use super::denies::{Hold, Holds, TouchingDenies};
use super::examples::{self, Part};
use super::open_request::{OpenRequest, Within};

/// A request that leaves something open, and what may deny it.
pub(super) struct Inquiry<'s> {
    pub(super) set: &'s PolicySet,
    pub(super) request: &'s OpenRequest,
    denies: TouchingDenies<'s>,
    known: HashMap<Extent<'s>, Option<Rc<Effects>>>,
}

/// The requests that a rule allows, as far as they are left open.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Extent<'s> {
    pub(super) names: Part<'s>,
    pub(super) namespaces: Part<'s>,
    /// The rule of an Allow policy; none for RBAC's.
    pub(super) policy: Option<PolicyRulePlace>,
}

/// A rule of an Allow policy: the place of the policy, and the rule's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct PolicyRulePlace {
    pub(super) policy: usize,
    pub(super) number: usize,
}

/// What Deny policies do to the requests that a rule allows.
#[derive(Debug, Default)]
pub(super) struct Effects {
    /// For some requests, the places of all that touch it; an empty list ends it.
    escapes: Vec<Vec<usize>>,
    /// The places of all that touch some request.
    touching: BTreeSet<usize>,
}

/// More examples than this are not tried for one rule: it is taken to allow something, and
/// every Deny to touch some of it.
const MAX_EXAMPLES: usize = 50_000;

// === impl Inquiry ===

impl<'s> Inquiry<'s> {
    /// About `request`, which may be denied by `policies`.
    pub(super) fn new(
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

    /// What becomes of the requests of `extent`; `None` where there are none. `rule` is
    /// that of an Allow policy.
    pub(super) fn effects(
        &mut self,
        extent: Extent<'s>,
        rule: Option<&'s ResourceRule>,
    ) -> Option<Rc<Effects>> {
        let mut key = extent;
        if rule.is_none() && !self.denies.ask_for_namespaces() && !self.request.is_for_namespaces() {
            // Nothing tells one namespace from another.
            key.namespaces = Part::Any;
        }
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let effects = self.try_out(key, rule).map(Rc::new);
        self.known.insert(key, effects.clone());
        effects
    }

    fn try_out(&self, extent: Extent<'s>, rule: Option<&'s ResourceRule>) -> Option<Effects> {
        let mut effects = Effects::default();
        let all: Vec<&ResourceRule> = self.denies.rules.iter().map(|(_, rule)| *rule).collect();
        let own = rule.map(|rule| &rule.selectors);
        // The narrower a request, the more allows it and the less denies it.
        let narrow = joined(own.into_iter().chain(all.iter().map(|rule| &rule.selectors)));
        let mut tried = 0;
        for (namespace, name) in self.pairs(extent, rule, &all, false) {
            let example = self.request.example(&namespace, &name, narrow.clone());
            if !self.is_allowed(extent, &example) {
                continue;
            }
            tried += 1;
            let touched = if tried > MAX_EXAMPLES {
                Vec::new()
            } else {
                self.denies.of(self.set, &example)
            };
            let is_free = touched.is_empty();
            effects.touching.extend(&touched);
            effects.escapes.push(touched);
            if is_free {
                break;
            }
        }
        if effects.escapes.is_empty() {
            return None;
        }
        self.touch(extent, rule, &mut effects);
        Some(effects)
    }

    /// Adds all that touch some request of `extent`: the wider it is, the more.
    fn touch(&self, extent: Extent<'s>, rule: Option<&'s ResourceRule>, effects: &mut Effects) {
        let wide = rule.map(|rule| rule.selectors.clone()).unwrap_or_default();
        let denies = &self.denies.rules;
        if denies.is_empty() {
            let example = self.request.example("", "", wide);
            effects.touching.extend(self.denies.of(self.set, &example));
            return;
        }
        // Those that name no objects are tried all at once.
        let all = denies.iter().map(|(listed, rule)| (listed.place, *rule));
        let (named, others): (Vec<_>, Vec<_>) = all.partition(|(_, rule)| !rule.names.is_empty());
        let (places, rules): (Vec<usize>, Vec<&ResourceRule>) = others.into_iter().unzip();
        self.touch_with((extent, rule), (&rules, &places), &wide, effects);
        for (place, deny) in named {
            self.touch_with((extent, rule), (&[deny], &[place]), &wide, effects);
        }
    }

    /// Adds what touches one of the requests that tell `rules` apart, until all that are at
    /// `places` are known to.
    fn touch_with(
        &self,
        (extent, rule): (Extent<'s>, Option<&'s ResourceRule>),
        (rules, places): (&[&ResourceRule], &[usize]),
        wide: &Selectors<'static>,
        effects: &mut Effects,
    ) {
        let is_left = |effects: &Effects| places.iter().any(|place| !effects.touching.contains(place));
        for (tried, (namespace, name)) in self.pairs(extent, rule, rules, true).into_iter().enumerate() {
            if !is_left(effects) {
                break;
            }
            if tried > MAX_EXAMPLES {
                effects.touching.extend(places);
            }
            let example = self.request.example(&namespace, &name, wide.clone());
            if self.is_allowed(extent, &example) {
                effects.touching.extend(self.denies.of(self.set, &example));
            }
        }
    }

    /// Namespaces and names to try: those that tell `extent` and `denies` apart. Where
    /// something is to escape all of `denies`, no name is better than one that no rule has.
    fn pairs(
        &self,
        extent: Extent<'s>,
        rule: Option<&'s ResourceRule>,
        denies: &[&ResourceRule],
        to_touch: bool,
    ) -> Vec<(String, String)> {
        let namespaces = match extent.namespaces {
            Part::Only(namespace) => vec![namespace.to_owned()],
            Part::OneOf(namespaces) => namespaces.to_vec(),
            Part::Any => match self.request.within() {
                Within::AnyNamespace => examples::namespaces(self.set, rule, denies),
                Within::Namespace(namespace) => vec![namespace.clone()],
                Within::NoNamespace => vec![String::new()],
            },
        };
        let names = match extent.names {
            Part::Only(name) => vec![name.to_owned()],
            Part::OneOf(names) => names.to_vec(),
            Part::Any => self.any_names(rule, denies, to_touch),
        };
        if self.is_of_themselves() {
            return of_themselves(namespaces, &names, extent.names);
        }
        // Where no rule has names, one stands for all.
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

    /// Names to try where any will do. A request for a namespace is told apart by the labels
    /// of the namespace that it names, too.
    fn any_names(
        &self,
        rule: Option<&'s ResourceRule>,
        denies: &[&ResourceRule],
        to_touch: bool,
    ) -> Vec<String> {
        let mut names = if to_touch {
            examples::names(denies)
        } else {
            vec![examples::OTHER.to_owned()]
        };
        if self.request.is_for_namespaces() && !self.is_of_themselves() {
            names.extend(examples::namespaces(self.set, rule, denies));
        }
        names
    }

    /// Whether it is for namespaces by name, whatever that is: each is in itself.
    fn is_of_themselves(&self) -> bool {
        let is_anywhere = matches!(self.request.within(), Within::AnyNamespace);
        self.request.is_for_namespaces() && self.request.is_name_open() && is_anywhere
    }

    /// Whether the grant of `extent` allows an example of it: RBAC's was found to.
    fn is_allowed(&self, extent: Extent<'s>, example: &Attributes<'_>) -> bool {
        let Some(place) = extent.policy else {
            return true;
        };
        let query = self.set.query(example);
        let mut applying = self.set.policies.allow.applying_to(&query);
        applying.any(|rule| (rule.policy.place, rule.number) == (place.policy, place.number))
    }
}

/// Requests for namespaces are in the namespace that they name.
fn of_themselves(namespaces: Vec<String>, names: &[String], part: Part<'_>) -> Vec<(String, String)> {
    let itself = |name: String| (name.clone(), name);
    match part {
        Part::Any => namespaces.into_iter().map(itself).collect(),
        _ if namespaces.len() == 1 => {
            let own = names
                .iter()
                .filter(|name| namespaces.contains(name) || name.is_empty());
            own.cloned().map(itself).collect()
        }
        _ => names.iter().cloned().map(itself).collect(),
    }
}

/// All requirements at once.
fn joined<'a>(selectors: impl Iterator<Item = &'a Selectors<'static>>) -> Selectors<'a> {
    let mut all = Selectors::default();
    for one in selectors {
        let list = |from: &'a [Requirement<'a>]| from.iter().cloned();
        all.field.extend(list(&one.field));
        all.label.extend(list(&one.label));
    }
    all
}

// === impl Effects ===

impl Effects {
    /// Whether some request is left that none of those that always hold touches.
    pub(super) fn leave_some(&self, holds: &Holds<'_>) -> bool {
        let stops = |place: &usize| holds.get(place).is_some_and(|(_, hold)| *hold == Hold::Always);
        self.escapes.iter().any(|touched| !touched.iter().any(stops))
    }

    /// The places of those that touch some request.
    pub(super) fn touching(&self) -> impl Iterator<Item = usize> + '_ {
        self.touching.iter().copied()
    }

    /// The places of those that touch some request and may hold.
    pub(super) fn denied_by<'e>(&'e self, holds: &'e Holds<'_>) -> impl Iterator<Item = usize> + 'e {
        let may_hold = |place: &&usize| holds.get(place).is_some_and(|(_, hold)| *hold != Hold::Never);
        self.touching.iter().filter(may_hold).copied()
    }
}
