//! Decides which requests the console answers: by caller, by origin of the page, and by `Host`.
//!
//! Without TLS the console listens on loopback only and trusts every user of this machine. A
//! browser runs on this machine too, and shows pages of other sites. Three checks keep these out:
//! `Host` must be a name of loopback, so that no foreign name that resolves to this machine (DNS
//! rebinding) has the same origin as the console; `Origin`, if present, must be the console's own;
//! and requests that another site caused (`Sec-Fetch-Site`) are answered only if they follow a
//! link.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use actix_web::HttpRequest;
use actix_web::http::header::{self, HeaderMap};
use actix_web::http::uri::Authority;

use crate::console::{ViewError, VisibleClusters, views};
use crate::identity::{Caller, Credentials, Refusal};
use crate::server::accept::Connection;
use crate::server::gateway::GatewayState;
use crate::server::receive::identify;
use crate::state::Snapshot;

/// What the listener requires of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConsoleGuard {
    /// Whether `Host` must be a name of loopback.
    pub(crate) is_loopback: bool,
    /// Whether connections use TLS and clients must authenticate.
    pub(crate) has_tls: bool,
}

// === impl ConsoleGuard ===

impl ConsoleGuard {
    /// Whether the listener restricts access at all.
    pub(crate) const fn is_sound(self) -> bool {
        self.is_loopback || self.has_tls
    }

    /// Rejects forbidden requests before their body is read, and returns the clusters that the
    /// client may see. Without TLS, which is on loopback only, it may see all.
    pub(crate) fn check(
        self,
        request: &HttpRequest,
        connection: &Connection,
        shared: &GatewayState,
        snapshot: &Snapshot,
    ) -> Result<VisibleClusters, ViewError> {
        check_target(request.uri().authority(), request.headers())?;
        self.check_head(request.method().as_str(), request.uri().path(), request.headers())?;
        if !self.has_tls {
            return Ok(VisibleClusters::All);
        }
        let caller = caller(request.headers(), connection, shared, snapshot)?;
        let only = || VisibleClusters::One(Arc::clone(&caller.cluster));
        let console = shared.console.as_ref();
        Ok(console.map_or_else(only, |console| console.visible_to(&caller)))
    }

    fn check_head(self, method: &str, path: &str, headers: &HeaderMap) -> Result<(), ViewError> {
        let host = host(headers).ok_or_else(|| refused(400, "the request has no Host header, or several"))?;
        if self.is_loopback && !is_of_loopback(host.host()) {
            let message = format!(
                "the console is only for this machine: use `localhost` or `127.0.0.1`, not `{}`",
                host.host()
            );
            return Err(refused(421, message));
        }
        let is_post = match method {
            "GET" => false,
            "POST" if views::accepts_forms(path) => true,
            _ => return Err(refused(405, "the console is read-only")),
        };
        let origin = format!("{}://{host}", if self.has_tls { "https" } else { "http" });
        if is_foreign(&origin, is_post, headers) {
            return Err(refused(
                403,
                "another site sent this request: open it from the console",
            ));
        }
        Ok(())
    }
}

fn refused(status: u16, message: impl Into<String>) -> ViewError {
    ViewError::Refused {
        status,
        message: message.into(),
    }
}

/// Rejects a request line with another host than `Host`, because a proxy could use either.
fn check_target(target: Option<&Authority>, headers: &HeaderMap) -> Result<(), ViewError> {
    match target {
        Some(target) if host(headers).as_ref() != Some(target) => {
            Err(refused(400, "the request line names another host than `Host`"))
        }
        _ => Ok(()),
    }
}

/// The value of `Host`, if it is a single name or address with an optional port.
fn host(headers: &HeaderMap) -> Option<Authority> {
    let mut values = headers.get_all(header::HOST);
    let (Some(value), None) = (values.next(), values.next()) else {
        return None;
    };
    let text = value.to_str().ok().filter(|text| !text.contains('@'))?;
    let authority: Authority = text.parse().ok()?;
    // The parser accepts anything as a port.
    let port = text.strip_prefix(authority.host())?;
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    (port.is_empty() || port.strip_prefix(':').is_some_and(is_port)).then_some(authority)
}

fn is_of_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let is_loopback = |address: IpAddr| address.to_canonical().is_loopback();
    host.eq_ignore_ascii_case("localhost") || address.parse().is_ok_and(is_loopback)
}

/// Whether a page of another origin caused the request, except by a link.
fn is_foreign(own: &str, is_post: bool, headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    if text("origin").is_some_and(|origin| !origin.eq_ignore_ascii_case(own)) {
        return true;
    }
    match text("sec-fetch-site") {
        None | Some("same-origin" | "none") => false,
        Some(_) => {
            let follows_link =
                text("sec-fetch-mode") == Some("navigate") && text("sec-fetch-dest") == Some("document");
            is_post || !follows_link
        }
    }
}

