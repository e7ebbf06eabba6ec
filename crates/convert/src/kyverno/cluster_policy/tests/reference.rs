//! Patterns evaluated step by step, as Kyverno's engine walks them.

use serde_json::{Map, Value};

/// What becomes of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Pass,
    Fail,
    /// An anchor that is a condition does not hold.
    Skip,
    /// Nothing below this applies.
    NoneApplies,
}

use Outcome::{Fail, NoneApplies, Pass, Skip};

fn anchor(key: &str) -> (char, &str) {
    match key.strip_suffix(')').and_then(|key| key.split_once('(')) {
        Some((modifier, name)) if modifier.len() < 2 => (modifier.chars().next().unwrap_or('('), name),
        _ => (' ', key),
    }
}

pub(crate) fn value(pattern: &Value, value: &Value) -> Outcome {
    match (pattern, value) {
        (Value::Object(pattern), Value::Object(object)) => map(pattern, object),
        (Value::Array(pattern), Value::Array(items)) => match &pattern[0] {
            Value::Object(pattern) => {
                let outcomes = items
                    .iter()
                    .map(|item| self::value(&Value::Object(pattern.clone()), item));
                let outcomes: Vec<Outcome> = outcomes.take_while_inclusive();
                match outcomes.as_slice() {
                    [.., Fail] => Fail,
                    all if !all.is_empty() && !all.contains(&Pass) => NoneApplies,
                    _ => Pass,
                }
            }
            pattern => self::value(pattern, &Value::Array(items.clone())),
        },
        (Value::Object(_) | Value::Array(_), _) => Fail,
        (pattern, Value::Array(items)) => as_outcome(items.iter().all(|item| scalar(pattern, item))),
        (pattern, value) => as_outcome(scalar(pattern, value)),
    }
}

trait UntilFailure {
    fn take_while_inclusive(self) -> Vec<Outcome>;
}

impl<I: Iterator<Item = Outcome>> UntilFailure for I {
    fn take_while_inclusive(self) -> Vec<Outcome> {
        let mut taken = Vec::new();
        for outcome in self {
            taken.push(outcome);
            if outcome == Fail {
                break;
            }
        }
        taken
    }
}

fn as_outcome(holds: bool) -> Outcome {
    if holds { Pass } else { Fail }
}

fn map(pattern: &Map<String, Value>, object: &Map<String, Value>) -> Outcome {
    let mut keys: Vec<&String> = pattern.keys().collect();
    keys.sort();
    let (mut applied, mut skips) = (0, Vec::new());
    let mut rest = std::collections::VecDeque::new();
    for key in keys {
        let (kind, _) = anchor(key);
        if !"(=X^".contains(kind) {
            match kind == '<' || nests(&pattern[key]) {
                true => rest.push_front(key),
                false => rest.push_back(key),
            }
            continue;
        }
        match entry(key, &pattern[key], object) {
            Pass => applied += 1,
            Fail if !skips.contains(&Skip) => return Fail,
            Fail => {}
            skip => skips.push(skip),
        }
    }
    if !skips.is_empty() && (applied == 0 || skips.contains(&Skip)) {
        return NoneApplies;
    }
    let outcomes = rest.iter().map(|key| entry(key, &pattern[*key], object));
    outcomes
        .into_iter()
        .find(|outcome| *outcome != Pass)
        .unwrap_or(Pass)
}

fn nests(pattern: &Value) -> bool {
    match pattern {
        Value::Object(entries) => entries
            .iter()
            .any(|(key, value)| anchor(key).0 != ' ' || nests(value)),
        Value::Array(items) => items.iter().any(nests),
        _ => false,
    }
}

