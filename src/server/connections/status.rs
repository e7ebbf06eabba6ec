//! State that the registry and the task of one connection share.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::task::Poll;

use futures_util::task::AtomicWaker;

/// How far a connection's end has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// It stays.
    Open,
    /// What is in flight and what still comes is answered; clients are asked to go elsewhere.
    Draining,
    /// Nothing is in flight: it ends as if the client had ended it.
    Ending,
    /// It is dropped, whatever it is doing.
    Closed,
}

/// Who is at the other end, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PeerStanding {
    /// Nobody, so far.
    Stranger,
    /// Whoever has the key of a certificate of the client CA.
    OfAuthority,
    /// A caller.
    Caller,
}

/// No deadline.
const NEVER: u64 = u64::MAX;

/// Shared by the registry, which says when a connection must end, and the
/// connection's task, which does it.
#[derive(Debug)]
pub(crate) struct ConnectionStatus {
    stage: AtomicU8,
    standing: AtomicU8,
    /// When the handshake or head under way must be complete, on the registry's clock.
    deadline: AtomicU64,
    task: AtomicWaker,
}

// === impl Stage ===

impl Stage {
    const fn of(value: u8) -> Self {
        match value {
            0 => Self::Open,
            1 => Self::Draining,
            2 => Self::Ending,
            _ => Self::Closed,
        }
    }
}

// === impl ConnectionStatus ===

impl ConnectionStatus {
    /// A connection whose handshake must be complete at `deadline`.
    pub(crate) fn new(stage: Stage, deadline: u64) -> Self {
        Self {
            stage: AtomicU8::new(stage as u8),
            standing: AtomicU8::new(PeerStanding::Stranger as u8),
            deadline: AtomicU64::new(deadline),
            task: AtomicWaker::new(),
        }
    }

    /// How far its end has come.
    pub(crate) fn stage(&self) -> Stage {
        Stage::of(self.stage.load(Ordering::Acquire))
    }

    /// Whether its client is authenticated.
    pub(crate) fn is_proven(&self) -> bool {
        self.is_at_least(PeerStanding::OfAuthority)
    }

    /// Whether its client is known so well.
    pub(crate) fn is_at_least(&self, standing: PeerStanding) -> bool {
        self.standing.load(Ordering::Relaxed) >= standing as u8
    }

    /// Notes how well its client is known; whether that is new.
    pub(crate) fn prove(&self, standing: PeerStanding) -> bool {
        self.standing.fetch_max(standing as u8, Ordering::Relaxed) < standing as u8
    }

    /// Has the connection's task go on to `stage`, if it is not there yet.
    pub(crate) fn advance(&self, stage: Stage) {
        self.stage.fetch_max(stage as u8, Ordering::AcqRel);
        self.task.wake();
    }

    /// A head began, or a handshake: it is awaited until `deadline`, unless another is already.
    pub(crate) fn expect(&self, deadline: u64) {
        if self.deadline.load(Ordering::Relaxed) == NEVER {
            self.deadline.store(deadline, Ordering::Relaxed);
        }
    }

    /// What was awaited is there.
    pub(crate) fn reached(&self) {
        self.deadline.store(NEVER, Ordering::Relaxed);
    }

    /// Whether something was awaited in vain.
    pub(crate) fn is_overdue(&self, now: u64) -> bool {
        now >= self.deadline.load(Ordering::Relaxed)
    }

    /// Serves the connection until that ends or the connection is closed from outside.
    pub(crate) async fn run(&self, serving: impl Future<Output = ()>) {
        let mut serving = pin!(serving);
        poll_fn(|context| {
            self.task.register(context.waker());
            if self.stage() == Stage::Closed {
                return Poll::Ready(());
            }
            serving.as_mut().poll(context)
        })
        .await;
    }
}
