//! `metav1.Status`: the body of every HTTP answer that is not a review.
//!
//! Reasons and codes pair as in `apimachinery/pkg/apis/meta/v1/types.go`.

use serde::Serialize;

/// Longest message sent; a sender's own text may be quoted in it.
const MESSAGE_BYTES: usize = 1024;

/// A failure as Kubernetes clients read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// What sort of failure.
    pub reason: Reason,
    /// What and why, for people.
    pub message: String,
    /// After how many seconds it makes sense to try again.
    pub retry_after: Option<u32>,
}

/// `metav1.StatusReason`, as far as it is used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// 400: the request cannot be understood.
    BadRequest,
    /// 401: no or bad credential.
    Unauthorized,
    /// 403: a known caller that may not do this.
    Forbidden,
    /// 404: there is nothing at this path.
    NotFound,
    /// 405: the path knows other methods.
    MethodNotAllowed,
    /// 413: the body is larger than allowed.
    RequestEntityTooLarge,
    /// 415: the body is not JSON.
    UnsupportedMediaType,
    /// 429: too much is in flight.
    TooManyRequests,
    /// 500: a fault of this program.
    InternalError,
    /// 503: not now.
    ServiceUnavailable,
    /// 504: the caller's deadline passed.
    Timeout,
}

#[derive(Serialize)]
struct Wire<'a> {
    kind: &'static str,
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    metadata: Empty,
    status: &'static str,
    message: &'a str,
    reason: Reason,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
    code: u16,
}

#[derive(Serialize)]
struct Empty {}

#[derive(Serialize)]
struct Details {
    #[serde(rename = "retryAfterSeconds")]
    retry_after_seconds: u32,
}

// === impl Status ===

impl Status {
    /// A failure that trying again does not mend.
    #[must_use]
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            retry_after: None,
        }
    }

    /// The same, worth another try after `seconds`.
    #[must_use]
    pub fn retry_after(self, seconds: u32) -> Self {
        Self {
            retry_after: Some(seconds),
            ..self
        }
    }

    /// The JSON body. A message beyond 1 KiB is cut.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let wire = Wire {
            kind: "Status",
            api_version: "v1",
            metadata: Empty {},
            status: "Failure",
            message: super::text::cut(&self.message, MESSAGE_BYTES),
            reason: self.reason,
            details: self
                .retry_after
                .map(|retry_after_seconds| Details { retry_after_seconds }),
            code: self.reason.code(),
        };
        // Strings and numbers always serialise; an empty body would still carry the HTTP code.
        serde_json::to_vec(&wire).unwrap_or_default()
    }
}

// === impl Reason ===

impl Reason {
    /// The HTTP status code.
    #[must_use]
    pub const fn code(self) -> u16 {
        match self {
            Self::BadRequest => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::RequestEntityTooLarge => 413,
            Self::UnsupportedMediaType => 415,
            Self::TooManyRequests => 429,
            Self::InternalError => 500,
            Self::ServiceUnavailable => 503,
            Self::Timeout => 504,
        }
    }

    /// The reason as Kubernetes spells it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BadRequest => "BadRequest",
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden => "Forbidden",
            Self::NotFound => "NotFound",
            Self::MethodNotAllowed => "MethodNotAllowed",
            Self::RequestEntityTooLarge => "RequestEntityTooLarge",
            Self::UnsupportedMediaType => "UnsupportedMediaType",
            Self::TooManyRequests => "TooManyRequests",
            Self::InternalError => "InternalError",
            Self::ServiceUnavailable => "ServiceUnavailable",
            Self::Timeout => "Timeout",
        }
    }
}

impl Serialize for Reason {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_like_one_of_the_api_server() {
        let status = Status::new(Reason::TooManyRequests, "busy").retry_after(1);
        assert_eq!(
            String::from_utf8(status.encode()).unwrap(),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"busy","reason":"TooManyRequests","details":{"retryAfterSeconds":1},"code":429}"#
        );
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let status = Status::new(Reason::BadRequest, "é".repeat(MESSAGE_BYTES));
        let body: serde_json::Value = serde_json::from_slice(&status.encode()).unwrap();
        assert_eq!(body["message"].as_str().unwrap().len(), MESSAGE_BYTES);
        assert!(body.get("details").is_none());
    }
}
