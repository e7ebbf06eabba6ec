//! Kubernetes wire types: SubjectAccessReview, AdmissionReview, Status.
//!
//! ```text
//! bytes ──decode──▶ SubjectAccessReview { version, attributes } ──▶ engine
//! bytes ◀─encode── SubjectAccessReviewReply { decision, reason } ◀──┘
//!       ◀─encode── Status                        (what is not a review)
//! ```
//!
//! API versions differ only in this module: all are decoded into one internal type, and a reply has
//! the version of its request.

mod admission_review;
mod subject_access_review;

use std::borrow::Cow;

use serde::Serialize;

use crate::model::{StatusReason, truncate};

pub use admission_review::{
    AdmissionReview, AdmissionReviewError, OwnedAdmissionReview, ReviewVersion, encode_review, verify,
    verify_decoded,
};
pub use subject_access_review::{
    AuthorizerReply, ReplyError, SubjectAccessReview, SubjectAccessReviewError, SubjectAccessReviewReply,
};

/// The longest message that is sent, in bytes. It may quote what the sender wrote.
const MESSAGE_BYTES: usize = 1024;

/// A failure as a Kubernetes `Status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The kind of failure.
    pub reason: StatusReason,
    /// The message for people.
    pub message: String,
    /// The number of seconds after which a retry makes sense.
    pub retry_after: Option<u32>,
}

#[derive(Serialize)]
struct WireStatus<'a> {
    kind: &'static str,
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    metadata: Empty,
    status: &'static str,
    message: &'a str,
    reason: StatusReason,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<RetryDetails>,
    code: u16,
}

#[derive(Serialize)]
struct Empty {}

#[derive(Serialize)]
struct RetryDetails {
    #[serde(rename = "retryAfterSeconds")]
    retry_after_seconds: u32,
}

// === impl Status ===

impl Status {
    /// A failure for which a retry is pointless.
    #[must_use]
    pub fn new(reason: StatusReason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            retry_after: None,
        }
    }

    /// The same failure, with a retry suggested after `seconds`.
    #[must_use]
    pub fn retry_after(self, seconds: u32) -> Self {
        Self {
            retry_after: Some(seconds),
            ..self
        }
    }

    /// The JSON body. A message longer than 1 KiB is cut.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let wire = WireStatus {
            kind: "Status",
            api_version: "v1",
            metadata: Empty {},
            status: "Failure",
            message: truncate(&self.message, MESSAGE_BYTES),
            reason: self.reason,
            details: self
                .retry_after
                .map(|retry_after_seconds| RetryDetails { retry_after_seconds }),
            code: self.reason.code(),
        };
        // Strings and numbers always serialise. If they did not, the HTTP code alone would tell of
        // the failure.
        serde_json::to_vec(&wire).unwrap_or_default()
    }
}

// Strings as Go's `encoding/json` reads them, and as errors quote them.

/// The longest quote of a received kind or version in an error, in bytes.
const EXCERPT_BYTES: usize = 64;

/// The part of a received kind or version that an error quotes.
pub(crate) fn excerpt(text: &str) -> String {
    truncate(text, EXCERPT_BYTES).to_owned()
}

/// Replaces every byte outside valid UTF-8 by one U+FFFD, as Go's `utf8.DecodeRune` does: a string
/// that a user chose must not make a review fail.
pub(crate) fn utf8(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests;
