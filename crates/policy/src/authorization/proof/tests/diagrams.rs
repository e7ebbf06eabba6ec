//! A second opinion: the same small worlds as binary decision diagrams, made by a library that knows nothing of
//! policies. A diagram holds every request of a world, of which the other tests try some.

use std::collections::BTreeMap;
use std::sync::Arc;

use biodivine_lib_bdd::{Bdd, BddVariable, BddVariableSet};
use proptest::prelude::*;

use super::invariants::invariant;
use super::{UNLIMITED, cases, instants, labellings, pairs};
use crate::authorization::matching::Narrowness;
use crate::authorization::policy_set::tests::reference::{plain, policies};
use crate::authorization::proof::{InvariantProof, Patterns, Region, Side, difference};
use crate::authorization::{
    AuthorizationPolicy, Binding, Effect, Mode, NamespaceLabels, NeverDeny, NonResourceRule, Objects,
    PolicySet, ResourceRule, RoleKind, Rule, Subject, SubjectKind,
};
use crate::model::{Decision, ResourceAttributes, Selectors};

/// All that policies tell apart, and one or more besides.
const VERBS: &[&str] = &["get", "list", "create", "*", "watch", "update"];
const API_GROUPS: &[&str] = &["", "apps", "*", "others"];
const RESOURCES: &[&str] = &["pods", "nodes", "namespaces", "*", "elsewhere"];
const SUBRESOURCES: &[&str] = &["", "log", "scale", "*", "other"];
const NAMESPACES: &[&str] = &["", "a", "ab", "b", "unknown", "ac", "abc", "other"];
const NAMES: &[&str] = &[
    "", "n1", "n2", "*", "n3", "a", "ab", "b", "unknown", "ac", "abc", "other",
];
const PATHS: &[&str] = &["/a", "/a/", "/a/b", "/b", "*", "", "/éa", "/è", "/ab", "other"];
const USERS: &[&str] = &[
    "u1",
    "u2",
    "u3",
    "u*",
    "*",
    "x",
    "",
    "system:node:n",
    "system:serviceaccount:a:s",
    "system:serviceaccount:a:*",
    "system:serviceaccount:b:s",
    "system:serviceaccount:b:*",
    "system:serviceaccount:c:s",
];
const GROUPS: &[&str] = &["g1", "g2", "g3", "g*", "*", "h", "system:nodes"];

/// What requests differ in, besides groups: the sides of a region, the time, and labels that are not known.
#[derive(Debug, Clone, Copy)]
enum Field {
    Text(Side),
    Instant,
    Labels,
}

/// The variables, and the diagram of each value of each field.
struct World {
    set: BddVariableSet,
    is_path: Bdd,
    groups: Vec<Bdd>,
    values: Vec<Vec<Bdd>>,
    labellings: Vec<Option<BTreeMap<String, String>>>,
    /// All but service accounts with groups that their names do not imply.
    requests: Bdd,
}

impl Field {
    const ALL: [Self; 10] = [
        Self::Text(Side::User),
        Self::Text(Side::Path),
        Self::Text(Side::Verb),
        Self::Text(Side::ApiGroup),
        Self::Text(Side::Resource),
        Self::Text(Side::Subresource),
        Self::Text(Side::Namespace),
        Self::Text(Side::Name),
        Self::Labels,
        Self::Instant,
    ];

    fn texts(side: Side) -> &'static [&'static str] {
        match side {
            Side::User => USERS,
            Side::Path => PATHS,
            Side::Verb => VERBS,
            Side::ApiGroup => API_GROUPS,
            Side::Resource => RESOURCES,
            Side::Subresource => SUBRESOURCES,
            Side::Namespace => NAMESPACES,
            Side::Name => NAMES,
        }
    }

    fn size(self) -> usize {
        match self {
            Self::Text(side) => Self::texts(side).len(),
            Self::Instant => instants().len() - 1,
            Self::Labels => labellings().len(),
        }
    }

    const fn place(self) -> usize {
        match self {
            Self::Text(Side::User) => 0,
            Self::Text(Side::Path) => 1,
            Self::Text(Side::Verb) => 2,
            Self::Text(Side::ApiGroup) => 3,
            Self::Text(Side::Resource) => 4,
            Self::Text(Side::Subresource) => 5,
            Self::Text(Side::Namespace) => 6,
            Self::Text(Side::Name) => 7,
            Self::Labels => 8,
            Self::Instant => 9,
        }
    }
}

