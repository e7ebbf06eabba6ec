//! One stream: answers its request, sends the response, and reads the rest of the request.
//!
//! Nearly every request arrives with its body and is answered at once. Its exchange then reuses the
//! allocation of an earlier one. Only an exchange that has to wait is kept, and is polled again
//! when it is woken.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use actix_web::web::Bytes;
use futures_util::Stream;
use futures_util::stream::FuturesUnordered;
use h2::server::SendResponse;
use h2::{Ping, PingPong, Reason, RecvStream, SendStream};
use http::header::{
    ALLOW, CONTENT_LENGTH, CONTENT_TYPE, DATE as DATE_NAME, HeaderMap, HeaderValue, RETRY_AFTER,
    WWW_AUTHENTICATE,
};
use http::request::Parts;
use http::{Response, StatusCode, Version};
use tokio::time::{Instant, Sleep, sleep};

use crate::server::accept::Connection;
use crate::server::request::RequestHead;
use crate::server::respond::{self, Reply, ReplyField};

/// The most bytes of responses that may wait for flow control on one connection.
const MAX_WAITING_BYTES: usize = 64 << 20;

/// The most bytes of a request that are read after its response. A client that is still writing
/// would treat a reset as a failure and discard the response.
const MAX_REST_BYTES: usize = 1 << 20;

/// How a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExchangeOutcome {
    /// A response was sent.
    Answered,
    /// The client reset the stream, or did not read the response.
    Reset,
}

/// The state that the streams of one connection share.
#[derive(Debug)]
pub(crate) struct SharedLimits {
    timeouts: Timeouts,
    /// The bytes of responses that wait for flow control.
    waiting: Cell<usize>,
}

/// Counts bytes of a response as waiting until it is dropped.
struct WaitingBytes<'l>(&'l SharedLimits, usize);

/// The most header fields of a request. An API server sends about ten.
pub(crate) const MAX_FIELDS: usize = 128;

/// The body of a request. The handler reads it, and after the response the exchange reads the rest.
pub(crate) struct StreamBody {
    stream: RecvStream,
    is_over: bool,
}

// === impl SharedLimits ===

impl SharedLimits {
    pub(crate) const fn new(timeouts: Timeouts) -> Self {
        Self {
            timeouts,
            waiting: Cell::new(0),
        }
    }

    /// `None` if too many bytes are waiting.
    fn wait(&self, bytes: usize) -> Option<WaitingBytes<'_>> {
        let sum = self.waiting.get().saturating_add(bytes);
        (sum <= MAX_WAITING_BYTES).then(|| {
            self.waiting.set(sum);
            WaitingBytes(self, bytes)
        })
    }
}

// === impl WaitingBytes ===

impl Drop for WaitingBytes<'_> {
    fn drop(&mut self) {
        self.0.waiting.set(self.0.waiting.get().saturating_sub(self.1));
    }
}

/// Sends the reply of `answer`, unless the client resets the stream before. The response to a HEAD
/// has no body.
pub(crate) async fn run<F>(
    answer: F,
    mut respond: SendResponse<Bytes>,
    is_head: bool,
    link: Rc<SharedLimits>,
) -> ExchangeOutcome
where
    F: Future<Output = (Reply, StreamBody)>,
{
    let Some((reply, body)) = unless_reset(answer, &mut respond).await else {
        return ExchangeOutcome::Reset;
    };
    let outcome = send(reply, is_head, respond, &link).await;
    if outcome == ExchangeOutcome::Answered && !body.is_over() {
        read_rest(body, link.timeouts.rest).await;
    }
    outcome
}

/// The output of `answer`; `None` if the stream is reset meanwhile.
async fn unless_reset<F: Future>(answer: F, respond: &mut SendResponse<Bytes>) -> Option<F::Output> {
    let mut answer = pin!(answer);
    poll_fn(|context| match answer.as_mut().poll(context) {
        Poll::Ready(answer) => Poll::Ready(Some(answer)),
        Poll::Pending => respond.poll_reset(context).map(|_| None),
    })
    .await
}

async fn send(
    reply: Reply,
    is_head: bool,
    mut respond: SendResponse<Bytes>,
    link: &SharedLimits,
) -> ExchangeOutcome {
    let is_whole = is_head || reply.body.is_empty();
    let Ok(mut stream) = respond.send_response(response_head(&reply), is_whole) else {
        return ExchangeOutcome::Reset;
    };
    if is_whole || send_bytes(&mut stream, reply.body, link).await.is_some() {
        return ExchangeOutcome::Answered;
    }
    stream.send_reset(Reason::CANCEL);
    ExchangeOutcome::Reset
}

