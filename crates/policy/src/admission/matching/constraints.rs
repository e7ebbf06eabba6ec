//! Selectors and rules together.

use std::collections::HashMap;
use std::sync::Arc;

use super::equivalence::Equivalents;
use super::{
    MatchError, MatchRule, Mismatch, MissingNamespace, Namespaces, Operations, RuleTarget, selects_namespace,
    selects_object,
};
use crate::admission::{GroupVersionKind, GroupVersionResource, Request};
use crate::model::LabelSelector;
use portcullis_cel::json::Node;

/// `MatchResources` of a policy or binding, or the same fields of a webhook
/// (`api/admissionregistration/v1/types.go`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Constraints {
    /// `namespaceSelector`.
    pub namespace_selector: LabelSelector,
    /// `objectSelector`.
    pub object_selector: LabelSelector,
    /// `rules` or `resourceRules`: any of them.
    pub rules: Vec<MatchRule>,
    /// What it means that there is no rule.
    pub no_rules: NoRules,
    /// `excludeResourceRules`: none of them. Of policies only.
    pub exclude_rules: Vec<MatchRule>,
    /// `matchPolicy`.
    pub match_policy: MatchPolicy,
}

/// What a list without rules matches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum NoRules {
    /// Everything: policies and bindings.
    #[default]
    Everything,
    /// Nothing: webhooks.
    Nothing,
}

/// `MatchPolicyType`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum MatchPolicy {
    /// Only what the rules name.
    Exact,
    /// Also the same objects under other versions or groups.
    #[default]
    Equivalent,
}

/// The request that constraints are asked about, with what they need to know.
#[derive(Debug, Clone, Copy)]
pub struct MatchSubject<'s> {
    /// The request.
    pub request: &'s Request<'s>,
    /// The object as mutated so far.
    pub object: Option<Node<'s>>,
    /// The namespaces that are known.
    pub namespaces: &'s dyn Namespaces,
    /// What holds for the others.
    pub missing: MissingNamespace,
    /// Which resources are the same.
    pub equivalents: &'s Equivalents,
}

/// In which version the constraints match: the resource that the rule names, and its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchedResource<'m>(MatchedNames<'m>);

/// Nearly always the names are those of the request, and nothing is copied.
#[derive(Debug, Clone)]
enum MatchedNames<'m> {
    Borrowed(&'m GroupVersionResource<'m>, &'m GroupVersionKind<'m>),
    Owned(Box<(GroupVersionResource<'m>, GroupVersionKind<'m>)>),
}

/// What rules found.
enum FoundRule<'m> {
    Nothing,
    Match(MatchedResource<'m>),
    Fault(MatchError),
}

// === impl Constraints ===

impl Constraints {
    /// Whether the request is within the constraints, and as which resource.
    ///
    /// # Errors
    ///
    /// A selector that cannot be answered, of constraints which otherwise
    /// match; a match in a version whose kind is not known.
    pub fn matches<'m>(
        &'m self,
        subject: MatchSubject<'m>,
    ) -> Result<Option<MatchedResource<'m>>, MatchError> {
        let MatchSubject {
            request,
            object,
            namespaces,
            missing,
            ..
        } = subject;
        let namespace = selects_namespace(&self.namespace_selector, request, object, namespaces, missing);
        if namespace == Ok(false) || !selects_object(&self.object_selector, object, request.old_object) {
            return Ok(None);
        }
        match self.matches_rules(subject)? {
            None => Ok(None),
            // Only now that it applies does it matter that the namespace is not known.
            Some(matched) => namespace.map(|_| Some(matched)),
        }
    }

    /// Whether the request is within the rules, whatever the selectors say, and
    /// as which resource.
    ///
    /// # Errors
    ///
    /// A match in a version whose kind is not known.
    pub fn matches_rules<'m>(
        &'m self,
        subject: MatchSubject<'m>,
    ) -> Result<Option<MatchedResource<'m>>, MatchError> {
        match self.find(&self.exclude_rules, subject) {
            FoundRule::Match(_) => return Ok(None),
            FoundRule::Fault(fault) => return Err(fault),
            FoundRule::Nothing => {}
        }
        if self.rules.is_empty() && self.no_rules == NoRules::Everything {
            return Ok(Some(subject.as_asked()));
        }
        match self.find(&self.rules, subject) {
            FoundRule::Match(matched) => Ok(Some(matched)),
            FoundRule::Fault(fault) => Err(fault),
            FoundRule::Nothing => Ok(None),
        }
    }

    /// Why the request is not within the constraints, where
    /// [`matches`](Self::matches) says that it is not.
    #[must_use]
    pub fn first_mismatch(&self, subject: MatchSubject<'_>) -> Mismatch {
        let MatchSubject {
            request,
            object,
            namespaces,
            missing,
            ..
        } = subject;
        if selects_namespace(&self.namespace_selector, request, object, namespaces, missing) == Ok(false) {
            Mismatch::Namespace
        } else if !selects_object(&self.object_selector, object, request.old_object) {
            Mismatch::Object
        } else if matches!(self.find(&self.exclude_rules, subject), FoundRule::Match(_)) {
            Mismatch::Excluded
        } else {
            Mismatch::Rules
        }
    }

    /// The first rule that matches: exactly, then through an equivalent resource.
    fn find<'m>(&self, rules: &[MatchRule], subject: MatchSubject<'m>) -> FoundRule<'m> {
        if rules.is_empty() {
            return FoundRule::Nothing;
        }
        let request = subject.request;
        if rules
            .iter()
            .any(|rule| rule.matches(subject.target(&request.request_resource)))
        {
            return FoundRule::Match(subject.as_asked());
        }
        match self.match_policy {
            MatchPolicy::Exact => FoundRule::Nothing,
            MatchPolicy::Equivalent => equivalent(rules, subject),
        }
    }
}

