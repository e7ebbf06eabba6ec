use super::*;
use crate::model::{
    Attributes, Operator, RawSelectors, Requirement, ResourceAttributes, Selectors, Target, User,
};

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

fn evaluate(expression: &str, attributes: &Attributes<'_>) -> Result<bool, ConditionEvaluationError> {
    let condition = Condition::compile(Version::NEWEST, "c", expression)
        .unwrap_or_else(|fault| panic!("{expression}: {fault}"));
    condition.evaluate(&RequestActivation::new(attributes))
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

/// As `convertObjectToUnstructured` of `apiserver/pkg/authorization/cel/compile.go` shows it.
#[test]
fn a_raw_selector_is_seen_and_hides_the_requirements_beside_it() {
    let requirement = Requirement {
        key: "spec.nodeName".into(),
        operator: Operator::In,
        values: vec!["node-1".into()],
    };
    let mut attributes = listing(Selectors {
        field: vec![requirement],
        label: Vec::new(),
    });
    if let Target::Resource(resource) = &mut attributes.target {
        resource.raw_selectors = RawSelectors {
            field: "spec.nodeName=node-1".into(),
            label: "team=a".into(),
        };
    }
    for expression in [
        "has(request.resourceAttributes.fieldSelector)",
        "has(request.resourceAttributes.fieldSelector.rawSelector)",
        "!has(request.resourceAttributes.fieldSelector.requirements)",
        "request.resourceAttributes.fieldSelector.rawSelector == 'spec.nodeName=node-1'",
        "request.resourceAttributes.labelSelector.rawSelector == 'team=a'",
        "!has(request.resourceAttributes.labelSelector.requirements)",
    ] {
        assert_eq!(evaluate(expression, &attributes), Ok(true), "{expression}");
    }
    let none = listing(Selectors::default());
    for expression in [
        "!has(request.resourceAttributes.fieldSelector)",
        "!has(request.resourceAttributes.labelSelector)",
    ] {
        assert_eq!(evaluate(expression, &none), Ok(true), "{expression}");
    }
}

#[test]
fn what_is_absent_is_an_error_not_false() {
    assert!(evaluate("request.resourceAttributes.verb == 'get'", &path("/x")).is_err());
    assert!(evaluate("request.extra['none'][0] == 'a'", &listing(Selectors::default())).is_err());
}

#[test]
fn what_cannot_be_a_condition_is_refused_at_load() {
    let fault = |expression: &str| {
        Condition::compile(Version::NEWEST, "c", expression)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(fault(" \n"), "the expression is empty");
    for (expression, reported) in [
        ("request.user ==", "1:16"),
        ("object.kind == 'Pod'", "object"),
        ("request.groups.all(g, h == 'x')", "reference to 'h'"),
        ("now() == 1", "now"),
        ("request.user.unknown() == ''", "unknown"),
        ("request.name == 'a'", "name"),
        ("has(request.resourceAttribute)", "resourceAttribute"),
        ("request.resourceAttributes.path == ''", "path"),
        ("request.?nonResourceAttributes.?name.hasValue()", "name"),
        (
            "request.resourceAttributes.labelSelector.requirements.all(r, r.value == '')",
            "value",
        ),
    ] {
        assert!(
            fault(expression).contains(reported),
            "{expression}: {}",
            fault(expression)
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
        assert!(
            fault(expression).contains("bool"),
            "{expression}: {}",
            fault(expression)
        );
    }
}

#[test]
fn the_deepest_expressions_fit_a_thread_of_two_mebibytes() {
    let chains = [
        vec!["true"; 10_000].join("&&"),
        format!("{}true", "!".repeat(90_000)),
        format!("{} == 1", vec!["1"; 10_000].join("-")),
        format!("{} == 1", vec!["1"; 110].join("-")),
        format!("request.extra{} == 1", ".a".repeat(40_000)),
        format!("{}1{} == 1", "[".repeat(40_000), "]".repeat(40_000)),
        format!("{}1{} == 1", "[".repeat(63), "]".repeat(63)),
        format!("{}true{}", "!(".repeat(64), ")".repeat(64)),
        format!("{}true{}", "[1].all(x,".repeat(63), ")".repeat(63)),
        format!("{}true", "true?true:".repeat(8_000)),
    ];
    for chain in chains {
        let run = move || {
            if let Ok(condition) = Condition::compile(Version::NEWEST, "c", &chain) {
                let _ = condition.evaluate(&RequestActivation::new(&path("/x")));
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
fn a_condition_that_costs_too_much_leaves_others_what_they_need() {
    let many = User {
        groups: vec!["g".into(); 2_000],
        ..User::default()
    };
    let attributes = Attributes {
        user: many,
        ..path("/x")
    };
    assert_eq!(evaluate("request.groups.all(g, g == 'g')", &attributes), Ok(true));
    let nested = Condition::compile(
        Version::NEWEST,
        "c",
        "request.groups.all(a, request.groups.all(b, a == b))",
    )
    .unwrap();
    let activation = RequestActivation::new(&attributes);
    for _ in 0..20 {
        assert!(nested.evaluate(&activation).is_err());
    }
    let cheap = Condition::compile(Version::NEWEST, "c", "request.user == ''").unwrap();
    assert_eq!(cheap.evaluate(&activation), Ok(true));
}

#[test]
fn each_condition_of_a_request_allocates_a_bounded_number_of_bytes() {
    let lists = |count: usize| format!("lists.range({count}).map(i, lists.range(1000)).size() == {count}");
    assert_eq!(evaluate(&lists(100), &path("/x")), Ok(true));
    let refused = evaluate(&lists(1500), &path("/x")).unwrap_err().to_string();
    assert!(refused.contains("memory limit exceeded"), "{refused}");
    let attributes = path("/x");
    let activation = RequestActivation::new(&attributes);
    let condition = Condition::compile(Version::NEWEST, "c", &lists(200)).unwrap();
    for _ in 0..20 {
        assert_eq!(
            condition.evaluate(&activation),
            Ok(true),
            "those before it take nothing from it"
        );
    }
}
