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

mod conditions;
mod expressions;
mod operations;
mod rule;
mod subjects;

use serde_json::{Value, json};

use super::conversion::{self, Conversion};
use portcullis_cel::Version;
use portcullis_policy::authorization::{AuthorizationPolicy, Effect, FailurePolicy, Mode, NeverDeny};
use portcullis_policy::document::Document;
use portcullis_policy::field::FieldPath;
use portcullis_policy::manifest::ValidatedObject;
use rule::RuleParts;

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
        conditions::add(document, policy, &mut parts, &mut made);
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

#[cfg(test)]
mod tests;
