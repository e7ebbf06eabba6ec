//! Reads the reply of a webhook: its status, its body up to a limit, and its `Content-Type`. As in client-go, the
//! media type itself does not matter, but a reply whose `Content-Type` Go cannot parse (`mime.ParseMediaType`) is
//! rejected.

use std::collections::BTreeSet;
use std::error::Error as _;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::{Body as _, Incoming};
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE};
use portcullis_policy::admission::{ObjectMemory, TakenMemory};

/// The memory budget that the bytes of a reply are charged to, from their arrival until the reply is dropped.
pub type ReplyMemory = Arc<dyn ObjectMemory + Send + Sync>;

/// The smallest capacity that is allocated for a body, unless its limit is lower.
const MIN_BODY_BYTES: usize = 4 << 10;

/// An upper bound for the memory of the gzip decoder itself, in addition to the decompressed body.
const DECOMPRESSION_BYTES: usize = 64 << 10;

/// The body of a reply, and its charge against the memory budget, which is returned on drop.
pub(crate) struct CountedBody {
    pub(crate) bytes: Bytes,
    pub(crate) taken: Option<TakenMemory>,
}

/// Collects the body, and decompresses it if necessary.
enum Sink {
    Plain(BoundedBuffer),
    Gzip {
        decoder: Box<MultiGzDecoder<BoundedBuffer>>,
        _memory: Option<TakenMemory>,
    },
}

/// A buffer that grows up to a limit, and only as long as the memory budget allows it.
struct BoundedBuffer {
    bytes: Vec<u8>,
    limit: usize,
    memory: Option<ReplyMemory>,
    taken: Option<TakenMemory>,
    /// Why the last write failed: `Write` can only return an I/O error.
    failure: Option<CallError>,
}

/// Reads the body of `response`, of at most `limit` bytes once decompressed, which are charged to `memory`.
pub(crate) async fn read(
    response: Response<Incoming>,
    limit: usize,
    memory: Option<ReplyMemory>,
) -> Result<CountedBody, CallError> {
    let status = response.status().as_u16();
    if !(200..=206).contains(&status) {
        return Err(CallError::Status(status));
    }
    if let Some(written) = response.headers().get(CONTENT_TYPE)
        && !written.is_empty()
        && !written.to_str().is_ok_and(is_sound)
    {
        return Err(CallError::ContentType);
    }
    let is_gzip = response
        .headers()
        .get(CONTENT_ENCODING)
        .is_some_and(|encoding| encoding.as_bytes().eq_ignore_ascii_case(b"gzip"));
    let mut body = response.into_body();
    let mut sink = Sink::new(is_gzip, limit, memory)?;
    if body.size_hint().lower() > u64::try_from(limit).unwrap_or(u64::MAX) {
        return Err(CallError::TooLarge(limit));
    }
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            sink.write(&data)?;
        }
    }
    sink.finish()
}

// === impl Sink ===

impl Sink {
    fn new(is_gzip: bool, limit: usize, memory: Option<ReplyMemory>) -> Result<Self, CallError> {
        let bounded = BoundedBuffer {
            bytes: Vec::new(),
            limit,
            memory,
            taken: None,
            failure: None,
        };
        if !is_gzip {
            return Ok(Self::Plain(bounded));
        }
        Ok(Self::Gzip {
            _memory: bounded.take(DECOMPRESSION_BYTES)?,
            decoder: Box::new(MultiGzDecoder::new(bounded)),
        })
    }

    fn write(&mut self, data: &[u8]) -> Result<(), CallError> {
        let written = match self {
            Self::Plain(bounded) => bounded.write_all(data),
            Self::Gzip { decoder, .. } => decoder.write_all(data),
        };
        written.map_err(|_| self.failure())
    }

    fn finish(mut self) -> Result<CountedBody, CallError> {
        if let Self::Gzip { decoder, .. } = &mut self
            && decoder.try_finish().is_err()
        {
            return Err(self.failure());
        }
        let bounded = self.bounded_mut();
        Ok(CountedBody {
            bytes: std::mem::take(&mut bounded.bytes).into(),
            taken: bounded.taken.take(),
        })
    }

