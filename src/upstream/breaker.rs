//! The circuit breaker of one webhook.
//!
//! ```text
//!            failures in a row                    openFor is over
//!  closed ─────────────────────▶ open ──────────────────────────────▶ half open
//!    ▲                            ▲   (calls fail at once)             │ one call probes
//!    └──── it is there ───────────┼────────────────────────────────────┤
//!                                 └──── it is not ─────────────────────┘
//! ```
//!
//! Only failures that no request can cause are counted, namely that the webhook is
//! unreachable. Otherwise a user could open the circuit breaker with the requests they
//! send, and so decide for everybody else.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::config;
use portcullis_policy::engine::admission::FailurePolicy;

/// The breaker of one webhook. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Breaker {
    limits: config::Breaker,
    state: Arc<Mutex<BreakerState>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BreakerState {
    /// So many calls in a row failed.
    Closed { failures: usize },
    /// No call probes before this moment.
    Open { until: Instant },
    /// One call probes.
    HalfOpen { opened: Instant },
}

/// A call that may be made. Dropped before its end, it shows nothing.
#[derive(Debug)]
pub(crate) struct CallAttempt {
    breaker: Breaker,
    role: AttemptRole,
}

/// Why a call may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AttemptRole {
    /// The breaker is closed.
    Usual,
    /// It is the one call that finds out whether the breaker closes.
    Probe,
    /// The breaker is open, but skipping this webhook would let requests pass.
    DespiteOpen,
}

/// What a call shows of the webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reachability {
    /// It is there, whatever it answered.
    Reachable,
    /// It is not there.
    Unreachable,
    /// Nothing either way.
    Unknown,
}

/// What became of the breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transition {
    /// It opened.
    Opened,
    /// It closed.
    Closed,
}

// === impl Breaker ===

impl Breaker {
    pub(crate) fn new(limits: config::Breaker) -> Self {
        Self {
            limits,
            state: Arc::new(Mutex::new(BreakerState::Closed { failures: 0 })),
        }
    }

    pub(crate) const fn limits(&self) -> config::Breaker {
        self.limits
    }

    /// Whether calls are held back.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(*self.state(), BreakerState::Closed { .. })
    }

    /// A call at `now`, if one may be made. One whose failure would let the
    /// request pass ([`FailurePolicy::Ignore`]) always may.
    pub(crate) fn attempt(&self, policy: FailurePolicy, now: Instant) -> Option<CallAttempt> {
        let mut state = self.state();
        let role = match (*state, policy) {
            (BreakerState::Closed { .. }, _) => AttemptRole::Usual,
            (BreakerState::Open { until }, _) if until <= now => {
                *state = BreakerState::HalfOpen { opened: until };
                AttemptRole::Probe
            }
            (BreakerState::Open { .. } | BreakerState::HalfOpen { .. }, FailurePolicy::Ignore) => {
                AttemptRole::DespiteOpen
            }
            (BreakerState::Open { .. } | BreakerState::HalfOpen { .. }, FailurePolicy::Fail) => return None,
        };
        drop(state);
        Some(CallAttempt {
            breaker: self.clone(),
            role,
        })
    }

    fn state(&self) -> MutexGuard<'_, BreakerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What `shown` by a call makes of the state. Calls that began before it
    /// opened show nothing any more.
    fn take(&self, role: AttemptRole, outcome: Reachability, now: Instant) -> Option<Transition> {
        use Reachability::{Reachable, Unknown, Unreachable};
        let mut state = self.state();
        let open = BreakerState::Open {
            until: now + self.limits.open_for,
        };
        let closed = BreakerState::Closed { failures: 0 };
        let (next, transition) = match (*state, role, outcome) {
            (BreakerState::Closed { .. }, _, Reachable) => (closed, None),
            (BreakerState::Closed { failures }, _, Unreachable) if failures + 1 >= self.limits.failures => {
                (open, Some(Transition::Opened))
            }
            (BreakerState::Closed { failures }, _, Unreachable) => {
                let failures = failures + 1;
                (BreakerState::Closed { failures }, None)
            }
            (BreakerState::HalfOpen { .. }, AttemptRole::Probe, Reachable)
            | (
                BreakerState::Open { .. } | BreakerState::HalfOpen { .. },
                AttemptRole::DespiteOpen,
                Reachable,
            ) => (closed, Some(Transition::Closed)),
            (BreakerState::HalfOpen { .. }, AttemptRole::Probe, Unreachable) => (open, None),
            // The next call probes in its place.
            (BreakerState::HalfOpen { opened }, AttemptRole::Probe, Unknown) => {
                (BreakerState::Open { until: opened }, None)
            }
            (same, ..) => (same, None),
        };
        *state = next;
        transition
    }
}

// === impl CallAttempt ===

impl CallAttempt {
    /// Whether the webhook is called although it was not there the last times.
    pub(crate) fn is_despite_open(&self) -> bool {
        self.role == AttemptRole::DespiteOpen
    }

