//! File descriptors, and how many of them are for what.
//!
//! Connections are accepted as long as there are descriptors, and calls to webhooks and other
//! authorizers take one each, and so do connections to API servers that are watched.
//! Each has a part of its own, so that neither leaves the other, probes and files without.

use std::sync::LazyLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Kept for probes, files and logs.
const RESERVED: usize = 256;

/// The most calls at once, however many descriptors there are: each may take 200 KiB.
const MAX_CALLS: usize = 1024;

/// The most idle connections to webhooks, of which each may hold 150 KiB.
const MAX_IDLE_CALLS: usize = 512;

/// The most connections to API servers.
const MAX_WATCHES: usize = 16_384;

/// How the descriptors of a process are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Descriptors {
    /// For connections of callers and browsers.
    pub(crate) accepted: usize,
    /// For calls to webhooks and other authorizers.
    calls: usize,
    /// For connections to webhooks that nobody uses.
    pub(crate) idle_calls: usize,
    /// For connections to API servers that are watched.
    pub(crate) watches: usize,
}

impl Descriptors {
    /// Those of this process, whose soft limit is raised to the hard one.
    pub(crate) fn of_process() -> Self {
        static DESCRIPTORS: LazyLock<Descriptors> = LazyLock::new(|| Descriptors::within(raise_limit()));
        *DESCRIPTORS
    }

    /// Of the calls, those that admission waits for.
    pub(crate) const fn admission_calls(self) -> usize {
        self.calls / 8 * 5
    }

    /// Those to webhooks in shadow.
    pub(crate) const fn shadow_calls(self) -> usize {
        self.calls / 8
    }

    /// Those to other authorizers.
    pub(crate) const fn authorizer_calls(self) -> usize {
        self.calls / 4
    }

    /// Of a small limit, a quarter is for what is accepted.
    fn within(limit: Option<u64>) -> Self {
        let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let eighth = |most: usize| (limit / 8).min(most);
        let (calls, idle_calls, watches) = (eighth(MAX_CALLS), eighth(MAX_IDLE_CALLS), eighth(MAX_WATCHES));
        let others = RESERVED + calls + idle_calls + watches;
        Self {
            accepted: limit.saturating_sub(others).max(limit / 4),
            calls,
            idle_calls,
            watches,
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
            (found.accepted, found.calls, found.idle_calls, found.watches)
        };
        let accepted = (1 << 20) - 256 - 1024 - 512 - 16_384;
        assert_eq!(of(Some(1 << 20)), (accepted, 1024, 512, 16_384));
        assert_eq!(of(Some(1024)), (384, 128, 128, 128));
        assert_eq!(of(Some(256)), (64, 32, 32, 32));
        let (accepted, calls, idle_calls, watches) = of(None);
        assert!(accepted > 1 << 40);
        assert_eq!((calls, idle_calls, watches), (1024, 512, 16_384));
        for limit in [None, Some(1024), Some(256), Some(64)] {
            let found = Descriptors::within(limit);
            let parts = [
                found.admission_calls(),
                found.shadow_calls(),
                found.authorizer_calls(),
            ];
            assert!(parts.iter().sum::<usize>() <= found.calls && parts.iter().all(|part| *part > 0));
        }
    }
}
