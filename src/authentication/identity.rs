//! What credentials say of whom they were made for, for the log line of a refusal. Nothing of this is
//! proven: the refused caller may have written it, so it is cut to a length.

use openssl::hash::MessageDigest;
use openssl::x509::{X509NameRef, X509Ref};

use super::Credentials;
use super::jwt;

/// What credentials claim; what they do not say is absent.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ClaimedIdentity {
    /// The subject of the certificate, else the `sub` of the token.
    pub subject: Option<String>,
    /// Who signed the certificate or the token, as it says.
    pub issuer: Option<String>,
    /// SHA-256 of the certificate, as `openssl x509 -fingerprint -sha256` prints it.
    pub fingerprint: Option<String>,
}

/// Bytes of each text that are written.
const MAX_TEXT_BYTES: usize = 256;

// === impl Credentials ===

impl Credentials<'_> {
    /// Whom the token of the header names, else the certificate: the one that was checked last.
    #[must_use]
    pub fn claimed(&self) -> ClaimedIdentity {
        match (self.authorization.map(jwt::claimed), self.peer) {
            (None | Some(None), Some(peer)) => of_certificate(&peer.leaf),
            (Some(Some((issuer, subject))), _) => ClaimedIdentity {
                subject: subject.map(cut),
                issuer: Some(cut(issuer)),
                fingerprint: None,
            },
            _ => ClaimedIdentity::default(),
        }
    }
}

fn of_certificate(certificate: &X509Ref) -> ClaimedIdentity {
    let digest = certificate.digest(MessageDigest::sha256()).ok();
    let hexadecimal = |digest: &[u8]| {
        let bytes: Vec<_> = digest.iter().map(|byte| format!("{byte:02X}")).collect();
        bytes.join(":")
    };
    ClaimedIdentity {
        subject: Some(cut(name(certificate.subject_name()))),
        issuer: Some(cut(name(certificate.issuer_name()))),
        fingerprint: digest.map(|digest| hexadecimal(&digest)),
    }
}

/// As `openssl x509 -subject` prints it: `O = apiservers, CN = kube-apiserver`.
fn name(name: &X509NameRef) -> String {
    let mut text = String::new();
    for entry in name.entries() {
        if text.len() > MAX_TEXT_BYTES {
            break;
        }
        let field = entry.object().nid().short_name().unwrap_or("?");
        let value = entry.data().to_string().unwrap_or_default();
        let comma = if text.is_empty() { "" } else { ", " };
        text.push_str(&format!("{comma}{field} = {value}"));
    }
    text
}

fn cut(mut text: String) -> String {
    if text.len() > MAX_TEXT_BYTES {
        text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::*;
    use crate::authentication::PeerCertificate;
    use crate::pki::Authority;

    fn bearer(claims: &str) -> String {
        let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
        format!("Bearer {}.{}.c2ln", part(r#"{"alg":"RS256"}"#), part(claims))
    }

    #[test]
    fn a_certificate_is_named_by_subject_issuer_and_fingerprint() {
        let identity = Authority::new("the CA").client("kube-apiserver", &["apiservers"]);
        let peer = PeerCertificate::new(identity.certificate.clone(), []);
        let credentials = Credentials {
            peer: Some(&peer),
            authorization: Some(b"Bearer opaque"),
            path_token: None,
        };
        let claimed = credentials.claimed();
        let subject = claimed.subject.unwrap();
        assert!(subject.contains("CN = kube-apiserver"), "{subject}");
        assert!(subject.contains("O = apiservers"), "{subject}");
        assert_eq!(claimed.issuer.as_deref(), Some("CN = the CA"));
        assert_eq!(claimed.fingerprint.unwrap().len(), 32 * 3 - 1);
    }

    #[test]
    fn a_token_is_named_by_what_it_claims_and_never_in_full() {
        let of = |header: &str| {
            let credentials = Credentials {
                authorization: Some(header.as_bytes()),
                ..Credentials::default()
            };
            credentials.claimed()
        };
        let claimed = of(&bearer(
            r#"{"iss":"https://issuer","sub":"system:serviceaccount:a:b"}"#,
        ));
        assert_eq!(claimed.issuer.as_deref(), Some("https://issuer"));
        assert_eq!(claimed.subject.as_deref(), Some("system:serviceaccount:a:b"));
        let long = of(&bearer(&format!(r#"{{"iss":"{}"}}"#, "é".repeat(4_000))));
        assert!(long.issuer.unwrap().len() <= MAX_TEXT_BYTES + '…'.len_utf8());
        for nothing in ["Bearer opaque", "Basic bjpw", "", &bearer("[]")] {
            assert_eq!(of(nothing), ClaimedIdentity::default(), "{nothing}");
        }
    }
}
