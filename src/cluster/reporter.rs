//! What the watches of a cluster tell others.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::sync::Notify;

use crate::reload::Trigger;

/// Tells the reloader that something changed, once until it has looked.
#[derive(Default)]
pub(super) struct Signal {
    pending: AtomicBool,
    trigger: OnceLock<Trigger>,
}

/// The voice of one cluster's watches.
#[derive(Clone)]
pub(super) struct Reporter {
    cluster: Arc<str>,
    signal: Arc<Signal>,
    failures: Arc<AtomicU64>,
    saver: Arc<Notify>,
}

// === impl Signal ===

impl Signal {
    /// From now on `trigger` is told. Once.
    pub(super) fn connect(&self, trigger: Trigger) {
        let _first = self.trigger.set(trigger);
    }

    pub(super) fn raise(&self) {
        if let Some(trigger) = self.trigger.get()
            && !self.pending.swap(true, Ordering::AcqRel)
        {
            trigger.refresh();
        }
    }

    /// Whoever calls this looks at everything after it.
    pub(super) fn clear(&self) {
        self.pending.store(false, Ordering::Release);
    }
}

// === impl Reporter ===

impl Reporter {
    pub(super) fn new(cluster: &str, signal: Arc<Signal>) -> Self {
        Self {
            cluster: cluster.into(),
            signal,
            failures: Arc::default(),
            saver: Arc::default(),
        }
    }

    pub(super) fn cluster(&self) -> &Arc<str> {
        &self.cluster
    }

    /// What holds changed.
    pub(super) fn changed(&self) {
        self.signal.raise();
        self.saver.notify_one();
    }

    /// A kind was listed, with or without a change.
    pub(super) fn listed(&self) {
        self.saver.notify_one();
    }

    /// A list or a watch failed.
    pub(super) fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// How many lists and watches have failed.
    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Waits until there may be something to save.
    pub(super) async fn news(&self) {
        self.saver.notified().await;
    }
}
