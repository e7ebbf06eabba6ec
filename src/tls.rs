//! TLS of the listener: certificate, key, client CA.
//!
//! ```text
//! files ──build──▶ TlsContext ──┐ (swapped whole on reload)
//! ClientHello ──▶ acceptor ─────┴─ current context, verify mode ──▶ handshake
//! ```
//!
//! The context is chosen for each ClientHello, so that a new certificate or client CA, or
//! the removal of one, applies to the next connection. Sessions are never resumed, by
//! ticket or by cache, so a client of a removed CA cannot return.
//!
//! With a client CA, every client is *asked* for a certificate and may decline, because
//! callers with tokens have none; if every caller has a certificate, a handshake without
//! one fails. A certificate that does not chain to the CA, or has expired, does not end
//! the handshake: as in kube-apiserver it authenticates nobody, and the request gets 401
//! unless another credential is accepted; the log has the reason. `authentication`
//! identifies the caller of each request, with the current CA.

mod load;

use openssl::error::ErrorStack;
use openssl::ssl::{
    AlpnError, ClientHelloResponse, SslAcceptor, SslAcceptorBuilder, SslContext, SslContextBuilder,
    SslMethod, SslOptions, SslRef, SslSessionCacheMode, SslVerifyMode, select_next_proto,
};

use crate::config::Tls;
use portcullis_policy::field::Faults;

/// The protocols that a listener offers, the preferred first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocols {
    /// Reviews come by either.
    Http2AndHttp1,
    /// The console speaks one.
    Http1,
}

/// Everything a handshake needs. Cheap to clone.
#[derive(Clone)]
pub struct TlsContext {
    context: SslContext,
    verify: SslVerifyMode,
}

/// What a handshake goes by.
#[derive(Clone)]
pub struct Handshake {
    /// Certificate, key and client authorities.
    pub context: TlsContext,
    /// A client that has no certificate does not get through.
    pub demands_certificate: bool,
}

// === impl TlsContext ===

impl TlsContext {
    /// Reads and checks the files.
    ///
    /// # Errors
    /// Every fault at once: a file that cannot be read or holds no certificate
    /// or key, a key that is encrypted or belongs to another certificate.
    pub fn build(tls: &Tls) -> Result<Self, Faults> {
        Self::build_for("server", tls, Protocols::Http2AndHttp1)
    }

    /// The same for the console, which offers HTTP/1.1 alone. Faults of the client CA, which is
    /// that of `server`, are named there.
    ///
    /// # Errors
    /// Those of [`TlsContext::build`].
    pub fn build_for_console(tls: &Tls) -> Result<Self, Faults> {
        Self::build_for("console", tls, Protocols::Http1)
    }

    fn build_for(listener: &'static str, tls: &Tls, protocols: Protocols) -> Result<Self, Faults> {
        let material = load::load(listener, tls)?;
        let (context, verify) = material.context(protocols)?;
        Ok(Self { context, verify })
    }

    /// An acceptor that asks `current` what each handshake goes by.
    ///
    /// # Errors
    /// When OpenSSL refuses, which is when it has no memory.
    pub fn acceptor(
        current: impl Fn() -> Handshake + Send + Sync + 'static,
    ) -> Result<SslAcceptorBuilder, ErrorStack> {
        let mut builder = builder(Protocols::Http2AndHttp1)?;
        builder.set_client_hello_callback(move |ssl, _alert| {
            current().install(ssl)?;
            Ok(ClientHelloResponse::SUCCESS)
        });
        Ok(builder)
    }
}

// === impl Handshake ===

impl Handshake {
    /// Has `ssl` go on with the context. The verify mode is the connection's
    /// own and does not come with the context.
    fn install(&self, ssl: &mut SslRef) -> Result<(), ErrorStack> {
        ssl.set_ssl_context(&self.context.context)?;
        let mut verify = self.context.verify;
        if self.demands_certificate && verify.contains(SslVerifyMode::PEER) {
            verify |= SslVerifyMode::FAIL_IF_NO_PEER_CERT;
        }
        // Any certificate completes the handshake: see the head of this module.
        ssl.set_verify_callback(verify, |_chains, _store| true);
        Ok(())
    }
}

impl From<TlsContext> for Handshake {
    /// Clients may decline to send a certificate.
    fn from(context: TlsContext) -> Self {
        Self {
            context,
            demands_certificate: false,
        }
    }
}

/// A context without certificate: TLS 1.2 and 1.3 as Mozilla's intermediate
/// profile has them. Options and read-ahead are a connection's from its start, so
/// they stand in the acceptor and in every context alike.
fn builder(protocols: Protocols) -> Result<SslAcceptorBuilder, ErrorStack> {
    let mut builder = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server())?;
    configure(&mut builder, protocols)?;
    Ok(builder)
}

fn configure(builder: &mut SslContextBuilder, protocols: Protocols) -> Result<(), ErrorStack> {
    builder.set_options(SslOptions::NO_TICKET | SslOptions::NO_RENEGOTIATION);
    builder.set_num_tickets(0)?;
    builder.set_session_cache_mode(SslSessionCacheMode::OFF);
    // One read a request instead of three: header, record, and a look for more.
    builder.set_read_ahead(true);
    let alpn = protocols.alpn();
    builder.set_alpn_select_callback(move |_ssl, offered| {
        select_next_proto(alpn, offered).ok_or(AlpnError::NOACK)
    });
    Ok(())
}

// === impl Protocols ===

impl Protocols {
    const fn alpn(self) -> &'static [u8] {
        match self {
            Self::Http2AndHttp1 => b"\x02h2\x08http/1.1",
            Self::Http1 => b"\x08http/1.1",
        }
    }
}

#[cfg(test)]
mod tests;
