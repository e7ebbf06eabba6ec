//! Functions and comparisons of JMESPath in CEL.

use serde_json::Value;

use super::jmespath::Comparator;
use super::scalar::NUMBER;
use super::scope::{ANY, BOOL, FAILS, Known, LIST, MAP, NULL, NUMBERS, Scope, TEXT, Term, is_number};
use crate::conversion::Refusal;
use crate::kyverno::expression::{literal, matches_wildcard};

/// The functions that are converted.
const FUNCTIONS: [&str; 16] = [
    "contains",
    "ends_with",
    "join",
    "keys",
    "length",
    "pattern_match",
    "regex_match",
    "replace_all",
    "split",
    "starts_with",
    "to_array",
    "to_lower",
    "to_number",
    "to_string",
    "to_upper",
    "values",
];

// === impl Scope ===

impl Scope {
    /// The truth value of the term, where JMESPath expects a condition.
    pub(crate) fn truth(&self, term: &Term) -> String {
        if let Some(value) = &term.constant {
            return (!is_false(value)).to_string();
        }
        match term.is_only(BOOL) {
            true => term.or_null.clone(),
            false => self.evaluated_once(&term.or_null, |name| format!("({})", self.is_true(term, name))),
        }
    }

    /// The condition that `name`, which is the value of `term`, is neither null, false nor empty.
    pub(crate) fn is_true(&self, term: &Term, name: &str) -> String {
        if term.is_only(BOOL) {
            return name.to_owned();
        }
        let nothings = [
            (NULL, "null"),
            (BOOL, "false"),
            (TEXT, "''"),
            (LIST, "[]"),
            (MAP, "{}"),
        ];
        let nothings = nothings.into_iter().filter(|(shape, _)| term.may_be(*shape));
        let parts: Vec<String> = nothings
            .map(|(_, nothing)| format!("{name} != {nothing}"))
            .collect();
        match parts.is_empty() {
            true => "true".to_owned(),
            false => parts.join(" && "),
        }
    }

    pub(crate) fn compared(
        &self,
        comparator: Comparator,
        left: &Term,
        right: &Term,
    ) -> Result<Term, Refusal> {
        let has_number = |term: &Term| term.constant.as_ref().is_some_and(has_numbers);
        let is_ordered = !matches!(comparator, Comparator::Equal | Comparator::NotEqual);
        let are_lengths = left.is_only(NUMBERS) && right.is_only(NUMBERS);
        if self.has_integers && !are_lengths && (is_ordered || has_number(left) || has_number(right)) {
            return Err(Refusal::whole(
                "Kyverno compares numbers of an old object otherwise: set `allowExistingViolations: false`",
            ));
        }
        let is_none = |term: &Term| !term.may_be(NUMBERS);
        if is_ordered && (is_none(left) || is_none(right)) {
            return Ok(Term::constant(&Value::Null));
        }
        let sign = match comparator {
            Comparator::Equal => "==",
            Comparator::NotEqual => "!=",
            Comparator::Less => "<",
            Comparator::LessOrEqual => "<=",
            Comparator::More => ">",
            Comparator::MoreOrEqual => ">=",
        };
        let mut term = if !is_ordered {
            Term::new(
                format!("(dyn({}) {sign} dyn({}))", left.or_null, right.or_null),
                BOOL,
            )
        } else if are_lengths {
            Term::new(format!("({} {sign} {})", left.or_null, right.or_null), BOOL)
        } else {
            let value = self.evaluated_once(&left.or_null, |left| {
                self.evaluated_once(&right.or_null, |right| {
                    let numbers = format!("{} && {}", is_number(left), is_number(right));
                    format!("({numbers} ? dyn({left} {sign} {right}) : null)")
                })
            });
            Term::new(value, BOOL | NULL)
        };
        term.is_fallible = left.is_fallible || right.is_fallible;
        Ok(term)
    }

