//! Kyverno's policies in CEL (`policies.kyverno.io`).
//!
//! A ValidatingPolicy is a ValidatingAdmissionPolicy with its binding in one object; what Kyverno
//! adds to Kubernetes' CEL and to admission is refused. For policies on Pods Kyverno also makes
//! policies on what makes Pods, and so does the conversion (`autogen`).

#![expect(
    clippy::indexing_slicing,
    reason = "what a JSON value has not is null when it is read, and only objects are written to"
)]

mod autogen;
mod mutating;

use autogen::Controllers;
use serde_json::{Value, json};

use crate::conversion::{self, Conversion};
use portcullis_cel::PatchPath;
use portcullis_policy::document::Document;
use portcullis_policy::engine::admission::GroupVersionKind;
use portcullis_policy::engine::admission::apply::Schemas;
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
        "ClusterPolicy" | "Policy" => {
            "its patterns and JMESPath are no CEL: only kinds of `policies.kyverno.io` are converted"
        }
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

// What the specs of Kyverno's policies have in common.

/// A policy as it is written, and what becomes of it.
pub(crate) struct KyvernoPolicy<'d> {
    pub(crate) document: &'d Document,
    pub(crate) name: String,
    pub(crate) spec: Value,
    pub(crate) made: Conversion,
}

/// For which operations the policy runs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WrittenOperations {
    /// Where there is no old object.
    pub(crate) creates: bool,
    /// Where there is no new object.
    pub(crate) deletes: bool,
}

// === impl KyvernoPolicy ===

impl<'d> KyvernoPolicy<'d> {
    /// Reads the policy, whose spec may have the fields `known`.
    pub(crate) fn read(document: &'d Document, known: &[&str]) -> Self {
        let spec = document.root().get("spec").map(|spec| spec.to_json());
        let mut policy = Self {
            document,
            name: document
                .root()
                .get("metadata")
                .and_then(|metadata| metadata.get("name")?.as_str())
                .unwrap_or_default()
                .to_owned(),
            spec: spec.unwrap_or_default(),
            made: Conversion::default(),
        };
        policy.refuse_unknown(known);
        policy.refuse_other_evaluations();
        policy.refuse_names();
        policy
    }

    /// Refuses the policy for what stands at `steps` of its spec.
    pub(crate) fn refuse(&mut self, steps: &[&str], reason: impl Into<String>) {
        let path = spec_path(steps);
        self.made.refuse(self.document, &path, reason);
    }

    fn refuse_unknown(&mut self, known: &[&str]) {
        let fields: Vec<String> = self
            .spec
            .as_object()
            .into_iter()
            .flatten()
            .map(|(field, _)| field.clone())
            .collect();
        for field in fields.iter().filter(|field| !known.contains(&field.as_str())) {
            self.refuse(&[field], "this field has no counterpart");
        }
        if self.spec["matchConstraints"]["resourceRules"]
            .as_array()
            .is_none_or(Vec::is_empty)
        {
            self.refuse(&["matchConstraints"], "it matches no resource by name");
        }
    }

    /// `evaluation`: only what is decided at admission, about objects of Kubernetes, is converted.
    fn refuse_other_evaluations(&mut self) {
        let evaluation = self.spec["evaluation"].clone();
        if evaluation["mode"]
            .as_str()
            .is_some_and(|mode| mode != "Kubernetes")
        {
            self.refuse(&["evaluation", "mode"], "it is not about objects of Kubernetes");
        }
        if evaluation["admission"]["enabled"] == Value::Bool(false) {
            self.refuse(&["evaluation", "admission"], "it decides nothing at admission");
        }
        for field in ["mutateExisting", "synchronize", "useServerSideApply"] {
            let is_on = match &evaluation[field] {
                Value::Bool(on) => *on,
                Value::Object(fields) => fields.get("enabled").is_some_and(|on| *on == Value::Bool(true)),
                _ => false,
            };
            if is_on {
                self.refuse(
                    &["evaluation", field],
                    "admission policies change the object of the request alone",
                );
            }
        }
    }

