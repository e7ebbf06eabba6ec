//! Validates writes of Portcullis' own kinds to an API server, with the code that reads and lints
//! manifests. Also checks what writes of RBAC objects, AuthorizationPolicies and approvals of
//! AccessRequests would newly grant against the AuthorizationInvariants in force.

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

/// An upper bound for the memory while an object is read, in bytes per byte of its JSON.
const READ_BYTES: usize = 50;

/// The resources that are validated.
const RESOURCES: [&str; 3] = [
    "authorizationpolicies",
    "admissionexceptions",
    "authorizationinvariants",
];

/// The policies in force in the cluster of an object, which it is validated against.
#[derive(Debug, Clone, Copy)]
pub struct ValidationContext<'s> {
    policies: &'s PolicySet,
    admission: &'s AdmissionSet,
}

/// Whether the object of `request` is validated. The status is validated only for AccessRequests.
#[must_use]
pub fn needs_validation(request: &Request<'_>) -> bool {
    let resource = &request.resource;
    let is_policy = resource.group == groups::PORTCULLIS
        && RESOURCES.contains(&resource.resource.as_ref())
        && request.subresource.is_empty()
        && matches!(request.operation, Operation::Create | Operation::Update);
    is_policy || is_access_request_write(request)
}

/// The resources of RBAC, writes of which may grant.
const RBAC_RESOURCES: [&str; 4] = ["roles", "clusterroles", "rolebindings", "clusterrolebindings"];
/// The group of controllers, such as that of aggregated ClusterRoles. Their writes follow from
/// writes of others, which have been validated.
const CONTROLLERS: &str = "system:serviceaccounts:kube-system";
/// The most parts into which a proof may split the requests that a write affects.
const MAX_PARTS: usize = 10_000;
/// The message if the review does not contain what is written.
const MISSING_OBJECT_MESSAGE: &str =
    "an AuthorizationInvariant is in force, but this review does not contain the object";

/// Whether `request` has to be checked against the invariants of `set`.
fn needs_invariant_check(set: &PolicySet, request: &Request<'_>) -> bool {
    set.invariants().len() > 0
        && (is_rbac_write(request) || is_policy_write(request) || is_approval(request))
        && !is_exempt(set, request)
}

/// Whether an RBAC object is created or changed. Deleting one grants nothing.
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

/// Whether the approvals of an AccessRequest change. No other write of an AccessRequest grants
/// anything.
fn is_approval(request: &Request<'_>) -> bool {
    let approvals = |object: Option<portcullis_cel::json::Node<'_>>| {
        let approvals = object.and_then(|object| object.pointer("/status/approvals"));
        approvals.map(|approvals| approvals.raw().to_owned())
    };
    is_access_request_write(request)
        && request.operation == Operation::Update
        && approvals(request.object) != approvals(request.old_object)
}

/// Whether the user is exempt from invariants: administrators must not be locked out, and
/// controllers must not be stopped. A controller's deletion of a policy is checked nevertheless,
/// because a user can make the garbage collector delete an object by writing an owner reference.
fn is_exempt(set: &PolicySet, request: &Request<'_>) -> bool {
    let user = &request.user;
    let is_member = |group: &str| user.groups.iter().any(|of| of == group);
    is_member(MASTERS)
        || match is_member(CONTROLLERS) {
            true => !takes_policy_away(request),
            false => set.never_denies_user(user),
        }
}

/// Whether a policy is deleted, or being deleted and waiting for finalizers.
fn takes_policy_away(request: &Request<'_>) -> bool {
    let is_ending = || {
        let ending = request.object?.pointer("/metadata/deletionTimestamp")?;
        ending.as_str()
    };
    is_policy_write(request) && (request.operation == Operation::Delete || is_ending().is_some())
}

/// The name of the policy that is deleted. For `deletecollection`, only the object contains it.
fn deleted_name<'r>(request: &Request<'r>) -> Option<Cow<'r, str>> {
    let name = || request.old_object?.pointer("/metadata/name")?.as_str();
    Some(request.name.clone())
        .filter(|name| !name.is_empty())
        .or_else(name)
}

/// The write of `content`, or the deletion. `None` if the review does not contain the object.
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

