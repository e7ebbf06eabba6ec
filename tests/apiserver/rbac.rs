//! The API server's own RBAC: first that it answers at all, then side by side
//! with Portcullis.

use crate::binaries;
use crate::cluster::{Cluster, User};
use crate::harness::folder::Folder;
use serde_json::json;

#[test]
fn an_api_server_without_webhook_rules_by_its_own_rbac() {
    let Some(binaries) = binaries::find() else { return };
    let users = [User {
        name: "alice",
        groups: &["devs"],
    }];
    let flags = ["--authorization-mode=RBAC".to_owned()];
    let cluster = Cluster::start(&binaries, Folder::new("rbac"), &users, &flags);
    cluster.create_namespace("kittens");

    let pods = cluster
        .user("alice")
        .get("/api/v1/namespaces/kittens/pods")
        .unwrap();
    assert_eq!(pods.status, 403, "{}", pods.text());
    let can_list = cluster.kubectl("alice", &["auth", "can-i", "list", "pods"]);
    assert_eq!(String::from_utf8_lossy(&can_list.stdout), "no\n");

    let spec = json!({
        "user": "alice",
        "groups": ["system:authenticated"],
        "nonResourceAttributes": {"path": "/version", "verb": "get"},
    });
    let status = cluster.review(&spec);
    assert_eq!(status["allowed"], true, "{status}");
}
