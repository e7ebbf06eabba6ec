//! Objects of manifests, with the resources of their kinds: built-in, defined by a
//! CustomResourceDefinition, or guessed. And admission reviews of such objects.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::request::{WrittenKind, WrittenResource, WrittenReview, WrittenUser, plural, with_group};
use crate::admission::Operation;
use crate::authorization::matching::is_known_cluster_scoped;
use crate::document::{Document, Value as DocumentValue};
use crate::field::{Fault, FaultKind, Faults, FieldPath, Place};
use crate::manifest::{self, built_in_resource};

/// The resource as which an API server serves a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KindResource {
    /// The group of the resource. For a subresource it may differ from the group of the kind.
    pub group: String,
    pub resource: String,
    pub is_namespaced: bool,
    /// Whether this is only a guess.
    pub is_guess: bool,
}

/// The resources of kinds, by group and kind, from an API server or CustomResourceDefinitions.
///
/// What is added first takes precedence: first what a cluster serves, then definitions in the files
/// of the policies, then those among the objects under review, whose author wants them to pass.
#[derive(Debug, Clone, Default)]
pub struct KnownKinds(BTreeMap<(String, String), (KindResource, Place)>);

impl KnownKinds {
    /// Adds a kind that an API server serves.
    pub fn add_served(&mut self, kind: &str, served: KindResource) {
        let key = (served.group.clone(), kind.to_owned());
        self.0.entry(key).or_insert((served, Place::default()));
    }

    /// Adds the kind that `document`, from the files of the policies, defines, if it is a
    /// CustomResourceDefinition.
    ///
    /// # Errors
    ///
    /// The kind is known already, with other names or another scope.
    pub fn add(&mut self, document: &Document) -> Result<(), Fault> {
        self.add_unless_named(document, |_, _| false)
    }

    /// Adds the kind that `document`, one of the objects under review, defines, if it is a
    /// CustomResourceDefinition. `is_named` says whether policies name a resource of a group.
    ///
    /// # Errors
    ///
    /// The kind is known already, with other names or another scope; or policies name the resource
    /// that would be guessed without the definition.
    pub fn add_unless_named(
        &mut self,
        document: &Document,
        is_named: impl Fn(&str, &str) -> bool,
    ) -> Result<(), Fault> {
        let Some((kind, served)) = defined(document) else {
            return Ok(());
        };
        let place = document.place(FieldPath::root().field("spec").field("names"));
        let invalid = |text: String| Err(Fault::error(place.clone(), FaultKind::Invalid, text));
        let group = &served.group;
        let key = (group.clone(), kind.clone());
        if let Some((known, by)) = self.0.get(&key) {
            return match *known == served {
                true => Ok(()),
                false => invalid(format!(
                    "the kind `{kind}` of `{group}` is {} by {}: remove one of the definitions",
                    known.in_words(),
                    by.file.as_ref().map_or_else(
                        || "what the cluster serves".to_owned(),
                        |file| format!("{file}:{}", by.line)
                    )
                )),
            };
        }
        let guess = plural(&kind);
        if guess != served.resource && is_named(group, &guess) {
            return invalid(format!(
                "policies name `{guess}` of `{group}`, which, by this definition, is not the resource of the \
                kind `{kind}`: if the definition is correct, add it to the manifests of the policies"
            ));
        }
        self.0.insert(key, (served, place));
        Ok(())
    }

    /// Returns the resource of `kind` of `group`; with a `subresource`, the resource that has it.
    pub fn served(&self, group: &str, kind: &str, subresource: &str) -> KindResource {
        if let Some((group, resource)) = built_in_resource(group, kind, subresource) {
            return KindResource {
                group: group.to_owned(),
                resource: resource.to_owned(),
                is_namespaced: !is_known_cluster_scoped(group, resource),
                is_guess: false,
            };
        }
        let custom = self.0.get(&(group.to_owned(), kind.to_owned()));
        custom.map_or_else(|| guessed(group, kind), |(served, _)| served.clone())
    }
}

