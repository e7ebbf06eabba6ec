//! The namespaces that each `namespaceSelector` selects.
//!
//! This is computed when the set is built, which happens whenever labels change; a
//! request only looks up its namespace.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::authorization::NamespaceLabels;
use crate::authorization::interner::FastMap;
use crate::engine::LabelSelector;

/// How often the index compares a selector with the labels of a Namespace. What every
/// Namespace of a cluster makes of every selector would take gigabytes and minutes in a
/// cluster that has tens of thousands of both.
const MAX_COMPARISONS: usize = 4_000_000;

/// The selectors of all policies, numbered as they come.
#[derive(Debug, Default)]
pub(crate) struct NamespaceSelectors(FastMap<LabelSelector, u32>);

/// Which selectors select each namespace.
#[derive(Debug, Default)]
pub(crate) struct NamespaceIndex {
    /// Whether there is a selector.
    is_asked: bool,
    /// The namespaces of which labels are known.
    known: FastMap<Box<str>, KnownNamespace>,
}

#[derive(Debug)]
enum KnownNamespace {
    /// The numbers of the selectors that select it, in order.
    SelectedBy(Box<[u32]>),
    /// Its labels, which a request compares: there was no room for more numbers.
    Labelled(Arc<BTreeMap<String, String>>),
}

/// The namespace of a request, for selectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InNamespace<'s> {
    /// In none, or no selector asks.
    None,
    /// In one that these select.
    Known(&'s [u32]),
    /// In one with these labels, of which it is not known yet what selects it.
    Labelled(&'s BTreeMap<String, String>),
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

    /// The number of a selector, where one of the policies has it.
    pub(crate) fn number(&self, selector: &LabelSelector) -> Option<u32> {
        self.0.get(selector).copied()
    }

    /// What each selects of the namespaces that have `labels`.
    pub(crate) fn resolve(&self, labels: &NamespaceLabels) -> NamespaceIndex {
        self.resolve_within(MAX_COMPARISONS, labels)
    }

    /// The same with at most so many comparisons.
    pub(crate) fn resolve_within(&self, mut comparisons: usize, labels: &NamespaceLabels) -> NamespaceIndex {
        let mut by_label = SelectorsByLabel::default();
        for (selector, &number) in &self.0 {
            by_label.add((number, selector));
        }
        let mut index = NamespaceIndex {
            is_asked: !self.0.is_empty(),
            known: FastMap::default(),
        };
        for (name, labels) in labels.iter().filter(|_| index.is_asked) {
            comparisons = comparisons.saturating_sub(by_label.candidates(labels).take(comparisons).count());
            let known = if comparisons == 0 {
                KnownNamespace::Labelled(Arc::clone(labels))
            } else {
                KnownNamespace::SelectedBy(by_label.selecting(labels))
            };
            index.known.insert(name.as_str().into(), known);
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

    /// Each namespace of which labels are known, and whether `selector`, whose number this is,
    /// selects it.
    pub(crate) fn selected(
        &self,
        number: Option<u32>,
        selector: &LabelSelector,
    ) -> impl Iterator<Item = (&str, bool)> {
        self.known.iter().map(move |(name, known)| {
            let is_selected = match known {
                KnownNamespace::SelectedBy(numbers) => {
                    number.is_some_and(|own| numbers.binary_search(&own).is_ok())
                }
                KnownNamespace::Labelled(labels) => selector.matches(|key| labels.get(key)),
            };
            (&**name, is_selected)
        })
    }

    /// In which namespace a request is that is about `name`; empty for none.
    pub(crate) fn find(&self, name: &str) -> InNamespace<'_> {
        if name.is_empty() || !self.is_asked {
            return InNamespace::None;
        }
        match self.known.get(name) {
            Some(KnownNamespace::SelectedBy(selectors)) => InNamespace::Known(selectors),
            Some(KnownNamespace::Labelled(labels)) => InNamespace::Labelled(labels),
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

    /// The numbers of those that select what has `labels`, in order.
    fn selecting(&self, labels: &BTreeMap<String, String>) -> Box<[u32]> {
        let selecting = self
            .candidates(labels)
            .filter(|(_, selector)| selector.matches(|key| labels.get(key)));
        let mut numbers: Vec<u32> = selecting.map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.into()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_times_namespaces_are_not_all_kept() {
        let mut selectors = NamespaceSelectors::default();
        selectors.add(&LabelSelector::default());
        let names = ["a", "b", "c", "d", "e", "f"].map(|name| (name.to_owned(), Arc::default()));
        let index = selectors.resolve_within(4, &names.into());
        let found = ["a", "c", "d", "f"].map(|name| index.find(name));
        let labels = BTreeMap::new();
        assert_eq!(found[..2], [InNamespace::Known(&[0]); 2]);
        assert_eq!(found[2..], [InNamespace::Labelled(&labels); 2]);
    }
}