    /// The call ended at `now` and showed this.
    pub(crate) fn end(mut self, outcome: Reachability, now: Instant) -> Option<Transition> {
        let transition = self.breaker.take(self.role, outcome, now);
        self.role = AttemptRole::Usual;
        transition
    }
}

impl Drop for CallAttempt {
    fn drop(&mut self) {
        if self.role == AttemptRole::Probe {
            self.breaker
                .take(AttemptRole::Probe, Reachability::Unknown, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn breaker() -> (Breaker, Instant) {
        let limits = config::Breaker {
            failures: 3,
            open_for: Duration::from_secs(10),
        };
        (Breaker::new(limits), Instant::now())
    }

    /// A call whose failure refuses the request.
    fn enter(breaker: &Breaker, now: Instant) -> Option<CallAttempt> {
        breaker.attempt(FailurePolicy::Fail, now)
    }

    fn call(breaker: &Breaker, outcome: Reachability, now: Instant) -> Option<Transition> {
        enter(breaker, now).unwrap().end(outcome, now)
    }

    fn opened() -> (Breaker, Instant) {
        let (breaker, now) = breaker();
        assert_eq!(call(&breaker, Reachability::Unreachable, now), None);
        assert_eq!(call(&breaker, Reachability::Unreachable, now), None);
        assert_eq!(
            call(&breaker, Reachability::Unreachable, now),
            Some(Transition::Opened)
        );
        (breaker, now)
    }

    #[test]
    fn it_opens_after_failures_in_a_row_alone() {
        let (breaker, now) = breaker();
        for outcome in [
            Reachability::Unreachable,
            Reachability::Unreachable,
            Reachability::Reachable,
            Reachability::Unreachable,
            Reachability::Unknown,
            Reachability::Unreachable,
        ] {
            assert_eq!(call(&breaker, outcome, now), None);
        }
        assert_eq!(
            call(&breaker, Reachability::Unreachable, now),
            Some(Transition::Opened)
        );
        assert!(enter(&breaker, now).is_none());
    }

    #[test]
    fn one_call_alone_probes_when_the_time_is_over() {
        let (breaker, now) = opened();
        assert!(enter(&breaker, now + Duration::from_secs(9)).is_none());
        let later = now + Duration::from_secs(10);
        let probe = enter(&breaker, later).unwrap();
        assert!(enter(&breaker, later).is_none(), "one at a time");
        assert_eq!(
            probe.end(Reachability::Reachable, later),
            Some(Transition::Closed)
        );
        assert!(enter(&breaker, later).is_some());
        assert_eq!(
            call(&breaker, Reachability::Unreachable, later),
            None,
            "it counts from nothing"
        );
    }

    #[test]
    fn a_probe_that_fails_waits_as_long_again() {
        let (breaker, now) = opened();
        let later = now + Duration::from_secs(10);
        assert_eq!(call(&breaker, Reachability::Unreachable, later), None);
        assert!(enter(&breaker, later + Duration::from_secs(9)).is_none());
        assert!(enter(&breaker, later + Duration::from_secs(10)).is_some());
    }

    #[test]
    fn a_probe_that_nobody_waited_for_is_made_again() {
        let (breaker, now) = opened();
        let later = now + Duration::from_secs(10);
        drop(enter(&breaker, later).unwrap());
        let probe = enter(&breaker, later).unwrap();
        assert_eq!(probe.end(Reachability::Unknown, later), None);
        assert!(enter(&breaker, later).is_some());
    }

    #[test]
    fn calls_of_before_it_opened_change_nothing() {
        let (breaker, now) = breaker();
        let early = enter(&breaker, now).unwrap();
        let late = enter(&breaker, now).unwrap();
        for _ in 0..3 {
            call(&breaker, Reachability::Unreachable, now);
        }
        assert_eq!(early.end(Reachability::Reachable, now), None);
        assert!(enter(&breaker, now).is_none());
        let later = now + Duration::from_secs(10);
        let _probe = enter(&breaker, later).unwrap();
        assert_eq!(late.end(Reachability::Reachable, later), None);
        assert!(enter(&breaker, later).is_none(), "the one call decides");
    }

    #[test]
    fn a_webhook_whose_failure_lets_pass_is_never_skipped() {
        let (breaker, now) = opened();
        let ignored = |now| breaker.attempt(FailurePolicy::Ignore, now).unwrap();
        assert!(ignored(now).is_despite_open());
        assert_eq!(ignored(now).end(Reachability::Unreachable, now), None);
        assert_eq!(ignored(now).end(Reachability::Unknown, now), None);
        assert!(enter(&breaker, now).is_none(), "it is open still");
        let later = now + Duration::from_secs(10);
        let probe = ignored(later);
        assert!(!probe.is_despite_open(), "it is the one that probes");
        let beside = ignored(later);
        assert!(beside.is_despite_open());
        let closed = beside.end(Reachability::Reachable, later);
        assert_eq!(closed, Some(Transition::Closed), "it is there");
        assert_eq!(probe.end(Reachability::Unreachable, later), None);
        assert!(enter(&breaker, later).is_some());
    }
}
