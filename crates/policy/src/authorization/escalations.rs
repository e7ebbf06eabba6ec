//! Who can become whom: by which steps a subject gets at what another subject may do.
//!
//! ```text
//! steps: kinds, each with the questions that it needs
//!   │
//!   ▼
//! reach: what each subject is allowed of these questions, Deny policies included
//!   │
//!   ▼
//! graph: actor ──step──▶ targets ──▶ actors, to a fixpoint
//!   │
//!   ▼
//! paths: the shortest, and what each step of them needs
//! ```
//!
//! A step is taken where the engine allows what it needs. One that only a Deny policy prevents is
//! kept apart, with the policy's name.

mod actors;
mod graph;
mod known_steps;
mod paths;
mod query;
mod reach;
mod steps;
#[cfg(test)]
mod tests;

use graph::Graph;
use query::Universe;
use reach::Questions;

use super::PolicySet;
use crate::model::{Deadline, Time};

pub(crate) use known_steps::RUNS;
pub use known_steps::STEP_KINDS;
pub use query::{
    EscalationPath, EscalationQuery, EscalationStep, EscalationTarget, Escalations, Identity, NeededWorkload,
    ObjectName, WorkloadAdmission,
};
pub use steps::StepKind;

// === impl PolicySet ===

impl PolicySet {
    /// The shortest paths that answer `query` at `now`. `None` where that takes longer than until
    /// `deadline`.
    ///
    /// Subjects are those that bindings and Allow policies name; service accounts also the
    /// `default` of each namespace that is named. A user may be in any group, but the groups of
    /// service accounts are known. Takes time linear in the bindings and, where policies tell
    /// namespaces apart, in these.
    #[must_use]
    pub fn escalations(
        &self,
        query: &EscalationQuery,
        now: Time,
        deadline: Deadline<'_>,
    ) -> Option<Escalations> {
        let universe = Universe::of(self, query);
        let requests = universe.requests.iter().map(|(request, name)| (request, *name));
        let questions = Questions::new(self, &universe.namespaces, requests, now);
        let mut graph = Graph::of(self, &universe, questions, deadline)?;
        Some(graph.answer(query))
    }
}
