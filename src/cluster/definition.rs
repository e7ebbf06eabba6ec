//! CustomResourceDefinitions: whether a resource is cluster-scoped, in which versions it is served
//! and, for Portcullis' own kinds, which of their fields the API server knows.
//!
//! The fields of a kind are those in the definition that this program ships (`config/crd/`). An API
//! server with an older definition may drop unknown fields, and with them the limits of a grant or
//! an exception.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::cluster::kind::{Name, WatchedKind};
use crate::cluster::memory::{Charge, ContentCharge};
use portcullis_cel::json;
use portcullis_policy::admission::matching::{CustomResource, CustomResources};
use portcullis_policy::authorization::matching::ClusterScoped;
use portcullis_policy::document;
use portcullis_policy::field::{Fault, FaultKind, Faults, Place};
use portcullis_policy::model::groups::PORTCULLIS;

/// The version of Portcullis' own kinds that is watched.
const VERSION: &str = "v1alpha1";

/// How many fields a message names.
const MAX_NAMED_FIELDS: usize = 5;

/// The maximum number of versions of a definition, and of bytes of the schema of each.
const MAX_VERSIONS: usize = 100;
const MAX_SCHEMA_BYTES: usize = 1 << 20;

const PRESERVE_UNKNOWN_FIELDS: &str = "x-kubernetes-preserve-unknown-fields";

/// The shipped definitions.
const SHIPPED: [&str; 4] = [
    include_str!("../../config/crd/authorizationpolicies.yaml"),
    include_str!("../../config/crd/admissionexceptions.yaml"),
    include_str!("../../config/crd/authorizationinvariants.yaml"),
    include_str!("../../config/crd/accessrequests.yaml"),
];

/// The watched version in each shipped definition, by kind.
static KNOWN: LazyLock<BTreeMap<String, Value>> = LazyLock::new(|| {
    let documents = SHIPPED.iter().flat_map(|text| document::parse(None, text));
    let schema = |document: document::Document| {
        let value = document.root().to_json();
        let definition = CustomDefinition::of(&value)?;
        Some((definition.resource.kind.clone(), watched_version(&value)?.clone()))
    };
    documents.flatten().filter_map(schema).collect()
});

/// The parts of a CustomResourceDefinition that matter here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CustomDefinition {
    pub(crate) resource: Arc<CustomResource>,
    /// The fields that its schema lacks; only for Portcullis' own kinds.
    pub(crate) missing: Option<Arc<MissingFields>>,
}

/// Fields of a kind that an API server's schema lacks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct MissingFields {
    /// For example `spec.resourceRules[].namespaceSelector`.
    fields: Vec<String>,
    /// Whether the API server drops some of these fields from stored objects.
    pub(crate) are_dropped: bool,
}

#[derive(Deserialize)]
struct WrittenDefinition {
    spec: WrittenDefinitionSpec,
}

#[derive(Deserialize)]
struct WrittenDefinitionSpec {
    group: String,
    scope: String,
    names: WrittenNames,
    #[serde(default)]
    versions: Vec<WrittenVersion>,
}

#[derive(Deserialize)]
struct WrittenNames {
    plural: String,
    kind: String,
}

#[derive(Deserialize)]
struct WrittenVersion {
    name: String,
    schema: Option<Box<RawValue>>,
    subresources: Option<WrittenSubresources>,
}

#[derive(Deserialize, Serialize)]
struct WrittenSubresources {
    status: Option<AnyValue>,
    scale: Option<AnyValue>,
}

/// Any value, which is kept as an empty object.
#[derive(Serialize)]
struct AnyValue {}

