//! Instants, and the periods during which policies are in force.
//!
//! There is no clock here: the caller passes the time of the decision.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use portcullis_cel::{Budget, CompileBudget, Timestamp};

/// An instant between the years 1 and 9999, with nanosecond precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Seconds since 1970 in UTC.
    seconds: i64,
    nanoseconds: u32,
}

/// A period of validity: `notBefore` and `notAfter`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Validity {
    /// The first instant of the period; `None` if it has no beginning.
    pub not_before: Option<Time>,
    /// The first instant after the period; `None` if it has no end.
    pub not_after: Option<Time>,
}

// === impl Time ===

impl Time {
    /// The first instant of 1970.
    pub const UNIX_EPOCH: Self = Self {
        seconds: 0,
        nanoseconds: 0,
    };
    const FIRST: i64 = -62_135_596_800;
    const LAST: i64 = 253_402_300_799;

    /// Parses RFC 3339, such as `2026-12-01T08:00:00Z`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let timestamp = Timestamp::parse(text)?;
        Some(Self {
            seconds: timestamp.seconds(),
            nanoseconds: timestamp.nanoseconds(),
        })
    }

    /// The instant `seconds` later, limited to the years 1 to 9999.
    #[must_use]
    pub fn plus_seconds(self, seconds: i64) -> Self {
        Self {
            seconds: self
                .seconds
                .saturating_add(seconds)
                .clamp(Self::FIRST, Self::LAST),
            ..self
        }
    }

    /// The instant without its fraction of a second.
    #[must_use]
    pub const fn whole_seconds(self) -> Self {
        Self {
            nanoseconds: 0,
            ..self
        }
    }

    /// The instant `microseconds` after the beginning of 1970, or before it if negative; `None`
    /// outside the years 1 to 9999.
    #[must_use]
    pub fn from_microseconds(microseconds: i64) -> Option<Self> {
        let seconds = microseconds.div_euclid(1_000_000);
        let nanoseconds = u32::try_from(microseconds.rem_euclid(1_000_000)).ok()? * 1000;
        let is_known = (Self::FIRST..=Self::LAST).contains(&seconds);
        is_known.then_some(Self { seconds, nanoseconds })
    }

    /// Microseconds since 1970, rounded down.
    #[must_use]
    pub fn as_microseconds(self) -> i64 {
        self.seconds * 1_000_000 + i64::from(self.nanoseconds / 1000)
    }

    /// Seconds since 1970, as metrics report instants.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "seconds of four-digit years are below 2^53"
    )]
    pub fn as_seconds(self) -> f64 {
        self.seconds as f64 + f64::from(self.nanoseconds) / 1e9
    }
}

/// Limits an instant to the years 1 to 9999.
impl From<SystemTime> for Time {
    fn from(time: SystemTime) -> Self {
        let (seconds, nanoseconds) = match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => (
                i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
                after.subsec_nanos(),
            ),
            Err(before) => before_1970(before.duration()),
        };
        Self {
            seconds: seconds.clamp(Self::FIRST, Self::LAST),
            nanoseconds,
        }
    }
}

fn before_1970(before: Duration) -> (i64, u32) {
    let seconds = i64::try_from(before.as_secs()).map_or(i64::MIN, |seconds| -seconds);
    match before.subsec_nanos() {
        0 => (seconds, 0),
        nanoseconds => (seconds.saturating_sub(1), 1_000_000_000 - nanoseconds),
    }
}

/// RFC 3339 in UTC.
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(second) = Timestamp::from_seconds(self.seconds) else {
            return Ok(());
        };
        let text = second.to_string();
        match self.nanoseconds {
            0 => f.write_str(&text),
            nanoseconds => {
                let digits = format!("{nanoseconds:09}");
                write!(
                    f,
                    "{}.{}Z",
                    text.trim_end_matches('Z'),
                    digits.trim_end_matches('0')
                )
            }
        }
    }
}

// === impl Validity ===

impl Validity {
    /// Whether `now` is in the period: not before `notBefore`, and before `notAfter`.
    #[must_use]
    pub fn contains(&self, now: Time) -> bool {
        self.not_before.is_none_or(|start| start <= now) && !self.has_ended(now)
    }

    /// Whether the period has ended at `now`.
    #[must_use]
    pub fn has_ended(&self, now: Time) -> bool {
        self.not_after.is_some_and(|end| end <= now)
    }

    /// The period in which both hold, unless it is empty.
    #[must_use]
    pub fn intersection(self, other: Self) -> Option<Self> {
        let both = Self {
            not_before: self.not_before.max(other.not_before),
            not_after: match (self.not_after, other.not_after) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (end, None) | (None, end) => end,
            },
        };
        let is_empty = matches!((both.not_before, both.not_after), (Some(start), Some(end)) if end <= start);
        (!is_empty).then_some(both)
    }
}

