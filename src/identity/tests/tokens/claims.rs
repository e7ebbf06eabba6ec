//! What a token must say.

use serde_json::json;

use super::issuer::*;
use crate::identity::tests::fixtures::START;

#[test]
fn issuer_audience_and_times_must_be_right() {
    let authenticator = world().build();
    let table = [
        (json!({}), KNOWN.to_owned()),
        (json!({"aud": "portcullis"}), KNOWN.to_owned()),
        (json!({"aud": ["x", "other"]}), KNOWN.to_owned()),
        (
            json!({"aud": "x"}),
            refused("its `aud` contains none of the configured audiences"),
        ),
        (
            json!({"aud": ["x"]}),
            refused("its `aud` contains none of the configured audiences"),
        ),
        (
            json!({"aud": []}),
            refused("its `aud` contains none of the configured audiences"),
        ),
        (
            json!({"aud": "portcullis "}),
            refused("its `aud` contains none of the configured audiences"),
        ),
        (
            json!({"aud": 7}),
            refused("its `aud` contains none of the configured audiences"),
        ),
        (
            json!({"aud": null}),
            refused("its `aud` contains none of the configured audiences"),
        ),
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
        (json!({"exp": null}), refused("no valid `exp` claim")),
        (
            json!({"exp": (START + 100).to_string()}),
            refused("no valid `exp` claim"),
        ),
        (json!({"exp": -1}), refused("no valid `exp` claim")),
        (json!({"exp": 1e30}), refused("no valid `exp` claim")),
        (json!({"exp": u64::MAX}), refused("malformed")),
        (json!({"nbf": START + 31}), refused("not yet valid")),
        (json!({"nbf": START + 30}), KNOWN.to_owned()),
        (json!({"nbf": null}), KNOWN.to_owned()),
        (json!({"nbf": "soon"}), refused("malformed")),
        (json!({"nbf": -1}), refused("malformed")),
        (json!({"nbf": 0}), KNOWN.to_owned()),
        (
            json!({"sub": null}),
            format!("{ISSUER} default {{authorize}} jwt"),
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
            refused("a required claim is missing or different")
        };
        assert_eq!(
            bearer(&authenticator, &with_claims(changes.clone())),
            expected,
            "{wanted} {changes}"
        );
    }
}
