//! Admission policies from manifests, asked by reviews: the whole of the policy crate together.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "admission/access.rs"]
mod access;
#[path = "admission/access_requests.rs"]
mod access_requests;
#[path = "admission/as_sent.rs"]
mod as_sent;
#[path = "admission/deadline.rs"]
mod deadline;
#[path = "admission/exceptions.rs"]
mod exceptions;
#[path = "harness/inner.rs"]
mod inner;
#[path = "admission/invariants.rs"]
mod invariants;
#[path = "admission/mutation.rs"]
mod mutation;
#[path = "admission/own_kinds.rs"]
mod own_kinds;
#[path = "admission/refusals.rs"]
mod refusals;
#[path = "harness/reviews.rs"]
mod reviews;
#[path = "admission/statics.rs"]
mod statics;

use std::sync::Arc;

use serde_json::{Value, json};

use inner::{manifests, outcome};
use portcullis_cel::json::Document;
use portcullis_policy::admission::webhook::fail_every_call;
use portcullis_policy::admission::{AdmissionSet, AdmissionSettings, Chain, Outcome, Phase, RunOptions};
use portcullis_policy::api::AdmissionReview;
use portcullis_policy::authorization::PolicySet;
use portcullis_policy::model::Time;

/// The policies of manifests, which must be valid.
fn mk_set(text: &str) -> Arc<AdmissionSet> {
    let admission = manifests(text).admission(&AdmissionSettings::default());
    Arc::clone(admission.for_cluster("default"))
}

/// The faults of manifests, without their places in the file.
fn faults(text: &str) -> Vec<String> {
    let found = inner::faults(text);
    let reported = found
        .iter()
        .map(|fault| format!("{}: {}", fault.place.path, fault.kind.as_str()));
    reported.collect()
}

fn mk_review(object: &Value) -> Value {
    reviews::admission(&json!({
        "uid": "u",
        "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "resource": {"group": "", "version": "v1", "resource": "configmaps"},
        "name": "c", "namespace": "ns", "operation": "CREATE",
        "userInfo": {"username": "alice", "groups": ["devs"]},
        "object": object, "oldObject": null, "dryRun": false,
    }))
}

fn validated(set: &AdmissionSet, review: &Value) -> Outcome {
    let access = PolicySet::default();
    outcome(
        Phase::Validate,
        set,
        review,
        RunOptions::new(&access, Time::UNIX_EPOCH),
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
fn what_policies_write_into_the_audit_log_is_bounded_for_a_request() {
    let annotation = |number: usize| {
        format!(
            "{{key: k{number}, valueExpression: \"'0123456789'.split('').map(a, '{}').join('')\"}}",
            "x".repeat(1_000)
        )
    };
    let annotations: Vec<String> = (0..20).map(annotation).collect();
    let one = mk_policy(
        &format!("  auditAnnotations: [{}]", annotations.join(", ")),
        "Deny",
    );
    let named = |number: usize| {
        let names = ["name: p", "policyName: p", "name: b"];
        let number_in = |text: String, name: &str| text.replace(name, &format!("{name}{number}"));
        names.into_iter().fold(one.clone(), number_in)
    };
    let all: Vec<String> = (0..10).map(named).collect();
    let outcome = validated(&mk_set(&all.join("\n---\n")), &mk_review(&json!({})));
    assert_eq!(message(&outcome), "allowed");
    let bytes: usize = outcome.audit_annotations.values().map(String::len).sum();
    assert!(bytes > 900_000 && bytes <= 1 << 20, "{bytes}");
    let left_out: usize = outcome.audit_annotations["left-out-annotations.portcullis.dev"]
        .parse()
        .unwrap();
    assert_eq!(outcome.audit_annotations.len() - 1 + left_out, 200);
}

#[test]
fn audit_lists_the_first_fifty_failures() {
    let validations = vec!["{expression: 'false'}"; 30].join(", ");
    let text = mk_policy(&format!("  validations: [{validations}]"), "Audit");
    let second = "\n---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: c}
spec: {policyName: p, validationActions: [Audit]}
";
    let outcome = validated(&mk_set(&(text + second)), &mk_review(&json!({})));
    assert_eq!(message(&outcome), "allowed");
    let failures: Vec<Value> = serde_json::from_str(
        &outcome.audit_annotations["validation.policy.admission.k8s.io/validation_failure"],
    )
    .unwrap();
    let listed: Vec<_> = failures
        .iter()
        .map(|failure| {
            (
                failure["binding"].as_str().unwrap(),
                failure["expressionIndex"].as_u64().unwrap(),
            )
        })
        .collect();
    let expected = (0..30)
        .map(|index| ("b", index))
        .chain((0..20).map(|index| ("c", index)));
    assert_eq!(listed, expected.collect::<Vec<_>>());
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
        let run = RunOptions {
            only: Some(only),
            ..RunOptions::new(&access, Time::UNIX_EPOCH)
        };
        Chain::run(Phase::Validate, &set, &review.request, run, &mut fail_every_call)
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

#[test]
fn the_object_of_an_unknown_namespace_has_its_name_alone_where_so_configured() {
    let text = mk_policy(
        "  validations: [{expression: \"namespaceObject.metadata.labels == {'kubernetes.io/metadata.name': 'ns'}\"}]",
        "Deny",
    );
    let settings = AdmissionSettings {
        missing_namespace: portcullis_policy::admission::matching::MissingNamespace::NameOnly,
        ..AdmissionSettings::default()
    };
    let admission = manifests(&text).admission(&settings);
    assert_eq!(
        message(&validated(
            admission.for_cluster("default"),
            &mk_review(&json!({}))
        )),
        "allowed"
    );
    assert_ne!(
        message(&validated(&mk_set(&text), &mk_review(&json!({})))),
        "allowed"
    );
}
