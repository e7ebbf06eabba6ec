//! What the watches of one API server share when it cannot be reached: one attempt at a time.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, MutexGuard};

use super::bounded::SpokenProtocol;
use super::compile_turn::CompileTurn;
use super::pace::Pace;
use super::reporter::Reporter;
use super::requests::{ApiRequest, ApiServer, JSON};

/// The shortest and the longest wait after a failure.
const WAITS: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));

/// After so long without a failure, the next one counts as the first.
const CALM: Duration = Duration::from_secs(60);

/// What is asked to find out whether the API server is there.
const VERSION: ApiRequest<'_> = ApiRequest::get("/version", JSON);
const MAX_VERSION_BYTES: usize = 64 << 10;

/// The way to one API server, which its watches share.
///
/// After one of them found that it cannot be reached, they all wait, and one asks for them,
/// each time after a longer wait. The first request is alone too, so that those after it
/// find its connection.
pub(crate) struct SharedReach {
    server: ApiServer,
    protocol: SpokenProtocol,
    pace: Pace,
    reporter: Reporter,
    /// Whoever has it makes the attempt.
    attempt: Mutex<()>,
    compile_turn: CompileTurn,
    /// Attempts in a row that failed.
    failures: AtomicU32,
}

/// How often something failed of late.
#[derive(Debug, Default)]
pub(crate) struct RecentFailures {
    count: u32,
    last: Option<Instant>,
}

// === impl SharedReach ===

impl SharedReach {
    pub(crate) fn new(server: ApiServer, protocol: SpokenProtocol, reporter: Reporter) -> Self {
        Self {
            server,
            protocol,
            pace: Pace::new(Instant::now()),
            reporter,
            attempt: Mutex::default(),
            compile_turn: CompileTurn::default(),
            failures: AtomicU32::new(0),
        }
    }

    pub(crate) const fn server(&self) -> &ApiServer {
        &self.server
    }

    /// Where expressions of the cluster are compiled.
    pub(crate) const fn compile_turn(&self) -> &CompileTurn {
        &self.compile_turn
    }

    /// For how long to ask for a watch.
    pub(crate) fn watch(&self) -> Duration {
        self.protocol.watch()
    }

    /// Waits after an object of so many bytes, where many came before.
    pub(crate) async fn pace(&self, bytes: usize) {
        let delay = self.pace.delay(bytes, Instant::now());
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
    }

    /// The API server could not be reached.
    pub(crate) fn lost(&self) {
        self.failures.fetch_max(1, Ordering::Relaxed);
    }

    /// Waits until nobody else is asking, and the API server answers. As long as what it gives
    /// is held, no other attempt begins.
    pub(crate) async fn turn(&self) -> MutexGuard<'_, ()> {
        let turn = self.attempt.lock().await;
        loop {
            let failures = self.failures.load(Ordering::Relaxed);
            let Some(before) = failures.checked_sub(1) else {
                return turn;
            };
            tokio::time::sleep(wait(before)).await;
            match self.server.ask(&VERSION, MAX_VERSION_BYTES).await {
                // Whatever it says, it is there.
                Err(error) if !error.is_answer() => {
                    self.failures.store(failures.saturating_add(1), Ordering::Relaxed);
                    self.reporter.unreachable(&error.to_string(), Instant::now());
                }
                _ => self.failures.store(0, Ordering::Relaxed),
            }
        }
    }
}

// === impl RecentFailures ===

impl RecentFailures {
    /// One more, at `now`: how long to wait after it.
    pub(crate) fn wait(&mut self, now: Instant) -> Duration {
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
