//! Manifests: read, validated, linted and compiled for the engine.
//!
//! ```text
//! Source --stream--> Document --object--> SourceObjects --> ObjectSet --assemble--> Manifests
//!  file, text,   a YAML stream  kind, decode,  each source     duplicates,  |     Policies, and
//!  cluster       or a List      defaults,      by itself       lint         |     what admission
//!                flattened      validation                                  |     uses
//!                                       objects watched from an API server -'
//! ```
//!
//! Sets that contain the same source share its objects. If a source changes, its unchanged objects
//! are shared, too, and neither read, validated nor compiled again.
//!
//! Every step collects all errors and warnings; the last step is only reached if there are no
//! errors. Input is text: files are read elsewhere.

mod access_request;
mod admission;
mod admission_exception;
mod assemble;
mod authorization_invariant;
mod authorization_policy;
mod compile;
mod lint;
pub mod names;
mod namespace;
mod object;
mod object_set;
mod own_kinds;
mod rbac;
mod report;
mod source;
mod source_objects;
mod v1alpha1;
mod validated;

use crate::document::Document;
use crate::field::{FaultKind, FieldPath};
use crate::model::groups::{ADMISSION, PORTCULLIS, RBAC};

pub use admission::{MigratedObject, migrate};
pub use assemble::{AdmissionScope, ChangedManifests, Manifests, assemble, assemble_changed, load, scope};
pub use lint::{
    built_in_resource, built_in_resources, is_namespaced, is_never_asked_about, kind_of, odd_request,
};
pub use object_set::{ObjectSet, SetDifference, hidden_faults, read};
pub use own_kinds::{ValidationContext, needs_validation};
pub use report::Compilation;
pub use source::{Options, Source, documents, each_object};
pub use source_objects::{MemoryBudget, SourceLimits, SourceObjects, default_roles};
pub use validated::{ObjectIdentity, ValidatedObject};

/// A kind that Portcullis reads.
pub struct KnownKind {
    /// The API group; empty for the core group.
    pub group: &'static str,
    pub kind: &'static str,
    /// The supported versions.
    versions: &'static [&'static str],
    /// The versions to request from API servers, in order of preference; empty if the kind is only
    /// read from files.
    pub watched: &'static [&'static str],
    of: ManifestKind,
}

/// All kinds that affect decisions or tests, and Namespace. Objects of other kinds are parameters.
pub const KINDS: [KnownKind; 18] = [
    rbac("Role", ManifestKind::Role),
    rbac("ClusterRole", ManifestKind::ClusterRole),
    rbac("RoleBinding", ManifestKind::RoleBinding),
    rbac("ClusterRoleBinding", ManifestKind::ClusterRoleBinding),
    own("AuthorizationPolicy", ManifestKind::AuthorizationPolicy),
    own("AuthorizationInvariant", ManifestKind::AuthorizationInvariant),
    own("AdmissionException", ManifestKind::AdmissionException),
    own("AccessRequest", ManifestKind::AccessRequest),
    KnownKind {
        watched: &[],
        ..own("PolicyTest", ManifestKind::PolicyTest)
    },
    KnownKind {
        group: "",
        kind: "Namespace",
        versions: &["v1"],
        watched: &["v1"],
        of: ManifestKind::Namespace,
    },
    admission("ValidatingAdmissionPolicy", &["v1", "v1beta1", "v1alpha1"]),
    admission("ValidatingAdmissionPolicyBinding", &["v1", "v1beta1", "v1alpha1"]),
    admission("MutatingAdmissionPolicy", &["v1", "v1beta1", "v1alpha1"]),
    admission("MutatingAdmissionPolicyBinding", &["v1", "v1beta1", "v1alpha1"]),
    admission("ValidatingWebhookConfiguration", &["v1", "v1beta1"]),
    admission("MutatingWebhookConfiguration", &["v1", "v1beta1"]),
    legacy("ExternalAdmissionHookConfiguration"),
    legacy("InitializerConfiguration"),
];

