//! Lines, and what becomes of them when nobody writes.

use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use serde_json::{Value, json};

use super::*;
use crate::json_schema;
use portcullis_policy::admission::FailurePolicy;
use portcullis_policy::admission::Reinvocation;
use portcullis_policy::admission::matching::Constraints;
use portcullis_policy::admission::webhook::{ClientConfig, Verdict, Webhook, WebhookResult, WebhookTarget};
use portcullis_policy::authorization::{Criterion, Finding, TraceEntry};
use portcullis_policy::model::{
    Attributes, Cause, CauseKind, Decision, Operator, Requirement, ResourceAttributes, Selectors, Target,
    User,
};

const LONG: Duration = Duration::from_secs(30);

/// A sink that tells what it is given, and waits for leave before each write.
struct LineSink {
    leave: Receiver<io::Result<()>>,
    reported: Sender<Vec<u8>>,
}

impl Write for LineSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.leave.recv().unwrap_or(Ok(()))?;
        self.reported.send(bytes.to_vec()).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn counter() -> IntCounter {
    IntCounter::new("dropped", "lines").unwrap()
}

fn gated(limit: usize) -> (DecisionLog, IntCounter, Sender<io::Result<()>>, Receiver<Vec<u8>>) {
    let (give, leave) = mpsc::channel();
    let (reported, receive) = mpsc::channel();
    let dropped = counter();
    let log = DecisionLog::start(
        Box::new(LineSink { leave, reported }),
        || Err(io::ErrorKind::NotFound.into()),
        dropped.clone(),
        limit,
    )
    .unwrap();
    (log, dropped, give, receive)
}

fn mk_attributes() -> Attributes<'static> {
    Attributes {
        user: User {
            name: "jane".into(),
            uid: "u-1".into(),
            groups: vec!["devs".into()],
            ..User::default()
        },
        target: Target::NonResource {
            path: "/healthz".into(),
            verb: "get".into(),
        },
    }
}

fn mk_record<'a>(attributes: &'a Attributes<'a>) -> Record<'a> {
    Record {
        time: std::time::SystemTime::UNIX_EPOCH + Duration::new(1_700_000_000, 1_234_000),
        revision: "abc",
        cluster: "default",
        caller: "kube-apiserver",
        question: LoggedQuestion::Authorization(attributes),
        decision: Decision::NoOpinion,
        reason: "no rule names jane",
        cause: None,
        near_misses: &[],
        shadow: &[],
        exceptions: &[],
        webhooks: &[],
        evaluation_error: "",
        duration: Duration::from_nanos(812),
        redaction: None,
    }
}

fn line(record: &Record<'_>) -> String {
    let mut line = String::new();
    record.with_line(|made| line.push_str(str::from_utf8(made.whole()).unwrap()));
    let schema = include_str!("../../../config/schemas/decision-log.json");
    let value = serde_json::from_str(&line).unwrap();
    let violations = json_schema::violations(&serde_json::from_str(schema).unwrap(), &value);
    assert!(violations.is_empty(), "{line}: {violations:?}");
    line
}

#[test]
fn a_line_has_the_names_of_the_contract() {
    assert_eq!(
        line(&mk_record(&mk_attributes())),
        concat!(
            r#"{"time":"2023-11-14T22:13:20.001234Z","revision":"abc","cluster":"default","#,
            r#""caller":"kube-apiserver","endpoint":"authorize","uid":"u-1","user":"jane","groups":["devs"],"#,
            r#""attributes":{"path":"/healthz","verb":"get"},"decision":"noOpinion","#,
            r#""reason":"no rule names jane","shadow":[],"durationSeconds":0.000000812}"#,
            "\n"
        )
    );
}

#[test]
fn each_line_has_its_own_time_and_duration() {
    let attributes = mk_attributes();
    let of = |seconds, micros: u32, duration| {
        let record = Record {
            time: UNIX_EPOCH + Duration::new(seconds, micros * 1000),
            duration,
            ..mk_record(&attributes)
        };
        let line: Value = serde_json::from_str(&line(&record)).unwrap();
        (
            line["time"].as_str().unwrap().to_owned(),
            line["durationSeconds"].to_string(),
        )
    };
    let expected = |time: &str, duration: &str| (time.to_owned(), duration.to_owned());
    let (short, long) = (Duration::from_nanos(1_000_000), Duration::new(12, 500_000_000));
    for _ in 0..2 {
        assert_eq!(of(1, 5, short), expected("1970-01-01T00:00:01.000005Z", "0.001"));
        assert_eq!(
            of(1, 999_999, long),
            expected("1970-01-01T00:00:01.999999Z", "12.5")
        );
        assert_eq!(
            of(1_709_164_800, 0, long),
            expected("2024-02-29T00:00:00.000000Z", "12.5")
        );
    }
}

