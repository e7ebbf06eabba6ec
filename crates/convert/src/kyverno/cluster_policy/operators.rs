//! The operators of conditions (`pkg/engine/variables/operator` of Kyverno).

use serde_json::Value;

use super::equality::{equals, guarded, is_duration_text, is_plain_number};
use super::refusal::Refusal;
use super::scalar::{DURATION, NUMBER, is_duration, range};
use super::scope::{NULL, NUMBERS, Scope, TEXT, Term, is_short};
use super::sets::{Set, is_in};
use crate::kyverno::expression::{Condition, Judged, has_wildcard, literal};
use portcullis_cel::{Quantity, Semver};

/// An operator; upper and lower case are the same, but in those that order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Equals,
    NotEquals,
    /// One of the set operators.
    In(Set),
    /// One of the operators that order, by its sign.
    Orders(&'static str),
    /// The same for durations alone.
    OrdersDurations(&'static str),
}

impl Operator {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let set = |is_any, is_negated, is_old| {
            Some(Self::In(Set {
                is_any,
                is_negated,
                is_old,
            }))
        };
        match name.to_lowercase().as_str() {
            "equal" | "equals" => return Some(Self::Equals),
            "notequal" | "notequals" => return Some(Self::NotEquals),
            "in" => return set(false, false, true),
            "notin" => return set(true, true, true),
            "anyin" => return set(true, false, false),
            "allin" => return set(false, false, false),
            "anynotin" => return set(true, true, false),
            "allnotin" => return set(false, true, false),
            _ => {}
        }
        let (of_durations, order) = match name.strip_prefix("Duration") {
            Some(order) => (true, order),
            None => (false, name),
        };
        let sign = match order {
            "GreaterThan" => ">",
            "GreaterThanOrEquals" => ">=",
            "LessThan" => "<",
            "LessThanOrEquals" => "<=",
            _ => return None,
        };
        Some(if of_durations {
            Self::OrdersDurations(sign)
        } else {
            Self::Orders(sign)
        })
    }
}

/// Whether the operator holds between the two.
pub(crate) fn compare(
    operator: Operator,
    key: &Term,
    value: &Term,
    scope: &Scope,
) -> Result<Judged, Refusal> {
    if let Some(known) = folded(operator, key, value) {
        return Ok(Judged::sure(Condition::constant(known)));
    }
    let made = with_name(scope, key, '\u{1}', value.constant.is_some(), |key| {
        with_name(scope, value, '\u{2}', false, |value| match operator {
            Operator::Equals => equals(key, value, scope),
            Operator::NotEquals => {
                let not_null = match key.may_be(NULL) {
                    true => Condition::relation(format!("{} != null", key.value)),
                    false => Condition::constant(true),
                };
                Ok(Condition::all([not_null, equals(key, value, scope)?.not()]))
            }
            Operator::In(set) => is_in(set, key, value, scope),
            Operator::Orders(sign) => orders(sign, key, value),
            Operator::OrdersDurations(sign) => orders_durations(sign, key, value),
        })
    })?;
    Ok(Judged {
        condition: made,
        may_fail: key.may_fail() || value.may_fail(),
    })
}

/// The condition that `body` makes of a term, which is evaluated once. `sign` stands for it until it is known
/// how often it is named; no text of a policy has it as it is. `is_sole` says that all parts of the condition are
/// about this term.
fn with_name(
    scope: &Scope,
    term: &Term,
    sign: char,
    is_sole: bool,
    body: impl FnOnce(&Term) -> Result<Condition, Refusal>,
) -> Result<Condition, Refusal> {
    if term.constant.is_some() {
        return body(term);
    }
    let made = body(&term.renamed(sign))?;
    let value = term.whole();
    let is_single = made.count(sign) == 1 && !made.has_macro();
    let may_stand = match term.may_fail() {
        // Wherever an operator may pass over it, an error would be lost.
        true => is_single && made.is_comparison() || is_sole && is_short(value) && made.count(sign) > 0,
        false => is_single || made.count(sign) == 0 || is_short(value),
    };
    if may_stand {
        return Ok(made.replaced(sign, value));
    }
    let name = scope.fresh("v");
    let made = made.replaced(sign, &name);
    Ok(Condition::primary(format!(
        "[dyn({value})].exists({name}, {made})"
    )))
}

