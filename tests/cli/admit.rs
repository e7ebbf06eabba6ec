//! `portcullis admit`.

use serde_json::{Value, json};

use crate::harness::reviews::creation_of_pod;
use crate::run::{Portcullis, Run};

/// Pods get a label and need an owner; who may exec is asked of RBAC, which lets nobody.
const POLICIES: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: owner}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  matchConditions: [{name: not-system, expression: "!request.userInfo.username.startsWith('system:')"}]
  variables: [{name: labels, expression: "object.metadata.?labels.orValue({})"}]
  validations: [{expression: "'owner' in variables.labels", messageExpression: "'only ' + string(size(variables.labels)) + ' labels'"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: owner-live}
spec: {policyName: owner, validationActions: [Deny], matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: live}}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: owner-other}
spec: {policyName: owner, validationActions: [Deny], matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: other}}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: exec}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CONNECT], resources: [pods/exec]}]}
  validations: [{expression: "authorizer.requestResource.check('create').allowed()"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: exec}
spec: {policyName: exec, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: labelled}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  reinvocationPolicy: Never
  mutations: [{patchType: JSONPatch, jsonPatch: {expression: "[JSONPatch{op: 'add', path: '/metadata/labels', value: {'seen': 'yes'}}]"}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: labelled}
spec: {policyName: labelled}
"#;

fn set_up() -> Portcullis {
    let portcullis = Portcullis::new();
    let run = portcullis.run("init gateway");
    assert_eq!(run.code, 0, "{run:?}");
    portcullis.write("gateway/policies/pods.yaml", POLICIES);
    portcullis
}

fn review(labels: &Value) -> String {
    let metadata = json!({"name": "p", "labels": labels, "generation": 9_007_199_254_740_993_u64});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata});
    creation_of_pod("live", &pod).to_string()
}

fn admit(arguments: &str, review: &str) -> Run {
    let arguments = format!("admit --config gateway/portcullis.yaml --review - {arguments}");
    set_up().run_with(&arguments.split_whitespace().collect::<Vec<_>>(), review)
}

#[test]
fn what_is_refused_is_1_with_each_step_that_led_there() {
    let run = admit("--phase validate", &review(&json!({"a": "b"})));
    assert_eq!(run.code, 1, "{run:?}");
    for said in [
        "deny: ValidatingAdmissionPolicy 'owner' with binding 'owner-live' denied request: only 1 labels (422 Invalid)",
        "cause: ValidatingAdmissionPolicy/owner, rule 0",
        "ValidatingAdmissionPolicy/exec  does not apply: no rule matches the request",
        "ValidatingAdmissionPolicy/owner  applies, as pods.v1",
        "binding owner-other  does not apply: namespaceSelector does not select the namespace",
        "matchCondition not-system: !request.userInfo.username.startsWith('system:')",
        r#"variables.labels: = {"a":"b"}"#,
        "validation 0: 'owner' in variables.labels",
        "= false  (cost ",
        r#"= "only 1 labels""#,
    ] {
        assert!(run.stdout.contains(said), "`{said}`: {}", run.stdout);
    }
    assert!(!run.stdout.contains("MutatingAdmissionPolicy"), "{}", run.stdout);
}

#[test]
fn without_phase_the_object_is_judged_as_changed() {
    let run = admit("", &review(&json!({"owner": "a"})));
    assert_eq!(run.code, 1, "the label is gone by then: {run:?}");
    assert!(
        run.stdout
            .contains(r#"patch: [{"op":"replace","path":"/metadata/labels","value":{"seen":"yes"}}]"#),
        "{}",
        run.stdout
    );
    assert!(run.stdout.contains("only 1 labels"), "{}", run.stdout);
}

#[test]
fn json_has_the_reply_and_the_trace() {
    let run = admit("--phase mutate -o json", &review(&json!({})));
    assert_eq!(run.code, 0, "{run:?}");
    let printed: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(printed["allowed"], true);
    assert_eq!(printed["reply"]["response"]["uid"], "0d9f7c9e-1");
    assert_eq!(printed["reply"]["response"]["patchType"], "JSONPatch");
    let steps: Vec<&str> = printed["trace"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| step["step"].as_str().unwrap())
        .collect();
    assert_eq!(steps, ["phase", "policy", "run", "expression", "changed"]);
    let expression = &printed["trace"][3];
    assert_eq!(expression["part"], "mutation 0");
    assert!(expression["cost"].as_u64().unwrap() > 0, "{expression}");
    assert!(expression["durationSeconds"].is_number(), "{expression}");
    assert_eq!(expression["value"][0]["op"], "add");
}

#[test]
fn one_policy_alone_is_asked_where_one_is_named() {
    let run = admit("--policy exec", &review(&json!({})));
    assert_eq!(run.code, 0, "{run:?}");
    assert!(!run.stdout.contains("owner"), "{}", run.stdout);
    let run = admit("--policy nobody", &review(&json!({})));
    assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{run:?}");
}

#[test]
fn what_is_no_review_is_2() {
    for body in [
        "{",
        r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}"#,
    ] {
        let run = admit("", body);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{run:?}");
        assert!(run.stderr.contains("cannot answer `"), "{run:?}");
    }
}

#[test]
fn what_the_authorizer_allows_may_depend_on_the_time() {
    let portcullis = set_up();
    portcullis.write(
        "gateway/policies/window.yaml",
        "apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: window}
spec:
  effect: Allow
  notAfter: 2026-12-01T18:00:00Z
  subjects: [{kind: User, name: wanda}]
  resourceRules: [{verbs: [create], apiGroups: [\"\"], resources: [pods/exec]}]
",
    );
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "operation": "CONNECT", "name": "p", "namespace": "live", "subResource": "exec",
        "kind": {"group": "", "version": "v1", "kind": "PodExecOptions"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "userInfo": {"username": "wanda"}, "object": {"kind": "PodExecOptions", "apiVersion": "v1"},
    }});
    portcullis.write("exec.json", &review.to_string());
    for (at, code) in [("2026-12-01T17:59:59Z", 0), ("2026-12-01T18:00:00Z", 1)] {
        let run = portcullis.run(&format!(
            "admit --config gateway/portcullis.yaml --review exec.json --phase validate --at {at}"
        ));
        assert_eq!(run.code, code, "{at}: {run:?}");
    }
}
