//! Equality of values in Kyverno: as durations, as quantities, as wildcard patterns. Also the
//! operators of conditions for keys in sets.

use serde_json::Value;

use super::scalar::{DURATION, NUMBER, is_duration, range};
use super::scope::{BOOL, LIST, MAP, NULL, NUMBERS, Scope, TEXT, Term, is_number};
use crate::conversion::Refusal;
use crate::kyverno::expression::{CelCondition, has_wildcard, literal, literals, matches_wildcard, one_of};
use portcullis_cel::Quantity;

pub(crate) fn equals(key: &Term, value: &Term, scope: &Scope) -> Result<CelCondition, Refusal> {
    let same = || CelCondition::relation(format!("dyn({}) == {}", value.or_null, key.or_null));
    match (&value.constant, &key.constant) {
        (Some(constant), _) => equals_constant(key, constant, scope),
        (None, Some(Value::Null)) => Ok(CelCondition::constant(false)),
        (None, Some(Value::String(text))) if Quantity::parse(text).is_err() && !is_duration(text) => {
            let matches = guarded(value, TEXT, matches_text(&key.or_null, &value.or_null));
            Ok(CelCondition::any([same(), matches]))
        }
        (None, Some(Value::Bool(_) | Value::Array(_) | Value::Object(_))) => Ok(same()),
        (None, Some(_)) => Err(Refusal::whole(
            "an amount as the key compares with each type otherwise: write it as the value",
        )),
        (None, None) if key.is_only(NUMBERS) && value.is_only(NUMBERS) => Ok(same()),
        (None, None) => Ok(equal_values(key, value)),
    }
}

fn equals_constant(key: &Term, constant: &Value, scope: &Scope) -> Result<CelCondition, Refusal> {
    let name = &key.or_null;
    Ok(match constant {
        Value::Null => CelCondition::constant(false),
        Value::Bool(_) if !key.may_be(BOOL) => CelCondition::constant(false),
        Value::Bool(_) => CelCondition::relation(format!("{name} == {constant}")),
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or_default();
            let seconds = CelCondition::all([
                is_duration_text(name),
                CelCondition::relation(format!("duration({name}) == duration('{:.0}s')", number.trunc())),
            ]);
            CelCondition::any([
                guarded(key, NUMBERS, equals_number(name, constant)),
                guarded(key, TEXT, seconds),
            ])
        }
        Value::String(text) => {
            let number = is_plain_number(text)
                .then(|| equals_number(name, &text.parse::<f64>().unwrap_or_default().into()));
            CelCondition::any([
                guarded(
                    key,
                    NUMBERS,
                    number.unwrap_or_else(|| CelCondition::constant(false)),
                ),
                guarded_text(key, text),
            ])
        }
        Value::Array(_) | Value::Object(_) if !key.may_be(LIST | MAP) => CelCondition::constant(false),
        Value::Array(_) | Value::Object(_) => {
            if scope.has_integers && constant.to_string().bytes().any(|byte| byte.is_ascii_digit()) {
                return Err(Refusal::whole(
                    "Kyverno compares numbers of an old object otherwise: set `allowExistingViolations: false`",
                ));
            }
            CelCondition::relation(format!("dyn({name}) == {}", Term::constant(constant).or_null))
        }
    })
}

fn equals_number(name: &str, number: &Value) -> CelCondition {
    let number = Term::constant(number).or_null;
    match number.contains('.') {
        true => CelCondition::relation(format!("dyn({name}) == {number}")),
        false => CelCondition::relation(format!("{name} == {number}")),
    }
}

/// The condition, restricted to values of this type.
pub(crate) fn guarded(key: &Term, shape: u8, condition: CelCondition) -> CelCondition {
    if !key.may_be(shape) || condition.is(false) {
        return CelCondition::constant(false);
    }
    if key.is_only(shape) {
        return condition;
    }
    let is_type = match shape {
        TEXT => CelCondition::relation(format!("type({}) == string", key.or_null)),
        NUMBERS => CelCondition::primary(is_number(&key.or_null)),
        LIST => CelCondition::relation(format!("type({}) == list", key.or_null)),
        _ => CelCondition::relation(format!("type({}) == bool", key.or_null)),
    };
    CelCondition::all([is_type, condition])
}

