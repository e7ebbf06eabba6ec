//! The words of a label selector.

use std::fmt;

/// One word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SelectorToken<'a> {
    /// A key or value; also `in` and `notin`, which only their position distinguishes from keywords.
    Word(&'a str),
    /// `=`, `==`, `!=`, `<`, `>`, or other signs that make no operator.
    Sign(&'a str),
    /// `!` before a key.
    Not,
    /// `,`
    Comma,
    /// `(`
    Open,
    /// `)`
    Close,
}

/// The words of `text`; blanks only separate.
pub(crate) fn tokens(text: &str) -> Vec<SelectorToken<'_>> {
    let mut rest = text.trim_start_matches(BLANKS);
    let mut tokens = Vec::new();
    while let Some(first) = rest.chars().next() {
        let (token, after) = match first {
            ',' => (SelectorToken::Comma, skip(rest, 1)),
            '(' => (SelectorToken::Open, skip(rest, 1)),
            ')' => (SelectorToken::Close, skip(rest, 1)),
            '!' if !rest.starts_with("!=") => (SelectorToken::Not, skip(rest, 1)),
            '!' | '=' | '<' | '>' => {
                let (sign, after) = split(rest, |c| !"!=<>".contains(c));
                (SelectorToken::Sign(sign), after)
            }
            _ => {
                let (word, after) = split(rest, |c| BLANKS.contains(&c) || "!=<>,()".contains(c));
                (SelectorToken::Word(word), after)
            }
        };
        tokens.push(token);
        rest = after.trim_start_matches(BLANKS);
    }
    tokens
}

const BLANKS: [char; 4] = [' ', '\t', '\r', '\n'];

fn split(text: &str, end: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(end).unwrap_or(text.len()))
}

fn skip(text: &str, bytes: usize) -> &str {
    text.get(bytes..).unwrap_or_default()
}

/// As it was written.
impl fmt::Display for SelectorToken<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Word(text) | Self::Sign(text) => text,
            Self::Not => "!",
            Self::Comma => ",",
            Self::Open => "(",
            Self::Close => ")",
        })
    }
}
