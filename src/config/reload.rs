//! `reload`: how changed files are detected.

use std::path::PathBuf;
use std::time::Duration;

use super::section::Section;

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
}

/// As often as the API server looks at its own.
const fn default_poll_interval() -> Duration {
    Duration::from_secs(60)
}

pub(crate) fn reload(root: &Section<'_>) -> Reload {
    let section = root.section("reload", &["pollInterval", "lastGood", "maxRemoved"]);
    Reload {
        poll_interval: section
            .positive_duration("pollInterval")
            .unwrap_or_else(default_poll_interval),
        last_good: section.path("lastGood"),
        max_removed: section.count("maxRemoved").filter(|most| *most > 0),
    }
}
