//! Expressions that work here and not in an API server of version 1.37, which has objects of built-in
//! kinds as Go structs while it evaluates (a fault, seen in 1.37.1): of a MutatingAdmissionPolicy
//! with matchConditions, and for comparisons also of a ValidatingAdmissionPolicy.

use super::Lint;
use super::types::{items, kinds, text};
use crate::document::Node;
use crate::engine::admission::Applicability;
use crate::engine::admission::apply::Schemas;
use crate::field::FieldPath;
use portcullis_cel::{ObjectPart, PartStep, Type, Version, compared_parts, copied_parts};

/// The version with the fault.
const FAULTY: Version = Version::new(37);

/// Warns of expressions of the policy in `lint.document`, which are compiled for `version`.
pub(crate) fn lint(policy: &Applicability, version: Version, lint: &mut Lint<'_>) {
    if version != FAULTY {
        return;
    }
    let declared = |kind| Schemas::builtin().declared(&kind);
    let types: Vec<Type> = kinds(policy).into_iter().filter_map(declared).collect();
    let document = lint.document.get();
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
                    "an API server of version 1.37 cannot copy `{}` in a policy with matchConditions, which is a \
                     fault of it: copy what is in it one by one, or select by `matchConstraints` alone",
                    name(part)
                );
                lint.suspicious(&path, message);
            }
        }
        let compared = compared_parts(written).unwrap_or_default();
        for part in compared.iter().filter(|part| is_composite(&types, part)) {
            let message = format!(
                "an API server of version 1.37 ends with an error where `{}` is compared with what it never \
                 equals, which is a fault of it: leave the comparison out, or write `!=`",
                name(part)
            );
            lint.suspicious(&path, message);
        }
    }
}

/// The expressions that the fault is about, each with its path.
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

/// Whether it is a list, map or struct in an object of one of these types.
fn is_composite(types: &[Type], part: &ObjectPart) -> bool {
    let of = |of: &Type| part.iter().try_fold(of.clone(), |of, step| within(&of, step));
    let found = types.iter().filter_map(of);
    found
        .into_iter()
        .any(|of| matches!(of, Type::List(_) | Type::Map(_) | Type::Object(_)))
}

fn within(of: &Type, step: &PartStep) -> Option<Type> {
    match (of, step) {
        (Type::Object(object), PartStep::Field(name)) => object.field(name),
        (Type::Map(entry), _) => Some(entry.1.clone()),
        (Type::List(item), PartStep::Item) => Some(Type::clone(item)),
        _ => None,
    }
}

fn name(part: &ObjectPart) -> String {
    let mut name = "object".to_owned();
    for step in part {
        match step {
            PartStep::Field(field) => name.push_str(&format!(".{field}")),
            PartStep::Item => name.push_str("[…]"),
        }
    }
    name
}
