//! URLs as Go reads them (`net/url`).

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::brief;
use crate::go_format::{Quoted, write_quoted_within};

/// A URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlValue {
    pub(crate) scheme: String,
    opaque: String,
    user: Option<String>,
    /// The host with the port, if there is one.
    pub(crate) host: String,
    /// The path as written; if that is not valid, escaped again.
    pub(crate) escaped_path: String,
    query: Option<String>,
    fragment: String,
}

/// Why a string is not a URL, with Go's message. It is only written when it is displayed, because
/// the string may be long.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("parse {}: {why}", Quoted(text))]
pub struct UrlFault<'t> {
    text: &'t str,
    /// The message without the string, at most 2 KiB.
    why: String,
}

// === impl UrlValue ===

impl UrlValue {
    /// An upper bound of the memory for parsing a URL, per byte of the URL: its parts, and the path
    /// as written, unescaped, and escaped again into a string that grows.
    pub(crate) const MAX_READING_BYTES_PER_BYTE: usize = 10;

    /// The bytes of memory of the parts.
    pub(crate) fn bytes(&self) -> usize {
        let optional = [&self.user, &self.query].into_iter().flatten();
        let parts = [
            &self.scheme,
            &self.opaque,
            &self.host,
            &self.escaped_path,
            &self.fragment,
        ];
        parts.into_iter().chain(optional).map(String::len).sum()
    }

    /// Whether `text` is a URL as in a request: with a scheme, or with an absolute path.
    #[must_use]
    pub fn is_request_uri(text: &str) -> bool {
        Self::check_request(text).is_ok()
    }

    /// Checks that `text` is a URL as in a request (`url.ParseRequestURI`).
    ///
    /// # Errors
    ///
    /// Go's error.
    pub fn check_request(text: &str) -> Result<(), UrlFault<'_>> {
        parse(text, true).map(drop).map_err(|why| UrlFault { text, why })
    }

    /// Parses a URL for which [`UrlValue::is_request_uri`] holds. A fragment is split off.
    ///
    /// # Errors
    ///
    /// Go's error.
    pub fn parse(text: &str) -> Result<Self, UrlFault<'_>> {
        Self::check_request(text)?;
        Self::parse_reference(text)
    }

    /// Parses any URL, including relative ones (`url.Parse`).
    ///
    /// # Errors
    ///
    /// Go's error.
    pub fn parse_reference(text: &str) -> Result<Self, UrlFault<'_>> {
        let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
        let url = parse(rest, false).map_err(|why| UrlFault { text: rest, why })?;
        unescape(fragment, UrlPart::Fragment).map_err(|why| UrlFault { text, why })?;
        Ok(Self {
            fragment: fragment.into(),
            ..url
        })
    }

    /// The scheme, in lower case; empty if there is none.
    #[must_use]
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// The host with its port; empty if there is none.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The user information before the `@`, if any.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The query after the `?` as written, if any.
    #[must_use]
    pub fn raw_query(&self) -> Option<&str> {
        self.query.as_deref()
    }

    /// The fragment after the `#`; empty if there is none.
    #[must_use]
    pub fn fragment(&self) -> &str {
        &self.fragment
    }

    /// The host without the port and brackets.
    #[must_use]
    pub fn hostname(&self) -> &str {
        let (host, _) = split_port(&self.host);
        host.strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host)
    }

    /// The port; empty if there is none.
    #[must_use]
    pub fn port(&self) -> &str {
        split_port(&self.host).1
    }

    /// The values of each query key, in order. Invalid pairs are left out.
    #[must_use]
    pub fn query(&self) -> Vec<(String, Vec<String>)> {
        let mut values: Vec<(String, Vec<String>)> = Vec::new();
        let mut places = HashMap::new();
        for pair in self.query.as_deref().unwrap_or_default().split('&') {
            if pair.is_empty() || pair.contains(';') {
                continue;
            }
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (Ok(key), Ok(value)) = (unescape(key, UrlPart::Query), unescape(value, UrlPart::Query))
            else {
                continue;
            };
            let place = *places.entry(key.clone()).or_insert(values.len());
            match values.get_mut(place) {
                Some((_, own)) => own.push(value),
                None => values.push((key, vec![value])),
            }
        }
        values
    }
}

fn split_port(host: &str) -> (&str, &str) {
    match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) => (name, port),
        _ => (host, ""),
    }
}

fn is_port(port: &str) -> bool {
    port.bytes().all(|byte| byte.is_ascii_digit())
}

// Parses URLs.

/// The part of a URL, by which the rules of percent-encoding differ.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum UrlPart {
    Path,
    Host,
    /// The zone of an IPv6 address in brackets.
    Zone,
    User,
    Query,
    Fragment,
}

/// A result, or Go's message.
type UrlResult<T> = Result<T, String>;