    fn failure(&mut self) -> CallError {
        let failure = self.bounded_mut().failure.take();
        failure.unwrap_or(CallError::Encoding)
    }

    fn bounded_mut(&mut self) -> &mut BoundedBuffer {
        match self {
            Self::Plain(bounded) => bounded,
            Self::Gzip { decoder, .. } => decoder.get_mut(),
        }
    }
}

// === impl BoundedBuffer ===

impl BoundedBuffer {
    /// Makes room for `more` bytes, which are charged to the memory budget before they are allocated.
    fn reserve(&mut self, more: usize) -> Result<(), CallError> {
        let needed = self.bytes.len() + more;
        if needed > self.limit {
            return Err(CallError::TooLarge(self.limit));
        }
        let capacity = self.bytes.capacity();
        if needed <= capacity {
            return Ok(());
        }
        let wanted = needed.max(2 * capacity).max(MIN_BODY_BYTES).min(self.limit);
        // Until `self.taken` is replaced, both the old and the new buffer are charged: reallocating copies one to
        // the other.
        let taken = self.take(wanted)?;
        self.bytes.reserve_exact(wanted - self.bytes.len());
        self.taken = taken;
        Ok(())
    }

    fn take(&self, bytes: usize) -> Result<Option<TakenMemory>, CallError> {
        let taken = self
            .memory
            .as_ref()
            .map(|memory| memory.reserve(bytes).ok_or(CallError::NoMemory));
        taken.transpose()
    }
}

impl Write for BoundedBuffer {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if let Err(failure) = self.reserve(data.len()) {
            self.failure = Some(failure);
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.bytes.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether `text` is a media type, such as `application/json; charset=utf-8`.
pub(crate) fn is_sound(text: &str) -> bool {
    let (base, mut rest) = text.split_at(text.find(';').unwrap_or(text.len()));
    if !is_type(base.trim()) {
        return false;
    }
    let mut names = BTreeSet::new();
    loop {
        rest = rest.trim_start();
        if rest.is_empty() || rest.trim_end() == ";" {
            return true;
        }
        let Some((name, after)) = parameter(rest) else {
            return false;
        };
        if !names.insert(name.to_ascii_lowercase()) {
            return false;
        }
        rest = after;
    }
}

/// Whether `text` is a token, or two tokens separated by a slash.
fn is_type(text: &str) -> bool {
    let (kind, rest) = token(text);
    let subtype = rest.strip_prefix('/').map(token);
    !kind.is_empty()
        && match subtype {
            None => rest.is_empty(),
            Some((subtype, rest)) => !subtype.is_empty() && rest.is_empty(),
        }
}

/// Parses `; name=value`: the name, and the text after the parameter.
fn parameter(text: &str) -> Option<(&str, &str)> {
    let (name, rest) = token(text.strip_prefix(';')?.trim_start());
    let rest = rest.trim_start().strip_prefix('=')?.trim_start();
    let after = match rest.strip_prefix('"') {
        Some(quoted) => quoted_end(quoted)?,
        None => Some(token(rest)).filter(|(value, _)| !value.is_empty())?.1,
    };
    (!name.is_empty()).then_some((name, after))
}

/// The text after the closing quote of a quoted string.
fn quoted_end(text: &str) -> Option<&str> {
    let mut characters = text.char_indices();
    while let Some((place, character)) = characters.next() {
        match character {
            '"' => return text.get(place + 1..),
            '\\' => drop(characters.next()),
            '\r' | '\n' => return None,
            _ => {}
        }
    }
    None
}

/// The token that `text` begins with, and what follows it.
fn token(text: &str) -> (&str, &str) {
    let is_part = |character: char| character.is_ascii_graphic() && !r#"()<>@,;:\"/[]?="#.contains(character);
    let end = text.find(|character| !is_part(character)).unwrap_or(text.len());
    text.split_at(end)
}

// Errors of calls to webhooks, and of settings for them.

/// Why a call to a webhook failed. No message contains a credential, or anything that the webhook sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The host name could not be resolved.
    #[error(
        "no address for `{host}`: {reason}; set its address in `upstreams.addresses` of the gateway's \
        configuration (for webhooks watched in another cluster, `clusters[].upstreams.addresses`)"
    )]
    Resolve {
        /// The host name.
        host: String,
        /// What the resolver said.
        reason: String,
    },
    /// The address is not among those that may be dialled.
    #[error("`{0}` is not among the allowed addresses")]
    Forbidden(SocketAddr),
    /// The address is loopback or link-local, and somebody other than the gateway's administrator chose it.
    #[error("`{0}` is loopback or link-local: the gateway's `upstreams` for this cluster must name it")]
    OnThisHost(SocketAddr),
    /// The address is where this gateway listens: the call would come back.
    #[error("`{0}` is this gateway itself")]
    Itself(SocketAddr),
    /// The connection could not be established.
    #[error("dial `{address}`: {reason}")]
    Dial {
        /// The address that was dialled.
        address: SocketAddr,
        /// The error of the operating system.
        reason: String,
    },
    /// The connection was not established in time.
    #[error("no connection within {0:?}")]
    Connect(Duration),
    /// The handshake failed, or the certificate is not trusted.
    #[error("tls: {0}")]
    Tls(String),
    /// The connection failed, or the reply is not valid HTTP.
    #[error("{0}")]
    Exchange(String),
    /// The peer reset the connection.
    #[error("connection reset")]
    Reset,
    /// The status is not one of 200 to 206. Redirects are not followed.
    #[error("the webhook answered with status {0}")]
    Status(u16),
    /// The reply is larger than this many bytes.
    #[error("the reply is larger than {0} bytes")]
    TooLarge(usize),
    /// The memory budget for replies is used up.
    #[error("no memory is left for its reply: replies for this user or cluster have reached their limit")]
    NoMemory,
    /// The `Content-Type` of the reply cannot be parsed.
    #[error("the reply's Content-Type is not a media type")]
    ContentType,
    /// The reply is not in the encoding that it claims.
    #[error("the reply cannot be decompressed")]
    Encoding,
    /// The connection was established, but the reply did not arrive in time.
    #[error("no reply within {0:?}")]
    Timeout(Duration),
    /// The threads that make calls could not be started, or the task of the call failed.
    #[error("cannot start a thread for the call")]
    Runtime,
}

