//! Matching: the requests to which a policy or webhook applies, with one implementation
//! for both.
//!
//! ```text
//! request ─▶ index: by group and resource ─▶ namespaceSelector ─▶ objectSelector
//!                                                                        │
//!     the resource, in one version ◀─ rules, exact then equivalent ◀─────┘
//! ```
//!
//! Follows `ShouldCallHook` of `apiserver/pkg/admission/plugin/webhook/generic`
//! and `Matches` of `…/plugin/policy/matching`, which share their parts too.

mod constraints;
mod equivalence;

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::{GroupVersionResource, Operation, Request};
use crate::model::{LabelSelector, NAMESPACE_NAME_LABEL as NAME_LABEL};
use portcullis_cel::json::{Document, Kind, Node};

pub use constraints::{Constraints, Index, MatchPolicy, MatchSubject, MatchedResource, NoRules};
pub use equivalence::{CustomResource, CustomResources, Equivalents};

pub(crate) use equivalence::is_own_group;

/// What stands behind the name of a namespace that is not known, for who runs a gateway.
pub const UNKNOWN_NAMESPACE_REMEDY: &str = "the gateway knows no such namespace, and a namespaceSelector asks for its \
     labels; add the Namespace to the manifests, watch it by `clusters`, or set `admission.missingNamespace: NameOnly`";

/// Why it cannot be said whether something applies.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MatchError {
    /// A selector asks about labels of a namespace that is not known.
    #[error("namespaces \"{name}\" not found: {UNKNOWN_NAMESPACE_REMEDY}")]
    UnknownNamespace {
        /// The namespace.
        name: String,
    },
    /// A Namespace without metadata.
    #[error("object does not implement the Object interfaces")]
    NoMetadata,
    /// It applies to the object in a version in which the API server did not send it.
    #[error(
        "unable to convert to {wanted}: the API server sent {sent}; \
         register this webhook for the version that the policy names"
    )]
    OtherVersion {
        /// The version that the rule names.
        wanted: String,
        /// The version in which the object came.
        sent: String,
    },
    /// It applies to the object as another resource, whose kind is not known.
    #[error("unable to convert to {wanted}: unknown kind")]
    UnknownKind {
        /// The resource that the rule names.
        wanted: String,
    },
}

// The reasons why a policy or webhook does not apply to a request.

/// Why a policy or binding does not apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mismatch {
    /// No binding names the policy.
    Unbound,
    /// None of `resourceRules` is about such a request.
    Rules,
    /// One of `excludeResourceRules` is.
    Excluded,
    /// `namespaceSelector` does not select the namespace.
    Namespace,
    /// `objectSelector` selects neither the object nor the old one.
    Object,
    /// There is no parameter, which the binding allows.
    NoParameter,
    /// Reviews of access and of tokens are shown to no webhook.
    Exempt,
    /// What configures admission is shown to static policies and webhooks alone.
    NotStatic,
}

impl Mismatch {
    /// Why, in words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unbound => "no binding names it",
            Self::Rules => "no rule is about such a request",
            Self::Excluded => "excludeResourceRules leaves such requests out",
            Self::Namespace => "namespaceSelector does not select the namespace",
            Self::Object => "objectSelector selects neither the object nor the old one",
            Self::NoParameter => "there is no parameter, which the binding allows",
            Self::Exempt => "no webhook is shown such objects",
            Self::NotStatic => {
                "only those of files with names that end in `.static.k8s.io` see what configures admission"
            }
        }
    }
}

// Rules: which operations on which resources.

/// `RuleWithOperations`, and `NamedRuleWithOperations` where there are names
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
    /// Where the objects live.
    pub scope: RuleScope,
    /// Of policies only: exact names; empty for any.
    pub resource_names: Vec<String>,
}

/// A set of operations. The empty one matches nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Operations(u8);

/// `ScopeType`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum RuleScope {
    /// `*`.
    #[default]
    All,
    /// `Cluster`: what has no namespace, and Namespaces themselves.
    Cluster,
    /// `Namespaced`.
    Namespaced,
    /// Any other text: nothing.
    Unknown,
}

/// What a rule looks at: a request, with its resource in one of its versions.
#[derive(Debug, Clone, Copy)]
pub struct RuleTarget<'t> {
    /// The resource.
    pub resource: &'t GroupVersionResource<'t>,
    /// The subresource; empty for the object itself.
    pub subresource: &'t str,
    /// The namespace; empty for cluster scope.
    pub namespace: &'t str,
    /// The name.
    pub name: &'t str,
    /// The operation.
    pub operation: Operation,
}

/// Where Namespace objects come from: manifests, or the watch of a cluster.
pub trait Namespaces: std::fmt::Debug + Send + Sync {
    /// The Namespace object called `name`, if it is known.
    fn namespace(&self, name: &str) -> Option<Arc<Document<'static>>>;

