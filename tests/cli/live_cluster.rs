//! A stand-in for an API server that lists some objects, over plain HTTP.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use portcullis_policy::document;
use serde_json::{Value, json};

use crate::run::Portcullis;

/// What it serves: group, version, resource, kind, whether in namespaces.
const RESOURCES: [(&str, &str, &str, &str, bool); 7] = [
    ("", "v1", "namespaces", "Namespace", false),
    (
        "rbac.authorization.k8s.io",
        "v1",
        "clusterroles",
        "ClusterRole",
        false,
    ),
    (
        "rbac.authorization.k8s.io",
        "v1",
        "clusterrolebindings",
        "ClusterRoleBinding",
        false,
    ),
    ("rbac.authorization.k8s.io", "v1", "roles", "Role", true),
    (
        "rbac.authorization.k8s.io",
        "v1",
        "rolebindings",
        "RoleBinding",
        true,
    ),
    (
        "portcullis.dev",
        "v1alpha1",
        "authorizationpolicies",
        "AuthorizationPolicy",
        false,
    ),
    (
        "portcullis.dev",
        "v1alpha1",
        "authorizationinvariants",
        "AuthorizationInvariant",
        false,
    ),
];

/// Serves the objects of `manifests` until the test ends; writes the kubeconfig `live.yaml`, whose
/// context is in the namespace `prod`.
pub(crate) fn serve(portcullis: &Portcullis, manifests: &str) {
    let documents = document::parse(None, manifests).unwrap();
    let objects: Arc<Vec<Value>> = Arc::new(
        documents
            .iter()
            .map(|document| document.root().to_json())
            .collect(),
    );
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let objects = Arc::clone(&objects);
            std::thread::spawn(move || answer(stream.unwrap(), &objects));
        }
    });
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "prod"}}],
    });
    portcullis.write("live.yaml", &config.to_string());
}

fn answer(mut stream: TcpStream, objects: &[Value]) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut first = String::new();
    reader.read_line(&mut first).unwrap();
    let mut line = String::new();
    while reader.read_line(&mut line).unwrap() > 2 {
        line.clear();
    }
    let path = first.split(' ').nth(1).unwrap_or_default();
    let path = path.split('?').next().unwrap_or_default();
    let body = match path {
        "/version" => json!({"major": "1", "minor": "37"}),
        "/api" => discovery(|group| group.is_empty()),
        "/apis" => discovery(|group| !group.is_empty()),
        path => list(path, objects),
    };
    let body = body.to_string();
    let _ = write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
}

fn discovery(is_served: fn(&str) -> bool) -> Value {
    let mut groups: Vec<(&str, &str)> = RESOURCES
        .iter()
        .map(|(group, version, ..)| (*group, *version))
        .collect();
    groups.dedup();
    let of = |(of_group, version): (&str, &str)| {
        let resources: Vec<Value> = RESOURCES
            .iter()
            .filter(|(group, ..)| *group == of_group)
            .map(|(_, _, resource, kind, is_namespaced)| {
                json!({
                    "resource": resource, "responseKind": {"kind": kind}, "verbs": ["get", "list"],
                    "scope": if *is_namespaced { "Namespaced" } else { "Cluster" },
                })
            })
            .collect();
        json!({"metadata": {"name": of_group}, "versions": [{"version": version, "resources": resources}]})
    };
    let items: Vec<Value> = groups
        .into_iter()
        .filter(|(group, _)| is_served(group))
        .map(of)
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "items": items})
}

fn list(path: &str, objects: &[Value]) -> Value {
    let kind = RESOURCES
        .iter()
        .find(|(_, _, resource, ..)| path.ends_with(&format!("/{resource}")));
    let kind = kind.map_or("", |(.., kind, _)| kind);
    let items: Vec<&Value> = objects.iter().filter(|object| object["kind"] == kind).collect();
    json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items})
}
