//! Finds what an expression uses, for code that analyses or rewrites it.

use std::ops::Range;

use super::lexer::{Lexer, Token};
use super::parser::parse;
use super::{Expr, ExprKind, Literal, position};
use crate::CompileError;

/// A use of a variable, with the fields that are selected from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariableUse {
    /// `a.b` for `variable.a.b`. Selections from `.?` or `[` on do not count.
    pub fields: Vec<String>,
    /// Whether this is `has(variable.a.b)`, all of which is then in the range.
    pub is_presence_test: bool,
    /// The range of bytes in the expression.
    pub range: Range<usize>,
}

/// Finds every use of `variable` in `expression`, in the order of the text.
///
/// # Errors
///
/// The expression cannot be parsed, uses the name for a local variable (`list.all(variable, …)`),
/// or has parentheses within a selection (`(variable).a`).
pub fn variable_uses(expression: &str, variable: &str) -> Result<Vec<VariableUse>, CompileError> {
    let tree = parse(expression)?;
    let mut search = UseCollector {
        text: expression,
        variable,
        found: Vec::new(),
    };
    search.visit(&tree, None)?;
    search.found.sort_by_key(|found| found.range.start);
    Ok(search.found)
}

struct UseCollector<'t> {
    text: &'t str,
    variable: &'t str,
    found: Vec<VariableUse>,
}

impl UseCollector<'_> {
    /// If `expr` is the argument of `has`, `presence` is the position of that `has`.
    fn visit(&mut self, expr: &Expr, presence: Option<usize>) -> Result<(), CompileError> {
        if let Some((fields, at)) = self.selection(expr) {
            let range = self.range(&fields, at, presence)?;
            self.found.push(VariableUse {
                fields,
                is_presence_test: presence.is_some(),
                range,
            });
            return Ok(());
        }
        match &expr.kind {
            ExprKind::Literal(_) | ExprKind::Ident(_) => Ok(()),
            ExprKind::Select { operand, .. } => self.visit(operand, None),
            ExprKind::Index { operand, index, .. } => self.all([&**operand, &**index]),
            ExprKind::Call {
                target: None,
                function,
                arguments,
            } if function == "has" => match arguments.as_slice() {
                [argument] => self.visit(argument, self.start_of_has(expr.at)),
                _ => self.all(arguments),
            },
            ExprKind::Call {
                target: Some(target),
                arguments,
                ..
            } => {
                // Only macros have an argument that is a name alone, with which they declare a
                // local variable.
                if arguments.len() > 1
                    && let Some(own) = arguments.iter().find(|one| one.ident() == Some(self.variable))
                {
                    let message = format!("`{}` may be something else here", self.variable);
                    return Err(self.fault(message, own.at));
                }
                self.visit(target, None)?;
                self.all(arguments)
            }
            ExprKind::Call { arguments, .. } => self.all(arguments),
            ExprKind::And(operands) | ExprKind::Or(operands) => self.all(operands),
            ExprKind::Conditional(parts) => self.all(parts.iter()),
            ExprKind::List(items) => self.all(items.iter().map(|item| &item.value)),
            ExprKind::Map(entries) => self.all(entries.iter().flat_map(|entry| [&entry.key, &entry.value])),
            ExprKind::Struct { fields, .. } => self.all(fields.iter().map(|field| &field.value)),
        }
    }

    fn all<'e>(&mut self, exprs: impl IntoIterator<Item = &'e Expr>) -> Result<(), CompileError> {
        exprs.into_iter().try_for_each(|expr| self.visit(expr, None))
    }

    /// The position of a call is that of its parenthesis; this one is that of the name before it.
    fn start_of_has(&self, at: usize) -> Option<usize> {
        let before = self.text.get(..at)?.trim_end();
        before.strip_suffix("has").map(str::len)
    }

    /// The fields that `expr` selects from the variable, and the position of the variable.
    fn selection(&self, mut expr: &Expr) -> Option<(Vec<String>, usize)> {
        let mut fields = Vec::new();
        while let ExprKind::Select {
            operand,
            field,
            optional: false,
        } = &expr.kind
        {
            fields.push(field.clone());
            expr = operand;
        }
        fields.reverse();
        (expr.ident() == Some(self.variable)).then_some((fields, expr.at))
    }

    fn range(
        &self,
        fields: &[String],
        at: usize,
        presence: Option<usize>,
    ) -> Result<Range<usize>, CompileError> {
        let start = presence.unwrap_or(at);
        let mut lexer = Lexer::new(self.text.get(start..).unwrap_or_default());
        let before: &[Token] = match presence {
            Some(_) => &[Token::Ident, Token::Sign("(")],
            None => &[],
        };
        let after: &[Token] = match presence {
            Some(_) => &[Token::Sign(")")],
            None => &[],
        };
        let selections = fields.iter().flat_map(|_| [Token::Sign("."), Token::Ident]);
        let expected = before
            .iter()
            .copied()
            .chain([Token::Ident])
            .chain(selections)
            .chain(after.iter().copied());
        let mut end = start;
        for token in expected {
            match lexer.next() {
                Ok(next) if next.token == token => end = start + next.to,
                _ => {
                    let message = format!("where `{}` ends cannot be told", self.variable);
                    return Err(self.fault(message, at));
                }
            }
        }
        Ok(start..end)
    }

    fn fault(&self, message: String, at: usize) -> CompileError {
        CompileError::new(message, position(self.text, at))
    }
}

