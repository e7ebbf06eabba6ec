//! Audit annotations of validating policies.

use std::collections::BTreeMap;

use super::{Annotation, AnnotationValue};
use crate::engine::admission::policy::PolicyBinding;
use crate::engine::text::truncate;
use portcullis_cel::json::{ObjectWriter, write_string};

/// Under which the failures of bindings with the action Audit stand.
const FAILURES: &str = "validation.policy.admission.k8s.io/validation_failure";
/// The most failures that are written.
const MOST_FAILURES: usize = 50;
/// The longest value of an annotation, in bytes.
const VALUE_BYTES: usize = 10 * 1024;

/// The annotations of one policy, over all its bindings and parameters.
#[derive(Debug, Default)]
pub(crate) struct PolicyAnnotations(Vec<(String, Vec<String>)>);

/// The failures that bindings want audited, as a JSON list.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    json: String,
    count: usize,
}

// === impl PolicyAnnotations ===

impl PolicyAnnotations {
    /// Takes what is to be published; gives back what failed.
    pub(crate) fn take(&mut self, annotations: &[Annotation]) -> Vec<String> {
        let mut failures = Vec::new();
        for Annotation { key, value } in annotations {
            match value {
                AnnotationValue::Publish(text) => self.add(key, text),
                AnnotationValue::Error(failure) => failures.push(failure.clone()),
                AnnotationValue::Exclude => {}
            }
        }
        failures
    }

    fn add(&mut self, key: &str, text: &str) {
        let text = truncate(text, VALUE_BYTES);
        match self.0.iter_mut().find(|(own, _)| own == key) {
            Some((_, values)) if values.iter().any(|value| value == text) => {}
            Some((_, values)) => values.push(text.to_owned()),
            None => self.0.push((key.to_owned(), vec![text.to_owned()])),
        }
    }

    /// Adds them under the policy's name; several values of a key in one.
    pub(crate) fn publish(self, policy: &str, annotations: &mut BTreeMap<String, String>) {
        for (key, values) in self.0 {
            annotations
                .entry(format!("{policy}/{key}"))
                .or_insert_with(|| values.join(", "));
        }
    }
}

// === impl Failures ===

impl Failures {
    pub(crate) fn push(&mut self, binding: &PolicyBinding, index: usize, message: &str) {
        if self.count >= MOST_FAILURES {
            return;
        }
        self.json.push(if self.count > 0 { ',' } else { '[' });
        self.count += 1;
        ObjectWriter::write(&mut self.json, |failure| {
            failure.text("message", message);
            failure.text("policy", &binding.policy);
            failure.text("binding", &binding.name);
            failure.json("expressionIndex", &index.to_string());
            failure.list("validationActions", &binding.actions, |out, action| {
                write_string(out, action.as_str());
            });
        });
    }

    pub(crate) fn publish(mut self, annotations: &mut BTreeMap<String, String>) {
        if self.count > 0 {
            self.json.push(']');
            annotations.insert(FAILURES.to_owned(), self.json);
        }
    }
}
