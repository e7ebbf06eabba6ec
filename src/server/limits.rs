//! How much is taken on at once.
//!
//! Authorization and admission have a [`Lane`] each, so that a flood of one
//! leaves the other its room. A request takes its place, and the bytes that its
//! `Content-Length` announces, before its body is read; bytes that nobody
//! announced are taken as they arrive. What it took it gives back when it ends,
//! however it ends. What it is written into for others, such as the questions
//! to webhooks, is counted apart, with room for as many bytes again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::telemetry::metrics::IntGauge;

/// The requests of one sort that are being read or answered.
#[derive(Debug, Default)]
pub(super) struct Lane {
    requests: AtomicUsize,
    bytes: AtomicUsize,
    /// Bytes of copies.
    copied: AtomicUsize,
}

/// What a lane has room for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    /// Requests at once.
    pub(super) requests: usize,
    /// Bytes of their bodies at once.
    pub(super) bytes: usize,
}

/// A request's place in its lane.
#[derive(Debug)]
pub(super) struct Permit {
    lane: Arc<Lane>,
    room: Room,
    bytes: usize,
    gauge: IntGauge,
}

/// Bytes of a copy that count as long as this lives.
#[derive(Debug)]
pub(super) struct Copied {
    lane: Arc<Lane>,
    bytes: usize,
}

// === impl Lane ===

impl Lane {
    /// A place for a request whose body has at least `bytes`, if there is room.
    pub(super) fn enter(self: &Arc<Self>, room: Room, bytes: usize, gauge: &IntGauge) -> Option<Permit> {
        if !take(&self.requests, 1, room.requests) {
            return None;
        }
        gauge.inc();
        // From here on dropping the permit gives back what was taken.
        let mut permit = Permit {
            lane: Arc::clone(self),
            room,
            bytes: 0,
            gauge: gauge.clone(),
        };
        permit.hold(bytes).then_some(permit)
    }

    /// Whether no request is in it.
    pub(super) fn is_empty(&self) -> bool {
        self.requests.load(Ordering::Acquire) == 0
    }
}

// === impl Permit ===

impl Permit {
    /// Whether there is room for a body of `bytes`; more than was announced is taken now.
    pub(super) fn hold(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let taken = take(&self.lane.bytes, more, self.room.bytes);
        if taken {
            self.bytes += more;
        }
        taken
    }

    /// Room for a copy of `bytes` beside the bodies, if there is any.
    pub(super) fn copy(&self, bytes: usize) -> Option<Copied> {
        take(&self.lane.copied, bytes, self.room.bytes).then(|| Copied {
            lane: Arc::clone(&self.lane),
            bytes,
        })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.gauge.dec();
        self.lane.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
        self.lane.requests.fetch_sub(1, Ordering::AcqRel);
    }
}

// === impl Copied ===

impl Drop for Copied {
    fn drop(&mut self) {
        self.lane.copied.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// Adds `amount` unless that exceeds `most`.
fn take(count: &AtomicUsize, amount: usize, most: usize) -> bool {
    let fits = |held: usize| held.checked_add(amount).filter(|sum| *sum <= most);
    count
        .fetch_update(Ordering::AcqRel, Ordering::Acquire, fits)
        .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gauge() -> IntGauge {
        IntGauge::new("in_flight", "requests").unwrap()
    }

    #[test]
    fn a_lane_is_full_at_its_requests_and_has_room_again_after_one_ends() {
        let (lane, gauge) = (Arc::new(Lane::default()), gauge());
        let room = Room {
            requests: 2,
            bytes: 100,
        };
        let first = lane.enter(room, 0, &gauge).unwrap();
        let _second = lane.enter(room, 0, &gauge).unwrap();
        assert!(lane.enter(room, 0, &gauge).is_none());
        assert_eq!(gauge.get(), 2);
        drop(first);
        assert!(lane.enter(room, 0, &gauge).is_some());
        assert_eq!(gauge.get(), 1);
    }

    #[test]
    fn a_lane_is_full_at_its_bytes_announced_or_not() {
        let (lane, gauge) = (Arc::new(Lane::default()), gauge());
        let room = Room {
            requests: 10,
            bytes: 100,
        };
        let mut first = lane.enter(room, 60, &gauge).unwrap();
        assert!(lane.enter(room, 41, &gauge).is_none());
        let mut second = lane.enter(room, 0, &gauge).unwrap();
        assert!(first.hold(60), "announced already");
        assert!(second.hold(40));
        assert!(!second.hold(41) && !first.hold(61));
        drop(first);
        assert!(second.hold(100));
        drop(second);
        assert!(lane.is_empty());
        assert_eq!((lane.bytes.load(Ordering::Relaxed), gauge.get()), (0, 0));
    }

    #[test]
    fn copies_of_all_requests_have_as_much_room_as_their_bodies() {
        let (lane, gauge) = (Arc::new(Lane::default()), gauge());
        let room = Room {
            requests: 10,
            bytes: 100,
        };
        let first = lane.enter(room, 50, &gauge).unwrap();
        let second = lane.enter(room, 50, &gauge).unwrap();
        let copied = first.copy(60).unwrap();
        assert!(second.copy(41).is_none());
        let _other = second.copy(40).unwrap();
        drop(copied);
        assert!(second.copy(60).is_some());
    }

    #[test]
    fn an_amount_beyond_counting_does_not_fit() {
        let lane = Arc::new(Lane::default());
        let room = Room {
            requests: 10,
            bytes: usize::MAX,
        };
        let _one = lane.enter(room, 1, &gauge()).unwrap();
        assert!(lane.enter(room, usize::MAX, &gauge()).is_none());
        assert_eq!(lane.requests.load(Ordering::Relaxed), 1);
    }
}
