//! The URL of a webhook, parsed as client-go does.

use std::time::Duration;

use hyper::http::uri::Authority;

use super::SettingsError;

/// Where a webhook is: `https`, a host, a port and a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    authority: String,
    host: String,
    port: u16,
    path: String,
}

// === impl Url ===

impl Url {
    /// Reads `url`. A query or fragment is dropped, as client-go does.
    ///
    /// # Errors
    ///
    /// No URL, another scheme than `https`, no host, or a user in it.
    pub fn parse(url: &str) -> Result<Self, SettingsError> {
        let refused = |reason| SettingsError::Url {
            url: url.to_owned(),
            reason,
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(|| refused("it names no host"))?;
        if !scheme.eq_ignore_ascii_case("https") {
            return Err(refused("the scheme must be https"));
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at_checked(end).unwrap_or((rest, ""));
        let path = rest.split(['?', '#']).next().unwrap_or_default();
        let authority: Authority = authority.parse().map_err(|_| refused("it names no host"))?;
        if authority.as_str().contains('@') || authority.host().is_empty() {
            return Err(refused("it must have a host, and no user"));
        }
        let port = match authority.as_str().strip_prefix(authority.host()) {
            None | Some("" | ":") => Some(443),
            Some(port) => port.trim_start_matches(':').parse().ok().filter(|port| *port > 0),
        };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        Ok(Self {
            authority: authority.as_str().trim_end_matches(':').to_owned(),
            host: host.to_owned(),
            port: port.ok_or_else(|| refused("the port must be 1 to 65535"))?,
            path: clean(path).ok_or_else(|| refused("`%` is not followed by a number"))?,
        })
    }

    /// That of a service: `name.namespace.svc`, with `port` and `path`.
    ///
    /// # Errors
    ///
    /// As [`Url::parse`]: names or a path that no URL can hold.
    pub fn of_service(namespace: &str, name: &str, port: u16, path: &str) -> Result<Self, SettingsError> {
        let slash = if path.starts_with('/') { "" } else { "/" };
        Self::parse(&format!("https://{name}.{namespace}.svc:{port}{slash}{path}"))
    }

    /// The host, without the brackets of an IPv6 address.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `host:port`, with brackets around an IPv6 address: what users of a
    /// kubeconfig and static addresses are named by.
    #[must_use]
    pub fn host_port(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// The path that is asked for.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Host and port as written.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    /// The whole, with the parameter `timeout` unless it is zero.
    pub(crate) fn with_timeout(&self, timeout: Duration) -> String {
        let query = if timeout.is_zero() {
            String::new()
        } else {
            format!("?timeout={}", go_duration(timeout))
        };
        format!("https://{}{}{query}", self.authority, self.path)
    }
}

/// `path` as client-go sends it: as Go's `path.Join("/", path)` leaves it (no
/// empty segment, no `.` and `..`, no slash at the end), decoded and encoded
/// again. `None` where `%` is not followed by a number.
fn clean(path: &str) -> Option<String> {
    let decoded = decode(path.as_bytes())?;
    let mut segments: Vec<&[u8]> = Vec::new();
    for segment in decoded.split(|byte| *byte == b'/') {
        match segment {
            b"" | b"." => {}
            b".." => {
                segments.pop();
            }
            segment => segments.push(segment),
        }
    }
    let encoded: Vec<String> = segments.into_iter().map(encode).collect();
    Some(format!("/{}", encoded.join("/")))
}

fn decode(mut text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    while let Some((byte, rest)) = text.split_first() {
        text = rest;
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let (digits, rest) = text.split_at_checked(2)?;
        let digits = std::str::from_utf8(digits).ok()?;
        // `from_str_radix` alone would take a sign.
        digits
            .bytes()
            .all(|digit| digit.is_ascii_hexdigit())
            .then_some(())?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        text = rest;
    }
    Some(bytes)
}

/// As Go's `URL.EscapedPath` writes a segment.
fn encode(segment: &[u8]) -> String {
    let mut text = String::with_capacity(segment.len());
    for byte in segment {
        let is_plain = byte.is_ascii_alphanumeric() || b"-_.~$&+,:;=@".contains(byte);
        if is_plain {
            text.push(char::from(*byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// `timeout` as Go prints a duration of less than a minute or of whole seconds.
fn go_duration(timeout: Duration) -> String {
    let fraction = |whole: u64, nanoseconds: u32, digits: usize, unit: &str| {
        let text = format!("{whole}.{nanoseconds:0digits$}");
        format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
    };
    let (seconds, nanoseconds) = (timeout.as_secs(), timeout.subsec_nanos());
    match (seconds, nanoseconds) {
        (0, 0) => "0s".to_owned(),
        (0, 1..1_000) => format!("{nanoseconds}ns"),
        (0, 1_000..1_000_000) => fraction(u64::from(nanoseconds / 1_000), nanoseconds % 1_000, 3, "\u{b5}s"),
        (0, _) => fraction(
            u64::from(nanoseconds / 1_000_000),
            nanoseconds % 1_000_000,
            6,
            "ms",
        ),
        _ => {
            let minutes = seconds / 60;
            let rest = fraction(seconds % 60, nanoseconds, 9, "s");
            match (minutes / 60, minutes % 60) {
                (0, 0) => rest,
                (0, minutes) => format!("{minutes}m{rest}"),
                (hours, minutes) => format!("{hours}h{minutes}m{rest}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_a_url_apart() {
        let url = Url::parse("HTTPS://Hooks.example.com/a//b/./c/../d/?x=1").unwrap();
        assert_eq!(
            (url.host(), url.port(), url.path()),
            ("Hooks.example.com", 443, "/a/b/d")
        );
        assert_eq!(url.host_port(), "Hooks.example.com:443");
        let url = Url::parse("https://[::1]:8443").unwrap();
        assert_eq!((url.host(), url.port(), url.path()), ("::1", 8443, "/"));
        assert_eq!(url.host_port(), "[::1]:8443");
        assert_eq!(
            Url::of_service("ns", "svc", 8443, "/x").unwrap().host_port(),
            "svc.ns.svc:8443"
        );
    }

    #[test]
    fn a_path_is_written_as_go_writes_it() {
        for (path, expected) in [
            ("", "/"),
            ("?a=/b", "/"),
            ("/a%2fb", "/a/b"),
            ("/%41", "/A"),
            ("/a b!\u{e9}", "/a%20b%21%C3%A9"),
            ("/$&+,:;=@-_.~", "/$&+,:;=@-_.~"),
            ("/a/%2e%2e/b#c", "/b"),
        ] {
            let url = Url::parse(&format!("https://a{path}")).unwrap();
            assert_eq!(url.path(), expected, "{path}");
        }
    }

    #[test]
    fn refuses_what_is_no_webhook() {
        for url in [
            "",
            "http://a",
            "a",
            "/a",
            "https://",
            "https://u@a/",
            "https://a:0/",
            "https://a:65536/",
            "https://a b/",
            "https://a/%",
            "https://a/%+1",
            "https://a/%zz",
        ] {
            assert!(Url::parse(url).is_err(), "{url}");
        }
    }

    #[test]
    fn tells_the_timeout_as_go_prints_it() {
        let table = [
            (Duration::from_secs(3), "3s"),
            (Duration::from_secs(30), "30s"),
            (Duration::from_millis(1_500), "1.5s"),
            (Duration::from_millis(500), "500ms"),
            (Duration::from_micros(1_500), "1.5ms"),
            (Duration::from_nanos(1_500), "1.5\u{b5}s"),
            (Duration::from_nanos(7), "7ns"),
            (Duration::from_secs(60), "1m0s"),
            (Duration::from_secs(3_661), "1h1m1s"),
        ];
        for (timeout, expected) in table {
            assert_eq!(go_duration(timeout), expected);
        }
        let url = Url::parse("https://a/b").unwrap();
        assert_eq!(
            url.with_timeout(Duration::from_secs(10)),
            "https://a/b?timeout=10s"
        );
        assert_eq!(url.with_timeout(Duration::ZERO), "https://a/b");
    }
}
