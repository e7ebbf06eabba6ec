//! `validate.pattern`: converts a pattern for objects to a condition.
//!
//! A pattern has three outcomes: the object passes, it fails, or the rule does not apply to it, in
//! which case it is admitted too (`pkg/engine/validate/validate.go` and `pkg/engine/anchor` of
//! Kyverno). The generated conditions never fail: each field is read only where its type is known.

use serde_json::{Map, Value};

use super::scalar;
use crate::conversion;
use crate::conversion::Refusal;
use crate::kyverno::expression::{
    CelCondition, field, has_field, has_wildcard, matches_wildcard, optional_field,
};

/// How deep patterns may nest.
const MAX_DEPTH: usize = 40;

/// The most bytes of the condition for a part of a pattern.
const MAX_CONDITION_BYTES: usize = 50_000;

/// The conditions that an object passes, and that it does not fail. Without anchors they are the
/// same.
#[derive(Debug, Clone)]
pub(crate) struct PatternOutcome {
    pub(crate) passes: CelCondition,
    pub(crate) does_not_fail: CelCondition,
}

/// A value of the object in CEL.
#[derive(Debug, Clone)]
struct PatternTarget {
    /// The value, or null if it is absent.
    or_null: String,
    /// The value, if it is present.
    value: String,
    depth: usize,
}

/// The anchor of a key in a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anchor {
    None,
    Condition,
    Global,
    Equality,
    Negation,
    Existence,
    Addition,
}

/// The conditions of a pattern for `object`.
pub(crate) fn outcome(pattern: &Value, object: &str) -> Result<PatternOutcome, Refusal> {
    let root = PatternTarget {
        or_null: object.to_owned(),
        value: object.to_owned(),
        depth: 0,
    };
    of_value(pattern, &root)
}

/// Whether Kyverno reports every mismatch as a failure, and none as an error, as it does if an
/// anchor names a field that it has not seen.
pub(crate) fn fails_without_error(pattern: &Value) -> bool {
    match pattern {
        Value::Object(entries) => {
            let anchors: Vec<Anchor> = entries.keys().map(|key| anchor(key).0).collect();
            let others_are_plain = entries.iter().all(|(_, value)| !looks_for_anchors(value));
            if anchors.contains(&Anchor::Existence) {
                return entries.len() == 1 && others_are_plain;
            }
            if anchors.contains(&Anchor::Condition) {
                return others_are_plain;
            }
            others_are_plain || entries.len() == 1 && entries.values().all(fails_without_error)
        }
        Value::Array(items) => items.iter().all(fails_without_error),
        _ => true,
    }
}

fn looks_for_anchors(pattern: &Value) -> bool {
    match pattern {
        Value::Object(entries) => entries.iter().any(|(key, value)| {
            matches!(anchor(key).0, Anchor::Condition | Anchor::Existence) || looks_for_anchors(value)
        }),
        Value::Array(items) => items.iter().any(looks_for_anchors),
        _ => false,
    }
}

// === impl PatternOutcome ===

impl PatternOutcome {
    fn of(passes: CelCondition) -> Self {
        Self {
            does_not_fail: passes.clone(),
            passes,
        }
    }

    fn always_applies(&self) -> bool {
        self.passes == self.does_not_fail
    }

    /// The outcome if `guard` holds; otherwise the object fails. The conditions are only evaluated
    /// if `guard` holds.
    fn guarded(self, guard: &CelCondition) -> Self {
        let with = |condition| CelCondition::all([guard.clone(), condition]);
        Self {
            passes: with(self.passes),
            does_not_fail: with(self.does_not_fail),
        }
    }

    /// The outcome of this pattern, followed by `next` if the object passes.
    fn then(self, next: Self) -> Self {
        let does_not_fail = match self.always_applies() {
            true => CelCondition::all([self.does_not_fail, next.does_not_fail]),
            false => CelCondition::all([
                self.does_not_fail,
                CelCondition::any([self.passes.clone().not(), next.does_not_fail]),
            ]),
        };
        Self {
            passes: CelCondition::all([self.passes, next.passes]),
            does_not_fail,
        }
    }
}

// === impl PatternTarget ===

impl PatternTarget {
    fn child(&self, key: &str) -> Self {
        Self {
            or_null: format!("{}.orValue(dyn(null))", optional_field(&self.value, key)),
            value: field(&self.value, key),
            depth: self.depth + 1,
        }
    }

    /// An element of this list.
    fn element(&self) -> Self {
        let name = format!("v{}", self.depth);
        Self {
            or_null: name.clone(),
            value: name,
            depth: self.depth + 1,
        }
    }

