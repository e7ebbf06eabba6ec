//! Analyses how an expression compares strings with constants.
//!
//! ```text
//! request.user == 'a' && !request.groups.exists(g, g.startsWith('x-'))
//!   -> All [ Text(request.user, Is [a]), Not(Element(request.groups, StartsWith x-)) ]
//! ```

use crate::CompileError;
use crate::go_format::text_literal;
use crate::regex::Regex;
use crate::syntax::{Expr, ExprKind, Literal, normal_form, parse};

/// Comparisons of a string's size with this number or a greater one are not analysed.
const MAX_SIZE_CONSTANT: i64 = 1_000;

/// The structure of an expression that is true, is false or fails.
///
/// A false part makes `All` false, and a true part makes `Any` true, even if other parts fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Predicate {
    /// A constant.
    Constant(bool),
    /// The negation of a predicate.
    Not(Box<Self>),
    /// All of these hold.
    All(Vec<Self>),
    /// One of these holds.
    Any(Vec<Self>),
    /// A string passes a test.
    Text(SelectedPath, TextTest),
    /// A list of strings has an item that passes a test.
    Element(SelectedPath, TextTest),
    /// The selected value is present.
    Present(SelectedPath),
    /// Any other expression, in normal form.
    Other(String),
}

/// A variable and the fields and keys selected from it: `request.user`, `request.extra['scopes']`.
pub type SelectedPath = Vec<String>;

/// The expression that selects `path`.
#[must_use]
pub fn path_expression(path: &[String]) -> String {
    let mut written = String::new();
    for name in path {
        let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && name.starts_with(|c: char| !c.is_ascii_digit());
        match (written.is_empty(), is_plain) {
            (true, _) => written += name,
            (false, true) => written += &format!(".{name}"),
            (false, false) => written += &format!("[{}]", text_literal(name)),
        }
    }
    written
}

/// A test of a string.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TextTest {
    /// The string is one of these.
    Is(Vec<String>),
    /// The string begins with this one.
    StartsWith(String),
    /// The string ends with this one.
    EndsWith(String),
    /// The string contains this one.
    Contains(String),
    /// The pattern matches in the string.
    Matches(String),
    /// The string has at least the first and at most the second number of characters.
    Size(u64, Option<u64>),
}

/// Analyses `expression`.
///
/// # Errors
///
/// The expression cannot be parsed.
pub fn predicate(expression: &str) -> Result<Predicate, CompileError> {
    Ok(of(&parse(expression)?))
}

/// Recursion is bounded by the parser.
fn of(expr: &Expr) -> Predicate {
    match &expr.kind {
        ExprKind::Literal(Literal::Bool(holds)) => Predicate::Constant(*holds),
        ExprKind::And(operands) => Predicate::All(operands.iter().map(of).collect()),
        ExprKind::Or(operands) => Predicate::Any(operands.iter().map(of).collect()),
        ExprKind::Call {
            target,
            function,
            arguments,
        } => call(target.as_deref(), function, arguments)
            .unwrap_or_else(|| Predicate::Other(normal_form(expr))),
        _ => Predicate::Other(normal_form(expr)),
    }
}

fn call(target: Option<&Expr>, function: &str, arguments: &[Expr]) -> Option<Predicate> {
    match (target, function, arguments) {
        (None, "!_", [operand]) => Some(Predicate::Not(Box::new(of(operand)))),
        (None, "has", [argument]) => path(argument).map(Predicate::Present),
        (None, "@in", [one, list]) if text(one).is_some() && path(list).is_some() => Some(
            Predicate::Element(path(list)?, TextTest::Is(vec![text(one)?.to_owned()])),
        ),
        (Some(list), "exists" | "all", [variable, test]) => {
            let (list, variable) = (path(list)?, variable.ident()?);
            if list.first().is_some_and(|name| name == variable) {
                return None;
            }
            let own = [variable.to_owned()];
            match function {
                "exists" => elements(&of(test), &list, &own),
                _ => elements(&Predicate::Not(Box::new(of(test))), &list, &own)
                    .map(|other| Predicate::Not(Box::new(other))),
            }
        }
        _ => compared(target, function, arguments),
    }
}