    pub(crate) fn called(&self, name: &str, arguments: &[Term]) -> Result<Term, Refusal> {
        if !FUNCTIONS.contains(&name) {
            return Err(Refusal::whole(format!(
                "the function `{name}()` of JMESPath is not converted: write the condition in CEL"
            )));
        }
        let wrong = || Refusal::whole(format!("`{name}()` has other arguments"));
        let first = arguments.first().ok_or_else(wrong)?;
        let is_fallible = arguments.iter().any(|argument| argument.is_fallible);
        let second = || {
            arguments
                .get(1)
                .filter(|_| arguments.len() == 2)
                .ok_or_else(wrong)
        };
        let alone = || match arguments.len() {
            1 => Ok(&first.or_null),
            _ => Err(wrong()),
        };
        let takes = match name {
            "length" => TEXT | LIST | MAP,
            "contains" => TEXT | LIST,
            "keys" | "values" => MAP,
            "starts_with" | "ends_with" | "to_upper" | "to_lower" | "split" | "join" | "replace_all" => TEXT,
            _ => ANY,
        };
        if !first.may_be(takes) {
            return Ok(Term::new(FAILS, ANY).fallible());
        }
        let term = match name {
            "length" => {
                let length = Term::new(format!("size({})", alone()?), NUMBERS);
                match first.is_only(TEXT | LIST | MAP) {
                    true => length,
                    false => length.fallible(),
                }
            }
            "contains" => self.contains(first, second()?),
            "starts_with" | "ends_with" => {
                let function = if name == "starts_with" { "startsWith" } else { "endsWith" };
                Term::new(format!("{}.{function}({})", first.or_null, second()?.or_null), BOOL).fallible()
            }
            "to_upper" => Term::new(format!("{}.upperAscii()", alone()?), TEXT).fallible(),
            "to_lower" => Term::new(format!("{}.lowerAscii()", alone()?), TEXT).fallible(),
            "split" => {
                let mut term = Term::new(format!("dyn({}.split({}))", first.or_null, second()?.or_null), LIST);
                term.has_strings = true;
                term.is_nested = false;
                term.fallible()
            }
            "join" => Term::new(format!("{}.join({})", second()?.or_null, first.or_null), TEXT).fallible(),
            "replace_all" => match arguments {
                [text, from, to] => Term::new(
                    format!("{}.replace({}, {})", text.or_null, from.or_null, to.or_null),
                    TEXT,
                )
                .fallible(),
                _ => return Err(wrong()),
            },
            "keys" | "values" => {
                let is_keys = name == "keys";
                let of = |otherwise: &str| self.evaluated_once(&first.or_null, |map| {
                    let (key, body) = self.with_loop_variable(|key| match is_keys {
                        true => key.to_owned(),
                        false => format!("dyn({map})[{key}]"),
                    });
                    // For CEL's checker, an object of a known type is not a map.
                    let mapped = format!("dyn({map}).map({key}, {body})");
                    match first.is_only(MAP) {
                        true => mapped,
                        false => format!("(type({map}) == map ? dyn({mapped}) : {otherwise})"),
                    }
                });
                alone()?;
                let mut term = Term::new(of(FAILS), LIST).fallible();
                term.without_error = Some(of("null"));
                term.is_nested = !is_keys && first.known != Known::Texts;
                term.has_strings = !term.is_nested;
                term
            }
            "to_number" => Term::new(
                self.evaluated_once(alone()?, |name| {
                    format!(
                        "(type({name}) == string && string({name}).matches({}) ? dyn(double({name})) : {} ? dyn({name}) : null)",
                        literal(NUMBER),
                        is_number(name)
                    )
                }),
                NUMBERS | NULL,
            ),
            "to_string" if first.is_only(MAP | LIST | NULL) => {
                return Err(Refusal::whole(
                    "Kyverno writes a map or list as JSON, which CEL cannot: put the text together from its fields",
                ));
            }
            "to_string" => Term::new(
                self.evaluated_once(alone()?, |name| format!("({name} == null ? 'null' : string({name}))")),
                TEXT,
            )
            .fallible(),
            "to_array" => {
                let mut term = Term::new(
                    self.evaluated_once(alone()?, |name| {
                        format!("(type({name}) == list ? dyn({name}) : dyn([{name}]))")
                    }),
                    LIST,
                );
                term.is_nested = first.is_nested;
                term
            }
            "regex_match" => {
                let text = self.text_or_number(second()?);
                match &first.constant {
                    Some(Value::String(expression)) => {
                        Term::new(format!("{text}.matches({})", literal(expression)), BOOL).fallible()
                    }
                    _ => return Err(Refusal::whole("the regular expression must be written as it is")),
                }
            }
            "pattern_match" => match &first.constant {
                Some(Value::String(pattern)) => {
                    let text = self.text_or_number(second()?);
                    Term::new(format!("({})", matches_wildcard(&text, pattern)), BOOL).fallible()
                }
                _ => return Err(Refusal::whole("the pattern must be written as it is")),
            },
            _ => return Err(wrong()),
        };
        Ok(if is_fallible { term.fallible() } else { term })
    }

    /// A string, or a number as a string; fails for anything else.
    fn text_or_number(&self, term: &Term) -> String {
        match term.is_only(TEXT) {
            true => term.or_null.clone(),
            false => self.evaluated_once(&term.or_null, |name| {
                format!("({} ? string({name}) : dyn({name}))", is_number(name))
            }),
        }
    }

    fn contains(&self, whole: &Term, part: &Term) -> Term {
        let in_text = |name: &str| match (&part.constant, part.is_only(TEXT)) {
            (_, true) => format!("{name}.contains({})", part.or_null),
            // No string contains a value of another type.
            (Some(_), false) => format!("size({name}) < 0"),
            (None, false) => {
                let part = &part.or_null;
                format!("(type({part}) == string ? {name}.contains({part}) : size({name}) < 0)")
            }
        };
        let in_list = |name: &str| format!("dyn({}) in {name}", part.or_null);
        if whole.is_only(LIST) {
            return Term::new(format!("({})", in_list(&whole.or_null)), BOOL);
        }
        if whole.is_only(TEXT) {
            return Term::new(in_text(&whole.or_null), BOOL);
        }
        let value = self.evaluated_once(&whole.or_null, |name| {
            let in_text = in_text(name);
            let text = format!("(type({name}) == string ? {in_text} : {FAILS})");
            format!("(type({name}) == list ? {} : {text})", in_list(name))
        });
        Term::new(value, BOOL).fallible()
    }
}

fn has_numbers(value: &Value) -> bool {
    match value {
        Value::Number(_) => true,
        Value::Array(items) => items.iter().any(has_numbers),
        Value::Object(entries) => entries.values().any(has_numbers),
        _ => false,
    }
}

pub(crate) fn is_false(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
        _ => false,
    }
}
