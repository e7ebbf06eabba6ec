//! Resolves scalars to values, by YAML 1.1 as in go-yaml v2 (`resolve.go`).

use super::number;
use super::timestamp;

/// A scalar's value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Scalar {
    Null,
    Bool(bool),
    Int(i64),
    /// Beyond the signed numbers.
    Uint(u64),
    Float(f64),
    /// The text itself.
    Text,
    /// A date or time: in JSON, the text itself.
    Timestamp,
}

const PREFIX: &str = "tag:yaml.org,2002:";

/// What `text` is under `tag`, empty or in full. An error: it is not what its tag says.
pub(crate) fn resolve(tag: &str, text: &str) -> Result<Scalar, String> {
    if tag.is_empty() {
        return Ok(untagged(text, true));
    }
    let Some(name) = tag.strip_prefix(PREFIX) else {
        return Ok(Scalar::Text);
    };
    let value = untagged(text, name == "timestamp");
    let is_as_tagged = match (name, value) {
        ("bool", Scalar::Bool(_))
        | ("int", Scalar::Int(_) | Scalar::Uint(_))
        | ("float", Scalar::Float(_))
        | ("null", Scalar::Null)
        | ("timestamp", Scalar::Timestamp) => true,
        #[expect(clippy::cast_precision_loss, reason = "that is what the tag asks for")]
        ("float", Scalar::Int(integer)) => return Ok(Scalar::Float(integer as f64)),
        ("bool" | "int" | "float" | "null" | "timestamp", _) => false,
        // Text of any other tag stays what it is.
        _ => return Ok(Scalar::Text),
    };
    if is_as_tagged {
        Ok(value)
    } else {
        Err(format!("`{text}` is not an `!!{name}`"))
    }
}

fn untagged(text: &str, may_be_timestamp: bool) -> Scalar {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Scalar::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Scalar::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Scalar::Bool(false)
        }
        ".nan" | ".NaN" | ".NAN" => Scalar::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Scalar::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Scalar::Float(f64::NEG_INFINITY),
        _ => match text.as_bytes().first() {
            Some(b'.') => number::fraction(text).map_or(Scalar::Text, Scalar::Float),
            Some(b'0'..=b'9' | b'+' | b'-') => {
                if may_be_timestamp && timestamp::is_timestamp(text) {
                    return Scalar::Timestamp;
                }
                number::number(text)
            }
            _ => Scalar::Text,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> Scalar {
        resolve("", text).unwrap()
    }

    #[test]
    fn words_of_yaml_1_1_are_booleans_and_nulls() {
        for text in [
            "y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE",
        ] {
            assert_eq!(plain(text), Scalar::Bool(true), "{text}");
        }
        for text in [
            "n", "N", "no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE",
        ] {
            assert_eq!(plain(text), Scalar::Bool(false), "{text}");
        }
        for text in ["", "~", "null", "Null", "NULL"] {
            assert_eq!(plain(text), Scalar::Null, "{text}");
        }
        for text in [
            "yEs", "nO", "oN", "nULL", "tRue", "yes ", "nil", "None", "ye", "<<", "=",
        ] {
            assert_eq!(plain(text), Scalar::Text, "{text}");
        }
    }

    #[test]
    fn numbers_are_those_of_go_yaml() {
        let integers = [
            ("0644", 420),
            ("0o644", 420),
            ("0O17", 15),
            ("0x1F", 31),
            ("0X1f", 31),
            ("0b101", 5),
            ("0B101", 5),
            ("-0b11", -3),
            ("-0x10", -16),
            ("+12", 12),
            ("1_000", 1000),
            ("1__0_", 10),
            ("0x_ff", 255),
            ("0b+1", 1),
            ("0b-1", -1),
            ("-9223372036854775808", i64::MIN),
        ];
        for (text, value) in integers {
            assert_eq!(plain(text), Scalar::Int(value), "{text}");
        }
        assert_eq!(plain("18446744073709551615"), Scalar::Uint(u64::MAX));
        let floats = [
            ("1e3", 1000.0),
            ("1.", 1.0),
            (".5", 0.5),
            (".5_0", 0.5),
            ("08", 8.0),
            ("09.5", 9.5),
            ("-1.5E+3", -1500.0),
            ("1_0.5", 10.5),
            ("18446744073709551616", 18_446_744_073_709_551_616.0),
            ("-9223372036854775809", -9_223_372_036_854_775_808.0),
        ];
        for (text, value) in floats {
            assert_eq!(plain(text), Scalar::Float(value), "{text}");
        }
        for text in [
            "1:30",
            "190:20:30",
            "0o8",
            "0xg",
            "0b2",
            "1e",
            "1e999",
            "-",
            "+",
            "--1",
            "_1",
            "1 2",
            "0x",
            "0b",
            "._5",
            ".",
            ".e3",
            "1.2.3",
            "infinity",
            "nan",
            "0x1p-2",
            ".5_",
            ".5__0",
            "-_",
            "1,000",
        ] {
            assert_eq!(plain(text), Scalar::Text, "{text}");
        }
    }

    #[test]
    fn timestamps_are_text() {
        for text in [
            "2001-12-14",
            "2001-1-2T3:4:5Z",
            "2001-12-14t21:59:43.10-05:00",
            "2001-12-14 21:59:43.1",
        ] {
            assert_eq!(plain(text), Scalar::Timestamp, "{text}");
            assert_eq!(
                resolve("tag:yaml.org,2002:timestamp", text),
                Ok(Scalar::Timestamp)
            );
        }
        for text in [
            "2001-13-14",
            "2001-2-30",
            "2001-12-14 21:59:43.10 -5",
            "20011-1-1",
            "2001-12-14T25:00:00Z",
        ] {
            assert_eq!(plain(text), Scalar::Text, "{text}");
            assert!(resolve("tag:yaml.org,2002:timestamp", text).is_err());
        }
    }

    #[test]
    fn a_tag_says_what_a_scalar_must_be() {
        let tagged = |tag: &str, text| resolve(&format!("{PREFIX}{tag}"), text);
        assert_eq!(tagged("str", "yes"), Ok(Scalar::Text));
        assert_eq!(tagged("int", "0x10"), Ok(Scalar::Int(16)));
        assert_eq!(tagged("float", "1"), Ok(Scalar::Float(1.0)));
        assert_eq!(tagged("bool", "on"), Ok(Scalar::Bool(true)));
        assert_eq!(tagged("null", ""), Ok(Scalar::Null));
        assert_eq!(tagged("set", "yes"), Ok(Scalar::Text));
        assert_eq!(resolve("!own", "12"), Ok(Scalar::Text));
        for (tag, text) in [
            ("int", "1.5"),
            ("int", "yes"),
            ("float", "18446744073709551615"),
            ("float", "x"),
            ("bool", "1"),
            ("null", "x"),
            ("timestamp", "12"),
        ] {
            assert!(tagged(tag, text).is_err(), "{tag} {text}");
        }
    }
}
