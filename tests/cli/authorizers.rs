//! Other authorizers in `portcullis authorize` and `portcullis test`: listed, never
//! called.

use serde_json::{Value, json};

use crate::run::{Portcullis, Run};

const CONFIGURATION: &str = "apiVersion: config.portcullis.dev/v1alpha1
kind: GatewayConfiguration
server: {tls: {certificate: s.crt, privateKey: s.key}}
authorization:
  webhooks:
  - type: Webhook
    name: of-paths
    webhook:
      timeout: 3s
      subjectAccessReviewVersion: v1
      matchConditionSubjectAccessReviewVersion: v1
      failurePolicy: Deny
      connectionInfo: {type: KubeConfigFile, kubeConfigFile: nowhere.kubeconfig}
      matchConditions: [{expression: has(request.nonResourceAttributes)}]
  - type: Webhook
    name: other
    webhook:
      timeout: 3s
      subjectAccessReviewVersion: v1
      matchConditionSubjectAccessReviewVersion: v1
      failurePolicy: Deny
      connectionInfo: {type: KubeConfigFile, kubeConfigFile: nowhere.kubeconfig}
      matchConditions: [{expression: \"request.resourceAttributes.verb != ''\"}]
";

fn set_up() -> Portcullis {
    let portcullis = Portcullis::new();
    portcullis.write("gateway.yaml", CONFIGURATION);
    portcullis.write("nowhere.kubeconfig", "");
    portcullis
}

fn authorize(arguments: &str) -> Run {
    set_up().run(&format!(
        "authorize --config gateway.yaml --user jane --verb get {arguments}"
    ))
}

#[test]
fn authorize_says_who_would_be_asked_and_asks_nobody() {
    let run = authorize("--resource pods");
    assert_eq!(run.code, 1, "{run:?}");
    for said in [
        "noOpinion: nothing matched here; `other` would be called",
        "Webhook/of-paths  is skipped: `matchConditions[0]` is false",
        "Webhook/other  would be called: all matchConditions are true",
    ] {
        assert!(run.stdout.contains(said), "`{said}`: {run:?}");
    }
    let run = authorize("--resource pods -o json");
    let reported: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(reported["decision"], "noOpinion");
    assert_eq!(
        reported["webhooks"],
        json!([
            {"name": "of-paths", "result": "conditionFalse", "condition": "matchConditions[0]"},
            {"name": "other", "result": "asked"},
        ])
    );
}

#[test]
fn a_condition_without_result_counts_only_where_nobody_is_asked_before() {
    let run = authorize("--path /x");
    assert!(
        run.stdout
            .starts_with("noOpinion: nothing matched here; `of-paths` would"),
        "{run:?}"
    );
    assert!(
        run.stdout
            .contains("Webhook/other  is not called, because a condition failed"),
        "{run:?}"
    );
}

#[test]
fn cases_are_decided_by_recorded_answers() {
    let portcullis = set_up();
    portcullis.write(
        "authorizers_test.yaml",
        "apiVersion: portcullis.dev/v1alpha1
kind: PolicyTest
config: gateway.yaml
cases:
- name: let in
  request: {user: jane, verb: get, resource: pods}
  webhooks: {other: {allowed: true, reason: for once}}
  expect: {decision: allow, cause: Webhook/other, reason: 'allowed by Webhook \"other\": for once'}
- name: refused
  request: {user: jane, verb: get, resource: pods}
  webhooks: {other: {allowed: false, denied: true}}
  expect: {decision: deny, cause: Webhook/other}
- name: a condition without result
  request: {user: jane, verb: get, path: /x}
  webhooks: {of-paths: {allowed: false}}
  expect: {decision: deny, cause: Webhook/other}
- name: protected
  request: {user: 'system:kube-scheduler', verb: get, resource: pods}
  webhooks: {other: {denied: true}}
  expect: {decision: noOpinion}
- name: nobody knows
  request: {user: jane, verb: get, resource: pods}
  expect: {decision: noOpinion}
",
    );
    let run = portcullis.run("test authorizers_test.yaml");
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (0, "5 passed, 0 failed\n"),
        "{run:?}"
    );
}

#[test]
fn a_recorded_answer_of_nobody_fails_its_case_and_one_that_is_none_is_a_fault() {
    let portcullis = set_up();
    let case = |webhooks: &str| {
        format!(
            "apiVersion: portcullis.dev/v1alpha1\nkind: PolicyTest\nconfig: gateway.yaml\ncases:\n- name: c\n  \
             request: {{user: jane, verb: get, resource: pods}}\n  webhooks: {webhooks}\n  expect: {{decision: allow}}\n"
        )
    };
    portcullis.write("a_test.yaml", &case("{stranger: {allowed: true}}"));
    let run = portcullis.run("test a_test.yaml");
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stdout.contains("  webhooks:\n  - stranger\n"), "{run:?}");
    portcullis.write("b_test.yaml", &case("{other: {allowed: 'yes'}}"));
    let run = portcullis.run("test b_test.yaml");
    assert_ne!(run.code, 0, "{run:?}");
    assert!(
        format!("{}{}", run.stdout, run.stderr).contains("cases[0].webhooks[other]"),
        "{run:?}"
    );
}
