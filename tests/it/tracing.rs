//! Traces: the spans that a collector is sent, and what happens if it does not take them.

use std::fs;

use serde_json::json;

use crate::collector::{Collector, ReceivedSpan};
use crate::harness::authorizer::{Authorizer, says};
use crate::harness::pki::Authority;
use crate::harness::reviews::creation_of_pod;
use crate::harness::webhooks::{Review, Webhooks};
use crate::support::client::Connection;
use crate::support::{Builder, Gateway, JANE_GETS, until, v1};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";
const SERVER: i32 = 2;
const CLIENT: i32 = 3;
const ERROR: i32 = 2;

fn tracing(collector: &Collector, ratio: &str) -> String {
    format!("{{endpoint: '{}', sampleRatio: {ratio}}}", collector.endpoint())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Posts a review with this `traceparent`.
fn post(connection: &mut Connection, path: &str, traceparent: &str, body: &str) -> u16 {
    let head = format!(
        "POST {path} HTTP/1.1\r\nContent-Type: application/json\r\nAuthorization: Bearer {}\r\ntraceparent: {traceparent}",
        if path == "/authorize" {
            "right-token"
        } else {
            "admission-token"
        }
    );
    connection.request(&head, body.as_bytes()).status
}

fn sampled() -> String {
    format!("00-{TRACE}-{PARENT}-01")
}

/// What a request carries that this span is about.
fn continued(part: &ReceivedSpan) -> String {
    let (trace, span) = (hexadecimal(&part.span.trace_id), hexadecimal(&part.span.span_id));
    format!("00-{trace}-{span}-01")
}

/// The spans of the collector, once the whole of a request is there.
fn whole(collector: &Collector) -> (ReceivedSpan, Vec<ReceivedSpan>) {
    until("the spans are sent", || {
        collector.spans().iter().any(|span| span.span.kind == SERVER)
    });
    let (mut roots, parts): (Vec<_>, Vec<_>) = collector
        .spans()
        .into_iter()
        .partition(|span| span.span.kind == SERVER);
    assert_eq!(roots.len(), 1, "{roots:?}");
    (roots.remove(0), parts)
}

fn names(parts: &[ReceivedSpan]) -> Vec<&str> {
    parts.iter().map(|part| part.span.name.as_str()).collect()
}

/// Every part belongs to the whole, and lies within its time.
fn belongs(root: &ReceivedSpan, parts: &[ReceivedSpan]) {
    for part in parts {
        let (part, root) = (&part.span, &root.span);
        assert_eq!(part.trace_id, root.trace_id, "{part:?}");
        assert_eq!(part.parent_span_id, root.span_id, "{part:?}");
        assert!(part.start_time_unix_nano >= root.start_time_unix_nano, "{part:?}");
        assert!(part.end_time_unix_nano <= root.end_time_unix_nano, "{part:?}");
        assert!(part.start_time_unix_nano <= part.end_time_unix_nano, "{part:?}");
    }
}

#[test]
fn an_authorization_continues_the_caller_s_trace() {
    let collector = Collector::start();
    let other = Authorizer::start(&Authority::new("authorizers"), |asked| {
        says(asked, json!({"allowed": true}))
    });
    let authorization = "{webhooks: [{type: Webhook, name: other, webhook: {timeout: 3s, \
        subjectAccessReviewVersion: v1, failurePolicy: Deny, connectionInfo: {type: KubeConfigFile, \
        kubeConfigFile: other.kubeconfig}}}]}";
    let gateway = Builder::new()
        .authorization(authorization)
        .file("other.kubeconfig", other.kubeconfig("/authz"))
        .tracing(tracing(&collector, "0"))
        .start();
    let review = v1(r#"{"user":"joe","nonResourceAttributes":{"path":"/x","verb":"get"}}"#);
    assert_eq!(
        post(&mut gateway.connect(), "/authorize", &sampled(), &review),
        200
    );

    let (root, parts) = whole(&collector);
    assert_eq!(root.service, "portcullis");
    assert_eq!(root.span.name, "POST /authorize");
    assert_eq!(hexadecimal(&root.span.trace_id), TRACE);
    assert_eq!(hexadecimal(&root.span.parent_span_id), PARENT);
    for (key, value) in [
        ("http.response.status_code", "200"),
        ("portcullis.cluster", "default"),
        ("portcullis.decision", "allow"),
        ("portcullis.cause", "Webhook/other"),
    ] {
        assert_eq!(root.attribute(key).as_deref(), Some(value), "{root:?}");
    }
    assert_eq!(
        names(&parts),
        ["authenticate", "read", "decode", "decide", "authorizer other"]
    );
    assert_eq!(parts[4].span.kind, CLIENT);
    belongs(&root, &parts);
    let asked = other.asked();
    let header = asked[0].headers.iter().find(|(name, _)| name == "traceparent");
    assert_eq!(header.map(|(_, value)| value.clone()), Some(continued(&parts[4])));
}

#[test]
fn an_admission_shows_every_step_and_every_webhook() {
    let collector = Collector::start();
    let webhooks = Webhooks::of(&Authority::new("webhooks"), &[])
        .always("/good", Review::allow())
        .start();
    let entry = |path: &str| {
        json!({"name": format!("{}.example.com", &path[1..]), "clientConfig": webhooks.client_config(path),
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"]}],
            "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore"})
    };
    let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "hooks"},
        "webhooks": [entry("/good"), entry("/gone")]});
    let gateway = Builder::new()
        .manifests(configuration.to_string())
        .tracing(tracing(&collector, "0"))
        .start();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ns"},
        "spec": {"containers": [{"name": "c", "image": "secret-image"}]}});
    let review = creation_of_pod("ns", &pod).to_string();
    assert_eq!(
        post(&mut gateway.connect(), "/validate", &sampled(), &review),
        200
    );

    let (root, parts) = whole(&collector);
    assert_eq!(root.span.name, "POST /validate");
    assert_eq!(root.attribute("portcullis.decision").as_deref(), Some("allow"));
    let mut found = names(&parts);
    found.sort_unstable();
    // Before the webhooks and after them, and once more for each slice that took too long.
    assert!(
        found.iter().filter(|name| **name == "evaluate").count() >= 2,
        "{found:?}"
    );
    found.dedup();
    assert_eq!(
        found,
        [
            "authenticate",
            "decode",
            "evaluate",
            "read",
            "webhook hooks/gone.example.com",
            "webhook hooks/good.example.com"
        ]
    );
    belongs(&root, &parts);
    let of = |name: &str| parts.iter().find(|part| part.span.name.ends_with(name)).unwrap();
    let code = |part: &ReceivedSpan| part.span.status.as_ref().map(|status| status.code);
    assert_eq!(code(of("gone.example.com")), Some(ERROR));
    assert_ne!(code(of("good.example.com")), Some(ERROR));
    assert!(!format!("{parts:?}{root:?}").contains("secret-image"));
    let called = &webhooks.calls_at("/good")[0];
    let expected = continued(of("good.example.com"));
    assert_eq!(called.header("traceparent"), Some(expected.as_str()));
}

