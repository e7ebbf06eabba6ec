//! Times of certificates.

use std::time::{Duration, SystemTime};

use openssl::asn1::{Asn1Time, Asn1TimeRef};
use openssl::error::ErrorStack;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

const DAY: u64 = 24 * 60 * 60;

/// A certificate's time as everybody else's. A moment before 1970 becomes 1970.
///
/// # Errors
///
/// OpenSSL cannot read it.
pub fn system_time(time: &Asn1TimeRef) -> Result<SystemTime, ErrorStack> {
    let since = Asn1Time::from_unix(0)?.diff(time)?;
    let seconds = i64::from(since.days) * DAY.cast_signed() + i64::from(since.secs);
    Ok(SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// `2027-01-31T00:00:00Z`.
#[must_use]
pub fn rfc3339(time: SystemTime) -> String {
    OffsetDateTime::from(time)
        .format(&Rfc3339)
        .unwrap_or_else(|_| "a time that cannot be written".to_owned())
}

/// `3 days`, `1 day`, `5 hours`; rounded down.
pub(crate) fn days(left: Duration) -> String {
    let (count, unit) = match left.as_secs() {
        seconds if seconds >= DAY => (seconds / DAY, "day"),
        seconds => (seconds / 3600, "hour"),
    };
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {unit}{plural}")
}
