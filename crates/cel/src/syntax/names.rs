//! Which names an expression may give to things.

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
