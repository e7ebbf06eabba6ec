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

mod annotations;
mod ask;
mod mutating;
mod patch;
mod reinvocation;
mod shadow;
mod status;
mod validating;

use super::admit::{Context, Run};
use super::authorizer::{Access, Authorizer};
use super::judge::judged;
use super::policy::FailurePolicy;
use super::webhook::{Answer, Call, CallFailure, Reply, ReviewVersion, Verdict, Webhook};
use super::webhooks::Listed;
use super::{AdmissionSet, Denial, Outcome, Request};
use crate::engine::{Cause, CauseKind};

use mutating::Mutating;
pub(super) use reinvocation::Reinvocable;
pub use shadow::{Comparison, compare};
use validating::Validating;

/// Which half of admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Who may refuse: `/validate`.
    Validate,
    /// Who may change: `/mutate`.
    Mutate,
}

/// One run. A copy of one that rests goes on from there, too.
#[derive(Debug, Clone)]
pub struct Chain {
    phase: Phase,
    state: State,
}

#[derive(Debug, Clone)]
enum State {
    New,
    Mutating(Box<Mutating>),
    Validating(Box<Validating>),
    Ended,
}

/// Why a webhook does not simply allow a request.
#[derive(Debug, Clone)]
enum Objection {
    /// It refuses.
    Denial(Box<Denial>),
    /// It could not be asked or not be believed: under its failurePolicy.
    Call(String),
    /// The request is refused, whatever it said and its failurePolicy says.
    Fatal(Box<Denial>),
    /// The deadline of the request itself passed, likewise.
    Expired,
    /// There are too many calls already, likewise.
    NotMade(String),
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
            state: State::New,
        }
    }

    /// Goes on as far as it can.
    ///
    /// Set, request and run must say the same each time; clock, authority and
    /// recorder may be others. `answers` are those to what the last step asked,
    /// in its order, and none for the first; one that is missing is a call that
    /// failed. A run that has ended refuses.
    pub fn advance(
        &mut self,
        set: &AdmissionSet,
        request: &Request<'_>,
        run: Run<'_>,
        answers: Vec<Answer>,
    ) -> Progress {
        let authorizer = Authorizer::new(run.access, &request.user, run.now);
        let access = &Access::new(&authorizer, request);
        let context = Context { request, access, run };
        let state = std::mem::replace(&mut self.state, State::Ended);
        let outcome = match (state, self.phase) {
            (State::New, Phase::Mutate) => {
                let mut mutating = Mutating::new();
                match mutating.advance(set, context) {
                    Some(call) => return self.rest(State::Mutating(Box::new(mutating)), vec![call]),
                    None => mutating.outcome(context),
                }
            }
            (State::Mutating(mut mutating), _) => {
                mutating.answered(context, answers.into_iter().next());
                match mutating.advance(set, context) {
                    Some(call) => return self.rest(State::Mutating(mutating), vec![call]),
                    None => mutating.outcome(context),
                }
            }
            (State::New, Phase::Validate) => {
                let judged = judged(request, run);
                if judged.denial.is_some() {
                    return Progress::Done(Box::new(judged));
                }
                let mut validating = Validating::new(set, context, &judged);
                let calls = validating.matched(set, context);
                if !calls.is_empty() {
                    return self.rest(State::Validating(Box::new(validating)), calls);
                }
                validating.answered(set, context, Vec::new())
            }
            (State::Validating(validating), _) => validating.answered(set, context, answers),
            (State::Ended, _) => ended(),
        };
        Progress::Done(Box::new(outcome))
    }

    fn rest(&mut self, state: State, calls: Vec<Call>) -> Progress {
        self.state = state;
        Progress::Ask(calls)
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
        denial: Some(status::internal("the run of admission has ended".to_owned())),
        ..Outcome::default()
    }
}

// === impl Objection ===

impl Objection {
    /// What a call came to, if there was an answer at all.
    fn to(result: Option<Result<Reply, CallFailure>>) -> Result<Reply, Self> {
        match result {
            Some(Ok(reply)) => Ok(reply),
            Some(Err(CallFailure::Failed(why))) => Err(Self::Call(why)),
            Some(Err(CallFailure::RequestExpired)) => Err(Self::Expired),
            Some(Err(CallFailure::NotMade(why))) => Err(Self::NotMade(why)),
            None => Err(Self::Call("failed to call webhook: nobody answered".to_owned())),
        }
    }

    fn verdict(&self, webhook: &Webhook) -> Verdict {
        let message = match self {
            Self::Denial(denial) => return Verdict::Denied(denial.message.clone()),
            Self::Call(why) | Self::NotMade(why) => why.clone(),
            Self::Fatal(denial) => denial.message.clone(),
            Self::Expired => CallFailure::RequestExpired.to_string(),
        };
        Verdict::Failed {
            message,
            is_ignored: self.is_ignored(webhook),
        }
    }

    fn is_ignored(&self, webhook: &Webhook) -> bool {
        matches!(self, Self::Call(_)) && webhook.failure_policy == FailurePolicy::Ignore
    }

    /// What refuses the request; none if the failure is passed over.
    fn refusal(self, webhook: &Webhook) -> Option<Denial> {
        if self.is_ignored(webhook) {
            return None;
        }
        Some(match self {
            Self::Denial(denial) | Self::Fatal(denial) => *denial,
            Self::Call(why) => status::failed_call(webhook, &why),
            Self::Expired => status::timeout(),
            Self::NotMade(why) => status::not_made(webhook, &why),
        })
    }
}

/// Passes on what the webhook says beside its verdict, also when it refuses.
fn hear(outcome: &mut Outcome, webhook: &Webhook, reply: &Reply) {
    annotations::own(&mut outcome.audit_annotations, webhook, &reply.audit_annotations);
    for warning in &reply.warnings {
        outcome.warnings.push(warning);
    }
}

/// The webhook as what refused the request.
fn cause(phase: Phase, listed: &Listed) -> Cause {
    let is_alpha = listed.webhook.version == Some(ReviewVersion::V1alpha1);
    Cause {
        kind: match phase {
            _ if is_alpha => CauseKind::ExternalAdmissionHookConfiguration,
            Phase::Mutate => CauseKind::MutatingWebhookConfiguration,
            Phase::Validate => CauseKind::ValidatingWebhookConfiguration,
        },
        namespace: String::new(),
        name: listed.webhook.configuration.clone(),
        rule: Some(listed.position),
    }
}

#[cfg(test)]
mod tests;
