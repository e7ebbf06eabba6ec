//! Reading: what is JSON, what is not, and the bounds.

mod bytes;
mod generated;
mod patches;

use super::*;

fn parse(text: &str) -> Document<'_> {
    Document::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn reads_every_kind_of_value() {
    let document = parse(r#" {"a":[1,-2.5e3,true,null,"x\ty",{}],"b":{"c":false}} "#);
    let root = document.root();
    assert_eq!(root.kind(), Kind::Object);
    assert_eq!(root.len(), 2);
    let list = root.get("a").unwrap();
    assert_eq!(list.len(), 6);
    assert_eq!(list.item(0).unwrap().as_i64(), Some(1));
    assert_eq!(list.item(1).unwrap().as_f64(), Some(-2500.0));
    assert_eq!(list.item(1).unwrap().as_i64(), None);
    assert_eq!(list.item(2).unwrap().as_bool(), Some(true));
    assert!(list.item(3).unwrap().is_null());
    assert_eq!(list.item(4).unwrap().as_str().unwrap(), "x\ty");
    assert!(list.item(5).unwrap().is_empty());
    assert!(list.item(6).is_none());
    assert_eq!(root.pointer("/b/c").unwrap().as_bool(), Some(false));
    assert!(root.pointer("/b/d").is_none());
    assert_eq!(root.get("b").unwrap().raw(), r#"{"c":false}"#);
}

#[test]
fn numbers_keep_their_text() {
    let document = parse("[9007199254740993,18446744073709551615,1.10,1e400]");
    let numbers: Vec<_> = document
        .root()
        .items()
        .map(|item| item.number().unwrap())
        .collect();
    assert_eq!(
        numbers,
        ["9007199254740993", "18446744073709551615", "1.10", "1e400"]
    );
    assert_eq!(
        document.root().item(0).unwrap().as_i64(),
        Some(9_007_199_254_740_993)
    );
    assert_eq!(document.root().item(1).unwrap().as_u64(), Some(u64::MAX));
    assert_eq!(document.root().item(1).unwrap().as_i64(), None);
}

#[test]
fn the_last_of_equal_keys_counts() {
    for width in [0, 5, 100] {
        let filler: String = (0..width).map(|n| format!(r#""k{n}":{n},"#)).collect();
        let text = format!(r#"{{"a":1,{filler}"\u0061":2,"b":3,"a":{{"x":4}}}}"#);
        let document = parse(&text);
        let root = document.root();
        assert_eq!(root.get("a").unwrap().raw(), r#"{"x":4}"#, "{width}");
        assert_eq!(root.len(), width + 2);
        assert_eq!(root.entries().count(), width + 2);
        assert_eq!(root.entries().filter(|(key, _)| key == "a").count(), 1);
    }
}

#[test]
fn wide_lists_and_maps_are_found_by_place_and_key() {
    let keys: Vec<String> = (0..1000).map(|n| format!(r#""key-{n}":[{n}]"#)).collect();
    let text = format!(
        r#"{{"deep":[{{{}}}],"list":[{}]}}"#,
        keys.join(","),
        vec!["[0,1]"; 500].join(",")
    );
    let document = parse(&text);
    let map = document.root().pointer("/deep/0").unwrap();
    for n in 0..1000 {
        assert_eq!(
            map.get(&format!("key-{n}")).unwrap().item(0).unwrap().as_u64(),
            Some(n)
        );
    }
    assert!(map.get("key-1000").is_none());
    let list = document.root().get("list").unwrap();
    assert_eq!(list.item(499).unwrap().raw(), "[0,1]");
    assert!(list.item(500).is_none());
}

#[test]
fn refuses_what_is_not_json() {
    let broken = [
        "",
        " ",
        "{",
        "[",
        "[1",
        "[1,",
        "[1,]",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":1",
        "{\"a\":1,",
        "{\"a\":1,}",
        "{a:1}",
        "01",
        "-",
        "1.",
        ".5",
        "1e",
        "+1",
        "tru",
        "nul",
        "\"",
        "\"\\",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"\n\"",
        "1 2",
        "{}}",
        "[}",
        "{]",
        "NaN",
        "'a'",
        "[1 2]",
        "{\"a\" 1}",
        "\u{feff}{}",
    ];
    for text in broken {
        assert!(Document::parse(text).is_err(), "{text:?}");
    }
}

/// What is sent nests deep, the stack of a thread does not.
fn on_a_small_stack(work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(256 << 10);
    thread.spawn(work).unwrap().join().unwrap();
}

/// `{"a":[{"a":[ … 1 … ]}]}`, of so many levels.
fn nested(levels: usize, innermost: &str) -> String {
    let pairs = levels / 2;
    format!("{}{innermost}{}", r#"{"a":["#.repeat(pairs), "]}".repeat(pairs))
}

#[test]
fn ten_thousand_levels_are_read_compared_patched_and_written_on_a_small_stack() {
    on_a_small_stack(|| {
        let text = format!(r#"{{"data":{},"name":"n"}}"#, nested(10_000, "1"));
        let document = Document::parse(text.as_str()).unwrap();
        let object = document.root();
        assert_eq!(document.levels(), 10_001);
        assert!(object.same(Document::parse(text.as_str()).unwrap().root()));
        let other = format!(r#"{{"name":"n","data":{}}}"#, nested(10_000, "2"));
        let other = Document::parse(other).unwrap();
        assert!(!object.same(other.root()));
        let operations = diff(object, other.root());
        assert_eq!(operations.len(), 1);
        let written = Document::parse(patch::write(&operations)).unwrap();
        let changed = patch::apply(object, patch::read(written.root()).unwrap()).unwrap();
        let changed = Document::parse(changed.to_text()).unwrap();
        assert!(changed.root().same(other.root()));
        let copy = parse(r#"[{"op":"copy","from":"/data","path":"/more"},{"op":"remove","path":"/data"}]"#);
        let copied = patch::apply(object, patch::read(copy.root()).unwrap()).unwrap();
        let copied = Document::parse(copied.to_text()).unwrap();
        assert!(
            copied
                .root()
                .get("more")
                .unwrap()
                .same(object.get("data").unwrap())
        );
    });
}

#[test]
fn nesting_is_bounded() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(Document::parse(nested(MAX_DEPTH)).is_ok());
    assert_eq!(
        Document::parse(nested(MAX_DEPTH + 1)).unwrap_err(),
        JsonError::TooDeep { at: MAX_DEPTH }
    );
    assert!(matches!(
        Document::parse("[".repeat(1_000_000)).unwrap_err(),
        JsonError::TooDeep { .. }
    ));
    for innermost in [
        r#"{"a":{},"b":{}}"#,
        r#"{"a":{}}"#,
        r#"{"a" : {} }"#,
        r#"{"a":{"b":1}}"#,
    ] {
        let within = |levels| format!("{}{innermost}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(Document::parse(within(MAX_DEPTH - 2)).is_ok(), "{innermost}");
        assert!(
            matches!(
                Document::parse(within(MAX_DEPTH - 1)),
                Err(JsonError::TooDeep { .. })
            ),
            "{innermost}"
        );
    }
}

#[test]
fn the_number_of_values_is_bounded() {
    let text = format!("[{}1]", "1,".repeat(MAX_TOKENS));
    assert_eq!(Document::parse(text).unwrap_err(), JsonError::TooMany);
}

#[test]
fn sameness_looks_through_spelling() {
    for (left, right, same) in [
        (r#"{"a":1,"b":"x"}"#, r#" { "b" : "\u0078", "a":1 }"#, true),
        (r#"{"a":1}"#, r#"{"a":1,"b":null}"#, false),
        ("[1,2]", "[2,1]", false),
        ("1.0", "1", false),
        ("[]", "{}", false),
    ] {
        assert_eq!(
            parse(left).root().same(parse(right).root()),
            same,
            "{left} {right}"
        );
    }
}

#[test]
fn several_keys_are_found_at_once_as_one_by_one() {
    let wide: String = (0..40).map(|at| format!(",\"w{at}\":{at}")).collect();
    for text in [
        r#"{"a":1,"bc":{"a":2},"d":3}"#.to_owned(),
        r#"{"d":3,"x":0,"bc":null,"a":1}"#.to_owned(),
        r#"{"\u0061":1,"a":2,"d":[],"d":4}"#.to_owned(),
        r#"{"bc":7}"#.to_owned(),
        "{}".to_owned(),
        "[1]".to_owned(),
        format!("{{\"d\":1{wide},\"a\":2}}"),
    ] {
        let document = Document::parse(text.as_str()).unwrap();
        let names = ["a", "bc", "d", "long-name-that-is-not-there", ""];
        let raw = |node: Option<Node<'_>>| node.map(|node| node.raw().to_owned());
        let found = document.root().get_all(names).map(raw);
        assert_eq!(found, names.map(|name| raw(document.root().get(name))), "{text}");
    }
}
