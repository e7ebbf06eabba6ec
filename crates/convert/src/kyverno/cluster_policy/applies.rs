//! When a rule applies: for which operations, to which object, and whether that object failed
//! before.
//!
//! A PolicyException (`kyverno.io`) becomes a condition of the rules that it names.

#![expect(
    clippy::indexing_slicing,
    reason = "what a JSON value has not is null when it is read, and only objects are written to"
)]

use std::cell::Cell;
use std::collections::BTreeSet;

use portcullis_policy::document::Document;
use portcullis_policy::field::FieldPath;
use serde_json::Value;

use super::fields::Part;
use super::matching::{FilterSubject, Filters, Matching, texts};
use super::scope::Scope;
use super::{conditions, context, fields, validate};
use crate::conversion;
use crate::conversion::{Conversion, Refusal};
use crate::kyverno::expression::{CelCondition, FallibleCondition, is_wildcard_match, one_of};

/// The variable for the object, or for the old object of a DELETE.
pub(crate) const VARIABLE: &str = "variables.object";

/// When a rule applies.
pub(crate) struct Applies {
    /// The operations; for others the preconditions never hold.
    pub(crate) operations: Vec<&'static str>,
    pub(crate) scope: Scope,
    pub(crate) preconditions: FallibleCondition,
}

/// The longest name of a rule that can become a policy, in bytes. Longer names are not compared
/// with patterns, because that takes time proportional to the product of both lengths.
const MAX_RULE_NAME_BYTES: usize = 253;

/// Objects that a PolicyException exempts.
#[derive(Debug, Clone)]
struct Exception {
    /// Names of policies, each with patterns of the names of their rules.
    rules: Vec<(String, Vec<String>)>,
    filters: Filters,
}

/// The PolicyExceptions that are converted together with the policies.
#[derive(Debug, Default)]
pub(crate) struct Exceptions {
    all: Vec<Exception>,
    /// The names of all policies.
    policies: BTreeSet<String>,
}

// === impl Applies ===

impl Applies {
    pub(crate) fn read(
        rule: &Value,
        matching: &Matching,
        operations: &[&'static str],
    ) -> Result<Self, Refusal> {
        let mut left = Vec::new();
        let mut known: Option<FallibleCondition> = None;
        let mut is_same = true;
        for operation in operations
            .iter()
            .filter(|operation| matching.may_apply_to(operation))
        {
            let scope = names(rule, matching, &[operation])?;
            let of_operation = preconditions(rule, &scope)?;
            // A pattern admits every DELETE, so that only an error of the preconditions matters.
            let passes = *operation == "DELETE" && validate::passes_deletes(&rule["validate"]);
            if of_operation.condition.is(false) || passes && !of_operation.may_fail {
                continue;
            }
            is_same &= known.as_ref().is_none_or(|known| *known == of_operation);
            known = Some(of_operation);
            left.push(*operation);
        }
        let scope = names(rule, matching, &left)?;
        let Some(known) = known else {
            return conversion::of(
                "preconditions",
                "they hold for no operation, so that the rule has no effect",
            );
        };
        // The name of the object depends on the number of operations.
        let preconditions = match is_same && (known.condition.is(true) || !left.contains(&"DELETE")) {
            true => known,
            false => preconditions(rule, &scope)?,
        };
        let mut scope = scope;
        if object_of(&left).starts_with('(') && !validate::passes_deletes(&rule["validate"]) {
            scope.object = VARIABLE.to_owned();
            scope = with_variables(scope, rule)?;
        }
        Ok(Self {
            operations: left,
            scope,
            preconditions,
        })
    }

    pub(crate) fn subject(&self) -> FilterSubject {
        FilterSubject {
            object: object_of(&self.operations),
            operation: None,
        }
    }

    /// The condition that the old object failed as if it had been created by an unknown user.
    /// Kyverno lets such an object keep failing, unless the rule has preconditions, which it cannot
    /// evaluate for the old object.
    pub(crate) fn failed_before(
        &self,
        rule: &Value,
        matching: &Matching,
    ) -> Result<FallibleCondition, Refusal> {
        let before = FilterSubject {
            object: "oldObject",
            operation: Some("CREATE"),
        };
        let mut scope = self.scope.clone();
        scope.object = "oldObject".to_owned();
        scope.old_object = "{}".to_owned();
        scope.operation = Some("CREATE".to_owned());
        scope.has_integers = true;
        let scope = with_variables(scope, rule)?;
        let is_update = match self.operations.as_slice() {
            ["UPDATE"] => CelCondition::constant(true),
            _ => one_of("request.operation", &["UPDATE"]),
        };
        let is_whole = match matching.has_subresources() {
            true => CelCondition::relation("request.?subResource.orValue('') == ''"),
            false => CelCondition::constant(true),
        };
        let matched = CelCondition::all([
            is_update,
            is_whole,
            matching.condition(before),
            matching.exclusion(before).not(),
            // For the old object, Kyverno considers exceptions only to Pod Security rules.
            match rule["validate"]["podSecurity"].is_object() {
                true => matching
                    .excepted(FilterSubject {
                        operation: None,
                        ..before
                    })
                    .not(),
                false => CelCondition::constant(true),
            },
        ]);
        let failed = validate::holds(&rule["validate"], &scope)
            .map_err(|refusal| refusal.within("validate"))?
            .not();
        Ok(FallibleCondition::infallible(matched)
            .and(preconditions(rule, &scope)?)
            .and(failed))
    }
}

fn preconditions(rule: &Value, scope: &Scope) -> Result<FallibleCondition, Refusal> {
    conditions::condition_of(&rule["preconditions"], scope).map_err(|refusal| refusal.within("preconditions"))
}

/// The scope of the names in a rule for these operations.
fn names(rule: &Value, matching: &Matching, operations: &[&str]) -> Result<Scope, Refusal> {
    let scope = Scope {
        object: object_of(operations).to_owned(),
        old_object: "oldObject".to_owned(),
        operation: match operations {
            [operation] => Some((*operation).to_owned()),
            _ => None,
        },
        is_typed: matching.is_typed(),
        kinds: matching.served_kinds(),
        types: matching.types(),
        has_integers: false,
        names: Vec::new(),
        texts: Vec::new(),
        made: Cell::new(0),
    };
    with_variables(scope, rule)
}

/// The scope with the variables of `context`.
pub(crate) fn with_variables(mut scope: Scope, rule: &Value) -> Result<Scope, Refusal> {
    scope.names.clear();
    context::add_variables(&rule["context"], &mut scope)?;
    Ok(scope)
}

/// The object that a rule applies to: for a DELETE, this is the old object.
pub(crate) fn object_of(operations: &[&str]) -> &'static str {
    match operations {
        ["DELETE"] => "oldObject",
        operations if operations.contains(&"DELETE") => "(object == null ? oldObject : object)",
        _ => "object",
    }
}

