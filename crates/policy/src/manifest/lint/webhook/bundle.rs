//! Warnings about a `caBundle` without certificate.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::Lint;
use crate::field::FieldPath;

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";
/// The first byte of every certificate: a sequence follows.
const SEQUENCE: u8 = 0x30;

pub(crate) fn lint(bundle: &[u8], path: &FieldPath, lint: &mut Lint<'_>) {
    if !bundle.is_empty() && !has_certificate(bundle) {
        let message = "it contains no certificate, so every call fails: set it to the base64 of the \
                       CA's PEM file, as written by `base64 -w0 ca.crt`";
        lint.suspicious(&path.field("clientConfig").field("caBundle"), message);
    }
}

/// Whether one block of PEM at least looks like a certificate.
fn has_certificate(bundle: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bundle);
    let mut blocks = text.split(BEGIN).skip(1);
    blocks.any(|block| block.split_once(END).is_some_and(|(inner, _)| is_der(inner)))
}

fn is_der(text: &str) -> bool {
    let text: String = text.split_ascii_whitespace().collect();
    let bytes = STANDARD.decode(text).unwrap_or_default();
    bytes.first() == Some(&SEQUENCE)
}
