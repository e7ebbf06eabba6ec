//! Calls that take long: what waits for them, what does not, and what ends them.

use serde_json::json;

use super::{by_path, entry, gateway, lines, mutating, paths, pod, post, validating};
use crate::h2::{Connection, block_on};
use crate::harness::webhooks::Webhooks;
use crate::support::{Builder, Gateway, JANE_GETS, get, request, until, v1};

const VALIDATING: &str = r#"portcullis_in_flight_requests{endpoint="validate"}"#;

fn held() -> (Webhooks, Gateway) {
    let webhook = by_path(&[]);
    let gateway = gateway(validating("a", &[entry(&webhook, "/held", json!({}))]));
    webhook.hold();
    (webhook, gateway)
}

/// The bytes of a request of this user that is answered when the webhook is.
fn waiting(user: &str) -> Vec<u8> {
    let head = "POST /validate?timeout=30s HTTP/1.1\r\nContent-Type: application/json";
    let mut review = pod();
    review["request"]["userInfo"]["username"] = json!(user);
    request(head, review.to_string().as_bytes())
}

/// Streams of one connection are served by one worker.
#[test]
fn a_call_in_flight_delays_no_answer_of_its_worker() {
    let (webhook, gateway) = held();
    block_on(async {
        let connection = Connection::open(&gateway).await;
        let mut waiting = Box::pin(connection.post("/validate?timeout=30s", pod().to_string()));
        loop {
            assert!(futures_util::poll!(&mut waiting).is_pending());
            tokio::task::yield_now().await;
            if webhook.calls().len() == 1 {
                break;
            }
        }
        for _ in 0..100 {
            let (status, answer) = connection.authorize(v1(JANE_GETS)).await.unwrap();
            assert_eq!((status, &answer["status"]["allowed"]), (200, &json!(true)));
        }
        assert!(futures_util::poll!(&mut waiting).is_pending());
        webhook.release();
        let (status, answer) = waiting.await.unwrap();
        assert_eq!((status, &answer["response"]["allowed"]), (200, &json!(true)));
    });
}

/// More calls than there are threads: none of them holds one.
#[test]
fn calls_in_flight_hold_no_thread() {
    let (webhook, gateway) = held();
    let mut connections: Vec<_> = (0..32).map(|_| gateway.connect()).collect();
    for (index, connection) in connections.iter_mut().enumerate() {
        connection.send(&waiting(&format!("user-{index}")));
    }
    until("all are asked", || webhook.calls().len() == 32);
    webhook.release();
    for connection in &mut connections {
        assert_eq!(connection.receive().unwrap().json()["response"]["allowed"], true);
    }
}

#[test]
fn draining_waits_for_a_call_in_flight() {
    let (webhook, mut gateway) = held();
    let mut connection = gateway.connect();
    connection.send(&waiting("jane"));
    until("it is asked", || webhook.calls().len() == 1);
    gateway.stop();
    until("readiness fails", || {
        get(gateway.addresses.admin, "/readyz").0 == 503
    });
    webhook.release();
    let response = connection.receive().unwrap();
    assert_eq!(
        (
            response.header("connection"),
            &response.json()["response"]["allowed"]
        ),
        (Some("close"), &json!(true))
    );
    gateway.join();
    assert_eq!(lines(&gateway, 1).len(), 1);
}

#[test]
fn who_hangs_up_is_not_worked_for() {
    let (webhook, gateway) = held();
    let mut connection = gateway.connect();
    connection.send(&waiting("jane"));
    until("it is asked", || webhook.calls().len() == 1);
    assert_eq!(gateway.metric(VALIDATING), 1.0);
    drop(connection);
    until("its place is free", || gateway.metric(VALIDATING) == 0.0);
    webhook.release();
    assert_eq!(post(&mut gateway.connect(), "/validate", &pod())["allowed"], true);
    assert_eq!(lines(&gateway, 1).len(), 1, "nobody was told the first");
}

