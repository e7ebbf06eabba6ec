//! Patches, applied as the API server applies them.

use super::*;

pub(super) fn patched(document: &str, patch: &str) -> Result<String, patch::Error> {
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

pub(super) fn difference(before: &str, after: &str) -> String {
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
