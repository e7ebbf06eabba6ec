//! Everybody who may do something, by which object, within which limits.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use crate::authorization::{PolicySet, Subject};
use crate::engine::{CauseKind, Deadline, Time};

use super::grants::{GrantSource, GrantingRule};
use super::limits;
use super::open_request::OpenRequest;
use super::query::{AccessQuery, DenyEffects};
use super::subject_scope::SubjectScope;

/// The most rules, names and words of an answer together. Who may do something, times what may take
/// it away, is more than a process has memory for.
pub(crate) const MAX_ANSWER_ENTRIES: usize = 2_000_000;

/// A subject that may do what was asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grantee {
    /// The subject; a service account always has its namespace.
    pub subject: Subject,
    /// Whether the `*` at the end of its name stands for any text.
    pub is_pattern: bool,
    /// What allows it, in the order of decision. Empty for `system:masters`, which an API
    /// server allows everything without asking.
    pub via: Vec<Via>,
    /// The Deny policies that may take it away from some of them or for some requests, by name.
    pub denied_by: Vec<Arc<str>>,
}

/// A rule that allows something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Via {
    /// The kind of the object.
    pub kind: CauseKind,
    /// Its namespace, outside which it allows nothing; empty for all.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The rule, as in [`Cause::rule`](crate::engine::Cause::rule).
    pub rule: usize,
    /// What else a request must be, in the words of a manifest's fields; empty: it may be
    /// any of those asked about.
    pub limits: Vec<String>,
}

/// What was found of some users.
type Found = BTreeMap<SubjectScope, Vec<(Via, Rc<DenyEffects>)>>;

impl PolicySet {
    /// Everybody who may do what `request` asks, at `now`, by kind and name.
    ///
    /// A user who is not listed, by name, group or pattern, may not. A Deny
    /// policy takes subjects out where it certainly holds for all of them and for all that
    /// they may; it is listed with them where it may hold. A user may be in any group.
    /// `system:masters` is always listed and never denied: an API server does not ask.
    ///
    /// Takes time linear in the bindings, the policies and the answer. `None` where that is longer
    /// than until `deadline`, or the answer has more than 2,000,000 entries.
    #[must_use]
    pub fn who_can(&self, request: &OpenRequest, now: Time, deadline: Deadline<'_>) -> Option<Vec<Grantee>> {
        let mut room = MAX_ANSWER_ENTRIES;
        let request = request.clone().normalized(&self.cluster_scoped);
        let mut query = AccessQuery::new(self, &request, self.denies_in_force(now));
        let mut found = Found::new();
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

    /// Those of `scope`, if something of what was found is left to them.
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
    /// By kind, namespace and name.
    fn place(&self) -> (&'static str, &str, &str) {
        let Subject {
            kind,
            name,
            namespace,
        } = &self.subject;
        (kind.as_str(), namespace, name)
    }
}

/// Notes what a rule grants, with each of those to whom it does; how many these are.
fn note(
    found: &mut Found,
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
                excluded.any(|subject| scope.is_within(subject))
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
        GrantSource::Binding(_, names) if open.name => limits::of_names(names).into_iter().collect(),
        GrantSource::Binding(..) => Vec::new(),
        GrantSource::Policy(indexed, rule) => {
            let policy = &indexed.policy;
            let of_rule = rule.map(|rule| limits::of_rule(policy.effect, rule, open));
            let mut limits = of_rule.unwrap_or_default();
            limits.extend(limits::of_policy(policy, Some(scope)));
            limits
        }
    };
    granting.source.via(granting.number, limits)
}

impl GrantSource<'_> {
    /// The rule of this number, as it is reported.
    pub(crate) fn via(self, rule: usize, limits: Vec<String>) -> Via {
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
