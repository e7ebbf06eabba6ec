//! An HTTPS client of a few lines: one connection a request, HTTP/1.1.

use super::pki::Identity;
use openssl::ssl::{SslConnector, SslMethod, SslStream, SslVerifyMode};
use openssl::x509::X509;
use serde_json::Value;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Speaks to one server, as one caller.
#[derive(Clone)]
pub(crate) struct Client {
    address: SocketAddr,
    /// The name in the server's certificate, if it is not the address.
    name: Option<String>,
    tls: Option<SslConnector>,
    headers: Vec<(String, String)>,
}

/// What the server said.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Client {
    /// A client of a server whose certificate one of the authorities signed.
    pub(crate) fn https(address: SocketAddr, authority: &[u8], identity: Option<&Identity>) -> Self {
        let mut builder = SslConnector::builder(SslMethod::tls_client()).unwrap();
        builder.set_verify(SslVerifyMode::PEER);
        for authority in X509::stack_from_pem(authority).unwrap() {
            builder.cert_store_mut().add_cert(authority).unwrap();
        }
        if let Some(identity) = identity {
            builder.set_certificate(&identity.certificate).unwrap();
            builder.set_private_key(&identity.key).unwrap();
        }
        Self {
            address,
            name: None,
            tls: Some(builder.build()),
            headers: Vec::new(),
        }
    }

    /// A client without TLS.
    pub(crate) fn http(address: SocketAddr) -> Self {
        Self {
            address,
            name: None,
            tls: None,
            headers: Vec::new(),
        }
    }

    /// The same client, of a server whose certificate has this name.
    pub(crate) fn for_name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// The same client, sending one header more with each request.
    pub(crate) fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same client, with a bearer token.
    pub(crate) fn with_token(self, token: &str) -> Self {
        self.with_header("Authorization", &format!("Bearer {token}"))
    }

    pub(crate) fn get(&self, target: &str) -> io::Result<Response> {
        self.send("GET", target, None)
    }

    pub(crate) fn post(&self, target: &str, body: &Value) -> io::Result<Response> {
        self.send("POST", target, Some(body.to_string().as_bytes()))
    }

    pub(crate) fn put(&self, target: &str, body: &Value) -> io::Result<Response> {
        self.send("PUT", target, Some(body.to_string().as_bytes()))
    }

    /// A patch of this content type.
    pub(crate) fn patch(&self, target: &str, content_type: &str, body: &Value) -> io::Result<Response> {
        let client = self.clone().with_header("Content-Type", content_type);
        client.send("PATCH", target, Some(body.to_string().as_bytes()))
    }

    pub(crate) fn delete(&self, target: &str) -> io::Result<Response> {
        self.send("DELETE", target, None)
    }

    /// A connection over TLS that stays open, to speak HTTP on.
    pub(crate) fn connect(&self) -> io::Result<SslStream<TcpStream>> {
        let stream = TcpStream::connect_timeout(&self.address, Duration::from_secs(10))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(super::PATIENCE))?;
        let connector = self.tls.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        connector
            .connect(&self.server_name(), stream)
            .map_err(io::Error::other)
    }

    fn server_name(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.address.ip().to_string())
    }

    /// One request on a connection of its own.
    pub(crate) fn send(&self, method: &str, target: &str, body: Option<&[u8]>) -> io::Result<Response> {
        let stream = TcpStream::connect_timeout(&self.address, Duration::from_secs(10))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(super::PATIENCE))?;
        match &self.tls {
            Some(connector) => {
                let stream = connector
                    .connect(&self.server_name(), stream)
                    .map_err(io::Error::other)?;
                self.exchange(stream, method, target, body)
            }
            None => self.exchange(stream, method, target, body),
        }
    }

    fn exchange<S: Read + Write>(
        &self,
        mut stream: S,
        method: &str,
        target: &str,
        body: Option<&[u8]>,
    ) -> io::Result<Response> {
        let mut request = format!(
            "{method} {target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n",
            self.address
        );
        for (name, value) in &self.headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(body) = body {
            if header(&self.headers, "Content-Type").is_none() {
                request.push_str("Content-Type: application/json\r\n");
            }
            request.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        request.push_str("\r\n");
        stream.write_all(request.as_bytes())?;
        stream.write_all(body.unwrap_or_default())?;
        stream.flush()?;
        read_response(&mut BufReader::new(stream))
    }
}

impl Response {
    /// The body, which must be JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }

    /// Every value of a header.
    pub(crate) fn header_values(&self, name: &str) -> Vec<&str> {
        let of_name = self
            .headers
            .iter()
            .filter(|(key, _)| key.eq_ignore_ascii_case(name));
        of_name.map(|(_, value)| value.as_str()).collect()
    }
}

fn header<'h>(headers: &'h [(String, String)], name: &str) -> Option<&'h str> {
    headers
        .iter()
        .find(|(key, _)| key.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.as_str())
}

fn read_response(reader: &mut impl BufRead) -> io::Result<Response> {
    let malformed = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let status_line = read_line(reader)?;
    let status = status_line.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.ok_or_else(|| malformed(&format!("no status in `{status_line}`")))?;
    let mut headers = Vec::new();
    loop {
        let line = read_line(reader)?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line
            .split_once(':')
            .ok_or_else(|| malformed("a header without colon"))?;
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
    let mut body = Vec::new();
    if header(&headers, "Transfer-Encoding").is_some() {
        read_chunks(reader, &mut body)?;
    } else if let Some(length) = header(&headers, "Content-Length") {
        let length: u64 = length.parse().map_err(io::Error::other)?;
        reader.take(length).read_to_end(&mut body)?;
        if body.len() as u64 != length {
            return Err(malformed("the body ended early"));
        }
    } else {
        reader.read_to_end(&mut body)?;
    }
    Ok(Response {
        status,
        headers,
        body,
    })
}

fn read_chunks(reader: &mut impl BufRead, body: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let line = read_line(reader)?;
        let length = u64::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
        reader.take(length).read_to_end(body)?;
        read_line(reader)?;
        if length == 0 {
            return Ok(());
        }
    }
}

fn read_line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}
