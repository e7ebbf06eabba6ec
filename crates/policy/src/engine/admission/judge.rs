//! Validation of the gateway's own kinds when they are created or updated.

use super::denial::StatusCause;
use super::request::Request;
use crate::engine::{Deadline, Time};

/// Knows what may be written of the gateway's own kinds.
pub trait Judge: Sync {
    /// What is wrong with the object of `request` as at `now`; `None` where it is
    /// of another kind, or nothing that is judged is done to it. Once the deadline has passed,
    /// what is said means nothing.
    fn judge(&self, request: &Request<'_>, now: Time, deadline: Deadline<'_>) -> Option<Judgement>;
}

/// What `check` would say of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Judgement {
    /// Why it cannot be used; empty where it can.
    pub faults: Vec<StatusCause>,
    /// What it probably is not meant to do.
    pub warnings: Vec<String>,
}
