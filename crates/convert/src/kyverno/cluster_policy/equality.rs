//! When values are equal to Kyverno: as durations, as quantities, as wildcard patterns.

use serde_json::Value;

use super::refusal::Refusal;
use super::scalar::{DURATION, NUMBER, is_duration};
use super::scope::{BOOL, LIST, MAP, NULL, NUMBERS, Scope, TEXT, Term, is_number};
use crate::kyverno::expression::{Condition, has_wildcard, literal, matches_wildcard};
use portcullis_cel::Quantity;

pub(crate) fn equals(key: &Term, value: &Term, scope: &Scope) -> Result<Condition, Refusal> {
    let same = || Condition::relation(format!("dyn({}) == {}", value.value, key.value));
    match (&value.constant, &key.constant) {
        (Some(constant), _) => equals_constant(key, constant, scope),
        (None, Some(Value::Null)) => Ok(Condition::constant(false)),
        (None, Some(Value::String(text))) if Quantity::parse(text).is_err() && !is_duration(text) => {
            let matches = guarded(value, TEXT, matches_text(&key.value, &value.value));
            Ok(Condition::any([same(), matches]))
        }
        (None, Some(Value::Bool(_) | Value::Array(_) | Value::Object(_))) => Ok(same()),
        (None, Some(_)) => Err(Refusal::here(
            "an amount as the key compares with each type otherwise: write it as the value",
        )),
        (None, None) if key.is_only(NUMBERS) && value.is_only(NUMBERS) => Ok(same()),
        (None, None) => Ok(equal_values(key, value)),
    }
}

fn equals_constant(key: &Term, constant: &Value, scope: &Scope) -> Result<Condition, Refusal> {
    let name = &key.value;
    Ok(match constant {
        Value::Null => Condition::constant(false),
        Value::Bool(_) if !key.may_be(BOOL) => Condition::constant(false),
        Value::Bool(_) => Condition::relation(format!("{name} == {constant}")),
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or_default();
            let seconds = Condition::all([
                is_duration_text(name),
                Condition::relation(format!("duration({name}) == duration('{:.0}s')", number.trunc())),
            ]);
            Condition::any([
                guarded(key, NUMBERS, equals_number(name, constant)),
                guarded(key, TEXT, seconds),
            ])
        }
        Value::String(text) => {
            let number = is_plain_number(text)
                .then(|| equals_number(name, &text.parse::<f64>().unwrap_or_default().into()));
            Condition::any([
                guarded(key, NUMBERS, number.unwrap_or_else(|| Condition::constant(false))),
                guarded_text(key, text),
            ])
        }
        Value::Array(_) | Value::Object(_) if !key.may_be(LIST | MAP) => Condition::constant(false),
        Value::Array(_) | Value::Object(_) => {
            if scope.has_integers && constant.to_string().bytes().any(|byte| byte.is_ascii_digit()) {
                return Err(Refusal::here(
                    "Kyverno compares numbers of an old object otherwise: set `allowExistingViolations: false`",
                ));
            }
            Condition::relation(format!("dyn({name}) == {}", Term::constant(constant).value))
        }
    })
}

fn equals_number(name: &str, number: &Value) -> Condition {
    let number = Term::constant(number).value;
    match number.contains('.') {
        true => Condition::relation(format!("dyn({name}) == {number}")),
        false => Condition::relation(format!("{name} == {number}")),
    }
}

/// The condition for values of this type alone.
pub(crate) fn guarded(key: &Term, shape: u8, condition: Condition) -> Condition {
    if !key.may_be(shape) || condition.is(false) {
        return Condition::constant(false);
    }
    if key.is_only(shape) {
        return condition;
    }
    let is_type = match shape {
        TEXT => Condition::relation(format!("type({}) == string", key.value)),
        NUMBERS => Condition::primary(is_number(&key.value)),
        LIST => Condition::relation(format!("type({}) == list", key.value)),
        _ => Condition::relation(format!("type({}) == bool", key.value)),
    };
    Condition::all([is_type, condition])
}