/// Returns the name and the fields of each object that `expression` constructs by `Name{field: …}`.
///
/// # Errors
///
/// The expression cannot be parsed.
pub fn constructed_objects(expression: &str) -> Result<Vec<(String, Vec<String>)>, CompileError> {
    let mut found = Vec::new();
    find_objects(&parse(expression)?, &mut found);
    Ok(found)
}

/// The path of a `JSONPatch{…}`, as far as it is constant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchPath {
    /// The JSON Pointer up to the first part that is computed.
    pub text: String,
    /// Whether no part is computed.
    pub is_whole: bool,
}

/// Returns the path of each `JSONPatch{…}` in `expression`, except those that only remove or test.
///
/// # Errors
///
/// The expression cannot be parsed.
pub fn patch_paths(expression: &str) -> Result<Vec<PatchPath>, CompileError> {
    let mut found = Vec::new();
    find_paths(&parse(expression)?, &mut found);
    Ok(found)
}

/// Recursion is bounded by the parser.
fn find_paths(expr: &Expr, found: &mut Vec<PatchPath>) {
    if let ExprKind::Struct { name, fields } = &expr.kind
        && name == "JSONPatch"
    {
        let field = |name: &str| fields.iter().find(|field| field.name == name);
        let operation = field("op").map(|field| constant_prefix(&field.value));
        let puts_nothing = operation.is_some_and(|op| op.is_whole && matches!(&*op.text, "remove" | "test"));
        if !puts_nothing && let Some(path) = field("path") {
            found.push(constant_prefix(&path.value));
        }
    }
    for child in children(expr) {
        find_paths(child, found);
    }
}

/// The string literals with which a concatenation begins.
fn constant_prefix(expr: &Expr) -> PatchPath {
    match &expr.kind {
        ExprKind::Literal(Literal::String(text)) => PatchPath {
            text: text.clone(),
            is_whole: true,
        },
        ExprKind::Call {
            target: None,
            function,
            arguments,
        } if function == "_+_" => match arguments.as_slice() {
            [one, other] => {
                let mut path = constant_prefix(one);
                if path.is_whole {
                    let rest = constant_prefix(other);
                    path.text.push_str(&rest.text);
                    path.is_whole = rest.is_whole;
                }
                path
            }
            _ => PatchPath::UNKNOWN,
        },
        _ => PatchPath::UNKNOWN,
    }
}

impl PatchPath {
    const UNKNOWN: Self = Self {
        text: String::new(),
        is_whole: false,
    };
}

