//! `context`: the variables of a rule or a loop, and ConfigMaps as parameters.

use serde_json::{Value, json};

use super::fields::{self, Part};
use super::scope::{Scope, Term};
use super::{conditions, jmespath};
use crate::conversion;
use crate::conversion::Refusal;

/// Adds the variables of `context` to the names of `scope`. Each may refer to those before it.
pub(crate) fn add_variables(context: &Value, scope: &mut Scope) -> Result<(), Refusal> {
    for (index, entry) in context.as_array().into_iter().flatten().enumerate() {
        let name = entry["name"].as_str().unwrap_or_default();
        let term = variable(entry, scope).map_err(|refusal| refusal.within_index(index).within("context"))?;
        scope.names.push((name.to_owned(), Ok(term)));
    }
    Ok(())
}

fn variable(entry: &Value, scope: &Scope) -> Result<Term, Refusal> {
    fields::check(Part::Context, entry)?;
    if entry["configMap"].is_object() {
        return Ok(Term::parameter());
    }
    let written = &entry["variable"];
    let within = |refusal: Refusal| refusal.within("variable");
    conversion::unknown(written, &["value", "jmesPath", "default"]).map_err(within)?;
    let query = match written["jmesPath"].as_str().filter(|query| !query.is_empty()) {
        Some(query) if query.contains("{{") => {
            return Err(within(Refusal::new(
                "jmesPath",
                "a variable within a query has no counterpart: write one query",
            )));
        }
        Some(query) => {
            let node = jmespath::parse(query).map_err(|reason| within(Refusal::new("jmesPath", reason)))?;
            Some(node)
        }
        None => None,
    };
    let operand =
        |field: &str| conditions::operand(&written[field], scope).map_err(|refusal| refusal.within(field));
    let of_query = |refusal: Refusal| within(refusal.within("jmesPath"));
    let value = match (&written["value"], query) {
        (Value::Null, None) => Term::constant(&Value::Null),
        (Value::Null, Some(node)) => scope.term(&node).map_err(of_query)?,
        (_, None) => operand("value").map_err(within)?,
        (_, Some(node)) => {
            let base = operand("value").map_err(within)?;
            scope.of_term(&node, &base).map_err(of_query)?
        }
    };
    let default = match &written["default"] {
        Value::Null => None,
        _ => Some(operand("default").map_err(within)?),
    };
    if default.is_some() && value.is_fallible {
        return Err(within(Refusal::new(
            "jmesPath",
            "where it has an error Kyverno takes the default, and CEL ends with the error: let it have none",
        )));
    }
    Ok(value.or_default(default.as_ref(), scope))
}

/// The ConfigMap that a rule refers to, as `paramKind` of its policy and `paramRef` of its binding.
pub(crate) fn parameter(rule: &Value, namespace: Option<&str>) -> Result<Option<[Value; 2]>, Refusal> {
    let mut found = None;
    for (index, entry) in rule["context"].as_array().into_iter().flatten().enumerate() {
        let map = &entry["configMap"];
        if map.is_null() {
            continue;
        }
        let refused = |field: &str, reason: &str| {
            let refusal = Refusal::new(field, reason).within("configMap");
            Err(refusal.within_index(index).within("context"))
        };
        let name = map["name"].as_str().unwrap_or_default();
        let own = map["namespace"].as_str().filter(|own| !own.is_empty());
        let own = own.or(namespace).unwrap_or("default");
        if name.contains("{{") || own.contains("{{") {
            return refused("name", "which ConfigMap it is must not depend on the request");
        }
        if found.is_some() {
            return refused(
                "name",
                "an admission policy has one parameter: put all into one ConfigMap",
            );
        }
        if namespace.is_some_and(|namespace| namespace != own) {
            return refused(
                "namespace",
                "a Policy reads ConfigMaps of its own namespace alone",
            );
        }
        found = Some([
            json!({"apiVersion": "v1", "kind": "ConfigMap"}),
            json!({"name": name, "namespace": own, "parameterNotFoundAction": "Deny"}),
        ]);
    }
    Ok(found)
}
