//! Validation of AuthorizationPolicies, AuthorizationInvariants and AdmissionExceptions that are
//! written to an API server, with the code that reads and lints manifests; and of what RBAC objects,
//! AuthorizationPolicies and approvals of AccessRequests would newly grant, with the invariants in force.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use super::report::Compilation;
use super::source_objects::default_roles;
use super::validated::{Content, ManifestObject};
use super::{lint, namespace, object};
use crate::admission::{
    AdmissionSet, Operation, OwnKindValidator, Request, RunOptions, StatusCause, ValidationReport,
    is_access_request_write, validate_access_request,
};
use crate::authorization::proof::{
    InvariantProof, InvariantStatus, ProofLimitError, UnknownRoles, WorkLimit,
};
use crate::authorization::{AuthorizationInvariant, Enforcement, MASTERS, ObjectWrite, PolicySet, Role};
use crate::document::{Document, Node};
use crate::field::{Fault, FaultKind, Faults, Place, Severity};
use crate::model::{Deadline, Time, groups};

/// What an object takes at most while it is read, in bytes a byte of its text.
const READ_BYTES: usize = 50;

/// The resources that are judged.
const RESOURCES: [&str; 3] = [
    "authorizationpolicies",
    "admissionexceptions",
    "authorizationinvariants",
];

/// What is in force where an object is to hold, by which it is judged.
#[derive(Debug, Clone, Copy)]
pub struct ValidationContext<'s> {
    policies: &'s PolicySet,
    admission: &'s AdmissionSet,
}

/// Whether the object of `request` is one that is judged. Its status is of AccessRequests alone.
#[must_use]
pub fn needs_validation(request: &Request<'_>) -> bool {
    let resource = &request.resource;
    let is_policy = resource.group == groups::PORTCULLIS
        && RESOURCES.contains(&resource.resource.as_ref())
        && request.subresource.is_empty()
        && matches!(request.operation, Operation::Create | Operation::Update);
    is_policy || is_access_request_write(request)
}

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
fn are_concerned(set: &PolicySet, request: &Request<'_>) -> bool {
    set.invariants().len() > 0
        && (is_rbac_write(request) || is_policy_write(request) || is_approval(request))
        && !is_exempt(set, request)
}

