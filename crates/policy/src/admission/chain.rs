//! The admission chain for one request: first policies, then webhooks. It is suspended for calls of
//! webhooks.
//!
//! ```text
//! /mutate    policies ─▶ webhooks, one after another ─▶ both once more, if reinvoked ─▶ patch
//! /validate  policies ─▶ webhooks, concurrently ─▶ the first denial, in their order
//!                          │  ▲
//!                      Ask │  │ results
//!                          ▼  │
//!                    the caller of the run
//! ```
//!
//! A [`Chain`] holds no references and never waits, so it can be kept while calls are in flight.
//! Without webhooks, the first step completes it.
//!
//! Follows `apiserver/pkg/admission/{chain,reinvocation}.go` and
//! `apiserver/pkg/admission/plugin/webhook/{mutating,validating}/dispatcher.go`.

mod ask;
mod mutating;
mod reply;
mod validating;

use super::authorizer::{AuthorizerVariables, RequestAuthorizer};
use super::run::{Phase, RunContext, RunOptions};
use super::webhook::{Call, WebhookCallResult};
use super::{AdmissionSet, Outcome, Request, outcome, reauthorization};

pub use ask::{Comparison, shadow_result};
use mutating::MutatingPhase;
use validating::{ValidatingPhase, enforce_authorization, validate_own_kinds};

/// One run of the chain. A clone of a suspended run can be resumed independently.
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

/// The result of one step of a run.
#[derive(Debug)]
pub enum Progress {
    /// These calls are to be made concurrently. [`Chain::advance`] takes their results in the same
    /// order.
    Calls(Vec<Call>),
    /// The run is complete.
    Done(Box<Outcome>),
}

// === impl Chain ===

impl Chain {
    /// Creates a run that has not started.
    #[must_use]
    pub const fn new(phase: Phase) -> Self {
        Self {
            phase,
            state: ChainState::New,
        }
    }

    /// Runs until the chain is complete or has calls to make.
    ///
    /// `set`, `request` and `run` must be the same at each call, except for the clock, access
    /// checker and recorder. `answers` are the results of the calls of the previous step, in their
    /// order, and empty for the first step; a missing result counts as a failed call. A completed
    /// run denies the request.
    pub fn advance(
        &mut self,
        set: &AdmissionSet,
        request: &Request<'_>,
        run: RunOptions<'_>,
        answers: Vec<WebhookCallResult>,
    ) -> Progress {
        let authorizer = RequestAuthorizer::new(run.access, &request.user, run.now).within(run.deadline);
        let access = &AuthorizerVariables::new(&authorizer, request);
        let context = RunContext { request, access, run };
        let state = std::mem::replace(&mut self.state, ChainState::Ended);
        let outcome = match (state, self.phase) {
            (ChainState::New, Phase::Mutate) => {
                let mut mutating = MutatingPhase::new();
                match mutating.advance(set, context) {
                    Some(call) => return self.suspend(ChainState::Mutating(Box::new(mutating)), vec![call]),
                    None => mutating.outcome(context),
                }
            }
            (ChainState::Mutating(mut mutating), _) => {
                mutating.complete_call(context, answers.into_iter().next());
                match mutating.advance(set, context) {
                    Some(call) => return self.suspend(ChainState::Mutating(mutating), vec![call]),
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
                let calls = validating.match_webhooks(set, context);
                if !calls.is_empty() {
                    return self.suspend(ChainState::Validating(Box::new(validating)), calls);
                }
                validating.complete(set, context, Vec::new())
            }
            (ChainState::Validating(validating), _) => validating.complete(set, context, answers),
            (ChainState::Ended, _) => ended(),
        };
        Progress::Done(Box::new(outcome))
    }

    fn suspend(&mut self, state: ChainState, calls: Vec<Call>) -> Progress {
        self.state = state;
        Progress::Calls(calls)
    }

    /// Runs the whole chain, with `ask` making the calls.
    #[must_use]
    pub fn run(
        phase: Phase,
        set: &AdmissionSet,
        request: &Request<'_>,
        run: RunOptions<'_>,
        ask: &mut dyn FnMut(&Call) -> WebhookCallResult,
    ) -> Outcome {
        let mut chain = Self::new(phase);
        let mut answers = Vec::new();
        loop {
            match chain.advance(set, request, run, answers) {
                Progress::Calls(calls) => answers = calls.iter().map(&mut *ask).collect(),
                Progress::Done(outcome) => return *outcome,
            }
        }
    }
}

/// A completed run must not decide again, and no decision has a default.
fn ended() -> Outcome {
    Outcome {
        denial: Some(outcome::internal("the run of admission has ended".to_owned())),
        ..Outcome::default()
    }
}

#[cfg(test)]
mod tests;
