//! In which rules of a block each text occurs, field by field.
//!
//! Subjects are exact; of the other fields the index may let through too much, never too
//! little. A text that no rule of the block has is in none of its rules: to find nothing
//! here is to know that no rule says so.

use crate::engine::authorization::matching::{NamespacePattern, ResourcePattern, Wildcard};
use crate::engine::authorization::rbac::WildcardSet;
use crate::engine::authorization::{Effect, NonResourceRule, ResourceRule};

use super::FastMap;
use super::bits::Bits;
use super::namespaces::{InNamespace, NamespaceSelectors};
use super::query::{PathQuery, ResourceQuery};
use super::subjects::Named;
use super::symbols::Symbols;

/// The fields of a block of rules.
#[derive(Debug, Default)]
pub(crate) struct BlockFields {
    pub(super) subjects: CandidateField,
    pub(super) excluded: CandidateField,
    verbs: CandidateField,
    groups: CandidateField,
    resources: CandidateField,
    namespaces: CandidateField,
    /// By the numbers of selectors.
    selectors: CandidateField,
    /// Rules that may apply in a namespace of which only the name is known.
    unknown: Bits,
    names: CandidateField,
    paths: CandidateField,
}

/// In which rules of a block each text occurs.
#[derive(Debug, Default)]
pub(super) struct CandidateField {
    /// Rules that fit whatever is asked.
    any: Bits,
    by: FastMap<u32, Bits>,
}

// === impl BlockFields ===

impl BlockFields {
    pub(super) fn add_subjects(&mut self, bit: usize, included: &[Named], excluded: &[Named]) {
        for (field, list) in [(&mut self.subjects, included), (&mut self.excluded, excluded)] {
            for named in list {
                match *named {
                    Named::Anyone => field.any.set(bit),
                    Named::Id(id) => field.add(id, bit),
                    Named::Nobody => {}
                }
            }
        }
    }

    pub(super) fn add_resource_rule(
        &mut self,
        bit: usize,
        effect: Effect,
        rule: &ResourceRule,
        selectors: &mut NamespaceSelectors,
        symbols: &mut Symbols,
    ) {
        self.verbs.add_words(bit, &rule.verbs, symbols);
        self.groups.add_words(bit, &rule.api_groups, symbols);
        for pattern in &rule.resources {
            match pattern {
                ResourcePattern::Everything | ResourcePattern::Subresource(Wildcard::Any, _) => {
                    self.resources.any.set(bit);
                }
                ResourcePattern::Resource(name) | ResourcePattern::Subresource(Wildcard::Named(name), _) => {
                    self.resources.add(symbols.intern(name), bit);
                }
            }
        }
        for pattern in &rule.namespaces {
            let id = match pattern {
                NamespacePattern::Without => symbols.intern(""),
                NamespacePattern::Named(name) => symbols.intern(name),
                NamespacePattern::Prefix(prefix) => symbols.intern_prefix(prefix),
            };
            self.namespaces.add(id, bit);
        }
        if rule.namespaces.is_empty() {
            self.namespaces.any.set(bit);
        }
        self.add_selector(bit, effect, rule, selectors);
        for name in &rule.names {
            self.names.add(symbols.intern(name), bit);
        }
        if rule.names.is_empty() {
            self.names.any.set(bit);
        }
    }

    pub(super) fn add_path_rule(&mut self, bit: usize, rule: &NonResourceRule, symbols: &mut Symbols) {
        self.verbs.add_words(bit, &rule.verbs, symbols);
        for pattern in &rule.paths {
            self.paths.add(symbols.intern_path(pattern), bit);
        }
    }

    fn add_selector(
        &mut self,
        bit: usize,
        effect: Effect,
        rule: &ResourceRule,
        selectors: &mut NamespaceSelectors,
    ) {
        let Some(selector) = &rule.namespace_selector else {
            self.selectors.any.set(bit);
            return self.unknown.set(bit);
        };
        self.selectors.add(selectors.number(selector), bit);
        // Labels that are not known prove nothing, and may be anything.
        if effect == Effect::Deny || selector.asks_for_the_name_alone() {
            self.unknown.set(bit);
        }
    }

    /// Rules without selector, and those whose selector selects the namespace of
    /// the request, as far as it is known.
    pub(super) fn selected(&self, query: &ResourceQuery<'_, '_>) -> Bits {
        match query.in_namespace {
            InNamespace::Known(numbers) => self.selectors.of_any(numbers),
            InNamespace::None | InNamespace::Unknown => self.selectors.any,
        }
    }

    pub(super) fn fitting_resource(&self, query: &ResourceQuery<'_, '_>) -> Bits {
        let namespaces = if query.all_namespaces {
            Bits::ALL
        } else {
            self.namespaces
                .of(query.namespace)
                .or(self.namespaces.of_any(query.namespace_prefixes.as_slice()))
        };
        let selectors = match query.in_namespace {
            InNamespace::Known(numbers) => self.selectors.of_any(numbers),
            InNamespace::Unknown => self.unknown,
            InNamespace::None if query.all_namespaces => Bits::ALL,
            InNamespace::None => self.selectors.any,
        };
        let names = if query.all_names {
            Bits::ALL
        } else {
            self.names.of(query.name)
        };
        self.verbs
            .touched(query.verb)
            .and(self.groups.touched(query.group))
            .and(self.resources.touched(query.resource))
            .and(namespaces)
            .and(selectors)
            .and(names)
    }

    pub(super) fn fitting_path(&self, query: &PathQuery<'_>) -> Bits {
        let paths = self
            .paths
            .touched(query.path)
            .or(self.paths.of_any(query.prefixes.as_slice()));
        self.verbs.touched(query.verb).and(paths)
    }
}

// === impl CandidateField ===

impl CandidateField {
    fn add(&mut self, id: u32, bit: usize) {
        self.by.entry(id).or_default().set(bit);
    }

    fn add_words(&mut self, bit: usize, words: &WildcardSet, symbols: &mut Symbols) {
        if words.is_all() {
            self.any.set(bit);
        }
        for word in words.named() {
            self.add(symbols.intern(word), bit);
        }
    }

    fn of(&self, id: u32) -> Bits {
        self.by.get(&id).map_or(self.any, |bits| self.any.or(*bits))
    }

    /// As [`CandidateField::of`], but a requested `*` may touch anything.
    fn touched(&self, id: u32) -> Bits {
        if id == Symbols::STAR {
            Bits::ALL
        } else {
            self.of(id)
        }
    }

    pub(super) fn of_any(&self, ids: &[u32]) -> Bits {
        if self.by.is_empty() {
            return self.any;
        }
        ids.iter()
            .filter_map(|id| self.by.get(id))
            .fold(self.any, |all, bits| all.or(*bits))
    }
}
