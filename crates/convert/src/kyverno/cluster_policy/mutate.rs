//! `mutate.patchStrategicMerge` as an ApplyConfiguration.
//!
//! What sets scalars in maps means the same to both. Kustomize, which Kyverno merges with, and server-side apply
//! merge lists otherwise, and delete otherwise.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::conditions;
use super::fields::{self, Part};
use super::pattern::{Anchor, anchor};
use super::refusal::{self, Refusal};
use super::scope::{Scope, TEXT, cel};
use crate::kyverno::expression::{has_field, is_identifier, literal, optional_field};

/// How deep patches may nest.
const MAX_DEPTH: usize = 20;

/// Fields whose keys are no fields.
const MAPS: [&str; 11] = [
    "labels",
    "annotations",
    "nodeSelector",
    "matchLabels",
    "data",
    "stringData",
    "binaryData",
    "limits",
    "requests",
    "hard",
    "parameters",
];

/// A part of the object that is patched.
#[derive(Debug, Clone)]
struct PatchPart {
    /// Its type in CEL.
    kind: String,
    /// Its value as an optional one, below the object.
    optional: String,
    is_map: bool,
    depth: usize,
}

/// The ApplyConfiguration that `mutate` is.
pub(crate) fn configuration(mutate: &Value, scope: &Scope) -> Result<String, Refusal> {
    fields::check(Part::Mutate, mutate)?;
    let Value::Object(entries) = &mutate["patchStrategicMerge"] else {
        return refusal::of("patchStrategicMerge", "it is no map");
    };
    let object = PatchPart {
        kind: "Object".to_owned(),
        optional: scope.object.clone(),
        is_map: false,
        depth: 0,
    };
    of_map(entries, &object, scope).map_err(|refusal| refusal.within("patchStrategicMerge"))
}

fn of_map(entries: &Map<String, Value>, at: &PatchPart, scope: &Scope) -> Result<String, Refusal> {
    if at.depth > MAX_DEPTH {
        return Err(Refusal::here(format!("a patch nests at most {MAX_DEPTH} deep")));
    }
    let (mut fields, mut names) = (Vec::new(), BTreeSet::new());
    for (key, value) in entries {
        if !names.insert(anchor(key).1) {
            let refusal =
                Refusal::here("Kyverno fails where a patch names a field with and without an anchor");
            return Err(refusal.within(key));
        }
        fields.push(of_entry(key, value, at, scope).map_err(|refusal| refusal.within(key))?);
    }
    Ok(match at.is_map {
        true => format!("{{{}}}", fields.join(", ")),
        false => format!("{}{{{}}}", at.kind, fields.join(", ")),
    })
}

fn of_entry(key: &str, value: &Value, at: &PatchPart, scope: &Scope) -> Result<String, Refusal> {
    let (anchor, name) = anchor(key);
    if name.contains("{{") {
        return Err(Refusal::here(
            "a variable in a key has no counterpart: write a JSONPatch",
        ));
    }
    if !at.is_map && !is_identifier(name) {
        return Err(Refusal::here("it is no name of a field"));
    }
    let part = PatchPart {
        kind: format!("{}.{name}", at.kind),
        optional: optional_field(&at.optional, name),
        is_map: at.is_map || MAPS.contains(&name),
        depth: at.depth + 1,
    };
    let value = of_value(value, &part, scope)?;
    let written = if at.is_map { literal(name) } else { name.to_owned() };
    match anchor {
        Anchor::None => Ok(format!("{written}: {value}")),
        Anchor::Addition => {
            let is_there = match at.optional.contains('?') {
                true => format!("{}.hasValue()", part.optional),
                false => has_field(&at.optional, name).to_string(),
            };
            Ok(format!(
                "?{written}: {is_there} ? optional.none() : optional.of({value})"
            ))
        }
        _ => Err(Refusal::here(
            "an anchor in a patch is a condition on the object: ask for it in `preconditions`",
        )),
    }
}

fn of_value(value: &Value, at: &PatchPart, scope: &Scope) -> Result<String, Refusal> {
    match value {
        Value::Object(entries) => of_map(entries, at, scope),
        Value::Array(_) => Err(Refusal::here(
            "server-side apply merges lists otherwise than Kyverno: write a JSONPatch",
        )),
        Value::Null => Err(Refusal::here("null removes what is there: write a JSONPatch")),
        Value::String(_) => {
            let term = conditions::operand(value, scope)?;
            match term.is_only(TEXT) && !term.may_fail() {
                true => Ok(term.whole().to_owned()),
                false => Err(Refusal::here(
                    "it may not be there, or be no text: end its query with `|| ''`",
                )),
            }
        }
        scalar => Ok(cel(scalar)),
    }
}

/// The spec of a MutatingAdmissionPolicy that applies `configuration`.
pub(crate) fn spec(configuration: &str, failure_policy: &str) -> Value {
    json!({
        "failurePolicy": failure_policy,
        "reinvocationPolicy": "IfNeeded",
        "mutations": [{
            "patchType": "ApplyConfiguration",
            "applyConfiguration": {"expression": configuration},
        }],
    })
}
