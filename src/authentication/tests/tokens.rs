//! Tokens of issuers, honest and otherwise.

use std::sync::OnceLock;

use openssl::bn::{BigNum, BigNumContext};
use openssl::ecdsa::EcdsaSig;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::rsa::{Padding, Rsa};
use openssl::sign::{RsaPssSaltlen, Signer};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::fixtures::{
    Authority, START, World, at, base64url, ec_key, peer, rsa_key, seen, seen_at, unbase64url,
};
use super::super::jwt::Tokens;
use super::super::*;

const ISSUER: &str = "https://issuer.example.com";
const KNOWN: &str = "apiserver default {Authorize} jwt";

/// One key for each algorithm family; `ec` and `rsa` stand in the issuer's file.
struct Keys {
    ec: PKey<Private>,
    ec384: PKey<Private>,
    ed: PKey<Private>,
    stranger: PKey<Private>,
}

fn keys() -> &'static Keys {
    static KEYS: OnceLock<Keys> = OnceLock::new();
    KEYS.get_or_init(|| Keys {
        ec: ec_key(Nid::X9_62_PRIME256V1),
        ec384: ec_key(Nid::SECP384R1),
        ed: PKey::generate_ed25519().unwrap(),
        stranger: ec_key(Nid::X9_62_PRIME256V1),
    })
}

fn rsa_jwk(kid: &str, key: &PKey<Private>) -> Value {
    let rsa = key.rsa().unwrap();
    json!({"kty": "RSA", "kid": kid, "n": base64url(rsa.n().to_vec()), "e": base64url(rsa.e().to_vec())})
}

fn ec_jwk(kid: &str, curve: &str, key: &PKey<Private>) -> Value {
    let key = key.ec_key().unwrap();
    let (mut x, mut y) = (BigNum::new().unwrap(), BigNum::new().unwrap());
    let mut context = BigNumContext::new().unwrap();
    key.public_key()
        .affine_coordinates(key.group(), &mut x, &mut y, &mut context)
        .unwrap();
    let bytes = i32::try_from(key.group().degree() / 8).unwrap();
    let text = |number: &BigNum| base64url(number.to_vec_padded(bytes).unwrap());
    json!({"kty": "EC", "kid": kid, "crv": curve, "x": text(&x), "y": text(&y)})
}

fn with(mut value: Value, changes: Value) -> Value {
    for (name, change) in changes.as_object().unwrap() {
        match change {
            Value::Null => drop(value.as_object_mut().unwrap().remove(name)),
            change => value[name] = change.clone(),
        }
    }
    value
}

fn jwks() -> Value {
    let keys = keys();
    let ed = base64url(keys.ed.raw_public_key().unwrap());
    json!({"keys": [
        rsa_jwk("rsa", rsa_key()),
        ec_jwk("ec", "P-256", &keys.ec),
        ec_jwk("ec384", "P-384", &keys.ec384),
        {"kty": "OKP", "kid": "ed", "crv": "Ed25519", "x": ed},
    ]})
}

fn world_of(jwt: &str, jwks: &Value) -> World {
    let mut world = World::new(
        &Authority::root("ca"),
        &format!(
            "- {{jwt: {{issuer: '{ISSUER}', audiences: [portcullis, other], jwks: jwks.json{jwt}}}, endpoints: [authorize]}}\n"
        ),
    );
    world.write("jwks.json", jwks.to_string());
    world
}

fn world() -> World {
    world_of("", &jwks())
}

fn signature(algorithm: &str, key: &PKey<Private>, message: &[u8]) -> Vec<u8> {
    let hash = match algorithm.get(2..) {
        Some("256") => MessageDigest::sha256(),
        Some("384") => MessageDigest::sha384(),
        _ => MessageDigest::sha512(),
    };
    if algorithm == "EdDSA" {
        return Signer::new_without_digest(key)
            .unwrap()
            .sign_oneshot_to_vec(message)
            .unwrap();
    }
    let mut signer = Signer::new(hash, key).unwrap();
    if algorithm.starts_with("PS") {
        signer.set_rsa_padding(Padding::PKCS1_PSS).unwrap();
        signer.set_rsa_pss_saltlen(RsaPssSaltlen::DIGEST_LENGTH).unwrap();
    }
    let signature = signer.sign_oneshot_to_vec(message).unwrap();
    if !algorithm.starts_with("ES") {
        return signature;
    }
    let half = if algorithm == "ES256" { 32 } else { 48 };
    let numbers = EcdsaSig::from_der(&signature).unwrap();
    [numbers.r(), numbers.s()]
        .map(|number| number.to_vec_padded(half).unwrap())
        .concat()
}

