//! The result of authorization: decision, reason, cause, and why nothing matched.

use std::sync::Arc;

use serde::Serialize;

use super::AuthorizationReason;
use super::trace::Event;
use crate::engine::{Cause, CauseKind, Decision};

/// The answer to one question, and what it rests on: it points to objects of the set that
/// was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authorization<'s> {
    /// The answer.
    pub decision: Decision,
    /// What decided, for the person who asked. Empty without opinion;
    /// [`PolicySet::unmatched`](super::PolicySet::unmatched) says more.
    pub reason: AuthorizationReason<'s>,
    /// The object that decided; `None` without opinion.
    pub cause: Option<Cause<'s>>,
    /// What policies in Shadow would have decided, by name. They changed nothing.
    pub shadow: Vec<Shadow>,
    /// How many rules of bindings and policies were compared with the request.
    pub visited: usize,
}

/// What a policy in Shadow would have decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shadow {
    /// Its kind.
    pub kind: CauseKind,
    /// Its name.
    pub name: Arc<str>,
    /// What it would have decided where it counts; by its failure policy where a
    /// condition had no result.
    pub decision: Decision,
    /// Why a condition had no result.
    pub error: Option<String>,
}

/// Why nothing decided: for the log and the command line, not for the person refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Unmatched {
    /// How many bindings apply to the user where the request is; of each of the
    /// user's names and groups at most 1,000 are counted.
    pub bindings: usize,
    /// How many AuthorizationPolicies hold at the time.
    pub policies: usize,
    /// Roles that are bound to the user and cannot be found, in kube-apiserver's
    /// words, at most [`Unmatched::MAX_ERRORS`].
    pub errors: Vec<String>,
    /// The bindings and policies that fit best, the best first, each with its nearest rule and
    /// what of it does not fit; at most [`Unmatched::MAX_NEAREST`].
    pub nearest: Vec<Event>,
}

// === impl Authorization ===

impl Authorization<'_> {
    /// The same, with texts of its own.
    #[must_use]
    pub fn into_owned(self) -> Authorization<'static> {
        Authorization {
            decision: self.decision,
            reason: self.reason.into_owned(),
            cause: self.cause.map(Cause::into_owned),
            shadow: self.shadow,
            visited: self.visited,
        }
    }
}

// === impl Unmatched ===

impl Unmatched {
    /// The most missing roles that are named.
    pub const MAX_ERRORS: usize = 10;

    /// The most bindings and policies that are named as nearest.
    pub const MAX_NEAREST: usize = 5;
}
