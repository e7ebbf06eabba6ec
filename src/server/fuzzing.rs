//! What the fuzz targets drive that is no part of the crate's interface.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use actix_web::web::BytesMut;
use futures_util::StreamExt as _;
use tokio::io::{AsyncRead, AsyncWrite};

use super::accept::Connections;
use super::accept::{Connection, HEAD_TIMEOUT};
use super::http2::{self, StreamBody};
use super::request::RequestHead;
use super::respond::Reply;
use crate::config::ConnectionLimits;

const LIMITS: ConnectionLimits = ConnectionLimits {
    max: 10,
    per_address: 10,
    authentication_timeout: Duration::MAX,
};

/// The length of the answer that a window of HTTP/2 does not hold.
const LARGE_REPLY_BYTES: usize = 300_000;

/// The driver of HTTP/2 connections, before an answer to each request that sends its body
/// back, or to `/large` more than a window.
#[derive(Debug)]
pub struct Http2;

// === impl Http2 ===

impl Http2 {
    /// The driver and what answers.
    #[expect(clippy::unused_async, reason = "as the fuzz targets call it")]
    pub async fn new() -> Self {
        Self
    }

    /// Serves the connection `io` of a stranger, or of a `proven` caller, to its end.
    ///
    /// # Panics
    /// On a fault of the driver.
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

fn answer(head: &RequestHead<'_>, mut body: StreamBody) -> impl Future<Output = (Reply, StreamBody)> + use<> {
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
