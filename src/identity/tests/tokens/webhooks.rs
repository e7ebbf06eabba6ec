//! Tokens of API servers for webhook configurations, whose keys the API server publishes.

use serde_json::{Value, json};

use super::issuer::*;
use crate::config::Endpoint;
use crate::identity::tests::fixtures::{World, at};
use crate::identity::{Authenticator, Credentials};
use crate::pki::Authority;

const URL: &str = "https://portcullis.portcullis.svc:443/validate";

/// The attested group of `apps`, for `changes` of the claims.
fn bound(changes: Value) -> String {
    let kubernetes = json!({
        "validatingwebhookconfiguration": {"name": "portcullis", "uid": "1"},
        "attestations": {"admissionReviewAPIGroups": ["apps"]},
    });
    with_claims(with(json!({"aud": [URL], "kubernetes.io": kubernetes}), changes))
}

fn world() -> World {
    let mut world = World::new(
        &Authority::new("ca"),
        &format!("- {{webhookToken: {{issuer: '{ISSUER}', audiences: ['{URL}']}}}}\n"),
    );
    world.clusters = "[{name: default, kubeconfig: k, cacheFile: c, admission: Watched}]".to_owned();
    world
}

fn published(authenticator: &Authenticator, keys: Option<&Value>) -> Authenticator {
    let text = keys.map(Value::to_string);
    let of_cluster = |cluster: &str| {
        text.as_ref()
            .filter(|_| cluster == "default")
            .map(String::as_bytes)
    };
    authenticator.clone().with_published_keys(of_cluster)
}

#[test]
fn the_keys_that_the_api_server_publishes_count_as_long_as_it_does() {
    let unknown = "401 jwt unauthorized: token not accepted: no key for its `kid` and `alg`";
    let token = bound(json!({}));
    let none = world().build();
    assert_eq!(bearer(&none, &token), unknown);
    let known = published(&none, Some(&jwks()));
    assert_eq!(
        bearer(&known, &token),
        "apiserver default {validate, mutate} webhookToken"
    );
    assert_eq!(bearer(&published(&known, None), &token), unknown);
    let others = json!({"keys": [ec_jwk("ec", "P-256", &keys().stranger)]});
    assert_eq!(
        bearer(&published(&known, Some(&others)), &token),
        refused("wrong signature")
    );
    assert_eq!(bearer(&published(&known, Some(&json!([]))), &token), unknown);
    // What the claims lack is no better for being signed.
    assert_eq!(
        bearer(&known, &bound(json!({"kubernetes.io": {}}))),
        refused(
            "not bound to a webhook configuration, or without the API groups of which it may send reviews"
        )
    );
}

#[test]
fn a_token_that_another_entry_accepts_too_stays_limited() {
    let mut world = world();
    world.callers += &format!("- {{jwt: {{issuer: '{ISSUER}', audiences: ['{URL}'], jwks: jwks.json}}}}\n");
    world.callers = world
        .callers
        .lines()
        .rev()
        .map(|line| format!("{line}\n"))
        .collect();
    world.write("jwks.json", jwks().to_string());
    let authenticator = published(&world.build(), Some(&jwks()));
    let header = format!("Bearer {}", bound(json!({})));
    let presented = Credentials {
        authorization: Some(header.as_bytes()),
        ..Credentials::default()
    };
    let caller = authenticator.authenticate(&presented, at(0)).unwrap();
    assert!(caller.check(Endpoint::Authorize).is_ok());
    assert!(caller.attestation.is_some());
    assert!(caller.check_groups(["apps"]).is_ok() && caller.check_groups(["apps", ""]).is_err());
}

#[test]
fn without_the_webhook_configurations_of_its_cluster_it_is_a_fault() {
    let mut world = world();
    for clusters in [
        "[]",
        "[{name: default, kubeconfig: k, cacheFile: c, admission: Declared}]",
        "[{name: east, kubeconfig: k, cacheFile: c, admission: Watched}]",
    ] {
        world.clusters = clusters.to_owned();
        let (_, faults) = world.try_build(None, at(0));
        assert!(
            faults.contains("callers[0].webhookToken: Required value: no token can be accepted"),
            "{clusters}: {faults}"
        );
    }
}