impl World {
    fn new() -> Self {
        let bits = |size: usize| usize::BITS - (size - 1).leading_zeros();
        let all: u32 = Field::ALL.iter().map(|field| bits(field.size())).sum();
        let set = BddVariableSet::new_anonymous(u16::try_from(1 + GROUPS.len() as u32 + all).unwrap());
        let mut variables = set.variables().into_iter();
        let mut literals = |count| -> Vec<BddVariable> { variables.by_ref().take(count).collect() };
        let is_path = set.mk_var(literals(1)[0]);
        let groups = literals(GROUPS.len())
            .into_iter()
            .map(|one| set.mk_var(one))
            .collect();
        let values = Field::ALL.map(|field| {
            let bits = literals(bits(field.size()) as usize);
            let code = |code: usize| {
                let bits = bits.iter().enumerate();
                bits.fold(set.mk_true(), |all, (at, bit)| {
                    all.and(&set.mk_literal(*bit, code >> at & 1 == 1))
                })
            };
            // The last value has all codes that are left.
            let mut values: Vec<Bdd> = (0..field.size() - 1).map(code).collect();
            let others = values.iter().fold(set.mk_false(), |any, value| any.or(value));
            values.push(others.not());
            values
        });
        let mut world = Self {
            requests: set.mk_true(),
            set,
            is_path,
            groups,
            values: values.into(),
            labellings: labellings(),
        };
        let accounts = world.texts(Side::User, |user| user.starts_with("system:serviceaccount:"));
        let in_groups = world.any(world.groups.iter().cloned());
        world.requests = accounts.and(&in_groups).not();
        world
    }

    fn any(&self, diagrams: impl IntoIterator<Item = Bdd>) -> Bdd {
        diagrams
            .into_iter()
            .fold(self.set.mk_false(), |any, one| any.or(&one))
    }

    fn constant(&self, is: bool) -> Bdd {
        if is {
            self.set.mk_true()
        } else {
            self.set.mk_false()
        }
    }

    /// What `of` says for each value of a field.
    fn by_value(&self, field: Field, of: impl Fn(usize) -> Bdd) -> Bdd {
        let values = self.values[field.place()].iter().enumerate();
        self.any(values.map(|(at, value)| value.and(&of(at))))
    }

    fn by_text(&self, side: Side, of: impl Fn(&'static str) -> Bdd) -> Bdd {
        self.by_value(Field::Text(side), |at| of(Field::texts(side)[at]))
    }

    fn texts(&self, side: Side, is: impl Fn(&str) -> bool) -> Bdd {
        self.by_text(side, |text| self.constant(is(text)))
    }

    /// One of the groups is such; of service accounts, of those that the name implies.
    fn in_group(&self, is: impl Fn(&str) -> bool) -> Bdd {
        let own = self.groups.iter().zip(GROUPS).filter(|(_, name)| is(name));
        let own = self.any(own.map(|(group, _)| group.clone()));
        let implied = self.texts(Side::User, |user| {
            let Some(account) = user.strip_prefix("system:serviceaccount:") else {
                return false;
            };
            let namespace = account.split(':').next().unwrap();
            let of_namespace = format!("system:serviceaccounts:{namespace}");
            ["system:serviceaccounts", &of_namespace, "system:authenticated"]
                .into_iter()
                .any(&is)
        });
        own.or(&implied)
    }
}

// What objects say, read one by one.
impl World {
    fn decided(&self, objects: &Objects, decision: Decision) -> Bdd {
        let of = |is: fn(Effect) -> bool| {
            let policies = objects.policies.iter();
            let policies = policies.filter(|policy| policy.mode == Mode::Enforce && is(policy.effect));
            self.any(policies.map(|policy| self.policy(policy, &objects.namespaces)))
        };
        let denied = of(|effect| effect != Effect::Allow);
        if decision == Decision::Deny {
            return denied.and(&self.requests);
        }
        let bound = self.any(
            objects
                .bindings
                .iter()
                .map(|binding| self.binding(binding, objects)),
        );
        let allowed = of(|effect| effect == Effect::Allow).or(&bound);
        let is = if decision == Decision::Allow {
            allowed
        } else {
            allowed.not()
        };
        is.and_not(&denied).and(&self.requests)
    }

