//! Property tests: no input causes a panic, and the answer belongs to the request.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::super::*;
use crate::api::tests::mutated;
use crate::api::utf8;

/// A valid review to begin with.
const SEED: &str = r#"{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1beta1","metadata":{},"spec":{"user":"j\u00e9\ud83d\ude00","uid":"","group":["a","b"],"extra":{"k":["v",null],"l":null},"resourceAttributes":{"verb":"list","resource":"pods","labelSelector":{"requirements":[{"key":"a","operator":"In","values":["b"]}]},"fieldSelector":{"rawSelector":"x"}}},"status":{"allowed":false}}"#;

/// A spec, and what it asks.
fn mk_spec() -> impl Strategy<Value = Value> {
    let identity = (any::<String>(), any::<String>(), vec(any::<String>(), 0..5));
    let extra = btree_map(any::<String>(), vec(any::<String>(), 0..3), 0..4);
    let target = (any::<bool>(), any::<String>(), any::<String>());
    (identity, extra, target).prop_map(|((user, uid, groups), extra, (resource, verb, name))| {
        let target = if resource {
            ("resourceAttributes", json!({"verb": verb, "name": name}))
        } else {
            ("nonResourceAttributes", json!({"verb": verb, "path": name}))
        };
        let mut spec = Map::new();
        spec.insert("user".to_owned(), format!("u{user}").into());
        spec.insert("uid".to_owned(), uid.into());
        spec.insert("groups".to_owned(), groups.into());
        spec.insert("extra".to_owned(), json!(extra));
        spec.insert(target.0.to_owned(), target.1);
        Value::Object(spec)
    })
}

/// The attributes as a spec again.
fn spec_of(attributes: &Attributes<'_>) -> Value {
    let user = &attributes.user;
    let extra: Map<_, _> = user
        .extra
        .iter()
        .map(|(key, values)| (key.to_string(), json!(values)))
        .collect();
    let mut spec = json!({"user": user.name, "uid": user.uid, "groups": user.groups, "extra": extra});
    match &attributes.target {
        Target::Resource(resource) => {
            spec["resourceAttributes"] = json!({"verb": resource.verb, "name": resource.name});
        }
        Target::NonResource { path, verb } => {
            spec["nonResourceAttributes"] = json!({"verb": verb, "path": path});
        }
    }
    spec
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_refused_or_answered(bytes in vec(any::<u8>(), 0..200)) {
        prop_assert!(SubjectAccessReview::decode(&bytes).is_err());
    }

    #[test]
    fn mutated_input_is_refused_or_answered_and_forgiving_changes_no_answer(bytes in mutated(SEED)) {
        let decoded = SubjectAccessReview::decode(&bytes);
        let forgiven = utf8(&bytes);
        let again = SubjectAccessReview::decode(forgiven.as_bytes());
        match (&decoded, &again) {
            (Ok(one), Ok(other)) => prop_assert_eq!(one, other),
            (Err(one), Err(other)) => prop_assert_eq!(one.message(), other.message()),
            _ => prop_assert!(false, "{decoded:?} but {again:?}"),
        }
        if decoded.is_ok() {
            prop_assert!(SubjectAccessReview::faults(&bytes).is_ok());
        }
    }

    #[test]
    fn what_is_asked_is_what_is_read(spec in mk_spec(), version_first in any::<bool>()) {
        let meta = r#""apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview""#;
        let body = if version_first {
            format!(r#"{{{meta},"spec":{spec}}}"#)
        } else {
            format!(r#"{{"spec":{spec},{meta}}}"#)
        };
        let review = SubjectAccessReview::decode(body.as_bytes()).unwrap();
        prop_assert_eq!(spec_of(&review.attributes), spec);
    }
}