// The deadline of a decision.

/// The bytes that expressions sharing a budget may allocate in an attempt.
const MAX_ATTEMPT_BYTES: usize = 2 << 20;

/// When to give up a decision.
#[derive(Clone, Copy)]
pub struct Deadline<'c> {
    /// Whether the caller's deadline has passed. Once it returns `true`, it keeps doing so.
    pub expired: &'c dyn Fn() -> bool,
    /// Set for an attempt, of which many may run at once: becomes `true` when an evaluation needs
    /// more than its allowance of memory. The result of the attempt must then be discarded.
    pub needs_more_memory: Option<&'c AtomicBool>,
}

// === impl Deadline ===

impl<'c> Deadline<'c> {
    /// No deadline.
    pub const NEVER: Self = Self::new(&|| false);

    /// A deadline that has passed once `expired` returns `true`, which it must then keep doing.
    #[must_use]
    pub const fn new(expired: &'c dyn Fn() -> bool) -> Self {
        Self {
            expired,
            needs_more_memory: None,
        }
    }

    /// Whether the deadline has passed, and the decision is to be given up.
    pub(crate) fn has_passed(self) -> bool {
        (self.expired)()
    }

    /// Ends an attempt, so that the work starts again where it may take longer. Returns whether
    /// this is an attempt.
    pub(crate) fn end_attempt(self) -> bool {
        if let Some(needs_more) = self.needs_more_memory {
            needs_more.store(true, Ordering::Relaxed);
        }
        self.needs_more_memory.is_some()
    }

    /// A budget of `cost` for evaluating expressions until the deadline.
    pub(crate) const fn budget(self, cost: u64) -> Budget<'c> {
        let budget = Budget::new(cost).until(self.expired);
        match self.needs_more_memory {
            Some(needs_more) => budget.attempt(MAX_ATTEMPT_BYTES, needs_more),
            None => budget,
        }
    }

    /// A budget for compiling the expressions of one object until the deadline.
    pub(crate) fn compile_budget(self) -> CompileBudget<'c> {
        CompileBudget::new().until(self.expired)
    }
}

impl fmt::Debug for Deadline<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deadline").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Time {
        Time::parse(text).unwrap()
    }

    #[test]
    fn instants_are_read_and_written_in_rfc_3339() {
        for (text, written) in [
            ("2026-12-01T08:00:00Z", "2026-12-01T08:00:00Z"),
            ("2026-12-01T08:00:00+01:00", "2026-12-01T07:00:00Z"),
            ("2026-12-01T08:00:00.250Z", "2026-12-01T08:00:00.25Z"),
            ("1969-12-31T23:59:59.5Z", "1969-12-31T23:59:59.5Z"),
        ] {
            assert_eq!(time(text).to_string(), written);
        }
        for text in [
            "",
            "2026-12-01",
            "2026-12-01T08:00:00",
            "2026-13-01T08:00:00Z",
            "tomorrow",
        ] {
            assert_eq!(Time::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_clock_of_the_system_is_the_same_instant() {
        let day = Duration::from_secs(86_400);
        for (time, written) in [
            (SystemTime::UNIX_EPOCH + day, "1970-01-02T00:00:00Z"),
            (SystemTime::UNIX_EPOCH - day, "1969-12-31T00:00:00Z"),
            (
                SystemTime::UNIX_EPOCH - Duration::from_millis(250),
                "1969-12-31T23:59:59.75Z",
            ),
        ] {
            assert_eq!(Time::from(time).to_string(), written);
        }
        assert!((time("1970-01-02T00:00:00.5Z").as_seconds() - 86_400.5).abs() < 1e-9);
    }

    #[test]
    fn a_period_holds_from_its_first_instant_and_before_its_last() {
        let validity = Validity {
            not_before: Some(time("2026-12-01T08:00:00Z")),
            not_after: Some(time("2026-12-01T18:00:00Z")),
        };
        for (now, holds) in [
            ("2026-12-01T07:59:59.999999999Z", false),
            ("2026-12-01T08:00:00Z", true),
            ("2026-12-01T09:00:00+01:00", true),
            ("2026-12-01T17:59:59.999999999Z", true),
            ("2026-12-01T18:00:00Z", false),
        ] {
            assert_eq!(validity.contains(time(now)), holds, "{now}");
        }
        assert!(Validity::default().contains(time("0001-01-01T00:00:00Z")));
    }
}
