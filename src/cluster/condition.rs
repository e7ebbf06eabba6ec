//! The condition `InForce` in the status of Portcullis' own kinds.
//!
//! It only informs users: no decision depends on it. A status is read for the sole purpose of not
//! writing the same condition again.

use serde::Deserialize;
use serde_json::{Value, json};

use portcullis_policy::model::cut;

/// `type` of the condition.
const TYPE: &str = "InForce";

/// The maximum length of a message in bytes; the API server accepts 32768.
const MESSAGE_BYTES: usize = 4096;

/// Whether an object is in force, and why or why not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InForceCondition {
    pub(crate) is_true: bool,
    /// In CamelCase.
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// The generation of the version that it is about.
    pub(crate) generation: i64,
}

/// The condition in a status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NotedCondition {
    status: String,
    reason: String,
    message: String,
    generation: i64,
    /// `lastTransitionTime`.
    since: String,
}

/// A status as received from an API server.
#[derive(Debug, Deserialize)]
pub(crate) struct WrittenStatus {
    #[serde(default)]
    conditions: Vec<WrittenCondition>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WrittenCondition {
    #[serde(rename = "type")]
    sort: String,
    status: String,
    reason: String,
    message: String,
    observed_generation: i64,
    last_transition_time: String,
}

// === impl InForceCondition ===

impl InForceCondition {
    /// A condition with this message, cut if it is too long.
    pub(crate) fn new(is_true: bool, reason: &'static str, message: String, generation: i64) -> Self {
        Self {
            is_true,
            reason,
            message: cut(message, MESSAGE_BYTES),
            generation,
        }
    }

    const fn status(&self) -> &'static str {
        if self.is_true { "True" } else { "False" }
    }

    /// Whether `noted` is the same condition, apart from its time.
    pub(crate) fn is_noted(&self, noted: Option<&NotedCondition>) -> bool {
        noted.is_some_and(|noted| {
            noted.status == self.status()
                && noted.reason == self.reason
                && noted.message == self.message
                && noted.generation == self.generation
        })
    }

    /// The condition as it is written at `now` (RFC 3339) in place of `noted`. As for any
    /// condition, the time is that of the last change of `status`.
    pub(crate) fn to_json(&self, noted: Option<&NotedCondition>, now: String) -> Value {
        let before = noted.filter(|noted| noted.status == self.status() && !noted.since.is_empty());
        json!({
            "type": TYPE,
            "status": self.status(),
            "reason": self.reason,
            "message": self.message,
            "observedGeneration": self.generation,
            "lastTransitionTime": before.map_or(now, |noted| noted.since.clone()),
        })
    }
}

// === impl NotedCondition ===

impl NotedCondition {
    /// The condition in a status, if there is one.
    pub(crate) fn of(status: WrittenStatus) -> Option<Self> {
        let mut conditions = status.conditions.into_iter();
        let condition = conditions.find(|condition| condition.sort == TYPE)?;
        Some(Self {
            status: cut(condition.status, MESSAGE_BYTES),
            reason: cut(condition.reason, MESSAGE_BYTES),
            message: cut(condition.message, MESSAGE_BYTES),
            generation: condition.observed_generation,
            since: cut(condition.last_transition_time, MESSAGE_BYTES),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_condition(is_true: bool, message: &str) -> InForceCondition {
        InForceCondition::new(is_true, "Reason", message.to_owned(), 3)
    }

    fn of(status: Value) -> Option<NotedCondition> {
        serde_json::from_value(status).ok().and_then(NotedCondition::of)
    }

    fn noted(condition: &InForceCondition, at: &str) -> Option<NotedCondition> {
        let written = condition.to_json(None, at.to_owned());
        of(json!({"conditions": [{"type": "Other"}, written]}))
    }

    #[test]
    fn what_is_there_already_is_known() {
        let condition = mk_condition(true, "m");
        let there = noted(&condition, "2026-01-01T00:00:00Z");
        assert!(condition.is_noted(there.as_ref()));
        assert!(!condition.is_noted(None));
        for other in [mk_condition(false, "m"), mk_condition(true, "n")] {
            assert!(!other.is_noted(there.as_ref()), "{other:?}");
        }
        let next = InForceCondition {
            generation: 4,
            ..condition
        };
        assert!(!next.is_noted(there.as_ref()));
    }

    #[test]
    fn the_time_is_that_of_the_last_change_of_the_status() {
        let there = noted(&mk_condition(true, "m"), "2026-01-01T00:00:00Z");
        let at = |condition: InForceCondition| {
            let written = condition.to_json(there.as_ref(), "2026-02-02T00:00:00Z".into());
            written["lastTransitionTime"].as_str().unwrap().to_owned()
        };
        assert_eq!(at(mk_condition(true, "n")), "2026-01-01T00:00:00Z");
        assert_eq!(at(mk_condition(false, "m")), "2026-02-02T00:00:00Z");
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let condition = mk_condition(false, &"ä".repeat(MESSAGE_BYTES));
        assert!(condition.message.ends_with("ä…") && condition.message.len() <= MESSAGE_BYTES);
    }

    #[test]
    fn a_status_of_another_form_is_none() {
        for status in [
            json!(null),
            json!("x"),
            json!({"conditions": 7}),
            json!({"conditions": ["x"]}),
        ] {
            assert_eq!(of(status), None);
        }
    }
}
