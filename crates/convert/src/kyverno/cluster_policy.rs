//! Converts Kyverno's ClusterPolicy and Policy (`kyverno.io/v1`), rule by rule.
//!
//! ```text
//! rule ─▶ controllers  the rules that Kyverno derives from it
//!      ─▶ matching     match, exclude          ─▶ resource rules, match conditions
//!      ─▶ pattern, …   what it asks of objects ─▶ one validation
//!      ─▶ mutate       merges, JSON patches, loops ─▶ edits ─▶ one JSONPatch
//! ```
//!
//! Each rule becomes a policy with its binding. If one rule cannot be converted, none is: the
//! others would admit what the policy denies.

#![expect(
    clippy::indexing_slicing,
    reason = "what a JSON value has not is null when it is read, and only objects are written to"
)]

mod applies;
mod conditions;
mod context;
mod edits;
mod equality;
mod fields;
mod functions;
mod jmespath;
mod json_patch;
mod kinds;
pub(crate) mod matching;
mod merge;
mod mutate;
mod pattern;
mod pod_security;
mod query;
mod scalar;
mod scope;
mod validate;

use crate::conversion::{self, Conversion, Refusal, on_one_line};
pub(crate) use applies::Exceptions;
use applies::{Applies, VARIABLE, object_of, with_variables};
use fields::Part;
pub(crate) use fields::reference;
use matching::{Matching, NAMESPACE};
use serde_json::{Value, json};
use validate::FailureActions;

use super::autogen;
use super::expression::{CelCondition, FallibleCondition, one_of};
use portcullis_policy::document::Document;
use portcullis_policy::field::FieldPath;
use portcullis_policy::model::Deadline;

/// The policy to which a rule belongs.
struct ClusterPolicy<'e> {
    name: String,
    exceptions: &'e Exceptions,
    /// The namespace, if this is a Policy.
    namespace: Option<String>,
    spec: Value,
}

/// Converts the ClusterPolicy or Policy in `document`. Rules after the deadline are left out.
pub(crate) fn convert(document: &Document, exceptions: &Exceptions, deadline: Deadline<'_>) -> Conversion {
    let root = document.root().to_json();
    let policy = ClusterPolicy {
        exceptions,
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
        if (deadline.expired)() {
            break;
        }
        let path = path.field("rules").index(index);
        let mut of_rule = policy.convert_rule(document, rule, (&path, deadline));
        // Rules derived from a refused one would be refused for the same reason.
        if of_rule.refusals.is_empty() {
            for derived in autogen::derived(&root, rule) {
                of_rule.append(policy.convert_rule(document, &derived, (&path, deadline)));
            }
        }
        made.append(of_rule);
    }
    made.all_or_nothing()
}

// === impl ClusterPolicy ===

