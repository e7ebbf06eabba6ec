//! Actors and the steps between them, and the shortest paths along these.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::query::{
    BOOTSTRAPPERS, EscalationPath, EscalationQuery, EscalationStep, EscalationTarget, Escalations, Identity,
    NODES, ObjectName, Universe, all_questions, policies,
};
use super::reach::{Actor, Area, HeldRole, Names, Questions, Reach};
use super::steps::{AskedName, Gives, NODE_CREDENTIALS, Question, STEP_KINDS, StepKind};
use crate::authorization::access::SubjectScope;
use crate::authorization::access::denies::ApplicableDenies;
use crate::authorization::{Binding, PolicySet, RoleKind, Subject, SubjectKind};
use crate::engine::Deadline;

/// All actors and steps.
pub(crate) struct Graph<'s> {
    set: &'s PolicySet,
    namespaces: &'s [String],
    questions: Questions<'s>,
    /// The place of each question of the steps.
    places: HashMap<Question, usize>,
    /// The bindings of each subject.
    bindings: HashMap<SubjectScope, Vec<&'s Binding>>,
    /// The first is who may everything.
    actors: Vec<Actor>,
    numbers: HashMap<Actor, usize>,
    /// Service accounts by the number of their namespace.
    accounts: BTreeMap<usize, Vec<usize>>,
    targets: Vec<Vec<usize>>,
    target_numbers: HashMap<Targets, usize>,
    edges: Vec<Edge>,
    /// Who may everything.
    admins: BTreeSet<usize>,
    /// Who may do what was asked for.
    allowed: BTreeSet<usize>,
}

/// Whom a step reaches.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Targets {
    Accounts(Area, Names),
    Users(Names),
    Groups(Names),
    ClusterRoles(Names),
    ClusterRolesWithin(Area, Names),
    Roles(Area, Names),
    Actor(Actor),
}

/// A step that an actor can take, or could but for Deny policies.
#[derive(Debug, Clone, Copy)]
struct Edge {
    from: usize,
    kind: usize,
    targets: usize,
    is_limited: bool,
    is_refuted: bool,
}

/// How an actor goes on: by which edge, to whom. `None` where it ends.
type Next = Option<(usize, usize)>;

/// With fewer steps that a policy prevents, and then with fewer limits.
type Weight = (usize, usize);

// === impl Graph ===

impl<'s> Graph<'s> {
    /// All steps of all actors of `universe`. `None` once `deadline` has passed.
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
        // Without a role, a binding gives nothing that could be changed.
        for bound in set.bindings.iter().filter(|bound| bound.role.is_some()) {
            let binding = &*bound.binding;
            let subjects = binding.subjects.iter();
            let scopes = subjects.filter_map(|subject| SubjectScope::of_binding(subject, &binding.namespace));
            for scope in scopes.collect::<BTreeSet<_>>() {
                graph.bindings.entry(scope).or_default().push(binding);
            }
        }
        graph.number(Actor::cluster_admin());
        for scope in &universe.subjects {
            graph.number(Actor::Subject(scope.clone()));
        }
        // Steps bring more actors: those who have a role.
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

