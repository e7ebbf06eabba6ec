//! Errors of serde in terms that an administrator understands: serde's own messages name Rust types
//! (`invalid type: map, expected a string`, `struct WrittenPolicy`, `u32`).

use std::fmt;

use serde::de::{Error, Expected, Unexpected};

use crate::field::{FaultKind, unsupported_value};

/// Why a value cannot be decoded.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: FaultKind,
    pub(crate) message: String,
    /// The name of the missing field, if that is the failure.
    pub(crate) missing: Option<&'static str>,
}

// === impl Failure ===

impl Failure {
    fn new(kind: FaultKind, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            kind,
            message,
            missing: None,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl Error for Failure {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(FaultKind::TypeInvalid, message.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, wanted: &dyn Expected) -> Self {
        let wanted = wanted_words(wanted);
        let mut message = format!("{}, where {wanted} belongs", found_words(found));
        let scalar = matches!(
            found,
            Unexpected::Bool(_) | Unexpected::Unsigned(_) | Unexpected::Signed(_) | Unexpected::Float(_)
        );
        // Few people know every word that YAML 1.1 reads as a boolean or a number.
        if scalar && wanted == TEXT {
            message.push_str(": put it in quotes");
            message.push_str(match found {
                Unexpected::Bool(true) => ", because YAML also reads `y`, `yes` and `on` as `true`",
                Unexpected::Bool(false) => ", because YAML also reads `n`, `no` and `off` as `false`",
                _ => "",
            });
        }
        Self::new(FaultKind::TypeInvalid, message)
    }

    fn invalid_value(found: Unexpected<'_>, wanted: &dyn Expected) -> Self {
        let wanted = wanted_words(wanted);
        let message = format!("{}, where {wanted} belongs", found_words(found));
        Self::new(FaultKind::Invalid, message)
    }

    fn invalid_length(length: usize, wanted: &dyn Expected) -> Self {
        let wanted = wanted_words(wanted);
        Self::new(
            FaultKind::Invalid,
            format!("{length} items, where {wanted} belongs"),
        )
    }

    fn unknown_variant(variant: &str, known: &'static [&'static str]) -> Self {
        Self::new(FaultKind::NotSupported, unsupported_value(variant, known))
    }

    fn unknown_field(field: &str, known: &'static [&'static str]) -> Self {
        let message = format!(
            "unknown field `{field}`: supported fields: `{}`",
            known.join("`, `")
        );
        Self::new(FaultKind::NotSupported, message)
    }

    fn missing_field(field: &'static str) -> Self {
        let message = format!("the field `{field}` is missing: add it");
        Self {
            missing: Some(field),
            ..Self::new(FaultKind::Required, message)
        }
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self::new(FaultKind::Duplicate, format!("the field `{field}`"))
    }
}

const TEXT: &str = "text";

/// Describes the value that was found.
fn found_words(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Bool(value) => format!("the boolean `{value}`"),
        Unexpected::Unsigned(number) => format!("the number `{number}`"),
        Unexpected::Signed(number) => format!("the number `{number}`"),
        Unexpected::Float(number) => format!("the number `{number}`"),
        Unexpected::Char(text) => format!("the text `{text}`"),
        Unexpected::Str(text) => format!("the text `{text}`"),
        Unexpected::Unit | Unexpected::Option => "nothing".to_owned(),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map => "a mapping".to_owned(),
        other => other.to_string(),
    }
}

/// Describes the expected value. A name in upper case is that of a type, for which a mapping is
/// expected.
fn wanted_words(wanted: &dyn Expected) -> String {
    const SIGNED: [&str; 6] = ["i8", "i16", "i32", "i64", "i128", "isize"];
    const UNSIGNED: [&str; 6] = ["u8", "u16", "u32", "u64", "u128", "usize"];
    let wanted = wanted.to_string();
    let is_type = wanted.starts_with(|first: char| first.is_ascii_uppercase());
    let words = match wanted.as_str() {
        "a string" | "string" | "str" => TEXT,
        "a boolean" => "`true` or `false`",
        "a sequence" => "a list",
        "a map" => "a mapping",
        "f32" | "f64" => "a number",
        "unit" => "nothing",
        whole if UNSIGNED.contains(&whole) => "a whole number of 0 or more",
        whole if SIGNED.contains(&whole) => "a whole number",
        name if is_type || name.starts_with("struct ") => "a mapping",
        _ => return wanted,
    };
    words.to_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use crate::document::parse;
    use crate::field::Faults;

    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    struct SampleFields {
        text: String,
        list: Vec<String>,
        map: BTreeMap<String, String>,
        part: SamplePart,
        count: u16,
        offset: i32,
        share: f64,
        flag: bool,
        mode: SampleMode,
    }

    #[derive(Debug, Default, Deserialize)]
    struct SamplePart {}

    #[derive(Debug, Default, Deserialize)]
    enum SampleMode {
        #[default]
        On,
        Off,
    }

    #[test]
    fn what_is_wrong_is_said_without_types_of_rust() {
        for (text, said) in [
            ("text: {}", "Invalid type: a mapping, where text belongs"),
            (
                "text: 1",
                "Invalid type: the number `1`, where text belongs: put it in quotes",
            ),
            (
                "text: on",
                "Invalid type: the boolean `true`, where text belongs: put it in quotes, because YAML also \
                reads `y`, `yes` and `on` as `true`",
            ),
            ("list: a", "Invalid type: the text `a`, where a list belongs"),
            ("map: []", "Invalid type: a list, where a mapping belongs"),
            ("part: a", "Invalid type: the text `a`, where a mapping belongs"),
            (
                "count: -1",
                "Invalid value: the number `-1`, where a whole number of 0 or more belongs",
            ),
            (
                "count: 1.5",
                "Invalid type: the number `1.5`, where a whole number of 0 or more belongs",
            ),
            (
                "offset: a",
                "Invalid type: the text `a`, where a whole number belongs",
            ),
            ("share: a", "Invalid type: the text `a`, where a number belongs"),
            (
                "flag: a",
                "Invalid type: the text `a`, where `true` or `false` belongs",
            ),
            (
                "mode: Of",
                "Unsupported value: `Of`: supported values: `On`, `Off`; did you mean `Off`?",
            ),
        ] {
            let mut faults = Faults::new();
            let document = parse(Some("f"), text).unwrap().remove(0);
            assert!(document.decode::<SampleFields>(&mut faults).is_none(), "{text}");
            let (field, _) = text.split_once(':').unwrap();
            assert_eq!(faults.to_string(), format!("f:1: {field}: {said}"));
        }
    }
}
