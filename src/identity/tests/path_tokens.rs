//! Tokens in the path.

use std::fs;
use std::path::Path;

use super::fixtures::{World, at, client, peer};
use super::tokens::issuer::jwks;
use crate::config::Endpoint;
use crate::identity::{Authenticator, Credentials, PeerCertificate};
use crate::pki::Authority;

const CALLERS: &str = "\
- {clientCertificate: {commonNames: [api]}}
- {pathToken: {file: tokens}}
- {pathToken: {file: east}, cluster: east, endpoints: [validate]}
";

/// 64 characters that begin alike.
fn token(end: &str) -> String {
    format!("{:0<62}{end}", "5f2a")
}

fn world() -> World {
    let mut world = World::new(&Authority::new("ca"), CALLERS);
    world.write("tokens", format!("{}\n\n  {} \r\n", token("aa"), token("bb")));
    world.write("east", token("ee"));
    world
}

/// `NAME CLUSTER SHARE ENDPOINTS`, or the refusal.
fn seen(authenticator: &Authenticator, token: &str, peer: Option<&PeerCertificate>) -> String {
    let credentials = Credentials {
        peer,
        authorization: None,
        path_token: Some(token.as_bytes()),
        ..Credentials::default()
    };
    match authenticator.authenticate(&credentials, at(0)) {
        Ok(caller) => {
            assert!(caller.has_only_path_token());
            assert!(caller.check(Endpoint::Authorize).is_err() && caller.check_console().is_err());
            let (name, cluster, share) = (&caller.name, &caller.cluster, &caller.share);
            format!("{name} {cluster} {share} {:?}", caller.endpoints)
        }
        Err(refusal) => format!("{} {} {refusal}", refusal.status(), refusal.method().as_str()),
    }
}

#[test]
fn each_token_of_a_file_names_its_caller_and_nothing_else_does() {
    let authenticator = world().build();
    let of_default = r#"pathToken default default (pathToken) {"validate", "mutate"}"#;
    assert_eq!(seen(&authenticator, &token("aa"), None), of_default);
    assert_eq!(seen(&authenticator, &token("bb"), None), of_default);
    let of_east = r#"pathToken east east (pathToken) {"validate"}"#;
    assert_eq!(seen(&authenticator, &token("ee"), None), of_east);
    let unknown = "401 pathToken unauthorized: unknown token in the path";
    for guess in [
        "",
        "5f2a",
        &token("ab"),
        &token("aa").to_uppercase(),
        &format!("{} ", token("aa")),
        &token("aa")[..63],
    ] {
        assert_eq!(seen(&authenticator, guess, None), unknown, "{guess}");
    }
    // A path says who calls; what is beside it is not asked.
    let header = format!("Bearer {}", token("aa"));
    let beside = Credentials {
        authorization: Some(header.as_bytes()),
        ..Credentials::default()
    };
    assert!(authenticator.authenticate(&beside, at(0)).is_err());
}

#[test]
fn a_certificate_beside_a_token_counts_for_nothing() {
    let ca = Authority::new("ca");
    let mut world = world();
    world.write("ca.crt", ca.pem());
    let authenticator = world.build();
    let api = peer(&client(&ca, "api"));
    assert!(
        authenticator
            .authenticate(
                &Credentials {
                    peer: Some(&api),
                    ..Credentials::default()
                },
                at(0)
            )
            .is_ok()
    );
    assert!(seen(&authenticator, &token("zz"), Some(&api)).starts_with("401"));
    assert!(seen(&authenticator, &token("aa"), Some(&api)).starts_with("pathToken default"));
}

#[test]
fn a_token_that_is_gone_from_its_file_is_refused_at_once() {
    let mut world = world();
    let before = world.build();
    world.write("tokens", format!("{}\n{}\n", token("bb"), token("cc")));
    let after = world.rebuild(Some(&before), 1);
    assert!(seen(&after, &token("aa"), None).starts_with("401"));
    assert!(seen(&after, &token("bb"), None).starts_with("pathToken"));
    assert!(seen(&after, &token("cc"), None).starts_with("pathToken"));
}