    fn is(&self, kind: &str) -> CelCondition {
        CelCondition::relation(format!("type({}) == {kind}", self.or_null))
    }

    fn has(&self, key: &str) -> CelCondition {
        has_field(&self.value, key)
    }
}

pub(crate) fn anchor(key: &str) -> (Anchor, &str) {
    let none = (Anchor::None, key);
    let trimmed = key.trim();
    let Some(inner) = trimmed.strip_suffix(')') else {
        return none;
    };
    let Some((modifier, name)) = inner.split_once('(').filter(|(_, name)| !name.is_empty()) else {
        return none;
    };
    let anchor = match modifier {
        "" => Anchor::Condition,
        "<" => Anchor::Global,
        "=" => Anchor::Equality,
        "X" => Anchor::Negation,
        "^" => Anchor::Existence,
        "+" => Anchor::Addition,
        _ => return none,
    };
    (anchor, name)
}

/// Whether one of these anchors occurs anywhere in the pattern.
pub(crate) fn has_anchor(pattern: &Value, anchors: &[Anchor]) -> bool {
    match pattern {
        Value::Object(entries) => entries
            .iter()
            .any(|(key, value)| anchors.contains(&anchor(key).0) || has_anchor(value, anchors)),
        Value::Array(items) => items.iter().any(|item| has_anchor(item, anchors)),
        _ => false,
    }
}

/// The part of a patch that Kyverno adds if there is no value yet: without conditions, and without
/// maps that become empty.
pub(crate) fn pruned(value: &Value) -> Option<Value> {
    match value {
        Value::Object(entries) => {
            let left: Map<String, Value> = entries
                .iter()
                .filter(|(key, _)| !matches!(anchor(key).0, Anchor::Condition | Anchor::Global))
                .filter_map(|(key, value)| Some((anchor(key).1.to_owned(), pruned(value)?)))
                .collect();
            (!left.is_empty()).then_some(Value::Object(left))
        }
        Value::Array(items) => {
            let with_anchors = [Anchor::Condition, Anchor::Global, Anchor::Addition];
            let left: Vec<Value> = items
                .iter()
                .filter(|item| !has_anchor(item, &with_anchors))
                .filter_map(pruned)
                .collect();
            (!left.is_empty() || items.is_empty()).then_some(Value::Array(left))
        }
        scalar => Some(scalar.clone()),
    }
}

fn of_value(pattern: &Value, at: &PatternTarget) -> Result<PatternOutcome, Refusal> {
    if at.depth > MAX_DEPTH {
        return Err(Refusal::whole(format!(
            "a pattern nests at most {MAX_DEPTH} deep"
        )));
    }
    let outcome = match pattern {
        Value::Object(entries) => of_map(entries, at)?,
        Value::Array(items) => of_list(items, at)?,
        scalar => of_scalar(scalar, at)?,
    };
    // The condition of an anchor may contain those below it twice.
    match outcome.passes.len().max(outcome.does_not_fail.len()) {
        0..=MAX_CONDITION_BYTES => Ok(outcome),
        _ => Err(Refusal::whole(
            "it becomes too long an expression: split the pattern into several rules",
        )),
    }
}

/// A scalar pattern must match the value, or every element if it is a list.
fn of_scalar(pattern: &Value, at: &PatternTarget) -> Result<PatternOutcome, Refusal> {
    let element = at.element().value;
    let condition = scalar::condition(pattern, &element)?;
    let each = format!("(type({0}) == list ? dyn({0}) : dyn([{0}]))", at.or_null);
    Ok(PatternOutcome::of(CelCondition::primary(format!(
        "{each}.all({element}, {condition})"
    ))))
}

fn of_list(items: &[Value], at: &PatternTarget) -> Result<PatternOutcome, Refusal> {
    let Some(item) = items.first() else {
        return Err(Refusal::whole(
            "Kyverno lets nothing match an empty list: write what its items are like",
        ));
    };
    let list = at.is("list");
    let element = at.element();
    let name = &element.value;
    match item {
        Value::Object(entries) => {
            let each = of_map(entries, &element).map_err(|refusal| refusal.within_index(0))?;
            let all = |condition: &CelCondition| {
                CelCondition::primary(format!("{}.all({name}, {condition})", at.value))
            };
            let none_fails = all(&each.does_not_fail);
            if each.always_applies() {
                return Ok(PatternOutcome::of(none_fails).guarded(&list));
            }
            let passes = CelCondition::all([
                none_fails.clone(),
                CelCondition::any([
                    CelCondition::relation(format!("size({}) == 0", at.value)),
                    CelCondition::primary(format!("{}.exists({name}, {})", at.value, each.passes)),
                ]),
            ]);
            let outcome = PatternOutcome {
                passes,
                does_not_fail: none_fails,
            };
            Ok(outcome.guarded(&list))
        }
        Value::Array(_) => Err(Refusal::whole("a list of lists in a pattern has no counterpart")),
        pattern => {
            let condition = scalar::condition(pattern, name).map_err(|refusal| refusal.within_index(0))?;
            let all = CelCondition::primary(format!("{}.all({name}, {condition})", at.value));
            Ok(PatternOutcome::of(all).guarded(&list))
        }
    }
}

