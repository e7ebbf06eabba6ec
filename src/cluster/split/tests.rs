//! Lists and events, cut into pieces anywhere, well formed or not.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// What comes of `text` in pieces of so many bytes.
fn split(of: Envelope, max: usize, text: &[u8], piece: usize) -> Result<Vec<Part>, SplitError> {
    let (mut splitter, mut parts) = (Splitter::new(of, max), Vec::new());
    for mut bytes in text.chunks(piece) {
        while let Some(part) = splitter.next(&mut bytes)? {
            parts.push(part);
        }
    }
    Ok(parts)
}

fn list(items: &[Value]) -> String {
    json!({"kind": "RoleList", "metadata": {"resourceVersion": "7", "items": [1]}, "items": items, "z": {"items": []}})
        .to_string()
}

fn role() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Role",
        "metadata": {
            "labels": {"name": "label", "a\"b": "\\"}, "name": "r\u{fc}\"<", "namespace": "n",
            "ownerReferences": [{"name": "owner"}], "resourceVersion": "12",
        },
        "spec": {"metadata": {"name": "inner"}, "text": "}]{[\\\"", "kind": "Inner"},
    })
}

fn head() -> ObjectHead {
    ObjectHead {
        api_version: "v1".into(),
        kind: "Role".into(),
        namespace: "n".into(),
        name: "r\u{fc}\"<".into(),
        resource_version: "12".into(),
    }
}

#[test]
fn a_list_is_split_into_its_items_however_it_arrives() {
    let text = list(&[role(), json!({}), json!({"metadata": {"name": "b"}})]);
    for piece in [1, 2, 3, 7, text.len()] {
        let parts = split(Envelope::List, 1_000, text.as_bytes(), piece).unwrap();
        let [
            Part::Object(first),
            Part::Object(empty),
            Part::Object(last),
            Part::End(envelope),
        ] = &parts[..]
        else {
            panic!("{parts:?}");
        };
        assert_eq!(first.head, head());
        let read: Value = serde_json::from_slice(first.text.as_ref().unwrap()).unwrap();
        assert_eq!((read, first.bytes), (role(), role().to_string().len()));
        assert_eq!(empty.text.as_deref(), Some(&b"{}"[..]));
        assert_eq!(last.head.name, "b");
        let envelope: Value = serde_json::from_slice(envelope).unwrap();
        assert_eq!(envelope["items"], json!([]));
        assert_eq!(envelope["metadata"]["resourceVersion"], "7");
    }
}

#[test]
fn events_follow_one_another() {
    let event = |kind: &str| json!({"type": kind, "object": role()}).to_string();
    let text = format!("{}\n{}\n", event("ADDED"), event("DELETED"));
    let parts = split(Envelope::Event, 1_000, text.as_bytes(), 5).unwrap();
    let types = parts.iter().filter_map(|part| match part {
        Part::End(envelope) => Some(serde_json::from_slice::<Value>(envelope).unwrap()["type"].clone()),
        Part::Object(object) => {
            assert_eq!(object.head, head());
            None
        }
    });
    assert_eq!(types.collect::<Vec<_>>(), ["ADDED", "DELETED"]);
    assert_eq!(parts.len(), 4);
}

#[test]
fn of_an_object_that_is_too_large_the_head_is_kept_wherever_it_stands() {
    let mut large = role();
    large["aaa"] = "x".repeat(5_000).into();
    let text = list(&[large.clone(), role()]);
    let parts = split(Envelope::List, 1_000, text.as_bytes(), 100).unwrap();
    let Part::Object(object) = &parts[0] else {
        panic!("{parts:?}")
    };
    assert_eq!((&object.head, &object.text), (&head(), &None));
    assert_eq!(object.bytes, large.to_string().len());
    assert!(matches!(
        &parts[1],
        Part::Object(SplitObject { text: Some(_), .. })
    ));
}

#[test]
fn an_object_may_be_nested_however_deep() {
    let (open, close) = ("[".repeat(50_000), "]".repeat(50_000));
    let text = format!(r#"{{"items":[{{"data":{open}{close},"metadata":{{"name":"deep"}}}},{{}}]}}"#);
    let parts = split(Envelope::List, 1 << 20, text.as_bytes(), 999).unwrap();
    assert!(matches!(&parts[0], Part::Object(object) if object.head.name == "deep"));
    assert_eq!(parts.len(), 3);
}

#[test]
fn what_is_no_list_is_an_error() {
    for text in [
        "default backend - 404",
        "[]",
        r#"{"items":[1]}"#,
        r#"{"items":["a"]}"#,
        r#"{"items":[[]]}"#,
        "}",
    ] {
        let error = split(Envelope::List, 100, text.as_bytes(), 1).unwrap_err();
        assert!(matches!(error, SplitError::Malformed(_)), "{text}");
    }
    let endless = format!(r#"{{"message":"{}"#, "x".repeat(MAX_ENVELOPE_BYTES));
    let error = split(Envelope::List, 100, endless.as_bytes(), 100).unwrap_err();
    assert_eq!(error, SplitError::EnvelopeTooLarge);
}

#[test]
fn what_is_held_of_a_list_does_not_grow_with_it() {
    let mut splitter = Splitter::new(Envelope::List, 1_000);
    let mut begin = &br#"{"items":["#[..];
    assert_eq!(splitter.next(&mut begin), Ok(None));
    let item = format!(r#"{{"metadata":{{"name":"{}"}}}},"#, "x".repeat(3_000));
    for _ in 0..10_000 {
        let mut bytes = item.as_bytes();
        assert!(matches!(splitter.next(&mut bytes), Ok(Some(Part::Object(object))) if object.text.is_none()));
        assert_eq!(splitter.next(&mut bytes), Ok(None));
    }
    assert!(splitter.envelope.len() < 100 && splitter.last_string.capacity() <= 2 * MAX_WORD_BYTES);
}

fn json_value() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        Just("items"),
        Just("object"),
        Just("metadata"),
        Just("name"),
        Just("\\\"{[,:]}")
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<i32>().prop_map(Value::from),
        text.clone().prop_map(Value::from),
        ".{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(
                prop_oneof![text.clone().prop_map(str::to_owned), ".{0,4}"],
                inner,
                0..5
            )
            .prop_map(|map| map.into_iter().collect::<serde_json::Map<_, _>>().into()),
        ]
    })
}

proptest! {
    #[test]
    fn objects_come_out_as_they_went_in(values in prop::collection::vec(json_value(), 0..4), piece in 1usize..50) {
        let items: Vec<Value> = values.into_iter().map(|value| json!({"value": value})).collect();
        let parts = split(Envelope::List, usize::MAX, list(&items).as_bytes(), piece).unwrap();
        let objects = parts.iter().filter_map(|part| match part {
            Part::Object(object) => Some(serde_json::from_slice::<Value>(object.text.as_ref()?).unwrap()),
            Part::End(_) => None,
        });
        prop_assert_eq!(objects.collect::<Vec<_>>(), items);
    }
}