/// Whether the key is a text that equals `text`: as durations, as quantities, or as a pattern.
fn guarded_text(key: &Term, text: &str) -> Condition {
    let name = &key.value;
    let is_amount = Quantity::parse(text).is_ok();
    let duration = (is_duration(text) && text != "0")
        .then(|| Condition::relation(format!("duration({name}) == duration({})", literal(text))));
    let same = if is_amount {
        Condition::all([
            Condition::primary(format!("isQuantity({name})")),
            Condition::relation(format!(
                "quantity({name}).compareTo(quantity({})) == 0",
                literal(text)
            )),
        ])
    } else if !has_wildcard(text) {
        // No other type equals a text.
        if duration.is_none() {
            return match key.may_be(TEXT) {
                true => Condition::relation(format!("{name} == {}", literal(text))),
                false => Condition::constant(false),
            };
        }
        Condition::constant(false)
    } else if text.contains(|part: char| !"0123456789+-.eEinumkKMGTP*?".contains(part)) {
        matches_wildcard(name, text)
    } else {
        Condition::all([
            Condition::primary(format!("isQuantity({name})")).not(),
            matches_wildcard(name, text),
        ])
    };
    let condition = match duration {
        Some(duration) => is_duration_text(name).choice(&duration, &same),
        None => same,
    };
    guarded(key, TEXT, condition)
}

/// Whether the text is a duration that counts as one.
pub(crate) fn is_duration_text(name: &str) -> Condition {
    Condition::all([
        Condition::primary(format!("{name}.matches({})", literal(DURATION))),
        Condition::relation(format!("{name} != '0'")),
    ])
}

pub(crate) fn is_plain_number(text: &str) -> bool {
    !text.is_empty()
        && text.parse::<f64>().is_ok_and(f64::is_finite)
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte))
}

/// Whether two values of the object are equal.
fn equal_values(key: &Term, value: &Term) -> Condition {
    let (left, right) = (&key.value, &value.value);
    let are_durations = Condition::all([is_duration_text(left), is_duration_text(right)]);
    let durations = Condition::relation(format!("duration({left}) == duration({right})"));
    let quantities = Condition::all([
        Condition::primary(format!("isQuantity({right})")),
        Condition::relation(format!("quantity({left}).compareTo(quantity({right})) == 0")),
    ]);
    let same = Condition::any([
        Condition::relation(format!("{left} == {right}")),
        matches_text(left, right),
    ]);
    let amounts = Condition::primary(format!("isQuantity({left})")).choice(&quantities, &same);
    let texts = are_durations.choice(&durations, &amounts);
    if key.is_only(TEXT) && value.is_only(TEXT) {
        return texts;
    }
    let is_text = |name: &str| Condition::relation(format!("type({name}) == string"));
    let both_texts = Condition::all([is_text(left), is_text(right)]);
    let equal = Condition::all([
        Condition::relation(format!("dyn({left}) != null")),
        Condition::relation(format!("dyn({left}) == dyn({right})")),
    ]);
    if key.is_only(TEXT | NULL) && value.is_only(TEXT | NULL) || !key.may_be(TEXT) && !value.may_be(TEXT) {
        return both_texts.choice(&texts, &equal);
    }
    let number = |name: &str, other: &str| {
        Condition::all([
            Condition::primary(is_number(name)),
            is_text(other),
            Condition::primary(format!("{other}.matches({})", literal(NUMBER))),
            Condition::relation(format!("double({other}) == double({name})")),
        ])
    };
    let seconds = Condition::all([
        is_text(left),
        Condition::primary(is_number(right)),
        is_duration_text(left),
        Condition::relation(format!(
            "duration({left}) == duration(string(int({right})) + 's')"
        )),
    ]);
    let others = Condition::any([number(left, right), seconds, equal]);
    both_texts.choice(&texts, &others)
}

/// Whether the text `text` matches the pattern that the object has in `pattern`.
pub(crate) fn matches_text(text: &str, pattern: &str) -> Condition {
    let expression = format!(
        "'(?s)^\\\\Q' + {pattern}.replace('\\\\E', '\\\\E\\\\\\\\E\\\\Q').replace('*', '\\\\E.*\\\\Q').replace('?', \
         '\\\\E.\\\\Q') + '\\\\E$'"
    );
    Condition::all([
        Condition::primary(format!("{pattern}.matches('[*?]')")),
        Condition::primary(format!("{text}.matches({expression})")),
    ])
}
