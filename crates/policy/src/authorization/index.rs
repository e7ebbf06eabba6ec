//! The index: finds the rules that could apply to a request, however many are loaded.
//!
//! ```text
//! user, groups, namespace ──▶ bindings: RBAC's first rule that allows
//! user, groups ──┐
//! verb, group, … ┴─▶ query ─▶ policies: rules that may apply, each then compared in full
//! ```

mod bindings;
mod policies;
mod rule_fields;

// A request in the numbers of the terms that policies use.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;

use super::interner::{FastMap, Interner, PrefixInterner};
use super::matching::{
    ClusterScoped, NamespacePattern, Narrowness, RequestedResource, asks_for_collection,
    compare_resource_rule, namespace_of,
};
use super::rbac::{PathPattern, WildcardSet};
use super::{Effect, NamespaceLabels, ResourceRule, RuleMatch, Subject, SubjectKind};
use crate::model::{
    Attributes, LabelSelector, NAMESPACE_NAME_LABEL, ResourceAttributes, SelectorMatch, Target, User,
};

pub(crate) use bindings::{BindingIndex, BoundRole, Grant};
pub(crate) use policies::{IndexedPolicy, IndexedRule, PolicyGroup, PolicyIndex, PolicyRule, UserRules};

/// Numbers of terms. Most users have fewer groups than need an allocation.
pub(crate) type TermIds = SmallVec<[u32; 16]>;

/// The texts that policies contain, numbered.
#[derive(Debug, Default)]
pub(crate) struct PolicyTerms {
    users: Interner,
    user_prefixes: PrefixInterner,
    groups: Interner,
    group_prefixes: PrefixInterner,
    /// Verbs, API groups, resources, namespaces, names and paths.
    texts: Interner,
    namespace_prefixes: PrefixInterner,
    path_prefixes: PrefixInterner,
    count: u32,
}

/// Whom a policy's subject stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SubjectTerm {
    Everyone,
    /// Those that are found by this number.
    Id(u32),
    /// A service account without namespace, which no manifest has.
    Nobody,
}

/// What a request asks of policies.
#[derive(Debug)]
pub(crate) enum PolicyQuery<'s, 'r> {
    Resource(ResourceQuery<'s, 'r>),
    NonResource(NonResourceQuery<'r>),
}

#[derive(Debug)]
pub(crate) struct ResourceQuery<'s, 'r> {
    pub(crate) request: &'r ResourceAttributes<'r>,
    pub(crate) narrowness: Narrowness<'r>,
    pub(crate) cluster_scoped: &'s ClusterScoped,
    pub(crate) verb: RequestedTerm,
    pub(crate) group: RequestedTerm,
    /// Without its subresource.
    pub(crate) resource: RequestedTerm,
    pub(crate) name: Option<u32>,
    /// The namespace, and the prefixes that it begins with.
    pub(crate) namespaces: TermIds,
    /// The namespace whose labels selectors ask for; empty for none.
    pub(crate) labelled_namespace: &'r str,
    pub(crate) in_namespace: InNamespace<'s>,
    /// About all namespaces, since it names none.
    pub(crate) all_namespaces: bool,
    /// About all objects, since it names none.
    pub(crate) all_names: bool,
}

#[derive(Debug)]
pub(crate) struct NonResourceQuery<'r> {
    pub(crate) path: &'r str,
    pub(crate) verb: &'r str,
    pub(crate) verb_term: RequestedTerm,
    /// The path, and the prefixes that it begins with.
    pub(crate) paths: TermIds,
}

/// A requested verb, API group or resource.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RequestedTerm {
    /// A requested `*` touches every rule.
    Star,
    /// The number of the text; `None` of one that no policy contains.
    Text(Option<u32>),
}

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

// === impl PolicyTerms ===

impl PolicyTerms {
    /// Whom a policy's subject stands for, in which a `*` at the end is any text.
    pub(crate) fn add_subject(&mut self, subject: &Subject) -> SubjectTerm {
        let count = &mut self.count;
        let id = match (subject.kind, subject.name.strip_suffix('*')) {
            (SubjectKind::User | SubjectKind::Group, Some("")) => return SubjectTerm::Everyone,
            (SubjectKind::User, Some(prefix)) => self.user_prefixes.intern(prefix, count),
            (SubjectKind::Group, Some(prefix)) => self.group_prefixes.intern(prefix, count),
            (SubjectKind::Group, None) => self.groups.intern(&subject.name, count),
            (SubjectKind::User, None) | (SubjectKind::ServiceAccount, _) => {
                match subject.authenticated_name("") {
                    Some(name) => self.users.intern(&name, count),
                    None => return SubjectTerm::Nobody,
                }
            }
        };
        SubjectTerm::Id(id)
    }

    pub(crate) fn add_text(&mut self, text: &str) -> u32 {
        self.texts.intern(text, &mut self.count)
    }

    pub(crate) fn add_namespace(&mut self, pattern: &NamespacePattern) -> u32 {
        match pattern {
            NamespacePattern::Without => self.add_text(""),
            NamespacePattern::Named(name) => self.add_text(name),
            NamespacePattern::Prefix(prefix) => self.namespace_prefixes.intern(prefix, &mut self.count),
        }
    }

