//! Parses CEL's grammar (`cel.dev/expr`, `parser/gen/CEL.g4` of cel-go) into a tree, by
//! recursive descent.
//!
//! The parser limits length and depth, and needs little stack per level: an expression
//! that Kubernetes accepts must not end the process. Macros stay calls; the checker
//! handles them.

mod lexer;
mod literal;
mod names;
mod parser;
mod parts;
mod tree;
mod uses;

pub use names::is_identifier;
pub(crate) use parser::parse;
pub use parts::{ObjectPart, PartStep, compared_parts, copied_parts};
pub(crate) use tree::{EntryExpr, Expr, ExprKind, FieldExpr, ItemExpr, Literal};
pub use uses::{PatchPath, VariableUse, made_objects, patch_paths, plain_or_values, variable_uses};

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
