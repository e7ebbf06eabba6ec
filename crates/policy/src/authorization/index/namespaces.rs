//! The namespaces that each `namespaceSelector` selects.
//!
//! This is computed when the set is built, which happens whenever labels change; a
//! request only looks up its namespace.

use std::collections::BTreeMap;

use crate::authorization::NamespaceLabels;
use crate::authorization::interner::FastMap;
use crate::engine::LabelSelector;

/// The selectors of all policies, numbered as they come.
#[derive(Debug, Default)]
pub(crate) struct NamespaceSelectors(FastMap<LabelSelector, u32>);

/// Which selectors select each namespace.
#[derive(Debug, Default)]
pub(crate) struct NamespaceIndex {
    /// Whether there is a selector.
    is_asked: bool,
    /// The numbers of the selectors that select each namespace that is known.
    known: FastMap<Box<str>, Box<[u32]>>,
}

/// The namespace of a request, for selectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InNamespace<'s> {
    /// In none, or no selector asks.
    None,
    /// In one that these select.
    Known(&'s [u32]),
    /// In one of which only the name is known.
    Unknown,
}

/// Selectors by a label that they require, so that a namespace is compared with
/// those alone that it may meet.
#[derive(Default)]
struct SelectorsByLabel<'p> {
    required: FastMap<(&'p str, &'p str), Vec<NumberedSelector<'p>>>,
    others: Vec<NumberedSelector<'p>>,
}

type NumberedSelector<'p> = (u32, &'p LabelSelector);

// === impl NamespaceSelectors ===

impl NamespaceSelectors {
    /// The number of a selector of one of the policies.
    pub(crate) fn add(&mut self, selector: &LabelSelector) -> u32 {
        // No process has memory for 2^32 selectors.
        let next = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        match self.0.get(selector) {
            Some(&number) => number,
            None => *self.0.entry(selector.clone()).or_insert(next),
        }
    }

    /// What each selects of the namespaces that have `labels`.
    pub(crate) fn resolve(&self, labels: &NamespaceLabels) -> NamespaceIndex {
        let mut by_label = SelectorsByLabel::default();
        for (selector, &number) in &self.0 {
            by_label.add((number, selector));
        }
        let mut index = NamespaceIndex {
            is_asked: !self.0.is_empty(),
            known: FastMap::default(),
        };
        for (name, labels) in labels.iter().filter(|_| index.is_asked) {
            let selecting = by_label
                .candidates(labels)
                .filter(|(_, selector)| selector.matches(|key| labels.get(key)));
            let mut selecting: Vec<u32> = selecting.map(|(number, _)| *number).collect();
            selecting.sort_unstable();
            selecting.dedup();
            index.known.insert(name.as_str().into(), selecting.into());
        }
        index
    }
}

// === impl NamespaceIndex ===

impl NamespaceIndex {
    /// The namespaces of which labels are known, if a selector asks for labels.
    pub(crate) fn known(&self) -> impl Iterator<Item = &str> {
        self.known.keys().map(AsRef::as_ref)
    }

    /// In which namespace a request is that is about `name`; empty for none.
    pub(crate) fn find(&self, name: &str) -> InNamespace<'_> {
        if name.is_empty() || !self.is_asked {
            return InNamespace::None;
        }
        match self.known.get(name) {
            Some(selected) => InNamespace::Known(selected),
            None => InNamespace::Unknown,
        }
    }
}

// === impl SelectorsByLabel ===

impl<'p> SelectorsByLabel<'p> {
    fn add(&mut self, (number, selector): NumberedSelector<'p>) {
        match selector.required_label() {
            None => self.others.push((number, selector)),
            Some((key, values)) => {
                for value in values {
                    self.required
                        .entry((key, value))
                        .or_default()
                        .push((number, selector));
                }
            }
        }
    }

    /// Those that may select what has `labels`, some perhaps twice.
    fn candidates<'l>(
        &'l self,
        labels: &'l BTreeMap<String, String>,
    ) -> impl Iterator<Item = &'l NumberedSelector<'p>> {
        let required = labels
            .iter()
            .filter_map(|(key, value)| self.required.get(&(key.as_str(), value.as_str())));
        required.flatten().chain(&self.others)
    }
}
