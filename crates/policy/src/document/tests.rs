use std::ops::ControlFlow;

use super::*;
use crate::field::{FaultKind, Faults};

#[derive(serde::Deserialize, Debug, PartialEq)]
struct Sample {
    name: String,
    #[serde(default)]
    items: Vec<Item>,
}

#[derive(serde::Deserialize, Debug, PartialEq)]
struct Item {
    count: u32,
}

fn one(text: &str) -> Document {
    parse(Some("f.yaml"), text).unwrap().remove(0)
}

#[test]
fn decodes_a_document() {
    let mut faults = Faults::new();
    let sample: Option<Sample> = one("name: a\nitems:\n- count: 3\n").decode(&mut faults);
    assert_eq!(faults.to_string(), "");
    assert_eq!(
        sample,
        Some(Sample {
            name: "a".into(),
            items: vec![Item { count: 3 }]
        })
    );
}

#[test]
fn lines_end_where_they_end_for_kubectl() {
    for text in [
        "a: >-\r\r\n  b\r\n  c\r\n---\r\nd: e\r\n",
        "a: >-\n  b\n  c\n---\nd: e\n",
    ] {
        let documents = parse(None, text).unwrap();
        let values: Vec<_> = documents
            .iter()
            .map(|document| document.root().to_json())
            .collect();
        assert_eq!(
            values,
            [serde_json::json!({"a": "b c"}), serde_json::json!({"d": "e"})],
            "{text:?}"
        );
    }
}

#[test]
fn reads_json_and_several_documents() {
    assert_eq!(
        parse(None, "{\"a\": [1, 2.5, null, true, \"x\"]}").unwrap().len(),
        1
    );
    assert_eq!(parse(None, "a: 1\n---\n---\nb: 2\n").unwrap().len(), 2);
}

#[test]
fn a_field_is_found_by_its_key_and_an_item_by_its_value() {
    let yaml = "metadata: {name: a, labels: {\"a/b\": c}}\nspec:\n  containers:\n  - name: x\n    é: &y {z: 1}\n  -   name: *y\n";
    let json = "{\"metadata\": {\"name\": \"a\"},\n  \"spec\": {\"containers\": [1, {\"é\": 2, \"x\": 3}]}}";
    for (text, pointer, position) in [
        (yaml, "", (1, 1)),
        (yaml, "/metadata/labels/a~1b", (1, 30)),
        (yaml, "/metadata/labels/absent", (1, 21)),
        (yaml, "/spec/containers", (3, 3)),
        (yaml, "/spec/containers/0", (4, 5)),
        (yaml, "/spec/containers/0/é/z", (5, 12)),
        (yaml, "/spec/containers/1/name", (6, 7)),
        (yaml, "/spec/containers/7/name", (3, 3)),
        (json, "/metadata/name", (1, 15)),
        (json, "/spec/containers/0", (2, 27)),
        (json, "/spec/containers/1/x", (2, 39)),
    ] {
        assert_eq!(one(text).field_position(pointer), position, "{pointer}");
    }
    let second = parse(None, "a: 1\n---\nb: 2\n").unwrap().remove(1);
    assert_eq!(second.field_position("/b"), (3, 1));
}

#[test]
fn an_unknown_field_is_a_fault_with_its_line() {
    let mut faults = Faults::new();
    let sample: Option<Sample> = one("name: a\nitems:\n- count: 3\n  cuont: 4\n").decode(&mut faults);
    assert_eq!(sample, None);
    assert_eq!(
        faults.to_string(),
        "f.yaml:4: items[0].cuont: Unsupported value: unknown field `cuont`: did you mean `count`?"
    );
}

#[test]
fn a_field_like_no_other_names_those_that_there_are() {
    let mut faults = Faults::new();
    let text = "name: a\nitems:\n- count: 3\n  unlike: 4\n";
    let sample: Option<Sample> = one(text).decode(&mut faults);
    assert_eq!(sample, None);
    assert_eq!(
        faults.to_string(),
        "f.yaml:4: items[0].unlike: Unsupported value: unknown field `unlike`: supported fields: `count`"
    );
}

