//! What a rule asks of objects: patterns, conditions, loops, or CEL.

#![expect(
    clippy::indexing_slicing,
    reason = "what a JSON value has not is null when it is read, and only objects are written to"
)]

use serde_json::{Value, json};

use super::matching::Matching;
use super::scope::Scope;
use super::{conditions, context, jmespath, pattern, pod_security};
use crate::conversion;
use crate::conversion::{Refusal, on_one_line};
use crate::kyverno::autogen::is_optional;
use crate::kyverno::expression::{CelCondition, Judged};
use portcullis_cel::plain_or_values;

/// How deep loops may nest: each makes the others longer.
const MAX_LOOPS: usize = 3;

/// For which operations Kyverno looks at the rule, where it names none.
pub(crate) fn operations(validate: &Value, matching: &Matching) -> Vec<&'static str> {
    let mut operations = vec!["CREATE", "UPDATE", "DELETE"];
    if validate["cel"].is_object() || matching.has_subresources() {
        operations.push("CONNECT");
    }
    operations
}

/// Whether a DELETE passes it, once its preconditions were asked.
pub(crate) fn passes_deletes(validate: &Value) -> bool {
    !validate["cel"].is_object() && validate["deny"].is_null()
}

/// What must hold of the object; an error where Kyverno has one.
pub(crate) fn holds(validate: &Value, scope: &Scope) -> Result<Judged, Refusal> {
    match &validate["foreach"] {
        Value::Null => asked(validate, scope, &scope.object),
        loops => of_loops(loops, scope, 0),
    }
}

/// `foreach`: what must hold of each element of lists.
fn of_loops(loops: &Value, scope: &Scope, nesting: usize) -> Result<Judged, Refusal> {
    let mut all = Judged::sure(CelCondition::constant(true));
    for (index, written) in loops.as_array().into_iter().flatten().enumerate() {
        let of_loop = of_loop(written, scope, nesting);
        all = all.and(of_loop.map_err(|refusal| refusal.within_index(index).within("foreach"))?);
    }
    Ok(all)
}

/// The fields of a loop.
const LOOP: [&str; 8] = [
    "list",
    "context",
    "preconditions",
    "elementScope",
    "deny",
    "pattern",
    "anyPattern",
    "foreach",
];

fn of_loop(written: &Value, scope: &Scope, nesting: usize) -> Result<Judged, Refusal> {
    conversion::unknown(written, &LOOP)?;
    if nesting >= MAX_LOOPS {
        return Err(Refusal::here(format!("loops nest at most {MAX_LOOPS} deep")));
    }
    let query = written["list"].as_str().unwrap_or_default();
    let list = jmespath::parse(query).map_err(|reason| Refusal::new("list", reason))?;
    let list = scope.term(&list).map_err(|refusal| refusal.within("list"))?;
    if list.is_fallible {
        return conversion::of(
            "list",
            "where it has an error Kyverno leaves the loop out: let it have none",
        );
    }
    if !["request.object", "element"]
        .iter()
        .any(|root| query.trim_start().starts_with(root))
    {
        return conversion::of("list", "a loop over what is not of the object has no counterpart");
    }
    let element = scope.fresh("e");
    let mut inner = scope.clone();
    for name in ["element".to_owned(), format!("element{nesting}")] {
        inner.names.push((name, Ok(list.element(&element))));
    }
    for name in ["elementIndex".to_owned(), format!("elementIndex{nesting}")] {
        inner
            .names
            .push((name, Err("the place of an element has no counterpart".to_owned())));
    }
    context::add_variables(&written["context"], &mut inner)?;
    let applies = conditions::judged(&written["preconditions"], &inner)
        .map_err(|refusal| refusal.within("preconditions"))?;
    if applies.may_fail {
        return conversion::of(
            "preconditions",
            "where they have an error Kyverno leaves the element out: end their queries with `|| ''`",
        );
    }
    let holds = match &written["foreach"] {
        Value::Null => of_element(written, &inner, &element)?,
        loops => of_loops(loops, &inner, nesting + 1)?,
    };
    let applies = match scope.is_typed {
        true => applies,
        false => Judged::sure(CelCondition::relation(format!("{element} != null"))).and(applies),
    };
    let condition = match holds.may_fail {
        true => applies
            .condition
            .choice(&holds.condition, &CelCondition::constant(true)),
        false => CelCondition::any([applies.condition.not(), holds.condition]),
    };
    scope.made.set(inner.made.get());
    Ok(Judged {
        condition: CelCondition::primary(format!("{}.all({element}, {condition})", list.elements(scope))),
        may_fail: holds.may_fail,
    })
}

/// A pattern is about an element that is a map, or else about the whole object.
fn of_element(written: &Value, scope: &Scope, element: &str) -> Result<Judged, Refusal> {
    if !written["deny"].is_null() {
        return asked(written, scope, element);
    }
    if written["elementScope"] == false {
        return conversion::of("elementScope", "a pattern about the whole object needs no loop");
    }
    let of_element = asked(written, scope, element)?;
    if scope.is_typed || written["elementScope"] == true {
        return Ok(of_element);
    }
    let is_scope = CelCondition::all([
        CelCondition::relation(format!("type({element}) == map")),
        CelCondition::relation(format!("{element} != {{}}")),
    ]);
    let of_object = asked(written, scope, &scope.object)?;
    Ok(Judged::sure(
        is_scope.choice(&of_element.condition, &of_object.condition),
    ))
}

