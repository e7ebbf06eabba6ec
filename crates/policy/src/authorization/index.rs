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

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;

use super::interner::{FastMap, Interner, PrefixInterner};
use super::matching::{
    ClusterScoped, NamespacePattern, Narrowness, RequestedResource, compare_resource_rule,
    is_collection_verb, selectable_namespace,
};
use super::rbac::{PathPattern, WildcardSet};
use super::{Effect, NamespaceLabels, ResourceRule, RuleMatch, Subject, SubjectKind};
use crate::model::{
    Attributes, LabelSelector, NAMESPACE_NAME_LABEL, ResourceAttributes, SelectorMatch, Target, User,
};

pub(crate) use bindings::{AllowingRule, BindingIndex, BoundRole};
pub(crate) use policies::{IndexedPolicy, IndexedRule, PolicyGroup, PolicyIndex, PolicyRule, UserRules};

/// Numbers of terms. Inline capacity is sufficient for the groups of most users.
pub(crate) type TermIds = SmallVec<[u32; 16]>;

/// The strings that policies contain, with their numbers.
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

/// The users to whom a subject of a policy refers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SubjectTerm {
    Everyone,
    /// The users whose [`ids_of`](PolicyTerms::ids_of) contain this number.
    Id(u32),
    /// No user: a service account without a namespace. Manifests cannot contain it.
    Nobody,
}

/// A request as a query to the index: its strings are replaced by the numbers that they have in
/// policies.
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
    /// The resource without its subresource.
    pub(crate) resource: RequestedTerm,
    pub(crate) name: Option<u32>,
    /// The numbers of the namespace and of its prefixes.
    pub(crate) namespaces: TermIds,
    /// The namespace whose labels selectors are matched with; empty for none.
    pub(crate) labelled_namespace: &'r str,
    pub(crate) in_namespace: QueriedNamespace<'s>,
    /// Whether the request is for all namespaces, because it is for a collection and names no
    /// namespace.
    pub(crate) all_namespaces: bool,
    /// Whether the request is for all objects, because it is for a collection and names no object.
    pub(crate) all_names: bool,
}

#[derive(Debug)]
pub(crate) struct NonResourceQuery<'r> {
    pub(crate) path: &'r str,
    pub(crate) verb: &'r str,
    pub(crate) verb_term: RequestedTerm,
    /// The numbers of the path and of its prefixes.
    pub(crate) paths: TermIds,
}

/// A requested verb, API group or resource.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RequestedTerm {
    /// `*`, which touches every rule.
    Star,
    /// The number of the string; `None` if no policy contains it.
    Text(Option<u32>),
}

/// The maximum number of comparisons of a selector with the labels of a Namespace while indexing.
/// To compare all pairs would take gigabytes and minutes in a cluster with tens of thousands of
/// both.
const MAX_COMPARISONS: usize = 4_000_000;

/// The selectors of all policies, numbered in the order in which they were added.
#[derive(Debug, Default)]
pub(crate) struct NamespaceSelectors(FastMap<LabelSelector, u32>);

/// Which selectors select each namespace.
#[derive(Debug, Default)]
pub(crate) struct NamespaceIndex {
    /// Whether there is any selector.
    has_selectors: bool,
    /// The namespaces whose labels are known.
    known: FastMap<Box<str>, KnownNamespace>,
}

#[derive(Debug)]
enum KnownNamespace {
    /// The numbers of the selectors that select the namespace, ascending.
    SelectedBy(Box<[u32]>),
    /// The labels of the namespace, which are compared at each request: the limit of comparisons
    /// was reached.
    Labelled(Arc<BTreeMap<String, String>>),
}

/// The namespace of a request, for selectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueriedNamespace<'s> {
    /// The request is in no namespace, or no policy has a selector.
    None,
    /// A namespace that these selectors select.
    Known(&'s [u32]),
    /// A namespace with these labels, which have not been compared with selectors.
    Labelled(&'s BTreeMap<String, String>),
    /// A namespace whose labels are unknown, except for its name.
    Unknown,
}

/// Selectors by a label that they require, so that a namespace is compared only with those that may
/// select it.
#[derive(Default)]
struct SelectorsByLabel<'p> {
    required: FastMap<(&'p str, &'p str), Vec<NumberedSelector<'p>>>,
    others: Vec<NumberedSelector<'p>>,
}

type NumberedSelector<'p> = (u32, &'p LabelSelector);

// === impl PolicyTerms ===

impl PolicyTerms {
    /// The users to whom a subject refers. A `*` at the end of its name makes it a prefix.
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
            NamespacePattern::ClusterScope => self.add_text(""),
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

