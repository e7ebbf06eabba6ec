//! What has not the form of a token.

use std::sync::OnceLock;

use openssl::hash::MessageDigest;
use openssl::sign::Signer;
use proptest::prelude::*;
use serde_json::json;

use super::issuer::*;
use crate::identity::tests::fixtures::{at, base64url};
use crate::identity::*;

#[test]
fn what_has_not_the_form_of_a_token_is_an_unknown_one() {
    let authenticator = world().build();
    for text in ["a", "a.b", "a.b.c.d", "..."] {
        assert_eq!(
            bearer(&authenticator, text),
            "401 bearer unauthorized: unknown credential",
            "{text}"
        );
    }
    let good = with_claims(json!({}));
    let parts: Vec<&str> = good.split('.').collect();
    let (header, payload, signature) = (parts[0], parts[1], parts[2]);
    let table = [
        "..".to_owned(),
        "a.b.c".to_owned(),
        format!("{header}..{signature}"),
        format!(".{payload}.{signature}"),
        format!("{header}=.{payload}.{signature}"),
        format!("{}.{payload}.{signature}", base64url("[]")),
        format!("{}.{payload}.{signature}", base64url("{\"alg\":\"ES256\"")),
        format!("{header}.{}.{signature}", base64url("\"iss\"")),
        format!("{header}.{}.{signature}", base64url("\u{0}")),
        format!("{header}.{}.{signature}", base64url("[".repeat(10_000))),
    ];
    for text in &table {
        assert_eq!(bearer(&authenticator, text), refused("malformed"), "{text}");
    }
    assert_eq!(
        bearer(&authenticator, &format!("{header}.{payload}.")),
        refused("wrong signature")
    );
}

#[test]
fn a_changed_payload_is_refused() {
    let good = with_claims(json!({}));
    let other = with_claims(json!({"sub": "other"}));
    let (good, other): (Vec<&str>, Vec<&str>) = (good.split('.').collect(), other.split('.').collect());
    let spliced = format!("{}.{}.{}", good[0], other[1], good[2]);
    assert_eq!(bearer(&world().build(), &spliced), refused("wrong signature"));
}

#[test]
fn a_signature_in_der_is_refused() {
    let message = unsigned(&json!({"alg": "ES256", "kid": "ec"}), &claims());
    let mut signer = Signer::new(MessageDigest::sha256(), &keys().ec).unwrap();
    let der = signer.sign_oneshot_to_vec(message.as_bytes()).unwrap();
    for bytes in [der, vec![0; 64], vec![0xff; 64], vec![0; 65]] {
        let token = format!("{message}.{}", base64url(bytes));
        assert_eq!(bearer(&world().build(), &token), refused("wrong signature"));
    }
}

#[test]
fn a_long_token_is_not_looked_at() {
    let authenticator = world().build();
    let long = with_claims(json!({"x": "a".repeat(12_400)}));
    assert_eq!(bearer(&authenticator, &long), refused("malformed"));
    let fits = with_claims(json!({"x": "a".repeat(10_000)}));
    assert_eq!(bearer(&authenticator, &fits), KNOWN);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_change_of_a_token_is_accepted_and_none_panics(position in 0_usize..400, byte in 0_u8..128) {
        static AUTHENTICATOR: OnceLock<(Authenticator, String)> = OnceLock::new();
        let (authenticator, good) = AUTHENTICATOR.get_or_init(|| (world().build(), with_claims(json!({}))));
        let mut changed = good.clone().into_bytes();
        let position = position % changed.len();
        prop_assume!(changed[position] != byte);
        changed[position] = byte;
        let header = [b"Bearer ".as_slice(), &changed].concat();
        let presented = Credentials { authorization: Some(&header), ..Credentials::default() };
        let outcome = authenticator.authenticate(&presented, at(0));
        let still_the_same = position + 1 == good.len() || byte.is_ascii_whitespace();
        prop_assert!(outcome.is_err() || still_the_same, "{outcome:?}");
    }
}
