//! Sources of manifests: their streams of documents, with lists flattened; and the configuration
//! that manifests are checked with.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use super::group_of;
use crate::admission::matching::MissingNamespace;
use crate::authorization::authorizer::Authorizer;
use crate::authorization::matching::ClusterScoped;
use crate::authorization::{AccessRequestTrust, NeverDeny, PolicySet, ReviewedResources};
use crate::document;
use crate::document::{Document, Entry, Node, ParseLimits, Value};
use crate::field::{Fault, FaultKind, Faults, FieldPath};
use crate::model::Time;
use portcullis_cel::Version;

/// The contents of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The file's name, for messages.
    pub file: String,
    /// Any number of YAML documents, or JSON.
    pub text: String,
    /// The only cluster that its objects apply to; `None` for every cluster.
    pub cluster: Option<String>,
}

/// The configuration that manifests are checked and assembled with.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options {
    /// The users whom no Deny applies to.
    pub never_deny: NeverDeny,
    /// The clusters of callers; empty if there is one cluster without a name.
    pub clusters: BTreeSet<String>,
    /// The clusters whose objects, including Namespaces, are watched.
    pub watched: BTreeSet<String>,
    /// The custom resources of each cluster that are known to be cluster-scoped.
    pub cluster_scoped: BTreeMap<String, ClusterScoped>,
    /// The requests that `/validate` is known to see, for each cluster where that is known.
    pub reviewed: BTreeMap<String, ReviewedResources>,
    /// Which AccessRequests are effective, for each cluster where AccessRequests are enabled.
    pub access_requests: BTreeMap<String, AccessRequestTrust>,
    /// `admission.missingNamespace`, for warnings.
    pub missing_namespace: MissingNamespace,
    /// The Kubernetes version for which expressions are compiled.
    pub cel_version: Version,
    /// Whether admission enforces Denies and Limits, for warnings about those that it cannot
    /// enforce.
    pub enforce_authorization: bool,
    /// The current time, for warnings about what has expired; `None` for no such warnings.
    pub now: Option<Time>,
    /// The webhooks in the API server's own AuthorizationConfiguration, for warnings about Denies
    /// whose subjects it never asks about; empty if not known.
    pub api_server_webhooks: Vec<Authorizer>,
}

impl Options {
    /// The custom resources of `cluster` that are known to be cluster-scoped.
    pub(crate) fn scoped(&self, cluster: &str) -> &ClusterScoped {
        static NONE: ClusterScoped = ClusterScoped::NONE;
        self.cluster_scoped.get(cluster).unwrap_or(&NONE)
    }

    /// Whether `set` was created with the current options of its cluster.
    pub(crate) fn are_those_of(&self, set: &PolicySet, cluster: &str) -> bool {
        set.cluster_scoped() == self.scoped(cluster)
            && set.reviewed() == self.reviewed.get(cluster)
            && set.access_request_trust() == self.access_requests.get(cluster).copied()
    }
}

/// Returns the objects in `source`, in the order written; none if the source cannot be parsed.
pub fn documents(source: &Source, faults: &mut Faults) -> Vec<Document> {
    let mut objects = Vec::new();
    let is_read = each_document(source, ParseLimits::NONE, faults, |object, _| {
        objects.push(object);
        ControlFlow::Continue(())
    });
    if !is_read {
        objects.clear();
    }
    objects
}

/// Calls `take` for each object in `source`, in the order written, until it breaks. Documents are
/// parsed one at a time. A syntax error is added to `faults`, after the objects before it were
/// taken.
pub fn each_object(source: &Source, faults: &mut Faults, mut take: impl FnMut(Document) -> ControlFlow<()>) {
    each_document(source, ParseLimits::NONE, faults, |object, _| take(object));
}

/// Calls `take` for each object in `source` until it breaks, and returns whether everything up to
/// there could be parsed. Documents are parsed one at a time.
pub(crate) fn each_document(
    source: &Source,
    limits: ParseLimits<'_>,
    faults: &mut Faults,
    mut take: impl FnMut(Document, &mut Faults) -> ControlFlow<()>,
) -> bool {
    let parsed = document::parse_each(Some(&source.file), &source.text, limits, |document| {
        flatten(document, faults, &mut take)
    });
    let is_read = parsed.is_ok();
    faults.extend(parsed.err());
    is_read
}

/// Calls `take` for `document`, or for its items if it is a list. Recursion is bounded by the
/// parser's depth.
fn flatten(
    document: Document,
    faults: &mut Faults,
    take: &mut impl FnMut(Document, &mut Faults) -> ControlFlow<()>,
) -> ControlFlow<()> {
    if !matches!(document.root().value, Value::Map(_)) {
        let place = document.place(FieldPath::root());
        faults.push(Fault::error(
            place,
            FaultKind::TypeInvalid,
            "a manifest must be a mapping",
        ));
        return ControlFlow::Continue(());
    }
    let Some(defaults) = item_type(&document) else {
        match document.root().get("items").map(|items| &items.value) {
            Some(Value::List(_)) => faults.push(items_of_no_list(&document)),
            _ => return take(document, faults),
        }
        return ControlFlow::Continue(());
    };
    let file = document.file().cloned();
    let Value::Map(entries) = document.into_root().value else {
        return ControlFlow::Continue(());
    };
    let items = entries
        .into_iter()
        .find(|entry| entry.key == "items")
        .map(|entry| entry.value.value);
    let Some(Value::List(items)) = items else {
        return ControlFlow::Continue(());
    };
    items
        .into_iter()
        .try_for_each(|item| flatten(defaults.apply(file.clone(), item), faults, take))
}