    /// The numbers of the subjects that match `user`: one lookup for the name and for each group,
    /// and one for each length of a prefix.
    pub(crate) fn ids_of(&self, user: &User<'_>) -> TermIds {
        let mut ids = TermIds::new();
        add_ids(&mut ids, &user.name, &self.users, &self.user_prefixes);
        for group in &user.groups {
            add_ids(&mut ids, group, &self.groups, &self.group_prefixes);
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

/// Adds the number of `text`, and those of its prefixes.
fn add_ids(ids: &mut TermIds, text: &str, texts: &Interner, prefixes: &PrefixInterner) {
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
        let labelled_namespace = selectable_namespace(request);
        let is_collection = is_collection_verb(&request.verb);
        let mut namespace_ids = TermIds::new();
        if request.namespace.is_empty() {
            // No prefix matches the absence of a namespace, not even the empty prefix.
            namespace_ids.extend(terms.texts.get(""));
        } else {
            let prefixes = &terms.namespace_prefixes;
            add_ids(&mut namespace_ids, &request.namespace, &terms.texts, prefixes);
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
            QueriedNamespace::None => SelectorMatch::No,
            QueriedNamespace::Known(selectors) if is_listed(selectors) => SelectorMatch::Yes,
            QueriedNamespace::Labelled(labels) if selector.matches(|key| labels.get(key)) => {
                SelectorMatch::Yes
            }
            QueriedNamespace::Known(_) | QueriedNamespace::Labelled(_) => SelectorMatch::No,
            QueriedNamespace::Unknown => selector.selects_by_name(self.labelled_namespace),
        };
        let (narrowness, scoped) = (&self.narrowness, self.cluster_scoped);
        compare_resource_rule(effect, rule, self.request, selected, narrowness, scoped)
    }
}

impl<'r> NonResourceQuery<'r> {
    fn new(path: &'r str, verb: &'r str, terms: &PolicyTerms) -> Self {
        let mut paths = TermIds::new();
        add_ids(&mut paths, path, &terms.texts, &terms.path_prefixes);
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
    /// The numbers with which rules are looked up; `None` if every rule matches.
    pub(crate) fn ids(&self) -> Option<&[u32]> {
        match self {
            Self::Star => None,
            Self::Text(id) => Some(id.as_slice()),
        }
    }
}

// === impl NamespaceSelectors ===

impl NamespaceSelectors {
    /// The number of a selector, which is added if it is new.
    pub(crate) fn add(&mut self, selector: &LabelSelector) -> u32 {
        // No process has memory for 2^32 selectors.
        let next = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        match self.0.get(selector) {
            Some(&number) => number,
            None => *self.0.entry(selector.clone()).or_insert(next),
        }
    }

    /// The number of a selector, if it has been added.
    pub(crate) fn number(&self, selector: &LabelSelector) -> Option<u32> {
        self.0.get(selector).copied()
    }

    /// Determines which selectors select each of the namespaces with these `labels`.
    pub(crate) fn resolve(&self, labels: &NamespaceLabels) -> NamespaceIndex {
        self.resolve_within(MAX_COMPARISONS, labels)
    }

    /// Does this with at most `comparisons` comparisons.
    pub(crate) fn resolve_within(&self, mut comparisons: usize, labels: &NamespaceLabels) -> NamespaceIndex {
        let mut by_label = SelectorsByLabel::default();
        for (selector, &number) in &self.0 {
            by_label.add((number, selector));
        }
        let mut index = NamespaceIndex {
            has_selectors: !self.0.is_empty(),
            known: FastMap::default(),
        };
        for (name, labels) in labels.iter().filter(|_| index.has_selectors) {
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
    /// An index of one namespace with these labels.
    pub(crate) fn of_one(name: &str, labels: &BTreeMap<String, String>) -> Self {
        let mut known = FastMap::default();
        let mut labels = labels.clone();
        labels.insert(NAMESPACE_NAME_LABEL.to_owned(), name.to_owned());
        known.insert(name.into(), KnownNamespace::Labelled(Arc::new(labels)));
        Self {
            has_selectors: true,
            known,
        }
    }

    /// The namespaces whose labels are known; none if there is no selector.
    pub(crate) fn known(&self) -> impl Iterator<Item = &str> {
        self.known.keys().map(AsRef::as_ref)
    }

    /// Each namespace whose labels are known, and whether `selector`, which has this number,
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

    /// The state of the namespace `name`, which is empty for none.
    pub(crate) fn find(&self, name: &str) -> QueriedNamespace<'_> {
        if name.is_empty() || !self.has_selectors {
            return QueriedNamespace::None;
        }
        match self.known.get(name) {
            Some(KnownNamespace::SelectedBy(selectors)) => QueriedNamespace::Known(selectors),
            Some(KnownNamespace::Labelled(labels)) => QueriedNamespace::Labelled(labels),
            None => QueriedNamespace::Unknown,
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

    /// The numbers of the selectors that select these labels, ascending.
    fn selecting(&self, labels: &BTreeMap<String, String>) -> Box<[u32]> {
        let selecting = self
            .candidates(labels)
            .filter(|(_, selector)| selector.matches(|key| labels.get(key)));
        let mut numbers: Vec<u32> = selecting.map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.into()
    }

    /// The selectors that may select these labels, some perhaps twice.
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
        assert_eq!(found[..2], [QueriedNamespace::Known(&[0]); 2]);
        assert_eq!(found[2..], [QueriedNamespace::Labelled(&labels); 2]);
    }
}
