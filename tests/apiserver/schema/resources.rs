//! The list of resources by which `check` doubts names, as an API server's discovery has it.

use super::get;
use crate::cluster::Cluster;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A resource over all its versions.
#[derive(Default)]
struct Resource {
    kind: String,
    namespaced: bool,
    verbs: BTreeSet<String>,
    versions: Vec<String>,
}

/// Group, resource, kind, scope, verbs and versions, a line each.
pub(super) fn list(cluster: &Cluster, version: &str) -> String {
    let mut resources = BTreeMap::new();
    add(&mut resources, "", "v1", &get(cluster, "/api/v1"));
    for group in get(cluster, "/apis")["groups"].as_array().unwrap() {
        let name = group["name"].as_str().unwrap();
        for version in group["versions"].as_array().unwrap() {
            let path = format!("/apis/{}", version["groupVersion"].as_str().unwrap());
            add(
                &mut resources,
                name,
                version["version"].as_str().unwrap(),
                &get(cluster, &path),
            );
        }
    }
    let mut text = format!(
        "# The resources that kube-apiserver {version} serves: group, resource, kind, scope, verbs, versions.\n\
         # Written by tests/apiserver/write-schema.\n"
    );
    for ((group, name), resource) in resources {
        let scope = if resource.namespaced {
            "namespaced"
        } else {
            "cluster"
        };
        let group = if group.is_empty() { "core" } else { &group };
        let verbs: Vec<String> = resource.verbs.into_iter().collect();
        text += &format!(
            "{group} {name} {} {scope} {} {}\n",
            resource.kind,
            verbs.join(","),
            resource.versions.join(",")
        );
    }
    text
}

fn add(resources: &mut BTreeMap<(String, String), Resource>, group: &str, version: &str, list: &Value) {
    for item in list["resources"].as_array().unwrap() {
        let text = |field: &str| item[field].as_str().unwrap().to_owned();
        let resource = resources.entry((group.to_owned(), text("name"))).or_default();
        resource.kind = text("kind");
        resource.namespaced = item["namespaced"] == true;
        resource.versions.push(version.to_owned());
        let verbs = item["verbs"].as_array().unwrap();
        resource
            .verbs
            .extend(verbs.iter().map(|verb| verb.as_str().unwrap().to_owned()));
    }
}
