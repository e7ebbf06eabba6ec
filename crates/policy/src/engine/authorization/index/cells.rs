//! RBAC rules, indexed by verb, group, resource and name.
//!
//! A rule is a product: every verb with every group, resource and name. Each element of
//! the product is a cell, and a decision only needs the first rule of a cell. A request
//! falls into at most 24 cells: its verb or `*`, its group or `*`, its resource, `*` or
//! `*/sub`, its name or none.

use crate::engine::authorization::Rule;

use super::query::{PathQuery, Query, ResourceQuery};
use super::{FastMap, Symbols};

/// A rule in numbers.
#[derive(Debug)]
pub(super) struct CompiledRule {
    verbs: RuleTexts,
    groups: RuleTexts,
    resources: RuleTexts,
    names: Box<[u32]>,
    paths: Box<[u32]>,
}

/// The words of one field of a rule.
#[derive(Debug)]
struct RuleTexts {
    /// A bit for each word, which words share: what has none of them is refused at once.
    bits: u64,
    ids: Box<[u32]>,
}

/// Where a rule is: lists are walked in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RulePlace {
    pub(super) binding: u32,
    pub(super) rule: u32,
}

/// The first rule of each cell.
#[derive(Debug, Default)]
pub(super) struct Cells {
    resources: FastMap<[u32; 4], RulePlace>,
    paths: FastMap<[u32; 2], RulePlace>,
    /// Rules with more cells than are worth their memory, in order: role and place.
    large: Vec<(u32, RulePlace)>,
    has_names: bool,
}

/// In the place of a name: any.
const ANY_NAME: u32 = Symbols::UNKNOWN - 1;
/// Rules with more cells than this are compared one by one.
const MAX_CELLS: usize = 1024;

// === impl CompiledRule ===

impl CompiledRule {
    pub(super) fn new(rule: &Rule, symbols: &mut Symbols) -> Self {
        let mut intern = |texts: &[String]| {
            let mut ids: Vec<u32> = texts.iter().map(|text| symbols.intern(text)).collect();
            ids.sort_unstable();
            ids.dedup();
            ids.into_boxed_slice()
        };
        Self {
            verbs: RuleTexts::new(intern(rule.verbs.as_slice())),
            groups: RuleTexts::new(intern(rule.api_groups.as_slice())),
            resources: RuleTexts::new(intern(rule.resources.as_slice())),
            names: intern(&rule.resource_names),
            paths: rule
                .non_resource_urls
                .iter()
                .map(|url| symbols.intern_path(url))
                .collect(),
        }
    }

    #[inline]
    pub(super) fn allows(&self, query: &Query<'_, '_>) -> bool {
        match query {
            Query::Resource(query) => self.allows_resource(query),
            Query::Path(query) => self.allows_path(query),
        }
    }

    #[inline]
    fn allows_resource(&self, query: &ResourceQuery<'_, '_>) -> bool {
        let Self {
            verbs,
            groups,
            resources,
            ..
        } = self;
        verbs.may_have(query.verb)
            && groups.may_have(query.group)
            && (resources.may_have(query.full_resource) || resources.may_have(query.any_with_subresource))
            && verbs.has(query.verb)
            && groups.has(query.group)
            && (resources.has(query.full_resource) || resources.has(query.any_with_subresource))
            && (self.names.is_empty() || self.names.contains(&query.name))
    }

    fn allows_path(&self, query: &PathQuery<'_>) -> bool {
        self.verbs.has(query.verb) && self.paths.iter().any(|&path| query.is_at(path))
    }

    fn cell_count(&self) -> usize {
        let resources = [
            self.groups.ids.len(),
            self.resources.ids.len(),
            self.names.len().max(1),
        ];
        let resources = resources.into_iter().fold(1, usize::saturating_mul);
        self.verbs
            .ids
            .len()
            .saturating_mul(resources.saturating_add(self.paths.len()))
    }
}

// === impl RuleTexts ===

impl RuleTexts {
    /// Of numbers that ascend.
    fn new(ids: Box<[u32]>) -> Self {
        let bits = match ids.first() {
            Some(&Symbols::STAR) => u64::MAX,
            _ => ids.iter().fold(0, |bits, &id| bits | bit(id)),
        };
        Self { bits, ids }
    }

