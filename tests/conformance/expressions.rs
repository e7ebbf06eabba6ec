//! Expressions of admission: as match conditions and validations of policies,
//! and what they cost.

mod access;
mod policies;

use portcullis_policy::model::Time;
use std::sync::Arc;

use portcullis_cel::json::Document;
use portcullis_cel::{
    self, AccessCheckAttributes, AccessCheckDecision, Activation, AdmissionVariables, AuthorizeAccess,
    Budget, Type, Version,
};
use portcullis_policy::admission::webhook::fail_every_call;
use portcullis_policy::admission::{
    AccessChecker, AdmissionSet, AdmissionSettings, Chain, GroupVersionKind, GroupVersionResource, Operation,
    Outcome, Phase, Request, RunOptions,
};
use portcullis_policy::manifest::{Manifests, Options, Source, load};
use portcullis_policy::model::{Attributes, Deadline};
use serde_json::{Value, json};

use crate::harness::{Case, Mismatch, Table};
use crate::sar;
use access::{ByTable, ByVerb};
use policies::{document, manifests, validated, with_request};

pub(crate) const CONDITIONS: Table = &[
    ("admissionExpressions", admission_expressions),
    ("endToEndCreatePods", create_pods),
    ("configAccepted", accepted),
];
pub(crate) const EVALUATION: Table = &[
    ("evaluate", evaluate),
    ("costBudget", cost_budget),
    ("variables", variables),
];

/// What the policy of a case says when its validation fails.
const CALLED: &str = "called";

// === match conditions ===

/// What comes of match conditions.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Called,
    NotCalled,
    Refused,
}

fn admission_expressions(case: &Case<'_>) -> Result<(), Mismatch> {
    let input = &case.file["attributeSets"][case.input()["attributes"].as_str().unwrap()];
    let policies = case.expect()["byFailurePolicy"].as_object().unwrap();
    for (failure_policy, expected) in policies {
        let asked = with_request(input, |request| {
            ask(&case.input()["expressions"], failure_policy, request)
        })?;
        let expected = match (expected["error"] == true, expected["call"] == true) {
            (true, _) => Asked::Refused,
            (false, true) => Asked::Called,
            (false, false) => Asked::NotCalled,
        };
        case.same(failure_policy, &asked, &expected)?;
    }
    Ok(())
}

fn create_pods(case: &Case<'_>) -> Result<(), Mismatch> {
    let failure_policy = case.input()["failurePolicy"].as_str().unwrap_or("Fail");
    let (mut called, mut rejected) = (Vec::new(), false);
    for pod in case.input()["pods"].as_array().into_iter().flatten() {
        let input = json!({
            "attributes": {
                "group": "", "version": "v1", "resource": "pods", "subresource": "",
                "namespace": pod["namespace"], "name": pod["name"], "operation": "CREATE",
            },
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "object": {"apiVersion": "v1", "kind": "Pod", "metadata": pod, "spec": {"containers": []}},
        });
        let asked = with_request(&input, |request| {
            ask(&case.input()["expressions"], failure_policy, request)
        })?;
        match asked {
            Asked::Called => called.push(pod.clone()),
            Asked::Refused => rejected = true,
            Asked::NotCalled => {}
        }
    }
    let outcome = json!({"webhookCalledFor": called, "requestsRejected": rejected});
    case.same("outcome", &outcome, case.expect())
}

fn accepted(case: &Case<'_>) -> Result<(), Mismatch> {
    let written = &case.input()["matchConditions"];
    let conditions = match written["repeat"].as_u64() {
        Some(times) => (0..times)
            .map(|number| json!({"name": format!("c{number}"), "expression": "true"}))
            .collect(),
        None => written.clone(),
    };
    let spec = json!({"matchConditions": conditions, "validations": [{"expression": "true"}]});
    let is_sound = manifests(&spec, None).is_ok();
    case.same(
        "accepted",
        &is_sound,
        &case.expect()["accepted"].as_bool().unwrap(),
    )
}

