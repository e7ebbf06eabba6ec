//! What the watches of one API server share when it cannot be reached: one attempt at a time.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use kube::Client;
use tokio::sync::{Mutex, MutexGuard};

use super::bounded::SpokenProtocol;
use super::compile_turn::CompileTurn;
use super::failure::{in_words, is_answer};
use super::reporter::Reporter;

/// The shortest and the longest wait after a failure.
const WAITS: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));

/// After so long without a failure, the next one counts as the first.
const CALM: Duration = Duration::from_secs(60);

/// The way to one API server, which its watches share.
///
/// After one of them found that it cannot be reached, they all wait, and one asks for them,
/// each time after a longer wait. The first request is alone too, so that those after it
/// find its connection.
pub(super) struct SharedReach {
    client: Client,
    protocol: SpokenProtocol,
    reporter: Reporter,
    /// Whoever has it makes the attempt.
    attempt: Mutex<()>,
    compile_turn: CompileTurn,
    /// Attempts in a row that failed.
    failures: AtomicU32,
}

/// How often something failed of late.
#[derive(Debug, Default)]
pub(super) struct RecentFailures {
    count: u32,
    last: Option<Instant>,
}

// === impl SharedReach ===

impl SharedReach {
    pub(super) fn new(client: Client, protocol: SpokenProtocol, reporter: Reporter) -> Self {
        Self {
            client,
            protocol,
            reporter,
            attempt: Mutex::default(),
            compile_turn: CompileTurn::default(),
            failures: AtomicU32::new(0),
        }
    }

    pub(super) const fn client(&self) -> &Client {
        &self.client
    }

    /// Where expressions of the cluster are compiled.
    pub(super) const fn compile_turn(&self) -> &CompileTurn {
        &self.compile_turn
    }

    /// For how long to ask for a watch.
    pub(super) fn watch(&self) -> Duration {
        self.protocol.watch()
    }

    /// The API server could not be reached.
    pub(super) fn lost(&self) {
        self.failures.fetch_max(1, Ordering::Relaxed);
    }

    /// Waits until nobody else is asking, and the API server answers. As long as what it gives
    /// is held, no other attempt begins.
    pub(super) async fn turn(&self) -> MutexGuard<'_, ()> {
        let turn = self.attempt.lock().await;
        loop {
            let failures = self.failures.load(Ordering::Relaxed);
            let Some(before) = failures.checked_sub(1) else {
                return turn;
            };
            tokio::time::sleep(wait(before)).await;
            match self.client.apiserver_version().await {
                // Whatever it says, it is there.
                Err(error) if !is_answer(&error) => {
                    self.failures.store(failures.saturating_add(1), Ordering::Relaxed);
                    self.reporter.unreachable(&in_words(&error), Instant::now());
                }
                _ => self.failures.store(0, Ordering::Relaxed),
            }
        }
    }
}

// === impl RecentFailures ===

impl RecentFailures {
    /// One more, at `now`: how long to wait after it.
    pub(super) fn wait(&mut self, now: Instant) -> Duration {
        if self.last.is_none_or(|last| now.duration_since(last) >= CALM) {
            self.count = 0;
        }
        self.last = Some(now);
        let wait = wait(self.count);
        self.count = self.count.saturating_add(1);
        wait
    }
}

/// How long to wait after so many failures before, longer each time.
fn wait(failures: u32) -> Duration {
    let (shortest, longest) = WAITS;
    shortest.saturating_mul(1 << failures.min(10)).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_a_bound() {
        let waits: Vec<u128> = (0..8).map(|failures| wait(failures).as_millis()).collect();
        assert_eq!(waits, [250, 500, 1000, 2000, 4000, 8000, 10_000, 10_000]);
        assert_eq!(wait(u32::MAX).as_millis(), 10_000);
    }

    #[test]
    fn waits_are_short_again_after_a_calm_time() {
        let mut failures = RecentFailures::default();
        let start = Instant::now();
        let mut wait_at = |seconds| failures.wait(start + Duration::from_secs(seconds)).as_millis();
        assert_eq!([0, 1, 50].map(&mut wait_at), [250, 500, 1000]);
        assert_eq!([110, 169, 170].map(&mut wait_at), [250, 500, 1000]);
    }
}
