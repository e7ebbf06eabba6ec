//! Matching: which requests a policy or webhook applies to.
//!
//! ```text
//! request ─▶ index: by group and resource ─▶ namespaceSelector ─▶ objectSelector
//!                                                                        │
//!     the resource, in one version ◀─ rules, exact then equivalent ◀─────┘
//! ```
//!
//! Follows `ShouldCallHook` of `apiserver/pkg/admission/plugin/webhook/generic` and `Matches` of
//! `…/plugin/policy/matching`, which share most of their code.

mod constraints;
mod equivalence;

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::{GroupVersionResource, Operation, Request};
use crate::model::{LabelSelector, NAMESPACE_NAME_LABEL as NAME_LABEL};
use portcullis_cel::json::{Document, Kind, Node};

pub use constraints::{Constraints, Index, MatchInput, MatchPolicy, MatchedResource, NoRules};
pub use equivalence::{CustomResource, CustomResources, Equivalents};

pub(crate) use equivalence::is_own_group;

/// What an operator can do about an unknown namespace; ends the error message about it.
pub const UNKNOWN_NAMESPACE_REMEDY: &str = "the gateway does not know this namespace, and a namespaceSelector \
    needs its labels; add the Namespace to the manifests, watch the cluster with `clusters`, or set \
    `admission.missingNamespace: NameOnly`";

/// Why it cannot be determined whether a policy or webhook applies.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MatchError {
    /// A selector needs labels of a namespace that is not known.
    #[error("namespaces \"{name}\" not found: {UNKNOWN_NAMESPACE_REMEDY}")]
    UnknownNamespace {
        /// The namespace.
        name: String,
    },
    /// A Namespace without metadata.
    #[error("object does not implement the Object interfaces")]
    NoMetadata,
    /// It matches the object in another version than the API server sent.
    #[error(
        "unable to convert to {wanted}: the API server sent {sent}; request the version that the policy names \
        in the rules of this gateway's webhook configuration"
    )]
    OtherVersion {
        /// The version that the rule names.
        wanted: String,
        /// The version that the API server sent.
        sent: String,
    },
    /// It matches the object as an equivalent resource whose kind is not known.
    #[error("unable to convert to {wanted}: unknown kind")]
    UnknownKind {
        /// The resource that the rule names.
        wanted: String,
    },
}

// Reasons why a policy or webhook does not apply to a request.

/// Why a policy, binding or webhook does not apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mismatch {
    /// No binding names the policy.
    Unbound,
    /// None of the rules matches.
    Rules,
    /// One of `excludeResourceRules` matches.
    Excluded,
    /// `namespaceSelector` does not select the namespace.
    Namespace,
    /// `objectSelector` selects neither the object nor the old object.
    Object,
    /// No parameter was found, and the binding has `parameterNotFoundAction: Allow`.
    NoParameter,
    /// The request is an access review or token review, for which webhooks are not called.
    Exempt,
    /// The object configures admission, and only static policies and webhooks see those.
    NotStatic,
}

impl Mismatch {
    /// The reason, for the user.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unbound => "no binding names it",
            Self::Rules => "no rule matches the request",
            Self::Excluded => "excludeResourceRules matches the request",
            Self::Namespace => "namespaceSelector does not select the namespace",
            Self::Object => "objectSelector selects neither the object nor the old one",
            Self::NoParameter => "there is no parameter, which the binding allows",
            Self::Exempt => "webhooks are not called for these objects",
            Self::NotStatic => {
                "only policies and webhooks from files, with names that end in `.static.k8s.io`, are \
                evaluated for objects that configure admission"
            }
        }
    }
}

// Rules: which operations on which resources.

/// `RuleWithOperations`, or with resource names `NamedRuleWithOperations`
/// (`api/admissionregistration/v1/types.go`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MatchRule {
    /// The operations.
    pub operations: Operations,
    /// Groups, or `*`.
    pub api_groups: Vec<String>,
    /// Versions, or `*`.
    pub api_versions: Vec<String>,
    /// `pods`, `pods/log`, `pods/*` (pods too), `*/scale`, `*` (no subresources), `*/*`.
    pub resources: Vec<String>,
    /// `scope`.
    pub scope: RuleScope,
    /// `resourceNames`: exact names; empty for any. Only policies have them.
    pub resource_names: Vec<String>,
}

/// A set of operations. The empty set matches nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Operations(u8);

/// `ScopeType`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum RuleScope {
    /// `*`.
    #[default]
    All,
    /// `Cluster`: cluster-scoped objects, including Namespaces.
    Cluster,
    /// `Namespaced`.
    Namespaced,
    /// Any other value, which matches nothing.
    Unknown,
}

/// What a rule is matched against: a request, with its resource in one version.
#[derive(Debug, Clone, Copy)]
pub struct RuleTarget<'t> {
    /// The resource.
    pub resource: &'t GroupVersionResource<'t>,
    /// The subresource; empty for the object itself.
    pub subresource: &'t str,
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: &'t str,
    /// The name.
    pub name: &'t str,
    /// The operation.
    pub operation: Operation,
}

