//! How fast the objects of one cluster are taken: an API server whose lists or events never end
//! leaves the processors to the others.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What is taken at once, in bytes: 100,000 bindings.
const BURST: f64 = 512.0 * 1_048_576.0;

/// What is taken in a second beyond that.
const RATE: f64 = 16.0 * 1_048_576.0;

/// What an object costs besides its bytes.
const OBJECT: f64 = 4_096.0;

/// What a cluster may send at once.
#[derive(Debug)]
pub(crate) struct Pace(Mutex<PaceState>);

#[derive(Debug)]
struct PaceState {
    left: f64,
    /// When it was so much.
    at: Instant,
}

impl Pace {
    pub(crate) const fn new(now: Instant) -> Self {
        Self(Mutex::new(PaceState { left: BURST, at: now }))
    }

    /// How long to wait after an object of so many bytes that came `now`.
    #[expect(clippy::cast_precision_loss, reason = "no object has 2^52 bytes")]
    pub(crate) fn delay(&self, bytes: usize, now: Instant) -> Duration {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = now.saturating_duration_since(state.at).as_secs_f64();
        state.left = (state.left + passed * RATE).min(BURST) - OBJECT - bytes as f64;
        state.at = now;
        Duration::from_secs_f64((-state.left / RATE).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn what_comes_beyond_the_burst_is_delayed() {
        let start = Instant::now();
        let pace = Pace::new(start);
        let mut at = start;
        let mut taken = |mib: usize| {
            for _ in 0..mib {
                at += pace.delay(MIB - 4_096, at);
            }
            at.duration_since(start).as_secs_f64().round()
        };
        assert_eq!([512, 160, 320].map(&mut taken), [0.0, 10.0, 30.0]);
    }

    #[test]
    fn small_objects_are_delayed_by_their_number_and_a_pause_makes_up_for_it() {
        let start = Instant::now();
        let pace = Pace::new(start);
        let delays = (0..140_000).map(|_| pace.delay(0, start));
        assert!(delays.last().is_some_and(|last| last > Duration::from_secs(2)));
        assert_eq!(pace.delay(0, start + Duration::from_secs(60)), Duration::ZERO);
    }
}