    fn number(&mut self, actor: Actor) -> usize {
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

    fn namespace_of_account(&self, actor: &Actor) -> Option<usize> {
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
        if *actor == Actor::cluster_admin() || self.questions.is_whole(actor, 0, &denies) {
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
        let mut asked: HashMap<usize, Vec<Reach>> = HashMap::new();
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

    /// What `actor` is allowed of all that `step` needs.
    fn reaches(
        &mut self,
        actor: &Actor,
        step: &StepKind,
        denies: &ApplicableDenies<'s>,
        asked: &mut HashMap<usize, Vec<Reach>>,
    ) -> BTreeSet<Reach> {
        let everything = Reach {
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
            let mut one_of: BTreeSet<Reach> = BTreeSet::new();
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

    fn targets_of(&self, actor: &Actor, gives: Gives, reach: &Reach) -> Vec<Targets> {
        let (area, names) = (reach.area.clone(), reach.names.clone());
        match gives {
            Gives::AccountsOfNamespace => vec![Targets::Accounts(area, Names::all())],
            Gives::Account => vec![Targets::Accounts(area, names)],
            Gives::AllAccounts | Gives::AccountsOnNode => {
                vec![Targets::Accounts(Area::Everywhere, Names::all())]
            }
            Gives::User => vec![Targets::Users(names)],
            Gives::Group => vec![Targets::Groups(names)],
            Gives::UsersAndGroups => {
                let masters = Names::all_but("system:masters");
                vec![Targets::Users(Names::all()), Targets::Groups(masters)]
            }
            Gives::Nodes => vec![Targets::Actor(group(NODES))],
            Gives::Bootstrappers => {
                let system = self.namespaces.binary_search(&KUBE_SYSTEM.to_owned());
                let is_there = system.is_ok_and(|system| area.contains(system));
                let bootstrappers = is_there.then(|| Targets::Actor(group(BOOTSTRAPPERS)));
                bootstrappers.into_iter().collect()
            }
            Gives::ClusterAdmin => vec![Targets::Actor(Actor::cluster_admin())],
            Gives::ClusterRole => vec![Targets::ClusterRoles(names)],
            Gives::ClusterRoleInNamespace => vec![Targets::ClusterRolesWithin(area, names)],
            Gives::Role => vec![Targets::Roles(area, names)],
            Gives::WidenedClusterRole | Gives::WidenedRole => {
                let kind = match gives {
                    Gives::WidenedRole => RoleKind::Role,
                    _ => RoleKind::ClusterRole,
                };
                let widened = self.roles_of(actor).into_iter();
                let widened = widened.filter(|held| held.kind == kind && names.include(held.name));
                widened.filter_map(|held| held.widened(&area)).collect()
            }
        }
    }

    /// The roles that bindings give to `actor`.
    fn roles_of<'a>(&'a self, actor: &'a Actor) -> Vec<BoundTo<'a>> {
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
            Targets::Actor(actor) => vec![self.number(actor.clone())],
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

    /// Those who have a role: where they may have that of who may everything, it alone.
    fn held(&mut self, namespace: Option<&String>, names: &Names, within: Option<&Area>) -> Vec<usize> {
        let mut held = HeldRole::cluster_admin();
        held.within = within.cloned();
        if namespace.is_none() && names.include(&held.name) {
            return vec![self.number(Actor::Holder(held))];
        }
        let there = namespace.map(String::as_str).unwrap_or_default();
        let roles = self.set.roles.iter();
        let roles = roles.filter(|role| role.namespace == there && names.include(&role.name));
        let roles = roles.map(|role| HeldRole {
            namespace: namespace.cloned(),
            name: role.name.clone(),
            within: within.cloned(),
        });
        roles.map(|held| self.number(Actor::Holder(held))).collect()
    }

    // Paths.

    /// The paths that answer `query`.
    pub(crate) fn answer(&mut self, query: &EscalationQuery) -> Escalations {
        let from = query.from.as_ref().and_then(|subject| self.find(subject));
        if query.to == EscalationTarget::Everybody {
            return self.all_reached(from);
        }
        let goals = match &query.to {
            EscalationTarget::Request(_) => self.allowed.clone(),
            EscalationTarget::Subject(subject) => self.find(subject).into_iter().collect(),
            EscalationTarget::ClusterAdmin | EscalationTarget::Everybody => self.admins.clone(),
        };
        let is_admin = query.to == EscalationTarget::ClusterAdmin;
        let (taken, refuted) = (self.towards(&goals, false), self.towards(&goals, true));
        let mut found = Escalations::default();
        for number in 0..self.actors.len() {
            let is_asked = from.map_or_else(|| self.is_subject(number), |from| from == number);
            let is_there = goals.contains(&number);
            if !is_asked || is_there {
                continue;
            }
            if taken.contains_key(&number) {
                let hops = self.hops(number, &taken);
                found.paths.extend(self.path(number, &hops, is_admin));
            } else if refuted.contains_key(&number) {
                let hops = self.hops(number, &refuted);
                found.refuted.extend(self.path(number, &hops, is_admin));
            }
        }
        found.sort();
        found
    }

    fn find(&self, subject: &Subject) -> Option<usize> {
        let scope = SubjectScope::of_binding(subject, "")?;
        self.numbers.get(&Actor::Subject(scope)).copied()
    }

    fn is_subject(&self, number: usize) -> bool {
        matches!(self.actors.get(number), Some(Actor::Subject(_)))
    }

    /// How each actor who can goes on to one of `goals` by the fewest steps.
    fn towards(&self, goals: &BTreeSet<usize>, with_refuted: bool) -> HashMap<usize, Next> {
        let mut into: Vec<Vec<usize>> = vec![Vec::new(); self.targets.len()];
        for (number, edge) in self.edges.iter().enumerate() {
            if let Some(into) = into
                .get_mut(edge.targets)
                .filter(|_| with_refuted || !edge.is_refuted)
            {
                into.push(number);
            }
        }
        let mut within: Vec<Vec<usize>> = vec![Vec::new(); self.actors.len()];
        for (number, members) in self.targets.iter().enumerate() {
            for member in members {
                if let Some(within) = within.get_mut(*member) {
                    within.push(number);
                }
            }
        }
        let mut found: HashMap<usize, (Weight, Next)> =
            goals.iter().map(|goal| (*goal, ((0, 0), None))).collect();
        let mut done = vec![false; self.targets.len()];
        let mut reached: Vec<usize> = goals.iter().copied().collect();
        while !reached.is_empty() {
            let mut next: BTreeMap<usize, (Weight, usize, usize, usize)> = BTreeMap::new();
            let mut best: BTreeMap<usize, (Weight, usize)> = BTreeMap::new();
            for actor in &reached {
                let weight = found.get(actor).map_or((0, 0), |(weight, _)| *weight);
                for targets in within.get(*actor).into_iter().flatten() {
                    if !done.get(*targets).copied().unwrap_or(true) {
                        let candidate = (weight, *actor);
                        best.entry(*targets)
                            .and_modify(|known| *known = candidate.min(*known))
                            .or_insert(candidate);
                    }
                }
            }
            for (targets, (weight, actor)) in best {
                if let Some(done) = done.get_mut(targets) {
                    *done = true;
                }
                for &number in into.get(targets).into_iter().flatten() {
                    let Some(edge) = self.edges.get(number) else {
                        continue;
                    };
                    if found.contains_key(&edge.from) {
                        continue;
                    }
                    let candidate = (edge.added_to(weight), edge.kind, number, actor);
                    next.entry(edge.from)
                        .and_modify(|known| *known = candidate.min(*known))
                        .or_insert(candidate);
                }
            }
            reached = next.keys().copied().collect();
            for (from, (weight, _, edge, to)) in next {
                found.insert(from, (weight, Some((edge, to))));
            }
        }
        found
            .into_iter()
            .map(|(actor, (_, next))| (actor, next))
            .collect()
    }

    fn hops(&self, from: usize, next: &HashMap<usize, Next>) -> Vec<(usize, usize)> {
        let mut hops = Vec::new();
        let mut at = from;
        while let Some(Some((edge, to))) = next.get(&at) {
            hops.push((*edge, *to));
            at = *to;
        }
        hops
    }

    /// The subjects that `from` can reach.
    fn all_reached(&mut self, from: Option<usize>) -> Escalations {
        let Some(from) = from else {
            return Escalations::default();
        };
        let (taken, refuted) = (self.reached_from(from, false), self.reached_from(from, true));
        let mut found = Escalations::default();
        for number in (0..self.actors.len()).filter(|number| *number != from) {
            if taken.contains_key(&number) {
                let hops = hops_back(from, number, &taken, &self.edges);
                found.paths.extend(self.path(from, &hops, false));
            } else if refuted.contains_key(&number) {
                let hops = hops_back(from, number, &refuted, &self.edges);
                found.refuted.extend(self.path(from, &hops, false));
            }
        }
        found.sort();
        found
    }

    /// The edge by which each actor who can be reached is, with the fewest steps.
    fn reached_from(&self, from: usize, with_refuted: bool) -> HashMap<usize, usize> {
        let mut of_actor: Vec<Vec<usize>> = vec![Vec::new(); self.actors.len()];
        for (number, edge) in self.edges.iter().enumerate() {
            if let Some(of_actor) = of_actor
                .get_mut(edge.from)
                .filter(|_| with_refuted || !edge.is_refuted)
            {
                of_actor.push(number);
            }
        }
        let mut found: HashMap<usize, (Weight, usize)> = HashMap::new();
        let mut done = vec![false; self.targets.len()];
        let mut reached = vec![(from, (0, 0))];
        while !reached.is_empty() {
            let mut best: BTreeMap<usize, (Weight, usize, usize)> = BTreeMap::new();
            for (actor, weight) in reached {
                for &number in of_actor.get(actor).into_iter().flatten() {
                    if let Some(edge) = self
                        .edges
                        .get(number)
                        .filter(|edge| done.get(edge.targets) == Some(&false))
                    {
                        let candidate = (edge.added_to(weight), edge.kind, number);
                        best.entry(edge.targets)
                            .and_modify(|known| *known = candidate.min(*known))
                            .or_insert(candidate);
                    }
                }
            }
            let mut next: BTreeMap<usize, (Weight, usize)> = BTreeMap::new();
            for (targets, (weight, _, edge)) in best {
                if let Some(done) = done.get_mut(targets) {
                    *done = true;
                }
                let members = self.targets.get(targets).into_iter().flatten();
                for &member in members.filter(|member| **member != from && !found.contains_key(*member)) {
                    let candidate = (weight, edge);
                    next.entry(member)
                        .and_modify(|known| *known = candidate.min(*known))
                        .or_insert(candidate);
                }
            }
            reached = next
                .iter()
                .map(|(actor, (weight, _))| (*actor, *weight))
                .collect();
            found.extend(next);
        }
        found
            .into_iter()
            .map(|(actor, (_, edge))| (actor, edge))
            .collect()
    }

    /// `hops` in words; to who may everything by that name, whoever it is.
    fn path(&mut self, from: usize, hops: &[(usize, usize)], is_admin: bool) -> Option<EscalationPath> {
        let mut steps = Vec::new();
        for &(edge, to) in hops {
            let edge = *self.edges.get(edge)?;
            steps.push(self.step(edge, to)?);
        }
        let last = steps.last()?;
        Some(EscalationPath {
            from: self.identity(from)?,
            to: match is_admin {
                true => self.identity(0)?,
                false => last.becomes.clone(),
            },
            steps,
        })
    }

    fn step(&mut self, edge: Edge, to: usize) -> Option<EscalationStep> {
        let (actor, target) = (self.actors.get(edge.from)?.clone(), self.actors.get(to)?.clone());
        let becomes = self.identity(to)?;
        let kind = STEP_KINDS.get(edge.kind)?;
        let denies = self.questions.denies_for(&actor);
        let place = self.place_of(&target);
        let name = self.name_asked(&actor, kind.gives, &target);
        let mut step = EscalationStep {
            by: NODE_CREDENTIALS.to_owned(),
            via: Vec::new(),
            becomes,
            limits: Some(kind.limit.to_owned())
                .filter(|limit| !limit.is_empty())
                .into_iter()
                .collect(),
            refuted_by: Vec::new(),
        };
        for (number, need) in kind.needs.iter().enumerate() {
            let mut best = None;
            for question in *need {
                let name = name.as_deref().filter(|_| question.name == AskedName::Target);
                let asked = self.places.get(question).copied()?;
                let found = self.questions.allowance(&actor, asked, (place, name), &denies);
                let Some(found) = found else { continue };
                let worth = (found.refuted_by.len(), found.limits.len());
                if best.as_ref().is_none_or(|(known, _, _)| worth < *known) {
                    best = Some((worth, question, found));
                }
            }
            let (_, question, found) = best?;
            if number == 0 {
                step.by = self.in_words(question, name.as_deref(), place);
            }
            step.via.extend(found.source.map(|source| {
                let (namespace, name) = source.names();
                ObjectName {
                    kind: source.kind().as_str(),
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                }
            }));
            step.limits.extend(found.limits);
            step.refuted_by.extend(policies(found.refuted_by));
        }
        let mut seen = BTreeSet::new();
        step.via.retain(|object| seen.insert(object.clone()));
        let mut seen = BTreeSet::new();
        step.limits.retain(|limit| seen.insert(limit.clone()));
        step.refuted_by.sort();
        step.refuted_by.dedup();
        Some(step)
    }

    /// The namespace in which `target` is reached.
    fn place_of(&self, target: &Actor) -> Option<usize> {
        match target {
            Actor::Holder(HeldRole {
                within: Some(Area::In(area)),
                ..
            }) => area.first().copied(),
            Actor::Holder(_) => None,
            Actor::Subject(_) => self.namespace_of_account(target),
        }
    }

    /// The name that a step to `target` asks about.
    fn name_asked(&self, actor: &Actor, gives: Gives, target: &Actor) -> Option<String> {
        match (gives, target) {
            (Gives::WidenedClusterRole | Gives::WidenedRole, _) => {
                let kind = match gives {
                    Gives::WidenedRole => RoleKind::Role,
                    _ => RoleKind::ClusterRole,
                };
                let mut held = self.roles_of(actor).into_iter();
                let held = held.find(|held| {
                    held.kind == kind
                        && held
                            .widened(&Area::Everywhere)
                            .is_some_and(|targets| targets == Targets::Actor(target.clone()))
                });
                held.map(|held| held.name.to_owned())
            }
            (_, Actor::Holder(held)) => Some(held.name.clone()),
            (_, Actor::Subject(scope)) if gives.is_named() => Some(scope.subject().0.name),
            _ => None,
        }
    }

    fn in_words(&self, question: &Question, name: Option<&str>, place: Option<usize>) -> String {
        let mut words = question.words();
        let name = match question.name {
            AskedName::Target => name,
            AskedName::Is(name) => Some(name),
            AskedName::None | AskedName::Any => None,
        };
        if let Some(name) = name {
            words.push(' ');
            words.push_str(name);
        }
        let namespace = place.and_then(|place| self.namespaces.get(place));
        if let Some(namespace) = namespace.filter(|_| question.is_namespaced) {
            words.push_str(" in ");
            words.push_str(namespace);
        }
        words
    }

    fn identity(&self, number: usize) -> Option<Identity> {
        Some(match self.actors.get(number)? {
            Actor::Subject(scope) => {
                let (subject, _) = scope.subject();
                Identity {
                    kind: subject.kind.as_str(),
                    namespace: subject.namespace,
                    name: subject.name,
                }
            }
            Actor::Holder(held) => Identity {
                kind: match held.kind() {
                    RoleKind::Role => "Role",
                    RoleKind::ClusterRole => "ClusterRole",
                },
                namespace: match &held.within {
                    None => String::new(),
                    Some(Area::In(area)) if area.len() == 1 => {
                        let namespace = area.first().and_then(|number| self.namespaces.get(*number));
                        namespace.cloned().unwrap_or_default()
                    }
                    Some(_) => "*".to_owned(),
                },
                name: held.name.clone(),
            },
        })
    }
}

fn hops_back(from: usize, to: usize, by: &HashMap<usize, usize>, edges: &[Edge]) -> Vec<(usize, usize)> {
    let mut hops = Vec::new();
    let mut at = to;
    while at != from {
        let Some((number, edge)) = by
            .get(&at)
            .and_then(|number| Some((*number, edges.get(*number)?)))
        else {
            return Vec::new();
        };
        hops.push((number, at));
        at = edge.from;
    }
    hops.reverse();
    hops
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

const KUBE_SYSTEM: &str = "kube-system";

/// A role that a binding gives.
struct BoundTo<'a> {
    kind: RoleKind,
    name: &'a str,
    /// `None`: everywhere.
    within: Option<Area>,
}

// === impl BoundTo ===

impl BoundTo<'_> {
    /// Who has it once it allows everything, if it can be changed in `area`.
    fn widened(&self, area: &Area) -> Option<Targets> {
        let within = match &self.within {
            Some(within) if self.kind == RoleKind::Role => Some(within.and(area)?),
            within => within.clone(),
        };
        let everything = HeldRole::cluster_admin();
        Some(Targets::Actor(Actor::Holder(HeldRole { within, ..everything })))
    }
}

// === impl Edge ===

impl Edge {
    fn added_to(&self, (refuted, limited): Weight) -> Weight {
        (
            refuted + usize::from(self.is_refuted),
            limited + usize::from(self.is_limited),
        )
    }
}

// === impl Reach ===

impl Reach {
    /// What both allow.
    fn and(&self, other: &Self) -> Option<Self> {
        Some(Self {
            is_refuted: self.is_refuted || other.is_refuted,
            is_limited: self.is_limited || other.is_limited,
            names: self.names.and(&other.names)?,
            area: self.area.and(&other.area)?,
        })
    }
}

// === impl Escalations ===

impl Escalations {
    fn sort(&mut self) {
        let by_names = |one: &EscalationPath, other: &EscalationPath| {
            (&one.from, &one.to).cmp(&(&other.from, &other.to))
        };
        self.paths.sort_by(by_names);
        self.refuted.sort_by(by_names);
    }
}