fn equivalent<'m>(rules: &[MatchRule], subject: MatchSubject<'m>) -> FoundRule<'m> {
    let request = subject.request;
    // The API server has just shown that these two are the same.
    if request.is_converted()
        && rules
            .iter()
            .any(|rule| rule.matches(subject.target(&request.resource)))
    {
        return FoundRule::Match(subject.as_sent());
    }
    let asked = &request.request_resource;
    let Some(equivalents) = subject.equivalents.of(asked, &request.subresource) else {
        return unknown(rules, subject);
    };
    for rule in rules {
        for (resource, kind) in equivalents.iter().filter(|(resource, _)| resource != asked) {
            if !rule.matches(subject.target(resource)) {
                continue;
            }
            if kind.kind.is_empty() {
                return FoundRule::Fault(MatchError::UnknownKind {
                    wanted: name(resource),
                });
            }
            return FoundRule::Match(MatchedResource::owned(resource.clone(), kind.clone()));
        }
    }
    FoundRule::Nothing
}

/// Of a custom resource whose definition is not known, neither are its versions. A rule that names
/// it in another one may well mean this object.
fn unknown<'m>(rules: &[MatchRule], subject: MatchSubject<'m>) -> FoundRule<'m> {
    let asked = &subject.request.request_resource;
    let rule = rules
        .iter()
        .find(|rule| rule.matches_in_any_version(subject.target(asked)));
    match rule.and_then(|rule| rule.api_versions.first()) {
        Some(version) => {
            let resource = GroupVersionResource {
                version: version.clone().into(),
                ..asked.clone()
            };
            let mut kind = subject.request.request_kind.clone();
            // A subresource such as `scale` is of its own kind, whatever the version of the resource.
            if (&kind.group, &kind.version) == (&asked.group, &asked.version) {
                kind.version = version.clone().into();
            }
            FoundRule::Match(MatchedResource::owned(resource, kind))
        }
        None => FoundRule::Nothing,
    }
}

// === impl MatchSubject ===

impl<'s> MatchSubject<'s> {
    fn target<'t>(&'t self, resource: &'t GroupVersionResource<'t>) -> RuleTarget<'t> {
        RuleTarget {
            resource,
            subresource: &self.request.subresource,
            namespace: &self.request.namespace,
            name: &self.request.name,
            operation: self.request.operation,
        }
    }

    /// As the user asked for it.
    const fn as_asked(&self) -> MatchedResource<'s> {
        MatchedResource(MatchedNames::Borrowed(
            &self.request.request_resource,
            &self.request.request_kind,
        ))
    }

    /// As the API server sent it.
    const fn as_sent(&self) -> MatchedResource<'s> {
        MatchedResource(MatchedNames::Borrowed(&self.request.resource, &self.request.kind))
    }
}

// === impl MatchedResource ===

impl<'m> MatchedResource<'m> {
    fn owned(resource: GroupVersionResource<'m>, kind: GroupVersionKind<'m>) -> Self {
        Self(MatchedNames::Owned(Box::new((resource, kind))))
    }

    /// The resource that the rule names.
    #[must_use]
    pub fn resource(&self) -> &GroupVersionResource<'m> {
        self.0.both().0
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> &GroupVersionKind<'m> {
        self.0.both().1
    }

    /// The same with text of its own.
    #[must_use]
    pub fn into_owned(self) -> MatchedResource<'static> {
        let (resource, kind) = self.into_parts();
        MatchedResource::owned(resource.into_owned(), kind.into_owned())
    }

    /// The resource and its kind.
    #[must_use]
    pub fn into_parts(self) -> (GroupVersionResource<'m>, GroupVersionKind<'m>) {
        match self.0 {
            MatchedNames::Borrowed(resource, kind) => (resource.clone(), kind.clone()),
            MatchedNames::Owned(both) => *both,
        }
    }

    /// Whether the object came in this version, so that nothing need be converted.
    ///
    /// # Errors
    ///
    /// [`MatchError::OtherVersion`].
    pub fn as_sent(&self, request: &Request<'_>) -> Result<(), MatchError> {
        if *self.kind() == request.kind {
            return Ok(());
        }
        let kind = |kind: &GroupVersionKind<'_>| match kind.group.as_ref() {
            "" => format!("{}, Kind={}", kind.version, kind.kind),
            group => format!("{group}/{}, Kind={}", kind.version, kind.kind),
        };
        Err(MatchError::OtherVersion {
            wanted: kind(self.kind()),
            sent: kind(&request.kind),
        })
    }
}

