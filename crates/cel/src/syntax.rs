//! Parses CEL's grammar (`cel.dev/expr`, `parser/gen/CEL.g4` of cel-go) into a tree by recursive
//! descent, and writes a tree as text.
//!
//! The parser limits length and depth, and needs little stack for each level: no expression that
//! Kubernetes accepts must crash the process. Macros are parsed as calls, which the checker
//! expands.

mod lexer;
mod parser;
mod uses;

use crate::CompileError;
use crate::go_format::text_literal;
use uses::children;

pub use uses::{PatchPath, VariableUse, constructed_objects, patch_paths, plain_or_values, variable_uses};

pub(crate) use parser::parse;

/// The longest expression, in characters, as upstream.
pub const MAX_LENGTH: usize = 100_000;

/// How deep parentheses, brackets and braces may nest.
pub const MAX_NESTING: u32 = 96;

/// How deep operations may nest, including chains such as `a + b + c`. Only `a && b && c` and
/// `a || b || c` may have any length.
pub const MAX_DEPTH: u32 = 200;

/// The line and column of the byte `at`, both from 1; columns count characters.
pub(crate) fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.matches('\n').count() + 1;
    let column = before.get(line_start..).map_or(0, |line| line.chars().count()) + 1;
    (line, column)
}

// The syntax tree.

/// An expression and its position.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Expr {
    pub(crate) kind: ExprKind,
    /// The byte offset at which the expression is reported: that of an operator, or the first of a
    /// name.
    pub(crate) at: usize,
    /// The depth of the tree from this expression on.
    pub(crate) depth: u32,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ExprKind {
    Literal(Literal),
    Ident(String),
    /// `operand.field`, `operand.?field`
    Select {
        operand: Box<Expr>,
        field: String,
        optional: bool,
    },
    /// `operand[index]`, `operand[?index]`
    Index {
        operand: Box<Expr>,
        index: Box<Expr>,
        optional: bool,
    },
    /// A call of a function, or of an operator such as `_+_`.
    Call {
        target: Option<Box<Expr>>,
        function: String,
        arguments: Vec<Expr>,
    },
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Conditional(Box<[Expr; 3]>),
    List(Vec<ItemExpr>),
    Map(Vec<EntryExpr>),
    Struct {
        name: String,
        fields: Vec<FieldExpr>,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(String),
    Bytes(Vec<u8>),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ItemExpr {
    pub(crate) value: Expr,
    pub(crate) optional: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EntryExpr {
    pub(crate) key: Expr,
    pub(crate) value: Expr,
    pub(crate) optional: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FieldExpr {
    pub(crate) name: String,
    pub(crate) value: Expr,
    pub(crate) optional: bool,
    pub(crate) at: usize,
}

impl Expr {
    /// The qualified name, if the expression consists of names joined by dots.
    pub(crate) fn qualified_name(&self) -> Option<String> {
        let mut names = Vec::new();
        let mut expr = self;
        while let ExprKind::Select {
            operand,
            field,
            optional: false,
        } = &expr.kind
        {
            names.push(field.as_str());
            expr = operand;
        }
        names.push(expr.ident()?);
        names.reverse();
        Some(names.join("."))
    }

    /// The depth of the tree from this expression on.
    pub(crate) const fn depth(&self) -> u32 {
        self.depth
    }

    /// The name, if the expression is a single name.
    pub(crate) fn ident(&self) -> Option<&str> {
        match &self.kind {
            ExprKind::Ident(name) => Some(name),
            _ => None,
        }
    }

    pub(crate) fn children_depth<'e>(children: impl IntoIterator<Item = &'e Self>) -> u32 {
        children
            .into_iter()
            .map(|child| child.depth)
            .max()
            .unwrap_or_default()
    }
}

// The names that an expression may use for variables.

/// Names that no variable or function may have.
pub(crate) const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Words that are literals or operators.
const KEYWORDS: [&str; 4] = ["true", "false", "null", "in"];

/// Whether `name` can be the name of a variable.
#[must_use]
pub fn is_identifier(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes
        .next()
        .is_some_and(|first| first == b'_' || first.is_ascii_alphabetic())
        && bytes.all(|byte| byte == b'_' || byte.is_ascii_alphanumeric())
        && !KEYWORDS.contains(&name)
        && !RESERVED.contains(&name)
}

/// A part of `object` or `oldObject`, as the steps to it.
pub type ObjectPart = Vec<PartStep>;

/// One step into an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartStep {
    /// A field or key of this name.
    Field(String),
    /// An item of a list, or a key that is only known at run time.
    Item,
}

/// The parts that a `JSONPatch{…}` in `expression` has as its value, or as an item of its list of
/// values.
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

/// The parts that `expression` compares by `==` with a string, a number, a boolean or an object
/// that it constructs.
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

/// Recursion is bounded by the parser.
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

/// Whether the value is a scalar or an object, which only a part of the same kind can be equal to.
/// `null` is not, because it also equals an absent part.
fn is_of_one_kind(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Literal(literal) => *literal != Literal::Null,
        ExprKind::Struct { .. } => true,
        // `dyn('x')` differs from `'x'` only in its static type.
        ExprKind::Call {
            target: None,
            function,
            arguments,
        } if function == "dyn" => matches!(arguments.as_slice(), [value] if is_of_one_kind(value)),
        _ => false,
    }
}

/// How tightly an expression binds; for an operand, how tightly it must bind to need no
/// parentheses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Precedence {
    Anything,
    Or,
    And,
    Relation,
    Sum,
    Product,
    Unary,
    Member,
}

