//! Reviews valid, odd and hostile.

mod ask;
mod hostile;
mod refused;
mod reply;

use serde_json::{Value, json};

use super::*;
use crate::model::{Operator, Requirement};

/// A v1 review of this spec.
fn v1(spec: Value) -> String {
    json!({"kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "metadata": {},
           "spec": spec, "status": {"allowed": false}})
    .to_string()
}

fn decode(body: &str) -> SubjectAccessReview<'_> {
    SubjectAccessReview::decode(body.as_bytes()).unwrap_or_else(|error| panic!("{body}: {}", error.message()))
}

fn path_of<'a>(review: &'a SubjectAccessReview<'_>) -> &'a str {
    match &review.attributes.target {
        Target::NonResource { path, .. } => path,
        Target::Resource(_) => panic!("a resource"),
    }
}

fn selectors_of<'a>(review: &'a SubjectAccessReview<'a>) -> &'a Selectors<'a> {
    match &review.attributes.target {
        Target::Resource(resource) => &resource.selectors,
        Target::NonResource { .. } => panic!("not a resource"),
    }
}

fn raw_selectors_of<'a>(review: &'a SubjectAccessReview<'a>) -> &'a RawSelectors<'a> {
    match &review.attributes.target {
        Target::Resource(resource) => &resource.raw_selectors,
        Target::NonResource { .. } => panic!("not a resource"),
    }
}

fn requirement(
    key: &'static str,
    operator: Operator<'static>,
    values: &[&'static str],
) -> Requirement<'static> {
    Requirement {
        key: key.into(),
        operator,
        values: values.iter().map(|value| (*value).into()).collect(),
    }
}

#[test]
fn every_field_is_read_and_borrowed() {
    let body = v1(json!({
        "user": "jane", "uid": "u-1", "groups": ["a", "b"],
        "extra": {"Scopes": ["x", "y"], "empty": [], "none": null},
        "resourceAttributes": {"namespace": "ns", "verb": "list", "group": "apps", "version": "v1",
            "resource": "deployments", "subresource": "scale", "name": "n",
            "fieldSelector": {"requirements": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
            "labelSelector": {"requirements": [{"key": "app", "operator": "Exists"}]}},
    }));
    let review = decode(&body);
    assert_eq!(review.version, SubjectAccessReviewVersion::V1);
    let user = &review.attributes.user;
    assert_eq!(
        (user.name.as_ref(), user.uid.as_ref(), user.groups.len()),
        ("jane", "u-1", 2)
    );
    assert!(matches!(user.name, Cow::Borrowed(_)));
    let mut extra: Vec<_> = user
        .extra
        .iter()
        .map(|(key, values)| (key.as_ref(), values.len()))
        .collect();
    extra.sort_unstable();
    assert_eq!(extra, [("Scopes", 2), ("empty", 0), ("none", 0)]);
    let Target::Resource(resource) = &review.attributes.target else {
        panic!("not a resource")
    };
    let texts = [
        &resource.namespace,
        &resource.verb,
        &resource.group,
        &resource.version,
        &resource.resource,
        &resource.subresource,
        &resource.name,
    ];
    assert_eq!(texts, ["ns", "list", "apps", "v1", "deployments", "scale", "n"]);
    assert_eq!(
        resource.selectors.field,
        [requirement("metadata.name", Operator::In, &["n"])]
    );
    assert_eq!(
        resource.selectors.label,
        [requirement("app", Operator::Exists, &[])]
    );
}

#[test]
fn each_version_reads_its_own_groups_wherever_the_version_stands() {
    let spec = r#"{"user":"u","groups":["v1"],"group":["v1beta1"],"nonResourceAttributes":{"path":"/","verb":"get"}}"#;
    for version in [
        SubjectAccessReviewVersion::V1,
        SubjectAccessReviewVersion::V1beta1,
    ] {
        let meta = format!(
            r#""kind":"SubjectAccessReview","apiVersion":"{}""#,
            version.as_str()
        );
        for body in [
            format!(r#"{{{meta},"spec":{spec}}}"#),
            format!(r#"{{"spec":{spec},{meta}}}"#),
        ] {
            let review = decode(&body);
            let expected = version.as_str().rsplit('/').next().unwrap();
            assert_eq!(
                (review.version, &review.attributes.user.groups[..]),
                (version, &[Cow::from(expected)][..])
            );
        }
    }
}

#[test]
fn the_other_versions_groups_may_be_anything() {
    let body = v1(json!({"user": "u", "group": "text", "nonResourceAttributes": {}}));
    assert!(decode(&body).attributes.user.groups.is_empty());
    let body = r#"{"spec":{"user":"u","groups":7,"nonResourceAttributes":{}},
                   "kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1beta1"}"#;
    assert_eq!(decode(body).version, SubjectAccessReviewVersion::V1beta1);
}

#[test]
fn of_duplicate_keys_the_last_wins_and_objects_add_up() {
    let body = r#"{"kind":"X","kind":"SubjectAccessReview",
        "apiVersion":"authorization.k8s.io/v1beta1","apiVersion":"authorization.k8s.io/v1",
        "spec":{"user":"a","user":"b","user":null,"groups":["x","y"],"groups":["z"],
                "extra":{"k":["1"],"l":["2"],"k":["3"]},"nonResourceAttributes":{"path":"/a","verb":"get"}},
        "spec":{"nonResourceAttributes":{"path":"/b"}}}"#;
    let review = decode(body);
    assert_eq!(
        (review.version, review.attributes.user.name.as_ref()),
        (SubjectAccessReviewVersion::V1, "b")
    );
    assert_eq!(review.attributes.user.groups, ["z"]);
    assert_eq!(
        review.attributes.user.extra,
        [
            (Cow::from("l"), vec![Cow::from("2")]),
            (Cow::from("k"), vec![Cow::from("3")])
        ]
    );
    assert_eq!(
        review.attributes.target,
        Target::NonResource {
            path: "/b".into(),
            verb: "get".into()
        }
    );
}

#[test]
fn a_version_that_changes_between_two_specs_holds_for_both() {
    let body = r#"{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{"group":["g"]},
        "apiVersion":"authorization.k8s.io/v1beta1","spec":{"nonResourceAttributes":{}}}"#;
    assert_eq!(decode(body).attributes.user.groups, ["g"]);
}

