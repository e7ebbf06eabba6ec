//! A denial: the `metav1.Status` that refuses a request.

use std::borrow::Cow;

use crate::model::StatusReason;

/// Why a request is refused, as a `metav1.Status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// `Failure`, but webhooks give what they like.
    pub status: Cow<'static, str>,
    /// What sort of refusal: mostly one of [`StatusReason`], but webhooks give what they like.
    pub reason: Cow<'static, str>,
    /// The HTTP status code; mostly that of the reason.
    pub code: i32,
    /// What and why, for the user.
    pub message: String,
    /// What it is about.
    pub details: StatusDetails,
}

/// `metav1.StatusDetails`; what is empty is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatusDetails {
    /// The name of the object.
    pub name: String,
    /// The group of the resource.
    pub group: String,
    /// The resource, which Kubernetes calls its kind here.
    pub kind: String,
    /// The uid of the object.
    pub uid: String,
    /// Each cause.
    pub causes: Vec<StatusCause>,
    /// After how many seconds to try again; 0 if nobody says.
    pub retry_after_seconds: i32,
}

/// `metav1.StatusCause`; what is empty is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatusCause {
    /// What sort of cause.
    pub reason: String,
    /// What and why, for people.
    pub message: String,
    /// The field of the object.
    pub field: String,
}

// === impl Denial ===

impl Denial {
    /// The `status` of a refusal.
    pub const FAILURE: &'static str = "Failure";

    /// A refusal of what could be stored and may not be.
    #[must_use]
    pub fn forbidden(message: String) -> Self {
        Self {
            status: Self::FAILURE.into(),
            reason: StatusReason::Forbidden.as_str().into(),
            code: StatusReason::Forbidden.code().into(),
            message,
            details: StatusDetails::default(),
        }
    }

    /// A refusal because too much is being reviewed.
    #[must_use]
    pub fn too_many_requests(message: String) -> Self {
        Self {
            status: Self::FAILURE.into(),
            reason: StatusReason::TooManyRequests.as_str().into(),
            code: StatusReason::TooManyRequests.code().into(),
            message,
            details: StatusDetails::default(),
        }
    }

    /// About how many bytes of memory it holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let Self {
            status,
            reason,
            message,
            details,
            ..
        } = self;
        let own = [status.len(), reason.len(), message.len()];
        let about = [&details.name, &details.group, &details.kind, &details.uid].map(String::len);
        let causes = details.causes.iter().map(|cause| {
            size_of::<StatusCause>() + cause.reason.len() + cause.message.len() + cause.field.len()
        });
        size_of::<Self>() + own.into_iter().chain(about).chain(causes).sum::<usize>()
    }
}

// === impl StatusDetails ===

impl StatusDetails {
    /// Whether there is nothing to tell.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

// === impl StatusCause ===

impl StatusCause {
    /// A cause of which only the words are known.
    #[must_use]
    pub fn of(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            ..Self::default()
        }
    }
}
