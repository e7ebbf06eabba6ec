//! Decodes and validates one object of a manifest.

use std::sync::Arc;

use k8s_openapi::api::rbac::v1 as rbac_v1;
use serde::de::DeserializeOwned;

use super::lint::known::is_namespaced;
use super::rbac::{self, Rbac};
use super::report::{Compilation, ObjectCompilation, Report};
use super::validated::{Content, ManifestObject, ObjectOrigin, ValidatedObject};
use super::{
    ManifestKind, access_request, admission, admission_exception, authorization_invariant,
    authorization_policy, compile, namespace, v1alpha1,
};
use crate::admission::apply::{self, DecodeError, DecodeMode};
use crate::admission::{GroupVersionKind, STATIC_SUFFIX};
use crate::document::{Document, Node, Value};
use crate::field::{Fault, FaultKind, Faults, FieldPath};
use portcullis_cel::{Version, json};

/// Reads `document` and compiles its expressions. Errors are added to `faults`, and then there is
/// no object.
pub(crate) fn read(
    document: Document,
    cluster: Option<Arc<str>>,
    compilation: Compilation<'_>,
    faults: &mut Faults,
) -> Option<ManifestObject> {
    let valid = read_without_document(&document, cluster, ObjectOrigin::File, compilation, faults)?;
    Some(ManifestObject::new(&document, Arc::new(valid)))
}

/// Like [`read`], but does not keep the document.
pub(crate) fn read_without_document(
    document: &Document,
    cluster: Option<Arc<str>>,
    origin: ObjectOrigin,
    compilation: Compilation<'_>,
    faults: &mut Faults,
) -> Option<ValidatedObject> {
    let compilation = compilation.of_object();
    let content = match ManifestKind::of(document) {
        Ok(kind) => content(kind, document, (origin, &compilation), faults),
        Err(unknown) => {
            faults.push(Fault::error(
                document.place(unknown.path),
                unknown.kind,
                unknown.message,
            ));
            None
        }
    };
    let compiled_bytes = compilation.compiled_bytes();
    content.map(|content| ValidatedObject::new(document, cluster, content, origin, compiled_bytes))
}

impl ValidatedObject {
    /// Reads one object of `cluster` that was received from an API server, and compiles its
    /// expressions for `version`.
    ///
    /// Blocks while its expressions are compiled, for some tenths of a second at most.
    ///
    /// # Errors
    ///
    /// All errors of the object. An object that decides nothing, such as a PolicyTest, is an error,
    /// too.
    pub fn read(document: Document, cluster: Arc<str>, version: Version) -> Result<Self, Faults> {
        let mut faults = Faults::new();
        let origin = ObjectOrigin::ApiServer;
        match read_without_document(&document, Some(cluster), origin, version.into(), &mut faults) {
            Some(object) => Ok(object),
            None => {
                if !faults.has_errors() {
                    let place = document.place(FieldPath::root().field("kind"));
                    let message = "objects of this kind are not used";
                    faults.push(Fault::error(place, FaultKind::NotSupported, message));
                }
                Err(faults)
            }
        }
    }
}

fn content(
    kind: ManifestKind,
    document: &Document,
    (origin, compilation): (ObjectOrigin, &ObjectCompilation<'_>),
    faults: &mut Faults,
) -> Option<Content> {
    match kind {
        ManifestKind::Role => rbac_object(document, faults)
            .map(compile::role)
            .map(|role| Content::Role(Arc::new(role))),
        ManifestKind::ClusterRole => {
            let role: rbac_v1::ClusterRole = rbac_object(document, faults)?;
            compile::cluster_role(role, &mut Report::new(document, faults))
                .map(|role| Content::Role(Arc::new(role)))
        }
        ManifestKind::RoleBinding => {
            let binding: rbac_v1::RoleBinding = rbac_object(document, faults)?;
            let mut report = Report::new(document, faults);
            compile::binding(binding.metadata, binding.role_ref, binding.subjects, &mut report)
                .map(|binding| Content::Binding(Arc::new(binding)))
        }
        ManifestKind::ClusterRoleBinding => {
            let binding: rbac_v1::ClusterRoleBinding = rbac_object(document, faults)?;
            let mut report = Report::new(document, faults);
            compile::binding(binding.metadata, binding.role_ref, binding.subjects, &mut report)
                .map(|binding| Content::Binding(Arc::new(binding)))
        }
        ManifestKind::AuthorizationPolicy => {
            let policy: v1alpha1::AuthorizationPolicy = document.decode(faults)?;
            let mut report = Report::new(document, faults).compiling(compilation);
            let checked = authorization_policy::validate(&policy, &mut report);
            if !report.is_valid() {
                return None;
            }
            compile::policy(policy, checked, &mut report).map(|policy| Content::Policy(Arc::new(policy)))
        }
        ManifestKind::AuthorizationInvariant => {
            let invariant = document.decode(faults)?;
            let mut report = Report::new(document, faults);
            let invariant = authorization_invariant::read(invariant, &mut report)?;
            Some(Content::Invariant(Arc::new(invariant)))
        }
        ManifestKind::AdmissionException => {
            let exception = document.decode(faults)?;
            let mut report = Report::new(document, faults).compiling(compilation);
            let exception = admission_exception::read(exception, &mut report)?;
            Some(Content::Exception(Arc::new(exception)))
        }
        ManifestKind::AccessRequest => {
            let request = document.decode(faults)?;
            let request = access_request::read(request, document, &mut Report::new(document, faults))?;
            Some(Content::AccessRequest(Arc::new(request)))
        }
        ManifestKind::PolicyTest => None,
        ManifestKind::Namespace => namespace::labels(document, &mut Report::new(document, faults))
            .map(|labels| Content::Namespace(Arc::new(labels))),
        ManifestKind::Admission => {
            let name = named(document, faults)?;
            let is_static = origin == ObjectOrigin::File && name.ends_with(STATIC_SUFFIX);
            admission::read(document, is_static, compilation, faults).map(Content::Admission)
        }
        ManifestKind::Parameter => parameter(document, faults),
    }
}

fn rbac_object<T: Rbac + DeserializeOwned>(document: &Document, faults: &mut Faults) -> Option<T> {
    let mut object: T = document.in_version(rbac::V1).decode(faults)?;
    let mut report = Report::new(document, faults);
    object.default_and_validate(&mut report);
    report.is_valid().then_some(object)
}

fn named<'d>(document: &'d Document, faults: &mut Faults) -> Option<&'d str> {
    let name = document
        .root()
        .get("metadata")
        .and_then(|metadata| metadata.get("name"));
    let name = name.and_then(|name| name.as_str());
    if let Some(name) = name.filter(|name| !name.is_empty()) {
        return Some(name);
    }
    let path = FieldPath::root().field("metadata").field("name");
    Report::new(document, faults).required(&path, "an object needs a name");
    None
}

