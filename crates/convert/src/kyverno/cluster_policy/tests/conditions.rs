//! Conditions over variables: what is made says what a step by step evaluation says.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::super::jmespath::{self, Comparator, QueryNode};
use super::{Request, cluster_policy, converted, loaded, pod, policy, refusals, request};

fn denied_if(conditions: &Value) -> Value {
    policy(
        &["example.com/v1/Thing"],
        &json!({"deny": {"conditions": conditions}, "failureAction": "Enforce", "allowExistingViolations": false}),
    )
}

fn thing(fields: &Value) -> Request {
    let mut object = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "x"}});
    for (key, value) in fields.as_object().unwrap() {
        object[key] = value.clone();
    }
    request("things", &object)
}

#[test]
fn operators_compare_as_kyverno_does() {
    let cases = [
        ("request.object.a", "Equals", json!("ab*"), json!("abc"), true),
        ("request.object.a", "Equals", json!("60m"), json!("1h"), true),
        ("request.object.a", "Equals", json!(3600), json!("1h"), true),
        ("request.object.a", "Equals", json!("1Gi"), json!("1024Mi"), true),
        ("request.object.a", "Equals", json!("*"), json!("5"), false),
        ("request.object.a", "Equals", json!("5"), json!(5), true),
        (
            "request.object.a",
            "Equals",
            json!({"b": 1}),
            json!({"b": 1}),
            true,
        ),
        ("request.object.a", "NotEquals", json!("x"), json!(["x"]), true),
        ("request.object.a", "NotEquals", json!("x"), Value::Null, false),
        ("request.object.a", "AnyIn", json!(["x", "a*"]), json!("ab"), true),
        ("request.object.a", "AnyIn", json!(["x"]), json!("*"), true),
        (
            "request.object.a",
            "AnyIn",
            json!(["x", "y"]),
            json!(["z", "y"]),
            true,
        ),
        (
            "request.object.a",
            "AllIn",
            json!(["x", "y"]),
            json!(["z", "y"]),
            false,
        ),
        ("request.object.a", "AllIn", json!(["x"]), json!([]), true),
        (
            "request.object.a",
            "AnyNotIn",
            json!(["x", "y"]),
            json!(["z", "y"]),
            true,
        ),
        (
            "request.object.a",
            "AllNotIn",
            json!(["x", "y"]),
            json!(["z", "y"]),
            false,
        ),
        ("request.object.a", "AllNotIn", json!(["x"]), json!({}), false),
        (
            "request.object.a",
            "AnyIn",
            json!("[\"x\", \"y\"]"),
            json!("y"),
            true,
        ),
        ("request.object.a", "AnyNotIn", json!([80]), json!([80, 81]), true),
        ("request.object.a", "GreaterThan", json!(2), json!("10"), true),
        (
            "request.object.a",
            "GreaterThan",
            json!("1Gi"),
            json!("512Mi"),
            false,
        ),
        ("request.object.a", "LessThan", json!("8h"), json!("90m"), true),
        (
            "request.object.a",
            "LessThan",
            json!("1.10.0"),
            json!("1.9.0"),
            true,
        ),
        (
            "request.object.a",
            "GreaterThanOrEquals",
            json!("10s"),
            json!(10),
            true,
        ),
        (
            "request.object.a",
            "DurationLessThan",
            json!("1h"),
            json!(60),
            true,
        ),
        (
            "length(request.object.a)",
            "GreaterThan",
            json!(1),
            json!(["x", "y"]),
            true,
        ),
        (
            "request.object.a[?b == 'x'].c | [0]",
            "Equals",
            json!("y"),
            json!([{"b": "z"}, {"b": "x", "c": "y"}]),
            true,
        ),
        (
            "to_upper(request.object.a)",
            "Equals",
            json!("AB"),
            json!("ab"),
            true,
        ),
        (
            "request.object.a || 'none'",
            "Equals",
            json!("none"),
            json!(""),
            true,
        ),
        (
            "request.object.a.b.keys(@)",
            "AnyIn",
            json!(["x"]),
            json!({"b": {"x": 1}}),
            true,
        ),
        (
            "request.object.a.[b, c][].d",
            "AllIn",
            json!(["x"]),
            json!({"b": [{"d": "x"}], "c": [{}]}),
            true,
        ),
    ];
    for (query, operator, value, given, expected) in cases {
        let conditions = json!([{"key": format!("{{{{ {query} }}}}"), "operator": operator, "value": value}]);
        let by = loaded(&converted(&denied_if(&conditions)));
        assert_eq!(
            thing(&json!({"a": given})).is_denied(&by),
            expected,
            "{query} {operator} {value} {given}"
        );
    }
}

