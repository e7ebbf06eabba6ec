//! Writes values as YAML for people.

use std::fmt::Write;

use serde_json::Value;

use super::yaml::{ResolvedScalar, resolve};

/// The longest key in bytes that can be written without `? `.
const LONGEST_KEY: usize = 1000;

/// Writes `value` as one YAML document, which YAML 1.1 and 1.2 parsers read as the same value.
/// Recursion is bounded by the depth of `value`.
#[must_use]
pub fn to_yaml(value: &Value) -> String {
    let mut text = String::new();
    match value {
        Value::Object(entries) if !entries.is_empty() => mapping(&mut text, value, 0),
        Value::Array(items) if !items.is_empty() => sequence(&mut text, value, 0),
        _ => {
            scalar(&mut text, value, 0);
            text.push('\n');
        }
    }
    text
}

fn mapping(text: &mut String, value: &Value, indent: usize) {
    for (position, (key, value)) in value.as_object().into_iter().flatten().enumerate() {
        // The first entry follows the `- ` of a list, or is at the beginning of a line.
        if position > 0 {
            spaces(text, indent);
        }
        let start = text.len();
        string(text, key);
        // A longer key is only recognised after `? `.
        if text.len() - start > LONGEST_KEY {
            text.insert_str(start, "? ");
            text.push('\n');
            spaces(text, indent);
        }
        text.push(':');
        entry(text, value, indent);
    }
}

fn sequence(text: &mut String, value: &Value, indent: usize) {
    for (position, item) in value.as_array().into_iter().flatten().enumerate() {
        if position > 0 {
            spaces(text, indent);
        }
        text.push('-');
        match item {
            Value::Object(entries) if !entries.is_empty() => {
                text.push(' ');
                mapping(text, item, indent + 2);
            }
            Value::Array(items) if !items.is_empty() => {
                text.push(' ');
                sequence(text, item, indent + 2);
            }
            _ => {
                text.push(' ');
                scalar(text, item, indent);
                text.push('\n');
            }
        }
    }
}

/// Writes the value of a key that is in the column `indent`.
fn entry(text: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(entries) if !entries.is_empty() => {
            text.push('\n');
            spaces(text, indent + 2);
            mapping(text, value, indent + 2);
        }
        Value::Array(items) if !items.is_empty() => {
            text.push('\n');
            spaces(text, indent);
            sequence(text, value, indent);
        }
        _ => {
            text.push(' ');
            scalar(text, value, indent);
            text.push('\n');
        }
    }
}

/// Writes a value on one line, or a string as a block within a parent in the column `indent`.
fn scalar(text: &mut String, value: &Value, indent: usize) {
    match value {
        Value::String(value) if is_block(value) => block(text, value, indent + 2),
        Value::String(value) => string(text, value),
        // Floats are written with a fraction or an exponent: without it, a large one would be read
        // as an integer.
        _ => {
            let _ = write!(text, "{value}");
        }
    }
}

fn spaces(text: &mut String, count: usize) {
    text.extend(std::iter::repeat_n(' ', count));
}

/// Whether `c` is a control character, a line separator, or changes the direction of text.
#[must_use]
pub fn is_escaped(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Whether `line` begins as a workflow command of GitHub's runners does.
pub(crate) fn begins_command(line: &str) -> bool {
    line.trim_start().starts_with("::")
}

/// Whether a `[` after `text` begins a command of GitHub's, Azure's or TeamCity's runners.
pub(crate) fn is_before_command(text: &str) -> bool {
    text.trim_end_matches(|c: char| c.is_ascii_alphabetic())
        .ends_with("##")
}

fn has_command(line: &str) -> bool {
    let mut brackets = line.match_indices('[');
    begins_command(line) || brackets.any(|(position, _)| line.get(..position).is_some_and(is_before_command))
}

/// Whether a string can be written as a block: it has several lines of plain characters, neither
/// begins nor ends with white space except one line break, and contains no command of a CI runner.
fn is_block(value: &str) -> bool {
    let is_plain = |c: char| c == '\n' || !is_special(c);
    let body = value.strip_suffix('\n').unwrap_or(value);
    body.contains('\n')
        && !body.starts_with([' ', '\n', '\t'])
        && !body.ends_with([' ', '\n', '\t'])
        && value.chars().all(is_plain)
        && !value.split('\n').any(has_command)
}

fn block(text: &mut String, value: &str, indent: usize) {
    text.push_str(if value.ends_with('\n') { "|" } else { "|-" });
    for line in value.strip_suffix('\n').unwrap_or(value).split('\n') {
        text.push('\n');
        if !line.is_empty() {
            spaces(text, indent);
            text.push_str(line);
        }
    }
}

/// Whether `c` is a control character, is forbidden in YAML, or is easily overlooked.
fn is_special(c: char) -> bool {
    is_escaped(c) || matches!(c, '\u{a0}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

fn string(text: &mut String, value: &str) {
    if is_bare(value) {
        text.push_str(value);
        return;
    }
    text.push('"');
    for (position, c) in value.char_indices() {
        match c {
            '[' if value.get(..position).is_some_and(is_before_command) => text.push_str("\\x5B"),
            '"' | '\\' => text.extend(['\\', c]),
            '\n' => text.push_str("\\n"),
            '\t' => text.push_str("\\t"),
            '\r' => text.push_str("\\r"),
            c if is_special(c) => {
                let _ = write!(text, "\\u{:04X}", u32::from(c));
            }
            c => text.push(c),
        }
    }
    text.push('"');
}

/// Whether a string needs no quotes, for YAML 1.1 and 1.2 parsers.
fn is_bare(value: &str) -> bool {
    let is_safe = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '@' | '(' | ')' | '+');
    let is_inner = |c: char| {
        is_safe(c)
            || matches!(
                c,
                ' ' | ',' | '=' | '<' | '>' | '!' | '&' | '|' | '?' | '*' | '$' | ';' | '~' | '^'
            )
    };
    value.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '/' | '.'))
        && value.ends_with(is_safe)
        && value.chars().all(is_inner)
        && !looks_like_number(value)
        && resolve("", value) == Ok(ResolvedScalar::Text)
}

