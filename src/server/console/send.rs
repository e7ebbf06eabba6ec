//! What goes back, and the header fields that every answer has.

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use actix_web::{HttpResponse, HttpResponseBuilder};

use super::unread::UnreadAnswers;
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