impl KindResource {
    fn in_words(&self) -> String {
        let place = if self.is_namespaced {
            "namespaced"
        } else {
            "cluster-scoped"
        };
        format!("`{}` ({place})", self.resource)
    }
}

/// The resource of `kind` of `group` according to its name: one of Portcullis' own, or a guess.
fn guessed(group: &str, kind: &str) -> KindResource {
    let resource = plural(kind);
    let is_cluster_scoped = is_known_cluster_scoped(group, &resource);
    KindResource {
        group: group.to_owned(),
        resource,
        is_namespaced: !is_cluster_scoped,
        is_guess: !is_cluster_scoped,
    }
}

/// Whether `document` is read only by Portcullis, and never by an API server: a test suite or a
/// configuration.
#[must_use]
pub fn is_portcullis_file(document: &Document) -> bool {
    let (group, _) = group_and_version(document.text("apiVersion").unwrap_or_default());
    group == "config.portcullis.dev"
        || (group, document.text("kind")) == ("portcullis.dev", Some("PolicyTest"))
}

/// The kind that `document` defines, if it is a CustomResourceDefinition.
fn defined(document: &Document) -> Option<(String, KindResource)> {
    let (group, _) = group_and_version(document.text("apiVersion")?);
    let is_definition =
        (group, document.text("kind")?) == ("apiextensions.k8s.io", "CustomResourceDefinition");
    let spec = |path: &[&str]| text(document, &[&["spec"], path].concat()).filter(|_| is_definition);
    let served = KindResource {
        group: spec(&["group"])?,
        resource: spec(&["names", "plural"])?,
        is_namespaced: spec(&["scope"]).is_none_or(|scope| scope != "Cluster"),
        is_guess: false,
    };
    Some((spec(&["names", "kind"])?, served))
}

// Parsing manifests, and reading fields of objects.

/// Parses the objects in the text of `file`, with lists flattened.
///
/// # Errors
///
/// The text is not valid YAML or JSON, or contains something that is not an object.
pub fn read(file: &str, text: String) -> Result<Vec<Document>, Faults> {
    let source = manifest::Source {
        file: file.to_owned(),
        text,
        cluster: None,
    };
    let mut faults = Faults::new();
    let objects = manifest::documents(&source, &mut faults);
    if faults.has_errors() {
        return Err(faults);
    }
    Ok(objects)
}

/// The string at `path`; `None` if there is something else.
pub fn text(object: &Document, path: &[&str]) -> Option<String> {
    let node = path.iter().try_fold(object.root(), |node, name| node.get(name));
    node.and_then(|node| node.as_str()).map(str::to_owned)
}

/// The string at `path`, which may be absent. Other types are errors, such as unquoted `n` and `1`.
pub fn written_text(object: &Document, path: &[&str]) -> Result<Option<String>, Fault> {
    let node = path.iter().try_fold(object.root(), |node, name| node.get(name));
    match node.map(|node| (&node.value, node.as_str())) {
        None | Some((DocumentValue::Null, _)) => Ok(None),
        Some((_, Some(text))) => Ok(Some(text.to_owned())),
        Some((_, None)) => {
            let message = "must be a string: put it in quotes".to_owned();
            Err(fault(object, path, FaultKind::TypeInvalid, message))
        }
    }
}

/// The string at `path`, which must not be absent or empty.
pub fn required(object: &Document, path: &[&str]) -> Result<String, Fault> {
    text(object, path).filter(|text| !text.is_empty()).ok_or_else(|| {
        fault(
            object,
            path,
            FaultKind::Required,
            "a manifest needs it".to_owned(),
        )
    })
}

/// Creates an error at `path`.
pub fn fault(object: &Document, path: &[&str], kind: FaultKind, message: String) -> Fault {
    let path = path.iter().fold(FieldPath::root(), |path, name| path.field(name));
    Fault::error(object.place(path), kind, message)
}