/// Sends `bytes` as flow control permits; `None` if it does not in time.
async fn send_bytes(stream: &mut SendStream<Bytes>, mut bytes: Bytes, link: &SharedLimits) -> Option<()> {
    stream.reserve_capacity(bytes.len());
    if stream.capacity() >= bytes.len() {
        return stream.send_data(bytes, true).ok();
    }
    let _waiting = link.wait(bytes.len())?;
    let mut timer = pin!(sleep(link.timeouts.send));
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let capacity = poll_fn(|context| poll_capacity(stream, timer.as_mut(), context)).await?;
        let part = bytes.split_to(capacity.min(bytes.len()));
        stream.send_data(part, bytes.is_empty()).ok()?;
    }
    Some(())
}

fn poll_capacity(
    stream: &mut SendStream<Bytes>,
    timer: Pin<&mut Sleep>,
    context: &mut Context<'_>,
) -> Poll<Option<usize>> {
    match stream.poll_capacity(context) {
        Poll::Ready(Some(Ok(capacity))) => Poll::Ready(Some(capacity)),
        Poll::Ready(Some(Err(_)) | None) => Poll::Ready(None),
        Poll::Pending => timer.poll(context).map(|()| None),
    }
}

/// Reads and discards what the client still sends, within bounds.
async fn read_rest(mut body: StreamBody, within: Duration) {
    let mut read = 0;
    let mut timer = pin!(sleep(within));
    while read < MAX_REST_BYTES {
        let chunk = poll_fn(|context| match body.poll_chunk(context) {
            Poll::Pending => timer.as_mut().poll(context).map(|()| None),
            ready => ready,
        });
        match chunk.await {
            Some(Ok(chunk)) => read += chunk.len(),
            Some(Err(_)) | None => return,
        }
    }
}

/// The running exchanges, and spare allocations for further ones.
pub(crate) struct Exchanges<E> {
    /// The exchanges that were not polled yet.
    begun: Vec<ExchangeSlot<E>>,
    waiting: FuturesUnordered<ExchangeSlot<E>>,
    spare: Vec<ExchangeSlot<E>>,
}

/// The allocation in which an exchange runs.
struct ExchangeSlot<E>(Pin<Box<Option<E>>>);

/// The allocations that an idle connection keeps, of some kilobytes each.
const MAX_SPARE_PLACES: usize = 4;

// === impl Exchanges ===

impl<E: Future> Exchanges<E> {
    pub(crate) fn new() -> Self {
        Self {
            begun: Vec::new(),
            waiting: FuturesUnordered::new(),
            spare: Vec::new(),
        }
    }

    /// The number of exchanges that have not ended.
    pub(crate) fn len(&self) -> usize {
        self.begun.len() + self.waiting.len()
    }

    /// The number of exchanges that were not polled yet.
    pub(crate) fn begun(&self) -> usize {
        self.begun.len()
    }

    /// Starts the exchange that `mk_exchange` returns, without polling it.
    pub(crate) fn begin(&mut self, mk_exchange: impl FnOnce() -> E) {
        let mut place = self.spare.pop().unwrap_or_else(|| ExchangeSlot(Box::pin(None)));
        place.0.set(Some(mk_exchange()));
        self.begun.push(place);
    }

    /// Polls new exchanges and those that were woken, and passes the output of each that has ended
    /// to `end`.
    pub(crate) fn run(&mut self, context: &mut Context<'_>, mut end: impl FnMut(E::Output)) {
        for mut place in self.begun.drain(..) {
            match Pin::new(&mut place).poll(context) {
                Poll::Ready(outcome) => {
                    end(outcome);
                    if self.spare.len() < MAX_SPARE_PLACES {
                        place.0.set(None);
                        self.spare.push(place);
                    }
                }
                Poll::Pending => self.waiting.push(place),
            }
        }
        while !self.waiting.is_empty()
            && let Poll::Ready(Some(outcome)) = Pin::new(&mut self.waiting).poll_next(context)
        {
            end(outcome);
        }
    }
}

// === impl ExchangeSlot ===

impl<E: Future> Future for ExchangeSlot<E> {
    type Output = E::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<E::Output> {
        let exchange = self.get_mut().0.as_mut().as_pin_mut();
        exchange.map_or(Poll::Pending, |exchange| exchange.poll(context))
    }
}

// Timeouts of an HTTP/2 connection, and the PING that detects clients that are gone or do not read.

/// The PINGs of one connection.
pub(crate) struct Keepalive {
    /// `None` once the connection is closing.
    pings: Option<PingPong>,
    is_unanswered: bool,
    timeouts: Timeouts,
    timer: Pin<Box<Sleep>>,
}