#[test]
fn selectors_extra_cause_and_shadow_are_in_it() {
    let requirement = Requirement {
        key: "spec.nodeName".into(),
        operator: Operator::In,
        values: vec!["n1".into()],
    };
    let label = Requirement {
        key: "a".into(),
        operator: Operator::Unknown("Fuzzy".into()),
        values: vec![],
    };
    let mut attributes = mk_attributes();
    attributes.user.extra = vec![
        ("scopes".into(), vec!["x".into(), "y\n".into()]),
        ("empty".into(), vec![]),
    ];
    attributes.target = Target::Resource(Box::new(ResourceAttributes {
        verb: "list".into(),
        resource: "pods".into(),
        selectors: Selectors {
            field: vec![requirement],
            label: vec![label],
        },
        ..ResourceAttributes::default()
    }));
    let cause = Cause {
        kind: CauseKind::RoleBinding,
        namespace: "ns".into(),
        name: "b".into(),
        rule: Some(2),
    };
    let trial = ShadowDecision {
        kind: "AuthorizationPolicy",
        name: "trial",
        decision: Decision::Deny,
        reason: "",
    };
    let erring = ShadowDecision {
        name: "erring",
        reason: "condition `c`: no such key",
        ..trial
    };
    let shadow = [trial, erring];
    let record = Record {
        decision: Decision::Allow,
        cause: Some(&cause),
        shadow: &shadow,
        evaluation_error: "",
        ..mk_record(&attributes)
    };
    let line: Value = serde_json::from_str(&line(&record)).unwrap();
    assert_eq!(
        line["attributes"],
        json!({"verb": "list", "resource": "pods",
            "fieldSelector": {"requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["n1"]}]},
            "labelSelector": {"requirements": [{"key": "a", "operator": "Fuzzy"}]},
            "extra": {"scopes": ["x", "y\n"], "empty": []}})
    );
    assert_eq!(
        line["cause"],
        json!({"kind": "RoleBinding", "namespace": "ns", "name": "b", "rule": 2})
    );
    assert_eq!(
        line["shadow"],
        json!([
            {"kind": "AuthorizationPolicy", "name": "trial", "decision": "deny"},
            {"kind": "AuthorizationPolicy", "name": "erring", "decision": "deny",
             "reason": "condition `c`: no such key"}
        ])
    );
    assert!(line.get("truncated").is_none());
}

fn mk_result(verdict: Verdict, changed: &[&str], took: Option<Duration>) -> WebhookResult {
    let webhook = Webhook {
        configuration: "trial".to_owned(),
        name: "labels.example.com".to_owned(),
        client: ClientConfig {
            target: WebhookTarget::Url("https://hooks.example.com".to_owned()),
            ca_bundle: Vec::new(),
        },
        constraints: Constraints::default(),
        match_conditions: Vec::new(),
        failure_policy: FailurePolicy::Ignore,
        timeout: LONG,
        side_effects: None,
        version: None,
        reinvocation: Reinvocation::Never,
    };
    WebhookResult {
        webhook: Arc::new(webhook),
        round: 1,
        index: 0,
        verdict,
        changed: changed.iter().map(|&path| path.to_owned()).collect(),
        took,
    }
}

#[test]
fn webhooks_are_told_with_what_they_said_and_changed() {
    let message = || "unreachable".to_owned();
    let failed = |is_ignored| Verdict::Failed {
        message: message(),
        is_ignored,
    };
    let (attributes, took) = (mk_attributes(), Some(Duration::from_millis(12)));
    let results = [
        mk_result(Verdict::Allowed, &["/metadata/labels/a", "/spec"], took),
        mk_result(Verdict::Denied(message()), &[], took),
        mk_result(failed(false), &[], None),
        mk_result(failed(true), &[], None),
    ];
    let record = Record {
        webhooks: &results,
        ..mk_record(&attributes)
    };
    let line: Value = serde_json::from_str(&line(&record)).unwrap();
    let reported = |decision: &str| {
        json!({"configuration": "trial", "webhook": "labels.example.com", "round": 1,
            "decision": decision, "reason": "unreachable", "changed": []})
    };
    let mut denied = reported("deny");
    denied["durationSeconds"] = json!(0.012);
    assert_eq!(
        line["webhooks"],
        json!([
            {"configuration": "trial", "webhook": "labels.example.com", "round": 1, "decision": "allow",
                "changed": ["/metadata/labels/a", "/spec"], "durationSeconds": 0.012},
            denied, reported("error"), reported("ignored"),
        ])
    );
}

#[test]
fn what_a_user_makes_long_is_cut_and_said_so() {
    let mut attributes = mk_attributes();
    attributes.target = Target::NonResource {
        path: format!("/{}", "é".repeat(1 << 20)).into(),
        verb: "get".into(),
    };
    attributes.user.groups = vec!["0123456789".into(); 1 << 17];
    let text = line(&mk_record(&attributes));
    assert!(text.len() < 64 << 10, "{}", text.len());
    let line: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&line["truncated"], &line["user"]),
        (&json!(true), &json!("jane"))
    );
    assert!(line["attributes"]["path"].as_str().unwrap().ends_with("é…"));
}

