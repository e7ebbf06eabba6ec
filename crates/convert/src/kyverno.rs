//! Converts Kyverno's policies: those in CEL (`policies.kyverno.io`), and ClusterPolicies
//! (`kyverno.io`).
//!
//! A ValidatingPolicy is a ValidatingAdmissionPolicy with its binding in one object. What Kyverno
//! adds to Kubernetes' CEL and to admission is refused. For policies on Pods, Kyverno also
//! generates policies on the kinds that create Pods, and so does the conversion (`autogen`).

#![expect(
    clippy::indexing_slicing,
    reason = "what a JSON value has not is null when it is read, and only objects are written to"
)]
mod autogen;
mod cluster_policy;
mod expression;
mod policy;
mod suites;

use serde_json::{Value, json};

use crate::conversion::{self, Conversion, on_one_line};
use autogen::Controllers;
use policy::{KyvernoPolicy, spec_path};
use portcullis_cel::{PatchPath, constructed_objects, patch_paths, variable_uses};
use portcullis_policy::admission::GroupVersionKind;
use portcullis_policy::admission::apply::Schemas;
use portcullis_policy::document::Document;
use portcullis_policy::field::FieldPath;
use portcullis_policy::manifest;

pub(crate) use cluster_policy::{Exceptions, convert as convert_cluster_policy, reference};
pub(crate) use suites::suites;
pub use suites::{TestSuite, TestSuites};

/// Converts the object in `document`, of the kind `kind` in `policies.kyverno.io`.
pub(crate) fn convert(document: &Document, kind: &str) -> Conversion {
    match kind {
        "ValidatingPolicy" => convert_validating(document),
        "MutatingPolicy" => convert_mutating(document),
        _ => refused(document, kind),
    }
}

/// Refuses an object of a kind that is not converted.
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

// Converts a ValidatingPolicy to a ValidatingAdmissionPolicy.

