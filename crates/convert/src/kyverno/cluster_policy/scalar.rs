//! Patterns of strings, numbers and booleans (`pkg/engine/pattern/pattern.go` of Kyverno).
//!
//! A string may be a wildcard pattern, or compare durations, quantities and strings with `>`, `>=`,
//! `<`, `<=`, `!`, `a-b` and `a!-b`; `|` is or, `&` is and. The generated conditions never fail,
//! whatever the type of the value.

use serde_json::Value;

use crate::conversion::Refusal;
use crate::kyverno::expression::{CelCondition, has_wildcard, literal, matches_wildcard};
use portcullis_cel::Quantity;

/// Matches what Go parses as a duration.
pub(crate) const DURATION: &str = r"^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$";

/// Matches a plain number.
pub(crate) const NUMBER: &str = r"^[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?$";

/// An operator of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PatternOperator {
    Equal,
    NotEqual,
    More,
    MoreOrEqual,
    Less,
    LessOrEqual,
}

/// The condition that `value`, which may be null, matches the pattern.
pub(crate) fn condition(pattern: &Value, value: &str) -> Result<CelCondition, Refusal> {
    match pattern {
        Value::Null => Ok(nothing(value)),
        Value::Bool(pattern) => Ok(CelCondition::relation(format!("{value} == {pattern}"))),
        Value::Number(number) => Ok(of_number(number, value)),
        Value::String(text) => of_text(text, value),
        Value::Array(_) | Value::Object(_) => {
            Err(Refusal::whole("a text, a number or a boolean is meant here"))
        }
    }
}

/// The condition that the value has one of these types.
fn is_type(value: &str, types: &[&str]) -> CelCondition {
    let types = types.iter();
    CelCondition::any(types.map(|name| CelCondition::relation(format!("type({value}) == {name}"))))
}

/// The condition that a value matches a pattern of null.
fn nothing(value: &str) -> CelCondition {
    let nothings = ["null", "0", "''", "false"].into_iter();
    CelCondition::any(nothings.map(|nothing| CelCondition::relation(format!("{value} == {nothing}"))))
}

/// The condition that a value is a string, a number or a boolean.
fn something(value: &str) -> CelCondition {
    CelCondition::all([
        CelCondition::relation(format!("{value} != null")),
        is_type(value, &["map", "list"]).not(),
    ])
}

fn of_number(number: &serde_json::Number, value: &str) -> CelCondition {
    let written = number.as_f64().unwrap_or_default();
    let double = format!("{written:?}");
    CelCondition::any([
        CelCondition::relation(format!("{value} == {number}")),
        CelCondition::all([
            CelCondition::relation(format!("type({value}) == string")),
            CelCondition::primary(format!("{value}.matches({})", literal(NUMBER))),
            CelCondition::relation(format!("double({value}) == {double}")),
        ]),
    ])
}

fn of_text(pattern: &str, value: &str) -> Result<CelCondition, Refusal> {
    if pattern.contains("{{") || pattern.contains("$(") {
        return Err(Refusal::whole(
            "a variable in a pattern has no counterpart: compare in `deny.conditions`",
        ));
    }
    let mut any = Vec::new();
    // The pattern as a literal string passes, even if its comparison does not hold.
    let is_plain = !pattern.contains(['|', '&'])
        && part(pattern).0 == PatternOperator::Equal
        && range(pattern).is_none();
    if !is_plain {
        any.push(CelCondition::relation(format!("{value} == {}", literal(pattern))));
    }
    for alternative in pattern.split('|') {
        let parts = alternative.trim_matches(' ').split('&');
        any.push(CelCondition::all(
            parts.map(|part| of_part(part.trim_matches(' '), value)),
        ));
    }
    Ok(CelCondition::any(any))
}

