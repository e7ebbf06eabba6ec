//! Files of keys.

use openssl::pkey::PKey;
use openssl::rsa::Rsa;
use serde_json::json;

use super::issuer::*;
use crate::identity::tests::fixtures::{at, base64url, rsa_key};

#[test]
fn keys_that_cannot_be_used_are_passed_over_with_a_warning() {
    let good = ec_jwk("ec", "P-256", &keys().ec);
    let short = PKey::from_rsa(Rsa::generate(1024).unwrap()).unwrap();
    let off_curve = with(good.clone(), json!({"x": good["y"], "y": good["x"]}));
    let table = [
        (
            json!({"kty": "oct", "kid": "s", "k": base64url("secret")}),
            "keys[1] `s` is ignored: it is a shared secret",
        ),
        (
            json!({"kty": "oct", "alg": "RS256", "kid": "rsa", "k": base64url("secret")}),
            "it is a shared secret",
        ),
        (
            with(good.clone(), json!({"use": "enc"})),
            "its `use` is not `sig`",
        ),
        (
            with(good.clone(), json!({"key_ops": ["sign"]})),
            "its `key_ops` have no `verify`",
        ),
        (
            with(good.clone(), json!({"alg": "RS256"})),
            "its algorithm is not among `algorithms`",
        ),
        (
            with(good.clone(), json!({"alg": "HS256"})),
            "its algorithm is not among `algorithms`",
        ),
        (
            with(good.clone(), json!({"alg": "none"})),
            "its algorithm is not among `algorithms`",
        ),
        (
            ec_jwk("e", "P-384", &keys().ec384),
            "its algorithm is not among `algorithms`",
        ),
        (
            with(good.clone(), json!({"crv": "P-521"})),
            "its curve is not supported",
        ),
        (
            rsa_jwk("r", &short),
            "an invalid key, or an RSA key with fewer than 2048",
        ),
        (off_curve, "an invalid key"),
        (with(good.clone(), json!({"x": "%"})), "not a readable key"),
        (json!({"kty": "new", "kid": "n"}), "keys[1] `n` is ignored: "),
        (json!(7), "keys[1] is ignored: not a readable key"),
    ];
    for (key, expected) in table {
        let (authenticator, faults) = world_of("", &json!({"keys": [good, key]})).try_build(None, at(0));
        let warning = "/jwks.json: warning: Unsupported value: ";
        assert!(
            faults.starts_with(warning) && faults.contains(expected),
            "{key}: {faults}"
        );
        assert!(!faults.contains('\n'), "{faults}");
        assert_eq!(bearer(&authenticator, &with_claims(json!({}))), KNOWN);
    }
}

#[test]
fn a_file_without_usable_keys_is_a_fault() {
    let table = [
        (
            "{\"keys\": []}",
            "/jwks.json: Required value: no key can check a token",
        ),
        (
            "{\"keys\": [{\"kty\": \"oct\", \"k\": \"AA\"}]}",
            "Required value: no key can check a token",
        ),
        ("{}", "/jwks.json: Unreadable: not a JWKS"),
        ("", "/jwks.json:1: Unreadable: not JSON: it ends too early"),
        ("-----BEGIN", "/jwks.json:1:2: Unreadable: not JSON: "),
    ];
    for (text, expected) in table {
        let mut world = world();
        world.write("jwks.json", text);
        let (authenticator, faults) = world.try_build(None, at(0));
        assert!(faults.contains(expected), "{text}: {faults}");
        let refusal = refused("no key for its `kid` and `alg`");
        assert_eq!(bearer(&authenticator, &with_claims(json!({}))), refusal);
    }
}

#[test]
fn a_key_that_leaves_the_file_is_gone_at_once() {
    let mut world = world();
    let first = world.build();
    let good = with_claims(json!({}));
    assert_eq!(bearer(&first, &good), KNOWN);
    world.write(
        "jwks.json",
        json!({"keys": [rsa_jwk("rsa", rsa_key())]}).to_string(),
    );
    let second = world.rebuild(Some(&first), 1);
    assert_eq!(bearer(&second, &good), refused("no key for its `kid` and `alg`"));
}