/// A source of Namespace objects: manifests, or the watch of a cluster.
pub trait Namespaces: std::fmt::Debug + Send + Sync {
    /// Returns the Namespace object `name`, if it is known.
    fn namespace(&self, name: &str) -> Option<Arc<Document<'static>>>;

    /// Returns how to treat the Namespace `name` if it is not known. `configured` holds for
    /// namespaces that do not exist; a namespace that may exist with labels that are not known must
    /// not be treated as having none.
    fn missing_policy(&self, _name: &str, configured: MissingNamespace) -> MissingNamespace {
        configured
    }
}

/// The Namespaces of manifests.
#[derive(Debug, Clone)]
pub struct FixedNamespaces {
    known: HashMap<String, Arc<Document<'static>>>,
    /// The names of other Namespaces that exist but are not known; `None`: any may exist.
    left_out: Option<BTreeSet<String>>,
}

/// Namespaces that take precedence over those of another source.
#[derive(Debug)]
pub(crate) struct LayeredNamespaces {
    pub(crate) overrides: FixedNamespaces,
    pub(crate) base: Arc<dyn Namespaces>,
}

/// `admission.missingNamespace`: what happens when a selector needs labels of a namespace that is
/// not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MissingNamespace {
    /// An error, to which the failure policy of the policy or webhook applies.
    #[default]
    Fail,
    /// The namespace is treated as having no label but that of its name.
    NameOnly,
}

// === impl MatchRule ===

impl MatchRule {
    /// Whether the rule matches `target`
    /// (`apiserver/pkg/admission/plugin/webhook/predicates/rules/rules.go`; names as in
    /// `…/policy/matching/matching.go`).
    #[must_use]
    pub fn matches(&self, target: RuleTarget<'_>) -> bool {
        self.matches_in_any_version(target) && contains(&self.api_versions, &target.resource.version)
    }

    /// Like [`matches`](Self::matches), but ignores the version.
    pub(crate) fn matches_in_any_version(&self, target: RuleTarget<'_>) -> bool {
        self.operations.contains(target.operation)
            && contains(&self.api_groups, &target.resource.group)
            && self
                .resources
                .iter()
                .any(|one| covers(one, &target.resource.resource, target.subresource))
            && self.scope.contains(target)
            && (self.resource_names.is_empty() || self.resource_names.iter().any(|name| name == target.name))
    }
}

/// Whether one of `items` is `*` or `wanted`.
fn contains(items: &[String], wanted: &str) -> bool {
    items.iter().any(|item| item == "*" || item == wanted)
}

/// Whether `pattern` covers a resource and its subresource. `*` after the slash also covers the
/// resource itself.
fn covers(pattern: &str, resource: &str, subresource: &str) -> bool {
    // Patterns are short: a loop over their bytes is faster than a search.
    let slash = pattern.bytes().position(|byte| byte == b'/');
    let (wanted, wanted_subresource) = slash
        .and_then(|slash| Some((pattern.get(..slash)?, pattern.get(slash + 1..)?)))
        .unwrap_or((pattern, ""));
    (wanted == "*" || wanted == resource) && (wanted_subresource == "*" || wanted_subresource == subresource)
}

// === impl Operations ===

impl Operations {
    /// All operations: `*`.
    pub const ALL: Self = Self(0b1111);

    /// Parses the operations of a rule; unknown names match nothing.
    #[must_use]
    pub fn of<T: AsRef<str>>(names: &[T]) -> Self {
        let bits = names.iter().map(|name| match name.as_ref() {
            "*" => Self::ALL.0,
            name => Operation::parse(name).map_or(0, Self::bit),
        });
        Self(bits.fold(0, |all, one| all | one))
    }

    /// Whether `operation` is one of them.
    #[must_use]
    pub const fn contains(self, operation: Operation) -> bool {
        self.0 & Self::bit(operation) != 0
    }

    /// The union of both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn bit(operation: Operation) -> u8 {
        1 << operation as u8
    }
}

// === impl RuleTarget ===

impl RuleTarget<'_> {
    /// Whether the object is cluster-scoped. So is a Namespace, although its requests have its own
    /// name as namespace.
    fn is_in_cluster(&self) -> bool {
        let resource = self.resource;
        self.namespace.is_empty()
            || (resource.group.is_empty() && resource.version == "v1" && resource.resource == "namespaces")
    }
}

// === impl RuleScope ===

impl RuleScope {
    fn contains(self, target: RuleTarget<'_>) -> bool {
        match self {
            Self::All => true,
            Self::Cluster => target.is_in_cluster(),
            Self::Namespaced => !target.is_in_cluster(),
            Self::Unknown => false,
        }
    }
}

impl From<&str> for RuleScope {
    fn from(text: &str) -> Self {
        match text {
            "*" => Self::All,
            "Cluster" => Self::Cluster,
            "Namespaced" => Self::Namespaced,
            _ => Self::Unknown,
        }
    }
}