// === impl Exceptions ===

impl Exceptions {
    /// Reads the valid exceptions among the documents. [`Exceptions::convert`] reports the others.
    pub(crate) fn read(documents: &[Document]) -> Self {
        let mut exceptions = Self::default();
        for document in documents {
            if !is_of_kyverno(document) {
                continue;
            }
            let root = document.root().to_json();
            let metadata = |name: &str| root["metadata"][name].as_str().unwrap_or_default().to_owned();
            match document.text("kind") {
                Some("ClusterPolicy") => {
                    exceptions.policies.insert(metadata("name"));
                }
                Some("Policy") => {
                    let namespace = Some(metadata("namespace")).filter(|namespace| !namespace.is_empty());
                    let namespace = namespace.unwrap_or_else(|| "default".to_owned());
                    exceptions
                        .policies
                        .insert(format!("{namespace}/{}", metadata("name")));
                }
                Some("PolicyException") => {
                    exceptions.all.extend(Exception::read(&root["spec"]));
                }
                _ => {}
            }
        }
        exceptions
    }

    /// The exceptions that name the rule.
    pub(crate) fn of(&self, policy: &str, rule: &str) -> Vec<Filters> {
        if rule.len() > MAX_RULE_NAME_BYTES {
            return Vec::new();
        }
        let names = |exception: &&Exception| {
            exception.rules.iter().any(|(own, rules)| {
                own == policy && rules.iter().any(|pattern| is_wildcard_match(pattern, rule))
            })
        };
        let found = self.all.iter().filter(names);
        found.map(|exception| exception.filters.clone()).collect()
    }

    /// Converts the PolicyException in `document`, which becomes a condition of the policies that
    /// it names.
    pub(crate) fn convert(&self, document: &Document) -> Conversion {
        let mut made = Conversion::default();
        let path = FieldPath::root().field("spec");
        match Exception::read(&document.root().to_json()["spec"]) {
            Err(refusal) => made.refuse(document, &refusal.path(&path), refusal.reason),
            Ok(exception) => {
                let unknown = exception
                    .rules
                    .iter()
                    .find(|(policy, _)| !self.policies.contains(policy));
                match unknown {
                    Some((policy, _)) => made.refuse(
                        document,
                        &path.field("exceptions"),
                        format!("no ClusterPolicy here is `{policy}`: convert both together"),
                    ),
                    None => made.note(
                        document,
                        &path,
                        "it is a condition of the policies that it names, whether or not Kyverno had \
                         `enablePolicyException` set and reads the namespace",
                    ),
                }
            }
        }
        made
    }
}

fn is_of_kyverno(document: &Document) -> bool {
    let version = document.text("apiVersion");
    version.is_some_and(|version| version.starts_with("kyverno.io/"))
}

// === impl Exception ===

impl Exception {
    fn read(spec: &Value) -> Result<Self, Refusal> {
        fields::check(Part::Exception, spec)?;
        let filters = Filters::of_exception(&spec["match"]).map_err(|refusal| refusal.within("match"))?;
        let rules = spec["exceptions"].as_array().into_iter().flatten().map(|one| {
            let names = texts(&one["ruleNames"]).map(str::to_owned).collect();
            (one["policyName"].as_str().unwrap_or_default().to_owned(), names)
        });
        Ok(Self {
            rules: rules.collect(),
            filters,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_policy::document;

    #[test]
    fn a_name_that_no_policy_can_have_is_compared_with_no_pattern() {
        let text = "{apiVersion: kyverno.io/v2, kind: PolicyException, metadata: {name: e}, spec: {\
                    exceptions: [{policyName: p, ruleNames: ['*']}], \
                    match: {any: [{resources: {kinds: [Pod], names: [x]}}]}}}";
        let exceptions = Exceptions::read(&document::parse(None, text).unwrap());
        let found = |bytes| exceptions.of("p", &"r".repeat(bytes)).len();
        assert_eq!((found(253), found(254)), (1, 0));
    }
}
