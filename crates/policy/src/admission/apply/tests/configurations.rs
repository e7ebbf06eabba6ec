//! ApplyConfigurations as expressions write them.

use super::*;

/// What `then` makes of the value of an expression over `object`.
fn evaluated<T>(expression: &str, object: Value<'_>, then: impl FnOnce(Value<'_>) -> T) -> T {
    let environment = Environment::new(Version::new(35))
        .variable("object", Type::Dyn)
        .mutation();
    let program = environment
        .compile(expression, &[])
        .unwrap_or_else(|error| panic!("{expression}: {error}"));
    let mut activation = Activation::new(&environment);
    activation.set(environment.slot("object").unwrap(), object);
    let mut budget = Budget::new(1_000_000);
    then(program.evaluate(&mut activation, &mut budget).unwrap())
}

/// What an expression writes.
fn written(expression: &str) -> Result<String, ApplyError> {
    let object = r#"{"big":9007199254740993,"null":null,"list":[[1],{"a":null}],"labels":{"a":"b"}}"#;
    let object = Document::parse(object).unwrap();
    evaluated(expression, Value::json(object.root()), |value| {
        configuration(&value)
    })
}

#[test]
fn a_configuration_is_what_the_expression_writes() {
    let cases = [
        ("Object{}", "{}"),
        (
            "Object{a: 1, b: 'x\"y', c: true, d: 1.5, e: 2.0}",
            r#"{"a":1,"b":"x\"y","c":true,"d":1.5,"e":2}"#,
        ),
        (
            "Object{spec: Object.spec{items: [Object.spec.items{name: 'a'}]}}",
            r#"{"spec":{"items":[{"name":"a"}]}}"#,
        ),
        ("Object{labels: {'a': 'b'}}", r#"{"labels":{"a":"b"}}"#),
        ("Object{m: {'a': Object.m{b: 1}}}", r#"{"m":{"a":{"b":1}}}"#),
        (
            "Object{list: object.list, labels: object.labels}",
            r#"{"list":[[1],{"a":null}],"labels":{"a":"b"}}"#,
        ),
        ("Object{items: [object.labels]}", r#"{"items":[{"a":"b"}]}"#),
        ("Object{?a: object.?labels.?a, ?b: object.?none}", r#"{"a":"b"}"#),
        (
            "Object{items: ['a', 'b'].map(n, Object.items{name: n})}",
            r#"{"items":[{"name":"a"},{"name":"b"}]}"#,
        ),
    ];
    for (expression, expected) in cases {
        assert_eq!(written(expression).as_deref(), Ok(expected), "{expression}");
    }
}

#[test]
fn a_configuration_holds_what_an_object_can() {
    let cases = [
        (
            "1",
            "invalid ApplyConfiguration: a value of type int is not allowed here",
        ),
        (
            "object",
            "invalid ApplyConfiguration: a value of type map(dyn, dyn) is not allowed here",
        ),
        (
            "Object{a: null}",
            "invalid ApplyConfiguration: .a: a value of type null_type is not allowed here",
        ),
        (
            "Object{a: object['null']}",
            "invalid ApplyConfiguration: .a: a value of type null_type is not allowed here",
        ),
        (
            "Object{a: 1u}",
            "invalid ApplyConfiguration: .a: a value of type uint is not allowed here",
        ),
        (
            "Object{a: b'x'}",
            "invalid ApplyConfiguration: .a: a value of type bytes is not allowed here",
        ),
        (
            "Object{a: duration('1s')}",
            "invalid ApplyConfiguration: .a: a value of type google.protobuf.Duration is not allowed here",
        ),
        (
            "Object{a: 1.0 / 0.0}",
            "invalid ApplyConfiguration: .a: a value of type double is not allowed here",
        ),
        (
            "Object{a: [{'b': 1}]}",
            "invalid ApplyConfiguration: .a[0]: a value of type map(dyn, dyn) is not allowed here",
        ),
        (
            "Object{a: {'b': [1]}}",
            "invalid ApplyConfiguration: .a.b: a value of type list(dyn) is not allowed here",
        ),
        (
            "Object{a: {1: 'b'}}",
            "invalid ApplyConfiguration: .a: map key is of type int, not string",
        ),
        (
            "Object{spec: Object.specx{}}",
            r#"type mismatch: unexpected type name "Object.specx", expected "Object.spec", which matches field name path from root Object type"#,
        ),
        (
            "Object.spec{}",
            r#"type mismatch: unexpected type name "Object.spec", expected "Object", which matches field name path from root Object type"#,
        ),
        (
            "Object{a: [Object.b{c: Object.a.c{}}]}",
            r#"type mismatch: unexpected type name "Object.b", expected "Object.a", which matches field name path from root Object type"#,
        ),
    ];
    for (expression, expected) in cases {
        assert_eq!(
            written(expression).unwrap_err().to_string(),
            expected,
            "{expression}"
        );
    }
}

#[test]
fn a_configuration_is_bounded_however_few_values_it_is_made_of() {
    let long = "x".repeat(super::super::MAX_CONFIGURATION / 4);
    let times = |times: usize| {
        let fields: Vec<String> = (0..times).map(|field| format!("f{field}: object")).collect();
        let expression = format!("Object{{{}}}", fields.join(","));
        evaluated(&expression, Value::str(&long), |value| configuration(&value))
    };
    assert!(times(3).is_ok());
    assert_eq!(times(4), Err(ApplyError::TooLarge));

    let deep = (0..300).fold(Value::Int(1), |value, _| {
        evaluated("Object{a: object}", value, |value| value.into_owned())
    });
    assert_eq!(configuration(&deep), Err(ApplyError::TooLarge));
}

#[test]
fn the_built_in_kinds_are_known() {
    let schemas = Schemas::builtin();
    let known = |version: &'static str, kind: &'static str| {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let kind = GroupVersionKind {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
        };
        schemas.know(&kind).is_ok()
    };
    for (version, kind) in [
        ("v1", "Pod"),
        ("v1", "ConfigMap"),
        ("apps/v1", "Deployment"),
        ("batch/v1", "Job"),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    ] {
        assert!(known(version, kind), "{version} {kind}");
    }
    // Kubernetes looks for a kind in the document of its own group and version,
    // where these are not.
    for (version, kind) in [("autoscaling/v1", "Scale"), ("v1", "PodList"), ("v2", "Pod")] {
        assert!(!known(version, kind), "{version} {kind}");
    }
}

#[test]
fn a_sidecar_goes_into_a_pod() {
    let pod = r#"{"metadata":{"name":"p"},"spec":{"x-new":true,"containers":[{"name":"app","ports":[{"containerPort":80}],"env":[{"name":"A","value":"1"}]}]}}"#;
    let patch = r#"{"metadata":{"labels":{"mesh":"on"}},"spec":{"containers":[{"name":"app","ports":[{"containerPort":80,"protocol":"TCP","name":"http"}],"env":[{"name":"B","value":"2"}]},{"name":"proxy","image":"proxy:1"}]}}"#;
    let expected = r#"{"metadata":{"name":"p","labels":{"mesh":"on"}},"spec":{"x-new":true,"containers":[{"name":"app","ports":[{"containerPort":80,"protocol":"TCP","name":"http"}],"env":[{"name":"A","value":"1"},{"name":"B","value":"2"}]},{"name":"proxy","image":"proxy:1"}]}}"#;
    let kind = GroupVersionKind {
        group: "".into(),
        version: "v1".into(),
        kind: "Pod".into(),
    };
    let (pod, patch) = (Document::parse(pod).unwrap(), Document::parse(patch).unwrap());
    let merged = merge(Schemas::builtin(), &kind, pod.root(), patch.root()).unwrap();
    assert_eq!(merged.to_text(), expected);
}
