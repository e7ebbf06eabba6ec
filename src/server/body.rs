//! Request bodies: content type, size limit and deadline.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use actix_web::web::{Bytes, BytesMut};
use futures_util::Stream;
use tokio::time::{Sleep, sleep_until};

use super::head::RequestHead;
use super::limits::Permit;
use super::respond::Rejection;

/// How long the first MiB of a body may take to arrive, and each further one.
const FIRST_STEP_TIMEOUT: Duration = Duration::from_secs(5);
const STEP_TIMEOUT: Duration = Duration::from_secs(1);
const STEP_BYTES: usize = 1 << 20;

/// The most that is read of a body that nobody looks at.
const MAX_SKIPPED_BYTES: usize = 64 << 10;

/// Whether the headers say `application/json`, in UTF-8 and as it is.
pub(crate) fn check_type(head: &RequestHead<'_>) -> Result<(), Rejection> {
    let is_json = head.content_type.is_some_and(is_json);
    let is_plain = head
        .content_encoding
        .is_none_or(|value| value.eq_ignore_ascii_case(b"identity"));
    if is_json && is_plain {
        Ok(())
    } else {
        Err(Rejection::UnsupportedMediaType)
    }
}

fn is_json(value: &[u8]) -> bool {
    // As nearly every client writes it.
    if value == b"application/json" {
        return true;
    }
    let mut parts = value.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    let is_json = parts
        .next()
        .is_some_and(|media| media.eq_ignore_ascii_case(b"application/json"));
    is_json && parts.all(|parameter| !is_foreign_charset(parameter))
}

/// Whether a parameter names a character set other than UTF-8 and its subset.
fn is_foreign_charset(parameter: &[u8]) -> bool {
    let Some((name, value)) = parameter.split_at_checked(8) else {
        return false;
    };
    let value = value.trim_ascii();
    let value = value
        .strip_prefix(b"\"")
        .and_then(|value| value.strip_suffix(b"\""))
        .unwrap_or(value);
    name.eq_ignore_ascii_case(b"charset=")
        && !value.eq_ignore_ascii_case(b"utf-8")
        && !value.eq_ignore_ascii_case(b"us-ascii")
}

