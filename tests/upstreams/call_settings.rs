//! On which terms webhooks are called: for how long, trusted by whom, as whom,
//! and where not at all.

use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::harness::pki::Authority;
use crate::harness::ports;
use crate::harness::webhooks::{Answer, Builder, Review, Webhooks};
use crate::{Entry, Running};

/// How long a webhook that hangs may, in seconds, and when it was surely not waited for.
const OWN: u8 = 30;
const LONG_BEFORE: Duration = Duration::from_secs(20);

/// Webhooks that allow, at these paths.
fn allowing(authority: &Authority, names: &[&str], paths: &[&str]) -> Builder {
    paths
        .iter()
        .fold(Webhooks::of(authority, names), |webhooks, path| {
            webhooks.always(path, Review::allow())
        })
}

fn is_allowed(running: &Running, name: &str) -> bool {
    let answer = running.ask(name);
    answer["allowed"].as_bool().unwrap()
}

#[test]
fn the_callers_deadline_ends_what_a_webhook_does_not() {
    let authority = Authority::new("upstreams");
    let server = Webhooks::of(&authority, &[]).always("/", Answer::Hang).start();
    let entry = |name, failure_policy| Entry {
        failure_policy,
        timeout_seconds: OWN,
        ..Entry::at(name, &server.url("/"), &authority.pem())
    };
    let entries = [entry("fails", "Fail"), entry("ignored", "Ignore")];
    let running = Running::start("deadline", &entries, json!({}), &[]);
    for (phase, name) in [
        ("validate", "fails"),
        ("validate", "ignored"),
        ("mutate", "fails"),
        ("mutate", "ignored"),
    ] {
        let start = Instant::now();
        let answer = running.ask_at(&format!("/{phase}/{name}?timeout=1s"));
        assert!(start.elapsed() < LONG_BEFORE, "{phase} {name}");
        assert_eq!(answer["allowed"], false, "{phase} {name}: {answer}");
        assert_eq!(answer["status"]["code"], 504, "{phase} {name}: {answer}");
    }
    let queries: Vec<String> = server.calls().into_iter().map(|call| call.query).collect();
    assert_eq!(queries, ["timeout=1s"; 4]);
}

#[test]
fn a_webhook_is_told_the_shorter_of_its_own_timeout_and_what_is_left() {
    let authority = Authority::new("upstreams");
    let server = allowing(&authority, &[], &["/"]).start();
    let entry = |name, timeout_seconds| Entry {
        timeout_seconds,
        ..Entry::at(name, &server.url("/"), &authority.pem())
    };
    let running = Running::start(
        "timeouts",
        &[entry("short", 3), entry("long", 30)],
        json!({}),
        &[],
    );
    for target in [
        "/validate/short?timeout=10s",
        "/validate/long?timeout=10s",
        "/mutate/short?timeout=30s",
    ] {
        assert_eq!(running.ask_at(target)["allowed"], true, "{target}");
    }
    let queries: Vec<String> = server.calls().into_iter().map(|call| call.query).collect();
    assert_eq!(queries, ["timeout=3s", "timeout=10s", "timeout=3s"]);
}

#[test]
fn mutating_webhooks_fail_as_those_that_validate_do() {
    let authority = Authority::new("upstreams");
    let server = Webhooks::of(&authority, &[])
        .always("/resets", Answer::Reset)
        .always("/garbles", Answer::http(200, "no review"))
        .always("/mistakes", Review::allow().with_uid("another"))
        .always("/errs", Answer::http(500, "{}"))
        .always("/hangs", Answer::Hang)
        .start();
    let names = ["resets", "garbles", "mistakes", "errs", "hangs"];
    let entry = |name: &str, failure_policy| Entry {
        failure_policy,
        timeout_seconds: 1,
        ..Entry::at(
            &format!("{name}-{}", failure_policy.to_lowercase()),
            &server.url(&format!("/{name}")),
            &authority.pem(),
        )
    };
    let entries: Vec<Entry> = names
        .iter()
        .flat_map(|name| [entry(name, "Fail"), entry(name, "Ignore")])
        .collect();
    let running = Running::start("mutating", &entries, json!({}), &[]);
    thread::scope(|threads| {
        for name in names {
            let running = &running;
            threads.spawn(move || {
                let refused = running.ask_at(&format!("/mutate/{name}-fail?timeout=20s"));
                assert_eq!(refused["status"]["code"], 500, "{name}: {refused}");
                let message = refused["status"]["message"].as_str().unwrap();
                assert!(message.contains("failed calling webhook"), "{name}: {message}");
                let ignored = running.ask_at(&format!("/mutate/{name}-ignore?timeout=20s"));
                assert_eq!(ignored["allowed"], true, "{name}: {ignored}");
            });
        }
    });
}

#[test]
fn a_large_reply_within_the_bound_is_read() {
    let authority = Authority::new("upstreams");
    let server = Webhooks::of(&authority, &[])
        .on("/", |called| {
            let review = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
                                "response": {"uid": called.request()["uid"], "allowed": true}});
            Answer::http(
                200,
                [vec![b' '; 10 << 20], review.to_string().into_bytes()].concat(),
            )
        })
        .start();
    let entry = Entry::at("large", &server.url("/"), &authority.pem());
    let running = Running::start("large", &[entry], json!({}), &[]);
    assert!(is_allowed(&running, "large"));
}