/// Splits an `apiVersion`; the core group is empty.
pub fn group_and_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// Sets the namespace of an object, as an API server does when it receives one.
pub fn set_namespace(object: &mut Value, namespace: &str) {
    if namespace.is_empty() {
        return;
    }
    if let Some(object) = object.as_object_mut() {
        let metadata = object.entry("metadata").or_insert_with(|| json!({}));
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert("namespace".to_owned(), json!(namespace));
        }
    }
}

// The reviews that an API server would send for writes of manifests.

/// How the objects of manifests are written, and by whom.
#[derive(Debug, Default)]
pub struct ManifestRequest {
    /// The operation; CREATE by default.
    pub operation: Option<Operation>,
    /// The user and the groups; an administrator by default.
    pub user: Option<(String, Vec<String>)>,
    /// The subresource, such as `status`; empty for the object itself.
    pub subresource: String,
    /// `RESOURCE[.GROUP]` of the objects, if it differs from that of their kind.
    pub resource: Option<String>,
    /// The namespace of objects without one; other objects must not have another namespace.
    pub namespace: Option<String>,
    /// Whether the requests are dry runs.
    pub dry_run: bool,
    /// The namespace of objects without one, if `namespace` is not set.
    pub default_namespace: Option<String>,
}

/// A review of an object.
#[derive(Clone)]
pub struct ReviewOfManifest {
    pub file: String,
    pub line: u32,
    pub kind: String,
    pub namespace: String,
    pub name: String,
    /// The AdmissionReview, as JSON.
    pub review: String,
}

/// Reviews, and notes on them.
#[derive(Default)]
pub struct ReviewsOfManifests {
    pub reviews: Vec<ReviewOfManifest>,
    pub notes: Vec<String>,
}

/// The remedy for an unknown kind, which ends the note about it.
pub const ADD_DEFINITION: &str = "add its CustomResourceDefinition to the manifests";

const NO_DEFAULTS: &str = "the manifest is evaluated as written: an API server would add defaults first";

// === impl ManifestRequest ===

impl ManifestRequest {
    /// Creates objects; those without a namespace in this one.
    pub fn in_namespace(default_namespace: Option<String>) -> Self {
        Self {
            default_namespace,
            ..Self::default()
        }
    }

    /// Returns a review of each of `objects`. `old` contains the objects that an update replaces,
    /// and `kinds` the kinds that a cluster serves. `definitions` returns objects from the files of
    /// the policies, and is called only if a kind is not known. `is_named` says whether policies
    /// name a resource of a group.
    ///
    /// # Errors
    ///
    /// Errors in the objects.
    pub fn reviews(
        &self,
        objects: &[Document],
        old: &[Document],
        mut kinds: KnownKinds,
        definitions: impl FnOnce() -> Vec<Document>,
        is_named: impl Fn(&str, &str) -> bool,
    ) -> Result<ReviewsOfManifests, Faults> {
        let of_others = if objects.iter().any(|object| self.is_unknown(object, &kinds)) {
            definitions()
        } else {
            Vec::new()
        };
        let (mut found, mut faults) = (ReviewsOfManifests::default(), Faults::new());
        let of_others = of_others.iter().map(|object| kinds.add(object));
        faults.extend(of_others.filter_map(Result::err));
        let own = objects
            .iter()
            .map(|object| kinds.add_unless_named(object, &is_named));
        faults.extend(own.filter_map(Result::err));
        for object in objects {
            match self.review(object, old, &kinds, &mut found.notes) {
                Ok(review) => found.reviews.push(review),
                Err(fault) => faults.push(fault),
            }
        }
        if faults.has_errors() {
            return Err(faults);
        }
        if !found.reviews.is_empty() {
            found.notes.push(NO_DEFAULTS.to_owned());
        }
        Ok(found)
    }

    fn operation(&self) -> Operation {
        self.operation.unwrap_or(Operation::Create)
    }

