//! Objects in a text of manifests, and the resource of their kind: one of Kubernetes itself, of
//! a CustomResourceDefinition at hand, or guessed.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::written_review::plural;
use crate::authorization::matching::is_known_cluster_scoped;
use crate::document::{Document, Value as DocumentValue};
use crate::field::{Fault, FaultKind, Faults, FieldPath};
use crate::manifest;
use crate::manifest::built_in_resource;

/// What an API server serves a kind as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedAs {
    /// The group of the resource, which of a subresource is not always the kind's.
    pub group: String,
    pub resource: String,
    pub is_namespaced: bool,
    /// Nothing says so: it is what most kinds are.
    pub is_guess: bool,
}

/// The kinds of CustomResourceDefinitions, by group and kind.
#[derive(Debug, Default)]
pub struct CustomKinds(BTreeMap<(String, String), ServedAs>);

impl CustomKinds {
    /// Adds what `document` defines, if it is a CustomResourceDefinition.
    pub fn add(&mut self, document: &Document) {
        let is_definition = document.text("kind") == Some("CustomResourceDefinition")
            && document
                .text("apiVersion")
                .is_some_and(|version| version.starts_with("apiextensions.k8s.io/"));
        let Some(spec) = document.root().get("spec").filter(|_| is_definition) else {
            return;
        };
        let text = |names: &[&str]| {
            let found = names.iter().try_fold(spec, |node, name| node.get(name));
            found.and_then(|node| node.as_str()).map(str::to_owned)
        };
        if let (Some(group), Some(kind), Some(resource)) = (
            text(&["group"]),
            text(&["names", "kind"]),
            text(&["names", "plural"]),
        ) {
            let served = ServedAs {
                group: group.clone(),
                resource,
                is_namespaced: text(&["scope"]).is_none_or(|scope| scope != "Cluster"),
                is_guess: false,
            };
            self.0.insert((group, kind), served);
        }
    }

    /// Adds what an API server says it serves `kind` as.
    pub fn add_served(&mut self, kind: &str, served: ServedAs) {
        let key = (served.group.clone(), kind.to_owned());
        self.0.entry(key).or_insert(served);
    }

    /// As what `kind` of `group` is served, where `subresource` is written; empty for none.
    pub fn served(&self, group: &str, kind: &str, subresource: &str) -> ServedAs {
        if let Some((group, resource)) = built_in_resource(group, kind, subresource) {
            return ServedAs {
                group: group.to_owned(),
                resource: resource.to_owned(),
                is_namespaced: !is_known_cluster_scoped(group, resource),
                is_guess: false,
            };
        }
        let custom = self.0.get(&(group.to_owned(), kind.to_owned()));
        custom.cloned().unwrap_or_else(|| ServedAs {
            group: group.to_owned(),
            resource: plural(kind),
            is_namespaced: true,
            is_guess: true,
        })
    }
}

// The objects of a text of manifests, and what is read of them.

/// Every object in the text of `file`, lists taken apart.
///
/// # Errors
///
/// It is no YAML or JSON, or has something else than objects.
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

/// The text at `path`; none where there is something else.
pub fn text(object: &Document, path: &[&str]) -> Option<String> {
    let node = path.iter().try_fold(object.root(), |node, name| node.get(name));
    node.and_then(|node| node.as_str()).map(str::to_owned)
}

/// Text that may be absent, but nothing else: `n` and `1` are none without quotes.
pub fn written_text(object: &Document, path: &[&str]) -> Result<Option<String>, Fault> {
    let node = path.iter().try_fold(object.root(), |node, name| node.get(name));
    match node.map(|node| (&node.value, node.as_str())) {
        None | Some((DocumentValue::Null, _)) => Ok(None),
        Some((_, Some(text))) => Ok(Some(text.to_owned())),
        Some((_, None)) => {
            let message = "must be text: put it in quotes".to_owned();
            Err(fault(object, path, FaultKind::TypeInvalid, message))
        }
    }
}

/// The text at `path`, which must be there.
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

/// What is wrong at `path`.
pub fn fault(object: &Document, path: &[&str], kind: FaultKind, message: String) -> Fault {
    let path = path.iter().fold(FieldPath::root(), |path, name| path.field(name));
    Fault::error(object.place(path), kind, message)
}

/// Of an `apiVersion`; the core group is the empty text.
pub fn group_and_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// As an API server writes it into what it receives.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_built_in_defined_or_guessed() {
        let definition = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n\
                          spec: {group: example.com, scope: Cluster, names: {kind: Fox, plural: foxen}}";
        let mut kinds = CustomKinds::default();
        for document in crate::document::parse(None, definition).unwrap() {
            kinds.add(&document);
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