/// The supported fields of the spec: those that are converted, and those without effect at
/// admission.
const VALIDATING_FIELDS: [&str; 10] = [
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

/// The fields that a ValidatingAdmissionPolicy also has.
const SHARED_BY_VALIDATING: [&str; 5] = [
    "matchConstraints",
    "matchConditions",
    "variables",
    "validations",
    "auditAnnotations",
];

pub(crate) fn convert_validating(document: &Document) -> Conversion {
    let mut policy = KyvernoPolicy::read(document, &VALIDATING_FIELDS);
    autogen::adapt(&mut policy);
    let mut objects = validating_objects(&policy.name, &policy.spec).to_vec();
    for controllers in Controllers::of(&policy.spec) {
        let spec = autogen::validating(&policy.spec, &controllers);
        let name = format!("{}-{}", policy.name, controllers.suffix());
        objects.extend(validating_objects(&name, &spec));
    }
    policy.made.objects = objects;
    policy.made
}

/// Copies those of `fields` that are present.
fn copy_fields(written: &Value, fields: &[&str], spec: &mut Value) {
    for field in fields {
        if !written[field].is_null() {
            spec[field] = written[field].clone();
        }
    }
}

fn validating_objects(name: &str, written: &Value) -> [Value; 2] {
    let mut spec = json!({"failurePolicy": written["failurePolicy"].as_str().unwrap_or("Fail")});
    copy_fields(written, &SHARED_BY_VALIDATING, &mut spec);
    for validation in spec["validations"].as_array_mut().into_iter().flatten() {
        // The message must be one line.
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

// Converts a MutatingPolicy to a MutatingAdmissionPolicy.

/// The supported fields of the spec: those that are converted, and those without effect at
/// admission.
const MUTATING_FIELDS: [&str; 9] = [
    "matchConstraints",
    "matchConditions",
    "variables",
    "mutations",
    "failurePolicy",
    "reinvocationPolicy",
    "autogen",
    "evaluation",
    "webhookConfiguration",
];

/// The fields that a MutatingAdmissionPolicy also has.
const SHARED_BY_MUTATING: [&str; 4] = ["matchConstraints", "matchConditions", "variables", "mutations"];

fn convert_mutating(document: &Document) -> Conversion {
    let mut policy = KyvernoPolicy::read(document, &MUTATING_FIELDS);
    autogen::adapt(&mut policy);
    refuse_shared_variables(&mut policy);
    let spec = policy.spec.clone();
    refuse_atomics(&mut policy, &spec);
    refuse_patches(&mut policy, &spec, "write a policy for the kinds that have it");
    let mut objects = mutating_objects(&policy.name, &spec).to_vec();
    for controllers in Controllers::of(&spec) {
        match autogen::mutating(&spec, &controllers) {
            Ok(derived) => {
                refuse_atomics(&mut policy, &derived);
                refuse_patches(
                    &mut policy,
                    &derived,
                    "set `autogen.podControllers.controllers` to `[]`",
                );
                let name = format!("{}-{}", policy.name, controllers.suffix());
                objects.extend(mutating_objects(&name, &derived));
            }
            Err(index) => {
                let path = spec_path(&["mutations"]).index(index);
                let reason = "what Kyverno derives from it for what makes Pods cannot be applied: set \
                              `autogen.podControllers.controllers` to `[]`";
                policy.made.refuse(document, &path, reason);
            }
        }
    }
    policy.made.objects = objects;
    policy.made
}

/// Refuses variables that read the object if there are several mutations: Kyverno evaluates a
/// variable once, Kubernetes for each mutation.
fn refuse_shared_variables(policy: &mut KyvernoPolicy<'_>) {
    if policy.spec["mutations"].as_array().map_or(0, Vec::len) < 2 {
        return;
    }
    let variables = policy.spec["variables"].clone();
    for (index, variable) in variables.as_array().into_iter().flatten().enumerate() {
        let text = variable["expression"].as_str().unwrap_or_default();
        if variable_uses(text, "object").is_ok_and(|uses| uses.is_empty()) {
            continue;
        }
        let path = spec_path(&["variables"]).index(index);
        let reason = "Kyverno evaluates it before the first mutation, Kubernetes before each, of an object that has \
                      changed: write one mutation";
        policy.made.refuse(policy.document, &path, reason);
    }
}

/// Refuses apply configurations with atomic fields: Kyverno replaces such a field, Kubernetes
/// rejects the configuration.
fn refuse_atomics(policy: &mut KyvernoPolicy<'_>, spec: &Value) {
    let kinds = kinds(spec);
    for (index, mutation) in spec["mutations"].as_array().into_iter().flatten().enumerate() {
        let Some(text) = mutation["applyConfiguration"]["expression"].as_str() else {
            continue;
        };
        let path = spec_path(&["mutations"])
            .index(index)
            .field("applyConfiguration")
            .field("expression");
        for kind in &kinds {
            if let Err(reason) = check_atomic_fields(text, kind) {
                policy.made.refuse(policy.document, &path, reason);
            }
        }
    }
}

/// Checks that Kubernetes can apply the configuration to objects of `kind`, which is `None` if the
/// kind is unknown.
fn check_atomic_fields(text: &str, kind: &Option<GroupVersionKind<'static>>) -> Result<(), String> {
    let Some(kind) = kind else {
        return Err(
            "it is for resources whose types are not known here, and Kubernetes refuses to apply atomic fields"
                .to_owned(),
        );
    };
    for (name, fields) in constructed_objects(text).unwrap_or_default() {
        let steps: Vec<&str> = name.split('.').skip(1).collect();
        for field in &fields {
            let path: Vec<&str> = steps.iter().copied().chain([field.as_str()]).collect();
            match Schemas::builtin().is_atomic(kind, &path) {
                Ok(Some(true)) => {
                    return Err(format!(
                        "Kubernetes refuses to apply `{}`, which is atomic: write a JSONPatch",
                        path.join(".")
                    ));
                }
                Ok(_) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
    }
    Ok(())
}

/// Refuses patches that add fields which the type of the object lacks. The API server drops such
/// fields of a patch from Kyverno, but with an admission policy's own patch the request fails.
/// `remedy` tells what to do.
fn refuse_patches(policy: &mut KyvernoPolicy<'_>, spec: &Value, remedy: &str) {
    let mut kinds: Vec<_> = kinds(spec).into_iter().flatten().collect();
    kinds.dedup();
    for (index, mutation) in spec["mutations"].as_array().into_iter().flatten().enumerate() {
        let text = mutation["jsonPatch"]["expression"].as_str().unwrap_or_default();
        let at = spec_path(&["mutations"])
            .index(index)
            .field("jsonPatch")
            .field("expression");
        for path in patch_paths(text).unwrap_or_default() {
            let lacking = kinds.iter().find(|kind| !may_have(kind, &path));
            let who = match lacking {
                Some(kind) => format!("a {}", kind.kind),
                None if has_wildcard(spec) && !may_all_have(&path) => "each object".to_owned(),
                None => continue,
            };
            let what = match path.is_whole {
                true => format!("does not have `{}`", path.text),
                false => "may not have where it is put, which is known only when it is evaluated".to_owned(),
            };
            let reason = format!(
                "{who} {what}: what Kyverno adds there is dropped, and Kubernetes refuses every such object \
                 with 500: {remedy}"
            );
            policy.made.refuse(policy.document, &at, reason);
        }
    }
}

fn has_wildcard(spec: &Value) -> bool {
    let rules = spec["matchConstraints"]["resourceRules"].as_array();
    let mut words = rules.into_iter().flatten().flat_map(|rule| {
        let lists = ["apiGroups", "resources"].map(|field| rule[field].as_array());
        lists.into_iter().flatten().flatten().filter_map(Value::as_str)
    });
    words.any(|word| word.split('/').any(|part| part == "*"))
}

/// The kinds that the rules match; `None` for each that is not built in.
fn kinds(spec: &Value) -> Vec<Option<GroupVersionKind<'static>>> {
    let rules = spec["matchConstraints"]["resourceRules"].as_array();
    let texts = |rule: &Value, field: &str| -> Vec<String> {
        let texts = rule[field].as_array().into_iter().flatten();
        texts.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut kinds = Vec::new();
    for rule in rules.into_iter().flatten() {
        for group in texts(rule, "apiGroups") {
            for version in texts(rule, "apiVersions") {
                let version = if version == "*" { "v1" } else { version.as_str() };
                kinds.extend(texts(rule, "resources").iter().map(|resource| {
                    manifest::kind_of(&group, version, resource).map(|kind| {
                        let kind = GroupVersionKind {
                            group: group.clone().into(),
                            version: version.to_owned().into(),
                            kind: kind.into(),
                        };
                        kind.into_owned()
                    })
                }));
            }
        }
    }
    kinds
}

fn mutating_objects(name: &str, written: &Value) -> [Value; 2] {
    let mut spec = json!({
        "failurePolicy": written["failurePolicy"].as_str().unwrap_or("Fail"),
        "reinvocationPolicy": written["reinvocationPolicy"].as_str().unwrap_or("Never"),
    });
    copy_fields(written, &SHARED_BY_MUTATING, &mut spec);
    conversion::policy_and_binding("MutatingAdmissionPolicy", name, spec, json!({}))
}

// Checks the paths of JSON patches.

/// A key that is not the field of any struct.
const ANY_KEY: &str = "*";

/// Whether objects of a built-in `kind` may have the field at `path`. The unknown part of the path
/// may be any key.
fn may_have(kind: &GroupVersionKind<'_>, path: &PatchPath) -> bool {
    let mut steps = steps(path);
    if !path.is_whole {
        steps.pop();
        steps.push(ANY_KEY.to_owned());
    }
    let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
    matches!(Schemas::builtin().is_atomic(kind, &steps), Ok(Some(_)))
}

/// Whether objects of every kind may have the field, because it is in their metadata.
fn may_all_have(path: &PatchPath) -> bool {
    let kind = GroupVersionKind {
        group: "".into(),
        version: "v1".into(),
        kind: "ConfigMap".into(),
    };
    path.text.starts_with("/metadata/") && may_have(&kind, path)
}

/// The names of fields and keys, without list indexes.
fn steps(path: &PatchPath) -> Vec<String> {
    let is_place =
        |step: &&str| *step == "-" || !step.is_empty() && step.bytes().all(|byte| byte.is_ascii_digit());
    let steps = path.text.split('/').skip(1).filter(|step| !is_place(step));
    steps
        .map(|step| step.replace("~1", "/").replace("~0", "~"))
        .collect()
}

#[cfg(test)]
mod tests;
