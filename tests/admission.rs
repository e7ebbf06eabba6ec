//! Admission policies from manifests, asked by reviews: the whole inner ring together.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "admission/exceptions.rs"]
mod exceptions;
#[path = "admission/judge.rs"]
mod judge;

use portcullis::engine::Time;
use serde_json::{Value, json};

use portcullis::api::AdmissionReview;
use portcullis::engine::admission::webhook::nobody;
use portcullis::engine::admission::{AdmissionSet, AdmissionSettings, Chain, Outcome, Phase, Run};
use portcullis::engine::authorization::PolicySet;
use portcullis::json::Document;
use portcullis::manifest::{Options, Source, load};
use std::sync::Arc;

/// The policies of manifests, which must be sound.
fn mk_set(text: &str) -> Arc<AdmissionSet> {
    let source = Source {
        file: "f.yaml".into(),
        text: text.into(),
        cluster: None,
    };
    let (manifests, faults) = load(&[source], &Options::default());
    let manifests = manifests.unwrap_or_else(|| panic!("{faults}"));
    Arc::clone(
        manifests
            .admission(&AdmissionSettings::default())
            .for_cluster("default"),
    )
}

/// The faults of manifests, without their places in the file.
fn faults(text: &str) -> Vec<String> {
    let source = Source {
        file: "f.yaml".into(),
        text: text.into(),
        cluster: None,
    };
    let (_, faults) = load(&[source], &Options::default());
    faults
        .iter()
        .map(|fault| format!("{}: {}", fault.place.path, fault.kind.as_str()))
        .collect()
}

fn mk_review(object: &Value) -> Value {
    json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "u",
            "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
            "resource": {"group": "", "version": "v1", "resource": "configmaps"},
            "name": "c", "namespace": "ns", "operation": "CREATE",
            "userInfo": {"username": "alice", "groups": ["devs"]},
            "object": object, "oldObject": null, "dryRun": false,
        },
    })
}

fn validated(set: &AdmissionSet, review: &Value) -> Outcome {
    let document = Document::parse(review.to_string()).unwrap();
    let review = AdmissionReview::decode(&document).unwrap();
    let (access, request) = (PolicySet::default(), &review.request);
    Chain::run(
        Phase::Validate,
        set,
        request,
        Run::new(&access, Time::UNIX_EPOCH),
        &mut nobody,
    )
}

fn message(outcome: &Outcome) -> &str {
    outcome
        .denial
        .as_ref()
        .map_or("allowed", |denial| denial.message.as_str())
}

/// A policy `p` for configmaps, bound by `b`, with `spec` beside its constraints.
fn mk_policy(spec: &str, actions: &str) -> String {
    format!(
        "apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: p}}
spec:
  matchConstraints: {{resourceRules: [{{apiGroups: [''], apiVersions: [v1], operations: ['*'], resources: [configmaps]}}]}}
{spec}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: b}}
spec: {{policyName: p, validationActions: [{actions}]}}
"
    )
}