/// A Role, ClusterRole, RoleBinding or ClusterRoleBinding that is created or changed. Nobody is allowed
/// more once one is deleted.
fn is_rbac_write(request: &Request<'_>) -> bool {
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

/// Whether an AccessRequest has approvals that it did not have. Nobody is allowed more by what else is written
/// of one.
fn is_approval(request: &Request<'_>) -> bool {
    let approvals = |object: Option<portcullis_cel::json::Node<'_>>| {
        let approvals = object.and_then(|object| object.pointer("/status/approvals"));
        approvals.map(|approvals| approvals.raw().to_owned())
    };
    is_access_request_write(request)
        && request.operation == Operation::Update
        && approvals(request.object) != approvals(request.old_object)
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
fn write(request: &Request<'_>, content: Option<&Content>) -> Option<ObjectWrite> {
    if takes_policy_away(request) {
        return deleted_name(request).map(|name| ObjectWrite::DeletedPolicy(name.into_owned()));
    }
    match content? {
        Content::Role(role) => Some(ObjectWrite::Role(role.clone())),
        Content::Binding(binding) => Some(ObjectWrite::Binding(binding.clone())),
        Content::Policy(policy) => Some(ObjectWrite::Policy(policy.clone())),
        Content::AccessRequest(request) => Some(ObjectWrite::AccessRequest(request.clone())),
        _ => None,
    }
}

/// Adds what `write` newly breaks of the invariants of `set`; there is none where the review does not
/// say what is written.
fn check_invariants(
    set: &PolicySet,
    write: Option<&ObjectWrite>,
    (now, deadline): (Time, Deadline<'_>),
    report: &mut ValidationReport,
) {
    let limit = WorkLimit {
        parts: MAX_PARTS,
        deadline,
    };
    let set = write.map_or(Cow::Borrowed(set), |write| with_default_roles(set, write));
    let Some(after) = write.and_then(|write| set.after_write(write)) else {
        if refuse(&set) {
            report.forbidden.push(NOT_SAID.to_owned());
        }
        return;
    };
    // Without any, the gateway is given no RBAC, and nothing of this kind can be decided.
    let knows_roles = set.bindings().next().is_some();
    let proof = match write {
        // What the controller, which nobody holds up, then gives the others is not known.
        Some(ObjectWrite::Role(role)) if role.namespace.is_empty() && !after.is_aggregated => {
            Err(ProofLimitError::Aggregation)
        }
        _ => InvariantProof::of_change(&set, &after, now, limit),
    };
    for invariant in after.invariants() {
        let status = match &proof {
            Ok(proof) => proof.status(invariant, UnknownRoles::Undecided),
            Err(error) => InvariantStatus::Unproven(*error),
        };
        let status = match (status, unknown_role(&after, write)) {
            (InvariantStatus::Holds, Some(role)) => InvariantStatus::Undecided(format!(
                "the ClusterRole `{role}`, which is asked for, is not known"
            )),
            (status, _) => status,
        };
        let Some(text) = says(invariant, &status) else {
            continue;
        };
        let awaits_role = knows_roles && matches!(status, InvariantStatus::Undecided(_));
        let is_broken = matches!(status, InvariantStatus::Broken(_) | InvariantStatus::Unproven(_));
        match invariant.enforcement {
            Enforcement::Refuse if is_broken => report.forbidden.push(text),
            Enforcement::Refuse if awaits_role => {
                report.awaits_role = true;
                report.forbidden.push(text);
            }
            Enforcement::Refuse | Enforcement::Warn => report.warnings.push(text),
        }
    }
}

/// Whether an invariant of `set` refuses anything.
fn refuse(set: &PolicySet) -> bool {
    let mut invariants = set.invariants();
    invariants.any(|one| one.enforcement == Enforcement::Refuse)
}

/// The ClusterRole of an AccessRequest that grants from now on, where `set` does not have it.
fn unknown_role<'w>(set: &PolicySet, write: Option<&'w ObjectWrite>) -> Option<&'w str> {
    let Some(ObjectWrite::AccessRequest(request)) = write else {
        return None;
    };
    let is_known = || {
        set.roles()
            .iter()
            .any(|role| role.key() == ("", request.role.as_str()))
    };
    let is_approved = set
        .access_request_trust()
        .is_some_and(|trust| request.period(trust.settings).is_some());
    (is_approved && !is_known()).then_some(request.role.as_str())
}

/// The set, with the roles that every API server makes by itself where `write` names one of them
/// that it does not have.
fn with_default_roles<'s>(set: &'s PolicySet, write: &ObjectWrite) -> Cow<'s, PolicySet> {
    let named = match write {
        ObjectWrite::Binding(binding) => binding.role_key(),
        ObjectWrite::AccessRequest(request) => ("", request.role.as_str()),
        _ => return Cow::Borrowed(set),
    };
    let has_it = |roles: &[Arc<Role>]| roles.iter().any(|role| role.key() == named);
    match has_it(default_roles()) && !has_it(set.roles()) {
        true => Cow::Owned(set.with_roles(default_roles())),
        false => Cow::Borrowed(set),
    }
}

