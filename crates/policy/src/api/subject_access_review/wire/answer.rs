//! Decodes the reply of another authorizer as kube-apiserver does.
//!
//! Sources: `apiserver/plugin/pkg/authorizer/webhook/webhook.go`; for kinds
//! `apimachinery/pkg/runtime/serializer/json`. Unlike there, YAML is not accepted.

use std::borrow::Cow;

use super::super::wire;
use super::reader::Reader;
use super::{Extra, JsonFields, ListItems, MAX_ITEMS, RawResource, RawSelector, RawSpec};
use crate::api::{excerpt, utf8};
use crate::authorization::SubjectAccessReviewVersion;
use crate::authorization::authorizer::Opinion;
use crate::model::{Decision, truncate};
use portcullis_cel::json::JsonError;

/// The longest reason that is kept, in bytes.
const REASON_BYTES: usize = 4096;

/// Why a reply is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// The body is empty.
    #[error("the reply is empty")]
    Empty,
    /// Not JSON, or a field of the wrong type.
    #[error("the reply cannot be read as a SubjectAccessReview: {0}")]
    Malformed(#[from] JsonError),
    /// Not of the requested kind and version.
    #[error("the reply is `{found}`, not a SubjectAccessReview of the version asked")]
    Kind {
        /// The version and kind of the reply; cut when long.
        found: String,
    },
    /// The spec differs from that of the request.
    #[error("the reply repeats a different request")]
    Question,
}

/// A valid reply of another authorizer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorizerReply {
    /// The opinion of the authorizer.
    pub opinion: Opinion,
    /// Whether the reply repeats the whole request, and so cannot be the reply to another one.
    pub names_question: bool,
}

#[derive(Default)]
struct RawReply<'a> {
    kind: Cow<'a, str>,
    api_version: Cow<'a, str>,
    spec: RawSpec<'a>,
    status: RawStatus<'a>,
}

#[derive(Default)]
struct RawStatus<'a> {
    allowed: bool,
    denied: bool,
    reason: Cow<'a, str>,
    evaluation_error: Cow<'a, str>,
}

// === impl SubjectAccessReviewVersion ===

impl SubjectAccessReviewVersion {
    /// Decodes the reply to a review in this version. If both `allowed` and `denied` are set, the
    /// decision is Deny with an error. `evaluationError` is ignored.
    ///
    /// # Errors
    /// The body is not a valid reply. Kind and version may be absent, but must be those of the
    /// review if present.
    pub fn verify(self, body: &[u8]) -> Result<Opinion, ReplyError> {
        let body = text_of(body)?;
        Ok(RawReply::read(self, &body)?.status.opinion())
    }

    /// Decodes the reply to `question`, which [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    /// Those of [`verify`](Self::verify), and a reply that repeats another request. The spec or
    /// some of its fields may be absent, but must be those of the request if present.
    pub fn verify_reply_to(self, question: &[u8], body: &[u8]) -> Result<AuthorizerReply, ReplyError> {
        let (body, question) = (text_of(body)?, text_of(question)?);
        let reply = RawReply::read(self, &body)?;
        let asked = RawReply::read(self, &question)?;
        match Echo::of(&reply.spec, &asked.spec) {
            Echo::Other => Err(ReplyError::Question),
            echo => Ok(AuthorizerReply {
                opinion: reply.status.opinion(),
                names_question: echo == Echo::Whole,
            }),
        }
    }
}

fn text_of(body: &[u8]) -> Result<Cow<'_, str>, ReplyError> {
    match body.strip_prefix("\u{feff}".as_bytes()).unwrap_or(body) {
        [] => Err(ReplyError::Empty),
        body => Ok(utf8(body)),
    }
}

// === impl RawReply ===

impl<'a> RawReply<'a> {
    /// Decodes a review in `version`.
    fn read(version: SubjectAccessReviewVersion, body: &'a str) -> Result<Self, ReplyError> {
        let mut reply = Self {
            spec: RawSpec::of_version(version),
            ..Self::default()
        };
        wire::read(body, &mut reply, &ListItems::new(MAX_ITEMS))?;
        reply.spec.keep_last_extra();
        let is_kind = reply.kind.is_empty() || reply.kind == "SubjectAccessReview";
        if !is_kind || !(reply.api_version.is_empty() || reply.api_version == version.as_str()) {
            let found = format!("{} {}", reply.api_version, reply.kind);
            return Err(ReplyError::Kind {
                found: excerpt(&found),
            });
        }
        Ok(reply)
    }
}

impl<'a> JsonFields<'a> for RawReply<'a> {
    const EXPECTED: &'static str = "a SubjectAccessReview";

    fn field(&mut self, key: &[u8], reader: &mut Reader<'a>, items: &ListItems) -> Result<(), JsonError> {
        match key {
            b"kind" => reader.text(&mut self.kind),
            b"apiVersion" => reader.text(&mut self.api_version),
            b"spec" => reader.fill(&mut self.spec, items),
            b"status" => reader.fill(&mut self.status, items),
            _ => reader.skip(),
        }
    }
}

