//! The head of a request, and its body, which is read within limits of size and time.
//!
//! HTTP/1.1 and HTTP/2 come from crates with different types for the same fields. Both are
//! converted once into a [`RequestHead`], so that the code after it does not depend on the version.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use actix_web::dev::Url;
use actix_web::http::Uri;
use actix_web::web::{Bytes, BytesMut};
use futures_util::Stream;
use tokio::time::{Sleep, sleep_until};

use super::accept::Connection;
use super::limits::Permit;
use super::respond::Rejection;
use crate::config::kubeconfig::Secret;
use crate::telemetry::metrics::Phase;

/// The parts of a head that the routes use, borrowed from it.
pub(crate) struct RequestHead<'r> {
    pub(crate) connection: &'r Connection,
    pub(crate) is_post: bool,
    pub(crate) path: &'r str,
    pub(crate) query: &'r str,
    /// The value of `Authorization`; none if there are several.
    pub(crate) authorization: SingleField<'r>,
    /// The first `Content-Type`.
    pub(crate) content_type: Option<&'r [u8]>,
    /// The first `Content-Encoding`.
    pub(crate) content_encoding: Option<&'r [u8]>,
    /// The first `Content-Length`.
    pub(crate) content_length: Option<&'r [u8]>,
    /// The first `traceparent`.
    pub(crate) traceparent: Option<&'r [u8]>,
    /// Every `Via`.
    pub(crate) via: Vec<&'r [u8]>,
}

/// A field that is used only if it occurs exactly once.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SingleField<'r> {
    /// There is none.
    #[default]
    Absent,
    /// There is one.
    One(&'r [u8]),
    /// There are several.
    Several,
}

/// A path: the route, and the path token before it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReviewPath {
    pub(crate) route: ReviewRoute,
    /// The token in `/t/TOKEN` before the route. It is stored here only, so that it is not in logs,
    /// metrics or recordings.
    pub(crate) token: Option<Secret>,
}

/// The route of a path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReviewRoute {
    /// `/authorize`
    Authorize,
    /// `/validate` or `/mutate`, and the only policy or webhook configuration to evaluate.
    Admit(Phase, Option<String>),
}

/// The time in which the first MiB of a body must arrive, and each further one.
const FIRST_STEP_TIMEOUT: Duration = Duration::from_secs(5);
const STEP_TIMEOUT: Duration = Duration::from_secs(1);
const STEP_BYTES: usize = 1 << 20;

/// The most bytes that are read of a body that is discarded.
const MAX_SKIPPED_BYTES: usize = 64 << 10;

/// Whether the body is declared as `application/json` in UTF-8, without compression.
pub(crate) fn check_content_type(head: &RequestHead<'_>) -> Result<(), Rejection> {
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
    // Nearly every client sends exactly this.
    if value == b"application/json" {
        return true;
    }
    let mut parts = value.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    let is_json = parts
        .next()
        .is_some_and(|media| media.eq_ignore_ascii_case(b"application/json"));
    is_json && parts.all(|parameter| !is_foreign_charset(parameter))
}

/// Whether a parameter names a character set other than UTF-8 or its subset US-ASCII.
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

/// The announced length of the body; 0 if there is none.
pub(crate) fn content_length(head: &RequestHead<'_>) -> usize {
    let text = head
        .content_length
        .and_then(|value| std::str::from_utf8(value).ok());
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// The time in which a body of which `received` bytes have arrived may arrive.
fn allowance(received: usize) -> Duration {
    let further = u32::try_from(received / STEP_BYTES).unwrap_or(u32::MAX);
    STEP_TIMEOUT
        .saturating_mul(further)
        .saturating_add(FIRST_STEP_TIMEOUT)
}

/// A complete body.
pub(crate) struct ReadBody {
    pub(crate) bytes: Bytes,
    /// Whether it was read without waiting.
    pub(crate) was_immediate: bool,
}

/// Reads the whole body of a request that arrived at `begun`. The time is bounded by the bytes that
/// have arrived and by `deadline`, because a slow client holds memory that others need.
pub(crate) async fn read_body<B, E>(
    payload: &mut B,
    permit: &mut Permit,
    limit: usize,
    begun: Instant,
    deadline: Instant,
) -> Result<ReadBody, Rejection>
where
    B: Stream<Item = Result<Bytes, E>> + Unpin,
{
    read_body_until(Instant::now, payload, permit, limit, begun, deadline).await
}

/// Like [`read_body`], with the given clock.
async fn read_body_until<B, E>(
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
    let mut timer = pin!(LazyTimer {
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
                    was_immediate: !timer.polled,
                });
            }
            Err(()) => return Err(Rejection::BodyDeadlineExceeded),
        }
    }
}

