//! Durations and timestamps, with Go's precision and limits.

mod calendar;
mod duration;
mod timestamp;

pub(crate) use calendar::Civil;
pub use duration::Duration;
pub use timestamp::Timestamp;

/// One second, in nanoseconds.
const SECOND: i64 = 1_000_000_000;

/// One day, in seconds.
const DAY: i64 = 86_400;
