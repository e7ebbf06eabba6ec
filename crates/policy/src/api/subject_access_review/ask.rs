//! The SubjectAccessReview for another authorizer, as kube-apiserver writes it.
//!
//! Facts: `apiserver/plugin/pkg/authorizer/webhook/webhook.go`.

use std::borrow::Cow;

use crate::authorization::SubjectAccessReviewVersion;
use crate::engine::{Attributes, Operator, Requirement, ResourceAttributes, Target, User};
use portcullis_cel::json::ObjectWriter;

// === impl SubjectAccessReviewVersion ===

impl SubjectAccessReviewVersion {
    /// The body of the question about `attributes`: what is empty is left out,
    /// of selectors the requirements whose operators Kubernetes does not know.
    #[must_use]
    pub fn encode(self, attributes: &Attributes<'_>) -> Vec<u8> {
        let mut out = String::with_capacity(512);
        ObjectWriter::write(&mut out, |review| {
            review.text("kind", "SubjectAccessReview");
            review.text("apiVersion", self.as_str());
            review.object("metadata", |_| {});
            review.object("spec", |spec| write_spec(spec, self, attributes));
            review.object("status", |status| status.flag("allowed", false));
        });
        out.into_bytes()
    }

    /// The spec alone, the same bytes for the same question.
    #[must_use]
    pub fn encode_spec(self, attributes: &Attributes<'_>) -> Vec<u8> {
        let mut out = String::with_capacity(512);
        ObjectWriter::write(&mut out, |spec| write_spec(spec, self, attributes));
        out.into_bytes()
    }
}

fn write_spec(spec: &mut ObjectWriter<'_>, version: SubjectAccessReviewVersion, attributes: &Attributes<'_>) {
    match &attributes.target {
        Target::Resource(resource) => {
            spec.object("resourceAttributes", |target| write_resource(target, resource));
        }
        Target::NonResource { path, verb } => spec.object("nonResourceAttributes", |target| {
            target.text_if_any("path", path);
            target.text_if_any("verb", verb);
        }),
    }
    let User {
        name,
        uid,
        groups,
        extra,
    } = &attributes.user;
    spec.text_if_any("user", name);
    spec.texts_if_any(
        match version {
            SubjectAccessReviewVersion::V1 => "groups",
            SubjectAccessReviewVersion::V1beta1 => "group",
        },
        groups,
    );
    if !extra.is_empty() {
        spec.object("extra", |object| write_extra(object, extra));
    }
    spec.text_if_any("uid", uid);
}

fn write_resource(target: &mut ObjectWriter<'_>, resource: &ResourceAttributes<'_>) {
    for (name, text) in [
        ("namespace", &resource.namespace),
        ("verb", &resource.verb),
        ("group", &resource.group),
        ("version", &resource.version),
        ("resource", &resource.resource),
        ("subresource", &resource.subresource),
        ("name", &resource.name),
    ] {
        target.text_if_any(name, text);
    }
    write_selector(target, "fieldSelector", &resource.selectors.field);
    write_selector(target, "labelSelector", &resource.selectors.label);
}

/// By key, as Go writes maps.
fn write_extra(object: &mut ObjectWriter<'_>, extra: &[(Cow<'_, str>, Vec<Cow<'_, str>>)]) {
    let mut sorted: Vec<_> = extra.iter().collect();
    sorted.sort_by(|(one, _), (other, _)| one.cmp(other));
    for (key, values) in sorted {
        object.texts(key, values);
    }
}

/// Leaving out what nobody knows only widens the question.
fn write_selector(target: &mut ObjectWriter<'_>, key: &str, requirements: &[Requirement<'_>]) {
    let is_known = |requirement: &&Requirement<'_>| !matches!(requirement.operator, Operator::Unknown(_));
    let mut requirements = requirements.iter().filter(is_known).peekable();
    if requirements.peek().is_none() {
        return;
    }
    target.object(key, |selector| {
        selector.list("requirements", requirements, |out, requirement| {
            ObjectWriter::write(out, |object| {
                object.text_if_any("key", &requirement.key);
                object.text_if_any("operator", requirement.operator.as_str());
                object.texts_if_any("values", &requirement.values);
            });
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;
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
}