#[test]
fn a_key_that_is_not_there_is_an_error_unless_there_is_another_value() {
    let with = |key: &str, operator: &str| json!([{"key": key, "operator": operator, "value": "x"}]);
    let denies = |conditions: &Value, object: &Value| {
        thing(object).is_denied(&loaded(&converted(&denied_if(conditions))))
    };
    assert!(denies(&with("{{ request.object.a.b }}", "Equals"), &json!({})));
    assert!(!denies(
        &with("{{ request.object.a.b || '' }}", "Equals"),
        &json!({})
    ));
    // A field of what is no map is null, which equals nothing and differs from nothing.
    for operator in ["Equals", "NotEquals"] {
        assert!(!denies(
            &with("{{ request.object.a.b }}", operator),
            &json!({"a": "text"})
        ));
    }
    // One condition after the other: what decides earlier hides an error.
    let both = |first: &str| json!({"any": [{"key": first, "operator": "Equals", "value": "x"}, with("{{ request.object.b }}", "Equals")[0]]});
    assert!(denies(&both("x"), &json!({})));
    assert!(denies(&both("y"), &json!({})));
    let neither = json!({"all": [{"key": "y", "operator": "Equals", "value": "x"}, with("{{ request.object.b }}", "Equals")[0]]});
    assert!(!denies(&neither, &json!({})));
}

#[test]
fn preconditions_leave_out_operations_and_objects() {
    let mut policy = policy(
        &["ConfigMap"],
        &json!({"pattern": {"data": {"a": "?*"}}, "failureAction": "Enforce",
        "allowExistingViolations": false}),
    );
    let rule = &mut policy["spec"]["rules"][0];
    rule["preconditions"] = json!({"all": [
        {"key": "{{ request.operation || 'BACKGROUND' }}", "operator": "AnyIn", "value": ["CREATE", "CONNECT"]},
        {"key": "{{ request.object.metadata.labels.free || '' }}", "operator": "NotEquals", "value": "yes"},
    ]});
    let made = converted(&policy);
    assert_eq!(
        made.objects[0]["spec"]["matchConstraints"]["resourceRules"][0]["operations"],
        json!(["CREATE"])
    );
    let by = loaded(&made);
    let map = |labels: Value| {
        request(
            "configmaps",
            &json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "x", "namespace": "web", "labels": labels}}),
        )
    };
    assert!(map(json!({})).is_denied(&by));
    assert!(!map(json!({"free": "yes"})).is_denied(&by));
    policy["spec"]["rules"][0]["preconditions"] =
        json!({"all": [{"key": "{{ request.operation }}", "operator": "Equals", "value": "CONNECT"}]});
    assert_eq!(
        refusals(&policy),
        ["spec.rules[0].preconditions: they hold for no operation, so that the rule has no effect"]
    );
}

#[test]
fn a_delete_is_about_the_old_object() {
    let deny = json!([{"key": "{{ request.object.a }}", "operator": "Equals", "value": "x"}]);
    let by = loaded(&converted(&denied_if(&deny)));
    let object = thing(&json!({"a": "x"})).0["object"].clone();
    let delete = |old: &Value| {
        thing(&json!({}))
            .with("operation", "DELETE".into())
            .with("object", Value::Null)
            .with("oldObject", old.clone())
    };
    assert!(delete(&object).is_denied(&by));
    assert!(!delete(&thing(&json!({"a": "y"})).0["object"]).is_denied(&by));
}

