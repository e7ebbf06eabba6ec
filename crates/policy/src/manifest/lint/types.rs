//! Expressions that can never work on the objects that their policy is about.
//!
//! Compiled once more for each built-in type that the rules name, as kube-controller-manager does
//! for a ValidatingAdmissionPolicy's `status.typeChecking` (apiserver
//! `pkg/admission/plugin/policy/validating/typechecking.go`); matchConditions and mutations besides.

use super::Lint;
use super::known::{kind_of, nearest};
use crate::document::{Node, Value};
use crate::engine::admission::apply::Schemas;
use crate::engine::admission::{Applicability, Expression, ExpressionEnvironment, GroupVersionKind};
use crate::field::{Fault, FaultKind, FieldPath};
use crate::manifest::report::within;
use portcullis_cel::{CompileBudget, CompileError, CompileErrorKind, Type, Version};

/// The most types that expressions are checked against, as upstream.
const MOST_TYPES: usize = 10;

/// Checks the expressions of the policy in `lint.document`.
pub(crate) fn lint(policy: &Applicability, version: Version, lint: &mut Lint<'_>) {
    let document = lint.document.get();
    let Some(spec) = document.root().get("spec") else {
        return;
    };
    let budget = CompileBudget::new();
    for kind in kinds(policy) {
        if let Some(of) = Schemas::builtin().declared(&kind) {
            let mut check = TypeCheck {
                kind: written(&kind),
                environment: ExpressionEnvironment::new(version, policy.param_kind.is_some())
                    .for_objects_of(&of),
                of,
                budget: &budget,
                lint: &mut *lint,
            };
            check.spec(spec);
        }
    }
}

/// The built-in kinds that the rules name, without wildcards.
pub(crate) fn kinds(policy: &Applicability) -> Vec<GroupVersionKind<'static>> {
    let mut found: Vec<GroupVersionKind<'static>> = Vec::new();
    for rule in &policy.constraints.rules {
        for group in &rule.api_groups {
            for version in &rule.api_versions {
                for resource in &rule.resources {
                    let Some(kind) = kind_of(group, version, resource) else {
                        continue;
                    };
                    let kind = GroupVersionKind {
                        group: group.clone().into(),
                        version: version.clone().into(),
                        kind: kind.into(),
                    };
                    if found.len() < MOST_TYPES && !found.contains(&kind) {
                        found.push(kind);
                    }
                }
            }
        }
    }
    found
}

/// As Kubernetes writes it: `apps/v1, Kind=Deployment`.
fn written(of: &GroupVersionKind<'_>) -> String {
    let GroupVersionKind { group, version, kind } = of;
    match group.as_ref() {
        "" => format!("{version}, Kind={kind}"),
        group => format!("{group}/{version}, Kind={kind}"),
    }
}

/// One policy against one type.
struct TypeCheck<'l, 'a> {
    kind: String,
    of: Type,
    environment: ExpressionEnvironment,
    /// For all types together: what is beyond it is not checked.
    budget: &'l CompileBudget<'static>,
    lint: &'l mut Lint<'a>,
}

// === impl TypeCheck ===

impl TypeCheck<'_, '_> {
    fn spec(&mut self, spec: &Node) {
        let root = FieldPath::root().field("spec");
        // Conditions cannot name variables.
        for (path, condition) in items(spec, &root, "matchConditions") {
            self.expression(condition, &path, "expression", ExpressionEnvironment::condition);
        }
        for (path, variable) in items(spec, &root, "variables") {
            let (Some(name), Some(text)) = (text(variable, "name"), text(variable, "expression")) else {
                continue;
            };
            if let Err(error) = self.environment.add_variable(name, text, self.budget) {
                // Upstream lets variables pass: lists of different types joined work all the same.
                if unknown_field(&error.message).is_some() {
                    self.warn(&path.field("expression"), &error);
                }
                self.environment.add_faulty_variable(name);
            }
        }
        for (path, validation) in items(spec, &root, "validations") {
            self.expression(validation, &path, "expression", ExpressionEnvironment::condition);
            self.expression(
                validation,
                &path,
                "messageExpression",
                ExpressionEnvironment::message,
            );
        }
        for (path, annotation) in items(spec, &root, "auditAnnotations") {
            self.expression(
                annotation,
                &path,
                "valueExpression",
                ExpressionEnvironment::annotation,
            );
        }
    }

    fn expression(
        &mut self,
        node: &Node,
        path: &FieldPath,
        field: &str,
        compile: fn(&ExpressionEnvironment, &str, &CompileBudget<'_>) -> Result<Expression, CompileError>,
    ) {
        let Some(text) = text(node, field).filter(|text| !text.trim().is_empty()) else {
            return;
        };
        if let Err(error) = compile(&self.environment, text, self.budget)
            && error.kind == CompileErrorKind::Invalid
        {
            self.warn(&path.field(field), &error);
        }
    }

    fn warn(&mut self, path: &FieldPath, error: &CompileError) {
        let meant = self.meant(&error.message);
        let (place, wrong) = within(&self.lint.document.get(), path, error);
        let message = format!("for objects of {}: {wrong}{meant}", self.kind);
        self.lint
            .faults
            .push(Fault::warning(place, FaultKind::Suspicious, message));
    }

    /// The field that may have been meant by one that is not there.
    fn meant(&self, message: &str) -> String {
        let Type::Object(object) = &self.of else {
            return String::new();
        };
        let names = object.field_names();
        unknown_field(message)
            .and_then(|unknown| nearest(unknown, names.iter().map(|name| &**name)))
            .map(|near| format!(": did you mean `{near}`?"))
            .unwrap_or_default()
    }
}

/// The field that a compiler's message says is not there.
fn unknown_field(message: &str) -> Option<&str> {
    message.strip_prefix("undefined field '")?.strip_suffix('\'')
}

pub(crate) fn text<'n>(node: &'n Node, field: &str) -> Option<&'n str> {
    node.get(field)?.as_str()
}

/// The items of a list, each with its path.
pub(crate) fn items<'n>(spec: &'n Node, path: &FieldPath, field: &str) -> Vec<(FieldPath, &'n Node)> {
    let path = path.field(field);
    match spec.get(field).map(|node| &node.value) {
        Some(Value::List(items)) => items
            .iter()
            .enumerate()
            .map(|(index, item)| (path.index(index), item))
            .collect(),
        _ => Vec::new(),
    }
}