    fn binding(&self, binding: &Binding, objects: &Objects) -> Bdd {
        let home = match binding.role.kind {
            RoleKind::ClusterRole => "",
            RoleKind::Role if binding.namespace.is_empty() => return self.set.mk_false(),
            RoleKind::Role => &binding.namespace,
        };
        let mut roles = objects.roles.iter();
        let role = roles.find(|role| role.namespace == home && role.name == binding.role.name);
        let rules = role.iter().flat_map(|role| role.rules.iter());
        let subjects = binding.subjects.iter().map(|subject| match subject.kind {
            SubjectKind::Group => self.in_group(|group| group == subject.name),
            SubjectKind::User => self.texts(Side::User, |user| user == subject.name),
            SubjectKind::ServiceAccount => {
                let own = if subject.namespace.is_empty() {
                    &binding.namespace
                } else {
                    &subject.namespace
                };
                let name = format!("system:serviceaccount:{own}:{}", subject.name);
                self.texts(Side::User, |user| !own.is_empty() && user == name)
            }
        });
        let allowed = self.any(rules.map(|rule| self.role_rule(rule)));
        // A path is in no namespace.
        let here = self.texts(Side::Namespace, |namespace| namespace == binding.namespace);
        let here = here
            .and_not(&self.is_path)
            .or(&self.constant(binding.namespace.is_empty()));
        self.any(subjects).and(&allowed).and(&here)
    }

    fn role_rule(&self, rule: &Rule) -> Bdd {
        let of = |list: &[String], text: &str| list.iter().any(|one| one == "*" || one == text);
        let verbs = self.texts(Side::Verb, |verb| of(rule.verbs.as_slice(), verb));
        let urls: Vec<String> = rule.non_resource_urls.iter().map(ToString::to_string).collect();
        let paths = self.texts(Side::Path, |path| urls.iter().any(|url| plain::covers(url, path)));
        let groups = self.texts(Side::ApiGroup, |group| of(rule.api_groups.as_slice(), group));
        let resources = rule.resources.as_slice();
        let resources = self.by_text(Side::Resource, |resource| {
            self.texts(Side::Subresource, |subresource| match subresource {
                "" => of(resources, resource),
                _ => {
                    of(resources, &format!("{resource}/{subresource}"))
                        || resources.contains(&format!("*/{subresource}"))
                }
            })
        });
        let names = &rule.resource_names;
        let names = self.texts(Side::Name, |name| {
            names.is_empty() || names.iter().any(|one| one == name)
        });
        let of_resources = groups.and(&resources).and(&names).and_not(&self.is_path);
        paths.and(&self.is_path).or(&of_resources).and(&verbs)
    }

