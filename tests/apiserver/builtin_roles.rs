//! What `init --builtin-roles` writes is what an API server of that version makes by itself.

use crate::binaries::{self, Binaries};
use crate::cluster::Cluster;
use crate::harness::folder::Folder;
use portcullis_cel::Version;
use portcullis_policy::authorization::rbac::bootstrap_policy;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The objects of RBAC by kind, namespace and name.
type Objects = BTreeMap<(String, String, String), Value>;

/// What decides, and what says that the object is the API server's own: the rest is of one cluster.
fn normalized(mut object: Value, kind: &str) -> ((String, String, String), Value) {
    let metadata = object["metadata"].as_object().unwrap().clone();
    let text = |field: &str| {
        metadata
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let key = (kind.to_owned(), text("namespace"), text("name"));
    let own = ["name", "namespace", "labels", "annotations"];
    let kept: Map<String, Value> = metadata
        .iter()
        .filter(|(field, _)| own.contains(&field.as_str()))
        .map(|(field, value)| (field.clone(), value.clone()))
        .collect();
    let fields = object.as_object_mut().unwrap();
    fields.insert("metadata".to_owned(), kept.into());
    fields.remove("apiVersion");
    fields.remove("kind");
    // kube-controller-manager fills in what is aggregated.
    if fields.contains_key("aggregationRule") {
        fields.remove("rules");
    }
    (key, object)
}

/// The objects in a version's file.
fn kept(version: Version) -> Objects {
    let documents = portcullis_policy::document::parse(None, bootstrap_policy(version)).unwrap();
    let values = documents.iter().map(|document| document.root().to_json());
    let named = |value: Value| {
        let kind = value["kind"].as_str().unwrap().to_owned();
        normalized(value, &kind)
    };
    values.map(named).collect()
}

/// The objects that the API server made.
fn made(cluster: &Cluster) -> Objects {
    let mut objects = Objects::new();
    for kind in ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"] {
        let path = format!("/apis/rbac.authorization.k8s.io/v1/{}s", kind.to_lowercase());
        let list = cluster.admin().get(&path).unwrap().json();
        let items = list["items"].as_array().unwrap();
        objects.extend(items.iter().map(|item| normalized(item.clone(), kind)));
    }
    objects
}

fn compare(binaries: Option<Binaries>, version: Version) {
    let Some(binaries) = binaries else { return };
    let flags = ["--authorization-mode=Node,RBAC".to_owned()];
    let cluster = Cluster::start(&binaries, Folder::new("builtin-roles"), &[], &flags);
    let (kept, made) = (kept(version), made(&cluster));
    assert!(made.len() > 100, "{}", made.len());
    let keys = |objects: &Objects| objects.keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&kept), keys(&made));
    for (key, object) in &made {
        assert_eq!(&kept[key], object, "{key:?}");
    }
}

pub(crate) fn the_builtin_roles_are_those_of_the_newest_api_server() {
    compare(binaries::find(), Version::NEWEST);
}

pub(crate) fn the_builtin_roles_are_those_of_the_oldest_api_server() {
    compare(binaries::older(), Version::new(36));
}
