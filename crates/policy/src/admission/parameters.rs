//! Parameter objects: `paramKind` and `paramRef`, resolved.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use super::GroupVersionKind;
use super::apply::Schemas;
use super::matching::is_own_group;
use crate::model::LabelSelector;
use portcullis_cel::json::Document;

/// `paramKind`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ParamKind {
    /// Such as `v1` or `rules.example.com/v1`.
    pub api_version: String,
    /// Such as `ConfigMap`.
    pub kind: String,
}

/// `paramRef`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamRef {
    /// The objects that are selected.
    pub target: ParamTarget,
    /// `namespace`; empty for the namespace of the request.
    pub namespace: String,
    /// `parameterNotFoundAction`.
    pub not_found: NotFound,
}

/// The objects that a `paramRef` selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParamTarget {
    /// The object of this name.
    Name(String),
    /// All objects with these labels; the policy is evaluated once for each.
    Selector(LabelSelector),
}

/// `parameterNotFoundAction`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NotFound {
    /// The policy is not evaluated.
    Allow,
    /// An error, to which the failure policy applies.
    Deny,
}

/// Objects that exist, or may exist, but are not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownObjects {
    /// By kind, the namespace and name of each object that is not known. Of a kind that is not
    /// listed, any unknown object may exist.
    pub unknown_of_known_kinds: BTreeMap<ParamKind, BTreeSet<(String, String)>>,
    /// The Namespaces that are not known; `None`: any may exist.
    pub namespaces: Option<BTreeSet<String>>,
}

/// The known parameter objects, by kind, namespace and name.
#[derive(Debug, Clone, Default)]
pub struct Parameters {
    kinds: HashMap<ParamKind, ObjectsByNamespace>,
    /// Objects that are not known; `None`: there are none.
    unknown: Option<UnknownObjects>,
    /// Whether an object has no kind or name, so that it might belong to any kind.
    has_nameless: bool,
}

/// The parameters for which a policy is evaluated, once for each; a policy without parameters has
/// one `None`.
pub(crate) type CollectedParameters = Cow<'static, [Option<Arc<Document<'static>>>]>;

#[derive(Debug, Clone, Default)]
struct ObjectsByNamespace {
    /// Cluster-scoped objects are under the empty namespace.
    namespaces: BTreeMap<String, BTreeMap<String, Arc<Document<'static>>>>,
}

/// Why the parameters cannot be determined.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParamError {
    /// No parameter was found, and `parameterNotFoundAction` is Deny.
    #[error("no params found for policy binding with `Deny` parameterNotFoundAction")]
    NotFound,
    /// The kind is namespaced, but neither the binding nor the request has a namespace.
    #[error("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")]
    NoNamespace,
    /// The kind is cluster-scoped, but the binding names a namespace.
    #[error("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")]
    NamespaceOfClusterScoped,
    /// Not all objects of the kind are known yet.
    #[error("paramKind kind `{0}` not yet synced to use for admission")]
    NotSynced(String),
    /// The group is one of Kubernetes' own and has no such kind.
    #[error("failed to find resource referenced by paramKind: '{0}'")]
    NotServed(String),
    /// An object that the binding may select was left out: it was too large, or there was no memory
    /// for it.
    #[error(
        "a param of kind `{0}` that the policy binding may select is not known: it, or all of its kind, exceeded a limit"
    )]
    LeftOut(String),
}

// === impl UnknownObjects ===

/// No kind of parameters is known completely, but every Namespace is.
impl Default for UnknownObjects {
    fn default() -> Self {
        Self {
            unknown_of_known_kinds: BTreeMap::new(),
            namespaces: Some(BTreeSet::new()),
        }
    }
}

/// Equal values have equal representations.
impl fmt::Display for UnknownObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.unknown_of_known_kinds, self.namespaces)
    }
}

// === impl ParamKind ===