#[test]
fn a_validation_that_fails_refuses_with_its_message() {
    let text = mk_policy(
        "  variables: [{name: size, expression: \"size(object.data)\"}]
  validations:
  - {expression: \"variables.size < 2\", message: too large, reason: RequestEntityTooLarge}
  - {expression: \"'a' in object.data\", messageExpression: \"'no a among ' + string(variables.size)\"}",
        "Deny",
    );
    let set = mk_set(&text);
    let with = |data: Value| {
        validated(
            &set,
            &mk_review(&json!({"metadata": {"name": "c"}, "data": data})),
        )
    };
    assert_eq!(message(&with(json!({"a": "1"}))), "allowed");

    let large = with(json!({"a": "1", "b": "2"}));
    assert_eq!(
        message(&large),
        "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: too large"
    );
    let denial = large.denial.unwrap();
    assert_eq!(
        (
            denial.code,
            denial.details.name.as_str(),
            denial.details.kind.as_str()
        ),
        (413, "c", "configmaps")
    );
    assert_eq!(large.cause.unwrap().rule, Some(0));

    let other = with(json!({"b": "1"}));
    assert_eq!(
        message(&other),
        "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no a among 1"
    );
    assert_eq!(other.denial.unwrap().code, 422);
}

#[test]
fn an_error_is_judged_by_the_failure_policy() {
    let broken = "  validations: [{expression: \"object.missing.field == 1\"}]";
    let refused = validated(&mk_set(&mk_policy(broken, "Deny")), &mk_review(&json!({})));
    assert!(
        message(&refused).contains("no such key: missing"),
        "{}",
        message(&refused)
    );
    let ignoring = format!("  failurePolicy: Ignore\n{broken}");
    let allowed = validated(&mk_set(&mk_policy(&ignoring, "Deny")), &mk_review(&json!({})));
    assert_eq!(message(&allowed), "allowed");
}

#[test]
fn warnings_and_audit_let_the_request_pass() {
    let text = mk_policy(
        "  validations: [{expression: 'false', message: 'no'}]
  auditAnnotations: [{key: who, valueExpression: 'request.userInfo.username'}, {key: none, valueExpression: 'null'}]",
        "Warn, Audit",
    );
    let outcome = validated(&mk_set(&text), &mk_review(&json!({})));
    assert_eq!(message(&outcome), "allowed");
    assert_eq!(
        outcome.warnings.iter().collect::<Vec<_>>(),
        ["Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': no"]
    );
    let failures: Value = serde_json::from_str(
        &outcome.audit_annotations["validation.policy.admission.k8s.io/validation_failure"],
    )
    .unwrap();
    assert_eq!(
        failures,
        json!([{"message": "no", "policy": "p", "binding": "b", "expressionIndex": 0,
                "validationActions": ["Warn", "Audit"]}])
    );
    assert_eq!(outcome.audit_annotations["p/who"], "alice");
    assert_eq!(outcome.audit_annotations.len(), 2);
}

#[test]
fn match_conditions_decide_whether_the_policy_applies() {
    let text = mk_policy(
        "  matchConditions: [{name: devs, expression: \"'devs' in request.userInfo.groups\"}]
  validations: [{expression: 'false'}]",
        "Deny",
    );
    let set = mk_set(&text);
    let mut review = mk_review(&json!({}));
    assert!(validated(&set, &review).denial.is_some());
    review["request"]["userInfo"]["groups"] = json!(["ops"]);
    assert!(validated(&set, &review).denial.is_none());
    review["request"]["userInfo"] = json!({});
    assert!(message(&validated(&set, &review)).contains("no such key: groups"));
}

#[test]
fn a_policy_runs_once_for_each_parameter() {
    let text = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: p}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}
  validations: [{expression: \"!(params.data.forbidden in object.data)\", messageExpression: \"string(params.data.forbidden)\"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: b}
spec:
  policyName: p
  validationActions: [Warn]
  paramRef: {selector: {}, parameterNotFoundAction: Deny}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: one, namespace: ns}, data: {forbidden: x}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: two, namespace: ns}, data: {forbidden: 'y'}}
";
    let set = mk_set(text);
    let outcome = validated(&set, &mk_review(&json!({"data": {"x": "", "y": ""}})));
    let warnings: Vec<_> = outcome
        .warnings
        .iter()
        .map(|text| text.rsplit(' ').next().unwrap())
        .collect();
    assert_eq!(warnings, ["x", "y"]);
    let mut elsewhere = mk_review(&json!({"data": {}}));
    elsewhere["request"]["namespace"] = "other".into();
    assert_eq!(
        message(&validated(&set, &elsewhere)),
        "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: failed to configure binding: \
         no params found for policy binding with `Deny` parameterNotFoundAction"
    );
}

