//! `preconditions` and `deny.conditions`: conditions on the values of variables
//! (`pkg/engine/variables` of Kyverno).
//!
//! Kyverno evaluates conditions in order, and an error of one is the error of all. The generated
//! expressions behave the same where a condition may fail.

use serde_json::Value;

use super::equality::{Set, equals, guarded, is_duration_text, is_in, is_plain_number};
use super::jmespath;
use super::scalar::{DURATION, NUMBER, is_duration, range};
use super::scope::{FAILS, NULL, NUMBERS, Scope, TEXT, Term, cel, is_short};
use crate::conversion;
use crate::conversion::Refusal;
use crate::kyverno::expression::{CelCondition, FallibleCondition, has_wildcard, literal};
use portcullis_cel::{Quantity, Semver};

/// An operator. Its name is case-insensitive, except for operators that order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConditionOperator {
    Equals,
    NotEquals,
    /// One of the set operators.
    In(Set),
    /// An ordering operator, with its sign.
    Ordering(&'static str),
    /// An ordering operator for durations only, with its sign.
    OrdersDurations(&'static str),
}

impl ConditionOperator {
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
            Self::Ordering(sign)
        })
    }
}

/// The condition that the operator holds between key and value.
pub(crate) fn compare(
    operator: ConditionOperator,
    key: &Term,
    value: &Term,
    scope: &Scope,
) -> Result<FallibleCondition, Refusal> {
    if let Some(known) = folded(operator, key, value) {
        return Ok(FallibleCondition::infallible(CelCondition::constant(known)));
    }
    let made = evaluated_once(scope, key, '\u{1}', value.constant.is_some(), |key| {
        evaluated_once(scope, value, '\u{2}', false, |value| match operator {
            ConditionOperator::Equals => equals(key, value, scope),
            ConditionOperator::NotEquals => {
                let not_null = match key.may_be(NULL) {
                    true => CelCondition::relation(format!("{} != null", key.or_null)),
                    false => CelCondition::constant(true),
                };
                Ok(CelCondition::all([not_null, equals(key, value, scope)?.not()]))
            }
            ConditionOperator::In(set) => is_in(set, key, value, scope),
            ConditionOperator::Ordering(sign) => orders(sign, key, value),
            ConditionOperator::OrdersDurations(sign) => orders_durations(sign, key, value),
        })
    })?;
    Ok(FallibleCondition {
        condition: made,
        may_fail: key.may_fail() || value.may_fail(),
    })
}

/// The condition that `body` makes from a term, which is evaluated only once. `sign` is a
/// placeholder until it is known how often the term is used; no policy contains this character.
/// `is_sole` tells that every part of the condition is about this term.
fn evaluated_once(
    scope: &Scope,
    term: &Term,
    sign: char,
    is_sole: bool,
    body: impl FnOnce(&Term) -> Result<CelCondition, Refusal>,
) -> Result<CelCondition, Refusal> {
    if term.constant.is_some() {
        return body(term);
    }
    let made = body(&term.renamed(sign))?;
    let value = term.as_whole_query();
    let is_single = made.count(sign) == 1 && !made.has_macro();
    let may_stand = match term.may_fail() {
        // An operator that short-circuits would lose an error.
        true => is_single && made.is_comparison() || is_sole && is_short(value) && made.count(sign) > 0,
        false => is_single || made.count(sign) == 0 || is_short(value),
    };
    if may_stand {
        return Ok(made.replaced(sign, value));
    }
    let name = scope.fresh("v");
    let made = made.replaced(sign, &name);
    Ok(CelCondition::primary(format!(
        "[dyn({value})].exists({name}, {made})"
    )))
}

/// The result, if both operands are constant plain strings.
fn folded(operator: ConditionOperator, key: &Term, value: &Term) -> Option<bool> {
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
        (ConditionOperator::In(_), Value::Array(items)) => {
            items.iter().map(Value::as_str).collect::<Option<_>>()?
        }
        _ => return None,
    };
    if !texts.iter().all(|text| is_word(text)) {
        return None;
    }
    let is_one = texts.contains(&key.as_str());
    match operator {
        ConditionOperator::Equals => Some(is_one),
        ConditionOperator::NotEquals => Some(!is_one),
        // The old operators do not accept a string as a set.
        ConditionOperator::In(set) if !set.is_old || value.is_array() => Some(is_one != set.is_negated),
        _ => None,
    }
}

