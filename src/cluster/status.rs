//! Writes the condition `InForce` where `clusters[].writeStatus` says so.
//!
//! What is to be written follows from what is known now, so that nothing queues up: a
//! change that comes while another is written is seen in the next round. Nothing waits
//! for a status and nothing fails with it. Several gateways may write the same: the API
//! server takes an equal condition without storing it anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::kind::WatchedKind;
use super::reporter::Reporter;
use super::requests::{ApiError, ApiRequest, ApiServer};
use super::store::{DesiredCondition, Store};
use portcullis_policy::engine::Time;
use portcullis_policy::engine::text::cut;

/// Who the fields of the condition belong to (server-side apply).
const MANAGER: &str = "portcullis";

/// How long one write may take.
const LIMIT: Duration = Duration::from_secs(10);

/// The most bytes of what is answered: the object.
const MAX_ANSWER_BYTES: usize = 16 << 20;

/// How long to wait before an API server is tried again that did not answer.
const AGAIN: Duration = Duration::from_secs(10);

/// How long it takes at most until the clock is looked at again: it may be set.
const LONGEST: Duration = Duration::from_secs(60);

/// Writes conditions for as long as it is polled.
pub(crate) struct StatusWriter {
    pub(crate) server: ApiServer,
    pub(crate) store: Arc<Store>,
    pub(crate) reporter: Reporter,
    /// What was written or refused last, by object.
    pub(crate) settled: BTreeMap<(WatchedKind, String), (String, InForceCondition)>,
}

/// What came of one write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriteOutcome {
    /// It is written, or the object is another by now: not tried again.
    Settled,
    /// The API server does not let it be written: tried again with the next change.
    Refused,
    /// The API server did not answer.
    Unanswered,
}

// === impl StatusWriter ===

impl StatusWriter {
    pub(crate) async fn run(mut self) {
        loop {
            let (wanted, next) = self.store.conditions(SystemTime::now().into());
            let wait = match self.write_all(wanted).await {
                WriteOutcome::Settled => next.map_or(LONGEST, |next| until(next).min(LONGEST)),
                WriteOutcome::Refused => LONGEST,
                WriteOutcome::Unanswered => AGAIN,
            };
            let news = self.reporter.status_news();
            tokio::select! {
                () = news => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Writes what is not written, as far as the API server lets it be.
    async fn write_all(&mut self, all: Vec<DesiredCondition>) -> WriteOutcome {
        let keys: BTreeSet<_> = all.iter().map(key).collect();
        self.settled.retain(|key, _| keys.contains(key));
        for wanted in all {
            let settled = (wanted.uid.clone(), wanted.condition.clone());
            if self.settled.get(&key(&wanted)) == Some(&settled) {
                continue;
            }
            let is_there = wanted.condition.is_noted(wanted.noted.as_ref());
            if !is_there {
                let outcome = self.write(&wanted).await;
                if outcome != WriteOutcome::Settled {
                    return outcome;
                }
            }
            self.settled.insert(key(&wanted), settled);
        }
        WriteOutcome::Settled
    }

    async fn write(&self, wanted: &DesiredCondition) -> WriteOutcome {
        let patch = patch(wanted, SystemTime::now()).to_string();
        let path = path(wanted);
        let request = ApiRequest {
            method: &Method::PATCH,
            path: &path,
            content: ("Content-Type", "application/apply-patch+yaml"),
            body: patch.as_bytes(),
        };
        let writing = self.server.ask(&request, MAX_ANSWER_BYTES);
        let cluster = &**self.reporter.cluster();
        let (kind, name) = (&wanted.kind, &wanted.name);
        match tokio::time::timeout(LIMIT, writing).await {
            Ok(Ok(_)) => WriteOutcome::Settled,
            Ok(Err(ApiError::Refused(status))) if (400..500).contains(&status.code) && status.code != 429 => {
                let error = status.message.as_str();
                // Gone, or another by now: the next change tells.
                if matches!(status.code, 404 | 409) {
                    tracing::debug!(cluster, %kind, name, error, "did not write the status of an object");
                    return WriteOutcome::Settled;
                }
                if self.reporter.is_first_status_failure() {
                    tracing::warn!(
                        cluster, %kind, name, error,
                        "cannot write the status of objects; config/cluster/status.yaml has what the gateway's \
                         user needs for it"
                    );
                }
                if status.code == 403 {
                    WriteOutcome::Refused
                } else {
                    WriteOutcome::Settled
                }
            }
            Ok(Err(error)) => {
                tracing::debug!(cluster, %kind, name, %error, "did not write the status of an object");
                WriteOutcome::Unanswered
            }
            Err(_) => WriteOutcome::Unanswered,
        }
    }
}

fn key(wanted: &DesiredCondition) -> (WatchedKind, String) {
    (wanted.kind.clone(), wanted.name.clone())
}

/// Where the status of the object is.
fn path(wanted: &DesiredCondition) -> String {
    let plural = match wanted.kind.kind.as_str() {
        "AdmissionException" => "admissionexceptions",
        _ => "authorizationpolicies",
    };
    let (group_version, name) = (api_version(&wanted.kind), &wanted.name);
    format!("/apis/{group_version}/{plural}/{name}/status?fieldManager={MANAGER}&force=true")
}

fn api_version(kind: &WatchedKind) -> String {
    kind.api_version(kind.versions.first().map_or("", String::as_str))
}

/// Of this very object: one that was deleted and made anew meanwhile is refused.
fn patch(wanted: &DesiredCondition, now: SystemTime) -> Value {
    let now = Time::from(whole_seconds(now)).to_string();
    json!({
        "apiVersion": api_version(&wanted.kind),
        "kind": wanted.kind.kind,
        "metadata": {"name": wanted.name, "uid": wanted.uid},
        "status": {"conditions": [wanted.condition.to_json(wanted.noted.as_ref(), now)]},
    })
}

fn whole_seconds(time: SystemTime) -> SystemTime {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs())
}

fn until(next: Time) -> Duration {
    let seconds = next.as_seconds() - Time::from(SystemTime::now()).as_seconds();
    Duration::try_from_secs_f64(seconds).unwrap_or_default() + Duration::from_millis(1)
}

// The condition `InForce` in the status of AuthorizationPolicies and AdmissionExceptions.
//
// It tells people. Nothing is decided by it, and what stands in a status is looked at
// for one thing alone: not to write again what is there already.

/// `type` of the condition.
const TYPE: &str = "InForce";

/// The longest message, in bytes; the API server takes 32768.
const MESSAGE_BYTES: usize = 4096;

/// Whether an object decides requests, and why (not).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InForceCondition {
    pub(crate) is_true: bool,
    /// In CamelCase.
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// Of the version that it is about.
    pub(crate) generation: i64,
}

/// The condition as it stands in a status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NotedCondition {
    status: String,
    reason: String,
    message: String,
    generation: i64,
    /// `lastTransitionTime`.
    since: String,
}

/// A status as an API server has it.
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
    /// One with a message that is cut where it is too long.
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

    /// Whether this is what is `noted`, but for the time.
    pub(crate) fn is_noted(&self, noted: Option<&NotedCondition>) -> bool {
        noted.is_some_and(|noted| {
            noted.status == self.status()
                && noted.reason == self.reason
                && noted.message == self.message
                && noted.generation == self.generation
        })
    }

    /// As it is written at `now` (RFC 3339) where `noted` is what stands there. The time
    /// is that of the last change of the status alone, as for any condition.
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
    /// That of a status, if it has one.
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