/// Asks a policy that refuses whatever it applies to. One with an expression
/// that does not compile is refused itself; Kubernetes fails with every request.
fn ask(expressions: &Value, failure_policy: &str, request: &Request<'_>) -> Result<Asked, Mismatch> {
    let conditions: Vec<Value> = expressions
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
        .map(|(index, one)| json!({"name": format!("c{index}"), "expression": one}))
        .collect();
    let spec = json!({
        "failurePolicy": failure_policy,
        "matchConditions": conditions,
        "validations": [{"expression": "false", "message": CALLED}],
    });
    let manifests = match manifests(&spec, None) {
        Ok(manifests) => manifests,
        Err(faults) if !faults.contains("spec.matchConditions[") => return Err(Mismatch::new(faults)),
        Err(_) if failure_policy == "Fail" => return Ok(Asked::Refused),
        Err(_) => return Ok(Asked::NotCalled),
    };
    let outcome = validated(&manifests, &ByVerb, request);
    Ok(match outcome.denial {
        None => Asked::NotCalled,
        Some(denial) if denial.message.ends_with(CALLED) => Asked::Called,
        Some(_) => Asked::Refused,
    })
}

// === evaluation ===

/// Whether a case is about a version that is not told from the next one.
pub(crate) fn is_of_old_version(case: &Case<'_>) -> bool {
    minor(case).is_some_and(|minor| Version::new(minor) < Version::OLDEST)
}

/// Whether selectors are switched off.
pub(crate) fn without_selectors(case: &Case<'_>) -> bool {
    case.input()["selectorsEnabled"] == false
}

fn minor(case: &Case<'_>) -> Option<u32> {
    let (_, minor) = case.input()["compatibilityVersion"].as_str()?.split_once('.')?;
    minor.parse().ok()
}

/// Each expression as the validation of a policy of its own.
fn evaluate(case: &Case<'_>) -> Result<(), Mismatch> {
    let input = case.input();
    if input["perCallLimit"].is_u64() || minor(case).is_some() {
        return evaluate_alone(case);
    }
    let expressions = input["expressions"].as_array().unwrap();
    let results = case.expect()["results"].as_array().unwrap();
    for (expression, expected) in expressions.iter().zip(results) {
        let spec = json!({"validations": [{"expression": expression, "message": CALLED}]});
        let actual = match manifests(&spec, Some(input)) {
            Err(faults) => json!({"errorContains": faults}),
            Ok(manifests) => with_request(input, |request| {
                let outcome = validated(&manifests, &ByTable(input["authorizer"].clone()), request);
                match outcome.denial {
                    None => json!({"value": true}),
                    Some(denial) if denial.message.ends_with(CALLED) => json!({"value": false}),
                    Some(denial) => json!({"errorContains": denial.message}),
                }
            }),
        };
        same_result(case, &actual, expected)?;
    }
    Ok(())
}

/// With a version or a limit that policies do not let one choose.
fn evaluate_alone(case: &Case<'_>) -> Result<(), Mismatch> {
    let mut budget = Budget::new(portcullis_cel::cost::PER_BINDING);
    if let Some(limit) = case.input()["perCallLimit"].as_u64() {
        budget = budget.per_expression(limit);
    }
    let expressions = case.input()["expressions"].as_array().unwrap();
    let results = case.expect()["results"].as_array().unwrap();
    for (expression, expected) in expressions.iter().zip(results) {
        let actual = match run(case, &[], &[expression.as_str().unwrap()], &mut budget) {
            Ok(values) => json!({"value": values.first()}),
            Err(message) => json!({"errorContains": message}),
        };
        same_result(case, &actual, expected)?;
    }
    Ok(())
}