// === impl FixedNamespaces ===

impl FixedNamespaces {
    /// Indexes Namespaces by `metadata.name`; those without a name are skipped.
    #[must_use]
    pub fn new(namespaces: impl IntoIterator<Item = Arc<Document<'static>>>) -> Self {
        let named = namespaces.into_iter().filter_map(|document| {
            let name = document.root().pointer("/metadata/name")?.as_str()?.into_owned();
            Some((name, document))
        });
        Self {
            known: named.collect(),
            left_out: Some(BTreeSet::new()),
        }
    }

    /// Sets which other Namespaces exist but are not known; `None`: any may.
    #[must_use]
    pub fn with_left_out(self, left_out: Option<BTreeSet<String>>) -> Self {
        Self { left_out, ..self }
    }
}

impl Namespaces for FixedNamespaces {
    fn namespace(&self, name: &str) -> Option<Arc<Document<'static>>> {
        self.known.get(name).cloned()
    }

    fn missing_policy(&self, name: &str, configured: MissingNamespace) -> MissingNamespace {
        match &self.left_out {
            Some(left_out) if !left_out.contains(name) => configured,
            _ => MissingNamespace::Fail,
        }
    }
}

impl Namespaces for LayeredNamespaces {
    fn namespace(&self, name: &str) -> Option<Arc<Document<'static>>> {
        self.overrides
            .namespace(name)
            .or_else(|| self.base.namespace(name))
    }

    fn missing_policy(&self, name: &str, configured: MissingNamespace) -> MissingNamespace {
        self.base.missing_policy(name, configured)
    }
}

// === selection ===

/// Whether `selector` selects the request's namespace
/// (`apiserver/pkg/admission/plugin/webhook/predicates/namespace/matcher.go`).
///
/// Cluster-scoped objects always match. A Namespace that is created or updated is matched by its
/// new labels.
///
/// # Errors
///
/// [`MatchError::UnknownNamespace`], unless the selector uses only the label of the name or
/// `missing` allows to ignore it.
pub fn selects_namespace(
    selector: &LabelSelector,
    request: &Request<'_>,
    object: Option<Node<'_>>,
    namespaces: &dyn Namespaces,
    missing: MissingNamespace,
) -> Result<bool, MatchError> {
    let is_namespace = request.request_resource.resource == "namespaces";
    if (request.namespace.is_empty() && !is_namespace) || selector.is_empty() {
        return Ok(true);
    }
    let is_written = matches!(request.operation, Operation::Create | Operation::Update);
    if is_namespace && request.subresource.is_empty() && is_written {
        let object = object
            .filter(|object| can_bear_labels(*object))
            .ok_or(MatchError::NoMetadata)?;
        return Ok(selector.matches(|key| label(object, key)));
    }
    selects_by_name(selector, &request.namespace, namespaces, missing)
}

fn selects_by_name(
    selector: &LabelSelector,
    name: &str,
    namespaces: &dyn Namespaces,
    missing: MissingNamespace,
) -> Result<bool, MatchError> {
    // A `deletecollection` of namespaces has no name, and so no name label.
    let is_named = !name.is_empty();
    if is_named && selector.keys().all(|key| key == NAME_LABEL) {
        return Ok(selector.matches(|_| Some(name)));
    }
    let own_name = |key: &str| (is_named && key == NAME_LABEL).then_some(Cow::Borrowed(name));
    match (
        namespaces.namespace(name),
        namespaces.missing_policy(name, missing),
    ) {
        (Some(document), _) => {
            Ok(selector.matches(|key| own_name(key).or_else(|| label(document.root(), key))))
        }
        (None, MissingNamespace::NameOnly) => Ok(selector.matches(own_name)),
        (None, MissingNamespace::Fail) => Err(MatchError::UnknownNamespace {
            name: name.to_owned(),
        }),
    }
}

// Labels of objects, for selectors.

/// Whether `selector` selects the new or the old object
/// (`apiserver/pkg/admission/plugin/webhook/predicates/object/matcher.go`).
///
/// The empty selector selects everything, including objects that cannot have labels; any other
/// selects none of those.
#[must_use]
pub fn selects_object(
    selector: &LabelSelector,
    object: Option<Node<'_>>,
    old_object: Option<Node<'_>>,
) -> bool {
    selector.is_empty()
        || [object, old_object]
            .into_iter()
            .flatten()
            .any(|object| can_bear_labels(object) && selector.matches(|key| label(object, key)))
}

/// Whether the object has metadata, and so can have labels.
fn can_bear_labels(object: Node<'_>) -> bool {
    object
        .get("metadata")
        .is_some_and(|metadata| metadata.kind() == Kind::Object)
}

pub(crate) fn label<'o>(object: Node<'o>, key: &str) -> Option<Cow<'o, str>> {
    object.get("metadata")?.get("labels")?.get(key)?.as_str()
}

#[cfg(test)]
mod tests;
