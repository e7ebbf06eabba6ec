//! Reads the fields of a section as values of a type.
//!
//! Durations are written as in Go (`25s`, `1m30s`, `1.5h`) and parsed like `time.ParseDuration`
//! (`portcullis_cel::Duration`), except that negative durations are invalid.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::{Section, not_a_string};
use portcullis_cel::Quantity;
use portcullis_policy::document::Value;
use portcullis_policy::field::{FaultKind, unsupported_value};

impl<'r> Section<'r> {
    /// The string in the field `name`, which must not be empty.
    pub(crate) fn text(&self, name: &str) -> Option<&'r str> {
        let value = self.value(name)?;
        match value.as_str() {
            Some("") => {
                self.fault(name, FaultKind::Required, "must not be empty");
                None
            }
            Some(text) => Some(text),
            None => {
                self.fault(name, FaultKind::TypeInvalid, not_a_string(value));
                None
            }
        }
    }

    /// Like [`Section::text`], but an empty string counts as absent.
    pub(crate) fn non_empty_text(&self, name: &str) -> Option<&'r str> {
        self.value(name)
            .filter(|node| node.as_str() != Some(""))
            .and_then(|_| self.text(name))
    }

    /// Like [`Section::path`], but an empty string counts as absent.
    pub(crate) fn non_empty_path(&self, name: &str) -> Option<PathBuf> {
        self.non_empty_text(name)
            .and_then(|text| self.located(name, text))
    }

    /// Like [`Section::text`], for a required field. `what` completes the error message.
    pub(crate) fn required_text(&self, name: &str, what: &str) -> Option<&'r str> {
        if self.value(name).is_none() {
            self.fault(name, FaultKind::Required, what);
        }
        self.text(name)
    }

    /// The strings of the list in the field `name`, with their indexes.
    pub(crate) fn texts(&self, name: &str) -> Vec<(usize, &'r str)> {
        let items = self.items(name);
        items
            .iter()
            .enumerate()
            .filter_map(|(index, item)| Some((index, item.text()?)))
            .collect()
    }

    /// Like [`Section::texts`], without the indexes.
    pub(crate) fn strings(&self, name: &str) -> Vec<String> {
        self.texts(name)
            .into_iter()
            .map(|(_, text)| text.to_owned())
            .collect()
    }

    /// The path in the field `name`, as an absolute path.
    pub(crate) fn path(&self, name: &str) -> Option<PathBuf> {
        self.text(name).and_then(|text| self.located(name, text))
    }

    fn located(&self, name: &str, text: &str) -> Option<PathBuf> {
        self.reading.located(self.path.field(name), text)
    }

    /// Like [`Section::path`], for a required field.
    pub(crate) fn required_path(&self, name: &str, what: &str) -> Option<PathBuf> {
        self.required_text(name, what)
            .and_then(|text| self.located(name, text))
    }

    /// The IP address and port in the field `name`.
    pub(crate) fn address(&self, name: &str) -> Option<SocketAddr> {
        let text = self.text(name)?;
        let address = text.parse().ok();
        if address.is_none() {
            let message = format!("`{text}` is not an IP address and port, such as `127.0.0.1:8443`");
            self.fault(name, FaultKind::Invalid, message);
        }
        address
    }

    /// The duration in the field `name`, which may be zero.
    pub(crate) fn duration(&self, name: &str) -> Option<Duration> {
        const FORM: &str = "must be a duration such as `25s` or `1m30s`";
        let node = self.value(name)?;
        let Some(text) = node.as_str() else {
            self.fault(name, FaultKind::TypeInvalid, FORM);
            return None;
        };
        let duration = parse_duration(text);
        if duration.is_none() {
            self.fault(name, FaultKind::Invalid, format!("`{text}`: {FORM}"));
        }
        duration
    }

    /// A maximum age in the field `name`: a duration, or a number of days such as `90d`.
    pub(crate) fn age(&self, name: &str) -> Option<Duration> {
        const DAY_SECONDS: u64 = 24 * 3600;
        // The number of days in the longest duration of Go.
        const MAX_DAYS: u64 = (i64::MAX as u64) / 1_000_000_000 / DAY_SECONDS;
        let days = self.value(name)?.as_str().and_then(|text| text.strip_suffix('d'));
        let days = days
            .and_then(|days| days.parse::<u64>().ok())
            .filter(|days| *days <= MAX_DAYS);
        match days {
            Some(days) => Some(Duration::from_secs(days * DAY_SECONDS)),
            None => self.duration(name),
        }
    }

    /// The duration in the field `name`, which must be longer than zero.
    pub(crate) fn positive_duration(&self, name: &str) -> Option<Duration> {
        let duration = self.duration(name)?;
        if duration.is_zero() {
            self.fault(name, FaultKind::Invalid, "must be longer than 0s");
            return None;
        }
        Some(duration)
    }

    /// The integer in the field `name`, which must be at least 1.
    pub(crate) fn positive(&self, name: &str) -> Option<usize> {
        self.integer(name, 1)
    }

    /// The integer in the field `name`, which must be at least 0.
    pub(crate) fn count(&self, name: &str) -> Option<usize> {
        self.integer(name, 0)
    }

    fn integer(&self, name: &str, from: usize) -> Option<usize> {
        let number = match &self.value(name)?.value {
            Value::Number(number) => number,
            _ => {
                self.fault(name, FaultKind::TypeInvalid, "must be a whole number");
                return None;
            }
        };
        match number.as_u64().and_then(|number| usize::try_from(number).ok()) {
            Some(number) if number >= from => Some(number),
            _ => {
                self.fault(
                    name,
                    FaultKind::Invalid,
                    format!("`{number}`: must be a whole number from {from}"),
                );
                None
            }
        }
    }

    /// The number of bytes in the field `name`, a quantity such as `512Mi`. It must be at least
    /// `least`, a whole number of MiB.
    pub(crate) fn bytes(&self, name: &str, least: u64) -> Option<u64> {
        let text = match &self.value(name)?.value {
            Value::Number(number) => number.to_string(),
            _ => self.text(name)?.to_owned(),
        };
        let amount = Quantity::parse(&text).ok().and_then(|amount| amount.as_int());
        let bytes = amount
            .and_then(|amount| u64::try_from(amount).ok())
            .filter(|bytes| *bytes >= least);
        if bytes.is_none() {
            let least = least >> 20;
            let message =
                format!("`{text}`: must be a whole number of bytes from `{least}Mi`, such as `1Gi`");
            self.fault(name, FaultKind::Invalid, message);
        }
        bytes
    }

    /// The number in the field `name`, which must be from 0 to 1.
    pub(crate) fn ratio(&self, name: &str) -> Option<f64> {
        const FORM: &str = "must be a number from 0 to 1";
        let ratio = match &self.value(name)?.value {
            Value::Number(number) => number.as_f64(),
            _ => {
                self.fault(name, FaultKind::TypeInvalid, FORM);
                return None;
            }
        };
        let ratio = ratio.filter(|ratio| (0.0..=1.0).contains(ratio));
        if ratio.is_none() {
            self.fault(name, FaultKind::Invalid, FORM);
        }
        ratio
    }

    /// The boolean in the field `name`.
    pub(crate) fn boolean(&self, name: &str) -> Option<bool> {
        match self.value(name)?.value {
            Value::Bool(value) => Some(value),
            _ => {
                self.fault(name, FaultKind::TypeInvalid, "must be `true` or `false`");
                None
            }
        }
    }

    /// The value that `choices` assigns to the string in the field `name`.
    pub(crate) fn choice<T: Copy>(&self, name: &str, choices: &[(&str, T)]) -> Option<T> {
        let text = self.text(name)?;
        let choice = choices.iter().find(|(word, _)| *word == text);
        if choice.is_none() {
            let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
            let message = unsupported_value(text, &words);
            self.fault(name, FaultKind::NotSupported, message);
        }
        choice.map(|(_, value)| *value)
    }
}

/// The names of `choices`, for an error message.
pub(crate) fn one_of<T>(choices: &[(&str, T)]) -> String {
    choices
        .iter()
        .map(|(word, _)| format!("`{word}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Parses a duration; `None` if `text` is not one, or one that is negative or too long for Go.
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
