//! Conditions on a SubjectAccessReview as conditions on the request that admission sees.

use super::operations::ConvertedOperation;
use super::rule::{NEW_NAMESPACE, RuleParts};
use crate::conversion::Conversion;
use portcullis_cel::{VariableUse, variable_uses};
use portcullis_policy::authorization::AuthorizationPolicy;
use portcullis_policy::document::Document;
use portcullis_policy::field::FieldPath;

/// What stands for some fields of a review.
enum Replacement {
    /// This expression, for so many fields.
    Value(String, usize),
    /// Nothing does.
    None(String),
}

/// Adds the conditions of `policy`, to hold for the requests of one rule.
pub(crate) fn add(
    document: &Document,
    policy: &AuthorizationPolicy,
    parts: &mut RuleParts,
    made: &mut Conversion,
) {
    let path = FieldPath::root().field("spec").field("conditions");
    for (index, condition) in policy.conditions.iter().enumerate() {
        match rewritten(condition.expression(), parts) {
            Ok(expression) => parts.own_condition(condition.name(), &expression),
            Err(reason) => made.refuse(document, &path.index(index).field("expression"), reason),
        }
    }
}

/// The expression with what admission calls the same things.
fn rewritten(expression: &str, parts: &RuleParts) -> Result<String, String> {
    let uses = variable_uses(expression, "request").map_err(|error| error.to_string())?;
    let mut text = String::with_capacity(expression.len() * 2);
    let mut end = 0;
    for found in uses {
        text.push_str(expression.get(end..found.range.start).unwrap_or_default());
        text.push_str(&replaced(&found, parts)?);
        end = found.range.end;
    }
    text.push_str(expression.get(end..).unwrap_or_default());
    Ok(text)
}

fn replaced(found: &VariableUse, parts: &RuleParts) -> Result<String, String> {
    let fields: Vec<&str> = found.fields.iter().map(String::as_str).collect();
    if found.is_presence_test
        && let Some(is_present) = is_present(&fields, parts)
    {
        return Ok(is_present.to_string());
    }
    match value(&fields, parts) {
        Replacement::Value(value, used) => {
            let rest: String = fields
                .iter()
                .skip(used)
                .map(|field| format!(".{field}"))
                .collect();
            Ok(match found.is_presence_test {
                true => format!("has({value}{rest})"),
                false => format!("{value}{rest}"),
            })
        }
        Replacement::None(reason) => Err(reason),
    }
}

/// Whether a field is there in every review about such a request; none where that depends.
fn is_present(fields: &[&str], parts: &RuleParts) -> Option<bool> {
    match fields {
        ["user" | "uid" | "groups" | "extra" | "resourceAttributes"]
        | [
            "resourceAttributes",
            "verb" | "namespace" | "group" | "version" | "resource" | "subresource" | "name",
        ] => Some(true),
        ["nonResourceAttributes"] => Some(false),
        ["resourceAttributes", "fieldSelector" | "labelSelector"] if !parts.deletes_collections => {
            Some(false)
        }
        _ => None,
    }
}

fn value(fields: &[&str], parts: &RuleParts) -> Replacement {
    let or = |field: &str, otherwise: &str| format!("(has({field}) ? {field} : {otherwise})");
    match fields {
        ["user", ..] => Replacement::Value("request.userInfo.username".to_owned(), 1),
        ["uid", ..] => Replacement::Value(or("request.userInfo.uid", "''"), 1),
        ["groups", ..] => Replacement::Value(or("request.userInfo.groups", "[]"), 1),
        ["extra", ..] => Replacement::Value(or("request.userInfo.extra", "{}"), 1),
        ["resourceAttributes", field, ..] => attribute(field, parts),
        ["nonResourceAttributes", ..] => Replacement::None("requests for paths pass no admission".to_owned()),
        _ => Replacement::None("it uses `request` as a whole".to_owned()),
    }
}

fn attribute(field: &str, parts: &RuleParts) -> Replacement {
    let value = match field {
        "verb" => return verb(parts),
        "namespace" if parts.makes_namespaces => {
            format!("(has(request.namespace) && !{NEW_NAMESPACE} ? request.namespace : '')")
        }
        "namespace" => "(has(request.namespace) ? request.namespace : '')".to_owned(),
        "group" => "request.resource.group".to_owned(),
        "version" => "request.resource.version".to_owned(),
        "resource" => "request.resource.resource".to_owned(),
        "subresource" => "(has(request.subResource) ? request.subResource : '')".to_owned(),
        // Authorization knows no name of what is to be made.
        "name" => "(has(request.name) && (request.operation != 'CREATE' || has(request.subResource)) ? \
                   request.name : '')"
            .to_owned(),
        field => {
            return Replacement::None(format!(
                "admission does not see `request.resourceAttributes.{field}`"
            ));
        }
    };
    Replacement::Value(value, 2)
}

fn verb(parts: &RuleParts) -> Replacement {
    for (operation, what) in [
        (ConvertedOperation::Update, "an update from a patch"),
        (ConvertedOperation::Connect, "by which verb somebody connects"),
    ] {
        if parts.operations.contains(&operation) {
            return Replacement::None(format!("it asks for the verb, and admission cannot tell {what}"));
        }
    }
    let verb =
        "(request.operation == 'CREATE' ? 'create' : has(request.name) ? 'delete' : 'deletecollection')";
    Replacement::Value(verb.to_owned(), 2)
}