#[test]
fn the_namespace_of_the_object_is_known_from_manifests() {
    let policy = mk_policy(
        "  validations: [{expression: \"namespaceObject.metadata.labels.env == 'prod'\"}]",
        "Deny",
    );
    let text = format!(
        "{policy}---\n{{apiVersion: v1, kind: Namespace, metadata: {{name: ns, labels: {{env: prod}}}}}}\n"
    );
    assert_eq!(
        message(&validated(&mk_set(&text), &mk_review(&json!({})))),
        "allowed"
    );
    assert!(
        validated(&mk_set(&policy), &mk_review(&json!({})))
            .denial
            .is_some()
    );
}

#[test]
fn policies_do_not_judge_policies_or_reviews_of_access() {
    let text = mk_policy("  validations: [{expression: 'false'}]", "Deny")
        .replace("configmaps", "'*'")
        .replace("['']", "['*']");
    let set = mk_set(&text);
    for (group, resource, judged) in [
        (
            "admissionregistration.k8s.io",
            "validatingadmissionpolicies",
            false,
        ),
        (
            "admissionregistration.k8s.io",
            "validatingwebhookconfigurations",
            true,
        ),
        ("authorization.k8s.io", "subjectaccessreviews", false),
        ("", "secrets", true),
    ] {
        let mut review = mk_review(&json!({}));
        review["request"]["resource"] = json!({"group": group, "version": "v1", "resource": resource});
        assert_eq!(validated(&set, &review).denial.is_some(), judged, "{resource}");
    }
}

#[test]
fn a_review_may_be_limited_to_one_policy() {
    let set = mk_set(&mk_policy("  validations: [{expression: 'false'}]", "Deny"));
    let document = Document::parse(mk_review(&json!({})).to_string()).unwrap();
    let review = AdmissionReview::decode(&document).unwrap();
    let run = |only| {
        let access = PolicySet::default();
        let run = Run {
            only: Some(only),
            ..Run::new(&access, Time::UNIX_EPOCH)
        };
        Chain::run(Phase::Validate, &set, &review.request, run, &mut nobody)
    };
    assert!(run("p").denial.is_some());
    assert!(run("q").denial.is_none());
}

#[test]
fn every_fault_of_a_policy_is_told_with_its_field() {
    let text = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: p}