/// The predicate that `list` has an item for which `test` holds, if `test` is about that item
/// alone.
fn elements(test: &Predicate, list: &[String], element: &[String]) -> Option<Predicate> {
    match test {
        Predicate::Text(path, test) if path == element => {
            Some(Predicate::Element(list.to_vec(), test.clone()))
        }
        Predicate::Any(tests) => {
            let tests = tests.iter().map(|test| elements(test, list, element));
            Some(Predicate::Any(tests.collect::<Option<_>>()?))
        }
        Predicate::All(tests) if tests.len() == 1 => elements(tests.first()?, list, element),
        Predicate::Not(test) => match &**test {
            Predicate::Not(test) => elements(test, list, element),
            Predicate::All(tests) => {
                let tests = tests.iter().map(|test| Predicate::Not(Box::new(test.clone())));
                elements(&Predicate::Any(tests.collect()), list, element)
            }
            _ => None,
        },
        _ => None,
    }
}

/// The predicate of a comparison of a string with constants.
fn compared(target: Option<&Expr>, function: &str, arguments: &[Expr]) -> Option<Predicate> {
    let test = |path, test| Some(Predicate::Text(path, test));
    match (target, function, arguments) {
        (None, "_==_", [one, other]) => match (text(one), text(other)) {
            (None, Some(text)) if path(one).is_some() => {
                test(path(one)?, TextTest::Is(vec![text.to_owned()]))
            }
            (Some(text), None) if path(other).is_some() => {
                test(path(other)?, TextTest::Is(vec![text.to_owned()]))
            }
            _ => sized("==", one, other),
        },
        (None, "_!=_", [one, other]) => {
            let equal = [one.clone(), other.clone()];
            compared(None, "_==_", &equal).map(|equal| Predicate::Not(Box::new(equal)))
        }
        (None, "@in", [one, list]) => test(path(one)?, TextTest::Is(texts(list)?)),
        (None, "_<_", [one, other]) => sized("<", one, other),
        (None, "_<=_", [one, other]) => sized("<=", one, other),
        (None, "_>_", [one, other]) => sized(">", one, other),
        (None, "_>=_", [one, other]) => sized(">=", one, other),
        (Some(of), "startsWith", [argument]) => {
            test(path(of)?, TextTest::StartsWith(text(argument)?.to_owned()))
        }
        (Some(of), "endsWith", [argument]) => test(path(of)?, TextTest::EndsWith(text(argument)?.to_owned())),
        (Some(of), "contains", [argument]) => test(path(of)?, TextTest::Contains(text(argument)?.to_owned())),
        (Some(of), "matches", [argument]) => {
            let pattern = text(argument)?;
            // A call with an invalid pattern fails.
            Regex::new(pattern, &mut |_| true).ok()?;
            test(path(of)?, TextTest::Matches(pattern.to_owned()))
        }
        _ => None,
    }
}

/// The predicate of a comparison of `size(text)` with a number, on either side.
fn sized(operator: &str, one: &Expr, other: &Expr) -> Option<Predicate> {
    let (path, number, operator) = match (size_of(one), number(other), number(one), size_of(other)) {
        (Some(path), Some(number), ..) => (path, number, operator),
        (.., Some(number), Some(path)) => {
            let turned = match operator {
                "<" => ">",
                "<=" => ">=",
                ">" => "<",
                ">=" => "<=",
                equal => equal,
            };
            (path, number, turned)
        }
        _ => return None,
    };
    let at_least = |number: i64| TextTest::Size(u64::try_from(number).unwrap_or(0), None);
    // A size of more than 3 is one of at least 4, and one of less than 3 is not one of at least 3.
    let (test, holds) = match operator {
        "==" if number < 0 => return Some(Predicate::Constant(false)),
        "==" => {
            let number = u64::try_from(number).ok()?;
            (TextTest::Size(number, Some(number)), true)
        }
        ">=" => (at_least(number), true),
        ">" => (at_least(number + 1), true),
        "<" => (at_least(number), false),
        _ => (at_least(number + 1), false),
    };
    let test = Predicate::Text(path, test);
    Some(match holds {
        true => test,
        false => Predicate::Not(Box::new(test)),
    })
}

fn size_of(expr: &Expr) -> Option<SelectedPath> {
    let ExprKind::Call {
        target,
        function,
        arguments,
    } = &expr.kind
    else {
        return None;
    };
    match (target, function.as_str(), arguments.as_slice()) {
        (Some(of), "size", []) => path(of),
        (None, "size", [of]) => path(of),
        _ => None,
    }
}

fn number(expr: &Expr) -> Option<i64> {
    match &expr.kind {
        ExprKind::Literal(Literal::Int(number)) => {
            Some(*number).filter(|number| number.abs() < MAX_SIZE_CONSTANT)
        }
        _ => None,
    }
}

