//! The whole of admission for one request, as a run that asks and is answered.
//!
//! ```text
//! /mutate    policies ─▶ webhooks, one after another ─▶ both once more, if reinvoked ─▶ patch
//! /validate  policies ─▶ webhooks, all at once ─▶ the first denial, in their order
//!                          │  ▲
//!                      Ask │  │ answers
//!                          ▼  │
//!                    whoever drives the run
//! ```
//!
//! A run holds no reference and waits for nothing, so that it may rest between
//! two steps wherever its driver likes. A run without webhooks ends in its
//! first step.
//!
//! Facts: `apiserver/pkg/admission/{chain,reinvocation}.go`, and below
//! `plugin/webhook` `{mutating,validating}/dispatcher.go`.

use super::admit::Run;
use super::webhook::{Answer, Call};
use super::{AdmissionSet, Denial, Details, Outcome, Reason, Request};

/// Which half of admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Who may refuse: `/validate`.
    Validate,
    /// Who may change: `/mutate`.
    Mutate,
}

/// One run.
#[derive(Debug)]
pub struct Chain {
    phase: Phase,
    is_over: bool,
}

/// How far a run is.
#[derive(Debug)]
pub enum Progress {
    /// These are to be asked, all at once. [`Chain::advance`] takes their
    /// answers in the same order.
    Ask(Vec<Call>),
    /// The end.
    Done(Box<Outcome>),
}

// === impl Phase ===

impl Phase {
    /// How many there are.
    pub const COUNT: usize = 2;
    /// Each once, in the order of [`index`](Self::index).
    pub const ALL: [Self; Self::COUNT] = [Self::Validate, Self::Mutate];

    /// The place among all.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// As paths, metrics and logs spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Validate => "validate",
            Self::Mutate => "mutate",
        }
    }
}

// === impl Chain ===

impl Chain {
    /// A run that has not begun.
    #[must_use]
    pub const fn new(phase: Phase) -> Self {
        Self {
            phase,
            is_over: false,
        }
    }

    /// Goes on as far as it can.
    ///
    /// Set, request and run must say the same each time; clock, authority and
    /// recorder may be others. `answers` are those to what the last step asked,
    /// in its order, and none for the first. A run that has ended refuses.
    pub fn advance(
        &mut self,
        set: &AdmissionSet,
        request: &Request<'_>,
        run: Run<'_>,
        _answers: Vec<Answer>,
    ) -> Progress {
        if std::mem::replace(&mut self.is_over, true) {
            return Progress::Done(Box::new(ended()));
        }
        let outcome = match self.phase {
            Phase::Validate => set.validate(request, run),
            Phase::Mutate => set.mutate(request, run),
        };
        Progress::Done(Box::new(outcome))
    }

    /// Runs to the end with somebody who answers on the spot.
    #[must_use]
    pub fn run(
        phase: Phase,
        set: &AdmissionSet,
        request: &Request<'_>,
        run: Run<'_>,
        ask: &mut dyn FnMut(&Call) -> Answer,
    ) -> Outcome {
        let mut chain = Self::new(phase);
        let mut answers = Vec::new();
        loop {
            match chain.advance(set, request, run, answers) {
                Progress::Ask(calls) => answers = calls.iter().map(&mut *ask).collect(),
                Progress::Done(outcome) => return *outcome,
            }
        }
    }
}

/// Nothing is decided twice, and nothing by default.
fn ended() -> Outcome {
    Outcome {
        denial: Some(Denial {
            status: Denial::FAILURE.into(),
            reason: Reason::InternalError.as_str().into(),
            code: Reason::InternalError.code(),
            message: "Internal error occurred: the run of admission has ended".to_owned(),
            details: Details::default(),
        }),
        ..Outcome::default()
    }
}