    fn is_unknown(&self, object: &Document, kinds: &KnownKinds) -> bool {
        let (group, _) = group_and_version(object.text("apiVersion").unwrap_or_default());
        let kind = object.text("kind").unwrap_or_default();
        let served = kinds.served(group, kind, &self.subresource);
        served.is_guess && self.resource.is_none()
    }

    /// Returns a review of `object`, and adds notes on it to `notes`.
    ///
    /// # Errors
    ///
    /// Errors in the object.
    pub fn review(
        &self,
        object: &Document,
        old: &[Document],
        kinds: &KnownKinds,
        notes: &mut Vec<String>,
    ) -> Result<ReviewOfManifest, Fault> {
        let api_version = required(object, &["apiVersion"])?;
        let kind = required(object, &["kind"])?;
        let (group, version) = group_and_version(&api_version);
        let served = self.served(kinds, (group, &kind));
        self.check_kind(object, (group, &kind), &served)?;
        let namespace = self.namespace_of(object, &served)?;
        if served.is_guess {
            notes.push(format!(
                "the kind `{kind}` of `{api_version}` is not known: assuming the namespaced resource `{}`; \
                {ADD_DEFINITION}",
                served.resource
            ));
        }
        let name = written_text(object, &["metadata", "name"])?.unwrap_or_default();
        let mut written = object.root().to_json();
        set_namespace(&mut written, &namespace);
        let (new, before) = match self.operation() {
            Operation::Create | Operation::Connect => (Some(written), None),
            Operation::Delete => (None, Some(written)),
            Operation::Update => (Some(written), Some(self.before(object, old, &namespace)?)),
        };
        let review = WrittenReview {
            operation: self.operation().as_str().to_owned(),
            object: new,
            old_object: before,
            options: self.options(),
            kind: Some(WrittenKind {
                group: group.to_owned(),
                version: version.to_owned(),
                kind: kind.clone(),
            }),
            resource: Some(WrittenResource {
                // The resource with the subresource may be of another group than the kind.
                version: if served.group == group {
                    version.to_owned()
                } else {
                    "v1".to_owned()
                },
                group: served.group,
                resource: served.resource,
            }),
            sub_resource: self.subresource.clone(),
            name: Some(name.clone()),
            namespace: (!namespace.is_empty()).then(|| namespace.clone()),
            dry_run: self.dry_run,
            user_info: self.user_info(),
        };
        let review = review
            .review()
            .map_err(|message| fault(object, &[], FaultKind::Invalid, message))?;
        let place = object.place(FieldPath::root());
        Ok(ReviewOfManifest {
            file: object.file().map(ToString::to_string).unwrap_or_default(),
            line: place.line,
            kind,
            namespace,
            name,
            review,
        })
    }

    fn served(&self, kinds: &KnownKinds, (group, kind): (&str, &str)) -> KindResource {
        let served = kinds.served(group, kind, &self.subresource);
        match &self.resource {
            None => served,
            Some(written) => {
                let (resource, own_group) = written.split_once('.').unwrap_or((written, ""));
                KindResource {
                    group: own_group.to_owned(),
                    resource: resource.to_owned(),
                    is_guess: false,
                    ..served
                }
            }
        }
    }

    /// Checks that an object of a built-in kind is not written as another resource.
    fn check_kind(
        &self,
        object: &Document,
        (group, kind): (&str, &str),
        served: &KindResource,
    ) -> Result<(), Fault> {
        let own = built_in_resource(group, kind, "").filter(|_| self.subresource.is_empty());
        match own {
            Some((group, resource)) if (group, resource) != (&*served.group, &*served.resource) => {
                let message = format!(
                    "a {kind} is written as `{}`, not `{}`",
                    with_group(resource, group),
                    with_group(&served.resource, &served.group)
                );
                Err(fault(object, &["kind"], FaultKind::Invalid, message))
            }
            _ => Ok(()),
        }
    }

