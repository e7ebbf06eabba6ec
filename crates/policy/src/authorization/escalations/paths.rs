//! Finds the shortest paths in the graph, and describes their steps.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::actors::{Actor, Area, HeldRole, NODE_CREDENTIALS, Question, QuestionName, StepTarget};
use super::graph::{Edge, Graph, Targets};
use super::known_steps::STEP_KINDS;
use super::reach::Questions;
use super::{
    EscalationPath, EscalationQuery, EscalationStep, EscalationTarget, Escalations, Identity, NeededWorkload,
    ObjectName, Universe, policies,
};
use crate::authorization::access::SubjectScope;
use crate::authorization::{PolicySet, RoleKind, Subject};
use crate::model::{Deadline, Time};

/// The next edge on the path of an actor, and its target; `None` at the end.
type Next = Option<(usize, usize)>;

/// The number of steps that a policy prevents, and of steps with limits, in this order of
/// importance.
type Weight = (usize, usize);

impl PolicySet {
    /// The shortest paths for `query` at `now`. `None` if the deadline passes.
    ///
    /// Subjects are those in bindings and Allow policies, and the service account `default` of each
    /// known namespace. A user may be in any group, but the groups of service accounts are known.
    /// Takes time linear in the bindings and, if policies distinguish between namespaces, in these.
    #[must_use]
    pub fn escalations(
        &self,
        query: &EscalationQuery,
        now: Time,
        deadline: Deadline<'_>,
    ) -> Option<Escalations> {
        let universe = Universe::of(self, query);
        let requests = universe.requests.iter().map(|(request, name)| (request, *name));
        let questions = Questions::new(self, &universe.namespaces, requests, now);
        let mut graph = Graph::of(self, &universe, questions, deadline)?;
        Some(graph.answer(query))
    }
}

// === impl Graph ===

impl Graph<'_> {
    /// The paths for `query`.
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
        let (taken, refuted) = (self.paths_to(&goals, false), self.paths_to(&goals, true));
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

    /// The indexes of the edges by one of their ends, which is less than `count`.
    fn edges_by(&self, count: usize, end: fn(&Edge) -> usize, with_refuted: bool) -> Vec<Vec<usize>> {
        let mut by_end: Vec<Vec<usize>> = vec![Vec::new(); count];
        for (number, edge) in self.edges.iter().enumerate() {
            if let Some(edges) = by_end
                .get_mut(end(edge))
                .filter(|_| with_refuted || !edge.is_refuted)
            {
                edges.push(number);
            }
        }
        by_end
    }

    /// The next edge of each actor on a path to one of `goals` with the fewest steps.
    fn paths_to(&self, goals: &BTreeSet<usize>, with_refuted: bool) -> HashMap<usize, Next> {
        let into = self.edges_by(self.targets.len(), |edge| edge.targets, with_refuted);
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

    /// The last edge on a path from `from` to each actor with the fewest steps.
    fn reached_from(&self, from: usize, with_refuted: bool) -> HashMap<usize, usize> {
        let of_actor = self.edges_by(self.actors.len(), |edge| edge.from, with_refuted);
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

    /// Describes `hops`. If `is_admin`, the target is the actor that may do everything.
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
        let place = match kind.gives {
            // The controller acts on objects in any namespace, not only in its own.
            StepTarget::Controller(..) => None,
            _ => self.place_of(&target),
        };
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
            workload: None,
        };
        for (number, need) in kind.needs.iter().enumerate() {
            let mut best = None;
            for question in *need {
                let name = name.as_deref().filter(|_| question.name == QuestionName::Target);
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
                step.workload = question.workload().map(|resource| NeededWorkload {
                    resource,
                    admission: None,
                });
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

    /// The name in the question of a step to `target`.
    fn name_asked(&self, actor: &Actor, gives: StepTarget, target: &Actor) -> Option<String> {
        match (gives, target) {
            (StepTarget::WidenedClusterRole | StepTarget::WidenedRole, _) => {
                let kind = match gives {
                    StepTarget::WidenedRole => RoleKind::Role,
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
        let mut words = question.describe();
        let name = match question.name {
            QuestionName::Target => name,
            QuestionName::Is(name) => Some(name),
            QuestionName::None | QuestionName::Any => None,
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

// === impl Edge ===

impl Edge {
    fn added_to(&self, (refuted, limited): Weight) -> Weight {
        (
            refuted + usize::from(self.is_refuted),
            limited + usize::from(self.is_limited),
        )
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