// === impl MatchedNames ===

impl<'m> MatchedNames<'m> {
    fn both(&self) -> (&GroupVersionResource<'m>, &GroupVersionKind<'m>) {
        match self {
            Self::Borrowed(resource, kind) => (resource, kind),
            Self::Owned(both) => (&both.0, &both.1),
        }
    }
}

impl PartialEq for MatchedNames<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.both() == other.both()
    }
}

impl Eq for MatchedNames<'_> {}

fn name(resource: &GroupVersionResource<'_>) -> String {
    match resource.group.as_ref() {
        "" => format!("{}, Resource={}", resource.version, resource.resource),
        group => format!("{group}/{}, Resource={}", resource.version, resource.resource),
    }
}

// An index of rules, to find candidates without comparing each one.

/// The places of constraints by the group and resource that their rules name,
/// so that the cost of a request follows those that could match it.
#[derive(Debug)]
pub struct Index<T> {
    /// By group, then resource; `*` stands for itself.
    places: ByName<ByName<Vec<IndexEntry<T>>>>,
}

/// The names come from manifests, and are few.
type ByName<T> = HashMap<String, T, foldhash::fast::RandomState>;

#[derive(Debug)]
struct IndexEntry<T> {
    place: usize,
    operations: Operations,
    of: Arc<T>,
}

// === impl Index ===

impl<T> Index<T> {
    /// Indexes what constraints are of, by its place among `all`.
    pub fn new<'c>(
        all: impl IntoIterator<Item = (&'c Constraints, Arc<T>)>,
        equivalents: &Equivalents,
    ) -> Self {
        let mut index = Self {
            places: ByName::default(),
        };
        for (place, (constraints, of)) in all.into_iter().enumerate() {
            index.add(place, &of, constraints, equivalents);
        }
        index
    }

    /// What could match, each with its place, rising. What is not among it does not match.
    #[must_use]
    pub fn candidates(&self, request: &Request<'_>) -> Vec<(usize, &Arc<T>)> {
        let mut candidates = Vec::new();
        for resource in [&request.request_resource, &request.resource] {
            for group in [resource.group.as_ref(), "*"] {
                let Some(resources) = named(&self.places, group) else {
                    continue;
                };
                for name in [resource.resource.as_ref(), "*"] {
                    let meant = named(resources, name)
                        .into_iter()
                        .flatten()
                        .filter(|entry| entry.operations.contains(request.operation));
                    candidates.extend(meant.map(|entry| (entry.place, &entry.of)));
                }
            }
            if !request.is_converted() {
                break;
            }
        }
        if candidates.is_sorted_by_key(|(place, _)| *place) {
            candidates.dedup_by_key(|(place, _)| *place);
            return candidates;
        }
        candidates.sort_unstable_by_key(|(place, _)| *place);
        candidates.dedup_by_key(|(place, _)| *place);
        candidates
    }

    fn add(&mut self, place: usize, of: &Arc<T>, constraints: &Constraints, equivalents: &Equivalents) {
        if constraints.rules.is_empty() {
            if constraints.no_rules == NoRules::Everything {
                self.insert("*", "*", place, of, Operations::ALL);
            }
            return;
        }
        for rule in &constraints.rules {
            let operations = rule.operations;
            for resource in &rule.resources {
                let resource = resource
                    .split_once('/')
                    .map_or(resource.as_str(), |(resource, _)| resource);
                for group in &rule.api_groups {
                    self.insert(group, resource, place, of, operations);
                    if constraints.match_policy == MatchPolicy::Equivalent {
                        for (group, resource) in equivalents.in_other_groups(group, resource) {
                            self.insert(group, resource, place, of, operations);
                        }
                    }
                }
            }
        }
    }

    fn insert(&mut self, group: &str, resource: &str, place: usize, of: &Arc<T>, operations: Operations) {
        let resources = self.places.entry(group.to_owned()).or_default();
        let entries: &mut Vec<IndexEntry<T>> = resources.entry(resource.to_owned()).or_default();
        match entries.last_mut().filter(|last| last.place == place) {
            Some(last) => last.operations = last.operations.union(operations),
            None => entries.push(IndexEntry {
                place,
                operations,
                of: Arc::clone(of),
            }),
        }
    }
}

/// What has this name. The search stands once in the program, not at each of its uses: less
/// code has to be fetched for a request.
#[inline(never)]
fn named<'i, T>(all: &'i ByName<T>, name: &str) -> Option<&'i T> {
    all.get(name)
}
