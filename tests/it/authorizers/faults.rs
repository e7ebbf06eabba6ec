//! Authorizers that do not answer as they should: under failurePolicy, in time,
//! and at nobody else's expense.

use std::collections::{BTreeSet, HashMap};
use std::net::TcpListener;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{authorizer, builder, entry, gateway, gets, line, status};
use crate::harness::authorizer::{Act, Authorizer, kubeconfig, says};
use crate::harness::pki::Authority;
use crate::support::{Builder, JANE_GETS, until, v1};

/// Far longer than anything takes that does not wait for a deadline.
const SOON: Duration = Duration::from_secs(20);

fn faults() -> Vec<(&'static str, Act)> {
    let body = |body: &[u8]| Act::Reply(200, Vec::new(), body.to_vec());
    vec![
        ("hangs", Act::Hang),
        ("resets", Act::Reset),
        ("closes", Act::Close),
        ("breaks off", Act::Half),
        ("garbage", body(b"garbage")),
        ("nothing", body(b"")),
        (
            "another kind",
            body(br#"{"apiVersion":"v1","kind":"Status","status":"Success"}"#),
        ),
        ("17 MB", body(&vec![b' '; 17 << 20])),
        ("500", Act::Reply(500, Vec::new(), Vec::new())),
        ("401", Act::Reply(401, Vec::new(), Vec::new())),
        (
            "a redirect",
            Act::Reply(
                307,
                vec![("Location".to_owned(), "https://127.0.0.1:1/".to_owned())],
                Vec::new(),
            ),
        ),
    ]
}

#[test]
fn every_fault_ends_in_the_failure_policy() {
    for (fault, act) in faults() {
        let broken = authorizer(move |_| act.clone());
        let last = authorizer(|asked| says(asked, json!({"allowed": true})));
        for policy in ["NoOpinion", "Deny"] {
            let more = format!("failurePolicy: {policy}");
            let gateway = gateway(&[
                ("broken", &more, &broken),
                ("last", "failurePolicy: NoOpinion", &last),
            ]);
            let answer = ask(&gateway, "1500ms");
            let error = answer["evaluationError"].as_str().unwrap_or_default();
            assert!(
                error.starts_with("authorizer `broken`: "),
                "{fault}, {policy}: {answer}"
            );
            assert_eq!(answer["denied"] == true, policy == "Deny", "{fault}: {answer}");
            if policy == "NoOpinion" && fault != "hangs" {
                assert_eq!(
                    answer["allowed"], true,
                    "{fault}: the next one is asked: {answer}"
                );
            }
            let series = r#"portcullis_upstream_requests_total{result="failure",webhook="broken"}"#;
            let is_reply = ["garbage", "nothing", "another kind"].contains(&fault);
            if fault != "hangs" {
                assert_eq!(gateway.metric(series) > 0.0, !is_reply, "{fault}");
            }
            let line = line(&gateway, 1);
            assert_eq!(line["evaluationError"], error, "{fault}");
        }
    }
}

/// The answer to one question whose caller waits so long.
fn ask(gateway: &crate::support::Gateway, timeout: &str) -> Value {
    let head = format!("POST /authorize?timeout={timeout} HTTP/1.1\r\nContent-Type: application/json");
    let begun = Instant::now();
    let response = gateway.connect().request(&head, gets("joe", "/a").as_bytes());
    assert!(begun.elapsed() < SOON);
    assert_eq!(response.status, 200);
    response.json()["status"].clone()
}

#[test]
fn nobody_there_and_a_certificate_of_another_are_faults() {
    let nowhere = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let stranger = authorizer(|asked| says(asked, json!({"allowed": true})));
    let ca = Authority::new("another");
    for (address, expected) in [(nowhere, "dial "), (stranger.address, "tls: ")] {
        let gateway = Builder::new()
            .authorization(format!(
                "{{webhooks: [{}]}}",
                entry("other", "failurePolicy: Deny")
            ))
            .file("other.kubeconfig", kubeconfig(address, "/", &ca.pem()))
            .start();
        let answer = status(&gateway, &gets("joe", "/a"));
        assert_eq!(answer["denied"], true);
        let error = answer["evaluationError"].as_str().unwrap();
        assert!(
            error.starts_with(&format!("authorizer `other`: {expected}")),
            "{error}"
        );
    }
    assert_eq!(stranger.asked().len(), 0);
}

#[test]
fn a_failure_that_passes_is_asked_again() {
    let count = std::sync::atomic::AtomicUsize::new(0);
    let flaky = authorizer(
        move |asked| match count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => Act::Reply(503, Vec::new(), Vec::new()),
            1 => Act::Reply(500, Vec::new(), Vec::new()),
            _ => says(asked, json!({"allowed": true})),
        },
    );
    let gateway = gateway(&[("flaky", "failurePolicy: NoOpinion", &flaky)]);
    let not_asked_again = ask(&gateway, "30s");
    assert_eq!(not_asked_again["allowed"], false, "503 is a refusal to answer");
    assert_eq!(flaky.asked().len(), 1);
    assert_eq!(ask(&gateway, "30s")["allowed"], true, "500 passes");
    assert_eq!(flaky.asked().len(), 3);
}