#[test]
fn the_shared_bundle_is_trusted_beside_each_webhooks_own() {
    let [own, shared, other] = ["own", "shared", "other"].map(Authority::new);
    let [of_own, of_shared, of_other] =
        [&own, &shared, &other].map(|authority| allowing(authority, &[], &["/"]).start());
    let entries = [
        Entry::at("own", &of_own.url("/"), &own.pem()),
        Entry::at("shared", &of_shared.url("/"), &own.pem()),
        Entry::at("other", &of_other.url("/"), &own.pem()),
    ];
    let bundle = String::from_utf8(shared.pem()).unwrap();
    let running = Running::start(
        "bundle",
        &entries,
        json!({"caBundle": "shared.crt"}),
        &[("shared.crt", &bundle)],
    );
    for (name, expected) in [("own", true), ("shared", true), ("other", false)] {
        assert_eq!(is_allowed(&running, name), expected, "{name}");
    }
    assert!(of_other.calls().is_empty());
}

#[test]
fn credentials_are_those_of_the_host_and_are_told_to_nobody_else() {
    let authority = Authority::new("upstreams");
    let server = allowing(
        &authority,
        &["some.infra.svc", "some.other.svc"],
        &["/address", "/some", "/any"],
    )
    .start();
    let here = server.address();
    let service = |name: &str, namespace: &str| Entry {
        client_config: json!({
            "service": {"name": "some", "namespace": namespace, "path": format!("/{name}")},
            "caBundle": STANDARD.encode(authority.pem()),
        }),
        ..Entry::at(name, "", &[])
    };
    let entries = [
        Entry::at("address", &server.url("/address"), &authority.pem()),
        service("some", "infra"),
        service("any", "other"),
    ];
    let users = json!({"users": [
        {"name": here.to_string(), "user": {"token": "of-the-address"}},
        {"name": "*.infra.svc", "user": {"username": "gateway", "password": "open: sesame"}},
        {"name": "*", "user": {"token": "of-anybody"}},
    ]});
    let addresses = json!({"some.infra.svc:443": here.to_string(), "some.other.svc:443": here.to_string()});
    let running = Running::start(
        "credentials",
        &entries,
        json!({"kubeconfig": "users.kubeconfig", "addresses": addresses}),
        &[("users.kubeconfig", &users.to_string())],
    );
    for (name, authorization) in [
        ("address", "Bearer of-the-address"),
        ("some", "Basic Z2F0ZXdheTpvcGVuOiBzZXNhbWU="),
        ("any", "Bearer of-anybody"),
    ] {
        assert!(is_allowed(&running, name), "{name}");
        let calls = server.calls_at(&format!("/{name}"));
        let shown: Vec<Option<&str>> = calls.iter().map(|call| call.header("authorization")).collect();
        assert_eq!(shown, [Some(authorization)], "{name}");
    }
    let reported = running.gateway.tail() + &Value::from(running.gateway.decisions()).to_string();
    for secret in [
        "of-the-address",
        "sesame",
        "Z2F0ZXdheTpvcGVuOiBzZXNhbWU=",
        "of-anybody",
    ] {
        assert!(!reported.contains(secret), "{reported}");
    }
}

#[test]
fn only_allowed_addresses_are_called() {
    let authority = Authority::new("upstreams");
    let server = allowing(&authority, &["hooks.infra.svc"], &["/"]).start();
    let entries = [
        Entry::at("address", &server.url("/"), &authority.pem()),
        Entry::at(
            "name",
            &server.url("/").replace("127.0.0.1", "localhost"),
            &authority.pem(),
        ),
        Entry {
            client_config: json!({"service": {"name": "hooks", "namespace": "infra"}}),
            ..Entry::at("service", "", &[])
        },
    ];
    let upstreams = json!({
        "allowedAddresses": ["10.0.0.0/8"],
        "addresses": {"hooks.infra.svc:443": server.address().to_string()},
    });
    let running = Running::start("allowed", &entries, upstreams, &[]);
    for entry in &entries {
        assert!(!is_allowed(&running, &entry.name), "{}", entry.name);
    }
    assert!(server.calls().is_empty());
}

#[test]
fn a_dead_connection_is_replaced() {
    let authority = Authority::new("upstreams");
    let address = ports::free();
    let start = || allowing(&authority, &[], &["/"]).start_at(address);
    let server = start();
    let entry = Entry::at("well", &server.url("/"), &authority.pem());
    let running = Running::start("dead", &[entry], json!({}), &[]);
    assert!(is_allowed(&running, "well"));
    drop(server);
    let server = start();
    assert!(is_allowed(&running, "well"), "over a new connection");
    assert_eq!(server.calls().len(), 1);
}

#[test]
fn a_refusal_is_no_failure() {
    let authority = Authority::new("upstreams");
    let server = Webhooks::of(&authority, &[])
        .always("/", Review::deny(403, "no"))
        .start();
    let entry = Entry::at("strict", &server.url("/"), &authority.pem());
    let upstreams = json!({"breaker": {"failures": 1, "openFor": "1h"}});
    let running = Running::start("refusals", &[entry], upstreams, &[]);
    for _ in 0..3 {
        assert_eq!(running.ask("strict")["status"]["code"], 403);
    }
    assert_eq!(server.calls().len(), 3);
}

#[test]
fn a_name_that_is_not_among_the_addresses_is_looked_up() {
    let authority = Authority::new("upstreams");
    let server = allowing(&authority, &["localhost"], &["/"]).start();
    let url = server.url("/").replace("127.0.0.1", "localhost");
    let running = Running::start(
        "names",
        &[Entry::at("named", &url, &authority.pem())],
        json!({}),
        &[],
    );
    assert!(is_allowed(&running, "named"));
    assert_eq!(server.calls()[0].tls.server_name.as_deref(), Some("localhost"));
}
