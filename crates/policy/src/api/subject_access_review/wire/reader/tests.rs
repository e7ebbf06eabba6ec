//! What is JSON and what is not, beside serde_json.

use proptest::prelude::*;

use super::*;

fn skip(text: &str) -> Result<(), JsonError> {
    let mut reader = Reader::new(text);
    reader.skip()?;
    reader.end()
}

#[test]
fn every_sort_of_value_is_skipped() {
    for text in [
        "0",
        "-0",
        "12.5e-3",
        "1E9",
        "true",
        "false",
        " null ",
        r#""a\"\\\u00e9\ud800""#,
        "[]",
        "{}",
        r#"[1,[],{"a":{"b":[2]}},"x"]"#,
        r#"{"a":[],"b":{}}"#,
    ] {
        skip(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    }
    for text in [
        "",
        "-",
        "01",
        "1.",
        ".5",
        "1e",
        "+1",
        "tru",
        "nul",
        "\"",
        "\"\n\"",
        r#""\x""#,
        r#""\u12""#,
        "[",
        "[1",
        "[1,]",
        "[,1]",
        "[1 2]",
        "{",
        r#"{"a"}"#,
        r#"{"a":}"#,
        r#"{"a":1,}"#,
        r#"{,"a":1}"#,
        "{1:2}",
        "]",
        "1 1",
    ] {
        assert!(skip(text).is_err(), "{text}");
    }
}

#[test]
fn nesting_ends_at_its_limit() {
    let nested = |depth: usize| format!("{}{}", r#"{"a":["#.repeat(depth / 2), "]}".repeat(depth / 2));
    assert!(skip(&nested(MAX_DEPTH)).is_ok());
    assert!(matches!(
        skip(&nested(MAX_DEPTH + 2)),
        Err(JsonError::TooDeep { .. })
    ));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn strings_are_read_as_serde_json_reads_them(text in any::<String>(), before in 0_usize..9) {
        let written = format!("{}{}", " ".repeat(before), serde_json::to_string(&text).unwrap());
        let mut reader = Reader::new(&written);
        prop_assert_eq!(reader.string("a string").unwrap(), text);
        prop_assert!(reader.end().is_ok());
    }

    #[test]
    fn what_is_json_is_what_serde_json_takes(text in r#"[\[\]{},:"\\0-9eE.+a-f\-trueflsn \n\x00]{0,12}"#) {
        let theirs = serde_json::from_str::<serde::de::IgnoredAny>(&text);
        prop_assert_eq!(skip(&text).is_ok(), theirs.is_ok(), "{}", text);
    }
}
