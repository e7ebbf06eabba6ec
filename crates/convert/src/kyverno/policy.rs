//! The common parts of Kyverno's policies in CEL.

use serde_json::Value;

use crate::conversion::Conversion;
use portcullis_policy::document::Document;
use portcullis_policy::field::FieldPath;

/// A policy as written, and the result of its conversion.
pub(crate) struct KyvernoPolicy<'d> {
    pub(crate) document: &'d Document,
    pub(crate) name: String,
    pub(crate) spec: Value,
    pub(crate) made: Conversion,
}

/// The kinds of operations for which a policy is evaluated.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WrittenOperations {
    /// Operations without an old object.
    pub(crate) creates: bool,
    /// Operations without a new object.
    pub(crate) deletes: bool,
}

// === impl KyvernoPolicy ===

impl<'d> KyvernoPolicy<'d> {
    /// Reads the policy, whose spec may only have the fields `known`.
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

    /// Refuses the policy because of the field at `steps` in its spec.
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

    /// Refuses settings in `evaluation` other than for objects of Kubernetes at admission.
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

    /// Refuses `resourceNames` for creates, because Kyverno also compares them with `generateName`.
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

    /// The kinds of operations for which the policy is evaluated.
    pub(crate) fn operations(&self) -> WrittenOperations {
        let rules = self.spec["matchConstraints"]["resourceRules"].as_array();
        let all = rules.into_iter().flatten().map(operations_of);
        all.fold(WrittenOperations::default(), |all, one| WrittenOperations {
            creates: all.creates || one.creates,
            deletes: all.deletes || one.deletes,
        })
    }

    /// Whether the policy may be evaluated for Namespaces.
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

/// The path of a field in `spec`.
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