    /// Kyverno's `resourceNames` also stand for the beginning of a `generateName`.
    fn refuse_names(&mut self) {
        for list in ["resourceRules", "excludeResourceRules"] {
            let rules = self.spec["matchConstraints"][list].clone();
            for (index, rule) in rules.as_array().into_iter().flatten().enumerate() {
                let is_named = rule["resourceNames"]
                    .as_array()
                    .is_some_and(|names| !names.is_empty());
                if is_named && operations_of(rule).creates {
                    let path = spec_path(&["matchConstraints", list])
                        .index(index)
                        .field("resourceNames");
                    let reason = "Kyverno also takes a name for the beginning of `generateName`";
                    self.made.refuse(self.document, &path, reason);
                }
            }
        }
    }

    /// For which operations it runs.
    pub(crate) fn operations(&self) -> WrittenOperations {
        let rules = self.spec["matchConstraints"]["resourceRules"].as_array();
        let all = rules.into_iter().flatten().map(operations_of);
        all.fold(WrittenOperations::default(), |all, one| WrittenOperations {
            creates: all.creates || one.creates,
            deletes: all.deletes || one.deletes,
        })
    }

    /// Whether it may run for Namespaces themselves.
    pub(crate) fn matches_namespaces(&self) -> bool {
        let has = |rule: &Value, field: &str, names: &[&str]| {
            let written = rule[field]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str);
            written.into_iter().any(|one| names.contains(&one))
        };
        let rules = self.spec["matchConstraints"]["resourceRules"].as_array();
        rules.into_iter().flatten().any(|rule| {
            has(rule, "apiGroups", &["", "*"])
                && has(
                    rule,
                    "resources",
                    &[
                        "*",
                        "*/*",
                        "namespaces",
                        "namespaces/*",
                        "namespaces/status",
                        "namespaces/finalize",
                    ],
                )
        })
    }
}

/// `spec.a.b`.
pub(crate) fn spec_path(steps: &[&str]) -> FieldPath {
    let spec = FieldPath::root().field("spec");
    steps.iter().fold(spec, |path, step| path.field(step))
}

fn operations_of(rule: &Value) -> WrittenOperations {
    let has = |names: &[&str]| {
        let written = rule["operations"].as_array().into_iter().flatten();
        written.filter_map(Value::as_str).any(|one| names.contains(&one))
    };
    WrittenOperations {
        creates: has(&["CREATE", "CONNECT", "*"]),
        deletes: has(&["DELETE", "*"]),
    }
}

// What JSON patches put where.

/// A key that no struct has.
const ANY_KEY: &str = "*";

/// Whether objects of a built-in `kind` have what `path` names; what is not known of it may be any
/// key.
pub(crate) fn may_have(kind: &GroupVersionKind<'_>, path: &PatchPath) -> bool {
    let mut steps = steps(path);
    if !path.is_whole {
        steps.pop();
        steps.push(ANY_KEY.to_owned());
    }
    let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
    matches!(Schemas::builtin().is_atomic(kind, &steps), Ok(Some(_)))
}

/// Whether objects of every kind do: what is in their metadata.
pub(crate) fn may_all_have(path: &PatchPath) -> bool {
    let kind = GroupVersionKind {
        group: "".into(),
        version: "v1".into(),
        kind: "ConfigMap".into(),
    };
    path.text.starts_with("/metadata/") && may_have(&kind, path)
}

/// The names of fields and keys; places in lists are left out.
fn steps(path: &PatchPath) -> Vec<String> {
    let is_place =
        |step: &&str| *step == "-" || !step.is_empty() && step.bytes().all(|byte| byte.is_ascii_digit());
    let steps = path.text.split('/').skip(1).filter(|step| !is_place(step));
    steps
        .map(|step| step.replace("~1", "/").replace("~0", "~"))
        .collect()
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

fn on_one_line(text: &str) -> String {
    if text.trim() == text && !text.contains(['\n', '\r']) {
        return text.to_owned();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
