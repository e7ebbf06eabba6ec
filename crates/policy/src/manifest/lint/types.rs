//! Finds expressions that can never work on the objects of their policy.
//!
//! Each expression is compiled once more for each built-in type that the rules name, as kube-controller-manager
//! does for a ValidatingAdmissionPolicy's `status.typeChecking` (apiserver
//! `pkg/admission/plugin/policy/validating/typechecking.go`). Beyond that, matchConditions are checked, and
//! MutatingAdmissionPolicies except for their mutations.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::report::Lint;
use super::known::{kind_of, nearest};
use crate::admission::apply::Schemas;
use crate::admission::{Applicability, Expression, ExpressionEnvironment, GroupVersionKind};
use crate::document::{Node, Value};
use crate::field::{Fault, FaultKind, FieldPath};
use crate::manifest::report::error_place;
use portcullis_cel::{
    CompileBudget, CompileError, CompileErrorKind, ObjectPart, PartStep, Type, Version, compared_parts,
    copied_parts,
};

/// The most types that expressions are checked against, as in Kubernetes.
const MAX_TYPES: usize = 10;

/// Checks the expressions of the policy that `lint` is about.
pub(crate) fn lint(policy: &Applicability, version: Version, lint: &mut Lint<'_>) {
    let document = lint.document().clone();
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
                names: OnceCell::new(),
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
                    if found.len() < MAX_TYPES && !found.contains(&kind) {
                        found.push(kind);
                    }
                }
            }
        }
    }
    found
}

/// The notation of Kubernetes: `apps/v1, Kind=Deployment`.
fn written(of: &GroupVersionKind<'_>) -> String {
    let GroupVersionKind { group, version, kind } = of;
    match group.as_ref() {
        "" => format!("{version}, Kind={kind}"),
        group => format!("{group}/{version}, Kind={kind}"),
    }
}

/// Checks one policy against one type.
struct TypeCheck<'l, 'a> {
    kind: String,
    of: Type,
    /// The names of all its fields at any depth, thousands for some types; collected on first use.
    names: OnceCell<BTreeSet<Arc<str>>>,
    environment: ExpressionEnvironment,
    /// The budget for all types together: expressions beyond it are not checked.
    budget: &'l CompileBudget<'static>,
    lint: &'l mut Lint<'a>,
}

// === impl TypeCheck ===

impl TypeCheck<'_, '_> {
    fn spec(&mut self, spec: &Node) {
        let root = FieldPath::root().field("spec");
        // Match conditions cannot use variables.
        for (path, condition) in items(spec, &root, "matchConditions") {
            self.expression(condition, &path, "expression", ExpressionEnvironment::condition);
        }
        for (path, variable) in items(spec, &root, "variables") {
            let (Some(name), Some(text)) = (text(variable, "name"), text(variable, "expression")) else {
                continue;
            };
            if let Err(error) = self.environment.add_variable(name, text, self.budget) {
                // Kubernetes does not check variables, because joining lists of different types
                // works at run time.
                if unknown_field(&error.message).is_some() {
                    self.warn(&path.field("expression"), &error);
                }
                self.environment.declare_uncompiled_variable(name);
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
        let (place, wrong) = error_place(self.lint.document(), path, error);
        let message = format!("for objects of {}: {wrong}{meant}", self.kind);
        self.lint
            .faults
            .push(Fault::warning(place, FaultKind::Suspicious, message));
    }

    /// Suggests a field with a similar name to one that does not exist.
    fn meant(&self, message: &str) -> String {
        let (Type::Object(object), Some(unknown)) = (&self.of, unknown_field(message)) else {
            return String::new();
        };
        let names = self.names.get_or_init(|| object.field_names());
        nearest(unknown, names.iter().map(|name| &**name))
            .map(|near| format!(": did you mean `{near}`?"))
            .unwrap_or_default()
    }
}

/// The field that does not exist, according to the compiler's message.
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

// Expressions that work here but not in an API server of version 1.37, which evaluates objects of
// built-in kinds as Go structs (a bug, observed in 1.37.1): in a MutatingAdmissionPolicy with
// matchConditions, and for comparisons also in a ValidatingAdmissionPolicy.

/// The version with the bug.
const FAULTY: Version = Version::new(37);

/// Warns of expressions of the policy that `lint` is about, which are compiled for `version`.
pub(crate) fn lint_typed_parts(policy: &Applicability, version: Version, lint: &mut Lint<'_>) {
    if version != FAULTY {
        return;
    }
    let declared = |kind| Schemas::builtin().declared(&kind);
    let types: Vec<Type> = kinds(policy).into_iter().filter_map(declared).collect();
    let document = lint.document().clone();
    let Some(spec) = document.root().get("spec") else {
        return;
    };
    let is_mutating = spec.get("mutations").is_some();
    if is_mutating && policy.match_conditions.is_empty() {
        return;
    }
    for (path, written) in expressions(spec) {
        if is_mutating {
            let copied = copied_parts(written).unwrap_or_default();
            for part in copied.iter().filter(|part| is_composite(&types, part)) {
                let message = format!(
                    "an API server of version 1.37 cannot copy `{}` in a policy with matchConditions, because \
                    of a bug: copy its fields one by one, or select only with `matchConstraints`",
                    part_name(part)
                );
                lint.suspicious(&path, message);
            }
        }
        let compared = compared_parts(written).unwrap_or_default();
        for part in compared.iter().filter(|part| is_composite(&types, part)) {
            let message = format!(
                "an API server of version 1.37 fails with an error if `{}` is compared with a value that it \
                never equals, because of a bug: remove the comparison, or write `!=`",
                part_name(part)
            );
            lint.suspicious(&path, message);
        }
    }
}

/// The expressions that the bug affects, with their paths.
fn expressions(spec: &Node) -> Vec<(FieldPath, &str)> {
    let root = FieldPath::root().field("spec");
    let mut found = Vec::new();
    for (list, field) in [("variables", "expression"), ("validations", "expression")] {
        let all = items(spec, &root, list).into_iter();
        found.extend(all.filter_map(|(path, item)| Some((path.field(field), text(item, field)?))));
    }
    for (path, mutation) in items(spec, &root, "mutations") {
        for sort in ["jsonPatch", "applyConfiguration"] {
            let written = mutation.get(sort).and_then(|of| text(of, "expression"));
            found.extend(written.map(|written| (path.field(sort).field("expression"), written)));
        }
    }
    found
}

/// Whether `part` is a list, map or struct in an object of one of these types.
fn is_composite(types: &[Type], part: &ObjectPart) -> bool {
    let of = |of: &Type| part.iter().try_fold(of.clone(), |of, step| step_type(&of, step));
    let found = types.iter().filter_map(of);
    found
        .into_iter()
        .any(|of| matches!(of, Type::List(_) | Type::Map(_) | Type::Object(_)))
}

fn step_type(of: &Type, step: &PartStep) -> Option<Type> {
    match (of, step) {
        (Type::Object(object), PartStep::Field(name)) => object.field(name),
        (Type::Map(entry), _) => Some(entry.1.clone()),
        (Type::List(item), PartStep::Item) => Some(Type::clone(item)),
        _ => None,
    }
}

fn part_name(part: &ObjectPart) -> String {
    let mut name = "object".to_owned();
    for step in part {
        match step {
            PartStep::Field(field) => name.push_str(&format!(".{field}")),
            PartStep::Item => name.push_str("[…]"),
        }
    }
    name
}