/// kubectl treats every object with a list `items` as a list (`unstructured.IsList` of
/// apimachinery), and applies the items instead of the object.
fn items_of_no_list(document: &Document) -> Fault {
    Fault::error(
        document.place(FieldPath::root().field("items")),
        FaultKind::Invalid,
        "kubectl applies the objects in `items` instead of this object: write a `List` of `v1`, or separate \
        documents",
    )
}

/// The `apiVersion` and `kind` of the items of a list that do not have these fields: API servers
/// omit them in typed lists.
struct ItemType {
    api_version: Option<String>,
    kind: Option<String>,
}

/// Returns `Some` for a `v1` List, and for a `…List` with `items`.
fn item_type(document: &Document) -> Option<ItemType> {
    let (api_version, kind) = (document.text("apiVersion")?, document.text("kind")?);
    let element = kind.strip_suffix("List")?;
    let items = document.root().get("items").map(|items| &items.value);
    if !matches!(items, None | Some(Value::List(_) | Value::Null)) {
        return None;
    }
    if element.is_empty() && group_of(api_version).is_empty() {
        return Some(ItemType {
            api_version: None,
            kind: None,
        });
    }
    items.map(|_| ItemType {
        api_version: Some(api_version.to_owned()),
        kind: Some(element.to_owned()),
    })
}

impl ItemType {
    fn apply(&self, file: Option<Arc<str>>, mut item: Node) -> Document {
        let line = item.line;
        if let Value::Map(entries) = &mut item.value {
            for (key, value) in [("apiVersion", &self.api_version), ("kind", &self.kind)] {
                let absent = !entries.iter().any(|entry| entry.key == key);
                if let (true, Some(value)) = (absent, value) {
                    let value = Node::new(line, Value::String(value.clone()));
                    entries.insert(
                        0,
                        Entry {
                            key: key.to_owned(),
                            line,
                            column: 0,
                            value,
                        },
                    );
                }
            }
        }
        Document::new(file, item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> (Vec<String>, Faults) {
        let mut faults = Faults::new();
        let source = Source {
            file: "f.yaml".into(),
            text: text.into(),
            cluster: None,
        };
        let objects = documents(&source, &mut faults);
        (objects.iter().map(Document::object).collect(), faults)
    }

    #[test]
    fn streams_and_lists_are_flattened_in_order() {
        let (names, faults) = names(
            "apiVersion: v1\nkind: A\nmetadata: {name: one}\n---\n\
             apiVersion: v1\nkind: List\nitems:\n\
             - {apiVersion: v1, kind: B, metadata: {name: two}}\n\
             - {apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: C, metadata: {name: three}}]}\n",
        );
        assert_eq!(faults.to_string(), "");
        assert_eq!(names, ["A/one", "B/two", "C/three"]);
    }

    #[test]
    fn items_of_a_typed_list_take_its_type() {
        let (names, faults) = names(
            r#"{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleList",
                "items": [{"metadata": {"namespace": "ns", "name": "a"}}]}"#,
        );
        assert_eq!(faults.to_string(), "");
        assert_eq!(names, ["Role/ns/a"]);
    }

    #[test]
    fn an_empty_list_is_no_object() {
        assert_eq!(
            names("{apiVersion: v1, kind: List, items: null}").0,
            Vec::<String>::new()
        );
        assert_eq!(names("{apiVersion: v1, kind: List}").0, Vec::<String>::new());
    }

    #[test]
    fn a_kind_that_only_sounds_like_a_list_is_an_object() {
        let (names, _) = names("{apiVersion: example.com/v1, kind: AllowList, metadata: {name: a}}");
        assert_eq!(names, ["AllowList/a"]);
    }

    #[test]
    fn an_object_that_kubectl_takes_for_a_list_is_a_fault() {
        let items = "items: [{apiVersion: v1, kind: Pod, metadata: {name: p}}]";
        for text in [
            format!("apiVersion: v1\nkind: ConfigMap\n{items}\n"),
            format!("kind: ConfigMap\nmetadata: {{name: a}}\n{items}\n"),
            "apiVersion: v1\nkind: Pod\nitems: []\n".to_owned(),
            format!("apiVersion: v1\nkind: List\nitems:\n- {{apiVersion: v1, kind: ConfigMap, {items}}}\n"),
        ] {
            let (names, faults) = names(&text);
            assert_eq!(names, Vec::<String>::new(), "{text}");
            let faults = faults.to_string();
            assert!(
                faults.contains("items: Invalid value: kubectl applies"),
                "{text}: {faults}"
            );
        }
        assert_eq!(names("{apiVersion: v1, kind: A, items: {a: b}}").0, ["A"]);
    }

    #[test]
    fn what_is_no_mapping_is_a_fault() {
        let (names, faults) = names("- a\n- b\n");
        assert_eq!(names, Vec::<String>::new());
        assert_eq!(
            faults.to_string(),
            "f.yaml:1: Invalid type: a manifest must be a mapping"
        );
    }
}