/// Discards a small body that arrived together with its head, so that the connection can be reused
/// after a rejection. Does not wait for further bytes.
pub(crate) async fn skip_body<B, E>(payload: &mut B)
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

/// The bytes that have arrived. A body that arrives in one piece is not copied.
#[derive(Default)]
struct ReceivedBody {
    first: Bytes,
    all: BytesMut,
}

// === impl RequestHead ===

impl<'r> RequestHead<'r> {
    /// The head of a request of `connection` with these header fields, whose names are in
    /// lower case.
    pub(crate) fn new(
        connection: &'r Connection,
        method: &str,
        (path, query): (&'r str, &'r str),
        fields: impl Iterator<Item = (&'r str, &'r [u8])>,
    ) -> Self {
        let mut head = Self {
            connection,
            is_post: method == "POST",
            path,
            query,
            authorization: SingleField::Absent,
            content_type: None,
            content_encoding: None,
            content_length: None,
            traceparent: None,
            via: Vec::new(),
        };
        for (name, value) in fields {
            head.add(name, value);
        }
        head
    }

    fn add(&mut self, name: &str, value: &'r [u8]) {
        match name {
            "authorization" => self.authorization.add(value),
            "content-type" => self.content_type = self.content_type.or(Some(value)),
            "content-encoding" => self.content_encoding = self.content_encoding.or(Some(value)),
            "content-length" => self.content_length = self.content_length.or(Some(value)),
            "traceparent" => self.traceparent = self.traceparent.or(Some(value)),
            "via" => self.via.push(value),
            _ => {}
        }
    }
}

// === impl SingleField ===

impl<'r> SingleField<'r> {
    fn add(&mut self, value: &'r [u8]) {
        *self = match self {
            Self::Absent => Self::One(value),
            Self::One(_) | Self::Several => Self::Several,
        };
    }

    /// The value, if there is exactly one.
    pub(crate) const fn value(self) -> Option<&'r [u8]> {
        match self {
            Self::One(value) => Some(value),
            Self::Absent | Self::Several => None,
        }
    }
}

// === impl ReviewPath ===

impl ReviewPath {
    /// Parses `path`, which is still encoded.
    pub(crate) fn of(path: &str) -> Option<Self> {
        if path.contains('%') {
            let uri = Uri::try_from(path).ok()?;
            return Self::of_decoded(Url::new(uri).path());
        }
        Self::of_decoded(path)
    }

    fn of_decoded(path: &str) -> Option<Self> {
        let Some(rest) = path.strip_prefix("/t/") else {
            let route = ReviewRoute::of(path)?;
            return Some(Self { route, token: None });
        };
        let (token, path) = rest.split_at(rest.find('/')?);
        let route = ReviewRoute::of(path)?;
        (!token.is_empty()).then(|| Self {
            route,
            token: Some(Secret::new(token)),
        })
    }
}

// === impl ReviewRoute ===

impl ReviewRoute {
    fn of(path: &str) -> Option<Self> {
        let path = path.strip_prefix('/')?;
        let (endpoint, name) = match path.split_once('/') {
            None => (path, None),
            Some((_, name)) if name.is_empty() || name.contains('/') => return None,
            Some((endpoint, name)) => (endpoint, Some(name)),
        };
        match (endpoint, name) {
            ("authorize", None) => Some(Self::Authorize),
            ("validate", name) => Some(Self::Admit(Phase::Validate, name.map(str::to_owned))),
            ("mutate", name) => Some(Self::Admit(Phase::Mutate, name.map(str::to_owned))),
            _ => None,
        }
    }
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

/// Completes at the deadline. The timer is created at the second poll, because most bodies arrive
/// with their heads and need none.
struct LazyTimer<N> {
    now: N,
    deadline: Instant,
    polled: bool,
    sleep: Option<Pin<Box<Sleep>>>,
}

// === impl LazyTimer ===

impl<N> LazyTimer<N> {
    /// Moves the deadline, unless that would be earlier than before.
    fn extend(&mut self, deadline: Instant) {
        if deadline > self.deadline {
            self.deadline = deadline;
            if let Some(sleep) = &mut self.sleep {
                sleep.as_mut().reset(deadline.into());
            }
        }
    }
}

impl<N: Fn() -> Instant + Unpin> Future for LazyTimer<N> {
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
mod tests;
