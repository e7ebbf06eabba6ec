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
//! With a client CA, every client is *asked* for a certificate and may decline, because callers
//! with tokens have none; if every caller has a certificate, a handshake without one fails. A
//! certificate that does not chain to the CA, or has expired, does not end the handshake: as in
//! kube-apiserver it authenticates nobody, and the request gets 401 unless another credential is
//! accepted; the log has the reason. The [`Authenticator`](super::Authenticator) identifies the
//! caller of each request, with the current CA.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use openssl::error::ErrorStack;
use openssl::pkey::{PKey, Private};
use openssl::ssl::{
    AlpnError, ClientHelloResponse, SslAcceptor, SslAcceptorBuilder, SslContext, SslContextBuilder,
    SslMethod, SslOptions, SslRef, SslSessionCacheMode, SslVerifyMode, select_next_proto,
};
use openssl::stack::Stack;
use openssl::x509::{X509, X509Name};

use crate::config::{Disk, Files as _, Tls};
use portcullis_policy::field::{Fault, FaultKind, Faults, FieldPath, Place};

/// The protocols that a listener offers, the preferred first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocols {
    /// For the listener of reviews.
    Http2AndHttp1,
    /// For the console.
    Http1,
}

/// The TLS configuration of a listener. Cheap to clone.
#[derive(Clone)]
pub struct TlsContext {
    context: SslContext,
    verify: SslVerifyMode,
    chain: Arc<[X509]>,
}

/// The configuration of one handshake.
#[derive(Clone)]
pub struct Handshake {
    /// Certificate, key and client CAs.
    pub context: TlsContext,
    /// Whether the handshake fails if the client has no certificate.
    pub demands_certificate: bool,
}

// === impl TlsContext ===

impl TlsContext {
    /// Reads and checks the files.
    ///
    /// # Errors
    /// All errors at once: a file that cannot be read or contains no certificate or key, a key that
    /// is encrypted or belongs to another certificate.
    pub fn build(tls: &Tls) -> Result<Self, Faults> {
        Self::build_for("server", tls, Protocols::Http2AndHttp1)
    }

    /// Like [`TlsContext::build`], for the console, which offers HTTP/1.1 only. Errors in the
    /// client CA, which it shares with `server`, name the field of `server`.
    ///
    /// # Errors
    /// Those of [`TlsContext::build`].
    pub fn build_for_console(tls: &Tls) -> Result<Self, Faults> {
        Self::build_for("console", tls, Protocols::Http1)
    }

    fn build_for(listener: &'static str, tls: &Tls, protocols: Protocols) -> Result<Self, Faults> {
        let material = load(listener, tls)?;
        let (context, verify) = material.context(protocols)?;
        let chain = std::iter::once(material.certificate).chain(material.intermediates);
        Ok(Self {
            context,
            verify,
            chain: chain.collect(),
        })
    }

    /// The served certificate, followed by its intermediates.
    #[must_use]
    pub(crate) fn chain(&self) -> &[X509] {
        &self.chain
    }

