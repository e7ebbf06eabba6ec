//! Loads certificates and keys from files, and reports every fault.

use std::path::{Path, PathBuf};

use openssl::error::ErrorStack;
use openssl::pkey::{PKey, Private};
use openssl::ssl::{SslContext, SslVerifyMode};
use openssl::stack::Stack;
use openssl::x509::{X509, X509Name};

use super::Protocols;
use crate::config::{Disk, Files as _, Tls};
use portcullis_policy::field::{Fault, FaultKind, Faults, FieldPath, Place};

/// What the files hold.
pub(crate) struct Material {
    /// Whose they are: a section of the configuration.
    listener: &'static str,
    /// That of the certificate, for messages.
    file: PathBuf,
    certificate: X509,
    intermediates: Vec<X509>,
    key: PKey<Private>,
    /// The client authorities; empty if clients are not asked.
    authorities: Vec<X509>,
}

/// Reads every file, whatever becomes of the others.
pub(crate) fn load(listener: &'static str, tls: &Tls) -> Result<Material, Faults> {
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
    Ok(Material {
        listener,
        file: tls.certificate.clone(),
        certificate,
        intermediates,
        key,
        authorities,
    })
}

// === impl Material ===

impl Material {
    /// The context and verify mode of handshakes.
    pub(crate) fn context(&self, protocols: Protocols) -> Result<(SslContext, SslVerifyMode), Faults> {
        self.try_context(protocols).map_err(|error| {
            let mut faults = Faults::new();
            let message = refusal(&error);
            let field = (self.listener, "certificate");
            faults.push(fault(&self.file, field, FaultKind::Invalid, message));
            faults
        })
    }

    fn try_context(&self, protocols: Protocols) -> Result<(SslContext, SslVerifyMode), ErrorStack> {
        let mut builder = super::builder(protocols)?;
        builder.set_certificate(&self.certificate)?;
        for intermediate in &self.intermediates {
            builder.add_extra_chain_cert(intermediate.clone())?;
        }
        builder.set_private_key(&self.key)?;
        let verify = if self.authorities.is_empty() {
            SslVerifyMode::NONE
        } else {
            // Their names only tell clients which certificate to choose.
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

/// Why OpenSSL takes no certificate or key that can be read, without its own files and lines.
fn refusal(error: &ErrorStack) -> String {
    let reason = error.errors().first().and_then(|first| first.reason());
    match reason {
        Some("ee key too small" | "ca key too small") => {
            "its key is too short to be safe: make one of RSA with at \
             least 2048 bits, or ECDSA with P-256"
                .to_owned()
        }
        Some("ca md too weak") => {
            "it is signed by an algorithm that is no longer safe: have it signed with SHA-256".to_owned()
        }
        reason => format!("cannot be used: {}", reason.unwrap_or("OpenSSL gives no reason")),
    }
}

/// A field of `tls`, below the section of its listener.
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
    let pem = read(file, field, faults)?;
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