#[test]
fn loops_ask_each_element() {
    let made = converted(&policy(
        &["Pod"],
        &json!({"failureAction": "Enforce", "allowExistingViolations": false,
        "foreach": [{
            "list": "request.object.spec.[initContainers, containers][]",
            "preconditions": {"all": [{"key": "{{ element.name }}", "operator": "NotEquals", "value": "free"}]},
            "context": [{"name": "tag", "variable": {"jmesPath": "element.image.split(@, ':')[1]", "default": "latest"}}],
            "deny": {"conditions": {"all": [{"key": "{{ tag }}", "operator": "Equals", "value": "latest"}]}}}]}),
    ));
    assert_eq!(
        made.refusals.len(),
        1,
        "a default hides errors: {:?}",
        made.refusals
    );
    let looped = |deny: Value| {
        policy(
            &["Pod"],
            &json!({"failureAction": "Enforce", "allowExistingViolations": false, "foreach": [{
            "list": "request.object.spec.[initContainers, containers][]",
            "preconditions": {"all": [{"key": "{{ element.name || '' }}", "operator": "NotEquals", "value": "free"}]},
            "deny": {"conditions": deny}}]}),
        )
    };
    let by = loaded(&converted(&looped(
        json!({"all": [{"key": "{{ element.image }}", "operator": "Equals", "value": "*:latest"}]}),
    )));
    let of = |name: &str, image: &str| {
        pod(&json!({"containers": [{"name": "a", "image": "a:1"}, {"name": name, "image": image}]}))
    };
    assert!(request("pods", &of("b", "b:latest")).is_denied(&by));
    assert!(!request("pods", &of("free", "b:latest")).is_denied(&by));
    assert!(!request("pods", &of("b", "b:2")).is_denied(&by));
    assert!(!request("pods", &pod(&json!({}))).is_denied(&by));
    let patterned = policy(
        &["Pod"],
        &json!({"failureAction": "Enforce", "allowExistingViolations": false, "foreach": [{
        "list": "request.object.spec.containers", "pattern": {"image": "registry/*"}}]}),
    );
    let by = loaded(&converted(&patterned));
    assert!(request("pods", &of("b", "b:2")).is_denied(&by));
    assert!(!request("pods", &pod(&json!({"containers": [{"image": "registry/a"}]}))).is_denied(&by));
}

#[test]
fn variables_and_config_maps_are_values() {
    let rule = json!({"name": "r", "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
        "context": [
            {"name": "allowed", "configMap": {"name": "teams", "namespace": "ops"}},
            {"name": "team", "variable": {"jmesPath": "request.object.metadata.labels.team", "default": "none"}},
        ],
        "validate": {"failureAction": "Enforce", "allowExistingViolations": false, "deny": {"conditions": {"all": [
            {"key": "{{ team }}", "operator": "NotEquals", "value": "{{ allowed.data.team }}"}]}}}});
    let made = converted(&cluster_policy(&json!([rule])));
    assert_eq!(made.refusals, []);
    assert_eq!(
        made.objects[0]["spec"]["paramKind"],
        json!({"apiVersion": "v1", "kind": "ConfigMap"})
    );
    assert_eq!(
        made.objects[1]["spec"]["paramRef"],
        json!({"name": "teams", "namespace": "ops", "parameterNotFoundAction": "Deny"})
    );
    let expression = made.objects[0]["spec"]["validations"][0]["expression"]
        .as_str()
        .unwrap();
    assert!(expression.contains("params.data.team"), "{expression}");
}

