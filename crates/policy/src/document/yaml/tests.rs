//! What is read, and to which values: the cases that other readers of YAML see
//! otherwise. `tests/oracle/yaml.rs` compares any number of others with kubectl.

use serde_json::{Value, json};

use crate::document;

fn read(text: &str) -> Result<Vec<Value>, String> {
    let documents = document::parse(None, text).map_err(|fault| fault.to_string())?;
    Ok(documents
        .iter()
        .map(|document| document.root().to_json())
        .collect())
}

fn one(text: &str) -> Value {
    read(text)
        .unwrap_or_else(|fault| panic!("{fault}\n{text}"))
        .remove(0)
}

#[test]
fn scalars_are_those_of_yaml_1_1() {
    for (text, value) in [
        ("yes", json!(true)),
        ("Off", json!(false)),
        ("n", json!(false)),
        ("'yes'", json!("yes")),
        ("0644", json!(420)),
        ("1e3", json!(1000)),
        ("1.", json!(1)),
        ("1_000", json!(1000)),
        ("190:20:30", json!("190:20:30")),
        ("2001-12-14", json!("2001-12-14")),
        ("~", json!(null)),
        ("!!str 12", json!("12")),
        ("!!int '12'", json!(12)),
        ("!!binary aGk=", json!("hi")),
        ("!!binary 4oJh", json!("\u{fffd}\u{fffd}a")),
        ("! 12", json!("12")),
    ] {
        assert_eq!(one(&format!("a: {text}\n")), json!({"a": value}), "{text}");
    }
    for text in [".inf", "-.INF", ".nan", "!!int x", "!!binary '?'", "@x", "`x"] {
        read(&format!("a: {text}\n")).unwrap_err();
    }
}

#[test]
fn keys_of_other_types_become_text() {
    let text = "on: 1\nNo: 2\n0x10: 3\n1.5: 4\n1e6: 5\n2001-01-01: 6\n? 7\n: 7\n";
    let expected = json!({
        "true": 1, "false": 2, "16": 3, "1.5": 4, "1e+06": 5, "2001-01-01": 6, "7": 7
    });
    assert_eq!(one(text), expected);
    for text in [
        "~: 1",
        "? [a]\n: 1",
        "? {a: 1}\n: 1",
        "18446744073709551615: 1",
        ": 1",
    ] {
        read(text).unwrap_err();
    }
}

#[test]
fn quoted_text_goes_on_at_any_column_and_tabs_separate_in_flow() {
    let text = "spec:\n  message: 'one\ntwo\n\n three'\n  list: [a,\t'b',\n\t c]\n  map: {\ta:\t1 }\n";
    let expected = json!({"spec": {"message": "one two\nthree", "list": ["a", "b", "c"], "map": {"a": 1}}});
    assert_eq!(one(text), expected);
}

#[test]
fn merge_keys_merge() {
    let base = "base: &b {a: 1, b: 2}\nother: &o {b: 3, c: 4}\n";
    let merged = |text: &str| read(&format!("{base}x:\n{text}")).map(|documents| documents[0]["x"].clone());
    assert_eq!(merged("  <<: *b\n  a: 5\n"), Ok(json!({"a": 5, "b": 2})));
    assert_eq!(merged("  <<: [*b, *o]\n"), Ok(json!({"a": 1, "b": 2, "c": 4})));
    assert_eq!(merged("  '<<': *b\n"), Ok(json!({"<<": {"a": 1, "b": 2}})));
    let fault = merged("  a: 5\n  <<: *b\n").unwrap_err();
    assert_eq!(
        fault,
        ":1: Unreadable: `<<` would replace `a` on line 4; write `<<` above it (column 11)"
    );
    merged("  <<: 1\n").unwrap_err();
    merged("  <<: [*b, 1]\n").unwrap_err();
}

#[test]
fn a_second_byte_order_mark_is_refused() {
    for text in ["\u{feff}\u{feff}a: 1\n", "a: 1\n---\n\u{feff}\u{feff}b: 2\n"] {
        let message = read(text).unwrap_err();
        assert!(message.contains("two byte order marks"), "{message}");
    }
}

