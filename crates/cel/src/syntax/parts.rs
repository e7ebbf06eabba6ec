//! Parts of the object of an admission request that an expression copies or compares.

use super::parser::parse;
use super::uses::children;
use super::{Expr, ExprKind, Literal};
use crate::error::CompileError;

/// A part of `object` or `oldObject`: the steps to it.
pub type ObjectPart = Vec<PartStep>;

/// One step into an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartStep {
    /// A field or key of this name.
    Field(String),
    /// An item of a list, or a key that is known only when it is evaluated.
    Item,
}

/// The parts that a `JSONPatch{…}` of `expression` has as its value, or within a list of values.
///
/// # Errors
///
/// The expression cannot be parsed.
pub fn copied_parts(expression: &str) -> Result<Vec<ObjectPart>, CompileError> {
    let mut found = Vec::new();
    find(&parse(expression)?, &mut |expr| {
        if let ExprKind::Struct { name, fields } = &expr.kind
            && name == "JSONPatch"
        {
            let values = fields.iter().filter(|field| field.name == "value");
            values.for_each(|field| add_values(&field.value, &mut found));
        }
    });
    Ok(found)
}

/// The parts that `expression` compares by `==` with text, a number, a truth value or an object that
/// it makes.
///
/// # Errors
///
/// The expression cannot be parsed.
pub fn compared_parts(expression: &str) -> Result<Vec<ObjectPart>, CompileError> {
    let mut found = Vec::new();
    find(&parse(expression)?, &mut |expr| {
        if let ExprKind::Call {
            target: None,
            function,
            arguments,
        } = &expr.kind
            && function == "_==_"
            && let [one, other] = arguments.as_slice()
        {
            for (part_of, with) in [(one, other), (other, one)] {
                found.extend(part(part_of).filter(|_| is_of_one_kind(with)));
            }
        }
    });
    Ok(found)
}

/// Depth is bounded by the parser.
fn find(expr: &Expr, note: &mut impl FnMut(&Expr)) {
    note(expr);
    for child in children(expr) {
        find(child, note);
    }
}

fn add_values(expr: &Expr, found: &mut Vec<ObjectPart>) {
    match &expr.kind {
        ExprKind::List(items) => items.iter().for_each(|item| add_values(&item.value, found)),
        ExprKind::Conditional(parts) => {
            let [_, one, other] = &**parts;
            add_values(one, found);
            add_values(other, found);
        }
        _ => found.extend(part(expr)),
    }
}

/// The part that an expression selects, if it does nothing else.
fn part(expr: &Expr) -> Option<ObjectPart> {
    match &expr.kind {
        ExprKind::Ident(name) if matches!(name.as_str(), "object" | "oldObject") => Some(Vec::new()),
        ExprKind::Select { operand, field, .. } => {
            let mut steps = part(operand)?;
            steps.push(PartStep::Field(field.clone()));
            Some(steps)
        }
        ExprKind::Index { operand, index, .. } => {
            let mut steps = part(operand)?;
            steps.push(match &index.kind {
                ExprKind::Literal(Literal::String(key)) => PartStep::Field(key.clone()),
                _ => PartStep::Item,
            });
            Some(steps)
        }
        ExprKind::Call {
            target: Some(target),
            function,
            ..
        } if function == "orValue" => part(target),
        _ => None,
    }
}

/// Whether it is a value that no part other than a scalar equals: `null` equals one that is absent.
fn is_of_one_kind(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Literal(literal) => *literal != Literal::Null,
        ExprKind::Struct { .. } => true,
        // `dyn('x')` is `'x'` to the compiler's types alone.
        ExprKind::Call {
            target: None,
            function,
            arguments,
        } if function == "dyn" => matches!(arguments.as_slice(), [value] if is_of_one_kind(value)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(parts: Vec<ObjectPart>) -> Vec<String> {
        let step = |step: PartStep| match step {
            PartStep::Field(name) => format!(".{name}"),
            PartStep::Item => "[]".to_owned(),
        };
        let parts = parts.into_iter();
        parts.map(|steps| steps.into_iter().map(step).collect()).collect()
    }

    #[test]
    fn parts_that_are_copied_are_found() {
        for (expression, expected) in [
            (
                "[JSONPatch{op: 'add', path: '/a', value: object.spec.a}]",
                &[".spec.a"][..],
            ),
            (
                "[JSONPatch{op: 'add', path: '/a', value: object.spec.?a.orValue([])}]",
                &[".spec.a"],
            ),
            ("[JSONPatch{value: [object.a[0], {'b': object.c}]}]", &[".a[]"]),
            (
                "[JSONPatch{value: object.a['b'] == 1 ? object.c[object.d] : oldObject.e}]",
                &[".c[]", ".e"],
            ),
            (
                "[JSONPatch{value: object.a + 1}, JSONPatch{path: object.b, value: params.c}]",
                &[],
            ),
            ("[object.a]", &[]),
        ] {
            assert_eq!(
                written(copied_parts(expression).unwrap()),
                expected,
                "{expression}"
            );
        }
    }

    #[test]
    fn parts_that_are_compared_are_found() {
        for (expression, expected) in [
            ("object.spec.a == 'x' || 1 == object.b", &[".spec.a", ".b"][..]),
            (
                "object.a == Object.spec{} && object.b == dyn(true)",
                &[".a", ".b"],
            ),
            (
                "object.a == null || object.b != 'x' || object.c == object.d || object.e == ['x']",
                &[],
            ),
            ("object.a + 'x' == 'y'", &[]),
        ] {
            assert_eq!(
                written(compared_parts(expression).unwrap()),
                expected,
                "{expression}"
            );
        }
    }
}
