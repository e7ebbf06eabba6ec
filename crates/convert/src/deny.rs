//! Converts AuthorizationPolicies that deny writes and connects to ValidatingAdmissionPolicies.
//!
//! Admission comes after authorization, does not see reads, and knows less about a request: neither
//! whether a write is an update or a patch, nor the HTTP method of a connect. A Deny that depends
//! on these cannot be converted and is refused. Each rule becomes one ValidatingAdmissionPolicy.
//!
//! | authorization | admission |
//! |---|---|
//! | `create` | CREATE, whose name is the object's own, where authorization knows none |
//! | `update` and `patch` | UPDATE |
//! | `delete` | DELETE with a name |
//! | `deletecollection` | DELETE without a name |
//! | `get` and `create` of `pods/exec`, … | CONNECT |

mod rule;
mod subjects;

use rule::{ConvertedOperation, NEW_NAMESPACE, RuleParts};
use serde_json::{Value, json};

use crate::conversion;
use crate::conversion::Conversion;
use portcullis_cel::{VariableUse, Version, variable_uses};
use portcullis_policy::authorization::{AuthorizationPolicy, Effect, FailurePolicy, Mode, NeverDeny};
use portcullis_policy::document::Document;
use portcullis_policy::field::FieldPath;
use portcullis_policy::manifest::ValidatedObject;

/// The most matchConditions of a ValidatingAdmissionPolicy.
const MAX_MATCH_CONDITIONS: usize = 64;

/// Converts the policy in `document`.
pub(crate) fn convert(document: &Document, never_deny: &NeverDeny) -> Conversion {
    let mut made = Conversion::default();
    let object = match ValidatedObject::read(document.clone(), "default".into(), Version::NEWEST) {
        Ok(object) => object,
        Err(faults) => {
            for fault in faults.iter() {
                made.refuse(document, &fault.place.path, fault.message.clone());
            }
            return made;
        }
    };
    let Some(policy) = object.authorization_policy() else {
        return made;
    };
    refuse_what_admission_has_not(document, policy, &mut made);
    let spec = FieldPath::root().field("spec");
    for index in 0..policy.resource_rules.len() {
        let path = spec.field("resourceRules").index(index);
        let mut parts = RuleParts::of(document, policy, index, &path, &mut made);
        parts.add_subjects(policy, never_deny);
        add(document, policy, &mut parts, &mut made);
        let name = match policy.resource_rules.len() {
            1 => policy.name.clone(),
            _ => format!("{}-{index}", policy.name),
        };
        if parts.conditions.len() > MAX_MATCH_CONDITIONS {
            let reason = format!(
                "it would need {} matchConditions, and a ValidatingAdmissionPolicy has {MAX_MATCH_CONDITIONS} at most",
                parts.conditions.len()
            );
            made.refuse(document, &spec.field("conditions"), reason);
        }
        made.objects.extend(policy_and_binding(&name, policy, &parts));
    }
    made.all_or_nothing()
}

/// Refuses an effect, times and paths that admission does not support.
fn refuse_what_admission_has_not(document: &Document, policy: &AuthorizationPolicy, made: &mut Conversion) {
    let spec = FieldPath::root().field("spec");
    if policy.effect == Effect::Allow && !policy.object_conditions.is_empty() {
        made.note(
            document,
            &spec.field("objectConditions"),
            "the converted policy grants nothing: grant the same by RBAC, which it limits for these subjects; \
             where several policies are about one request, it has to meet all of them, where one Allow was enough",
        );
    } else if policy.effect == Effect::Allow {
        made.refuse(
            document,
            &spec.field("effect"),
            "admission can refuse, and never grants: an Allow stays an AuthorizationPolicy, or becomes RBAC",
        );
    }
    if policy.effect == Effect::Limit {
        made.refuse(
            document,
            &spec.field("effect"),
            "a Limit also applies to reads and paths, which do not pass through admission: keep it as an \
            AuthorizationPolicy",
        );
    }
    for (field, is_there) in [
        ("notBefore", policy.validity.not_before.is_some()),
        ("notAfter", policy.validity.not_after.is_some()),
    ] {
        if is_there {
            let reason =
                "expressions of admission policies know no clock: apply and delete the object at these times";
            made.refuse(document, &spec.field(field), reason);
        }
    }
    if policy.liftable {
        let reason = "admission policies know no AccessRequest that lifts it: leave it out, or keep the AuthorizationPolicy";
        made.refuse(document, &spec.field("liftable"), reason);
    }
    for index in 0..policy.non_resource_rules.len() {
        let reason = "requests for paths do not pass through admission";
        made.refuse(document, &spec.field("nonResourceRules").index(index), reason);
    }
}