#[test]
fn what_no_expression_can_say_is_refused_with_its_place() {
    let refused = |condition: Value| {
        let refusals = refusals(&denied_if(&json!({"any": [condition]})));
        refusals[0].replace("spec.rules[0].validate.deny.conditions.any[0]", "")
    };
    let with = |key: &str| refused(json!({"key": key, "operator": "Equals", "value": "x"}));
    assert!(with("{{ random('a') }}").starts_with(".key: the function `random()`"));
    assert!(with("{{ request.object.a || \"\" }}").starts_with(".key: `\"\"` names a field"));
    assert!(with("{{ time_now_utc() }}").starts_with(".key: the function `time_now_utc()`"));
    assert!(
        with("{{ request.userInfo.{a: groups} | to_string(@) }}").starts_with(".key: Kyverno writes a map")
    );
    assert!(with("{{ images.containers }}").starts_with(".key: CEL takes no names of images apart"));
    assert!(with("{{ nobody }}").starts_with(".key: there is no variable `nobody`"));
    assert!(with("{{ a..b }}").starts_with(".key: `a..b` is no JMESPath"));
    let unquoted = with("{{ a{{ b }} }}");
    assert!(unquoted.contains("`{` is not expected here"), "{unquoted}");
    let deeper = with("{{ contains('{{ contains('{{ a }}', 'b') }}', 'c') }}");
    assert!(
        deeper.contains("a variable within a query has no counterpart"),
        "{deeper}"
    );
    let list = with("{{ contains('{{ request.object.a }}', 'b') }}");
    assert!(list.contains("may be a list or a map"), "{list}");
    assert!(with("{{ '{{ images }}' }}").starts_with(".key: CEL takes no names of images apart"));
    assert!(with("$(./../a)").starts_with(".key: a reference `$()`"));
    assert!(
        refused(json!({"key": "a", "operator": "Is", "value": "b"}))
            .starts_with(".operator: `Is` is no operator")
    );
    let list = refused(json!({"key": "a", "operator": "AnyIn", "value": "{{ request.object.a }}"}));
    assert!(list.starts_with(": the value may be a text"), "{list}");
}

#[test]
fn a_variable_in_the_quotes_of_a_query_is_a_text_that_stays_in_them() {
    let denied = |key: &str, value: Value, object: &Value| {
        let conditions = json!([{"key": key, "operator": "Equals", "value": value}]);
        thing(object).is_denied(&loaded(&converted(&denied_if(&conditions))))
    };
    let labeled = |label: &str| json!({"a": ["x", "y"], "metadata": {"name": "x", "labels": {"a": label}}});
    let matches = "{{ regex_match('^v[0-9]+$', 'v{{ request.object.metadata.labels.a || 'x' }}') }}";
    for (label, expected) in [("12", true), ("a", false), ("", false), ("1\\2", false)] {
        assert_eq!(denied(matches, true.into(), &labeled(label)), expected, "{label}");
    }
    // What would end the text or the variable is an error, and so the object is denied.
    for label in ["a' || '", "a\\", "{a", "a}"] {
        assert!(denied(matches, true.into(), &labeled(label)), "{label}");
    }
    // It is resolved even where nothing is compared with it.
    let counted =
        "{{ request.object.a[?@ == '{{ request.object.metadata.labels.a }}'] || `[]` | length(@) }}";
    assert!(denied(counted, 1.into(), &labeled("y")));
    assert!(!denied(counted, 1.into(), &labeled("z")));
    assert!(denied(counted, 1.into(), &json!({"a": []})));
}

#[test]
fn what_a_policy_says_cannot_leave_its_text() {
    let hostile = "x' || true || 'y\\";
    let conditions = json!([{"key": "{{ request.object.a || '' }}", "operator": "Equals", "value": hostile}]);
    let by = loaded(&converted(&denied_if(&conditions)));
    assert!(!thing(&json!({"a": "b"})).is_denied(&by));
    assert!(thing(&json!({"a": hostile})).is_denied(&by));
}

// A naive reference.

/// What a query is: a value, that there is no such key, or an error.
#[derive(Debug, Clone, PartialEq)]
enum Found {
    Value(Value),
    Absent,
    Error,
}

use Found::{Absent, Error};

impl Found {
    /// No such key is null.
    fn or_null(self) -> Option<Value> {
        match self {
            Self::Value(value) => Some(value),
            Absent => Some(Value::Null),
            Error => None,
        }
    }
}

fn is_true(value: &Value) -> bool {
    ![json!(null), json!(false), json!(""), json!([]), json!({})].contains(value)
}