impl ClusterPolicy<'_> {
    fn check(&self) -> Result<(), Refusal> {
        let spec = &self.spec;
        fields::check(Part::Spec, spec)?;
        let rules = spec["rules"].as_array().map_or(0, Vec::len);
        if rules == 0 {
            return crate::conversion::of("rules", "it has no rule");
        }
        if spec["applyRules"] == "One" && rules > 1 {
            return crate::conversion::of(
                "applyRules",
                "admission policies do not end each other: write `All`",
            );
        }
        if spec["admission"] == false {
            return crate::conversion::of("admission", "it decides nothing at admission");
        }
        validate::check_overrides(spec)?;
        crate::conversion::unknown(
            &spec["webhookConfiguration"],
            &["failurePolicy", "timeoutSeconds", "matchConditions"],
        )
        .map_err(|refusal| refusal.within("webhookConfiguration"))
    }

    fn convert_rule(
        &self,
        document: &Document,
        rule: &Value,
        (path, deadline): (&FieldPath, Deadline<'_>),
    ) -> Conversion {
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
        conversion::checked(document, made, deadline)
    }

    fn objects(&self, rule: &Value) -> Result<Vec<Value>, Refusal> {
        fields::check(Part::Rule, rule)?;
        fields::check(Part::Validate, &rule["validate"]).map_err(|refusal| refusal.within("validate"))?;
        let mut matching = Matching::read(rule)?;
        matching.exceptions = self
            .exceptions
            .of(&self.key(), rule["name"].as_str().unwrap_or_default());
        if !rule["mutate"].is_null() {
            return Ok(self.mutating(rule, &matching)?.to_vec());
        }
        let validate = &rule["validate"];
        let within = |refusal: Refusal| refusal.within("validate");
        let failure = FailureActions::of(&self.spec, validate, &matching).map_err(within)?;
        let applies = Applies::read(rule, &matching, &validate::operations(validate, &matching))?;
        let mut spec = if validate["cel"].is_object() {
            validate::of_cel(validate).map_err(within)?
        } else {
            self.object_spec(rule, &matching, &applies, failure.is_enforced)?
        };
        spec["matchConstraints"] = self.constraints(&matching, &applies);
        if matching.uses_namespace_selector() {
            let subject = applies.subject();
            let matches = matching.applies(subject);
            let applies = FallibleCondition::infallible(matches)
                .and(applies.preconditions.clone())
                .condition;
            for validation in spec["validations"].as_array_mut().into_iter().flatten() {
                let own = validation["expression"].as_str().unwrap_or_default();
                // The expression may end with a comment.
                let own = CelCondition::primary(format!("({own}\n)"));
                let expression = applies.choice(&own, &CelCondition::constant(true));
                validation["expression"] = expression.to_string().into();
            }
        }
        let conditions = self.match_conditions(rule, &matching, &applies);
        if !conditions.is_empty() {
            spec["matchConditions"] = Value::Array(conditions);
        }
        let mut binding = json!({});
        if let Some([kind, reference]) = context::parameter(rule, self.namespace.as_deref())? {
            if !spec["paramKind"].is_null() {
                return crate::conversion::of(
                    "context",
                    "an admission policy has one parameter, and this one has its own",
                );
            }
            spec["paramKind"] = kind;
            binding["paramRef"] = reference;
        }
        if validate["cel"]["paramRef"].is_object() {
            binding["paramRef"] = validate["cel"]["paramRef"].clone();
        }
        Ok(failure.objects(&self.name_of(rule), spec, &binding))
    }

    /// The name by which PolicyExceptions refer to the policy.
    fn key(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{namespace}/{}", self.name),
            None => self.name.clone(),
        }
    }

    fn constraints(&self, matching: &Matching, applies: &Applies) -> Value {
        let mut rules = matching.resource_rules(&applies.operations);
        if self.namespace.is_some() {
            for rule in &mut rules {
                rule["scope"] = "Namespaced".into();
            }
        }
        json!({"resourceRules": rules})
    }

    /// Converts a rule that changes objects.
    fn mutating(&self, rule: &Value, matching: &Matching) -> Result<[Value; 2], Refusal> {
        let within = |refusal: Refusal| refusal.within("mutate");
        let applies = Applies::read(rule, matching, &["CREATE", "UPDATE"])?;
        let changes = mutate::changes(&rule["mutate"], &applies.scope).map_err(within)?;
        if changes.is_empty() {
            return Err(within(Refusal::whole("it changes nothing")));
        }
        let matches = match (matching.uses_namespace_selector(), applies.preconditions.may_fail) {
            (true, _) => FallibleCondition::infallible(matching.applies(applies.subject()))
                .and(applies.preconditions.clone()),
            // An API server evaluates match conditions a second time, even for a policy that it
            // does not invoke again.
            (false, true) => applies.preconditions.clone(),
            (false, false) => FallibleCondition::infallible(CelCondition::constant(true)),
        };
        let mut spec = mutate::spec(rule, changes, matches, self.failure_policy()).map_err(within)?;
        spec["matchConstraints"] = self.constraints(matching, &applies);
        let conditions = self.match_conditions(rule, matching, &applies);
        if !conditions.is_empty() {
            spec["matchConditions"] = Value::Array(conditions);
        }
        let mut binding = json!({});
        if let Some([kind, reference]) = context::parameter(rule, self.namespace.as_deref())? {
            spec["paramKind"] = kind;
            binding["paramRef"] = reference;
        }
        let name = self.name_of(rule);
        Ok(conversion::policy_and_binding(
            "MutatingAdmissionPolicy",
            &name,
            spec,
            binding,
        ))
    }

    /// Converts patterns, conditions, loops and Pod Security checks to validations.
    fn object_spec(
        &self,
        rule: &Value,
        matching: &Matching,
        applies: &Applies,
        is_enforced: bool,
    ) -> Result<Value, Refusal> {
        let validate = &rule["validate"];
        let within = |refusal: Refusal| refusal.within("validate");
        let mut scope = applies.scope.clone();
        let passes_deletes = applies.operations.contains(&"DELETE") && validate::passes_deletes(validate);
        if passes_deletes {
            scope.object = "object".to_owned();
            scope = with_variables(scope, rule)?;
        }
        let mut holds = validate::holds(validate, &scope).map_err(within)?;
        if passes_deletes {
            holds = FallibleCondition::infallible(one_of("request.operation", &["DELETE"])).or(holds);
        }
        let ignores_errors = self.failure_policy() == "Ignore";
        let excuses = is_enforced
            && validate["allowExistingViolations"] != false
            && rule["preconditions"].is_null()
            && applies.operations.contains(&"UPDATE");
        let is_certain =
            validate::fails_without_error(validate) && (validate["foreach"].is_null() || !holds.may_fail);
        if (excuses || ignores_errors) && !is_certain {
            return Err(within(Refusal::whole(
                "where a field of its anchors is missing, or in a loop, Kyverno has an error in place of a failure, \
                 which `allowExistingViolations` and `failurePolicy: Ignore` tell apart: set \
                 `allowExistingViolations: false` and `failurePolicy: Fail`",
            )));
        }
        let failed_before = match excuses {
            false => FallibleCondition::infallible(CelCondition::constant(false)),
            true => {
                let failed_before = applies.failed_before(rule, matching)?;
                if ignores_errors && failed_before.may_fail {
                    return Err(within(Refusal::whole(
                        "an error of the old object is one to `failurePolicy: Ignore`, too: set \
                         `allowExistingViolations: false`",
                    )));
                }
                failed_before
            }
        };
        let mut spec = json!({"failurePolicy": self.failure_policy()});
        if validate["podSecurity"].is_object() {
            let checks = pod_security::checks(&validate["podSecurity"], &scope.object, &scope);
            let within = |refusal: Refusal| within(refusal.within("podSecurity"));
            spec["variables"] = Value::Array(pod_security::variables(&scope.object, &scope).map_err(within)?);
            let mut excuse = failed_before.condition;
            if let Some(variables) = spec["variables"].as_array_mut().filter(|_| excuses) {
                variables.extend(pod_security::variables("oldObject", &scope).map_err(within)?);
                variables.push(json!({"name": "failedBefore", "expression": excuse.to_string()}));
                excuse = CelCondition::primary("variables.failedBefore");
            }
            if passes_deletes {
                excuse = CelCondition::any([one_of("request.operation", &["DELETE"]), excuse]);
            }
            let validations = checks.map_err(within)?.into_iter().map(|(passes, message)| {
                let expression = CelCondition::any([passes, excuse.clone()]);
                json!({"expression": expression.to_string(), "message": message})
            });
            spec["validations"] = validations.collect();
        } else {
            let expression = holds.or(failed_before);
            spec["validations"] = json!([validation(&expression.condition, validate)]);
            if applies.scope.object == VARIABLE {
                let object = object_of(&applies.operations).trim_matches(['(', ')']);
                spec["variables"] = json!([{"name": "object", "expression": object}]);
            }
        }
        Ok(spec)
    }

    fn name_of(&self, rule: &Value) -> String {
        policy_name(&self.name, &self.spec, rule["name"].as_str().unwrap_or_default())
    }

    fn failure_policy(&self) -> &str {
        let of_webhook = self.spec["webhookConfiguration"]["failurePolicy"].as_str();
        of_webhook
            .or_else(|| self.spec["failurePolicy"].as_str())
            .unwrap_or("Fail")
    }

    fn match_conditions(&self, rule: &Value, matching: &Matching, applies: &Applies) -> Vec<Value> {
        let subject = applies.subject();
        let mut conditions = Vec::new();
        let mut add = |name: &str, condition: &CelCondition| {
            if !condition.is(true) {
                conditions.push(json!({"name": name, "expression": condition.to_string()}));
            }
        };
        add("kyverno-filters", &matching.default_filters());
        if let Some(namespace) = &self.namespace {
            add("kyverno-namespace", &one_of(NAMESPACE, &[namespace]));
        }
        // Match conditions cannot read the labels of the namespace.
        if !matching.uses_namespace_selector() {
            add("kyverno-match", &matching.condition(subject));
            add("kyverno-exclude", &matching.exclusion(subject).not());
            add("kyverno-exceptions", &matching.excepted(subject).not());
            if rule["mutate"].is_null() || !applies.preconditions.may_fail {
                add("kyverno-preconditions", &applies.preconditions.condition);
            }
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
}

/// The name of the policy for the rule `own`: that of the policy, with that of the rule if there
/// are several. Rules that change objects run in order, while policies run in the order of their
/// names, so these are numbered.
pub(crate) fn policy_name(policy: &str, spec: &Value, own: &str) -> String {
    let rules = spec["rules"].as_array().map_or(&[][..], Vec::as_slice);
    let derived = ["autogen-cronjob-", "autogen-"];
    let derived = derived.into_iter().find(|prefix| own.starts_with(prefix));
    match (rules, derived) {
        ([_], None) => policy.to_owned(),
        ([_], Some(prefix)) => format!("{}-{}", policy, prefix.trim_end_matches('-')),
        _ if rules.iter().filter(|rule| !rule["mutate"].is_null()).count() > 1 => {
            let written = own.strip_prefix(derived.unwrap_or_default()).unwrap_or(own);
            let position = rules
                .iter()
                .position(|rule| rule["name"] == written || rule["name"] == own);
            let number = position.unwrap_or_default() + 1;
            let width = rules.len().to_string().len();
            format!("{}-{number:0width$}-{}", policy, as_name(own))
        }
        _ => format!("{}-{}", policy, as_name(own)),
    }
}

fn validation(expression: &CelCondition, validate: &Value) -> Value {
    let mut validation = json!({"expression": expression.to_string()});
    let message = on_one_line(validate["message"].as_str().unwrap_or_default());
    if !message.is_empty() {
        validation["message"] = message.into();
    }
    validation
}

/// The name of a rule in a form that suits the names of objects.
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

#[cfg(test)]
mod tests;