fn of_map(entries: &Map<String, Value>, at: &PatternTarget) -> Result<PatternOutcome, Refusal> {
    let (mut conditions, mut others, mut rest) = (Vec::new(), Vec::new(), Vec::new());
    // Kyverno sorts by the whole key.
    let mut keys: Vec<(&String, &Value)> = entries.iter().collect();
    keys.sort_by_key(|(key, _)| *key);
    for (key, pattern) in keys {
        let (anchor, name) = anchor(key);
        let outcome = of_entry(anchor, name, pattern, at).map_err(|refusal| refusal.within(key))?;
        match anchor {
            Anchor::Condition => conditions.push(outcome.passes),
            Anchor::Equality | Anchor::Negation | Anchor::Existence => others.push(outcome),
            Anchor::Global => rest.insert(0, outcome),
            Anchor::None if has_anchors(pattern) => rest.insert(0, outcome),
            Anchor::None | Anchor::Addition => rest.push(outcome),
        }
    }
    let rest = rest
        .into_iter()
        .rev()
        .reduce(|next, first| first.then(next))
        .unwrap_or_else(|| PatternOutcome::of(CelCondition::constant(true)));
    let outcome = anchored(conditions, &others, rest);
    // The object of a request is always a map.
    Ok(match at.depth {
        0 => outcome,
        _ => outcome.guarded(&at.is("map")),
    })
}

/// Anchors of a map are evaluated before its other fields.
fn anchored(
    conditions: Vec<CelCondition>,
    others: &[PatternOutcome],
    rest: PatternOutcome,
) -> PatternOutcome {
    let none_fails = CelCondition::all(others.iter().map(|other| other.does_not_fail.clone()));
    if !conditions.is_empty() {
        let applies = CelCondition::all(conditions);
        let with = |condition| CelCondition::all([applies.clone(), none_fails.clone(), condition]);
        let then = CelCondition::all([none_fails.clone(), rest.does_not_fail]);
        return PatternOutcome {
            passes: with(rest.passes),
            does_not_fail: CelCondition::any([applies.clone().not(), then]),
        };
    }
    // If none of these anchors applies, the map does not apply either.
    if !others.is_empty() && !others.iter().any(PatternOutcome::always_applies) {
        let applies = CelCondition::any(others.iter().map(|other| other.passes.clone()));
        return PatternOutcome {
            passes: CelCondition::all([none_fails.clone(), applies.clone(), rest.passes]),
            does_not_fail: CelCondition::all([
                none_fails,
                CelCondition::any([applies.not(), rest.does_not_fail]),
            ]),
        };
    }
    PatternOutcome {
        passes: CelCondition::all([none_fails.clone(), rest.passes]),
        does_not_fail: CelCondition::all([none_fails, rest.does_not_fail]),
    }
}

fn of_entry(
    anchor: Anchor,
    name: &str,
    pattern: &Value,
    at: &PatternTarget,
) -> Result<PatternOutcome, Refusal> {
    let child = at.child(name);
    let has = at.has(name);
    match anchor {
        Anchor::Negation => Ok(PatternOutcome::of(has.not())),
        Anchor::Addition => Err(Refusal::whole(
            "`+()` adds to an object, and a pattern changes none",
        )),
        Anchor::Existence => existence(pattern, &child, has),
        Anchor::Condition => Ok(PatternOutcome::of(CelCondition::all([
            has,
            of_field(name, pattern, at)?.passes,
        ]))),
        Anchor::Global => {
            // If it does not hold, the whole rule, or the element of a list, does not apply.
            let passes = CelCondition::any([has.not(), of_field(name, pattern, at)?.passes]);
            Ok(PatternOutcome {
                passes,
                does_not_fail: CelCondition::constant(true),
            })
        }
        Anchor::Equality => {
            if ends_rule(pattern) {
                return Err(Refusal::whole(
                    "what `<()` within `=()` ends depends on the order of fields: put it beside the other anchors",
                ));
            }
            let outcome = of_field(name, pattern, at)?;
            let or_absent = |condition| CelCondition::any([has.clone().not(), condition]);
            Ok(PatternOutcome {
                passes: or_absent(outcome.passes),
                does_not_fail: or_absent(outcome.does_not_fail),
            })
        }
        Anchor::None if pattern == "*" => Ok(PatternOutcome::of(CelCondition::relation(format!(
            "{} != null",
            child.or_null
        )))),
        Anchor::None => of_field(name, pattern, at),
    }
}

