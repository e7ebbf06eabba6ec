//! Examples: names and namespaces that stand for all others which no rule tells from them.

use std::collections::HashSet;

use crate::authorization::matching::NamespacePattern;
use crate::authorization::{PolicySet, ResourceRule};
use crate::engine::NAMESPACE_NAME_LABEL;

/// Text that no object of an API server has in its name, and no manifest in its rules.
pub(super) const OTHER: &str = "\u{10ffff}";

/// What a grant leaves open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Part<'s> {
    /// Anything.
    Any,
    /// One of these alone.
    OneOf(&'s [String]),
    /// This alone.
    Only(&'s str),
}

/// The namespaces that tell `rules` apart, each as far as one of `own` may be in it; and
/// those that are known, where labels or patterns tell them apart.
pub(super) fn namespaces(
    set: &PolicySet,
    own: Option<&ResourceRule>,
    rules: &[&ResourceRule],
) -> Vec<String> {
    let mut found = vec![OTHER.to_owned(), String::new()];
    let mut asks = false;
    for rule in own.iter().chain(rules) {
        asks |= !rule.namespaces.is_empty() || rule.namespace_selector.is_some();
        found.extend(rule.namespaces.iter().map(of_pattern));
        let selector = rule.namespace_selector.iter();
        let named = selector.flat_map(|selector| selector.listed_values(NAMESPACE_NAME_LABEL));
        found.extend(named.map(str::to_owned));
    }
    // What is named by a selector may lie within a pattern, and what begins as one pattern within another.
    if asks {
        found.extend(set.namespaces.known().map(str::to_owned));
    }
    let mut seen = HashSet::new();
    found.retain(|namespace| seen.insert(namespace.clone()));
    found
}

/// The names that tell `rules` apart.
pub(super) fn names(rules: &[&ResourceRule]) -> Vec<String> {
    let mut found = vec![OTHER.to_owned()];
    // Whether a request has a name matters to rules that have names alone.
    if rules.iter().any(|rule| !rule.names.is_empty()) {
        found.push(String::new());
        found.extend(rules.iter().flat_map(|rule| rule.names.iter().cloned()));
    }
    found
}

fn of_pattern(pattern: &NamespacePattern) -> String {
    match pattern {
        NamespacePattern::Without => String::new(),
        NamespacePattern::Named(name) => name.clone(),
        NamespacePattern::Prefix(prefix) => format!("{prefix}{OTHER}"),
    }
}
