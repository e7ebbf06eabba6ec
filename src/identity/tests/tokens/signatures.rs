//! Which key and algorithm a token may be signed with.

use openssl::hash::MessageDigest;
use openssl::pkey::PKey;
use openssl::sign::Signer;
use serde_json::json;

use super::issuer::*;
use crate::identity::tests::fixtures::{base64url, rsa_key, unbase64url};

#[test]
fn a_token_of_each_algorithm_names_its_subject() {
    let keys = keys();
    let all = ", algorithms: [RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA]";
    let authenticator = world_of(all, &jwks()).build();
    let rsa =
        ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"].map(|algorithm| (algorithm, "rsa", rsa_key()));
    let others = [
        ("ES256", "ec", &keys.ec),
        ("ES384", "ec384", &keys.ec384),
        ("EdDSA", "ed", &keys.ed),
    ];
    for (algorithm, kid, key) in rsa.into_iter().chain(others) {
        let good = with_header(&json!({"alg": algorithm, "kid": kid}), key);
        assert_eq!(bearer(&authenticator, &good), KNOWN, "{algorithm}");
        let (message, signature) = good.rsplit_once('.').unwrap();
        let flipped = if signature.starts_with('A') { "B" } else { "A" };
        let bad = format!("{message}.{flipped}{}", &signature[1..]);
        assert_eq!(
            bearer(&authenticator, &bad),
            refused("wrong signature"),
            "{algorithm}"
        );
        let bytes = unbase64url(signature);
        let short = format!("{message}.{}", base64url(&bytes[1..]));
        assert_eq!(
            bearer(&authenticator, &short),
            refused("wrong signature"),
            "{algorithm}"
        );
    }
}

#[test]
fn a_signature_that_lacks_its_leading_zero_is_refused() {
    let authenticator = world_of(", algorithms: [PS256]", &jwks()).build();
    // Each signature has a salt of its own: about one in 256 begins with a zero.
    for _ in 0..20_000 {
        let token = with_header(&json!({"alg": "PS256", "kid": "rsa"}), rsa_key());
        let (message, signature) = token.rsplit_once('.').unwrap();
        let bytes = unbase64url(signature);
        if bytes[0] == 0 {
            assert_eq!(bearer(&authenticator, &token), KNOWN);
            let short = format!("{message}.{}", base64url(&bytes[1..]));
            assert_eq!(bearer(&authenticator, &short), refused("wrong signature"));
            return;
        }
    }
    panic!("no signature began with a zero");
}

#[test]
fn no_algorithm_but_those_allowed_will_do() {
    let authenticator = world().build();
    let keys = keys();
    for algorithm in ["none", "None", "NONE", "nOnE", "", "HS256x", "ES512", "ES256K"] {
        let message = unsigned(&json!({"alg": algorithm, "kid": "ec"}), &claims());
        for token in [format!("{message}."), format!("{message}.{}", base64url("x"))] {
            assert_eq!(
                bearer(&authenticator, &token),
                refused("malformed"),
                "{algorithm}"
            );
        }
    }
    let no_key = refused("no key for its `kid` and `alg`");
    for (algorithm, kid, key) in [
        ("PS256", "rsa", rsa_key()),
        ("RS384", "rsa", rsa_key()),
        ("ES384", "ec384", &keys.ec384),
        ("EdDSA", "ed", &keys.ed),
    ] {
        let found = bearer(
            &authenticator,
            &with_header(&json!({"alg": algorithm, "kid": kid}), key),
        );
        assert_eq!(found, no_key, "{algorithm} is valid but not in `algorithms`");
    }
}

#[test]
fn a_public_key_is_never_taken_for_a_shared_secret() {
    let authenticator = world().build();
    let public = rsa_key().rsa().unwrap();
    let secrets = [
        rsa_key().public_key_to_pem().unwrap(),
        rsa_key().public_key_to_der().unwrap(),
        public.public_key_to_pem_pkcs1().unwrap(),
        public.n().to_vec(),
        keys().ec.public_key_to_pem().unwrap(),
        Vec::from(*b"0"),
    ];
    for secret in &secrets {
        for kid in ["rsa", "ec"] {
            let message = unsigned(&json!({"alg": "HS256", "kid": kid}), &claims());
            let key = PKey::hmac(secret).unwrap();
            let signature = Signer::new(MessageDigest::sha256(), &key)
                .unwrap()
                .sign_oneshot_to_vec(message.as_bytes());
            let token = format!("{message}.{}", base64url(signature.unwrap()));
            assert_eq!(
                bearer(&authenticator, &token),
                refused("no key for its `kid` and `alg`")
            );
        }
    }
}

