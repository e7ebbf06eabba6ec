//! Conditions over a SubjectAccessReview's spec. Those of an AuthorizationPolicy
//! are compiled and combined as the API server does with `matchConditions` of
//! an authorizer.

use portcullis::engine::{
    Attributes, AuthorizationPolicy, Condition, Decision, Effect, FailurePolicy, Mode, NeverDeny,
    NonResourceRule, Objects, PolicySet, ResourceRule, Subject,
};
use portcullis::manifest::{self, Source};
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

/// Whether an expression stands there twice.
pub(crate) fn repeated(case: &Case<'_>) -> bool {
    let mut expressions = expressions(case);
    let all = expressions.len();
    expressions.sort_unstable();
    expressions.dedup();
    expressions.len() < all
}

fn compiles(case: &Case<'_>) -> Result<(), Mismatch> {
    let compiled = Condition::compile("c", expressions(case)[0]);
    case.same("ok", &compiled.is_ok(), &case.expect()["ok"].as_bool().unwrap())
}

/// The faults of a manifest with such conditions, each at its expression.
fn validate(case: &Case<'_>) -> Result<(), Mismatch> {
    let conditions = expressions(case).into_iter().enumerate();
    let conditions: Vec<Value> = conditions
        .map(|(index, one)| json!({"name": format!("c{index}"), "expression": one}))
        .collect();
    let policy = json!({
        "apiVersion": "portcullis.dev/v1alpha1",
        "kind": "AuthorizationPolicy",
        "metadata": {"name": "p"},
        "spec": {
            "effect": "Allow",
            "subjects": [{"kind": "User", "name": "u"}],
            "nonResourceRules": [{"verbs": ["get"], "paths": ["/"]}],
            "conditions": conditions,
        },
    });
    let source = Source {
        file: "p.json".into(),
        text: policy.to_string(),
        cluster: None,
    };
    let (_, faults) = manifest::load(&[source], &manifest::Options::default());
    case.same(
        "valid",
        &!faults.has_errors(),
        &case.expect()["valid"].as_bool().unwrap(),
    )?;
    match case.expect()["errorContains"].as_str() {
        Some(place) if place.starts_with("matchConditions[") => {
            let place = format!("spec.{}", place.replace("matchConditions", "conditions"));
            let told = faults.iter().any(|fault| fault.place.path.to_string() == place);
            case.same("whether a fault is told at its place", &told, &true)
        }
        _ => Ok(()),
    }
}

/// An Allow applies when all conditions hold; a Deny also when one errors, if
/// its failure policy says so. The API server asks its webhook in the first
/// case, and denies in the second.
fn combine(case: &Case<'_>) -> Result<(), Mismatch> {
    let decides = |effect: Effect| -> Result<Decision, Mismatch> {
        let policies = vec![policy(case, effect)?];
        let set = PolicySet::new(
            Objects {
                policies,
                ..Objects::default()
            },
            &NeverDeny::nobody(),
        );
        Ok(set.authorize(&attributes(case.input())).decision)
    };
    let actual = match (decides(Effect::Allow)?, decides(Effect::Deny)?) {
        (Decision::Allow, _) => case.input()["webhookWouldAnswer"].as_str().unwrap(),
        (_, Decision::Deny) => "Deny",
        _ => "NoOpinion",
    };
    case.same("decision", &actual, &case.expect()["decision"].as_str().unwrap())
}

fn policy(case: &Case<'_>, effect: Effect) -> Result<AuthorizationPolicy, Mismatch> {
    let all = || vec!["*".to_owned()];
    let conditions = expressions(case).into_iter().enumerate();
    let conditions = conditions
        .map(|(index, one)| Condition::compile(&format!("c{index}"), one))
        .collect::<Result<_, _>>()
        .map_err(|fault| Mismatch::new(fault.to_string()))?;
    Ok(AuthorizationPolicy {
        name: "p".into(),
        effect,
        mode: Mode::Enforce,
        subjects: vec![Subject::group("*")],
        exclude_subjects: Vec::new(),
        resource_rules: vec![ResourceRule {
            verbs: all(),
            api_groups: all(),
            resources: all(),
            ..ResourceRule::default()
        }],
        non_resource_rules: vec![NonResourceRule {
            verbs: all(),
            paths: all(),
        }],
        conditions,
        failure_policy: match case.input()["failurePolicy"].as_str() {
            Some("Deny") => FailurePolicy::Deny,
            _ => FailurePolicy::NoOpinion,
        },
        reason: String::new(),
    })
}

fn attributes(input: &Value) -> Attributes<'_> {
    Attributes {
        user: sar::user(&input["user"]),
        target: sar::target(&input["attributes"]),
    }
}
