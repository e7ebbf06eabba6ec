//! A tree as the text of an expression again.

use super::{Expr, ExprKind, Literal};
use crate::quote::text_literal;

/// How tightly what stands in a place must bind to need no brackets there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Binding {
    Anything,
    Or,
    And,
    Relation,
    Sum,
    Product,
    Unary,
    Member,
}

/// The expression as it would be written: equal trees are equal texts, whatever their blanks and
/// brackets were. Depth is bounded by the parser.
pub(crate) fn written(expr: &Expr) -> String {
    within(expr, Binding::Anything)
}

fn within(expr: &Expr, place: Binding) -> String {
    let (text, binding) = plain(expr);
    match binding < place {
        true => format!("({text})"),
        false => text,
    }
}

fn plain(expr: &Expr) -> (String, Binding) {
    match &expr.kind {
        ExprKind::Literal(value) => literal(value),
        ExprKind::Ident(name) => (name.clone(), Binding::Member),
        ExprKind::Select {
            operand,
            field,
            optional,
        } => {
            let sign = if *optional { ".?" } else { "." };
            (
                format!("{}{sign}{field}", within(operand, Binding::Member)),
                Binding::Member,
            )
        }
        ExprKind::Index {
            operand,
            index,
            optional,
        } => {
            let sign = if *optional { "?" } else { "" };
            let text = format!("{}[{sign}{}]", within(operand, Binding::Member), written(index));
            (text, Binding::Member)
        }
        ExprKind::Call {
            target,
            function,
            arguments,
        } => call(target.as_deref(), function, arguments),
        ExprKind::And(operands) => (joined(operands, " && ", Binding::Relation), Binding::And),
        ExprKind::Or(operands) => (joined(operands, " || ", Binding::And), Binding::Or),
        ExprKind::Conditional(parts) => {
            let [condition, one, other] = &**parts;
            let condition = within(condition, Binding::Or);
            let text = format!("{condition} ? {} : {}", within(one, Binding::Or), written(other));
            (text, Binding::Anything)
        }
        ExprKind::List(items) => {
            let item = |value: &Expr, optional: bool| format!("{}{}", mark(optional), written(value));
            let items: Vec<String> = items.iter().map(|one| item(&one.value, one.optional)).collect();
            (format!("[{}]", items.join(", ")), Binding::Member)
        }
        ExprKind::Map(entries) => {
            let entries: Vec<String> = entries
                .iter()
                .map(|one| {
                    format!(
                        "{}{}: {}",
                        mark(one.optional),
                        written(&one.key),
                        written(&one.value)
                    )
                })
                .collect();
            (format!("{{{}}}", entries.join(", ")), Binding::Member)
        }
        ExprKind::Struct { name, fields } => {
            let fields: Vec<String> = fields
                .iter()
                .map(|one| format!("{}{}: {}", mark(one.optional), one.name, written(&one.value)))
                .collect();
            (format!("{name}{{{}}}", fields.join(", ")), Binding::Member)
        }
    }
}

const fn mark(optional: bool) -> &'static str {
    if optional { "?" } else { "" }
}

fn joined(operands: &[Expr], sign: &str, place: Binding) -> String {
    let operands: Vec<String> = operands.iter().map(|operand| within(operand, place)).collect();
    operands.join(sign)
}

fn call(target: Option<&Expr>, function: &str, arguments: &[Expr]) -> (String, Binding) {
    let operator = match function {
        "_<_" => Some((" < ", Binding::Relation)),
        "_<=_" => Some((" <= ", Binding::Relation)),
        "_>=_" => Some((" >= ", Binding::Relation)),
        "_>_" => Some((" > ", Binding::Relation)),
        "_==_" => Some((" == ", Binding::Relation)),
        "_!=_" => Some((" != ", Binding::Relation)),
        "@in" => Some((" in ", Binding::Relation)),
        "_+_" => Some((" + ", Binding::Sum)),
        "_-_" => Some((" - ", Binding::Sum)),
        "_*_" => Some((" * ", Binding::Product)),
        "_/_" => Some((" / ", Binding::Product)),
        "_%_" => Some((" % ", Binding::Product)),
        _ => None,
    };
    match (target, operator, function, arguments) {
        (None, Some((sign, binding)), _, [one, other]) => {
            let tighter = match binding {
                Binding::Relation => Binding::Sum,
                Binding::Sum => Binding::Product,
                _ => Binding::Unary,
            };
            (
                format!("{}{sign}{}", within(one, binding), within(other, tighter)),
                binding,
            )
        }
        (None, _, "!_", [operand]) => (format!("!{}", within(operand, Binding::Member)), Binding::Unary),
        (None, _, "-_", [operand]) => (format!("-{}", within(operand, Binding::Member)), Binding::Unary),
        (target, ..) => {
            let before = target.map(|target| format!("{}.", within(target, Binding::Member)));
            let text = format!(
                "{}{function}({})",
                before.unwrap_or_default(),
                joined(arguments, ", ", Binding::Anything)
            );
            (text, Binding::Member)
        }
    }
}

fn literal(value: &Literal) -> (String, Binding) {
    let text = match value {
        Literal::Null => "null".to_owned(),
        Literal::Bool(value) => value.to_string(),
        Literal::Int(value) => value.to_string(),
        Literal::Uint(value) => format!("{value}u"),
        Literal::Double(value) => format!("{value:?}"),
        Literal::String(value) => text_literal(value),
        Literal::Bytes(value) => {
            let bytes: String = value.iter().map(|byte| format!("\\x{byte:02x}")).collect();
            format!("b'{bytes}'")
        }
    };
    let is_negative = text.starts_with('-');
    (
        text,
        if is_negative {
            Binding::Unary
        } else {
            Binding::Member
        },
    )
}
