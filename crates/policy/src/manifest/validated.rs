//! Validated objects, alone or together with the documents that they were read from.

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
    /// The document as it is written.
    pub(crate) document: PackedDocument,
    /// The object, shared by every set that contains it.
    pub(crate) valid: Arc<ValidatedObject>,
    /// The warnings that depend on no other object, computed at most once.
    pub(crate) warnings: OnceLock<Box<[Fault]>>,
}

/// The content of an object, by kind.
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
    /// The labels of a Namespace.
    Namespace(Arc<BTreeMap<String, String>>),
    Admission(AdmissionObject),
    Parameter,
}

impl Content {
    /// Packs the `document` of an object with this content. Columns are kept only for kinds with
    /// expressions.
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
    /// The object `valid`, which was read from `document`.
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

/// A valid object, in the form in which policy sets and admission sets are built from it.
#[derive(Debug, Clone)]
pub struct ValidatedObject {
    identity: ObjectIdentity,
    pub(crate) cluster: Option<Arc<str>>,
    pub(crate) content: Content,
    /// Whether it comes from an API server, and not from a file.
    pub(crate) is_watched: bool,
    /// The whole object as JSON, for kinds whose objects expressions can read.
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

/// The identity of an object in its cluster: group, kind, namespace and name. The version is not
/// part of it, because an API server serves the same objects in each version.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ObjectIdentity {
    /// Group, kind, namespace and name, one after another.
    text: Arc<str>,
    /// The ends of the first three in `text`, in bytes.
    ends: [u32; 3],
}

// === impl ValidatedObject ===

impl ValidatedObject {
    /// The same object for `cluster`. Both share the content.
    #[must_use]
    pub fn of_cluster(&self, cluster: Arc<str>) -> Self {
        Self {
            cluster: Some(cluster),
            ..self.clone()
        }
    }

    /// The object in `document`, whose content was read as `content`. Its expressions take
    /// `compiled_bytes` of memory.
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

    /// The identity of the object.
    #[must_use]
    pub const fn identity(&self) -> &ObjectIdentity {
        &self.identity
    }

    /// A digest of the object, which does not depend on comments, style or the order of fields. It
    /// distinguishes versions within one process. It is not cryptographic.
    #[must_use]
    pub const fn digest(&self) -> u64 {
        self.digest
    }

    /// The only cluster that the object is for; `None` if it is for every cluster.
    #[must_use]
    pub fn cluster(&self) -> Option<&str> {
        self.cluster.as_deref()
    }

    /// Whether the object comes from an API server, and not from a file.
    #[must_use]
    pub const fn is_watched(&self) -> bool {
        self.is_watched
    }

    /// The webhooks, if the object is a webhook configuration; otherwise empty.
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

    /// The policy, if the object is an AuthorizationPolicy.
    #[must_use]
    pub fn authorization_policy(&self) -> Option<&AuthorizationPolicy> {
        match &self.content {
            Content::Policy(policy) => Some(policy),
            _ => None,
        }
    }

    /// The invariant, if the object is an AuthorizationInvariant.
    #[must_use]
    pub fn authorization_invariant(&self) -> Option<&AuthorizationInvariant> {
        match &self.content {
            Content::Invariant(invariant) => Some(invariant),
            _ => None,
        }
    }

    /// The rules that select requests, as a policy: the AuthorizationPolicy itself, or the requests
    /// that an AuthorizationInvariant forbids.
    pub(crate) fn rules_of_requests(&self) -> Option<&AuthorizationPolicy> {
        match &self.content {
            Content::Policy(policy) => Some(policy),
            Content::Invariant(invariant) => Some(&invariant.forbidden),
            _ => None,
        }
    }

    /// The exception, if the object is an AdmissionException.
    #[must_use]
    pub fn admission_exception(&self) -> Option<&Exception> {
        match &self.content {
            Content::Exception(exception) => Some(exception),
            _ => None,
        }
    }

    /// The AccessRequest, if the object is one.
    #[must_use]
    pub fn access_request(&self) -> Option<&AccessRequest> {
        match &self.content {
            Content::AccessRequest(request) => Some(request),
            _ => None,
        }
    }

    /// The memory of its compiled expressions in bytes, at most 32 MiB.
    #[must_use]
    pub const fn compiled_bytes(&self) -> usize {
        self.compiled_bytes
    }

    /// Whether the object is of a kind with expressions that are evaluated: an AuthorizationPolicy,
    /// an AdmissionException or an admission object.
    #[must_use]
    pub const fn has_expressions(&self) -> bool {
        matches!(
            self.content,
            Content::Policy(_) | Content::Exception(_) | Content::Admission(_)
        )
    }

    /// Whether requests may be allowed or admitted only because of this object, and it is of one of
    /// Portcullis' own kinds: an Allow, an AdmissionException, or an AccessRequest that may grant.
    #[must_use]
    pub fn lets_through(&self) -> bool {
        let policy = self.authorization_policy();
        let request = self.access_request();
        policy.is_some_and(|policy| policy.effect == Effect::Allow)
            || self.admission_exception().is_some()
            // A denied or withdrawn AccessRequest counts as harmless: it must be accepted, so that
            // the earlier version does not continue to grant.
            || request.is_some_and(|request| !request.is_denied && !request.is_withdrawn)
    }

    /// Whether the object may allow more if the API server drops one of its fields, and is of one
    /// of Portcullis' own kinds: an object that [lets through](Self::lets_through), or a Limit,
    /// which denies fewer requests if its rules cover more.
    #[must_use]
    pub fn may_widen(&self) -> bool {
        let policy = self.authorization_policy();
        self.lets_through() || policy.is_some_and(|policy| policy.effect == Effect::Limit)
    }

    /// Whether requests may be denied because of this object: an AuthorizationPolicy other than an
    /// Allow, or an admission object, such as a policy, a binding or a webhook configuration.
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

    /// The `paramKind`, if the object is an admission policy that has one.
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

/// A digest of the content of `document`, which does not depend on lines, style or the order of
/// fields.
pub(crate) fn digest(document: &Document) -> u64 {
    digest_of(document.root())
}

/// The recursion is bounded by the maximum depth of documents.
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
        // A sum, because it does not depend on the order of the fields.
        Value::Map(entries) => entries.iter().fold(state.hash_one(5_u8), |digest, entry| {
            digest.wrapping_add(state.hash_one((&entry.key, digest_of(&entry.value))))
        }),
    }
}

// === impl ObjectIdentity ===

impl ObjectIdentity {
    /// The identity of the object in `document`. Parts that it does not contain are empty.
    #[must_use]
    pub fn of(document: &Document) -> Self {
        let metadata = |field| document.root().get("metadata")?.get(field)?.as_str();
        let group = group_of(document.text("apiVersion").unwrap_or_default());
        let kind = document.text("kind").unwrap_or_default();
        let namespace = metadata("namespace").unwrap_or_default();
        let name = metadata("name").unwrap_or_default();
        Self::new(group, kind, namespace, name)
    }

    /// The identity with these parts. `group` and `namespace` may be empty.
    #[must_use]
    pub fn new(group: &str, kind: &str, namespace: &str, name: &str) -> Self {
        // No string in a manifest has 2^32 bytes.
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

    /// The namespace; empty for a cluster-scoped object.
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

    /// A digest of the identity. It is not cryptographic.
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

/// `Kind/name` or `Kind/namespace/name`, the form in which faults name objects.
impl fmt::Display for ObjectIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace() {
            "" => write!(f, "{}/{}", self.kind(), self.name()),
            namespace => write!(f, "{}/{namespace}/{}", self.kind(), self.name()),
        }
    }
}
