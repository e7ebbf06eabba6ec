//! The gateway's own kinds, as `kubectl apply` brings them to `/validate`.

use std::cell::Cell;

use serde_json::{Value, json};

use portcullis_policy::admission::{AdmissionSettings, Outcome, Phase, RunOptions};
use portcullis_policy::manifest::ValidationContext;
use portcullis_policy::model::{Deadline, Time};

use crate::inner::{manifests, outcome};
use crate::reviews;

fn allow(rule: &Value) -> Value {
    json!({
        "apiVersion": "portcullis.dev/v1alpha1", "kind": "AuthorizationPolicy", "metadata": {"name": "a"},
        "spec": {"effect": "Allow", "subjects": [{"kind": "User", "name": "jane"}], "resourceRules": [rule]},
    })
}

fn pods(more: &Value) -> Value {
    let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
    reviews::with(rule, more)
}

fn judged_as(around: &str, object: &Value, request: &Value, only: Option<&str>) -> Outcome {
    judged_until(around, object, request, (only, Deadline::NEVER))
}

fn judged_until(
    around: &str,
    object: &Value,
    request: &Value,
    (only, deadline): (Option<&str>, Deadline<'_>),
) -> Outcome {
    let manifests = manifests(around);
    let admission = manifests.admission(&AdmissionSettings::default());
    let resource = match object["kind"].as_str().unwrap() {
        "AuthorizationPolicy" => "authorizationpolicies",
        "AuthorizationInvariant" => "authorizationinvariants",
        _ => "admissionexceptions",
    };
    let all = json!({
        "uid": "u", "operation": "CREATE", "name": "a",
        "kind": {"group": "portcullis.dev", "version": "v1alpha1", "kind": object["kind"]},
        "resource": {"group": "portcullis.dev", "version": "v1alpha1", "resource": resource},
        "userInfo": {"username": "jane"}, "object": object,
    });
    let review = reviews::admission(&reviews::with(all, request));
    let policies = manifests.policies.for_cluster("default");
    let set = admission.for_cluster("default");
    let validation = ValidationContext::new(policies, set);
    let run = RunOptions {
        own_kinds: Some(&validation),
        only,
        deadline,
        ..RunOptions::new(&**policies, Time::parse("2026-12-01T00:00:00Z").unwrap())
    };
    outcome(Phase::Validate, set, &review, run)
}

fn judged(around: &str, object: &Value) -> Outcome {
    judged_as(around, object, &json!({}), None)
}

#[test]
fn faults_refuse_with_every_field() {
    let mut policy = allow(&pods(&json!({"namespaces": ["A"], "verb": ["get"]})));
    policy["spec"]["effect"] = json!("Permit");
    let typo = judged("", &policy).denial.unwrap();
    assert!(
        typo.message
            .contains("spec.resourceRules[0].verb: Unsupported value: unknown field `verb`"),
        "{}",
        typo.message
    );
    policy["spec"]["resourceRules"][0]
        .as_object_mut()
        .unwrap()
        .remove("verb");
    let denial = judged("", &policy).denial.unwrap();
    assert_eq!((denial.code, denial.reason.as_ref()), (422, "Invalid"));
    for said in [
        "AuthorizationPolicy.portcullis.dev \"a\" is invalid: [",
        "spec.effect: Unsupported value: `Permit`",
        "spec.resourceRules[0].namespaces[0]: Invalid value",
    ] {
        assert!(denial.message.contains(said), "{said}: {}", denial.message);
    }
    // Of an object that is invalid kubectl shows these alone.
    let causes: Vec<[&str; 2]> = denial
        .details
        .causes
        .iter()
        .map(|cause| [cause.reason.as_str(), cause.field.as_str()])
        .collect();
    assert_eq!(
        causes,
        [
            ["FieldValueNotSupported", "spec.effect"],
            ["FieldValueInvalid", "spec.resourceRules[0].namespaces[0]"],
        ]
    );
    let message = &denial.details.causes[0].message;
    assert!(message.starts_with("Unsupported value: `Permit`"), "{message}");
}

#[test]
fn what_is_not_compiled_by_the_deadline_is_refused() {
    let long = vec!["request.user == 'jane'"; 300].join(" && ");
    let conditions: Vec<_> = (0..40)
        .map(|n| json!({"name": format!("c{n}"), "expression": long}))
        .collect();
    let mut policy = allow(&pods(&json!({})));
    policy["spec"]["conditions"] = json!(conditions);
    let judged_within = |looks: usize| {
        let left = Cell::new(looks);
        let expired = || {
            let is_over = left.get() == 0;
            left.set(left.get().saturating_sub(1));
            is_over
        };
        judged_until("", &policy, &json!({}), (None, Deadline::new(&expired)))
    };
    assert!(judged_within(usize::MAX).denial.is_none());
    let late = judged_within(20).denial.unwrap();
    assert!(
        late.message.contains("interrupted by the deadline"),
        "{}",
        late.message
    );
}

#[test]
fn warnings_warn() {
    let mut policy = allow(&pods(&json!({"verbs": ["list"], "namespaces": [""]})));
    policy["spec"]["notAfter"] = json!("2026-11-01T00:00:00Z");
    let outcome = judged("", &policy);
    assert!(outcome.denial.is_none());
    let warnings: Vec<&str> = outcome.warnings.iter().collect();
    assert!(
        warnings
            .iter()
            .any(|warning| warning.contains("allows lists of `pods` in all namespaces")),
        "{warnings:?}"
    );
    assert!(
        warnings.iter().any(|warning| warning.contains("expired at")),
        "{warnings:?}"
    );
    assert!(judged("", &allow(&pods(&json!({})))).warnings.is_empty());
}

#[test]
fn a_selector_is_judged_by_what_is_known_of_namespaces() {
    let policy = allow(&pods(
        &json!({"namespaceSelector": {"matchLabels": {"tier": "prod"}}}),
    ));
    let denial = judged("", &policy).denial.unwrap();
    assert!(
        denial.message.contains("there are no Namespaces"),
        "{}",
        denial.message
    );
    let around = "
{apiVersion: v1, kind: Namespace, metadata: {name: a}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: r}, rules: [{verbs: [patch], apiGroups: [\"\"], resources: [namespaces]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: r}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: r}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: ops}]}
";
    let outcome = judged(around, &policy);
    assert!(outcome.denial.is_none());
    assert!(outcome.warnings.iter().next().unwrap().contains("Group `ops`"));
}

fn exception() -> Value {
    json!({
        "apiVersion": "portcullis.dev/v1alpha1", "kind": "AdmissionException", "metadata": {"name": "a"},
        "spec": {"policies": ["no"], "notAfter": "2027-01-01T00:00:00Z", "reason": "r", "match": {"resourceRules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"], "resourceNames": ["p"]},
        ]}},
    })
}

#[test]
fn exceptions_are_judged_too() {
    let outcome = judged("", &exception());
    assert!(outcome.denial.is_none());
    let warning = outcome.warnings.iter().next().unwrap();
    assert!(
        warning.contains("there is no ValidatingAdmissionPolicy or validating webhook `no`"),
        "{warning}"
    );
    let mut endless = exception();
    endless["spec"].as_object_mut().unwrap().remove("notAfter");
    assert!(
        judged("", &endless)
            .denial
            .unwrap()
            .message
            .contains("spec.notAfter: Required value")
    );
}

#[test]
fn what_an_api_server_adds_is_no_fault() {
    let mut policy = allow(&pods(&json!({})));
    policy["metadata"] = json!({
        "name": "a", "uid": "u", "generation": 1, "creationTimestamp": "2026-12-01T00:00:00Z",
        "managedFields": [{"manager": "kubectl", "operation": "Apply", "apiVersion": "portcullis.dev/v1alpha1",
            "time": "2026-12-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}}],
    });
    policy["status"] = json!({"conditions": []});
    let outcome = judged("", &policy);
    assert!(
        outcome.denial.is_none() && outcome.warnings.is_empty(),
        "{:?}",
        outcome.denial
    );
    policy["metadata"] = json!({"generateName": "a-"});
    assert!(judged("", &policy).denial.is_none());
}

#[test]
fn only_what_is_written_is_judged_and_not_its_status() {
    let broken = json!({"apiVersion": "portcullis.dev/v1alpha1", "kind": "AuthorizationPolicy", "metadata": {"name": "a"}});
    let refused = |request: &Value, only| judged_as("", &broken, request, only).denial.is_some();
    assert!(refused(&json!({}), None));
    assert!(refused(
        &json!({"operation": "UPDATE", "oldObject": broken}),
        None
    ));
    assert!(!refused(
        &json!({"operation": "UPDATE", "oldObject": broken, "subResource": "status"}),
        None
    ));
    assert!(!refused(
        &json!({"operation": "DELETE", "object": null, "oldObject": broken}),
        None
    ));
    assert!(!refused(&json!({}), Some("another-policy")));
}
