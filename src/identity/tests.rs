mod certificates;
mod files;
pub(crate) mod fixtures;
mod order;
mod path_tokens;
mod replacement;
mod tokens;

use super::*;
use crate::identity::PeerCertificate;
use crate::pki::Authority;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

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
        ..Credentials::default()
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
