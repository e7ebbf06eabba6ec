//! Validation of AuthorizationPolicies, AuthorizationInvariants and AdmissionExceptions that are
//! written to an API server, with the code that reads and lints manifests; and of what RBAC objects and
//! AuthorizationPolicies would newly grant, with the invariants in force.

use serde_json::Value;

use super::report::Compilation;
use super::validated::{Content, ManifestObject};
use super::{lint, namespace, object};
use crate::authorization::PolicySet;
use crate::document::{Document, Node};
use crate::engine::admission::{AdmissionSet, Operation, Request, StatusCause};
use crate::engine::admission::{Judgement, OwnKindValidator, Run};
use crate::engine::{Deadline, Time, groups};
use crate::field::{Fault, FaultKind, Faults, Place, Severity};

mod invariants;

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
pub struct Surroundings<'s> {
    policies: &'s PolicySet,
    admission: &'s AdmissionSet,
}

/// Whether the object of `request` is one that is judged. Its status is not.
#[must_use]
pub fn is_judged(request: &Request<'_>) -> bool {
    let resource = &request.resource;
    resource.group == groups::PORTCULLIS
        && RESOURCES.contains(&resource.resource.as_ref())
        && request.subresource.is_empty()
        && matches!(request.operation, Operation::Create | Operation::Update)
}

// === impl Surroundings ===

impl<'s> Surroundings<'s> {
    /// Those of a cluster that is decided for by these.
    #[must_use]
    pub const fn new(policies: &'s PolicySet, admission: &'s AdmissionSet) -> Self {
        Self { policies, admission }
    }

    /// Reads the object of a request.
    fn read(&self, text: &str, deadline: Deadline<'_>, faults: &mut Faults) -> Option<ManifestObject> {
        let value = serde_json::from_str(text).map_err(|error| {
            faults.push(Fault::error(
                Place::default(),
                FaultKind::Unreadable,
                error.to_string(),
            ));
        });
        let document = Document::new(None, Node::from_json(as_written(value.ok()?)));
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

impl OwnKindValidator for Surroundings<'_> {
    fn judge(&self, request: &Request<'_>, run: Run<'_>) -> Option<Judgement> {
        let (now, deadline) = (run.now, run.deadline);
        let is_own = is_judged(request);
        let are_concerned = invariants::are_concerned(self.policies, request);
        if !is_own && !are_concerned {
            return None;
        }
        let mut judgement = Judgement::default();
        // A proof takes longer than may be tried where others wait.
        if are_concerned && deadline.end_attempt() {
            return Some(judgement);
        }
        let text = request.object.map_or("", |object| object.raw());
        let taken = run.memory.map(|memory| memory.take(text.len() * READ_BYTES));
        if matches!(taken, Some(None)) {
            judgement.lacks_memory = true;
            return Some(judgement);
        }
        let mut faults = Faults::new();
        let object = request
            .object
            .and_then(|object| self.read(object.raw(), deadline, &mut faults));
        if let Some(object) = object.as_ref().filter(|_| is_own) {
            self.look_around(object, now, &mut faults);
        }
        if is_own || invariants::refuse(self.policies) {
            tell(&faults, &mut judgement);
        }
        if !judgement.faults.is_empty() {
            return Some(judgement);
        }
        let content = object.as_ref().map(|object| &object.content);
        if are_concerned {
            let write = invariants::write(request, content);
            invariants::judge(self.policies, write.as_ref(), (now, deadline), &mut judgement);
        } else if let Some(Content::Invariant(invariant)) = content {
            invariants::judge_new(self.policies, invariant, (now, deadline), &mut judgement);
        }
        Some(judgement)
    }
}

fn tell(faults: &Faults, judgement: &mut Judgement) {
    for fault in faults.iter() {
        let field = fault.place.path.to_string();
        let message = format!("{}: {}", fault.kind.as_str(), fault.message);
        match fault.severity {
            Severity::Warning => judgement.warnings.push(format!("{field}: {message}")),
            Severity::Error => judgement.faults.push(StatusCause {
                reason: fault.kind.cause().to_owned(),
                message,
                field,
            }),
        }
    }
}

/// Without what the API server adds: the status, which is never read, and no name
/// where it is yet to make one up.
fn as_written(mut value: Value) -> Value {
    if let Value::Object(object) = &mut value {
        object.remove("status");
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