// Ordering operators.

fn orders(sign: &str, key: &Term, value: &Term) -> Result<CelCondition, Refusal> {
    if key.is_only(NUMBERS) && value.is_only(NUMBERS) {
        return Ok(CelCondition::relation(format!(
            "{} {sign} {}",
            key.or_null, value.or_null
        )));
    }
    let name = &key.or_null;
    match &value.constant {
        Some(Value::Number(number)) => {
            let seconds = format!("'{:.0}s'", number.as_f64().unwrap_or_default().trunc());
            let written = &value.or_null;
            let text = is_duration_text(name).choice(
                &CelCondition::relation(format!("duration({name}) {sign} duration({seconds})")),
                &CelCondition::all([
                    CelCondition::primary(format!("{name}.matches({})", literal(NUMBER))),
                    CelCondition::relation(format!(
                        "double({name}) {sign} {:?}",
                        number.as_f64().unwrap_or_default()
                    )),
                ]),
            );
            Ok(CelCondition::any([
                guarded(
                    key,
                    NUMBERS,
                    CelCondition::relation(format!("{name} {sign} {written}")),
                ),
                guarded(key, TEXT, text),
            ]))
        }
        Some(Value::String(text)) => Ok(CelCondition::any([
            guarded(key, NUMBERS, orders_number(sign, name, text)),
            guarded(key, TEXT, orders_text(sign, name, text)),
        ])),
        Some(_) => Ok(CelCondition::constant(false)),
        None => Err(Refusal::whole(
            "which of two values is greater depends on their types: compare with a number or an amount",
        )),
    }
}

fn orders_number(sign: &str, name: &str, text: &str) -> CelCondition {
    if is_duration(text) && text != "0" {
        return CelCondition::relation(format!(
            "duration(string(int({name})) + 's') {sign} duration({})",
            literal(text)
        ));
    }
    match is_plain_number(text) {
        true => CelCondition::relation(format!(
            "{name} {sign} {:?}",
            text.parse::<f64>().unwrap_or_default()
        )),
        false => CelCondition::constant(false),
    }
}

fn orders_text(sign: &str, name: &str, text: &str) -> CelCondition {
    let operand = literal(text);
    let seconds =
        |seconds: &str| CelCondition::relation(format!("duration({seconds}) {sign} duration({operand})"));
    let is_amount = Quantity::parse(text).is_ok();
    let amounts = CelCondition::all([
        CelCondition::primary(format!("isQuantity({name})")),
        CelCondition::relation(format!(
            "quantity({name}).compareTo(quantity({operand})) {sign} 0"
        )),
    ]);
    if is_duration(text) && text != "0" {
        let others = match is_amount {
            true => amounts,
            false => CelCondition::all([
                CelCondition::primary(format!("{name}.matches({})", literal(NUMBER))),
                seconds(&format!("string(int(double({name}))) + 's'")),
            ]),
        };
        return is_duration_text(name).choice(&seconds(name), &others);
    }
    if is_amount {
        return amounts;
    }
    match Semver::parse(text).is_ok() {
        true => CelCondition::all([
            CelCondition::primary(format!("isSemver({name})")),
            CelCondition::relation(format!("semver({name}).compareTo(semver({operand})) {sign} 0")),
        ]),
        false => CelCondition::constant(false),
    }
}

fn orders_durations(sign: &str, key: &Term, value: &Term) -> Result<CelCondition, Refusal> {
    let name = &key.or_null;
    let operand = match &value.constant {
        Some(Value::Number(number)) => format!("{:.0}s", number.as_f64().unwrap_or_default().trunc()),
        Some(Value::String(text)) if is_duration(text) => text.clone(),
        Some(_) => return Ok(CelCondition::constant(false)),
        None => {
            return Err(Refusal::whole(
                "a duration must be written as it is, to be compared",
            ));
        }
    };
    let compared = |text: &str| {
        CelCondition::relation(format!("duration({text}) {sign} duration({})", literal(&operand)))
    };
    Ok(CelCondition::any([
        guarded(key, NUMBERS, compared(&format!("string(int({name})) + 's'"))),
        guarded(
            key,
            TEXT,
            CelCondition::all([
                CelCondition::primary(format!("{name}.matches({})", literal(DURATION))),
                compared(name),
            ]),
        ),
    ]))
}

