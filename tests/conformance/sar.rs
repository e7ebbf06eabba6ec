//! SubjectAccessReview: what an API server writes is what we read, and what we
//! write to other authorizers.

use std::borrow::Cow;

use portcullis_policy::api::SubjectAccessReview;
use portcullis_policy::authorization::SubjectAccessReviewVersion;
use portcullis_policy::model::{
    Attributes, Operator, RawSelectors, Requirement, ResourceAttributes, Selectors, Target, User,
};
use serde_json::{Value, json};

use crate::harness::{Case, Mismatch, Table};

pub(crate) const CHECKS: Table = &[("sarRequestWire", sar_request_wire), ("sarSchema", sar_schema)];

/// The body that the API server sends for some attributes is what we send, and
/// is read as those attributes; but for one that names nobody, which its API
/// refuses and we too.
fn sar_request_wire(case: &Case<'_>) -> Result<(), Mismatch> {
    asked(case)?;
    let body = case.expect()["body"].to_string();
    let input = case.input();
    let expected = user(&input["user"]);
    if expected.name.is_empty() && expected.groups.is_empty() {
        let refused = SubjectAccessReview::decode(body.as_bytes())
            .err()
            .map(|error| error.message());
        let of_user = refused
            .as_ref()
            .is_some_and(|message| message.starts_with("spec.user: "));
        return case.same("whether it is refused", &of_user, &true);
    }
    let review = decode(&body)?;
    case.same("version", &review.version, &version(input))?;
    let expected = Attributes {
        user: user(&input["user"]),
        target: target(&input["attributes"]),
    };
    case.same("attributes", &review.attributes, &expected)
}

/// What we ask another authorizer. A list that is null is one without items to us.
fn asked(case: &Case<'_>) -> Result<(), Mismatch> {
    let input = case.input();
    let attributes = Attributes {
        user: user(&input["user"]),
        target: target(&input["attributes"]),
    };
    let actual: Value = serde_json::from_slice(&version(input).encode(&attributes)).unwrap();
    let mut expected = case.expect()["body"].clone();
    let extra = expected.pointer_mut("/spec/extra").and_then(Value::as_object_mut);
    for (_, values) in extra.into_iter().flatten().filter(|(_, values)| values.is_null()) {
        *values = json!([]);
    }
    case.same("body", &actual, &expected)
}

fn version(input: &Value) -> SubjectAccessReviewVersion {
    match input["version"].as_str() {
        Some("v1") => SubjectAccessReviewVersion::V1,
        _ => SubjectAccessReviewVersion::V1beta1,
    }
}

/// Each version has its own key for groups; that of the other is no group.
fn sar_schema(case: &Case<'_>) -> Result<(), Mismatch> {
    let (version, expect) = (case.input()["version"].as_str().unwrap(), case.expect());
    let key = |name: &str| expect[name].as_str().unwrap().to_owned();
    let other = if key("groupsJSONKey") == "groups" {
        "group"
    } else {
        "groups"
    };
    let body = json!({
        "apiVersion": format!("authorization.k8s.io/{version}"),
        "kind": "SubjectAccessReview",
        "spec": {
            "user": "jane",
            key("uidJSONKey"): "1",
            key("groupsJSONKey"): ["right"],
            other: ["wrong"],
            key("extraJSONKey"): {"scopes": ["a"]},
            "nonResourceAttributes": {"path": "/", "verb": "get"},
        },
    });
    let body = body.to_string();
    let expected = User {
        name: "jane".into(),
        uid: "1".into(),
        groups: vec!["right".into()],
        extra: vec![("scopes".into(), vec!["a".into()])],
    };
    case.same("user", &decode(&body)?.attributes.user, &expected)
}

fn decode(body: &str) -> Result<SubjectAccessReview<'_>, Mismatch> {
    let review = SubjectAccessReview::decode(body.as_bytes());
    review.map_err(|error| Mismatch::new(format!("refused: {}", error.message())))
}

// === attributes as the vectors write them ===

fn text(value: &Value) -> Cow<'_, str> {
    value.as_str().unwrap_or_default().into()
}

fn texts(value: &Value) -> Vec<Cow<'_, str>> {
    value.as_array().into_iter().flatten().map(text).collect()
}

pub(crate) fn user(user: &Value) -> User<'_> {
    let extra = user["extra"].as_object().into_iter().flatten();
    User {
        name: text(&user["name"]),
        uid: text(&user["uid"]),
        groups: texts(&user["groups"]),
        extra: extra
            .map(|(key, values)| (key.as_str().into(), texts(values)))
            .collect(),
    }
}

/// The target that `attributes` of a vector describe. Operators that the wire
/// has no word for are not sent.
pub(crate) fn target(attributes: &Value) -> Target<'_> {
    if attributes["resourceRequest"] == false {
        return Target::NonResource {
            path: text(&attributes["path"]),
            verb: text(&attributes["verb"]),
        };
    }
    Target::Resource(Box::new(ResourceAttributes {
        verb: text(&attributes["verb"]),
        namespace: text(&attributes["namespace"]),
        group: text(&attributes["group"]),
        version: text(&attributes["version"]),
        resource: text(&attributes["resource"]),
        subresource: text(&attributes["subresource"]),
        name: text(&attributes["name"]),
        selectors: Selectors {
            field: requirements(&attributes["fieldRequirements"]),
            label: requirements(&attributes["labelRequirements"]),
        },
        raw_selectors: RawSelectors::default(),
    }))
}

fn requirements(requirements: &Value) -> Vec<Requirement<'_>> {
    requirements
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(requirement)
        .collect()
}

fn requirement(requirement: &Value) -> Option<Requirement<'_>> {
    let operator = match requirement["op"].as_str()? {
        "=" | "==" | "in" => Operator::In,
        "!=" | "notin" => Operator::NotIn,
        "exists" => Operator::Exists,
        "!" => Operator::DoesNotExist,
        _ => return None,
    };
    // A field has one `value`, a label a list of `values`.
    let values = match &requirement["value"] {
        Value::String(value) => vec![value.as_str().into()],
        _ => texts(&requirement["values"]),
    };
    Some(Requirement {
        key: text(&requirement["key"]),
        operator,
        values,
    })
}

/// The verb that is asked for.
pub(crate) fn verb<'t>(target: &'t Target<'_>) -> &'t str {
    match target {
        Target::Resource(resource) => &resource.verb,
        Target::NonResource { verb, .. } => verb,
    }
}

/// Whether `named` describes the target; of requirements their number.
pub(crate) fn is_target(named: &Value, target: &Target<'_>) -> bool {
    match target {
        Target::NonResource { path, verb } => {
            named["resourceRequest"] != true
                && named["path"] == path.as_ref()
                && named["verb"] == verb.as_ref()
        }
        Target::Resource(resource) => {
            let number = |field: &str| named[field].as_array().map_or(0, Vec::len);
            named["resourceRequest"] == true
                && named["verb"] == resource.verb.as_ref()
                && named["group"] == resource.group.as_ref()
                && named["version"] == resource.version.as_ref()
                && named["resource"] == resource.resource.as_ref()
                && named["subresource"] == resource.subresource.as_ref()
                && named["namespace"] == resource.namespace.as_ref()
                && named["name"] == resource.name.as_ref()
                && number("fieldReqs") == resource.selectors.field.len()
                && number("labelReqs") == resource.selectors.label.len()
        }
    }
}
