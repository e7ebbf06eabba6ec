//! Responses, and the header fields that all of them have.
//!
//! A response stays in memory until its last byte is taken, and the client decides when that is. So
//! large responses share a bounded room, and are handed to their connection piece by piece.

use std::convert::Infallible;
use std::sync::Arc;

use actix_web::body::{BoxBody, SizedStream};
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use actix_web::web::Bytes;
use actix_web::{HttpResponse, HttpResponseBuilder};
use futures_util::stream;
use tokio::sync::Semaphore;

use crate::console::assets::Asset;
use crate::console::{Page, Representation, ViewError};

/// What every answer says to the browser: scripts and styles come from here alone, none stands
/// in a page, nothing may show the console in a frame, and nobody else may read it.
const FIELDS: [(&str, &str); 8] = [
    (
        "content-security-policy",
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    // With `no-referrer`, forms would be sent with `Origin: null`.
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    (
        "permissions-policy",
        "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    ),
    ("vary", "Accept"),
];

/// Adds what every answer has.
pub(crate) fn secure(headers: &mut HeaderMap) {
    for (name, value) in FIELDS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
}

/// The answer that is `page`.
///
/// # Errors
///
/// Too much is on its way to browsers that do not read.
pub(crate) fn view(page: Page, unread: &UnreadAnswers) -> Result<HttpResponse, ViewError> {
    let body = unread.body(page.body).ok_or(ViewError::Busy)?;
    Ok(head(page.status, page.representation).body(body))
}

fn head(status: u16, representation: Representation) -> HttpResponseBuilder {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut head = HttpResponse::build(status);
    head.content_type(representation.content_type());
    head
}

/// The answer that says why there is no page; `challenge` is for who is not known.
pub(crate) fn error(error: &ViewError, error_page: Page, challenge: &str) -> HttpResponse {
    let mut response = head(error_page.status, error_page.representation).body(error_page.body);
    let field = match error.status() {
        401 => Some((header::WWW_AUTHENTICATE, HeaderValue::from_str(challenge).ok())),
        405 => Some((header::ALLOW, Some(HeaderValue::from_static("GET")))),
        503 => Some((header::RETRY_AFTER, Some(HeaderValue::from_static("1")))),
        _ => None,
    };
    if let Some((name, Some(value))) = field {
        response.headers_mut().insert(name, value);
    }
    response
}

/// The answer that is `asset`, which changes only with the program.
pub(crate) fn asset(asset: &Asset) -> HttpResponse {
    HttpResponse::Ok()
        .content_type(asset.content_type)
        .insert_header((header::CACHE_CONTROL, "private, max-age=600"))
        .body(asset.content)
}

/// Bytes of all large answers together.
const MAX_UNREAD_BYTES: usize = 64 << 20;

/// An answer of so many bytes always has room: the limit of connections bounds their number.
const SMALL_BYTES: usize = 64 << 10;

/// What a connection is handed at once.
const PIECE_BYTES: usize = 16 << 10;

/// The room for answers that are not read yet.
pub(crate) struct UnreadAnswers(Arc<Semaphore>);

// === impl UnreadAnswers ===

impl UnreadAnswers {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(MAX_UNREAD_BYTES)))
    }

    /// The body that is `text`; `None` where others leave it no room.
    pub(crate) fn body(&self, text: String) -> Option<BoxBody> {
        let text = Bytes::from(text);
        if text.len() <= SMALL_BYTES {
            return Some(BoxBody::new(text));
        }
        // One that is larger than all the room is sent when it has all of it.
        let room = u32::try_from(text.len().min(MAX_UNREAD_BYTES)).ok()?;
        let held = Arc::clone(&self.0).try_acquire_many_owned(room).ok()?;
        let length = u64::try_from(text.len()).ok()?;
        let pieces = stream::unfold((text, held), |(mut rest, held)| async move {
            let piece = rest.split_to(rest.len().min(PIECE_BYTES));
            (!piece.is_empty()).then(|| (Ok::<_, Infallible>(piece), (rest, held)))
        });
        Some(BoxBody::new(SizedStream::new(length, pieces)))
    }
}

#[cfg(test)]
mod tests {
    use actix_web::body::{BodySize, MessageBody as _, to_bytes};

    use super::*;

    fn mk_text(length: usize) -> String {
        let mut text = "0123456789ab".repeat(length / 12 + 1);
        text.truncate(length);
        text
    }

    #[actix_web::test]
    async fn an_answer_is_sent_as_it_is() {
        let unread = UnreadAnswers::new();
        for length in [0, 1, SMALL_BYTES, SMALL_BYTES + 1, 10 * PIECE_BYTES, 1 << 20] {
            let text = mk_text(length);
            let body = unread.body(text.clone()).unwrap();
            assert_eq!(body.size(), BodySize::Sized(u64::try_from(length).unwrap()));
            assert!(to_bytes(body).await.unwrap() == text, "{length}");
        }
        assert_eq!(unread.0.available_permits(), MAX_UNREAD_BYTES);
    }

    #[actix_web::test]
    async fn what_nobody_reads_is_bounded() {
        let unread = UnreadAnswers::new();
        let half = || unread.body(mk_text(MAX_UNREAD_BYTES / 2));
        let (one, two) = (half().unwrap(), half().unwrap());
        assert!(unread.body(mk_text(SMALL_BYTES + 1)).is_none());
        assert!(
            unread.body(mk_text(SMALL_BYTES)).is_some(),
            "a small one has room"
        );
        // Read, or given up: there is room again.
        to_bytes(one).await.unwrap();
        assert!(half().is_some());
        drop(two);
        // One that is too large has the room to itself.
        let huge = unread.body(mk_text(MAX_UNREAD_BYTES + 1)).unwrap();
        assert!(unread.body(mk_text(SMALL_BYTES + 1)).is_none());
        drop(huge);
        assert_eq!(unread.0.available_permits(), MAX_UNREAD_BYTES);
    }
}