    /// An acceptor that calls `current` for the configuration of each handshake.
    ///
    /// # Errors
    /// OpenSSL fails, as it does without memory.
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
    /// Switches `ssl` to the context. The verify mode has to be set separately, because it belongs
    /// to the connection and not to the context.
    fn install(&self, ssl: &mut SslRef) -> Result<(), ErrorStack> {
        ssl.set_ssl_context(&self.context.context)?;
        let mut verify = self.context.verify;
        if self.demands_certificate && verify.contains(SslVerifyMode::PEER) {
            verify |= SslVerifyMode::FAIL_IF_NO_PEER_CERT;
        }
        // Any certificate completes the handshake: see the documentation of this module.
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

/// A context without certificate: TLS 1.2 and 1.3 according to Mozilla's intermediate profile. A
/// connection takes options and read-ahead from the context with which it starts, so they are set
/// in the acceptor and in every context.
fn builder(protocols: Protocols) -> Result<SslAcceptorBuilder, ErrorStack> {
    let mut builder = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server())?;
    configure(&mut builder, protocols)?;
    Ok(builder)
}

fn configure(builder: &mut SslContextBuilder, protocols: Protocols) -> Result<(), ErrorStack> {
    builder.set_options(SslOptions::NO_TICKET | SslOptions::NO_RENEGOTIATION);
    builder.set_num_tickets(0)?;
    builder.set_session_cache_mode(SslSessionCacheMode::OFF);
    // One read for each request instead of three: record header, record, and a read without data.
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

/// The contents of the files.
pub(crate) struct TlsFiles {
    /// The section of the configuration that names the files.
    listener: &'static str,
    /// The file of the certificate, for messages.
    file: PathBuf,
    certificate: X509,
    intermediates: Vec<X509>,
    key: PKey<Private>,
    /// The client CAs; empty if clients are not asked for a certificate.
    authorities: Vec<X509>,
}

/// Reads every file, even if another one is invalid.
pub(crate) fn load(listener: &'static str, tls: &Tls) -> Result<TlsFiles, Faults> {
    let mut faults = Faults::new();
    let chain = certificates(&tls.certificate, (listener, "certificate"), &mut faults);
    let key = private_key(&tls.private_key, (listener, "privateKey"), &mut faults);
    let authorities = match &tls.client_ca {
        Some(file) => certificates(file, ("server", "clientCA"), &mut faults),
        None => Vec::new(),
    };
    let mut chain = chain.into_iter();
    let (Some(certificate), Some(key)) = (chain.next(), key) else {
        return Err(faults);
    };
    if !certificate
        .public_key()
        .is_ok_and(|public| public.public_eq(&key))
    {
        let message = format!(
            "is not the key of the certificate in `{}`",
            tls.certificate.display()
        );
        let field = (listener, "privateKey");
        faults.push(fault(&tls.private_key, field, FaultKind::Invalid, message));
    }
    if faults.has_errors() {
        return Err(faults);
    }
    let intermediates: Vec<_> = chain.collect();
    Ok(TlsFiles {
        listener,
        file: tls.certificate.clone(),
        certificate,
        intermediates,
        key,
        authorities,
    })
}

// === impl TlsFiles ===

impl TlsFiles {
    /// The context and verify mode of handshakes.
    fn context(&self, protocols: Protocols) -> Result<(SslContext, SslVerifyMode), Faults> {
        self.try_context(protocols).map_err(|error| {
            let mut faults = Faults::new();
            let message = refusal(&error);
            let field = (self.listener, "certificate");
            faults.push(fault(&self.file, field, FaultKind::Invalid, message));
            faults
        })
    }

    fn try_context(&self, protocols: Protocols) -> Result<(SslContext, SslVerifyMode), ErrorStack> {
        let mut builder = builder(protocols)?;
        builder.set_certificate(&self.certificate)?;
        for intermediate in &self.intermediates {
            builder.add_extra_chain_cert(intermediate.clone())?;
        }
        builder.set_private_key(&self.key)?;
        let verify = if self.authorities.is_empty() {
            SslVerifyMode::NONE
        } else {
            // The names only help clients to choose a certificate.
            let mut names = Stack::<X509Name>::new()?;
            for authority in &self.authorities {
                names.push(authority.subject_name().to_owned()?)?;
            }
            builder.set_client_ca_list(names);
            SslVerifyMode::PEER
        };
        Ok((builder.build().into_context(), verify))
    }
}

/// Why OpenSSL rejects a certificate or key that could be parsed, without OpenSSL's file names and
/// lines.
fn refusal(error: &ErrorStack) -> String {
    let reason = error.errors().first().and_then(|first| first.reason());
    match reason {
        Some("ee key too small" | "ca key too small") => {
            "its key is too short: use RSA with at least 2048 bits, or ECDSA with P-256".to_owned()
        }
        Some("ca md too weak") => {
            "its signature algorithm is no longer secure: have it signed with SHA-256".to_owned()
        }
        reason => format!("cannot be used: {}", reason.unwrap_or("OpenSSL gives no reason")),
    }
}

/// The section of a listener and a field of its `tls`.
type TlsField = (&'static str, &'static str);

fn certificates(file: &Path, field: TlsField, faults: &mut Faults) -> Vec<X509> {
    let Some(pem) = read(file, field, faults) else {
        return Vec::new();
    };
    match X509::stack_from_pem(&pem) {
        Ok(certificates) if !certificates.is_empty() => certificates,
        _ => {
            let message = "contains no certificate in PEM, or an invalid one";
            faults.push(fault(file, field, FaultKind::Invalid, message));
            Vec::new()
        }
    }
}

fn private_key(file: &Path, field: TlsField, faults: &mut Faults) -> Option<PKey<Private>> {
    let read = Disk.read(file).map_err(|error| {
        let mut message = error.to_string();
        if error.kind() == io::ErrorKind::NotFound {
            message.push_str(
                "; in a set-up of `init`, `portcullis init DIR --renew` makes a new key and certificate",
            );
        }
        faults.push(fault(file, field, FaultKind::Unreadable, message));
    });
    let pem = read.ok()?;
    // Without a callback OpenSSL would ask the terminal for a passphrase.
    let mut encrypted = false;
    let key = PKey::private_key_from_pem_callback(&pem, |_| {
        encrypted = true;
        Err(ErrorStack::get())
    });
    key.map_err(|_| {
        let message = if encrypted {
            "is encrypted: store it without a passphrase, readable only by this program"
        } else {
            "contains no private key in PEM, or an invalid one"
        };
        faults.push(fault(file, field, FaultKind::Invalid, message));
    })
    .ok()
}

fn read(file: &Path, field: TlsField, faults: &mut Faults) -> Option<Vec<u8>> {
    Disk.read(file)
        .map_err(|error| faults.push(fault(file, field, FaultKind::Unreadable, error.to_string())))
        .ok()
}

fn fault(file: &Path, field: TlsField, kind: FaultKind, message: impl Into<String>) -> Fault {
    Fault::error(place(file, field), kind, message)
}

fn place(file: &Path, (listener, field): TlsField) -> Place {
    Place {
        file: Some(file.to_string_lossy().into()),
        path: FieldPath::root().field(listener).field("tls").field(field),
        ..Place::default()
    }
}

#[cfg(test)]
mod tests;
