//! Which kind a document is, by its `apiVersion` and `kind`.

use super::{rbac, v1alpha1};
use crate::document::Document;
use crate::field::{FaultKind, FieldPath};

/// The API group of admission's configuration.
const ADMISSION: &str = "admissionregistration.k8s.io";

const RBAC_KINDS: [(&str, ManifestKind); 4] = [
    ("Role", ManifestKind::Role),
    ("ClusterRole", ManifestKind::ClusterRole),
    ("RoleBinding", ManifestKind::RoleBinding),
    ("ClusterRoleBinding", ManifestKind::ClusterRoleBinding),
];

/// Admission's kinds and the versions in which they can be written.
const ADMISSION_KINDS: [(&str, &[&str]); 8] = [
    ("ValidatingAdmissionPolicy", &["v1", "v1beta1", "v1alpha1"]),
    ("ValidatingAdmissionPolicyBinding", &["v1", "v1beta1", "v1alpha1"]),
    ("MutatingAdmissionPolicy", &["v1", "v1beta1", "v1alpha1"]),
    ("MutatingAdmissionPolicyBinding", &["v1", "v1beta1", "v1alpha1"]),
    ("ValidatingWebhookConfiguration", &["v1", "v1beta1"]),
    ("MutatingWebhookConfiguration", &["v1", "v1beta1"]),
    ("ExternalAdmissionHookConfiguration", &["v1alpha1"]),
    ("InitializerConfiguration", &["v1alpha1"]),
];

/// What a manifest is to Portcullis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ManifestKind {
    Role,
    ClusterRole,
    RoleBinding,
    ClusterRoleBinding,
    AuthorizationPolicy,
    AdmissionException,
    /// Cases for `portcullis test`, which may stand beside the policies they test.
    PolicyTest,
    Namespace,
    /// A policy, binding or webhook configuration of admission.
    Admission,
    /// Anything else: admission policies may read it.
    Parameter,
}

/// Why a document is of no kind.
pub(super) struct UnrecognisedKind {
    pub(super) kind: FaultKind,
    pub(super) path: FieldPath,
    pub(super) message: String,
}

/// The API group of an `apiVersion`; empty for the core group.
pub(super) fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// The kind of `document`.
pub(super) fn of(document: &Document) -> Result<ManifestKind, UnrecognisedKind> {
    let api_version = field(document, "apiVersion")?;
    let kind = field(document, "kind")?;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    match group {
        rbac::GROUP => {
            let of = RBAC_KINDS
                .iter()
                .find(|(name, _)| *name == kind)
                .map(|(_, kind)| *kind);
            let of = of.ok_or_else(|| unknown_kind(kind, api_version, RBAC_KINDS.map(|(name, _)| name)))?;
            known_version(api_version, version, &["v1", "v1beta1"]).map(|()| of)
        }
        v1alpha1::GROUP if kind == "AuthorizationPolicy" => {
            known_version(api_version, version, &["v1alpha1"]).map(|()| ManifestKind::AuthorizationPolicy)
        }
        v1alpha1::GROUP if kind == "AdmissionException" => {
            known_version(api_version, version, &["v1alpha1"]).map(|()| ManifestKind::AdmissionException)
        }
        v1alpha1::GROUP if kind == "PolicyTest" => {
            known_version(api_version, version, &["v1alpha1"]).map(|()| ManifestKind::PolicyTest)
        }
        v1alpha1::GROUP => Err(unknown_kind(
            kind,
            api_version,
            ["AuthorizationPolicy", "AdmissionException", "PolicyTest"],
        )),
        ADMISSION => {
            let versions = ADMISSION_KINDS
                .iter()
                .find(|(name, _)| *name == kind)
                .map(|(_, versions)| *versions);
            let versions = versions
                .ok_or_else(|| unknown_kind(kind, api_version, ADMISSION_KINDS.map(|(name, _)| name)))?;
            known_version(api_version, version, versions).map(|()| ManifestKind::Admission)
        }
        "" if version == "v1" && kind == "Namespace" => Ok(ManifestKind::Namespace),
        _ => Ok(ManifestKind::Parameter),
    }
}

fn field<'d>(document: &'d Document, name: &str) -> Result<&'d str, UnrecognisedKind> {
    let text = document.text(name).filter(|text| !text.is_empty());
    text.ok_or_else(|| UnrecognisedKind {
        kind: FaultKind::Required,
        path: FieldPath::root().field(name),
        message: format!("a manifest says its `{name}`"),
    })
}

fn unknown_kind<const N: usize>(kind: &str, api_version: &str, known: [&str; N]) -> UnrecognisedKind {
    let group = group(api_version);
    let known = known.map(|name| format!("`{name}`")).join(", ");
    UnrecognisedKind {
        kind: FaultKind::NotSupported,
        path: FieldPath::root().field("kind"),
        message: format!("`{kind}`: the kinds of `{group}` are {known}"),
    }
}

fn known_version(api_version: &str, version: &str, known: &[&str]) -> Result<(), UnrecognisedKind> {
    if known.contains(&version) {
        return Ok(());
    }
    let group = group(api_version);
    let known = known
        .iter()
        .map(|version| format!("`{group}/{version}`"))
        .collect::<Vec<_>>()
        .join(" or ");
    Err(UnrecognisedKind {
        kind: FaultKind::NotSupported,
        path: FieldPath::root().field("apiVersion"),
        message: format!("`{api_version}`: write this kind as {known}"),
    })
}
