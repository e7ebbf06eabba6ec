//! Conditions over a SubjectAccessReview's spec: `matchConditions` of an
//! authorizer. Those of an AuthorizationPolicy are compiled and combined alike.

use std::path::Path;

use portcullis::config::{AuthorizerTypes, authorizers};
use portcullis_cel::Version;
use portcullis_policy::authorization::authorizer::{Authorizer, Relevance};
use portcullis_policy::authorization::{Condition, FailurePolicy};
use portcullis_policy::model::{Attributes, Deadline, Decision};
use serde_json::{Value, json};

use crate::harness::{Case, Mismatch, Table};
use crate::sar;

pub(crate) const CHECKS: Table = &[
    ("authzCompile", compiles),
    ("authzMatchConditions", combine),
    ("authzMatchConditionsValidate", validate),
];

fn expressions<'a>(case: &Case<'a>) -> Vec<&'a str> {
    let input = case.input();
    let one = input["expression"].as_str();
    one.into_iter()
        .chain(
            input["expressions"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str),
        )
        .collect()
}

/// Whether selectors stand in an expression, and are switched off.
pub(crate) fn without_selectors(case: &Case<'_>) -> bool {
    case.input()["selectorsEnabled"] == false && expressions(case).iter().any(|one| one.contains("Selector"))
}

fn compiles(case: &Case<'_>) -> Result<(), Mismatch> {
    let compiled = Condition::compile(Version::new(35), "c", expressions(case)[0]);
    case.same("ok", &compiled.is_ok(), &case.expect()["ok"].as_bool().unwrap())
}

/// The faults of an authorizer with such conditions, each at its expression.
fn validate(case: &Case<'_>) -> Result<(), Mismatch> {
    let conditions: Vec<Value> = expressions(case)
        .into_iter()
        .map(|expression| json!({"expression": expression}))
        .collect();
    let configuration = json!({"authorizers": [{
        "type": "Webhook",
        "name": "w",
        "webhook": {
            "timeout": "3s",
            "subjectAccessReviewVersion": "v1",
            "matchConditionSubjectAccessReviewVersion": "v1",
            "failurePolicy": "NoOpinion",
            "connectionInfo": {"type": "InClusterConfig"},
            "matchConditions": conditions,
        },
    }]});
    let types = AuthorizerTypes {
        known: &["Webhook"],
        repeatable: &["Webhook"],
        in_cluster: true,
        cel_version: Version::new(35),
    };
    let faults = authorizers::check("f.json", &configuration.to_string(), Path::new("/"), types);
    case.same(
        "valid",
        &faults.is_empty(),
        &case.expect()["valid"].as_bool().unwrap(),
    )?;
    match case.expect()["errorContains"].as_str() {
        Some(place) if place.starts_with("matchConditions[") => {
            let place = format!("authorizers[0].webhook.{}", place.split(':').next().unwrap());
            let reported = faults.iter().any(|fault| fault.place.path.to_string() == place);
            case.same("whether a fault is told at its place", &reported, &true)
        }
        _ => Ok(()),
    }
}

/// Whether the webhook is asked, and what comes of it where conditions fail.
fn combine(case: &Case<'_>) -> Result<(), Mismatch> {
    let compile = |expression: &str| {
        let compiled = Condition::compile(Version::new(35), expression, expression);
        compiled.map_err(|fault| Mismatch::new(fault.to_string()))
    };
    let authorizer = Authorizer {
        name: "w".into(),
        match_conditions: expressions(case)
            .into_iter()
            .map(compile)
            .collect::<Result<_, _>>()?,
        failure_policy: match case.input()["failurePolicy"].as_str() {
            Some("Deny") => FailurePolicy::Deny,
            _ => FailurePolicy::NoOpinion,
        },
    };
    let actual = match authorizer.relevance(&attributes(case.input()), Deadline::NEVER) {
        Relevance::Called => case.input()["webhookWouldAnswer"].as_str().unwrap(),
        Relevance::Failed(_) if authorizer.failed("").decision == Decision::Deny => "Deny",
        Relevance::Failed(_) | Relevance::Skipped(_) => "NoOpinion",
    };
    case.same("decision", &actual, &case.expect()["decision"].as_str().unwrap())
}

fn attributes(input: &Value) -> Attributes<'_> {
    Attributes {
        user: sar::user(&input["user"]),
        target: sar::target(&input["attributes"]),
    }
}