/// As Go prints a `schema.GroupVersionKind`.
impl fmt::Display for ParamKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (group, version) = self
            .api_version
            .split_once('/')
            .unwrap_or(("", &self.api_version));
        write!(f, "{group}/{version}, Kind={}", self.kind)
    }
}

impl ParamKind {
    /// Whether the group is one of Kubernetes' own and has no such kind.
    fn is_unserved(&self) -> bool {
        let (group, version) = self
            .api_version
            .split_once('/')
            .unwrap_or(("", &self.api_version));
        let kind = GroupVersionKind {
            group: group.into(),
            version: version.into(),
            kind: self.kind.as_str().into(),
        };
        is_own_group(group) && Schemas::builtin().know(&kind).is_err()
    }
}

// === impl Parameters ===

impl Parameters {
    /// Indexes these objects. If one has no apiVersion, kind or name, no kind counts as completely
    /// known. An object without a namespace is cluster-scoped.
    #[must_use]
    pub fn new(objects: impl IntoIterator<Item = Arc<Document<'static>>>) -> Self {
        let mut parameters = Self::default();
        parameters.extend(objects);
        parameters
    }

    /// Adds objects, replacing those of the same kind, namespace and name.
    pub(crate) fn extend(&mut self, objects: impl IntoIterator<Item = Arc<Document<'static>>>) {
        for document in objects {
            match identity(&document) {
                Some((kind, namespace, name)) => self.add(kind, namespace, name, document),
                None => self.has_nameless = true,
            }
        }
    }

    /// Sets which objects exist but are not known; `None`: there are none.
    #[must_use]
    pub fn with_unknown(mut self, unknown: Option<UnknownObjects>) -> Self {
        self.unknown = unknown;
        self
    }

    /// The objects of `kind` that are not known; `None`: any may exist.
    fn unknown(&self, kind: &ParamKind) -> Option<&BTreeSet<(String, String)>> {
        static NONE: BTreeSet<(String, String)> = BTreeSet::new();
        match &self.unknown {
            _ if self.has_nameless => None,
            Some(unknown) => unknown.unknown_of_known_kinds.get(kind),
            None => Some(&NONE),
        }
    }

    /// Whether an object of `kind` exists, known or not.
    fn has_any(&self, kind: &ParamKind) -> bool {
        let is_unknown = |unknown: &BTreeSet<_>| !unknown.is_empty();
        self.kinds.contains_key(kind) || self.unknown(kind).is_some_and(is_unknown)
    }

    /// Every object, and what is not known, for tests.
    pub(crate) fn contents(&self) -> Vec<String> {
        let mut told: Vec<String> = Vec::new();
        for (kind, objects) in &self.kinds {
            let documents = objects.namespaces.values().flat_map(BTreeMap::values);
            told.extend(documents.map(|document| document.text().to_owned()));
            told.push(format!("{kind}: but for {:?}", self.unknown(kind)));
        }
        told.push(format!("not known: {:?}", self.unknown));
        told.sort();
        told
    }

    fn add(&mut self, kind: ParamKind, namespace: String, name: String, document: Arc<Document<'static>>) {
        let objects = self.kinds.entry(kind).or_default();
        objects
            .namespaces
            .entry(namespace)
            .or_default()
            .insert(name, document);
    }

