//! The namespaces that each `namespaceSelector` selects.
//!
//! This is computed when the set is built, which happens whenever labels change; a
//! request only looks up its namespace.

use std::collections::BTreeMap;

use crate::engine::authorization::{AuthorizationPolicy, NamespaceLabels};
use crate::engine::{LabelSelector, Selected};

use super::FastMap;

/// The selectors of all policies, numbered, and what each selects.
#[derive(Debug, Default)]
pub(in crate::engine::authorization) struct NamespaceIndex {
    numbers: FastMap<LabelSelector, u32>,
    /// The numbers of the selectors that select each namespace that is known.
    known: FastMap<Box<str>, Box<[u32]>>,
}

/// In which namespace a request is, as far as selectors ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine::authorization) enum InNamespace<'s> {
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
struct NamespacesByLabel<'p> {
    required: FastMap<(&'p str, &'p str), Vec<u32>>,
    others: Vec<u32>,
}

// === impl Namespaces ===

impl NamespaceIndex {
    /// The selectors of `policies`, resolved for the namespaces of `labels`.
    pub(in crate::engine::authorization) fn new(
        policies: &[AuthorizationPolicy],
        labels: &NamespaceLabels,
    ) -> Self {
        let mut namespaces = Self::default();
        let (mut selectors, mut by_label) = (Vec::new(), NamespacesByLabel::default());
        let rules = policies.iter().flat_map(|policy| &policy.resource_rules);
        for selector in rules.filter_map(|rule| rule.namespace_selector.as_ref()) {
            if namespaces.numbers.contains_key(selector) {
                continue;
            }
            // No process has memory for 2^32 selectors.
            let number = u32::try_from(selectors.len()).unwrap_or(u32::MAX);
            namespaces.numbers.insert(selector.clone(), number);
            selectors.push(selector);
            by_label.add(selector, number);
        }
        if selectors.is_empty() {
            return namespaces;
        }
        for (name, labels) in labels {
            let selects = |number: &u32| {
                let selector = selectors.get(*number as usize);
                selector.is_some_and(|selector| selector.matches(|key| labels.get(key)))
            };
            let mut selected: Vec<u32> = by_label.candidates(labels);
            selected.retain(selects);
            selected.sort_unstable();
            selected.dedup();
            namespaces.known.insert(name.as_str().into(), selected.into());
        }
        namespaces
    }

    /// The number of a selector of one of the policies.
    pub(super) fn number(&self, selector: &LabelSelector) -> Option<u32> {
        self.numbers.get(selector).copied()
    }

    /// In which namespace a request is that is about `name`; empty for none.
    pub(in crate::engine::authorization) fn find(&self, name: &str) -> InNamespace<'_> {
        if name.is_empty() || self.numbers.is_empty() {
            return InNamespace::None;
        }
        match self.known.get(name) {
            Some(selected) => InNamespace::Known(selected),
            None => InNamespace::Unknown,
        }
    }
}

// === impl InNamespace ===

impl InNamespace<'_> {
    /// Whether `selector` selects the namespace `name`, where `is_listed` says
    /// whether it is one of those that select it.
    pub(in crate::engine::authorization) fn selected_by(
        self,
        selector: &LabelSelector,
        name: &str,
        is_listed: bool,
    ) -> Selected {
        match self {
            Self::None => Selected::No,
            Self::Known(_) if is_listed => Selected::Yes,
            Self::Known(_) => Selected::No,
            Self::Unknown => selector.selects_by_name(name),
        }
    }
}

// === impl ByLabel ===

impl<'p> NamespacesByLabel<'p> {
    fn add(&mut self, selector: &'p LabelSelector, number: u32) {
        match selector.required_label() {
            None => self.others.push(number),
            Some((key, values)) => {
                for value in values {
                    self.required.entry((key, value)).or_default().push(number);
                }
            }
        }
    }

    /// The numbers of those that may select what has `labels`, some perhaps twice.
    fn candidates(&self, labels: &BTreeMap<String, String>) -> Vec<u32> {
        let required = labels
            .iter()
            .filter_map(|(key, value)| self.required.get(&(key.as_str(), value.as_str())));
        required.flatten().chain(&self.others).copied().collect()
    }
}
