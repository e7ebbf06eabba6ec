//! The merge over a schema of a few types; `tests/tables` has the built-in ones.

mod configurations;

use super::schema::Schemas;
use super::{ApplyError, configuration, merge};
use crate::admission::GroupVersionKind;
use portcullis_cel::json::Document;
use portcullis_cel::{Activation, Budget, Environment, Type, Value, Version};

const SCHEMA: &str = r#"
# Thing has a field of each sort.
kind example.com/v1 Thing Thing
type Thing apiVersion:str kind:str text:str number:i64 truth:bool scalar:scalar any:any whole:!any nested:Nested atomic:Atomic made-atomic:!Nested made-granular:~Atomic list:[str] set:set[scalar] items:map(name)[Item] ports:map(port=0,protocol="TCP")[Port] map:{i64} structs:{Nested} atomic-map:!{str}
type Nested a:str b:str nested:Nested
type Atomic ! a:str b:str
type Item name:str value:str list:[str] items:map(name)[Item]
type Port port:i64 protocol:str name:str
"#;

fn kind(kind: &str) -> GroupVersionKind<'_> {
    GroupVersionKind {
        group: "example.com".into(),
        version: "v1".into(),
        kind: kind.into(),
    }
}

fn merged(object: &str, patch: &str) -> Result<String, ApplyError> {
    let schemas = Schemas::read(SCHEMA).unwrap();
    let (object, patch) = (Document::parse(object).unwrap(), Document::parse(patch).unwrap());
    merge(&schemas, &kind("Thing"), object.root(), patch.root()).map(|tree| tree.to_text())
}