fn of_part(pattern: &str, value: &str) -> CelCondition {
    if let (PatternOperator::Equal, Some((low, high, is_within))) = (part(pattern).0, range(pattern)) {
        return if is_within {
            CelCondition::all([
                compared(PatternOperator::MoreOrEqual, low, value),
                compared(PatternOperator::LessOrEqual, high, value),
            ])
        } else {
            CelCondition::any([
                compared(PatternOperator::Less, low, value),
                compared(PatternOperator::More, high, value),
            ])
        };
    }
    let (operator, operand) = part(pattern);
    compared(operator, operand.trim(), value)
}

fn part(pattern: &str) -> (PatternOperator, &str) {
    let operators = [
        (">=", PatternOperator::MoreOrEqual),
        ("<=", PatternOperator::LessOrEqual),
        (">", PatternOperator::More),
        ("<", PatternOperator::Less),
        ("!", PatternOperator::NotEqual),
    ];
    let found = operators
        .into_iter()
        .find_map(|(sign, operator)| Some((operator, pattern.strip_prefix(sign)?)));
    match found {
        Some(found) if pattern.len() >= 2 => found,
        _ => (PatternOperator::Equal, pattern),
    }
}

/// The ends of `1-10` or `1!-10`, and whether the values between them match.
pub(crate) fn range(pattern: &str) -> Option<(&str, &str, bool)> {
    for (sign, is_within) in [("!-", false), ("-", true)] {
        for (at, _) in pattern.match_indices(sign) {
            let (low, rest) = pattern.split_at_checked(at)?;
            let high = rest.get(sign.len()..)?;
            if is_end(low) && is_end(high) {
                return Some((low, high, is_within));
            }
        }
    }
    None
}

/// Whether `text` has the form `[-|+]?\d+(\.\d+)?[A-Za-z]*`.
fn is_end(text: &str) -> bool {
    let number = text.strip_prefix(['-', '|', '+']).unwrap_or(text);
    let number = number.trim_end_matches(|unit: char| unit.is_ascii_alphabetic());
    let is_digits = |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    match number.split_once('.') {
        Some((whole, fraction)) => is_digits(whole) && is_digits(fraction),
        None => is_digits(number),
    }
}

/// The condition that `value` compares with `operand` by the operator: as a duration or quantity if
/// both are one, otherwise as a string.
fn compared(operator: PatternOperator, operand: &str, value: &str) -> CelCondition {
    let amounts = amounts(operator, operand, value);
    let equal_texts = || equal_texts(operand, value);
    let scalar = || is_type(value, &["map", "list"]).not();
    match (operator, amounts) {
        (PatternOperator::Equal, Some(amounts)) => amounts,
        (PatternOperator::Equal, None) => equal_texts(),
        // A value that is neither is unequal, except null, which counts as 0.
        (PatternOperator::NotEqual, Some(_)) => {
            let equal = self::amounts(PatternOperator::Equal, operand, value);
            CelCondition::all([scalar(), equal.unwrap_or_else(equal_texts).not()])
        }
        (PatternOperator::NotEqual, None) => CelCondition::all([
            CelCondition::relation(format!("{value} != null")),
            scalar(),
            equal_texts().not(),
        ]),
        (_, Some(amounts)) => amounts,
        (_, None) => CelCondition::constant(false),
    }
}

/// The condition that durations or quantities compare by the operator; `None` if the operand is
/// neither.
fn amounts(operator: PatternOperator, operand: &str, value: &str) -> Option<CelCondition> {
    let sign = match operator {
        PatternOperator::Equal => "==",
        PatternOperator::NotEqual => "!=",
        PatternOperator::More => ">",
        PatternOperator::MoreOrEqual => ">=",
        PatternOperator::Less => "<",
        PatternOperator::LessOrEqual => "<=",
    };
    let is_quantity = Quantity::parse(operand).is_ok();
    let quantities = is_quantity.then(|| {
        CelCondition::all([
            CelCondition::primary("isQuantity(n)"),
            CelCondition::relation(format!(
                "quantity(n).compareTo(quantity({})) {sign} 0",
                literal(operand)
            )),
        ])
    });
    let durations = is_duration(operand).then(|| {
        let is_one = format!("n.matches({})", literal(DURATION));
        let compared = format!("duration(n) {sign} duration({})", literal(operand));
        (is_one, compared)
    });
    let condition = match (durations, quantities) {
        (None, None) => return None,
        (None, Some(quantities)) => quantities.to_string(),
        (Some((is_one, compared)), None) => format!("{is_one} && {compared}"),
        (Some((is_one, compared)), Some(quantities)) => format!("{is_one} ? {compared} : {quantities}"),
    };
    Some(CelCondition::primary(format!(
        "[{}].all(n, {condition})",
        number_text(value)
    )))
}

