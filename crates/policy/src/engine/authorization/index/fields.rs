//! What the rules of a block say, field by field.
//!
//! Subjects are exact; of the other fields the index may let through too much, never too
//! little.

use crate::engine::authorization::matching::{NamespacePattern, ResourcePattern, Wildcard};
use crate::engine::authorization::rbac::WildcardSet;
use crate::engine::authorization::{Effect, NonResourceRule, ResourceRule};

use super::Ids;
use super::candidate_field::{CandidateField, FieldQuery};
use super::namespaces::{InNamespace, NamespaceSelectors};
use super::query::{PathQuery, ResourceQuery};
use super::rule_set::RuleSet;
use super::subjects::Named;
use super::symbols::Symbols;

/// The fields of a block of rules.
#[derive(Debug, Default)]
pub(crate) struct BlockFields {
    subjects: CandidateField,
    excluded: CandidateField,
    verbs: CandidateField,
    groups: CandidateField,
    resources: CandidateField,
    namespaces: CandidateField,
    /// By the numbers of selectors.
    selectors: CandidateField,
    /// Rules that have no selector.
    unselected: RuleSet,
    /// Rules that may apply in a namespace of which only the name is known.
    unknown: RuleSet,
    names: CandidateField,
    paths: CandidateField,
}

// === impl BlockFields ===

impl BlockFields {
    pub(super) fn add_subjects(&mut self, rule: usize, included: &[Named], excluded: &[Named]) {
        for (field, list) in [(&mut self.subjects, included), (&mut self.excluded, excluded)] {
            for named in list {
                match *named {
                    Named::Anyone => field.add_any(rule),
                    Named::Id(id) => field.add(id, rule),
                    Named::Nobody => {}
                }
            }
        }
    }

    pub(super) fn add_resource_rule(
        &mut self,
        at: usize,
        effect: Effect,
        rule: &ResourceRule,
        selectors: &mut NamespaceSelectors,
        symbols: &mut Symbols,
    ) {
        add_words(&mut self.verbs, at, &rule.verbs, symbols);
        add_words(&mut self.groups, at, &rule.api_groups, symbols);
        for pattern in &rule.resources {
            match pattern {
                ResourcePattern::Everything | ResourcePattern::Subresource(Wildcard::Any, _) => {
                    self.resources.add_any(at);
                }
                ResourcePattern::Resource(name) | ResourcePattern::Subresource(Wildcard::Named(name), _) => {
                    self.resources.add(symbols.intern(name), at);
                }
            }
        }
        for pattern in &rule.namespaces {
            let id = match pattern {
                NamespacePattern::Without => Symbols::EMPTY,
                NamespacePattern::Named(name) => symbols.intern(name),
                NamespacePattern::Prefix(prefix) => symbols.intern_namespace_prefix(prefix),
            };
            self.namespaces.add(id, at);
        }
        if rule.namespaces.is_empty() {
            self.namespaces.add_any(at);
        }
        self.add_selector(at, effect, rule, selectors);
        for name in &rule.names {
            self.names.add(symbols.intern(name), at);
        }
        if rule.names.is_empty() {
            self.names.add_any(at);
        }
    }

    pub(super) fn add_path_rule(&mut self, at: usize, rule: &NonResourceRule, symbols: &mut Symbols) {
        add_words(&mut self.verbs, at, &rule.verbs, symbols);
        for pattern in &rule.paths {
            self.paths.add(symbols.intern_path(pattern), at);
        }
    }

    fn add_selector(
        &mut self,
        at: usize,
        effect: Effect,
        rule: &ResourceRule,
        selectors: &mut NamespaceSelectors,
    ) {
        let Some(selector) = &rule.namespace_selector else {
            self.selectors.add_any(at);
            self.unselected.add(at);
            return self.unknown.add(at);
        };
        self.selectors.add(selectors.number(selector), at);
        // Labels that are not known prove nothing, and may be anything.
        if effect == Effect::Deny || selector.asks_for_the_name_alone() {
            self.unknown.add(at);
        }
    }

    /// Rules one of whose policy's subjects asks.
    pub(super) fn subjects<'f>(&'f self, who: &'f Ids) -> FieldQuery<'f> {
        FieldQuery::OneOf(&self.subjects, who.as_slice())
    }

    /// Rules one of whose policy's excluded subjects asks.
    pub(super) fn excluded<'f>(&'f self, who: &'f Ids) -> FieldQuery<'f> {
        FieldQuery::OneOf(&self.excluded, who.as_slice())
    }

    /// Rules without selector, and those whose selector selects the namespace of
    /// the request, as far as it is known.
    pub(super) const fn selected<'f>(&'f self, query: &ResourceQuery<'f, '_>) -> FieldQuery<'f> {
        match query.in_namespace {
            InNamespace::Known(numbers) => FieldQuery::OneOf(&self.selectors, numbers),
            InNamespace::None | InNamespace::Unknown => FieldQuery::Rules(&self.unselected),
        }
    }

    /// What `of` gives of each field has in common. Those come first that refuse the most; no
    /// more are asked than it takes to see that it is nothing.
    #[inline]
    pub(super) fn fitting_resource(
        &self,
        query: &ResourceQuery<'_, '_>,
        of: impl Fn(FieldQuery<'_>) -> u64,
    ) -> u64 {
        let mut bits = of(touched(&self.resources, &query.resource));
        if bits == 0 {
            return 0;
        }
        if !query.all_namespaces {
            bits &= of(FieldQuery::OneOf(&self.namespaces, query.namespaces.as_slice()));
        }
        if bits == 0 {
            return 0;
        }
        bits &= of(touched(&self.verbs, &query.verb));
        if bits == 0 {
            return 0;
        }
        bits &= of(touched(&self.groups, &query.group));
        bits &= match query.in_namespace {
            InNamespace::Known(numbers) => of(FieldQuery::OneOf(&self.selectors, numbers)),
            InNamespace::Unknown => of(FieldQuery::Rules(&self.unknown)),
            InNamespace::None if query.all_namespaces => u64::MAX,
            InNamespace::None => of(FieldQuery::Rules(&self.unselected)),
        };
        if !query.all_names {
            bits &= of(FieldQuery::OneOf(&self.names, std::slice::from_ref(&query.name)));
        }
        bits
    }

    #[inline]
    pub(super) fn fitting_path(&self, query: &PathQuery<'_>, of: impl Fn(FieldQuery<'_>) -> u64) -> u64 {
        let paths = if query.path == Symbols::STAR {
            u64::MAX
        } else {
            of(FieldQuery::OneOf(&self.paths, query.paths.as_slice()))
        };
        paths & of(touched(&self.verbs, &query.verb))
    }
}

fn add_words(field: &mut CandidateField, rule: usize, words: &WildcardSet, symbols: &mut Symbols) {
    if words.is_all() {
        field.add_any(rule);
    }
    for word in words.named() {
        field.add(symbols.intern(word), rule);
    }
}

/// Rules that have the text, where a requested `*` may touch anything.
#[inline]
const fn touched<'f>(field: &'f CandidateField, id: &'f u32) -> FieldQuery<'f> {
    if *id == Symbols::STAR {
        FieldQuery::All
    } else {
        FieldQuery::OneOf(field, std::slice::from_ref(id))
    }
}
