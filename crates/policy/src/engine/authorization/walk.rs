//! The walk through Deny policies, RBAC and Allow policies, recorded or not.

mod bindings;
mod considered;
mod evaluate;
mod event;
mod group;
mod near_misses;
mod reason;
mod request;
mod unmatched;

use super::trace::{Event, Observer, Trace};
use super::{Authorization, AuthorizationReason, Shadow};
use crate::engine::{Decision, PolicyResult};

pub(super) use request::WalkRequest;

/// What is reported of a walk.
pub(super) trait WalkRecorder {
    /// Whether what does not apply is wanted too.
    const DETAILED: bool;

    fn evaluated(&mut self, policy: usize, evaluation: PolicyResult);

    fn spent(&mut self, policy: usize, cost: u64);

    fn record(&mut self, event: Event);
}

/// Reports to an observer only.
pub(super) struct Quiet<'o, O>(pub(super) &'o mut O);

/// Keeps everything.
#[derive(Default)]
pub(super) struct Recording(pub(super) Trace);

/// One request on its way to a decision.
pub(super) struct Walk<'q, 's, 'r, R> {
    request: &'q WalkRequest<'s, 'r>,
    visited: usize,
    shadow: Vec<Shadow>,
    recorder: R,
}

// === impl Quiet ===

impl<O: Observer> WalkRecorder for Quiet<'_, O> {
    const DETAILED: bool = false;

    fn evaluated(&mut self, policy: usize, evaluation: PolicyResult) {
        self.0.evaluated(policy, evaluation);
    }

    fn spent(&mut self, policy: usize, cost: u64) {
        self.0.spent(policy, cost);
    }

    fn record(&mut self, _: Event) {}
}

impl WalkRecorder for Recording {
    const DETAILED: bool = true;

    fn evaluated(&mut self, _: usize, _: PolicyResult) {}

    fn spent(&mut self, _: usize, _: u64) {}

    fn record(&mut self, event: Event) {
        self.0.record(event);
    }
}

// === impl Walk ===

impl<'q, 's, 'r, R: WalkRecorder> Walk<'q, 's, 'r, R> {
    pub(super) const fn new(request: &'q WalkRequest<'s, 'r>, recorder: R) -> Self {
        Self {
            request,
            visited: 0,
            shadow: Vec::new(),
            recorder,
        }
    }

    /// Walks to the first thing that decides.
    pub(super) fn decide(mut self) -> (Authorization<'s>, R) {
        let set = self.request.set;
        self.first_deciding(&set.shadow);
        let (decision, reason, cause) = if let Some(applied) = self.first_deciding(&set.deny) {
            Self::by_policy(Decision::Deny, &applied)
        } else if let Some(grant) = self.rbac() {
            self.by_grant(grant)
        } else if let Some(applied) = self.first_deciding(&set.allow) {
            Self::by_policy(Decision::Allow, &applied)
        } else {
            (Decision::NoOpinion, AuthorizationReason::default(), None)
        };
        let Self {
            shadow,
            visited,
            recorder,
            ..
        } = self;
        let authorization = Authorization {
            decision,
            reason,
            cause,
            shadow,
            visited,
        };
        (authorization, recorder)
    }
}