/// The kind of a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ManifestKind {
    Role,
    ClusterRole,
    RoleBinding,
    ClusterRoleBinding,
    AuthorizationPolicy,
    AuthorizationInvariant,
    AdmissionException,
    AccessRequest,
    /// Test cases for `portcullis test`, which may be in the same files as policies.
    PolicyTest,
    Namespace,
    /// A policy, binding or webhook configuration of admission.
    Admission,
    /// Any other object, which admission policies may use as a parameter.
    Parameter,
}

/// Why the kind of a document is not supported.
pub(crate) struct UnrecognisedKind {
    pub(crate) kind: FaultKind,
    pub(crate) path: FieldPath,
    pub(crate) message: String,
}

impl ManifestKind {
    /// Determines the kind of `document`.
    pub(crate) fn of(document: &Document) -> Result<Self, UnrecognisedKind> {
        let api_version = field(document, "apiVersion")?;
        let kind = field(document, "kind")?;
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let of_group = || KINDS.iter().filter(|known| known.group == group);
        let is_parameter = match group {
            "" => (version, kind) != ("v1", "Namespace"),
            _ => of_group().next().is_none(),
        };
        if is_parameter {
            return Ok(Self::Parameter);
        }
        let known = of_group().find(|known| known.kind == kind);
        let known = known.ok_or_else(|| unknown_kind(kind, group, of_group()))?;
        known_version(api_version, version, known.versions).map(|()| known.of)
    }
}

/// The API group of an `apiVersion`; empty for the core group.
pub(crate) fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

fn field<'d>(document: &'d Document, name: &str) -> Result<&'d str, UnrecognisedKind> {
    let text = document.text(name).filter(|text| !text.is_empty());
    text.ok_or_else(|| UnrecognisedKind {
        kind: FaultKind::Required,
        path: FieldPath::root().field(name),
        message: format!("the field `{name}` is missing: a manifest needs it"),
    })
}

fn unknown_kind<'k>(kind: &str, group: &str, known: impl Iterator<Item = &'k KnownKind>) -> UnrecognisedKind {
    let known: Vec<String> = known.map(|known| format!("`{}`", known.kind)).collect();
    UnrecognisedKind {
        kind: FaultKind::NotSupported,
        path: FieldPath::root().field("kind"),
        message: format!("`{kind}`: the kinds of `{group}` are {}", known.join(", ")),
    }
}

fn known_version(api_version: &str, version: &str, known: &[&str]) -> Result<(), UnrecognisedKind> {
    if known.contains(&version) {
        return Ok(());
    }
    let group = group_of(api_version);
    let known = known
        .iter()
        .map(|version| format!("`{group}/{version}`"))
        .collect::<Vec<_>>()
        .join(" or ");
    Err(UnrecognisedKind {
        kind: FaultKind::NotSupported,
        path: FieldPath::root().field("apiVersion"),
        message: format!("`{api_version}`: use {known}"),
    })
}

// === kinds of a group ===

const fn rbac(kind: &'static str, of: ManifestKind) -> KnownKind {
    KnownKind {
        group: RBAC,
        kind,
        versions: &["v1", "v1beta1"],
        watched: &["v1"],
        of,
    }
}

const fn own(kind: &'static str, of: ManifestKind) -> KnownKind {
    KnownKind {
        group: PORTCULLIS,
        kind,
        versions: &["v1alpha1"],
        watched: &["v1alpha1"],
        of,
    }
}

const fn admission(kind: &'static str, versions: &'static [&'static str]) -> KnownKind {
    KnownKind {
        group: ADMISSION,
        kind,
        versions,
        watched: &["v1", "v1beta1"],
        of: ManifestKind::Admission,
    }
}

/// A kind that current API servers no longer serve.
const fn legacy(kind: &'static str) -> KnownKind {
    KnownKind {
        watched: &[],
        ..admission(kind, &["v1alpha1"])
    }
}

#[cfg(test)]
mod tests;
