//! Status and metrics of the watches of a cluster.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::reload::Trigger;

/// Reports a change to the reloader, once until it has looked.
#[derive(Default)]
pub(crate) struct Signal {
    pending: AtomicBool,
    trigger: OnceLock<Trigger>,
}

/// The voice of one cluster's watches.
#[derive(Clone)]
pub(crate) struct Reporter {
    cluster: Arc<str>,
    signal: Arc<Signal>,
    failures: Arc<AtomicU64>,
    news: Arc<Mutex<ReportedFailures>>,
    saver: Arc<Notify>,
    status: Arc<StatusNews>,
}

/// What the writer of statuses waits for, and what is said of it.
#[derive(Default)]
struct StatusNews {
    notify: Notify,
    is_told: AtomicBool,
}

/// What was said last about each kind, and of the connection, and when.
#[derive(Default)]
struct ReportedFailures(BTreeMap<String, (String, Instant)>);

/// After so long without it, what was said before is news again.
const FORGOTTEN: Duration = Duration::from_secs(60);

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

    /// The caller looks at everything after it.
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
            news: Arc::default(),
            saver: Arc::default(),
            status: Arc::default(),
        }
    }

    pub(crate) fn cluster(&self) -> &Arc<str> {
        &self.cluster
    }

    /// What holds changed.
    pub(crate) fn changed(&self) {
        self.signal.raise();
        self.saver.notify_one();
    }

    /// A kind was listed, with or without a change.
    pub(crate) fn listed(&self) {
        self.saver.notify_one();
    }

    /// A list or a watch failed. Whether that is worth a line: what is said about
    /// `about` was not said just before.
    pub(crate) fn failed(&self, about: &str, said: &str, now: Instant) -> bool {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        news.is_new(about, said, now)
    }

    /// The API server could not be reached. Says so where that is news.
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

    /// What a status is to say may have changed.
    pub(crate) fn standing_changed(&self) {
        self.status.notify.notify_one();
    }

    /// Waits until a status may have to say something else.
    pub(crate) async fn status_news(&self) {
        self.status.notify.notified().await;
    }

    /// Whether nothing was said yet of a status that the API server refuses.
    pub(crate) fn is_first_status_failure(&self) -> bool {
        !self.status.is_told.swap(true, Ordering::Relaxed)
    }

    /// Whether what is said about `about` is worth a line. It is no failure.
    pub(crate) fn is_news(&self, about: &str, said: &str, now: Instant) -> bool {
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        news.is_new(about, said, now)
    }

    /// Waits until there may be something to save.
    pub(crate) async fn news(&self) {
        self.saver.notified().await;
    }
}

// === impl ReportedFailures ===

impl ReportedFailures {
    /// Of a connection that is gone, each attempt says something else of the same.
    fn is_new(&mut self, about: &str, said: &str, now: Instant) -> bool {
        let before = self.0.insert(about.to_owned(), (said.to_owned(), now));
        before.is_none_or(|(last, at)| {
            let same = about.is_empty() || last == said;
            !same || now.duration_since(at) >= FORGOTTEN
        })
    }
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
