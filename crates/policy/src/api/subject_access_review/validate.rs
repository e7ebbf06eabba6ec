//! Validation of a SubjectAccessReview, as the API server does it; invalid selector
//! requirements are dropped.
//!
//! Fields, kinds and order follow `ValidateSubjectAccessReview`
//! (`kubernetes/pkg/apis/authorization/validation/validation.go`) and the selector
//! requirements of `apimachinery/pkg/apis/meta/v1/validation`. Operators of later
//! Kubernetes versions are accepted.

use std::borrow::Cow;

use super::wire::{MAX_ITEMS, Raw, RawSelector};
use crate::engine::{
    Operator, Requirement, is_label_key, is_label_value, label_key_faults, label_value_faults,
};
use crate::field::{Fault, FaultKind, Faults, FieldPath, Place};

/// Every fault, in the API server's order.
pub(crate) fn all(raw: &Raw<'_>) -> Faults {
    let mut faults = Faults::new();
    spec(raw, &mut faults);
    if let Some(resource) = &raw.spec.resource {
        let path = FieldPath::root().field("spec").field("resourceAttributes");
        selector(
            resource.field_selector.as_ref(),
            &path.field("fieldSelector"),
            field_requirement,
            &mut faults,
        );
        selector(
            resource.label_selector.as_ref(),
            &path.field("labelSelector"),
            label_requirement,
            &mut faults,
        );
    }
    metadata(raw, &mut faults);
    faults
}

/// The faults for which there is no answer: all but those of selectors.
pub(crate) fn refused(raw: &Raw<'_>) -> Faults {
    let mut faults = Faults::new();
    spec(raw, &mut faults);
    metadata(raw, &mut faults);
    faults
}

/// The requirements that the API server would accept, and the raw selector; beside
/// one, requirements do not count.
pub(crate) fn field_requirements<'a>(selector: RawSelector<'a>) -> (Vec<Requirement<'a>>, Cow<'a, str>) {
    accepted(selector, |requirement| !requirement.key.is_empty())
}

/// As [`field_requirements`], with the syntax of label keys and values.
pub(crate) fn label_requirements<'a>(selector: RawSelector<'a>) -> (Vec<Requirement<'a>>, Cow<'a, str>) {
    accepted(selector, |requirement| {
        is_label_key(&requirement.key) && requirement.values.iter().all(|value| is_label_value(value))
    })
}

fn accepted<'a>(
    selector: RawSelector<'a>,
    is_valid: impl Fn(&Requirement<'a>) -> bool,
) -> (Vec<Requirement<'a>>, Cow<'a, str>) {
    let RawSelector {
        raw,
        mut requirements,
    } = selector;
    if !raw.is_empty() {
        requirements.clear();
    }
    requirements.retain(|requirement| values_fault(requirement).is_none() && is_valid(requirement));
    (requirements, raw)
}

fn spec(raw: &Raw<'_>, faults: &mut Faults) {
    let mut refuse = |field: &str, kind: FaultKind, message: &str| {
        let path = FieldPath::root().field("spec").field(field);
        faults.push(fault(path, kind, message));
    };
    match (&raw.spec.resource, &raw.spec.non_resource) {
        (Some(_), Some(_)) => refuse(
            "nonResourceAttributes",
            FaultKind::Invalid,
            "cannot be specified in combination with resourceAttributes",
        ),
        (None, None) => refuse(
            "resourceAttributes",
            FaultKind::Invalid,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ),
        _ => {}
    }
    if raw.spec.user.is_empty() && raw.spec.groups.is_empty() {
        refuse(
            "user",
            FaultKind::Invalid,
            "at least one of user or group must be specified",
        );
    }
    if raw.too_many_items {
        let message = format!("groups and extra hold more than {MAX_ITEMS} items");
        refuse("groups", FaultKind::TooMany, &message);
    }
}

fn metadata(raw: &Raw<'_>, faults: &mut Faults) {
    if !raw.metadata.0.is_empty() {
        let message = format!("must be empty, but {} is set", raw.metadata.0.join(", "));
        faults.push(fault(
            FieldPath::root().field("metadata"),
            FaultKind::Invalid,
            &message,
        ));
    }
}

fn selector(
    selector: Option<&RawSelector<'_>>,
    path: &FieldPath,
    requirement: fn(&Requirement<'_>, &FieldPath, &mut Faults),
    faults: &mut Faults,
) {
    let Some(selector) = selector else { return };
    match (selector.raw.is_empty(), selector.requirements.is_empty()) {
        (false, false) => faults.push(fault(
            path.field("rawSelector"),
            FaultKind::Invalid,
            "may not be specified at the same time as requirements",
        )),
        (true, true) => faults.push(fault(
            path.field("requirements"),
            FaultKind::Required,
            &format!("when {path} is specified, requirements or rawSelector is required"),
        )),
        _ => {}
    }
    for (index, each) in selector.requirements.iter().enumerate() {
        requirement(each, &path.field("requirements").index(index), faults);
    }
}

fn field_requirement(requirement: &Requirement<'_>, path: &FieldPath, faults: &mut Faults) {
    if requirement.key.is_empty() {
        faults.push(fault(path.field("key"), FaultKind::Required, "must be specified"));
    }
    values(requirement, path, faults);
}

fn label_requirement(requirement: &Requirement<'_>, path: &FieldPath, faults: &mut Faults) {
    values(requirement, path, faults);
    for message in label_key_faults(&requirement.key) {
        faults.push(fault(path.field("key"), FaultKind::Invalid, message));
    }
    for (index, value) in requirement.values.iter().enumerate() {
        for message in label_value_faults(value) {
            faults.push(fault(
                path.field("values").index(index),
                FaultKind::Invalid,
                message,
            ));
        }
    }
}

fn values(requirement: &Requirement<'_>, path: &FieldPath, faults: &mut Faults) {
    if let Some((kind, message)) = values_fault(requirement) {
        faults.push(fault(path.field("values"), kind, message));
    }
}

/// Whether operator and number of values agree.
fn values_fault(requirement: &Requirement<'_>) -> Option<(FaultKind, &'static str)> {
    match (&requirement.operator, requirement.values.is_empty()) {
        (Operator::In | Operator::NotIn, true) => Some((
            FaultKind::Required,
            "must be specified when `operator` is 'In' or 'NotIn'",
        )),
        (Operator::Exists | Operator::DoesNotExist, false) => Some((
            FaultKind::Forbidden,
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        )),
        _ => None,
    }
}

fn fault(path: FieldPath, kind: FaultKind, message: &str) -> Fault {
    Fault::error(Place::default().at(path), kind, message)
}
