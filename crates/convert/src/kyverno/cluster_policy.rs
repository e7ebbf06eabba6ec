//! Kyverno's ClusterPolicy and Policy (`kyverno.io/v1`), rule by rule.
//!
//! ```text
//! rule ─▶ controllers  the rules that Kyverno derives from it
//!      ─▶ matching     match, exclude          ─▶ resource rules, match conditions
//!      ─▶ pattern, …   what it asks of objects ─▶ one validation
//! ```
//!
//! Each rule becomes a policy with its binding. If one cannot be converted, none is: what is left
//! would let through what the policy refuses.

#![expect(
    clippy::indexing_slicing,
    reason = "what a JSON value has not is null when it is read, and only objects are written to"
)]

mod controllers;
mod kinds;
mod matching;
mod pattern;
mod refusal;
mod scalar;

use matching::{Matching, NAMESPACE, Subject};
use refusal::Refusal;
use serde_json::{Value, json};

use super::autogen::is_optional;
use super::expression::{Condition, one_of};
use crate::conversion::{self, Conversion, on_one_line};
use portcullis_cel::plain_or_values;
use portcullis_policy::document::Document;
use portcullis_policy::field::FieldPath;

/// The fields of a spec that are read, or have no effect on what is admitted.
const SPEC: [&str; 13] = [
    "rules",
    "applyRules",
    "failurePolicy",
    "validationFailureAction",
    "emitWarning",
    "admission",
    "background",
    "schemaValidation",
    "webhookTimeoutSeconds",
    "webhookConfiguration",
    "generateExisting",
    "generateExistingOnPolicyUpdate",
    "mutateExistingOnPolicyUpdate",
];

/// The fields of a rule that are read, or have no effect on what is admitted.
const RULE: [&str; 8] = [
    "name",
    "match",
    "exclude",
    "celPreconditions",
    "preconditions",
    "validate",
    "skipBackgroundRequests",
    "reportProperties",
];

/// The policy that a rule belongs to.
struct ClusterPolicy {
    name: String,
    /// The namespace of a Policy.
    namespace: Option<String>,
    spec: Value,
}