#[test]
fn documents_are_divided_as_kubectl_divides_them() {
    for (text, expected) in [
        ("a: 1\n--- # c\nb: 2\n", json!([{"a": 1}, {"b": 2}])),
        ("---\n---\n# none\n---\na: 1", json!([{"a": 1}])),
        ("{\"a\": 1}{\"a\": 2}\n[3]", json!([{"a": 1}, {"a": 2}, [3]])),
        ("{\"a\": \"\\/\"}\n---\nb: 2\n", json!([{"a": "/"}, {"b": 2}])),
        ("{a: 1}\n", json!([{"a": 1}])),
        ("\u{feff}a: 1\n---\n\u{feff}b: 2\n", json!([{"a": 1}, {"b": 2}])),
        ("a: 1\n...\n", json!([{"a": 1}])),
        ("a: |\n  x\n ---\n", json!([])),
    ] {
        let read = read(text);
        if expected == json!([]) {
            read.unwrap_err();
        } else {
            assert_eq!(read.map(Value::from), Ok(expected), "{text}");
        }
    }
    for text in [
        "a: 1\n--- b: 2\n",
        "a: 1\n...\nb: 2\n",
        "{\"a\":1}{\"b\":2}{",
        "[a] b\n",
    ] {
        read(text).unwrap_err();
    }
}

#[test]
fn values_know_their_lines() {
    let text = "# c\na: 1\nb:\n- x\n-\n  c: |\n   t\n---\nd: {e:\n  f}\n";
    let documents = document::parse(None, text).unwrap();
    let b = documents[0].root().get("b").unwrap();
    assert_eq!((b.line, b.item(0).unwrap().line), (4, 4));
    assert_eq!(b.item(1).unwrap().get("c").unwrap().line, 6);
    let d = documents[1].root().get("d").unwrap();
    assert_eq!((d.line, d.get("e").unwrap().line), (9, 10));
    let json = document::parse(None, "{\n\"a\": 1,\n\"b\": {\n\"c\": [\n2]}}").unwrap();
    let b = json[0].root().get("b").unwrap();
    assert_eq!((b.line, b.get("c").unwrap().item(0).unwrap().line), (3, 5));
}

#[test]
fn faults_say_where_and_what_to_do() {
    for (text, expected) in [
        (
            "a: 1\nb: c: d\n",
            ":2: Unreadable: a second `: ` on one line; put text that contains `: ` in quotes (column 5)",
        ),
        (
            "a:\n\tb: 1\n",
            ":2: Unreadable: a tab cannot indent; use spaces (column 1)",
        ),
        (
            "a: 1\na: 2\n",
            ":2: Unreadable: duplicate key `a`, also on line 1 (column 1)",
        ),
        (
            "1: a\n'1': b\n",
            ":2: Unreadable: duplicate key `1`, also on line 1 with another type (column 1)",
        ),
        (
            "a: [1, 2\nb: 3\n",
            ":2: Unreadable: expected `,` or `]` in the list `[…]` (column 2)",
        ),
        (
            "a: *x\n",
            ":1: Unreadable: unknown alias: there is no anchor `&x` above (column 4)",
        ),
        (
            "a: 'b\n",
            ":1: Unreadable: quoted text without a closing quote (column 4)",
        ),
        (
            "a:\n  - b\n c\n",
            ":3: Unreadable: expected another `key:` of the mapping that begins on line 1, or the \
             indentation is wrong (column 2)",
        ),
        (
            "a: \"\\q\"\n",
            ":1: Unreadable: an unknown escape; in double quotes a backslash is written `\\\\` (column 5)",
        ),
        (
            "a: b\u{7}\n",
            ":1: Unreadable: the control character U+0007 is not allowed (column 5)",
        ),
        (
            "a: 1\n---\nb: @\n",
            ":3: Unreadable: no plain text begins with this character; put the text in quotes (column 4)",
        ),
        (
            "{\"a\": 1, \"a\": 2}",
            ":1: Unreadable: duplicate key `a` (column 13)",
        ),
    ] {
        assert_eq!(read(text).unwrap_err(), expected, "{text}");
    }
}