/// Recursion is bounded by the parser.
fn find_objects(expr: &Expr, found: &mut Vec<(String, Vec<String>)>) {
    if let ExprKind::Struct { name, fields } = &expr.kind {
        let fields = fields.iter().map(|field| field.name.clone());
        found.push((name.clone(), fields.collect()));
    }
    for child in children(expr) {
        find_objects(child, found);
    }
}

/// Returns the lines and columns, from 1, of each `.orValue(…)` whose target does not look like an
/// optional: neither selected with `.?` or `[?`, nor returned by a function that returns one.
/// `optional` are the names of the optional `variables`.
///
/// # Errors
///
/// The expression cannot be parsed.
pub fn plain_or_values(expression: &str, optional: &[String]) -> Result<Vec<(usize, usize)>, CompileError> {
    let tree = parse(expression)?;
    let mut found = Vec::new();
    find_plain(&tree, optional, &mut found);
    found.sort_unstable();
    Ok(found.into_iter().map(|at| position(expression, at)).collect())
}

/// Recursion is bounded by the parser.
fn find_plain(expr: &Expr, optional: &[String], found: &mut Vec<usize>) {
    if let ExprKind::Call {
        target: Some(target),
        function,
        ..
    } = &expr.kind
        && function == "orValue"
        && !is_optional(target, optional)
    {
        found.push(expr.at);
    }
    for child in children(expr) {
        find_plain(child, optional, found);
    }
}

fn is_optional(expr: &Expr, optional: &[String]) -> bool {
    match &expr.kind {
        ExprKind::Select { optional: true, .. } | ExprKind::Index { optional: true, .. } => true,
        ExprKind::Select { operand, field, .. } => {
            let is_variable = operand.ident() == Some("variables") && optional.contains(field);
            is_variable || is_optional(operand, optional)
        }
        ExprKind::Index { operand, .. } => is_optional(operand, optional),
        ExprKind::Call {
            target: Some(target),
            function,
            ..
        } => match (target.ident(), function.as_str()) {
            (Some("optional"), "of" | "none" | "ofNonZeroValue") => true,
            (_, "optMap" | "optFlatMap" | "or") => is_optional(target, optional),
            _ => false,
        },
        ExprKind::Conditional(parts) => {
            let [_, one, other] = &**parts;
            is_optional(one, optional) && is_optional(other, optional)
        }
        _ => false,
    }
}

