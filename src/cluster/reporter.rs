//! Reports the state of a cluster's watches: to the reloader, in logs and metrics, and in the
//! status of objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use http::Method;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::condition::InForceCondition;
use super::kind::WatchedKind;
use super::requests::{ApiError, ApiRequest, ApiServer};
use super::store::{DesiredCondition, Store};
use crate::state::Trigger;
use portcullis_policy::model::Time;

/// Reports changes to the reloader, once until it handles them.
#[derive(Default)]
pub(crate) struct Signal {
    pending: AtomicBool,
    trigger: OnceLock<Trigger>,
}

/// Reports for the watches of one cluster.
#[derive(Clone)]
pub(crate) struct Reporter {
    cluster: Arc<str>,
    signal: Arc<Signal>,
    failures: Arc<AtomicU64>,
    wait_for_unsaved: Arc<Mutex<ReportedFailures>>,
    saver: Arc<Notify>,
    status: Arc<StatusNews>,
}

/// The notifications of the status writer, and whether its failure was logged.
#[derive(Default)]
struct StatusNews {
    notify: Notify,
    is_failure_logged: AtomicBool,
}

/// The last message about each kind and about the connection, with its time.
#[derive(Default)]
struct ReportedFailures(BTreeMap<String, (String, Instant)>);

/// A message is logged again if it was last logged longer ago than this.
const REPEAT_INTERVAL: Duration = Duration::from_secs(60);

// === impl Signal ===

impl Signal {
    /// Reports changes to `trigger` from now on. Called once.
    pub(crate) fn connect(&self, trigger: Trigger) {
        let _first = self.trigger.set(trigger);
    }

    pub(crate) fn raise(&self) {
        if let Some(trigger) = self.trigger.get()
            && !self.pending.swap(true, Ordering::AcqRel)
        {
            trigger.refresh();
        }
    }

    /// Must be called before handling changes, so that later ones are reported again.
    pub(crate) fn clear(&self) {
        self.pending.store(false, Ordering::Release);
    }
}

// === impl Reporter ===

impl Reporter {
    pub(crate) fn new(cluster: &str, signal: Arc<Signal>) -> Self {
        Self {
            cluster: cluster.into(),
            signal,
            failures: Arc::default(),
            wait_for_unsaved: Arc::default(),
            saver: Arc::default(),
            status: Arc::default(),
        }
    }

    pub(crate) fn cluster(&self) -> &Arc<str> {
        &self.cluster
    }

    /// Reports that the objects in force changed.
    pub(crate) fn changed(&self) {
        self.signal.raise();
        self.saver.notify_one();
    }

    /// Reports that a kind was listed, with or without a change.
    pub(crate) fn listed(&self) {
        self.saver.notify_one();
    }

    /// Counts a failed list or watch. Returns whether to log it: `said` is not the last message
    /// about `about`, or was last logged some time ago.
    pub(crate) fn failed(&self, about: &str, said: &str, now: Instant) -> bool {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let mut news = self
            .wait_for_unsaved
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        news.is_new(about, said, now)
    }

    /// Counts and logs that the API server could not be reached.
    pub(crate) fn unreachable(&self, said: &str, now: Instant) {
        let cluster = &*self.cluster;
        if self.failed("", said, now) {
            tracing::warn!(
                cluster,
                error = said,
                "API server unreachable: using the objects known so far"
            );
        } else {
            tracing::debug!(cluster, error = said, "API server still unreachable");
        }
    }

    /// How many lists and watches have failed.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Reports that conditions in statuses may have changed.
    pub(crate) fn conditions_changed(&self) {
        self.status.notify.notify_one();
    }

    /// Waits until conditions in statuses may have changed.
    pub(crate) async fn status_news(&self) {
        self.status.notify.notified().await;
    }

    /// Whether this is the first time that the API server rejects a status.
    pub(crate) fn is_first_status_failure(&self) -> bool {
        !self.status.is_failure_logged.swap(true, Ordering::Relaxed)
    }

    /// Whether to log a message about `about`. Does not count as a failure.
    pub(crate) fn is_news(&self, about: &str, said: &str, now: Instant) -> bool {
        let mut news = self
            .wait_for_unsaved
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        news.is_new(about, said, now)
    }

    /// Waits until there may be something to save.
    pub(crate) async fn wait_for_unsaved(&self) {
        self.saver.notified().await;
    }
}

// === impl ReportedFailures ===

impl ReportedFailures {
    /// Messages about a lost connection differ at each attempt, so they count as the same.
    fn is_new(&mut self, about: &str, said: &str, now: Instant) -> bool {
        let before = self.0.insert(about.to_owned(), (said.to_owned(), now));
        before.is_none_or(|(last, at)| {
            let same = about.is_empty() || last == said;
            !same || now.duration_since(at) >= REPEAT_INTERVAL
        })
    }
}