fn claims() -> Value {
    json!({"iss": ISSUER, "aud": ["portcullis"], "sub": "apiserver", "exp": START + 100, "nbf": START - 100})
}

fn unsigned(header: &Value, claims: &Value) -> String {
    format!(
        "{}.{}",
        base64url(header.to_string()),
        base64url(claims.to_string())
    )
}

fn token(header: &Value, claims: &Value, key: &PKey<Private>) -> String {
    let message = unsigned(header, claims);
    let signature = signature(header["alg"].as_str().unwrap(), key, message.as_bytes());
    format!("{message}.{}", base64url(signature))
}

/// A good token but for these changes of its claims.
fn with_claims(changes: Value) -> String {
    token(
        &json!({"alg": "ES256", "kid": "ec", "typ": "JWT"}),
        &with(claims(), changes),
        &keys().ec,
    )
}

fn with_header(header: &Value, key: &PKey<Private>) -> String {
    token(header, &claims(), key)
}

fn refused(why: &str) -> String {
    format!("401 jwt unauthorized: token not accepted: {why}")
}

fn bearer(authenticator: &Authenticator, token: &str) -> String {
    seen(authenticator, None, Some(&format!("Bearer {token}")))
}

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
        assert_eq!(found, no_key, "{algorithm} is sound but not in `algorithms`");
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

#[test]
fn issuer_audience_and_times_must_be_right() {
    let authenticator = world().build();
    let table = [
        (json!({}), KNOWN.to_owned()),
        (json!({"aud": "portcullis"}), KNOWN.to_owned()),
        (json!({"aud": ["x", "other"]}), KNOWN.to_owned()),
        (json!({"aud": "x"}), refused("other audience")),
        (json!({"aud": ["x"]}), refused("other audience")),
        (json!({"aud": []}), refused("other audience")),
        (json!({"aud": "portcullis "}), refused("other audience")),
        (json!({"aud": 7}), refused("other audience")),
        (json!({"aud": null}), refused("other audience")),
        (
            json!({"iss": "https://issuer.example.com/"}),
            refused("unknown issuer"),
        ),
        (json!({"iss": null}), refused("malformed")),
        (json!({"iss": [ISSUER]}), refused("malformed")),
        (json!({"exp": START - 31}), refused("expired")),
        (json!({"exp": START - 30}), KNOWN.to_owned()),
        (
            json!({"exp": f64::from(i32::try_from(START).unwrap()) + 0.5}),
            KNOWN.to_owned(),
        ),
        (json!({"exp": null}), refused("expired")),
        (json!({"exp": (START + 100).to_string()}), refused("expired")),
        (json!({"exp": -1}), refused("expired")),
        (json!({"exp": 1e30}), refused("expired")),
        (json!({"exp": u64::MAX}), refused("malformed")),
        (json!({"nbf": START + 31}), refused("not yet valid")),
        (json!({"nbf": START + 30}), KNOWN.to_owned()),
        (json!({"nbf": null}), KNOWN.to_owned()),
        (json!({"nbf": "soon"}), refused("malformed")),
        (json!({"nbf": -1}), refused("malformed")),
        (json!({"nbf": 0}), KNOWN.to_owned()),
        (
            json!({"sub": null}),
            format!("{ISSUER} default {{Authorize}} jwt"),
        ),
    ];
    for (changes, expected) in table {
        assert_eq!(
            bearer(&authenticator, &with_claims(changes.clone())),
            expected,
            "{changes}"
        );
    }
}

#[test]
fn the_leeway_is_the_entrys_own() {
    let authenticator = world_of(", leeway: 0s", &jwks()).build();
    assert_eq!(bearer(&authenticator, &with_claims(json!({"exp": START}))), KNOWN);
    assert_eq!(
        bearer(&authenticator, &with_claims(json!({"exp": START - 1}))),
        refused("expired")
    );
    let authenticator = world_of(", leeway: 2m", &jwks()).build();
    assert_eq!(
        bearer(&authenticator, &with_claims(json!({"exp": START - 120}))),
        KNOWN
    );
}

