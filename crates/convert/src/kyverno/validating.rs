//! ValidatingPolicy to ValidatingAdmissionPolicy.

#![expect(
    clippy::indexing_slicing,
    reason = "what a JSON value has not is null when it is read, and only objects are written to"
)]

use serde_json::{Value, json};

use super::autogen::{self, Controllers};
use super::expressions;
use super::spec::KyvernoPolicy;
use crate::conversion::{self, Conversion};
use portcullis_policy::document::Document;

/// The fields of a spec that are read, or have no effect at admission.
const KNOWN: [&str; 10] = [
    "matchConstraints",
    "matchConditions",
    "variables",
    "validations",
    "auditAnnotations",
    "failurePolicy",
    "validationActions",
    "autogen",
    "evaluation",
    "webhookConfiguration",
];

/// The fields that both kinds have.
const SHARED: [&str; 5] = [
    "matchConstraints",
    "matchConditions",
    "variables",
    "validations",
    "auditAnnotations",
];

pub(crate) fn convert(document: &Document) -> Conversion {
    let mut policy = KyvernoPolicy::read(document, &KNOWN);
    expressions::adapt(&mut policy);
    let mut objects = objects(&policy.name, &policy.spec).to_vec();
    for controllers in Controllers::of(&policy.spec) {
        let spec = autogen::validating(&policy.spec, &controllers);
        let name = format!("{}-{}", policy.name, controllers.suffix());
        objects.extend(self::objects(&name, &spec));
    }
    policy.made.objects = objects;
    policy.made
}

fn objects(name: &str, written: &Value) -> [Value; 2] {
    let mut spec = json!({"failurePolicy": written["failurePolicy"].as_str().unwrap_or("Fail")});
    for field in SHARED {
        if !written[field].is_null() {
            spec[field] = written[field].clone();
        }
    }
    for validation in spec["validations"].as_array_mut().into_iter().flatten() {
        // A message has one line.
        let message = validation["message"].as_str().map(on_one_line);
        if let (Some(message), Some(validation)) = (message, validation.as_object_mut()) {
            match message.is_empty() {
                true => validation.remove("message"),
                false => validation.insert("message".to_owned(), message.into()),
            };
        }
    }
    let actions = match &written["validationActions"] {
        Value::Array(actions) if !actions.is_empty() => Value::Array(actions.clone()),
        _ => json!(["Deny"]),
    };
    conversion::policy_and_binding(
        "ValidatingAdmissionPolicy",
        name,
        spec,
        json!({"validationActions": actions}),
    )
}

fn on_one_line(text: &str) -> String {
    if text.trim() == text && !text.contains(['\n', '\r']) {
        return text.to_owned();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
