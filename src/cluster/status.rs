//! Writes the condition `InForce` where `clusters[].writeStatus` says so.
//!
//! What is to be written follows from what is known now, so that nothing queues up: a
//! change that comes while another is written is seen in the next round. Nothing waits
//! for a status and nothing fails with it. Several gateways may write the same: the API
//! server takes an equal condition without storing it again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::Method;
use serde_json::{Value, json};

use super::condition::InForceCondition;
use super::kind::WatchedKind;
use super::reporter::Reporter;
use super::requests::{ApiError, ApiRequest, ApiServer};
use super::store::{DesiredCondition, Store};
use portcullis_policy::engine::Time;

/// Who the fields of the condition belong to (server-side apply).
const MANAGER: &str = "portcullis";

/// How long one write may take.
const LIMIT: Duration = Duration::from_secs(10);

/// The most bytes of what is answered: the object.
const MAX_ANSWER_BYTES: usize = 16 << 20;

/// How long to wait before an API server is tried again that did not answer.
const AGAIN: Duration = Duration::from_secs(10);

/// How long it takes at most until the clock is read again: it may be set.
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

/// Of this very object: one that was deleted and created again meanwhile is refused.
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
