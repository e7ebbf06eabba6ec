//! Webhooks in `portcullis admit` and `portcullis test`: nobody is called.

use serde_json::{Value, json};

use crate::harness::reviews::creation_of_pod;
use crate::run::{Portcullis, Run};

/// Two that change and one that judges; at the address nobody listens.
const WEBHOOKS: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: pods}
webhooks:
- name: labels.example.com
  clientConfig: {url: "https://hooks.invalid/labels"}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  reinvocationPolicy: IfNeeded
  sideEffects: None
  admissionReviewVersions: [v1]
- name: image.example.com
  clientConfig: {url: "https://hooks.invalid/image"}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  failurePolicy: Ignore
  sideEffects: None
  admissionReviewVersions: [v1]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: pods}
webhooks:
- name: labels.example.com
  clientConfig: {url: "https://hooks.invalid/judge"}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  sideEffects: None
  admissionReviewVersions: [v1]
"#;

const ANSWERS: &str = r#"
pods/labels.example.com:
- response: {allowed: true, patch: [{op: add, path: /metadata/labels, value: {a: b}}], warnings: [mind the gap]}
- response: {allowed: true}
pods/image.example.com:
  response: {allowed: true, patch: [{op: add, path: /metadata/annotations, value: {c: d}}]}
ValidatingWebhookConfiguration/pods/labels.example.com:
  response: {allowed: false, status: {message: not this label, code: 403}}
"#;

fn review() -> String {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}});
    creation_of_pod("live", &pod).to_string()
}

fn admit(arguments: &str, answers: &str) -> Run {
    let portcullis = Portcullis::new();
    assert_eq!(portcullis.run("init gateway").code, 0);
    portcullis.write("gateway/policies/webhooks.yaml", WEBHOOKS);
    portcullis.write("answers.yaml", answers);
    let arguments = format!("admit --config gateway/portcullis.yaml --review - {arguments}");
    portcullis.run_with(&arguments.split_whitespace().collect::<Vec<_>>(), &review())
}

#[test]
fn without_recorded_answers_nothing_is_decided() {
    let run = admit("", "");
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stdout.starts_with("unknown: "), "{}", run.stdout);
    let first = run.stdout.lines().next().unwrap();
    assert!(
        first.contains("pods/labels.example.com") && first.contains("--answers"),
        "{first}"
    );
    let run = admit("--phase validate -o json", "");
    assert_eq!(run.code, 1, "{run:?}");
    let printed: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(
        (&printed["allowed"], &printed["reply"], &printed["unknown"]),
        (&Value::Null, &Value::Null, &json!(["pods/labels.example.com"]))
    );
}

#[test]
fn recorded_answers_take_the_run_through_the_chain() {
    let run = admit("--answers answers.yaml --phase mutate", ANSWERS);
    assert_eq!(run.code, 0, "{run:?}");
    for said in [
        "allow",
        "warning: mind the gap",
        r#"{"op":"add","path":"/metadata/labels","value":{"a":"b"}}"#,
        r#"{"op":"add","path":"/metadata/annotations","value":{"c":"d"}}"#,
    ] {
        assert!(run.stdout.contains(said), "`{said}`: {}", run.stdout);
    }
    let order = [
        "pods/labels.example.com",
        "pods/image.example.com",
        "once more",
        "pods/labels.example.com",
    ];
    let mut rest = run.stdout.as_str();
    for next in order {
        rest = rest
            .split_once(next)
            .unwrap_or_else(|| panic!("`{next}`: {}", run.stdout))
            .1;
    }
    let run = admit("--answers answers.yaml", ANSWERS);
    assert_eq!(run.code, 1, "{run:?}");
    let denied = r#"deny: admission webhook "labels.example.com" denied the request: not this label (403 "#;
    assert!(run.stdout.starts_with(denied), "{}", run.stdout);
}

#[test]
fn a_recorded_answer_is_believed_no_further_than_another() {
    let patch_of_a_judge = "
pods/labels.example.com: {response: {allowed: true, patch: [{op: add, path: /metadata/labels, value: {a: b}}]}}";
    let run = admit("--answers answers.yaml --phase validate", patch_of_a_judge);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(
        run.stdout.contains("received invalid webhook response"),
        "{}",
        run.stdout
    );
}