/// Parses a URL without a fragment; if `request`, as in a request, otherwise as any reference.
pub(crate) fn parse(text: &str, request: bool) -> UrlResult<UrlValue> {
    if text.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
        return Err("net/url: invalid control character in URL".into());
    }
    if text.is_empty() && request {
        return Err("empty url".into());
    }
    let mut url = UrlValue {
        scheme: String::new(),
        opaque: String::new(),
        user: None,
        host: String::new(),
        escaped_path: String::new(),
        query: None,
        fragment: String::new(),
    };
    if text == "*" {
        url.escaped_path = "*".into();
        return Ok(url);
    }
    let (scheme, rest) = scheme(text)?;
    url.scheme = scheme.to_ascii_lowercase();
    let (rest, query) = match rest.split_once('?') {
        Some((rest, query)) => (rest, Some(query.to_owned())),
        None => (rest, None),
    };
    url.query = query;
    if !rest.starts_with('/') {
        if !scheme.is_empty() {
            url.opaque = rest.into();
            return Ok(url);
        }
        if request {
            return Err("invalid URI for request".into());
        }
        if rest.split('/').next().unwrap_or_default().contains(':') {
            return Err("first path segment in URL cannot contain colon".into());
        }
    }
    let mut path = rest;
    if (!scheme.is_empty() || !request && !rest.starts_with("///"))
        && let Some(authority) = rest.strip_prefix("//")
    {
        let end = authority.find('/').unwrap_or(authority.len());
        let (authority, after) = authority.split_at(end);
        path = after;
        (url.user, url.host) = parse_authority(&url.scheme, authority)?;
    }
    url.escaped_path = escaped_path(path)?;
    Ok(url)
}

/// The scheme, if there is one, and what follows its colon.
fn scheme(text: &str) -> UrlResult<(&str, &str)> {
    let is_scheme = |(position, byte): (usize, u8)| {
        byte.is_ascii_alphabetic() || position > 0 && (byte.is_ascii_digit() || b"+-.".contains(&byte))
    };
    let length = text
        .bytes()
        .enumerate()
        .take_while(|next| is_scheme(*next))
        .count();
    let (scheme, rest) = text.split_at_checked(length).unwrap_or(("", text));
    match rest.strip_prefix(':') {
        Some(_) if scheme.is_empty() => Err("missing protocol scheme".into()),
        Some(rest) => Ok((scheme, rest)),
        None => Ok(("", text)),
    }
}

fn parse_authority(scheme: &str, authority: &str) -> UrlResult<(Option<String>, String)> {
    let Some((user, host)) = authority.rsplit_once('@') else {
        return Ok((None, parse_host(scheme, authority)?));
    };
    let host = parse_host(scheme, host)?;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
    if !user.bytes().all(fits) {
        return Err("net/url: invalid userinfo".into());
    }
    let (name, password) = user.split_once(':').unwrap_or((user, ""));
    unescape(name, UrlPart::User)?;
    unescape(password, UrlPart::User)?;
    Ok((Some(user.into()), host))
}

fn parse_host(scheme: &str, host: &str) -> UrlResult<String> {
    if host.rfind('[').is_some_and(|at| at > 0) {
        return Err("invalid IP-literal".into());
    }
    if let Some(literal) = host.strip_prefix('[') {
        return parse_literal(literal);
    }
    // In http and https, the port follows the first colon; in other schemes, the last one.
    let port = if matches!(scheme, "http" | "https") {
        host.find(':')
    } else {
        host.rfind(':')
    };
    check_port(port.and_then(|at| host.get(at..)).unwrap_or_default())?;
    unescape(host, UrlPart::Host)
}

/// Parses an IPv6 address in brackets with its port; the `[` is already consumed.
fn parse_literal(literal: &str) -> UrlResult<String> {
    let (address, port) = literal.rsplit_once(']').ok_or("missing ']' in host")?;
    check_port(port)?;
    let (host, zone) = address.split_at(address.find("%25").unwrap_or(address.len()));
    let address = unescape(host, UrlPart::Host)? + &unescape(zone, UrlPart::Zone)?;
    let (host, zone) = match address.split_once('%') {
        Some((host, zone)) => (host, Some(zone)),
        None => (&*address, None),
    };
    if zone.is_none() && host.parse::<Ipv4Addr>().is_ok() {
        return Err("invalid IP-literal".into());
    }
    if host.parse::<Ipv6Addr>().is_err() || zone == Some("") {
        let address = QuotedBytes(address.as_bytes());
        return Err(brief(format_args!(
            "invalid host: ParseAddr({address}): unable to parse IP"
        )));
    }
    Ok(format!("[{address}]{port}"))
}

/// Checks what follows a host: nothing, or a colon and digits.
fn check_port(port: &str) -> UrlResult<()> {
    if port.is_empty() || port.strip_prefix(':').is_some_and(is_port) {
        return Ok(());
    }
    let port = QuotedBytes(port.as_bytes());
    Err(brief(format_args!("invalid port {port} after host")))
}

