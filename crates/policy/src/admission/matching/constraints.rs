//! The constraints of a policy, binding or webhook: selectors and rules. And an index of
//! constraints.

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
    /// `rules` or `resourceRules`: one of them must match.
    pub rules: Vec<MatchRule>,
    /// What an empty list of rules matches.
    pub no_rules: NoRules,
    /// `excludeResourceRules`: none of them may match. Only policies and bindings have them.
    pub exclude_rules: Vec<MatchRule>,
    /// `matchPolicy`.
    pub match_policy: MatchPolicy,
}

/// What an empty list of rules matches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum NoRules {
    /// Everything, for policies and bindings.
    #[default]
    Everything,
    /// Nothing, for webhooks.
    Nothing,
}

/// `MatchPolicyType`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum MatchPolicy {
    /// Only the resources and versions that the rules name.
    Exact,
    /// Also the same objects in other versions or groups.
    #[default]
    Equivalent,
}

/// A request to match, with the data that matching needs.
#[derive(Debug, Clone, Copy)]
pub struct MatchInput<'s> {
    /// The request.
    pub request: &'s Request<'s>,
    /// The object as mutated so far.
    pub object: Option<Node<'s>>,
    /// The namespaces that are known.
    pub namespaces: &'s dyn Namespaces,
    /// How to treat namespaces that are not known.
    pub missing: MissingNamespace,
    /// Which resources are equivalent.
    pub equivalents: &'s Equivalents,
}

/// The resource and version by which the constraints matched, with its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchedResource<'m>(MatchedNames<'m>);

/// Nearly always these are the names of the request, and nothing is copied.
#[derive(Debug, Clone)]
enum MatchedNames<'m> {
    Borrowed(&'m GroupVersionResource<'m>, &'m GroupVersionKind<'m>),
    Owned(Box<(GroupVersionResource<'m>, GroupVersionKind<'m>)>),
}

/// The result of matching rules.
enum RuleResult<'m> {
    Nothing,
    Match(MatchedResource<'m>),
    Fault(MatchError),
}

// === impl Constraints ===

impl Constraints {
    /// Whether the constraints match the request, and by which resource.
    ///
    /// # Errors
    ///
    /// Fails if the rules match, but the labels that a selector needs are not known, or if a rule
    /// matches a version whose kind is not known.
    pub fn matches<'m>(&'m self, subject: MatchInput<'m>) -> Result<Option<MatchedResource<'m>>, MatchError> {
        let MatchInput {
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
            // An unknown namespace is an error only if the rules match.
            Some(matched) => namespace.map(|_| Some(matched)),
        }
    }

    /// Whether the rules match the request, ignoring the selectors, and by which resource.
    ///
    /// # Errors
    ///
    /// Fails if a rule matches a version whose kind is not known.
    pub fn matches_rules<'m>(
        &'m self,
        subject: MatchInput<'m>,
    ) -> Result<Option<MatchedResource<'m>>, MatchError> {
        match self.find(&self.exclude_rules, subject) {
            RuleResult::Match(_) => return Ok(None),
            RuleResult::Fault(fault) => return Err(fault),
            RuleResult::Nothing => {}
        }
        if self.rules.is_empty() && self.no_rules == NoRules::Everything {
            return Ok(Some(subject.as_requested()));
        }
        match self.find(&self.rules, subject) {
            RuleResult::Match(matched) => Ok(Some(matched)),
            RuleResult::Fault(fault) => Err(fault),
            RuleResult::Nothing => Ok(None),
        }
    }

    /// Why the constraints do not match the request. Only meaningful if [`matches`](Self::matches)
    /// returns `None`.
    #[must_use]
    pub fn first_mismatch(&self, subject: MatchInput<'_>) -> Mismatch {
        let MatchInput {
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
        } else if matches!(self.find(&self.exclude_rules, subject), RuleResult::Match(_)) {
            Mismatch::Excluded
        } else {
            Mismatch::Rules
        }
    }

    /// Finds a rule that matches exactly, or else by an equivalent resource.
    fn find<'m>(&self, rules: &[MatchRule], subject: MatchInput<'m>) -> RuleResult<'m> {
        if rules.is_empty() {
            return RuleResult::Nothing;
        }
        let request = subject.request;
        if rules
            .iter()
            .any(|rule| rule.matches(subject.target(&request.request_resource)))
        {
            return RuleResult::Match(subject.as_requested());
        }
        match self.match_policy {
            MatchPolicy::Exact => RuleResult::Nothing,
            MatchPolicy::Equivalent => equivalent(rules, subject),
        }
    }
}

