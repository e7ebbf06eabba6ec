use super::super::*;
use crate::api::SubjectAccessReview;

fn written(body: &str) -> String {
    let review = SubjectAccessReview::decode(body.as_bytes()).unwrap();
    String::from_utf8(review.version.encode(&review.attributes)).unwrap()
}

#[test]
fn what_an_api_server_asks_is_asked_in_its_words() {
    let asked = r#"{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","metadata":{},"spec":{"resourceAttributes":{"namespace":"n","verb":"list","resource":"pods","fieldSelector":{"requirements":[{"key":"a","operator":"In","values":["b"]}]},"labelSelector":{"requirements":[{"key":"c","operator":"Exists"}]}},"user":"u\"\n","groups":["g","h"],"extra":{"a":[],"b":["c","d"]},"uid":"1"},"status":{"allowed":false}}"#;
    assert_eq!(written(asked), asked);
    let other = asked.replace("/v1\"", "/v1beta1\"").replace("groups", "group");
    assert_eq!(written(&other), other);
    let path = r#"{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","metadata":{},"spec":{"nonResourceAttributes":{"path":"/x","verb":"get"},"user":"u"},"status":{"allowed":false}}"#;
    assert_eq!(written(path), path);
}

#[test]
fn a_requirement_that_nobody_knows_is_not_passed_on() {
    let asked = r#"{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{"user":"u","resourceAttributes":{"labelSelector":{"requirements":[{"key":"a","operator":"Like","values":["b"]}]}}}}"#;
    assert!(written(asked).contains(r#""resourceAttributes":{},"#));
}

#[test]
fn the_same_question_has_the_same_spec_whatever_the_order_of_its_extra() {
    let spec = |extra: &str| {
        let body = format!(
            r#"{{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{{"user":"u","extra":{extra},"nonResourceAttributes":{{}}}}}}"#
        );
        let review = SubjectAccessReview::decode(body.as_bytes()).unwrap();
        SubjectAccessReviewVersion::V1.encode_spec(&review.attributes)
    };
    assert_eq!(spec(r#"{"a":["1"],"b":[]}"#), spec(r#"{"b":[],"a":["1"]}"#));
    assert_ne!(spec(r#"{"a":["1","2"]}"#), spec(r#"{"a":["2","1"]}"#));
    assert_ne!(spec(r#"{"a":["1,2"]}"#), spec(r#"{"a":["1","2"]}"#));
}
