//! Validated objects, by themselves and with their documents.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::BuildHasher;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use super::admission::{self, AdmissionObject};
use super::group_of;
use crate::admission::ParamKind;
use crate::admission::exceptions::Exception;
use crate::admission::webhook::Webhook;
use crate::authorization::{
    AccessRequest, AuthorizationInvariant, AuthorizationPolicy, Binding, Effect, Role,
};
use crate::document::{Document, Node, PackedDocument, Value};
use crate::field::Fault;
use portcullis_cel::json;

/// A valid object and its document.
#[derive(Debug, Clone)]
pub(crate) struct ManifestObject {
    /// As written.
    pub(crate) document: PackedDocument,
    /// Shared by every set that has it.
    pub(crate) valid: Arc<ValidatedObject>,
    /// The warnings that depend on nothing else, once they were found.
    pub(crate) warnings: OnceLock<Box<[Fault]>>,
}

/// What an object says.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    /// A Role or ClusterRole.
    Role(Arc<Role>),
    /// A RoleBinding or ClusterRoleBinding.
    Binding(Arc<Binding>),
    Policy(Arc<AuthorizationPolicy>),
    Invariant(Arc<AuthorizationInvariant>),
    Exception(Arc<Exception>),
    AccessRequest(Arc<AccessRequest>),
    /// The labels of the namespace.
    Namespace(Arc<BTreeMap<String, String>>),
    Admission(AdmissionObject),
    Parameter,
}

impl Content {
    /// What is kept of the `document` of such an object: of one with expressions, the columns too.
    fn keep(&self, document: &Document) -> PackedDocument {
        match self {
            Self::Role(_)
            | Self::Binding(_)
            | Self::AccessRequest(_)
            | Self::Namespace(_)
            | Self::Parameter => PackedDocument::new(document),
            Self::Policy(_) | Self::Invariant(_) | Self::Exception(_) | Self::Admission(_) => {
                PackedDocument::with_columns(document)
            }
        }
    }
}

impl ManifestObject {
    /// The object that `document` was read to.
    pub(crate) fn new(document: &Document, valid: Arc<ValidatedObject>) -> Self {
        Self {
            document: valid.content.keep(document),
            valid,
            warnings: OnceLock::new(),
        }
    }
}

impl Deref for ManifestObject {
    type Target = ValidatedObject;

    fn deref(&self) -> &ValidatedObject {
        &self.valid
    }
}

/// An object without fault, as the engine takes it.
#[derive(Debug, Clone)]
pub struct ValidatedObject {
    identity: ObjectIdentity,
    pub(crate) cluster: Option<Arc<str>>,
    pub(crate) content: Content,
    /// Whether it comes from an API server, and not from a file.
    pub(crate) is_watched: bool,
    /// The object itself, where expressions look at it.
    pub(crate) json: Option<Arc<json::Document<'static>>>,
    digest: u64,
    compiled_bytes: usize,
}

/// Where an object comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObjectOrigin {
    File,
    ApiServer,
}

/// What there is once in a cluster: its version does not matter.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ObjectIdentity {
    /// Group, kind, namespace and name, one after another.
    text: Arc<str>,
    /// Where the first three of them end.
    ends: [u32; 3],
}

// === impl ValidatedObject ===

impl ValidatedObject {
    /// The same object where `cluster` has it: what it says exists once.
    #[must_use]
    pub fn of_cluster(&self, cluster: Arc<str>) -> Self {
        Self {
            cluster: Some(cluster),
            ..self.clone()
        }
    }

    /// The object that says `content`, as `document` has it.
    pub(crate) fn new(
        document: &Document,
        cluster: Option<Arc<str>>,
        content: Content,
        origin: ObjectOrigin,
        compiled_bytes: usize,
    ) -> Self {
        let json = match &content {
            Content::Namespace(_) | Content::Parameter => admission::json(document),
            _ => None,
        };
        Self {
            identity: ObjectIdentity::of(document),
            digest: digest(document),
            cluster,
            content,
            is_watched: origin == ObjectOrigin::ApiServer,
            json,
            compiled_bytes,
        }
    }