/// A piece of a string: literal text or a variable.
#[derive(Debug, PartialEq)]
pub(crate) enum TextPiece<'t> {
    Text(&'t str),
    Variable(&'t str),
}

/// Converts conditions: `any` and `all`, or a list, all of which must hold.
pub(crate) fn condition_of(written: &Value, scope: &Scope) -> Result<FallibleCondition, Refusal> {
    let holds = FallibleCondition::infallible(CelCondition::constant(true));
    match written {
        Value::Null => Ok(holds),
        Value::Array(_) => each(written, scope, false),
        Value::Object(_) => {
            conversion::unknown(written, &["any", "all"])?;
            let any = match &written["any"] {
                Value::Null => holds,
                any => each(any, scope, true).map_err(|refusal| refusal.within("any"))?,
            };
            let all = each(&written["all"], scope, false).map_err(|refusal| refusal.within("all"))?;
            // Kyverno evaluates both lists, whatever the result of the first.
            let all = match any.condition.is(false) {
                true => all.and(any.clone()),
                false => all,
            };
            Ok(match (any.may_fail, all.may_fail) {
                (true, true) => {
                    let or_false = all
                        .clone()
                        .and(FallibleCondition::infallible(CelCondition::constant(false)));
                    FallibleCondition {
                        condition: any.condition.choice(&all.condition, &or_false.condition),
                        may_fail: true,
                    }
                }
                (false, true) => all.and(any),
                _ => any.and(all),
            })
        }
        _ => Err(Refusal::whole("conditions are `any` and `all`, or a list")),
    }
}

fn each(written: &Value, scope: &Scope, is_any: bool) -> Result<FallibleCondition, Refusal> {
    let conditions = written.as_array().into_iter().flatten();
    let mut judged = FallibleCondition::infallible(CelCondition::constant(!is_any));
    for (index, condition) in conditions.enumerate() {
        let next = one(condition, scope).map_err(|refusal| refusal.within_index(index))?;
        judged = match is_any {
            true => judged.or(next),
            false => judged.and(next),
        };
    }
    Ok(judged)
}

fn one(written: &Value, scope: &Scope) -> Result<FallibleCondition, Refusal> {
    conversion::unknown(written, &["key", "operator", "value", "message"])?;
    let name = written["operator"].as_str().unwrap_or_default();
    let Some(operator) = ConditionOperator::parse(name) else {
        return conversion::of("operator", format!("`{name}` is no operator of conditions"));
    };
    let key = operand(&written["key"], scope).map_err(|refusal| refusal.within("key"))?;
    let value = operand(&written["value"], scope).map_err(|refusal| refusal.within("value"))?;
    compare(operator, &key, &value, scope)
}

/// A value that may contain variables.
pub(crate) fn operand(written: &Value, scope: &Scope) -> Result<Term, Refusal> {
    match written {
        Value::String(text) => of_text(text, scope),
        Value::Array(items) if written.to_string().contains("{{") => {
            let items: Vec<Term> = items
                .iter()
                .enumerate()
                .map(|(index, item)| operand(item, scope).map_err(|refusal| refusal.within_index(index)))
                .collect::<Result<_, _>>()?;
            Ok(Term::list_of(&items))
        }
        Value::Object(_) if written.to_string().contains("{{") => Err(Refusal::whole(
            "a variable within a map has no counterpart: compare its fields",
        )),
        other => Ok(Term::constant(other)),
    }
}

fn of_text(text: &str, scope: &Scope) -> Result<Term, Refusal> {
    let pieces = pieces(text)?;
    match pieces.as_slice() {
        [] | [TextPiece::Text(_)] => Ok(Term::constant(&text.into())),
        [TextPiece::Variable(query)] => variable(query, scope),
        pieces => {
            let mut parts = Vec::new();
            let mut may_fail = false;
            for piece in pieces {
                parts.push(match piece {
                    TextPiece::Text(text) => literal(text),
                    TextPiece::Variable(query) => {
                        let term = variable(query, scope)?;
                        may_fail |= term.may_fail();
                        within_text(&term)?
                    }
                });
            }
            Ok(Term::text(&format!("({})", parts.join(" + ")), may_fail))
        }
    }
}

/// The value as a part of a string.
fn within_text(term: &Term) -> Result<String, Refusal> {
    match &term.constant {
        Some(Value::String(text)) => Ok(literal(text)),
        Some(other) => Ok(literal(&cel(other))),
        None if term.is_only(TEXT) => Ok(term.as_whole_query().to_owned()),
        None if term.is_only(TEXT | NULL) => {
            Ok(format!("({0} == null ? 'null' : {0})", term.as_whole_query()))
        }
        None => Err(Refusal::whole(
            "a variable within a text may be a list or a map, which Kyverno writes as JSON: take `to_string(@)` of it",
        )),
    }
}

/// The value of the variable with this query, which stands in `{{ }}`.
pub(crate) fn variable(query: &str, scope: &Scope) -> Result<Term, Refusal> {
    let (node, texts) = jmespath::parse_with_texts(query).map_err(no_query(query))?;
    if texts.is_empty() {
        return scope.term(&node);
    }
    // Kyverno first resolves variables in quotes, even if the query does not need them.
    let mut inner = scope.clone();
    let mut bindings = Vec::new();
    for text in &texts {
        let name = scope.fresh("t");
        bindings.push((name.clone(), quoted(text, scope)?));
        inner.texts.push(Term::text(&name, false));
    }
    let term = inner.term(&node)?;
    scope.made.set(inner.made.get());
    let bound = |value: &str| {
        bindings
            .iter()
            .rev()
            .fold(value.to_owned(), |value, (name, text)| {
                format!("[{}].map({name}, dyn({value}))[0]", text.or_null)
            })
    };
    let mut made = Term::new(bound(&term.or_null), term.shape);
    made.or_error = term.or_error.as_deref().map(bound);
    made.is_fallible = true;
    made.has_strings = term.has_strings;
    made.is_nested = term.is_nested;
    Ok(made)
}

fn no_query(query: &str) -> impl FnOnce(String) -> Refusal {
    let query = query.trim();
    move |reason| Refusal::whole(format!("`{query}` is no JMESPath that is converted: {reason}"))
}

/// A string in the quotes of a query. It fails if the value of a variable in it could end the
/// string, or the variable around it.
fn quoted(text: &str, scope: &Scope) -> Result<Term, Refusal> {
    let mut parts = Vec::new();
    for piece in pieces(text)? {
        parts.push(match piece {
            TextPiece::Text(text) => literal(text),
            TextPiece::Variable(query) => {
                let term = scope.term(&jmespath::parse(query).map_err(no_query(query))?)?;
                scope.evaluated_once(&within_text(&term)?, |name| {
                    format!("({name}.matches({}) ? {name} : string({FAILS}))", literal(PLAIN))
                })
            }
        });
    }
    Ok(Term::text(&format!("({})", parts.join(" + ")), true))
}

/// Matches values that neither end a string in single quotes, nor escape its end, nor end the
/// variable around it.
const PLAIN: &str = r"^([^'{}]*[^'{}\\])?$";

/// Splits a string into pieces.
pub(crate) fn pieces(text: &str) -> Result<Vec<TextPiece<'_>>, Refusal> {
    let refused = |reason: &str| Err(Refusal::whole(reason));
    if text.contains("$(") {
        return refused("a reference `$()` has no counterpart: write what it refers to");
    }
    if text.contains("\\{{") {
        return refused("braces that are no variable have no counterpart");
    }
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("{{") {
        let (before, after) = rest.split_at(at);
        let Some(length) = jmespath::variable_length(after) else {
            return refused("`}}` is missing");
        };
        let (whole, after) = after.split_at(length);
        let query = whole.get(2..length - 2).unwrap_or_default();
        if query.trim_start().starts_with('-') || query.trim() == "@" {
            return refused("`{{-` and `{{@}}` have no counterpart: write the path");
        }
        if !before.is_empty() {
            pieces.push(TextPiece::Text(before));
        }
        pieces.push(TextPiece::Variable(query));
        rest = after;
    }
    if !rest.is_empty() {
        pieces.push(TextPiece::Text(rest));
    }
    Ok(pieces)
}
