//! Leaves a webhook alone that failed again and again.
//!
//! ```text
//!            failures in a row                    openFor is over
//!  closed ─────────────────────▶ open ──────────────────────────────▶ half open
//!    ▲                            ▲   (nothing passes)                 │ one call passes
//!    └──── it is there ───────────┼────────────────────────────────────┤
//!                                 └──── it is not ─────────────────────┘
//! ```

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::config;

/// The breaker of one webhook. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct Breaker {
    limits: config::Breaker,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// So many calls in a row failed.
    Closed { failures: usize },
    /// Nothing passes before this moment.
    Open { until: Instant },
    /// One call is on its way.
    HalfOpen { opened: Instant },
}

/// Leave for one call. Dropped without a word, it says nothing of the webhook.
#[derive(Debug)]
pub(super) struct Pass {
    breaker: Breaker,
    is_probe: bool,
}

/// What a call shows of the webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sign {
    /// It is there, whatever it answered.
    Alive,
    /// It is not there, or overloaded.
    Dead,
    /// Nothing either way.
    Unknown,
}

/// What became of the breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// It opened.
    Opened,
    /// It closed.
    Closed,
}

// === impl Breaker ===

impl Breaker {
    pub(super) fn new(limits: config::Breaker) -> Self {
        Self {
            limits,
            state: Arc::new(Mutex::new(State::Closed { failures: 0 })),
        }
    }

    pub(super) const fn limits(&self) -> config::Breaker {
        self.limits
    }

    /// Whether calls are held back.
    pub(super) fn is_open(&self) -> bool {
        !matches!(*self.state(), State::Closed { .. })
    }

    /// Leave for a call at `now`, if the webhook is not left alone.
    pub(super) fn enter(&self, now: Instant) -> Option<Pass> {
        let mut state = self.state();
        let is_probe = match *state {
            State::Closed { .. } => false,
            State::Open { until } if until <= now => {
                *state = State::HalfOpen { opened: until };
                true
            }
            State::Open { .. } | State::HalfOpen { .. } => return None,
        };
        drop(state);
        Some(Pass {
            breaker: self.clone(),
            is_probe,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What `sign` of a call makes of the state. Calls that began before it
    /// opened say nothing any more.
    fn take(&self, is_probe: bool, sign: Sign, now: Instant) -> Option<Turn> {
        let mut state = self.state();
        let open = State::Open {
            until: now + self.limits.open_for,
        };
        let (next, turn) = match (*state, sign) {
            (State::Closed { .. }, Sign::Alive) => (State::Closed { failures: 0 }, None),
            (State::Closed { failures }, Sign::Dead) if failures + 1 >= self.limits.failures => {
                (open, Some(Turn::Opened))
            }
            (State::Closed { failures }, Sign::Dead) => (
                State::Closed {
                    failures: failures + 1,
                },
                None,
            ),
            (State::HalfOpen { .. }, Sign::Alive) if is_probe => {
                (State::Closed { failures: 0 }, Some(Turn::Closed))
            }
            (State::HalfOpen { .. }, Sign::Dead) if is_probe => (open, None),
            // The next call tries in its place.
            (State::HalfOpen { opened }, Sign::Unknown) if is_probe => (State::Open { until: opened }, None),
            (same, _) => (same, None),
        };
        *state = next;
        turn
    }
}

// === impl Pass ===

impl Pass {
    /// The call ended at `now` and showed `sign`.
    pub(super) fn end(mut self, sign: Sign, now: Instant) -> Option<Turn> {
        let turn = self.breaker.take(self.is_probe, sign, now);
        self.is_probe = false;
        turn
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if self.is_probe {
            self.breaker.take(true, Sign::Unknown, Instant::now());
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

    fn call(breaker: &Breaker, sign: Sign, now: Instant) -> Option<Turn> {
        breaker.enter(now).unwrap().end(sign, now)
    }

    fn opened() -> (Breaker, Instant) {
        let (breaker, now) = breaker();
        assert_eq!(call(&breaker, Sign::Dead, now), None);
        assert_eq!(call(&breaker, Sign::Dead, now), None);
        assert_eq!(call(&breaker, Sign::Dead, now), Some(Turn::Opened));
        (breaker, now)
    }

    #[test]
    fn it_opens_after_failures_in_a_row_alone() {
        let (breaker, now) = breaker();
        for sign in [
            Sign::Dead,
            Sign::Dead,
            Sign::Alive,
            Sign::Dead,
            Sign::Unknown,
            Sign::Dead,
        ] {
            assert_eq!(call(&breaker, sign, now), None);
        }
        assert_eq!(call(&breaker, Sign::Dead, now), Some(Turn::Opened));
        assert!(breaker.enter(now).is_none());
    }

    #[test]
    fn one_call_alone_tries_when_the_time_is_over() {
        let (breaker, now) = opened();
        assert!(breaker.enter(now + Duration::from_secs(9)).is_none());
        let later = now + Duration::from_secs(10);
        let probe = breaker.enter(later).unwrap();
        assert!(breaker.enter(later).is_none(), "one at a time");
        assert_eq!(probe.end(Sign::Alive, later), Some(Turn::Closed));
        assert!(breaker.enter(later).is_some());
        assert_eq!(call(&breaker, Sign::Dead, later), None, "it counts from nothing");
    }

    #[test]
    fn a_try_that_fails_waits_as_long_again() {
        let (breaker, now) = opened();
        let later = now + Duration::from_secs(10);
        assert_eq!(call(&breaker, Sign::Dead, later), None);
        assert!(breaker.enter(later + Duration::from_secs(9)).is_none());
        assert!(breaker.enter(later + Duration::from_secs(10)).is_some());
    }

    #[test]
    fn a_try_that_nobody_waited_for_is_tried_again() {
        let (breaker, now) = opened();
        let later = now + Duration::from_secs(10);
        drop(breaker.enter(later).unwrap());
        let probe = breaker.enter(later).unwrap();
        assert_eq!(probe.end(Sign::Unknown, later), None);
        assert!(breaker.enter(later).is_some());
    }

    #[test]
    fn calls_of_before_it_opened_change_nothing() {
        let (breaker, now) = breaker();
        let early = breaker.enter(now).unwrap();
        let late = breaker.enter(now).unwrap();
        for _ in 0..3 {
            call(&breaker, Sign::Dead, now);
        }
        assert_eq!(early.end(Sign::Alive, now), None);
        assert!(breaker.enter(now).is_none());
        let later = now + Duration::from_secs(10);
        let _probe = breaker.enter(later).unwrap();
        assert_eq!(late.end(Sign::Alive, later), None);
        assert!(breaker.enter(later).is_none(), "the one call decides");
    }
}
