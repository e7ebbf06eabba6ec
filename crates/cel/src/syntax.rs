//! Parses CEL's grammar (`cel.dev/expr`, `parser/gen/CEL.g4` of cel-go) into a tree, by
//! recursive descent.
//!
//! The parser limits length and depth, and needs little stack per level: an expression
//! that Kubernetes accepts must not end the process. Macros stay calls; the checker
//! handles them.

mod lexer;
mod parser;
mod parts;
mod uses;

pub use parts::{ObjectPart, PartStep, compared_parts, copied_parts};
pub use uses::{PatchPath, VariableUse, made_objects, patch_paths, plain_or_values, variable_uses};

pub(crate) use parser::parse;

/// The longest expression, in characters, as upstream.
pub const MAX_LENGTH: usize = 100_000;

/// How deep brackets may nest.
pub const MAX_NESTING: u32 = 96;

/// How deep operations may nest, chains such as `a + b + c` included; but for
/// `a && b && c` and `a || b || c`, which may be of any length.
pub const MAX_DEPTH: u32 = 200;

/// The line and column of the byte `at`, both from 1, in characters.
pub(crate) fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.matches('\n').count() + 1;
    let column = before.get(line_start..).map_or(0, |line| line.chars().count()) + 1;
    (line, column)
}

// The syntax tree.

/// An expression and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Expr {
    pub(crate) kind: ExprKind,
    /// The byte of the text that it is known by: an operator's own, a name's first.
    pub(crate) at: usize,
    /// How deep the tree below it is, itself included.
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
    /// A function or an operator such as `_+_`.
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
    /// The name that it spells, if it is names joined by points.
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

    /// How deep the tree below it is, itself included.
    pub(crate) const fn depth(&self) -> u32 {
        self.depth
    }

    /// The name, if it is a single one.
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

// Which names an expression may give to things.

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

/// Words that stand for values and operators of their own.
const KEYWORDS: [&str; 4] = ["true", "false", "null", "in"];

/// Whether an expression can name a variable so.
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
