//! The exceptions that were used, for the answer, the log and the audit annotation.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::Exception;
use super::excused::Excused;
use crate::engine::admission::run::RunContext;
use crate::engine::admission::set::AdmissionSet;
use crate::engine::admission::trace::TraceStep;
use crate::engine::groups;
use crate::engine::text::truncate;
use portcullis_cel::json::ObjectWriter;

/// Under which an answer says what was excused.
const ANNOTATION: &str = "exceptions.portcullis.dev";
/// The longest value of that, in bytes.
const ANNOTATION_BYTES: usize = 10 << 10;
/// The longest reason in it, in bytes.
const REASON_BYTES: usize = 1 << 10;

/// What is excused of one request. Each policy is looked up once: whether an
/// exception applies depends on the request alone.
#[derive(Debug, Default)]
pub(crate) struct Excuses(HashMap<String, Option<Arc<Exception>>>);

impl Excuses {
    /// The first exception, by name, that excuses the denials of `policy`.
    pub(crate) fn find(
        &mut self,
        policy: &str,
        set: &AdmissionSet,
        context: RunContext<'_>,
    ) -> Option<Excused> {
        let found = match self.0.get(policy) {
            Some(found) => found.clone(),
            None => {
                let found = look_up(policy, set, context);
                self.0.insert(policy.to_owned(), found.clone());
                found
            }
        };
        found.map(|exception| Excused {
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

/// Adds `excused` to what was excused before, once.
pub(crate) fn note(all: &mut Vec<Excused>, excused: Excused) {
    let same = |one: &Excused| one.policy == excused.policy && one.exception.name == excused.exception.name;
    if !all.iter().any(same) {
        all.push(excused);
    }
}

/// Writes what was excused into the audit annotations, if anything was: a JSON
/// list, cut after whole entries where it would be too long.
pub(crate) fn publish(all: &[Excused], annotations: &mut BTreeMap<String, String>) {
    let mut list = String::from("[");
    for Excused { exception, policy } in all {
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
