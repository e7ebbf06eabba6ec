//! An AuthorizationPolicy that denies writes and connects, as ValidatingAdmissionPolicies.
//!
//! Admission comes after authorization, sees no reads, and sees less of a request: not whether a
//! write was an update or a patch, nor by which method a user connected. What a Deny says of these
//! cannot be kept, so that policy is refused. One ValidatingAdmissionPolicy is made for each rule.
//!
//! | authorization | admission |
//! |---|---|
//! | `create` | CREATE, whose name is the object's own, where authorization knows none |
//! | `update` and `patch` | UPDATE |
//! | `delete` | DELETE with a name |
//! | `deletecollection` | DELETE without a name |
//! | `get` and `create` of `pods/exec`, … | CONNECT |

mod operations;
mod rule;

use operations::ConvertedOperation;
use rule::{NEW_NAMESPACE, RuleParts};
use serde_json::{Value, json};

use crate::conversion;
use crate::conversion::Conversion;
use portcullis_cel::{VariableUse, Version, variable_uses};
use portcullis_policy::authorization::{
    AuthorizationPolicy, Effect, FailurePolicy, Mode, NeverDeny, ServiceAccount, Subject, SubjectKind,
};
use portcullis_policy::document::Document;
use portcullis_policy::field::FieldPath;
use portcullis_policy::manifest::ValidatedObject;

/// The most matchConditions that a ValidatingAdmissionPolicy may have.
const MOST_CONDITIONS: usize = 64;

/// Converts the policy that `document` is.
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
        if parts.conditions.len() > MOST_CONDITIONS {
            let reason = format!(
                "it would need {} matchConditions, and a ValidatingAdmissionPolicy has {MOST_CONDITIONS} at most",
                parts.conditions.len()
            );
            made.refuse(document, &spec.field("conditions"), reason);
        }
        made.objects.extend(policy_and_binding(&name, policy, &parts));
    }
    made.whole()
}

