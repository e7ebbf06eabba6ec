//! Validated objects, independent of their documents.

use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;

use super::admission::{self, AdmissionObject};
use super::kind;
use super::object::{self, Content, ManifestObject};
use crate::document::Document;
use crate::engine::admission::ParamKind;
use crate::engine::admission::exceptions::Exception;
use crate::engine::authorization::{AuthorizationPolicy, Effect};
use crate::field::{Fault, FaultKind, Faults, FieldPath};
use crate::json;

/// An object without fault, as the engine takes it.
#[derive(Debug, Clone)]
pub struct ValidatedObject {
    identity: ObjectIdentity,
    pub(super) cluster: Option<Arc<str>>,
    pub(super) content: Content,
    /// Whether it comes from an API server, and not from a file.
    pub(super) is_watched: bool,
    /// The object itself, where expressions look at it.
    pub(super) json: Option<Arc<json::Document<'static>>>,
    digest: u64,
}

/// What there is once in a cluster: its version does not matter.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectIdentity {
    group: String,
    kind: String,
    namespace: String,
    name: String,
}

// === impl ValidatedObject ===

impl ValidatedObject {
    /// Reads one object that came by itself, of the only `cluster` it holds for.
    ///
    /// Blocks for as long as its expressions take to compile.
    ///
    /// # Errors
    ///
    /// Every fault of the object; what decides nothing, such as cases for
    /// `portcullis test`, is one too.
    pub fn read(document: Document, cluster: Arc<str>) -> Result<Self, Faults> {
        let mut faults = Faults::new();
        let place = document.place(FieldPath::root().field("kind"));
        match object::read(document, Some(cluster), &mut faults) {
            Some(object) => Ok(Self {
                is_watched: true,
                ..object.into()
            }),
            None => {
                if !faults.has_errors() {
                    let message = "objects of this kind are not used";
                    faults.push(Fault::error(place, FaultKind::NotSupported, message));
                }
                Err(faults)
            }
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

    /// The policy that it is, if it is an AuthorizationPolicy.
    #[must_use]
    pub fn authorization_policy(&self) -> Option<&AuthorizationPolicy> {
        match &self.content {
            Content::Policy(policy) => Some(policy),
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

    /// Whether it can let pass what would not without it, and is of Portcullis' own kinds.
    #[must_use]
    pub fn lets_through(&self) -> bool {
        let policy = self.authorization_policy();
        policy.is_some_and(|policy| policy.effect == Effect::Allow) || self.admission_exception().is_some()
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

impl From<ManifestObject> for ValidatedObject {
    fn from(object: ManifestObject) -> Self {
        let json = match &object.content {
            Content::Namespace(_) | Content::Parameter => admission::json(&object.document),
            _ => None,
        };
        Self {
            identity: ObjectIdentity::of(&object.document),
            digest: digest(&object.document),
            cluster: object.cluster,
            content: object.content,
            is_watched: false,
            json,
        }
    }
}

fn digest(document: &Document) -> u64 {
    foldhash::fast::FixedState::default().hash_one(document.root().to_json())
}

// === impl ObjectIdentity ===

impl ObjectIdentity {
    /// Of the object that `document` is, as far as it says.
    #[must_use]
    pub fn of(document: &Document) -> Self {
        let metadata = |field| document.root().get("metadata")?.get(field)?.as_str();
        let owned = |text: Option<&str>| text.unwrap_or_default().to_owned();
        Self {
            group: kind::group(document.text("apiVersion").unwrap_or_default()).to_owned(),
            kind: owned(document.text("kind")),
            namespace: owned(metadata("namespace")),
            name: owned(metadata("name")),
        }
    }

    /// The API group; empty for the core group.
    #[must_use]
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }
}

/// `Kind/name` or `Kind/namespace/name`, as faults name objects.
impl fmt::Display for ObjectIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => write!(f, "{}/{}", self.kind, self.name),
            namespace => write!(f, "{}/{namespace}/{}", self.kind, self.name),
        }
    }
}