#[test]
fn claims_must_hold_what_the_entry_says() {
    let table = [
        ("sub: apiserver", json!({}), true),
        ("sub: apiserver", json!({"sub": "apiserverx"}), false),
        ("sub: apiserver", json!({"sub": null}), false),
        ("sub: [a, apiserver]", json!({}), true),
        ("sub: [a, b]", json!({}), false),
        ("groups: admins", json!({"groups": ["x", "admins"]}), true),
        ("groups: admins", json!({"groups": ["x"]}), false),
        ("groups: admins", json!({"groups": "admins"}), true),
        ("groups: admins", json!({"groups": {"admins": true}}), false),
        ("level: 3", json!({"level": 3}), true),
        ("level: 3", json!({"level": "3"}), false),
        ("active: true", json!({"active": true}), true),
        ("active: true", json!({"active": "true"}), false),
        (
            "kubernetes.io: {namespace: kube-system}",
            json!({"kubernetes.io": {"namespace": "kube-system", "x": 1}}),
            true,
        ),
        (
            "kubernetes.io: {namespace: kube-system}",
            json!({"kubernetes.io": {"namespace": "default"}}),
            false,
        ),
        (
            "kubernetes.io: {namespace: kube-system}",
            json!({"kubernetes": {"io": {"namespace": "kube-system"}}}),
            false,
        ),
        (
            "kubernetes.io: {serviceaccount: {name: [a, b]}}",
            json!({"kubernetes.io": {"serviceaccount": {"name": "b"}}}),
            true,
        ),
        (
            "kubernetes.io: {serviceaccount: {name: [a, b]}}",
            json!({"kubernetes.io": {"serviceaccount": "b"}}),
            false,
        ),
        ("sub: apiserver, level: 3", json!({"level": 4}), false),
    ];
    for (wanted, changes, is_met) in table {
        let authenticator = world_of(&format!(", claims: {{{wanted}}}"), &jwks()).build();
        let expected = if is_met {
            KNOWN.to_owned()
        } else {
            refused("other claims")
        };
        assert_eq!(
            bearer(&authenticator, &with_claims(changes.clone())),
            expected,
            "{wanted} {changes}"
        );
    }
}

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