/// Effect, times and paths.
fn refuse_what_admission_has_not(document: &Document, policy: &AuthorizationPolicy, made: &mut Conversion) {
    let spec = FieldPath::root().field("spec");
    if policy.effect == Effect::Allow {
        made.refuse(
            document,
            &spec.field("effect"),
            "admission can refuse, and never grants: an Allow stays an AuthorizationPolicy, or becomes RBAC",
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
    for index in 0..policy.non_resource_rules.len() {
        let reason = "requests for paths pass no admission";
        made.refuse(document, &spec.field("nonResourceRules").index(index), reason);
    }
}

fn policy_and_binding(name: &str, policy: &AuthorizationPolicy, parts: &RuleParts) -> [Value; 2] {
    let failure_policy = match (policy.mode, policy.failure_policy) {
        // What Shadow finds must never refuse, and neither must its errors.
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
            "expression": parts.validation(),
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

/// What the person refused is told; a message has one line.
fn message(policy: &AuthorizationPolicy) -> String {
    let reason = policy.reason.split_whitespace().collect::<Vec<_>>().join(" ");
    let denied = format!("denied by AuthorizationPolicy \"{}\"", policy.name);
    match reason.as_str() {
        "" => denied,
        reason => format!("{denied}: {reason}"),
    }
}

// Subjects as conditions on `request.userInfo`.

const USER: &str = "request.userInfo.username";

/// A group whose members must also be called so, for `neverDeny`.
const NODES: &str = "system:nodes";

/// That the user is one of `policy.subjects`; none where that is everybody.
pub(crate) fn among(subjects: &[Subject]) -> Option<String> {
    let is_everybody = |subject: &Subject| subject.kind != SubjectKind::ServiceAccount && subject.name == "*";
    (!subjects.iter().any(is_everybody)).then(|| any(&alternatives(subjects)))
}

/// That the user is none of `subjects`.
pub(crate) fn outside(subjects: &[Subject]) -> Option<String> {
    match among(subjects) {
        _ if subjects.is_empty() => None,
        Some(among) => Some(format!("!({among})")),
        None => Some("false".to_owned()),
    }
}

/// That the user is nobody whom no Deny reaches: the API server does not ask about
/// `system:masters`, and `neverDeny` protects the rest.
pub(crate) fn exempt(policy: &AuthorizationPolicy, never_deny: &NeverDeny) -> String {
    let mut groups: Vec<&str> = vec!["system:masters"];
    let mut nodes = None;
    let mut users: Vec<String> = Vec::new();
    if may_be_protected(policy, never_deny) {
        for group in &never_deny.groups {
            match group.as_str() {
                NODES => {
                    let member = group_condition(&is_one_of("group", &[NODES]));
                    nodes = Some(format!("{USER}.startsWith('system:node:') && {member}"));
                }
                group => groups.push(group),
            }
        }
        users.extend(never_deny.users.iter().cloned());
        users.extend(never_deny.service_accounts.iter().map(ServiceAccount::user_name));
    }
    let users: Vec<&str> = users.iter().map(String::as_str).collect();
    let mut alternatives = vec![group_condition(&is_one_of("group", &groups))];
    alternatives.extend(nodes);
    if !users.is_empty() {
        alternatives.push(is_one_of(USER, &users));
    }
    format!("!({})", any(&alternatives))
}

/// Whether somebody to whom the policy applies may be one of `never_deny`: not where it names users
/// one by one, and none of these.
fn may_be_protected(policy: &AuthorizationPolicy, never_deny: &NeverDeny) -> bool {
    let only_nodes = never_deny.groups.iter().all(|group| group == NODES);
    let is_named = |subject: &Subject| match subject.kind {
        SubjectKind::ServiceAccount => true,
        SubjectKind::User => !subject.name.ends_with('*') && !subject.name.starts_with("system:node:"),
        SubjectKind::Group => false,
    };
    let is_clear = |subject: &Subject| is_named(subject) && !never_deny.covers_subject(subject);
    !(only_nodes && policy.subjects.iter().all(is_clear))
}

/// One condition for exact users, one for exact groups, one for each prefix.
fn alternatives(subjects: &[Subject]) -> Vec<String> {
    let (mut users, mut groups) = (Vec::new(), Vec::new());
    let (mut user_prefixes, mut group_prefixes) = (Vec::new(), Vec::new());
    for subject in subjects {
        match (subject.kind, subject.name.strip_suffix('*')) {
            (SubjectKind::ServiceAccount, _) => {
                users.push(ServiceAccount::new(&subject.namespace, &subject.name).user_name());
            }
            (SubjectKind::User, None) => users.push(subject.name.clone()),
            (SubjectKind::User, Some(prefix)) => user_prefixes.push(prefix),
            (SubjectKind::Group, None) => groups.push(subject.name.as_str()),
            (SubjectKind::Group, Some(prefix)) => group_prefixes.push(prefix),
        }
    }
    let users: Vec<&str> = users.iter().map(String::as_str).collect();
    let mut alternatives = Vec::new();
    if !users.is_empty() {
        alternatives.push(is_one_of(USER, &users));
    }
    alternatives.extend(user_prefixes.iter().map(|prefix| starts_with(USER, prefix)));
    let mut of_group = Vec::new();
    if !groups.is_empty() {
        of_group.push(is_one_of("group", &groups));
    }
    of_group.extend(group_prefixes.iter().map(|prefix| starts_with("group", prefix)));
    if !of_group.is_empty() {
        alternatives.push(group_condition(&any(&of_group)));
    }
    alternatives
}

fn starts_with(value: &str, prefix: &str) -> String {
    format!("{value}.startsWith({})", text(prefix))
}

/// That a group of the user meets `condition`.
fn group_condition(condition: &str) -> String {
    format!("has(request.userInfo.groups) && request.userInfo.groups.exists(group, {condition})")
}

// Pieces of CEL, as text.

/// A text as CEL writes it: in single quotes where that needs no escapes.
pub(crate) fn text(value: &str) -> String {
    let mut quoted = String::with_capacity(value.len() + 2);
    quoted.push('\'');
    for character in value.chars() {
        match character {
            '\'' => quoted.push_str("\\'"),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            character if character.is_control() => {
                quoted.push_str(&format!("\\U{:08x}", u32::from(character)));
            }
            character => quoted.push(character),
        }
    }
    quoted.push('\'');
    quoted
}

/// A list of texts.
pub(crate) fn texts<'t>(values: impl IntoIterator<Item = &'t str>) -> String {
    let values: Vec<String> = values.into_iter().map(text).collect();
    format!("[{}]", values.join(", "))
}

/// `value` is one of `values`: `value == 'a'`, `value in ['a', 'b']`.
pub(crate) fn is_one_of(value: &str, values: &[&str]) -> String {
    match values {
        [one] => format!("{value} == {}", text(one)),
        several => format!("{value} in {}", texts(several.iter().copied())),
    }
}

/// Any of them holds. Each is without `||` and `? :` outside of brackets.
pub(crate) fn any(alternatives: &[String]) -> String {
    match alternatives {
        [] => "false".to_owned(),
        several => several.join(" || "),
    }
}

/// The same, to stand within another expression.
pub(crate) fn bracketed(expression: &str) -> String {
    format!("({expression})")
}

// Conditions on a SubjectAccessReview as conditions on the request that admission sees.

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

#[cfg(test)]
mod tests;