/// Writes an expression in a normal form: equal trees give equal strings, whatever their white
/// space and parentheses were. Recursion is bounded by the parser.
pub(crate) fn normal_form(expr: &Expr) -> String {
    within(expr, Precedence::Anything)
}

fn within(expr: &Expr, place: Precedence) -> String {
    let (text, binding) = write_expr(expr);
    match binding < place {
        true => format!("({text})"),
        false => text,
    }
}

fn write_expr(expr: &Expr) -> (String, Precedence) {
    match &expr.kind {
        ExprKind::Literal(value) => literal(value),
        ExprKind::Ident(name) => (name.clone(), Precedence::Member),
        ExprKind::Select {
            operand,
            field,
            optional,
        } => {
            let sign = if *optional { ".?" } else { "." };
            (
                format!("{}{sign}{field}", within(operand, Precedence::Member)),
                Precedence::Member,
            )
        }
        ExprKind::Index {
            operand,
            index,
            optional,
        } => {
            let sign = if *optional { "?" } else { "" };
            let text = format!(
                "{}[{sign}{}]",
                within(operand, Precedence::Member),
                normal_form(index)
            );
            (text, Precedence::Member)
        }
        ExprKind::Call {
            target,
            function,
            arguments,
        } => call(target.as_deref(), function, arguments),
        ExprKind::And(operands) => (joined(operands, " && ", Precedence::Relation), Precedence::And),
        ExprKind::Or(operands) => (joined(operands, " || ", Precedence::And), Precedence::Or),
        ExprKind::Conditional(parts) => {
            let [condition, one, other] = &**parts;
            let condition = within(condition, Precedence::Or);
            let text = format!(
                "{condition} ? {} : {}",
                within(one, Precedence::Or),
                normal_form(other)
            );
            (text, Precedence::Anything)
        }
        ExprKind::List(items) => {
            let item = |value: &Expr, optional: bool| format!("{}{}", mark(optional), normal_form(value));
            let items: Vec<String> = items.iter().map(|one| item(&one.value, one.optional)).collect();
            (format!("[{}]", items.join(", ")), Precedence::Member)
        }
        ExprKind::Map(entries) => {
            let entries: Vec<String> = entries
                .iter()
                .map(|one| {
                    format!(
                        "{}{}: {}",
                        mark(one.optional),
                        normal_form(&one.key),
                        normal_form(&one.value)
                    )
                })
                .collect();
            (format!("{{{}}}", entries.join(", ")), Precedence::Member)
        }
        ExprKind::Struct { name, fields } => {
            let fields: Vec<String> = fields
                .iter()
                .map(|one| format!("{}{}: {}", mark(one.optional), one.name, normal_form(&one.value)))
                .collect();
            (format!("{name}{{{}}}", fields.join(", ")), Precedence::Member)
        }
    }
}

const fn mark(optional: bool) -> &'static str {
    if optional { "?" } else { "" }
}

fn joined(operands: &[Expr], sign: &str, place: Precedence) -> String {
    let operands: Vec<String> = operands.iter().map(|operand| within(operand, place)).collect();
    operands.join(sign)
}

fn call(target: Option<&Expr>, function: &str, arguments: &[Expr]) -> (String, Precedence) {
    let operator = match function {
        "_<_" => Some((" < ", Precedence::Relation)),
        "_<=_" => Some((" <= ", Precedence::Relation)),
        "_>=_" => Some((" >= ", Precedence::Relation)),
        "_>_" => Some((" > ", Precedence::Relation)),
        "_==_" => Some((" == ", Precedence::Relation)),
        "_!=_" => Some((" != ", Precedence::Relation)),
        "@in" => Some((" in ", Precedence::Relation)),
        "_+_" => Some((" + ", Precedence::Sum)),
        "_-_" => Some((" - ", Precedence::Sum)),
        "_*_" => Some((" * ", Precedence::Product)),
        "_/_" => Some((" / ", Precedence::Product)),
        "_%_" => Some((" % ", Precedence::Product)),
        _ => None,
    };
    match (target, operator, function, arguments) {
        (None, Some((sign, binding)), _, [one, other]) => {
            let tighter = match binding {
                Precedence::Relation => Precedence::Sum,
                Precedence::Sum => Precedence::Product,
                _ => Precedence::Unary,
            };
            (
                format!("{}{sign}{}", within(one, binding), within(other, tighter)),
                binding,
            )
        }
        (None, _, "!_", [operand]) => (
            format!("!{}", within(operand, Precedence::Member)),
            Precedence::Unary,
        ),
        (None, _, "-_", [operand]) => (
            format!("-{}", within(operand, Precedence::Member)),
            Precedence::Unary,
        ),
        (target, ..) => {
            let before = target.map(|target| format!("{}.", within(target, Precedence::Member)));
            let text = format!(
                "{}{function}({})",
                before.unwrap_or_default(),
                joined(arguments, ", ", Precedence::Anything)
            );
            (text, Precedence::Member)
        }
    }
}

fn literal(value: &Literal) -> (String, Precedence) {
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
            Precedence::Unary
        } else {
            Precedence::Member
        },
    )
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
