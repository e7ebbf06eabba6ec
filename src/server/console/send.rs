//! What goes back, and the header fields that every answer has.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderMap, HeaderName, HeaderValue};

use crate::console::assets::Asset;
use crate::console::{Page, ViewError};

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
pub(super) fn secure(headers: &mut HeaderMap) {
    for (name, value) in FIELDS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
}

/// The answer that is `page`.
pub(super) fn page(page: Page) -> HttpResponse {
    let status = StatusCode::from_u16(page.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    HttpResponse::build(status)
        .content_type(page.representation.content_type())
        .body(page.body)
}

/// The answer that says why there is no page; `challenge` is for who is not known.
pub(super) fn error(error: &ViewError, error_page: Page, challenge: &str) -> HttpResponse {
    let mut response = page(error_page);
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
pub(super) fn asset(asset: &Asset) -> HttpResponse {
    HttpResponse::Ok()
        .content_type(asset.content_type)
        .insert_header((header::CACHE_CONTROL, "private, max-age=600"))
        .body(asset.content)
}
