//! Patches, applied as the API server applies them.

use super::*;
use crate::json::patch::PatchBudget;

pub(crate) fn patched(document: &str, patch: &str) -> Result<String, patch::PatchError> {
    let (document, patch) = (parse(document), parse(patch));
    let operations = patch::read(patch.root())?;
    patch::apply(document.root(), operations).map(|tree| tree.to_text())
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
        patch::PatchError::TooLarge { .. }
    ));

    let copies = vec![r#"{"op":"copy","from":"/a","path":"/a/x"}"#; 300].join(",");
    assert!(matches!(
        patched(r#"{"a":{"y":1}}"#, &format!("[{copies}]")).unwrap_err(),
        patch::PatchError::TooLarge { .. }
    ));
}

/// `count` operations, separated by commas.
fn operations(count: usize, operation: impl Fn(usize) -> String) -> String {
    (0..count).map(operation).collect::<Vec<_>>().join(",")
}

#[test]
fn what_is_large_cannot_be_moved_to_and_fro_without_end() {
    let added = operations(10_000, |key| {
        format!(r#"{{"op":"add","path":"/a/k{key}","value":0}}"#)
    });
    let moves = [
        r#"{"op":"move","from":"/a","path":"/b"}"#,
        r#"{"op":"move","from":"/b","path":"/a"}"#,
    ]
    .join(",");
    let moved = |times: usize| {
        let moves = vec![moves.as_str(); times].join(",");
        patched(r#"{"a":{}}"#, &format!("[{added},{moves}]"))
    };
    assert!(moved(10).is_ok());
    assert!(matches!(
        moved(6_000).unwrap_err(),
        patch::PatchError::TooLarge { .. }
    ));
}

#[test]
fn what_patches_may_change_copy_and_shift_is_bounded_for_all_of_them_together() {
    let document = format!(r#"{{"a":[],"t":"{}"}}"#, "0".repeat(998));
    let document = parse(&document);
    let times = |patch: &str| {
        let patch = parse(patch);
        let patch = patch::read(patch.root()).unwrap();
        let mut budget = PatchBudget::new();
        (0..)
            .take_while(|_| patch::apply_within(document.root(), patch, &mut budget).is_ok())
            .count()
    };
    let copied = format!(
        "[{}]",
        operations(1_000, |_| r#"{"op":"copy","from":"/t","path":"/u"}"#.to_owned())
    );
    assert_eq!(times(&copied), (3 << 20) / 1_000 / 1_000);
    let changed = format!(
        "[{}]",
        operations(1_000, |key| format!(
            r#"{{"op":"add","path":"/k{key}","value":0}}"#
        ))
    );
    assert!((10..500).contains(&times(&changed)), "{}", times(&changed));
    let shifted = format!(
        "[{}]",
        operations(8_000, |_| r#"{"op":"add","path":"/a/0","value":0}"#.to_owned())
    );
    assert!((1..20).contains(&times(&shifted)), "{}", times(&shifted));
}

#[test]
fn a_list_stays_as_it_was_read_but_where_it_changes() {
    let items = vec!["{}"; 10_000].join(",");
    let document = format!(r#"{{"v":[{items}],"m":{{"k":0}}}}"#);
    let document = parse(&document);
    let pieces = |patch: &str| {
        let patch = parse(patch);
        let tree = patch::apply(document.root(), patch::read(patch.root()).unwrap()).unwrap();
        let Tree::Object(root) = &tree else {
            panic!("a map")
        };
        let Some(list) = root.get("v") else {
            panic!("a list")
        };
        match &*list {
            Tree::Array(list) => {
                assert_eq!(list.items().count(), list.len());
                list.pieces()
            }
            _ => panic!("it was not opened"),
        }
    };
    for (patch, expected) in [
        (r#"[{"op":"add","path":"/v/-","value":{}}]"#, 2),
        (
            r#"[{"op":"add","path":"/v/0","value":{}},{"op":"add","path":"/v/0","value":{}}]"#,
            3,
        ),
        (r#"[{"op":"remove","path":"/v/17"}]"#, 2),
        (
            r#"[{"op":"add","path":"/v/17/a","value":1},{"op":"add","path":"/v/17/b","value":1}]"#,
            3,
        ),
        (r#"[{"op":"test","path":"/v/17","value":{}}]"#, 1),
    ] {
        assert_eq!(pieces(patch), expected, "{patch}");
    }
}

/// Lists in which much changes are kept otherwise than those in which little does.
#[test]
fn a_list_of_which_much_changes_becomes_the_same_as_item_by_item() {
    let length = 5_000;
    let mut expected: Vec<usize> = (0..length).collect();
    let document = format!(r#"{{"v":{expected:?}}}"#);
    let mut patch = Vec::new();
    // Not in order, and not at random.
    for step in 0..2_000 {
        let place = step * 7_919 % expected.len();
        match step % 3 {
            0 => {
                expected[place] = length + step;
                patch.push(format!(
                    r#"{{"op":"replace","path":"/v/{place}","value":{}}}"#,
                    length + step
                ));
            }
            1 => {
                expected.remove(place);
                patch.push(format!(r#"{{"op":"remove","path":"/v/{place}"}}"#));
            }
            _ => {
                expected.insert(place, step);
                patch.push(format!(r#"{{"op":"add","path":"/v/{place}","value":{step}}}"#));
            }
        }
    }
    let changed = patched(&document, &format!("[{}]", patch.join(","))).unwrap();
    let expected: Vec<String> = expected.iter().map(usize::to_string).collect();
    assert_eq!(changed, format!(r#"{{"v":[{}]}}"#, expected.join(",")));
}

#[test]
fn keys_keep_their_order_however_often_they_come_and_go() {
    for width in [3, 100] {
        let keys = operations(width, |key| format!("\"k{key}\":{key}"));
        let (add, remove) = (
            |key: &str| format!(r#"{{"op":"add","path":"/{key}","value":true}}"#),
            |key: &str| format!(r#"{{"op":"remove","path":"/{key}"}}"#),
        );
        let many = operations(40, |key| add(&format!("n{key}")));
        let steps = [
            add("k1"),
            remove("k0"),
            add("k0"),
            add("x"),
            remove("k0"),
            add("k0"),
            many,
            remove("x"),
            add("x"),
            remove("n7"),
        ];
        let changed = patched(&format!("{{{keys}}}"), &format!("[{}]", steps.join(","))).unwrap();
        let changed = parse(&changed);
        let found: Vec<String> = changed
            .root()
            .entries()
            .map(|(key, _)| key.into_owned())
            .collect();
        let expected: Vec<String> = (1..width)
            .map(|key| format!("k{key}"))
            .chain(["k0".to_owned()])
            .chain((0..40).filter(|key| *key != 7).map(|key| format!("n{key}")))
            .chain(["x".to_owned()])
            .collect();
        assert_eq!(found, expected);
        assert_eq!(changed.root().get("k1").unwrap().raw(), "true");
    }
}

#[test]
fn no_text_takes_more_room_than_what_is_written() {
    let document = r#"{"a":{"b":[{"c":"0123456789"},{"d":1}]},"x":[1,2,3]}"#;
    for patch in [
        r#"[{"op":"add","path":"/a/b/0/c","value":"z"}]"#,
        r#"[{"op":"remove","path":"/a/b/0"},{"op":"add","path":"/x/0","value":9},{"op":"move","from":"/x","path":"/a/y"}]"#,
        r#"[{"op":"remove","path":"/a"},{"op":"add","path":"/a","value":{"\u0001é/~":1}},{"op":"add","path":"/a/\u0001","value":1}]"#,
    ] {
        let (document, patch) = (parse(document), parse(patch));
        let tree = patch::apply(document.root(), patch::read(patch.root()).unwrap()).unwrap();
        let (bytes, text) = (tree.extent().bytes, tree.to_text());
        assert!((text.len()..text.len() + 64).contains(&bytes), "{bytes} {text}");
    }
}

pub(crate) fn difference(before: &str, after: &str) -> String {
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
fn a_difference_takes_no_more_than_what_it_is_in() {
    let list = |item: &str, count: usize| format!(r#"{{"v":[{}],"w":1}}"#, vec![item; count].join(","));
    for (before, after) in [
        (list("0", 100_000), list("1", 100_000)),
        (list("0", 200_000), list("0", 100_000)),
        (list("[0]", 50_000), list("[1]", 50_000)),
        (list("0", 1), list("1", 100_000)),
    ] {
        let patch = difference(&before, &after);
        assert!(
            patch.len() < after.len() + 100,
            "{} of {}",
            patch.len(),
            after.len()
        );
        let changed = patched(&before, &patch).unwrap();
        assert!(parse(&changed).root().same(parse(&after).root()));
    }
    // One item more at the end is one operation, however long the list.
    let more = difference(&list("{}", 100_000), &list("{}", 100_001));
    assert_eq!(more, r#"[{"op":"add","path":"/v/100000","value":{}}]"#);
}
