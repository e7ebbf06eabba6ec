//! Label and field selectors in kubectl's notation.
//!
//! The grammars are those of `apimachinery/pkg/labels` and `.../fields`. The result is what a
//! kube-apiserver puts into a SubjectAccessReview, which has no operators for `<` and `>`: such
//! requirements are left out.

use std::fmt;
use std::iter::Peekable;
use std::vec::IntoIter;

use super::{Operator, Requirement};

/// Parses a label selector such as `a=b,c!=d,e in (x,y),f,!g`.
///
/// # Errors
///
/// A message with the unexpected token and what was expected.
pub fn parse_labels(text: &str) -> Result<Vec<Requirement<'static>>, String> {
    let mut tokens = tokens(text).into_iter().peekable();
    let mut requirements = Vec::new();
    while tokens.peek().is_some() {
        requirements.extend(label_requirement(&mut tokens)?);
        match tokens.next() {
            None => break,
            Some(SelectorToken::Comma) if tokens.peek().is_some() => {}
            Some(SelectorToken::Comma) => return Err("nothing follows the last `,`".to_owned()),
            Some(other) => return Err(expected("`,` or the end", Some(other))),
        }
    }
    Ok(requirements)
}

type TokenStream<'a> = Peekable<IntoIter<SelectorToken<'a>>>;

/// Parses one requirement. Returns `None` for one that a review cannot express.
fn label_requirement(tokens: &mut TokenStream<'_>) -> Result<Option<Requirement<'static>>, String> {
    let absent = tokens.next_if_eq(&SelectorToken::Not).is_some();
    let key = match tokens.next() {
        Some(SelectorToken::Word(word)) => word,
        other => return Err(expected("a label key", other)),
    };
    if matches!(tokens.peek(), None | Some(SelectorToken::Comma)) {
        let operator = if absent {
            Operator::DoesNotExist
        } else {
            Operator::Exists
        };
        return Ok(Some(requirement(key, operator, Vec::new())));
    }
    if absent {
        return Err(expected("`,` or the end after `!key`", tokens.next()));
    }
    let (operator, values) = match tokens.next() {
        Some(SelectorToken::Sign("=" | "==")) => (Some(Operator::In), vec![one_value(tokens)?]),
        Some(SelectorToken::Sign("!=")) => (Some(Operator::NotIn), vec![one_value(tokens)?]),
        Some(SelectorToken::Sign("<" | ">")) => (None, vec![one_value(tokens)?]),
        Some(SelectorToken::Word("in")) => (Some(Operator::In), values(tokens)?),
        Some(SelectorToken::Word("notin")) => (Some(Operator::NotIn), values(tokens)?),
        other => return Err(expected("one of `=`, `==`, `!=`, `in`, `notin`, `<`, `>`", other)),
    };
    Ok(operator.map(|operator| requirement(key, operator, values)))
}

/// The value after `=`, which may be empty.
fn one_value(tokens: &mut TokenStream<'_>) -> Result<String, String> {
    match tokens.peek() {
        None | Some(SelectorToken::Comma) => Ok(String::new()),
        Some(SelectorToken::Word(word)) => {
            let value = (*word).to_owned();
            tokens.next();
            Ok(value)
        }
        Some(other) => Err(expected("a value", Some(*other))),
    }
}

/// Parses `(x,y)` into sorted, distinct values. Nothing between two commas is the empty value.
fn values(tokens: &mut TokenStream<'_>) -> Result<Vec<String>, String> {
    if tokens.next_if_eq(&SelectorToken::Open).is_none() {
        return Err(expected("`(`", tokens.next()));
    }
    let mut values = Vec::new();
    let mut value = "";
    loop {
        match tokens.next() {
            Some(SelectorToken::Word(word)) if value.is_empty() => value = word,
            Some(SelectorToken::Comma) => values.push(std::mem::take(&mut value).to_owned()),
            Some(SelectorToken::Close) => break,
            other => return Err(expected("a value, `,` or `)`", other)),
        }
    }
    values.push(value.to_owned());
    values.sort_unstable();
    values.dedup();
    Ok(values)
}

/// Parses a field selector such as `spec.nodeName=node-1,status.phase!=Failed`.
///
/// # Errors
///
/// A term without operator, or an unescaped `,`, `=` or `\` in a value.
pub fn parse_fields(text: &str) -> Result<Vec<Requirement<'static>>, String> {
    field_terms(text)
        .into_iter()
        .filter(|term| !term.is_empty())
        .map(field_requirement)
        .collect()
}

/// Splits at commas that are not escaped with `\`.
fn field_terms(text: &str) -> Vec<&str> {
    let mut escaped = false;
    text.split(|c: char| {
        let separates = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        separates
    })
    .collect()
}