// === impl RawStatus ===

impl RawStatus<'_> {
    fn opinion(self) -> Opinion {
        let both = "the reply both allows and denies";
        Opinion {
            decision: match (self.allowed, self.denied) {
                (_, true) => Decision::Deny,
                (true, false) => Decision::Allow,
                (false, false) => Decision::NoOpinion,
            },
            reason: truncate(&self.reason, REASON_BYTES).to_owned(),
            error: (self.allowed && self.denied).then(|| both.to_owned()),
        }
    }
}

impl<'a> JsonFields<'a> for RawStatus<'a> {
    const EXPECTED: &'static str = "a status";

    fn field(&mut self, key: &[u8], reader: &mut Reader<'a>, _: &ListItems) -> Result<(), JsonError> {
        match key {
            b"allowed" => reader.boolean(&mut self.allowed),
            b"denied" => reader.boolean(&mut self.denied),
            b"reason" => reader.text(&mut self.reason),
            b"evaluationError" => reader.text(&mut self.evaluation_error),
            _ => reader.skip(),
        }
    }
}

// Whether a reply repeats the request that was sent.
//
// An authorizer that decodes a review, sets its status and sends it back repeats the spec. If the
// authorizer was built before Kubernetes had a field, it leaves out that field.

/// What the spec of a reply says about the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Echo {
    /// It repeats the whole request.
    Whole,
    /// It repeats a part of the request, or nothing.
    Part,
    /// It is that of another request.
    Other,
}

// === impl Echo ===

impl Echo {
    /// Compares the spec of a reply with the spec `asked` of the request.
    pub(crate) fn of(spec: &RawSpec<'_>, asked: &RawSpec<'_>) -> Self {
        let none = RawResource::default();
        let (resource, asked_resource) = (
            spec.resource.as_ref().unwrap_or(&none),
            asked.resource.as_ref().unwrap_or(&none),
        );
        let path = |spec: &'_ RawSpec<'_>| match &spec.non_resource {
            Some(target) => [target.path.to_string(), target.verb.to_string()],
            None => Default::default(),
        };
        let ([path, verb], [asked_path, asked_verb]) = (path(spec), path(asked));
        let (one, other) = (&resource.attributes, &asked_resource.attributes);
        Self::Whole
            .and(same_text(&spec.user, &asked.user))
            .and(same_text(&spec.uid, &asked.uid))
            .and(groups(&spec.groups, &asked.groups))
            .and(extra(&spec.extra, &asked.extra))
            .and(same_text(&path, &asked_path))
            .and(same_text(&verb, &asked_verb))
            .and(same_text(&one.namespace, &other.namespace))
            .and(same_text(&one.verb, &other.verb))
            .and(same_text(&one.group, &other.group))
            .and(same_text(&one.version, &other.version))
            .and(same_text(&one.resource, &other.resource))
            .and(same_text(&one.subresource, &other.subresource))
            .and(same_text(&one.name, &other.name))
            .and(selector(&resource.field_selector, &asked_resource.field_selector))
            .and(selector(&resource.label_selector, &asked_resource.label_selector))
    }

    fn of_part(is_empty: bool, is_same: impl FnOnce() -> bool) -> Self {
        match is_empty {
            _ if is_same() => Self::Whole,
            true => Self::Part,
            false => Self::Other,
        }
    }

    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Other, _) | (_, Self::Other) => Self::Other,
            (Self::Part, _) | (_, Self::Part) => Self::Part,
            (Self::Whole, Self::Whole) => Self::Whole,
        }
    }
}

fn same_text(one: &str, asked: &str) -> Echo {
    Echo::of_part(one.is_empty(), || one == asked)
}

/// Compares groups in any order.
fn groups(one: &[Cow<'_, str>], asked: &[Cow<'_, str>]) -> Echo {
    let sorted = |groups: &[Cow<'_, str>]| {
        let mut sorted: Vec<String> = groups.iter().map(ToString::to_string).collect();
        sorted.sort_unstable();
        sorted
    };
    Echo::of_part(one.is_empty(), || one == asked || sorted(one) == sorted(asked))
}

/// Compares extra values by key, in any order.
fn extra(one: &Extra<'_>, asked: &Extra<'_>) -> Echo {
    let sorted = |extra: &Extra<'_>| {
        let mut sorted: Vec<(String, Vec<String>)> = extra
            .iter()
            .map(|(key, values)| (key.to_string(), values.iter().map(ToString::to_string).collect()))
            .collect();
        sorted.sort_unstable();
        sorted
    };
    Echo::of_part(one.is_empty(), || one == asked || sorted(one) == sorted(asked))
}

