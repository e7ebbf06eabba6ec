//! Parameter objects: `paramKind` and `paramRef`, resolved.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use super::GroupVersionKind;
use super::apply::Schemas;
use super::matching::is_own_group;
use crate::engine::LabelSelector;
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
    /// One of its objects, which may be meant, is there and was not taken.
    #[error("params of kind `{0}` that the policy binding may mean are not known: they were not taken")]
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
    pub fn beside(mut self, unknown: Option<UnknownObjects>) -> Self {
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
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn mk_kind(kind: &str) -> ParamKind {
        ParamKind {
            api_version: "v1".into(),
            kind: kind.into(),
        }
    }

    fn mk_reference(target: ParamTarget, namespace: &str, not_found: NotFound) -> ParamRef {
        ParamRef {
            target,
            namespace: namespace.into(),
            not_found,
        }
    }

    fn mk_parameters() -> Parameters {
        Parameters::new(
            [
                r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"x","labels":{"l":"1"}}}"#,
                r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b","namespace":"x","labels":{"l":"1"}}}"#,
                r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"y"}}"#,
                r#"{"apiVersion":"v1","kind":"Limit","metadata":{"name":"all"}}"#,
            ]
            .map(|text| Arc::new(Document::parse(text).unwrap())),
        )
    }

    fn found(kind: &str, reference: &ParamRef, namespace: &str) -> Result<Vec<String>, ParamFault> {
        let parameters = mk_parameters();
        let objects = parameters.collect(Some(&mk_kind(kind)), Some(reference), namespace)?;
        let names = objects.iter().flatten().map(|object| {
            let text = |pointer| object.root().pointer(pointer)?.as_str();
            format!(
                "{}/{}",
                text("/metadata/namespace").unwrap_or_default(),
                text("/metadata/name").unwrap()
            )
        });
        Ok(names.collect())
    }

    #[test]
    fn a_policy_without_parameters_runs_once() {
        let parameters = mk_parameters();
        let reference = mk_reference(ParamTarget::Name("a".into()), "", NotFound::Deny);
        assert_eq!(parameters.collect(None, Some(&reference), "x").unwrap().len(), 1);
        assert_eq!(
            parameters
                .collect(Some(&mk_kind("ConfigMap")), None, "x")
                .unwrap()
                .len(),
            1
        );
    }

    #[test]
    fn names_are_looked_up_in_the_namespace_of_the_binding_or_the_request() {
        let named = |namespace| mk_reference(ParamTarget::Name("a".into()), namespace, NotFound::Deny);
        assert_eq!(found("ConfigMap", &named(""), "y").unwrap(), ["y/a"]);
        assert_eq!(found("ConfigMap", &named("x"), "y").unwrap(), ["x/a"]);
        assert_eq!(found("ConfigMap", &named(""), ""), Err(ParamFault::NoNamespace));
        assert_eq!(found("ConfigMap", &named(""), "z"), Err(ParamFault::NotFound));
        let all = mk_reference(ParamTarget::Name("all".into()), "", NotFound::Deny);
        assert_eq!(found("Limit", &all, "x").unwrap(), ["/all"]);
        let wrong = mk_reference(ParamTarget::Name("all".into()), "x", NotFound::Deny);
        assert_eq!(
            found("Limit", &wrong, "x"),
            Err(ParamFault::NamespaceOfClusterScoped)
        );
    }

    #[test]
    fn selectors_give_each_object_in_the_order_of_names() {
        let labels = BTreeMap::from([("l".to_owned(), "1".to_owned())]);
        let some = ParamTarget::Selector(LabelSelector::compile(&labels, &[]).unwrap());
        assert_eq!(
            found("ConfigMap", &mk_reference(some.clone(), "", NotFound::Deny), "x").unwrap(),
            ["x/a", "x/b"]
        );
        assert_eq!(
            found("ConfigMap", &mk_reference(some.clone(), "", NotFound::Allow), "y").unwrap(),
            Vec::<String>::new()
        );
        assert_eq!(
            found("ConfigMap", &mk_reference(some, "", NotFound::Deny), "y"),
            Err(ParamFault::NotFound)
        );
        let all = mk_reference(
            ParamTarget::Selector(LabelSelector::default()),
            "",
            NotFound::Allow,
        );
        assert_eq!(found("ConfigMap", &all, "x").unwrap().len(), 2);
        assert_eq!(
            found("Unknown", &all, "x"),
            Err(ParamFault::NotServed("/v1, Kind=Unknown".into()))
        );
    }

    #[test]
    fn a_kind_that_kubernetes_does_not_have_is_an_error_whatever_is_said_of_missing_ones() {
        for (api_version, kind, is_served) in [
            ("v1", "ConfigMap", true),
            ("v1", "ConfigMop", false),
            ("v2", "ConfigMap", false),
            ("apps/v1", "ConfigMap", false),
            // Of others it is not known.
            ("rules.example.com/v1", "ConfigMop", true),
        ] {
            let param_kind = ParamKind {
                api_version: api_version.into(),
                kind: kind.into(),
            };
            let reference = mk_reference(ParamTarget::Name("none".into()), "", NotFound::Allow);
            let found = Parameters::default().collect(Some(&param_kind), Some(&reference), "x");
            let group_version = if api_version.contains('/') { "" } else { "/" };
            let expected = format!(
                "failed to find resource referenced by paramKind: '{group_version}{api_version}, Kind={kind}'"
            );
            match found {
                Ok(found) => assert!(is_served && found.is_empty(), "{api_version} {kind}"),
                Err(fault) => {
                    assert!(!is_served, "{api_version} {kind}");
                    assert_eq!(fault.to_string(), expected);
                }
            }
        }
    }

    #[test]
    fn what_may_be_missing_is_an_error() {
        let unknown = UnknownObjects {
            parameters: BTreeMap::from([(mk_kind("Limit"), BTreeSet::new())]),
            ..UnknownObjects::default()
        };
        let parameters = mk_parameters().beside(Some(unknown));
        let collect = |kind: &str, target: ParamTarget| {
            let reference = mk_reference(target, "", NotFound::Allow);
            parameters
                .collect(Some(&mk_kind(kind)), Some(&reference), "x")
                .map(|found| found.len())
        };
        let named = |name: &str| ParamTarget::Name(name.into());
        let all = || ParamTarget::Selector(LabelSelector::default());
        let fault = ParamFault::NotSynced("/v1, Kind=ConfigMap".into());
        assert_eq!(collect("ConfigMap", named("a")), Ok(1), "what is there is there");
        assert_eq!(collect("ConfigMap", named("absent")), Err(fault.clone()));
        assert_eq!(collect("ConfigMap", all()), Err(fault));
        assert_eq!(collect("Limit", named("absent")), Ok(0));
    }

    #[test]
    fn what_was_left_out_is_an_error_where_it_may_be_meant() {
        let left_out = [("x", "c"), ("z", "a")].map(|(namespace, name)| (namespace.into(), name.into()));
        let unknown = UnknownObjects {
            parameters: BTreeMap::from([
                (mk_kind("ConfigMap"), left_out.into()),
                (
                    mk_kind("Only"),
                    BTreeSet::from([("x".to_owned(), "a".to_owned())]),
                ),
            ]),
            ..UnknownObjects::default()
        };
        let parameters = mk_parameters().beside(Some(unknown));
        let collect = |kind: &str, namespace: &str, target: ParamTarget| {
            let reference = mk_reference(target, namespace, NotFound::Allow);
            let found = parameters.collect(Some(&mk_kind(kind)), Some(&reference), "y");
            found.map(|found| found.len())
        };
        let named = |name: &str| ParamTarget::Name(name.into());
        let all = || ParamTarget::Selector(LabelSelector::default());
        let fault = |kind: &str| Err(ParamFault::LeftOut(format!("/v1, Kind={kind}")));
        assert_eq!(
            collect("ConfigMap", "x", named("a")),
            Ok(1),
            "another one of its namespace"
        );
        assert_eq!(collect("ConfigMap", "x", named("absent")), Ok(0));
        assert_eq!(collect("ConfigMap", "x", named("c")), fault("ConfigMap"));
        assert_eq!(collect("ConfigMap", "x", all()), fault("ConfigMap"));
        assert_eq!(
            collect("ConfigMap", "", all()),
            Ok(1),
            "that of another namespace"
        );
        assert_eq!(collect("Only", "x", named("a")), fault("Only"));
        assert_eq!(collect("Only", "", named("a")), Ok(0));
    }

    #[test]
    fn where_an_object_cannot_be_told_no_list_is_complete() {
        let nameless = r#"{"apiVersion":"v1","kind":"Limit","metadata":{"labels":{"l":"1"}}}"#;
        let named = r#"{"apiVersion":"v1","kind":"Limit","metadata":{"name":"all"}}"#;
        let objects = [nameless, named].map(|text| Arc::new(Document::parse(text).unwrap()));
        let parameters = Parameters::new(objects);
        let collect = |target: ParamTarget| {
            let reference = mk_reference(target, "", NotFound::Allow);
            let found = parameters.collect(Some(&mk_kind("Limit")), Some(&reference), "x");
            found.map(|found| found.len())
        };
        let fault = ParamFault::NotSynced("/v1, Kind=Limit".into());
        assert_eq!(collect(ParamTarget::Name("all".into())), Ok(1));
        assert_eq!(collect(ParamTarget::Name("other".into())), Err(fault.clone()));
        assert_eq!(
            collect(ParamTarget::Selector(LabelSelector::default())),
            Err(fault)
        );
    }
}
