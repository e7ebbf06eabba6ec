//! HTTP/1.1: actix's own, on a stream that enforces a deadline for every request head.
//!
//! actix has a deadline only for the first head of a connection. So the stream notes when
//! bytes arrive while no request is being answered, which is when a head begins, and the
//! service notes when the request is complete. The sweep of the
//! [connections](super::connections) closes connections whose head is late.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use actix_http::body::BoxBody;
use actix_http::{HttpService, Request};
use actix_service::{Service, ServiceFactory, apply_fn, fn_factory};
use actix_web::dev::{Extensions, ServiceResponse};
use actix_web::{Error, HttpMessage as _};
use futures_util::FutureExt as _;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection::{Connection, HEAD};
use super::connections::Stage;

/// Idle connections stay: an API server's client keeps them for 90 s and would
/// lose a request on one that closes first.
const KEEP_ALIVE: Duration = Duration::from_secs(120);

/// How long a connection may take to close.
const DISCONNECT: Duration = Duration::from_secs(1);

/// A connection's bytes.
pub(super) struct Stream<IO> {
    io: IO,
    connection: Rc<Connection>,
}

/// The service that reads requests from streams and has `app` answer them;
/// `None` if actix cannot make it.
pub(super) async fn service<IO, S>(
    app: Rc<S>,
) -> Option<impl Service<(Stream<IO>, Option<SocketAddr>), Response = (), Error = impl fmt::Debug>>
where
    IO: AsyncRead + AsyncWrite + Unpin + 'static,
    S: Service<Request, Response = ServiceResponse<BoxBody>, Error = Error> + 'static,
    S::Future: 'static,
{
    let app = fn_factory(move || {
        let app = Rc::clone(&app);
        let answer = apply_fn(app, |request: Request, app: &Rc<S>| {
            let connection = request.conn_data::<Rc<Connection>>().cloned();
            let answering = connection.as_ref().map(|connection| {
                connection.head_ended();
                connection.answer()
            });
            if let Some(connection) = connection {
                request.extensions_mut().insert(connection);
            }
            app.call(request).map(move |answer| {
                drop(answering);
                answer
            })
        });
        async move { Ok::<_, ()>(answer) }
    });
    HttpService::build()
        .keep_alive(KEEP_ALIVE)
        .client_request_timeout(HEAD)
        .client_disconnect_timeout(DISCONNECT)
        // Who closes has gone: an API server that gives up, a webhook that waits for nobody.
        .h1_allow_half_closed(false)
        .on_connect_ext(|stream: &Stream<IO>, data: &mut Extensions| {
            data.insert(Rc::clone(&stream.connection));
        })
        .h1(app)
        .new_service(())
        .await
        .ok()
}

// === impl Stream ===

impl<IO> Stream<IO> {
    pub(super) const fn new(io: IO, connection: Rc<Connection>) -> Self {
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
        if this.connection.stage() >= Stage::Ending {
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
        Pin::new(&mut self.get_mut().io).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(context)
    }
}