    /// Which object it is.
    #[must_use]
    pub const fn identity(&self) -> &ObjectIdentity {
        &self.identity
    }

    /// A digest of everything the object says: equal for equal objects, whatever their comments,
    /// style or order of fields. It distinguishes versions within one process, and proves nothing.
    #[must_use]
    pub const fn digest(&self) -> u64 {
        self.digest
    }

    /// The only cluster that it holds for; `None` for every cluster.
    #[must_use]
    pub fn cluster(&self) -> Option<&str> {
        self.cluster.as_deref()
    }

    /// Whether it comes from an API server, and not from a file.
    #[must_use]
    pub const fn is_watched(&self) -> bool {
        self.is_watched
    }

    /// The webhooks that it registers, if it is a configuration of some.
    #[must_use]
    pub fn webhooks(&self) -> &[Arc<Webhook>] {
        match &self.content {
            Content::Admission(
                AdmissionObject::ValidatingWebhooks(configuration)
                | AdmissionObject::MutatingWebhooks(configuration),
            ) => &configuration.webhooks,
            _ => &[],
        }
    }

    /// The policy that it is, if it is an AuthorizationPolicy.
    #[must_use]
    pub fn authorization_policy(&self) -> Option<&AuthorizationPolicy> {
        match &self.content {
            Content::Policy(policy) => Some(policy),
            _ => None,
        }
    }

    /// The invariant that it is, if it is an AuthorizationInvariant.
    #[must_use]
    pub fn authorization_invariant(&self) -> Option<&AuthorizationInvariant> {
        match &self.content {
            Content::Invariant(invariant) => Some(invariant),
            _ => None,
        }
    }

    /// The policy, or the Deny of which an invariant says that it would change no Allow.
    pub(crate) fn rules_of_requests(&self) -> Option<&AuthorizationPolicy> {
        match &self.content {
            Content::Policy(policy) => Some(policy),
            Content::Invariant(invariant) => Some(&invariant.forbidden),
            _ => None,
        }
    }

    /// The exception that it is, if it is an AdmissionException.
    #[must_use]
    pub fn admission_exception(&self) -> Option<&Exception> {
        match &self.content {
            Content::Exception(exception) => Some(exception),
            _ => None,
        }
    }

    /// The AccessRequest that it is, if it is one.
    #[must_use]
    pub fn access_request(&self) -> Option<&AccessRequest> {
        match &self.content {
            Content::AccessRequest(request) => Some(request),
            _ => None,
        }
    }

    /// How many bytes its compiled expressions take, at most 32 MiB.
    #[must_use]
    pub const fn compiled_bytes(&self) -> usize {
        self.compiled_bytes
    }

    /// Whether it is of a kind that has expressions.
    #[must_use]
    pub const fn has_expressions(&self) -> bool {
        matches!(
            self.content,
            Content::Policy(_) | Content::Exception(_) | Content::Admission(_)
        )
    }

    /// Whether it can let pass what would not without it, and is of Portcullis' own kinds.
    #[must_use]
    pub fn lets_through(&self) -> bool {
        let policy = self.authorization_policy();
        let request = self.access_request();
        policy.is_some_and(|policy| policy.effect == Effect::Allow)
            || self.admission_exception().is_some()
            // One that is over must be taken, or what it granted before would go on.
            || request.is_some_and(|request| !request.is_denied && !request.is_withdrawn)
    }

    /// Whether more may be let through without one of its fields, and is of Portcullis' own kinds: what
    /// lets through, and a Limit, which refuses less the more its rules cover.
    #[must_use]
    pub fn may_widen(&self) -> bool {
        let policy = self.authorization_policy();
        self.lets_through() || policy.is_some_and(|policy| policy.effect == Effect::Limit)
    }

