//! HTTP/2: drives the connections of h2. Requests use the same routes as those of HTTP/1.1.
//!
//! ```text
//! TLS ──▶ gate ──▶ h2 ──▶ accept ──▶ exchange: request ▶ routes ▶ response ▶ rest of the body
//!          │ bytes          │ few at a time        one future a stream, in the connection's task
//!          └── header blocks: bounded, in time     └── until answered or reset
//! ```
//!
//! The driver of actix has no suitable limits: see `docs/decisions/http2-driver.md`. Everything
//! that a client can make a connection hold is limited. "Unproven" are connections whose client is
//! not authenticated.
//!
//! | what | bound |
//! |---|---|
//! | a decoded header list | 64 KiB, 128 fields: otherwise 431; four times as much ends the connection |
//! | a header block | 64 KiB compressed, 10 s from its first byte to its last |
//! | decoded heads that are not accepted yet | 32 streams, unproven 4 |
//! | open streams | 1,000, unproven 32 |
//! | streams that the client resets | 1,000 more than are answered |
//! | responses that wait for flow control | 64 MiB, 30 s each |
//! | requests that continue after their response | 1 MiB, 5 s |
//! | silence | a PING after 30 s, 15 s for its acknowledgement |

mod exchange;
mod gate;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use actix_web::web::Bytes;
use h2::server::{Builder, Connection as H2, SendResponse};
use h2::{Reason, RecvStream};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite};

use super::accept::{Connection, ConnectionStage};
use super::request::RequestHead;
use super::respond::Reply;
use exchange::{ExchangeOutcome, Exchanges, Keepalive, MAX_FIELDS, SharedLimits};
pub(crate) use exchange::{StreamBody, Timeouts};
use gate::{FrameAllowance, Gate};

/// The most bytes of a decoded header list.
const MAX_HEADER_LIST: u32 = 64 << 10;

/// The most open streams, and those of an unproven connection.
const MAX_STREAMS: u32 = 1000;
const MAX_STREAMS_UNPROVEN: usize = 32;

/// The most streams whose heads may be decoded before they are accepted, and those of an unproven
/// connection.
const ACCEPTED_AT_ONCE: usize = 32;
const ACCEPTED_AT_ONCE_UNPROVEN: usize = 4;

/// How many more streams a client may reset than are answered.
const MAX_RESETS: usize = 1000;

/// The flow-control windows of a stream and of a connection: the most bytes that may be received
/// but not read.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 2 << 20;

/// Answers the requests of one connection with `app` until it ends. `app` returns the body together
/// with its reply, whether it was read or not.
pub(crate) async fn serve<IO, A, F>(io: IO, connection: Rc<Connection>, app: A, timeouts: Timeouts)
where
    IO: AsyncRead + AsyncWrite + Unpin,
    A: Fn(&RequestHead<'_>, StreamBody) -> F,
    F: Future<Output = (Reply, StreamBody)>,
{
    let allowance = Rc::new(FrameAllowance::default());
    allowance.grant(ACCEPTED_AT_ONCE_UNPROVEN);
    let gate = Gate::new(io, Rc::clone(&connection), Rc::clone(&allowance));
    connection.head_began();
    let handshake = builder().handshake(gate).await;
    connection.head_ended();
    let ended = match handshake {
        Ok(h2) => drive(h2, allowance, connection, app, timeouts).await,
        Err(error) => Err(error),
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "an HTTP/2 connection has ended early");
    }
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder
        .max_header_list_size(MAX_HEADER_LIST)
        .max_concurrent_streams(MAX_STREAMS)
        .max_pending_accept_reset_streams(2 * ACCEPTED_AT_ONCE)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    builder
}

async fn drive<IO, A, F>(
    mut h2: H2<Gate<IO>, Bytes>,
    allowance: Rc<FrameAllowance>,
    connection: Rc<Connection>,
    app: A,
    timeouts: Timeouts,
) -> Result<(), h2::Error>
where
    IO: AsyncRead + AsyncWrite + Unpin,
    A: Fn(&RequestHead<'_>, StreamBody) -> F,
    F: Future<Output = (Reply, StreamBody)>,
{
    let mut keepalive = Keepalive::new(h2.ping_pong(), timeouts);
    let mut exchanges = Exchanges::new();
    let mut tally = StreamTally::default();
    let link = Rc::new(SharedLimits::new(timeouts));
    poll_fn(|context| {
        allowance.begin_turn();
        exchange::refresh_date();
        tally.follow(connection.stage(), &mut h2);
        loop {
            while let Poll::Ready(next) = poll_accept(&mut h2, context)? {
                let Some((request, respond)) = next else {
                    return Poll::Ready(Ok(()));
                };
                if tally.is_too_many(exchanges.len(), &connection) {
                    tally.end(&mut h2);
                } else if let Some((parts, body, respond)) = accept(request, respond) {
                    exchanges.begin(|| {
                        let answer = app(&exchange::request_head(&parts, &connection), body);
                        let is_head = parts.method == Method::HEAD;
                        exchange::run(answer, respond, is_head, Rc::clone(&link))
                    });
                }
            }
            let at_once = if connection.is_proven() {
                ACCEPTED_AT_ONCE
            } else {
                ACCEPTED_AT_ONCE_UNPROVEN
            };
            let held_back = allowance.is_used_up();
            allowance.grant(at_once);
            if held_back && exchanges.begun() <= at_once {
                // The data of their bodies may be among the bytes that the gate held back.
                continue;
            }
            // Exchanges run only now: h2 writes responses when it is polled for requests, and the
            // responses to all of these requests should be written together.
            let mut has_ended = false;
            exchanges.run(context, |outcome| {
                has_ended = true;
                tally.count(outcome);
            });
            if !has_ended && !held_back {
                break;
            }
        }
        keepalive.poll(context)
    })
    .await
}

type AcceptedStream = (http::Request<RecvStream>, SendResponse<Bytes>);

/// The next request; `None` once there are no more.
fn poll_accept<IO>(
    h2: &mut H2<Gate<IO>, Bytes>,
    context: &mut Context<'_>,
) -> Poll<Result<Option<AcceptedStream>, h2::Error>>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    pin!(h2.accept()).poll(context).map(Option::transpose)
}

