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
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::config;
use crate::identity::certificates::rfc3339;
use portcullis_policy::admission::FailurePolicy;

/// The breaker of one webhook. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Breaker {
    limits: config::BreakerLimits,
    state: Arc<Mutex<BreakerState>>,
    /// The last time that it opened.
    opening: Arc<Mutex<Option<Opening>>>,
}

/// When a breaker opened, and the error of the call after which it did.
#[derive(Debug, Clone)]
struct Opening {
    since: SystemTime,
    why: String,
}

/// Why a call was not made: since when and why the breaker is open, and until when.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("its circuit breaker is open{reason}: {next_call}")]
pub(crate) struct OpenBreaker {
    reason: String,
    next_call: String,
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
    pub(crate) fn new(limits: config::BreakerLimits) -> Self {
        Self {
            limits,
            state: Arc::new(Mutex::new(BreakerState::Closed { failures: 0 })),
            opening: Arc::default(),
        }
    }

    /// Remembers for messages that it opened now, and `why`.
    pub(crate) fn opened(&self, why: String) {
        let since = SystemTime::now();
        *self.opening.lock().unwrap_or_else(PoisonError::into_inner) = Some(Opening { since, why });
    }

    pub(crate) const fn limits(&self) -> config::BreakerLimits {
        self.limits
    }

    /// Whether calls are held back.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(*self.state(), BreakerState::Closed { .. })
    }

    /// A call at `now`, if one may be made. One whose failure would let the
    /// request pass ([`FailurePolicy::Ignore`]) always may.
    ///
    /// # Errors
    ///
    /// It is open.
    pub(crate) fn attempt(&self, policy: FailurePolicy, now: Instant) -> Result<CallAttempt, OpenBreaker> {
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
            (BreakerState::Open { until }, FailurePolicy::Fail) => {
                return Err(self.refusal(Some(until - now)));
            }
            (BreakerState::HalfOpen { .. }, FailurePolicy::Fail) => return Err(self.refusal(None)),
        };
        drop(state);
        Ok(CallAttempt {
            breaker: self.clone(),
            role,
        })
    }

    /// Why a call is not made, where it will be in so much time, or one is being made.
    fn refusal(&self, left: Option<Duration>) -> OpenBreaker {
        let opening = self
            .opening
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        OpenBreaker {
            reason: opening.map_or_else(String::new, |opening| {
                format!(
                    " since {} ({})",
                    rfc3339(whole_seconds(opening.since)),
                    opening.why
                )
            }),
            next_call: match left {
                Some(left) => format!(
                    "it is called again at {}",
                    rfc3339(whole_seconds(SystemTime::now() + left))
                ),
                None => "one call is testing whether it can be reached again".to_owned(),
            },
        }
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

/// People do not read fractions.
fn whole_seconds(time: SystemTime) -> SystemTime {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    UNIX_EPOCH + Duration::from_secs(since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaker() -> (Breaker, Instant) {
        let limits = config::BreakerLimits {
            failures: 3,
            open_for: Duration::from_secs(10),
        };
        (Breaker::new(limits), Instant::now())
    }

    /// A call whose failure refuses the request.
    fn enter(breaker: &Breaker, now: Instant) -> Option<CallAttempt> {
        breaker.attempt(FailurePolicy::Fail, now).ok()
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
    fn an_open_one_says_since_when_until_when_and_why() {
        let (breaker, now) = opened();
        breaker.opened("connection refused".to_owned());
        let message = breaker.attempt(FailurePolicy::Fail, now).unwrap_err().to_string();
        let parts: Vec<&str> = message
            .split(" (connection refused): it is called again at ")
            .collect();
        let [since, until] = parts[..] else {
            panic!("{message}");
        };
        let since = since.strip_prefix("its circuit breaker is open since ").unwrap();
        let time = |text: &str| {
            time::OffsetDateTime::parse(text, &time::format_description::well_known::Rfc3339).unwrap()
        };
        assert!(time(until) - time(since) >= Duration::from_secs(9), "{message}");
        let _probe = enter(&breaker, now + Duration::from_secs(10)).unwrap();
        let message = breaker.attempt(FailurePolicy::Fail, now).unwrap_err().to_string();
        assert!(message.ends_with("whether it can be reached again"), "{message}");
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
