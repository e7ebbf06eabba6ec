//! Which kind a document is, by its `apiVersion` and `kind`.

use super::{rbac, v1alpha1};
use crate::document::Document;
use crate::field::{FaultKind, FieldPath};

/// The API group of admission's configuration.
const ADMISSION: &str = "admissionregistration.k8s.io";

const RBAC_KINDS: [(&str, Kind); 4] = [
    ("Role", Kind::Role),
    ("ClusterRole", Kind::ClusterRole),
    ("RoleBinding", Kind::RoleBinding),
    ("ClusterRoleBinding", Kind::ClusterRoleBinding),
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
pub(super) enum Kind {
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
pub(super) struct Unknown {
    pub(super) kind: FaultKind,
    pub(super) path: FieldPath,
    pub(super) message: String,
}

/// The API group of an `apiVersion`; empty for the core group.
pub(super) fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// The kind of `document`.
pub(super) fn of(document: &Document) -> Result<Kind, Unknown> {
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
            known_version(api_version, version, &["v1alpha1"]).map(|()| Kind::AuthorizationPolicy)
        }
        v1alpha1::GROUP if kind == "AdmissionException" => {
            known_version(api_version, version, &["v1alpha1"]).map(|()| Kind::AdmissionException)
        }
        v1alpha1::GROUP if kind == "PolicyTest" => {
            known_version(api_version, version, &["v1alpha1"]).map(|()| Kind::PolicyTest)
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
            known_version(api_version, version, versions).map(|()| Kind::Admission)
        }
        "" if version == "v1" && kind == "Namespace" => Ok(Kind::Namespace),
        _ => Ok(Kind::Parameter),
    }
}

fn field<'d>(document: &'d Document, name: &str) -> Result<&'d str, Unknown> {
    let text = document.text(name).filter(|text| !text.is_empty());
    text.ok_or_else(|| Unknown {
        kind: FaultKind::Required,
        path: FieldPath::root().field(name),
        message: format!("a manifest says its `{name}`"),
    })
}

fn unknown_kind<const N: usize>(kind: &str, api_version: &str, known: [&str; N]) -> Unknown {
    let group = group(api_version);
    let known = known.map(|name| format!("`{name}`")).join(", ");
    Unknown {
        kind: FaultKind::NotSupported,
        path: FieldPath::root().field("kind"),
        message: format!("`{kind}`: the kinds of `{group}` are {known}"),
    }
}

fn known_version(api_version: &str, version: &str, known: &[&str]) -> Result<(), Unknown> {
    if known.contains(&version) {
        return Ok(());
    }
    let group = group(api_version);
    let known = known
        .iter()
        .map(|version| format!("`{group}/{version}`"))
        .collect::<Vec<_>>()
        .join(" or ");
    Err(Unknown {
        kind: FaultKind::NotSupported,
        path: FieldPath::root().field("apiVersion"),
        message: format!("`{api_version}`: write this kind as {known}"),
    })
}