/// The condition that the key is a string that equals `text`: as a duration, as a quantity, or as a
/// pattern.
fn guarded_text(key: &Term, text: &str) -> CelCondition {
    let name = &key.or_null;
    let is_amount = Quantity::parse(text).is_ok();
    let duration = (is_duration(text) && text != "0")
        .then(|| CelCondition::relation(format!("duration({name}) == duration({})", literal(text))));
    let same = if is_amount {
        CelCondition::all([
            CelCondition::primary(format!("isQuantity({name})")),
            CelCondition::relation(format!(
                "quantity({name}).compareTo(quantity({})) == 0",
                literal(text)
            )),
        ])
    } else if !has_wildcard(text) {
        // No value of another type equals a string.
        if duration.is_none() {
            return match key.may_be(TEXT) {
                true => CelCondition::relation(format!("{name} == {}", literal(text))),
                false => CelCondition::constant(false),
            };
        }
        CelCondition::constant(false)
    } else if text.contains(|part: char| !"0123456789+-.eEinumkKMGTP*?".contains(part)) {
        matches_wildcard(name, text)
    } else {
        CelCondition::all([
            CelCondition::primary(format!("isQuantity({name})")).not(),
            matches_wildcard(name, text),
        ])
    };
    let condition = match duration {
        Some(duration) => is_duration_text(name).choice(&duration, &same),
        None => same,
    };
    guarded(key, TEXT, condition)
}

/// The condition that a string is compared as a duration, which `0` is not.
pub(crate) fn is_duration_text(name: &str) -> CelCondition {
    CelCondition::all([
        CelCondition::primary(format!("{name}.matches({})", literal(DURATION))),
        CelCondition::relation(format!("{name} != '0'")),
    ])
}

pub(crate) fn is_plain_number(text: &str) -> bool {
    !text.is_empty()
        && text.parse::<f64>().is_ok_and(f64::is_finite)
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte))
}

/// The condition that two values of the object are equal.
fn equal_values(key: &Term, value: &Term) -> CelCondition {
    let (left, right) = (&key.or_null, &value.or_null);
    let are_durations = CelCondition::all([is_duration_text(left), is_duration_text(right)]);
    let durations = CelCondition::relation(format!("duration({left}) == duration({right})"));
    let quantities = CelCondition::all([
        CelCondition::primary(format!("isQuantity({right})")),
        CelCondition::relation(format!("quantity({left}).compareTo(quantity({right})) == 0")),
    ]);
    let same = CelCondition::any([
        CelCondition::relation(format!("{left} == {right}")),
        matches_text(left, right),
    ]);
    let amounts = CelCondition::primary(format!("isQuantity({left})")).choice(&quantities, &same);
    let texts = are_durations.choice(&durations, &amounts);
    if key.is_only(TEXT) && value.is_only(TEXT) {
        return texts;
    }
    let is_text = |name: &str| CelCondition::relation(format!("type({name}) == string"));
    let both_texts = CelCondition::all([is_text(left), is_text(right)]);
    let equal = CelCondition::all([
        CelCondition::relation(format!("dyn({left}) != null")),
        CelCondition::relation(format!("dyn({left}) == dyn({right})")),
    ]);
    if key.is_only(TEXT | NULL) && value.is_only(TEXT | NULL) || !key.may_be(TEXT) && !value.may_be(TEXT) {
        return both_texts.choice(&texts, &equal);
    }
    let number = |name: &str, other: &str| {
        CelCondition::all([
            CelCondition::primary(is_number(name)),
            is_text(other),
            CelCondition::primary(format!("{other}.matches({})", literal(NUMBER))),
            CelCondition::relation(format!("double({other}) == double({name})")),
        ])
    };
    let seconds = CelCondition::all([
        is_text(left),
        CelCondition::primary(is_number(right)),
        is_duration_text(left),
        CelCondition::relation(format!(
            "duration({left}) == duration(string(int({right})) + 's')"
        )),
    ]);
    let others = CelCondition::any([number(left, right), seconds, equal]);
    both_texts.choice(&texts, &others)
}

/// The condition that the string `text` matches the pattern in the value `pattern`.
pub(crate) fn matches_text(text: &str, pattern: &str) -> CelCondition {
    let expression = format!(
        "'(?s)^\\\\Q' + {pattern}.replace('\\\\E', '\\\\E\\\\\\\\E\\\\Q').replace('*', '\\\\E.*\\\\Q').replace('?', \
         '\\\\E.\\\\Q') + '\\\\E$'"
    );
    CelCondition::all([
        CelCondition::primary(format!("{pattern}.matches('[*?]')")),
        CelCondition::primary(format!("{text}.matches({expression})")),
    ])
}

/// How many of the keys must be in the set, or must not be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Set {
    pub(crate) is_any: bool,
    pub(crate) is_negated: bool,
    /// Whether this is an old operator, which does not support wildcards in lists.
    pub(crate) is_old: bool,
}

/// The set with which a set operator compares keys.
struct Choices {
    texts: Vec<String>,
    /// Whether wildcards in the key count, too.
    is_mutual: bool,
    /// The string of a list that is written as JSON. A list that contains only this string is also
    /// in the set.
    whole: Option<String>,
    /// Whether the value is not a set. Then only the string itself is in it, and nothing is
    /// outside.
    is_invalid: bool,
}

