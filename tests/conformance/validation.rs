//! Validation of the manifests of admission: policies, their bindings, and webhooks.

use portcullis_policy::field::{Fault, Severity};
use portcullis_policy::manifest::{Options, Source, load};
use serde_json::{Value, json};

use crate::harness::{Case, Mismatch, Table};

pub(crate) const POLICIES: Table = &[
    ("validateValidatingAdmissionPolicy", validate),
    ("validateValidatingAdmissionPolicyBinding", validate),
    ("validateMutatingAdmissionPolicy", validate),
    ("validateMutatingAdmissionPolicyBinding", validate),
];
pub(crate) const WEBHOOKS: Table = &[
    ("validateValidatingWebhookConfiguration", validate),
    ("validateValidatingWebhookConfigurationUpdate", validate),
    ("validateMutatingWebhookConfiguration", validate),
    ("validateMutatingWebhookConfigurationUpdate", validate),
    ("webhookURL", validate_url),
    ("webhookService", validate_service),
    ("ruleResources", validate_resources),
];

/// Fields whose defaults are filled in before anything is checked.
const DEFAULTED: [&str; 4] = [
    "failurePolicy",
    "matchPolicy",
    "namespaceSelector",
    "objectSelector",
];

pub(crate) fn source(objects: &[Value]) -> Source {
    let text = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    Source {
        file: "case.json".into(),
        text,
        cluster: None,
    }
}

/// What is wrong with `object`: the type of each fault and its field.
fn faults(object: &Value) -> Vec<(String, String)> {
    let (_, faults) = load(&[source(std::slice::from_ref(object))], &Options::default());
    let kind = |fault: &Fault| match fault.kind.as_str() {
        "Required value" => "FieldValueRequired",
        "Invalid value" => "FieldValueInvalid",
        "Unsupported value" => "FieldValueNotSupported",
        "Duplicate value" => "FieldValueDuplicate",
        "Forbidden" => "FieldValueForbidden",
        "Too many" => "FieldValueTooMany",
        _ => "other",
    };
    let reported = faults.iter().filter(|fault| fault.severity == Severity::Error);
    reported
        .map(|fault| (kind(fault).to_owned(), fault.place.path.to_string()))
        .collect()
}

/// The faults that are expected: in a field below `base`, or at `base` where none is named.
fn expected(case: &Case<'_>, base: &str) -> Vec<(String, String)> {
    let errors = case.expect()["errors"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    errors
        .map(|error| (text(&error["type"]), format!("{base}{}", text(&error["field"]))))
        .filter(|(kind, field)| {
            let is_defaulted = DEFAULTED.iter().any(|name| field.ends_with(&format!(".{name}")));
            kind != "FieldValueRequired" || !is_defaulted
        })
        .collect()
}

fn validate(case: &Case<'_>) -> Result<(), Mismatch> {
    case.same("faults", &faults(&case.input()["object"]), &expected(case, ""))
}

/// Whether what stood there before the update would itself be refused, so that
/// the API server is lenient about the new one.
pub(crate) fn follows_a_bad_one(case: &Case<'_>) -> bool {
    !faults(&case.input()["oldObject"]).is_empty()
}

/// A valid configuration, but for `field` of its webhook.
fn webhook(field: &str, value: Value) -> Value {
    let mut webhook = json!({
        "name": "a.example.com", "clientConfig": {"url": "https://example.com"},
        "sideEffects": "None", "admissionReviewVersions": ["v1"],
    });
    webhook[field] = value;
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "case"}, "webhooks": [webhook],
    })
}

fn validate_url(case: &Case<'_>) -> Result<(), Mismatch> {
    let object = webhook("clientConfig", json!({"url": case.input()["url"]}));
    let base = "webhooks[0].clientConfig.url";
    case.same("faults", &faults(&object), &expected(case, base))
}

fn validate_service(case: &Case<'_>) -> Result<(), Mismatch> {
    let object = webhook("clientConfig", json!({"service": case.input()}));
    let base = "webhooks[0].clientConfig.";
    case.same("faults", &faults(&object), &expected(case, base))
}

fn validate_resources(case: &Case<'_>) -> Result<(), Mismatch> {
    let rule = json!({
        "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"],
        "resources": case.input()["resources"],
    });
    let object = webhook("rules", json!([rule]));
    case.same(
        "faults",
        &faults(&object),
        &expected(case, "webhooks[0].rules[0]."),
    )
}
