//! HTTP/1.1 by actix, on a stream that enforces a deadline for every request head.
//!
//! actix has a deadline only for the first head of a connection, and none for a client that does
//! not read the response. Therefore the stream starts the read deadline when a write blocks, and
//! the head deadline when bytes arrive while no request is being answered. The service clears the
//! head deadline when the head is complete. The sweep of the [connections](super::accept) closes
//! connections whose deadline has passed.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use std::{fmt, io};

use actix_http::body::{BodySize, BoxBody, MessageBody};
use actix_http::{ConnectionType, HttpMessage as _, HttpService, Payload, Request, Response, StatusCode};
use actix_service::{Service, ServiceFactory, apply_fn, fn_factory, fn_service};
use actix_web::dev::Extensions;
use actix_web::http::header::{self, HeaderValue};
use actix_web::web::Bytes;
use futures_util::FutureExt as _;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::accept::ConnectionStage;
use super::accept::{Connection, HEAD_TIMEOUT};
use super::request::RequestHead;
use super::respond::{self, Rejection, Reply, ReplyField};

/// How long an idle connection is kept. The client of an API server keeps idle connections for 90
/// s, and could lose a request on one that the server closes first.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(120);

/// The time in which a connection must close.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The body of a reply, which is written in parts: actix copies each part into its buffer, and the
/// copied bytes no longer count towards the limit on replies.
pub(crate) struct ReplyBody(Bytes);

/// The most bytes of one part.
const MAX_PART_BYTES: usize = 16 << 10;

/// How long a client may read nothing of its response.
const MAX_UNREAD_TIME: Duration = Duration::from_secs(30);

/// The byte stream of a connection.
pub(crate) struct Stream<IO> {
    io: IO,
    connection: Rc<Connection>,
}

/// The service that reads requests from streams and passes them to `app`; `None` if actix cannot
/// create it.
pub(crate) async fn service<IO, S, B>(
    app: Rc<S>,
) -> Option<impl Service<(Stream<IO>, Option<SocketAddr>), Response = (), Error = impl fmt::Debug>>
where
    IO: AsyncRead + AsyncWrite + Unpin + 'static,
    S: Service<Request> + 'static,
    S::Response: Into<Response<B>>,
    S::Error: Into<Response<BoxBody>>,
    S::Future: 'static,
    B: MessageBody + 'static,
{
    let app = fn_factory(move || {
        let app = Rc::clone(&app);
        let answer = apply_fn(app, |request: Request, app: &Rc<S>| {
            // While the request is answered, arriving bytes do not start another head.
            let answering = request.conn_data::<Rc<Connection>>().map(|connection| {
                connection.head_ended();
                connection.begin_request()
            });
            app.call(request).map(move |answer| {
                drop(answering);
                answer
            })
        });
        async move { Ok::<_, ()>(answer) }
    });
    HttpService::build()
        .keep_alive(KEEP_ALIVE_TIMEOUT)
        .client_request_timeout(HEAD_TIMEOUT)
        .client_disconnect_timeout(DISCONNECT_TIMEOUT)
        // A client that closes its side has given up: API servers do not half-close connections.
        .h1_allow_half_closed(false)
        .on_connect_ext(|stream: &Stream<IO>, data: &mut Extensions| {
            data.insert(Rc::clone(&stream.connection));
        })
        .h1(app)
        .new_service(())
        .await
        .ok()
}

/// The service that passes the head and body of each request to `app`.
pub(crate) fn reviews<A, F>(
    app: A,
) -> impl Service<Request, Response = Response<ReplyBody>, Error = Infallible>
where
    A: Fn(&RequestHead<'_>, Payload) -> F + Clone,
    F: Future<Output = (Reply, Payload)>,
{
    fn_service(move |request| {
        let answer = review(&app, request);
        async {
            let reply = match answer {
                Some(answer) => answer.await.0,
                // This cannot happen: the stream of each connection sets it.
                None => Rejection::Internal.reply(),
            };
            Ok(response(reply))
        }
    })
}

/// Calls `app`; `None` if the request has no connection.
fn review<A, F>(app: &A, mut request: Request) -> Option<F>
where
    A: Fn(&RequestHead<'_>, Payload) -> F,
{
    let payload = request.take_payload();
    let connection = request.conn_data::<Rc<Connection>>()?;
    let fields = request.headers().iter();
    let head = RequestHead::new(
        connection,
        request.method().as_str(),
        (request.path(), request.uri().query().unwrap_or_default()),
        fields.map(|(name, value)| (name.as_str(), value.as_bytes())),
    );
    Some(app(&head, payload))
}

fn response(reply: Reply) -> Response<ReplyBody> {
    let code = StatusCode::from_u16(reply.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = Response::with_body(code, ReplyBody(reply.body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(respond::JSON));
    let field = match reply.field {
        None => None,
        Some(ReplyField::Allow(methods)) => Some((header::ALLOW, Ok(HeaderValue::from_static(methods)))),
        Some(ReplyField::RetryAfter(seconds)) => Some((header::RETRY_AFTER, Ok(HeaderValue::from(seconds)))),
        Some(ReplyField::Challenge(text)) => Some((header::WWW_AUTHENTICATE, HeaderValue::try_from(text))),
    };
    if let Some((name, Ok(value))) = field {
        headers.insert(name, value);
    }
    if reply.closes_connection {
        response.head_mut().set_connection_type(ConnectionType::Close);
    }
    response
}

// === impl ReplyBody ===

impl MessageBody for ReplyBody {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        self.0.size()
    }

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Infallible>>> {
        let rest = &mut self.get_mut().0;
        let length = rest.len().min(MAX_PART_BYTES);
        Poll::Ready((length > 0).then(|| Ok(rest.split_to(length))))
    }
}

// === impl Stream ===

impl<IO> Stream<IO> {
    pub(crate) const fn new(io: IO, connection: Rc<Connection>) -> Self {
        Self { io, connection }
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Stream<IO> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.connection.stage() >= ConnectionStage::Ending {
            return Poll::Ready(Ok(()));
        }
        let before = into.filled().len();
        ready!(Pin::new(&mut this.io).poll_read(context, into))?;
        if into.filled().len() > before && !this.connection.is_answering() {
            this.connection.head_began();
        }
        Poll::Ready(Ok(()))
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Stream<IO> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.io).poll_write(context, bytes);
        if written.is_pending() {
            this.connection.start_read_deadline(MAX_UNREAD_TIME);
        } else {
            this.connection.clear_read_deadline();
        }
        written
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn a_reply_is_written_part_by_part() {
        let mut context = Context::from_waker(Waker::noop());
        let mut body = ReplyBody(vec![b'a'; 40_000].into());
        assert_eq!(body.size(), BodySize::Sized(40_000));
        let mut next = || match Pin::new(&mut body).poll_next(&mut context) {
            Poll::Ready(Some(Ok(part))) => part.len(),
            other => panic!("{other:?}"),
        };
        assert_eq!([next(), next(), next()], [MAX_PART_BYTES, MAX_PART_BYTES, 7_232]);
        assert!(matches!(
            Pin::new(&mut body).poll_next(&mut context),
            Poll::Ready(None)
        ));
    }
}
