//! Constrained impersonation (KEP-5284), which kube-apiserver has asked about since 1.36.

use crate::binaries;
use crate::cluster::User;
use crate::harness::client::Response;
use crate::harness::eventually;
use crate::lease::Lease;
use crate::scenario::{self, Part, Scenario};

pub(crate) const PART: Part = Part {
    name: "impersonation",
    users: &[
        User {
            name: "mia",
            groups: &["become-ann"],
        },
        User {
            name: "max",
            groups: &["become-ann"],
        },
        User {
            name: "moe",
            groups: &["become-ann"],
        },
        User {
            name: "sam",
            groups: &[],
        },
        User {
            name: "nia",
            groups: &[],
        },
    ],
    policies: r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: list-pods}
rules:
- {apiGroups: [""], resources: [pods], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: those-who-list-pods}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: list-pods}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: ann}
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:node:imposter"}
- {kind: ServiceAccount, name: robot, namespace: kittens}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: become-ann}
rules:
- {apiGroups: [authentication.k8s.io], resources: [users], verbs: ["impersonate:user-info"], resourceNames: [ann]}
- {apiGroups: [""], resources: [pods], verbs: ["impersonate-on:user-info:list"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: become-ann}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: become-ann}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: become-ann}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: become-robot}
rules:
- {apiGroups: [authentication.k8s.io], resources: [serviceaccounts], verbs: ["impersonate:serviceaccount"]}
- {apiGroups: [""], resources: [pods], verbs: ["impersonate-on:serviceaccount:list"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: sam-becomes-robot}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: become-robot}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: sam}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: become-node}
rules:
- {apiGroups: [authentication.k8s.io], resources: [nodes], verbs: ["impersonate:arbitrary-node"]}
- {apiGroups: [""], resources: [pods], verbs: ["impersonate-on:arbitrary-node:list"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: nia-becomes-node}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: become-node}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: nia}
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: no-pods-for-nia-or-the-imposter}
spec:
  effect: Deny
  subjects: [{kind: User, name: nia}, {kind: User, name: "system:node:imposter"}]
  resourceRules:
  - {verbs: [list], apiGroups: [""], resources: [pods]}
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: no-legacy-impersonation}
spec:
  effect: Deny
  subjects: [{kind: User, name: max}, {kind: User, name: moe}]
  resourceRules:
  - {verbs: [impersonate], apiGroups: [""], resources: [users]}
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: no-constrained-impersonation}
spec:
  effect: Deny
  subjects: [{kind: User, name: moe}]
  resourceRules:
  - {verbs: ["impersonate:user-info"], apiGroups: [authentication.k8s.io], resources: [users]}
  reason: moe stays moe
"#,
};

const PODS: &str = "/api/v1/namespaces/kittens/pods";

fn shared() -> Option<Lease<Scenario>> {
    binaries::since(1, 36)?;
    scenario::shared()
}

fn get_as(servers: &Scenario, user: &str, whom: &str, target: &str) -> Response {
    let client = servers.cluster.user(user).with_header("Impersonate-User", whom);
    client.get(target).unwrap()
}

/// What the gateway was asked about impersonation by the user, once these are `count` questions:
/// verb, resource with its group, namespace and name.
fn asked_about(servers: &Scenario, user: &str, count: usize) -> Vec<String> {
    let asked = || {
        let decisions = servers.gateway.decisions();
        let about = decisions.iter().filter(|line| line["user"] == user);
        let asked = about.map(|line| {
            let of = |field: &str| line["attributes"][field].as_str().unwrap_or_default().to_owned();
            let words = ["verb", "group", "resource", "namespace", "name"].map(of);
            words.join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
        });
        let is_wanted = |question: &String| question.starts_with("impersonate");
        asked.filter(is_wanted).collect::<Vec<_>>()
    };
    // Its lines are written a little later.
    eventually(|| asked().len() >= count);
    asked()
}

pub(crate) fn a_mode_asks_about_the_request_and_about_whoever_is_impersonated() {
    let Some(servers) = shared() else { return };
    assert_eq!(servers.cluster.status("mia", PODS), 403);
    let listed = get_as(&servers, "mia", "ann", PODS);
    assert_eq!(listed.status, 200, "{}", listed.text());
    // Where a mode does not allow it, the legacy verb is asked about after it.
    assert_eq!(get_as(&servers, "mia", "ann", "/api/v1/secrets").status, 403);
    assert_eq!(
        asked_about(&servers, "mia", 4),
        [
            "impersonate-on:user-info:list pods kittens",
            "impersonate:user-info authentication.k8s.io users ann",
            "impersonate-on:user-info:list secrets",
            "impersonate users ann"
        ]
    );
}

pub(crate) fn a_service_account_is_asked_about_in_its_namespace() {
    let Some(servers) = shared() else { return };
    let listed = get_as(&servers, "sam", "system:serviceaccount:kittens:robot", PODS);
    assert_eq!(listed.status, 200, "{}", listed.text());
    assert_eq!(
        asked_about(&servers, "sam", 2),
        [
            "impersonate-on:serviceaccount:list pods kittens",
            "impersonate:serviceaccount authentication.k8s.io serviceaccounts kittens robot"
        ]
    );
}

/// What `portcullis check` warns of.
pub(crate) fn a_deny_on_the_legacy_verb_alone_is_passed_by_a_constrained_mode() {
    let Some(servers) = shared() else { return };
    assert_eq!(get_as(&servers, "max", "ann", PODS).status, 200);
    let refused = get_as(&servers, "moe", "ann", PODS);
    assert_eq!(refused.status, 403);
    assert!(refused.text().contains("moe stays moe"), "{}", refused.text());
}

/// Likewise.
pub(crate) fn whoever_may_impersonate_a_node_passes_every_deny() {
    let Some(servers) = shared() else { return };
    assert_eq!(servers.cluster.status("nia", PODS), 403);
    let listed = get_as(&servers, "nia", "system:node:imposter", PODS);
    assert_eq!(listed.status, 200, "{}", listed.text());
}