#[test]
fn at_the_callers_deadline_a_mutation_ends_whatever_the_failure_policy() {
    let webhook = by_path(&[]);
    let ignored = |path| entry(&webhook, path, json!({"failurePolicy": "Ignore"}));
    let gateway = gateway(mutating("a", &[ignored("/held"), ignored("/never")]));
    webhook.hold();
    let response = post(&mut gateway.connect(), "/mutate?timeout=1s", &pod());
    assert_eq!(
        (
            &response["allowed"],
            &response["status"]["code"],
            &response["status"]["reason"]
        ),
        (&json!(false), &json!(504), &json!("Timeout"))
    );
    assert_eq!(paths(&webhook), ["/held"]);
}

#[test]
fn at_the_callers_deadline_validation_ends_whatever_the_failure_policy() {
    let webhook = by_path(&[]);
    for policy in ["Ignore", "Fail"] {
        let hook = entry(&webhook, "/held", json!({"failurePolicy": policy}));
        let gateway = gateway(validating("a", &[hook]));
        webhook.hold();
        let response = post(&mut gateway.connect(), "/validate?timeout=1s", &pod());
        assert_eq!(response["allowed"], false, "{response}");
        assert_eq!(response["status"]["code"], 504, "{response}");
        let line = &lines(&gateway, 1)[0]["webhooks"][0];
        assert_eq!(line["decision"], "error", "{line}");
    }
}

#[test]
fn a_webhook_beyond_its_own_timeout_leaves_time_for_the_next() {
    let (slow, quick) = (by_path(&[]), by_path(&[]));
    let gateway = gateway(mutating(
        "a",
        &[
            entry(
                &slow,
                "/held",
                json!({"failurePolicy": "Ignore", "timeoutSeconds": 1}),
            ),
            entry(&quick, "/next", json!({})),
        ],
    ));
    slow.hold();
    let response = post(&mut gateway.connect(), "/mutate?timeout=30s", &pod());
    assert_eq!(response["allowed"], true, "{response}");
    assert_eq!(paths(&quick), ["/next"]);
}

/// As many reviews in flight as one cluster may have.
#[test]
fn callers_of_one_cluster_leave_the_share_of_the_others() {
    let webhook = by_path(&[]);
    let gateway = Builder::new()
        .east()
        .limits("{inFlight: 8}")
        .manifests(validating("a", &[entry(&webhook, "/held", json!({}))]))
        .start();
    webhook.hold();
    let of_east = |index: usize| {
        let mut review = pod();
        review["request"]["userInfo"]["username"] = json!(format!("user-{index}"));
        let head = "POST /validate?timeout=30s HTTP/1.1\r\nAuthorization: Bearer east-token\r\n\
                    Content-Type: application/json";
        let mut connection = gateway.stranger().connect(gateway.addresses.server);
        connection.send(&request(head, review.to_string().as_bytes()));
        connection
    };
    let held: Vec<_> = (0..6).map(of_east).collect();
    until("six are in flight", || gateway.metric(VALIDATING) == 6.0);
    let refused = of_east(6).receive().unwrap();
    assert_eq!(refused.status, 429, "a quarter is the default cluster's");

    let mut other = pod();
    other["request"]["resource"]["resource"] = json!("configmaps");
    let mut connection = gateway.connect();
    for _ in 0..20 {
        assert_eq!(post(&mut connection, "/validate", &other)["allowed"], true);
    }
    let own: Vec<_> = ["jane", "joe"]
        .into_iter()
        .map(|user| {
            let mut connection = gateway.connect();
            connection.send(&waiting(user));
            connection
        })
        .collect();
    until("eight are in flight", || gateway.metric(VALIDATING) == 8.0);
    let head = "POST /validate HTTP/1.1\r\nContent-Type: application/json";
    let refused = connection.request(head, other.to_string().as_bytes());
    assert_eq!(refused.status, 429);
    webhook.release();
    for mut connection in held.into_iter().chain(own) {
        assert_eq!(connection.receive().unwrap().json()["response"]["allowed"], true);
    }
}