/// Recursion is bounded by the parser.
fn path(expr: &Expr) -> Option<SelectedPath> {
    let (operand, name) = match &expr.kind {
        ExprKind::Ident(name) => return Some(vec![name.clone()]),
        ExprKind::Select {
            operand,
            field,
            optional: false,
        } => (operand, field.as_str()),
        ExprKind::Index {
            operand,
            index,
            optional: false,
        } => (operand, text(index)?),
        _ => return None,
    };
    let mut names = path(operand)?;
    names.push(name.to_owned());
    Some(names)
}

fn text(expr: &Expr) -> Option<&str> {
    match &expr.kind {
        ExprKind::Literal(Literal::String(text)) => Some(text),
        _ => None,
    }
}

fn texts(expr: &Expr) -> Option<Vec<String>> {
    let ExprKind::List(items) = &expr.kind else {
        return None;
    };
    let one = |item: &crate::syntax::ItemExpr| {
        let text = text(&item.value).filter(|_| !item.optional);
        text.map(str::to_owned)
    };
    items.iter().map(one).collect()
}

// === impl TextTest ===

impl TextTest {
    /// Whether `text` passes; `None` if the pattern is invalid or the match was given up.
    #[must_use]
    pub fn passes(&self, text: &str) -> Option<bool> {
        self.to_function()(text)
    }

    /// The test as a function. A pattern is compiled only once.
    pub fn to_function(&self) -> impl Fn(&str) -> Option<bool> {
        let regex = match self {
            Self::Matches(pattern) => Regex::new(pattern, &mut |_| true).ok(),
            _ => None,
        };
        move |text| {
            Some(match self {
                Self::Is(texts) => texts.iter().any(|own| own == text),
                Self::StartsWith(part) => text.starts_with(part),
                Self::EndsWith(part) => text.ends_with(part),
                Self::Contains(part) => text.contains(part),
                Self::Matches(_) => regex.as_ref()?.is_match(text, &mut |_| true).ok()?,
                Self::Size(least, most) => {
                    let size = text.chars().count() as u64;
                    *least <= size && most.is_none_or(|most| size <= most)
                }
            })
        }
    }

    /// A pattern that matches in exactly the strings that pass.
    #[must_use]
    pub fn pattern(&self) -> String {
        match self {
            Self::Is(texts) => {
                let texts: Vec<String> = texts.iter().map(|text| literal_pattern(text)).collect();
                match texts.is_empty() {
                    true => r"[^\x00-\x{10FFFF}]".to_owned(),
                    false => format!(r"\A(?:{})\z", texts.join("|")),
                }
            }
            Self::StartsWith(text) => format!(r"\A{}", literal_pattern(text)),
            Self::EndsWith(text) => format!(r"{}\z", literal_pattern(text)),
            Self::Contains(text) => literal_pattern(text),
            Self::Matches(pattern) => pattern.clone(),
            Self::Size(least, most) => {
                let most = most.map_or_else(String::new, |most| most.to_string());
                format!(r"\A(?s:.{{{least},{most}}})\z")
            }
        }
    }

    /// The expression that applies the test to `subject`.
    #[must_use]
    pub fn expression(&self, subject: &str) -> String {
        let call = |function: &str, text: &str| format!("{subject}.{function}({})", text_literal(text));
        match self {
            Self::Is(texts) => match texts.as_slice() {
                [text] => format!("{subject} == {}", text_literal(text)),
                texts => {
                    let texts: Vec<String> = texts.iter().map(|text| text_literal(text)).collect();
                    format!("{subject} in [{}]", texts.join(", "))
                }
            },
            Self::StartsWith(text) => call("startsWith", text),
            Self::EndsWith(text) => call("endsWith", text),
            Self::Contains(text) => call("contains", text),
            Self::Matches(pattern) => call("matches", pattern),
            Self::Size(least, Some(most)) if least == most => format!("{subject}.size() == {least}"),
            Self::Size(least, Some(most)) => {
                format!("{subject}.size() >= {least} && {subject}.size() <= {most}")
            }
            Self::Size(least, None) => format!("{subject}.size() >= {least}"),
        }
    }
}