#[test]
fn one_that_hangs_delays_nobody_else_and_leaves_room() {
    let hanging = authorizer(|_| Act::Hang);
    let gateway = builder(&[("hanging", "failurePolicy: Deny", &hanging)])
        .limits("{inFlight: 8, inFlightBytes: 268435456}")
        .start();
    let asking: Vec<_> = (0..5)
        .map(|number| {
            let mut connection = gateway.connect();
            connection.send(&crate::support::request(
                "POST /authorize?timeout=30s HTTP/1.1\r\nContent-Type: application/json",
                gets(&format!("user-{number}"), "/a").as_bytes(),
            ));
            connection
        })
        .collect();
    until("four of them wait", || hanging.asked().len() == 4);
    assert_eq!(status(&gateway, &v1(JANE_GETS))["allowed"], true);
    let turned_away: Vec<_> = asking
        .into_iter()
        .map(|mut connection| connection.receive().unwrap().json()["status"].clone())
        .filter(|status| {
            status["evaluationError"]
                .as_str()
                .unwrap()
                .contains("too many requests wait")
        })
        .collect();
    assert_eq!(turned_away.len(), 1, "half of the places are for others");
}

/// Nobody takes away what an authorizer would deny by keeping it busy, and one user keeps none busy
/// for others.
#[test]
fn who_finds_no_place_at_an_authorizer_is_not_let_past_it() {
    let hanging = authorizer(|_| Act::Hang);
    let last = authorizer(|asked| says(asked, json!({"allowed": true})));
    let gateway = builder(&[
        ("hanging", "failurePolicy: NoOpinion", &hanging),
        ("last", "failurePolicy: NoOpinion", &last),
    ])
    .limits("{inFlight: 8, inFlightBytes: 268435456}")
    .start();
    let head = "POST /authorize?timeout=30s HTTP/1.1\r\nContent-Type: application/json";
    let ask = |user: &str, path: &str| {
        let mut connection = gateway.connect();
        connection.send(&crate::support::request(head, gets(user, path).as_bytes()));
        connection
    };
    let _waiting = [
        ask("mallory", "/0"),
        ask("ann", "/0"),
        ask("system:kube-scheduler", "/0"),
    ];
    until("each of them waits", || hanging.asked().len() == 3);
    // A quarter of those who wait may be one user's.
    let refused = ask("mallory", "/1").receive().unwrap();
    assert_eq!(refused.status, 429, "{}", refused.text());
    // No authorizer may hold these up.
    let protected = ask("system:kube-scheduler", "/1").receive().unwrap();
    assert_eq!(protected.json()["status"]["allowed"], true);
    assert_eq!(hanging.asked().len(), 3);
}

#[test]
fn a_gateway_that_would_ask_itself_does_not() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ca = Authority::new("self");
    let gateway = Builder::new()
        .address(address)
        .authorization(format!(
            "{{webhooks: [{}]}}",
            entry("self", "failurePolicy: NoOpinion")
        ))
        .file("self.kubeconfig", kubeconfig(address, "/authorize", &ca.pem()))
        .start();
    let answer = status(&gateway, &gets("joe", "/a"));
    let error = answer["evaluationError"].as_str().unwrap();
    assert!(error.ends_with("is this gateway itself"), "{error}");
}

