//! Streams of new decisions, as server-sent events.
//!
//! Streams look for new decisions twice a second, all of them at the same ticks, so that those with
//! the same filter share the rendered events. Nothing is rendered for a browser that does not read:
//! its stream pauses, and continues later with the decisions that are still kept. Beyond the
//! maximum, the oldest stream is closed among those of the viewers with the most streams; viewers
//! who see the same clusters count together.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::header;
use actix_web::web::Bytes;
use futures_util::stream;
use tokio::time::{Instant, sleep_until};

use crate::console::{DecisionSlice, LiveStream, RecentDecisions, VisibleClusters};
use crate::identity::Authenticator;
use crate::state::ReloadState;

/// The most open streams.
const MAX_STREAMS: usize = 64;

/// The interval between two ticks.
const TICK_INTERVAL: Duration = Duration::from_millis(500);

/// The ticks without an event after which a comment is sent, to detect whether the client is still
/// connected.
const QUIET_TICKS: u32 = 30;

/// The longest time of a stream, after which the browser must reconnect and authenticate again.
const MAX_STREAM_TIME: Duration = Duration::from_secs(600);

/// The first bytes of a stream: how long a browser waits before it reconnects.
const OPENING: &str = "retry: 2000\n\n";

/// The last bytes of a stream that is closed for another: the page does not reconnect.
const CLOSED: &str = "event: closed\ndata:\n\n";

/// The open streams of the listener.
pub(crate) struct LiveStreams {
    start: Instant,
    open: RefCell<VecDeque<StreamPlace>>,
    look: RefCell<TickResults>,
}

/// The results of one tick, shared by the streams.
#[derive(Default)]
struct TickResults {
    /// The number of the tick.
    tick: u64,
    slices: HashMap<VisibleClusters, DecisionSlice>,
    /// The new position and the events, by the viewer's clusters, the filter and the former
    /// position.
    found: HashMap<(VisibleClusters, String, u64), (u64, Bytes)>,
}

/// One open stream, as the listener knows it.
struct StreamPlace {
    visible: VisibleClusters,
    /// Set when the stream is closed for another.
    is_replaced: Rc<Cell<bool>>,
}

/// The decisions that a stream is made from, and the clusters that they are about.
type StreamSource = (VisibleClusters, Arc<RecentDecisions>);

/// The authenticator that admitted the viewer of a stream, which ends when that is replaced.
pub(crate) struct StreamAuthority {
    pub(crate) state: Arc<ReloadState>,
    pub(crate) at_start: Arc<Authenticator>,
}

/// The state of one stream.
struct OpenStream {
    streams: Rc<LiveStreams>,
    source: StreamSource,
    live: LiveStream,
    query: String,
    /// Set when the stream is closed for another.
    is_replaced: Rc<Cell<bool>>,
    authority: Option<StreamAuthority>,
    until: Instant,
    is_opened: bool,
    quiet: u32,
}

// === impl LiveStreams ===

impl LiveStreams {
    pub(crate) fn new() -> Rc<Self> {
        Rc::new(Self {
            start: Instant::now(),
            open: RefCell::default(),
            look: RefCell::default(),
        })
    }

    /// The response that streams new decisions of `source` to `live`. With an `authority`, it ends
    /// when that is replaced.
    pub(crate) fn open(
        self: &Rc<Self>,
        source: StreamSource,
        live: LiveStream,
        authority: Option<StreamAuthority>,
    ) -> HttpResponse {
        let stream = OpenStream {
            streams: Rc::clone(self),
            query: live.query(),
            live,
            is_replaced: self.enter(&source.0),
            source,
            authority,
            until: Instant::now() + MAX_STREAM_TIME,
            is_opened: false,
            quiet: 0,
        };
        let events = stream::unfold(Some(stream), |stream| async {
            let mut stream = stream?;
            let (events, goes_on) = stream.next().await?;
            Some((Ok::<_, Infallible>(events), goes_on.then_some(stream)))
        });
        HttpResponse::Ok()
            .content_type("text/event-stream")
            .insert_header((header::CACHE_CONTROL, "no-store"))
            .insert_header(("x-accel-buffering", "no"))
            .streaming(events)
    }

    /// Registers a stream, closing the oldest one of the viewers with the most streams if there are
    /// too many.
    fn enter(&self, visible: &VisibleClusters) -> Rc<Cell<bool>> {
        let mut open = self.open.borrow_mut();
        // A stream that has ended no longer holds its flag.
        open.retain(|stream| Rc::strong_count(&stream.is_replaced) > 1);
        while open.len() >= MAX_STREAMS {
            let count = |of: &VisibleClusters| open.iter().filter(|stream| stream.visible == *of).count();
            let place = open
                .iter()
                .enumerate()
                .min_by_key(|(age, stream)| (Reverse(count(&stream.visible)), *age));
            let Some(replaced) = place.map(|(age, _)| age).and_then(|age| open.remove(age)) else {
                break;
            };
            replaced.is_replaced.set(true);
        }
        let is_replaced = Rc::new(Cell::new(false));
        open.push_back(StreamPlace {
            visible: visible.clone(),
            is_replaced: Rc::clone(&is_replaced),
        });
        is_replaced
    }

    /// The number and the time of the next tick after `now`.
    fn next_tick(&self, now: Instant) -> (u64, Instant) {
        let tick = now.duration_since(self.start).as_millis() / TICK_INTERVAL.as_millis() + 1;
        let tick = u32::try_from(tick).unwrap_or(u32::MAX);
        (u64::from(tick), self.start + TICK_INTERVAL * tick)
    }