#[test]
fn no_handshake_demands_a_certificate_where_a_caller_has_a_token() {
    let mut world = world();
    assert!(!world.build().demands_certificate(at(0)));
    world.callers = "- {clientCertificate: {commonNames: [api]}}\n".to_owned();
    assert!(world.build().demands_certificate(at(0)));
}

#[test]
fn a_file_that_holds_no_token_is_a_fault_that_does_not_quote_it() {
    let short = "5".repeat(51);
    for (content, expected) in [
        (
            String::new(),
            "/tokens: Required value: contains no token: write the output",
        ),
        (
            short.clone(),
            "/tokens:1: Invalid value: not a token: 52 to 253 random characters",
        ),
        (
            format!("{}\n{short}A", token("aa")),
            "/tokens:2: Invalid value: not a token",
        ),
        ("5".repeat(254), "/tokens:1: Invalid value: not a token"),
        (
            format!("{}-", token("aa")),
            "/tokens:1: Invalid value: not a token",
        ),
        (
            (0..65)
                .map(|number| format!("{}\n", token(&format!("{number:02}"))))
                .collect(),
            "/tokens:65: Invalid value: more than 64 tokens",
        ),
    ] {
        let mut world = world();
        world.write("tokens", content.clone());
        let faults = world.try_build(None, at(0)).1;
        assert!(faults.starts_with(expected), "{faults}");
        assert!(!faults.contains(&short[..20]), "{faults}");
    }
    let mut world = world();
    world.files.remove(Path::new("/tokens"));
    let (authenticator, faults) = world.try_build(None, at(0));
    assert_eq!(faults, "/tokens: Unreadable: entity not found");
    assert!(authenticator.files().contains(Path::new("/tokens")));
}

#[test]
fn one_token_for_two_clusters_is_a_fault() {
    let mut world = world();
    world.write("east", token("aa"));
    let faults = world.try_build(None, at(0)).1;
    assert!(
        faults.contains("the same credential is for the cluster `default` in callers[1]"),
        "{faults}"
    );
}

#[test]
fn check_tells_which_caller_a_webhook_configuration_needs() {
    let folder = tempfile::tempdir().unwrap();
    let told = |callers: &str, client: &str| {
        let mut world = world();
        world.callers = callers.to_owned();
        world.write("j", jwks().to_string());
        world.clusters = "[{name: default, kubeconfig: k, cacheFile: c, admission: Watched}]".to_owned();
        let text = format!(
            "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\n\
             metadata: {{name: w}}\nwebhooks:\n- {{name: a.example.com, clientConfig: {client}}}\n"
        );
        fs::write(folder.path().join("webhooks.yaml"), text).unwrap();
        let file = folder.path().join("portcullis.yaml");
        world.build().webhook_configuration_warnings(&file).to_string()
    };
    let with_token = format!(
        "{{service: {{namespace: a, name: b, path: /t/{}/validate}}}}",
        token("aa")
    );
    assert_eq!(told(CALLERS, &with_token), "");
    assert_eq!(told(CALLERS, "{url: 'https://127.0.0.1:8443/validate'}"), "");
    assert_eq!(told(CALLERS, "{url: 'https://other.example.com/hook'}"), "");

    let unknown = told(CALLERS, &with_token.replace("aa", "zz"));
    assert!(
        unknown.contains("webhooks[0].clientConfig.service.path: warning")
            && unknown.contains("answered with 401"),
        "{unknown}"
    );
    assert!(!unknown.contains("5f2a"), "{unknown}");
    let only_tokens = "- {pathToken: {file: tokens}}\n";
    for client in [
        "{url: 'https://127.0.0.1:8443/mutate/x'}",
        "{service: {path: /validate}}",
    ] {
        let bare = told(only_tokens, client);
        assert!(bare.contains("Write `/t/TOKEN` before it"), "{bare}");
    }
    let only_bound = "- {webhookToken: {issuer: i, audiences: ['https://a.b.svc:443/validate'], jwks: j}}\n";
    let bound = told(only_bound, "{service: {path: /validate}}");
    assert!(
        bound.contains("only a token bound to this webhook configuration is accepted here"),
        "{bound}"
    );
    let either = format!("{only_bound}{CALLERS}");
    assert_eq!(told(&either, "{service: {path: /validate}}"), "");
}