/// A pattern that matches only `text`.
#[must_use]
pub fn literal_pattern(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_ascii_punctuation() {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> SelectedPath {
        text.split('.').map(str::to_owned).collect()
    }

    fn text(of: &str, test: TextTest) -> Predicate {
        Predicate::Text(path(of), test)
    }

    fn not(one: Predicate) -> Predicate {
        Predicate::Not(Box::new(one))
    }

    #[test]
    fn comparisons_with_constants_are_understood() {
        let is = |texts: &[&str]| TextTest::Is(texts.iter().map(ToString::to_string).collect());
        for (expression, expected) in [
            ("true", Predicate::Constant(true)),
            ("r.user == 'a'", text("r.user", is(&["a"]))),
            ("'a' == r.user", text("r.user", is(&["a"]))),
            ("r.user != \"a\"", not(text("r.user", is(&["a"])))),
            ("r.user in ['a', 'b']", text("r.user", is(&["a", "b"]))),
            (
                "!(r.a.b.startsWith('x'))",
                not(text("r.a.b", TextTest::StartsWith("x".into()))),
            ),
            ("r.a.matches('^x$')", text("r.a", TextTest::Matches("^x$".into()))),
            ("size(r.a) > 2", text("r.a", TextTest::Size(3, None))),
            ("2 >= r.a.size()", not(text("r.a", TextTest::Size(3, None)))),
            ("r.a.size() != 0", not(text("r.a", TextTest::Size(0, Some(0))))),
            ("has(r.a.b)", Predicate::Present(path("r.a.b"))),
            (
                "'x' in r.groups",
                Predicate::Element(path("r.groups"), is(&["x"])),
            ),
            (
                "r.groups.exists(g, g == 'x' || g.endsWith('y'))",
                Predicate::Any(vec![
                    Predicate::Element(path("r.groups"), is(&["x"])),
                    Predicate::Element(path("r.groups"), TextTest::EndsWith("y".into())),
                ]),
            ),
            (
                "r.extra['a/b'].exists(x, x == 'y')",
                Predicate::Element(vec!["r".into(), "extra".into(), "a/b".into()], is(&["y"])),
            ),
            (
                "r.groups.all(g, g != 'x')",
                not(Predicate::Element(path("r.groups"), is(&["x"]))),
            ),
            (
                "r.a == 'b' && (r.c == 'd' || f(r.e))",
                Predicate::All(vec![
                    text("r.a", is(&["b"])),
                    Predicate::Any(vec![text("r.c", is(&["d"])), Predicate::Other("f(r.e)".into())]),
                ]),
            ),
        ] {
            assert_eq!(predicate(expression).unwrap(), expected, "{expression}");
        }
    }

    #[test]
    fn anything_else_is_said_as_it_would_be_written() {
        for (expression, expected) in [
            ("r.a==r.b", "r.a == r.b"),
            (
                "r.groups.exists(g, g == r.user)",
                "r.groups.exists(g, g == r.user)",
            ),
            (
                "r.groups.all(g, g.startsWith('x'))",
                "r.groups.all(g, g.startsWith('x'))",
            ),
            ("r.x['k'][0] == 'v'", "r.x['k'][0] == 'v'"),
            ("r.?a.orValue('x')+'y' == 'z'", "r.?a.orValue('x') + 'y' == 'z'"),
            ("(r.a ? r.b : r.c)", "r.a ? r.b : r.c"),
            ("(1 + 2) * -3 == r.a", "(1 + 2) * -3 == r.a"),
            ("!(r.a == r.b)", "r.a == r.b"),
            (
                "{'a': 1, ?'b': r.c}.size() == 2u",
                "{'a': 1, ?'b': r.c}.size() == 2u",
            ),
            ("r.a == 'it\\'s'", "r.a == \"it's\""),
            ("r.a in r.b || [r.a].exists(r, r == 'x')", "r.a in r.b"),
        ] {
            let found = predicate(expression).unwrap();
            let found = match found {
                Predicate::Not(other) => *other,
                Predicate::Any(parts) => parts.into_iter().next().unwrap(),
                Predicate::Text(path, test) => Predicate::Other(test.expression(&path.join("."))),
                other => other,
            };
            assert_eq!(found, Predicate::Other(expected.to_owned()), "{expression}");
            assert!(predicate(expected).is_ok(), "{expected}");
        }
    }

    #[test]
    fn a_pattern_finds_what_passes_the_test() {
        let texts = ["", "a", "a.b", "axb", "b.a", "ä", "äöü", "\n", "[x]", "a\nb"];
        for test in [
            TextTest::Is(vec!["a.b".into(), "[x]".into()]),
            TextTest::Is(Vec::new()),
            TextTest::StartsWith("a.".into()),
            TextTest::EndsWith(".a".into()),
            TextTest::Contains(".".into()),
            TextTest::Matches("^a.b$".into()),
            TextTest::Size(1, Some(1)),
            TextTest::Size(2, None),
        ] {
            let regex = Regex::new(&test.pattern(), &mut |_| true).unwrap();
            for text in texts {
                let found = regex.is_match(text, &mut |_| true).unwrap();
                assert_eq!(Some(found), test.passes(text), "{test:?} of {text:?}");
            }
        }
    }
}
