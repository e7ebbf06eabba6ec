//! Admission policies: what mutations make.

use portcullis_cel::json::{Document, patch};
use portcullis_policy::admission::webhook::fail_every_call;
use portcullis_policy::admission::{AdmissionSettings, Chain, Outcome, Phase, RunOptions};
use portcullis_policy::api::AdmissionReview;
use portcullis_policy::authorization::PolicySet;
use portcullis_policy::manifest::{Options, load};
use portcullis_policy::model::Time;
use serde_json::{Value, json};

use crate::harness::{Case, Mismatch, Table};
use crate::validation::source;

pub(crate) const PATCHES: Table = &[
    ("applyConfiguration", apply_configuration),
    ("jsonPatch", json_patch),
];

fn json_patch(case: &Case<'_>) -> Result<(), Mismatch> {
    let outcome = mutate(
        case,
        &json!({
            "patchType": "JSONPatch", "jsonPatch": {"expression": case.input()["expression"]},
        }),
    )?;
    compare(case, &outcome)
}

fn apply_configuration(case: &Case<'_>) -> Result<(), Mismatch> {
    let expression = &case.input()["expression"];
    let outcome = mutate(
        case,
        &json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}),
    )?;
    compare(case, &outcome)
}

fn mutate(case: &Case<'_>, mutation: &Value) -> Result<Outcome, Mismatch> {
    let input = case.input();
    let gvr = &input["gvr"];
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": "p"},
        "spec": {
            "reinvocationPolicy": "Never",
            "matchConstraints": {"resourceRules": [
                {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}]},
            "mutations": [mutation],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": "p"}, "spec": {"policyName": "p"},
    });
    let (manifests, faults) = load(&[source(&[policy, binding])], &Options::default());
    let manifests = manifests.ok_or_else(|| Mismatch::new(faults.to_string()))?;
    let sets = manifests.admission(&AdmissionSettings::default());
    let kind = json!({"group": gvr["group"], "version": gvr["version"], "kind": "Deployment"});
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u", "kind": kind, "resource": gvr, "operation": "UPDATE", "name": "n",
            "namespace": "ns", "object": input["object"], "oldObject": input["oldObject"],
        },
    });
    let document = Document::parse(review.to_string()).unwrap();
    let review = AdmissionReview::decode(&document).unwrap();
    let access = PolicySet::default();
    let run = RunOptions::new(&access, Time::UNIX_EPOCH);
    let set = sets.for_cluster("default");
    Ok(Chain::run(
        Phase::Mutate,
        set,
        &review.request,
        run,
        &mut fail_every_call,
    ))
}

fn compare(case: &Case<'_>, outcome: &Outcome) -> Result<(), Mismatch> {
    if let Some(denial) = &outcome.denial {
        let wanted = case.expect()["errorContains"].as_str();
        let is_expected = wanted.is_some_and(|text| denial.message.contains(text))
            || case.expect()["error"].as_bool().unwrap_or(false);
        return if is_expected {
            Ok(())
        } else {
            Err(Mismatch::new(denial.message.clone()))
        };
    }
    let object = Document::parse(case.input()["object"].to_string()).unwrap();
    let text = if outcome.patch.is_empty() {
        "[]"
    } else {
        &outcome.patch
    };
    let operations = Document::parse(text).unwrap();
    let operations = patch::read(operations.root()).unwrap();
    let changed = patch::apply(object.root(), operations).unwrap().to_text();
    let changed: Value = serde_json::from_str(&changed).unwrap();
    case.same("object", &changed, &case.expect()["object"])
}
