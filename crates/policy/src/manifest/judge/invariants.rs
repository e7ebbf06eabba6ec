//! Whether a write breaks an AuthorizationInvariant, or an AuthorizationInvariant is broken when it is
//! written.

use std::borrow::Cow;
use std::sync::Arc;

use super::super::default_roles::default_roles;
use super::super::validated::Content;
use crate::authorization::proof::{InvariantProof, InvariantStatus, UnknownRoles, WorkLimit};
use crate::authorization::{AuthorizationInvariant, Enforcement, MASTERS, ObjectWrite, PolicySet, Role};
use crate::engine::admission::{Judgement, Operation, Request};
use crate::engine::{Deadline, Time, groups};

/// The resources of RBAC, each of which may grant.
const RBAC_RESOURCES: [&str; 4] = ["roles", "clusterroles", "rolebindings", "clusterrolebindings"];
/// The group of controllers, such as that of aggregated ClusterRoles: what they write follows from
/// what others wrote, whom this judged.
const CONTROLLERS: &str = "system:serviceaccounts:kube-system";
/// The most parts into which the requests that a write affects may fall, on each thread that judges.
const MAX_PARTS: usize = 10_000;
/// What is said where it cannot be told what a write changes.
const NOT_SAID: &str = "an AuthorizationInvariant is in force, and this review does not say what is written";

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

/// Users who cannot or must not be held back: no administrator is locked out by an invariant.
/// A controller's deletion of a policy is judged nevertheless, because a user who writes an owner
/// reference has the garbage collector delete.
fn is_exempt(set: &PolicySet, request: &Request<'_>) -> bool {
    let user = &request.user;
    let is_member = |group: &str| user.groups.iter().any(|of| of == group);
    is_member(MASTERS)
        || match is_member(CONTROLLERS) {
            true => !takes_policy_away(request),
            false => set.protects(user),
        }
}

/// Whether a policy is deleted, or is to be once its finalizers are gone. The user who removes the
/// last of these is not judged for that.
fn takes_policy_away(request: &Request<'_>) -> bool {
    let is_ending = || {
        let ending = request.object?.pointer("/metadata/deletionTimestamp")?;
        ending.as_str()
    };
    is_policy_write(request) && (request.operation == Operation::Delete || is_ending().is_some())
}

/// The name of the policy that is taken away. With `deletecollection`, only the object says it.
fn deleted_name<'r>(request: &Request<'r>) -> Option<Cow<'r, str>> {
    let name = || request.old_object?.pointer("/metadata/name")?.as_str();
    Some(request.name.clone())
        .filter(|name| !name.is_empty())
        .or_else(name)
}

/// What is written with `content`, or deleted. `None` where the review does not say it.
pub(super) fn write(request: &Request<'_>, content: Option<&Content>) -> Option<ObjectWrite> {
    if takes_policy_away(request) {
        return deleted_name(request).map(|name| ObjectWrite::DeletedPolicy(name.into_owned()));
    }
    match content? {
        Content::Role(role) => Some(ObjectWrite::Role(role.clone())),
        Content::Binding(binding) => Some(ObjectWrite::Binding(binding.clone())),
        Content::Policy(policy) => Some(ObjectWrite::Policy(policy.clone())),
        _ => None,
    }
}

/// Adds what `write` newly breaks of the invariants of `set`; there is none where the review does not
/// say what is written.
pub(super) fn judge(
    set: &PolicySet,
    write: Option<&ObjectWrite>,
    (now, deadline): (Time, Deadline<'_>),
    judgement: &mut Judgement,
) {
    let limit = WorkLimit {
        parts: MAX_PARTS,
        deadline,
    };
    let set = write.map_or(Cow::Borrowed(set), |write| with_default_roles(set, write));
    let Some(after) = write.and_then(|write| set.after_write(write)) else {
        if refuse(&set) {
            judgement.forbidden.push(NOT_SAID.to_owned());
        }
        return;
    };
    // Without any, the gateway is given no RBAC, and nothing of this kind can be decided.
    let knows_roles = set.bindings().next().is_some();
    let proof = InvariantProof::of_change(&set, &after, now, limit);
    for invariant in after.invariants() {
        let status = match &proof {
            Ok(proof) => proof.status(invariant, UnknownRoles::Undecided),
            Err(error) => InvariantStatus::Unproven(*error),
        };
        let Some(text) = says(invariant, &status) else {
            continue;
        };
        let awaits_role = knows_roles && matches!(status, InvariantStatus::Undecided(_));
        let is_broken = matches!(status, InvariantStatus::Broken(_) | InvariantStatus::Unproven(_));
        match invariant.enforcement {
            Enforcement::Refuse if is_broken => judgement.forbidden.push(text),
            Enforcement::Refuse if awaits_role => {
                judgement.awaits_role = true;
                judgement.forbidden.push(text);
            }
            Enforcement::Refuse | Enforcement::Warn => judgement.warnings.push(text),
        }
    }
}

/// Whether an invariant of `set` refuses anything.
pub(super) fn refuse(set: &PolicySet) -> bool {
    let mut invariants = set.invariants();
    invariants.any(|one| one.enforcement == Enforcement::Refuse)
}

/// The set, with the roles that every API server makes by itself where `write` binds to one of them
/// that it does not have.
fn with_default_roles<'s>(set: &'s PolicySet, write: &ObjectWrite) -> Cow<'s, PolicySet> {
    let ObjectWrite::Binding(binding) = write else {
        return Cow::Borrowed(set);
    };
    let has_it = |roles: &[Arc<Role>]| roles.iter().any(|role| role.key() == binding.role_key());
    match has_it(default_roles()) && !has_it(set.roles()) {
        true => Cow::Owned(set.with_roles(default_roles())),
        false => Cow::Borrowed(set),
    }
}

/// Warns where `invariant`, which is being written, is broken already: it is stored all the same.
pub(super) fn judge_new(
    set: &PolicySet,
    invariant: &Arc<AuthorizationInvariant>,
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
