//! A Limit holds whatever the API server's own RBAC grants.

use crate::cluster::User;
use crate::scenario::{self, Part};
use serde_json::json;

pub(crate) const PART: Part = Part {
    name: "limits",
    users: &[
        User {
            name: "lea",
            groups: &["limited"],
        },
        User {
            name: "lia",
            groups: &["limited"],
        },
        User {
            name: "leo",
            groups: &["limited", "limited-to-kittens"],
        },
        User {
            name: "system:node:limited",
            groups: &["system:nodes", "limited"],
        },
    ],
    policies: r#"
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: limited}
spec:
  effect: Limit
  subjects: [{kind: Group, name: limited}]
  resourceRules:
  - {verbs: [get, list, watch], apiGroups: [""], resources: [pods, namespaces]}
  - verbs: [create]
    apiGroups: [authorization.k8s.io, authentication.k8s.io]
    resources: [selfsubjectaccessreviews, selfsubjectrulesreviews, selfsubjectreviews]
  nonResourceRules:
  - {verbs: [get], paths: [/api, "/api/*", /apis, "/apis/*", /openapi, "/openapi/*", /version, /version/]}
  reason: look, and change nothing
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: limited-to-kittens}
spec:
  effect: Limit
  subjects: [{kind: Group, name: limited-to-kittens}]
  resourceRules:
  - {verbs: ["*"], apiGroups: ["*"], resources: ["*"], namespaces: [kittens]}
  - {verbs: [create], apiGroups: [authorization.k8s.io, authentication.k8s.io], resources: ["*"]}
"#,
};

const PODS: &str = "/api/v1/pods";
const KITTENS: &str = "/api/v1/namespaces/kittens/pods";
const PUPPIES: &str = "/api/v1/namespaces/puppies/pods";

pub(crate) fn nothing_that_rbac_grants_is_beyond_it() {
    let Some(servers) = scenario::shared() else { return };
    let cluster = &servers.cluster;
    cluster.grant_everything("lea");
    for path in [
        PODS,
        KITTENS,
        PUPPIES,
        "/api/v1/namespaces",
        "/api",
        "/apis/apps/v1",
        "/openapi/v3",
        "/version",
    ] {
        assert_eq!(cluster.status("lea", path), 200, "{path}");
    }
    for path in [
        "/api/v1/namespaces/kittens/secrets",
        "/api/v1/nodes",
        "/metrics",
        "/logs",
    ] {
        assert_eq!(cluster.status("lea", path), 403, "{path}");
    }
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}});
    let refused = cluster.user("lea").post(KITTENS, &pod).unwrap();
    assert_eq!(refused.status, 403);
    assert!(
        refused
            .text()
            .contains("beyond the limit limited: look, and change nothing"),
        "{}",
        refused.text()
    );
}

pub(crate) fn a_request_must_lie_within_each_limit_of_its_user() {
    let Some(servers) = scenario::shared() else { return };
    let cluster = &servers.cluster;
    cluster.grant_everything("leo");
    assert_eq!(cluster.status("leo", KITTENS), 200);
    for path in [
        PUPPIES,
        PODS,
        "/api/v1/namespaces/kittens/secrets",
        "/api/v1/namespaces",
    ] {
        assert_eq!(cluster.status("leo", path), 403, "{path}");
    }
    // The control plane stands above it.
    cluster.grant_everything("system:node:limited");
    assert_eq!(cluster.status("system:node:limited", "/api/v1/nodes"), 200);
}

pub(crate) fn kubectl_works_within_it() {
    let Some(servers) = scenario::shared() else { return };
    let cluster = &servers.cluster;
    cluster.grant_everything("lia");
    let listed = cluster.kubectl("lia", &["get", "pods", "--namespace", "kittens"]);
    assert!(listed.status.success(), "{listed:?}");
    let whoami = cluster.kubectl("lia", &["auth", "whoami"]);
    assert!(whoami.status.success(), "{whoami:?}");
    let asked = cluster.kubectl("lia", &["auth", "can-i", "delete", "pods"]);
    assert!(
        String::from_utf8_lossy(&asked.stdout).starts_with("no"),
        "{asked:?}"
    );
}
