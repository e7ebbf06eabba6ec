use proptest::prelude::*;
use serde_json::Value;

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
        let changed = patch::apply(object, &patch::read(written.root()).unwrap()).unwrap();
        let changed = Document::parse(changed.to_text()).unwrap();
        assert!(changed.root().same(other.root()));
        let copy = parse(r#"[{"op":"copy","from":"/data","path":"/more"},{"op":"remove","path":"/data"}]"#);
        let copied = patch::apply(object, &patch::read(copy.root()).unwrap()).unwrap();
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
fn a_difference_far_down_replaces_what_it_is_in() {
    let (before, after) = (nested(2_000, "1"), nested(2_000, "2"));
    let (before, after) = (Document::parse(before).unwrap(), Document::parse(after).unwrap());
    let operations = diff(before.root(), after.root());
    let [operation] = operations.as_slice() else {
        panic!("{} operations", operations.len());
    };
    assert_eq!(operation.op, "replace");
    assert_eq!(operation.path.matches('/').count(), MAX_OPENED);
    let long = "k".repeat(5_000);
    let mk = |value: u32| Document::parse(format!(r#"{{"{long}":{{"a":{value},"b":{value}}}}}"#)).unwrap();
    let (before, after) = (mk(1), mk(2));
    let operations = diff(before.root(), after.root());
    assert_eq!(operations.len(), 1, "the path is not written again for each");
    assert_eq!(operations[0].path.len(), 5_001);
}

#[test]
fn nesting_is_bounded() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(Document::parse(nested(MAX_DEPTH)).is_ok());
    assert_eq!(
        Document::parse(nested(MAX_DEPTH + 1)).unwrap_err(),
        Error::TooDeep { at: MAX_DEPTH }
    );
    assert!(matches!(
        Document::parse("[".repeat(1_000_000)).unwrap_err(),
        Error::TooDeep { .. }
    ));
}

#[test]
fn the_number_of_values_is_bounded() {
    let text = format!("[{}1]", "1,".repeat(MAX_TOKENS));
    assert_eq!(Document::parse(text).unwrap_err(), Error::TooMany);
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

fn patched(document: &str, patch: &str) -> Result<String, patch::Error> {
    let (document, patch) = (parse(document), parse(patch));
    let operations = patch::read(patch.root())?;
    patch::apply(document.root(), &operations).map(|tree| tree.to_text())
}

#[test]
fn patches_apply_as_the_api_server_applies_them() {
    let cases = [
        (
            r#"{"a":1}"#,
            r#"[{"op":"add","path":"/b","value":[1]}]"#,
            r#"{"a":1,"b":[1]}"#,
        ),
        (
            r#"{"a":[1,3]}"#,
            r#"[{"op":"add","path":"/a/1","value":2}]"#,
            r#"{"a":[1,2,3]}"#,
        ),
        (
            r#"{"a":[1]}"#,
            r#"[{"op":"add","path":"/a/-","value":2}]"#,
            r#"{"a":[1,2]}"#,
        ),
        (
            r#"{"a":[1]}"#,
            r#"[{"op":"add","path":"/a/-1","value":2}]"#,
            r#"{"a":[1,2]}"#,
        ),
        (
            r#"{"a":[1,2]}"#,
            r#"[{"op":"remove","path":"/a/-1"}]"#,
            r#"{"a":[1]}"#,
        ),
        (
            r#"{"a":{}}"#,
            r#"[{"op":"replace","path":"/a/missing","value":1}]"#,
            r#"{"a":{"missing":1}}"#,
        ),
        (
            r#"{"a":1}"#,
            r#"[{"op":"add","path":"/b"}]"#,
            r#"{"a":1,"b":null}"#,
        ),
        (
            r#"{"a":{"b":1}}"#,
            r#"[{"op":"move","from":"/a/b","path":"/c"}]"#,
            r#"{"a":{},"c":1}"#,
        ),
        (
            r#"{"a":[1]}"#,
            r#"[{"op":"copy","from":"/a","path":"/b"}]"#,
            r#"{"a":[1],"b":[1]}"#,
        ),
        (
            r#"{"a":1}"#,
            r#"[{"op":"copy","from":"/x","path":"/b"}]"#,
            r#"{"a":1,"b":null}"#,
        ),
        (
            r#"{"a":1}"#,
            r#"[{"op":"replace","path":"","value":{"b":2}}]"#,
            r#"{"b":2}"#,
        ),
        (
            r#"{"a":1}"#,
            r#"[{"op":"replace","path":"ignored/a","value":2}]"#,
            r#"{"a":2}"#,
        ),
        (
            r#"{"a/b":{"~":1}}"#,
            r#"[{"op":"remove","path":"/a~1b/~0"}]"#,
            r#"{"a/b":{}}"#,
        ),
        (
            r#"{"a":null}"#,
            r#"[{"op":"test","path":"/b","value":null}]"#,
            r#"{"a":null}"#,
        ),
        (
            r#"{"a":{"x":1,"y":[2]}}"#,
            r#"[{"op":"test","path":"/a","value":{"y":[2],"x":1}}]"#,
            r#"{"a":{"x":1,"y":[2]}}"#,
        ),
        (r#"{"a":1}"#, "[]", r#"{"a":1}"#),
        (r#"{"a":1}"#, "null", r#"{"a":1}"#),
        (
            r#"{ "big" : 9007199254740993 , "a":1}"#,
            r#"[{"op":"remove","path":"/a"}]"#,
            r#"{"big":9007199254740993}"#,
        ),
    ];
    for (document, patch, expected) in cases {
        assert_eq!(
            patched(document, patch).as_deref(),
            Ok(expected),
            "{document} {patch}"
        );
    }
}

#[test]
fn patches_that_do_not_apply_say_why() {
    let cases = [
        (r#"[{"op":"remove","path":"/x"}]"#, "nonexistent key: x"),
        (
            r#"[{"op":"add","path":"/x/y","value":1}]"#,
            "missing path: \"/x/y\"",
        ),
        (r#"[{"op":"add","path":"","value":{}}]"#, "missing path"),
        (r#"[{"op":"add","path":"/a/5","value":1}]"#, "invalid index: 5"),
        (
            r#"[{"op":"replace","path":"/a/2","value":1}]"#,
            "invalid index: 2",
        ),
        (
            r#"[{"op":"add","path":"/a/01x","value":1}]"#,
            "invalid index: 01x",
        ),
        (r#"[{"op":"replace","path":"/s/x","value":1}]"#, "missing path"),
        (r#"[{"op":"test","path":"/s","value":"other"}]"#, "test failed"),
        (r#"[{"op":"move","path":"/b"}]"#, "missing from"),
        (
            r#"[{"op":"replace","path":"","value":1}]"#,
            "must be object or array",
        ),
        (
            r#"[{"op":"frobnicate","path":"/a"}]"#,
            "Unexpected kind: frobnicate",
        ),
        (r#"{"op":"add"}"#, "a list expected"),
        (r#"[{"op":"add","path":7}]"#, "text expected"),
    ];
    for (patch, expected) in cases {
        let error = patched(r#"{"a":[1,2],"s":"t"}"#, patch).unwrap_err().to_string();
        assert!(error.contains(expected), "{patch}: {error}");
    }
}

#[test]
fn a_patch_cannot_nest_or_copy_without_end() {
    let deep = "/a".repeat(MAX_OPENED + 1);
    let patch = format!(r#"[{{"op":"add","path":"{deep}","value":1}}]"#);
    assert!(matches!(
        patched("{}", &patch).unwrap_err(),
        patch::Error::TooLarge { .. }
    ));

    let copies = vec![r#"{"op":"copy","from":"/a","path":"/a/x"}"#; 300].join(",");
    assert!(matches!(
        patched(r#"{"a":{"y":1}}"#, &format!("[{copies}]")).unwrap_err(),
        patch::Error::TooLarge { .. }
    ));
}

#[test]
fn removed_keys_leave_nothing_that_a_copy_would_pay_for() {
    let keys: Vec<String> = (0..1_000).map(|key| format!("\"k{key}\":0")).collect();
    let document = format!("{{\"a\":{{{}}}}}", keys.join(","));
    let removals = (0..1_000).map(|key| format!(r#"{{"op":"remove","path":"/a/k{key}"}}"#));
    let patch = format!("[{}]", removals.collect::<Vec<_>>().join(","));
    let (document, patch) = (parse(&document), parse(&patch));
    let operations = patch::read(patch.root()).unwrap();
    for count in [1, 499, 501, 990, 1_000] {
        let tree = patch::apply(document.root(), &operations[..count]).unwrap();
        let Tree::Object(root) = &tree else {
            panic!("a map")
        };
        let Some(Tree::Object(map)) = root.get("a") else {
            panic!("a map was there");
        };
        assert_eq!(map.len(), 1_000 - count);
        assert!(
            map.places() <= (2 * map.len()).max(33),
            "{count}: {}",
            map.places()
        );
        for key in 0..1_000 {
            assert_eq!(
                map.get(&format!("k{key}")).is_some(),
                key >= count,
                "{count} {key}"
            );
        }
        let mut map = map.clone();
        for key in 0..100 {
            map.insert(format!("n{key}").into(), Tree::Null);
        }
        assert!(map.get("n99").is_some() && map.get("k999").is_some() == (count < 1_000));
    }
}

#[test]
fn what_is_large_cannot_be_moved_to_and_fro_without_end() {
    let document = format!("{{\"a\":[{}0]}}", "0,".repeat(1_000_000));
    let moves = [
        r#"{"op":"move","from":"/a","path":"/b"}"#,
        r#"{"op":"move","from":"/b","path":"/a"}"#,
    ]
    .join(",");
    let moves = vec![moves; 100].join(",");
    let patch = format!(r#"[{{"op":"remove","path":"/a/-1"}},{moves}]"#);
    assert!(matches!(
        patched(&document, &patch).unwrap_err(),
        patch::Error::TooLarge { .. }
    ));
}

fn difference(before: &str, after: &str) -> String {
    let (before, after) = (parse(before), parse(after));
    patch::write(&diff(before.root(), after.root()))
}

#[test]
fn a_difference_is_small() {
    let cases = [
        (r#"{"a":1}"#, r#"{ "a" : 1 }"#, "[]"),
        (
            r#"{"metadata":{"labels":{"a":"1"}}}"#,
            r#"{"metadata":{"labels":{"a":"1","x/y~z":"2"}}}"#,
            r#"[{"op":"add","path":"/metadata/labels/x~1y~0z","value":"2"}]"#,
        ),
        (
            r#"{"c":[{"name":"a","image":"x"}]}"#,
            r#"{"c":[{"name":"side"},{"name":"a","image":"y"}]}"#,
            r#"[{"op":"add","path":"/c/0","value":{"name":"side"}},{"op":"replace","path":"/c/1/image","value":"y"}]"#,
        ),
        (
            "[1,2,3,4]",
            "[1,3,4,5]",
            r#"[{"op":"remove","path":"/1"},{"op":"add","path":"/3","value":5}]"#,
        ),
        (
            r#"{"a":[1]}"#,
            r#"{"a":[]}"#,
            r#"[{"op":"replace","path":"/a","value":[]}]"#,
        ),
        (
            r#"{"a":{}}"#,
            r#"{"a":{"b":1}}"#,
            r#"[{"op":"add","path":"/a/b","value":1}]"#,
        ),
        (
            r#"{"a":{"b":1}}"#,
            r#"{"a":{"c":1}}"#,
            r#"[{"op":"replace","path":"/a","value":{"c":1}}]"#,
        ),
        (
            r#"{"a":1,"n":9007199254740993}"#,
            r#"{"n":9007199254740993}"#,
            r#"[{"op":"remove","path":"/a"}]"#,
        ),
    ];
    for (before, after, expected) in cases {
        assert_eq!(difference(before, after), expected, "{before} {after}");
    }
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0_u64..4).prop_map(Value::from),
        Just(Value::from(9_007_199_254_740_993_u64)),
        "[a-c~/\"\\\\é\u{1}😀]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 60, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map("[a-c~/]{0,2}|name", inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn reads_what_serde_json_writes(value in value()) {
        for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
            let document = parse(&text);
            prop_assert_eq!(rebuilt(document.root()), value.clone());
        }
    }

    #[test]
    fn agrees_with_serde_json_on_what_is_json(text in "[\\[\\]{}\",:0-9a-z.eE+\\- \\\\u]{0,12}") {
        let other = serde_json::from_str::<&serde_json::value::RawValue>(&text);
        prop_assert_eq!(Document::parse(text.as_str()).is_ok(), other.is_ok(), "{}", text);
    }

    #[test]
    fn a_difference_applied_gives_the_other_value(before in value(), after in value()) {
        let root = |value: &Value| format!(r#"{{"root":{value}}}"#);
        let (before, after) = (root(&before), root(&after));
        let patch = difference(&before, &after);
        let text = patched(&before, &patch).unwrap();
        prop_assert!(parse(&text).root().same(parse(&after).root()), "{} {} {}", before, patch, text);
        // Another implementation of RFC 6902 agrees.
        let mut other: Value = serde_json::from_str(&before).unwrap();
        json_patch::patch(&mut other, &serde_json::from_str::<json_patch::Patch>(&patch).unwrap()).unwrap();
        prop_assert_eq!(other, serde_json::from_str::<Value>(&after).unwrap());
    }

    #[test]
    fn no_text_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(document) = Document::parse_bytes(&bytes) {
            prop_assert!(document.root().same(document.root()));
        }
    }
}

fn rebuilt(node: Node<'_>) -> Value {
    match node.kind() {
        Kind::Object => node
            .entries()
            .map(|(key, value)| (key.into_owned(), rebuilt(value)))
            .collect(),
        Kind::Array => node.items().map(rebuilt).collect(),
        Kind::String => node.as_str().unwrap().into(),
        _ => serde_json::from_str(node.raw()).unwrap(),
    }
}
