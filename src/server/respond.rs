//! Rejections, and the replies to requests.

use actix_web::web::Bytes;
use thiserror::Error;

use super::pool::JobError;
use crate::identity::Refusal;
use crate::state::Snapshot;
use portcullis_policy::api::{AdmissionReviewError, Status, SubjectAccessReviewError};
use portcullis_policy::model::StatusReason;

/// Why a request is not answered with a review. The message is sent to the caller.
#[derive(Debug, Error)]
pub(crate) enum Rejection {
    /// Nothing is served at this path.
    #[error("no such path")]
    NotFound,
    /// The path accepts POST only.
    #[error("only POST is allowed")]
    MethodNotAllowed,
    /// The gateway is not ready yet.
    #[error("the gateway is starting")]
    Starting,
    /// No objects of the caller's cluster are known yet.
    #[error("the objects of the cluster are not known yet")]
    Unsynced,
    /// Files of the caller's cluster have faults, and there are no earlier ones.
    #[error(
        "the policies of the cluster are not known: its own files have errors, and the gateway has no earlier \
        version; its log lists them"
    )]
    FaultyFiles,
    /// The caller is unknown or not authorized.
    #[error("{}", refusal.message())]
    Refused {
        /// The reason.
        refusal: Refusal,
        /// The value of `WWW-Authenticate`.
        challenge: String,
    },
    /// The headers do not declare a JSON body.
    #[error("the body must be of type application/json, in UTF-8 and not compressed")]
    UnsupportedMediaType,
    /// The timeout in the query is not a duration.
    #[error("the timeout in the query is not a duration such as 3s")]
    InvalidTimeout,
    /// The gateway made the call itself.
    #[error(
        "this gateway sent the call itself (`{pseudonym}` is in the Via header): the address of a webhook or \
        authorizer in its configuration leads back to this gateway"
    )]
    Loop {
        /// The pseudonym that the gateway uses in `Via`.
        pseudonym: String,
    },
    /// The body is too large.
    #[error("the body is larger than {limit} bytes")]
    TooLarge {
        /// `limits.bodyBytes`.
        limit: usize,
    },
    /// The limit of requests or bytes in flight for this cluster is reached.
    #[error("too many requests are in flight")]
    TooManyRequests,
    /// The body did not arrive in time.
    #[error("the deadline passed before the body was received")]
    BodyDeadlineExceeded,
    /// The gateway is shutting down, and the body did not arrive by the end of
    /// `server.shutdownTimeout`.
    #[error("the gateway is shutting down")]
    ShuttingDown,
    /// The connection was lost within the body, or its framing is invalid.
    #[error("the body was not received completely")]
    Incomplete,
    /// The review was not answered before its deadline.
    #[error("the deadline passed before the review was answered")]
    ReviewDeadlineExceeded,
    /// The path names a policy or webhook configuration that does not exist.
    #[error("there is no policy or webhook configuration `{name}` for this endpoint")]
    NoSuchPolicy {
        /// The name in the path.
        name: String,
    },
    /// The body is not a valid AdmissionReview.
    #[error("{0}")]
    AdmissionReview(#[from] AdmissionReviewError),
    /// An internal error.
    #[error("internal error")]
    Internal,
    /// The body is not a valid SubjectAccessReview.
    #[error("{}", .0.message())]
    Review(#[from] SubjectAccessReviewError),
}

impl From<JobError> for Rejection {
    fn from(unfinished: JobError) -> Self {
        match unfinished {
            JobError::TooLate => Self::ReviewDeadlineExceeded,
            JobError::Panicked => Self::Internal,
        }
    }
}

// === impl Rejection ===

impl Rejection {
    /// The rejection of a caller, with the challenge of the authenticator in force.
    pub(crate) fn of(refusal: Refusal, snapshot: &Snapshot) -> Self {
        let challenge = snapshot.authenticator.challenge().to_owned();
        Self::Refused { refusal, challenge }
    }

    /// The reply.
    pub(crate) fn reply(&self) -> Reply {
        let status = self.status();
        let field = match self {
            Self::MethodNotAllowed => Some(ReplyField::Allow("POST")),
            Self::Refused { refusal, challenge } if refusal.status() == 401 => {
                Some(ReplyField::Challenge(challenge.clone()))
            }
            _ => status.retry_after.map(ReplyField::RetryAfter),
        };
        Reply {
            code: status.reason.code(),
            field,
            body: status.encode().into(),
            closes_connection: false,
        }
    }

    fn status(&self) -> Status {
        let status = Status::new(self.reason(), self.to_string());
        match self {
            Self::Starting
            | Self::Unsynced
            | Self::FaultyFiles
            | Self::ShuttingDown
            | Self::TooManyRequests => status.retry_after(1),
            _ => status,
        }
    }

    fn reason(&self) -> StatusReason {
        match self {
            Self::NotFound | Self::NoSuchPolicy { .. } => StatusReason::NotFound,
            Self::MethodNotAllowed => StatusReason::MethodNotAllowed,
            Self::Starting | Self::Unsynced | Self::FaultyFiles | Self::ShuttingDown => {
                StatusReason::ServiceUnavailable
            }
            Self::Refused { refusal, .. } if refusal.status() == 401 => StatusReason::Unauthorized,
            Self::Refused { .. } => StatusReason::Forbidden,
            Self::UnsupportedMediaType => StatusReason::UnsupportedMediaType,
            Self::TooLarge { .. } => StatusReason::RequestEntityTooLarge,
            Self::TooManyRequests => StatusReason::TooManyRequests,
            Self::BodyDeadlineExceeded | Self::ReviewDeadlineExceeded => StatusReason::Timeout,
            Self::Internal => StatusReason::InternalError,
            Self::InvalidTimeout
            | Self::Loop { .. }
            | Self::Incomplete
            | Self::Review(_)
            | Self::AdmissionReview(_) => StatusReason::BadRequest,
        }
    }
}

/// The content type of every body on the `server` listener.
pub(crate) const JSON: &str = "application/json";

/// A response, independent of the HTTP version. Its body is [`JSON`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    /// The HTTP status.
    pub(crate) code: u16,
    /// A header field that only some replies have.
    pub(crate) field: Option<ReplyField>,
    pub(crate) body: Bytes,
    /// Whether the client should use another connection from now on.
    pub(crate) closes_connection: bool,
}

/// A header field that only some replies have.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReplyField {
    /// `Allow`: the allowed methods.
    Allow(&'static str),
    /// `Retry-After`: in seconds.
    RetryAfter(u32),
    /// `WWW-Authenticate`
    Challenge(String),
}

// === impl Reply ===

impl Reply {
    /// A reply with a review.
    pub(crate) const fn review(body: Bytes) -> Self {
        Self {
            code: 200,
            field: None,
            body,
            closes_connection: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_to_come_again_is_told_when() {
        for (rejection, code) in [
            (Rejection::Starting, 503),
            (Rejection::Unsynced, 503),
            (Rejection::FaultyFiles, 503),
            (Rejection::ShuttingDown, 503),
            (Rejection::TooManyRequests, 429),
        ] {
            let reply = rejection.reply();
            assert_eq!(
                (reply.code, reply.field),
                (code, Some(ReplyField::RetryAfter(1))),
                "{rejection}"
            );
        }
        assert_eq!(Rejection::ReviewDeadlineExceeded.reply().field, None);
    }
}