/// Converts the ClusterPolicy or Policy that `document` is.
pub(crate) fn convert(document: &Document) -> Conversion {
    let root = document.root().to_json();
    let policy = ClusterPolicy {
        name: root["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
        namespace: (root["kind"] == "Policy").then(|| {
            let namespace = root["metadata"]["namespace"].as_str();
            namespace.unwrap_or("default").to_owned()
        }),
        spec: root["spec"].clone(),
    };
    let mut made = Conversion::default();
    let path = FieldPath::root().field("spec");
    if let Err(refusal) = policy.check() {
        made.refuse(document, &refusal.path(&path), refusal.reason);
    }
    let rules = policy.spec["rules"].as_array();
    for (index, rule) in rules.into_iter().flatten().enumerate() {
        let path = path.field("rules").index(index);
        let mut of_rule = policy.convert_rule(document, rule, &path);
        // What is derived from a rule that is refused is refused for the same reason.
        if of_rule.refusals.is_empty() {
            for derived in controllers::derived(&root, rule) {
                of_rule.append(policy.convert_rule(document, &derived, &path));
            }
        }
        made.append(of_rule);
    }
    made.whole()
}

// === impl ClusterPolicy ===

impl ClusterPolicy {
    fn check(&self) -> Result<(), Refusal> {
        let spec = &self.spec;
        refusal::unknown(spec, &SPEC)?;
        let rules = spec["rules"].as_array().map_or(0, Vec::len);
        if rules == 0 {
            return refusal::of("rules", "it has no rule");
        }
        if spec["applyRules"] == "One" && rules > 1 {
            return refusal::of(
                "applyRules",
                "admission policies do not end each other: write `All`",
            );
        }
        if spec["admission"] == false {
            return refusal::of("admission", "it decides nothing at admission");
        }
        refusal::unknown(
            &spec["webhookConfiguration"],
            &["failurePolicy", "timeoutSeconds", "matchConditions"],
        )
        .map_err(|refusal| refusal.within("webhookConfiguration"))
    }

    fn convert_rule(&self, document: &Document, rule: &Value, path: &FieldPath) -> Conversion {
        let mut made = Conversion::default();
        match self.objects(rule) {
            Ok(objects) => {
                made.objects.extend(objects);
                made.base = Some(match rule["validate"]["cel"].is_object() {
                    true => path.field("validate").field("cel"),
                    false => path.clone(),
                });
                if rule["validate"]["message"]
                    .as_str()
                    .is_some_and(|message| message.contains("{{"))
                {
                    let text = "variables in the message stay as they are written";
                    made.note(document, &path.field("validate").field("message"), text);
                }
            }
            Err(refusal) => made.refuse(document, &refusal.path(path), refusal.reason),
        }
        conversion::checked(document, made)
    }

    fn objects(&self, rule: &Value) -> Result<[Value; 2], Refusal> {
        refuse_others(rule)?;
        refusal::unknown(rule, &RULE)?;
        let matching = Matching::read(rule)?;
        let validate = &rule["validate"];
        let within = |refusal: Refusal| refusal.within("validate");
        let actions = self.actions(validate).map_err(within)?;
        let is_enforced = actions[0] == "Deny";
        if !rule["preconditions"].is_null() {
            return refusal::of("preconditions", "they are not converted");
        }
        let (mut spec, operations) = if validate["cel"].is_object() {
            of_cel(validate).map_err(within)?
        } else if validate["pattern"].is_object() || validate["anyPattern"].is_array() {
            self.of_patterns(validate, &matching, is_enforced)
                .map_err(within)?
        } else {
            return Err(within(not_converted(validate)));
        };
        let rules = matching.resource_rules(&operations);
        spec["matchConstraints"] = json!({"resourceRules": rules});
        if self.namespace.is_some() {
            for rule in spec["matchConstraints"]["resourceRules"]
                .as_array_mut()
                .into_iter()
                .flatten()
            {
                rule["scope"] = "Namespaced".into();
            }
        }
        if matching.asks_for_namespaces() {
            let subject = Subject {
                object: object_of(&matching, &operations),
                operation: None,
            };
            let applies = Condition::all([matching.condition(subject), matching.exclusion(subject).not()]);
            for validation in spec["validations"].as_array_mut().into_iter().flatten() {
                let own = validation["expression"].as_str().unwrap_or_default();
                // A comment may end it.
                let own = Condition::primary(format!("({own}\n)"));
                validation["expression"] = Condition::any([applies.clone().not(), own]).to_string().into();
            }
        }
        let conditions = self.match_conditions(rule, &matching, &operations);
        if !conditions.is_empty() {
            spec["matchConditions"] = Value::Array(conditions);
        }
        let mut binding = json!({"validationActions": actions});
        if validate["cel"]["paramRef"].is_object() {
            binding["paramRef"] = validate["cel"]["paramRef"].clone();
        }
        let name = self.name_of(rule);
        Ok(conversion::policy_and_binding(
            "ValidatingAdmissionPolicy",
            &name,
            spec,
            binding,
        ))
    }

    /// The name of the policy, with that of the rule if there are several.
    fn name_of(&self, rule: &Value) -> String {
        let own = rule["name"].as_str().unwrap_or_default();
        let is_derived = own.starts_with("autogen-");
        let is_alone = self.spec["rules"].as_array().map_or(0, Vec::len) == 1;
        match (is_alone, is_derived) {
            (true, false) => self.name.clone(),
            (true, true) if own.starts_with("autogen-cronjob-") => format!("{}-autogen-cronjob", self.name),
            (true, true) => format!("{}-autogen", self.name),
            (false, _) => format!("{}-{}", self.name, as_name(own)),
        }
    }

    /// What a failure of the rule does.
    fn actions(&self, validate: &Value) -> Result<Value, Refusal> {
        let overrides = &validate["failureActionOverrides"];
        if overrides
            .as_array()
            .is_some_and(|overrides| !overrides.is_empty())
        {
            return refusal::of(
                "failureActionOverrides",
                "write a binding for each of these namespaces",
            );
        }
        let own = validate["failureAction"].as_str();
        let action = own
            .or_else(|| self.spec["validationFailureAction"].as_str())
            .unwrap_or("Audit");
        match action {
            "Enforce" | "enforce" => Ok(json!(["Deny"])),
            _ if self.spec["emitWarning"] == true => Ok(json!(["Warn", "Audit"])),
            _ => Ok(json!(["Audit"])),
        }
    }

    fn failure_policy(&self) -> &str {
        let of_webhook = self.spec["webhookConfiguration"]["failurePolicy"].as_str();
        of_webhook
            .or_else(|| self.spec["failurePolicy"].as_str())
            .unwrap_or("Fail")
    }

    fn match_conditions(&self, rule: &Value, matching: &Matching, operations: &[&str]) -> Vec<Value> {
        let subject = Subject {
            object: object_of(matching, operations),
            operation: None,
        };
        let mut conditions = Vec::new();
        let mut add = |name: &str, condition: Condition| {
            if !condition.is(true) {
                conditions.push(json!({"name": name, "expression": condition.to_string()}));
            }
        };
        add("kyverno-filters", matching.default_filters());
        if let Some(namespace) = &self.namespace {
            add("kyverno-namespace", one_of(NAMESPACE, &[namespace]));
        }
        // Match conditions do not know of the namespace's labels.
        if !matching.asks_for_namespaces() {
            add("kyverno-match", matching.condition(subject));
            add("kyverno-exclude", matching.exclusion(subject).not());
        }
        let written = [
            &self.spec["webhookConfiguration"]["matchConditions"],
            &rule["celPreconditions"],
        ];
        conditions.extend(
            written
                .into_iter()
                .flat_map(|list| list.as_array().cloned().unwrap_or_default()),
        );
        conditions
    }

    /// `pattern` and `anyPattern`: what they do not fail.
    fn of_patterns(
        &self,
        validate: &Value,
        matching: &Matching,
        is_enforced: bool,
    ) -> Result<(Value, Vec<&'static str>), Refusal> {
        let (field, patterns) = match &validate["pattern"] {
            pattern @ Value::Object(_) => ("pattern", vec![pattern]),
            _ => (
                "anyPattern",
                validate["anyPattern"].as_array().into_iter().flatten().collect(),
            ),
        };
        let mut operations = vec!["CREATE", "UPDATE"];
        if matching.has_subresources() {
            operations.push("CONNECT");
        }
        let of_object = |object: &str| {
            let mut passes = Vec::new();
            let mut does_not_fail = Vec::new();
            for (index, pattern) in patterns.iter().enumerate() {
                let verdict = pattern::verdict(pattern, object).map_err(|refusal| match field {
                    "pattern" => refusal.within(field),
                    _ => refusal.within_index(index).within(field),
                })?;
                passes.push(verdict.passes);
                does_not_fail.push(verdict.does_not_fail);
            }
            // Not one of them passes, and not one fails: then the rule does not apply.
            Ok(Condition::any(
                passes.into_iter().chain([Condition::all(does_not_fail)]),
            ))
        };
        let holds = of_object("object")?;
        let is_certain = patterns
            .iter()
            .all(|pattern| pattern::fails_without_error(pattern));
        let excuses =
            is_enforced && validate["allowExistingViolations"] != false && matching.runs_for("UPDATE");
        if !is_certain && (excuses || self.failure_policy() == "Ignore") {
            return refusal::of(
                field,
                "where a field of its anchors is missing Kyverno has an error in place of a failure, which \
                 `allowExistingViolations` and `failurePolicy: Ignore` tell apart: set \
                 `allowExistingViolations: false` and `failurePolicy: Fail`",
            );
        }
        let expression = match excuses {
            true => excused(holds, of_object("oldObject")?, matching),
            false => holds,
        };
        let spec = json!({
            "failurePolicy": self.failure_policy(),
            "validations": [validation(&expression, validate)],
        });
        Ok((spec, operations))
    }
}

/// Kyverno lets an object keep failing that failed before.
fn excused(holds: Condition, held_before: Condition, matching: &Matching) -> Condition {
    let before = Subject {
        object: "oldObject",
        operation: Some("CREATE"),
    };
    let failed_before = Condition::all([
        one_of("request.operation", &["UPDATE"]),
        matching.condition(before),
        matching.exclusion(before).not(),
        held_before.not(),
    ]);
    Condition::any([holds, failed_before])
}

fn validation(expression: &Condition, validate: &Value) -> Value {
    let mut validation = json!({"expression": expression.to_string()});
    let message = on_one_line(validate["message"].as_str().unwrap_or_default());
    if !message.is_empty() {
        validation["message"] = message.into();
    }
    validation
}

/// The object that a rule looks at: before a DELETE there is the old one alone.
fn object_of(matching: &Matching, operations: &[&str]) -> &'static str {
    let runs_for = |operation: &str| operations.contains(&operation) && matching.runs_for(operation);
    match runs_for("DELETE") {
        true if runs_for("CREATE") || runs_for("UPDATE") => "(object == null ? oldObject : object)",
        true => "oldObject",
        false => "object",
    }
}

