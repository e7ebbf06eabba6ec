//! Whether what holds is what the API server has.

use std::time::{Duration, Instant};

use super::{Store, StoredKinds};
use crate::cluster::kind::WatchedKind;

/// What is not up to date for less time is not reported: watches end and begin again.
const OUTDATED_AFTER: Duration = Duration::from_secs(60);

/// Since when a kind may be another in the API server, and why.
#[derive(Debug, Clone)]
pub(crate) struct StaleSince {
    pub(crate) since: Instant,
    pub(crate) why: String,
}

// === impl Store ===

impl Store {
    /// `kind` was listed, and is watched from there on.
    pub(crate) fn is_followed(&self, kind: &WatchedKind) {
        if let Some(objects) = self.known().kinds.get_mut(kind) {
            objects.outdated = None;
        }
    }

    /// `kind` is not watched since `now`, or before.
    pub(crate) fn is_not_followed(&self, kind: &WatchedKind, why: &str, now: Instant) {
        if let Some(objects) = self.known().kinds.get_mut(kind) {
            let since = objects.outdated.as_ref().map_or(now, |outdated| outdated.since);
            let why = why.to_owned();
            objects.outdated = Some(StaleSince { since, why });
        }
    }
}

#[cfg(test)]
impl Store {
    /// What is reported as not up to date at `now`.
    pub(crate) fn outdated_at(&self, now: Instant) -> Vec<String> {
        self.known().outdated(now)
    }
}

// === impl StoredKinds ===

impl StoredKinds {
    /// The kinds that were not up to date for a while at `now`, each with what there is to say.
    pub(crate) fn outdated(&self, now: Instant) -> Vec<String> {
        let kinds = self.kinds.iter();
        let outdated = kinds.filter_map(|(kind, objects)| {
            let StaleSince { since, why } = objects.outdated.as_ref()?;
            let age = now.saturating_duration_since(*since);
            let seconds = age.as_secs();
            (age >= OUTDATED_AFTER).then(|| format!("{kind}: for {seconds} s: {why}"))
        });
        outdated.collect()
    }
}
