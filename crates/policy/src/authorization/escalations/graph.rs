//! The graph of actors and the steps between them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::actors::{Actor, Area, Extent, HeldRole, Names, Question, StepKind, StepTarget};
use super::known_steps::STEP_KINDS;
use super::reach::Questions;
use super::{BOOTSTRAPPERS, NODES, Universe, all_questions};
use crate::authorization::access::{ApplicableDenies, SubjectScope};
use crate::authorization::{Binding, PolicySet, RoleKind, SubjectKind};
use crate::model::Deadline;

const KUBE_SYSTEM: &str = "kube-system";

/// All actors and steps.
pub(crate) struct Graph<'s> {
    set: &'s PolicySet,
    pub(crate) namespaces: &'s [String],
    pub(crate) questions: Questions<'s>,
    /// The index of each question of the steps.
    pub(crate) places: HashMap<Question, usize>,
    /// The bindings of each subject.
    bindings: HashMap<SubjectScope, Vec<&'s Binding>>,
    /// The first actor is the one that may do everything.
    pub(crate) actors: Vec<Actor>,
    pub(crate) numbers: HashMap<Actor, usize>,
    /// Service accounts by the index of their namespace.
    accounts: BTreeMap<usize, Vec<usize>>,
    pub(crate) targets: Vec<Vec<usize>>,
    target_numbers: HashMap<Targets, usize>,
    pub(crate) edges: Vec<Edge>,
    /// The actors that may do everything.
    pub(crate) admins: BTreeSet<usize>,
    /// The actors that are allowed what was queried.
    pub(crate) allowed: BTreeSet<usize>,
}

/// The targets of a step.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Targets {
    Accounts(Area, Names),
    Users(Names),
    Groups(Names),
    ClusterRoles(Names),
    ClusterRolesWithin(Area, Names),
    Roles(Area, Names),
    Actor(Actor),
}

/// A step that an actor can take, or could without Deny policies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Edge {
    pub(crate) from: usize,
    pub(crate) kind: usize,
    pub(crate) targets: usize,
    pub(crate) is_limited: bool,
    pub(crate) is_refuted: bool,
}

/// A role that a binding grants.
pub(crate) struct BoundTo<'a> {
    pub(crate) kind: RoleKind,
    pub(crate) name: &'a str,
    /// `None` for the whole cluster.
    within: Option<Area>,
}

// === impl Graph ===

impl<'s> Graph<'s> {
    /// All steps of all actors in `universe`. `None` if the deadline passes.
    pub(crate) fn of(
        set: &'s PolicySet,
        universe: &'s Universe,
        questions: Questions<'s>,
        deadline: Deadline<'_>,
    ) -> Option<Self> {
        let mut graph = Self {
            set,
            namespaces: &universe.namespaces,
            questions,
            places: all_questions().into_iter().zip(0..).collect(),
            bindings: HashMap::new(),
            actors: Vec::new(),
            numbers: HashMap::new(),
            accounts: BTreeMap::new(),
            targets: Vec::new(),
            target_numbers: HashMap::new(),
            edges: Vec::new(),
            admins: BTreeSet::new(),
            allowed: BTreeSet::new(),
        };
        // A binding without an existing role grants nothing that could be changed.
        for bound in set.bindings.iter().filter(|bound| bound.role.is_some()) {
            let binding = &*bound.binding;
            let subjects = binding.subjects.iter();
            let scopes = subjects.filter_map(|subject| SubjectScope::of_binding(subject, &binding.namespace));
            for scope in scopes.collect::<BTreeSet<_>>() {
                graph.bindings.entry(scope).or_default().push(binding);
            }
        }
        graph.add_actor(Actor::cluster_admin());
        for scope in &universe.subjects {
            graph.add_actor(Actor::Subject(scope.clone()));
        }
        // Steps add more actors: the holders of roles.
        let mut next = 0;
        while let Some(actor) = graph.actors.get(next).cloned() {
            if deadline.has_passed() {
                return None;
            }
            graph.add_steps_of(next, &actor);
            next += 1;
        }
        Some(graph)
    }

    fn add_actor(&mut self, actor: Actor) -> usize {
        if let Some(&number) = self.numbers.get(&actor) {
            return number;
        }
        let number = self.actors.len();
        if let Some(namespace) = self.namespace_of_account(&actor) {
            self.accounts.entry(namespace).or_default().push(number);
        }
        self.actors.push(actor.clone());
        self.numbers.insert(actor, number);
        number
    }

    pub(crate) fn namespace_of_account(&self, actor: &Actor) -> Option<usize> {
        let Actor::Subject(scope) = actor else {
            return None;
        };
        let (subject, _) = scope.subject();
        let is_account = subject.kind == SubjectKind::ServiceAccount;
        is_account
            .then(|| self.namespaces.binary_search(&subject.namespace).ok())
            .flatten()
    }

