//! Admission: what becomes of the values of expressions, and of warnings.

use portcullis_cel::Value as CelValue;
use portcullis_policy::admission::validating::{
    AnnotationValue, ValidationDecision, ValidationTexts, annotate, decide,
};
use portcullis_policy::admission::{ExpressionResult, FailurePolicy, MatchConditions, Warnings};
use portcullis_policy::model::StatusReason;
use serde_json::{Value, json};

use crate::harness::{Case, Mismatch, Table};

pub(crate) const WARNINGS: Table = &[("warningHeaders", warnings)];
pub(crate) const CONDITIONS: Table = &[("combine", combined)];
pub(crate) const VALIDATIONS: Table = &[("vapDecision", decisions)];

// === warnings ===

/// The text of each header; its agent is the API server's to name.
fn warnings(case: &Case<'_>) -> Result<(), Mismatch> {
    let mut warnings = Warnings::default();
    for warning in case.input()["warnings"].as_array().into_iter().flatten() {
        warnings.push(warning["text"].as_str().unwrap());
    }
    let texts: Vec<String> = warnings.iter().map(quoted).collect();
    let headers = case.expect()["headers"].as_array().into_iter().flatten();
    let expected: Vec<String> = headers
        .map(|header| header.as_str().unwrap().splitn(3, ' ').last().unwrap().to_owned())
        .collect();
    case.same("texts", &texts, &expected)
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

// === the values of expressions ===

/// Whether Kubernetes' stand-in for the evaluator fails as a whole. Ours does so
/// for its budget alone.
pub(crate) fn has_broken_evaluator(case: &Case<'_>) -> bool {
    case.input()["evaluatorError"] == true
}

fn failure_policy(case: &Case<'_>) -> FailurePolicy {
    match case.input()["failurePolicy"].as_str() {
        Some("Ignore") => FailurePolicy::Ignore,
        _ => FailurePolicy::Fail,
    }
}

fn combined(case: &Case<'_>) -> Result<(), Mismatch> {
    let results: Vec<(&str, ExpressionResult<'_>)> = case.input()["results"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| {
            let result = match one["result"].as_str().unwrap() {
                "error" => ExpressionResult::Failed("test error".to_owned()),
                text => ExpressionResult::Value(CelValue::Bool(text == "true")),
            };
            (one["name"].as_str().unwrap(), result)
        })
        .collect();
    let results = results.iter().map(|(name, result)| (*name, result));
    let shown = match MatchConditions::combine(results, failure_policy(case)) {
        MatchConditions::Match => json!({"match": true, "failedCondition": null}),
        MatchConditions::NoMatch(name) => {
            json!({"match": false, "failedCondition": name.filter(|name| !name.is_empty())})
        }
        MatchConditions::Error(message) => {
            let wanted = case.expect()["errorContains"].as_str().unwrap_or_default();
            let is_told = message.contains(wanted);
            json!({"error": true, "errorContains": is_told.then_some(wanted)})
        }
    };
    case.same("outcome", &shown, case.expect())
}

fn decisions(case: &Case<'_>) -> Result<(), Mismatch> {
    let policy = failure_policy(case);
    let list = |name: &str| case.input()[name].as_array().cloned().unwrap_or_default();
    let messages: Vec<ExpressionResult<'_>> = list("messageResults").iter().map(evaluated).collect();
    let is_spent = case.input()["budget"].is_u64();
    let validations = list("validationResults");
    let decisions: Vec<ValidationDecision> = validations
        .iter()
        .enumerate()
        .map(|(index, one)| {
            let texts = ValidationTexts {
                expression: text(&one["validation"], "Expression"),
                message: text(&one["validation"], "Message"),
                reason: one["validation"]["Reason"]
                    .as_str()
                    .and_then(StatusReason::parse)
                    .unwrap_or(StatusReason::Invalid),
            };
            let message = if is_spent {
                Err("validation failed due to running out of cost budget, no further validation rules will be run")
            } else {
                Ok(messages.get(index))
            };
            decide(texts, Some(&evaluated(one)), message, policy)
        })
        .collect();
    let expected = case.expect()["decisions"].as_array().unwrap();
    case.same("number of decisions", &decisions.len(), &expected.len())?;
    for (decision, expected) in decisions.iter().zip(expected) {
        let (action, message, reason) = match decision {
            ValidationDecision::Admit | ValidationDecision::Ignored { .. } => ("admit", "", ""),
            ValidationDecision::Deny { message, reason } => ("deny", message.as_str(), reason.as_str()),
            ValidationDecision::Error { message } => ("deny", message.as_str(), ""),
        };
        case.same("action", &action, &text(expected, "action"))?;
        case.same("reason", &is_given(reason, text(expected, "reason")), &true)?;
        case.same(
            "whether the message tells",
            &message.contains(text(expected, "messageContains")),
            &true,
        )?;
    }
    annotations(case, &list("auditResults"), policy)
}

/// Kubernetes' cases leave out what they do not look at.
fn is_given(actual: &str, expected: &str) -> bool {
    expected.is_empty() || actual == expected
}

fn annotations(case: &Case<'_>, results: &[Value], policy: FailurePolicy) -> Result<(), Mismatch> {
    let shown: Vec<Value> = results
        .iter()
        .map(|one| {
            let expression = text(&one["audit"], "ValueExpression");
            let (action, value, error) = match annotate(expression, &evaluated(one), policy) {
                AnnotationValue::Publish(value) => ("publish", value, String::new()),
                AnnotationValue::Exclude => ("exclude", String::new(), String::new()),
                AnnotationValue::Error(error) => ("error", String::new(), error),
            };
            json!({"key": one["audit"]["Key"], "value": value, "action": action, "error": error})
        })
        .collect();
    let mut expected = case.expect()["auditAnnotations"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    for one in &mut expected {
        // An error that the failure policy lets pass is not told here.
        if one["action"] == "exclude" {
            one["error"] = json!("");
        }
    }
    case.same("annotations", &shown, &expected)
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_default()
}

/// The value that a case names, or its error.
fn evaluated(result: &Value) -> ExpressionResult<'static> {
    if let Some(error) = result["error"].as_str() {
        return ExpressionResult::Failed(error.to_owned());
    }
    ExpressionResult::Value(match &result["value"] {
        Value::Null => CelValue::Null,
        Value::Bool(value) => CelValue::Bool(*value),
        Value::String(text) => CelValue::string(text.as_str()),
        Value::Number(number) => CelValue::Int(number.as_i64().unwrap()),
        other => panic!("{other}"),
    })
}
