//! Allow, no opinion and deny, and the response that a user gets for each.

use crate::cluster::User;
use crate::scenario::{self, Part};
use serde_json::json;
use std::process::Output;

pub(crate) const PART: Part = Part {
    name: "decisions",
    users: &[
        User {
            name: "alice",
            groups: &["devs"],
        },
        User {
            name: "nora",
            groups: &[],
        },
        User {
            name: "nemo",
            groups: &[],
        },
        User {
            name: "dave",
            groups: &[],
        },
        User {
            name: "pat",
            groups: &[],
        },
        User {
            name: "dora",
            groups: &[],
        },
        User {
            name: "ivy",
            groups: &[],
        },
    ],
    policies: r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: pod-reader, namespace: kittens}
rules:
- {apiGroups: [""], resources: [pods], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: alice-reads-pods, namespace: kittens}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: pod-reader}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: no-secrets-for-dave}
spec:
  effect: Deny
  subjects: [{kind: User, name: dave}]
  resourceRules:
  - {verbs: ["*"], apiGroups: [""], resources: [secrets]}
  reason: secrets are not for dave
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: pat-reads-metrics}
spec:
  effect: Allow
  subjects: [{kind: User, name: pat}]
  nonResourceRules:
  - {verbs: [get], paths: [/metrics, "/metrics/*"]}
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: dora-reads-no-metrics}
spec:
  effect: Deny
  subjects: [{kind: User, name: dora}]
  nonResourceRules:
  - {verbs: [get], paths: [/metrics, "/metrics/*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: become-alice}
rules:
- {apiGroups: [""], resources: [users], verbs: [impersonate], resourceNames: [alice]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: ivy-becomes-alice}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: become-alice}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: ivy}
"#,
};

const KITTENS: &str = "/api/v1/namespaces/kittens/pods";
const PUPPIES: &str = "/api/v1/namespaces/puppies/pods";

pub(crate) fn an_allow_lets_the_request_through() {
    let Some(servers) = scenario::shared() else { return };
    assert_eq!(servers.cluster.status("alice", KITTENS), 200);
    assert_eq!(servers.cluster.status("alice", PUPPIES), 403);

    let status = servers.cluster.review(&json!({
        "user": "alice",
        "resourceAttributes": {"verb": "list", "resource": "pods", "namespace": "kittens"},
    }));
    assert_eq!(status["allowed"], true, "{status}");
    let reason = status["reason"].as_str().unwrap();
    assert!(
        reason.contains("alice-reads-pods"),
        "the reason names the binding: {reason}"
    );
}

pub(crate) fn no_opinion_falls_through_to_rbac() {
    let Some(servers) = scenario::shared() else { return };
    assert_eq!(servers.cluster.status("nora", PUPPIES), 403);
    servers.cluster.grant_everything("nora");
    assert_eq!(servers.cluster.status("nora", PUPPIES), 200);

    let status = servers.cluster.review(&json!({
        "user": "nora",
        "resourceAttributes": {"verb": "list", "resource": "pods", "namespace": "kittens"},
    }));
    let reason = r#"RBAC: allowed by ClusterRoleBinding "nora-may-do-everything" of ClusterRole "cluster-admin" to User "nora""#;
    assert_eq!(status["reason"], reason, "{status}");
}

pub(crate) fn who_is_allowed_by_nobody_is_not_told_why() {
    let Some(servers) = scenario::shared() else { return };
    let answer = servers.cluster.user("nemo").get(PUPPIES).unwrap();
    assert_eq!(answer.status, 403);
    let message = answer.json()["message"].clone();
    let expected = r#"pods is forbidden: User "nemo" cannot list resource "pods" in API group "" in the namespace "puppies""#;
    assert_eq!(message, expected);
}