#[test]
fn a_value_of_a_wrong_type_is_a_fault_with_its_line() {
    let mut faults = Faults::new();
    let sample: Option<Sample> = one("name: a\nitems:\n- count: many\n").decode(&mut faults);
    assert_eq!(sample, None);
    assert!(
        faults
            .to_string()
            .starts_with("f.yaml:3: items[0].count: Invalid type: "),
        "{faults}"
    );
}

#[derive(serde::Deserialize, Debug, Default, PartialEq)]
#[serde(default)]
struct Lenient {
    name: String,
    items: Vec<LenientItem>,
    words: Vec<String>,
}

#[derive(serde::Deserialize, Debug, Default, PartialEq)]
#[serde(default)]
struct LenientItem {
    count: u32,
}

#[test]
fn every_value_of_a_wrong_type_is_told() {
    let text = "name: [a]\nwords: [a, 1, b]\nitems:\n- count: many\n- count: 1\n- count: -1\n  other: 1\n";
    let mut faults = Faults::new();
    assert_eq!(one(text).decode::<Lenient>(&mut faults), None);
    let places: Vec<String> = faults.iter().map(|fault| fault.place.to_string()).collect();
    assert_eq!(
        places,
        [
            "f.yaml:7: items[2].other",
            "f.yaml:1: name",
            "f.yaml:2: words[1]",
            "f.yaml:4: items[0].count",
            "f.yaml:6: items[2].count",
        ],
        "{faults}"
    );
}

#[test]
fn a_missing_field_is_a_fault_that_names_it() {
    let mut faults = Faults::new();
    let sample: Option<Sample> = one("items: []\n").decode(&mut faults);
    assert_eq!(sample, None);
    assert!(
        faults
            .to_string()
            .contains("Required value: the field `name` is missing"),
        "{faults}"
    );
}

#[test]
fn text_that_is_no_yaml_names_its_line() {
    let fault = parse(Some("f.yaml"), "a: 1\nb: [1\nc: }\n").unwrap_err();
    assert_eq!(fault.kind, FaultKind::Unreadable);
    assert!(fault.place.line >= 2, "{fault}");
}

#[test]
fn a_key_that_stands_twice_is_a_fault() {
    let fault = parse(Some("f.yaml"), "a: 1\na: 2\n").unwrap_err();
    assert_eq!(fault.place.line, 2, "{fault}");
}

