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
    /// Which objects.
    pub target: ParamTarget,
    /// The namespace of the objects; empty for that of the request.
    pub namespace: String,
    /// What it means that there is none.
    pub not_found: NotFound,
}

/// Which objects a `paramRef` means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParamTarget {
    /// The one of this name.
    Name(String),
    /// All that have these labels; the policy runs once for each.
    Selector(LabelSelector),
}

/// `parameterNotFoundAction`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NotFound {
    /// The policy does not run.
    Allow,
    /// An error, under the failure policy.
    Deny,
}

/// What there is besides the objects of a set, and is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownObjects {
    /// The kinds of parameters of which every object is known but for these, by namespace and
    /// name. Of other kinds any object may be there.
    pub parameters: BTreeMap<ParamKind, BTreeSet<(String, String)>>,
    /// The Namespaces that are not known; `None`: any may be there.
    pub namespaces: Option<BTreeSet<String>>,
}

/// The parameter objects that are known, by kind, namespace and name.
#[derive(Debug, Clone, Default)]
pub struct Parameters {
    kinds: HashMap<ParamKind, ParameterObjects>,
    /// Which others there are; `None`: none.
    unknown: Option<UnknownObjects>,
    /// An object cannot be told by kind and name: it may be one of any list.
    has_nameless: bool,
}

/// What a policy runs with, once for each; without a parameter, `None`.
pub(crate) type CollectedParameters = Cow<'static, [Option<Arc<Document<'static>>>]>;

#[derive(Debug, Clone, Default)]
struct ParameterObjects {
    /// Objects of cluster-scoped kinds are in the namespace without name.
    namespaces: BTreeMap<String, BTreeMap<String, Arc<Document<'static>>>>,
}

/// Why there are no parameters to run with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParamFault {
    /// `parameterNotFoundAction: Deny`, and there is none.
    #[error("no params found for policy binding with `Deny` parameterNotFoundAction")]
    NotFound,
    /// The kind lives in namespaces, but neither the binding nor the request names one.
    #[error("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")]
    NoNamespace,
    /// The kind is cluster-scoped, but the binding names a namespace.
    #[error("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")]
    NamespaceOfClusterScoped,
    /// Its objects are watched, and not all of them known yet.
    #[error("paramKind kind `{0}` not yet synced to use for admission")]
    NotSynced(String),
    /// Kubernetes has no such kind in this group, which is its own.
    #[error("failed to find resource referenced by paramKind: '{0}'")]
    NotServed(String),
    /// One of its objects that the binding may select was left out: it was too large, or there was no memory for it.
    #[error(
        "a param of kind `{0}` that the policy binding may select is not known: it, or all of its kind, exceeded a limit"
    )]
    LeftOut(String),
}

// === impl UnknownObjects ===

/// No kind of parameters is known, and every Namespace.
impl Default for UnknownObjects {
    fn default() -> Self {
        Self {
            parameters: BTreeMap::new(),
            namespaces: Some(BTreeSet::new()),
        }
    }
}

