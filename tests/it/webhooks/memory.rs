//! The memory that reviews take while webhooks are asked about them.

use serde_json::{Value, json};

use super::{by_path, entry, mutating, pod, post};
use crate::harness::webhooks::Webhooks;
use crate::support::client::Connection;
use crate::support::{Builder, Gateway, request, until};

/// Memory for objects: 800 kB, a quarter of it for one user.
const LIMITS: &str = "{bodyBytes: 200000, inFlightBytes: 800000}";

/// A pod of this user with as many empty volumes as take a good third of what the user may have.
fn large_pod(user: &str) -> Value {
    let mut review = pod();
    review["request"]["userInfo"]["username"] = json!(user);
    review["request"]["object"]["spec"]["volumes"] = json!(vec![json!({}); 3_000]);
    review
}

/// A gateway whose webhook answers when it is let go.
fn held() -> (Webhooks, Gateway) {
    let webhook = by_path(&[]);
    let manifests = mutating(
        "a",
        &[entry(&webhook, "/held", json!({"failurePolicy": "Ignore"}))],
    );
    let gateway = Builder::new().manifests(manifests).limits(LIMITS).start();
    webhook.hold();
    (webhook, gateway)
}

fn send(connection: &mut Connection, review: &Value) {
    let head = "POST /mutate?timeout=30s HTTP/1.1\r\nContent-Type: application/json";
    connection.send(&request(head, review.to_string().as_bytes()));
}

/// Who fills it with large objects is refused what comes then, so that no failure policy lets it
/// pass, and keeps nobody else out.
#[test]
fn one_user_s_objects_leave_memory_to_the_others() {
    let (webhook, gateway) = held();
    let mut waiting = [gateway.connect(), gateway.connect()];
    for (index, connection) in waiting.iter_mut().enumerate() {
        send(connection, &large_pod("mallory"));
        until("it is asked", || webhook.calls().len() == index + 1);
    }
    let refused = post(
        &mut gateway.connect(),
        "/mutate?timeout=30s",
        &large_pod("mallory"),
    );
    assert_eq!(refused["allowed"], false, "{refused}");
    assert_eq!(
        (&refused["status"]["code"], &refused["status"]["reason"]),
        (&json!(429), &json!("TooManyRequests")),
    );
    let mut of_jane = gateway.connect();
    send(&mut of_jane, &large_pod("jane"));
    until("it is asked", || webhook.calls().len() == 3);
    webhook.release();
    for connection in waiting.iter_mut().chain([&mut of_jane]) {
        let response = connection.receive().unwrap().json();
        assert_eq!(response["response"]["allowed"], true, "{response}");
    }
    // It was given back.
    let again = post(
        &mut gateway.connect(),
        "/mutate?timeout=30s",
        &large_pod("mallory"),
    );
    assert_eq!(again["allowed"], true, "{again}");
}