/// The same value, or an error that tells what is expected. That an expression
/// does not compile is told in words of our own.
fn same_result(case: &Case<'_>, actual: &Value, expected: &Value) -> Result<(), Mismatch> {
    let Some(wanted) = expected["errorContains"].as_str() else {
        return case.same("result", actual, expected);
    };
    let reported = actual["errorContains"].as_str();
    let is_told = reported.is_some_and(|reported| {
        reported.contains(wanted)
            || (wanted == "compilation error" && reported.contains("compilation failed"))
    });
    if is_told {
        Ok(())
    } else {
        Err(Mismatch::new(format!("{actual}")))
    }
}

fn cost_budget(case: &Case<'_>) -> Result<(), Mismatch> {
    let units = case.input()["budget"].as_i64().unwrap();
    let mut budget = Budget::new(u64::try_from(units).unwrap_or(portcullis_cel::cost::PER_BINDING));
    let expressions: Vec<&str> = case.input()["expressions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| one.as_str().unwrap())
        .collect();
    let done = run(case, &[], &expressions, &mut budget);
    let is_over = done
        .as_ref()
        .is_err_and(|message| message.contains("running out of cost budget"));
    case.same(
        "whether the budget is exceeded",
        &is_over,
        &case.expect()["exceedsBudget"].as_bool().unwrap(),
    )?;
    match case.expect()["remaining"].as_u64() {
        Some(remaining) => case.same("remaining", &budget.remaining(), &remaining),
        None => Ok(()),
    }
}

fn variables(case: &Case<'_>) -> Result<(), Mismatch> {
    let input = case.input();
    let units = input["budget"]
        .as_u64()
        .unwrap_or(portcullis_cel::cost::PER_BINDING);
    let variables: Vec<(&str, &str)> = input["variables"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| (one["name"].as_str().unwrap(), one["expression"].as_str().unwrap()))
        .collect();
    let expression = input["expression"].as_str().unwrap();
    let actual = match run(case, &variables, &[expression], &mut Budget::new(units)) {
        Ok(values) => json!({"value": values.first()}),
        Err(message) => json!({"errorContains": message}),
    };
    same_result(case, &actual, case.expect())
}

/// The values of expressions that share variables and a budget, or the first error.
fn run(
    case: &Case<'_>,
    variables: &[(&str, &str)],
    expressions: &[&str],
    budget: &mut Budget<'_>,
) -> Result<Vec<bool>, String> {
    let input = case.input();
    let version = minor(case).map_or(Version::new(35), Version::new);
    let declared = AdmissionVariables {
        params: input["hasParamKind"] == true,
        authorizer: true,
    };
    let mut environment = portcullis_cel::Environment::admission(version, declared);
    let mut compiled = Vec::new();
    for (name, expression) in variables {
        let program = environment
            .compile(expression, &[])
            .map_err(|error| error.to_string())?
            .named(name);
        environment.add_lazy_variable(name, program.output().clone(), program.depth());
        compiled.push((environment.slot(&format!("variables.{name}")).unwrap(), program));
    }
    let programs: Vec<portcullis_cel::Program> = expressions
        .iter()
        .map(|text| {
            environment
                .compile(text, &[Type::Bool])
                .map_err(|error| error.to_string())
        })
        .collect::<Result<_, _>>()?;
    let authorizer = ByTable(input["authorizer"].clone());
    let documents = ["object", "oldObject", "params"].map(|name| (name, document(&input[name])));
    let mut activation = Activation::new(&environment);
    for (name, document) in &documents {
        if let Some(slot) = environment.slot(name) {
            activation.set(slot, portcullis_cel::Value::json(document.root()));
        }
    }
    activation.set(
        environment.slot("authorizer").unwrap(),
        portcullis_cel::Value::authorizer(&authorizer),
    );
    for (slot, program) in &compiled {
        activation.set_lazy(*slot, program);
    }
    programs
        .iter()
        .map(|program| match program.evaluate(&mut activation, budget) {
            Ok(value) => Ok(value.as_bool().unwrap()),
            Err(error) => Err(error.to_string()),
        })
        .collect()
}