    fn policy(&self, policy: &AuthorizationPolicy, known: &NamespaceLabels) -> Bdd {
        let denies = policy.effect == Effect::Deny;
        let resources = policy.resource_rules.iter();
        let resources = self.any(resources.map(|rule| self.resource_rule(denies, rule, known)));
        let paths = policy.non_resource_rules.iter();
        let paths = self.any(paths.map(|rule| self.path_rule(denies, rule)));
        let (resources, paths) = match policy.effect {
            Effect::Allow | Effect::Deny => (resources, paths),
            Effect::Limit => (
                resources
                    .not()
                    .and(&self.constant(!policy.resource_rules.is_empty())),
                paths
                    .not()
                    .and(&self.constant(!policy.non_resource_rules.is_empty())),
            ),
        };
        let targets = resources.and_not(&self.is_path).or(&paths.and(&self.is_path));
        let during = self.by_value(Field::Instant, |at| {
            self.constant(policy.validity.contains(instants()[at + 1]))
        });
        let nodes = self.texts(Side::User, |user| user.starts_with("system:node:"));
        let nodes = nodes.and(&self.in_group(|group| group == "system:nodes"));
        let spared = nodes.and(&self.constant(policy.effect != Effect::Allow));
        let subjects = self
            .subjects(&policy.subjects)
            .and_not(&self.subjects(&policy.exclude_subjects));
        targets.and(&during).and(&subjects).and_not(&spared)
    }

    fn subjects(&self, subjects: &[Subject]) -> Bdd {
        let fits = |subject: &Subject, name: &str| match subject.name.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == subject.name,
        };
        self.any(subjects.iter().map(|subject| match subject.kind {
            SubjectKind::User => self.texts(Side::User, |user| fits(subject, user)),
            SubjectKind::Group if subject.name == "*" => self.set.mk_true(),
            SubjectKind::Group => self.in_group(|group| fits(subject, group)),
            SubjectKind::ServiceAccount => {
                let name = format!("system:serviceaccount:{}:{}", subject.namespace, subject.name);
                self.texts(Side::User, |user| !subject.namespace.is_empty() && user == name)
            }
        }))
    }

    fn path_rule(&self, denies: bool, rule: &NonResourceRule) -> Bdd {
        let verbs = self.texts(Side::Verb, |verb| {
            plain::text(denies, rule.verbs.as_slice(), verb)
        });
        let urls: Vec<String> = rule.paths.iter().map(ToString::to_string).collect();
        let is_one = |path: &str| {
            let mut urls = urls.iter();
            urls.any(|url| plain::covers(url, path) || denies && path == "*")
        };
        verbs.and(&self.texts(Side::Path, is_one))
    }

    fn resource_rule(&self, denies: bool, rule: &ResourceRule, known: &NamespaceLabels) -> Bdd {
        let verbs = self.texts(Side::Verb, |verb| {
            plain::text(denies, rule.verbs.as_slice(), verb)
        });
        let groups = self.texts(Side::ApiGroup, |group| {
            plain::text(denies, rule.api_groups.as_slice(), group)
        });
        let patterns: Vec<String> = rule.resources.iter().map(ToString::to_string).collect();
        let resources = self.by_text(Side::Resource, |resource| {
            self.texts(Side::Subresource, |subresource| {
                let mut patterns = patterns.iter();
                patterns.any(|pattern| plain::resources(denies, pattern, resource, subresource))
            })
        });
        verbs
            .and(&groups)
            .and(&resources)
            .and(&self.places(denies, rule, known))
    }

