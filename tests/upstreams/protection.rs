//! What keeps a webhook that fails from dragging others down, and users from making
//! one fail for others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::harness::pki::Authority;
use crate::harness::webhooks::{Answer, Builder, Called, Review, Webhooks};
use crate::harness::{eventually, ports};
use crate::{Entry, Running, pod};

/// Webhooks by failurePolicy.
const POLICIES: [(&str, &str); 2] = [("ignored", "Ignore"), ("required", "Fail")];

/// The review of a new pod of this user, `good` or `bad` by its name.
fn pod_of(user: &str, name: &str) -> Value {
    let mut review = pod();
    review["request"]["userInfo"]["username"] = json!(user);
    review["request"]["object"]["metadata"]["name"] = json!(name);
    review
}

/// A webhook that refuses bad objects, and treats mallory's as `answer` says.
fn judging(authority: &Authority, answer: Answer) -> Builder {
    Webhooks::of(authority, &[]).on("/", move |called: &Called| {
        let request = called.request();
        if request["userInfo"]["username"] == "mallory" {
            return answer.clone();
        }
        match request["object"]["metadata"]["name"] == "bad" {
            true => Review::deny(403, "bad").into(),
            false => Review::allow().into(),
        }
    })
}

/// An entry of each failurePolicy, with this timeout.
fn entries(url: &str, authority: &Authority, timeout_seconds: u8) -> [Entry; 2] {
    POLICIES.map(|(name, failure_policy)| Entry {
        failure_policy,
        timeout_seconds,
        ..Entry::at(name, url, &authority.pem())
    })
}

/// The `response` about a review, asked of the configuration `name` alone.
fn judged(running: &Running, name: &str, review: &Value) -> Value {
    let target = format!("/validate/{name}?timeout=20s");
    let reply = running.gateway.client().post(&target, review).unwrap();
    assert_eq!(reply.status, 200, "{}\n{}", reply.text(), running.gateway.tail());
    reply.json()["response"].clone()
}

/// Good objects pass, bad ones are refused by the webhook itself.
fn others_are_judged(running: &Running) {
    for (name, _) in POLICIES {
        let good = judged(running, name, &pod_of("jane", "good"));
        assert_eq!(good["allowed"], true, "{name}: {good}");
        let bad = judged(running, name, &pod_of("jane", "bad"));
        assert_eq!(bad["status"]["code"], 403, "{name}: {bad}");
    }
}

#[test]
fn a_webhook_that_is_not_there_is_not_called_until_it_is() {
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
            .contains("(the webhook answered with status 503): it is called again at "),
        "{message}"
    );
    assert_eq!(server.calls().len(), 3);
    is_well.store(true, Ordering::SeqCst);
    assert!(eventually(|| running.ask("ill")["allowed"] == true));
    assert_eq!(open(), Some(0.0));
}

/// What a webhook does about one object says nothing of the next.
#[test]
fn dropped_connections_do_not_open_the_circuit_breaker() {
    let authority = Authority::new("upstreams");
    let server = judging(&authority, Answer::Reset).start();
    let running = Running::start(
        "dropped",
        &entries(&server.url("/"), &authority, 10),
        json!({"breaker": {"failures": 5, "openFor": "1h"}}),
        &[],
    );
    for (name, _) in POLICIES {
        for _ in 0..5 {
            judged(&running, name, &pod_of("mallory", "any"));
        }
    }
    assert_eq!(server.calls().len(), 10);
    others_are_judged(&running);
}

#[test]
fn replies_that_do_not_come_open_no_breaker() {
    let authority = Authority::new("upstreams");
    let server = judging(&authority, Answer::Hang).start();
    let running = Running::start(
        "overdue",
        &entries(&server.url("/"), &authority, 1),
        json!({"breaker": {"failures": 2, "openFor": "1h"}}),
        &[],
    );
    for (name, _) in POLICIES {
        for _ in 0..2 {
            judged(&running, name, &pod_of("mallory", "any"));
        }
    }
    others_are_judged(&running);
}