    /// What holds for the Namespace called `name` where it is not known and `configured` holds for
    /// others: nobody may take one to have no labels whose labels are merely not known.
    fn missing(&self, _name: &str, configured: MissingNamespace) -> MissingNamespace {
        configured
    }
}

/// The Namespaces of manifests.
#[derive(Debug, Clone)]
pub struct FixedNamespaces {
    known: HashMap<String, Arc<Document<'static>>>,
    /// Which others there are; `None`: any may be there.
    left_out: Option<BTreeSet<String>>,
}

/// Namespaces, and others where one is not among them.
#[derive(Debug)]
pub(crate) struct LayeredNamespaces {
    pub(crate) over: FixedNamespaces,
    pub(crate) under: Arc<dyn Namespaces>,
}

/// `admission.missingNamespace`: what holds when a selector asks about a
/// namespace that is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MissingNamespace {
    /// An error, under the failure policy of the caller.
    #[default]
    Fail,
    /// It is taken to have no label but its name.
    NameOnly,
}

// === impl MatchRule ===

impl MatchRule {
    /// Whether the rule speaks of `target`
    /// (`apiserver/pkg/admission/plugin/webhook/predicates/rules/rules.go`; the
    /// names as in `…/policy/matching/matching.go`).
    #[must_use]
    pub fn matches(&self, target: RuleTarget<'_>) -> bool {
        self.matches_in_any_version(target) && contains(&self.api_versions, &target.resource.version)
    }

    /// The same, whatever the version.
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

/// Whether `pattern` covers a resource and its subresource. `*` after the
/// slash stands for no subresource too.
fn covers(pattern: &str, resource: &str, subresource: &str) -> bool {
    // Such patterns are short: a loop over their bytes is quicker than a search.
    let slash = pattern.bytes().position(|byte| byte == b'/');
    let (wanted, wanted_subresource) = slash
        .and_then(|slash| Some((pattern.get(..slash)?, pattern.get(slash + 1..)?)))
        .unwrap_or((pattern, ""));
    (wanted == "*" || wanted == resource) && (wanted_subresource == "*" || wanted_subresource == subresource)
}

// === impl Operations ===

impl Operations {
    /// Every operation: `*`.
    pub const ALL: Self = Self(0b1111);

    /// The operations of a rule; what is no operation matches nothing.
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

    /// Those of both.
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
    /// Whether the object lives in no namespace. A Namespace is given with its own name as
    /// namespace, and lives in the cluster.
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
    /// These, by `metadata.name`; what has no name is left out.
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

    /// The same, where these others are there, too; `None`: any may be.
    #[must_use]
    pub fn with_left_out(self, left_out: Option<BTreeSet<String>>) -> Self {
        Self { left_out, ..self }
    }
}

impl Namespaces for FixedNamespaces {
    fn namespace(&self, name: &str) -> Option<Arc<Document<'static>>> {
        self.known.get(name).cloned()
    }

    fn missing(&self, name: &str, configured: MissingNamespace) -> MissingNamespace {
        match &self.left_out {
            Some(left_out) if !left_out.contains(name) => configured,
            _ => MissingNamespace::Fail,
        }
    }
}

impl Namespaces for LayeredNamespaces {
    fn namespace(&self, name: &str) -> Option<Arc<Document<'static>>> {
        self.over.namespace(name).or_else(|| self.under.namespace(name))
    }

    fn missing(&self, name: &str, configured: MissingNamespace) -> MissingNamespace {
        self.under.missing(name, configured)
    }
}

// === selection ===

/// Whether `selector` selects the request's namespace
/// (`apiserver/pkg/admission/plugin/webhook/predicates/namespace/matcher.go`).
///
/// Cluster-scoped objects always match. A Namespace that is being made or
/// changed is judged by the labels that it is to have.
///
/// # Errors
///
/// [`MatchError::UnknownNamespace`], unless the selector asks for the name alone or
/// `missing` says otherwise.
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
    // Who deletes a collection of namespaces names none, and none has that label.
    let is_named = !name.is_empty();
    if is_named && selector.keys().all(|key| key == NAME_LABEL) {
        return Ok(selector.matches(|_| Some(name)));
    }
    let own_name = |key: &str| (is_named && key == NAME_LABEL).then_some(Cow::Borrowed(name));
    match (namespaces.namespace(name), namespaces.missing(name, missing)) {
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

/// Whether `selector` selects the object that is to be or the one that is
/// (`apiserver/pkg/admission/plugin/webhook/predicates/object/matcher.go`).
///
/// The empty selector selects everything, objects that cannot bear labels too;
/// any other selects none of those.
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

/// Whether the object is one that can have labels.
fn can_bear_labels(object: Node<'_>) -> bool {
    object
        .get("metadata")
        .is_some_and(|metadata| metadata.kind() == Kind::Object)
}

/// The value of the label `key`.
pub(crate) fn label<'o>(object: Node<'o>, key: &str) -> Option<Cow<'o, str>> {
    object.get("metadata")?.get("labels")?.get(key)?.as_str()
}

#[cfg(test)]
mod tests;
