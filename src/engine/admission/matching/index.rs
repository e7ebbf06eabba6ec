//! Which of many could apply, without asking each.

use std::collections::HashMap;

use super::constraints::{Constraints, MatchPolicy, NoRules};
use super::equivalence::Equivalents;
use super::rule::Operations;
use crate::engine::admission::Request;

/// The places of constraints by the group and resource that their rules name,
/// so that the cost of a request follows those that could match it.
#[derive(Debug, Clone, Default)]
pub struct Index {
    /// By group, then resource; `*` stands for itself.
    places: HashMap<String, HashMap<String, Vec<Entry>>>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    place: usize,
    operations: Operations,
}

// === impl Index ===

impl Index {
    /// Indexes constraints by their place among `all`.
    pub fn new<'c>(all: impl IntoIterator<Item = &'c Constraints>, equivalents: &Equivalents) -> Self {
        let mut index = Self::default();
        for (place, constraints) in all.into_iter().enumerate() {
            index.add(place, constraints, equivalents);
        }
        index
    }

    /// The places of those that could match, rising. What is not among them does not match.
    #[must_use]
    pub fn candidates(&self, request: &Request<'_>) -> Vec<usize> {
        let mut places = Vec::new();
        for resource in [&request.request_resource, &request.resource] {
            for group in [resource.group.as_ref(), "*"] {
                let Some(resources) = self.places.get(group) else {
                    continue;
                };
                for name in [resource.resource.as_ref(), "*"] {
                    let entries = resources.get(name).map(Vec::as_slice).unwrap_or_default();
                    let meant = entries
                        .iter()
                        .filter(|entry| entry.operations.contains(request.operation));
                    places.extend(meant.map(|entry| entry.place));
                }
            }
            if !request.is_converted() {
                break;
            }
        }
        places.sort_unstable();
        places.dedup();
        places
    }

    fn add(&mut self, place: usize, constraints: &Constraints, equivalents: &Equivalents) {
        if constraints.rules.is_empty() {
            if constraints.no_rules == NoRules::Everything {
                self.insert(
                    "*",
                    "*",
                    Entry {
                        place,
                        operations: Operations::ALL,
                    },
                );
            }
            return;
        }
        for rule in &constraints.rules {
            let entry = Entry {
                place,
                operations: rule.operations,
            };
            for resource in &rule.resources {
                let resource = resource
                    .split_once('/')
                    .map_or(resource.as_str(), |(resource, _)| resource);
                for group in &rule.api_groups {
                    self.insert(group, resource, entry);
                    if constraints.match_policy == MatchPolicy::Equivalent {
                        for other in equivalents.groups_of(group, resource) {
                            self.insert(&other, resource, entry);
                        }
                    }
                }
            }
        }
    }

    fn insert(&mut self, group: &str, resource: &str, entry: Entry) {
        let resources = self.places.entry(group.to_owned()).or_default();
        let entries = resources.entry(resource.to_owned()).or_default();
        match entries.last_mut().filter(|last| last.place == entry.place) {
            Some(last) => last.operations = last.operations.union(entry.operations),
            None => entries.push(entry),
        }
    }
}