fn equivalent<'m>(rules: &[MatchRule], subject: MatchInput<'m>) -> RuleResult<'m> {
    let request = subject.request;
    // The API server converted between these two, so they are equivalent.
    if request.is_converted()
        && rules
            .iter()
            .any(|rule| rule.matches(subject.target(&request.resource)))
    {
        return RuleResult::Match(subject.as_sent());
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
                return RuleResult::Fault(MatchError::UnknownKind {
                    wanted: name(resource),
                });
            }
            return RuleResult::Match(MatchedResource::owned(resource.clone(), kind.clone()));
        }
    }
    RuleResult::Nothing
}

/// Matches a custom resource whose definition, and so its versions, are not known. A rule that
/// names it in another version is assumed to mean this object.
fn unknown<'m>(rules: &[MatchRule], subject: MatchInput<'m>) -> RuleResult<'m> {
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
            // A subresource such as `scale` has a kind of its own, which does not depend on this
            // version.
            if (&kind.group, &kind.version) == (&asked.group, &asked.version) {
                kind.version = version.clone().into();
            }
            RuleResult::Match(MatchedResource::owned(resource, kind))
        }
        None => RuleResult::Nothing,
    }
}

// === impl MatchInput ===

impl<'s> MatchInput<'s> {
    fn target<'t>(&'t self, resource: &'t GroupVersionResource<'t>) -> RuleTarget<'t> {
        RuleTarget {
            resource,
            subresource: &self.request.subresource,
            namespace: &self.request.namespace,
            name: &self.request.name,
            operation: self.request.operation,
        }
    }

    /// The resource that the user requested.
    const fn as_requested(&self) -> MatchedResource<'s> {
        MatchedResource(MatchedNames::Borrowed(
            &self.request.request_resource,
            &self.request.request_kind,
        ))
    }

    /// The resource in the version that the API server sent.
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

    /// Copies borrowed strings.
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

    /// Checks that the API server sent the object in this version, so that it need not be
    /// converted.
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

/// Indexes constraints by the groups and resources of their rules, so that the cost of a request
/// depends on those that could match it.
#[derive(Debug)]
pub struct Index<T> {
    /// By group, then resource; `*` is a key like others.
    places: ByName<ByName<Vec<IndexEntry<T>>>>,
}

/// A fast hash suffices: the keys come from manifests, and are few.
type ByName<T> = HashMap<String, T, foldhash::fast::RandomState>;

#[derive(Debug)]
struct IndexEntry<T> {
    place: usize,
    operations: Operations,
    of: Arc<T>,
}

// === impl Index ===

impl<T> Index<T> {
    /// Indexes the owners of constraints, by their positions in `all`.
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

    /// Returns everything that could match the request, with its position, in ascending order.
    /// Nothing else matches.
    #[must_use]
    pub fn candidates(&self, request: &Request<'_>) -> Vec<(usize, &Arc<T>)> {
        let mut candidates = Vec::new();
        for resource in [&request.request_resource, &request.resource] {
            for group in [resource.group.as_ref(), "*"] {
                let Some(resources) = look_up(&self.places, group) else {
                    continue;
                };
                for name in [resource.resource.as_ref(), "*"] {
                    let meant = look_up(resources, name)
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

/// Looks up a name. Not inlined, because less code in the instruction cache is faster here.
#[inline(never)]
fn look_up<'i, T>(all: &'i ByName<T>, name: &str) -> Option<&'i T> {
    all.get(name)
}