/// Warns where `invariant`, which is being written, is broken already: it is stored all the same.
fn check_new_invariant(
    set: &PolicySet,
    invariant: &Arc<AuthorizationInvariant>,
    (now, deadline): (Time, Deadline<'_>),
    report: &mut ValidationReport,
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
    report.warnings.extend(says(invariant, &status));
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

// === impl ValidationContext ===

impl<'s> ValidationContext<'s> {
    /// Those of a cluster that is decided for by these.
    #[must_use]
    pub const fn new(policies: &'s PolicySet, admission: &'s AdmissionSet) -> Self {
        Self { policies, admission }
    }

    /// Reads the object of a request, whose status counts where it grants.
    fn read(
        &self,
        text: &str,
        has_status: bool,
        deadline: Deadline<'_>,
        faults: &mut Faults,
    ) -> Option<ManifestObject> {
        let value = serde_json::from_str(text).map_err(|error| {
            faults.push(Fault::error(
                Place::default(),
                FaultKind::Unreadable,
                error.to_string(),
            ));
        });
        let document = Document::new(None, Node::from_json(as_written(value.ok()?, has_status)));
        let compilation = Compilation {
            version: self.admission.cel_version(),
            deadline,
        };
        object::read(document, None, compilation, faults)
    }

    fn look_around(&self, object: &ManifestObject, now: Time, faults: &mut Faults) {
        match &object.content {
            Content::Policy(policy) => {
                if !self.policies.knows_namespaces() {
                    for rule in namespace::asking(policy) {
                        let place = object.document.place(namespace::at(rule));
                        let message = namespace::message(None);
                        faults.push(Fault::error(place, FaultKind::Required, message));
                    }
                }
                lint::policy_alone(object, policy, self.policies, now, faults);
            }
            Content::Invariant(invariant) if !self.policies.knows_namespaces() => {
                for rule in namespace::asking(&invariant.forbidden) {
                    let place = object.document.place(namespace::at(rule));
                    faults.push(Fault::error(place, FaultKind::Required, namespace::message(None)));
                }
            }
            Content::Exception(exception) => {
                lint::exception_alone(object, exception, (self.policies, self.admission), now, faults);
            }
            _ => {}
        }
    }
}

impl OwnKindValidator for ValidationContext<'_> {
    fn validate(&self, request: &Request<'_>, run: RunOptions<'_>) -> Option<ValidationReport> {
        let (now, deadline) = (run.now, run.deadline);
        let is_own = needs_validation(request);
        let are_concerned = are_concerned(self.policies, request);
        if !is_own && !are_concerned {
            return None;
        }
        let mut report = ValidationReport::default();
        // A proof takes longer than may be tried where others wait.
        if are_concerned && deadline.end_attempt() {
            return Some(report);
        }
        let is_access_request = is_access_request_write(request);
        let is_approval = is_access_request && are_concerned;
        let old = request.old_object.filter(|_| is_access_request);
        let texts = request.object.into_iter().chain(old);
        let bytes: usize = texts.map(|object| object.raw().len()).sum();
        let taken = run.memory.map(|memory| memory.take(bytes * READ_BYTES));
        if matches!(taken, Some(None)) {
            report.lacks_memory = true;
            return Some(report);
        }
        let mut faults = Faults::new();
        // What an AccessRequest says never changes: one with faults can be withdrawn.
        let is_read = !is_access_request || request.operation == Operation::Create || is_approval;
        let object = request
            .object
            .filter(|_| is_read)
            .and_then(|object| self.read(object.raw(), is_approval, deadline, &mut faults));
        if let Some(object) = object.as_ref().filter(|_| is_own) {
            self.look_around(object, now, &mut faults);
        }
        if is_own || refuse(self.policies) {
            add_faults(&faults, &mut report);
        }
        if !report.faults.is_empty() {
            return Some(report);
        }
        let content = object.as_ref().map(|object| &object.content);
        if is_access_request {
            // Of one that is there already, nobody says anything now.
            if run.requester_unknown {
                return Some(report);
            }
            validate_access_request(request, self.policies, (now, deadline), &mut report);
        }
        if !report.forbidden.is_empty() {
            return Some(report);
        }
        if are_concerned {
            let write = write(request, content);
            check_invariants(self.policies, write.as_ref(), (now, deadline), &mut report);
        } else if let Some(Content::Invariant(invariant)) = content {
            check_new_invariant(self.policies, invariant, (now, deadline), &mut report);
        }
        Some(report)
    }
}

fn add_faults(faults: &Faults, report: &mut ValidationReport) {
    for fault in faults.iter() {
        let field = fault.place.path.to_string();
        let message = format!("{}: {}", fault.kind.as_str(), fault.message);
        match fault.severity {
            Severity::Warning => report.warnings.push(format!("{field}: {message}")),
            Severity::Error => report.faults.push(StatusCause {
                reason: fault.kind.cause().to_owned(),
                message,
                field,
            }),
        }
    }
}

/// Without what the API server adds: the status, unless it counts, and no name where it is yet to make
/// one up.
fn as_written(mut value: Value, has_status: bool) -> Value {
    if let Value::Object(object) = &mut value {
        if !has_status {
            object.remove("status");
        }
        if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
            let prefix = metadata.get("generateName").and_then(Value::as_str);
            if let (None, Some(prefix)) = (metadata.get("name"), prefix) {
                let name = format!("{prefix}00000");
                metadata.insert("name".to_owned(), Value::String(name));
            }
        }
    }
    value
}
