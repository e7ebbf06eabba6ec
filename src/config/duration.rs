//! Durations as Go writes them: `25s`, `1m30s`, `1.5h`.
//!
//! As `time.ParseDuration` reads them (`portcullis_cel::Duration`), except that a negative
//! duration is none.

use std::time::Duration;

/// Reads `text`; `None` if it is no duration, or one too long for Go.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    let is_negative = text.starts_with('-');
    let duration = portcullis_cel::Duration::parse(text).filter(|_| !is_negative)?;
    u64::try_from(duration.nanoseconds())
        .ok()
        .map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_what_go_reads() {
        let cases = [
            ("0", 0),
            ("0s", 0),
            ("25s", 25_000_000_000),
            ("+5s", 5_000_000_000),
            ("1m30s", 90_000_000_000),
            ("1.5h", 5_400_000_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("100ms", 100_000_000),
            ("3us", 3_000),
            ("3\u{b5}s", 3_000),
            ("3\u{3bc}s", 3_000),
            ("7ns", 7),
            ("0.3333333333333333333h", 1_200_000_000_000),
            ("0.9999999999999999999999s", 1_000_000_000),
            ("2562047h47m16.854775807s", i64::MAX as u64),
        ];
        for (text, nanoseconds) in cases {
            assert_eq!(
                parse_duration(text),
                Some(Duration::from_nanos(nanoseconds)),
                "{text}"
            );
        }
    }

    #[test]
    fn refuses_what_go_refuses_and_what_is_negative() {
        for text in [
            "",
            "+",
            "s",
            ".",
            ".s",
            "1",
            "25",
            "1x",
            "1 s",
            " 1s",
            "1s ",
            "-1s",
            "-0s",
            "--1s",
            "1..5s",
            "1.5.5s",
            "1S",
            "3d",
            "2562047h47m16.854775808s",
            "99999999999999999999999999999999999999999h",
            "\u{b5}s",
        ] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[0-9.a-z\u{b5}+ -]{0,40}") {
            parse_duration(&text);
        }
    }
}