/// Refuses an AccessRequest, which is never converted.
pub(crate) fn refused_access_request(document: &Document) -> Conversion {
    let mut made = Conversion::default();
    let reason = "admission never grants, and bindings of RBAC have no end: an AccessRequest stays one";
    made.refuse(document, &FieldPath::root().field("spec"), reason);
    made
}

fn policy_and_binding(name: &str, policy: &AuthorizationPolicy, parts: &RuleParts) -> [Value; 2] {
    let failure_policy = match (policy.mode, policy.failure_policy) {
        // Neither a match nor an error of a policy in Shadow mode may deny a request.
        (Mode::Shadow, _) | (Mode::Enforce, FailurePolicy::NoOpinion) => "Ignore",
        (Mode::Enforce, FailurePolicy::Deny) => "Fail",
    };
    let action = match policy.mode {
        Mode::Enforce => "Deny",
        Mode::Shadow => "Audit",
    };
    let mut spec = json!({
        "failurePolicy": failure_policy,
        "matchConstraints": {"matchPolicy": "Exact", "resourceRules": parts.rules},
        "matchConditions": parts.conditions,
        "validations": [{
            "expression": parts.validation(policy),
            "message": message(policy),
            "reason": "Forbidden",
        }],
    });
    if let (Some(spec), false) = (spec.as_object_mut(), parts.variables.is_empty()) {
        spec.insert("variables".to_owned(), json!(parts.variables));
    }
    conversion::policy_and_binding(
        "ValidatingAdmissionPolicy",
        name,
        spec,
        json!({"validationActions": [action]}),
    )
}

/// The message for the denied user, in one line.
fn message(policy: &AuthorizationPolicy) -> String {
    let reason = policy.reason.split_whitespace().collect::<Vec<_>>().join(" ");
    let denied = match policy.effect {
        Effect::Allow => format!(
            "AuthorizationPolicy \"{}\" allows this only where its objectConditions hold",
            policy.name
        ),
        Effect::Deny | Effect::Limit => format!("denied by AuthorizationPolicy \"{}\"", policy.name),
    };
    match reason.as_str() {
        "" => denied,
        reason => format!("{denied}: {reason}"),
    }
}

// Converts conditions on a SubjectAccessReview to conditions on an admission request.

/// What replaces the use of a field of a SubjectAccessReview.
enum Replacement {
    /// An expression, and the number of fields in the path that it replaces.
    Value(String, usize),
    /// Nothing, for this reason.
    Unsupported(String),
}

/// Adds the conditions of `policy` to the parts of one rule.
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

/// The expression with the counterparts in an admission request.
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
        Replacement::Unsupported(reason) => Err(reason),
    }
}

/// Whether the field is present in every SubjectAccessReview for such a request; `None` if that
/// varies.
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
        ["nonResourceAttributes", ..] => {
            Replacement::Unsupported("requests for paths do not pass through admission".to_owned())
        }
        _ => Replacement::Unsupported("it uses `request` as a whole".to_owned()),
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
        // Authorization does not know the name of an object that is created.
        "name" => "(has(request.name) && (request.operation != 'CREATE' || has(request.subResource)) ? \
                   request.name : '')"
            .to_owned(),
        field => {
            return Replacement::Unsupported(format!(
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
            return Replacement::Unsupported(format!(
                "it asks for the verb, and admission cannot tell {what}"
            ));
        }
    }
    let verb =
        "(request.operation == 'CREATE' ? 'create' : has(request.name) ? 'delete' : 'deletecollection')";
    Replacement::Value(verb.to_owned(), 2)
}

#[cfg(test)]
mod tests;