#[test]
fn malicious_text_is_a_fault_and_never_a_crash() {
    let laughs = (1..12).fold(
        "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned(),
        |text, n| {
            let item = format!("*a{}", n - 1);
            text + &format!("a{n}: &a{n} [{}]\n", [item.as_str(); 10].join(", "))
        },
    );
    let long = "x".repeat(1 << 20);
    for text in [
        "[".repeat(100_000),
        "{a: ".repeat(100_000),
        "- ".repeat(100_000),
        "? ".repeat(100_000),
        "{\"a\":".repeat(100_000),
        format!("{}{}", "[".repeat(MAX_DEPTH + 1), "]".repeat(MAX_DEPTH + 1)),
        format!("{{\"a\":{}{}}}", "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH)),
        (1..1000).fold("a0: &a0 x\n".to_owned(), |text, n| {
            text + &format!("a{n}: &a{n} [*a{}]\n", n - 1)
        }),
        laughs,
        format!("a: &a {long}\nb: [{}]\n", ["*a"; 100].join(", ")),
        "a: &a [*a]".to_owned(),
        "a: &a {<<: *a}".to_owned(),
        "\u{0}".to_owned(),
    ] {
        let start: String = text.chars().take(20).collect();
        assert!(parse(None, &text).is_err(), "{start}");
    }
}

#[test]
fn a_document_of_too_many_values_is_a_fault_that_names_its_place() {
    const MAX: usize = 1000;
    let many = |item: &str, separator: &str| vec![item; MAX].join(separator);
    let read = |text: &str| {
        let mut read = 0;
        let limits = ParseLimits {
            max_values: MAX,
            ..ParseLimits::NONE
        };
        let parsed = parse_each(Some("f.yaml"), text, limits, |_| {
            read += 1;
            ControlFlow::Continue(())
        });
        (read, parsed)
    };
    for text in [
        format!("{{\"a\":[{}]}}", many("1", ",")),
        format!("{{\"a\":[{}]}}", many("{}", ",")),
        format!("{{\"a\":\"{}\"}}", "x\\n".repeat(4 * MAX + 4)),
        format!("a: [{}]\n", many("1", ",")),
        format!("a:\n{}\n", many("-", "\n")),
        format!(
            "a: {{{}}}\n",
            (0..MAX).map(|n| format!("k{n},")).collect::<String>()
        ),
        format!("a: &a [{}]\nb: [*a, *a, *a]\n", vec!["1"; MAX / 3].join(",")),
    ] {
        let begin: String = text.chars().take(20).collect();
        let (objects, parsed) = read(&format!("b: 1\n---\n{text}"));
        let fault = parsed.unwrap_err();
        assert_eq!(objects, 1, "{begin}");
        assert!(
            fault.message.contains("the document has more than 1000 values"),
            "{begin}: {fault}"
        );
        assert!(fault.place.line >= 3, "{begin}: {fault}");
        assert!(parse(None, &text).is_ok(), "{begin}");
    }
    let few = vec!["1"; MAX - 4].join(",");
    let fits = [
        format!("{{\"a\":[{few}]}}"),
        format!("a: [{few}]\n---\n").repeat(2),
    ];
    assert_eq!(fits.each_ref().map(|text| read(text)), [(1, Ok(())), (2, Ok(()))]);
}

#[test]
fn what_is_as_deep_as_may_be_is_read_and_decoded() {
    let deep = |open: &str, close: &str| format!("{}{}", open.repeat(MAX_DEPTH), close.repeat(MAX_DEPTH));
    for text in [
        deep("[", "]"),
        deep("{\"a\":", "}").replace(":}", ":1}"),
        "- ".repeat(MAX_DEPTH),
    ] {
        let document = parse(None, &text).unwrap().remove(0);
        let mut faults = Faults::new();
        let value: Option<serde_json::Value> = document.decode(&mut faults);
        assert_eq!(value, Some(document.root().to_json()), "{faults}");
    }
}

#[test]
fn nothing_among_api_groups_is_the_core_group() {
    type Lists = std::collections::BTreeMap<String, Vec<String>>;
    let mut faults = Faults::new();
    let read: Option<Lists> = one("apiGroups: [null, ~, apps]\nverbs: [get]\n").decode(&mut faults);
    assert_eq!(read.unwrap()["apiGroups"], ["", "", "apps"]);
    let read: Option<Lists> = one("apiGroups: [1]\nverbs: [null]\n").decode(&mut faults);
    assert_eq!(read, None);
    assert_eq!(
        faults.to_string(),
        "f.yaml:1: apiGroups[0]: Invalid type: the number `1`, where text belongs: put it in quotes\n\
         f.yaml:2: verbs[0]: Invalid type: nothing, where text belongs"
    );
}

#[test]
fn what_is_no_text_is_no_text() {
    let mut faults = Faults::new();
    let read: Option<std::collections::BTreeMap<String, String>> =
        one("a: yes\nb: 1\nc: \"1\"\nd: 2001-01-01\n").decode(&mut faults);
    assert_eq!(read, None);
    assert_eq!(
        faults.to_string(),
        "f.yaml:1: a: Invalid type: the boolean `true`, where text belongs: put it in quotes, because YAML \
        also reads `y`, `yes` and `on` as `true`\nf.yaml:2: b: Invalid type: the number `1`, where text \
        belongs: put it in quotes"
    );
}
