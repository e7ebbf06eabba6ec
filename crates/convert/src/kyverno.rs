//! Kyverno's policies: those in CEL (`policies.kyverno.io`), and ClusterPolicies (`kyverno.io`).
//!
//! A ValidatingPolicy is a ValidatingAdmissionPolicy with its binding in one object; what Kyverno
//! adds to Kubernetes' CEL and to admission is refused. For policies on Pods Kyverno also makes
//! policies on what makes Pods, and so does the conversion (`autogen`).

#![expect(
    clippy::indexing_slicing,
    reason = "what a JSON value has not is null when it is read, and only objects are written to"
)]

mod autogen;
mod cluster_policy;
mod expression;
mod mutating;
mod policy;
mod suites;

use autogen::Controllers;
pub(crate) use cluster_policy::{Exceptions, convert as convert_cluster_policy, reference};
use policy::KyvernoPolicy;
use serde_json::{Value, json};
pub(crate) use suites::suites;
pub use suites::{TestSuite, TestSuites};

use crate::conversion::{self, Conversion, on_one_line};
use portcullis_policy::document::Document;
use portcullis_policy::field::FieldPath;

/// Converts the object that `document` is, of the kind `kind` of `policies.kyverno.io`.
pub(crate) fn convert(document: &Document, kind: &str) -> Conversion {
    match kind {
        "ValidatingPolicy" => convert_validating(document),
        "MutatingPolicy" => mutating::convert(document),
        _ => refused(document, kind),
    }
}

/// Refuses an object of a kind that has no counterpart.
pub(crate) fn refused(document: &Document, kind: &str) -> Conversion {
    let mut made = Conversion::default();
    let reason = match kind {
        "ImageValidatingPolicy" | "NamespacedImageValidatingPolicy" => "admission policies verify no images",
        "GeneratingPolicy" | "NamespacedGeneratingPolicy" => "admission policies create no objects",
        "DeletingPolicy" | "NamespacedDeletingPolicy" => "admission policies delete no objects",
        "PolicyException" => {
            "write an AdmissionException, which names whom and what it excuses, and until when"
        }
        "NamespacedValidatingPolicy" | "NamespacedMutatingPolicy" => {
            "admission policies belong to no namespace: write a policy for the cluster"
        }
        _ => "objects of this kind are not converted",
    };
    made.refuse(document, &FieldPath::root().field("kind"), reason);
    made
}

// ValidatingPolicy to ValidatingAdmissionPolicy.

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

pub(crate) fn convert_validating(document: &Document) -> Conversion {
    let mut policy = KyvernoPolicy::read(document, &KNOWN);
    autogen::adapt(&mut policy);
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

#[cfg(test)]
mod tests;