fn eval(node: &QueryNode, at: &Value) -> Found {
    let value = |node: &QueryNode, at: &Value| eval(node, at).or_null();
    let each = |items: Vec<Value>, right: &QueryNode| {
        let taken: Option<Vec<Value>> = items.iter().map(|item| value(right, item)).collect();
        taken.map_or(Error, |taken| {
            Found::Value(taken.into_iter().filter(|item| !item.is_null()).collect())
        })
    };
    let from = |made: Option<Value>| made.map_or(Error, Found::Value);
    match node {
        QueryNode::Current => Found::Value(at.clone()),
        QueryNode::Literal(literal) => Found::Value(literal.clone()),
        QueryNode::Field(name) => match at {
            Value::Object(fields) => fields
                .get(name)
                .map_or(Absent, |field| Found::Value(field.clone())),
            _ => Found::Value(Value::Null),
        },
        QueryNode::Sub(left, right) => match eval(left, at) {
            Found::Value(left) => eval(right, &left),
            other => other,
        },
        QueryNode::Index(index) => Found::Value(
            at.get(usize::try_from(*index).unwrap())
                .cloned()
                .unwrap_or_default(),
        ),
        QueryNode::Flatten(left) => match eval(left, at) {
            Found::Value(Value::Array(items)) => Found::Value(
                items
                    .into_iter()
                    .flat_map(|item| match item {
                        Value::Array(inner) => inner,
                        other => vec![other],
                    })
                    .collect(),
            ),
            _ => Found::Value(Value::Null),
        },
        QueryNode::Projection(left, right) => match value(left, at) {
            Some(Value::Array(items)) => each(items, right),
            Some(_) => Found::Value(Value::Null),
            None => Error,
        },
        QueryNode::Filter(left, right, condition) => match eval(left, at) {
            Found::Value(Value::Array(items)) => {
                let kept: Option<Vec<Option<Value>>> = items
                    .into_iter()
                    .map(|item| Some(is_true(&value(condition, &item)?).then_some(item)))
                    .collect();
                kept.map_or(Error, |kept| each(kept.into_iter().flatten().collect(), right))
            }
            _ => Found::Value(Value::Null),
        },
        QueryNode::Compare(comparator, left, right) => from((|| {
            let (left, right) = (value(left, at)?, value(right, at)?);
            Some(match comparator {
                Comparator::Equal => (left == right).into(),
                Comparator::NotEqual => (left != right).into(),
                _ => return Some(Value::Null),
            })
        })()),
        QueryNode::Or(left, right) => from((|| {
            let left = value(left, at)?;
            if is_true(&left) {
                Some(left)
            } else {
                value(right, at)
            }
        })()),
        QueryNode::Not(inner) => from(value(inner, at).map(|inner| (!is_true(&inner)).into())),
        QueryNode::Call(name, arguments) => from((|| {
            let given = value(&arguments[0], at)?;
            match (name.as_str(), given) {
                ("length", Value::String(text)) => Some(text.chars().count().into()),
                ("length", Value::Array(items)) => Some(items.len().into()),
                ("length", Value::Object(fields)) => Some(fields.len().into()),
                ("to_upper", Value::String(text)) => Some(text.to_uppercase().into()),
                _ => None,
            }
        })()),
        other => panic!("the generator makes no {other:?}"),
    }
}

fn printed(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Object(_) | Value::Array(_) => "map[".to_owned(),
        other => other.to_string(),
    }
}

/// Whether the operator holds; the values are words, so that nothing is an amount.
fn holds(operator: &str, key: &Value, value: &Value) -> bool {
    let choices: Vec<String> = value.as_array().into_iter().flatten().map(printed).collect();
    let is_in = |key: &Value| choices.contains(&printed(key)) || key == "*" && !choices.is_empty();
    match (operator, key) {
        ("Equals", key) => key == value,
        ("NotEquals", Value::Null) => false,
        ("NotEquals", key) => key != value,
        (_, Value::Null | Value::Object(_)) => false,
        ("AnyIn", Value::Array(keys)) => keys.iter().any(is_in),
        ("AllIn", Value::Array(keys)) => keys.iter().all(is_in),
        ("AnyNotIn", Value::Array(keys)) => keys.iter().any(|key| !is_in(key)),
        ("AllNotIn", Value::Array(keys)) => !keys.iter().any(is_in),
        ("AnyIn" | "AllIn", key) => is_in(key),
        (_, key) => !is_in(key),
    }
}

