//! Expressions that mean something else to Kyverno, though both compile them.

#![expect(
    clippy::indexing_slicing,
    reason = "what a JSON value has not is null when it is read, and only objects are written to"
)]

use serde_json::Value;

use super::{KyvernoPolicy, WrittenOperations, spec_path};
use portcullis_cel::{VariableUse, plain_or_values, variable_uses};
use portcullis_policy::field::FieldPath;

/// Lists of objects with expressions: the list, and the fields.
const EXPRESSIONS: [(&str, &[&str]); 5] = [
    ("matchConditions", &["expression"]),
    ("variables", &["expression"]),
    ("validations", &["expression", "messageExpression"]),
    ("auditAnnotations", &["valueExpression"]),
    ("mutations", &[]),
];

/// Makes every expression of `policy` mean to Kubernetes what it means to Kyverno, or refuses it.
///
/// - Where there is no object, Kyverno has an empty one, and Kubernetes has null.
/// - To Kyverno `.orValue()` of what is no optional is the value itself; later versions of
///   Kubernetes have an error.
/// - Of a request for a Namespace, Kyverno has the `namespaceObject`, and Kubernetes has null.
pub(crate) fn adapt(policy: &mut KyvernoPolicy<'_>) {
    let operations = policy.operations();
    let matches_namespaces = policy.matches_namespaces();
    let mut optional = Vec::new();
    for (list, fields) in EXPRESSIONS {
        let count = policy.spec[list].as_array().map_or(0, Vec::len);
        for index in 0..count {
            let path = spec_path(&[list]).index(index);
            for (steps, path) in places(&policy.spec[list][index], list, fields, &path) {
                let Some(text) = at(&policy.spec[list][index], &steps).as_str().map(str::to_owned) else {
                    continue;
                };
                match adapted(&text, operations, matches_namespaces, &optional) {
                    Ok(adapted) => {
                        let pointer = format!("/{list}/{index}/{}", steps.join("/"));
                        if let Some(text) = policy.spec.pointer_mut(&pointer) {
                            *text = adapted.into();
                        }
                    }
                    Err(reason) => policy.made.refuse(policy.document, &path, reason),
                }
                if list == "variables"
                    && is_optional(&text, &optional)
                    && let Some(name) = policy.spec[list][index]["name"].as_str()
                {
                    optional.push(name.to_owned());
                }
            }
        }
    }
}

/// Where the expressions of one item stand.
fn places(item: &Value, list: &str, fields: &[&str], path: &FieldPath) -> Vec<(Vec<String>, FieldPath)> {
    let fields = fields
        .iter()
        .map(|field| (vec![(*field).to_owned()], path.field(field)));
    if list != "mutations" {
        return fields.collect();
    }
    ["applyConfiguration", "jsonPatch"]
        .into_iter()
        .filter(|kind| item[kind].is_object())
        .map(|kind| {
            let steps = vec![kind.to_owned(), "expression".to_owned()];
            (steps, path.field(kind).field("expression"))
        })
        .collect()
}

fn at<'v>(item: &'v Value, steps: &[String]) -> &'v Value {
    steps.iter().fold(item, |value, step| &value[step.as_str()])
}

fn adapted(
    text: &str,
    operations: WrittenOperations,
    matches_namespaces: bool,
    optional: &[String],
) -> Result<String, String> {
    // What cannot be parsed is told when it is compiled.
    let Ok(plain) = plain_or_values(text, optional) else {
        return Ok(text.to_owned());
    };
    if let Some((line, column)) = plain.first() {
        return Err(format!(
            "{line}:{column}: `.orValue()` of what is no optional value is an error in Kubernetes: select with `.?` before it"
        ));
    }
    let uses = |variable: &str| variable_uses(text, variable).map_err(|error| error.to_string());
    if matches_namespaces && !uses("namespaceObject")?.is_empty() {
        return Err(
            "of a Namespace itself `namespaceObject` is null in Kubernetes, and the Namespace in Kyverno"
                .to_owned(),
        );
    }
    let mut found: Vec<(&str, VariableUse)> = Vec::new();
    for (variable, is_absent) in [("object", operations.deletes), ("oldObject", operations.creates)] {
        if is_absent {
            let uses = uses(variable)?.into_iter();
            found.extend(
                uses.filter(|one| one.is_presence_test || one.fields.is_empty())
                    .map(|one| (variable, one)),
            );
        }
    }
    found.sort_by_key(|(_, one)| one.range.start);
    let mut adapted = String::with_capacity(text.len() * 2);
    let mut end = 0;
    for (variable, one) in found {
        adapted.push_str(text.get(end..one.range.start).unwrap_or_default());
        let fields: String = one.fields.iter().map(|field| format!(".{field}")).collect();
        let value = format!("({variable} == null ? dyn({{}}) : {variable}){fields}");
        adapted.push_str(&match one.is_presence_test {
            true => format!("has({value})"),
            false => value,
        });
        end = one.range.end;
    }
    adapted.push_str(text.get(end..).unwrap_or_default());
    Ok(adapted)
}

/// Whether the value of `text` is an optional one.
fn is_optional(text: &str, optional: &[String]) -> bool {
    let asked = format!("({text}\n).orValue(0)");
    plain_or_values(&asked, optional).is_ok_and(|plain| plain.is_empty())
}