pub(crate) fn is_in(set: Set, key: &Term, value: &Term, scope: &Scope) -> Result<CelCondition, Refusal> {
    if set.is_old && key.may_be(LIST) && !(key.is_only(LIST | NULL) && key.has_strings) {
        return Err(Refusal::whole(
            "`In` and `NotIn` of what may be a list have no counterpart: write `AllIn` or `AnyIn`",
        ));
    }
    let of = |shape: u8| -> Result<CelCondition, Refusal> {
        if !key.may_be(shape) {
            return Ok(CelCondition::constant(false));
        }
        match &value.constant {
            Some(constant) => Ok(among(
                set,
                key,
                shape,
                &choices(set, constant, shape == LIST)?,
                scope,
            )),
            None => among_values(set, key, shape, value, scope),
        }
    };
    let list = guarded(key, LIST, of(LIST)?);
    let scalar = of(TEXT | NUMBERS | BOOL)?;
    if !key.may_be(NULL | LIST | MAP) || scalar.is(false) {
        return Ok(CelCondition::any([scalar, list]));
    }
    let is_scalar = match key.is_only(TEXT | NUMBERS | BOOL | NULL) {
        true => CelCondition::relation(format!("{} != null", key.or_null)),
        false => CelCondition::all([
            CelCondition::relation(format!("{} != null", key.or_null)),
            CelCondition::relation(format!("type({}) != list", key.or_null)),
            CelCondition::relation(format!("type({}) != map", key.or_null)),
        ]),
    };
    Ok(CelCondition::any([CelCondition::all([is_scalar, scalar]), list]))
}

fn choices(set: Set, value: &Value, is_of_list: bool) -> Result<Choices, Refusal> {
    let mut choices = Choices {
        texts: Vec::new(),
        is_mutual: true,
        whole: None,
        is_invalid: false,
    };
    match value {
        Value::Array(items) => {
            choices.texts = items.iter().map(printed).collect::<Result<_, _>>()?;
        }
        Value::String(text) if range(text).is_some() => {
            return Err(Refusal::whole(
                "a range has no counterpart here: compare with `GreaterThan` and `LessThan`",
            ));
        }
        Value::String(_) if set.is_old && is_of_list => {
            return Err(Refusal::whole(
                "`In` and `NotIn` a text have no counterpart here: write a list",
            ));
        }
        Value::String(text) => {
            choices.is_mutual = is_of_list;
            choices.texts.push(text.clone());
            match serde_json::from_str::<Value>(text) {
                Ok(Value::Array(items)) => {
                    let items = items.iter().map(|item| item.as_str().map(str::to_owned));
                    match items.collect::<Option<Vec<_>>>() {
                        Some(items) if is_of_list => {
                            choices.texts = items;
                            choices.whole = Some(text.clone());
                        }
                        Some(items) => choices.texts.extend(items),
                        None => choices.is_invalid = true,
                    }
                }
                Ok(Value::Null) => {}
                Ok(_) => choices.is_invalid = true,
                Err(_) => choices.is_invalid = set.is_old,
            }
        }
        Value::Number(_) | Value::Bool(_) if is_of_list && set.is_any && !set.is_old => {
            choices.texts.push(printed(value)?);
        }
        _ => choices.is_invalid = true,
    }
    Ok(choices)
}

/// A value as Go prints it.
fn printed(value: &Value) -> Result<String, Refusal> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Bool(value) => Ok(value.to_string()),
        Value::Number(number) => match number.as_f64() {
            Some(number) if number.abs() < 1e6 && (number == 0.0 || number.abs() >= 1e-4) => {
                Ok(number.to_string())
            }
            _ => Err(Refusal::whole(
                "Kyverno writes such a number with an exponent: put it in quotes",
            )),
        },
        _ => Err(Refusal::whole(
            "a list of texts, numbers and booleans is meant here",
        )),
    }
}

/// A value of the object as Go prints it, where Kyverno compares strings. For maps and lists, only
/// the beginning of the string is known, which suffices as long as it matches nothing.
fn text_of(name: &str, shape: u8, scope: &Scope) -> String {
    let number = if scope.has_integers {
        name.to_owned()
    } else {
        format!("double({name})")
    };
    match shape {
        TEXT => return name.to_owned(),
        BOOL => return format!("string({name})"),
        NUMBERS => return format!("string({number})"),
        _ => {}
    }
    let mut text = format!("string({name})");
    if shape & NUMBERS != 0 {
        text = format!("type({name}) == int ? string({number}) : {text}");
    }
    if shape & (MAP | LIST) != 0 && !scope.is_typed {
        text = format!("type({name}) == map || type({name}) == list ? 'map[' : {text}");
    }
    if shape & NULL != 0 {
        text = format!("{name} == null ? '<nil>' : {text}");
    }
    format!("({text})")
}