/// Why the settings of a webhook cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The URL is invalid, or its scheme is not `https`.
    #[error("`{url}` is not a valid webhook URL: {reason}")]
    Url {
        /// The URL as it is configured.
        url: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The CA bundle contains no certificate, or an invalid one.
    #[error("the CA bundle has no certificate in PEM, or an invalid one")]
    Authorities,
    /// The client certificate is not valid PEM.
    #[error("the client certificate is not valid PEM")]
    Certificate,
    /// The client key is not valid PEM, or is encrypted.
    #[error("the client key is not valid PEM, or is encrypted")]
    Key,
    /// The client key does not belong to the client certificate.
    #[error("the client key does not belong to the client certificate")]
    Mismatch,
    /// A host, user agent or credential contains characters that are not allowed in headers.
    #[error("a host, user agent or credential contains characters that are not allowed in HTTP headers")]
    Header,
    /// OpenSSL returned an error.
    #[error("openssl: {0}")]
    OpenSsl(String),
}

// === impl CallError ===

impl From<hyper::Error> for CallError {
    fn from(error: hyper::Error) -> Self {
        if error.source().is_some_and(is_reset) {
            return Self::Reset;
        }
        let cause = error.source().map(|cause| format!(": {cause}"));
        Self::Exchange(format!("{error}{}", cause.unwrap_or_default()))
    }
}

fn is_reset(cause: &(dyn std::error::Error + 'static)) -> bool {
    let error = cause.downcast_ref::<std::io::Error>();
    error.is_some_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset)
}

// === impl SettingsError ===

