//! Heads and bodies of requests, as h2 gives them.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use actix_web::web::Bytes;
use futures_util::Stream;
use h2::RecvStream;
use http::request::Parts;

use crate::server::connection::Connection;
use crate::server::head::RequestHead;

/// The most header fields that a request may have. An API server sends about ten.
pub(crate) const MAX_FIELDS: usize = 128;

/// A request's body, which the handler reads and, once there is an answer, the exchange
/// to its end.
pub(crate) struct StreamBody {
    stream: RecvStream,
    is_over: bool,
}

// === impl StreamBody ===

impl StreamBody {
    pub(crate) const fn new(stream: RecvStream) -> Self {
        Self {
            stream,
            is_over: false,
        }
    }

    /// Whether nothing more comes.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over || self.stream.is_end_stream()
    }

    /// The next piece. It no longer counts for the connection's flow control.
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

/// What the routes look at of a request of `connection`.
pub(crate) fn head<'r>(parts: &'r Parts, connection: &'r Connection) -> RequestHead<'r> {
    let target = (parts.uri.path(), parts.uri.query().unwrap_or_default());
    let fields = parts.headers.iter();
    let fields = fields.map(|(name, value)| (name.as_str(), value.as_bytes()));
    RequestHead::new(connection, parts.method.as_str(), target, fields)
}