#[test]
fn keys_are_case_sensitive_and_unknown_ones_skipped() {
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let body = format!(
        r#"{{"kind":"SubjectAccessReview","Kind":"X","apiVersion":"authorization.k8s.io/v1","later":{deep},
            "spec":{{"user":"u","User":"root","nonResourceAttributes":{{"path":"/p","Path":"/q"}}}}}}"#
    );
    let review = decode(&body);
    assert_eq!(
        (review.attributes.user.name.as_ref(), path_of(&review)),
        ("u", "/p")
    );
}

/// Conditional authorization (KEP-5681) is to add fields at each level.
#[test]
fn fields_of_later_versions_change_nothing_in_what_is_asked() {
    let resource = json!({"verb": "create", "resource": "pods", "namespace": "a"});
    let plain = v1(json!({"user": "u", "groups": ["g"], "resourceAttributes": resource}));
    let mut later: serde_json::Value = serde_json::from_str(&plain).unwrap();
    let conditional =
        json!({"enabled": true, "mode": "HumanReadable", "conditions": [{"id": "a.example.com/b"}]});
    later["spec"]["conditionalAuthorization"] = conditional.clone();
    later["spec"]["resourceAttributes"]["options"] = conditional.clone();
    later["status"] = json!({"allowed": true, "conditionSetChain": [conditional]});
    later["evaluation"] = json!({"admit": {"object": null}});
    let later = later.to_string();
    let asked = |body: &str| format!("{:?}", decode(body).attributes);
    assert_eq!(asked(&later), asked(&plain));
}

#[test]
fn text_that_go_forgives_becomes_the_replacement_character() {
    for (text, expected) in [
        (&br"\ud800"[..], "\u{fffd}"),
        (br"\ud800\n", "\u{fffd}\n"),
        (br"\udc00\u0041", "\u{fffd}A"),
        (b"\xff\xc3", "\u{fffd}\u{fffd}"),
        (br"\u0000", "\0"),
        (br"\ud83d\ude00", "\u{1f600}"),
    ] {
        let mut body = br#"{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1",
            "spec":{"user":"u","nonResourceAttributes":{"path":""#
            .to_vec();
        body.extend_from_slice(text);
        body.extend_from_slice(br#""}}}"#);
        let review = SubjectAccessReview::decode(&body).unwrap_or_else(|error| panic!("{}", error.message()));
        assert_eq!(path_of(&review), expected, "{}", text.escape_ascii());
    }
}

#[test]
fn extra_keys_that_become_equal_keep_the_last_values() {
    let mut body = br#"{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1",
        "spec":{"user":"u","nonResourceAttributes":{},"extra":{""#
        .to_vec();
    body.extend_from_slice(b"\xff\":[\"1\"],\"\xfe\":[\"2\"]}}}");
    let review = SubjectAccessReview::decode(&body).unwrap();
    assert_eq!(
        review.attributes.user.extra,
        [(Cow::from("\u{fffd}"), vec![Cow::from("2")])]
    );
}

#[test]
fn an_operator_of_a_later_kubernetes_is_kept_as_such() {
    let requirements =
        json!([{"key": "a", "operator": "Fuzzy"}, {"key": "b", "operator": "in", "values": ["c"]}]);
    let body =
        v1(json!({"user": "u", "resourceAttributes": {"labelSelector": {"requirements": requirements}}}));
    assert_eq!(
        selectors_of(&decode(&body)).label,
        [
            requirement("a", Operator::Unknown("Fuzzy".into()), &[]),
            requirement("b", Operator::Unknown("in".into()), &["c"])
        ]
    );
}