#[test]
fn an_open_circuit_breaker_skips_no_webhook_with_policy_ignore() {
    let authority = Authority::new("upstreams");
    let address = ports::free();
    let url = format!("https://{address}/");
    let running = Running::start(
        "ignored",
        &entries(&url, &authority, 10),
        json!({"breaker": {"failures": 3, "openFor": "1h"}}),
        &[],
    );
    for (name, _) in POLICIES {
        for _ in 0..3 {
            judged(&running, name, &pod_of("jane", "bad"));
        }
    }
    let server = judging(&authority, Answer::Hang).start_at(address);
    let bad = judged(&running, "ignored", &pod_of("jane", "bad"));
    assert_eq!(bad["status"]["code"], 403, "{bad}");
    let required = judged(&running, "required", &pod_of("jane", "good"));
    let message = required["status"]["message"].as_str().unwrap();
    assert!(
        message.contains("its circuit breaker is open since "),
        "{message}"
    );
    assert_eq!(server.calls().len(), 1);
    let id = "ignored/ignored.hooks.example.com";
    let open = format!(r#"portcullis_upstream_breaker_open{{webhook="{id}"}}"#);
    assert_eq!(running.gateway.metric(&open), Some(0.0), "it is there");
}

#[test]
fn calls_over_the_limit_are_refused_at_once_under_either_failure_policy() {
    let authority = Authority::new("upstreams");
    let server = Webhooks::of(&authority, &[]).always("/", Answer::Hang).start();
    let running = Running::start(
        "limit",
        &entries(&server.url("/"), &authority, 30),
        json!({"inFlight": 2}),
        &[],
    );
    for (name, _) in POLICIES {
        let before = server.calls().len();
        for user in ["jane", "joe"] {
            let client = running.gateway.client();
            let target = format!("/validate/{name}?timeout=30s");
            thread::spawn(move || client.post(&target, &pod_of(user, "any")));
        }
        assert!(eventually(|| server.calls().len() == before + 2));
        for phase in ["validate", "mutate"] {
            let answer = running.ask_at(&format!("/{phase}/{name}?timeout=20s"));
            assert_eq!(answer["allowed"], false, "{answer}");
            assert_eq!(answer["status"]["code"], 504, "{answer}");
            let message = answer["status"]["message"].as_str().unwrap();
            let reported = "it already has 2 calls in flight, the limit by `upstreams.inFlight`";
            assert!(message.contains(reported), "{message}");
        }
        assert_eq!(server.calls().len(), before + 2);
    }
}

#[test]
fn one_user_s_slow_requests_leave_a_webhook_to_the_others() {
    let authority = Authority::new("upstreams");
    let server = judging(&authority, Answer::Hang).start();
    let running = Running::start(
        "share",
        &entries(&server.url("/"), &authority, 30),
        json!({}),
        &[],
    );
    let (reported, answers) = std::sync::mpsc::channel();
    for (name, _) in POLICIES {
        for _ in 0..70 {
            let (client, reported) = (running.gateway.client(), reported.clone());
            let target = format!("/validate/{name}?timeout=30s");
            thread::spawn(move || {
                let reply = client.post(&target, &pod_of("mallory", "any"));
                // The test may have ended.
                let _ = reported.send(reply.map(|reply| reply.json()["response"].clone()));
            });
        }
    }
    // A quarter of 64 hangs, the rest is answered.
    for _ in 0..2 * (70 - 16) {
        let refused = answers.recv().unwrap().unwrap();
        assert_eq!(refused["status"]["code"], 504, "{refused}");
        let message = refused["status"]["message"].as_str().unwrap();
        let reported = "a quarter of `upstreams.inFlight` (64)";
        assert!(message.contains(reported), "{message}");
    }
    assert!(eventually(|| server.calls().len() == 2 * 16));
    others_are_judged(&running);
    assert!(answers.try_recv().is_err(), "the others hang still");
}

/// Requests of as many users as there are, more than a webhook answers in time: whether
/// it was not asked, or cut, nothing that it would refuse passes.
#[test]
fn under_load_nothing_is_admitted_that_a_webhook_with_policy_ignore_refuses() {
    let authority = Authority::new("upstreams");
    let asked = AtomicUsize::new(0);
    let server = Webhooks::of(&authority, &[])
        .on("/", move |_| match asked.fetch_add(1, Ordering::SeqCst) % 2 {
            0 => Answer::Hang,
            _ => Review::deny(403, "bad").into(),
        })
        .start();
    let running = Running::start(
        "load",
        &entries(&server.url("/"), &authority, 30),
        json!({"inFlight": 16}),
        &[],
    );
    let codes = thread::scope(|threads| {
        let answers: Vec<_> = (0..60)
            .map(|index| {
                let client = running.gateway.client();
                threads.spawn(move || {
                    let review = pod_of(&format!("user-{index}"), "bad");
                    let reply = client.post("/validate/ignored?timeout=2s", &review).unwrap();
                    assert_eq!(reply.status, 200, "{}", reply.text());
                    let response = &reply.json()["response"];
                    assert_eq!(response["allowed"], false, "{response}");
                    response["status"]["code"].as_u64().unwrap()
                })
            })
            .collect();
        answers
            .into_iter()
            .map(|answer| answer.join().unwrap())
            .collect::<Vec<_>>()
    });
    assert!(codes.contains(&504) && codes.contains(&403), "{codes:?}");
}
