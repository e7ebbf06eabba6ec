//! Selectors: how those of a review are read, and how labels are matched.

use std::collections::BTreeMap;

use portcullis_policy::api::SubjectAccessReview;
use portcullis_policy::field::FaultKind;
use portcullis_policy::model::{
    LabelExpression, LabelSelector, Operator, Requirement, ResourceAttributes, Target,
};
use serde_json::{Value, json};

use crate::harness::{Case, Mismatch, Table};
use crate::sar;
use crate::tools::reviews::authorization;

pub(crate) const CHECKS: Table = &[
    ("attributesFromSAR", attributes_from_sar),
    ("labelSelectorMatches", label_selector_matches),
    ("validateSARSpec", validate_sar_spec),
    ("webhookSelectorPolicy", webhook_selector_policy),
];

/// The attributes of a review are the API server's, but for an empty version
/// (there `*`; no rule looks at it) and what proves nothing.
fn attributes_from_sar(case: &Case<'_>) -> Result<(), Mismatch> {
    let mut expected = case.expect().clone();
    if expected["version"] == "*" {
        expected["version"] = "".into();
    }
    let body = review(&case.input()["spec"]);
    let actual = match decode(&body)? {
        Target::Resource(resource) => Target::Resource(Box::new(proving(*resource))),
        path @ Target::NonResource { .. } => path,
    };
    case.same("target", &actual, &sar::target(&expected))
}

/// Every fault that the API server finds, at its field. On `/authorize` the
/// faults of selectors do not refuse the review: they widen it.
fn validate_sar_spec(case: &Case<'_>) -> Result<(), Mismatch> {
    let body = authorization(&case.input()["spec"]).to_string();
    let faults = SubjectAccessReview::faults(body.as_bytes())
        .map_err(|error| Mismatch::new(format!("unreadable: {}", error.message())))?;
    let actual: Vec<_> = faults
        .iter()
        .map(|fault| (kind(fault.kind), fault.place.path.to_string()))
        .collect();
    let errors = case.expect()["errors"].as_array().into_iter().flatten();
    let expected: Vec<_> = errors
        .map(|error| {
            (
                error["type"].as_str().unwrap(),
                error["field"].as_str().unwrap().to_owned(),
            )
        })
        .collect();
    case.same("list of faults", &actual, &expected)?;
    case.same(
        "validity",
        &faults.is_empty(),
        &case.expect()["valid"].as_bool().unwrap(),
    )?;
    let of_selectors = |(_, field): &(&str, String)| field.contains("Selector");
    let answered = SubjectAccessReview::decode(body.as_bytes()).is_ok();
    case.same(
        "whether it is answered",
        &answered,
        &expected.iter().all(of_selectors),
    )
}

pub(crate) fn kind(kind: FaultKind) -> &'static str {
    match kind {
        FaultKind::Required => "FieldValueRequired",
        FaultKind::Invalid => "FieldValueInvalid",
        FaultKind::Forbidden => "FieldValueForbidden",
        FaultKind::NotSupported => "FieldValueNotSupported",
        FaultKind::TooMany => "FieldValueTooMany",
        FaultKind::Duplicate => "FieldValueDuplicate",
        FaultKind::TypeInvalid => "FieldValueTypeInvalid",
        other => other.as_str(),
    }
}

/// The table that KEP-4601 gives to webhooks, each row by what is left to prove something.
fn webhook_selector_policy(case: &Case<'_>) -> Result<(), Mismatch> {
    let spec = json!({"user": "u", "resourceAttributes": case.input()["resourceAttributes"]});
    let body = review(&spec);
    let Target::Resource(resource) = decode(&body)? else {
        return Err(Mismatch::new("no resource request"));
    };
    let left: Vec<_> = proving(*resource)
        .selectors
        .all()
        .iter()
        .map(|one| one.key.to_string())
        .collect();
    let sent = written(case);
    let expected = match case.expect()["rule"].as_str().unwrap() {
        rule if rule.starts_with("honour requirements") => sent,
        rule if rule.starts_with("drop unknown requirement") => sent
            .into_iter()
            .filter(|(_, operator)| operator != "Fuzzy")
            .collect(),
        // No grant may rest on a selector that is invalid, or not read.
        _ => Vec::new(),
    };
    let expected: Vec<_> = expected.into_iter().map(|(key, _)| key).collect();
    case.same("list of requirements", &left, &expected)
}

/// Key and operator of each requirement sent.
fn written(case: &Case<'_>) -> Vec<(String, String)> {
    let resource = &case.input()["resourceAttributes"];
    ["fieldSelector", "labelSelector"]
        .iter()
        .flat_map(|selector| {
            resource[selector]["requirements"]
                .as_array()
                .into_iter()
                .flatten()
        })
        .map(|one| {
            (
                one["key"].as_str().unwrap().to_owned(),
                one["operator"].as_str().unwrap().to_owned(),
            )
        })
        .collect()
}

fn label_selector_matches(case: &Case<'_>) -> Result<(), Mismatch> {
    let input = case.input();
    let expected_error = matches!(&case.expect()["error"], Value::Bool(true) | Value::String(_));
    let selector = match compile(&input["selector"]) {
        Ok(selector) => selector,
        Err(_) if expected_error => return Ok(()),
        Err(error) => return Err(Mismatch::new(error)),
    };
    case.same("error", &false, &expected_error)?;
    let labels = input["labels"].as_object();
    let matches = selector.matches(|key| labels?.get(key)?.as_str());
    case.same("match", &matches, &case.expect()["match"].as_bool().unwrap())?;
    match case.expect()["empty"].as_bool() {
        Some(empty) => case.same("empty", &selector.is_empty(), &empty),
        None => Ok(()),
    }
}

pub(crate) fn compile(selector: &Value) -> Result<LabelSelector, String> {
    let labels: BTreeMap<String, String> =
        serde_json::from_value(selector["matchLabels"].clone()).unwrap_or_default();
    let expressions: Vec<_> = selector["matchExpressions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| LabelExpression {
            key: one["key"].as_str().unwrap_or_default().to_owned(),
            operator: one["operator"].as_str().unwrap_or_default().to_owned(),
            values: serde_json::from_value(one["values"].clone()).unwrap_or_default(),
        })
        .collect();
    LabelSelector::compile(&labels, &expressions).map_err(|error| error.to_string())
}

/// A review of `spec`, by `u` where it names nobody.
fn review(spec: &Value) -> String {
    let mut spec = spec.clone();
    if spec["user"].is_null() && spec["groups"].is_null() {
        spec["user"] = "u".into();
    }
    authorization(&spec).to_string()
}

fn decode(body: &str) -> Result<Target<'_>, Mismatch> {
    SubjectAccessReview::decode(body.as_bytes())
        .map(|review| review.attributes.target)
        .map_err(|error| Mismatch::new(format!("refused: {}", error.message())))
}

/// The request with those requirements alone by which a grant may be decided.
fn proving(mut resource: ResourceAttributes<'_>) -> ResourceAttributes<'_> {
    let known = |one: &Requirement<'_>| !matches!(one.operator, Operator::Unknown(_));
    let of_field = |one: &Requirement<'_>| matches!(one.operator, Operator::In | Operator::NotIn);
    resource.selectors.field.retain(of_field);
    resource.selectors.label.retain(known);
    resource
}

trait All<'a> {
    fn all(&self) -> Vec<&Requirement<'a>>;
}

impl<'a> All<'a> for portcullis_policy::model::Selectors<'a> {
    fn all(&self) -> Vec<&Requirement<'a>> {
        self.field.iter().chain(&self.label).collect()
    }
}
