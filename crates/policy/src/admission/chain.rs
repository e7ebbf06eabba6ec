//! The admission chain for one request: policies, then webhooks, resumed after each
//! call.
//!
//! ```text
//! /mutate    policies ─▶ webhooks, one after another ─▶ both once more, if reinvoked ─▶ patch
//! /validate  policies ─▶ webhooks, all at once ─▶ the first denial, in their order
//!                          │  ▲
//!                      Ask │  │ answers
//!                          ▼  │
//!                    the caller of the run
//! ```
//!
//! A run holds no references and never waits, so it can be kept between two steps. A run
//! without webhooks ends in its first step.
//!
//! Facts: `apiserver/pkg/admission/{chain,reinvocation}.go`, and below
//! `plugin/webhook` `{mutating,validating}/dispatcher.go`.

mod ask;
mod mutating;
mod reply;
mod validating;

use super::authorizer::{AuthorizerVariables, RequestAuthorizer};
use super::run::{Phase, RunContext, RunOptions};
use super::webhook::{Call, WebhookAnswer};
use super::{AdmissionSet, Outcome, Request, outcome, reauthorization};

pub use ask::{Comparison, compare};
use mutating::MutatingPhase;
use validating::{ValidatingPhase, enforce_authorization, validate_own_kinds};

/// One run. A copy of one that rests goes on from there, too.
#[derive(Debug, Clone)]
pub struct Chain {
    phase: Phase,
    state: ChainState,
}

#[derive(Debug, Clone)]
enum ChainState {
    New,
    Mutating(Box<MutatingPhase>),
    Validating(Box<ValidatingPhase>),
    Ended,
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

// === impl Chain ===

impl Chain {
    /// A run that has not begun.
    #[must_use]
    pub const fn new(phase: Phase) -> Self {
        Self {
            phase,
            state: ChainState::New,
        }
    }

    /// Goes on until it ends or has calls to make.
    ///
    /// Set, request and run must say the same each time; clock, access checker and
    /// recorder may be others. `answers` are those to what the last step asked,
    /// in its order, and none for the first; one that is missing is a call that
    /// failed. A run that has ended refuses.
    pub fn advance(
        &mut self,
        set: &AdmissionSet,
        request: &Request<'_>,
        run: RunOptions<'_>,
        answers: Vec<WebhookAnswer>,
    ) -> Progress {
        let authorizer = RequestAuthorizer::new(run.access, &request.user, run.now).within(run.deadline);
        let access = &AuthorizerVariables::new(&authorizer, request);
        let context = RunContext { request, access, run };
        let state = std::mem::replace(&mut self.state, ChainState::Ended);
        let outcome = match (state, self.phase) {
            (ChainState::New, Phase::Mutate) => {
                let mut mutating = MutatingPhase::new();
                match mutating.advance(set, context) {
                    Some(call) => return self.rest(ChainState::Mutating(Box::new(mutating)), vec![call]),
                    None => mutating.outcome(context),
                }
            }
            (ChainState::Mutating(mut mutating), _) => {
                mutating.answered(context, answers.into_iter().next());
                match mutating.advance(set, context) {
                    Some(call) => return self.rest(ChainState::Mutating(mutating), vec![call]),
                    None => mutating.outcome(context),
                }
            }
            (ChainState::New, Phase::Validate) => {
                let mut begun = enforce_authorization(set, request, run);
                if begun.denial.is_none() {
                    validate_own_kinds(request, run, &mut begun);
                }
                if begun.denial.is_some() {
                    return Progress::Done(Box::new(begun));
                }
                let reviewed = reauthorization::review(set, context);
                if reviewed.denial.is_some() {
                    return Progress::Done(Box::new(reviewed));
                }
                let mut validating = ValidatingPhase::new(set, context, begun, reviewed);
                let calls = validating.matched(set, context);
                if !calls.is_empty() {
                    return self.rest(ChainState::Validating(Box::new(validating)), calls);
                }
                validating.answered(set, context, Vec::new())
            }
            (ChainState::Validating(validating), _) => validating.answered(set, context, answers),
            (ChainState::Ended, _) => ended(),
        };
        Progress::Done(Box::new(outcome))
    }

    fn rest(&mut self, state: ChainState, calls: Vec<Call>) -> Progress {
        self.state = state;
        Progress::Ask(calls)
    }

    /// Runs to the end with somebody who answers on the spot.
    #[must_use]
    pub fn run(
        phase: Phase,
        set: &AdmissionSet,
        request: &Request<'_>,
        run: RunOptions<'_>,
        ask: &mut dyn FnMut(&Call) -> WebhookAnswer,
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
        denial: Some(outcome::internal("the run of admission has ended".to_owned())),
        ..Outcome::default()
    }
}

#[cfg(test)]
mod tests;