spec:
  failurePolicy: Perhaps
  paramKind: {apiVersion: a/b/c, kind: '9'}
  matchConstraints:
    resourceRules: [{apiGroups: ['', '*'], apiVersions: [''], operations: [GET], resources: [pods/*, pods/log], scope: World}]
    objectSelector: {matchLabels: {'a b': c}}
  matchConditions: [{name: '', expression: '1'}]
  variables: [{name: in, expression: 'object.'}]
  validations: [{expression: 'object', message: \"a\\nb\", reason: Teapot}]
  auditAnnotations: [{key: a/b, valueExpression: '1'}]
";
    assert_eq!(
        faults(text),
        [
            "spec.failurePolicy: Unsupported value",
            "spec.paramKind.apiVersion: Invalid value",
            "spec.paramKind.kind: Invalid value",
            "spec.matchConstraints.objectSelector.matchLabels: Invalid value",
            "spec.matchConstraints.resourceRules[0].operations[0]: Unsupported value",
            "spec.matchConstraints.resourceRules[0].apiGroups: Invalid value",
            "spec.matchConstraints.resourceRules[0].apiVersions[0]: Required value",
            "spec.matchConstraints.resourceRules[0].resources[1]: Invalid value",
            "spec.matchConstraints.resourceRules[0].scope: Unsupported value",
            "spec.matchConditions[0].expression: Invalid value",
            "spec.matchConditions[0].name: Required value",
            "spec.variables[0].name: Invalid value",
            "spec.variables[0].expression: Invalid value",
            "spec.validations[0].expression: Invalid value",
            "spec.validations[0].message: Invalid value",
            "spec.validations[0].reason: Unsupported value",
            "spec.auditAnnotations[0].key: Invalid value",
            "spec.auditAnnotations[0].valueExpression: Invalid value",
        ]
    );
}

// === mutation ===

fn mk_mutation(name: &str, reinvocation: &str, patch: &str) -> String {
    format!(
        "---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {{name: {name}}}
spec:
  matchConstraints: {{resourceRules: [{{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}}]}}
  reinvocationPolicy: {reinvocation}
  mutations: [{{patchType: JSONPatch, jsonPatch: {{expression: \"{patch}\"}}}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {{name: {name}}}
spec: {{policyName: {name}}}
"
    )
}

fn mutated(text: &str, object: &Value) -> Outcome {
    let set = mk_set(text);
    let document = Document::parse(mk_review(object).to_string()).unwrap();
    let review = AdmissionReview::decode(&document).unwrap();
    let (access, request) = (PolicySet::default(), &review.request);
    Chain::run(
        Phase::Mutate,
        &set,
        request,
        Run::new(&access, Time::UNIX_EPOCH),
        &mut nobody,
    )
}

#[test]
fn mutations_become_one_small_patch() {
    let text = mk_mutation(
        "a",
        "Never",
        "[JSONPatch{op: 'add', path: '/data/a~1b', value: string(size(object.data))}]",
    ) + &mk_mutation(
        "b",
        "Never",
        "[JSONPatch{op: 'add', path: '/data/c', value: object.data['a/b'] + '!'}]",
    );
    let outcome = mutated(
        &text,
        &json!({"data": {"x": "1"}, "big": 9_007_199_254_740_993_u64}),
    );
    assert_eq!(outcome.denial, None);
    assert_eq!(
        serde_json::from_str::<Value>(&outcome.patch).unwrap(),
        json!([
            {"op": "add", "path": "/data/a~1b", "value": "1"},
            {"op": "add", "path": "/data/c", "value": "1!"},
        ])
    );
}

#[test]
fn a_test_that_fails_changes_nothing() {
    let text = mk_mutation(
        "a",
        "Never",
        "[JSONPatch{op: 'test', path: '/data/x', value: 'other'}, JSONPatch{op: 'remove', path: '/data'}]",
    );
    let outcome = mutated(&text, &json!({"data": {"x": "1"}}));
    assert_eq!((outcome.denial, outcome.patch.as_str()), (None, ""));
}

#[test]
fn a_mutation_that_does_not_apply_refuses() {
    let text = mk_mutation("a", "Never", "[JSONPatch{op: 'remove', path: '/missing'}]");
    let denial = mutated(&text, &json!({})).denial.unwrap();
    assert!(
        denial
            .message
            .starts_with("policy 'a' with binding 'a' denied request: JSON Patch: "),
        "{}",
        denial.message
    );
    assert_eq!((denial.reason.as_ref(), denial.code), ("Invalid", 403));
}

#[test]
fn what_a_patch_adds_that_the_type_does_not_have_is_an_error() {
    let refused = |patch: &str, object: &Value| {
        let denial = mutated(&mk_mutation("a", "Never", patch), object).denial;
        denial.map(|denial| denial.message)
    };
    let before =
        "policy 'a' with binding 'a' denied request: Internal error occurred: strict decoding error: ";
    for (patch, expected) in [
        (
            "[JSONPatch{op: 'add', path: '/bogus', value: 'x'}]",
            "unknown field \"bogus\"",
        ),
        (
            "[JSONPatch{op: 'add', path: '/metadata/bogus', value: 'x'}]",
            "unknown field \"metadata.bogus\"",
        ),
        (
            "[JSONPatch{op: 'add', path: '/data', value: 1}]",
            ".data: expected map, got 1",
        ),
        (
            "[JSONPatch{op: 'add', path: '/metadata/finalizers', value: [1]}]",
            ".metadata.finalizers[0]: expected string, got 1",
        ),
    ] {
        let told = refused(patch, &json!({"metadata": {"name": "a"}}));
        assert_eq!(told, Some(format!("{before}{expected}")), "{patch}");
    }
    // A newer API server knows fields of which nothing is known here.
    let newer = json!({"later": {"a": 1}, "metadata": {"name": "a", "later": 1, "ownerReferences": [
        {"name": "o", "later": true}]}});
    let insert = "[JSONPatch{op: 'add', path: '/metadata/ownerReferences/0', value: {'name': 'first'}}]";
    assert_eq!(refused(insert, &newer), None);
}

#[test]
fn objects_in_a_patch_bear_the_names_of_their_fields() {
    let told = |value: &str| {
        let patch = format!("[JSONPatch{{op: 'add', path: '/metadata', value: {value}}}]");
        let denial = mutated(&mk_mutation("a", "Never", &patch), &json!({})).denial;
        denial.map_or_else(String::new, |denial| denial.message)
    };
    for good in [
        "Object.metadata{labels: Object.metadata.labels{a: '1'}}",
        "Object.any.name{ownerReferences: [Object.any.name.ownerReferences{name: 'o'}]}",
        "Object{annotations: {'a': 'b'}}",
    ] {
        assert_eq!(told(good), "", "{good}");
    }
    let mismatch = |found: &str, expected: &str| {
        format!(
            "type mismatch: unexpected type name \"{found}\", expected \"{expected}\", which matches field \
             name path from root Object type"
        )
    };
    for (bad, expected) in [
        (
            "Object.metadata{labels: Object.metadata.wrong{a: '1'}}",
            mismatch("Object.metadata.wrong", "Object.metadata.labels"),
        ),
        (
            "Object{ownerReferences: [Object.other{name: 'o'}]}",
            mismatch("Object.other", "Object.ownerReferences"),
        ),
    ] {
        let told = told(bad);
        assert!(told.ends_with(&expected), "{told}");
    }
}

#[test]
fn a_policy_runs_again_if_others_changed_the_object_after_it() {
    let count = "[JSONPatch{op: 'add', path: '/immutable', value: size(object.data) == 1}]";
    let grow = "[JSONPatch{op: 'add', path: '/data/grown', value: 'yes'}]";
    let seen = |reinvocation| {
        let text = mk_mutation("a", reinvocation, count) + &mk_mutation("b", "Never", grow);
        let outcome = mutated(&text, &json!({"data": {}}));
        let patch: Value = serde_json::from_str(&outcome.patch).unwrap();
        patch
            .as_array()
            .unwrap()
            .iter()
            .find(|one| one["path"] == "/immutable")
            .unwrap()["value"]
            .clone()
    };
    assert_eq!(seen("Never"), false);
    assert_eq!(seen("IfNeeded"), true);
}

/// What a policy with these validations says of alice's configmap, where she
/// may create configmaps in `ns` and the service account `ns/robot` read nodes.
fn asked(validations: &[&str]) -> Outcome {
    let validations: Vec<String> = validations
        .iter()
        .map(|text| format!("  - expression: {}", json!(text)))
        .collect();
    let policy = mk_policy(&format!("  validations:\n{}", validations.join("\n")), "Deny");
    let source = Source {
        file: "f.yaml".into(),
        text: format!(
            "{policy}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: writer, namespace: ns}}
rules: [{{apiGroups: [''], resources: [configmaps], verbs: [create]}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: writer, namespace: ns}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: writer}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: reader}}
rules: [{{apiGroups: [''], resources: [nodes], verbs: [get]}}, {{nonResourceURLs: [/metrics], verbs: [get]}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: reader}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: Group, name: 'system:serviceaccounts:ns'}}]
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {{name: own-node}}
spec:
  effect: Allow
  subjects: [{{kind: User, name: alice}}]
  resourceRules:
  - verbs: [list]
    apiGroups: ['']
    resources: [pods]
    selectors: {{field: [{{key: spec.nodeName, operator: In, values: [n1]}}], label: [{{key: team, operator: Exists}}]}}
"
        ),
        cluster: None,
    };
    let (manifests, faults) = load(&[source], &Options::default());
    let manifests = manifests.unwrap_or_else(|| panic!("{faults}"));
    let document = Document::parse(mk_review(&json!({})).to_string()).unwrap();
    let review = AdmissionReview::decode(&document).unwrap();
    let set = manifests.admission(&AdmissionSettings::default()).shared;
    let run = Run::new(&*manifests.policies.shared, Time::UNIX_EPOCH);
    Chain::run(Phase::Validate, &set, &review.request, run, &mut nobody)
}

#[test]
fn questions_about_access_are_answered_by_the_policies_of_the_cluster() {
    let robot = "authorizer.serviceAccount('ns', 'robot')";
    let pods = "authorizer.group('').resource('pods')";
    for (expression, expected) in [
        ("authorizer.requestResource.check('create').allowed()", true),
        ("authorizer.requestResource.check('delete').allowed()", false),
        (
            "authorizer.requestResource.check('create').reason().contains('writer')",
            true,
        ),
        ("authorizer.requestResource.check('delete').errored()", false),
        (
            "authorizer.group('').resource('configmaps').namespace('other').check('create').allowed()",
            false,
        ),
        ("authorizer.path('/metrics').check('get').allowed()", false),
        (&format!("{robot}.path('/metrics').check('get').allowed()"), true),
        (
            &format!("{robot}.group('').resource('nodes').name('n').check('get').allowed()"),
            true,
        ),
        (&format!("{pods}.check('list').allowed()"), false),
        (
            &format!(
                "{pods}.fieldSelector('spec.nodeName=n1').labelSelector('team in (a,b)').check('list').allowed()"
            ),
            true,
        ),
        (
            &format!(
                "{pods}.fieldSelector('spec.nodeName=n1').labelSelector('-x,team').check('list').allowed()"
            ),
            false,
        ),
    ] {
        let outcome = asked(&[expression]);
        let said = match &outcome.denial {
            None => true,
            Some(denial) => {
                assert!(denial.message.contains("failed expression"), "{}", denial.message);
                false
            }
        };
        assert_eq!(said, expected, "{expression}");
    }
}

// === what is judged as it was sent ===

const GUARD: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: p}
spec:
  matchConstraints: {resourceRules: [{apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*']}]}
  validations:
  - expression: 'EXPRESSION'
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: p}
spec: {policyName: p, validationActions: [Deny]}
";

fn guard(expression: &str) -> Arc<AdmissionSet> {
    mk_set(&GUARD.replace("EXPRESSION", &expression.replace('\'', "''")))
}

/// A review about objects of which nothing but the bytes is known.
fn mk_bytes(object: &[u8], old: &[u8]) -> Vec<u8> {
    let review = mk_review(&json!("OBJECT")).to_string();
    let review = review.replace("\"oldObject\":null", "\"oldObject\":\"OLD\"");
    let mut bytes = Vec::new();
    let (before, rest) = review.split_once("\"OBJECT\"").unwrap();
    let (between, after) = rest.split_once("\"OLD\"").unwrap();
    for part in [
        before.as_bytes(),
        object,
        between.as_bytes(),
        old,
        after.as_bytes(),
    ] {
        bytes.extend_from_slice(part);
    }
    bytes
}

/// The outcome, and the patch that the reply carries.
fn judged(phase: Phase, set: &AdmissionSet, body: &[u8]) -> (Outcome, Vec<u8>) {
    let document = Document::parse_bytes(body).unwrap();
    let review = AdmissionReview::decode(&document).unwrap();
    let access = PolicySet::default();
    let run = Run::new(&access, Time::UNIX_EPOCH);
    let outcome = Chain::run(phase, set, &review.request, run, &mut nobody);
    let reply: Value = serde_json::from_slice(&review.reply(&outcome)).unwrap();
    let patch = reply
        .pointer("/response/patch")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let patch = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, patch).unwrap();
    (outcome, patch)
}

/// What is sent nests deep, the stack of a thread does not.
fn on_a_small_stack(work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(256 << 10);
    thread.spawn(work).unwrap().join().unwrap();
}

/// A ConfigMap of which a field that no API server checks nests so deep.
fn deep(levels: usize, innermost: &str) -> Vec<u8> {
    let pairs = levels / 2;
    let (open, close) = (r#"{"a":["#.repeat(pairs), "]}".repeat(pairs));
    format!(r#"{{"metadata":{{"name":"c"}},"data":{{"a":"b"}},"free":{open}{innermost}{close}}}"#)
        .into_bytes()
}

#[test]
fn ten_thousand_levels_are_judged_on_a_small_stack() {
    // The compiler of expressions has the stack of a whole thread.
    let sets = [
        ("object == oldObject", true),
        ("object.free != oldObject.free", false),
        ("object.free in [oldObject.free]", true),
        ("[object.free, oldObject.free].distinct().size() == 1", true),
        ("dyn(object.free.a).flatten(100000).size() == 1", true),
        ("\"%s\".format([object.data]) == '{\"a\":\"b\"}'", true),
    ]
    .map(|(expression, holds)| (expression, guard(expression), holds));
    let mutating = mk_set(&mk_mutation(
        "m",
        "Never",
        "[JSONPatch{op: 'add', path: '/data/c', value: 'd'}]",
    ));
    on_a_small_stack(move || {
        let body = mk_bytes(&deep(9_996, "1"), &deep(9_996, "1"));
        for (expression, set, holds) in &sets {
            let (outcome, _) = judged(Phase::Validate, set, &body);
            assert_eq!(
                outcome.denial.is_none(),
                *holds,
                "{expression}: {:?}",
                outcome.denial
            );
        }
        let (outcome, patch) = judged(Phase::Mutate, &mutating, &body);
        assert_eq!(outcome.denial, None);
        assert_eq!(patch, br#"[{"op":"add","path":"/data/c","value":"d"}]"#);
    });
}

#[test]
fn what_nests_deeper_than_format_writes_is_an_error() {
    let set = guard("\"%s\".format([object.free]) == ''");
    let (outcome, _) = judged(Phase::Validate, &set, &mk_bytes(&deep(9_996, "1"), b"null"));
    assert!(
        message(&outcome).contains("nests too deep"),
        "{}",
        message(&outcome)
    );
}

#[test]
fn what_nests_deeper_than_go_reads_is_refused() {
    let body = |levels| mk_bytes(&deep(levels, "1"), b"null");
    // One level is the object itself, and the envelope has two.
    assert!(Document::parse_bytes(&body(9_998)).is_ok());
    assert!(Document::parse_bytes(&body(10_000)).is_err());
}

#[test]
fn bytes_that_are_no_text_are_judged_as_go_reads_them_and_patched_as_they_are() {
    let object = b"{\"metadata\":{\"name\":\"c\"},\"data\":{\"a\":\"x\xff\xfey\",\"b\":\"\xe2\x82\"}}";
    let body = mk_bytes(object, b"null");
    for (expression, holds) in [
        ("object.data.a == 'x\\ufffd\\ufffdy'", true),
        ("object.data.a.size() == 4", true),
        ("object.data.b == '\\ufffd\\ufffd'", true),
        ("object.data.a == 'xy'", false),
    ] {
        let (outcome, _) = judged(Phase::Validate, &guard(expression), &body);
        assert_eq!(
            outcome.denial.is_none(),
            holds,
            "{expression}: {:?}",
            outcome.denial
        );
    }
    let (outcome, patch) = judged(
        Phase::Mutate,
        &mk_set(&mk_mutation(
            "m",
            "Never",
            "[JSONPatch{op: 'copy', from: '/data/a', path: '/data/c'}]",
        )),
        &body,
    );
    assert_eq!(outcome.denial, None);
    assert_eq!(
        patch,
        b"[{\"op\":\"add\",\"path\":\"/data/c\",\"value\":\"x\xff\xfey\"}]"
    );
    assert!(Document::parse_bytes(&mk_bytes(b"{\"a\":\xff}", b"null")).is_err());
}