fn field_requirement(term: &str) -> Result<Requirement<'static>, String> {
    let wrong = || format!("`{term}` must be `field=value`, `field==value` or `field!=value`");
    let (left, right) = term.split_once('=').ok_or_else(wrong)?;
    match left.strip_suffix('!') {
        Some(key) => Ok(requirement(key, Operator::NotIn, vec![unescape(right)?])),
        None => Ok(requirement(
            left,
            Operator::In,
            vec![unescape(right.strip_prefix('=').unwrap_or(right))?],
        )),
    }
}

fn unescape(value: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => plain.push(escaped),
                _ => return Err(format!("`{value}`: `\\` stands only before `\\`, `,` and `=`")),
            },
            ',' | '=' => return Err(format!("`{value}`: write `\\{c}` for `{c}`")),
            other => plain.push(other),
        }
    }
    Ok(plain)
}

fn requirement(key: &str, operator: Operator<'static>, values: Vec<String>) -> Requirement<'static> {
    Requirement {
        key: key.to_owned().into(),
        operator,
        values: values.into_iter().map(Into::into).collect(),
    }
}

fn expected(what: &str, found: Option<SelectorToken<'_>>) -> String {
    match found {
        Some(token) => format!("expected {what}, found `{token}`"),
        None => format!("expected {what}, found the end"),
    }
}

// The tokens of a label selector.

/// One token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SelectorToken<'a> {
    /// A key or a value. `in` and `notin` are words too: only their position makes them operators.
    Word(&'a str),
    /// `=`, `==`, `!=`, `<`, `>`, or another sequence of these characters, which is not an
    /// operator.
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

/// Splits `text` into tokens, which blanks may separate.
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

/// The token as written.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes `key Operator value value`, with ` & ` between requirements.
    fn written(requirements: &[Requirement<'_>]) -> String {
        let one = |requirement: &Requirement<'_>| {
            let mut words = vec![requirement.key.to_string(), format!("{:?}", requirement.operator)];
            words.extend(requirement.values.iter().map(|value| format!("{value:?}")));
            words.join(" ")
        };
        requirements.iter().map(one).collect::<Vec<_>>().join(" & ")
    }

    fn labels(text: &str) -> String {
        written(&parse_labels(text).unwrap_or_else(|error| panic!("`{text}`: {error}")))
    }

    fn fields(text: &str) -> String {
        written(&parse_fields(text).unwrap_or_else(|error| panic!("`{text}`: {error}")))
    }

    #[test]
    fn label_selectors_read_as_kubectl_reads_them() {
        for (text, expected) in [
            ("", ""),
            ("a=b", r#"a In "b""#),
            ("a==b", r#"a In "b""#),
            ("a!=b", r#"a NotIn "b""#),
            ("a = b , c!=d", r#"a In "b" & c NotIn "d""#),
            ("a=", r#"a In """#),
            ("a=,b", r#"a In "" & b Exists"#),
            ("a", "a Exists"),
            ("!a", "a DoesNotExist"),
            ("! a,b", "a DoesNotExist & b Exists"),
            ("e in (y,x,x)", r#"e In "x" "y""#),
            ("e notin ()", r#"e NotIn """#),
            (
                "x in (foo,,baz),y,z notin ()",
                r#"x In "" "baz" "foo" & y Exists & z NotIn """#,
            ),
            ("in in (in)", r#"in In "in""#),
            ("a=in", r#"a In "in""#),
            ("example.com/team=a", r#"example.com/team In "a""#),
            ("a>1,b", "b Exists"),
        ] {
            assert_eq!(labels(text), expected, "`{text}`");
        }
    }

    #[test]
    fn what_is_no_label_selector_is_refused() {
        for text in [
            "a=b,",
            ",",
            "=b",
            "a=b=c",
            "a==b==",
            "a in",
            "a in x",
            "a in (x",
            "a b",
            "!a=b",
            "a in (x y)",
            "(a)",
        ] {
            assert!(parse_labels(text).is_err(), "`{text}`");
        }
    }

    #[test]
    fn field_selectors_read_as_kubectl_reads_them() {
        for (text, expected) in [
            ("", ""),
            ("spec.nodeName=node-1", r#"spec.nodeName In "node-1""#),
            ("a==b,c!=d", r#"a In "b" & c NotIn "d""#),
            ("a=,,b=c", r#"a In "" & b In "c""#),
            (r"a=x\,y\=z\\", r#"a In "x,y=z\\""#),
            ("=b", r#" In "b""#),
            ("a!b=c", r#"a!b In "c""#),
        ] {
            assert_eq!(fields(text), expected, "`{text}`");
        }
    }

    #[test]
    fn what_is_no_field_selector_is_refused() {
        for text in ["a", "!a", "a=b=c", r"a=\x", "a=b\\", "a in (b)"] {
            assert!(parse_fields(text).is_err(), "`{text}`");
        }
    }
}
