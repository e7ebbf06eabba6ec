//! URLs as Go reads them (`net/url`).

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

/// Where percent signs are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UrlPart {
    Path,
    Host,
    User,
    Query,
    Fragment,
}

// === impl Url ===

impl UrlValue {
    /// Whether it is a URL as it stands in a request: with a scheme, or a path
    /// from the root.
    #[must_use]
    pub fn is_request(text: &str) -> bool {
        !text.is_empty() && parse(text, true).is_some()
    }

    /// Reads a URL that [`UrlValue::is_request`], its fragment apart.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if !Self::is_request(text) {
            return None;
        }
        Self::read(text)
    }

    /// Reads any URL, relative ones too (`url.Parse`).
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
        unescape(fragment, UrlPart::Fragment)?;
        Some(Self {
            fragment: fragment.into(),
            ..parse(rest, false)?
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
        for pair in self.query.as_deref().unwrap_or_default().split('&') {
            if pair.is_empty() || pair.contains(';') {
                continue;
            }
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (Some(key), Some(value)) = (unescape(key, UrlPart::Query), unescape(value, UrlPart::Query))
            else {
                continue;
            };
            match values.iter_mut().find(|(own, _)| *own == key) {
                Some((_, own)) => own.push(value),
                None => values.push((key, vec![value])),
            }
        }
        values
    }
}

fn split_port(host: &str) -> (&str, &str) {
    match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) && (!name.contains(':') || name.ends_with(']')) => (name, port),
        _ => (host, ""),
    }
}

fn is_port(port: &str) -> bool {
    port.bytes().all(|byte| byte.is_ascii_digit())
}

fn parse(text: &str, request: bool) -> Option<UrlValue> {
    if text.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
        return None;
    }
    let (scheme, rest) = scheme(text)?;
    let (rest, query) = match rest.split_once('?') {
        Some((rest, query)) => (rest, Some(query.to_owned())),
        None => (rest, None),
    };
    let mut url = UrlValue {
        scheme: scheme.to_ascii_lowercase(),
        opaque: String::new(),
        user: None,
        host: String::new(),
        escaped_path: String::new(),
        query,
        fragment: String::new(),
    };
    if text == "*" {
        url.escaped_path = "*".into();
        return Some(url);
    }
    if !rest.starts_with('/') {
        if !scheme.is_empty() {
            url.opaque = rest.into();
            return Some(url);
        }
        let first = rest.split('/').next().unwrap_or_default();
        if request || first.contains(':') {
            return None;
        }
    }
    let mut path = rest;
    if (!scheme.is_empty() || !request && !rest.starts_with("///"))
        && let Some(authority) = rest.strip_prefix("//")
    {
        let end = authority.find('/').unwrap_or(authority.len());
        let (authority, after) = authority.split_at(end);
        path = after;
        (url.user, url.host) = parse_authority(authority)?;
    }
    url.escaped_path = escaped_path(path)?;
    Some(url)
}

/// The scheme, if there is one, and what follows its colon.
fn scheme(text: &str) -> Option<(&str, &str)> {
    for (position, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if position > 0 => {}
            b':' if position > 0 => return Some((text.get(..position)?, text.get(position + 1..)?)),
            b':' => return None,
            _ => return Some(("", text)),
        }
    }
    Some(("", text))
}

fn parse_authority(authority: &str) -> Option<(Option<String>, String)> {
    let Some((user, host)) = authority.rsplit_once('@') else {
        return Some((None, parse_host(authority)?));
    };
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
    if !user.bytes().all(fits) {
        return None;
    }
    unescape(user, UrlPart::User)?;
    Some((Some(user.into()), parse_host(host)?))
}

fn parse_host(host: &str) -> Option<String> {
    if host.rfind('[').is_some_and(|at| at > 0) {
        return None;
    }
    if let Some(rest) = host.strip_prefix('[') {
        let (address, port) = rest.rsplit_once(']')?;
        let port_fits = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        let (address, zone) = match address.split_once("%25") {
            Some((address, zone)) => (address, Some(zone)),
            None => (address, None),
        };
        let is_address = address.parse::<std::net::Ipv6Addr>().is_ok();
        if !port_fits || !is_address || zone == Some("") {
            return None;
        }
    } else if let Some((_, port)) = host.rsplit_once(':')
        && (!is_port(port) || host.matches(':').count() > 1)
    {
        return None;
    }
    unescape(host, UrlPart::Host)
}

/// The path as it is written, if that can be read back, or else escaped.
fn escaped_path(path: &str) -> Option<String> {
    let unescaped = unescape_bytes(path, UrlPart::Path)?;
    let readable = path
        .bytes()
        .all(|byte| b"!$&'()*+,;=:@[]%".contains(&byte) || !must_escape(byte));
    if readable {
        return Some(path.into());
    }
    let mut escaped = String::with_capacity(path.len());
    for byte in unescaped {
        if must_escape(byte) {
            escaped.push_str(&format!("%{byte:02X}"));
        } else {
            escaped.push(char::from(byte));
        }
    }
    Some(escaped)
}

/// Whether a byte of a path is written with a percent sign.
fn must_escape(byte: u8) -> bool {
    !(byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte))
}

fn unescape(text: &str, place: UrlPart) -> Option<String> {
    unescape_bytes(text, place).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn unescape_bytes(text: &str, place: UrlPart) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let (high, low) = (hex(rest.next()?)?, hex(rest.next()?)?);
                let value = high * 16 + low;
                if place == UrlPart::Host && value < 0x80 && value != b'%' {
                    return None;
                }
                value
            }
            b'+' if place == UrlPart::Query => b' ',
            byte if place == UrlPart::Host && byte < 0x80 && !in_host(byte) => return None,
            byte => byte,
        });
    }
    Some(bytes)
}

fn in_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"".contains(&byte)
}

fn hex(byte: u8) -> Option<u8> {
    char::from(byte)
        .to_digit(16)
        .and_then(|digit| u8::try_from(digit).ok())
}