/// Reads an object that may be a parameter. It is ignored with a warning if nothing can refer to
/// it: without a name it is not an object of Kubernetes (for example a Kustomization), and a
/// namespaced object needs a namespace.
fn parameter(document: &Document, faults: &mut Faults) -> Option<Content> {
    let mut ignore = |field, message: &str| {
        let place = document.place(FieldPath::root().field("metadata").field(field));
        faults.push(Fault::warning(place, FaultKind::Required, message));
        None
    };
    if named(document, &mut Faults::new()).is_none() {
        return ignore(
            "name",
            "not a Kubernetes object, so it is ignored: move it out of the manifests",
        );
    }
    let unplaced = missing_namespace_warning(document);
    if let Some(message) = &unplaced {
        ignore("namespace", message);
    }
    let mut report = Report::new(document, faults);
    validate_types(document, &mut report);
    let is_usable = report.is_valid() && unplaced.is_none();
    is_usable.then_some(Content::Parameter)
}

/// The warning for an object that lacks the namespace that its kind requires.
fn missing_namespace_warning(document: &Document) -> Option<String> {
    let (api_version, kind) = (document.text("apiVersion")?, document.text("kind")?);
    let metadata = document.root().get("metadata");
    let namespace = metadata.and_then(|metadata| metadata.get("namespace")?.as_str());
    let is_unplaced = namespace.unwrap_or_default().is_empty() && is_namespaced(api_version, kind);
    is_unplaced.then(|| {
        format!(
            "objects of kind {kind} are in a namespace, but this one has none, so it is ignored, and policies \
            do not find it as a parameter. Set `metadata.namespace`"
        )
    })
}

/// Checks that the values of an object of a built-in kind have the types of their fields, as the
/// API server does (`data: {a: yes}` in a ConfigMap is an error). Unknown fields may be those of
/// later versions.
fn validate_types(document: &Document, report: &mut Report<'_>) {
    let (Some(object), Ok(nothing)) = (admission::json(document), json::Document::parse("{}")) else {
        return;
    };
    let api_version = document.text("apiVersion").unwrap_or_default();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = GroupVersionKind {
        group: group.into(),
        version: version.into(),
        kind: document.text("kind").unwrap_or_default().into(),
    };
    let decoded = apply::decode(&kind, nothing.root(), object.root(), DecodeMode::Lenient);
    let Err(DecodeError::Mismatches(mismatches)) = decoded else {
        return;
    };
    for mismatch in mismatches.iter() {
        let path = field_path(document.root(), &mismatch.path);
        let mut message = mismatch.message.clone();
        if message.starts_with("expected string, got") {
            message.push_str("; put it in quotes");
        }
        report.fault(FaultKind::TypeInvalid, &path, message);
    }
}

/// Parses a path such as `.data.a.yaml`. The keys of the object determine which dots are
/// separators.
fn field_path(root: &Node, written: &str) -> FieldPath {
    let (mut path, mut node, mut rest) = (FieldPath::root(), root, written);
    while !rest.is_empty() {
        let step = match &node.value {
            Value::Map(entries) => {
                let found = entries.iter().filter_map(|entry| {
                    let rest = rest.strip_prefix('.')?.strip_prefix(entry.key.as_str())?;
                    let is_whole = rest.is_empty() || rest.starts_with(['.', '[']);
                    is_whole.then_some((entry, rest))
                });
                let longest = found.max_by_key(|(entry, _)| entry.key.len());
                longest.map(|(entry, rest)| (path.field(&entry.key), &entry.value, rest))
            }
            Value::List(items) => rest.strip_prefix('[').and_then(|rest| {
                let (index, rest) = rest.split_once(']')?;
                let index = index.parse().ok()?;
                items.get(index).map(|item| (path.index(index), item, rest))
            }),
            _ => None,
        };
        let Some(step) = step else { break };
        (path, node, rest) = step;
    }
    path
}
