//! Test cases for admission: reviews with the expected response.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use portcullis_policy::admission::Phase;
use portcullis_policy::explain::admission::{OfflineDecision, OfflineReviewResult};
use portcullis_policy::explain::authorization::object;
use portcullis_policy::explain::recorded::RecordedAnswers;

/// A difference to the expected result.
#[derive(Debug, Serialize)]
pub(crate) struct Difference {
    pub(crate) what: String,
    pub(crate) expected: String,
    pub(crate) actual: String,
}

/// A review, and the expected response.
pub(crate) struct AdmissionCase {
    /// An AdmissionReview as JSON.
    pub(crate) review: Arc<str>,
    pub(crate) phases: &'static [Phase],
    /// The only policy or webhook configuration to evaluate.
    pub(crate) policy: Option<String>,
    /// The responses of webhooks.
    pub(crate) answers: RecordedAnswers,
    pub(crate) expect: AdmissionExpectation,
}

/// The expected response. Fields that are `None` may have any value.
pub(crate) struct AdmissionExpectation {
    pub(crate) allowed: bool,
    pub(crate) message: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) code: Option<u16>,
    /// `Kind/name`
    pub(crate) cause: Option<String>,
    pub(crate) rule: Option<usize>,
    pub(crate) warnings: Option<Vec<String>>,
    /// The webhooks that are called, in order, as `configuration/webhook`.
    pub(crate) webhooks: Option<Vec<String>>,
    /// Some of the audit annotations, by their keys in the reply.
    pub(crate) audit_annotations: BTreeMap<String, String>,
    /// A part of the object after all mutations.
    pub(crate) object: Option<Value>,
}

impl AdmissionExpectation {
    /// The differences between `answered` and the expected response.
    pub(crate) fn differences(&self, answered: &OfflineReviewResult) -> Vec<Difference> {
        let mut differences = match &answered.decided {
            Ok(decided) => self.decision_differences(decided),
            Err(unknown) => {
                let expected = format!("allowed: {}", self.allowed);
                vec![Difference::new(
                    "decision".to_owned(),
                    expected,
                    unknown.to_string(),
                )]
            }
        };
        differences.extend(self.webhooks.as_ref().and_then(|webhooks| {
            Difference::between("webhooks", webhooks.join(", "), answered.asked.join(", "))
        }));
        differences
    }

    fn decision_differences(&self, decided: &OfflineDecision) -> Vec<Difference> {
        let outcome = &decided.outcome;
        let denial = outcome.denial.as_ref();
        let cause = outcome.cause.as_ref();
        let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
        let mut differences: Vec<Difference> = [
            (
                "allowed",
                Some(self.allowed.to_string()),
                denial.is_none().to_string(),
            ),
            (
                "message",
                self.message.clone(),
                text(denial.map(|denial| denial.message.as_str())),
            ),
            (
                "reason",
                self.reason.clone(),
                text(denial.map(|denial| denial.reason.as_ref())),
            ),
            (
                "code",
                self.code.map(|code| code.to_string()),
                denial.map_or(200, |denial| denial.code).to_string(),
            ),
            (
                "cause",
                self.cause.clone(),
                cause
                    .map(|cause| object(cause.kind, &cause.namespace, &cause.name))
                    .unwrap_or_default(),
            ),
            (
                "rule",
                self.rule.map(|rule| rule.to_string()),
                cause
                    .and_then(|cause| cause.rule)
                    .map(|rule| rule.to_string())
                    .unwrap_or_default(),
            ),
            (
                "warnings",
                self.warnings.as_ref().map(|warnings| warnings.join(", ")),
                outcome.warnings.iter().collect::<Vec<_>>().join(", "),
            ),
        ]
        .into_iter()
        .filter_map(|(what, expected, actual)| Difference::between(what, expected?, actual))
        .collect();
        differences.extend(self.annotation_differences(decided));
        differences.extend(self.object_differences(decided));
        differences
    }

    fn annotation_differences(&self, decided: &OfflineDecision) -> Vec<Difference> {
        let reply: Value = serde_json::from_str(&decided.reply).unwrap_or_default();
        let actual = reply.pointer("/response/auditAnnotations");
        let of = |(key, expected): (&String, &String)| {
            let actual = actual.and_then(|all| all.get(key)?.as_str());
            let actual = actual.map(|actual| format!("{key}: {actual}"));
            Difference::between(
                "auditAnnotations",
                format!("{key}: {expected}"),
                actual.unwrap_or_default(),
            )
        };
        self.audit_annotations.iter().filter_map(of).collect()
    }

    fn object_differences(&self, decided: &OfflineDecision) -> Vec<Difference> {
        let Some(expected) = &self.object else {
            return Vec::new();
        };
        let object = decided.object.as_deref();
        let actual: Value = object
            .and_then(|object| serde_json::from_str(object).ok())
            .unwrap_or_default();
        differences(expected, &actual, "object")
    }
}

/// The parts of `expected` that differ from `actual`, by path.
///
/// A map must contain the expected entries; null means absent. A list must have the expected
/// length, and its items must match.
fn differences(expected: &Value, actual: &Value, path: &str) -> Vec<Difference> {
    match (expected, actual) {
        (Value::Object(expected), Value::Object(actual)) => {
            let each = expected.iter().flat_map(|(key, expected)| {
                let actual = actual.get(key).unwrap_or(&Value::Null);
                differences(expected, actual, &format!("{path}.{key}"))
            });
            each.collect()
        }
        (Value::Array(expected), Value::Array(actual)) if expected.len() == actual.len() => {
            let pairs = expected.iter().zip(actual).enumerate();
            pairs
                .flat_map(|(index, (expected, actual))| {
                    differences(expected, actual, &format!("{path}.{index}"))
                })
                .collect()
        }
        (expected, actual) if expected == actual => Vec::new(),
        (expected, actual) => {
            let (expected, actual) = (expected.to_string(), actual.to_string());
            vec![Difference::new(format!("`{path}`"), expected, actual)]
        }
    }
}

// === impl Difference ===

impl Difference {
    pub(crate) const fn new(what: String, expected: String, actual: String) -> Self {
        Self {
            what,
            expected,
            actual,
        }
    }

    #[cfg(test)]
    pub(crate) fn what(&self) -> &str {
        &self.what
    }

    /// `None` if both are equal.
    pub(crate) fn between(what: &str, expected: String, actual: String) -> Option<Self> {
        (expected != actual).then(|| Self::new(what.to_owned(), expected, actual))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_part_of_the_object_is_enough() {
        let actual = json!({"a": {"b": 1, "c": 2}, "l": [{"x": 1, "y": 2}, 3]});
        for (expected, at) in [
            (json!({}), &[][..]),
            (json!({"a": {"b": 1}}), &[]),
            (json!({"a": {"d": null}}), &[]),
            (json!({"l": [{"y": 2}, 3]}), &[]),
            (json!({"a": {"b": null}}), &["`object.a.b`"]),
            (json!({"a": {"b": "1"}}), &["`object.a.b`"]),
            (json!({"l": [{"y": 2}]}), &["`object.l`"]),
            (json!({"l": [{"y": 3}, 3]}), &["`object.l.0.y`"]),
            (
                json!({"a": {"b": 2, "c": 3}, "l": [{"y": 3}, 4]}),
                &["`object.a.b`", "`object.a.c`", "`object.l.0.y`", "`object.l.1`"],
            ),
        ] {
            let found = differences(&expected, &actual, "object");
            let paths: Vec<&str> = found.iter().map(Difference::what).collect();
            assert_eq!(paths, at, "{expected}");
        }
    }
}