fn of_field(name: &str, pattern: &Value, at: &PatternTarget) -> Result<PatternOutcome, Refusal> {
    let child = at.child(name);
    match pattern {
        Value::Object(entries)
            if matches!(name, "labels" | "annotations") && at.value.ends_with(".metadata") =>
        {
            of_labels(entries, &child)
        }
        _ => of_value(pattern, &child),
    }
}

/// Labels and annotations, whose keys may have wildcards. Kyverno compares an arbitrary one of the
/// keys that match; here all of them must match.
fn of_labels(entries: &Map<String, Value>, at: &PatternTarget) -> Result<PatternOutcome, Refusal> {
    if let Some((key, _)) = entries.iter().find(|(_, pattern)| !pattern.is_string()) {
        return conversion::of(
            key,
            "Kyverno passes over it, since it is no text: put it in quotes",
        );
    }
    let (with, without): (Map<_, _>, Map<_, _>) = entries
        .clone()
        .into_iter()
        .partition(|(key, _)| has_wildcard(key));
    let mut outcome = of_map(&without, at)?;
    for (key, pattern) in &with {
        let condition = of_wildcard_key(key, pattern, at).map_err(|refusal| refusal.within(key))?;
        outcome = outcome.then(PatternOutcome::of(CelCondition::all([at.is("map"), condition])));
    }
    Ok(outcome)
}

fn of_wildcard_key(key: &str, pattern: &Value, at: &PatternTarget) -> Result<CelCondition, Refusal> {
    let (anchor, name) = anchor(key);
    let key = at.element().value;
    let matching = matches_wildcard(&key, name);
    let holds = scalar::condition(pattern, &format!("{}[{key}]", at.value))?;
    let found = CelCondition::primary(format!("{}.exists({key}, {matching})", at.value));
    let implied = CelCondition::any([matching.not(), holds]);
    let all = CelCondition::primary(format!("{}.all({key}, {implied})", at.value));
    match anchor {
        Anchor::None => Ok(CelCondition::all([found, all])),
        Anchor::Equality => Ok(all),
        Anchor::Negation => Ok(found.not()),
        _ => Err(Refusal::whole(
            "a key with wildcards stands alone, or within `=()` or `X()`",
        )),
    }
}

/// The condition that for each item of the pattern, an element of the list matches.
fn existence(pattern: &Value, child: &PatternTarget, has: CelCondition) -> Result<PatternOutcome, Refusal> {
    let items = pattern
        .as_array()
        .filter(|items| items.iter().all(Value::is_object));
    let Some(items) = items else {
        return Err(Refusal::whole("`^()` has a list of maps"));
    };
    let element = child.element();
    let mut parts = vec![child.is("list")];
    for (index, item) in items.iter().enumerate() {
        let passes = of_value(item, &element)
            .map_err(|refusal| refusal.within_index(index))?
            .passes;
        parts.push(CelCondition::primary(format!(
            "{}.exists({}, {passes})",
            child.value, element.value
        )));
    }
    Ok(PatternOutcome::of(CelCondition::any([
        has.not(),
        CelCondition::all(parts),
    ])))
}

/// Whether the pattern contains a `<()` outside lists, which skips what contains it.
fn ends_rule(pattern: &Value) -> bool {
    let Value::Object(entries) = pattern else {
        return false;
    };
    entries.iter().any(|(key, value)| match anchor(key).0 {
        Anchor::Global => true,
        Anchor::Condition => false,
        _ => ends_rule(value),
    })
}

fn has_anchors(pattern: &Value) -> bool {
    match pattern {
        Value::Object(entries) => entries.iter().any(|(key, value)| {
            !matches!(anchor(key).0, Anchor::None | Anchor::Addition) || has_anchors(value)
        }),
        Value::Array(items) => items.iter().any(has_anchors),
        _ => false,
    }
}