/// Authenticates the client.
fn caller(
    headers: &HeaderMap,
    connection: &Connection,
    shared: &GatewayState,
    snapshot: &Snapshot,
) -> Result<Arc<Caller>, ViewError> {
    let mut values = headers.get_all(header::AUTHORIZATION);
    let authorization = match (values.next(), values.next()) {
        (value, None) => value.map(|value| value.as_bytes()),
        // Several `Authorization` headers count as none.
        _ => None,
    };
    let credentials = Credentials {
        peer: connection.certificate.as_ref(),
        authorization,
        ..Credentials::default()
    };
    let known = identify(
        shared,
        snapshot,
        connection,
        &credentials,
        SystemTime::now(),
        |caller| caller.check_console(),
    );
    known.map_err(|refusal: Refusal| refused(refusal.status(), refusal.message()))
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::{HeaderName, HeaderValue};

    use super::*;

    const LOCAL: ConsoleGuard = ConsoleGuard {
        is_loopback: true,
        has_tls: false,
    };
    const REMOTE: ConsoleGuard = ConsoleGuard {
        is_loopback: false,
        has_tls: true,
    };

    fn status(guard: ConsoleGuard, method: &str, path: &str, fields: &[(&str, &str)]) -> u16 {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_str(value).unwrap(),
            );
        }
        guard
            .check_head(method, path, &headers)
            .map_or_else(|error| error.status(), |()| 200)
    }

    #[test]
    fn on_loopback_only_names_of_loopback_are_answered() {
        for (host, expected) in [
            ("localhost", 200),
            ("LOCALHOST:9091", 200),
            ("127.0.0.1:9091", 200),
            ("127.8.8.8", 200),
            ("[::1]:9091", 200),
            ("[::ffff:127.0.0.1]", 200),
            ("evil.example", 421),
            ("localhost.evil.example", 421),
            ("127.0.0.1.nip.io", 421),
            ("10.0.0.1:9091", 421),
            ("[2001:db8::1]", 421),
            ("evil@localhost", 400),
            ("localhost:9091.evil.example", 400),
            ("localhost:+9091", 400),
            ("localhost:99999", 400),
            ("localhost:", 400),
            ("", 400),
        ] {
            assert_eq!(status(LOCAL, "GET", "/", &[("host", host)]), expected, "{host}");
        }
        assert_eq!(status(LOCAL, "GET", "/", &[]), 400);
        let twice = [("host", "localhost"), ("host", "evil.example")];
        assert_eq!(status(LOCAL, "GET", "/", &twice), 400);
        assert_eq!(status(REMOTE, "GET", "/", &[("host", "gateway.example")]), 200);
    }

    #[test]
    fn it_can_only_be_read_but_for_what_changes_nothing() {
        let host = [("host", "localhost")];
        for (method, path, expected) in [
            ("GET", "/", 200),
            ("POST", "/what-if", 200),
            ("POST", "/", 405),
            ("POST", "/what-if/x", 405),
            ("HEAD", "/", 405),
            ("PUT", "/what-if", 405),
            ("DELETE", "/policies", 405),
            ("OPTIONS", "/", 405),
        ] {
            assert_eq!(status(LOCAL, method, path, &host), expected, "{method} {path}");
        }
    }

    #[test]
    fn another_site_can_link_here_and_do_no_more() {
        let link = [
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "document"),
        ];
        let image = [
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "no-cors"),
            ("sec-fetch-dest", "image"),
        ];
        let frame = [
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "iframe"),
        ];
        let table = [
            ("GET", &link[..], 200),
            ("POST", &link[..], 403),
            ("GET", &image[..], 403),
            ("GET", &frame[..], 403),
            ("GET", &[("sec-fetch-site", "same-site")][..], 403),
            ("GET", &[("sec-fetch-site", "same-origin")][..], 200),
            ("POST", &[("sec-fetch-site", "same-origin")][..], 200),
            ("POST", &[("origin", "http://localhost:9091")][..], 200),
            ("POST", &[("origin", "https://localhost:9091")][..], 403),
            ("POST", &[("origin", "http://localhost:9092")][..], 403),
            ("GET", &[("origin", "http://evil.example")][..], 403),
            ("POST", &[("origin", "null")][..], 403),
        ];
        for (method, fields, expected) in table {
            let mut all = vec![("host", "localhost:9091")];
            all.extend_from_slice(fields);
            assert_eq!(
                status(LOCAL, method, "/what-if", &all),
                expected,
                "{method} {fields:?}"
            );
        }
        let remote = [("host", "g.example"), ("origin", "https://g.example")];
        assert_eq!(status(REMOTE, "POST", "/what-if", &remote), 200);
        let plain = [("host", "g.example"), ("origin", "http://g.example")];
        assert_eq!(status(REMOTE, "POST", "/what-if", &plain), 403);
    }
}
