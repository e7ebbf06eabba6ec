//! URLs as Go reads them (`net/url`).

mod parse;

use std::collections::HashMap;

use parse::{UrlPart, parse, unescape};

use crate::quote::quote;

/// A URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlValue {
    pub(crate) scheme: String,
    opaque: String,
    user: Option<String>,
    /// With the port, if there is one.
    pub(crate) host: String,
    /// As it is written, or else escaped anew.
    pub(crate) escaped_path: String,
    query: Option<String>,
    fragment: String,
}

/// Why a text is no URL, in Go's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("parse {text}: {why}")]
pub struct UrlFault {
    /// In quotes, as Go has it.
    text: String,
    why: String,
}

// === impl UrlValue ===

impl UrlValue {
    /// Whether it is a URL as it stands in a request: with a scheme, or a path
    /// from the root.
    #[must_use]
    pub fn is_request(text: &str) -> bool {
        Self::check_request(text).is_ok()
    }

    /// Whether it is one, or what is wrong with it (`url.ParseRequestURI`).
    ///
    /// # Errors
    ///
    /// What Go says of it.
    pub fn check_request(text: &str) -> Result<(), UrlFault> {
        parse(text, true)
            .map(drop)
            .map_err(|why| UrlFault::new(text, why))
    }

    /// Reads a URL that [`UrlValue::is_request`], its fragment apart.
    ///
    /// # Errors
    ///
    /// What Go says of it.
    pub fn parse(text: &str) -> Result<Self, UrlFault> {
        Self::check_request(text)?;
        Self::read(text)
    }

    /// Reads any URL, relative ones too (`url.Parse`).
    ///
    /// # Errors
    ///
    /// What Go says of it.
    pub fn read(text: &str) -> Result<Self, UrlFault> {
        let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
        let url = parse(rest, false).map_err(|why| UrlFault::new(rest, why))?;
        unescape(fragment, UrlPart::Fragment).map_err(|why| UrlFault::new(text, why))?;
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

    /// What stands before an `@`.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// What follows a `?`, as it is written.
    #[must_use]
    pub fn raw_query(&self) -> Option<&str> {
        self.query.as_deref()
    }

    /// What follows a `#`; empty if there is nothing.
    #[must_use]
    pub fn fragment(&self) -> &str {
        &self.fragment
    }

    /// The host without port and brackets.
    #[must_use]
    pub fn hostname(&self) -> &str {
        let (host, _) = split_port(&self.host);
        host.strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host)
    }

    /// The port, if there is one.
    #[must_use]
    pub fn port(&self) -> &str {
        split_port(&self.host).1
    }

    /// The values of each key, in order; what cannot be read is left out.
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

impl UrlFault {
    fn new(text: &str, why: String) -> Self {
        let mut quoted = String::new();
        quote(&mut quoted, text);
        Self { text: quoted, why }
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
        assert_eq!(UrlValue::read("a:b/c").map(|url| url.scheme), Ok("a".into()));
        assert_eq!(
            UrlValue::read("1a:b").unwrap_err().to_string(),
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
            assert!(!UrlValue::is_request(text), "{text}");
        }
        let url = UrlValue::parse("ftp://h:1:2/").unwrap();
        assert_eq!((url.hostname(), url.port()), ("h:1", "2"));
    }
}
