//! What webhooks answer: reviews, and what no webhook should.

use super::Called;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::time::Duration;

/// What becomes of a call.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    /// A review in the version asked.
    Review(Review),
    /// This HTTP reply.
    Http {
        status: u16,
        headers: Vec<(&'static str, String)>,
        body: Vec<u8>,
    },
    /// This answer, later.
    Late(Duration, Box<Answer>),
    /// This answer, byte by byte, each after a pause.
    Trickle(Duration, Box<Answer>),
    /// None, ever.
    Hang,
    /// Half an answer, then the connection is reset.
    Reset,
}

/// The `response` of a review.
#[derive(Debug, Clone)]
pub(crate) struct Review {
    uid: Option<String>,
    response: Value,
}

impl Review {
    pub(crate) fn allow() -> Self {
        Self::response(json!({"allowed": true}))
    }

    pub(crate) fn deny(code: u16, message: &str) -> Self {
        Self::response(json!({"allowed": false, "status": {"code": code, "message": message}}))
    }

    /// Allows, with a JSON Patch.
    pub(crate) fn patch(operations: &Value) -> Self {
        let patch = STANDARD.encode(operations.to_string());
        Self::response(json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}))
    }

    /// A response with all but its uid.
    pub(crate) fn response(response: Value) -> Self {
        Self { uid: None, response }
    }

    /// The same with a warning more.
    pub(crate) fn warn(mut self, warning: &str) -> Self {
        let warnings = &mut self.response["warnings"];
        match warnings.as_array_mut() {
            Some(warnings) => warnings.push(json!(warning)),
            None => *warnings = json!([warning]),
        }
        self
    }

    /// The same with an audit annotation more.
    pub(crate) fn annotate(mut self, key: &str, value: &str) -> Self {
        self.response["auditAnnotations"][key] = json!(value);
        self
    }

    /// The same under another uid than the one asked.
    pub(crate) fn with_uid(self, uid: &str) -> Self {
        Self {
            uid: Some(uid.to_owned()),
            ..self
        }
    }

    /// The body of the reply to this call.
    fn body(&self, called: &Called) -> Value {
        let version = &called.body["apiVersion"];
        if version == "admission.k8s.io/v1alpha1" {
            return json!({"kind": "AdmissionReview", "apiVersion": version, "status": self.response});
        }
        let mut response = self.response.clone();
        response["uid"] = match &self.uid {
            Some(uid) => json!(uid),
            None => called.request()["uid"].clone(),
        };
        json!({"kind": "AdmissionReview", "apiVersion": version, "response": response})
    }
}

impl Answer {
    /// This status, with this body.
    pub(crate) fn http(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self::Http {
            status,
            headers: vec![("content-type", "application/json".to_owned())],
            body: body.into(),
        }
    }

    /// The same with a header more.
    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        if let Self::Http { headers, .. } = &mut self {
            headers.push((name, value.to_owned()));
        }
        self
    }

    /// Status, headers and body of the reply to this call.
    pub(super) fn reply(&self, called: &Called) -> (u16, Vec<(&'static str, String)>, Vec<u8>) {
        match self {
            Self::Review(review) => Self::http(200, review.body(called).to_string()).reply(called),
            Self::Http {
                status,
                headers,
                body,
            } => (*status, headers.clone(), body.clone()),
            Self::Late(_, answer) | Self::Trickle(_, answer) => answer.reply(called),
            Self::Hang | Self::Reset => Self::Review(Review::allow()).reply(called),
        }
    }
}

impl From<Review> for Answer {
    fn from(review: Review) -> Self {
        Self::Review(review)
    }
}
