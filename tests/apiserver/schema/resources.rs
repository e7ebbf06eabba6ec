//! The list of resources by which `check` doubts names, as an API server's discovery has it.

use super::get;
use crate::cluster::Cluster;
use portcullis_policy::admission::matching::Equivalents;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Resources by group and name.
#[derive(Default)]
pub(super) struct Resources(BTreeMap<(String, String), Resource>);

/// A resource over all its versions.
#[derive(Default)]
struct Resource {
    kind: String,
    namespaced: bool,
    verbs: BTreeSet<String>,
    versions: Vec<String>,
}

impl Resources {
    /// Those that an API server serves.
    pub(super) fn of(cluster: &Cluster) -> Self {
        let mut resources = Self::default();
        resources.add("", "v1", &get(cluster, "/api/v1"));
        for group in get(cluster, "/apis")["groups"].as_array().unwrap() {
            let name = group["name"].as_str().unwrap();
            for version in group["versions"].as_array().unwrap() {
                let path = format!("/apis/{}", version["groupVersion"].as_str().unwrap());
                let version = version["version"].as_str().unwrap();
                resources.add(name, version, &get(cluster, &path));
            }
        }
        resources
    }

    fn add(&mut self, group: &str, version: &str, list: &Value) {
        for item in list["resources"].as_array().unwrap() {
            let text = |field: &str| item[field].as_str().unwrap().to_owned();
            let resource = self.0.entry((group.to_owned(), text("name"))).or_default();
            resource.kind = text("kind");
            resource.namespaced = item["namespaced"] == true;
            resource.versions.push(version.to_owned());
            let verbs = item["verbs"].as_array().unwrap();
            resource
                .verbs
                .extend(verbs.iter().map(|verb| verb.as_str().unwrap().to_owned()));
        }
    }

    /// Adds what an older server has beside. Where both have something, it is as here.
    pub(super) fn join(&mut self, older: Self) {
        for (name, resource) in older.0 {
            let own = self.0.entry(name).or_insert_with(|| Resource {
                kind: resource.kind,
                namespaced: resource.namespaced,
                ..Resource::default()
            });
            own.verbs.extend(resource.verbs);
            for version in resource.versions {
                if !own.versions.contains(&version) {
                    own.versions.push(version);
                }
            }
        }
    }

    /// Group, resource, kind, scope, verbs and versions, a line each; of the versions of
    /// Kubernetes named.
    pub(super) fn table(&self, servers: &str) -> String {
        let mut text = format!(
            "# The resources that kube-apiserver {servers} serves: group, resource, kind, scope, verbs, versions.\n\
             # Written by tests/apiserver/write-schema.\n"
        );
        for (name, resource) in &self.0 {
            let verbs: Vec<&str> = resource.verbs.iter().map(String::as_str).collect();
            text += &format!(
                "{} {} {}\n",
                resource.head(name),
                verbs.join(","),
                resource.versions.join(",")
            );
        }
        text
    }

    /// Those of which not every version is known to be the same resource.
    pub(super) fn unequal(&self, equivalents: &Equivalents) -> Vec<String> {
        let is_unequal = |((group, name), resource): &(&(String, String), &Resource)| {
            let known: Vec<_> = equivalents.names(group, name).flatten().collect();
            let knows = |version: &String| known.iter().any(|name| name.version == version.as_str());
            resource.versions.len() > 1 && !name.contains('/') && !resource.versions.iter().all(knows)
        };
        let unequal = self.0.iter().filter(is_unequal);
        unequal.map(|(name, resource)| resource.head(name)).collect()
    }

    /// What `table` lacks of these.
    pub(super) fn missing(&self, table: &str) -> Vec<String> {
        let is_there = |(name, resource): &(&(String, String), &Resource)| {
            table.lines().any(|line| {
                let words: Vec<&str> = line.rsplitn(3, ' ').collect();
                let [versions, verbs, head] = words[..] else {
                    return false;
                };
                let (verbs, versions): (Vec<_>, Vec<_>) =
                    (verbs.split(',').collect(), versions.split(',').collect());
                head == resource.head(name)
                    && resource.verbs.iter().all(|verb| verbs.contains(&verb.as_str()))
                    && resource
                        .versions
                        .iter()
                        .all(|version| versions.contains(&version.as_str()))
            })
        };
        assert!(self.0.len() > 50);
        let missing = self.0.iter().filter(|entry| !is_there(entry));
        missing.map(|(name, resource)| resource.head(name)).collect()
    }
}

impl Resource {
    /// Group, resource, kind and scope.
    fn head(&self, (group, name): &(String, String)) -> String {
        let scope = if self.namespaced { "namespaced" } else { "cluster" };
        let group = if group.is_empty() { "core" } else { group };
        format!("{group} {name} {} {scope}", self.kind)
    }
}
