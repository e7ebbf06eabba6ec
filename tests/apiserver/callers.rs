//! Every way in which an API server authenticates, with every version of its reviews.

use crate::cluster::User;
use crate::scenario::{self, Part};

pub(crate) const PART: Part = Part {
    name: "callers",
    users: &[
        User {
            name: "clara",
            groups: &["by-common-name"],
        },
        User {
            name: "beta",
            groups: &["via:v1beta1"],
        },
        User {
            name: "piet",
            groups: &["via:pinned"],
        },
        User {
            name: "tom",
            groups: &["via:token"],
        },
        User {
            name: "tina",
            groups: &["via:token-file"],
        },
        User {
            name: "basil",
            groups: &["via:basic"],
        },
        User {
            name: "jill",
            groups: &["via:jwt"],
        },
    ],
    policies: r#"
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: every-route-reads-config-maps}
spec:
  effect: Allow
  subjects: [{kind: Group, name: "via:*"}, {kind: Group, name: by-common-name}]
  resourceRules:
  - {verbs: [get, list], apiGroups: [""], resources: [configmaps], namespaces: [kittens]}
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: no-route-reads-services}
spec:
  effect: Deny
  subjects: [{kind: Group, name: "via:*"}, {kind: Group, name: by-common-name}]
  resourceRules:
  - {verbs: ["*"], apiGroups: [""], resources: [services]}
  reason: no route reads services
"#,
};

/// Shows that the gateway answers the reviews about a user, to a caller that
/// comes by `method`: only its policies make these differences, and a call that
/// it refused would fail.
fn assert_ruled(user: &str, method: &str) {
    let Some(servers) = scenario::shared() else { return };
    let read = |path: &str| servers.cluster.user(user).get(path).unwrap();
    assert_eq!(read("/api/v1/namespaces/kittens/configmaps").status, 200);
    assert_eq!(read("/api/v1/namespaces/puppies/configmaps").status, 403);
    let services = read("/api/v1/namespaces/kittens/services");
    assert_eq!(services.status, 403);
    assert!(
        services.text().contains("no route reads services"),
        "{}",
        services.text()
    );
    let by_method =
        format!(r#"portcullis_authentication_attempts_total{{method="{method}",result="success"}}"#);
    let callers = servers.gateway.metric(&by_method).unwrap();
    assert!(callers > 0.0, "nobody came by {method}");
}

pub(crate) fn a_client_certificate_names_the_caller_by_common_name() {
    assert_ruled("clara", "certificate");
}

pub(crate) fn the_certificate_of_a_kubeconfig_names_the_caller() {
    assert_ruled("piet", "certificate");
}

pub(crate) fn the_token_of_a_kubeconfig_names_the_caller() {
    assert_ruled("tom", "bearer");
}

pub(crate) fn the_token_file_of_a_kubeconfig_names_the_caller() {
    assert_ruled("tina", "bearer");
}

pub(crate) fn the_password_of_a_kubeconfig_names_the_caller() {
    assert_ruled("basil", "basic");
}

pub(crate) fn a_json_web_token_names_the_caller() {
    assert_ruled("jill", "jwt");
}

pub(crate) fn reviews_in_v1beta1_are_answered_in_v1beta1() {
    assert_ruled("beta", "certificate");
}

pub(crate) fn reviews_in_v1_are_answered_in_v1() {
    assert_ruled("clara", "certificate");
}
