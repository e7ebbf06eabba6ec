//! Every way in which a webhook can fail ends in its failurePolicy's answer, in
//! time, and holds up nobody else.

use std::io::Write as _;
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;

use crate::harness::PATIENCE;
use crate::harness::pki::Authority;
use crate::harness::webhooks::{Answer, Review, Webhooks};
use crate::{Entry, Running, pod};

/// What webhooks that answer something are told to answer, by path.
fn misbehaviours() -> Vec<(&'static str, Answer)> {
    let allow = || Box::new(Answer::from(Review::allow()));
    vec![
        ("hangs", Answer::Hang),
        ("resets", Answer::Reset),
        ("trickles", Answer::Trickle(Duration::from_millis(200), allow())),
        ("is-late", Answer::Late(Duration::from_secs(60), allow())),
        ("garbles", Answer::http(200, "no review")),
        ("says-nothing", Answer::http(200, "")),
        ("is-huge", Answer::http(200, vec![b' '; 10 << 20])),
        (
            "explodes",
            Answer::http(200, gzip(&vec![b' '; 10 << 20])).header("content-encoding", "gzip"),
        ),
        ("mistakes", Review::allow().with_uid("another").into()),
        ("errs", Answer::http(500, "{}")),
        ("is-busy", Answer::http(429, "{}").header("retry-after", "1")),
        (
            "sends-away",
            Answer::http(307, "{}").header("location", "https://127.0.0.1:1/"),
        ),
    ]
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// An entry of each failurePolicy, under the name and `-fail` or `-ignore`.
fn both(name: &str, url: &str, authority: &[u8]) -> [Entry; 2] {
    [("fail", "Fail"), ("ignore", "Ignore")].map(|(suffix, failure_policy)| Entry {
        failure_policy,
        timeout_seconds: 1,
        ..Entry::at(&format!("{name}-{suffix}"), url, authority)
    })
}

#[test]
fn every_fault_ends_in_the_failure_policy_s_answer() {
    let authority = Authority::new("upstreams");
    let behaviours = misbehaviours();
    let mut server = Webhooks::of(&authority, &[]);
    for (name, answer) in &behaviours {
        server = server.always(&format!("/{name}"), answer.clone());
    }
    let server = server.start();
    let expired = Webhooks::with(&authority, authority.expired_server())
        .always("/", Review::allow())
        .start();
    let elsewhere = Webhooks::with(&authority, authority.server_elsewhere(&["other.example.com"]))
        .always("/", Review::allow())
        .start();
    let deaf = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();

    let at_root = |address: std::net::SocketAddr| format!("https://{address}/");
    let stranger = Authority::new("stranger").pem();
    let mut webhooks: Vec<(String, String, Vec<u8>)> = behaviours
        .iter()
        .map(|(name, _)| {
            (
                (*name).to_owned(),
                server.url(&format!("/{name}")),
                authority.pem(),
            )
        })
        .collect();
    let mut add = |name: &str, url: String, trusted: Vec<u8>| webhooks.push((name.to_owned(), url, trusted));
    add("refuses", at_root(closed), authority.pem());
    add(
        "does-not-shake-hands",
        at_root(deaf.local_addr().unwrap()),
        authority.pem(),
    );
    add("has-expired", at_root(expired.address()), authority.pem());
    add("is-another", at_root(elsewhere.address()), authority.pem());
    add("is-not-trusted", server.url("/hangs"), stranger);
    add(
        "is-nowhere",
        "https://nowhere.invalid/".to_owned(),
        authority.pem(),
    );

    let entries: Vec<Entry> = webhooks
        .iter()
        .flat_map(|(name, url, trusted)| both(name, url, trusted))
        .collect();
    let upstreams = json!({"replyBytes": 1 << 20, "breaker": {"failures": 0}});
    let running = Running::start("faults", &entries, upstreams, &[]);
    thread::scope(|scope| {
        for (name, ..) in &webhooks {
            scope.spawn(|| fails_in_time(&running, name));
        }
    });
    let asked = |path: &str| server.calls_at(path).len();
    for path in ["/errs", "/is-busy", "/sends-away", "/resets"] {
        assert_eq!(asked(path), 2, "{path} is asked once by each");
    }
}

fn fails_in_time(running: &Running, name: &str) {
    let start = Instant::now();
    let refused = running.ask(&format!("{name}-fail"));
    assert_eq!(refused["allowed"], false, "{name}: {refused}");
    assert_eq!(refused["status"]["code"], 500, "{name}: {refused}");
    let message = refused["status"]["message"].as_str().unwrap();
    let expected = format!("failed calling webhook \"{name}-fail.hooks.example.com\": ");
    assert!(message.contains(&expected), "{name}: {message}");
    let ignored = running.ask(&format!("{name}-ignore"));
    assert_eq!(ignored["allowed"], true, "{name}: {ignored}");
    // A second each, and far from the caller's deadline.
    let took = start.elapsed();
    assert!(took < Duration::from_secs(15), "{name} took {took:?}");
}

#[test]
fn a_webhook_that_hangs_holds_up_nobody_else() {
    let authority = Authority::new("upstreams");
    let server = Webhooks::of(&authority, &[])
        .always("/hangs", Answer::Hang)
        .always("/well", Review::allow())
        .start();
    let entries = [
        Entry {
            timeout_seconds: 30,
            ..Entry::at("hangs", &server.url("/hangs"), &authority.pem())
        },
        Entry::at("well", &server.url("/well"), &authority.pem()),
    ];
    let running = Running::start("hanging", &entries, json!({}), &[]);
    let (ended, hanging) = channel();
    for index in 0..20 {
        let (client, ended) = (running.gateway.client(), ended.clone());
        let mut review = pod();
        review["request"]["userInfo"]["username"] = json!(format!("user-{index}"));
        thread::spawn(move || {
            let reply = client.post("/validate/hangs?timeout=30s", &review);
            ended.send(reply.is_ok())
        });
    }
    let start = Instant::now();
    while server.calls_at("/hangs").len() < 20 {
        assert!(start.elapsed() < PATIENCE, "not all hang");
        thread::sleep(Duration::from_millis(10));
    }
    for _ in 0..20 {
        assert_eq!(running.ask("well")["allowed"], true);
    }
    let review = crate::harness::reviews::authorization(&json!({
        "user": "jane", "nonResourceAttributes": {"path": "/healthz", "verb": "get"},
    }));
    let authorized = running.gateway.client().post("/authorize", &review).unwrap();
    assert_eq!(authorized.status, 200);
    assert!(hanging.try_recv().is_err(), "all of them hang still");
}

#[test]
fn a_reply_to_another_question_ends_its_connection() {
    let authority = Authority::new("upstreams");
    let answers = [
        ("mistakes", Answer::from(Review::allow().with_uid("another"))),
        ("garbles", Answer::http(200, "no review")),
        ("large", Answer::http(200, vec![b' '; 100_000])),
        ("errs", Answer::http(500, "{}")),
    ];
    let webhooks = answers
        .iter()
        .fold(Webhooks::of(&authority, &[]), |webhooks, (name, answer)| {
            let answer = answer.clone();
            // Right, wrong, right on one connection after the other, where they are kept.
            let calls = AtomicUsize::default();
            webhooks.on(&format!("/{name}"), move |_| {
                match calls.fetch_add(1, Ordering::Relaxed) {
                    1 => answer.clone(),
                    _ => Review::allow().into(),
                }
            })
        });
    let server = webhooks.start();
    let entry =
        |(name, _): &(&str, Answer)| Entry::at(name, &server.url(&format!("/{name}")), &authority.pem());
    let entries: Vec<Entry> = answers.iter().map(entry).collect();
    let running = Running::start("another", &entries, json!({}), &[]);
    for (name, _) in &answers {
        let allowed: Vec<bool> = (0..4).map(|_| running.ask(name)["allowed"] == true).collect();
        assert_eq!(allowed, [true, false, true, true], "{name}");
        let calls = server.calls_at(&format!("/{name}"));
        let used: Vec<usize> = calls.iter().map(|call| call.connection).collect();
        assert!(
            used[0] == used[1] && used[1] != used[2] && used[2] == used[3],
            "{name}: {used:?}"
        );
    }
}