#[test]
fn keys_that_cannot_be_used_are_passed_over_with_a_warning() {
    let good = ec_jwk("ec", "P-256", &keys().ec);
    let short = PKey::from_rsa(Rsa::generate(1024).unwrap()).unwrap();
    let off_curve = with(good.clone(), json!({"x": good["y"], "y": good["x"]}));
    let table = [
        (
            json!({"kty": "oct", "kid": "s", "k": base64url("secret")}),
            "keys[1] `s` is passed over: it is a shared secret",
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
            "not a sound key, or an RSA key of fewer than 2048",
        ),
        (off_curve, "not a sound key"),
        (
            with(good.clone(), json!({"x": "%"})),
            "not a key that can be read",
        ),
        (json!({"kty": "new", "kid": "n"}), "keys[1] `n` is passed over: "),
        (json!(7), "keys[1] is passed over: not a key that can be read"),
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
        ("{}", "/jwks.json: Unreadable: no JWKS"),
        ("", "/jwks.json: Unreadable: no JWKS"),
        ("-----BEGIN", "/jwks.json: Unreadable: no JWKS"),
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

#[test]
fn what_is_remembered_of_a_token_does_not_outlive_it() {
    let authenticator = world().build();
    let short = with_claims(json!({"exp": START + 2, "nbf": START - 2}));
    let header = format!("Bearer {short}");
    let table = [
        (0, KNOWN),
        (1, KNOWN),
        (32, KNOWN),
        (33, "expired"),
        (33, "expired"),
        (32, KNOWN),
        (-32, KNOWN),
        (-33, "not yet valid"),
        (-32, KNOWN),
    ];
    for (second, expected) in table {
        let found = seen_at(second, &authenticator, None, Some(&header));
        assert!(
            found == expected || found == refused(expected),
            "{second}: {found}"
        );
    }
}

#[test]
fn made_up_tokens_do_not_push_out_good_ones() {
    let authenticator = world().build();
    let good = with_claims(json!({}));
    let digest = |token: &str| authenticator.digester.digest(Purpose::Token, token.as_bytes());
    let first = authenticator
        .jwts
        .check(good.as_bytes(), digest(&good), at(0))
        .unwrap();
    for number in 0..5_000 {
        let made_up = format!("a.{number}.c");
        authenticator
            .jwts
            .check(made_up.as_bytes(), digest(&made_up), at(0));
    }
    let again = authenticator
        .jwts
        .check(good.as_bytes(), digest(&good), at(5))
        .unwrap();
    assert!(Arc::ptr_eq(&first, &again), "remembered");
    let later = authenticator
        .jwts
        .check(good.as_bytes(), digest(&good), at(11))
        .unwrap();
    assert!(!Arc::ptr_eq(&first, &later), "checked anew after ten seconds");
    assert!(authenticator.jwts.remembered() <= 1024 + 1);
    assert!(
        Tokens::new(Vec::new())
            .check(good.as_bytes(), digest(&good), at(0))
            .is_none()
    );
}

#[test]
fn a_token_of_two_entries_has_the_union_of_their_endpoints_for_one_cluster() {
    let entry = |rest: &str| {
        format!("- {{jwt: {{issuer: '{ISSUER}', audiences: [portcullis], jwks: jwks.json, claims: {{{rest}\n")
    };
    let mut world = world();
    world.callers =
        entry("sub: apiserver}}, endpoints: [authorize]}") + &entry("level: 1}}, endpoints: [mutate]}");
    let both = with_claims(json!({"level": 1}));
    let authenticator = world.build();
    assert_eq!(
        bearer(&authenticator, &both),
        "apiserver default {Authorize, Mutate} jwt"
    );
    assert_eq!(bearer(&authenticator, &with_claims(json!({}))), KNOWN);

    world.callers = entry("sub: apiserver}}, endpoints: [authorize]}") + &entry("level: 1}}, cluster: east}");
    let authenticator = world.build();
    assert_eq!(
        bearer(&authenticator, &both),
        "403 jwt `apiserver` speaks for more than one cluster"
    );
    assert_eq!(
        bearer(&authenticator, &with_claims(json!({"sub": "x", "level": 1}))),
        "x east {Authorize, Validate, Mutate} jwt"
    );
}

#[test]
fn a_token_that_a_kubeconfig_holds_too_has_both() {
    let mut world = world();
    let good = with_claims(json!({}));
    world.callers += "- {kubeconfig: k, endpoints: [mutate]}\n";
    world.kubeconfig("k", &[("u", "tokenFile: t")]);
    world.write("t", good.clone());
    let authenticator = world.build();
    assert_eq!(
        bearer(&authenticator, &good),
        "k:u default {Authorize, Mutate} bearer"
    );
    let expired = seen_at(1000, &authenticator, None, Some(&format!("Bearer {good}")));
    assert_eq!(
        expired, "k:u default {Mutate} bearer",
        "as the very token of the file"
    );
}

#[test]
fn an_entry_may_ask_for_a_certificate_and_a_token() {
    let ca = Authority::root("ca");
    let mut world = World::new(
        &ca,
        &format!(
            "- {{jwt: {{issuer: '{ISSUER}', audiences: [portcullis], jwks: jwks.json}}, clientCertificate: {{commonNames: [a]}}}}\n"
        ),
    );
    world.write("jwks.json", jwks().to_string());
    let authenticator = world.build();
    let (a, b) = (peer(&ca.client("a")), peer(&ca.client("b")));
    let header = format!("Bearer {}", with_claims(json!({})));
    let found = seen(&authenticator, Some(&a), Some(&header));
    assert_eq!(found, "a default {Authorize, Validate, Mutate} certificate");
    for (peer, header) in [
        (Some(&a), None),
        (None, Some(header.as_str())),
        (Some(&b), Some(header.as_str())),
    ] {
        let found = seen(&authenticator, peer, header);
        assert!(
            found.ends_with("one of the caller's credentials is missing"),
            "{found}"
        );
    }
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
        let shown = Credentials { peer: None, authorization: Some(&header) };
        let outcome = authenticator.authenticate(&shown, at(0));
        let still_the_same = position + 1 == good.len() || byte.is_ascii_whitespace();
        prop_assert!(outcome.is_err() || still_the_same, "{outcome:?}");
    }
}