/// What stands in the files is refused before anything is asked.
#[test]
fn what_no_call_could_use_is_a_fault_of_the_files() {
    let other = authorizer(|asked| says(asked, json!({"allowed": true})));
    let valid = other.kubeconfig("/authz");
    for (kubeconfig, expected) in [
        (valid.replace("https://", "http://"), "must be an https URL"),
        (
            valid.replace("\"token\":\"authorizer-token\"", "\"exec\":{\"command\":\"x\"}"),
            "exec",
        ),
        (
            valid.replace("\"current-context\":\"x\"", "\"current-context\":\"y\""),
            "current-context",
        ),
        ("{".to_owned(), "Unreadable"),
    ] {
        let faults = faults_of(&other, &kubeconfig);
        assert!(faults.contains(expected), "{faults}");
        assert!(!faults.contains("authorizer-token"), "{faults}");
    }
}

fn faults_of(other: &Authorizer, kubeconfig: &str) -> String {
    use portcullis::state::{self, NoManifestSource};
    let gateway = gateway(&[("other", "failurePolicy: Deny", other)]);
    std::fs::write(gateway.file("other.kubeconfig"), kubeconfig).unwrap();
    let now = std::time::SystemTime::now();
    state::check(&gateway.file("config.yaml"), &NoManifestSource, &[], now).to_string()
}

#[test]
fn the_callers_deadline_ends_what_an_authorizer_does_not() {
    let hanging = authorizer(|_| Act::Hang);
    for policy in ["NoOpinion", "Deny"] {
        let entry =
            entry("hanging", &format!("failurePolicy: {policy}")).replace("timeout: 3s", "timeout: 30s");
        let gateway = Builder::new()
            .authorization(format!("{{webhooks: [{entry}]}}"))
            .file("hanging.kubeconfig", hanging.kubeconfig("/authz"))
            .start();
        let answer = ask(&gateway, "1s");
        assert_eq!(answer["denied"] == true, policy == "Deny", "{answer}");
        let error = answer["evaluationError"].as_str().unwrap();
        assert!(
            error.ends_with("no answer within the caller's deadline"),
            "{error}"
        );
    }
}

/// Answers each question on a connection with the reply to the one before it, but the first: a
/// server that once replied twice, or a proxy that mixes replies up. Each allows alice alone.
fn one_behind(repeats_question: bool) -> Authorizer {
    let earlier: Mutex<HashMap<usize, Value>> = Mutex::default();
    authorizer(move |asked| {
        let own = asked.review["spec"].clone();
        let spec = earlier
            .lock()
            .unwrap()
            .insert(asked.connection, own.clone())
            .unwrap_or(own);
        let mut review = json!({
            "kind": "SubjectAccessReview",
            "apiVersion": asked.review["apiVersion"],
            "status": {"allowed": spec["user"] == "alice"},
        });
        if repeats_question {
            review["spec"] = spec;
        }
        Act::Reply(200, Vec::new(), review.to_string().into_bytes())
    })
}

#[test]
fn nobody_gets_the_reply_to_another_question() {
    for repeats_question in [false, true] {
        let other = one_behind(repeats_question);
        let gateway = gateway(&[("other", "failurePolicy: NoOpinion", &other)]);
        for round in 0..5 {
            for user in ["alice", "mallory"] {
                let answer = status(&gateway, &gets(user, &format!("/{round}")));
                // A reply to another is none, and failurePolicy applies.
                let is_refused = answer["evaluationError"]
                    .as_str()
                    .is_some_and(|error| error.contains("question"));
                let expected = user == "alice" && !is_refused;
                assert_eq!(
                    answer["allowed"], expected,
                    "{repeats_question}, {user}: {answer}"
                );
                assert!(!is_refused || repeats_question, "{answer}");
            }
        }
        let connections: BTreeSet<usize> = other.asked().iter().map(|asked| asked.connection).collect();
        assert_eq!(connections.len(), if repeats_question { 5 } else { 10 });
    }
}

#[test]
fn a_connection_is_kept_for_whom_the_replies_repeat_the_questions() {
    let other = authorizer(|asked| {
        let mut review = asked.review.clone();
        review["status"] = json!({"allowed": true});
        Act::Reply(200, Vec::new(), review.to_string().into_bytes())
    });
    let gateway = gateway(&[("other", "failurePolicy: NoOpinion", &other)]);
    for round in 0..5 {
        assert_eq!(
            status(&gateway, &gets("alice", &format!("/{round}")))["allowed"],
            true
        );
    }
    assert!(other.asked().iter().all(|asked| asked.connection == 0));
}
