//! Generated patterns and objects: what is made agrees with the step by step evaluation.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::reference::{self, Outcome};
use super::{converted, loaded, policy, request};

fn scalars() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        Value::Null,
        json!(true),
        json!(false),
        json!(0),
        json!(5),
        json!(-3),
        json!(""),
        json!("a"),
        json!("ab"),
        json!("abc"),
        json!("0"),
        json!("5"),
        json!("10s"),
        json!("90s"),
        json!("1Gi"),
        json!("1024Mi"),
        json!("512Mi"),
        json!("x:latest"),
        json!("true"),
        json!(">5"),
        json!("*"),
    ])
}

fn scalar_patterns() -> impl Strategy<Value = Value> {
    let texts = [
        "a",
        "a*",
        "*b",
        "a?c",
        "?*",
        "*",
        ">5",
        ">= 5",
        "<5",
        "<=5",
        "!5",
        "!a",
        "!*:latest",
        "<=1Gi",
        ">512Mi",
        "!1Gi",
        "10s",
        ">10s",
        "!10s",
        "a | b*",
        ">1 & <10",
        "true",
        "!true",
        "0",
        ">0",
        "!?*",
    ];
    let texts: Vec<Value> = texts.into_iter().map(Value::from).collect();
    prop_oneof![
        3 => prop::sample::select(texts),
        1 => prop::sample::select(vec![Value::Null, json!(true), json!(false), json!(0), json!(5)]),
    ]
}

fn map_of(values: impl Strategy<Value = (String, Value)>) -> impl Strategy<Value = Value> {
    prop::collection::vec(values, 0..4).prop_map(|entries| Value::Object(Map::from_iter(entries)))
}

fn patterns() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![3 => scalar_patterns(), 1 => Just(json!({}))];
    let nested = leaf.prop_recursive(3, 24, 4, |inner| {
        let maps = map_of((keyed(), inner.clone()).prop_map(|((anchor, key), pattern)| {
            // What `^()` has is a list of maps.
            let pattern = match (anchor, pattern.is_object()) {
                ("^", true) => json!([pattern]),
                ("^", false) => json!([{"a": pattern}]),
                _ => pattern,
            };
            let key = if anchor.is_empty() {
                key.to_owned()
            } else {
                format!("{}({key})", anchor.trim())
            };
            (key, pattern)
        }));
        prop_oneof![3 => maps, 1 => inner.prop_map(|item| match item {
            Value::Array(_) => item,
            item => json!([item]),
        })]
    });
    nested.prop_map(|pattern| match pattern {
        Value::Object(_) => pattern,
        other => json!({"a": other}),
    })
}

fn keyed() -> impl Strategy<Value = (&'static str, &'static str)> {
    let anchors = prop::sample::select(vec!["", "", "", " ", "=", "X", "^", "<"]);
    (anchors, prop::sample::select(vec!["a", "b", "c-d"]))
}

/// An object that has most of what the pattern names.
fn objects(pattern: &Value) -> BoxedStrategy<Value> {
    let any = scalars().prop_recursive(2, 8, 3, |inner| {
        let keys = prop::sample::select(vec!["a".to_owned(), "b".to_owned(), "c-d".to_owned()]);
        prop_oneof![
            map_of((keys, inner.clone())),
            prop::collection::vec(inner, 0..3).prop_map(Value::from)
        ]
    });
    match pattern {
        Value::Object(entries) => {
            let entries: Vec<_> = entries
                .iter()
                .map(|(key, pattern)| {
                    let name = key
                        .split_once('(')
                        .map_or(key.as_str(), |(_, name)| name.trim_end_matches(')'));
                    (
                        Just(name.to_owned()),
                        prop::option::weighted(0.85, objects(pattern)),
                    )
                })
                .collect();
            let map = entries.prop_map(|entries| {
                let present = entries
                    .into_iter()
                    .filter_map(|(name, value)| Some((name, value?)));
                Value::Object(present.collect())
            });
            prop_oneof![9 => map, 1 => any].boxed()
        }
        Value::Array(items) => {
            let each = prop::collection::vec(objects(&items[0]), 0..3).prop_map(Value::from);
            prop_oneof![9 => each, 1 => any].boxed()
        }
        pattern => prop_oneof![1 => Just(pattern.clone()), 2 => any].boxed(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn converted_patterns_agree_with_the_reference(
        (pattern, objects) in patterns().prop_flat_map(|pattern| {
            let objects = prop::collection::vec(objects(&pattern), 6);
            (Just(pattern), objects)
        })
    ) {
        let made = converted(&policy(&["example.com/v1/Thing"], &json!({"pattern": pattern, "failureAction": "Enforce",
            "allowExistingViolations": false})));
        if let [refusal] = made.refusals.as_slice() {
            prop_assert!(refusal.text.contains("`<()` within `=()`"), "{}", refusal.text);
            return Ok(());
        }
        let by = loaded(&made);
        for object in objects {
            let mut object = match object {
                Value::Object(_) => object,
                other => json!({"a": other}),
            };
            let expected = reference::value(&pattern, &object) == Outcome::Fail;
            object["apiVersion"] = "example.com/v1".into();
            object["kind"] = "Thing".into();
            object["metadata"] = json!({"name": "x"});
            let denied = request("things", &object).is_denied(&by);
            prop_assert_eq!(denied, expected, "{}\n{}\n{}", pattern, object, made.objects[0]["spec"]);
        }
    }
}