/// What must hold of `object`.
fn asked(validate: &Value, scope: &Scope, object: &str) -> Result<Judged, Refusal> {
    if !validate["deny"].is_null() {
        let within = |refusal: Refusal| refusal.within("deny");
        conversion::unknown(&validate["deny"], &["conditions"]).map_err(within)?;
        let denied = conditions::judged(&validate["deny"]["conditions"], scope)
            .map_err(|refusal| within(refusal.within("conditions")))?;
        return Ok(denied.not());
    }
    if validate["pattern"].is_object() || validate["anyPattern"].is_array() {
        return Ok(Judged::sure(of_patterns(validate, object)?));
    }
    if validate["podSecurity"].is_object() {
        let checks = pod_security::checks(&validate["podSecurity"], object, scope)
            .map_err(|refusal| refusal.within("podSecurity"))?;
        return Ok(Judged::sure(CelCondition::all(
            checks.into_iter().map(|(passes, _)| passes),
        )));
    }
    Err(Refusal::here("it asks nothing of the object"))
}

/// Whether Kyverno takes each failure of a pattern for one, and not for an error.
pub(crate) fn fails_without_error(validate: &Value) -> bool {
    let mut loops = validate["foreach"].as_array().into_iter().flatten();
    if !loops.all(fails_without_error) {
        return false;
    }
    let (_, patterns) = patterns(validate);
    patterns
        .iter()
        .all(|pattern| pattern::fails_without_error(pattern))
}

fn patterns(validate: &Value) -> (&'static str, Vec<&Value>) {
    match &validate["pattern"] {
        pattern @ Value::Object(_) => ("pattern", vec![pattern]),
        _ => (
            "anyPattern",
            validate["anyPattern"].as_array().into_iter().flatten().collect(),
        ),
    }
}

/// `pattern` and `anyPattern`: what they do not fail.
fn of_patterns(validate: &Value, object: &str) -> Result<CelCondition, Refusal> {
    let (field, patterns) = patterns(validate);
    let mut passes = Vec::new();
    let mut does_not_fail = Vec::new();
    for (index, pattern) in patterns.iter().enumerate() {
        let outcome = pattern::outcome(pattern, object).map_err(|refusal| match field {
            "pattern" => refusal.within(field),
            _ => refusal.within_index(index).within(field),
        })?;
        passes.push(outcome.passes);
        does_not_fail.push(outcome.does_not_fail);
    }
    // Not one of them passes, and not one fails: then the rule does not apply.
    Ok(CelCondition::any(
        passes.into_iter().chain([CelCondition::all(does_not_fail)]),
    ))
}

/// `validate.cel`: what is a ValidatingAdmissionPolicy already. Kyverno fails a request whose
/// expressions have errors, whatever the `failurePolicy` of its webhook.
pub(crate) fn of_cel(validate: &Value) -> Result<Value, Refusal> {
    let cel = &validate["cel"];
    let known = [
        "expressions",
        "variables",
        "auditAnnotations",
        "paramKind",
        "paramRef",
        "generate",
    ];
    conversion::unknown(cel, &known).map_err(|refusal| refusal.within("cel"))?;
    refuse_plain_or_values(cel).map_err(|refusal| refusal.within("cel"))?;
    let mut spec = json!({"failurePolicy": "Fail"});
    for field in ["paramKind", "variables", "auditAnnotations"] {
        if !cel[field].is_null() {
            spec[field] = cel[field].clone();
        }
    }
    spec["validations"] = cel["expressions"].clone();
    let shared = on_one_line(validate["message"].as_str().unwrap_or_default());
    for validation in spec["validations"].as_array_mut().into_iter().flatten() {
        let own = on_one_line(validation["message"].as_str().unwrap_or_default());
        let message = if own.is_empty() { shared.clone() } else { own };
        if let Some(validation) = validation.as_object_mut() {
            validation.remove("message");
            if !message.is_empty() {
                validation.insert("message".to_owned(), message.into());
            }
        }
    }
    Ok(spec)
}

/// To Kyverno `.orValue()` of what is no optional value is the value itself.
fn refuse_plain_or_values(cel: &Value) -> Result<(), Refusal> {
    let mut optional = Vec::new();
    for list in ["variables", "expressions"] {
        for (index, item) in cel[list].as_array().into_iter().flatten().enumerate() {
            let text = item["expression"].as_str().unwrap_or_default();
            // What cannot be parsed is reported when it is compiled.
            let plain = plain_or_values(text, &optional).unwrap_or_default();
            if let Some((line, column)) = plain.first() {
                let reason = format!(
                    "{line}:{column}: `.orValue()` of what is no optional value is an error in Kubernetes: \
                     select with `.?` before it"
                );
                let refusal = Refusal::new("expression", reason);
                return Err(refusal.within_index(index).within(list));
            }
            if list == "variables" && is_optional(text, &optional) {
                optional.extend(item["name"].as_str().map(str::to_owned));
            }
        }
    }
    Ok(())
}