/// A definition without the parts that do not matter here, since schemas of other kinds may be
/// large.
///
/// # Errors
///
/// It is not a definition, or has too many versions.
pub(crate) fn reduced(text: &str) -> Result<Value, String> {
    let WrittenDefinition { spec } = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if spec.versions.len() > MAX_VERSIONS {
        return Err(format!(
            "{} versions: at most {MAX_VERSIONS}",
            spec.versions.len()
        ));
    }
    let mut versions = Vec::new();
    for version in spec.versions {
        let schema = version
            .schema
            .filter(|schema| spec.group == PORTCULLIS && schema.get().len() <= MAX_SCHEMA_BYTES);
        let schema: Option<Value> = schema.and_then(|schema| serde_json::from_str(schema.get()).ok());
        let (name, subresources) = (version.name, version.subresources);
        versions.push(json!({"name": name, "schema": schema, "subresources": subresources}));
    }
    Ok(json!({"spec": {
        "group": spec.group,
        "scope": spec.scope,
        "names": {"plural": spec.names.plural, "kind": spec.names.kind},
        "versions": versions,
    }}))
}

impl<'de> Deserialize<'de> for AnyValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self {})
    }
}

/// How long an API server may continue to store objects according to a definition that was
/// replaced: twice the time that Kubernetes allows its servers before it reports a new definition
/// as established.
const STORAGE_DELAY: Duration = Duration::from_secs(10);

/// The maximum number of definitions. Nothing is known of resources beyond it.
pub(crate) const MAX_DEFINITIONS: usize = 10_000;

/// The known definitions, by name.
pub(crate) struct Definitions {
    pub(crate) known: BTreeMap<Name, HeldDefinition>,
    /// When a definition that drops fields was last replaced, by kind.
    pub(crate) dropped: BTreeMap<String, Instant>,
    /// [`STORAGE_DELAY`].
    pub(crate) takes_effect: Duration,
}

/// A definition, and the memory that it takes.
pub(crate) struct HeldDefinition {
    pub(crate) definition: CustomDefinition,
    pub(crate) charge: Charge,
    pub(crate) _content: ContentCharge,
}

/// The result of reading a definition.
pub(crate) enum ReadDefinition {
    /// It is known already.
    Same,
    New(Box<HeldDefinition>),
    /// It is not a definition.
    Invalid,
}

/// What is known about the API server's schema of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SchemaState {
    /// The definitions have not been listed yet.
    Awaited,
    /// The gateway may not list definitions.
    Forbidden,
    /// The kind has no definition.
    Undefined,
    /// The schema lacks fields.
    Lacks(Arc<MissingFields>, String),
    /// The schema is complete, but lacked fields recently, and the API server may still use the
    /// former one.
    Recent,
    /// The schema has every field that this program knows.
    Current,
}

// === impl CustomDefinition ===

impl CustomDefinition {
    /// Reads a definition; `None` if it is not one.
    pub(crate) fn of(value: &Value) -> Option<Self> {
        let document = json::Document::parse(value.to_string()).ok()?;
        Some(Self {
            resource: Arc::new(CustomResource::of(document.root())?),
            missing: None,
        })
    }

    /// The number of bytes of memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        let resource = &*self.resource;
        let versions = resource.versions().map(|version| version.len() + 64);
        let names = [&resource.group, &resource.resource, &resource.kind].map(String::len);
        2 * (names.iter().sum::<usize>() + versions.sum::<usize>())
    }

    /// Reads a definition, and compares its schema.
    pub(crate) fn examined(value: &Value) -> Option<Self> {
        let definition = Self::of(value)?;
        let known = KNOWN
            .get(&definition.resource.kind)
            .filter(|_| definition.resource.group == PORTCULLIS);
        let is_decided_by_status = definition.resource.kind == "AccessRequest";
        let missing = known.and_then(|known| MissingFields::find(known, value, is_decided_by_status));
        Some(Self {
            missing: missing.map(Arc::new),
            ..definition
        })
    }
}

/// The version of `definition` that is watched.
fn watched_version(definition: &Value) -> Option<&Value> {
    let versions = definition.get("spec")?.get("versions")?.as_array()?;
    let mut versions = versions.iter();
    versions.find(|version| version.get("name").and_then(Value::as_str) == Some(VERSION))
}

/// The schema of `spec` or `status` in a version.
fn schema_of<'v>(version: &'v Value, part: &str) -> Option<&'v Value> {
    version.pointer("/schema/openAPIV3Schema/properties")?.get(part)
}

// === impl MissingFields ===

