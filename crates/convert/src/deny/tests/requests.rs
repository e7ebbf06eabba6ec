//! Requests as admission sees them, and what authorization was asked before.

use serde_json::{Value, json};

use portcullis_policy::model::{Attributes, ResourceAttributes, Target, User};

/// A request as admission sees it.
#[derive(Debug, Clone)]
pub(crate) struct Admitted {
    user: &'static str,
    pub(crate) groups: &'static [&'static str],
    operation: &'static str,
    group: &'static str,
    resource: &'static str,
    subresource: &'static str,
    namespace: &'static str,
    name: &'static str,
}

const USERS: [(&str, &[&str]); 7] = [
    ("jane", &["dev"]),
    ("jim", &["team-a", "dev"]),
    ("system:serviceaccount:a:robot", &["system:serviceaccounts"]),
    ("system:node:n1", &["system:nodes"]),
    ("jack", &["system:nodes", "dev"]),
    ("system:kube-scheduler", &["dev"]),
    ("june", &[]),
];

/// Operation, group, resource, subresource, and whether it has a name.
const WRITES: [(&str, &str, &str, &str, bool); 21] = [
    ("CREATE", "", "pods", "", true),
    ("CREATE", "", "pods", "", false),
    ("CREATE", "", "pods", "eviction", true),
    ("UPDATE", "", "pods", "", true),
    ("UPDATE", "", "pods", "status", true),
    ("DELETE", "", "pods", "", true),
    ("DELETE", "", "pods", "", false),
    ("CONNECT", "", "pods", "exec", true),
    ("CONNECT", "", "pods", "attach", true),
    ("CREATE", "apps", "deployments", "", true),
    ("UPDATE", "apps", "deployments", "scale", true),
    ("DELETE", "apps", "deployments", "", false),
    ("CREATE", "", "namespaces", "", true),
    ("UPDATE", "", "namespaces", "", true),
    ("UPDATE", "", "namespaces", "status", true),
    ("DELETE", "", "namespaces", "", true),
    ("CREATE", "", "nodes", "", true),
    ("DELETE", "", "nodes", "", false),
    ("UPDATE", "example.com", "widgets", "", true),
    ("DELETE", "example.com", "widgets", "", false),
    ("DELETE", "example.com", "widgets", "", true),
];

pub(crate) fn requests() -> Vec<Admitted> {
    let mut requests = Vec::new();
    for (user, groups) in USERS {
        for (operation, group, resource, subresource, has_name) in WRITES {
            let places: &[&str] = match resource {
                "nodes" => &[""],
                // The namespace of a Namespace is itself.
                "namespaces" => &["a", "team-x", "b"],
                "widgets" => &["a", "team-x", ""],
                _ => &["a", "team-x", "b"],
            };
            for namespace in places {
                let names: &[&str] = match (has_name, resource) {
                    (false, _) => &[""],
                    (true, "namespaces") => &[namespace],
                    (true, _) => &["x", "a"],
                };
                requests.extend(names.iter().map(|name| Admitted {
                    user,
                    groups,
                    operation,
                    group,
                    resource,
                    subresource,
                    namespace,
                    name,
                }));
            }
        }
    }
    requests
}

impl Admitted {
    pub(crate) fn review(&self) -> String {
        let labels = match self.namespace {
            "a" => json!({"tier": "prod", "kubernetes.io/metadata.name": "a"}),
            "team-x" => json!({"tier": "test", "owned": "by-x", "kubernetes.io/metadata.name": "team-x"}),
            name => json!({"kubernetes.io/metadata.name": name}),
        };
        let kind = json!({"group": self.group, "version": "v1", "kind": "Thing"});
        let resource = json!({"group": self.group, "version": "v1", "resource": self.resource});
        let stored =
            json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "x", "labels": labels}});
        // What is written may have other labels than what is stored.
        let written = json!({"apiVersion": "v1", "kind": "Thing",
            "metadata": {"name": "x", "labels": {"tier": "prod", "owned": "by-x"}}});
        let is_new = matches!(self.operation, "CREATE" | "CONNECT");
        let mut request = json!({
            "uid": "u", "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
            "operation": self.operation,
            "userInfo": {"username": self.user, "groups": self.groups},
            "object": if self.operation == "DELETE" { Value::Null } else { written },
            "oldObject": if is_new { Value::Null } else { stored },
        });
        for (field, value) in [
            ("subResource", self.subresource),
            ("requestSubResource", self.subresource),
            ("namespace", self.namespace),
            ("name", self.name),
        ] {
            if !value.is_empty() {
                request[field] = value.into();
            }
        }
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
            .to_string()
    }

    /// What the API server asked of authorization before, by each verb that can lead there.
    pub(crate) fn asked(&self) -> Vec<Attributes<'static>> {
        let verbs: &[&str] = match self.operation {
            "CREATE" => &["create"],
            "UPDATE" => &["update", "patch"],
            "DELETE" if self.name.is_empty() => &["deletecollection"],
            "DELETE" => &["delete"],
            _ => &["get", "create"],
        };
        let is_new = self.operation == "CREATE" && self.subresource.is_empty();
        let is_new_namespace = is_new && self.resource == "namespaces";
        verbs
            .iter()
            .map(|verb| {
                let target = ResourceAttributes {
                    verb: (*verb).into(),
                    group: self.group.into(),
                    version: "v1".into(),
                    resource: self.resource.into(),
                    subresource: self.subresource.into(),
                    namespace: if is_new_namespace { "" } else { self.namespace }.into(),
                    name: if is_new { "" } else { self.name }.into(),
                    ..ResourceAttributes::default()
                };
                let groups = self.groups.iter().map(|&group| group.into());
                let user = User {
                    name: self.user.into(),
                    groups: groups.collect(),
                    ..User::default()
                };
                let target = Target::Resource(Box::new(target));
                Attributes { user, target }
            })
            .collect()
    }
}