pub(crate) fn children(expr: &Expr) -> Vec<&Expr> {
    match &expr.kind {
        ExprKind::Literal(_) | ExprKind::Ident(_) => Vec::new(),
        ExprKind::Select { operand, .. } => vec![operand],
        ExprKind::Index { operand, index, .. } => vec![operand, index],
        ExprKind::Call {
            target, arguments, ..
        } => target.as_deref().into_iter().chain(arguments).collect(),
        ExprKind::And(operands) | ExprKind::Or(operands) => operands.iter().collect(),
        ExprKind::Conditional(parts) => parts.iter().collect(),
        ExprKind::List(items) => items.iter().map(|item| &item.value).collect(),
        ExprKind::Map(entries) => entries
            .iter()
            .flat_map(|entry| [&entry.key, &entry.value])
            .collect(),
        ExprKind::Struct { fields, .. } => fields.iter().map(|field| &field.value).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(expression: &str) -> Vec<String> {
        let found = variable_uses(expression, "request").unwrap();
        found
            .into_iter()
            .map(|found| {
                let text = expression.get(found.range).unwrap().to_owned();
                let fields = found.fields.join(".");
                let test = if found.is_presence_test { "?" } else { "" };
                format!("{text} = {fields}{test}")
            })
            .collect()
    }

    #[test]
    fn paths_of_patches_are_told_as_far_as_they_are_written_out() {
        for (expression, expected) in [
            ("[JSONPatch{op: 'add', path: '/a/b', value: 1}]", &["/a/b"][..]),
            (
                "[JSONPatch{op: 'add', path: '/a/' + 'b' + '/c', value: 1}]",
                &["/a/b/c"],
            ),
            (
                "[JSONPatch{op: 'add', path: '/a/' + object.b + '/c', value: 1}]",
                &["/a/…"],
            ),
            ("[JSONPatch{op: 'copy', from: '/x', path: object.b}]", &["…"]),
            ("[JSONPatch{op: object.c, path: '/a'}]", &["/a"]),
            (
                "[JSONPatch{op: 'remove', path: '/a'}, JSONPatch{op: 'test', path: '/b'}]",
                &[],
            ),
            (
                "has(object.a) ? [JSONPatch{op: 'replace', path: '/a'}] : [JSONPatch{op: 'add', path: '/b'}]",
                &["/a", "/b"],
            ),
        ] {
            let found = patch_paths(expression).unwrap();
            let found: Vec<String> = found
                .into_iter()
                .map(|path| path.text + if path.is_whole { "" } else { "…" })
                .collect();
            assert_eq!(found, expected, "{expression}");
        }
    }

    #[test]
    fn uses_are_found_with_their_fields() {
        for (expression, expected) in [
            ("request.user == 'a'", &["request.user = user"][..]),
            (
                "has(request.a.b) && request . a .b == 1",
                &["has(request.a.b) = a.b?", "request . a .b = a.b"],
            ),
            (
                "request.groups.exists(g, g == request.user)",
                &["request.groups = groups", "request.user = user"],
            ),
            ("request.?a.b.orValue(1)", &["request = "]),
            ("request['a'].b", &["request = "]),
            ("other.request == 'request'", &[]),
            ("has( request.a )", &["has( request.a ) = a?"]),
            (
                "has(request.a.all) ? [request.b] : [{request.c: 1}]",
                &["has(request.a.all) = a.all?", "request.b = b", "request.c = c"],
            ),
            (
                "request.a.matches(request.b)",
                &["request.a = a", "request.b = b"],
            ),
            ("size(request)", &["request = "]),
            ("\"é\" == request.a // request.b", &["request.a = a"]),
        ] {
            assert_eq!(uses(expression), expected, "{expression}");
        }
    }

    #[test]
    fn or_value_of_what_is_no_optional_is_found() {
        let optional = ["o".to_owned()];
        for (expression, columns) in [
            ("object.?spec.a.orValue([])", &[][..]),
            ("object.spec[?'a'].b.orValue(1)", &[]),
            ("variables.o.b.orValue(1)", &[]),
            ("optional.of(1).or(optional.none()).orValue(1)", &[]),
            ("(true ? a.?b : optional.none()).orValue(1)", &[]),
            ("a.?b.optMap(x, x + 1).orValue(2)", &[]),
            ("object.spec.a.orValue([])", &[22]),
            ("variables.p.orValue(1) + [1].map(x, x.orValue(2))[0]", &[20, 46]),
            ("(true ? a.?b : c).orValue(1)", &[26]),
        ] {
            let found = plain_or_values(expression, &optional).unwrap();
            let found: Vec<usize> = found.into_iter().map(|(_, column)| column).collect();
            assert_eq!(found, columns, "{expression}");
        }
    }

    #[test]
    fn objects_are_found_with_their_fields() {
        let made = constructed_objects("Object{spec: Object.spec{a: [1], b: c.map(x, Object.spec.b{n: x})}}")
            .unwrap();
        let made: Vec<String> = made
            .into_iter()
            .map(|(name, fields)| format!("{name} {}", fields.join(",")))
            .collect();
        assert_eq!(made, ["Object spec", "Object.spec a,b", "Object.spec.b n"]);
    }

    #[test]
    fn what_cannot_be_told_is_an_error() {
        for expression in [
            "[1].all(request, request > 0)",
            "(request).user == 'a'",
            "has((request).user)",
            "request.",
        ] {
            assert!(variable_uses(expression, "request").is_err(), "{expression}");
        }
    }
}
