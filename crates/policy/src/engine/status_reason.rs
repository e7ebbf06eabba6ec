//! Why an HTTP request or an object is refused, in Kubernetes' words.

use serde::{Serialize, Serializer};

/// `metav1.StatusReason`, as far as it is used here; reasons and codes pair as in
/// `apimachinery/pkg/apis/meta/v1/types.go`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StatusReason {
    /// 400: what was sent cannot be understood.
    BadRequest,
    /// 401: no or bad credential.
    Unauthorized,
    /// 403: it is known who asks, and that may not be.
    Forbidden,
    /// 404: no such path.
    NotFound,
    /// 405: the path knows other methods.
    MethodNotAllowed,
    /// 413: the body is larger than allowed.
    RequestEntityTooLarge,
    /// 415: the body is not JSON.
    UnsupportedMediaType,
    /// 422: the object cannot be stored as it is.
    Invalid,
    /// 429: too much is in flight.
    TooManyRequests,
    /// 500: a fault of this program.
    InternalError,
    /// 503: not now.
    ServiceUnavailable,
    /// 504: the caller's deadline passed.
    Timeout,
}

impl StatusReason {
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
            Self::Invalid => 422,
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
            Self::Invalid => "Invalid",
            Self::TooManyRequests => "TooManyRequests",
            Self::InternalError => "InternalError",
            Self::ServiceUnavailable => "ServiceUnavailable",
            Self::Timeout => "Timeout",
        }
    }

    /// The reason that a policy spells so.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "Unauthorized" => Some(Self::Unauthorized),
            "Forbidden" => Some(Self::Forbidden),
            "Invalid" => Some(Self::Invalid),
            "RequestEntityTooLarge" => Some(Self::RequestEntityTooLarge),
            _ => None,
        }
    }
}

impl Serialize for StatusReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