#[test]
fn a_key_serves_its_own_algorithm_alone() {
    let authenticator = world().build();
    let no_key = refused("no key for its `kid` and `alg`");
    let crossed = with_header(&json!({"alg": "ES256", "kid": "rsa"}), &keys().ec);
    assert_eq!(bearer(&authenticator, &crossed), no_key);
    let crossed = with_header(&json!({"alg": "RS256", "kid": "ec"}), rsa_key());
    assert_eq!(bearer(&authenticator, &crossed), no_key);

    let only_rs512 = with(rsa_jwk("rsa", rsa_key()), json!({"alg": "RS512"}));
    let authenticator = world_of(", algorithms: [RS256, RS512]", &json!({"keys": [only_rs512]})).build();
    assert_eq!(
        bearer(
            &authenticator,
            &with_header(&json!({"alg": "RS512", "kid": "rsa"}), rsa_key())
        ),
        KNOWN
    );
    assert_eq!(
        bearer(
            &authenticator,
            &with_header(&json!({"alg": "RS256", "kid": "rsa"}), rsa_key())
        ),
        no_key
    );
}

#[test]
fn the_key_is_the_one_named_by_kid() {
    let keys = keys();
    let authenticator = world().build();
    let no_key = refused("no key for its `kid` and `alg`");
    assert_eq!(
        bearer(
            &authenticator,
            &with_header(&json!({"alg": "ES256", "kid": "gone"}), &keys.ec)
        ),
        no_key
    );
    assert_eq!(
        bearer(
            &authenticator,
            &with_header(&json!({"alg": "ES256", "kid": ""}), &keys.ec)
        ),
        no_key
    );
    let wrong = with_header(&json!({"alg": "ES256", "kid": "ec"}), &keys.stranger);
    assert_eq!(bearer(&authenticator, &wrong), refused("wrong signature"));
    let unnamed = with_header(&json!({"alg": "ES256"}), &keys.ec);
    assert_eq!(bearer(&authenticator, &unnamed), KNOWN, "one key fits");

    let two = json!({"keys": [ec_jwk("a", "P-256", &keys.ec), ec_jwk("b", "P-256", &keys.stranger)]});
    let authenticator = world_of("", &two).build();
    assert_eq!(bearer(&authenticator, &unnamed), no_key, "two keys fit");
    assert_eq!(
        bearer(
            &authenticator,
            &with_header(&json!({"alg": "ES256", "kid": "a"}), &keys.ec)
        ),
        KNOWN
    );
    assert_eq!(
        bearer(
            &authenticator,
            &with_header(&json!({"alg": "ES256", "kid": "b"}), &keys.stranger)
        ),
        KNOWN
    );

    let twice = json!({"keys": [ec_jwk("a", "P-256", &keys.ec), ec_jwk("a", "P-256", &keys.stranger)]});
    let authenticator = world_of("", &twice).build();
    assert_eq!(
        bearer(
            &authenticator,
            &with_header(&json!({"alg": "ES256", "kid": "a"}), &keys.ec)
        ),
        no_key
    );
}

#[test]
fn a_key_that_the_token_brings_along_is_not_looked_at() {
    let authenticator = world().build();
    let stranger = &keys().stranger;
    let own = ec_jwk("ec", "P-256", stranger);
    for extra in [
        json!({"jwk": own}),
        json!({"jku": "https://evil.example.com"}),
        json!({"x5u": "https://evil.example.com"}),
        json!({"x5c": ["AA=="]}),
    ] {
        let header = with(json!({"alg": "ES256", "kid": "ec"}), extra);
        assert_eq!(
            bearer(&authenticator, &with_header(&header, stranger)),
            refused("wrong signature")
        );
    }
}

#[test]
fn a_header_that_must_be_understood_is_refused() {
    let header = json!({"alg": "ES256", "kid": "ec", "crit": ["b64"], "b64": false});
    let found = bearer(&world().build(), &with_header(&header, &keys().ec));
    assert_eq!(found, refused("critical header not understood"));
}
