//! Namespaces: their labels for selectors, and themselves for expressions.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::MatchError;
use crate::engine::admission::{Operation, Request};
use crate::engine::{LabelSelector, NAMESPACE_NAME_LABEL as NAME_LABEL};
use portcullis_cel::json::{Document, Kind, Node};

/// Where Namespace objects come from: manifests, or the watch of a cluster.
pub trait Namespaces: std::fmt::Debug + Send + Sync {
    /// The Namespace object called `name`, if it is known.
    fn namespace(&self, name: &str) -> Option<Arc<Document<'static>>>;

    /// What holds for the Namespace called `name` where it is not known and `configured` holds for
    /// others: nobody may take one to have no labels whose labels are merely not known.
    fn missing(&self, _name: &str, configured: MissingNamespace) -> MissingNamespace {
        configured
    }
}

/// The Namespaces of manifests.
#[derive(Debug, Clone)]
pub struct FixedNamespaces {
    known: HashMap<String, Arc<Document<'static>>>,
    /// Which others there are; `None`: any may be there.
    left_out: Option<BTreeSet<String>>,
}

/// Namespaces, and others where one is not among them.
#[derive(Debug)]
pub(crate) struct LayeredNamespaces {
    pub(crate) over: FixedNamespaces,
    pub(crate) under: Arc<dyn Namespaces>,
}

/// `admission.missingNamespace`: what holds when a selector asks about a
/// namespace that is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MissingNamespace {
    /// An error, under the failure policy of the caller.
    #[default]
    Fail,
    /// It is taken to have no label but its name.
    NameOnly,
}

// === impl FixedNamespaces ===

impl FixedNamespaces {
    /// These, by `metadata.name`; what has no name is left out.
    #[must_use]
    pub fn new(namespaces: impl IntoIterator<Item = Arc<Document<'static>>>) -> Self {
        let named = namespaces.into_iter().filter_map(|document| {
            let name = document.root().pointer("/metadata/name")?.as_str()?.into_owned();
            Some((name, document))
        });
        Self {
            known: named.collect(),
            left_out: Some(BTreeSet::new()),
        }
    }

    /// The same, where these others are there, too; `None`: any may be.
    #[must_use]
    pub fn beside(self, left_out: Option<BTreeSet<String>>) -> Self {
        Self { left_out, ..self }
    }
}

impl Namespaces for FixedNamespaces {
    fn namespace(&self, name: &str) -> Option<Arc<Document<'static>>> {
        self.known.get(name).cloned()
    }

    fn missing(&self, name: &str, configured: MissingNamespace) -> MissingNamespace {
        match &self.left_out {
            Some(left_out) if !left_out.contains(name) => configured,
            _ => MissingNamespace::Fail,
        }
    }
}

impl Namespaces for LayeredNamespaces {
    fn namespace(&self, name: &str) -> Option<Arc<Document<'static>>> {
        self.over.namespace(name).or_else(|| self.under.namespace(name))
    }

    fn missing(&self, name: &str, configured: MissingNamespace) -> MissingNamespace {
        self.under.missing(name, configured)
    }
}

// === selection ===

/// Whether `selector` selects the request's namespace
/// (`apiserver/pkg/admission/plugin/webhook/predicates/namespace/matcher.go`).
///
/// Cluster-scoped objects always match. A Namespace that is being made or
/// changed is judged by the labels that it is to have.
///
/// # Errors
///
/// [`MatchError::UnknownNamespace`], unless the selector asks for the name alone or
/// `missing` says otherwise.
pub fn selects_namespace(
    selector: &LabelSelector,
    request: &Request<'_>,
    object: Option<Node<'_>>,
    namespaces: &dyn Namespaces,
    missing: MissingNamespace,
) -> Result<bool, MatchError> {
    let is_namespace = request.request_resource.resource == "namespaces";
    if (request.namespace.is_empty() && !is_namespace) || selector.is_empty() {
        return Ok(true);
    }
    let is_written = matches!(request.operation, Operation::Create | Operation::Update);
    if is_namespace && request.subresource.is_empty() && is_written {
        let object = object
            .filter(|object| can_bear_labels(*object))
            .ok_or(MatchError::NoMetadata)?;
        return Ok(selector.matches(|key| label(object, key)));
    }
    selects_by_name(selector, &request.namespace, namespaces, missing)
}

fn selects_by_name(
    selector: &LabelSelector,
    name: &str,
    namespaces: &dyn Namespaces,
    missing: MissingNamespace,
) -> Result<bool, MatchError> {
    // Who deletes a collection of namespaces names none, and none has that label.
    let is_named = !name.is_empty();
    if is_named && selector.keys().all(|key| key == NAME_LABEL) {
        return Ok(selector.matches(|_| Some(name)));
    }
    let own_name = |key: &str| (is_named && key == NAME_LABEL).then_some(Cow::Borrowed(name));
    match (namespaces.namespace(name), namespaces.missing(name, missing)) {
        (Some(document), _) => {
            Ok(selector.matches(|key| own_name(key).or_else(|| label(document.root(), key))))
        }
        (None, MissingNamespace::NameOnly) => Ok(selector.matches(own_name)),
        (None, MissingNamespace::Fail) => Err(MatchError::UnknownNamespace {
            name: name.to_owned(),
        }),
    }
}

// Labels of objects, for selectors.

/// Whether `selector` selects the object that is to be or the one that is
/// (`apiserver/pkg/admission/plugin/webhook/predicates/object/matcher.go`).
///
/// The empty selector selects everything, objects that cannot bear labels too;
/// any other selects none of those.
#[must_use]
pub fn selects_object(
    selector: &LabelSelector,
    object: Option<Node<'_>>,
    old_object: Option<Node<'_>>,
) -> bool {
    selector.is_empty()
        || [object, old_object]
            .into_iter()
            .flatten()
            .any(|object| can_bear_labels(object) && selector.matches(|key| label(object, key)))
}

/// Whether the object is one that can have labels.
pub(crate) fn can_bear_labels(object: Node<'_>) -> bool {
    object
        .get("metadata")
        .is_some_and(|metadata| metadata.kind() == Kind::Object)
}

/// The value of the label `key`.
pub(crate) fn label<'o>(object: Node<'o>, key: &str) -> Option<Cow<'o, str>> {
    object.get("metadata")?.get("labels")?.get(key)?.as_str()
}
