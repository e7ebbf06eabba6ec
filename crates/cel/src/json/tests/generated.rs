//! Beside serde_json, over generated values and texts.

use proptest::prelude::*;
use serde_json::Value;

use super::patches::{difference, patched};
use super::*;

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
            prop::collection::btree_map("[a-c~/]{0,2}|name|f:[a-z]{70}", inner, 0..6)
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
    fn agrees_with_serde_json_on_damaged_json(
        value in value(),
        place in any::<prop::sample::Index>(),
        others in "[\\[\\]{}\",:0a\\\\ \n]{0,2}",
        removed in 0..3_usize,
    ) {
        let mut text = value.to_string().into_bytes();
        let begin = place.index(text.len());
        let end = text.len().min(begin + removed);
        text.splice(begin..end, others.bytes());
        let Ok(text) = String::from_utf8(text) else { return Ok(()) };
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
