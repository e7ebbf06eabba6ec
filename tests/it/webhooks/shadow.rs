//! Webhooks in shadow: asked after the reply, told in the log.

use serde_json::json;

use super::{by_path, entry, lines, mutating, paths, pod, post, validating};
use crate::support::{Builder, Gateway, until};

const SHADOWING: &str = "portcullis_shadow_reviews_in_flight";

fn gateway(manifests: String) -> Gateway {
    Builder::new()
        .manifests(manifests)
        .upstreams("{shadow: [trial.hooks.example.com]}")
        .start()
}

#[test]
fn a_webhook_in_shadow_is_told_in_the_log_and_delays_no_reply() {
    let webhook = by_path(&[("/trial", r#"{"allowed": false}"#)]);
    let gateway = gateway(validating("a", &[entry(&webhook, "/trial", json!({}))]));
    webhook.hold();
    let response = post(&mut gateway.connect(), "/validate", &pod());
    assert_eq!(response["allowed"], true, "the webhook has not answered");
    until("it is asked", || paths(&webhook) == ["/trial"]);
    assert_eq!(gateway.metric(SHADOWING), 1.0);
    webhook.release();
    let line = &lines(&gateway, 1)[0];
    assert_eq!(
        (&line["decision"], &line["shadow"]),
        (
            &json!("allow"),
            &json!([{"kind": "Webhook", "name": "a/trial.hooks.example.com", "decision": "deny",
                "reason": "admission webhook \"trial.hooks.example.com\" denied the request without explanation"}])
        )
    );
    let decided = |decision: &str| {
        let labels = format!("decision=\"{decision}\",webhook=\"a/trial.hooks.example.com\"");
        gateway.metric(&format!("portcullis_shadow_webhook_decisions_total{{{labels}}}"))
    };
    assert_eq!((decided("allow"), decided("deny")), (0.0, 1.0));
    until("its place is free", || gateway.metric(SHADOWING) == 0.0);
}

#[test]
fn beyond_its_places_nobody_is_asked_but_every_line_is_written() {
    let webhook = by_path(&[]);
    let gateway = gateway(mutating("a", &[entry(&webhook, "/trial", json!({}))]));
    webhook.hold();
    let mut connection = gateway.connect();
    for _ in 0..70 {
        post(&mut connection, "/mutate", &pod());
    }
    assert_eq!(lines(&gateway, 6).len(), 6, "those that found no place");
    assert_eq!(gateway.metric("portcullis_shadow_reviews_dropped_total"), 6.0);
    webhook.release();
    let lines = lines(&gateway, 70);
    let asked = lines.iter().filter(|line| line["shadow"] != json!([]));
    assert_eq!(asked.count(), 64);
}

#[test]
fn draining_waits_for_webhooks_in_shadow() {
    let webhook = by_path(&[("/trial", r#"{"allowed": false}"#)]);
    let mut gateway = gateway(validating("a", &[entry(&webhook, "/trial", json!({}))]));
    webhook.hold();
    post(&mut gateway.connect(), "/validate", &pod());
    until("it is asked", || paths(&webhook) == ["/trial"]);
    gateway.stop();
    webhook.release();
    gateway.join();
    assert_eq!(lines(&gateway, 1)[0]["shadow"][0]["decision"], "deny");
}