fn selector(one: &Option<RawSelector<'_>>, asked: &Option<RawSelector<'_>>) -> Echo {
    let none = RawSelector::default();
    let (one, asked) = (one.as_ref().unwrap_or(&none), asked.as_ref().unwrap_or(&none));
    let is_empty = one.raw.is_empty() && one.requirements.is_empty();
    Echo::of_part(is_empty, || {
        one.raw == asked.raw && one.requirements == asked.requirements
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verify(body: &str) -> Result<Opinion, ReplyError> {
        SubjectAccessReviewVersion::V1.verify(body.as_bytes())
    }

    fn opinion(decision: Decision, reason: &str, error: Option<&str>) -> Opinion {
        Opinion {
            decision,
            reason: reason.into(),
            error: error.map(Into::into),
        }
    }

    #[test]
    fn allowed_and_denied_are_a_refusal_and_an_error() {
        let reported = opinion(Decision::Deny, "r", Some("the reply both allows and denies"));
        assert_eq!(
            verify(r#"{"status":{"allowed":true,"denied":true,"reason":"r"}}"#),
            Ok(reported)
        );
    }

    const QUESTION: &str = r#"{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","metadata":{},"spec":{"resourceAttributes":{"namespace":"n","verb":"list","resource":"pods","labelSelector":{"requirements":[{"key":"c","operator":"Exists"}]}},"user":"alice","groups":["g","h"],"extra":{"a":["1"],"b":["2"]},"uid":"1"},"status":{"allowed":false}}"#;

    #[test]
    fn a_reply_that_repeats_another_question_is_none() {
        let reply_to = |body: &str| {
            let replied =
                SubjectAccessReviewVersion::V1.verify_reply_to(QUESTION.as_bytes(), body.as_bytes());
            replied.map(|reply| reply.names_question)
        };
        for (from, to) in [
            ("alice", "mallory"),
            (r#"["g","h"]"#, r#"["g"]"#),
            (r#"["g","h"]"#, r#"["g","h","system:masters"]"#),
            (r#""a":["1"]"#, r#""a":["2"]"#),
            (r#""uid":"1""#, r#""uid":"2""#),
            (r#""namespace":"n""#, r#""namespace":"m""#),
            ("list", "get"),
            ("pods", "secrets"),
            (r#""resource":"pods""#, r#""resource":"pods","subresource":"log""#),
            (r#""resource":"pods""#, r#""resource":"pods","name":"x""#),
            (r#""resource":"pods""#, r#""resource":"pods","group":"apps""#),
            (
                r#""resource":"pods""#,
                r#""resource":"pods","fieldSelector":{"rawSelector":"x"}"#,
            ),
            ("Exists", "DoesNotExist"),
            (r#""user""#, r#""nonResourceAttributes":{"path":"/x"},"user""#),
        ] {
            assert_eq!(
                reply_to(&QUESTION.replace(from, to)),
                Err(ReplyError::Question),
                "{to}"
            );
        }
        for (from, to) in [
            ("", ""),
            (r#"["g","h"]"#, r#"["h","g"]"#),
            (r#""a":["1"],"b":["2"]"#, r#""b":["2"],"a":["1"]"#),
            (r#""user""#, r#""nonResourceAttributes":{},"user""#),
        ] {
            assert_eq!(reply_to(&QUESTION.replace(from, to)), Ok(true), "{to}");
        }
        let selector = r#","labelSelector":{"requirements":[{"key":"c","operator":"Exists"}]}"#;
        for part in [
            r#"{"status":{"allowed":true}}"#,
            r#"{"spec":null}"#,
            r#"{"spec":{"user":"alice"}}"#,
            &QUESTION.replace(selector, ""),
        ] {
            assert_eq!(reply_to(part), Ok(false), "{part}");
        }
    }

    #[test]
    fn a_reply_without_status_is_no_opinion() {
        for body in [
            "null",
            "{}",
            r#"{"status":null}"#,
            r#"{"status":{"allowed":null}}"#,
        ] {
            assert_eq!(verify(body), Ok(opinion(Decision::NoOpinion, "", None)), "{body}");
        }
    }

    #[test]
    fn what_is_not_the_review_asked_is_an_error() {
        for body in [
            "",
            "\u{feff}",
            "[]",
            "true",
            "{",
            "{}x",
            "{}{}",
            r#"{"kind":"Status"}"#,
            r#"{"kind":"subjectaccessreview"}"#,
            r#"{"apiVersion":"authorization.k8s.io/v1beta1"}"#,
            r#"{"apiVersion":"v1"}"#,
            r#"{"status":"Success"}"#,
            r#"{"status":{"allowed":"true"}}"#,
            r#"{"status":{"reason":1}}"#,
            r#"{"spec":{"user":1}}"#,
            "kind: SubjectAccessReview",
        ] {
            assert!(verify(body).is_err(), "{body}");
        }
    }

    #[test]
    fn a_long_reason_is_cut_and_a_foreign_kind_not_repeated_at_length() {
        let long = "é".repeat(100_000);
        let reported = verify(&format!(r#"{{"status":{{"reason":"{long}"}}}}"#)).unwrap();
        assert_eq!(reported.reason.len(), REASON_BYTES);
        let error = verify(&format!(r#"{{"kind":"{long}"}}"#)).unwrap_err();
        assert!(error.to_string().len() < 200, "{error}");
    }
}
