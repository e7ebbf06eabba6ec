//! Manifests: read, validated, linted and compiled for the engine.
//!
//! ```text
//! Source --stream--> Document --object--> SourceObjects --> ObjectSet --assemble--> Manifests
//!  file, text,   a YAML stream  kind, decode,  each source     duplicates,  |     Policies, and
//!  cluster       or a List      defaults,      by itself       lint         |     what admission
//!                flattened      validation                                  |     uses
//!                                              what an API server tells of -'
//! ```
//!
//! What a source says is shared by the sets that have it, and so is each object that stays
//! as it is in a source that changes: neither is read, validated or compiled again.
//!
//! Every step collects all the faults that it finds; the last one happens only if none of
//! them is an error. Input is text: files are read elsewhere.

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
pub use assemble::{ChangedManifests, Manifests, Scope, assemble, assemble_changed, load, scope};
pub use lint::{
    built_in_resource, built_in_resources, is_namespaced, is_never_asked_about, kind_of, odd_request,
};
pub use object_set::{ObjectSet, SetDifference, hidden_faults, read};
pub use own_kinds::{ValidationContext, needs_validation};
pub use report::Compilation;
pub use source::{Options, Source, documents, each_object};
pub use source_objects::{MemoryBudget, SourceLimits, SourceObjects, default_roles};
pub use validated::{ObjectIdentity, ValidatedObject};

/// A kind that decides.
pub struct KnownKind {
    /// The API group; empty for the core group.
    pub group: &'static str,
    pub kind: &'static str,
    /// The versions in which it can be written.
    versions: &'static [&'static str],
    /// The versions in which API servers are asked for it, best first; none: it is read
    /// from files alone.
    pub watched: &'static [&'static str],
    of: ManifestKind,
}

/// Every kind that affects decisions, or describes a namespace. Objects of any other may be parameters.
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

/// What a manifest is to Portcullis.
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
    /// Cases for `portcullis test`, which may stand beside the policies they test.
    PolicyTest,
    Namespace,
    /// A policy, binding or webhook configuration of admission.
    Admission,
    /// Anything else: admission policies may read it.
    Parameter,
}

/// Why a document is of no kind.
pub(crate) struct UnrecognisedKind {
    pub(crate) kind: FaultKind,
    pub(crate) path: FieldPath,
    pub(crate) message: String,
}

impl ManifestKind {
    /// The kind of `document`.
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
        message: format!("a manifest needs the field `{name}`"),
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

/// A kind that no API server of today serves.
const fn legacy(kind: &'static str) -> KnownKind {
    KnownKind {
        watched: &[],
        ..admission(kind, &["v1alpha1"])
    }
}

#[cfg(test)]
mod tests;
