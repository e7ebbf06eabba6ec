//! Whether invariants hold of what is in force, as metrics say.

use std::thread;

use serde_json::{Value, json};

use crate::support::{Gateway, until};

const INVARIANT: &str = "
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationInvariant
metadata: {name: secrets}
spec:
  only: [{kind: Group, name: vault}]
  resourceRules: [{verbs: [get], apiGroups: [\"\"], resources: [secrets]}]
  enforcement: Refuse
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: secrets}
rules: [{verbs: [get], apiGroups: [\"\"], resources: [secrets]}]
";

fn binding(group: &str) -> String {
    format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {{name: secrets}}\n\
         roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: secrets}}\n\
         subjects: [{{kind: Group, apiGroup: rbac.authorization.k8s.io, name: {group}}}]\n"
    )
}

#[test]
fn a_broken_invariant_is_counted_and_stops_nothing() {
    let gateway = Gateway::usual();
    let series = |gateway: &Gateway| {
        let metrics = gateway.metrics();
        let mut lines = metrics.lines();
        let value =
            lines.find_map(|line| line.strip_prefix(r#"portcullis_broken_invariants{name="secrets"} "#));
        value.map(str::to_owned)
    };
    let undecided = |gateway: &Gateway| gateway.metric(r#"portcullis_undecided_invariants{name="secrets"}"#);
    assert_eq!(series(&gateway), None);
    let files = |group: &str| [INVARIANT, &binding(group)].join("---\n");
    for (group, count) in [("vault", "0"), ("dev", "1"), ("vault", "0")] {
        gateway.reload(&[("policies/invariant.yaml", files(group).as_bytes())]);
        until("the invariant is checked", || {
            series(&gateway).as_deref() == Some(count)
        });
    }
    assert_eq!(undecided(&gateway), 0.0);
    let unknown = files("dev").replace(
        "kind: ClusterRole, name: secrets",
        "kind: ClusterRole, name: gone",
    );
    gateway.reload(&[("policies/invariant.yaml", unknown.as_bytes())]);
    until("it is told that it is not decided", || undecided(&gateway) == 1.0);
    assert_eq!(series(&gateway), None);
    gateway.reload(&[("policies/invariant.yaml", b"# nothing\n")]);
    until("the series has ended", || series(&gateway).is_none());
}

/// The review of a binding to `role`, which is written for everybody.
fn review(role: &str) -> String {
    let group = "rbac.authorization.k8s.io";
    json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
        "uid": "u", "kind": {"group": group, "version": "v1", "kind": "ClusterRoleBinding"},
        "resource": {"group": group, "version": "v1", "resource": "clusterrolebindings"},
        "name": "b", "operation": "CREATE", "userInfo": {"username": "jane"},
        "object": {
            "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "b"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "Group", "apiGroup": group, "name": "dev"}],
        },
    }})
    .to_string()
}

fn judged(gateway: &Gateway, role: &str) -> Value {
    let head = "POST /validate?timeout=30s HTTP/1.1\r\nContent-Type: application/json";
    let response = gateway.connect().request(head, review(role).as_bytes());
    response.json()["response"].clone()
}

#[test]
fn a_binding_waits_for_the_role_that_was_written_just_before() {
    let gateway = Gateway::usual();
    let files = [INVARIANT, &binding("vault")].join("---\n");
    gateway.reload(&[("policies/invariant.yaml", files.as_bytes())]);
    let refused = judged(&gateway, "gone");
    assert_eq!(refused["allowed"], false, "{refused}");
    let in_flight = || gateway.metric(r#"portcullis_in_flight_requests{endpoint="validate"}"#);
    // A machine that takes longer to load a file than a binding waits has another try.
    let is_judged_in_time = |attempt: u32| {
        let name = format!("late-{attempt}");
        let role = format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{name: {name}}}\n\
             rules: [{{verbs: [get], apiGroups: [\"\"], resources: [pods]}}]\n"
        );
        thread::scope(|scope| {
            let asked = scope.spawn(|| judged(&gateway, &name));
            until("it is in flight, or over", || {
                in_flight() == 1.0 || asked.is_finished()
            });
            gateway.reload(&[("policies/role.yaml", role.as_bytes())]);
            asked.join().unwrap()["allowed"] == true
        })
    };
    assert!((0..10).any(is_judged_in_time));
}