    fn add_steps_of(&mut self, number: usize, actor: &Actor) {
        let denies = self.questions.denies_for(actor);
        if *actor == Actor::cluster_admin() || self.questions.is_fully_allowed(actor, 0, &denies) {
            self.admins.insert(number);
        }
        let goal = self.places.len();
        if self
            .questions
            .reaches(actor, goal, &denies)
            .iter()
            .any(|reach| !reach.is_refuted)
        {
            self.allowed.insert(number);
        }
        let mut asked: HashMap<usize, Vec<Extent>> = HashMap::new();
        for (kind, step) in STEP_KINDS.iter().enumerate() {
            for reach in self.reaches(actor, step, &denies, &mut asked) {
                for targets in self.targets_of(actor, step.gives, &reach) {
                    let targets = self.number_of_targets(targets);
                    self.edges.push(Edge {
                        from: number,
                        kind,
                        targets,
                        is_limited: reach.is_limited || !step.limit.is_empty(),
                        is_refuted: reach.is_refuted,
                    });
                }
            }
        }
    }

    /// The extent to which `actor` is allowed everything that `step` needs.
    fn reaches(
        &mut self,
        actor: &Actor,
        step: &StepKind,
        denies: &ApplicableDenies<'s>,
        asked: &mut HashMap<usize, Vec<Extent>>,
    ) -> BTreeSet<Extent> {
        let everything = Extent {
            is_refuted: false,
            is_limited: false,
            names: Names::all(),
            area: Area::Everywhere,
        };
        if step.needs.is_empty() && !is_node(actor) {
            return BTreeSet::new();
        }
        let mut found = BTreeSet::from([everything]);
        for need in step.needs {
            let mut one_of: BTreeSet<Extent> = BTreeSet::new();
            for question in *need {
                let Some(&place) = self.places.get(question) else {
                    continue;
                };
                let reaches = asked
                    .entry(place)
                    .or_insert_with(|| self.questions.reaches(actor, place, denies));
                one_of.extend(reaches.iter().cloned());
            }
            found = found
                .iter()
                .flat_map(|some| one_of.iter().filter_map(|other| some.and(other)))
                .collect();
        }
        found
    }

    fn targets_of(&self, actor: &Actor, gives: StepTarget, reach: &Extent) -> Vec<Targets> {
        let (area, names) = (reach.area.clone(), reach.names.clone());
        match gives {
            StepTarget::AccountsOfNamespace => vec![Targets::Accounts(area, Names::all())],
            StepTarget::Account => vec![Targets::Accounts(area, names)],
            StepTarget::Controller(namespace, name) | StepTarget::ControllerOfNamespace(namespace, name) => {
                let number = self.namespaces.binary_search(&namespace.to_owned()).ok();
                let is_anywhere = matches!(gives, StepTarget::Controller(..));
                let number = number.filter(|number| is_anywhere || area.contains(*number));
                let account =
                    number.map(|number| Targets::Accounts(Area::one(number), Names::Only(name.to_owned())));
                account.into_iter().collect()
            }
            StepTarget::AllAccounts | StepTarget::AccountsOnNode => {
                vec![Targets::Accounts(Area::Everywhere, Names::all())]
            }
            StepTarget::User => vec![Targets::Users(names)],
            StepTarget::Group => vec![Targets::Groups(names)],
            StepTarget::UsersAndGroups => {
                let masters = Names::all_but("system:masters");
                vec![Targets::Users(Names::all()), Targets::Groups(masters)]
            }
            StepTarget::Nodes => vec![Targets::Actor(group(NODES))],
            StepTarget::Bootstrappers => {
                let system = self.namespaces.binary_search(&KUBE_SYSTEM.to_owned());
                let is_there = system.is_ok_and(|system| area.contains(system));
                let bootstrappers = is_there.then(|| Targets::Actor(group(BOOTSTRAPPERS)));
                bootstrappers.into_iter().collect()
            }
            StepTarget::ClusterAdmin => vec![Targets::Actor(Actor::cluster_admin())],
            StepTarget::ClusterRole => vec![Targets::ClusterRoles(names)],
            StepTarget::ClusterRoleInNamespace => vec![Targets::ClusterRolesWithin(area, names)],
            StepTarget::Role => vec![Targets::Roles(area, names)],
            StepTarget::WidenedClusterRole | StepTarget::WidenedRole => {
                let kind = match gives {
                    StepTarget::WidenedRole => RoleKind::Role,
                    _ => RoleKind::ClusterRole,
                };
                let widened = self.roles_of(actor).into_iter();
                let widened = widened.filter(|held| held.kind == kind && names.include(held.name));
                widened.filter_map(|held| held.widened(&area)).collect()
            }
        }
    }