fn queries() -> impl Strategy<Value = String> {
    let key = || prop::sample::select(vec!["a", "b", "\"c-d\""]);
    let path =
        || prop::collection::vec(key(), 1..4).prop_map(|keys| format!("request.object.{}", keys.join(".")));
    prop_oneof![
        3 => path(),
        2 => (path(), prop::sample::select(vec!["''", "'x'", "`[]`", "request.object.b"])).prop_map(|(path, other)| format!("{path} || {other}")),
        2 => (path(), key()).prop_map(|(path, key)| format!("{path}[].{key}")),
        1 => path().prop_map(|path| format!("{path}[]")),
        1 => path().prop_map(|path| format!("{path}[0]")),
        1 => path().prop_map(|path| format!("length({path})")),
        1 => path().prop_map(|path| format!("to_upper({path})")),
        1 => path().prop_map(|path| format!("{path}[].to_upper(@) || `[]`")),
        1 => (path(), key(), key()).prop_map(|(path, one, other)| format!("{path}[?{one} != 'x'].{other}")),
        1 => (path(), key()).prop_map(|(path, key)| format!("{path}[?!{key}]")),
    ]
}

fn objects() -> impl Strategy<Value = Value> {
    let leaf = prop::sample::select(vec![
        json!("x"),
        json!("y"),
        json!(""),
        json!("*"),
        json!(null),
        json!(true),
    ]);
    let value = leaf.prop_recursive(3, 16, 3, |inner| {
        let keys = prop::sample::select(vec!["a".to_owned(), "b".to_owned(), "c-d".to_owned()]);
        prop_oneof![
            prop::collection::vec((keys, inner.clone()), 0..3)
                .prop_map(|entries| Value::Object(Map::from_iter(entries))),
            prop::collection::vec(inner, 0..3).prop_map(Value::from),
        ]
    });
    prop::collection::vec((prop::sample::select(vec!["a", "b", "c-d"]), value), 0..4).prop_map(|entries| {
        entries
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect()
    })
}

fn conditions() -> impl Strategy<Value = (String, &'static str, Value)> {
    let equality = (
        prop::sample::select(vec!["Equals", "NotEquals"]),
        prop::sample::select(vec![json!("x"), json!(["x"]), json!({}), json!(true)]),
    );
    let sets = (
        prop::sample::select(vec!["AnyIn", "AllIn", "AnyNotIn", "AllNotIn"]),
        prop::sample::select(vec![json!(["x"]), json!(["x", "Y", "true"]), json!([])]),
    );
    (queries(), prop_oneof![equality, sets]).prop_map(|(query, (operator, value))| (query, operator, value))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn converted_conditions_agree_with_the_reference(
        (all, objects) in (prop::collection::vec(conditions(), 1..3), prop::collection::vec(objects(), 6))
    ) {
        let written: Vec<Value> = all
            .iter()
            .map(|(query, operator, value)| json!({"key": format!("{{{{ {query} }}}}"), "operator": operator, "value": value}))
            .collect();
        let made = converted(&denied_if(&json!({"all": written})));
        prop_assert_eq!(&made.refusals, &[]);
        let by = loaded(&made);
        for object in objects {
            let request = thing(&object);
            let context = json!({"request": {"object": request.0["object"]}});
            // The first condition that does not hold ends it, and so does an error, which denies.
            let mut expected = true;
            for (query, operator, value) in &all {
                match eval(&jmespath::parse(query).unwrap(), &context) {
                    Found::Value(key) if !holds(operator, &key, value) => {
                        expected = false;
                        break;
                    }
                    Found::Value(_) => {}
                    Absent | Error => break,
                }
            }
            prop_assert_eq!(request.is_denied(&by), expected, "{:?}\n{}\n{}", all, object, made.objects[0]["spec"]);
        }
    }
}