impl MissingFields {
    /// Compares the watched version of `definition` with `known`, in `spec` and, if decisions
    /// depend on it, in `status`; `None` if nothing is missing.
    fn find(known: &Value, definition: &Value, is_decided_by_status: bool) -> Option<Self> {
        let mut missing = Self::default();
        let version = watched_version(definition);
        let parts: &[&str] = match is_decided_by_status {
            true => &["spec", "status"],
            false => &["spec"],
        };
        for part in parts {
            let Some(known) = schema_of(known, part) else {
                continue;
            };
            match version.and_then(|version| schema_of(version, part)) {
                Some(served) => missing.compare(known, served, part),
                None => missing.add(part, false),
            }
        }
        let has_status = version.and_then(|version| version.pointer("/subresources/status"));
        if is_decided_by_status && has_status.is_none_or(Value::is_null) {
            missing.add("subresources.status", false);
        }
        (!missing.fields.is_empty()).then_some(missing)
    }

    fn add(&mut self, path: &str, is_kept: bool) {
        self.fields.push(path.to_owned());
        self.are_dropped |= !is_kept;
    }

    fn compare(&mut self, known: &Value, served: &Value, path: &str) {
        let is_kept = served.get(PRESERVE_UNKNOWN_FIELDS) == Some(&Value::Bool(true));
        for (name, known) in properties(known).into_iter().flatten() {
            let path = format!("{path}.{name}");
            match properties(served).and_then(|served| served.get(name)) {
                Some(served) => self.compare(known, served, &path),
                None => self.add(&path, is_kept),
            }
        }
        if let Some(known) = known.get("items") {
            let path = format!("{path}[]");
            match served.get("items") {
                Some(served) => self.compare(known, served, &path),
                None => self.add(&path, is_kept),
            }
        }
    }

    /// For example `` `spec.notAfter`, `spec.notBefore` and 3 more ``.
    pub(crate) fn names(&self) -> String {
        let named: Vec<String> = self
            .fields
            .iter()
            .take(MAX_NAMED_FIELDS)
            .map(|field| format!("`{field}`"))
            .collect();
        match self.fields.len().saturating_sub(MAX_NAMED_FIELDS) {
            0 => named.join(", "),
            more => format!("{} and {more} more", named.join(", ")),
        }
    }
}

fn properties(schema: &Value) -> Option<&Map<String, Value>> {
    schema.get("properties")?.as_object()
}

// === impl SchemaState ===

impl SchemaState {
    pub(crate) fn drops_fields(&self) -> bool {
        match self {
            Self::Lacks(missing, _) => missing.are_dropped,
            state => *state == Self::Recent,
        }
    }

    /// Why objects that may let requests pass are withheld; `None` if they are not, or it is not
    /// known yet.
    pub(crate) fn why(&self) -> Option<String> {
        match self {
            Self::Awaited | Self::Recent | Self::Current => None,
            Self::Forbidden => Some(
                "rejected: the gateway may not list customresourcedefinitions, so the API server may drop \
                restrictions: apply config/cluster/gateway.yaml"
                    .to_owned(),
            ),
            Self::Undefined => Some(
                "rejected: the API server has no CustomResourceDefinition of its kind, so it may drop \
                restrictions: apply config/crd/"
                    .to_owned(),
            ),
            Self::Lacks(missing, file) => Some(format!(
                "rejected: its CustomResourceDefinition lacks {}, so the API server may drop restrictions: \
                apply config/crd/{file}.yaml of the gateway's version",
                missing.names()
            )),
        }
    }
}

/// The cluster-scoped resources of `definitions`.
pub(crate) fn cluster_scoped<'d>(
    definitions: impl IntoIterator<Item = &'d CustomDefinition>,
) -> ClusterScoped {
    let mut scoped = ClusterScoped::default();
    for definition in definitions {
        if definition.resource.is_cluster_scoped {
            scoped.add(&definition.resource.group, &definition.resource.resource);
        }
    }
    scoped
}

// === impl Definitions ===

impl Default for Definitions {
    fn default() -> Self {
        Self {
            known: BTreeMap::new(),
            dropped: BTreeMap::new(),
            takes_effect: STORAGE_DELAY,
        }
    }
}