/// `validate.cel`: what is a ValidatingAdmissionPolicy already. Kyverno fails a request whose
/// expressions have errors, whatever the `failurePolicy` of its webhook.
fn of_cel(validate: &Value) -> Result<(Value, Vec<&'static str>), Refusal> {
    let cel = &validate["cel"];
    let known = [
        "expressions",
        "variables",
        "auditAnnotations",
        "paramKind",
        "paramRef",
        "generate",
    ];
    refusal::unknown(cel, &known).map_err(|refusal| refusal.within("cel"))?;
    refuse_plain_or_values(cel).map_err(|refusal| refusal.within("cel"))?;
    let mut spec = json!({"failurePolicy": "Fail"});
    for field in ["paramKind", "variables", "auditAnnotations"] {
        if !cel[field].is_null() {
            spec[field] = cel[field].clone();
        }
    }
    spec["validations"] = cel["expressions"].clone();
    let shared = on_one_line(validate["message"].as_str().unwrap_or_default());
    for validation in spec["validations"].as_array_mut().into_iter().flatten() {
        let own = on_one_line(validation["message"].as_str().unwrap_or_default());
        let message = if own.is_empty() { shared.clone() } else { own };
        if let Some(validation) = validation.as_object_mut() {
            validation.remove("message");
            if !message.is_empty() {
                validation.insert("message".to_owned(), message.into());
            }
        }
    }
    Ok((spec, vec!["CREATE", "UPDATE", "DELETE", "CONNECT"]))
}

