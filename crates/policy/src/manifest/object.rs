//! One object of a manifest: decoded, validated, with its position.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use k8s_openapi::api::rbac::v1 as rbac_v1;
use serde::de::DeserializeOwned;

use super::admission::{self, AdmissionObject};
use super::compile::{self, Compilation, ObjectCompilation};
use super::kind::{self, ManifestKind};
use super::lint::known::is_namespaced;
use super::rbac::{self, Rbac};
use super::report::Report;
use super::validated::{ObjectIdentity, ObjectOrigin, ValidatedObject};
use super::{admission_exception, authorization_policy, namespace, object_set, v1alpha1};
use crate::authorization::{AuthorizationPolicy, Binding, Role};
use crate::document::{Document, PackedDocument};
use crate::engine::admission::STATIC_SUFFIX;
use crate::engine::admission::exceptions::Exception;
use crate::field::{Fault, FaultKind, Faults, FieldPath, Place};

/// A valid object and its document.
#[derive(Debug, Clone)]
pub(crate) struct ManifestObject {
    /// As written.
    pub(crate) document: KeptDocument,
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
    Exception(Arc<Exception>),
    /// The labels of the namespace.
    Namespace(Arc<BTreeMap<String, String>>),
    Admission(AdmissionObject),
    Parameter,
}

impl ManifestObject {
    /// The object that `document` was read to.
    pub(crate) fn new(document: Document, valid: Arc<ValidatedObject>) -> Self {
        Self {
            document: KeptDocument::new(document, &valid.content),
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

/// Reads `document`, and compiles its expressions; what is wrong with it goes to `faults`, and
/// then there is no object.
pub(crate) fn read(
    document: Document,
    cluster: Option<Arc<str>>,
    compilation: Compilation<'_>,
    faults: &mut Faults,
) -> Option<ManifestObject> {
    let valid = read_alone(&document, cluster, ObjectOrigin::File, compilation, faults)?;
    Some(ManifestObject::new(document, Arc::new(valid)))
}

/// The same, without its document.
pub(crate) fn read_alone(
    document: &Document,
    cluster: Option<Arc<str>>,
    origin: ObjectOrigin,
    compilation: Compilation<'_>,
    faults: &mut Faults,
) -> Option<ValidatedObject> {
    let compilation = compilation.of_object();
    let content = match kind::of(document) {
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
        ManifestKind::AdmissionException => {
            let exception = document.decode(faults)?;
            let mut report = Report::new(document, faults).compiling(compilation);
            let exception = admission_exception::read(exception, &mut report)?;
            Some(Content::Exception(Arc::new(exception)))
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

/// What has no name is no object of Kubernetes, such as a Kustomization. Nothing can refer to it,
/// nor to an object that would have to be in a namespace.
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
    let unplaced = unplaced(document);
    if let Some(message) = &unplaced {
        ignore("namespace", message);
    }
    let mut report = Report::new(document, faults);
    object_set::validate(document, &mut report);
    let is_usable = report.is_valid() && unplaced.is_none();
    is_usable.then_some(Content::Parameter)
}

/// What is wrong with an object that has no namespace and needs one.
fn unplaced(document: &Document) -> Option<String> {
    let (api_version, kind) = (document.text("apiVersion")?, document.text("kind")?);
    let metadata = document.root().get("metadata");
    let namespace = metadata.and_then(|metadata| metadata.get("namespace")?.as_str());
    let is_unplaced = namespace.unwrap_or_default().is_empty() && is_namespaced(api_version, kind);
    is_unplaced.then(|| {
        format!(
            "objects of kind {kind} are in a namespace, and this one names none, so it is ignored: \
             policies with this parameter do not find it. Set `metadata.namespace`"
        )
    })
}

// === duplicates ===

/// Reports each object that holds for a cluster together with an earlier one of the same identity.
pub(crate) fn refuse_duplicates<'o>(objects: impl Iterator<Item = &'o ManifestObject>, faults: &mut Faults) {
    let mut seen = SeenObjects::default();
    for (place, object) in objects.enumerate() {
        if let Some(first) = seen.meets(object) {
            let path = FieldPath::root().field("metadata").field("name");
            let message = format!(
                "the same object is also at {}{}",
                position(first),
                reach(first, object)
            );
            faults.push(Fault::error(
                object.document.place(path),
                FaultKind::Duplicate,
                message,
            ));
        }
        seen.note(place, object);
    }
}

/// The first objects of each identity, with their places among all.
#[derive(Default)]
struct SeenObjects<'o> {
    /// Whatever they hold for.
    first: HashMap<&'o ObjectIdentity, &'o ManifestObject>,
    /// That hold for this cluster alone, or for every one.
    of: HashMap<(&'o ObjectIdentity, Option<&'o str>), (usize, &'o ManifestObject)>,
}

impl<'o> SeenObjects<'o> {
    /// The first that holds for a cluster for which `object` holds too.
    fn meets(&self, object: &'o ManifestObject) -> Option<&'o ManifestObject> {
        let identity = object.identity();
        let Some(cluster) = object.cluster.as_deref() else {
            return self.first.get(identity).copied();
        };
        let meeting = [None, Some(cluster)].map(|of| self.of.get(&(identity, of)));
        let first = meeting.into_iter().flatten().min_by_key(|(place, _)| *place);
        first.map(|(_, object)| *object)
    }

    fn note(&mut self, place: usize, object: &'o ManifestObject) {
        let identity = object.identity();
        self.first.entry(identity).or_insert(object);
        let of = (identity, object.cluster.as_deref());
        self.of.entry(of).or_insert((place, object));
    }
}

fn position(object: &ManifestObject) -> String {
    let place = object.document.place(FieldPath::root());
    format!("{}:{}", place.file.as_deref().unwrap_or_default(), place.line)
}

/// Says which cluster both are for, where that is not plain.
fn reach(first: &ManifestObject, second: &ManifestObject) -> String {
    match (&first.cluster, &second.cluster) {
        (None, Some(cluster)) => format!(" for every cluster, `{cluster}` included"),
        (Some(cluster), None) => {
            format!(" for the cluster `{cluster}`, and this one holds for every cluster")
        }
        _ => String::new(),
    }
}

// The document of an object, kept to place what is found out about it later.

/// A document, packed where there may be very many of its kind and no expressions in it.
#[derive(Debug, Clone)]
pub(crate) enum KeptDocument {
    Whole(Box<Document>),
    Packed(PackedDocument),
}

impl KeptDocument {
    /// The `document` of an object that says `content`.
    pub(crate) fn new(document: Document, content: &Content) -> Self {
        match content {
            Content::Role(_) | Content::Binding(_) | Content::Namespace(_) | Content::Parameter => {
                Self::Packed(PackedDocument::new(&document))
            }
            Content::Policy(_) | Content::Exception(_) | Content::Admission(_) => {
                Self::Whole(Box::new(document))
            }
        }
    }

    /// The document; borrowed but for those of [`Role`]s,
    /// bindings, Namespaces and parameters.
    pub(crate) fn get(&self) -> Cow<'_, Document> {
        match self {
            Self::Whole(document) => Cow::Borrowed(document),
            Self::Packed(packed) => Cow::Owned(packed.unpack()),
        }
    }

    /// As [`Document::place`].
    pub(crate) fn place(&self, path: FieldPath) -> Place {
        self.get().place(path)
    }
}
