//! The resource of a kind: of Kubernetes' own, of CustomResourceDefinitions at hand, or guessed.

use std::collections::BTreeMap;

use super::written_review::plural;
use crate::authorization::matching::is_known_cluster_scoped;
use crate::document::Document;
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
