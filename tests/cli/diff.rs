//! `portcullis diff`.

use serde_json::{Value, json};

use crate::run::{Portcullis, Run};

const OLD: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: view}
aggregationRule: {clusterRoleSelectors: [{matchLabels: {to-view: "true"}}]}
rules: []
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: pods, labels: {to-view: "true"}}
rules: [{verbs: [get, list], apiGroups: [""], resources: [pods]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: secrets}
rules: [{verbs: [get, list], apiGroups: [""], resources: [secrets]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: dev, namespace: prod}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: Group, apiGroup: rbac.authorization.k8s.io, name: dev}]
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: no-contractors}
spec:
  effect: Deny
  subjects: [{kind: Group, name: contractors}]
  resourceRules: [{verbs: ["*"], apiGroups: [""], resources: [secrets], namespaces: ["prod*"]}]
"#;

/// A label that widens an aggregated role.
fn new() -> String {
    OLD.replace("{name: secrets}", "{name: secrets, labels: {to-view: \"true\"}}")
}

fn diff(arguments: &str) -> Run {
    let portcullis = Portcullis::new();
    portcullis.write("old/policies.yaml", OLD);
    portcullis.write("new/policies.yaml", &new());
    portcullis.run(&format!("diff {arguments}"))
}

fn report(run: &Run) -> Value {
    serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{run:?}"))
}

#[test]
fn a_label_that_widens_a_role_is_a_gain_with_a_witness() {
    let run = diff("old new -o json");
    assert_eq!(run.code, 0, "{run:?}");
    let report = report(&run);
    assert_eq!(report["same"], false);
    assert_eq!(
        (&report["losses"], &report["otherwise"]),
        (&json!([]), &json!([]))
    );
    let gains = report["gains"].as_array().unwrap();
    let of_others = gains
        .iter()
        .find(|gain| gain["box"]["groups"]["none"] == json!(["contractors"]));
    assert_eq!(
        of_others.expect("those whom no Deny stops")["box"],
        json!({
            "groups": {"all": ["dev"], "none": ["contractors"]},
            "verbs": {"in": ["get", "list"]}, "apiGroups": {"in": [""]}, "resources": {"in": ["secrets"]},
            "subresources": {"in": [""]}, "namespaces": {"in": ["prod"]},
        })
    );
    for gain in gains {
        assert_eq!(gain["before"], json!({"decision": "noOpinion", "cause": null}));
        assert_eq!(gain["after"]["decision"], "allow");
        assert_eq!(gain["after"]["cause"]["name"], "dev");
        assert_eq!(gain["undecided"], false);
        assert_eq!(
            gain["witness"]["spec"]["resourceAttributes"]["resource"],
            "secrets"
        );
    }
    let back = diff("new old -o json");
    assert_eq!(
        self::report(&back)["losses"].as_array().unwrap().len(),
        gains.len()
    );
}

#[test]
fn what_is_not_to_happen_is_the_exit_code() {
    for (arguments, code) in [
        ("old new --no-new-access", 1),
        ("old new --fail-on loss", 0),
        ("old new --fail-on loss,any", 1),
        ("new old --no-new-access", 0),
        ("new old --fail-on loss", 1),
        ("new new --fail-on any", 0),
        ("old absent", 2),
        ("git:--output=x old", 2),
    ] {
        assert_eq!(diff(arguments).code, code, "{arguments}");
    }
    assert_eq!(diff("old old").stdout, "no request is decided otherwise\n");
    let text = diff("old new").stdout;
    let line = "Group dev without Group contractors: get, list of secrets in the namespace prod\n";
    assert!(text.contains(line), "{text}");
    let markdown = diff("old new -o markdown").stdout;
    assert!(markdown.starts_with("### Gains\n\n| Requests |"), "{markdown}");
}

#[test]
fn a_condition_is_said_with_what_hangs_on_it() {
    let portcullis = Portcullis::new();
    portcullis.write("old/policies.yaml", OLD);
    let opened = OLD.replace(
        "spec:\n  effect: Deny\n",
        "spec:\n  effect: Deny\n  conditions: [{name: night, expression: \"request.extra['at'][0] == 'night'\"}]\n  \
         failurePolicy: NoOpinion\n",
    );
    portcullis.write("new/policies.yaml", &opened);
    let report = report(&portcullis.run("diff old new -o json"));
    assert_eq!(report["gains"], json!([]));
    let otherwise = report["otherwise"].as_array().unwrap();
    assert!(!otherwise.is_empty());
    for change in otherwise {
        assert_eq!(change["before"]["decision"], "deny");
        assert_eq!(change["after"]["decision"], "noOpinion");
    }
}
