//! How webhooks are reached, and as whom.

use std::fs;

use serde_json::json;

use crate::harness::eventually;
use crate::harness::pki::Authority;
use crate::harness::webhooks::{Review, Webhooks};
use crate::{Entry, Running, pod};

#[test]
fn one_connection_serves_one_request_after_another() {
    let authority = Authority::new("upstreams");
    let server = Webhooks::of(&authority, &[]).always("/", Review::allow()).start();
    let entry = Entry::at("well", &server.url("/"), &authority.pem());
    let running = Running::start("kept", &[entry], json!({}), &[]);
    for _ in 0..5 {
        assert_eq!(running.ask("well")["allowed"], true);
    }
    let calls = server.calls();
    assert_eq!(calls.len(), 5);
    assert!(calls.iter().all(|call| call.connection == 0));
    assert!(
        calls
            .iter()
            .all(|call| call.tls.protocol.as_deref() == Some("http/1.1"))
    );
    let header = |name: &str| calls[0].header(name);
    assert_eq!(header("host"), Some(server.address().to_string().as_str()));
    assert_eq!(header("user-agent"), Some("kube-apiserver-admission"));
}

#[test]
fn http_2_is_spoken_where_both_want_it() {
    let authority = Authority::new("upstreams");
    let both = Webhooks::of(&authority, &[])
        .always("/", Review::allow())
        .http2()
        .start();
    let old = Webhooks::of(&authority, &[]).always("/", Review::allow()).start();
    let entries = [
        Entry::at("both", &both.url("/"), &authority.pem()),
        Entry::at("old", &old.url("/"), &authority.pem()),
    ];
    let running = Running::start("http2", &entries, json!({"http2": true}), &[]);
    for (name, server, protocol) in [("both", &both, "h2"), ("old", &old, "http/1.1")] {
        for _ in 0..3 {
            assert_eq!(running.ask(name)["allowed"], true, "{name}");
        }
        let spoken: Vec<_> = server
            .calls()
            .into_iter()
            .map(|call| (call.connection, call.tls.protocol))
            .collect();
        assert_eq!(spoken, vec![(0, Some(protocol.to_owned())); 3]);
    }
}

#[test]
fn a_service_is_asked_by_name_with_the_certificate_of_its_host() {
    let (servers, clients) = (Authority::new("upstreams"), Authority::new("clients"));
    let server = Webhooks::of(&servers, &["policy.infra.svc"])
        .client_authority(&clients)
        .always("/review", Review::allow())
        .start();
    let entry = Entry {
        client_config: json!({"service": {"namespace": "infra", "name": "policy", "path": "/review"}}),
        ..Entry::at("service", "", &[])
    };
    let identity = clients.client("gateway", &[]);
    let users = "users:\n- {name: '*', user: {token: another}}\n\
                 - {name: '*.infra.svc', user: {client-certificate: user.crt, client-key: user.key}}\n";
    let running = Running::start(
        "service",
        &[entry],
        json!({
            "kubeconfig": "users.kubeconfig",
            "caBundle": "shared.crt",
            "addresses": {"policy.infra.svc:443": server.address().to_string()},
            "allowedAddresses": ["127.0.0.0/8"],
        }),
        &[
            ("users.kubeconfig", users),
            ("shared.crt", &String::from_utf8(servers.pem()).unwrap()),
            ("user.crt", &String::from_utf8(identity.pem()).unwrap()),
            ("user.key", &String::from_utf8(identity.key_pem()).unwrap()),
        ],
    );
    let answer = running.ask("service");
    assert_eq!(answer["allowed"], true, "{answer}");
    let call = server.calls().remove(0);
    assert_eq!(call.tls.server_name.as_deref(), Some("policy.infra.svc"));
    assert_eq!(call.tls.client.as_deref(), Some("gateway"));
    assert_eq!(call.header("host"), Some("policy.infra.svc:443"));
    assert_eq!(call.header("authorization"), None);
}

#[test]
fn a_token_file_is_read_again_when_it_changes() {
    let authority = Authority::new("upstreams");
    let server = Webhooks::of(&authority, &[]).always("/", Review::allow()).start();
    let entry = Entry::at("well", &server.url("/"), &authority.pem());
    let running = Running::start(
        "token",
        &[entry],
        json!({"kubeconfig": "users.kubeconfig"}),
        &[
            (
                "users.kubeconfig",
                "users: [{name: '*', user: {tokenFile: token}}]",
            ),
            ("token", "old\n"),
        ],
    );
    let shown = || {
        assert_eq!(running.ask("well")["allowed"], true);
        let call = server.calls().pop().unwrap();
        assert_eq!(call.connection, 0, "connections are no matter of tokens");
        call.header("authorization").unwrap().to_owned()
    };
    assert_eq!(shown(), "Bearer old");
    fs::write(running.folder.path().join("token"), "new\n").unwrap();
    assert!(
        eventually(|| shown() == "Bearer new"),
        "{}",
        running.gateway.tail()
    );
}

#[test]
fn the_gateway_does_not_call_itself() {
    let entry = |url: &str| Entry::at("loop", url, &Authority::new("any").pem());
    let running = Running::start("loop", &[entry("https://127.0.0.1:1/")], json!({}), &[]);
    let own = format!("https://{}/validate", running.gateway.address());
    let manifest = entry(&own).manifest("ValidatingWebhookConfiguration");
    running.gateway.reload_after(|| {
        fs::write(running.gateway.manifests().join("webhooks.yaml"), manifest).unwrap();
    });
    let answer = running.ask("loop");
    let message = answer["status"]["message"].as_str().unwrap();
    assert!(message.ends_with("is this gateway itself"), "{message}");
}

/// As where a load balancer leads to the gateway, or to another replica of it.
#[test]
fn a_call_of_the_gateway_s_own_is_refused_however_it_comes_back() {
    let authority = Authority::new("upstreams");
    let server = Webhooks::of(&authority, &[]).always("/", Review::allow()).start();
    let entry = Entry::at("well", &server.url("/"), &authority.pem());
    let running = Running::start("via", &[entry], json!({}), &[]);
    assert_eq!(running.ask("well")["allowed"], true);
    let call = server.calls().remove(0);
    let via = call.header("via").unwrap();
    let client = running.gateway.client();
    for (via, status) in [
        (via.to_owned(), 400),
        (format!("1.1 balancer, {via}, 2 another"), 400),
        (format!("{via}0"), 200),
        ("1.1 portcullis-0123456789abcdef".to_owned(), 200),
    ] {
        let reply = client
            .clone()
            .with_header("Via", &via)
            .post("/validate/well?timeout=10s", &pod())
            .unwrap();
        assert_eq!(reply.status, status, "{via}: {}", reply.text());
        assert_eq!(
            reply.text().contains("leads back to this gateway"),
            status == 400,
            "{}",
            reply.text()
        );
    }
    assert_eq!(server.calls().len(), 3);
}
