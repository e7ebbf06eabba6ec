//! AuthorizationInvariants in `portcullis check` and `portcullis diff`.

use serde_json::{Value, json};

use crate::run::{Portcullis, Run};

const INVARIANT: &str = r#"
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationInvariant
metadata: {name: prod-secrets}
spec:
  only: [{kind: Group, name: vault}]
  resourceRules: [{verbs: [get, list, watch], apiGroups: [""], resources: [secrets], namespaces: ["prod-*"]}]
  enforcement: Refuse
  reason: PCI 7.2
"#;

const ROLE: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: secrets}
rules: [{verbs: [get], apiGroups: [""], resources: [secrets]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: vault, namespace: prod-a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: secrets}
subjects: [{kind: Group, apiGroup: rbac.authorization.k8s.io, name: vault}]
"#;

fn binding(namespace: &str, role: &str, group: &str) -> String {
    format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\n\
         metadata: {{name: {group}, namespace: {namespace}}}\n\
         roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {role}}}\n\
         subjects: [{{kind: Group, apiGroup: rbac.authorization.k8s.io, name: {group}}}]\n"
    )
}

/// `check` of the invariant with these manifests.
fn check(manifests: &[&str], arguments: &str) -> Run {
    let portcullis = Portcullis::new();
    portcullis.write("policies/invariant.yaml", INVARIANT);
    portcullis.write("policies/others.yaml", &manifests.join("---\n"));
    portcullis.run(&format!("check policies {arguments}"))
}

fn report(run: &Run) -> Value {
    serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{run:?}"))
}

#[test]
fn what_only_those_named_may_do_is_proven() {
    let elsewhere = binding("dev", "secrets", "dev");
    let run = check(&[ROLE, &elsewhere], "--strict");
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stdout.contains("proven: 1 invariant; not covered"), "{run:?}");
}

#[test]
fn a_binding_that_breaks_it_is_an_error_at_the_invariant_with_an_example() {
    let breaks = binding("prod-a", "secrets", "dev");
    let run = check(&[ROLE, &breaks], "-o json");
    assert_eq!(run.code, 1, "{run:?}");
    let report = report(&run);
    assert_eq!(report["errors"], 1);
    let fault = &report["faults"][0];
    assert_eq!(fault["object"], "AuthorizationInvariant/prod-secrets");
    assert_eq!(
        fault["message"],
        "broken by RoleBinding/prod-a/dev, rule 0, such as: somebody (dev): get secrets in prod-a"
    );
    assert_eq!(fault["severity"], "error");
}

#[test]
fn a_default_role_counts_as_an_api_server_makes_it() {
    let breaks = binding("prod-a", "edit", "dev");
    let run = check(&[ROLE, &breaks], "");
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stdout.contains("broken by RoleBinding/prod-a/dev"), "{run:?}");
}

#[test]
fn without_rbac_or_a_role_it_is_not_decided() {
    let run = check(&["# none\n"], "");
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stdout.contains("not decided: no RBAC object"), "{run:?}");
    let unknown = binding("prod-a", "nowhere", "dev");
    let run = check(&[ROLE, &unknown], "");
    assert_eq!(run.code, 0, "{run:?}");
    let text =
        "not decided: the ClusterRole `nowhere`, to which the RoleBinding `prod-a/dev` binds, is not known";
    assert!(run.stdout.contains(text), "{run:?}");
}

#[test]
fn what_hangs_on_a_condition_counts_as_broken() {
    let allow = r#"
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: night}
spec:
  effect: Allow
  subjects: [{kind: Group, name: ops}]
  resourceRules: [{verbs: [get], apiGroups: [""], resources: [secrets], namespaces: [prod-a]}]
  conditions: [{name: odd, expression: "EXPRESSION"}]