#[test]
fn merges_maps_key_by_key_and_lists_by_their_keys() {
    let cases = [
        // Scalars, absent, empty and null.
        (
            r#"{"text":"a","unknown":1e400}"#,
            r#"{"text":"b"}"#,
            r#"{"text":"b","unknown":1e400}"#,
        ),
        (
            r#"{"number":9007199254740993}"#,
            r#"{"text":"b"}"#,
            r#"{"number":9007199254740993,"text":"b"}"#,
        ),
        (r#"{"text":"a"}"#, r#"{"text":null}"#, r#"{"text":null}"#),
        (r#"{"text":null}"#, r#"{"text":"b"}"#, r#"{"text":"b"}"#),
        (r#"{"text":"a"}"#, "{}", r#"{"text":"a"}"#),
        ("{}", r#"{"text":"b"}"#, r#"{"text":"b"}"#),
        (r#"{"scalar":1}"#, r#"{"scalar":"1"}"#, r#"{"scalar":"1"}"#),
        (
            r#"{"apiVersion":"example.com/v1","kind":"Thing"}"#,
            r#"{"kind":"Other","apiVersion":7}"#,
            r#"{"apiVersion":"example.com/v1","kind":"Thing"}"#,
        ),
        // Maps.
        (
            r#"{"nested":{"a":"1","x":2}}"#,
            r#"{"nested":{"b":"3"}}"#,
            r#"{"nested":{"a":"1","x":2,"b":"3"}}"#,
        ),
        (
            r#"{"nested":{"a":"1"}}"#,
            r#"{"nested":{}}"#,
            r#"{"nested":{"a":"1"}}"#,
        ),
        (
            r#"{"nested":{"a":"1"}}"#,
            r#"{"nested":null}"#,
            r#"{"nested":{"a":"1"}}"#,
        ),
        (r#"{"nested":{}}"#, r#"{"nested":null}"#, r#"{"nested":null}"#),
        (
            r#"{"nested":null}"#,
            r#"{"nested":{"a":"1"}}"#,
            r#"{"nested":{"a":"1"}}"#,
        ),
        (
            r#"{"map":{"a":1}}"#,
            r#"{"map":{"b":2}}"#,
            r#"{"map":{"a":1,"b":2}}"#,
        ),
        (
            r#"{"structs":{"x":{"a":"1"}}}"#,
            r#"{"structs":{"x":{"b":"2"},"y":{}}}"#,
            r#"{"structs":{"x":{"a":"1","b":"2"},"y":{}}}"#,
        ),
        (
            r#"{"made-granular":{"a":"1"}}"#,
            r#"{"made-granular":{"b":"2"}}"#,
            r#"{"made-granular":{"a":"1","b":"2"}}"#,
        ),
        (
            r#"{"any":{"a":{"b":1}}}"#,
            r#"{"any":{"a":{"c":2}}}"#,
            r#"{"any":{"a":{"b":1,"c":2}}}"#,
        ),
        (r#"{"any":{"a":1}}"#, r#"{"any":7}"#, r#"{"any":7}"#),
        (r#"{"any":7}"#, r#"{"any":{"a":1}}"#, r#"{"any":{"a":1}}"#),
        (r#"{"any":{"a":1}}"#, r#"{"any":null}"#, r#"{"any":{"a":1}}"#),
        (r#"{"any":7}"#, r#"{"any":null}"#, r#"{"any":null}"#),
        // An item that is not named keeps its text.
        (
            r#"{"items":[{"name":"a","value":"1"}]}"#,
            r#"{"items":[{"name":"b"}]}"#,
            r#"{"items":[{"name":"a","value":"1"},{"name":"b"}]}"#,
        ),
        (
            r#"{"items":[{"name":"a","value":"1"}]}"#,
            r#"{"items":[{"name":"a","value":"2"}]}"#,
            r#"{"items":[{"name":"a","value":"2"}]}"#,
        ),
        (
            r#"{"items":[{"name":"a","items":[{"name":"b"}]}]}"#,
            r#"{"items":[{"name":"a","items":[{"name":"c"}]}]}"#,
            r#"{"items":[{"name":"a","items":[{"name":"b"},{"name":"c"}]}]}"#,
        ),
        (
            r#"{"items":[{"name":"a"}]}"#,
            r#"{"items":[]}"#,
            r#"{"items":[{"name":"a"}]}"#,
        ),
        (
            r#"{"items":[{"name":"a"}]}"#,
            r#"{"items":null}"#,
            r#"{"items":[{"name":"a"}]}"#,
        ),
        (r#"{"items":[]}"#, r#"{"items":null}"#, r#"{"items":null}"#),
        (
            r#"{"items":[]}"#,
            r#"{"items":[{"name":"a"}]}"#,
            r#"{"items":[{"name":"a"}]}"#,
        ),
        // Keys have defaults, and a number is one however it is written.
        (
            r#"{"ports":[{"port":80}]}"#,
            r#"{"ports":[{"port":80,"protocol":"TCP","name":"http"}]}"#,
            r#"{"ports":[{"port":80,"protocol":"TCP","name":"http"}]}"#,
        ),
        (
            r#"{"ports":[{"port":80}]}"#,
            r#"{"ports":[{"port":80,"protocol":"UDP"}]}"#,
            r#"{"ports":[{"port":80},{"port":80,"protocol":"UDP"}]}"#,
        ),
        (
            r#"{"ports":[{"port":80.0}]}"#,
            r#"{"ports":[{"port":80,"name":"x"}]}"#,
            r#"{"ports":[{"port":80,"name":"x"}]}"#,
        ),
        // Sets.
        (
            r#"{"set":["a","b"]}"#,
            r#"{"set":["b","c"]}"#,
            r#"{"set":["a","b","c"]}"#,
        ),
        (
            r#"{"set":[1,"1"]}"#,
            r#"{"set":["1",true]}"#,
            r#"{"set":[1,"1",true]}"#,
        ),
    ];
    for (object, patch, expected) in cases {
        assert_eq!(
            merged(object, patch).as_deref(),
            Ok(expected),
            "{object} + {patch}"
        );
    }
}

#[test]
fn items_come_in_the_order_of_the_patch_and_others_keep_their_place() {
    // structured-merge-diff v6.3 gives these orders.
    let cases = [
        ("a b c", "", "a b c"),
        ("a b c", "d", "a b c d"),
        ("a b c", "c", "a b c"),
        ("a b c", "c a", "b c a"),
        ("a b c", "c b a", "c b a"),
        ("a b c", "b d", "a b c d"),
        ("a b c", "d a", "d a b c"),
        ("a b c", "a d b", "a d b c"),
        ("a b c d", "d x b", "a c d x b"),
        ("a b c d e", "e c", "a b d e c"),
    ];
    for (old, new, expected) in cases {
        let set = |words: &str| {
            let words: Vec<String> = words.split_whitespace().map(|word| format!("{word:?}")).collect();
            format!(r#"{{"set":[{}]}}"#, words.join(","))
        };
        assert_eq!(merged(&set(old), &set(new)), Ok(set(expected)), "{old} + {new}");
    }
}

#[test]
fn refuses_a_patch_that_does_not_fit() {
    let cases = [
        (r#"{"x":1}"#, ".x: field not declared in schema"),
        (r#"{"nested":{"x":1}}"#, ".nested.x: field not declared in schema"),
        (r#"{"text":1}"#, ".text: expected string, got 1"),
        (r#"{"text":{"a":1}}"#, r#".text: expected string, got {"a":1}"#),
        (
            r#"{"number":"1"}"#,
            ".number: expected numeric (int or float), got string",
        ),
        (r#"{"truth":"true"}"#, r#".truth: expected boolean, got "true""#),
        (r#"{"scalar":[]}"#, ".scalar: expected any scalar, got []"),
        (r#"{"nested":[]}"#, ".nested: expected map, got []"),
        (r#"{"items":{}}"#, ".items: expected list, got {}"),
        (
            r#"{"map":{"a":"b"}}"#,
            ".map.a: expected numeric (int or float), got string",
        ),
        (
            r#"{"items":[{"name":"a","value":1}]}"#,
            r#".items[name="a"].value: expected string, got 1"#,
        ),
        (
            r#"{"items":[{"name":"a"},{"name":"a"}]}"#,
            r#".items: duplicate entries for key [name="a"]"#,
        ),
        (
            r#"{"ports":[{"port":1},{"port":1,"protocol":"TCP"}]}"#,
            r#".ports: duplicate entries for key [port=1,protocol="TCP"]"#,
        ),
        (
            r#"{"items":[{"value":"a"}]}"#,
            r#".items: element 0: associative list with keys has an element that omits all key fields ["name"] (and doesn't have default values for any key fields)"#,
        ),
        (
            r#"{"items":[null]}"#,
            ".items: element 0: associative list with keys may not have a null element",
        ),
        (
            r#"{"items":["a"]}"#,
            ".items: element 0: associative list with keys may not have non-map elements",
        ),
        (
            r#"{"set":["a","a"]}"#,
            r#".set: duplicate entries for key [="a"]"#,
        ),
        (
            r#"{"set":[{}]}"#,
            ".set: element 0: associative list without keys has an element that's a map type",
        ),
        (
            r#"{"x":1,"text":2}"#,
            "errors:\n  .x: field not declared in schema\n  .text: expected string, got 2",
        ),
    ];
    for (patch, expected) in cases {
        let error = merged("{}", patch).unwrap_err();
        let expected =
            format!("error applying patch: failed to convert patch object to typed object: {expected}");
        assert_eq!(error.to_string(), expected, "{patch}");
    }
}

#[test]
fn refuses_to_replace_what_is_atomic() {
    let cases = [
        (r#"{"atomic":{"a":"1"}}"#, ".atomic"),
        (r#"{"atomic":{}}"#, ".atomic"),
        (r#"{"made-atomic":{"a":"1"}}"#, ".made-atomic"),
        (r#"{"atomic-map":{"a":"1"}}"#, ".atomic-map"),
        (r#"{"list":[]}"#, ".list"),
        (r#"{"whole":{"a":[]}}"#, ".whole"),
        (r#"{"whole":[]}"#, ".whole"),
        (r#"{"any":[1]}"#, ".any"),
        (
            r#"{"items":[{"name":"a","list":["b"]}],"list":[]}"#,
            ".items[0].list, .list",
        ),
    ];
    for (patch, expected) in cases {
        let error = merged(r#"{"atomic":{"b":"2"}}"#, patch).unwrap_err();
        let expected = format!(
            "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {expected}"
        );
        assert_eq!(error.to_string(), expected, "{patch}");
    }
    // Of an atomic field, a scalar or null replaces nothing by accident.
    assert_eq!(
        merged(r#"{"whole":{"a":1}}"#, r#"{"whole":2}"#).as_deref(),
        Ok(r#"{"whole":2}"#)
    );
    assert_eq!(
        merged(r#"{"list":["a"]}"#, r#"{"list":null}"#).as_deref(),
        Ok(r#"{"list":null}"#)
    );
}

#[test]
fn refuses_an_object_that_does_not_fit_where_the_patch_looks() {
    let cases = [
        (
            r#"{"nested":"a"}"#,
            r#"{"nested":{"a":"b"}}"#,
            r#".nested: expected map, got "a""#,
        ),
        (
            r#"{"items":[1]}"#,
            r#"{"items":[{"name":"a"}]}"#,
            ".items: element 0: associative list with keys may not have non-map elements",
        ),
        ("[]", r#"{"text":"a"}"#, "expected map, got []"),
    ];
    for (object, patch, expected) in cases {
        let error = merged(object, patch).unwrap_err();
        let expected =
            format!("error applying patch: failed to convert original object to typed object: {expected}");
        assert_eq!(error.to_string(), expected, "{object} + {patch}");
    }
    let other = r#"{"nested":"a","items":[1],"text":"b"}"#;
    assert_eq!(
        merged(r#"{"nested":"a","items":[1]}"#, r#"{"text":"b"}"#).as_deref(),
        Ok(other)
    );
}

#[test]
fn duplicates_of_the_object_stay_until_the_patch_names_them() {
    let object = r#"{"items":[{"name":"a","value":"1"},{"name":"b"},{"name":"a","value":"2"}]}"#;
    let cases = [
        (
            r#"{"text":"x"}"#,
            r#"{"items":[{"name":"a","value":"1"},{"name":"b"},{"name":"a","value":"2"}],"text":"x"}"#,
        ),
        (
            r#"{"items":[{"name":"c"}]}"#,
            r#"{"items":[{"name":"a","value":"1"},{"name":"b"},{"name":"a","value":"2"},{"name":"c"}]}"#,
        ),
        (
            r#"{"items":[{"name":"a","list":null}]}"#,
            r#"{"items":[{"name":"a","list":null},{"name":"b"}]}"#,
        ),
    ];
    for (patch, expected) in cases {
        assert_eq!(merged(object, patch).as_deref(), Ok(expected), "{patch}");
    }
}

#[test]
fn a_kind_without_schema_is_refused_by_name() {
    let schemas = Schemas::read(SCHEMA).unwrap();
    let error = schemas.know(&kind("Other")).unwrap_err();
    let text = "no schema for example.com/v1, Kind=Other: ApplyConfiguration knows the kinds built into Kubernetes alone, use JSONPatch for any other";
    assert_eq!(error.to_string(), text);
    assert_eq!(schemas.know(&kind("Thing")), Ok(()));
}
