//! What became of one validation of a ValidatingAdmissionPolicy.

use crate::engine::StatusReason;

/// What became of one validation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValidationDecision {
    /// It holds.
    Admit,
    /// It does not.
    Deny {
        /// What to tell the user.
        message: String,
        /// Why to say that the request is refused.
        reason: StatusReason,
    },
    /// It could not be evaluated, and the failure policy refuses the request.
    Error {
        /// Why.
        message: String,
    },
    /// It could not be evaluated, and the failure policy lets that pass.
    Ignored {
        /// Why.
        message: String,
    },
}

impl ValidationDecision {
    /// Message and reason, if the request is to be refused.
    pub(crate) fn failure(&self) -> Option<(&str, StatusReason)> {
        match self {
            Self::Admit | Self::Ignored { .. } => None,
            Self::Deny { message, reason } => Some((message, *reason)),
            Self::Error { message } => Some((message, StatusReason::Invalid)),
        }
    }
}