/// With what a webhook is called, in the order of the requests.
#[test]
fn webhooks_learn_that_the_caller_does_not_trace_and_nothing_without_tracing() {
    let collector = Collector::start();
    let webhooks = Webhooks::of(&Authority::new("webhooks"), &[])
        .always("/good", Review::allow())
        .start();
    let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "hooks"},
        "webhooks": [{"name": "good.example.com", "clientConfig": webhooks.client_config("/good"),
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"]}],
            "sideEffects": "None", "admissionReviewVersions": ["v1"]}]});
    let gateway = Builder::new()
        .manifests(configuration.to_string())
        .tracing(tracing(&collector, "0"))
        .start();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ns"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let review = creation_of_pod("ns", &pod).to_string();
    let ask = |traceparent: &str| {
        assert_eq!(
            post(&mut gateway.connect(), "/validate", traceparent, &review),
            200
        );
    };
    let unsampled = format!("00-{TRACE}-{PARENT}-00");
    ask(&unsampled);
    ask("not a traceparent");
    let config = fs::read_to_string(gateway.file("config.yaml")).unwrap();
    let without = config.lines().filter(|line| !line.starts_with("tracing:"));
    let without: Vec<&str> = without.collect();
    gateway.reload(&[("config.yaml", without.join("\n").as_bytes())]);
    ask(&sampled());
    let calls = webhooks.calls();
    let headers: Vec<_> = calls.iter().map(|call| call.header("traceparent")).collect();
    assert_eq!(headers, [Some(unsampled.as_str()), None, None]);
}

