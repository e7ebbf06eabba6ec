//! Durations and timestamps, with Go's precision and limits.

mod timestamp;

use std::fmt;

pub use timestamp::Timestamp;

/// One second, in nanoseconds.
const SECOND: i64 = 1_000_000_000;

/// One day, in seconds.
const DAY: i64 = 86_400;

// The calendar: days by year, month and day.

/// A point in time on a calendar and a clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Civil {
    pub(crate) year: i64,
    /// From 1.
    pub(crate) month: i64,
    /// From 1.
    pub(crate) day: i64,
    /// From 0.
    pub(crate) day_of_year: i64,
    /// From Sunday, 0.
    pub(crate) weekday: i64,
    pub(crate) hour: i64,
    pub(crate) minute: i64,
    pub(crate) second: i64,
}

const fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

pub(crate) const fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970, counted in eras of 400 years that begin in March.
pub(crate) const fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

pub(crate) const fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

// Lengths of time.

/// A length of time of at most 292 years.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duration(i64);

// === impl Duration ===

impl Duration {
    /// A length of so many nanoseconds.
    #[must_use]
    pub const fn from_nanoseconds(nanoseconds: i64) -> Self {
        Self(nanoseconds)
    }

    /// Its length in nanoseconds.
    #[must_use]
    pub const fn nanoseconds(self) -> i64 {
        self.0
    }

    /// Reads Go's syntax: `1h30m`, `-1.5s`, `300ms`, `0`.
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, unsigned) = match text.as_bytes().first()? {
            b'-' => (true, text.get(1..)?),
            b'+' => (false, text.get(1..)?),
            _ => (false, text),
        };
        if unsigned == "0" {
            return Some(Self(0));
        }
        let mut total: u64 = 0;
        let mut rest = unsigned;
        if rest.is_empty() {
            return None;
        }
        while !rest.is_empty() {
            let (part, after) = parse_part(rest)?;
            total = total.checked_add(part).filter(|total| *total <= 1 << 63)?;
            rest = after;
        }
        if negative {
            return Some(Self(0i64.checked_sub_unsigned(total)?));
        }
        Some(Self(i64::try_from(total).ok()?))
    }

    pub(crate) fn add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    pub(crate) fn subtract(self, other: Self) -> Option<Self> {
        self.0.checked_sub(other.0).map(Self)
    }

    pub(crate) fn negate(self) -> Option<Self> {
        self.0.checked_neg().map(Self)
    }

    #[expect(clippy::cast_precision_loss, reason = "as Go computes it")]
    pub(crate) fn seconds(self) -> f64 {
        (self.0 / SECOND) as f64 + (self.0 % SECOND) as f64 / 1e9
    }
}

/// One number with its unit, in nanoseconds, and what follows.
fn parse_part(text: &str) -> Option<(u64, &str)> {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let whole_length = digits(text);
    let (whole, mut rest) = text.split_at_checked(whole_length)?;
    let mut fraction = "";
    if let Some(after) = rest.strip_prefix('.') {
        let length = digits(after);
        (fraction, rest) = after.split_at_checked(length)?;
    }
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let unit_length = rest
        .bytes()
        .take_while(|byte| *byte != b'.' && !byte.is_ascii_digit())
        .count();
    let (unit, after) = rest.split_at_checked(unit_length)?;
    let unit = match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let nanoseconds = whole.checked_mul(unit)?.checked_add(part_of(fraction, unit))?;
    (nanoseconds <= 1 << 63).then_some((nanoseconds, after))
}

/// The digits after a point, of a unit; digits that no longer count are dropped.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "as Go computes it: below one unit, at most an hour of nanoseconds"
)]
fn part_of(digits: &str, unit: u64) -> u64 {
    let mut value: u64 = 0;
    let mut scale = 1.0;
    for digit in digits.bytes() {
        let next = value
            .checked_mul(10)
            .and_then(|value| value.checked_add(u64::from(digit - b'0')));
        let Some(next) = next.filter(|next| *next < 1 << 63) else {
            break;
        };
        value = next;
        scale *= 10.0;
    }
    (value as f64 * (unit as f64 / scale)) as u64
}

/// As CEL writes it: in seconds, `5400s`, `0.5s`.
impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s", self.seconds())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        let cases = [
            ("0", 0),
            ("1h30m", 5_400_000_000_000),
            ("-1.5s", -1_500_000_000),
            ("+2ms", 2_000_000),
            ("1µs1ns", 1_001),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("-9223372036854775808ns", i64::MIN),
        ];
        for (text, nanoseconds) in cases {
            assert_eq!(Duration::parse(text), Some(Duration(nanoseconds)), "{text}");
        }
        for text in [
            "",
            "-",
            "1",
            "1d",
            "h",
            ".s",
            "1h 1m",
            "9223372036854775808ns",
            "3000000h",
        ] {
            assert_eq!(Duration::parse(text), None, "{text}");
        }
    }
}
