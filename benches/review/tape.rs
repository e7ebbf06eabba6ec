//! Decodes a SubjectAccessReview by the index through which objects are read (`portcullis_cel::json`), for
//! comparison.
//!
//! It does less than `SubjectAccessReview::decode`: a field of the wrong type is no error, `null` and repeated
//! keys have no special meaning, `metadata` and selectors are not validated. So its time is a lower bound for a
//! decoder that uses the index.

use std::borrow::Cow;

use portcullis_cel::json::{Document, Node};
use portcullis_policy::authorization::SubjectAccessReviewVersion;
use portcullis_policy::model::{
    Attributes, Operator, Requirement, ResourceAttributes, Selectors, Target, User,
};

/// The version and attributes of a review of a resource; `None` for any other.
pub(crate) fn decode<'d>(body: &'d Document<'d>) -> Option<(SubjectAccessReviewVersion, Attributes<'d>)> {
    let root = body.root();
    if !root.get("kind")?.is_str("SubjectAccessReview") {
        return None;
    }
    let version = match root.get("apiVersion")?.as_str()?.as_ref() {
        "authorization.k8s.io/v1" => SubjectAccessReviewVersion::V1,
        "authorization.k8s.io/v1beta1" => SubjectAccessReviewVersion::V1beta1,
        _ => return None,
    };
    let spec = root.get("spec")?;
    let groups = match version {
        SubjectAccessReviewVersion::V1 => "groups",
        SubjectAccessReviewVersion::V1beta1 => "group",
    };
    let user = User {
        name: text(spec, "user"),
        uid: text(spec, "uid"),
        groups: texts(spec.get(groups)),
        extra: extra(spec.get("extra")),
    };
    let target = Target::Resource(Box::new(resource(spec.get("resourceAttributes")?)));
    Some((version, Attributes { user, target }))
}

fn extra(node: Option<Node<'_>>) -> Vec<(Cow<'_, str>, Vec<Cow<'_, str>>)> {
    let entries = node.into_iter().flat_map(Node::entries);
    entries.map(|(key, values)| (key, texts(Some(values)))).collect()
}

fn resource(node: Node<'_>) -> ResourceAttributes<'_> {
    ResourceAttributes {
        verb: text(node, "verb"),
        namespace: text(node, "namespace"),
        group: text(node, "group"),
        version: text(node, "version"),
        resource: text(node, "resource"),
        subresource: text(node, "subresource"),
        name: text(node, "name"),
        selectors: Selectors {
            field: requirements(node.get("fieldSelector")),
            label: requirements(node.get("labelSelector")),
        },
        ..ResourceAttributes::default()
    }
}

fn requirements(selector: Option<Node<'_>>) -> Vec<Requirement<'_>> {
    let Some(requirements) = selector.and_then(|selector| selector.get("requirements")) else {
        return Vec::new();
    };
    let requirement = |node| Requirement {
        key: text(node, "key"),
        operator: match text(node, "operator") {
            operator if operator == "In" => Operator::In,
            operator if operator == "NotIn" => Operator::NotIn,
            operator if operator == "Exists" => Operator::Exists,
            operator if operator == "DoesNotExist" => Operator::DoesNotExist,
            operator => Operator::Unknown(operator),
        },
        values: texts(node.get("values")),
    };
    requirements.items().map(requirement).collect()
}

fn text<'d>(node: Node<'d>, name: &str) -> Cow<'d, str> {
    node.get(name).and_then(Node::as_str).unwrap_or_default()
}

fn texts(node: Option<Node<'_>>) -> Vec<Cow<'_, str>> {
    let items = node.into_iter().flat_map(Node::items);
    items.filter_map(Node::as_str).collect()
}