/// The path as written if it is validly escaped; otherwise escaped again.
fn escaped_path(path: &str) -> UrlResult<String> {
    let unescaped = unescape_bytes(path, UrlPart::Path)?;
    let readable = path
        .bytes()
        .all(|byte| b"!$&'()*+,;=:@[]%".contains(&byte) || !must_escape(byte));
    if readable {
        return Ok(path.into());
    }
    let mut escaped = String::with_capacity(path.len());
    for byte in unescaped {
        if must_escape(byte) {
            // Writing to a String cannot fail.
            let _infallible = write!(escaped, "%{byte:02X}");
        } else {
            escaped.push(char::from(byte));
        }
    }
    Ok(escaped)
}

/// Whether a byte must be escaped in a path.
fn must_escape(byte: u8) -> bool {
    !(byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte))
}

/// Decodes percent-encoding.
pub(crate) fn unescape(text: &str, part: UrlPart) -> UrlResult<String> {
    unescape_bytes(text, part).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn unescape_bytes(text: &str, part: UrlPart) -> UrlResult<Vec<u8>> {
    let in_host = matches!(part, UrlPart::Host | UrlPart::Zone);
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        let (next, after) = match byte {
            b'%' => (escaped(rest, part)?, after.get(2..).unwrap_or_default()),
            b'+' if part == UrlPart::Query => (b' ', after),
            byte if in_host && *byte < 0x80 && !is_of_host(*byte) => {
                return Err(format!(
                    "invalid character {} in host name",
                    QuotedBytes(&[*byte])
                ));
            }
            byte => (*byte, after),
        };
        bytes.push(next);
        rest = after;
    }
    Ok(bytes)
}

/// The byte that the escape at the start of `text` stands for.
fn escaped(text: &[u8], part: UrlPart) -> UrlResult<u8> {
    let sequence = text.get(..3).unwrap_or(text);
    let refused = || format!("invalid URL escape {}", QuotedBytes(sequence));
    let [_, high, low] = sequence else {
        return Err(refused());
    };
    let value = hex(*high).zip(hex(*low)).map(|(high, low)| high * 16 + low);
    let value = value.ok_or_else(refused)?;
    let fits = match part {
        // In a host, only bytes outside ASCII and `%` may be escaped.
        UrlPart::Host => value >= 0x80 || value == b'%',
        UrlPart::Zone => matches!(value, b'%' | b' ') || is_of_host(value),
        _ => true,
    };
    if fits { Ok(value) } else { Err(refused()) }
}

/// Whether a byte is allowed in a host.
fn is_of_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"".contains(&byte)
}

fn hex(byte: u8) -> Option<u8> {
    char::from(byte)
        .to_digit(16)
        .and_then(|digit| u8::try_from(digit).ok())
}

/// Quotes as Go does: invalid UTF-8 is written as escaped bytes.
struct QuotedBytes<'b>(&'b [u8]);

impl fmt::Display for QuotedBytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for chunk in self.0.utf8_chunks() {
            write_quoted_within(f, chunk.valid())?;
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        f.write_char('"')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_url_is_told_in_gos_words() {
        for (text, fault) in [
            ("", "empty url"),
            ("3.5us", "invalid URI for request"),
            (":x", "missing protocol scheme"),
            ("\u{1}", "net/url: invalid control character in URL"),
            ("http://a b", "invalid character \" \" in host name"),
            ("http://[::1", "missing ']' in host"),
            ("http://a[::1]", "invalid IP-literal"),
            ("http://[1.2.3.4]", "invalid IP-literal"),
            ("http://[::1]x", "invalid port \"x\" after host"),
            ("http://h:port/", "invalid port \":port\" after host"),
            ("https://h:1:2/", "invalid port \":1:2\" after host"),
            ("/%zz", "invalid URL escape \"%zz\""),
            ("/%4", "invalid URL escape \"%4\""),
            ("/%aé", "invalid URL escape \"%a\\xc3\""),
            ("https://%41/", "invalid URL escape \"%41\""),
            ("https://u%3:p@h/", "invalid URL escape \"%3\""),
            ("https://é@h/", "net/url: invalid userinfo"),
        ] {
            let error = UrlValue::parse(text).unwrap_err().to_string();
            let (_, why) = error.split_once("\": ").unwrap_or_default();
            assert_eq!(why, fault, "{text}");
        }
        assert_eq!(
            UrlValue::parse_reference("a:b/c").map(|url| url.scheme),
            Ok("a".into())
        );
        assert_eq!(
            UrlValue::parse_reference("1a:b").unwrap_err().to_string(),
            "parse \"1a:b\": first path segment in URL cannot contain colon"
        );
    }

    #[test]
    fn zones_and_ports_are_read_as_go_reads_them() {
        for text in [
            "https://[fe80::1%25e%20n]/",
            "https://[fe80::1%25e%41n]:443/",
            "https://[::ffff:1.2.3.4]/",
            "ftp://h:1:2/",
        ] {
            assert_eq!(UrlValue::check_request(text), Ok(()), "{text}");
        }
        for text in ["https://[fe80::1%25]/", "https://[fe80::1%en0]/", "https://[1]/"] {
            assert!(!UrlValue::is_request_uri(text), "{text}");
        }
        let url = UrlValue::parse("ftp://h:1:2/").unwrap();
        assert_eq!((url.hostname(), url.port()), ("h:1", "2"));
    }
}
