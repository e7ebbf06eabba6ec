//! How many lines the objects of a cluster write to the log.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use dashmap::DashMap;

/// The most lines of one cluster in one [`WINDOW`]: who may write an object that is faulty may
/// write it again and again.
const MAX_LINES: u32 = 100;
const WINDOW: Duration = Duration::from_secs(60);

/// The lines of each cluster: one that writes very many takes nothing from the others.
#[derive(Default)]
struct LogRate {
    clusters: DashMap<Arc<str>, LogLines>,
}

struct LogLines {
    since: Instant,
    written: u32,
    unwritten: u64,
}

/// Whether to write a line about an object of `cluster` now. Says how many were not written, once
/// one is again.
pub(crate) fn allows(cluster: &str) -> bool {
    static RATE: LazyLock<LogRate> = LazyLock::new(LogRate::default);
    let Some(unwritten) = RATE.due(cluster, Instant::now()) else {
        return false;
    };
    if unwritten > 0 {
        tracing::warn!(
            cluster,
            unwritten,
            "lines about objects of the cluster were not written: its objects change too often"
        );
    }
    true
}

// === impl LogRate ===

impl LogRate {
    /// How many lines were not written before this one; `None`: nor is this one.
    fn due(&self, cluster: &str, now: Instant) -> Option<u64> {
        let new = || LogLines {
            since: now,
            written: 0,
            unwritten: 0,
        };
        let mut lines = self.clusters.entry(cluster.into()).or_insert_with(new);
        let mut unwritten = 0;
        if now.saturating_duration_since(lines.since) >= WINDOW {
            unwritten = lines.unwritten;
            *lines = new();
        }
        if lines.written == MAX_LINES {
            lines.unwritten = lines.unwritten.saturating_add(1);
            return None;
        }
        lines.written += 1;
        Some(unwritten)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cluster_writes_a_bounded_number_of_lines_and_others_theirs() {
        let (rate, start) = (LogRate::default(), Instant::now());
        let written = (0..1_000).filter(|_| rate.due("east", start).is_some());
        assert_eq!(written.count(), 100);
        assert_eq!(rate.due("west", start), Some(0));
        assert_eq!(
            rate.due("east", start + WINDOW),
            Some(900),
            "and says what was left out"
        );
        assert_eq!(rate.due("east", start + WINDOW), Some(0));
    }
}
