//! Points in time.

use std::fmt;

use super::{Civil, DAY, Duration, SECOND, civil_from_days, days_from_civil, days_in};

/// `0001-01-01T00:00:00Z`, in seconds since 1970.
const FIRST: i64 = -62_135_596_800;

/// `9999-12-31T23:59:59Z`, in seconds since 1970.
const LAST: i64 = 253_402_300_799;

/// A point in time between the years 1 and 9999.
#[derive(Debug, Clone, Copy)]
pub struct Timestamp {
    seconds: i64,
    nanoseconds: u32,
    /// East of UTC, in seconds: how it is written, not when it is.
    offset: i32,
}

// === impl Timestamp ===

impl Timestamp {
    /// So many seconds after 1970, in UTC; none outside the years 1 to 9999.
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

    /// Nanoseconds since the last second.
    #[must_use]
    pub const fn nanoseconds(self) -> u32 {
        self.nanoseconds
    }

    pub(crate) const fn is_zero(self) -> bool {
        self.seconds == FIRST && self.nanoseconds == 0
    }

    /// Reads RFC 3339.
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

    /// Calendar and clock, `offset` seconds east of UTC.
    pub(crate) const fn civil(self, offset: i64) -> Civil {
        let local = self.seconds + offset;
        let days = local.div_euclid(DAY);
        let clock = local.rem_euclid(DAY);
        let (year, month, day) = civil_from_days(days);
        Civil {
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

/// RFC 3339, in the zone it was written in.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Civil {
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

/// What is left to read.
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

    /// Nanoseconds after a point, or after a comma, which Go takes too.
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
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_read_and_written() {
        for text in [
            "1970-01-01T00:00:00Z",
            "2024-02-29T23:59:59.5Z",
            "0001-01-01T00:00:00Z",
            "9999-12-31T23:59:59.999999999Z",
            "2023-01-01T00:00:00+05:30",
            "2023-01-01T00:00:00-08:00",
        ] {
            assert_eq!(
                Timestamp::parse(text).map(|time| time.to_string()).as_deref(),
                Some(text)
            );
        }
        for text in [
            "2023-02-29T00:00:00Z",
            "2023-01-01",
            "2023-01-01T24:00:00Z",
            "2023-01-01T00:00:00",
            "x",
        ] {
            assert_eq!(Timestamp::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_timestamp_is_a_day_of_the_calendar() {
        let time = Timestamp::parse("2024-03-01T12:30:45Z").unwrap().civil(0);
        assert_eq!(
            (time.year, time.month, time.day, time.weekday, time.day_of_year),
            (2024, 3, 1, 5, 60)
        );
        assert_eq!((time.hour, time.minute, time.second), (12, 30, 45));
    }
}
