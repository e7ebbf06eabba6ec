//! Finds the exceptions that excuse denials, and writes their audit annotation.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::{Exception, ExcusedDenials, NotExcused};
use crate::admission::matching::{Namespaces, label, selects_object};
use crate::admission::run::{RunContext, TraceStep};
use crate::admission::set::AdmissionSet;
use crate::admission::variables::{Inputs, MatchConditions, NamespaceObject, RequestView};
use crate::admission::{FailurePolicy, Operation, Request};
use crate::authorization::matching::subject_matches;
use crate::model::{LabelSelector, NAMESPACE_NAME_LABEL, groups, truncate};
use portcullis_cel::json::{Node, ObjectWriter};

/// The key of the audit annotation for excused denials.
const ANNOTATION: &str = "exceptions.portcullis.dev";
/// The longest value of the annotation, in bytes.
const ANNOTATION_BYTES: usize = 10 << 10;
/// The longest reason in the annotation, in bytes.
const REASON_BYTES: usize = 1 << 10;

/// Finds the exceptions for one request. Looks up each policy once, because whether an exception
/// applies depends only on the request.
#[derive(Debug, Default)]
pub(crate) struct ExceptionMatcher(HashMap<String, Option<Arc<Exception>>>);

impl ExceptionMatcher {
    /// The first exception, by name, that excuses the denials of `policy`.
    pub(crate) fn find(
        &mut self,
        policy: &str,
        set: &AdmissionSet,
        context: RunContext<'_>,
    ) -> Option<ExcusedDenials> {
        let found = match self.0.get(policy) {
            Some(found) => found.clone(),
            None => {
                let found = look_up(policy, set, context);
                self.0.insert(policy.to_owned(), found.clone());
                found
            }
        };
        found.map(|exception| ExcusedDenials {
            exception,
            policy: policy.to_owned(),
        })
    }
}

fn look_up(policy: &str, set: &AdmissionSet, context: RunContext<'_>) -> Option<Arc<Exception>> {
    let RunContext { request, run, .. } = context;
    if request.request_resource.group == groups::PORTCULLIS || request.resource.group == groups::PORTCULLIS {
        return None;
    }
    let mut exceptions = set.exceptions.of(policy).iter();
    let applies = |exception: &&Arc<Exception>| {
        let found = exception.applies(set, context);
        run.record(|| TraceStep::Exception {
            name: &exception.name,
            policy,
            found,
        });
        found.is_ok()
    };
    exceptions.find(applies).map(Arc::clone)
}

/// Adds `excused`, unless it is present already.
pub(crate) fn add_excused(all: &mut Vec<ExcusedDenials>, excused: ExcusedDenials) {
    let same =
        |one: &ExcusedDenials| one.policy == excused.policy && one.exception.name == excused.exception.name;
    if !all.iter().any(same) {
        all.push(excused);
    }
}

/// Adds an audit annotation for the excused denials, if there are any: a JSON list, truncated after
/// a whole entry if it is too long.
pub(crate) fn write_annotation(all: &[ExcusedDenials], annotations: &mut BTreeMap<String, String>) {
    let mut list = String::from("[");
    for ExcusedDenials { exception, policy } in all {
        let back = list.len();
        if back > 1 {
            list.push(',');
        }
        ObjectWriter::write(&mut list, |fields| {
            fields.text("name", &exception.name);
            fields.text("policy", policy);
            fields.text("reason", truncate(&exception.reason, REASON_BYTES));
        });
        if list.len() >= ANNOTATION_BYTES {
            list.truncate(back);
            break;
        }
    }
    if !all.is_empty() {
        list.push(']');
        annotations.insert(ANNOTATION.to_owned(), list);
    }
}

// Decides whether an exception applies to a request.
//
// Matching is stricter than for a binding with the same constraints: what is not known does not
// match.

impl Exception {
    /// Checks that the exception applies.
    pub(crate) fn applies(&self, set: &AdmissionSet, context: RunContext<'_>) -> Result<(), NotExcused> {
        let RunContext { request, run, .. } = context;
        let constraints = &self.constraints;
        if self.not_after <= run.now {
            return Err(NotExcused::Ended);
        }
        if (run.requester_unknown && !self.subjects.is_empty()) || !self.is_for(request) {
            return Err(NotExcused::Subjects);
        }
        if !selects_namespace(&constraints.namespace_selector, request, &*set.namespaces) {
            return Err(NotExcused::Namespace);
        }
        if !selects_object(&constraints.object_selector, selected_object(request), None) {
            return Err(NotExcused::Object);
        }
        let subject = set.subject(request, request.object);
        let matched = match constraints.matches_rules(subject) {
            Ok(Some(matched)) if matched.as_sent(request).is_ok() => matched,
            _ => return Err(NotExcused::Rules),
        };
        let view =
            RequestView::for_conditions(request, &matched).with_unknown_requester(run.requester_unknown);
        let given = Inputs {
            object: request.object,
            old_object: request.old_object,
            request: &view,
            params: None,
            namespace: NamespaceObject::Null,
            access: context.access,
            recorder: run.recorder,
            // The cost is reported only for policies.
            spent: &Cell::new(0),
        };
        let environment = &set.webhook_environment;
        match MatchConditions::evaluate(
            &self.match_conditions,
            FailurePolicy::Ignore,
            environment,
            &given,
            run.deadline,
        ) {
            MatchConditions::Match => Ok(()),
            MatchConditions::NoMatch(_) | MatchConditions::Error(_) => Err(NotExcused::Conditions),
        }
    }

    fn is_for(&self, request: &Request<'_>) -> bool {
        let mut subjects = self.subjects.iter();
        self.subjects.is_empty() || subjects.any(|subject| subject_matches(subject, &request.user))
    }
}

/// The new object; for DELETE, the existing one.
fn selected_object<'r>(request: &Request<'r>) -> Option<Node<'r>> {
    match request.operation {
        Operation::Delete => request.old_object,
        Operation::Create | Operation::Update | Operation::Connect => request.object,
    }
}

/// Whether `selector` selects the namespace of the request by its stored labels. An unknown
/// namespace is not selected, and neither is any cluster-scoped object except a Namespace.
fn selects_namespace(selector: &LabelSelector, request: &Request<'_>, namespaces: &dyn Namespaces) -> bool {
    if selector.is_empty() {
        return true;
    }
    let resource = &request.request_resource;
    let is_namespace = resource.group.is_empty() && resource.resource == "namespaces";
    let name = if is_namespace {
        &request.name
    } else {
        &request.namespace
    };
    // A Namespace that is being created has no stored labels yet.
    let is_made = is_namespace && request.subresource.is_empty() && request.operation == Operation::Create;
    if name.is_empty() || is_made {
        return false;
    }
    let Some(stored) = namespaces.namespace(name) else {
        return false;
    };
    let selects = |object: Node<'_>| {
        selector.matches(|key| {
            if key == NAMESPACE_NAME_LABEL {
                Some(name.clone())
            } else {
                label(object, key)
            }
        })
    };
    // The existing object in the request may have newer labels than the ones read or watched.
    let of_request = request.old_object.filter(|_| is_namespace);
    selects(stored.root()) && of_request.is_none_or(selects)
}
