use super::*;
use portcullis_cel::json::Document;

fn kind(group: &str, kind: &str) -> GroupVersionKind<'static> {
    GroupVersionKind {
        group: group.to_owned().into(),
        version: "v1".into(),
        kind: kind.to_owned().into(),
    }
}

fn read(of: &str, before: &str, after: &str, reading: DecodeMode) -> Result<DecodedObject, String> {
    let (before, after) = (Document::parse(before).unwrap(), Document::parse(after).unwrap());
    decode(&kind("", of), before.root(), after.root(), reading).map_err(|error| error.to_string())
}

fn written(of: &str, before: &str, after: &str, reading: DecodeMode) -> Result<String, String> {
    let decoded = read(of, before, after, reading)?;
    Ok(decoded.text.unwrap_or_else(|| after.to_owned()))
}

fn is_changed(of: &str, before: &str, after: &str) -> Result<bool, String> {
    read(of, before, after, DecodeMode::Lenient).map(|decoded| decoded.is_changed)
}

#[test]
fn what_is_empty_is_left_out_where_go_leaves_it_out() {
    let before = r#"{"metadata":{},"spec":{"containers":[]},"status":{}}"#;
    for (after, expected) in [
        (
            r#"{"metadata":{"labels":{}},"spec":{"containers":[]},"status":{}}"#,
            before,
        ),
        (
            r#"{"metadata":{"labels":null,"name":"","generation":0},"spec":{"containers":[],"tolerations":[],"hostNetwork":false,"nodeName":""},"status":{}}"#,
            before,
        ),
        // A pointer is there or not, whatever it points to.
        (
            r#"{"metadata":{},"spec":{"containers":[],"priority":0,"automountServiceAccountToken":false,"securityContext":{}},"status":{}}"#,
            r#"{"metadata":{},"spec":{"containers":[],"priority":0,"automountServiceAccountToken":false,"securityContext":{}},"status":{}}"#,
        ),
        // What Go always writes.
        (
            r#"{"spec":{}}"#,
            r#"{"spec":{"containers":null},"metadata":{},"status":{}}"#,
        ),
        (
            r#"{"metadata":{},"spec":{"containers":[{"image":"i"},null]},"status":{}}"#,
            r#"{"metadata":{},"spec":{"containers":[{"image":"i","name":"","resources":{}},{"name":"","resources":{}}]},"status":{}}"#,
        ),
    ] {
        assert_eq!(
            written("Pod", before, after, DecodeMode::Strict).as_deref(),
            Ok(expected),
            "{after}"
        );
    }
    let secret = r#"{"data":{"a":null,"b":"YQ\n=="},"immutable":false,"type":""}"#;
    let expected = r#"{"data":{"a":null,"b":"YQ=="},"immutable":false,"metadata":{}}"#;
    assert_eq!(
        written("Secret", r#"{"metadata":{}}"#, secret, DecodeMode::Strict).as_deref(),
        Ok(expected)
    );
}

#[test]
fn what_an_api_server_wrote_otherwise_stays_so() {
    let before = r#"{"metadata":{"creationTimestamp":null,"labels":{},"later":1},"spec":{"containers":[],"later":{}}}"#;
    for after in [
        before.replace("later\":{}", "later\":{},\"nodeName\":\"n\""),
        before.replace("\"labels\":{}", "\"labels\":{},\"name\":\"n\""),
    ] {
        assert_eq!(
            written("Pod", before, &after, DecodeMode::Strict),
            Ok(after.clone())
        );
    }
}

#[test]
fn scalars_are_spelled_as_go_spells_them() {
    let pod = |limit: &str| {
        format!(
            r#"{{"metadata":{{}},"spec":{{"containers":[{{"name":"a","resources":{{"limits":{{"cpu":{limit}}}}}}}]}},"status":{{}}}}"#
        )
    };
    for (limit, expected) in [
        ("1", r#""1""#),
        (r#""1000m""#, r#""1""#),
        (r#"" 0.5 ""#, r#""500m""#),
        ("null", r#""0""#),
    ] {
        assert_eq!(
            written("Pod", "{}", &pod(limit), DecodeMode::Lenient),
            Ok(pod(expected)),
            "{limit}"
        );
    }
    let lease = |time: &str| format!(r#"{{"metadata":{{}},"spec":{{"renewTime":{time}}}}}"#);
    let leased = |time: &str, reading| {
        let (before, after) = (
            Document::parse("{}").unwrap(),
            Document::parse(lease(time)).unwrap(),
        );
        let decoded = decode(
            &kind("coordination.k8s.io", "Lease"),
            before.root(),
            after.root(),
            reading,
        );
        decoded
            .map(|decoded| decoded.text)
            .map_err(|error| error.to_string())
    };
    let zoned = leased(r#""2020-01-01T02:00:00.500000+02:00""#, DecodeMode::Strict);
    assert_eq!(zoned, Ok(Some(lease(r#""2020-01-01T00:00:00.500000Z""#))));
    for wrong in [r#""2020-01-01T00:00:00Z""#, r#""soon""#, "1"] {
        assert!(leased(wrong, DecodeMode::Strict).is_err(), "{wrong}");
    }
}

#[test]
fn what_go_cannot_read_is_an_error() {
    let in_pod =
        |spec: &str| format!(r#"{{"metadata":{{}},"spec":{{"containers":[],{spec}}},"status":{{}}}}"#);
    for (spec, values) in [
        (r#""terminationGracePeriodSeconds":1.5"#, None),
        (
            r#""terminationGracePeriodSeconds":1.0"#,
            Some(r#""terminationGracePeriodSeconds":1"#),
        ),
        (r#""priority":5000000000"#, Some(r#""priority":705032704"#)),
        (r#""activeDeadlineSeconds":"1""#, None),
        (r#""overhead":{"cpu":"1x"}"#, None),
        (r#""overhead":{"cpu":true}"#, None),
        (r#""hostNetwork":"yes""#, None),
    ] {
        let after = in_pod(spec);
        for reading in [DecodeMode::Strict, DecodeMode::Lenient] {
            assert!(read("Pod", "{}", &after, reading).is_err(), "{spec}");
            assert!(read("Pod", &after, &after, reading).is_ok(), "as it was sent");
        }
        assert_eq!(
            written("Pod", "{}", &after, DecodeMode::Values).ok(),
            values.map(in_pod),
            "{spec}"
        );
    }
    let service =
        |port: &str| format!(r#"{{"metadata":{{}},"spec":{{"ports":[{{"port":80,"targetPort":{port}}}]}}}}"#);
    for (port, is_right) in [
        ("80", true),
        (r#""http""#, true),
        ("80.5", false),
        ("5000000000", false),
        ("true", false),
    ] {
        for reading in [DecodeMode::Strict, DecodeMode::Values] {
            assert_eq!(
                read("Service", "{}", &service(port), reading).is_ok(),
                is_right,
                "{port}"
            );
        }
    }
    assert!(read("Secret", "{}", r#"{"data":{"a":"!"}}"#, DecodeMode::Lenient).is_err());
}

#[test]
fn fields_that_are_not_known_are_errors_only_where_a_policy_adds_them() {
    let before = r#"{"metadata":{"ownerReferences":[{"later":1}]},"later":1}"#;
    let after = r#"{"metadata":{"bogus":1,"ownerReferences":[{},{"later":2,"x":1}]},"later":2,"a":1}"#;
    assert_eq!(
        read("ConfigMap", before, after, DecodeMode::Strict),
        Err(r#"strict decoding error: unknown field "metadata.bogus", unknown field "metadata.ownerReferences[1].x", unknown field "a""#.to_owned())
    );
    let kept = written("ConfigMap", before, after, DecodeMode::Lenient).unwrap();
    assert!(
        kept.contains(r#""bogus":1"#) && kept.contains(r#""x":1"#),
        "{kept}"
    );
}

#[test]
fn a_kind_that_is_not_built_in_is_as_it_is() {
    let (before, after) = ("{}", r#"{"metadata":{"labels":1},"spec":{"a":null}}"#);
    let decoded = read("Sprocket", before, after, DecodeMode::Strict).unwrap();
    assert_eq!(
        decoded,
        DecodedObject {
            text: None,
            is_changed: true
        }
    );
}

#[test]
fn what_a_type_does_not_know_and_what_is_empty_is_no_change() {
    let same = [
        (r#"{"spec":{}}"#, r#"{"spec":{"bogus":"x"}}"#),
        (r#"{"spec":{"bogus":"x"}}"#, r#"{"spec":{}}"#),
        (r#"{"metadata":{}}"#, r#"{"metadata":{"labels":{}}}"#),
        (r#"{"metadata":{"labels":null}}"#, r#"{"metadata":{"labels":{}}}"#),
        (r#"{"spec":{"tolerations":[]}}"#, r#"{"spec":{}}"#),
        (
            r#"{"spec":{"nodeName":"n"}}"#,
            r#"{"spec":{"nodeName":"\u006e"}}"#,
        ),
        (
            r#"{"spec":{"overhead":{"cpu":"1"}}}"#,
            r#"{"spec":{"overhead":{"cpu":"1000m"}}}"#,
        ),
    ];
    for (before, after) in same {
        assert_eq!(is_changed("Pod", before, after), Ok(false), "{before} {after}");
    }
}

#[test]
fn every_other_difference_is_a_change() {
    let others = [
        (r#"{"metadata":{}}"#, r#"{"metadata":{"labels":{"a":""}}}"#),
        (
            r#"{"metadata":{"labels":{"a":""}}}"#,
            r#"{"metadata":{"labels":{}}}"#,
        ),
        (r#"{"spec":{"nodeName":"n"}}"#, r#"{"spec":{}}"#),
        (r#"{"spec":{"nodeName":"n"}}"#, r#"{"spec":{"nodeName":null}}"#),
        (r#"{"spec":{"priority":0}}"#, r#"{"spec":{}}"#),
        (
            r#"{"spec":{"containers":[{"name":"a"}]}}"#,
            r#"{"spec":{"containers":[]}}"#,
        ),
        (
            r#"{"spec":{"volumes":[{"name":"a"}]}}"#,
            r#"{"spec":{"volumes":[{"name":"a","emptyDir":{}}]}}"#,
        ),
    ];
    for (before, after) in others {
        assert_eq!(is_changed("Pod", before, after), Ok(true), "{before} {after}");
    }
}

#[test]
fn what_does_not_fit_its_field_is_named_by_its_path() {
    let wrong = [
        (r#"{"metadata":{"labels":"x"}}"#, ".metadata.labels: expected map"),
        (
            r#"{"metadata":{"labels":{"a":1}}}"#,
            ".metadata.labels.a: expected string",
        ),
        (r#"{"spec":{"containers":{}}}"#, ".spec.containers: expected list"),
        (
            r#"{"spec":{"containers":[{"name":true}]}}"#,
            ".spec.containers[0].name",
        ),
    ];
    for (after, expected) in wrong {
        let found = is_changed("Pod", "{}", after).unwrap_err();
        assert!(found.starts_with(expected), "{found}");
        assert_eq!(is_changed("Pod", after, after), Ok(false), "as it was sent");
        assert_eq!(is_changed("Sprocket", "{}", after), Ok(true), "free of form");
    }
}

/// The spec of a ResourceSlice with `count` fields below a key of so many bytes.
fn below_a_long_key(bytes: usize, count: usize, field: impl Fn(usize) -> String) -> String {
    let fields: Vec<String> = (0..count).map(field).collect();
    let (key, fields) = ("k".repeat(bytes), fields.join(","));
    format!(r#"{{"spec":{{"devices":[{{"name":"d","attributes":{{"{key}":{{{fields}}}}}}}]}}}}"#)
}

fn decode_slice(after: &str, reading: DecodeMode) -> Result<DecodedObject, DecodeError> {
    let (before, after) = (Document::parse("{}").unwrap(), Document::parse(after).unwrap());
    let of = kind("resource.k8s.io", "ResourceSlice");
    decode(&of, before.root(), after.root(), reading)
}

#[test]
fn findings_below_a_long_key_quote_little_of_it() {
    const KEY: usize = 100_000;
    let unknown = below_a_long_key(KEY, 900, |field| format!(r#""x{field}":1"#));
    decode_slice(&unknown, DecodeMode::Lenient).unwrap();
    let error = decode_slice(&unknown, DecodeMode::Strict).unwrap_err();
    let DecodeError::Unknown(paths) = &error else {
        panic!("{error}");
    };
    assert_eq!(paths.len(), FieldMismatches::MAX_MISMATCHES);
    assert!(error.to_string().len() < 20_000, "{}", error.to_string().len());

    let wrong = below_a_long_key(KEY, 1, |_| {
        r#""string":1,"bool":"x","int":"x","version":2"#.to_owned()
    });
    let error = decode_slice(&wrong, DecodeMode::Lenient).unwrap_err();
    assert!(matches!(&error, DecodeError::Mismatches(found) if found.iter().count() == 4));
    assert!(error.to_string().len() < 10_000, "{}", error.to_string().len());
}

#[test]
fn of_a_field_that_is_not_known_a_note_is_made_only_where_it_is_an_error() {
    let after = Document::parse(r#"{"bogus":1}"#).unwrap();
    let schemas = Schemas::builtin();
    let of = schemas.of(&kind("", "Pod")).ok().unwrap();
    for (reading, expected) in [
        (DecodeMode::Strict, 1),
        (DecodeMode::Values, 0),
        (DecodeMode::Lenient, 0),
    ] {
        let mut walk = DecodeWalk::new(schemas, reading);
        walk.value(of, None, after.root());
        assert_eq!(walk.unknown.len(), expected);
    }
}
