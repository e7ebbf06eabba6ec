//! The caller's deadline: `?timeout=3s`, as client-go appends it.

use std::time::{Duration, Instant};

use crate::config::parse_duration;

/// The longest that a request may take, and how long one may that names no
/// deadline: the longest timeout that an API server gives an authorization
/// webhook.
pub(crate) const LONGEST: Duration = Duration::from_secs(30);

/// When a request that arrived at `now` must be answered; `None` if its query
/// holds a timeout that is none.
pub(crate) fn of_query(query: &str, now: Instant) -> Option<Instant> {
    let timeout = query.split('&').find_map(|pair| pair.strip_prefix("timeout="));
    let allowed = match timeout {
        None | Some("") => LONGEST,
        Some(text) => match parse(text)? {
            // As at a kube-apiserver, 0 is no timeout of one's own.
            Duration::ZERO => LONGEST,
            timeout => timeout.min(LONGEST),
        },
    };
    now.checked_add(allowed)
}

/// A Go duration (`time.ParseDuration`) that is not negative: `3s`, `1m30s`, `1.5h`.
fn parse(text: &str) -> Option<Duration> {
    if !text.contains('%') {
        return parse_duration(text);
    }
    // `+` and the two signs for micro, as a query writes them.
    let decoded = text
        .replace("%2B", "+")
        .replace("%C2%B5", "\u{b5}")
        .replace("%CE%BC", "\u{3bc}");
    parse_duration(&decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_gos() {
        for (text, expected) in [
            ("3s", Duration::from_secs(3)),
            ("1m30s", Duration::from_secs(90)),
            ("1.5h", Duration::from_secs(5400)),
            (".5s", Duration::from_millis(500)),
            ("100ms", Duration::from_millis(100)),
            ("1h1m1.5s", Duration::from_millis(3_661_500)),
            ("10us", Duration::from_micros(10)),
            ("0", Duration::ZERO),
            ("0s", Duration::ZERO),
            ("+2s", Duration::from_secs(2)),
        ] {
            assert_eq!(parse(text), Some(expected), "{text}");
        }
        for text in [
            "",
            "3",
            "s",
            "-3s",
            "3x",
            "3 s",
            ".s",
            "1..2s",
            "3s1",
            "1e3s",
            "é",
            "9".repeat(400).as_str(),
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_deadline_is_the_callers_but_for_the_longest() {
        let now = Instant::now();
        for (query, expected) in [
            ("timeout=3s", Some(Duration::from_secs(3))),
            ("a=b&timeout=10s&timeout=1s", Some(Duration::from_secs(10))),
            ("", Some(LONGEST)),
            ("timeout=", Some(LONGEST)),
            ("timeout=0s", Some(LONGEST)),
            ("timeout=99999h", Some(LONGEST)),
            ("nottimeout=x", Some(LONGEST)),
            ("timeout=soon", None),
            ("timeout=-1s", None),
        ] {
            assert_eq!(
                of_query(query, now),
                expected.map(|allowed| now + allowed),
                "{query}"
            );
        }
    }
}
