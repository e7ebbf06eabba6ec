//! What keeps a webhook that fails from dragging others down.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::json;

use crate::harness::eventually;
use crate::harness::pki::Authority;
use crate::harness::webhooks::{Answer, Review, Webhooks};
use crate::{Entry, Running, pod};

#[test]
fn a_webhook_that_fails_is_left_alone_until_it_is_well() {
    let is_well = Arc::new(AtomicBool::new(false));
    let authority = Authority::new("upstreams");
    let server = Webhooks::of(&authority, &[])
        .on("/", {
            let is_well = Arc::clone(&is_well);
            move |_| match is_well.load(Ordering::SeqCst) {
                true => Review::allow().into(),
                false => Answer::http(503, "{}"),
            }
        })
        .start();
    let entry = Entry::at("ill", &server.url("/"), &authority.pem());
    let id = format!("ill/{}", entry.webhook());
    let upstreams = json!({"breaker": {"failures": 3, "openFor": "2s"}});
    let running = Running::start("breaker", &[entry], upstreams, &[]);
    let metric = |name: &str| running.gateway.metric(&name.replace("ID", &id));
    let open = || metric(r#"portcullis_upstream_breaker_open{webhook="ID"}"#);
    let failures = || metric(r#"portcullis_upstream_requests_total{result="failure",webhook="ID"}"#);
    assert_eq!((open(), failures()), (Some(0.0), Some(0.0)), "from the start");
    for _ in 0..3 {
        running.ask("ill");
    }
    assert_eq!((open(), failures()), (Some(1.0), Some(3.0)));
    let message = running.ask("ill")["status"]["message"].clone();
    assert!(
        message
            .as_str()
            .unwrap()
            .ends_with("left alone after failures in a row"),
        "{message}"
    );
    assert_eq!(server.calls().len(), 3);
    is_well.store(true, Ordering::SeqCst);
    assert!(eventually(|| running.ask("ill")["allowed"] == true));
    assert_eq!(open(), Some(0.0));
}

#[test]
fn calls_over_the_limit_fail_at_once() {
    let authority = Authority::new("upstreams");
    let server = Webhooks::of(&authority, &[]).always("/", Answer::Hang).start();
    let entry = Entry {
        timeout_seconds: 30,
        ..Entry::at("full", &server.url("/"), &authority.pem())
    };
    let running = Running::start("limit", &[entry], json!({"inFlight": 2}), &[]);
    for _ in 0..2 {
        let client = running.gateway.client();
        thread::spawn(move || client.post("/validate/full?timeout=30s", &pod()));
    }
    assert!(eventually(|| server.calls().len() == 2));
    let message = running.ask("full")["status"]["message"].clone();
    assert!(
        message
            .as_str()
            .unwrap()
            .ends_with("it has 2 calls in flight already"),
        "{message}"
    );
    assert_eq!(server.calls().len(), 2);
}
