//! A constraint as a ValidatingAdmissionPolicyBinding, whose parameter it is.

#![expect(
    clippy::indexing_slicing,
    reason = "what a JSON value has not is null when it is read, and only objects are written to"
)]

use serde_json::{Value, json};

use super::CONSTRAINTS;
use crate::conversion::Conversion;
use portcullis_policy::document::Document;
use portcullis_policy::field::FieldPath;

/// What of `match` the policy and the binding look at.
const MATCH: [&str; 6] = [
    "kinds",
    "namespaces",
    "excludedNamespaces",
    "name",
    "labelSelector",
    "namespaceSelector",
];

pub(crate) fn convert(document: &Document, kind: &str) -> Conversion {
    let mut made = Conversion::default();
    let path = FieldPath::root().field("spec");
    let mut object = document.root().to_json();
    let spec = object["spec"].clone();
    for (field, value) in spec["match"].as_object().into_iter().flatten() {
        let is_default =
            field == "scope" && *value == json!("*") || field == "source" && *value == json!("All");
        if !MATCH.contains(&field.as_str()) && !is_default {
            let reason = "Gatekeeper's own ValidatingAdmissionPolicies do not look at it";
            made.refuse(document, &path.field("match").field(field), reason);
        }
    }
    let action = match spec["enforcementAction"].as_str().unwrap_or("deny") {
        "deny" => "Deny",
        "warn" => "Warn",
        "dryrun" => "Audit",
        _ => {
            let reason = "only `deny`, `warn` and `dryrun` have a counterpart";
            made.refuse(document, &path.field("enforcementAction"), reason);
            return made;
        }
    };
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let mut resources = json!({});
    for (field, from) in [
        ("objectSelector", "labelSelector"),
        ("namespaceSelector", "namespaceSelector"),
    ] {
        if !spec["match"][from].is_null() {
            resources[field] = spec["match"][from].clone();
        }
    }
    let mut binding = json!({
        "policyName": super::policy_name(kind),
        "paramRef": {"name": name, "parameterNotFoundAction": "Allow"},
        "validationActions": [action],
    });
    if resources != json!({}) {
        binding["matchResources"] = resources;
    }
    object["apiVersion"] = Value::from(format!("{CONSTRAINTS}/v1beta1"));
    if let Some(object) = object.as_object_mut() {
        object.remove("status");
    }
    made.objects.push(json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": format!("{}-{name}", super::policy_name(kind))},
        "spec": binding,
    }));
    made.objects.push(object);
    made
}