/// What is known already, since both are plain texts.
fn folded(operator: Operator, key: &Term, value: &Term) -> Option<bool> {
    let Some(Value::String(key)) = &key.constant else {
        return None;
    };
    let is_plain = |text: &str| !has_wildcard(text) && Quantity::parse(text).is_err() && !is_duration(text);
    let is_word =
        |text: &str| is_plain(text) && serde_json::from_str::<Value>(text).is_err() && range(text).is_none();
    if !is_word(key) {
        return None;
    }
    let value = value.constant.as_ref()?;
    let texts: Vec<&str> = match (operator, value) {
        (_, Value::String(text)) => vec![text.as_str()],
        (Operator::In(_), Value::Array(items)) => items.iter().map(Value::as_str).collect::<Option<_>>()?,
        _ => return None,
    };
    if !texts.iter().all(|text| is_word(text)) {
        return None;
    }
    let is_one = texts.contains(&key.as_str());
    match operator {
        Operator::Equals => Some(is_one),
        Operator::NotEquals => Some(!is_one),
        // The old ones take a text for no set.
        Operator::In(set) if !set.is_old || value.is_array() => Some(is_one != set.is_negated),
        _ => None,
    }
}

// Order.

fn orders(sign: &str, key: &Term, value: &Term) -> Result<Condition, Refusal> {
    if key.is_only(NUMBERS) && value.is_only(NUMBERS) {
        return Ok(Condition::relation(format!(
            "{} {sign} {}",
            key.value, value.value
        )));
    }
    let name = &key.value;
    match &value.constant {
        Some(Value::Number(number)) => {
            let seconds = format!("'{:.0}s'", number.as_f64().unwrap_or_default().trunc());
            let written = &value.value;
            let text = is_duration_text(name).choice(
                &Condition::relation(format!("duration({name}) {sign} duration({seconds})")),
                &Condition::all([
                    Condition::primary(format!("{name}.matches({})", literal(NUMBER))),
                    Condition::relation(format!(
                        "double({name}) {sign} {:?}",
                        number.as_f64().unwrap_or_default()
                    )),
                ]),
            );
            Ok(Condition::any([
                guarded(
                    key,
                    NUMBERS,
                    Condition::relation(format!("{name} {sign} {written}")),
                ),
                guarded(key, TEXT, text),
            ]))
        }
        Some(Value::String(text)) => Ok(Condition::any([
            guarded(key, NUMBERS, orders_number(sign, name, text)),
            guarded(key, TEXT, orders_text(sign, name, text)),
        ])),
        Some(_) => Ok(Condition::constant(false)),
        None => Err(Refusal::here(
            "which of two values is greater depends on their types: compare with a number or an amount",
        )),
    }
}

fn orders_number(sign: &str, name: &str, text: &str) -> Condition {
    if is_duration(text) && text != "0" {
        return Condition::relation(format!(
            "duration(string(int({name})) + 's') {sign} duration({})",
            literal(text)
        ));
    }
    match is_plain_number(text) {
        true => Condition::relation(format!(
            "{name} {sign} {:?}",
            text.parse::<f64>().unwrap_or_default()
        )),
        false => Condition::constant(false),
    }
}

fn orders_text(sign: &str, name: &str, text: &str) -> Condition {
    let operand = literal(text);
    let seconds =
        |seconds: &str| Condition::relation(format!("duration({seconds}) {sign} duration({operand})"));
    let is_amount = Quantity::parse(text).is_ok();
    let amounts = Condition::all([
        Condition::primary(format!("isQuantity({name})")),
        Condition::relation(format!(
            "quantity({name}).compareTo(quantity({operand})) {sign} 0"
        )),
    ]);
    if is_duration(text) && text != "0" {
        let others = match is_amount {
            true => amounts,
            false => Condition::all([
                Condition::primary(format!("{name}.matches({})", literal(NUMBER))),
                seconds(&format!("string(int(double({name}))) + 's'")),
            ]),
        };
        return is_duration_text(name).choice(&seconds(name), &others);
    }
    if is_amount {
        return amounts;
    }
    match Semver::parse(text).is_ok() {
        true => Condition::all([
            Condition::primary(format!("isSemver({name})")),
            Condition::relation(format!("semver({name}).compareTo(semver({operand})) {sign} 0")),
        ]),
        false => Condition::constant(false),
    }
}

fn orders_durations(sign: &str, key: &Term, value: &Term) -> Result<Condition, Refusal> {
    let name = &key.value;
    let operand = match &value.constant {
        Some(Value::Number(number)) => format!("{:.0}s", number.as_f64().unwrap_or_default().trunc()),
        Some(Value::String(text)) if is_duration(text) => text.clone(),
        Some(_) => return Ok(Condition::constant(false)),
        None => {
            return Err(Refusal::here(
                "a duration must be written as it is, to be compared",
            ));
        }
    };
    let compared =
        |text: &str| Condition::relation(format!("duration({text}) {sign} duration({})", literal(&operand)));
    Ok(Condition::any([
        guarded(key, NUMBERS, compared(&format!("string(int({name})) + 's'"))),
        guarded(
            key,
            TEXT,
            Condition::all([
                Condition::primary(format!("{name}.matches({})", literal(DURATION))),
                compared(name),
            ]),
        ),
    ]))
}