    /// The roles that bindings grant to `actor`.
    pub(crate) fn roles_of<'a>(&'a self, actor: &'a Actor) -> Vec<BoundTo<'a>> {
        match actor {
            Actor::Subject(scope) => {
                let groups = scope.implied_groups().into_iter().map(SubjectScope::Group);
                let scopes: BTreeSet<SubjectScope> = groups.chain([scope.clone()]).collect();
                let bindings = scopes
                    .iter()
                    .filter_map(|scope| self.bindings.get(scope))
                    .flatten();
                let bound = bindings.map(|binding| BoundTo {
                    kind: binding.role.kind,
                    name: &binding.role.name,
                    within: (!binding.is_cluster_wide())
                        .then(|| self.namespaces.binary_search(&binding.namespace).ok())
                        .flatten()
                        .map(Area::one),
                });
                bound.collect()
            }
            Actor::Holder(held) => vec![BoundTo {
                kind: held.kind(),
                name: &held.name,
                within: held.within.clone(),
            }],
        }
    }

    fn number_of_targets(&mut self, targets: Targets) -> usize {
        if let Some(&number) = self.target_numbers.get(&targets) {
            return number;
        }
        let members = self.members(&targets);
        let number = self.targets.len();
        self.targets.push(members);
        self.target_numbers.insert(targets, number);
        number
    }

    fn members(&mut self, targets: &Targets) -> Vec<usize> {
        match targets {
            Targets::Actor(actor) => vec![self.add_actor(actor.clone())],
            Targets::Accounts(area, names) => {
                let accounts = self.accounts.iter();
                let accounts = accounts.filter(|(namespace, _)| area.contains(**namespace));
                let accounts = accounts.flat_map(|(_, accounts)| accounts.iter().copied());
                accounts
                    .filter(|account| self.is_named(*account, names))
                    .collect()
            }
            Targets::Users(names) => self.subjects(SubjectKind::User, names),
            Targets::Groups(names) => self.subjects(SubjectKind::Group, names),
            Targets::ClusterRoles(names) => self.held(None, names, None),
            Targets::ClusterRolesWithin(area, names) => self.held(None, names, Some(area)),
            Targets::Roles(area, names) => {
                let namespaces = self.namespaces.iter().enumerate();
                let namespaces = namespaces.filter(|(number, _)| area.contains(*number));
                namespaces
                    .flat_map(|(number, namespace)| {
                        self.held(Some(namespace), names, Some(&Area::one(number)))
                    })
                    .collect()
            }
        }
    }

    fn subjects(&self, kind: SubjectKind, names: &Names) -> Vec<usize> {
        let is_one = |number: &usize| match self.actors.get(*number) {
            Some(Actor::Subject(scope)) => scope.subject().0.kind == kind && self.is_named(*number, names),
            _ => false,
        };
        (0..self.actors.len()).filter(is_one).collect()
    }

    fn is_named(&self, number: usize, names: &Names) -> bool {
        match self.actors.get(number) {
            Some(Actor::Subject(scope)) => names.include(&scope.subject().0.name),
            _ => false,
        }
    }

    /// The holders of the roles with these names; if `cluster-admin` is among them, only its
    /// holder.
    fn held(&mut self, namespace: Option<&String>, names: &Names, within: Option<&Area>) -> Vec<usize> {
        let mut held = HeldRole::cluster_admin();
        held.within = within.cloned();
        if namespace.is_none() && names.include(&held.name) {
            return vec![self.add_actor(Actor::Holder(held))];
        }
        let there = namespace.map(String::as_str).unwrap_or_default();
        let roles = self.set.roles.iter();
        let roles = roles.filter(|role| role.namespace == there && names.include(&role.name));
        let roles = roles.map(|role| HeldRole {
            namespace: namespace.cloned(),
            name: role.name.clone(),
            within: within.cloned(),
        });
        roles.map(|held| self.add_actor(Actor::Holder(held))).collect()
    }
}

fn is_node(actor: &Actor) -> bool {
    match actor {
        Actor::Subject(scope) => {
            let name = scope.subject().0.name;
            scope.implied_groups().iter().any(|group| group == NODES) || name.starts_with("system:node:")
        }
        Actor::Holder(_) => false,
    }
}

fn group(name: &str) -> Actor {
    Actor::Subject(SubjectScope::Group(name.to_owned()))
}

// === impl BoundTo ===

impl BoundTo<'_> {
    /// The holder of the role once it is changed to allow everything; `None` if it cannot be
    /// changed in `area`.
    pub(crate) fn widened(&self, area: &Area) -> Option<Targets> {
        let within = match &self.within {
            Some(within) if self.kind == RoleKind::Role => Some(within.and(area)?),
            within => within.clone(),
        };
        let everything = HeldRole::cluster_admin();
        Some(Targets::Actor(Actor::Holder(HeldRole { within, ..everything })))
    }
}