impl Definitions {
    /// The known definitions.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &CustomDefinition> {
        self.known.values().map(|held| &held.definition)
    }

    pub(crate) fn insert(&mut self, name: Name, held: HeldDefinition) {
        let drops = |one: &HeldDefinition| {
            let missing = one.definition.missing.as_ref();
            missing.is_some_and(|missing| missing.are_dropped)
        };
        let kind = held.definition.resource.kind.clone();
        let before = self.known.insert(name, held);
        if before.is_some_and(|before| drops(&before)) {
            self.dropped.insert(kind, Instant::now());
        }
    }

    /// The names of the known definitions.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Name> {
        self.known.keys()
    }

    /// The cluster-scoped resources.
    pub(crate) fn cluster_scoped(&self) -> ClusterScoped {
        cluster_scoped(self.iter())
    }

    /// The resources that the definitions define.
    pub(crate) fn custom_resources(&self) -> CustomResources {
        self.iter()
            .map(|definition| Arc::clone(&definition.resource))
            .collect()
    }

    pub(crate) fn schema(&self, kind: &WatchedKind) -> SchemaState {
        let dropped = self.dropped.get(&kind.kind);
        let is_recent = dropped.is_some_and(|at| at.elapsed() < self.takes_effect);
        let mut definitions = self.iter();
        let own = definitions.find(|one| one.resource.group == kind.group && one.resource.kind == kind.kind);
        match own {
            None => SchemaState::Undefined,
            Some(CustomDefinition { missing: None, .. }) if is_recent => SchemaState::Recent,
            Some(CustomDefinition { missing: None, .. }) => SchemaState::Current,
            Some(CustomDefinition {
                missing: Some(missing),
                resource,
            }) => SchemaState::Lacks(Arc::clone(missing), resource.resource.clone()),
        }
    }

    /// The faults of the definitions of Portcullis' own kinds.
    pub(crate) fn faults(&self, cluster: &Arc<str>) -> Vec<Faults> {
        let faulty = self.known.iter();
        faulty
            .filter_map(|(name, held)| held.definition.faults(cluster, name))
            .collect()
    }
}

impl CustomDefinition {
    pub(crate) fn faults(&self, cluster: &Arc<str>, name: &Name) -> Option<Faults> {
        let missing = self.missing.as_ref()?;
        let place = Place {
            file: Some(format!("cluster {cluster}").into()),
            object: format!("CustomResourceDefinition/{}", name.1),
            ..Place::default()
        };
        let message = format!(
            "its schema lacks {}: until config/crd/{}.yaml of the gateway's version is applied, new objects \
            of this kind that could allow requests are rejected",
            missing.names(),
            self.resource.resource
        );
        let mut faults = Faults::new();
        faults.push(Fault::error(place, FaultKind::Required, message));
        Some(faults)
    }
}

// === impl HeldDefinition ===