    /// Where, and about which names: this depends on whether the request lists and on what sort of resource.
    fn places(&self, denies: bool, rule: &ResourceRule, known: &NamespaceLabels) -> Bdd {
        let everything = ResourceRule {
            verbs: vec!["*".to_owned()].into(),
            api_groups: vec!["*".to_owned()].into(),
            resources: vec!["*".to_owned().into()],
            ..rule.clone()
        };
        let labelled: Vec<NamespaceLabels> = self
            .labellings
            .iter()
            .map(|labels| self.with_labels(known, labels.as_ref()))
            .collect();
        let lists = |verb: &str| ["list", "watch", "*"].contains(&verb);
        let of_core = self.texts(Side::ApiGroup, str::is_empty);
        let mut places = Vec::new();
        for verb in ["list", "get"] {
            let verbs = self.texts(Side::Verb, |one| lists(one) == lists(verb));
            for (resource, api_group) in [("nodes", ""), ("namespaces", ""), ("pods", "")] {
                let sort = match resource {
                    "pods" => {
                        let scoped = |one: &str| ["nodes", "namespaces"].contains(&one);
                        self.texts(Side::Resource, scoped).and(&of_core).not()
                    }
                    resource => self.texts(Side::Resource, |one| one == resource).and(&of_core),
                };
                let matches = |namespace: &str, name: &str, labels: usize| {
                    let request = ResourceAttributes {
                        verb: verb.into(),
                        group: api_group.into(),
                        resource: resource.into(),
                        namespace: namespace.to_owned().into(),
                        name: name.to_owned().into(),
                        ..ResourceAttributes::default()
                    };
                    self.constant(plain::resource_rule(
                        denies,
                        &everything,
                        &labelled[labels],
                        &request,
                    ))
                };
                let of_names = self.by_text(Side::Namespace, |namespace| {
                    self.by_text(Side::Name, |name| match rule.namespace_selector {
                        None => matches(namespace, name, 0),
                        Some(_) => self.by_value(Field::Labels, |labels| matches(namespace, name, labels)),
                    })
                });
                places.push(verbs.and(&sort).and(&of_names));
            }
        }
        self.any(places)
    }

    fn with_labels(
        &self,
        known: &NamespaceLabels,
        labels: Option<&BTreeMap<String, String>>,
    ) -> NamespaceLabels {
        let mut all = known.clone();
        for namespace in NAMESPACES.iter().chain(NAMES) {
            if let Some(labels) = labels {
                all.entry((*namespace).to_owned())
                    .or_insert_with(|| Arc::new(labels.clone()));
            }
        }
        all
    }
}

// What is proven.
impl World {
    fn region(&self, region: &Region) -> Bdd {
        let sort = if region.is_path {
            self.is_path.clone()
        } else {
            self.is_path.not()
        };
        let accounts = self.texts(Side::User, |user| {
            user.starts_with("system:serviceaccount:") == region.is_service_account
        });
        let sides = Field::ALL.into_iter().filter_map(|field| match field {
            Field::Text(side) => Some(side),
            Field::Instant | Field::Labels => None,
        });
        let sides = sides.map(|side| self.texts(side, |text| region.side(side).contains(text)));
        let has = |patterns: &Patterns| -> Vec<Bdd> {
            let exact = patterns
                .exact
                .iter()
                .map(|one| self.in_group(|group| *group == **one));
            let prefixes = patterns.prefixes.iter();
            let prefixes = prefixes.map(|prefix| self.in_group(|group| group.starts_with(&**prefix)));
            exact.chain(prefixes).collect()
        };
        let groups = has(&region.groups.all).into_iter();
        let no_groups = has(&region.groups.none).into_iter().map(|one| one.not());
        // Requests here have no selectors.
        let no_selectors = Selectors::default();
        let narrowness = Narrowness::new(&no_selectors);
        let is_narrow = region
            .selectors
            .within
            .iter()
            .all(|selectors| narrowness.implies(selectors))
            && !region
                .selectors
                .not_within
                .iter()
                .any(|selectors| narrowness.implies(selectors));
        let during = self.by_value(Field::Instant, |at| {
            self.constant(region.period.contains(instants()[at + 1]))
        });
        let labels = region.conditions.iter().map(|(condition, outcomes)| {
            // Any other stands for a role that is not there; what it allows is nothing.
            let Some(selector) = condition.selector() else {
                return self.set.mk_false();
            };
            self.by_value(Field::Labels, |at| {
                let labels = self.labellings[at].as_ref();
                let result = labels.map(|labels| selector.matches(|key| labels.get(key)));
                self.constant(match result {
                    Some(true) => outcomes.holds,
                    Some(false) => outcomes.fails,
                    None => outcomes.errors,
                })
            })
        });
        let parts = [sort, accounts, self.constant(is_narrow), during].into_iter();
        let parts = parts.chain(sides).chain(groups).chain(no_groups).chain(labels);
        parts.fold(self.requests.clone(), |all, part| all.and(&part))
    }

