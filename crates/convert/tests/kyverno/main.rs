//! Kyverno's own engine beside the policies that are made of its policies: generated rules and objects, one construct
//! at a time. The verdicts and the changed objects are the same, or the rule is refused.
//!
//! `just oracle-kyverno` builds the engine and runs this; `cargo test` does not.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the engine is another program"
)]

mod generated;
mod patches;
#[path = "../../../../tests/oracle/random.rs"]
#[allow(dead_code, reason = "other tests have more of it")]
mod random;
#[path = "reviews.rs"]
mod test_reviews;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use generated::{Case, Construct};
use portcullis_convert::convert;
use portcullis_policy::admission::Phase;
use portcullis_policy::authorization::NeverDeny;
use portcullis_policy::document;
use portcullis_policy::explain::LoadedPolicies;
use portcullis_policy::model::Deadline;
use random::Random;
use serde_json::{Value, json};

/// How many requests are asked about each rule.
const REQUESTS: usize = 10;

/// What becomes of a request: refused, or admitted as this object.
#[derive(Debug, PartialEq)]
enum Verdict {
    Denied,
    Admitted(Value),
}

fn loaded(objects: &[Value]) -> LoadedPolicies {
    let text = |object: &Value| {
        let mut object = object.clone();
        // What Kyverno reports is compared, whether or not it refuses.
        if object["kind"] == "ValidatingAdmissionPolicyBinding" {
            object["spec"]["validationActions"] = json!(["Deny"]);
        }
        document::to_yaml(&object)
    };
    test_reviews::loaded(&objects.iter().map(text).collect::<Vec<_>>())
}

fn ours(by: &LoadedPolicies, request: &Value) -> Verdict {
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
    let phases = &[Phase::Mutate, Phase::Validate];
    let answered = test_reviews::answered(by, phases, &review.to_string());
    let decided = answered.decided.unwrap();
    match (decided.outcome.denial, decided.object) {
        (Some(_), _) => Verdict::Denied,
        (None, Some(object)) => Verdict::Admitted(without_empty(&serde_json::from_str(&object).unwrap())),
        (None, None) => Verdict::Admitted(without_empty(&request["object"])),
    }
}

/// What the engine answers to each question.
fn theirs(questions: &[Value]) -> Vec<Value> {
    let program = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/oracle/kyverno/oracle");
    let mut child = Command::new(&program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}: run `just oracle-kyverno`", program.display()));
    let mut stdin = child.stdin.take().unwrap();
    let lines: String = questions.iter().map(|question| format!("{question}\n")).collect();
    let writer = std::thread::spawn(move || stdin.write_all(lines.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success());
    let lines = String::from_utf8(output.stdout).unwrap();
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn verdict(answer: &Value, request: &Value) -> Verdict {
    let failed = |rule: &Value| rule["status"] == "fail" || rule["status"] == "error";
    let rules = answer["rules"].as_array();
    if answer["error"].is_string() || rules.is_some_and(|rules| rules.iter().any(failed)) {
        return Verdict::Denied;
    }
    let patched = answer.get("patched").filter(|patched| !patched.is_null());
    Verdict::Admitted(without_empty(patched.unwrap_or(&request["object"])))
}

/// Maps that an API server leaves out where they are empty, and `resources`, which it always writes.
const MAPS: [&str; 6] = [
    "annotations",
    "labels",
    "limits",
    "nodeSelector",
    "requests",
    "resources",
];

/// The object without what an API server leaves out.
fn without_empty(value: &Value) -> Value {
    let is_empty = |key: &str, value: &Value| match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty() && MAPS.contains(&key),
        value => value == "" && key == "host",
    };
    match value {
        Value::Object(entries) => entries
            .iter()
            .map(|(key, value)| (key.clone(), without_empty(value)))
            .filter(|(key, value)| !is_empty(key, value))
            .collect(),
        Value::Array(items) => items.iter().map(without_empty).collect(),
        scalar => scalar.clone(),
    }
}

/// Compares about `pairs` of rules and requests of one construct.
fn compare(construct: Construct, stream: u64, pairs: usize) {
    let mut random = Random::of(stream);
    let (mut questions, mut answers, mut refused) = (Vec::new(), Vec::new(), BTreeMap::new());
    while questions.len() < pairs {
        let Case { policy, requests } = construct(&mut random, REQUESTS);
        let documents = document::parse(Some("p.yaml"), &policy.to_string()).unwrap();
        let made = convert(&documents, &NeverDeny::default(), Deadline::NEVER).unwrap();
        if let Some(refusal) = made.refusals.first() {
            *refused.entry(refusal.text.clone()).or_insert(0) += 1;
            continue;
        }
        let by = loaded(&made.objects);
        // Kyverno registers no webhook for deletions that change objects.
        let changes = policy["spec"]["rules"][0]["mutate"].is_object();
        for request in requests {
            if changes && request["operation"] == "DELETE" {
                continue;
            }
            answers.push(ours(&by, &request));
            questions.push(json!({"policy": policy, "request": request}));
        }
    }
    let theirs = theirs(&questions);
    assert_eq!(theirs.len(), questions.len());
    let (mut denied, mut ended) = (0, 0);
    let mut different = Vec::new();
    for ((question, ours), answer) in questions.iter().zip(&answers).zip(&theirs) {
        // A fault of the engine that ends its webhook's answer is no verdict.
        if answer["error"]
            .as_str()
            .is_some_and(|error| error.starts_with("panic: "))
        {
            ended += 1;
            continue;
        }
        let theirs = verdict(answer, &question["request"]);
        denied += usize::from(theirs == Verdict::Denied);
        if theirs != *ours {
            different.push(format!("{question}\nKyverno: {answer}\nours: {ours:?}"));
        }
    }
    println!(
        "{} pairs, {denied} denied, {} different, {ended} without an answer of Kyverno's; rules refused: {refused:#?}",
        questions.len(),
        different.len()
    );
    assert!(denied > 0 || questions[0]["policy"]["spec"]["rules"][0]["mutate"].is_object());
    assert!(
        different.is_empty(),
        "{}",
        different.iter().take(3).cloned().collect::<Vec<_>>().join("\n\n")
    );
}

#[test]
fn conditions_hold_as_in_kyverno() {
    compare(generated::conditions, 1, random::cases(8_000));
}

#[test]
fn patterns_match_as_in_kyverno() {
    compare(generated::patterns, 2, random::cases(6_000));
}

#[test]
fn pod_security_checks_as_in_kyverno() {
    compare(generated::pod_security, 3, random::cases(4_000));
}

#[test]
fn patches_change_as_in_kyverno() {
    compare(patches::scalars, 4, random::cases(2_000));
}

#[test]
fn json_patches_change_as_in_kyverno() {
    compare(patches::json_patches, 5, random::cases(2_000));
}

#[test]
fn lists_merge_as_in_kyverno() {
    compare(patches::merges, 6, random::cases(3_000));
}

#[test]
fn loops_change_as_in_kyverno() {
    compare(patches::loops, 7, random::cases(2_000));
}
