//! File descriptors: raises the limit, and reserves some for everything except callers'
//! connections.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::connections::BEYOND_MAX;

/// Kept for probes, files, logs, webhooks and clusters.
const RESERVE: usize = 256;

/// Raises the soft limit of open files to the hard one; the connections that
/// there are descriptors for then.
pub(crate) fn connections() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    let current = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(error) => {
            tracing::warn!(%error, "cannot raise the limit of open files");
            limit.current
        }
    };
    within(current)
}

/// The connections that a limit of open files leaves; of a small one, a quarter.
fn within(limit: Option<u64>) -> usize {
    let Some(limit) = limit else { return usize::MAX };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    limit.saturating_sub(RESERVE + BEYOND_MAX).max(limit / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_descriptors_are_kept_for_what_is_no_callers_connection() {
        assert_eq!(within(None), usize::MAX);
        assert_eq!(within(Some(1 << 20)), (1 << 20) - 320);
        assert_eq!(within(Some(512)), 192);
        assert_eq!(within(Some(256)), 64);
    }
}
