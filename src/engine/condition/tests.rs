use super::*;
use crate::engine::{Attributes, Operator, Requirement, ResourceAttributes, Selectors, Target, User};

fn listing<'a>(selectors: Selectors<'a>) -> Attributes<'a> {
    Attributes {
        user: User {
            name: "alice".into(),
            groups: vec!["devs".into(), "system:authenticated".into()],
            extra: vec![("Scopes".into(), vec!["a".into(), "b".into()])],
            ..User::default()
        },
        target: Target::Resource(Box::new(ResourceAttributes {
            verb: "list".into(),
            namespace: "team-a".into(),
            resource: "pods".into(),
            selectors,
            ..ResourceAttributes::default()
        })),
    }
}

fn path(path: &str) -> Attributes<'_> {
    Attributes {
        user: User::default(),
        target: Target::NonResource {
            path: path.into(),
            verb: "get".into(),
        },
    }
}

fn evaluate(expression: &str, attributes: &Attributes<'_>) -> Result<bool, EvaluationFault> {
    let condition =
        Condition::compile("c", expression).unwrap_or_else(|fault| panic!("{expression}: {fault}"));
    condition.evaluate(&Activation::new(attributes))
}

#[test]
fn the_spec_is_seen_in_v1_shape() {
    let field = Requirement {
        key: "spec.nodeName".into(),
        operator: Operator::In,
        values: vec!["node-1".into()],
    };
    let attributes = listing(Selectors {
        field: vec![field],
        label: Vec::new(),
    });
    for expression in [
        "request.user == 'alice'",
        "request.uid == ''",
        "'devs' in request.groups",
        "request.groups.exists(group, group.startsWith('system:'))",
        "request.extra['Scopes'] == ['a', 'b']",
        "request.resourceAttributes.verb == 'list' && request.resourceAttributes.name == ''",
        "request.resourceAttributes.group == '' && request.resourceAttributes.version == ''",
        "request.resourceAttributes.subresource == ''",
        "has(request.resourceAttributes)",
        "!has(request.nonResourceAttributes)",
        "has(request.resourceAttributes.fieldSelector)",
        "!has(request.resourceAttributes.labelSelector)",
        "request.resourceAttributes.fieldSelector.requirements.all(r, r.operator == 'In' && r.values[0] == 'node-1')",
        "request.resourceAttributes.namespace.matches('^team-[a-z]$')",
        "request.user == 'alice' ? true : false",
        "request.?resourceAttributes.?labelSelector.hasValue() == false",
    ] {
        assert_eq!(evaluate(expression, &attributes), Ok(true), "{expression}");
    }
    for expression in [
        "request.nonResourceAttributes.path == '/x'",
        "!has(request.resourceAttributes)",
        "request.groups == [] && request.extra == {}",
    ] {
        assert_eq!(evaluate(expression, &path("/x")), Ok(true), "{expression}");
    }
}

#[test]
fn what_is_absent_is_an_error_not_false() {
    assert!(evaluate("request.resourceAttributes.verb == 'get'", &path("/x")).is_err());
    assert!(evaluate("request.extra['none'][0] == 'a'", &listing(Selectors::default())).is_err());
}