/// Reports the invariants of `set` that `write` newly breaks. `write` is `None` if the review does
/// not contain what is written.
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
        if has_refusing_invariants(&set) {
            report.forbidden.push(MISSING_OBJECT_MESSAGE.to_owned());
        }
        return;
    };
    // Without any binding the gateway has no RBAC objects at all, so unknown roles cannot be waited
    // for.
    let knows_roles = set.bindings().next().is_some();
    let proof = match write {
        // The aggregation controller, which is exempt, would add the rules of this role to others.
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
            (InvariantStatus::Holds, Some(role)) => {
                InvariantStatus::Undecided(format!("the requested ClusterRole `{role}` is not known"))
            }
            (status, _) => status,
        };
        let Some(text) = invariant_message(invariant, &status) else {
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

/// Whether an invariant of `set` has the enforcement Refuse.
fn has_refusing_invariants(set: &PolicySet) -> bool {
    let mut invariants = set.invariants();
    invariants.any(|one| one.enforcement == Enforcement::Refuse)
}

/// The ClusterRole of an approved AccessRequest, if `set` does not have it.
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

/// Adds the default roles of an API server to the set, if `write` refers to one that the set does
/// not have.
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

/// Warns if `invariant`, which is being written, is broken already. It is stored nevertheless.
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
    report.warnings.extend(invariant_message(invariant, &status));
}

/// The message about an invariant; `None` if it holds.
fn invariant_message(invariant: &AuthorizationInvariant, status: &InvariantStatus) -> Option<String> {
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
    /// Creates the context of a cluster with these sets.
    #[must_use]
    pub const fn new(policies: &'s PolicySet, admission: &'s AdmissionSet) -> Self {
        Self { policies, admission }
    }

    /// Reads the object of a request, with its status if `has_status`.
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
        let document = Document::new(
            None,
            Node::from_json(without_server_fields(value.ok()?, has_status)),
        );
        let compilation = Compilation {
            version: self.admission.cel_version(),
            deadline,
        };
        object::read(document, None, compilation, faults)
    }

    fn lint_in_context(&self, object: &ManifestObject, now: Time, faults: &mut Faults) {
        match &object.content {
            Content::Policy(policy) => {
                if !self.policies.knows_namespaces() {
                    for rule in namespace::rules_with_label_selectors(policy) {
                        let place = object.document.place(namespace::selector_path(rule));
                        let message = namespace::message(None);
                        faults.push(Fault::error(place, FaultKind::Required, message));
                    }
                }
                lint::policy_alone(object, policy, self.policies, now, faults);
            }
            Content::Invariant(invariant) if !self.policies.knows_namespaces() => {
                for rule in namespace::rules_with_label_selectors(&invariant.forbidden) {
                    let place = object.document.place(namespace::selector_path(rule));
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
        let are_concerned = needs_invariant_check(self.policies, request);
        if !is_own && !are_concerned {
            return None;
        }
        let mut report = ValidationReport::default();
        // A proof takes too long for the first attempt, on a thread where other requests wait.
        if are_concerned && deadline.end_attempt() {
            return Some(report);
        }
        let is_access_request = is_access_request_write(request);
        let is_approval = is_access_request && are_concerned;
        let old = request.old_object.filter(|_| is_access_request);
        let texts = request.object.into_iter().chain(old);
        let bytes: usize = texts.map(|object| object.raw().len()).sum();
        let taken = run.memory.map(|memory| memory.reserve(bytes * READ_BYTES));
        if matches!(taken, Some(None)) {
            report.lacks_memory = true;
            return Some(report);
        }
        let mut faults = Faults::new();
        // The spec of an AccessRequest never changes, and an invalid one must remain withdrawable,
        // so its object is not read for other writes.
        let is_read = !is_access_request || request.operation == Operation::Create || is_approval;
        let object = request
            .object
            .filter(|_| is_read)
            .and_then(|object| self.read(object.raw(), is_approval, deadline, &mut faults));
        if let Some(object) = object.as_ref().filter(|_| is_own) {
            self.lint_in_context(object, now, &mut faults);
        }
        if is_own || has_refusing_invariants(self.policies) {
            add_faults(&faults, &mut report);
        }
        if !report.faults.is_empty() {
            return Some(report);
        }
        let content = object.as_ref().map(|object| &object.content);
        if is_access_request {
            // An object that is stored already is not being written by anybody.
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

/// Removes the status unless `has_status`, and adds a name if the API server is going to generate
/// one.
fn without_server_fields(mut value: Value, has_status: bool) -> Value {
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
