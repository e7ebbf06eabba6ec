//! Durations as Go writes them: `25s`, `1m30s`, `1.5h`.
//!
//! Follows `time.ParseDuration`, except that a negative duration is none.

use std::time::Duration;

/// Go's longest duration: the nanoseconds that fit into 63 bits, some 292 years.
const MAX_NANOSECONDS: u128 = i64::MAX as u128;

const UNITS: [(&str, u128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),  // micro sign
    ("\u{3bc}s", 1_000), // Greek letter mu
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Reads `text`; `None` if it is no duration, or one too long for Go.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.strip_prefix('+').unwrap_or(text);
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let (nanoseconds, after) = term(rest)?;
        total = total
            .checked_add(nanoseconds)
            .filter(|total| *total <= MAX_NANOSECONDS)?;
        rest = after;
    }
    if text.is_empty() {
        return None;
    }
    u64::try_from(total).ok().map(Duration::from_nanos)
}

/// A number and its unit at the start of `text`, and what follows them.
fn term(text: &str) -> Option<(u128, &str)> {
    let (whole, rest) = digits(text);
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => digits(rest),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let end = rest
        .find(|c: char| c == '.' || c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (unit, rest) = rest.split_at_checked(end)?;
    let unit = UNITS.iter().find(|(name, _)| *name == unit)?.1;
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let nanoseconds = whole.checked_mul(unit)?.checked_add(part(fraction, unit))?;
    Some((nanoseconds, rest))
}

/// `0.fraction` of `unit`, rounded down. Digits past the 18th are less than a nanosecond of an hour.
fn part(fraction: &str, unit: u128) -> u128 {
    let (sum, scale) = fraction
        .bytes()
        .take(18)
        .fold((0_u128, 1_u128), |(sum, scale), digit| {
            (sum * 10 + u128::from(digit - b'0'), scale * 10)
        });
    sum * unit / scale
}

fn digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
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
            ("0.3333333333333333333h", 1_200_000_000_000 - 1),
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