/// To Kyverno `.orValue()` of what is no optional value is the value itself.
fn refuse_plain_or_values(cel: &Value) -> Result<(), Refusal> {
    let mut optional = Vec::new();
    for list in ["variables", "expressions"] {
        for (index, item) in cel[list].as_array().into_iter().flatten().enumerate() {
            let text = item["expression"].as_str().unwrap_or_default();
            // What cannot be parsed is told when it is compiled.
            let plain = plain_or_values(text, &optional).unwrap_or_default();
            if let Some((line, column)) = plain.first() {
                let reason = format!(
                    "{line}:{column}: `.orValue()` of what is no optional value is an error in Kubernetes: \
                     select with `.?` before it"
                );
                let refusal = Refusal::new("expression", reason);
                return Err(refusal.within_index(index).within(list));
            }
            if list == "variables" && is_optional(text, &optional) {
                optional.extend(item["name"].as_str().map(str::to_owned));
            }
        }
    }
    Ok(())
}

/// The name of a rule as the part of a name of an object.
fn as_name(name: &str) -> String {
    let name: String = name
        .to_lowercase()
        .chars()
        .map(|character| match character {
            'a'..='z' | '0'..='9' | '.' => character,
            _ => '-',
        })
        .collect();
    name.trim_matches(['-', '.']).to_owned()
}

/// Refuses what is no rule about the object of a request.
fn refuse_others(rule: &Value) -> Result<(), Refusal> {
    for (field, reason) in [
        (
            "generate",
            "admission policies create no objects: keep a controller for it",
        ),
        (
            "verifyImages",
            "admission policies verify no images: keep a webhook that does",
        ),
        (
            "mutate",
            "`mutate` is not converted: write a MutatingAdmissionPolicy",
        ),
    ] {
        if !rule[field].is_null() {
            return refusal::of(field, reason);
        }
    }
    let first = &rule["context"][0];
    if first.is_null() {
        return Ok(());
    }
    let reasons = [
        (
            "apiCall",
            "admission policies make no calls: give what is asked for as a parameter",
        ),
        (
            "imageRegistry",
            "admission policies ask no registry: keep a webhook that does",
        ),
        (
            "globalReference",
            "admission policies have no global values: give it as a parameter",
        ),
        (
            "configMap",
            "a ConfigMap is not converted: give it as a parameter",
        ),
    ];
    let reason = reasons.into_iter().find(|(field, _)| !first[*field].is_null());
    let reason = reason.map_or(
        "a variable is not converted: write a CEL variable",
        |(_, reason)| reason,
    );
    Err(Refusal::here(reason).within_index(0).within("context"))
}

fn not_converted(validate: &Value) -> Refusal {
    for (field, reason) in [
        (
            "deny",
            "conditions in JMESPath are not converted: write them in CEL",
        ),
        ("foreach", "loops are not converted: write `all` in CEL"),
        (
            "podSecurity",
            "it is not converted: bind the shipped Pod Security Standards",
        ),
        (
            "manifests",
            "admission policies verify no signatures: keep a webhook that does",
        ),
        ("assert", "assertions are not converted: write them in CEL"),
    ] {
        if !validate[field].is_null() {
            return Refusal::new(field, reason);
        }
    }
    Refusal::here("it asks nothing of the object")
}

#[cfg(test)]
mod tests;