    /// Whether less would be refused without it: a policy that is not an Allow, a policy or webhook
    /// of admission.
    #[must_use]
    pub fn restricts(&self) -> bool {
        match &self.content {
            Content::Policy(policy) => policy.effect != Effect::Allow,
            Content::Admission(_) => true,
            Content::Role(_)
            | Content::Binding(_)
            | Content::Invariant(_)
            | Content::Exception(_)
            | Content::AccessRequest(_)
            | Content::Namespace(_)
            | Content::Parameter => false,
        }
    }

    /// The kind of the parameters that it takes, where it is a policy that takes some.
    #[must_use]
    pub fn param_kind(&self) -> Option<&ParamKind> {
        match &self.content {
            Content::Admission(AdmissionObject::ValidatingPolicy(policy)) => {
                policy.applicability.param_kind.as_ref()
            }
            Content::Admission(AdmissionObject::MutatingPolicy(policy)) => {
                policy.applicability.param_kind.as_ref()
            }
            _ => None,
        }
    }
}

/// A digest of what `document` says: equal for equal documents, whatever their lines, style or
/// order of fields.
pub(crate) fn digest(document: &Document) -> u64 {
    digest_of(document.root())
}

/// Recursion is bounded by the depth of documents.
fn digest_of(node: &Node) -> u64 {
    let state = foldhash::fast::FixedState::default();
    match &node.value {
        Value::Null => state.hash_one(0_u8),
        Value::Bool(value) => state.hash_one((1_u8, value)),
        Value::Number(value) => state.hash_one((2_u8, value)),
        Value::String(value) => state.hash_one((3_u8, value)),
        Value::List(items) => items.iter().fold(state.hash_one(4_u8), |digest, item| {
            state.hash_one((digest, digest_of(item)))
        }),
        // A sum is the same in every order.
        Value::Map(entries) => entries.iter().fold(state.hash_one(5_u8), |digest, entry| {
            digest.wrapping_add(state.hash_one((&entry.key, digest_of(&entry.value))))
        }),
    }
}

// === impl ObjectIdentity ===

impl ObjectIdentity {
    /// Of the object that `document` is, without what it does not say.
    #[must_use]
    pub fn of(document: &Document) -> Self {
        let metadata = |field| document.root().get("metadata")?.get(field)?.as_str();
        let group = group_of(document.text("apiVersion").unwrap_or_default());
        let kind = document.text("kind").unwrap_or_default();
        let namespace = metadata("namespace").unwrap_or_default();
        let name = metadata("name").unwrap_or_default();
        Self::new(group, kind, namespace, name)
    }

    /// Of the object that is called so.
    #[must_use]
    pub fn new(group: &str, kind: &str, namespace: &str, name: &str) -> Self {
        // No text of a manifest has 2^32 bytes.
        let end = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        let ends = [
            group.len(),
            group.len() + kind.len(),
            group.len() + kind.len() + namespace.len(),
        ];
        Self {
            text: [group, kind, namespace, name].concat().into(),
            ends: ends.map(end),
        }
    }

    /// The API group; empty for the core group.
    #[must_use]
    pub fn group(&self) -> &str {
        self.part(0, self.ends[0])
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.part(self.ends[0], self.ends[1])
    }

    /// The namespace; empty where it has none.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.part(self.ends[1], self.ends[2])
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.text.get(self.ends[2] as usize..).unwrap_or_default()
    }

    fn part(&self, start: u32, end: u32) -> &str {
        self.text.get(start as usize..end as usize).unwrap_or_default()
    }

    /// A digest of it: equal for equal identities. It proves nothing.
    pub fn digest(&self) -> u64 {
        foldhash::fast::FixedState::default().hash_one(self)
    }

    fn parts(&self) -> [&str; 4] {
        [self.group(), self.kind(), self.namespace(), self.name()]
    }
}

/// By group, kind, namespace and name.
impl Ord for ObjectIdentity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.parts().cmp(&other.parts())
    }
}

impl PartialOrd for ObjectIdentity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// `Kind/name` or `Kind/namespace/name`, as faults name objects.
impl fmt::Display for ObjectIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace() {
            "" => write!(f, "{}/{}", self.kind(), self.name()),
            namespace => write!(f, "{}/{namespace}/{}", self.kind(), self.name()),
        }
    }
}