    /// Returns the parameters for a binding: the policy is evaluated once for each, once without a
    /// parameter if it has none, and not at all if the list is empty. `namespace` is that of the
    /// request.
    ///
    /// `CollectParams` of `apiserver/pkg/admission/plugin/policy/generic/policy_dispatcher.go`.
    ///
    /// # Errors
    ///
    /// An error to which the failure policy of the policy applies.
    pub fn collect(
        &self,
        kind: Option<&ParamKind>,
        reference: Option<&ParamRef>,
        namespace: &str,
    ) -> Result<CollectedParameters, ParamError> {
        // A newer Kubernetes may have the kind, so an existing object counts.
        if let Some(kind) = kind
            && !self.has_any(kind)
            && kind.is_unserved()
        {
            return Err(ParamError::NotServed(kind.to_string()));
        }
        let (Some(kind), Some(reference)) = (kind, reference) else {
            return Ok(Cow::Borrowed(&WITHOUT));
        };
        let (objects, unknown) = (self.kinds.get(kind), self.unknown(kind));
        let namespace = match self.has_any(kind) {
            true => reference.namespace(is_namespaced(objects, unknown), namespace)?,
            false => "",
        };
        let found = objects.map_or_else(Vec::new, |objects| objects.find(reference, namespace));
        let certain = !found.is_empty() && matches!(reference.target, ParamTarget::Name(_));
        match unknown {
            _ if certain => {}
            None => return Err(ParamError::NotSynced(kind.to_string())),
            Some(unknown) if reference.may_select(unknown, namespace) => {
                return Err(ParamError::LeftOut(kind.to_string()));
            }
            Some(_) => {}
        }
        if found.is_empty() && reference.not_found == NotFound::Deny {
            return Err(ParamError::NotFound);
        }
        Ok(found.into_iter().map(Some).collect())
    }
}

/// An API server knows whether a kind is namespaced; here it counts as namespaced if one of its
/// objects is.
fn is_namespaced(objects: Option<&ObjectsByNamespace>, unknown: Option<&BTreeSet<(String, String)>>) -> bool {
    let known = objects.into_iter().flat_map(|objects| objects.namespaces.keys());
    let unknown = unknown.into_iter().flatten().map(|(namespace, _)| namespace);
    known.chain(unknown).any(|namespace| !namespace.is_empty())
}

// === impl ParamRef ===

impl ParamRef {
    /// The namespace of the objects, for a request in the namespace `request`.
    fn namespace<'n>(&'n self, is_namespaced: bool, request: &'n str) -> Result<&'n str, ParamError> {
        match (is_namespaced, self.namespace.as_str()) {
            (true, "") if request.is_empty() => Err(ParamError::NoNamespace),
            (true, "") => Ok(request),
            (true, named) => Ok(named),
            (false, "") => Ok(""),
            (false, _) => Err(ParamError::NamespaceOfClusterScoped),
        }
    }

    /// Whether one of these objects may be selected in `namespace`.
    fn may_select(&self, objects: &BTreeSet<(String, String)>, namespace: &str) -> bool {
        objects.iter().any(|(of, called)| {
            let is_called = match &self.target {
                ParamTarget::Name(name) => name == called,
                ParamTarget::Selector(_) => true,
            };
            is_called && of == namespace
        })
    }
}

/// One evaluation without a parameter.
static WITHOUT: [Option<Arc<Document<'static>>>; 1] = [None];

/// Kind, namespace and name.
fn identity(document: &Document<'_>) -> Option<(ParamKind, String, String)> {
    let text = |pointer| Some(document.root().pointer(pointer)?.as_str()?.into_owned());
    let kind = ParamKind {
        api_version: text("/apiVersion")?,
        kind: text("/kind")?,
    };
    // An object without a namespace is cluster-scoped.
    let namespace = text("/metadata/namespace").unwrap_or_default();
    Some((kind, namespace, text("/metadata/name")?))
}

// === impl ObjectsByNamespace ===

impl ObjectsByNamespace {
    fn find(&self, reference: &ParamRef, namespace: &str) -> Vec<Arc<Document<'static>>> {
        let objects = self.namespaces.get(namespace);
        match &reference.target {
            ParamTarget::Name(name) => objects
                .and_then(|objects| objects.get(name))
                .cloned()
                .into_iter()
                .collect(),
            ParamTarget::Selector(selector) => objects
                .into_iter()
                .flat_map(BTreeMap::values)
                .filter(|one| has_labels(one, selector))
                .cloned()
                .collect(),
        }
    }
}

fn has_labels(document: &Document<'_>, selector: &LabelSelector) -> bool {
    let labels = document.root().pointer("/metadata/labels");
    selector.matches(|key| labels?.get(key)?.as_str())
}

#[cfg(test)]
mod tests;
