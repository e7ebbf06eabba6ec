//! Reviews around plain manifests: what an API server would ask when they are written to it.

use serde_json::{Value, json};

use super::objects::{
    CustomKinds, ServedAs, fault, group_and_version, required, set_namespace, text, written_text,
};
use super::written_review::{WrittenKind, WrittenResource, WrittenReview, WrittenUser};
use crate::document::Document;
use crate::engine::admission::Operation;
use crate::field::{Fault, FaultKind, Faults, FieldPath};

/// What is done with the objects of manifests, and by whom.
#[derive(Debug, Default)]
pub struct ManifestRequest {
    /// They are created where none is named.
    pub operation: Option<Operation>,
    /// Who does it, and the groups; an administrator where nobody is named.
    pub user: Option<(String, Vec<String>)>,
    /// The subresource that is written, such as `status`; empty for none.
    pub subresource: String,
    /// `RESOURCE[.GROUP]` of the objects, where their kind does not tell.
    pub resource: Option<String>,
    /// The namespace of objects that name none; others may not name another.
    pub namespace: Option<String>,
    /// As for a request that is not to be stored.
    pub dry_run: bool,
    /// The namespace of objects that name none, where `namespace` says nothing.
    pub default_namespace: Option<String>,
}

/// A review, and what it is about.
#[derive(Clone)]
pub struct ReviewOfManifest {
    pub file: String,
    pub line: u32,
    pub kind: String,
    pub namespace: String,
    pub name: String,
    /// An AdmissionReview in JSON.
    pub review: String,
}

/// Reviews, and what is to be known about them.
#[derive(Default)]
pub struct ReviewsOfManifests {
    pub reviews: Vec<ReviewOfManifest>,
    pub notes: Vec<String>,
}

/// What helps where a kind is not known: a note of that ends with it.
pub const ADD_DEFINITION: &str = "add its CustomResourceDefinition to the manifests";

const NO_DEFAULTS: &str =
    "the manifest is judged as it is written: an API server would fill in defaults first";

// === impl ManifestRequest ===

impl ManifestRequest {
    /// Objects are created; those that name no namespace in this one.
    pub fn in_namespace(default_namespace: Option<String>) -> Self {
        Self {
            default_namespace,
            ..Self::default()
        }
    }

    /// A review of each of `objects`. `old` has those that an update replaces. `definitions` are
    /// looked for only where a kind is not known.
    ///
    /// # Errors
    ///
    /// What is missing or wrong in the objects.
    pub fn reviews(
        &self,
        objects: &[Document],
        old: &[Document],
        definitions: impl FnOnce() -> Vec<Document>,
    ) -> Result<ReviewsOfManifests, Faults> {
        let mut kinds = CustomKinds::default();
        let of_others = if objects.iter().any(|object| self.is_unknown(object)) {
            definitions()
        } else {
            Vec::new()
        };
        of_others
            .iter()
            .chain(objects)
            .for_each(|object| kinds.add(object));
        let (mut found, mut faults) = (ReviewsOfManifests::default(), Faults::new());
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

    fn is_unknown(&self, object: &Document) -> bool {
        let (group, _) = group_and_version(object.text("apiVersion").unwrap_or_default());
        let kind = object.text("kind").unwrap_or_default();
        let served = CustomKinds::default().served(group, kind, &self.subresource);
        served.is_guess && self.resource.is_none()
    }

    /// A review of `object`, with more to be known about it in `notes`.
    ///
    /// # Errors
    ///
    /// What is missing or wrong in the object.
    pub fn review(
        &self,
        object: &Document,
        old: &[Document],
        kinds: &CustomKinds,
        notes: &mut Vec<String>,
    ) -> Result<ReviewOfManifest, Fault> {
        let api_version = required(object, &["apiVersion"])?;
        let kind = required(object, &["kind"])?;
        let (group, version) = group_and_version(&api_version);
        let served = self.served(kinds, (group, &kind));
        let namespace = self.namespace_of(object, &served)?;
        if served.is_guess {
            notes.push(format!(
                "the kind `{kind}` of `{api_version}` is not known: it is taken for the resource `{}` in a namespace; \
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
                // That of a subresource's kind may be another group's.
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

    fn served(&self, kinds: &CustomKinds, (group, kind): (&str, &str)) -> ServedAs {
        let served = kinds.served(group, kind, &self.subresource);
        match &self.resource {
            None => served,
            Some(written) => {
                let (resource, own_group) = written.split_once('.').unwrap_or((written, ""));
                ServedAs {
                    group: own_group.to_owned(),
                    resource: resource.to_owned(),
                    is_guess: false,
                    ..served
                }
            }
        }
    }

    /// As an API server has it: that of the object, or else of the request.
    fn namespace_of(&self, object: &Document, served: &ServedAs) -> Result<String, Fault> {
        let path = ["metadata", "namespace"];
        let own = written_text(object, &path)?.filter(|namespace| !namespace.is_empty());
        let asked = self
            .namespace
            .as_deref()
            .filter(|namespace| !namespace.is_empty());
        match (own, asked) {
            (Some(_), _) if !served.is_namespaced => {
                let message = format!("`{}` are in no namespace: take it out", served.resource);
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
                "`--old` does not have this object: it needs one of the same kind, namespace and name";
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