#[test]
fn a_caller_that_does_not_trace_is_not_traced_and_strangers_never_are() {
    let collector = Collector::start();
    let gateway = Builder::new().tracing(tracing(&collector, "1")).start();
    let unsampled = format!("00-{TRACE}-{PARENT}-00");
    assert_eq!(
        post(&mut gateway.connect(), "/authorize", &unsampled, &v1(JANE_GETS)),
        200
    );
    let mut stranger = gateway.stranger().connect(gateway.addresses.server);
    let head = format!(
        "POST /authorize HTTP/1.1\r\nContent-Type: application/json\r\ntraceparent: {}",
        sampled()
    );
    assert_eq!(stranger.request(&head, v1(JANE_GETS).as_bytes()).status, 401);
    // Without a header the ratio decides: the only one that is seen.
    assert_eq!(gateway.connect().authorize(v1(JANE_GETS)).status, 200);
    let (root, parts) = whole(&collector);
    assert_eq!(root.span.parent_span_id, [0; 0]);
    assert_ne!(hexadecimal(&root.span.trace_id), TRACE);
    assert_eq!(names(&parts), ["authenticate", "read", "decode", "decide"]);
    assert_eq!(
        root.attribute("portcullis.cause").as_deref(),
        Some("ClusterRoleBinding/jane-reads")
    );
}

#[test]
fn a_reload_changes_where_spans_go_and_ends_them() {
    let (first, second) = (Collector::start(), Collector::start());
    let gateway = Builder::new().tracing(tracing(&first, "1")).start();
    let config = fs::read_to_string(gateway.file("config.yaml")).unwrap();
    assert_eq!(gateway.connect().authorize(v1(JANE_GETS)).status, 200);
    whole(&first);

    let elsewhere = config.replace(&first.endpoint(), &second.endpoint());
    gateway.reload(&[("config.yaml", elsewhere.as_bytes())]);
    assert_eq!(gateway.connect().authorize(v1(JANE_GETS)).status, 200);
    whole(&second);
    whole(&first);

    let none = config.lines().filter(|line| !line.starts_with("tracing:"));
    let none: Vec<&str> = none.collect();
    gateway.reload(&[("config.yaml", none.join("\n").as_bytes())]);
    let before = second.spans().len();
    assert_eq!(
        post(&mut gateway.connect(), "/authorize", &sampled(), &v1(JANE_GETS)),
        200
    );
    gateway.reload(&[("config.yaml", elsewhere.as_bytes())]);
    assert_eq!(
        post(&mut gateway.connect(), "/authorize", &sampled(), &v1(JANE_GETS)),
        200
    );
    until("only the last is sent", || second.spans().len() > before);
    let traced = second
        .spans()
        .into_iter()
        .filter(|span| hexadecimal(&span.span.trace_id) == TRACE);
    assert_eq!(traced.filter(|span| span.span.kind == SERVER).count(), 1);
}

#[test]
fn a_collector_that_does_not_answer_delays_nobody_and_what_it_misses_is_counted() {
    let collector = Collector::start();
    collector.hold();
    let gateway = Builder::new().tracing(tracing(&collector, "1")).start();
    let dropped = || gateway.metric("portcullis_trace_spans_dropped_total");
    assert_eq!(dropped(), 0.0);
    let mut connection = gateway.connect();
    // More than wait: nobody takes any, and each request is answered all the same.
    for _ in 0..3000 {
        assert_eq!(connection.authorize(v1(JANE_GETS)).status, 200);
    }
    until("spans are dropped", || dropped() > 0.0);
    assert!(collector.spans().is_empty());
}

#[test]
fn spans_that_wait_are_sent_before_the_gateway_ends() {
    let collector = Collector::start();
    let mut gateway = Builder::new().tracing(tracing(&collector, "1")).start();
    assert_eq!(gateway.connect().authorize(v1(JANE_GETS)).status, 200);
    gateway.stop();
    gateway.join();
    assert!(collector.spans().iter().any(|span| span.span.kind == SERVER));
}