impl HeldDefinition {
    /// Whether it defines a resource in Portcullis' group.
    pub(crate) fn is_own(&self) -> bool {
        self.definition.resource.group == PORTCULLIS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shipped(index: usize) -> Value {
        let documents = document::parse(None, SHIPPED[index]).unwrap();
        let value = documents[0].root().to_json();
        reduced(&value.to_string()).unwrap()
    }

    fn spec(value: &mut Value) -> &mut Value {
        value
            .pointer_mut("/spec/versions/0/schema/openAPIV3Schema/properties/spec")
            .unwrap()
    }

    #[test]
    fn the_shipped_definitions_lack_nothing() {
        assert_eq!(KNOWN.len(), SHIPPED.len());
        let plurals = [
            "authorizationpolicies",
            "admissionexceptions",
            "authorizationinvariants",
            "accessrequests",
        ];
        for (index, plural) in plurals.into_iter().enumerate() {
            let definition = CustomDefinition::examined(&shipped(index)).unwrap();
            assert_eq!(definition.resource.resource, plural);
            assert!(definition.resource.is_cluster_scoped);
            assert_eq!(definition.missing, None);
        }
    }

    /// Each schema of an object below `spec` that has fields, with its path.
    fn objects<'s>(schema: &'s Value, path: &str, found: &mut Vec<(String, &'s Value)>) {
        if properties(schema).is_some() {
            found.push((path.to_owned(), schema));
        }
        for (name, schema) in properties(schema).into_iter().flatten() {
            objects(schema, &format!("{path}.{name}"), found);
        }
        if let Some(items) = schema.get("items") {
            objects(items, &format!("{path}[]"), found);
        }
    }

    #[test]
    fn the_shipped_definitions_keep_unknown_fields_everywhere() {
        for index in 0..SHIPPED.len() {
            let definition = shipped(index);
            let version = watched_version(&definition).unwrap();
            let (mut found, spec) = (Vec::new(), schema_of(version, "spec").unwrap());
            objects(spec, "spec", &mut found);
            assert!(found.len() >= 2, "{found:?}");
            for (path, schema) in found {
                assert_eq!(schema[PRESERVE_UNKNOWN_FIELDS], true, "{path}");
            }
        }
    }

    #[test]
    fn a_field_that_an_older_definition_lacks_is_named() {
        let mut older = shipped(0);
        let properties = spec(&mut older)["properties"].as_object_mut().unwrap();
        properties.remove("notAfter");
        let rules = properties["resourceRules"]["items"]["properties"].as_object_mut();
        rules.unwrap().remove("namespaceSelector");
        let missing = CustomDefinition::examined(&older).unwrap().missing.unwrap();
        assert_eq!(
            missing.names(),
            "`spec.notAfter`, `spec.resourceRules[].namespaceSelector`"
        );
        assert!(!missing.are_dropped, "unknown fields are kept");

        spec(&mut older)
            .as_object_mut()
            .unwrap()
            .remove(PRESERVE_UNKNOWN_FIELDS);
        let missing = CustomDefinition::examined(&older).unwrap().missing.unwrap();
        assert!(missing.are_dropped);
    }

    #[test]
    fn one_without_schema_or_version_lacks_everything() {
        for pointer in ["/spec/versions/0/schema", "/spec/versions/0/name"] {
            let mut other = shipped(1);
            *other.pointer_mut(pointer).unwrap() = Value::Null;
            let missing = CustomDefinition::examined(&other).unwrap().missing.unwrap();
            assert_eq!((missing.names().as_str(), missing.are_dropped), ("`spec`", true));
        }
    }

    #[test]
    fn a_definition_that_drops_what_ends_an_access_request_lacks_it() {
        let whole = CustomDefinition::examined(&shipped(3)).unwrap();
        assert_eq!(whole.missing, None);
        let status = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties";
        for (pointer, key, named) in [
            (status, "withdrawn", "`status.withdrawn`"),
            (status, "denied", "`status.denied`"),
            ("/spec/versions/0/subresources", "status", "`subresources.status`"),
        ] {
            let mut older = shipped(3);
            older
                .pointer_mut(pointer)
                .unwrap()
                .as_object_mut()
                .unwrap()
                .remove(key);
            let missing = CustomDefinition::examined(&older).unwrap().missing.unwrap();
            assert_eq!((missing.names().as_str(), missing.are_dropped), (named, true));
        }
    }

    #[test]
    fn a_newer_one_lacks_nothing() {
        let mut newer = shipped(1);
        spec(&mut newer)["properties"]["later"] = json!({"type": "string"});
        assert_eq!(CustomDefinition::examined(&newer).unwrap().missing, None);
    }

    #[test]
    fn of_others_only_names_versions_and_scope_are_kept() {
        let text = r#"{"metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com",
            "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "schema": {"openAPIV3Schema": {"type": "object"}},
                "subresources": {"scale": {"specReplicasPath": ".spec.replicas"}}}]}}"#;
        let value = reduced(text).unwrap();
        let version = json!({"name": "v1", "schema": null, "subresources": {"status": null, "scale": {}}});
        assert_eq!(value["spec"]["versions"], json!([version]));
        let definition = CustomDefinition::examined(&value).unwrap();
        assert!(!definition.resource.is_cluster_scoped && definition.missing.is_none());
        assert!(reduced("{}").is_err());
    }
}