"#;
    for (expression, said) in [
        // Nothing is known of it.
        (
            "request.extra['at'][0] == 'night'",
            "where request.extra['at'][0] == 'night'",
        ),
        // It holds for some requests, of which one is told.
        (
            "request.uid.size() > 5",
            "such as: somebody (ops): get secrets in prod-a",
        ),
    ] {
        let run = check(&[ROLE, &allow.replace("EXPRESSION", expression)], "");
        assert_eq!(run.code, 1, "{run:?}");
        assert!(run.stdout.contains(said), "{run:?}");
    }
    let never = allow.replace(
        "EXPRESSION",
        "request.resourceAttributes.namespace.endsWith('-b')",
    );
    assert_eq!(check(&[ROLE, &never], "").code, 0);
}

#[test]
fn a_change_that_breaks_it_fails_the_comparison() {
    let portcullis = Portcullis::new();
    for (folder, more) in [
        ("old", "# none\n".to_owned()),
        ("new", binding("prod-a", "secrets", "dev")),
    ] {
        portcullis.write(&format!("{folder}/a.yaml"), INVARIANT);
        portcullis.write(&format!("{folder}/b.yaml"), ROLE);
        portcullis.write(&format!("{folder}/c.yaml"), &more);
    }
    let run = portcullis.run("diff old new -o json");
    assert_eq!(run.code, 1, "{run:?}");
    let report = report(&run);
    let invariant = &report["invariants"][0];
    let expected = json!({
        "name": "prod-secrets",
        "enforcement": "Refuse",
        "before": "holds",
        "after": "broken",
        "objects": [{"kind": "RoleBinding", "namespace": "prod-a", "name": "dev", "rule": 0}],
        "witness": invariant["witness"],
    });
    assert_eq!(invariant, &expected);
    assert_eq!(invariant["witness"]["spec"]["groups"], json!(["dev"]));
    assert_eq!(portcullis.run("diff new new").code, 0);
    assert_eq!(portcullis.run("diff new old").code, 0);
}

#[test]
fn faults_of_an_invariant_name_the_field() {
    let portcullis = Portcullis::new();
    let faulty = INVARIANT
        .replace("  only: [{kind: Group, name: vault}]\n", "")
        .replace("Refuse", "Enforce")
        .replace(
            "namespaces:",
            "unlessSelectors: {field: [{key: a, operator: In, values: [b]}]}, namespaces:",
        );
    portcullis.write("policies/invariant.yaml", &faulty);
    let run = portcullis.run("check policies");
    assert_eq!(run.code, 1, "{run:?}");
    for text in [
        "spec.only: Required value",
        "spec.enforcement: Unsupported value: `Enforce`",
        "spec.resourceRules[0].unlessSelectors: Forbidden",
    ] {
        assert!(run.stdout.contains(text), "{text}: {run:?}");
    }
}

#[test]
fn a_suite_says_how_an_invariant_stands() {
    let portcullis = Portcullis::new();
    portcullis.write("invariant.yaml", INVARIANT);
    portcullis.write("role.yaml", ROLE);
    portcullis.write("breaks.yaml", &binding("prod-a", "secrets", "dev"));
    let suite = |manifests: &str, expected: &str| {
        format!(
            "apiVersion: portcullis.dev/v1alpha1\nkind: PolicyTest\nmetadata: {{name: secrets}}\n\
             manifests: [{manifests}]\ncases:\n- name: only the vault\n  \
             invariant: prod-secrets\n  expect: {{invariant: {expected}}}\n"
        )
    };
    portcullis.write("a_test.yaml", &suite("invariant.yaml, role.yaml", "holds"));
    portcullis.write(
        "b_test.yaml",
        &suite("invariant.yaml, role.yaml, breaks.yaml", "broken"),
    );
    let run = portcullis.run("test a_test.yaml b_test.yaml");
    assert_eq!(run.code, 0, "{run:?}");

    portcullis.write(
        "b_test.yaml",
        &suite("invariant.yaml, role.yaml, breaks.yaml", "holds"),
    );
    let run = portcullis.run("test b_test.yaml");
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stdout.contains("RoleBinding/prod-a/dev"), "{run:?}");
}