    /// `false` where it surely has neither `wanted` nor `*`.
    #[inline]
    const fn may_have(&self, wanted: u32) -> bool {
        self.bits & bit(wanted) != 0
    }

    /// Whether it has `wanted` or `*`.
    #[inline]
    fn has(&self, wanted: u32) -> bool {
        self.may_have(wanted) && self.ids.iter().any(|&id| id == Symbols::STAR || id == wanted)
    }
}

/// Numbers of few texts that a rule has differ in it.
const fn bit(id: u32) -> u64 {
    1 << (id % 64)
}

// === impl ResourceQuery and PathQuery ===

impl ResourceQuery<'_, '_> {
    fn resources(&self) -> [u32; 3] {
        [Symbols::STAR, self.full_resource, self.any_with_subresource]
    }
}

impl PathQuery<'_> {
    fn is_at(&self, path: u32) -> bool {
        self.paths.as_slice().contains(&path)
    }
}

// === impl Cells ===

impl Cells {
    /// Adds a rule of `role`; places must ascend.
    pub(super) fn add(&mut self, rule: &CompiledRule, role: u32, place: RulePlace) {
        if rule.cell_count() > MAX_CELLS {
            self.large.push((role, place));
            return;
        }
        self.has_names |= !rule.names.is_empty();
        let names: &[u32] = if rule.names.is_empty() {
            &[ANY_NAME]
        } else {
            &rule.names
        };
        for &verb in &rule.verbs.ids {
            for &group in &rule.groups.ids {
                for &resource in &rule.resources.ids {
                    for &name in names {
                        self.resources
                            .entry([verb, group, resource, name])
                            .or_insert(place);
                    }
                }
            }
            for &path in &rule.paths {
                self.paths.entry([verb, path]).or_insert(place);
            }
        }
    }

    /// The first place of all that allow `query`. `rule_at` finds a rule again;
    /// `visited` counts those looked at.
    pub(super) fn find<'c>(
        &self,
        query: &Query<'_, '_>,
        rule_at: impl Fn(u32, u32) -> Option<&'c CompiledRule>,
        visited: &mut usize,
    ) -> Option<RulePlace> {
        let mut first = match query {
            Query::Resource(query) => self.find_resource(query, visited),
            Query::Path(query) => self.find_path(query, visited),
        };
        for &(role, place) in &self.large {
            if first.is_some_and(|first| first <= place) {
                break;
            }
            *visited += 1;
            if rule_at(role, place.rule).is_some_and(|rule| rule.allows(query)) {
                first = Some(place);
            }
        }
        first
    }

    fn find_resource(&self, query: &ResourceQuery<'_, '_>, visited: &mut usize) -> Option<RulePlace> {
        let mut first = None;
        let names = [ANY_NAME, query.name];
        let names = if self.has_names { &names[..] } else { &[ANY_NAME] };
        for verb in star_or(query.verb) {
            for group in star_or(query.group) {
                for resource in query.resources() {
                    if resource == Symbols::UNKNOWN || verb == Symbols::UNKNOWN || group == Symbols::UNKNOWN {
                        continue;
                    }
                    for &name in names {
                        earliest(
                            &mut first,
                            self.resources.get(&[verb, group, resource, name]),
                            visited,
                        );
                    }
                }
            }
        }
        first
    }

    fn find_path(&self, query: &PathQuery<'_>, visited: &mut usize) -> Option<RulePlace> {
        let mut first = None;
        for verb in star_or(query.verb) {
            for &path in query.paths.as_slice() {
                earliest(&mut first, self.paths.get(&[verb, path]), visited);
            }
        }
        first
    }
}

fn star_or(id: u32) -> impl Iterator<Item = u32> {
    std::iter::once(Symbols::STAR).chain((id != Symbols::STAR).then_some(id))
}

fn earliest(first: &mut Option<RulePlace>, found: Option<&RulePlace>, visited: &mut usize) {
    if let Some(&place) = found {
        *visited += 1;
        *first = Some(first.map_or(place, |first| first.min(place)));
    }
}
