//! Heads and bodies of requests, as h2 gives them, and heads of responses, as h2 takes them.

use std::cell::RefCell;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{SystemTime, UNIX_EPOCH};

use actix_web::web::Bytes;
use futures_util::Stream;
use h2::RecvStream;
use http::header::{
    ALLOW, CONTENT_LENGTH, CONTENT_TYPE, DATE as DATE_NAME, HeaderMap, HeaderValue, RETRY_AFTER,
    WWW_AUTHENTICATE,
};
use http::request::Parts;
use http::{Response, StatusCode, Version};

use crate::server::accept::Connection;
use crate::server::head::RequestHead;
use crate::server::respond::{self, Reply, ReplyField};

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
pub(crate) fn request_head<'r>(parts: &'r Parts, connection: &'r Connection) -> RequestHead<'r> {
    let target = (parts.uri.path(), parts.uri.query().unwrap_or_default());
    let fields = parts.headers.iter();
    let fields = fields.map(|(name, value)| (name.as_str(), value.as_bytes()));
    RequestHead::new(connection, parts.method.as_str(), target, fields)
}

/// The head of the response that `reply` is.
pub(crate) fn response_head(reply: &Reply) -> Response<()> {
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

/// Lengths below this are written once on each thread: those of most replies.
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

/// Has the responses that follow bear the time that it is now.
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
    use std::time::Duration;

    use actix_web::web::Bytes;

    use super::*;

    #[test]
    fn a_reply_has_its_own_field_beside_those_that_all_have() {
        let fields_of = |code, field| {
            let reply = Reply {
                code,
                field,
                body: "0123456789ab".into(),
                is_last: true,
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
