//! Errors of calls to webhooks.

use std::error::Error as _;
use std::net::SocketAddr;
use std::time::Duration;

/// Why a call got no reply. No text holds a credential or what the webhook sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The name has no address.
    #[error("no address for `{host}`: {reason}")]
    Resolve {
        /// The name.
        host: String,
        /// What the resolver said.
        reason: String,
    },
    /// The address is not among those that may be dialled.
    #[error("`{0}` is not among the allowed addresses")]
    Forbidden(SocketAddr),
    /// The address is loopback or link-local, and others than the administrator chose it.
    #[error("`{0}` is loopback or link-local: the gateway's `upstreams` for this cluster must name it")]
    OnThisHost(SocketAddr),
    /// The address is where this gateway listens: the call would come back.
    #[error("`{0}` is this gateway itself")]
    Itself(SocketAddr),
    /// No connection came about.
    #[error("dial `{address}`: {reason}")]
    Dial {
        /// Where to.
        address: SocketAddr,
        /// What the system said.
        reason: String,
    },
    /// No connection came about in time.
    #[error("no connection within {0:?}")]
    Connect(Duration),
    /// The handshake failed, or the certificate is not to be trusted.
    #[error("tls: {0}")]
    Tls(String),
    /// The connection broke, or what came over it is not HTTP.
    #[error("{0}")]
    Exchange(String),
    /// The other side ended the connection in the middle.
    #[error("connection reset")]
    Reset,
    /// A status other than 200 to 206; a redirect is one.
    #[error("the webhook answered with status {0}")]
    Status(u16),
    /// The reply is larger than this many bytes.
    #[error("the reply is larger than {0} bytes")]
    TooLarge(usize),
    /// The reply says of itself what nobody can read.
    #[error("the reply's Content-Type is not a media type")]
    ContentType,
    /// The reply is not in the encoding that it claims.
    #[error("the reply cannot be decompressed")]
    Encoding,
    /// There is a connection, but the time is over.
    #[error("no reply within {0:?}")]
    Timeout(Duration),
    /// The threads that make calls are not there.
    #[error("cannot start a thread for the call")]
    Runtime,
}

/// Why nothing could be called with some settings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSettings {
    /// The URL is none, or not one of the scheme `https`.
    #[error("`{url}` is not a valid webhook URL: {reason}")]
    Url {
        /// As written.
        url: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A CA bundle without a certificate.
    #[error("the CA bundle has no certificate in PEM, or an invalid one")]
    Authorities,
    /// A client certificate that is none.
    #[error("the client certificate is not valid PEM")]
    Certificate,
    /// A key that is none, or is encrypted.
    #[error("the client key is not valid PEM, or is encrypted")]
    Key,
    /// A key of another certificate.
    #[error("the client key does not belong to the client certificate")]
    Mismatch,
    /// A host or credential that no header can hold.
    #[error("a host, user agent or credential contains characters that are not allowed in HTTP headers")]
    Header,
    /// OpenSSL refused.
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

// === impl InvalidSettings ===

impl From<openssl::error::ErrorStack> for InvalidSettings {
    fn from(error: openssl::error::ErrorStack) -> Self {
        let reason = error.errors().first().and_then(|first| first.reason());
        Self::OpenSsl(reason.unwrap_or("no reason given").to_owned())
    }
}
