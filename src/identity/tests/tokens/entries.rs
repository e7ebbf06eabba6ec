//! Tokens and the entries of `callers` that they fit.

use serde_json::json;

use super::issuer::*;
use crate::identity::tests::fixtures::{World, client, peer, seen, seen_at};
use crate::pki::Authority;

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
        "apiserver default {authorize, mutate} jwt"
    );
    assert_eq!(bearer(&authenticator, &with_claims(json!({}))), KNOWN);

    world.callers = entry("sub: apiserver}}, endpoints: [authorize]}") + &entry("level: 1}}, cluster: east}");
    let authenticator = world.build();
    assert_eq!(
        bearer(&authenticator, &both),
        "403 jwt `apiserver` is configured for more than one cluster"
    );
    assert_eq!(
        bearer(&authenticator, &with_claims(json!({"sub": "x", "level": 1}))),
        "x east {authorize, validate, mutate} jwt"
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
        "k:u default {authorize, mutate} bearer"
    );
    let expired = seen_at(1000, &authenticator, None, Some(&format!("Bearer {good}")));
    assert_eq!(
        expired, "k:u default {mutate} bearer",
        "as the very token of the file"
    );
}

#[test]
fn an_entry_may_ask_for_a_certificate_and_a_token() {
    let ca = Authority::new("ca");
    let mut world = World::new(
        &ca,
        &format!(
            "- {{jwt: {{issuer: '{ISSUER}', audiences: [portcullis], jwks: jwks.json}}, clientCertificate: {{commonNames: [a]}}}}\n"
        ),
    );
    world.write("jwks.json", jwks().to_string());
    let authenticator = world.build();
    let (a, b) = (peer(&client(&ca, "a")), peer(&client(&ca, "b")));
    let header = format!("Bearer {}", with_claims(json!({})));
    let found = seen(&authenticator, Some(&a), Some(&header));
    assert_eq!(found, "a default {authorize, validate, mutate} certificate");
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