#[test]
fn what_cannot_be_a_condition_is_refused_at_load() {
    let fault = |expression: &str| Condition::compile("c", expression).unwrap_err();
    assert_eq!(fault(" \n"), ConditionFault::Empty);
    assert!(matches!(fault("request.user =="), ConditionFault::Syntax(_)));
    for (expression, name) in [
        ("object.kind == 'Pod'", "object"),
        ("request.groups.all(g, h == 'x')", "h"),
    ] {
        assert_eq!(
            fault(expression),
            ConditionFault::UnknownVariable(name.to_owned()),
            "{expression}"
        );
    }
    for (expression, name) in [("now() == 1", "now"), ("request.user.base64() == ''", "base64")] {
        assert_eq!(
            fault(expression),
            ConditionFault::UnknownFunction(name.to_owned()),
            "{expression}"
        );
    }
    for (expression, parent, field) in [
        ("request.name == 'a'", "request", "name"),
        ("has(request.resourceAttribute)", "request", "resourceAttribute"),
        ("request['user2'] == ''", "request", "user2"),
        (
            "request.resourceAttributes.path == ''",
            "request.resourceAttributes",
            "path",
        ),
        (
            "request.?nonResourceAttributes.?name.hasValue()",
            "request.nonResourceAttributes",
            "name",
        ),
    ] {
        let (parent, field) = (parent.to_owned(), field.to_owned());
        assert_eq!(
            fault(expression),
            ConditionFault::UnknownField { parent, field },
            "{expression}"
        );
    }
    for expression in [
        "1",
        "request.user",
        "'true'",
        "dyn(true)",
        "request.groups.map(g, g)",
        "request.user == 'a' ? 1 : 2",
    ] {
        assert_eq!(fault(expression), ConditionFault::NotBool, "{expression}");
    }
}

#[test]
fn size_is_bounded_before_parsing() {
    let fault = |expression: &str| Condition::compile("c", expression).unwrap_err();
    assert!(matches!(
        fault(&format!("'{}' == ''", "x".repeat(MAX_EXPRESSION_BYTES))),
        ConditionFault::TooLong(_)
    ));
    assert_eq!(
        fault(&vec!["true"; 100_000 / 100].join("&&")),
        ConditionFault::TooManyTokens
    );
    assert_eq!(
        fault(&format!("{}true", "!".repeat(4_000))),
        ConditionFault::TooManyTokens
    );
    assert_eq!(
        fault(&format!("{}true{}", "(".repeat(40), ")".repeat(40))),
        ConditionFault::TooDeep
    );
}

#[test]
fn the_largest_that_is_accepted_fits_a_thread_of_two_mebibytes() {
    let chains = [
        vec!["true"; 170].join("&&"),
        format!("{}true", "!".repeat(511)),
        format!("{} == 1", vec!["1"; 250].join("-")),
        format!("{} == 1", vec!["1"; 32].join("-")),
        format!("{} == 1", vec!["1"; 31].join("-")),
        format!("{} == 1", vec!["1"; 250].join("<")),
        format!("request.extra{} == 1", ".a".repeat(240)),
        format!("request.extra{} == 1", ".a".repeat(28)),
        format!("request.extra{} == 1", "['a']".repeat(80)),
        format!("request.extra{} == 1", "['a']".repeat(28)),
        format!("{}1{} == 1", "[".repeat(8), "]".repeat(8)),
        format!("{}1{} == 1", "(".repeat(8), ")".repeat(8)),
        format!("{}true{}", "!(".repeat(8), ")".repeat(8)),
        format!("{}'a'{} == 1", "size(".repeat(8), ")".repeat(8)),
        format!("{}1{} == 1", "{'a':".repeat(8), "}".repeat(8)),
        format!("{}true{}", "[1].all(x,".repeat(7), ")".repeat(7)),
        format!("{}true", "true?true:".repeat(120)),
        format!("{}true", "true?true:".repeat(30)),
    ];
    for chain in chains {
        let run = move || {
            if let Ok(condition) = Condition::compile("c", &chain) {
                let _ = condition.evaluate(&Activation::new(&path("/x")));
            }
        };
        std::thread::Builder::new()
            .stack_size(2 << 20)
            .spawn(run)
            .unwrap()
            .join()
            .unwrap();
    }
}

#[test]
fn cost_is_bounded_by_the_size_of_the_request() {
    let many = User {
        groups: vec!["g".into(); 2_000],
        ..User::default()
    };
    let attributes = Attributes {
        user: many,
        ..path("/x")
    };
    assert_eq!(evaluate("request.groups.all(g, g == 'g')", &attributes), Ok(true));
    let nested = "request.groups.all(a, request.groups.all(b, a == b))";
    assert_eq!(evaluate(nested, &attributes), Err(EvaluationFault::CostExceeded));
}