    pub(crate) fn add_path(&mut self, pattern: &PathPattern) -> u32 {
        match pattern.prefix() {
            Some(prefix) => self.path_prefixes.intern(prefix, &mut self.count),
            None => self.add_text(pattern.text()),
        }
    }

    /// The numbers of the subjects that `user` is: one look-up for the name and each group,
    /// and for each length of prefix.
    pub(crate) fn ids_of(&self, user: &User<'_>) -> TermIds {
        let mut ids = TermIds::new();
        add(&mut ids, &user.name, &self.users, &self.user_prefixes);
        for group in &user.groups {
            add(&mut ids, group, &self.groups, &self.group_prefixes);
        }
        ids
    }

    fn requested(&self, text: &str) -> RequestedTerm {
        if text == WildcardSet::ALL {
            RequestedTerm::Star
        } else {
            RequestedTerm::Text(self.texts.get(text))
        }
    }
}

/// Adds the number of `text`, and those of the prefixes that it begins with.
fn add(ids: &mut TermIds, text: &str, texts: &Interner, prefixes: &PrefixInterner) {
    if let Some(id) = texts.get(text) {
        ids.push(id);
    }
    for id in prefixes.prefixes_of(text) {
        ids.push(id);
    }
}

// === impl PolicyQuery ===

impl<'s, 'r> PolicyQuery<'s, 'r> {
    #[inline]
    pub(crate) fn new(
        attributes: &'r Attributes<'r>,
        terms: &PolicyTerms,
        namespaces: &'s NamespaceIndex,
        cluster_scoped: &'s ClusterScoped,
    ) -> Self {
        match &attributes.target {
            Target::Resource(request) => {
                Self::Resource(ResourceQuery::new(request, terms, namespaces, cluster_scoped))
            }
            Target::NonResource { path, verb } => Self::NonResource(NonResourceQuery::new(path, verb, terms)),
        }
    }
}

impl<'s, 'r> ResourceQuery<'s, 'r> {
    #[inline]
    fn new(
        request: &'r ResourceAttributes<'r>,
        terms: &PolicyTerms,
        namespaces: &'s NamespaceIndex,
        cluster_scoped: &'s ClusterScoped,
    ) -> Self {
        let labelled_namespace = namespace_of(request);
        let is_collection = asks_for_collection(&request.verb);
        let mut namespace_ids = TermIds::new();
        if request.namespace.is_empty() {
            // No prefix stands for no namespace, not even the empty one.
            namespace_ids.extend(terms.texts.get(""));
        } else {
            let prefixes = &terms.namespace_prefixes;
            add(&mut namespace_ids, &request.namespace, &terms.texts, prefixes);
        }
        Self {
            request,
            narrowness: Narrowness::new(&request.selectors),
            cluster_scoped,
            verb: terms.requested(&request.verb),
            group: terms.requested(&request.group),
            resource: terms.requested(RequestedResource::of(request).resource),
            name: terms.texts.get(&request.name),
            namespaces: namespace_ids,
            labelled_namespace,
            in_namespace: namespaces.find(labelled_namespace),
            all_namespaces: is_collection && request.namespace.is_empty(),
            all_names: is_collection && request.name.is_empty(),
        }
    }
}

impl ResourceQuery<'_, '_> {
    /// Whether `rule` applies, whose `namespaceSelector` has the number `selector`.
    pub(crate) fn compare(&self, effect: Effect, rule: &ResourceRule, selector: Option<u32>) -> RuleMatch {
        let is_listed = |selectors: &[u32]| selector.is_some_and(|own| selectors.binary_search(&own).is_ok());
        let selected = |selector: &LabelSelector| match self.in_namespace {
            InNamespace::None => SelectorMatch::No,
            InNamespace::Known(selectors) if is_listed(selectors) => SelectorMatch::Yes,
            InNamespace::Labelled(labels) if selector.matches(|key| labels.get(key)) => SelectorMatch::Yes,
            InNamespace::Known(_) | InNamespace::Labelled(_) => SelectorMatch::No,
            InNamespace::Unknown => selector.selects_by_name(self.labelled_namespace),
        };
        let (narrowness, scoped) = (&self.narrowness, self.cluster_scoped);
        compare_resource_rule(effect, rule, self.request, selected, narrowness, scoped)
    }
}

impl<'r> NonResourceQuery<'r> {
    fn new(path: &'r str, verb: &'r str, terms: &PolicyTerms) -> Self {
        let mut paths = TermIds::new();
        add(&mut paths, path, &terms.texts, &terms.path_prefixes);
        Self {
            path,
            verb,
            verb_term: terms.requested(verb),
            paths,
        }
    }
}

// === impl RequestedTerm ===

impl RequestedTerm {
    /// The number by which rules are found; `None` where every rule is.
    pub(crate) fn ids(&self) -> Option<&[u32]> {
        match self {
            Self::Star => None,
            Self::Text(id) => Some(id.as_slice()),
        }
    }
}

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
    /// The index of one namespace.
    pub(crate) fn of_one(name: &str, labels: &BTreeMap<String, String>) -> Self {
        let mut known = FastMap::default();
        let mut labels = labels.clone();
        labels.insert(NAMESPACE_NAME_LABEL.to_owned(), name.to_owned());
        known.insert(name.into(), KnownNamespace::Labelled(Arc::new(labels)));
        Self {
            is_asked: true,
            known,
        }
    }

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