#[test]
fn a_full_queue_drops_counts_and_never_waits() {
    let attributes = mk_attributes();
    let record = mk_record(&attributes);
    let length = line(&record).len();
    // Half of it is for workers that need more than their own part: both together are six to nine lines.
    let (log, dropped, give, receive) = gated(12 * length);
    log.record(&record);
    // One to nine lines are in the hands of the writer, which cannot finish; six to nine wait.
    for _ in 0..30 {
        log.record(&record);
    }
    assert!((13..=24).contains(&dropped.get()), "{}", dropped.get());
    assert!(!log.flush(Duration::from_millis(1)));
    drop(give);
    assert!(log.flush(LONG));
    let lines: usize = receive
        .try_iter()
        .map(|bytes| bytes.iter().filter(|byte| **byte == b'\n').count())
        .sum();
    assert_eq!(lines as u64 + dropped.get(), 31);
}

#[test]
fn lines_that_cannot_be_written_count_as_dropped() {
    let attributes = mk_attributes();
    let (log, dropped, give, receive) = gated(MAX_PENDING_BYTES);
    give.send(Err(io::Error::other("full"))).unwrap();
    log.record(&mk_record(&attributes));
    assert!(log.flush(LONG));
    assert_eq!(dropped.get(), 1);
    drop(give);
    log.record(&mk_record(&attributes));
    assert!(log.flush(LONG));
    let written: Vec<u8> = receive.try_iter().flatten().collect();
    assert_eq!(
        String::from_utf8(written).unwrap(),
        format!("\n{}", line(&mk_record(&attributes)))
    );
}

#[test]
fn a_file_is_appended_to_and_opened_anew_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    let (path, moved) = (folder.path().join("log"), folder.path().join("log.1"));
    std::fs::write(&path, "before\n").unwrap();
    let attributes = mk_attributes();
    let log = DecisionLog::open(Destination::File(path.clone()), counter()).unwrap();
    log.record(&mk_record(&attributes));
    assert!(log.flush(LONG));
    std::fs::rename(&path, &moved).unwrap();
    log.reopen();
    log.record(&mk_record(&attributes));
    assert!(log.flush(LONG));
    let line = line(&mk_record(&attributes));
    assert_eq!(
        std::fs::read_to_string(&moved).unwrap(),
        format!("before\n{line}")
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), line);
}

#[test]
fn a_file_that_cannot_be_opened_is_an_error_at_once() {
    let folder = tempfile::tempdir().unwrap();
    DecisionLog::open(Destination::File(folder.path().join("none/log")), counter()).unwrap_err();
}

#[test]
fn near_misses_name_the_rule_and_its_field() {
    let miss = |namespace: &str, rule| TraceEntry {
        kind: CauseKind::RoleBinding,
        namespace: namespace.to_owned(),
        name: "b".to_owned(),
        effect: None,
        mode: None,
        role: Some("Role/r".to_owned()),
        finding: Finding::NoMatch {
            rule,
            criterion: Criterion::Verbs,
        },
    };
    let attributes = mk_attributes();
    let record = Record {
        near_misses: &[miss("ns", Some(2)), miss("", None)],
        ..mk_record(&attributes)
    };
    let line: Value = serde_json::from_str(&line(&record)).unwrap();
    assert_eq!(
        line["nearMisses"],
        json!([
            {"kind": "RoleBinding", "namespace": "ns", "name": "b", "rule": 2, "criterion": "verbs"},
            {"kind": "RoleBinding", "name": "b", "criterion": "verbs"},
        ])
    );
}