impl From<openssl::error::ErrorStack> for SettingsError {
    fn from(error: openssl::error::ErrorStack) -> Self {
        let reason = error.errors().first().and_then(|first| first.reason());
        Self::OpenSsl(reason.unwrap_or("no reason given").to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn collect(is_gzip: bool, limit: usize, data: &[u8]) -> Result<Bytes, CallError> {
        let mut sink = Sink::new(is_gzip, limit, None)?;
        for chunk in data.chunks(7) {
            sink.write(chunk)?;
        }
        Ok(sink.finish()?.bytes)
    }

    /// So many bytes of memory, and how many are taken.
    struct FewBytes(usize, Arc<AtomicUsize>);

    struct Taken(usize, Arc<AtomicUsize>);

    impl ObjectMemory for FewBytes {
        fn reserve(&self, bytes: usize) -> Option<TakenMemory> {
            let taken = self.1.load(Ordering::Relaxed) + bytes;
            (taken <= self.0).then(|| {
                self.1.store(taken, Ordering::Relaxed);
                TakenMemory(Box::new(Taken(bytes, Arc::clone(&self.1))))
            })
        }
    }

    impl Drop for Taken {
        fn drop(&mut self) {
            self.1.fetch_sub(self.0, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_body_is_counted_while_it_arrives_and_as_long_as_it_is_kept() {
        let taken = Arc::<AtomicUsize>::default();
        let within = |bytes| Some::<ReplyMemory>(Arc::new(FewBytes(bytes, Arc::clone(&taken))));
        let now = || taken.load(Ordering::Relaxed);
        let text = vec![b' '; 100_000];
        for (is_gzip, sent) in [(false, text.clone()), (true, gzip(&text))] {
            let mut sink = Sink::new(is_gzip, 1 << 20, within(400_000)).unwrap();
            sink.write(&sent).unwrap();
            let body = sink.finish().unwrap();
            assert_eq!(body.bytes.len(), text.len());
            assert!((100_000..300_000).contains(&now()), "{}", now());
            drop(body);
            assert_eq!(now(), 0);

            let mut sink = Sink::new(is_gzip, 1 << 20, within(90_000)).unwrap();
            let failure = sink.write(&sent).and_then(|()| sink.finish().map(drop));
            assert_eq!(failure, Err(CallError::NoMemory));
            assert_eq!(now(), 0);
        }
        assert!(matches!(
            Sink::new(true, 10, within(10)),
            Err(CallError::NoMemory)
        ));
    }

    #[test]
    fn a_body_up_to_the_limit_is_taken() {
        assert_eq!(collect(false, 10, b"0123456789").unwrap(), "0123456789");
        assert_eq!(collect(false, 9, b"0123456789"), Err(CallError::TooLarge(9)));
        assert_eq!(collect(true, 10, &gzip(b"0123456789")).unwrap(), "0123456789");
    }

    #[test]
    fn the_limit_is_on_what_comes_out_of_gzip() {
        let bomb = gzip(&vec![0; 1 << 20]);
        assert!(bomb.len() < 2_000);
        assert_eq!(collect(true, 100_000, &bomb), Err(CallError::TooLarge(100_000)));
    }

    #[test]
    fn damaged_gzip_is_no_reply() {
        let mut damaged = gzip(b"hello");
        damaged.truncate(12);
        assert_eq!(collect(true, 100, &damaged), Err(CallError::Encoding));
        assert_eq!(collect(true, 100, b"plain text"), Err(CallError::Encoding));
    }

    #[test]
    fn what_go_reads_is_sound() {
        for text in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "text/plain;charset=\"utf-8; x\" ; q=1",
            "text",
            " text/plain ;",
            "a/b; c=\"\\\"\"",
            "a/b; c=\"\"",
        ] {
            assert!(is_sound(text), "{text}");
        }
    }

    #[test]
    fn what_go_refuses_is_not() {
        for text in [
            "",
            "; ; =x",
            "application/json; ; =x",
            "application/",
            "/json",
            "a/b/c",
            "a b/c",
            "a/b; c",
            "a/b; c=",
            "a/b; =d",
            "a/b; c=\"d",
            "a/b; c=d; C=e",
            "a/b, c/d",
        ] {
            assert!(!is_sound(text), "{text}");
        }
    }
}
