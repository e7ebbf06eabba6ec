//! The lifecycle of a gateway: starting, serving, draining.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::accept::{ConnectionStage, Connections};
use super::limits::Limiter;

/// How long a draining gateway stays although nothing is in flight: requests
/// may be on the wire, and a probe may look.
const MIN_IDLE_TIME: Duration = Duration::from_millis(100);

/// How often a draining gateway looks whether it may end.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Where in its life the gateway is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LifecyclePhase {
    /// Listening, not answering yet.
    Starting,
    /// Answering.
    Serving,
    /// Answering what still comes, about to end.
    Draining,
}

/// The phase, and what is in flight.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    phase: AtomicU8,
    /// Requests for authorization.
    pub(crate) authorization: Arc<Limiter>,
    /// Requests for admission.
    pub(crate) admission: Arc<Limiter>,
    /// Requests that are answered, about which webhooks in shadow are asked.
    pub(crate) shadow: Arc<Limiter>,
    /// The connections of the `server` listener.
    pub(crate) connections: Arc<Connections>,
}

// === impl Lifecycle ===

impl Lifecycle {
    /// Starting, nothing in flight.
    pub(crate) fn new(connections: Arc<Connections>) -> Self {
        Self {
            phase: AtomicU8::new(0),
            authorization: Arc::default(),
            admission: Arc::default(),
            shadow: Arc::default(),
            connections,
        }
    }

    pub(crate) fn phase(&self) -> LifecyclePhase {
        match self.phase.load(Ordering::Acquire) {
            0 => LifecyclePhase::Starting,
            1 => LifecyclePhase::Serving,
            _ => LifecyclePhase::Draining,
        }
    }

    /// Answers from now on.
    pub(crate) fn serve(&self) {
        self.phase.store(1, Ordering::Release);
    }

    /// Fails readiness from now on, and has clients look for other connections.
    pub(crate) fn drain(&self) {
        self.phase.store(2, Ordering::Release);
        self.connections.advance(ConnectionStage::Draining);
    }

    /// Ends every connection and waits for that, `limit` at most.
    pub(crate) async fn close(&self, limit: Duration) {
        self.connections.advance(ConnectionStage::Ending);
        let start = Instant::now();
        while self.connections.len() > 0 && start.elapsed() < limit {
            sleep(POLL_INTERVAL).await;
        }
    }

    fn is_idle(&self) -> bool {
        [&self.authorization, &self.admission, &self.shadow]
            .iter()
            .all(|limiter| limiter.is_empty())
    }

    /// Waits until nothing is in flight, `limit` at most. Whether nothing is.
    pub(crate) async fn drained(&self, limit: Duration) -> bool {
        let start = Instant::now();
        loop {
            let since = start.elapsed();
            if since >= MIN_IDLE_TIME.min(limit) && self.is_idle() {
                return true;
            }
            if since >= limit {
                return false;
            }
            sleep(POLL_INTERVAL).await;
        }
    }
}