// === impl Keepalive ===

impl Keepalive {
    pub(crate) fn new(pings: Option<PingPong>, timeouts: Timeouts) -> Self {
        Self {
            pings,
            is_unanswered: false,
            timeouts,
            timer: Box::pin(sleep(timeouts.ping)),
        }
    }

    /// Sends a PING when it is due. Ready when the last one was not acknowledged in time.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        let Some(pings) = &mut self.pings else {
            return Poll::Pending;
        };
        if self.is_unanswered && pings.poll_pong(context)?.is_ready() {
            self.is_unanswered = false;
            self.timer.as_mut().reset(Instant::now() + self.timeouts.ping);
        }
        while self.timer.as_mut().poll(context).is_ready() {
            if self.is_unanswered {
                return Poll::Ready(Ok(()));
            }
            pings.send_ping(Ping::opaque())?;
            self.is_unanswered = true;
            self.timer.as_mut().reset(Instant::now() + self.timeouts.pong);
            if pings.poll_pong(context)?.is_ready() {
                self.is_unanswered = false;
            }
        }
        Poll::Pending
    }
}

/// The timeouts of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeouts {
    /// For the client to read a response.
    pub(crate) send: Duration,
    /// For the rest of a request to arrive after its response.
    pub(crate) rest: Duration,
    /// From an acknowledged PING to the next.
    pub(crate) ping: Duration,
    /// For the acknowledgement of a PING, which is queued behind data that the client is sending.
    pub(crate) pong: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            send: Duration::from_secs(30),
            rest: Duration::from_secs(5),
            ping: Duration::from_secs(30),
            pong: Duration::from_secs(15),
        }
    }
}

// === impl StreamBody ===

impl StreamBody {
    pub(crate) const fn new(stream: RecvStream) -> Self {
        Self {
            stream,
            is_over: false,
        }
    }

    /// Whether the body has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over || self.stream.is_end_stream()
    }

    /// The next chunk, whose bytes are released to the flow control of the connection.
    pub(crate) fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, h2::Error>>> {
        let chunk = ready!(self.stream.poll_data(context));
        self.is_over = !matches!(chunk, Some(Ok(_)));
        Poll::Ready(chunk.map(|chunk| {
            let chunk = chunk?;
            self.stream.flow_control().release_capacity(chunk.len())?;
            Ok(chunk)
        }))
    }
}

impl Stream for StreamBody {
    type Item = Result<Bytes, h2::Error>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_chunk(context)
    }
}

/// The head of a request of `connection`, as the routes see it.
pub(crate) fn request_head<'r>(parts: &'r Parts, connection: &'r Connection) -> RequestHead<'r> {
    let target = (parts.uri.path(), parts.uri.query().unwrap_or_default());
    let fields = parts.headers.iter();
    let fields = fields.map(|(name, value)| (name.as_str(), value.as_bytes()));
    RequestHead::new(connection, parts.method.as_str(), target, fields)
}

/// The response head for `reply`.
fn response_head(reply: &Reply) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(reply.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    *response.version_mut() = Version::HTTP_2;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(respond::JSON));
    headers.insert(CONTENT_LENGTH, content_length(reply.body.len()));
    if let Some(field) = &reply.field {
        add(headers, field);
    }
    add_date(headers);
    response
}

/// Values for lengths below this, which most replies have, are cached on each thread.
const MAX_CACHED_LENGTH: usize = 1024;

/// The header `Content-Length`.
fn content_length(length: usize) -> HeaderValue {
    thread_local! {
        static WRITTEN: RefCell<Vec<Option<HeaderValue>>> = const { RefCell::new(Vec::new()) };
    }
    if length >= MAX_CACHED_LENGTH {
        return HeaderValue::from(length);
    }
    WRITTEN.with_borrow_mut(|written| {
        if written.len() <= length {
            written.resize(length + 1, None);
        }
        match written.get_mut(length) {
            Some(value) => value.get_or_insert_with(|| HeaderValue::from(length)).clone(),
            None => HeaderValue::from(length),
        }
    })
}

fn add(headers: &mut HeaderMap, field: &ReplyField) {
    match field {
        ReplyField::Allow(methods) => {
            headers.insert(ALLOW, HeaderValue::from_static(methods));
        }
        ReplyField::RetryAfter(seconds) => {
            headers.insert(RETRY_AFTER, HeaderValue::from(*seconds));
        }
        ReplyField::Challenge(text) => {
            if let Ok(text) = HeaderValue::try_from(text) {
                headers.insert(WWW_AUTHENTICATE, text);
            }
        }
    }
}

