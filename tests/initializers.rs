//! InitializerConfigurations, asked by reviews of creations.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, as it should"
)]

#[path = "harness/inner.rs"]
mod inner;
#[path = "harness/reviews.rs"]
mod reviews;

use inner::{manifests, patched};
use portcullis_policy::admission::{AdmissionSettings, FailurePolicy, Outcome, Phase, RunOptions};
use portcullis_policy::authorization::PolicySet;
use portcullis_policy::model::Time;
use reviews::{creation_of_pod, with};
use serde_json::{Value, json};

/// A policy that writes its mark behind those that are there already.
fn mk_policy(name: &str) -> String {
    format!(
        "apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {{name: {name}}}
spec:
  matchConstraints: {{resourceRules: [{{apiGroups: ['*'], apiVersions: ['*'], operations: [CREATE], resources: ['*']}}]}}
  reinvocationPolicy: Never
  mutations:
  - patchType: JSONPatch
    jsonPatch: {{expression: \"[JSONPatch{{op: 'add', path: '/marks/-', value: '{name}'}}]\"}}
---
"
    )
}

fn mk_configuration(name: &str, initializers: &[(&str, &str)]) -> String {
    let initializers: String = initializers
        .iter()
        .map(|(name, rules)| format!("- {{name: {name}, rules: {rules}}}\n"))
        .collect();
    format!(
        "apiVersion: admissionregistration.k8s.io/v1alpha1
kind: InitializerConfiguration
metadata: {{name: {name}}}
initializers:
{initializers}---
"
    )
}

const PODS: &str = "[{apiGroups: [''], apiVersions: [v1], resources: [pods]}]";

/// What comes of the creation of `object`, or of another request that `change` makes of it.
fn mutated(text: &str, failure_policy: FailurePolicy, object: &Value, change: &Value) -> Outcome {
    let manifests = manifests(text);
    let settings = AdmissionSettings {
        failure_policy,
        ..AdmissionSettings::default()
    };
    let mut review = creation_of_pod("ns", object);
    review["request"] = with(review["request"].take(), change);
    let access = PolicySet::default();
    let sets = manifests.admission(&settings);
    let (set, run) = (
        sets.for_cluster("default"),
        RunOptions::new(&access, Time::UNIX_EPOCH),
    );
    inner::outcome(Phase::Mutate, set, &review, run)
}

/// The object that is stored instead.
fn created(text: &str, object: &Value) -> Value {
    let outcome = mutated(text, FailurePolicy::Fail, object, &json!({}));
    assert_eq!(outcome.denial, None);
    patched(object, &outcome.patch)
}

fn mk_pod() -> Value {
    json!({"metadata": {"name": "p"}, "marks": []})
}

#[test]
fn initializers_run_in_the_order_of_configurations_and_of_their_lists() {
    let text = [
        mk_policy("a.example.com"),
        mk_policy("b.example.com"),
        mk_policy("c.example.com"),
        mk_configuration("second", &[("a.example.com", PODS)]),
        mk_configuration("first", &[("c.example.com", PODS), ("b.example.com", PODS)]),
    ]
    .concat();
    let expected = json!(["c.example.com", "b.example.com", "a.example.com"]);
    assert_eq!(created(&text, &mk_pod())["marks"], expected);
}

#[test]
fn nothing_stays_pending() {
    let text = mk_policy("a.example.com") + &mk_configuration("c", &[("a.example.com", PODS)]);
    let pending = json!({"pending": [{"name": "a.example.com"}, {"name": "other"}]});
    let mut pod = mk_pod();
    pod["metadata"]["initializers"] = pending;
    assert_eq!(created(&text, &pod)["metadata"], json!({"name": "p"}));
    let result = json!({"status": "Failure"});
    pod["metadata"]["initializers"]["result"] = result.clone();
    assert_eq!(
        created(&text, &pod)["metadata"]["initializers"],
        json!({"result": result})
    );
    let elsewhere = json!({"resource": {"group": "", "version": "v1", "resource": "services"}});
    let untouched = mutated(&text, FailurePolicy::Fail, &pod, &elsewhere);
    assert_eq!((untouched.denial, untouched.patch.as_str()), (None, ""));
}

#[test]
fn only_creations_of_objects_that_every_rule_matches_are_initialized() {
    let with = |rules: &str| mk_policy("a.example.com") + &mk_configuration("c", &[("a.example.com", rules)]);
    let both = "[{apiGroups: ['*'], apiVersions: [v1, v2], resources: [pods]}, {apiGroups: [''], apiVersions: ['*'], resources: ['*']}]";
    let one = "[{apiGroups: [''], apiVersions: [v1], resources: [pods]}, {apiGroups: [apps], apiVersions: [v1], resources: [pods]}]";
    assert_eq!(created(&with(both), &mk_pod())["marks"], json!(["a.example.com"]));
    assert_eq!(created(&with(one), &mk_pod())["marks"], json!([]));

    let text = with(PODS);
    for change in [
        json!({"operation": "UPDATE", "oldObject": mk_pod()}),
        json!({"subResource": "binding"}),
        json!({"object": {"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}, "marks": []}}),
    ] {
        let outcome = mutated(&text, FailurePolicy::Fail, &mk_pod(), &change);
        assert_eq!((outcome.denial, outcome.patch.as_str()), (None, ""), "{change}");
    }
}

#[test]
fn an_initializer_without_policy_is_an_error_that_names_it() {
    let text = mk_policy("a.example.com")
        + &mk_configuration("c", &[("b.example.com", PODS), ("a.example.com", PODS)]);
    let refused = mutated(&text, FailurePolicy::Fail, &mk_pod(), &json!({}));
    assert_eq!(
        refused.denial.unwrap().message,
        "initializer 'b.example.com' of the InitializerConfiguration 'c' denied request: there is no \
         MutatingAdmissionPolicy of that name"
    );
    let overlooked = mutated(&text, FailurePolicy::Ignore, &mk_pod(), &json!({}));
    assert_eq!(overlooked.denial, None);
    assert!(overlooked.patch.contains("a.example.com"), "{}", overlooked.patch);
}

#[test]
fn every_fault_of_the_past_is_told_at_its_field() {
    let text = mk_configuration(
        "c",
        &[
            ("short", PODS),
            (
                "a.example.com",
                "[{apiGroups: [], apiVersions: ['*', v1], resources: [pods/log]}]",
            ),
            ("b.example.com", "[]"),
        ],
    ) + "apiVersion: admissionregistration.k8s.io/v1alpha1
kind: ExternalAdmissionHookConfiguration
metadata: {name: h}
externalAdmissionHooks:
- {name: a.example.com, clientConfig: {service: {name: s}}, failurePolicy: Perhaps, rules: [
    {operations: [PATCH], apiGroups: [''], apiVersions: [v1], resources: [pods]}]}
";
    let faults = inner::faults(&text);
    let reported: Vec<String> = faults.iter().map(|fault| fault.place.path.to_string()).collect();
    assert_eq!(
        reported,
        [
            "initializers[0].name",
            "initializers[1].rules[0].apiGroups",
            "initializers[1].rules[0].apiVersions",
            "initializers[1].rules[0].resources",
            "initializers[2].rules",
            "externalAdmissionHooks[0].rules[0].operations[0]",
            "externalAdmissionHooks[0].failurePolicy",
            "externalAdmissionHooks[0].clientConfig.service.namespace",
        ]
    );
}