    /// The events for `live` at `tick`.
    fn advance(&self, tick: u64, live: &mut LiveStream, query: &str, source: &StreamSource) -> Bytes {
        let (visible, decisions) = source;
        let mut look = self.look.borrow_mut();
        if look.tick != tick {
            *look = TickResults {
                tick,
                ..TickResults::default()
            };
        }
        let key = (visible.clone(), query.to_owned(), live.position());
        if let Some((position, events)) = look.found.get(&key) {
            live.set_position(*position);
            return events.clone();
        }
        let from = live.position() + 1;
        let slice = match look.slices.get(visible) {
            Some(slice) if slice.first() <= from => slice.starting_at(from),
            _ => decisions.since(from),
        };
        let events = Bytes::from(live.advance(&slice));
        look.found.insert(key, (live.position(), events.clone()));
        look.slices.entry(visible.clone()).or_insert(slice);
        events
    }
}

// === impl OpenStream ===

impl OpenStream {
    /// The next bytes, and whether more follow; `None` when the stream is over.
    async fn next(&mut self) -> Option<(Bytes, bool)> {
        if !self.is_opened {
            self.is_opened = true;
            return Some((Bytes::from_static(OPENING.as_bytes()), true));
        }
        loop {
            let (tick, at) = self.streams.next_tick(Instant::now());
            sleep_until(at).await;
            if self.is_replaced.get() {
                return Some((Bytes::from_static(CLOSED.as_bytes()), false));
            }
            if at >= self.until || self.authority.as_ref().is_some_and(StreamAuthority::is_replaced) {
                return None;
            }
            let streams = Rc::clone(&self.streams);
            let events = streams.advance(tick, &mut self.live, &self.query, &self.source);
            self.quiet += 1;
            if !events.is_empty() {
                self.quiet = 0;
                return Some((events, true));
            }
            if self.quiet >= QUIET_TICKS {
                self.quiet = 0;
                return Some((Bytes::from_static(b":\n\n"), true));
            }
        }
    }
}

// === impl StreamAuthority ===

impl StreamAuthority {
    fn is_replaced(&self) -> bool {
        !Arc::ptr_eq(&self.state.current().authenticator, &self.at_start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::ViewQuery;
    use portcullis_policy::model::Decision;

    const LINE: &str = r#"{"endpoint":"authorize","user":"jane","decision":"deny"}"#;

    const ALL: VisibleClusters = VisibleClusters::All;

    fn mk_source() -> StreamSource {
        (ALL, Arc::new(RecentDecisions::new(100)))
    }

    #[test]
    fn the_oldest_of_too_many_streams_makes_way() {
        let streams = LiveStreams::new();
        let places: Vec<_> = (0..MAX_STREAMS).map(|_| streams.enter(&ALL)).collect();
        assert!(places.iter().all(|place| !place.get()));
        let another = streams.enter(&ALL);
        assert!(places[0].get() && !places[1].get() && !another.get());
        // A stream that has ended does not count.
        drop(places);
        let fresh: Vec<_> = (1..MAX_STREAMS).map(|_| streams.enter(&ALL)).collect();
        assert!(!another.get() && fresh.iter().all(|place| !place.get()));
        assert_eq!(streams.open.borrow().len(), MAX_STREAMS);
    }

    #[test]
    fn the_streams_of_one_cluster_end_nobody_else_s() {
        let streams = LiveStreams::new();
        let [east, west] = ["east", "west"].map(|cluster| VisibleClusters::One(cluster.into()));
        let own = streams.enter(&west);
        let places: Vec<_> = (0..3 * MAX_STREAMS).map(|_| streams.enter(&east)).collect();
        assert!(!own.get());
        assert_eq!(
            places.iter().filter(|place| !place.get()).count(),
            MAX_STREAMS - 1
        );
    }

    #[test]
    fn streams_of_one_filter_share_what_is_made_for_it() {
        let (streams, source) = (LiveStreams::new(), mk_source());
        let stream = |query: &str| LiveStream::new(&ViewQuery::parse(query), None, &source.1).unwrap();
        let (mut one, mut two, mut other) = (stream(""), stream(""), stream("user=joe"));
        source.1.push(Decision::Deny, "c", LINE.as_bytes());
        let first = streams.advance(1, &mut one, "", &source);
        let second = streams.advance(1, &mut two, "", &source);
        assert!(!first.is_empty());
        assert_eq!(first.as_ptr(), second.as_ptr(), "made once");
        assert_eq!(one, two);
        assert!(streams.advance(1, &mut other, "user=joe", &source).is_empty());
        // A decision that arrives during a tick is sent at the next tick to all streams.
        source.1.push(Decision::Deny, "c", LINE.as_bytes());
        assert!(streams.advance(1, &mut one, "", &source).is_empty());
        assert!(!streams.advance(2, &mut one, "", &source).is_empty());
        assert!(!streams.advance(2, &mut two, "", &source).is_empty());
        assert_eq!((one.position(), two.position(), other.position()), (2, 2, 1));
    }

    #[test]
    fn moments_are_the_same_for_all() {
        let streams = LiveStreams::new();
        let at = |milliseconds| streams.start + Duration::from_millis(milliseconds);
        assert_eq!(streams.next_tick(at(0)), (1, at(500)));
        assert_eq!(streams.next_tick(at(499)), (1, at(500)));
        assert_eq!(streams.next_tick(at(500)), (2, at(1000)));
    }
}