thread_local! {
    /// The header `Date` and the second for which it was written.
    static DATE: RefCell<(u64, Option<HeaderValue>)> = const { RefCell::new((0, None)) };
}

/// Updates the `Date` of the following responses to the current time.
pub(crate) fn refresh_date() {
    write_date(SystemTime::now());
}

fn write_date(now: SystemTime) {
    let second = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    DATE.with_borrow_mut(|(written, date)| {
        if *written != second {
            *written = second;
            *date = HeaderValue::from_str(&httpdate::fmt_http_date(now)).ok();
        }
    });
}

fn add_date(headers: &mut HeaderMap) {
    let date = DATE.with_borrow(|(_, date)| date.clone());
    if let Some(date) = date {
        headers.insert(DATE_NAME, date);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::web::Bytes;
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::rc::Rc;
    use std::task::Waker;
    use std::time::Duration;

    #[test]
    fn unread_responses_have_a_common_limit() {
        let link = SharedLimits::new(Timeouts::default());
        let first = link.wait(MAX_WAITING_BYTES - 1).unwrap();
        let second = link.wait(1).unwrap();
        assert!(link.wait(1).is_none());
        drop(second);
        assert!(link.wait(1).is_some());
        drop(first);
        assert_eq!(link.waiting.get(), 0);
    }

    #[test]
    fn an_exchange_ends_at_once_or_when_it_can() {
        let mut context = Context::from_waker(Waker::noop());
        let (mut exchanges, may_end) = (Exchanges::new(), Rc::new(Cell::new(true)));
        let mk_exchange = |number: u32| {
            let may_end = Rc::clone(&may_end);
            poll_fn(move |context: &mut Context<'_>| {
                context.waker().wake_by_ref();
                if may_end.get() {
                    Poll::Ready(number)
                } else {
                    Poll::Pending
                }
            })
        };
        let mut run = |exchanges: &mut Exchanges<_>| {
            let mut ended = Vec::new();
            exchanges.run(&mut context, |number| ended.push(number));
            ended.sort_unstable();
            ended
        };
        exchanges.begin(|| mk_exchange(1));
        exchanges.begin(|| mk_exchange(2));
        assert_eq!((exchanges.len(), exchanges.begun()), (2, 2));
        assert_eq!(run(&mut exchanges), [1, 2]);
        assert_eq!(exchanges.len(), 0);
        may_end.set(false);
        exchanges.begin(|| mk_exchange(3));
        exchanges.begin(|| mk_exchange(4));
        assert_eq!(run(&mut exchanges), [0_u32; 0]);
        assert_eq!((exchanges.len(), exchanges.begun()), (2, 0));
        may_end.set(true);
        exchanges.begin(|| mk_exchange(5));
        assert_eq!(run(&mut exchanges), [3, 4, 5]);
        assert_eq!(exchanges.len(), 0);
    }

    #[test]
    fn a_reply_has_its_own_field_beside_those_that_all_have() {
        let fields_of = |code, field| {
            let reply = Reply {
                code,
                field,
                body: "0123456789ab".into(),
                closes_connection: true,
            };
            let head = response_head(&reply);
            assert_eq!(head.status(), code);
            let fields = head.headers().iter().filter(|(name, _)| *name != DATE_NAME);
            let mut fields: Vec<_> = fields
                .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
                .collect();
            fields.sort();
            fields
        };
        let common = ["content-length: 12", "content-type: application/json"];
        assert_eq!(fields_of(200, None), common);
        for (code, field, text) in [
            (405, ReplyField::Allow("POST"), "allow: POST"),
            (429, ReplyField::RetryAfter(1), "retry-after: 1"),
            (
                401,
                ReplyField::Challenge("Bearer".to_owned()),
                "www-authenticate: Bearer",
            ),
        ] {
            let mut expected = vec![text];
            expected.extend(common);
            expected.sort_unstable();
            assert_eq!(fields_of(code, Some(field)), expected);
        }
    }

    #[test]
    fn a_length_is_written_as_it_is() {
        for length in [
            0,
            300,
            MAX_CACHED_LENGTH - 1,
            MAX_CACHED_LENGTH,
            10 * MAX_CACHED_LENGTH,
            300,
            7,
        ] {
            assert_eq!(content_length(length), length.to_string(), "{length}");
        }
    }

    #[test]
    fn the_date_follows_the_clock() {
        for (seconds, date) in [
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (784_111_778, "Sun, 06 Nov 1994 08:49:38 GMT"),
        ] {
            write_date(UNIX_EPOCH + Duration::from_secs(seconds));
            let head = response_head(&Reply::review(Bytes::new()));
            assert_eq!(head.headers()[DATE_NAME], date);
        }
    }
}