    /// The namespace as in an API server: that of the object, or else of the request.
    fn namespace_of(&self, object: &Document, served: &KindResource) -> Result<String, Fault> {
        let path = ["metadata", "namespace"];
        let own = written_text(object, &path)?.filter(|namespace| !namespace.is_empty());
        let asked = self
            .namespace
            .as_deref()
            .filter(|namespace| !namespace.is_empty());
        match (own, asked) {
            (Some(_), _) if !served.is_namespaced => {
                let message = format!("`{}` are cluster-scoped: remove it", served.resource);
                Err(fault(object, &path, FaultKind::Invalid, message))
            }
            _ if !served.is_namespaced => Ok(String::new()),
            (Some(own), Some(asked)) if own != asked => {
                let message = format!("`{own}` is not the namespace of `-n {asked}`");
                Err(fault(object, &path, FaultKind::Invalid, message))
            }
            (own, asked) => Ok(own.unwrap_or_else(|| {
                let default = self.default_namespace.as_deref();
                asked.or(default).unwrap_or("default").to_owned()
            })),
        }
    }

    /// The object of `--old` that `object` replaces.
    fn before(&self, object: &Document, old: &[Document], namespace: &str) -> Result<Value, Fault> {
        let group = |document: &Document| {
            let version = document.text("apiVersion").unwrap_or_default().to_owned();
            group_and_version(&version).0.to_owned()
        };
        let name = |document: &Document| text(document, &["metadata", "name"]);
        let found = old.iter().find(|before| {
            let own = text(before, &["metadata", "namespace"]).unwrap_or_else(|| namespace.to_owned());
            before.text("kind") == object.text("kind")
                && group(before) == group(object)
                && name(before) == name(object)
                && own == namespace
        });
        let Some(found) = found else {
            let message =
                "`--old` does not contain this object: add one with the same kind, namespace and name";
            return Err(fault(object, &[], FaultKind::NotFound, message.to_owned()));
        };
        let mut written = found.root().to_json();
        set_namespace(&mut written, namespace);
        Ok(written)
    }

    fn options(&self) -> Option<Value> {
        let kind = match self.operation() {
            Operation::Create => "CreateOptions",
            Operation::Update => "UpdateOptions",
            Operation::Delete => "DeleteOptions",
            Operation::Connect => return None,
        };
        let mut options = json!({"apiVersion": "meta.k8s.io/v1", "kind": kind});
        if self.dry_run
            && let Some(options) = options.as_object_mut()
        {
            options.insert("dryRun".to_owned(), json!(["All"]));
        }
        Some(options)
    }

    fn user_info(&self) -> WrittenUser {
        let administrators = ["system:masters", "system:authenticated"];
        match &self.user {
            Some((user, groups)) => WrittenUser::new(user.clone(), groups.clone()),
            None => WrittenUser::new(
                "system:admin".to_owned(),
                administrators.map(str::to_owned).to_vec(),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_built_in_defined_or_guessed() {
        let definition = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n\
                          spec: {group: example.com, scope: Cluster, names: {kind: Fox, plural: foxen}}";
        let mut kinds = KnownKinds::default();
        for document in crate::document::parse(None, definition).unwrap() {
            kinds.add(&document).unwrap();
        }
        for (group, kind, subresource, resource, is_namespaced, is_guess) in [
            ("", "Pod", "", "pods", true, false),
            ("", "Pod", "status", "pods", true, false),
            ("", "Namespace", "", "namespaces", false, false),
            ("networking.k8s.io", "Ingress", "", "ingresses", true, false),
            ("policy", "Eviction", "eviction", "pods", true, false),
            ("example.com", "Fox", "", "foxen", false, false),
            ("example.org", "Fox", "", "foxs", true, true),
        ] {
            let served = kinds.served(group, kind, subresource);
            assert_eq!(
                (served.resource.as_str(), served.is_namespaced, served.is_guess),
                (resource, is_namespaced, is_guess),
                "{group} {kind} {subresource}"
            );
        }
    }
}