/// Whether some YAML parsers would read the string as a number or a time.
fn looks_like_number(value: &str) -> bool {
    value.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && value
            .chars()
            .all(|c| c.is_ascii_hexdigit() || matches!(c, '.' | '_' | '+' | '-' | 'x' | 'o' | 'X' | 'O'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};
    use proptest::{collection, prop_assert_eq};
    use serde_json::json;

    use super::*;
    use crate::explain::Lines;

    fn read(written: &str) -> Value {
        let read = super::super::parse(None, written).unwrap_or_else(|fault| panic!("{fault}\n{written}"));
        read.first()
            .map_or(Value::Null, |document| document.root().to_json())
    }

    /// Strings made of parts that have a meaning for terminals, CI services, editors or YAML.
    fn hostile_text() -> impl Strategy<Value = String> {
        let parts = [
            "::",
            "::error::x",
            "##[",
            "##vso[",
            "##",
            "[",
            "]",
            "#",
            ":",
            "- ",
            "? ",
            "|",
            ">",
            "\"",
            "'",
            "\\",
            "\\u{202e}",
            " ",
            "\n",
            "\r",
            "\t",
            "\u{1b}[31m",
            "\u{7f}",
            "\u{85}",
            "\u{9b}",
            "\u{a0}",
            "\u{61c}",
            "\u{200f}",
            "\u{2003}",
            "\u{2028}",
            "\u{202e}",
            "\u{2066}",
            "\u{feff}",
            "\u{ffff}",
            "\u{e0041}",
            "---",
            "...",
            "a",
            "vso",
            "r'x'",
        ];
        let part = prop_oneof![
            8 => (0..parts.len()).prop_map(move |place| parts[place].to_owned()),
            1 => any::<char>().prop_map(|c| c.to_string()),
            1 => Just("a\nb".to_owned()),
        ];
        collection::vec(part, 0..12).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn hostile_text_reads_back_equal_and_does_not_act(text in hostile_text(), key in hostile_text()) {
            for value in [
                json!(text),
                json!({key.as_str(): text, "l": [text, {text.as_str(): [[text, []], {}]}]}),
            ] {
                let written = to_yaml(&value);
                prop_assert_eq!(&read(&written), &value, "{}", written);
                for before in ["", "# "] {
                    let mut lines = Lines::new();
                    lines.each(before, &written);
                    let printed = lines.as_str().lines().map(|line| format!("{}\n", &line[before.len()..]));
                    prop_assert_eq!(printed.collect::<String>(), written.as_str());
                }
            }
        }
    }

    #[test]
    fn written_documents_are_read_with_the_same_values() {
        let texts = [
            "",
            " ",
            "yes",
            "no",
            "n",
            "null",
            "~",
            "12",
            "0x10",
            "1e3",
            "a: b",
            "a #b",
            "- a",
            "? a",
            "a\nb\n",
            "a\nb",
            "a\n\n  b\nc\n",
            " a\nb",
            "a\n b \n",
            "\ta",
            "a\t",
            "\u{85}",
            "\u{2028}",
            "\u{7f}",
            "\u{feff}x",
            "'",
            "\"",
            "\\",
            "!x",
            "&x",
            "*x",
            "%x",
            "@x",
            "`x",
            "|",
            ">",
            "{}",
            "[]",
            "a,b",
            "--- a",
            "---\nb",
            "a\n---\nb",
            "...",
            "2001-01-01",
            "object.spec.replicas <= 5 && has(object.x)",
            "é",
            "a:",
            ":a",
            "=",
            "<<",
            "0b12",
            "1_0",
            ".5",
            "1:30",
            "a\r\nb",
            "\u{0}",
            "🦀\n🦀",
        ];
        for text in texts {
            for value in [
                json!(text),
                json!({"k": text}),
                json!({text: [text, {"a": text, "b": [[text]]}]}),
            ] {
                let written = to_yaml(&value);
                let read =
                    super::super::parse(None, &written).unwrap_or_else(|fault| panic!("{fault}\n{written}"));
                let read = read
                    .first()
                    .map_or(Value::Null, |document| document.root().to_json());
                assert_eq!(read, value, "{written}");
            }
        }
        let long = "k".repeat(2000);
        let value = json!([{ long.as_str(): { long.as_str(): 1 } }, { "a": 1, long.as_str(): [1] }]);
        let written = to_yaml(&value);
        let read = super::super::parse(None, &written).unwrap();
        assert_eq!(read[0].root().to_json(), value, "{written}");
        let value =
            json!({"n": null, "t": true, "i": -3, "f": 0.5, "l": [], "m": {}, "ll": [[], {}, [1, [2]]]});
        let written = to_yaml(&value);
        let read = super::super::parse(None, &written).unwrap();
        assert_eq!(read[0].root().to_json(), value, "{written}");
    }

    #[test]
    fn it_is_written_as_people_do() {
        let value = json!({
            "apiVersion": "v1",
            "items": [{"name": "a", "verbs": ["get", "list"]}, "b"],
            "text": "one\ntwo\n",
            "yes": "no",
        });
        let expected = "apiVersion: v1\nitems:\n- name: a\n  verbs:\n  - get\n  - list\n- b\n\
                        text: |\n  one\n  two\n\"yes\": \"no\"\n";
        assert_eq!(to_yaml(&value), expected);
    }
}
