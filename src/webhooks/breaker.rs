//! The circuit breaker of one webhook.
//!
//! ```text
//!            failures in a row                    openFor is over
//!  closed ─────────────────────▶ open ──────────────────────────────▶ half open
//!    ▲                            ▲   (calls fail at once)             │ one call probes
//!    └──── reachable ─────────────┼────────────────────────────────────┤
//!                                 └──── unreachable ───────────────────┘
//! ```
//!
//! Only failures to reach the webhook are counted, because no request can cause them. Otherwise a
//! user could open the circuit breaker by sending certain requests, which would affect all other
//! users.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::config;
use crate::identity::certificates::rfc3339;
use portcullis_policy::admission::FailurePolicy;

/// The circuit breaker of one webhook. Clones share its state.
#[derive(Debug, Clone)]
pub(crate) struct Breaker {
    limits: config::BreakerLimits,
    state: Arc<Mutex<BreakerState>>,
    /// When it last opened, and why.
    opening: Arc<Mutex<Option<Opening>>>,
}

/// When a breaker opened, and the error of the call that opened it.
#[derive(Debug, Clone)]
struct Opening {
    since: SystemTime,
    why: String,
}

/// The breaker is open, so a call was not made. The message says since when and why it is open, and
/// when the next call is made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("its circuit breaker is open{reason}: {next_call}")]
pub(crate) struct OpenBreaker {
    reason: String,
    next_call: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BreakerState {
    /// The number of consecutive calls that failed.
    Closed { failures: usize },
    /// No probe is made before `until`.
    Open { until: Instant },
    /// A probe is in flight. Before it, the breaker was open until `opened`.
    HalfOpen { opened: Instant },
}

/// A call that may be made. If it is dropped before its [`end`](Self::end), its result is unknown.
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
    /// The call is the probe: if it reaches the webhook, the breaker closes.
    Probe,
    /// The breaker is open, but the webhook is called nevertheless, because skipping it would admit
    /// requests that it may deny.
    DespiteOpen,
}

/// What the result of a call says about the webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reachability {
    /// The webhook responded, whatever its reply.
    Reachable,
    /// The webhook could not be reached.
    Unreachable,
    /// The call says nothing, for example because it was cancelled.
    Unknown,
}

/// A change of the state of a breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transition {
    /// The breaker opened.
    Opened,
    /// The breaker closed.
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

    /// Records for messages that the breaker opened now, and `why`.
    pub(crate) fn opened(&self, why: String) {
        let since = SystemTime::now();
        *self.opening.lock().unwrap_or_else(PoisonError::into_inner) = Some(Opening { since, why });
    }

    pub(crate) const fn limits(&self) -> config::BreakerLimits {
        self.limits
    }

    /// Whether the breaker is open or half open.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(*self.state(), BreakerState::Closed { .. })
    }

    /// Permits a call at `now` to a webhook with this `failurePolicy`. With
    /// [`FailurePolicy::Ignore`], a call is always permitted, because a webhook that is not called
    /// could not deny the request.
    ///
    /// # Errors
    ///
    /// The breaker is open, or a probe is in flight.
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

    /// The error for a call that is not made. The next probe is made after `left`; `None` if a
    /// probe is in flight.
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

    /// Changes the state after a call with this `outcome`. Usual calls that began before the
    /// breaker opened no longer change it.
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
            // The next call is the probe instead.
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
    /// Whether the webhook is called although the breaker is open.
    pub(crate) fn is_despite_open(&self) -> bool {
        self.role == AttemptRole::DespiteOpen
    }

    /// Records that the call ended at `now` with this `outcome`.
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

/// Truncates a time to whole seconds, for messages.
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

    /// Permits a call of a webhook with `failurePolicy: Fail`.
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
