//! `preconditions` and `deny.conditions`: what holds of the values of variables
//! (`pkg/engine/variables` of Kyverno).
//!
//! Kyverno asks one condition after the other, and an error ends that with an error. So do the
//! expressions made here, wherever one of them may have an error.

use serde_json::Value;

use super::jmespath;
use super::operators::{self, Operator};
use super::refusal::{self, Refusal};
use super::scope::{NULL, Scope, TEXT, Term, cel};
use crate::kyverno::expression::{Condition, Judged, literal};

/// A piece of a text: as it is written, or a variable.
#[derive(Debug, PartialEq)]
enum Piece<'t> {
    Text(&'t str),
    Variable(&'t str),
}

/// Whether the conditions hold: `any` and `all`, or a list of which all must.
pub(crate) fn judged(written: &Value, scope: &Scope) -> Result<Judged, Refusal> {
    let holds = Judged::sure(Condition::constant(true));
    match written {
        Value::Null => Ok(holds),
        Value::Array(_) => each(written, scope, false),
        Value::Object(_) => {
            refusal::unknown(written, &["any", "all"])?;
            let any = match &written["any"] {
                Value::Null => holds,
                any => each(any, scope, true).map_err(|refusal| refusal.within("any"))?,
            };
            let all = each(&written["all"], scope, false).map_err(|refusal| refusal.within("all"))?;
            // Both lists are asked, whatever the first says.
            let all = match any.condition.is(false) {
                true => all.and(any.clone()),
                false => all,
            };
            Ok(match (any.may_fail, all.may_fail) {
                (true, true) => {
                    let or_false = all.clone().and(Judged::sure(Condition::constant(false)));
                    Judged {
                        condition: any.condition.choice(&all.condition, &or_false.condition),
                        may_fail: true,
                    }
                }
                (false, true) => all.and(any),
                _ => any.and(all),
            })
        }
        _ => Err(Refusal::here("conditions are `any` and `all`, or a list")),
    }
}

fn each(written: &Value, scope: &Scope, is_any: bool) -> Result<Judged, Refusal> {
    let conditions = written.as_array().into_iter().flatten();
    let mut judged = Judged::sure(Condition::constant(!is_any));
    for (index, condition) in conditions.enumerate() {
        let next = one(condition, scope).map_err(|refusal| refusal.within_index(index))?;
        judged = match is_any {
            true => judged.or(next),
            false => judged.and(next),
        };
    }
    Ok(judged)
}

fn one(written: &Value, scope: &Scope) -> Result<Judged, Refusal> {
    refusal::unknown(written, &["key", "operator", "value", "message"])?;
    let name = written["operator"].as_str().unwrap_or_default();
    let Some(operator) = Operator::parse(name) else {
        return refusal::of("operator", format!("`{name}` is no operator of conditions"));
    };
    let key = operand(&written["key"], scope).map_err(|refusal| refusal.within("key"))?;
    let value = operand(&written["value"], scope).map_err(|refusal| refusal.within("value"))?;
    operators::compare(operator, &key, &value, scope)
}

/// A value in which variables may stand.
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
        Value::Object(_) if written.to_string().contains("{{") => Err(Refusal::here(
            "a variable within a map has no counterpart: compare its fields",
        )),
        other => Ok(Term::constant(other)),
    }
}

fn of_text(text: &str, scope: &Scope) -> Result<Term, Refusal> {
    let pieces = pieces(text)?;
    match pieces.as_slice() {
        [] | [Piece::Text(_)] => Ok(Term::constant(&text.into())),
        [Piece::Variable(query)] => variable(query, scope),
        pieces => {
            let mut parts = Vec::new();
            let mut may_fail = false;
            for piece in pieces {
                parts.push(match piece {
                    Piece::Text(text) => literal(text),
                    Piece::Variable(query) => {
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

/// The value within a text.
fn within_text(term: &Term) -> Result<String, Refusal> {
    match &term.constant {
        Some(Value::String(text)) => Ok(literal(text)),
        Some(other) => Ok(literal(&cel(other))),
        None if term.is_only(TEXT) => Ok(term.whole().to_owned()),
        None if term.is_only(TEXT | NULL) => Ok(format!("({0} == null ? 'null' : {0})", term.whole())),
        None => Err(Refusal::here(
            "a variable within a text may be a list or a map, which Kyverno writes as JSON: take `to_string(@)` of it",
        )),
    }
}

/// What a variable is, which stands in `{{ }}`.
pub(crate) fn variable(query: &str, scope: &Scope) -> Result<Term, Refusal> {
    let node = jmespath::parse(query).map_err(|reason| {
        Refusal::here(format!(
            "`{}` is no JMESPath that is converted: {reason}",
            query.trim()
        ))
    })?;
    scope.term(&node)
}

/// The pieces of a text.
fn pieces(text: &str) -> Result<Vec<Piece<'_>>, Refusal> {
    let refused = |reason: &str| Err(Refusal::here(reason));
    if text.contains("$(") {
        return refused("a reference `$()` has no counterpart: write what it refers to");
    }
    if text.contains("\\{{") {
        return refused("braces that are no variable have no counterpart");
    }
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((query, after)) = after.split_once("}}") else {
            return refused("`}}` is missing");
        };
        // `{{{a: b}}}` ends with three.
        let extra = query
            .matches('{')
            .count()
            .saturating_sub(query.matches('}').count());
        let end = query.len() + extra;
        let whole = rest.get(before.len() + 2..).unwrap_or_default();
        let query = whole.get(..end).unwrap_or(query);
        let after = whole.get(end + 2..).unwrap_or(after);
        if query.contains("{{") {
            return refused("a variable within a variable has no counterpart: write one query");
        }
        if query.trim_start().starts_with('-') || query.trim() == "@" {
            return refused("`{{-` and `{{@}}` have no counterpart: write the path");
        }
        if !before.is_empty() {
            pieces.push(Piece::Text(before));
        }
        pieces.push(Piece::Variable(query));
        rest = after;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest));
    }
    Ok(pieces)
}