// Writes the condition `InForce` if `clusters[].writeStatus` is true.
//
// The conditions to write are computed from the current state, so that no queue builds up: a change
// during a write is handled in the next round. Nothing waits for a status, and nothing fails
// because of it. Several gateways may write the same condition: the API server does not store an
// equal object again.

/// The field manager of the condition (server-side apply).
const MANAGER: &str = "portcullis";

/// The timeout of one write.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum size of a response, which is the object, in bytes.
const MAX_ANSWER_BYTES: usize = 16 << 20;

/// How long to wait before an API server that did not respond is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// The maximum time until the clock is read again, because it may be adjusted.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Writes conditions for as long as it is polled.
pub(crate) struct StatusWriter {
    pub(crate) server: ApiServer,
    pub(crate) store: Arc<Store>,
    pub(crate) reporter: Reporter,
    /// The last condition of each object that was written or rejected, with the object's uid.
    pub(crate) settled: BTreeMap<(WatchedKind, String), (String, InForceCondition)>,
}

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriteOutcome {
    /// The condition is written, or the object has changed: it is not tried again.
    Settled,
    /// The API server does not allow it: it is tried again with the next change.
    Refused,
    /// The API server did not respond.
    Unanswered,
}

// === impl StatusWriter ===

impl StatusWriter {
    pub(crate) async fn run(mut self) {
        loop {
            let (wanted, next) = self.store.conditions(SystemTime::now().into());
            let wait = match self.write_all(wanted).await {
                WriteOutcome::Settled => next.map_or(MAX_WAIT, |next| until(next).min(MAX_WAIT)),
                WriteOutcome::Refused => MAX_WAIT,
                WriteOutcome::Unanswered => RETRY_DELAY,
            };
            let news = self.reporter.status_news();
            tokio::select! {
                () = news => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Writes all conditions that are missing, up to the first that fails.
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
        match tokio::time::timeout(WRITE_TIMEOUT, writing).await {
            Ok(Ok(_)) => WriteOutcome::Settled,
            Ok(Err(ApiError::Refused(status))) if (400..500).contains(&status.code) && status.code != 429 => {
                let error = status.message.as_str();
                // The object was deleted or has changed. The watch reports the change.
                if matches!(status.code, 404 | 409) {
                    tracing::debug!(cluster, %kind, name, error, "cannot write the status of an object");
                    return WriteOutcome::Settled;
                }
                if self.reporter.is_first_status_failure() {
                    tracing::warn!(
                        cluster, %kind, name, error,
                        "cannot write the status of objects; config/cluster/status.yaml grants the gateway's \
                        user the permissions"
                    );
                }
                if status.code == 403 {
                    WriteOutcome::Refused
                } else {
                    WriteOutcome::Settled
                }
            }
            Ok(Err(error)) => {
                tracing::debug!(cluster, %kind, name, %error, "cannot write the status of an object");
                WriteOutcome::Unanswered
            }
            Err(_) => WriteOutcome::Unanswered,
        }
    }
}

fn key(wanted: &DesiredCondition) -> (WatchedKind, String) {
    (wanted.kind.clone(), wanted.name.clone())
}

/// The path of the object's status.
fn path(wanted: &DesiredCondition) -> String {
    let plural = match wanted.kind.kind.as_str() {
        "AdmissionException" => "admissionexceptions",
        "AuthorizationInvariant" => "authorizationinvariants",
        "AccessRequest" => "accessrequests",
        _ => "authorizationpolicies",
    };
    let (group_version, name) = (api_version(&wanted.kind), &wanted.name);
    format!("/apis/{group_version}/{plural}/{name}/status?fieldManager={MANAGER}&force=true")
}

fn api_version(kind: &WatchedKind) -> String {
    kind.api_version(kind.versions.first().map_or("", String::as_str))
}

/// Contains the uid, so that the API server rejects it if the object was deleted and created again.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_failure_is_told_once_until_it_was_gone_for_a_while() {
        let mut news = ReportedFailures::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(news.is_new("Role", "forbidden", at(0)));
        assert!(!news.is_new("Role", "forbidden", at(10)));
        assert!(news.is_new("Role", "gone", at(20)), "something else");
        assert!(news.is_new("Namespace", "gone", at(20)), "of another kind");
        assert!(!news.is_new("Role", "gone", at(79)));
        assert!(news.is_new("Role", "gone", at(139)), "it was gone");
        assert!(news.is_new("", "refused", at(0)) && !news.is_new("", "reset", at(10)));
    }
}
