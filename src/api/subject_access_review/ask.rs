//! A review as kube-apiserver writes it: the question to another authorizer.
//!
//! Facts: `apiserver/plugin/pkg/authorizer/webhook/webhook.go`.

use std::borrow::Cow;

use crate::engine::authorization::SubjectAccessReviewVersion;
use crate::engine::{Attributes, Operator, Requirement, ResourceAttributes, Target, User};
use crate::json::write_string;

/// A JSON object that is being written.
struct ObjectWriter<'o> {
    out: &'o mut String,
    is_empty: bool,
}

// === impl Version ===

impl SubjectAccessReviewVersion {
    /// The body of the question about `attributes`: what is empty is left out,
    /// of selectors the requirements whose operators Kubernetes does not know.
    #[must_use]
    pub fn encode(self, attributes: &Attributes<'_>) -> Vec<u8> {
        let mut out = String::with_capacity(512);
        out.push_str(r#"{"kind":"SubjectAccessReview","apiVersion":"#);
        write_string(&mut out, self.as_str());
        out.push_str(r#","metadata":{},"spec":"#);
        spec(&mut out, self, attributes);
        out.push_str(r#","status":{"allowed":false}}"#);
        out.into_bytes()
    }

    /// The spec alone, the same bytes for the same question.
    #[must_use]
    pub fn encode_spec(self, attributes: &Attributes<'_>) -> Vec<u8> {
        let mut out = String::with_capacity(512);
        spec(&mut out, self, attributes);
        out.into_bytes()
    }
}

fn spec(out: &mut String, version: SubjectAccessReviewVersion, attributes: &Attributes<'_>) {
    let mut spec = ObjectWriter::begin(out);
    match &attributes.target {
        Target::Resource(resource) => {
            spec.key("resourceAttributes");
            resource_attributes(spec.out, resource);
        }
        Target::NonResource { path, verb } => {
            spec.key("nonResourceAttributes");
            let mut target = ObjectWriter::begin(spec.out);
            target.text("path", path);
            target.text("verb", verb);
            target.end();
        }
    }
    let User {
        name,
        uid,
        groups,
        extra,
    } = &attributes.user;
    spec.text("user", name);
    spec.texts(
        match version {
            SubjectAccessReviewVersion::V1 => "groups",
            SubjectAccessReviewVersion::V1beta1 => "group",
        },
        groups,
    );
    if !extra.is_empty() {
        spec.key("extra");
        self::extra(spec.out, extra);
    }
    spec.text("uid", uid);
    spec.end();
}

fn resource_attributes(out: &mut String, resource: &ResourceAttributes<'_>) {
    let mut object = ObjectWriter::begin(out);
    for (name, text) in [
        ("namespace", &resource.namespace),
        ("verb", &resource.verb),
        ("group", &resource.group),
        ("version", &resource.version),
        ("resource", &resource.resource),
        ("subresource", &resource.subresource),
        ("name", &resource.name),
    ] {
        object.text(name, text);
    }
    object.selector("fieldSelector", &resource.selectors.field);
    object.selector("labelSelector", &resource.selectors.label);
    object.end();
}

/// By key, as Go writes maps.
fn extra(out: &mut String, extra: &[(Cow<'_, str>, Vec<Cow<'_, str>>)]) {
    let mut sorted: Vec<_> = extra.iter().collect();
    sorted.sort_by(|(one, _), (other, _)| one.cmp(other));
    let mut object = ObjectWriter::begin(out);
    for (key, values) in sorted {
        object.key(key);
        list(object.out, values);
    }
    object.end();
}

fn list(out: &mut String, texts: &[Cow<'_, str>]) {
    out.push('[');
    for (place, text) in texts.iter().enumerate() {
        if place > 0 {
            out.push(',');
        }
        write_string(out, text);
    }
    out.push(']');
}

// === impl Object ===

impl<'o> ObjectWriter<'o> {
    fn begin(out: &'o mut String) -> Self {
        out.push('{');
        Self { out, is_empty: true }
    }

    fn end(self) {
        self.out.push('}');
    }

    fn key(&mut self, key: &str) {
        if !self.is_empty {
            self.out.push(',');
        }
        self.is_empty = false;
        write_string(self.out, key);
        self.out.push(':');
    }

    fn text(&mut self, key: &str, text: &str) {
        if !text.is_empty() {
            self.key(key);
            write_string(self.out, text);
        }
    }

    fn texts(&mut self, key: &str, texts: &[Cow<'_, str>]) {
        if !texts.is_empty() {
            self.key(key);
            list(self.out, texts);
        }
    }

    /// Leaving out what nobody knows only widens the question.
    fn selector(&mut self, key: &str, requirements: &[Requirement<'_>]) {
        let is_known = |requirement: &&Requirement<'_>| !matches!(requirement.operator, Operator::Unknown(_));
        let mut requirements = requirements.iter().filter(is_known).peekable();
        if requirements.peek().is_none() {
            return;
        }
        self.key(key);
        self.out.push_str(r#"{"requirements":["#);
        for (place, requirement) in requirements.enumerate() {
            if place > 0 {
                self.out.push(',');
            }
            let mut object = ObjectWriter::begin(self.out);
            object.text("key", &requirement.key);
            object.text("operator", requirement.operator.as_str());
            object.texts("values", &requirement.values);
            object.end();
        }
        self.out.push_str("]}");
    }
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