/// A number, a string, or null, which is 0, as a string; empty for anything else.
fn number_text(value: &str) -> String {
    format!(
        "type({value}) == string || type({value}) == int ? string({value}) : type({value}) == double ? '%f'.format([{value}]) : \
         {value} == null ? '0' : ''"
    )
}

/// The condition that `value` as a string matches the wildcard pattern.
fn equal_texts(pattern: &str, value: &str) -> CelCondition {
    if pattern == "*" {
        return something(value);
    }
    if pattern == "?*" || pattern == "*?" {
        return CelCondition::all([something(value), CelCondition::relation(format!("{value} != ''"))]);
    }
    let is_wild = has_wildcard(pattern);
    // Characters that occur neither in numbers nor in booleans.
    let is_for_texts = pattern.contains(|character: char| !"0123456789+-.Etruefals*?".contains(character));
    let boolean =
        matches!(pattern, "true" | "false").then(|| CelCondition::relation(format!("{value} == {pattern}")));
    if !is_wild {
        let same = CelCondition::relation(format!("{value} == {}", literal(pattern)));
        return CelCondition::any([Some(same), boolean].into_iter().flatten());
    }
    if is_for_texts {
        return CelCondition::all([
            CelCondition::relation(format!("type({value}) == string")),
            matches_wildcard(value, pattern),
        ]);
    }
    CelCondition::all([
        is_type(value, &["string", "int", "bool"]),
        matches_wildcard(&format!("string({value})"), pattern),
    ])
}

/// Whether Go parses the string as a duration (`time.ParseDuration`).
pub(crate) fn is_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    let mut parts = 0;
    while !rest.is_empty() {
        let number = rest.trim_start_matches(|digit: char| digit.is_ascii_digit());
        let number = number.strip_prefix('.').map_or(number, |fraction| {
            fraction.trim_start_matches(|digit: char| digit.is_ascii_digit())
        });
        let (written, after) = rest.split_at(rest.len() - number.len());
        let unit = ["ns", "us", "µs", "μs", "ms", "s", "m", "h"]
            .into_iter()
            .find_map(|unit| after.strip_prefix(unit));
        match unit {
            Some(after) if written.bytes().any(|digit| digit.is_ascii_digit()) => rest = after,
            _ => return false,
        }
        parts += 1;
    }
    parts > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_ranges_are_found_as_kyverno_finds_them() {
        let cases = [
            ("1-10", Some(("1", "10", true))),
            ("1!-10", Some(("1", "10", false))),
            ("-5-5", Some(("-5", "5", true))),
            ("10Mi-1Gi", Some(("10Mi", "1Gi", true))),
            ("1.5-2.5s", Some(("1.5", "2.5s", true))),
            ("a-b", None),
            ("2024-01-01", None),
            ("1-", None),
        ];
        for (pattern, expected) in cases {
            assert_eq!(range(pattern), expected, "{pattern}");
        }
    }

    #[test]
    fn durations_are_those_of_go() {
        for duration in ["0", "+0", "1h", "1h30m", "-1.5s", ".5s", "1.s", "10µs"] {
            assert!(is_duration(duration), "{duration}");
        }
        for other in ["", "1", "h", ".s", "1h30", "1d", "-", "1 s"] {
            assert!(!is_duration(other), "{other}");
        }
    }
}