/// Returns the parts of a request and the handle for its response; `None` if it was rejected
/// already.
fn accept(
    request: http::Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) -> Option<(Parts, StreamBody, SendResponse<Bytes>)> {
    let (parts, body) = request.into_parts();
    if parts.headers.len() > MAX_FIELDS {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        // An error means that the stream was reset.
        let _gone = respond.send_response(response, true);
        return None;
    }
    Some((parts, StreamBody::new(body), respond))
}

/// The counters and the state of one connection.
#[derive(Debug, Default)]
struct StreamTally {
    /// Streams reset by the client, minus those answered.
    resets: usize,
    is_draining: bool,
    is_ended: bool,
}

// === impl StreamTally ===

impl StreamTally {
    /// Sends GOAWAY when the gateway drains, and closes the connection once no request is in
    /// flight.
    fn follow<IO>(&mut self, stage: ConnectionStage, h2: &mut H2<Gate<IO>, Bytes>)
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        if stage >= ConnectionStage::Draining && !self.is_draining {
            self.is_draining = true;
            h2.graceful_shutdown();
        }
        if stage >= ConnectionStage::Ending && !self.is_ended {
            self.is_ended = true;
            h2.abrupt_shutdown(Reason::NO_ERROR);
        }
    }

    /// Whether a client with this number of open streams may not open another.
    fn is_too_many(&self, open: usize, connection: &Connection) -> bool {
        self.is_ended || self.resets > MAX_RESETS || (open >= MAX_STREAMS_UNPROVEN && !connection.is_proven())
    }

    /// Ends the connection because of such a client, even if streams are open.
    fn end<IO>(&mut self, h2: &mut H2<Gate<IO>, Bytes>)
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        if !self.is_ended {
            self.is_ended = true;
            h2.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
        }
    }

    /// Counts a stream that has ended.
    fn count(&mut self, outcome: ExchangeOutcome) {
        match outcome {
            ExchangeOutcome::Answered => self.resets = self.resets.saturating_sub(1),
            ExchangeOutcome::Reset => self.resets += 1,
        }
    }
}

/// Access to internals for the fuzz targets.
#[cfg(fuzzing)]
pub mod fuzzing {
    use std::net::{IpAddr, SocketAddr};
    use std::time::Duration;

    use actix_web::web::BytesMut;
    use futures_util::StreamExt as _;
    use tokio::io::{AsyncRead, AsyncWrite};

    use crate::config::ConnectionLimits;
    use crate::server::accept::{Connection, Connections, HEAD_TIMEOUT};
    use crate::server::http2::{self, StreamBody};
    use crate::server::request::RequestHead;
    use crate::server::respond::Reply;

    const LIMITS: ConnectionLimits = ConnectionLimits {
        max: 10,
        per_address: 10,
        authentication_timeout: Duration::MAX,
    };

    /// The length of a response that exceeds a flow-control window.
    const LARGE_REPLY_BYTES: usize = 300_000;

    /// The HTTP/2 driver with an application that responds with the body of the request, or to
    /// `/large` with more than a flow-control window.
    #[derive(Debug)]
    pub struct Http2;

    // === impl Http2 ===

    impl Http2 {
        /// The driver with its application.
        #[expect(clippy::unused_async, reason = "as the fuzz targets call it")]
        pub async fn new() -> Self {
            Self
        }

        /// Serves the connection `io` to its end, as that of an unauthenticated client or of a
        /// `proven` caller.
        ///
        /// # Panics
        ///
        /// The driver has a bug.
        #[expect(clippy::expect_used, reason = "of fuzz targets alone")]
        pub async fn serve(&self, io: impl AsyncRead + AsyncWrite + Unpin, proven: bool) {
            let address = IpAddr::from([127, 0, 0, 1]);
            let tracked = Connections::new(None)
                .add(address, LIMITS)
                .expect("the first of them");
            tracked.handshake_done(proven);
            let connection = Connection::new(tracked, SocketAddr::new(address, 1), None, HEAD_TIMEOUT);
            http2::serve(io, connection, answer, http2::Timeouts::default()).await;
        }
    }

    fn answer(
        head: &RequestHead<'_>,
        mut body: StreamBody,
    ) -> impl Future<Output = (Reply, StreamBody)> + use<> {
        let is_large = head.path == "/large";
        async move {
            let mut echo = BytesMut::new();
            while let Some(Ok(chunk)) = body.next().await {
                echo.extend_from_slice(&chunk);
            }
            if is_large {
                echo.resize(LARGE_REPLY_BYTES, 0);
            }
            (Reply::review(echo.freeze()), body)
        }
    }
}

#[cfg(test)]
mod tests;
