//! The index: finds the rules that could apply to a request, however many are loaded.
//!
//! ```text
//! user, groups, namespace ──▶ bindings: RBAC's first rule that allows
//! user, groups ──┐
//! verb, group, … ┴─▶ query ─▶ policies: rules that may apply, each then compared in full
//! ```

mod bindings;
mod namespaces;
mod policies;
mod rule_fields;

pub(crate) use bindings::{BindingIndex, BoundRole, Grant};
pub(crate) use namespaces::NamespaceIndex;
pub(crate) use policies::{IndexedPolicy, IndexedRule, PolicyGroup, PolicyIndex, PolicyRule, UserRules};

use smallvec::SmallVec;

use super::interner::{Interner, PrefixInterner};
use super::matching::{
    ClusterScoped, NamespacePattern, Narrowness, RequestedResource, asks_for_collection,
    compare_resource_rule, namespace_of,
};
use super::rbac::{PathPattern, WildcardSet};
use super::{Effect, ResourceRule, RuleMatch, Subject, SubjectKind};
use crate::engine::{Attributes, LabelSelector, ResourceAttributes, SelectorMatch, Target, User};
use namespaces::InNamespace;

// A request in the numbers of the terms that policies use.

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
