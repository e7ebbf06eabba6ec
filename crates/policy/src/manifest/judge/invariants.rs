//! Whether a write breaks an AuthorizationInvariant, or an AuthorizationInvariant is broken when it is
//! written.

use super::super::validated::Content;
use crate::authorization::proof::{InvariantProof, InvariantStatus, UnknownRoles, WorkLimit};
use crate::authorization::{AuthorizationInvariant, Enforcement, MASTERS, ObjectWrite, PolicySet};
use crate::engine::admission::{Judgement, Operation, Request};
use crate::engine::{Deadline, Time, groups};

/// The resources of RBAC, each of which may grant.
const RBAC_RESOURCES: [&str; 4] = ["roles", "clusterroles", "rolebindings", "clusterrolebindings"];
/// The group of controllers, such as that of aggregated ClusterRoles: what they write follows from
/// what others wrote, whom this judged.
const CONTROLLERS: &str = "system:serviceaccounts:kube-system";
/// The most parts into which the requests that a write affects may fall.
const MAX_PARTS: usize = 20_000;

/// Whether `request` may break an invariant of `set`.
pub(super) fn are_concerned(set: &PolicySet, request: &Request<'_>) -> bool {
    set.invariants().len() > 0
        && (is_rbac_write(request) || is_policy_write(request))
        && !is_exempt(set, request)
}

/// A Role, ClusterRole, RoleBinding or ClusterRoleBinding that is created or changed. Nobody is allowed
/// more once one is deleted.
pub(super) fn is_rbac_write(request: &Request<'_>) -> bool {
    let resource = &request.resource;
    resource.group == groups::RBAC
        && RBAC_RESOURCES.contains(&resource.resource.as_ref())
        && request.subresource.is_empty()
        && matches!(request.operation, Operation::Create | Operation::Update)
}

fn is_policy_write(request: &Request<'_>) -> bool {
    let resource = &request.resource;
    resource.group == groups::PORTCULLIS
        && resource.resource == "authorizationpolicies"
        && request.subresource.is_empty()
        && request.operation != Operation::Connect
}

/// Whoever could not be held back, or must not be: no administrator is locked out by an invariant.
fn is_exempt(set: &PolicySet, request: &Request<'_>) -> bool {
    let user = &request.user;
    let is_member = |group: &str| user.groups.iter().any(|of| of == group);
    is_member(MASTERS) || is_member(CONTROLLERS) || set.protects(user)
}

/// What is written, or deleted without `content`.
pub(super) fn write(request: &Request<'_>, content: Option<&Content>) -> Option<ObjectWrite> {
    match content {
        Some(Content::Role(role)) => Some(ObjectWrite::Role(role.clone())),
        Some(Content::Binding(binding)) => Some(ObjectWrite::Binding(binding.clone())),
        Some(Content::Policy(policy)) => Some(ObjectWrite::Policy(policy.clone())),
        None if request.operation == Operation::Delete => {
            Some(ObjectWrite::DeletedPolicy(request.name.to_string()))
        }
        _ => None,
    }
}

/// Adds what `write` newly breaks of the invariants of `set`.
pub(super) fn judge(
    set: &PolicySet,
    write: &ObjectWrite,
    (now, deadline): (Time, Deadline<'_>),
    judgement: &mut Judgement,
) {
    let limit = WorkLimit {
        parts: MAX_PARTS,
        deadline,
    };
    let Some(after) = set.after_write(write) else {
        return;
    };
    let proof = InvariantProof::of_change(set, &after, now, limit);
    for invariant in after.invariants() {
        let status = match &proof {
            Ok(proof) => proof.status(invariant, UnknownRoles::Undecided),
            Err(error) => InvariantStatus::Unproven(*error),
        };
        let is_refused = invariant.enforcement == Enforcement::Refuse
            && matches!(status, InvariantStatus::Broken(_) | InvariantStatus::Unproven(_));
        match says(invariant, &status) {
            Some(text) if is_refused => judgement.forbidden.push(text),
            Some(text) => judgement.warnings.push(text),
            None => {}
        }
    }
}

/// Warns where `invariant`, which is being written, is broken already: it is stored all the same.
pub(super) fn judge_new(
    set: &PolicySet,
    invariant: &std::sync::Arc<AuthorizationInvariant>,
    (now, deadline): (Time, Deadline<'_>),
    judgement: &mut Judgement,
) {
    let limit = WorkLimit {
        parts: MAX_PARTS,
        deadline,
    };
    let Some(after) = set.after_write(&ObjectWrite::Invariant(invariant.clone())) else {
        return;
    };
    let status = match InvariantProof::of_set(&after, now, limit) {
        Ok(proof) => proof.status(invariant, UnknownRoles::Undecided),
        Err(error) => InvariantStatus::Unproven(error),
    };
    judgement.warnings.extend(says(invariant, &status));
}

/// `AuthorizationInvariant/NAME: broken by …: REASON`; nothing where it holds.
fn says(invariant: &AuthorizationInvariant, status: &InvariantStatus) -> Option<String> {
    let what = match status {
        InvariantStatus::Holds => return None,
        InvariantStatus::Broken(breaches) => breaches.first()?.to_string(),
        InvariantStatus::Undecided(unknown) => format!("not decided: {unknown}"),
        InvariantStatus::Unproven(limit) => format!("not decided: {limit}"),
    };
    let reason = match invariant.forbidden.reason.as_str() {
        "" => String::new(),
        reason => format!(" ({reason})"),
    };
    Some(format!(
        "AuthorizationInvariant/{}: {what}{reason}",
        invariant.name()
    ))
}
