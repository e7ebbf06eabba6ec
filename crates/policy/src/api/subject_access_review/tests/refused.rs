//! What is no review, what is refused, and what is dropped.

use super::*;

fn refusal(body: &str) -> String {
    SubjectAccessReview::decode(body.as_bytes())
        .expect_err(body)
        .message()
}

#[test]
fn what_is_not_a_review_is_named() {
    for (body, expected) in [
        ("", "expected a SubjectAccessReview"),
        ("null", "expected kind `SubjectAccessReview`, found ``"),
        ("[]", "expected a SubjectAccessReview"),
        ("{", "expected a key"),
        (
            r#"{"kind":"AdmissionReview","spec":7}"#,
            "found `AdmissionReview`",
        ),
        (r#"{"kind":"SubjectAccessReview","spec":[]}"#, "found ``"),
        (
            r#"{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v2"}"#,
            "found `authorization.k8s.io/v2`",
        ),
        (
            &format!("{} x", v1(json!({"user": "u", "nonResourceAttributes": {}}))),
            "expected the end",
        ),
        (
            &v1(json!({"user": 5, "nonResourceAttributes": {}})),
            "expected a string",
        ),
        (
            &v1(json!({"user": "u", "groups": "g", "nonResourceAttributes": {}})),
            "expected a list of strings",
        ),
        (
            &v1(json!({"user": "u", "groups": [1], "nonResourceAttributes": {}})),
            "expected a string",
        ),
        (
            &v1(json!({"user": "u", "extra": [], "nonResourceAttributes": {}})),
            "expected a map",
        ),
        (
            &v1(json!({"user": "u", "nonResourceAttributes": "x"})),
            "expected nonResourceAttributes",
        ),
        (
            r#"{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{"user":"a"#,
            "expected the end of the string",
        ),
    ] {
        let message = refusal(body);
        assert!(message.contains(expected), "{body}: {message}");
    }
}

#[test]
fn what_is_found_is_repeated_only_in_part() {
    let message = refusal(&format!(r#"{{"kind":"{}"}}"#, "é".repeat(1000)));
    assert!(message.len() < 200, "{message}");
}

#[test]
fn what_the_api_server_refuses_is_refused() {
    let target = json!({"user": "u", "nonResourceAttributes": {}});
    for (spec, expected) in [
        (json!({"user": "u"}), "spec.resourceAttributes: Invalid value"),
        (
            json!({"user": "u", "resourceAttributes": null}),
            "spec.resourceAttributes: Invalid value",
        ),
        (
            json!({"user": "u", "resourceAttributes": {}, "nonResourceAttributes": {}}),
            "spec.nonResourceAttributes: Invalid value",
        ),
        (
            json!({"nonResourceAttributes": {}, "groups": []}),
            "spec.user: Invalid value",
        ),
    ] {
        let message = refusal(&v1(spec));
        assert!(message.contains(expected), "{message}");
    }
    for metadata in [
        json!({"name": "x"}),
        json!({"labels": {"a": "b"}}),
        json!({"generation": 1}),
    ] {
        let mut body: Value = serde_json::from_str(&v1(target.clone())).unwrap();
        body["metadata"] = metadata;
        assert!(refusal(&body.to_string()).contains("metadata: Invalid value: must be empty"));
    }
    for metadata in [
        Value::Null,
        json!({"creationTimestamp": null}),
        json!({"name": "", "labels": {}, "finalizers": []}),
        json!({"managedFields": [{"manager": "x"}], "later": 1}),
    ] {
        let mut body: Value = serde_json::from_str(&v1(target.clone())).unwrap();
        body["metadata"] = metadata;
        decode(&body.to_string());
    }
    decode(&v1(json!({"groups": ["g"], "resourceAttributes": {}})));
}

#[test]
fn an_invalid_requirement_or_selector_is_dropped_and_the_rest_stays() {
    let valid = json!({"key": "ok", "operator": "In", "values": ["v"]});
    let kept = [requirement("ok", Operator::In, &["v"])];
    let faulty = |kind: &str| match kind {
        "fieldSelector" => json!([valid, {"key": "", "operator": "In", "values": ["v"]}]),
        _ => {
            json!([valid, {"key": "-bad-", "operator": "Exists"}, {"key": "a", "operator": "In", "values": ["b c"]}])
        }
    };
    let mismatched = json!([{"key": "a", "operator": "In"}, {"key": "a", "operator": "NotIn", "values": []},
        {"key": "a", "operator": "Exists", "values": ["v"]}, {"key": "a", "operator": "DoesNotExist", "values": ["v"]},
        null, valid]);
    for kind in ["fieldSelector", "labelSelector"] {
        for (selector, expected, raw) in [
            (json!({"requirements": faulty(kind)}), &kept[..], ""),
            (json!({"requirements": mismatched}), &kept[..], ""),
            (json!({"requirements": [valid], "rawSelector": "a=b"}), &[], "a=b"),
            (json!({"rawSelector": "a=b"}), &[], "a=b"),
            (json!({"requirements": null}), &[], ""),
            (json!({}), &[], ""),
            (Value::Null, &[], ""),
        ] {
            let mut spec = json!({"user": "u", "resourceAttributes": {"verb": "list"}});
            spec["resourceAttributes"][kind] = selector;
            let body = v1(spec);
            let review = decode(&body);
            let (selectors, raw_selectors) = (selectors_of(&review), raw_selectors_of(&review));
            let found = if kind == "fieldSelector" {
                (selectors.field.as_slice(), raw_selectors.field.as_ref())
            } else {
                (selectors.label.as_slice(), raw_selectors.label.as_ref())
            };
            assert_eq!(found, (expected, raw), "{body}");
        }
    }
}

#[test]
fn faults_are_those_of_the_api_server_in_its_order() {
    let body = v1(json!({"resourceAttributes": {
        "fieldSelector": {"rawSelector": "a=b", "requirements": [{"key": "", "operator": "In"}]},
        "labelSelector": {}}}));
    let faults = SubjectAccessReview::faults(body.as_bytes()).unwrap();
    let found: Vec<_> = faults
        .iter()
        .map(|fault| (fault.place.path.to_string(), fault.kind.as_str()))
        .collect();
    let selector = |rest: &str| format!("spec.resourceAttributes.{rest}");
    assert_eq!(
        found,
        [
            ("spec.user".to_owned(), "Invalid value"),
            (selector("fieldSelector.rawSelector"), "Invalid value"),
            (selector("fieldSelector.requirements[0].key"), "Required value"),
            (selector("fieldSelector.requirements[0].values"), "Required value"),
            (selector("labelSelector.requirements"), "Required value"),
        ]
    );
}

#[test]
fn too_many_groups_are_refused_and_too_many_requirements_dropped() {
    let many = vec![""; wire::MAX_ITEMS + 1];
    assert!(
        refusal(&v1(
            json!({"user": "u", "nonResourceAttributes": {}, "groups": many})
        ))
        .contains("Too many")
    );

    let requirements = json!([{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "In", "values": many},
                              {"key": "c", "operator": "Exists"}]);
    let body =
        v1(json!({"user": "u", "resourceAttributes": {"labelSelector": {"requirements": requirements}}}));
    assert_eq!(
        selectors_of(&decode(&body)).label,
        [requirement("a", Operator::Exists, &[])]
    );
}
