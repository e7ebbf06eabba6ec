//! Converts requests from h2's types to actix's, which use an older version of `http`.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use actix_http::error::PayloadError;
use actix_http::{Payload, Request};
use actix_web::HttpMessage as _;
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::http::{Method, Uri, Version};
use actix_web::web::Bytes;
use futures_util::Stream;
use h2::RecvStream;
use http::request::Parts;

use crate::server::connection::Connection;

/// The most header fields that a request may have. An API server sends about ten.
pub(super) const MAX_FIELDS: usize = 128;

/// A request's body, which the handler reads and, once there is an answer, the
/// exchange to its end.
#[derive(Clone)]
pub(super) struct StreamBody(Rc<RefCell<RecvStream>>);

// === impl StreamBody ===

impl StreamBody {
    /// `None` if there is none.
    pub(super) fn new(stream: RecvStream) -> Option<Self> {
        (!stream.is_end_stream()).then(|| Self(Rc::new(RefCell::new(stream))))
    }

    /// The next piece. It no longer counts for the connection's flow control.
    pub(super) fn poll_chunk(&self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, h2::Error>>> {
        let mut stream = self.0.borrow_mut();
        let chunk = ready!(stream.poll_data(context));
        Poll::Ready(chunk.map(|chunk| {
            let chunk = chunk?;
            stream.flow_control().release_capacity(chunk.len())?;
            Ok(chunk)
        }))
    }
}

impl Stream for StreamBody {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_chunk(context)
            .map_err(|error| PayloadError::Io(io::Error::other(error)))
    }
}

/// The request that `parts` and `body` are; `None` if actix has no form for it.
pub(super) fn request(
    parts: Parts,
    body: Option<StreamBody>,
    connection: &Rc<Connection>,
) -> Option<Request> {
    let payload: Payload = match body {
        Some(body) => Payload::Stream {
            payload: Box::pin(body),
        },
        None => Payload::None,
    };
    let mut request = Request::with_payload(payload);
    let head = request.head_mut();
    head.method = Method::from_bytes(parts.method.as_str().as_bytes()).ok()?;
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
    head.uri = Uri::try_from(target).ok()?;
    head.version = Version::HTTP_2;
    head.peer_addr = Some(connection.peer);
    for (name, value) in &parts.headers {
        let name = HeaderName::from_bytes(name.as_str().as_bytes()).ok()?;
        let value = HeaderValue::from_bytes(value.as_bytes()).ok()?;
        head.headers.append(name, value);
    }
    request.extensions_mut().insert(Rc::clone(connection));
    Some(request)
}
