//! Where each decision is written: to the decision log, to the console, or to both.

use std::sync::Arc;
use std::time::Duration;

use crate::config::LogTrace;
use crate::console::ConsoleState;
use crate::reload::Snapshot;
use crate::telemetry::DecisionLog;
use crate::telemetry::decision_log::Record;

/// Takes decisions. The line of each is made once, for all who want it.
pub(crate) struct DecisionRecorder {
    log: Option<DecisionLog>,
    console: Option<Arc<ConsoleState>>,
}

// === impl DecisionRecorder ===

impl DecisionRecorder {
    /// For a log, a console, or both; `None` without either.
    pub(crate) fn new(log: Option<DecisionLog>, console: Option<Arc<ConsoleState>>) -> Option<Self> {
        (log.is_some() || console.is_some()).then_some(Self { log, console })
    }

    /// Whether anybody wants to know which rules came nearest.
    pub(crate) fn wants_near_misses(&self, snapshot: &Snapshot) -> bool {
        self.console.is_some() || logs_near_misses(snapshot)
    }

    /// Writes a decision, by `snapshot`. The rules that came nearest are always for the console,
    /// and for the log where its configuration says so.
    pub(crate) fn record(&self, record: &Record<'_>, snapshot: &Snapshot) {
        record.with_line(|line| {
            if let Some(log) = &self.log {
                log.write(line, logs_near_misses(snapshot));
            }
            if let Some(console) = &self.console {
                console.push(record.decision, record.cluster, line.whole());
            }
        });
    }

    /// Waits until every line so far is written to the log, `limit` at most. Whether it is.
    pub(crate) fn flush(&self, limit: Duration) -> bool {
        self.log.as_ref().is_none_or(|log| log.flush(limit))
    }
}

fn logs_near_misses(snapshot: &Snapshot) -> bool {
    let log = snapshot.config.decision_log.as_ref();
    log.is_some_and(|log| log.trace == LogTrace::NearMisses)
}
