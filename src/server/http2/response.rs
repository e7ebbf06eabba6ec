//! Converts responses from actix's types to h2's.

use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

use actix_http::ResponseHead;
use actix_http::body::BodySize;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, DATE, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode, Version};

/// The body of nearly every response.
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Headers of HTTP/1.1 alone (RFC 9113, 8.2.2).
const OF_CONNECTION: [&str; 5] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "upgrade",
];

/// The head of a response whose body has this size; `None` if h2 has no form for it.
pub(super) fn head(head: &ResponseHead, size: BodySize) -> Option<Response<()>> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(head.status.as_u16()).ok()?;
    *response.version_mut() = Version::HTTP_2;
    let headers = response.headers_mut();
    for (name, value) in head.headers() {
        if name == "content-type" && value == "application/json" {
            headers.insert(CONTENT_TYPE, JSON);
        } else if !OF_CONNECTION.contains(&name.as_str()) {
            headers.append(
                HeaderName::from_bytes(name.as_str().as_bytes()).ok()?,
                HeaderValue::from_bytes(value.as_bytes()).ok()?,
            );
        }
    }
    if let BodySize::Sized(length) = size {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    add_date(headers);
    Some(response)
}

fn add_date(headers: &mut HeaderMap) {
    if let Some(date) = date(SystemTime::now()) {
        headers.insert(DATE, date);
    }
}

/// The header `Date`, written once a second.
fn date(now: SystemTime) -> Option<HeaderValue> {
    thread_local! {
        static DATE: RefCell<(u64, Option<HeaderValue>)> = const { RefCell::new((0, None)) };
    }
    let second = now.duration_since(UNIX_EPOCH).ok()?.as_secs();
    DATE.with_borrow_mut(|(written, date)| {
        if *written != second {
            *written = second;
            *date = HeaderValue::from_str(&httpdate::fmt_http_date(now)).ok();
        }
        date.clone()
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use actix_web::HttpResponse;

    use super::*;

    #[test]
    fn a_head_keeps_its_fields_but_for_those_of_http_1() {
        let mut response = HttpResponse::TooManyRequests();
        response.insert_header(("Retry-After", "1"));
        response.insert_header(("Content-Type", "application/json"));
        response.insert_header(("Connection", "close"));
        let response = response.finish();
        let head = head(response.head(), BodySize::Sized(12)).unwrap();
        let fields: Vec<_> = head
            .headers()
            .iter()
            .filter(|(name, _)| *name != DATE)
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        assert_eq!(head.status(), 429);
        assert_eq!(fields.len(), 3, "{fields:?}");
        for field in [
            "retry-after: 1",
            "content-type: application/json",
            "content-length: 12",
        ] {
            assert!(fields.iter().any(|present| present == field), "{fields:?}");
        }
    }

    #[test]
    fn the_date_follows_the_clock() {
        let at = |seconds| date(UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
        assert_eq!(at(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(at(784_111_778), "Sun, 06 Nov 1994 08:49:38 GMT");
    }
}
