//! A limit for the size of an API server's responses.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming};
use hyper::{Request, Response, Uri};
use tower_service::Service;

/// The most bytes of an answer; a page of the largest objects that an API server
/// stores has some 150 MiB.
const ANSWER_BYTES: usize = 256 << 20;

/// The most bytes of one event of a watch.
const EVENT_BYTES: usize = 16 << 20;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Passes requests on, and bounds what is answered.
#[derive(Debug, Clone)]
pub(super) struct Bounded<S>(pub(super) S);

/// The body of an answer.
#[derive(Debug)]
pub(super) struct BoundedBody<B> {
    body: B,
    held: Count,
}

/// How much was read.
#[derive(Debug)]
struct Count {
    bytes: usize,
    most: usize,
    /// Whether a line is one event, and what counts.
    is_by_line: bool,
}

/// Why an answer is not read to its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error<E> {
    /// It is larger than it may be.
    #[error("the API server's answer is larger than {0} bytes")]
    TooLarge(usize),
    /// The connection broke.
    #[error(transparent)]
    Body(#[from] E),
}

// === impl Bounded ===

impl<S, T> Service<Request<T>> for Bounded<S>
where
    S: Service<Request<T>, Response = Response<Incoming>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
{
    type Response = Response<BoundedBody<Incoming>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<T>) -> Self::Future {
        let is_watch = is_watch(request.uri());
        let answering = self.0.call(request);
        Box::pin(async move {
            let response = answering.await.map_err(Into::into)?;
            Ok(response.map(|body| BoundedBody {
                body,
                held: Count::new(is_watch),
            }))
        })
    }
}

fn is_watch(uri: &Uri) -> bool {
    let query = uri.query().unwrap_or_default();
    query
        .split('&')
        .any(|pair| matches!(pair, "watch=true" | "watch=1"))
}

// === impl BoundedBody ===

impl<B: Body<Data = Bytes> + Unpin> Body for BoundedBody<B> {
    type Data = Bytes;
    type Error = Error<B::Error>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
            None => return Poll::Ready(None),
        };
        let data = frame.data_ref().map_or(&[][..], AsRef::as_ref);
        Poll::Ready(Some(if self.held.take(data) {
            Ok(frame)
        } else {
            Err(Error::TooLarge(self.held.most))
        }))
    }
}

// === impl Count ===

impl Count {
    const fn new(is_watch: bool) -> Self {
        Self {
            bytes: 0,
            most: if is_watch { EVENT_BYTES } else { ANSWER_BYTES },
            is_by_line: is_watch,
        }
    }

    /// Whether so much more is within the bound.
    fn take(&mut self, data: &[u8]) -> bool {
        if !self.is_by_line {
            self.bytes = self.bytes.saturating_add(data.len());
            return self.bytes <= self.most;
        }
        let mut lines = data.split(|byte| *byte == b'\n');
        let mut bytes = self.bytes + lines.next().map_or(0, <[u8]>::len);
        let mut is_within = bytes <= self.most;
        for line in lines {
            bytes = line.len();
            is_within &= bytes <= self.most;
        }
        self.bytes = bytes;
        is_within
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(is_by_line: bool) -> Count {
        Count {
            most: 10,
            ..Count::new(is_by_line)
        }
    }

    #[test]
    fn an_answer_is_bounded_as_a_whole() {
        let mut answer = count(false);
        assert!(answer.take(b"0123\n") && answer.take(b"5678\n"));
        assert!(!answer.take(b"x"));
    }

    #[test]
    fn a_watch_is_bounded_event_by_event() {
        let mut watch = count(true);
        assert!(watch.take(b"0123456789") && watch.take(b"\n0123456789\n01234"));
        assert!(watch.take(b"56789\n") && !watch.take(b"0123456789a\n"));
        let mut watch = count(true);
        assert!(!watch.take(b"\n0123456789a\nb"));
    }

    #[test]
    fn a_watch_is_known_by_its_query() {
        for (uri, expected) in [
            ("https://a/api/v1/pods?watch=true&resourceVersion=5", true),
            ("https://a/api/v1/pods?limit=100", false),
            ("https://a/api/v1/pods?labelSelector=watch%3Dtrue", false),
            ("https://a/api/v1/watch", false),
        ] {
            assert_eq!(is_watch(&uri.parse().unwrap()), expected, "{uri}");
        }
    }
}