fn entry(key: &str, pattern: &Value, object: &Map<String, Value>) -> Outcome {
    let (kind, name) = anchor(key);
    let found = object.get(name);
    match (kind, found) {
        ('X', found) => as_outcome(found.is_none()),
        ('=' | '<' | '^', None) => Pass,
        ('(', None) => Skip,
        ('=', Some(found)) => value(pattern, found),
        ('(' | '<', Some(found)) => match value(pattern, found) {
            Pass => Pass,
            _ => Skip,
        },
        ('^', Some(found)) => {
            let items = found.as_array();
            let each = |wanted: &Value| {
                items.is_some_and(|items| items.iter().any(|item| value(wanted, item) == Pass))
            };
            as_outcome(pattern.as_array().is_some_and(|wanted| wanted.iter().all(each)))
        }
        (_, found) if pattern == "*" => as_outcome(found.is_some_and(|found| !found.is_null())),
        (_, found) => value(pattern, found.unwrap_or(&Value::Null)),
    }
}

/// Numbers and texts with one operator; quantities of whole `Mi` and `Gi`, and durations of whole seconds.
fn scalar(pattern: &Value, value: &Value) -> bool {
    match (pattern, value) {
        (_, Value::Object(_) | Value::Array(_)) => false,
        (Value::Null, value) => [Value::Null, 0.into(), "".into(), false.into()].contains(value),
        (Value::Bool(_), value) => pattern == value,
        (Value::Number(number), Value::String(text)) => text.parse::<f64>().ok() == number.as_f64(),
        (Value::Number(_), value) => pattern == value,
        (Value::String(text), value) => {
            value == text
                || text
                    .split('|')
                    .any(|any| any.split('&').all(|one| compares(one.trim_matches(' '), value)))
        }
        _ => false,
    }
}

fn compares(pattern: &str, value: &Value) -> bool {
    let operators = [">=", "<=", ">", "<", "!"];
    let operator = operators
        .into_iter()
        .find(|sign| pattern.len() > 1 && pattern.starts_with(sign));
    let operand = pattern.trim_start_matches(operator.unwrap_or_default()).trim();
    let text = match value {
        Value::String(text) => Some(text.clone()),
        Value::Null => None,
        other => Some(other.to_string()),
    };
    let number_text = match value {
        Value::Null => Some("0".to_owned()),
        Value::Bool(_) => None,
        _ => text.clone(),
    };
    let pair = [seconds, bytes]
        .into_iter()
        .find_map(|read| Some((read(number_text.as_deref()?)?, read(operand)?)));
    match (operator, pair) {
        (Some(">="), Some((left, right))) => left >= right,
        (Some("<="), Some((left, right))) => left <= right,
        (Some(">"), Some((left, right))) => left > right,
        (Some("<"), Some((left, right))) => left < right,
        (Some("!"), Some((left, right))) => left != right,
        (None, Some((left, right))) => left == right,
        (Some("!"), None) => text.is_some_and(|text| !wildcard(operand.as_bytes(), text.as_bytes())),
        (None, None) => text.is_some_and(|text| wildcard(operand.as_bytes(), text.as_bytes())),
        _ => false,
    }
}

fn seconds(text: &str) -> Option<i64> {
    match text {
        "0" => Some(0),
        text => text.strip_suffix('s')?.parse().ok(),
    }
}

fn bytes(text: &str) -> Option<i64> {
    let (number, factor) = match (text.strip_suffix("Gi"), text.strip_suffix("Mi")) {
        (Some(number), _) => (number, 1 << 30),
        (_, Some(number)) => (number, 1 << 20),
        _ => (text, 1),
    };
    Some(number.parse::<i64>().ok()? * factor)
}

fn wildcard(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern, text) {
        ([], text) => text.is_empty(),
        ([b'*', rest @ ..], text) => {
            wildcard(rest, text) || !text.is_empty() && wildcard(pattern, &text[1..])
        }
        ([b'?', pattern @ ..], [_, text @ ..]) => wildcard(pattern, text),
        ([first, pattern @ ..], [second, text @ ..]) => first == second && wildcard(pattern, text),
        _ => false,
    }
}
