//! `reload`: how changed files are detected.

use std::path::PathBuf;
use std::time::Duration;

use super::section::Section;
use portcullis_policy::field::{FaultKind, unsupported_value};

/// When files are read again, besides watching them and SIGHUP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reload {
    /// The time from one look to the next.
    pub poll_interval: Duration,
    /// Where the configuration and manifests that were last in force are kept, for a start beside
    /// faulty ones; `None` for nowhere.
    pub last_good: Option<PathBuf>,
    /// How many Denies, validating policies and webhooks one change of the files may take away; `None`: any.
    pub max_removed: Option<usize>,
    /// Whether objects that lock out are held back (`refuse: [lockOut]`), until they are confirmed.
    pub refuses_lock_outs: bool,
}

/// What `refuse` may name.
const LOCK_OUT: &str = "lockOut";

/// As often as the API server looks at its own.
const fn default_poll_interval() -> Duration {
    Duration::from_secs(60)
}

pub(crate) fn reload(root: &Section<'_>) -> Reload {
    let section = root.section("reload", &["pollInterval", "lastGood", "maxRemoved", "refuse"]);
    let refused = section.texts("refuse");
    for (index, text) in refused.iter().filter(|(_, text)| *text != LOCK_OUT) {
        let message = unsupported_value(text, &[LOCK_OUT]);
        section.fault_at("refuse", *index, FaultKind::NotSupported, message);
    }
    let last_good = section.path("lastGood");
    if !refused.is_empty() && last_good.is_none() {
        let message = "without `reload.lastGood` a restart forgets the last good version of an object that is held \
                       back: set it";
        section.warn("refuse", FaultKind::Suspicious, message);
    }
    Reload {
        refuses_lock_outs: !refused.is_empty(),
        poll_interval: section
            .positive_duration("pollInterval")
            .unwrap_or_else(default_poll_interval),
        last_good,
        max_removed: section.count("maxRemoved").filter(|most| *most > 0),
    }
}