/// The types that the elements of a list may have.
const ELEMENTS: u8 = TEXT | NUMBERS | BOOL | NULL | MAP | LIST;

/// The condition of a set operator for `key`, as far as it has the types `shape`.
fn among(set: Set, key: &Term, shape: u8, choices: &Choices, scope: &Scope) -> CelCondition {
    if choices.is_invalid {
        let Some(text) = choices.texts.first().filter(|_| !set.is_negated) else {
            return CelCondition::constant(false);
        };
        return match shape {
            LIST => CelCondition::relation(format!("{} == {}", key.or_null, literals([text.as_str()]))),
            _ => matches_wildcard(&text_of(&key.or_null, key.shape & shape, scope), text),
        };
    }
    if shape != LIST {
        let text = text_of(&key.or_null, key.shape & shape, scope);
        let found = is_one_of(&text, choices, key.is_plain, false);
        return if set.is_negated { found.not() } else { found };
    }
    let (name, body) = scope.with_loop_variable(|name| {
        let text = text_of(name, ELEMENTS, scope);
        let text = if key.has_strings { name.to_owned() } else { text };
        let found = is_one_of(&text, choices, false, set.is_old);
        let found = if set.is_negated { found.not() } else { found };
        found.to_string()
    });
    let quantifier = if set.is_any { "exists" } else { "all" };
    let among = CelCondition::primary(format!("{}.{quantifier}({name}, {body})", key.or_null));
    let Some(whole) = &choices.whole else {
        return among;
    };
    let is_whole = CelCondition::relation(format!("dyn({}) == {}", key.or_null, literals([whole.as_str()])));
    match set.is_negated {
        true => CelCondition::all([is_whole.not(), among]),
        false => CelCondition::any([is_whole, among]),
    }
}

/// The condition that the string is one of the choices.
fn is_one_of(text: &str, choices: &Choices, is_plain: bool, is_exact: bool) -> CelCondition {
    let texts: Vec<&str> = choices.texts.iter().map(String::as_str).collect();
    if is_exact {
        return one_of(text, &texts);
    }
    let (wild, plain): (Vec<&str>, Vec<&str>) = texts.iter().partition(|text| has_wildcard(text));
    let mut any = vec![one_of(text, &plain)];
    any.extend(wild.iter().map(|pattern| matches_wildcard(text, pattern)));
    if choices.is_mutual && !is_plain && !texts.is_empty() {
        let choice = matches_text("c", text);
        any.push(CelCondition::primary(format!(
            "{}.exists(c, {choice})",
            literals(texts)
        )));
    }
    CelCondition::any(any)
}

/// Like [`among`], for a set that is a value of the object.
fn among_values(
    set: Set,
    key: &Term,
    shape: u8,
    value: &Term,
    scope: &Scope,
) -> Result<CelCondition, Refusal> {
    if set.is_old {
        return Err(Refusal::whole(
            "`In` and `NotIn` a variable have no counterpart: write `AnyIn` or `AnyNotIn`",
        ));
    }
    if value.may_be(TEXT) || value.may_be(NUMBERS) && shape == LIST {
        return Err(Refusal::whole(
            "the value may be a text, which Kyverno may read as JSON or as a range: end its query with `[]`",
        ));
    }
    if !value.may_be(LIST) {
        return Ok(CelCondition::constant(false));
    }
    let texts = |name: &str| text_of(name, ELEMENTS, scope);
    let found = |key: &str| {
        let (name, body) = scope.with_loop_variable(|name| {
            let own = if value.has_strings {
                name.to_owned()
            } else {
                texts(name)
            };
            CelCondition::any([
                CelCondition::relation(format!("{own} == {key}")),
                matches_text(&own, key),
                matches_text(key, &own),
            ])
            .to_string()
        });
        let found = CelCondition::primary(format!("{}.exists({name}, {body})", value.or_null));
        if set.is_negated { found.not() } else { found }
    };
    let condition = match shape {
        LIST => {
            let (name, body) = scope.with_loop_variable(|name| {
                let own = if key.has_strings {
                    name.to_owned()
                } else {
                    texts(name)
                };
                found(&own).to_string()
            });
            let quantifier = if set.is_any { "exists" } else { "all" };
            CelCondition::primary(format!("{}.{quantifier}({name}, {body})", key.or_null))
        }
        _ => found(&text_of(&key.or_null, key.shape & shape, scope)),
    };
    Ok(guarded(value, LIST, condition))
}