#[test]
fn what_is_no_answer_is_2_with_its_place() {
    for (answers, place) in [
        ("a/b: {reply: yes}", "answers.yaml:1: [a/b]: "),
        (
            "a/b:\n- failure: x\n- response: yes",
            "answers.yaml:3: [a/b][1]: ",
        ),
        ("[]", "answers.yaml:1"),
    ] {
        let run = admit("--answers answers.yaml", answers);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{run:?}");
        assert!(run.stderr.contains(place), "`{place}`: {}", run.stderr);
    }
    let run = admit(
        "--answers answers.yaml",
        "pods/label.example.com: {failure: gone}",
    );
    assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{run:?}");
    assert!(
        run.stderr.contains("no webhook `pods/label.example.com`"),
        "{run:?}"
    );
    let run = admit("--answers nowhere.yaml", "");
    assert!(run.code == 2 && run.stderr.contains("nowhere.yaml"), "{run:?}");
}

fn test(cases: &str) -> Run {
    let portcullis = Portcullis::new();
    portcullis.write("webhooks.yaml", WEBHOOKS);
    portcullis.write(
        "suite.yaml",
        &format!(
            "apiVersion: portcullis.dev/v1alpha1\nkind: PolicyTest\nmanifests: [webhooks.yaml]\ncases:\n{cases}"
        ),
    );
    portcullis.run("test suite.yaml")
}

const POD: &str = "{object: {apiVersion: v1, kind: Pod, metadata: {name: p, namespace: live}}}";

#[test]
fn a_suite_says_what_webhooks_answer_and_expects_whom_is_called() {
    let run = test(&format!(
        "- name: chain
  phase: mutate
  review: {POD}
  webhooks:
    pods/labels.example.com: {{response: {{allowed: true}}}}
    pods/image.example.com: {{response: {{allowed: true, patch: [{{op: add, path: /metadata/labels, value: {{a: b}}}}]}}}}
  expect:
    allowed: true
    webhooks: [pods/labels.example.com, pods/image.example.com, pods/labels.example.com]
    object: {{metadata: {{labels: {{a: b}}}}}}
- name: refused
  phase: validate
  review: {POD}
  webhooks: {{pods/labels.example.com: {{response: {{allowed: false}}}}}}
  expect: {{allowed: false, code: 400, cause: ValidatingWebhookConfiguration/pods}}
"
    ));
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (0, "2 passed, 0 failed\n"),
        "{run:?}"
    );
}

#[test]
fn a_case_fails_where_answers_are_missing_or_others_are_called() {
    let run = test(&format!(
        "- {{name: missing, phase: validate, review: {POD}, expect: {{allowed: true}}}}
- name: others
  phase: mutate
  review: {POD}
  webhooks: {{pods/labels.example.com: {{failure: gone}}}}
  expect: {{allowed: false, webhooks: []}}
- {{name: misplaced, request: {{user: a, verb: get, resource: pods}}, expect: {{decision: allow, webhooks: []}}}}
"
    ));
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stdout.contains("cases[2].expect.webhooks"), "{}", run.stdout);
    let run = test(&format!(
        "- {{name: missing, phase: validate, review: {POD}, expect: {{allowed: true}}}}
- name: others
  phase: mutate
  review: {POD}
  webhooks: {{pods/labels.example.com: {{failure: gone}}}}
  expect: {{allowed: false, webhooks: []}}
- name: misspelt
  review: {POD}
  webhooks: {{pods/label.example.com: {{failure: gone}}}}
  expect: {{allowed: true}}
"
    ));
    for said in [
        "  webhooks:\n  - pods/label.example.com\n",
        "  decision:\n  - allowed: true\n  + it depends on the responses of pods/labels.example.com",
        "  webhooks:\n  + pods/labels.example.com\n",
    ] {
        assert!(run.stdout.contains(said), "`{said}`: {}", run.stdout);
    }
}
