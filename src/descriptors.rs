//! File descriptors, and how many of them are for what.
//!
//! Connections are accepted as long as there are descriptors, and calls to webhooks take one each.
//! Each has a part of its own, so that neither leaves the other, probes and files without.

use std::sync::LazyLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Kept for probes, files, logs and clusters.
const RESERVED: usize = 256;

/// The most calls at once, however many descriptors there are: each may take 200 KiB.
const MAX_CALLS: usize = 1024;

/// The most idle connections to webhooks, of which each may hold 150 KiB.
const MAX_IDLE_CALLS: usize = 512;

/// How the descriptors of a process are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Descriptors {
    /// For connections of callers and browsers.
    pub(crate) accepted: usize,
    /// For calls to webhooks.
    pub(crate) calls: usize,
    /// For connections to webhooks that nobody uses.
    pub(crate) idle_calls: usize,
}

impl Descriptors {
    /// Those of this process, whose soft limit is raised to the hard one.
    pub(crate) fn of_process() -> Self {
        static DESCRIPTORS: LazyLock<Descriptors> = LazyLock::new(|| Descriptors::within(raise_limit()));
        *DESCRIPTORS
    }

    /// Of a small limit, a quarter is for what is accepted.
    fn within(limit: Option<u64>) -> Self {
        let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let (calls, idle_calls) = ((limit / 8).min(MAX_CALLS), (limit / 8).min(MAX_IDLE_CALLS));
        Self {
            accepted: limit.saturating_sub(RESERVED + calls + idle_calls).max(limit / 4),
            calls,
            idle_calls,
        }
    }
}

fn raise_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(error) => {
            tracing::warn!(%error, "cannot raise the limit of open files");
            limit.current
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_callers_leave_descriptors_to_each_other() {
        let of = |limit| {
            let found = Descriptors::within(limit);
            (found.accepted, found.calls, found.idle_calls)
        };
        assert_eq!(of(Some(1 << 20)), ((1 << 20) - 256 - 1024 - 512, 1024, 512));
        assert_eq!(of(Some(1024)), (512, 128, 128));
        assert_eq!(of(Some(256)), (64, 32, 32));
        let (accepted, calls, idle_calls) = of(None);
        assert!(accepted > 1 << 40);
        assert_eq!((calls, idle_calls), (1024, 512));
    }
}