#[test]
fn a_collector_that_is_away_is_an_entry_in_the_metrics() {
    let gateway = Gateway::usual();
    assert_eq!(gateway.metric("portcullis_trace_spans_dropped_total"), 0.0);
    let away = format!("{}", crate::harness::ports::free());
    let config = fs::read_to_string(gateway.file("config.yaml")).unwrap();
    let config = format!("{config}tracing: {{endpoint: 'http://{away}', sampleRatio: 1}}\n");
    gateway.reload(&[("config.yaml", config.as_bytes())]);
    assert_eq!(gateway.connect().authorize(v1(JANE_GETS)).status, 200);
    until("the spans are dropped", || {
        gateway.metric("portcullis_trace_spans_dropped_total") >= 5.0
    });
}

fn with_logs(collector: &str, more: &str) -> String {
    format!("{{endpoint: '{collector}', sampleRatio: 0, logs: true{more}}}")
}

#[test]
fn each_decision_is_a_log_record_before_the_gateway_ends() {
    let collector = Collector::start();
    let mut gateway = Builder::new()
        .tracing(with_logs(&collector.endpoint(), ""))
        .start();
    let mut connection = gateway.connect();
    assert_eq!(connection.authorize(v1(JANE_GETS)).status, 200);
    assert_eq!(
        connection
            .authorize(v1(
                r#"{"user":"joe","nonResourceAttributes":{"path":"/x","verb":"get"}}"#
            ))
            .status,
        200
    );
    gateway.stop();
    gateway.join();
    let records = collector.records();
    assert_eq!(records.len(), 2, "{records:?}");
    for (record, (user, decision)) in records.iter().zip([("jane", "allow"), ("joe", "noOpinion")]) {
        assert_eq!(record.service, "portcullis");
        assert_eq!(record.attribute("portcullis.decision").as_deref(), Some(decision));
        let line: serde_json::Value = serde_json::from_str(record.body()).unwrap();
        assert_eq!(line["user"], user);
        assert_eq!(line["decision"], decision);
    }
    assert!(collector.spans().is_empty());
}

#[test]
fn a_spool_keeps_decisions_over_a_restart_until_the_collector_is_back() {
    let address = crate::harness::ports::free();
    let spool = tempfile::tempdir().unwrap();
    let folder = spool.path().join("records");
    let more = format!(", spool: {{folder: '{}'}}", folder.display());
    let start = || {
        Builder::new()
            .tracing(with_logs(&format!("http://{address}"), &more))
            .start()
    };
    let mut gateway = start();
    assert_eq!(gateway.connect().authorize(v1(JANE_GETS)).status, 200);
    gateway.stop();
    gateway.join();
    let collector = Collector::start_at(address.to_string().parse().unwrap());
    let gateway = start();
    until("the record is sent", || !collector.records().is_empty());
    assert!(collector.records()[0].body().contains("jane"));
    assert_eq!(gateway.metric("portcullis_log_records_dropped_total"), 0.0);
    until("its file is removed", || {
        fs::read_dir(&folder)
            .unwrap()
            .all(|entry| entry.unwrap().file_name() == "lock")
    });
}

#[test]
fn log_records_that_a_collector_rejects_are_counted_and_those_after_them_sent() {
    const INVALID_ARGUMENT: u8 = 3;
    let collector = Collector::start();
    collector.refuse_records(INVALID_ARGUMENT);
    let gateway = Builder::new()
        .tracing(with_logs(&collector.endpoint(), ""))
        .start();
    assert_eq!(gateway.connect().authorize(v1(JANE_GETS)).status, 200);
    until("the record is dropped", || {
        gateway.metric("portcullis_log_records_dropped_total") > 0.0
    });
    collector.refuse_records(0);
    assert_eq!(gateway.connect().authorize(v1(JANE_GETS)).status, 200);
    until("the next one is sent", || collector.records().len() == 1);
    assert_eq!(gateway.metric("portcullis_log_records_dropped_total"), 1.0);
}