/// The length that the headers announce; 0 if none.
pub(crate) fn announced(head: &RequestHead<'_>) -> usize {
    let text = head
        .content_length
        .and_then(|value| std::str::from_utf8(value).ok());
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// How long a body of which so much is there may have taken.
fn allowance(received: usize) -> Duration {
    let further = u32::try_from(received / STEP_BYTES).unwrap_or(u32::MAX);
    STEP_TIMEOUT
        .saturating_mul(further)
        .saturating_add(FIRST_STEP_TIMEOUT)
}

/// A body that was read.
pub(crate) struct ReadBody {
    pub(crate) bytes: Bytes,
    /// Nothing had to be waited for.
    pub(crate) at_once: bool,
}

/// The whole body of a request that arrived at `begun`, or why not. Who sends slowly keeps
/// the room of others: the time is bounded by what has arrived, and by `deadline`.
pub(crate) async fn read<B, E>(
    payload: &mut B,
    permit: &mut Permit,
    limit: usize,
    begun: Instant,
    deadline: Instant,
) -> Result<ReadBody, Rejection>
where
    B: Stream<Item = Result<Bytes, E>> + Unpin,
{
    read_by(Instant::now, payload, permit, limit, begun, deadline).await
}

/// The same by a clock that is given.
async fn read_by<B, E>(
    now: impl Fn() -> Instant + Unpin,
    payload: &mut B,
    permit: &mut Permit,
    limit: usize,
    begun: Instant,
    deadline: Instant,
) -> Result<ReadBody, Rejection>
where
    B: Stream<Item = Result<Bytes, E>> + Unpin,
{
    let ends = |received| {
        begun
            .checked_add(allowance(received))
            .map_or(deadline, |end| end.min(deadline))
    };
    let mut payload = Pin::new(payload);
    let mut timer = pin!(LateTimer {
        now,
        deadline: ends(0),
        polled: false,
        sleep: None
    });
    let mut body = ReceivedBody::default();
    loop {
        let chunk = poll_fn(|context| match payload.as_mut().poll_next(context) {
            Poll::Ready(chunk) => Poll::Ready(Ok(chunk)),
            Poll::Pending => timer.as_mut().poll(context).map(Err),
        });
        match chunk.await {
            Ok(Some(Ok(chunk))) => {
                body.push(chunk, permit, limit)?;
                timer.extend(ends(body.len()));
            }
            Ok(Some(Err(_))) => return Err(Rejection::Incomplete),
            Ok(None) => {
                return Ok(ReadBody {
                    bytes: body.finish(),
                    at_once: !timer.polled,
                });
            }
            Err(()) => return Err(Rejection::BodyDeadlineExceeded),
        }
    }
}

/// Takes a small body that has come with its head out of the way, so that the
/// connection stays good after a rejection. Waits for nothing.
pub(crate) async fn skip<B, E>(payload: &mut B)
where
    B: Stream<Item = Result<Bytes, E>> + Unpin,
{
    let mut payload = Pin::new(payload);
    let (mut skipped, mut looked_again) = (0, false);
    let mut next = async || {
        poll_fn(|context| match payload.as_mut().poll_next(context) {
            Poll::Pending if looked_again => Poll::Ready(None),
            Poll::Pending => {
                looked_again = true;
                context.waker().wake_by_ref();
                Poll::Pending
            }
            ready => ready,
        })
        .await
    };
    while let Some(Ok(chunk)) = next().await {
        skipped += chunk.len();
        if skipped > MAX_SKIPPED_BYTES {
            return;
        }
    }
}

/// What has arrived. A body in one piece is never copied.
#[derive(Default)]
struct ReceivedBody {
    first: Bytes,
    all: BytesMut,
}

// === impl ReceivedBody ===

impl ReceivedBody {
    fn push(&mut self, chunk: Bytes, permit: &mut Permit, limit: usize) -> Result<(), Rejection> {
        let length = self.len() + chunk.len();
        if length > limit {
            return Err(Rejection::TooLarge { limit });
        }
        if !permit.reserve_body(length) {
            return Err(Rejection::TooManyRequests);
        }
        if length == chunk.len() {
            self.first = chunk;
            return Ok(());
        }
        self.all.extend_from_slice(&std::mem::take(&mut self.first));
        self.all.extend_from_slice(&chunk);
        Ok(())
    }

    fn len(&self) -> usize {
        self.first.len() + self.all.len()
    }

    fn finish(self) -> Bytes {
        if self.all.is_empty() {
            self.first
        } else {
            self.all.freeze()
        }
    }
}

/// Ends at the deadline; the timer is made at the second poll. Most bodies come
/// with their heads and are there by then: they need none.
struct LateTimer<N> {
    now: N,
    deadline: Instant,
    polled: bool,
    sleep: Option<Pin<Box<Sleep>>>,
}

// === impl LateTimer ===

impl<N> LateTimer<N> {
    /// Ends later than before, or at the same time.
    fn extend(&mut self, deadline: Instant) {
        if deadline > self.deadline {
            self.deadline = deadline;
            if let Some(sleep) = &mut self.sleep {
                sleep.as_mut().reset(deadline.into());
            }
        }
    }
}

impl<N: Fn() -> Instant + Unpin> Future for LateTimer<N> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if !self.polled {
            self.polled = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let deadline = self.deadline;
        if (self.now)() >= deadline {
            return Poll::Ready(());
        }
        self.sleep
            .get_or_insert_with(|| Box::pin(sleep_until(deadline.into())))
            .as_mut()
            .poll(context)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::convert::Infallible;
    use std::rc::Rc;
    use std::sync::Arc;

    use super::super::accept;
    use super::*;
    use crate::server::limits::{Capacity, Limiter};
    use crate::telemetry::metrics::IntGauge;

    #[test]
    fn a_body_has_five_seconds_and_one_for_each_mebibyte_that_is_there() {
        for (received, seconds) in [(0, 5), (1, 5), ((1 << 20) - 1, 5), (1 << 20, 6), (32 << 20, 37)] {
            assert_eq!(allowance(received), Duration::from_secs(seconds), "{received}");
        }
    }

    /// Reads a body of which a piece comes after each pause, by a clock that moves with
    /// them; what became of it, and after how long.
    fn trickle(pieces: Vec<(u64, usize)>, deadline: Duration) -> (Result<usize, Rejection>, Duration) {
        let (start, time) = (Instant::now(), Rc::new(Cell::new(Duration::ZERO)));
        let clock = Rc::clone(&time);
        let (mut pieces, mut is_due) = (pieces.into_iter().peekable(), false);
        let mut payload = futures_util::stream::poll_fn(move |context| {
            if let Some((_, length)) = pieces.next_if(|_| is_due) {
                is_due = false;
                return Poll::Ready(Some(Ok::<_, Infallible>(Bytes::from(vec![b' '; length]))));
            }
            let Some((pause, _)) = pieces.peek() else {
                return Poll::Ready(None);
            };
            is_due = true;
            clock.set(clock.get() + Duration::from_millis(*pause));
            context.waker().wake_by_ref();
            Poll::Pending
        });
        let capacity = Capacity {
            requests: 1,
            bytes: usize::MAX,
            memory: 0,
            calls: 0,
        };
        let gauge = IntGauge::new("in_flight", "requests").unwrap();
        let mut permit = Arc::new(Limiter::default())
            .enter(capacity, None, 0, &gauge)
            .unwrap();
        let read = read_by(
            || start + time.get(),
            &mut payload,
            &mut permit,
            usize::MAX,
            start,
            start + deadline,
        );
        let read = actix_web::rt::System::new().block_on(read);
        (read.map(|body| body.bytes.len()), time.get())
    }

    #[test]
    fn a_body_that_trickles_is_ended_however_long_its_caller_would_wait() {
        let (never, mebibyte) = (Duration::from_secs(3600), 1 << 20);
        let after = |pieces: Vec<(u64, usize)>| {
            let (read, elapsed) = trickle(pieces, never);
            (read.is_err(), elapsed.as_millis())
        };
        // A byte each second, for ever: there are five.
        assert_eq!(after(vec![(1000, 1); 100]), (true, 5000));
        // A MiB that comes in time is another second's worth, and no more.
        let slow_after: Vec<_> = [(4000, mebibyte)].into_iter().chain([(500, 1); 100]).collect();
        assert_eq!(after(slow_after), (true, 6000));
        // One that comes at the slowest pace that is allowed arrives.
        let steady: Vec<_> = [(4900, mebibyte)]
            .into_iter()
            .chain([(1000, mebibyte); 7])
            .collect();
        assert_eq!(trickle(steady, never).0.unwrap(), 8 * mebibyte);
        // The caller's own deadline is earlier.
        let (read, elapsed) = trickle(vec![(1000, 1); 100], Duration::from_secs(2));
        assert!(matches!(read, Err(Rejection::BodyDeadlineExceeded)));
        assert_eq!(elapsed, Duration::from_secs(2));
    }

    #[test]
    fn json_is_told_by_the_headers() {
        let connection = accept::stranger();
        let check = |content_type: &str, encoding: &str| {
            let fields = [("content-type", content_type), ("content-encoding", encoding)];
            let fields = fields.into_iter().filter(|(_, value)| !value.is_empty());
            let fields = fields.map(|(name, value)| (name, value.as_bytes()));
            check_type(&RequestHead::new(&connection, "POST", ("/", ""), fields)).is_ok()
        };
        for content_type in [
            "application/json",
            "Application/JSON",
            "application/json; charset=utf-8",
            "application/json ;charset=\"UTF-8\"",
            "application/json;profile=x",
        ] {
            assert!(check(content_type, ""), "{content_type}");
        }
        for content_type in [
            "",
            "text/plain",
            "application/jsonx",
            "application/json;charset=utf-16",
            "application/yaml",
        ] {
            assert!(!check(content_type, ""), "{content_type}");
        }
        assert!(check("application/json", "identity"));
        assert!(!check("application/json", "gzip"));
    }
}
