//! An index of rules, to find candidates without comparing each one.

use std::collections::HashMap;
use std::sync::Arc;

use super::constraints::{Constraints, MatchPolicy, NoRules};
use super::equivalence::Equivalents;
use super::rule::Operations;
use crate::engine::admission::Request;

/// The places of constraints by the group and resource that their rules name,
/// so that the cost of a request follows those that could match it.
#[derive(Debug)]
pub struct Index<T> {
    /// By group, then resource; `*` stands for itself.
    places: ByName<ByName<Vec<IndexEntry<T>>>>,
}

/// The names come from manifests, and are few.
type ByName<T> = HashMap<String, T, foldhash::fast::RandomState>;

#[derive(Debug)]
struct IndexEntry<T> {
    place: usize,
    operations: Operations,
    of: Arc<T>,
}

// === impl Index ===

impl<T> Index<T> {
    /// Indexes what constraints are of, by its place among `all`.
    pub fn new<'c>(
        all: impl IntoIterator<Item = (&'c Constraints, Arc<T>)>,
        equivalents: &Equivalents,
    ) -> Self {
        let mut index = Self {
            places: ByName::default(),
        };
        for (place, (constraints, of)) in all.into_iter().enumerate() {
            index.add(place, &of, constraints, equivalents);
        }
        index
    }

    /// What could match, each with its place, rising. What is not among it does not match.
    #[must_use]
    pub fn candidates(&self, request: &Request<'_>) -> Vec<(usize, &Arc<T>)> {
        let mut candidates = Vec::new();
        for resource in [&request.request_resource, &request.resource] {
            for group in [resource.group.as_ref(), "*"] {
                let Some(resources) = named(&self.places, group) else {
                    continue;
                };
                for name in [resource.resource.as_ref(), "*"] {
                    let meant = named(resources, name)
                        .into_iter()
                        .flatten()
                        .filter(|entry| entry.operations.contains(request.operation));
                    candidates.extend(meant.map(|entry| (entry.place, &entry.of)));
                }
            }
            if !request.is_converted() {
                break;
            }
        }
        if candidates.is_sorted_by_key(|(place, _)| *place) {
            candidates.dedup_by_key(|(place, _)| *place);
            return candidates;
        }
        candidates.sort_unstable_by_key(|(place, _)| *place);
        candidates.dedup_by_key(|(place, _)| *place);
        candidates
    }

    fn add(&mut self, place: usize, of: &Arc<T>, constraints: &Constraints, equivalents: &Equivalents) {
        if constraints.rules.is_empty() {
            if constraints.no_rules == NoRules::Everything {
                self.insert("*", "*", place, of, Operations::ALL);
            }
            return;
        }
        for rule in &constraints.rules {
            let operations = rule.operations;
            for resource in &rule.resources {
                let resource = resource
                    .split_once('/')
                    .map_or(resource.as_str(), |(resource, _)| resource);
                for group in &rule.api_groups {
                    self.insert(group, resource, place, of, operations);
                    if constraints.match_policy == MatchPolicy::Equivalent {
                        for (group, resource) in equivalents.in_other_groups(group, resource) {
                            self.insert(group, resource, place, of, operations);
                        }
                    }
                }
            }
        }
    }

    fn insert(&mut self, group: &str, resource: &str, place: usize, of: &Arc<T>, operations: Operations) {
        let resources = self.places.entry(group.to_owned()).or_default();
        let entries: &mut Vec<IndexEntry<T>> = resources.entry(resource.to_owned()).or_default();
        match entries.last_mut().filter(|last| last.place == place) {
            Some(last) => last.operations = last.operations.union(operations),
            None => entries.push(IndexEntry {
                place,
                operations,
                of: Arc::clone(of),
            }),
        }
    }
}

/// What has this name. The search stands once in the program, not at each of its uses: less
/// code has to be fetched for a request.
#[inline(never)]
fn named<'i, T>(all: &'i ByName<T>, name: &str) -> Option<&'i T> {
    all.get(name)
}
