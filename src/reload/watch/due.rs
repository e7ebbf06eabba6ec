//! Decides when to read the files: some time after a change, when no more changes arrive.

use std::time::{Duration, Instant};

/// How long the files must be quiet before they are read: an editor or a
/// copy of a folder writes several times.
const QUIET: Duration = Duration::from_millis(100);

/// After this the files are read although they still change.
const LONGEST: Duration = Duration::from_secs(2);

/// The same for objects of clusters: a label that changes is to hold within a second.
const LONGEST_BESIDE: Duration = Duration::from_millis(400);

/// What is to be done.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Requested {
    /// The files are to be loaded, changed or not.
    pub(crate) is_forced: bool,
    /// Some of them changed.
    is_changed: bool,
    /// What is beside the files changed.
    pub(crate) is_beside: bool,
}

/// What is to be done, and when.
#[derive(Debug)]
pub(crate) struct Schedule {
    requested: Requested,
    /// The first and the last request of these.
    since: Option<(Instant, Instant)>,
    /// When the files were last looked at.
    looked: Instant,
    /// Before this nothing is done for changes.
    rested: Instant,
}

// === impl Requested ===

impl Requested {
    pub(crate) const FORCED: Self = Self {
        is_forced: true,
        is_changed: false,
        is_beside: false,
    };
    pub(crate) const CHANGED: Self = Self {
        is_forced: false,
        is_changed: true,
        is_beside: false,
    };
    pub(crate) const BESIDE: Self = Self {
        is_forced: false,
        is_changed: false,
        is_beside: true,
    };

    /// Whether the files need no look.
    pub(crate) const fn is_beside_alone(self) -> bool {
        self.is_beside && !self.is_forced && !self.is_changed
    }

    const fn and(self, other: Self) -> Self {
        Self {
            is_forced: self.is_forced || other.is_forced,
            is_changed: self.is_changed || other.is_changed,
            is_beside: self.is_beside || other.is_beside,
        }
    }
}

// === impl Schedule ===

impl Schedule {
    /// Nothing is requested; the files were looked at `now`.
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            requested: Requested {
                is_forced: false,
                is_changed: false,
                is_beside: false,
            },
            since: None,
            looked: now,
            rested: now,
        }
    }

    pub(crate) fn request(&mut self, requested: Requested, now: Instant) {
        self.requested = self.requested.and(requested);
        let first = self.since.map_or(now, |(first, _)| first);
        self.since = Some((first, now));
    }

    /// When to do what is requested, if anything is: what is asked for outright
    /// at once, what changed once it is quiet and the last rebuild is rested from.
    pub(crate) fn requested_at(&self) -> Option<Instant> {
        let (first, last) = self.since?;
        if self.requested.is_forced {
            return Some(first);
        }
        let longest = if self.requested.is_beside_alone() {
            LONGEST_BESIDE
        } else {
            LONGEST
        };
        Some((last + QUIET).min(first + longest).max(self.rested))
    }

    /// When to look at the files although nothing is requested.
    pub(crate) fn poll_at(&self, interval: Duration) -> Option<Instant> {
        self.looked.checked_add(interval)
    }

    /// What is requested, which is not any more.
    pub(crate) fn take(&mut self) -> Requested {
        self.since = None;
        std::mem::take(&mut self.requested)
    }

    pub(crate) fn looked(&mut self, now: Instant) {
        self.looked = now;
    }

    pub(crate) fn rest_until(&mut self, rested: Instant) {
        self.rested = rested;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn changes_wait_until_all_is_quiet_but_not_for_ever() {
        let now = Instant::now();
        let mut schedule = Schedule::new(now);
        assert_eq!(schedule.requested_at(), None);
        schedule.request(Requested::CHANGED, now);
        assert_eq!(schedule.requested_at(), Some(now + ms(100)));
        schedule.request(Requested::BESIDE, now + ms(50));
        assert_eq!(schedule.requested_at(), Some(now + ms(150)));
        schedule.request(Requested::CHANGED, now + ms(1990));
        assert_eq!(schedule.requested_at(), Some(now + LONGEST));
        schedule.rest_until(now + ms(5000));
        assert_eq!(schedule.requested_at(), Some(now + ms(5000)));
        let taken = schedule.take();
        assert!(taken.is_beside && !taken.is_forced && !taken.is_beside_alone());
        assert_eq!(schedule.requested_at(), None);
    }

    #[test]
    fn who_asks_waits_for_nothing() {
        let now = Instant::now();
        let mut schedule = Schedule::new(now);
        schedule.rest_until(now + ms(5000));
        schedule.request(Requested::BESIDE, now);
        schedule.request(Requested::FORCED, now + ms(10));
        assert_eq!(schedule.requested_at(), Some(now));
    }

    #[test]
    fn the_poll_counts_from_the_last_look() {
        let now = Instant::now();
        let mut schedule = Schedule::new(now);
        schedule.looked(now + ms(70));
        assert_eq!(schedule.poll_at(ms(1000)), Some(now + ms(1070)));
        assert_eq!(schedule.poll_at(Duration::MAX), None);
    }
}
