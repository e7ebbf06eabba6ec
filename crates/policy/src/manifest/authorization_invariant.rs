//! Validation of AuthorizationInvariant.

use super::authorization_policy::validate_requests;
use super::compile::CompiledParts;
use super::report::Report;
use super::v1alpha1::{AuthorizationInvariant, AuthorizationPolicy, InvariantSpec, Spec, Subject};
use super::{compile, names};
use crate::authorization::{self, Enforcement};
use crate::field::{FaultKind, FieldPath};
use crate::model::Validity;

/// The longest reason, in bytes. It is part of each denial.
const MAX_REASON_BYTES: usize = 1024;

/// Validates and compiles the invariant. Errors are added to `report`, and then there is no
/// invariant.
pub(crate) fn read(
    written: AuthorizationInvariant,
    report: &mut Report<'_>,
) -> Option<authorization::AuthorizationInvariant> {
    names::validate_cluster_scoped(&written.metadata, report);
    let path = FieldPath::root().field("spec");
    let enforcement = enforcement(&written.spec, &path.field("enforcement"), report);
    if written.spec.only.is_none() {
        let message = "the only subjects that may do this; `[]` is nobody, except system:masters and the \
            subjects of `neverDeny`";
        report.required(&path.field("only"), message);
    }
    if written.spec.reason.len() > MAX_REASON_BYTES {
        let message = format!("{} bytes: at most {MAX_REASON_BYTES}", written.spec.reason.len());
        report.fault(FaultKind::TooLong, &path.field("reason"), message);
    }
    let rules = written.spec.resource_rules.iter();
    for (index, rule) in rules.enumerate() {
        let path = path.field("resourceRules").index(index);
        for (field, selectors) in [
            ("selectors", &rule.selectors),
            ("unlessSelectors", &rule.unless_selectors),
        ] {
            if !selectors.is_empty() {
                let message = "an invariant covers requests with any selectors: remove it";
                report.forbidden(&path.field(field), message);
            }
        }
    }
    if !report.is_valid() {
        return None;
    }
    let forbidden = forbidden(written);
    validate_requests(&forbidden.spec, "only", &path, report);
    if !report.is_valid() {
        return None;
    }
    let nothing = CompiledParts {
        conditions: Vec::new(),
        object_conditions: Vec::new(),
        validity: Validity::default(),
    };
    Some(authorization::AuthorizationInvariant {
        forbidden: compile::policy(forbidden, nothing, report)?,
        enforcement: enforcement?,
    })
}

fn enforcement(spec: &InvariantSpec, path: &FieldPath, report: &mut Report<'_>) -> Option<Enforcement> {
    report.required_one_of(path, &spec.enforcement, &["Refuse", "Warn"]);
    match spec.enforcement.as_str() {
        "Refuse" => Some(Enforcement::Refuse),
        "Warn" => Some(Enforcement::Warn),
        _ => None,
    }
}

/// The Deny that matches the requests that must not be allowed.
fn forbidden(written: AuthorizationInvariant) -> AuthorizationPolicy {
    let spec = written.spec;
    let everybody = Subject {
        kind: "Group".to_owned(),
        name: "*".to_owned(),
        ..Subject::default()
    };
    AuthorizationPolicy::new(
        written.metadata,
        Spec {
            effect: "Deny".to_owned(),
            subjects: match spec.subjects.is_empty() {
                true => vec![everybody],
                false => spec.subjects,
            },
            exclude_subjects: spec.only.unwrap_or_default(),
            resource_rules: spec.resource_rules,
            non_resource_rules: spec.non_resource_rules,
            reason: spec.reason,
            ..Spec::default()
        },
    )
}