pub(crate) fn a_deny_beats_rbac() {
    let Some(servers) = scenario::shared() else { return };
    servers.cluster.grant_everything("dave");
    assert_eq!(servers.cluster.status("dave", KITTENS), 200);

    let secrets = servers
        .cluster
        .user("dave")
        .get("/api/v1/namespaces/kittens/secrets")
        .unwrap();
    assert_eq!(secrets.status, 403);
    assert!(
        secrets.text().contains("secrets are not for dave"),
        "{}",
        secrets.text()
    );

    let status = servers.cluster.review(&json!({
        "user": "dave",
        "resourceAttributes": {"verb": "get", "resource": "secrets", "namespace": "kittens", "name": "any"},
    }));
    assert_eq!(
        (&status["allowed"], &status["denied"]),
        (&json!(false), &json!(true)),
        "{status}"
    );
}

pub(crate) fn a_deny_reaches_whoever_asks_for_everything() {
    let Some(servers) = scenario::shared() else { return };
    for (verb, group, resource) in [("*", "", "secrets"), ("get", "*", "secrets"), ("get", "", "*")] {
        let status = servers.cluster.review(&json!({
            "user": "dave",
            "resourceAttributes": {"verb": verb, "group": group, "resource": resource},
        }));
        assert_eq!(status["denied"], true, "{verb} {group} {resource}: {status}");
    }
}

pub(crate) fn non_resource_paths_are_allowed_and_denied() {
    let Some(servers) = scenario::shared() else { return };
    assert_eq!(servers.cluster.status("pat", "/metrics"), 200);
    assert_eq!(servers.cluster.status("pat", "/metrics/slis"), 200);
    assert_eq!(servers.cluster.status("pat", "/debug/pprof/"), 403);

    servers.cluster.grant_everything("dora");
    assert_eq!(servers.cluster.status("dora", "/debug/pprof/"), 200);
    assert_eq!(servers.cluster.status("dora", "/metrics"), 403);
    assert_eq!(servers.cluster.status("dora", "/metrics/slis"), 403);
}

pub(crate) fn impersonation_is_allowed_for_the_names_that_a_rule_lists() {
    let Some(servers) = scenario::shared() else { return };
    let ivy = || servers.cluster.user("ivy");
    let alice = ivy().with_header("Impersonate-User", "alice");
    assert_eq!(
        ivy().get(KITTENS).unwrap().status,
        403,
        "ivy may do nothing herself"
    );
    assert_eq!(
        alice.get(KITTENS).unwrap().status,
        200,
        "as alice she may do what alice may"
    );
    assert_eq!(alice.get(PUPPIES).unwrap().status, 403, "and no more");

    let dave = ivy().with_header("Impersonate-User", "dave");
    let refused = dave.get(KITTENS).unwrap();
    assert_eq!(refused.status, 403);
    assert!(
        refused.text().contains("cannot impersonate"),
        "{}",
        refused.text()
    );
}

pub(crate) fn the_answers_rule_kubectl() {
    let Some(servers) = scenario::shared() else { return };
    let kubectl = |user, arguments: &str| {
        servers
            .cluster
            .kubectl(user, &arguments.split(' ').collect::<Vec<_>>())
    };
    let pods = kubectl("alice", "get pods --namespace kittens");
    assert!(pods.status.success(), "{}", errors(&pods));
    let pods = kubectl("alice", "get pods --namespace puppies");
    assert!(errors(&pods).contains("Forbidden"), "{}", errors(&pods));
    let secrets = kubectl("dave", "get secrets --namespace kittens");
    assert!(
        errors(&secrets).contains("secrets are not for dave"),
        "{}",
        errors(&secrets)
    );
}

pub(crate) fn kubectl_auth_can_i_sees_the_answers() {
    let Some(servers) = scenario::shared() else { return };
    let can_i = |user, question: &str| {
        let arguments: Vec<_> = ["auth", "can-i"].into_iter().chain(question.split(' ')).collect();
        let output = servers.cluster.kubectl(user, &arguments);
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(can_i("alice", "list pods --namespace kittens"), "yes\n");
    assert_eq!(can_i("alice", "list pods --namespace puppies"), "no\n");
    assert_eq!(can_i("pat", "get /metrics"), "yes\n");
    let secrets = can_i("dave", "get secrets --namespace kittens");
    assert!(
        secrets.starts_with("no - ") && secrets.contains("secrets are not for dave"),
        "{secrets}"
    );
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
