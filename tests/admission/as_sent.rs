//! What is judged as it was sent: its depth and its bytes.

use super::mutation::mk_mutation;
use super::*;

const GUARD: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: p}
spec:
  matchConstraints: {resourceRules: [{apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*']}]}
  validations:
  - expression: 'EXPRESSION'
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: p}
spec: {policyName: p, validationActions: [Deny]}
";

fn guard(expression: &str) -> Arc<AdmissionSet> {
    mk_set(&GUARD.replace("EXPRESSION", &expression.replace('\'', "''")))
}

/// A review about objects of which nothing but the bytes is known.
fn mk_bytes(object: &[u8], old: &[u8]) -> Vec<u8> {
    let review = mk_review(&json!("OBJECT")).to_string();
    let review = review.replace("\"oldObject\":null", "\"oldObject\":\"OLD\"");
    let mut bytes = Vec::new();
    let (before, rest) = review.split_once("\"OBJECT\"").unwrap();
    let (between, after) = rest.split_once("\"OLD\"").unwrap();
    for part in [
        before.as_bytes(),
        object,
        between.as_bytes(),
        old,
        after.as_bytes(),
    ] {
        bytes.extend_from_slice(part);
    }
    bytes
}

/// The outcome, and the patch that the reply carries.
fn judged(phase: Phase, set: &AdmissionSet, body: &[u8]) -> (Outcome, Vec<u8>) {
    let document = Document::parse_bytes(body).unwrap();
    let review = AdmissionReview::decode(&document).unwrap();
    let access = PolicySet::default();
    let run = RunOptions::new(&access, Time::UNIX_EPOCH);
    let outcome = Chain::run(phase, set, &review.request, run, &mut fail_every_call);
    let reply: Value = serde_json::from_slice(&review.reply(&outcome)).unwrap();
    let patch = reply
        .pointer("/response/patch")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let patch = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, patch).unwrap();
    (outcome, patch)
}

/// What is sent nests deep, the stack of a thread does not.
fn on_a_small_stack(work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(256 << 10);
    thread.spawn(work).unwrap().join().unwrap();
}

/// A ConfigMap of which a field that no API server checks nests so deep.
fn deep(levels: usize, innermost: &str) -> Vec<u8> {
    let pairs = levels / 2;
    let (open, close) = (r#"{"a":["#.repeat(pairs), "]}".repeat(pairs));
    format!(r#"{{"metadata":{{"name":"c"}},"data":{{"a":"b"}},"free":{open}{innermost}{close}}}"#)
        .into_bytes()
}

#[test]
fn ten_thousand_levels_are_evaluated_on_a_small_stack() {
    // The compiler of expressions has the stack of a whole thread.
    let sets = [
        ("object == oldObject", true),
        ("object.free != oldObject.free", false),
        ("object.free in [oldObject.free]", true),
        ("[object.free, oldObject.free].distinct().size() == 1", true),
        ("dyn(object.free.a).flatten(100000).size() == 1", true),
        ("\"%s\".format([object.data]) == '{\"a\":\"b\"}'", true),
    ]
    .map(|(expression, holds)| (expression, guard(expression), holds));
    let mutating = mk_set(&mk_mutation(
        "m",
        "Never",
        "[JSONPatch{op: 'add', path: '/data/c', value: 'd'}]",
    ));
    on_a_small_stack(move || {
        let body = mk_bytes(&deep(9_996, "1"), &deep(9_996, "1"));
        for (expression, set, holds) in &sets {
            let (outcome, _) = judged(Phase::Validate, set, &body);
            assert_eq!(
                outcome.denial.is_none(),
                *holds,
                "{expression}: {:?}",
                outcome.denial
            );
        }
        let (outcome, patch) = judged(Phase::Mutate, &mutating, &body);
        assert_eq!(outcome.denial, None);
        assert_eq!(patch, br#"[{"op":"add","path":"/data/c","value":"d"}]"#);
    });
}

#[test]
fn what_nests_deeper_than_format_writes_is_an_error() {
    let set = guard("\"%s\".format([object.free]) == ''");
    let (outcome, _) = judged(Phase::Validate, &set, &mk_bytes(&deep(9_996, "1"), b"null"));
    assert!(
        message(&outcome).contains("nests too deep"),
        "{}",
        message(&outcome)
    );
}

#[test]
fn objects_nested_deeper_than_go_accepts_are_refused() {
    let body = |levels| mk_bytes(&deep(levels, "1"), b"null");
    // One level is the object itself, and the envelope has two.
    assert!(Document::parse_bytes(&body(9_998)).is_ok());
    assert!(Document::parse_bytes(&body(10_000)).is_err());
}

#[test]
fn invalid_utf_8_is_read_as_in_go_and_left_unchanged_by_patches() {
    let object = b"{\"metadata\":{\"name\":\"c\"},\"data\":{\"a\":\"x\xff\xfey\",\"b\":\"\xe2\x82\"}}";
    let body = mk_bytes(object, b"null");
    for (expression, holds) in [
        ("object.data.a == 'x\\ufffd\\ufffdy'", true),
        ("object.data.a.size() == 4", true),
        ("object.data.b == '\\ufffd\\ufffd'", true),
        ("object.data.a == 'xy'", false),
    ] {
        let (outcome, _) = judged(Phase::Validate, &guard(expression), &body);
        assert_eq!(
            outcome.denial.is_none(),
            holds,
            "{expression}: {:?}",
            outcome.denial
        );
    }
    let (outcome, patch) = judged(
        Phase::Mutate,
        &mk_set(&mk_mutation(
            "m",
            "Never",
            "[JSONPatch{op: 'copy', from: '/data/a', path: '/data/c'}]",
        )),
        &body,
    );
    assert_eq!(outcome.denial, None);
    assert_eq!(
        patch,
        b"[{\"op\":\"add\",\"path\":\"/data/c\",\"value\":\"x\xff\xfey\"}]"
    );
    assert!(Document::parse_bytes(&mk_bytes(b"{\"a\":\xff}", b"null")).is_err());
}