/// Equal texts for equal objects.
impl fmt::Display for UnknownObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.parameters, self.namespaces)
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
    /// Whether it is in one of Kubernetes' own groups, which has no such kind.
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
    /// These objects. Of one that has no apiVersion, kind or name nobody can say which it
    /// is, so that no list is complete. An object without namespace is cluster-scoped.
    #[must_use]
    pub fn new(objects: impl IntoIterator<Item = Arc<Document<'static>>>) -> Self {
        let mut parameters = Self::default();
        parameters.extend(objects);
        parameters
    }

    /// Adds these, each in place of one of the same kind, namespace and name.
    pub(crate) fn extend(&mut self, objects: impl IntoIterator<Item = Arc<Document<'static>>>) {
        for document in objects {
            match identity(&document) {
                Some((kind, namespace, name)) => self.add(kind, namespace, name, document),
                None => self.has_nameless = true,
            }
        }
    }

    /// The same, where there are these, too; `None`: no others.
    #[must_use]
    pub fn with_unknown(mut self, unknown: Option<UnknownObjects>) -> Self {
        self.unknown = unknown;
        self
    }

    /// Which objects of `kind` there are besides those that are known; `None`: any may be there.
    fn unknown(&self, kind: &ParamKind) -> Option<&BTreeSet<(String, String)>> {
        static NONE: BTreeSet<(String, String)> = BTreeSet::new();
        match &self.unknown {
            _ if self.has_nameless => None,
            Some(unknown) => unknown.parameters.get(kind),
            None => Some(&NONE),
        }
    }

    /// Whether an object of `kind` is there, known or not.
    fn has_any(&self, kind: &ParamKind) -> bool {
        let is_unknown = |unknown: &BTreeSet<_>| !unknown.is_empty();
        self.kinds.contains_key(kind) || self.unknown(kind).is_some_and(is_unknown)
    }

    /// Every object, and of which kinds there is no other, for tests.
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

    /// What a binding makes of them: the policy runs once for each, once
    /// without any where it takes none, and not at all for an empty list.
    /// `namespace` is that of the request.
    ///
    /// `CollectParams` of `apiserver/pkg/admission/plugin/policy/generic/policy_dispatcher.go`.
    ///
    /// # Errors
    ///
    /// What the failure policy of the policy is to judge.
    pub fn collect(
        &self,
        kind: Option<&ParamKind>,
        reference: Option<&ParamRef>,
        namespace: &str,
    ) -> Result<CollectedParameters, ParamFault> {
        // A later version may have it: what is there is there.
        if let Some(kind) = kind
            && !self.has_any(kind)
            && kind.is_unserved()
        {
            return Err(ParamFault::NotServed(kind.to_string()));
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
            None => return Err(ParamFault::NotSynced(kind.to_string())),
            Some(unknown) if reference.may_mean(unknown, namespace) => {
                return Err(ParamFault::LeftOut(kind.to_string()));
            }
            Some(_) => {}
        }
        if found.is_empty() && reference.not_found == NotFound::Deny {
            return Err(ParamFault::NotFound);
        }
        Ok(found.into_iter().map(Some).collect())
    }
}

/// The API server knows of each kind whether it lives in namespaces; here it does if one of its
/// objects does.
fn is_namespaced(objects: Option<&ParameterObjects>, unknown: Option<&BTreeSet<(String, String)>>) -> bool {
    let known = objects.into_iter().flat_map(|objects| objects.namespaces.keys());
    let unknown = unknown.into_iter().flatten().map(|(namespace, _)| namespace);
    known.chain(unknown).any(|namespace| !namespace.is_empty())
}

// === impl ParamRef ===

impl ParamRef {
    /// Where the objects are, for a request in the namespace `request`.
    fn namespace<'n>(&'n self, is_namespaced: bool, request: &'n str) -> Result<&'n str, ParamFault> {
        match (is_namespaced, self.namespace.as_str()) {
            (true, "") if request.is_empty() => Err(ParamFault::NoNamespace),
            (true, "") => Ok(request),
            (true, named) => Ok(named),
            (false, "") => Ok(""),
            (false, _) => Err(ParamFault::NamespaceOfClusterScoped),
        }
    }

    /// Whether one of these may be meant, in `namespace`.
    fn may_mean(&self, objects: &BTreeSet<(String, String)>, namespace: &str) -> bool {
        objects.iter().any(|(of, called)| {
            let is_called = match &self.target {
                ParamTarget::Name(name) => name == called,
                ParamTarget::Selector(_) => true,
            };
            is_called && of == namespace
        })
    }
}

/// Once without a parameter.
static WITHOUT: [Option<Arc<Document<'static>>>; 1] = [None];

/// Kind, namespace and name.
fn identity(document: &Document<'_>) -> Option<(ParamKind, String, String)> {
    let text = |pointer| Some(document.root().pointer(pointer)?.as_str()?.into_owned());
    let kind = ParamKind {
        api_version: text("/apiVersion")?,
        kind: text("/kind")?,
    };
    // One without namespace is cluster-scoped.
    let namespace = text("/metadata/namespace").unwrap_or_default();
    Some((kind, namespace, text("/metadata/name")?))
}

// === impl ParameterObjects ===

impl ParameterObjects {
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