    fn regions<'r>(&self, regions: impl Iterator<Item = &'r Region>) -> Bdd {
        self.any(regions.map(|region| self.region(region)))
    }

    /// A request of a diagram, for people.
    fn example(&self, of: &Bdd) -> String {
        let is = |one: &Bdd| !one.and(of).is_false();
        let mut of = of.clone();
        let mut words = Vec::new();
        if !is(&self.is_path.not()) {
            words.push("path".to_owned());
        }
        for field in Field::ALL {
            let values = &self.values[field.place()];
            let at = values
                .iter()
                .position(|value| !value.and(&of).is_false())
                .unwrap();
            of = of.and(&values[at]);
            words.push(match field {
                Field::Text(side) => format!("{side:?} {:?}", Field::texts(side)[at]),
                Field::Instant => format!("at {at}"),
                Field::Labels => format!("labels {:?}", self.labellings[at]),
            });
        }
        for (group, name) in self.groups.iter().zip(GROUPS) {
            if of.and_not(group).is_false() {
                words.push(format!("in {name}"));
            }
        }
        words.join(", ")
    }
}

/// Expressions are left to the other tests.
fn without_expressions(mut objects: Objects) -> Objects {
    objects.policies.truncate(5);
    for policy in &mut objects.policies {
        policy.conditions.clear();
    }
    objects
}

proptest! {
    #![proptest_config(cases(10))]

    #[test]
    fn a_difference_is_that_of_decision_diagrams((old, new) in pairs()) {
        let world = World::new();
        let objects = [old, new].map(without_expressions);
        let [old, new] = objects.clone().map(|objects| PolicySet::new(objects, &NeverDeny::default()));
        let changes = difference(&old, &new, instants()[1], UNLIMITED).unwrap();
        let decisions = [Decision::Allow, Decision::Deny, Decision::NoOpinion];
        let [before, after] = objects.each_ref().map(|objects| decisions.map(|one| world.decided(objects, one)));
        for (from, before) in decisions.iter().zip(&before) {
            for (to, after) in decisions.iter().zip(&after).filter(|(to, _)| *to != from) {
                let found = changes
                    .iter()
                    .filter(|change| (&change.before.decision, &change.after.decision) == (from, to));
                let found = world.regions(found.map(|change| &change.region));
                let wrong = found.xor(&before.and(after));
                prop_assert!(wrong.is_false(), "{from:?} to {to:?}: {}", world.example(&wrong));
            }
        }
    }

    #[test]
    fn an_invariant_holds_where_no_request_satisfies_its_diagram((old, mut new) in pairs(), of in policies()) {
        let world = World::new();
        for of in of.into_iter().take(3) {
            let (invariant, _) = invariant(of, &new);
            new.invariants = vec![invariant.clone()];
            let objects = [&old, &new].map(|objects| without_expressions(objects.clone()));
            let forbidden = world.policy(&invariant.forbidden, &objects[1].namespaces);
            let [before, after] = objects.each_ref().map(|objects| world.decided(objects, Decision::Allow));
            let [old, new] = objects.map(|objects| PolicySet::new(objects, &NeverDeny::default()));
            let now = instants()[1];
            let of_set = InvariantProof::of_set(&new, now, UNLIMITED).unwrap();
            let broken = forbidden.and(&after);
            let of_change = InvariantProof::of_change(&old, &new, now, UNLIMITED).unwrap();
            for (proof, broken) in [(of_set, broken.clone()), (of_change, broken.and_not(&before))] {
                let breaches = proof.breaches(&invariant).unwrap();
                let found = world.regions(breaches.iter().map(|breach| &breach.region));
                prop_assert_eq!(breaches.is_empty(), broken.is_false(), "{:?}", breaches);
                let wrong = found.and_not(&broken);
                prop_assert!(wrong.is_false(), "{}", world.example(&wrong));
            }
        }
    }
}
