//! Round trips: what was recorded is decided again, by the same policies and by others.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::{files, lines};
use crate::harness::authorizer::{Authorizer, says};
use crate::harness::pki::Authority;
use crate::support::client::Connection;
use crate::support::process::Process;
use crate::support::{Builder, until, v1};

pub(super) const RECORDING: &str = "{folder: recordings, redact: ['configmaps:.data']}";

/// What the program says of the recording, and its exit code.
pub(super) fn replay(folder: &Path, arguments: &[&str]) -> (Value, i32) {
    let output = run(folder, &[&["-o", "json"], arguments].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    let said = serde_json::from_str(&text);
    let said = said.unwrap_or_else(|_| panic!("{text}\n{}", output.stderr.escape_ascii()));
    (said, output.status.code().unwrap())
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_portcullis"))
        .arg("replay")
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap()
}

/// Posts a review and gives back the reply.
pub(super) fn post(connection: &mut Connection, path: &str, review: &Value) -> Value {
    let head = format!("POST {path} HTTP/1.1\r\nContent-Type: application/json");
    let response = connection.request(&head, review.to_string().as_bytes());
    assert_eq!(response.status, 200, "{}", response.body.escape_ascii());
    response.json()["response"].clone()
}

/// Has the gateway end, which writes what it has.
pub(super) fn end(mut process: Process) -> Process {
    process.signal("TERM");
    assert_eq!(process.wait().code(), Some(0));
    process
}

pub(super) fn folder(process: &Process) -> std::path::PathBuf {
    process.file("config.yaml").parent().unwrap().to_owned()
}

/// Puts `to` in place of `from` in a file of the gateway.
pub(super) fn change(process: &Process, file: &str, from: &str, to: &str) {
    let path = process.file(file);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(path, text.replace(from, to)).unwrap();
}

/// The changes, without their examples.
pub(super) fn changes(said: &Value) -> Vec<Value> {
    let mut changes = said["changes"].as_array().unwrap().clone();
    for change in &mut changes {
        change.as_object_mut().unwrap().remove("example");
    }
    changes
}

/// What a real kube-apiserver asked.
fn captured() -> Vec<Value> {
    let captures = [
        include_str!("../../captures/sar-v1.jsonl"),
        include_str!("../../captures/sar-v1beta1.jsonl"),
    ];
    let lines = captures.into_iter().flat_map(str::lines);
    let bodies = lines.map(|line| serde_json::from_str::<Value>(line).unwrap()["body"].take());
    bodies.collect()
}

#[test]
fn changed_policies_alone_change_captured_reviews() {
    let process = Builder::new()
        .manifests(include_str!("../../captures/policies.yaml"))
        .recording(RECORDING)
        .spawn();
    let mut connection = process.connect();
    let reviews = captured();
    for review in &reviews {
        assert_eq!(connection.authorize(review.to_string()).status, 200);
    }
    drop(connection);
    let process = end(process);
    let folder = folder(&process);
    let (said, code) = replay(&folder, &["--config", "config.yaml", "recordings"]);
    let all = reviews.len();
    assert_eq!(said, json!({"decided": all, "unknown": 0, "changes": []}));
    assert_eq!(code, 0);

    // A rule less, and an account locked.
    fs::copy(process.file("config.yaml"), process.file("old.yaml")).unwrap();
    fs::create_dir(process.file("new")).unwrap();
    for file in ["all.yaml", "more.yaml"] {
        fs::copy(
            process.file(&format!("policies/{file}")),
            process.file(&format!("new/{file}")),
        )
        .unwrap();
    }
    change(
        &process,
        "config.yaml",
        "manifests: [policies]",
        "manifests: [new]",
    );
    change(&process, "new/all.yaml", "name: locked}", "name: devs}");
    let (said, code) = replay(&folder, &["--config", "config.yaml", "recordings"]);
    assert_eq!(code, 1);
    let of = |reviews: &[Value]| {
        let decisions = lines(&process.file("recordings")).into_iter().zip(reviews);
        let is_dev = |review: &Value| {
            let groups = review["spec"].get("groups").or(review["spec"].get("group"));
            let path = &review["spec"]["nonResourceAttributes"]["path"];
            groups.is_some_and(|groups| groups.as_array().unwrap().contains(&json!("devs")))
                // `neverDeny` protects it.
                && path != "/version"
        };
        let changed = decisions.filter(|(line, review)| is_dev(review) && line["decision"] == "allow");
        changed.count()
    };
    let locked = of(&reviews);
    assert!(locked > 3, "{locked}");
    let change = json!({"from": "allow", "to": "deny", "cause": "AuthorizationPolicy/locked-out", "count": locked, "allowed": false});
    assert!(changes(&said).contains(&change), "{said:#}");
    let example = &said["changes"][0]["example"];
    assert_eq!(
        example["line"], 3,
        "the first line is no review, nor is the first one denied"
    );
    assert_eq!(example["request"], "list pods");
    assert!(example["now"].as_str().unwrap().contains("locked"), "{example}");

    // The same against the old configuration, by manifests alone, and for another time.
    for arguments in [
        &["--config", "config.yaml", "--baseline", "old.yaml", "recordings"][..],
        &["--manifests", "new", "--baseline", "old.yaml", "--", "recordings"],
        &[
            "--config",
            "config.yaml",
            "--at",
            "2030-01-01T00:00:00Z",
            "recordings",
        ],
    ] {
        assert_eq!(
            changes(&replay(&folder, arguments).0),
            changes(&said),
            "{arguments:?}"
        );
    }
    // Changes that are allowed do not fail.
    let allowing = |regex: &str| {
        let arguments = ["--config", "config.yaml", "--allow-changes", regex, "recordings"];
        replay(&folder, &arguments).1
    };
    assert_eq!(allowing(".->deny AuthorizationPolicy/locked-out$"), 0);
    assert_eq!(allowing("->allow"), 1);
    // For people, and for CI.
    let text = run(&folder, &["--config", "config.yaml", "recordings"]);
    let text = String::from_utf8(text.stdout).unwrap();
    let heading = format!("allow -> deny by AuthorizationPolicy/locked-out: {locked}\n");
    assert!(
        text.contains(&heading) && text.contains("alice: list pods (authorize, "),
        "{text}"
    );
    let counts = format!(
        "{} as before, ",
        all - said["changes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|change| change["count"].as_u64().unwrap())
            .sum::<u64>() as usize
    );
    assert!(text.lines().last().unwrap().starts_with(&counts), "{text}");
    let junit = run(&folder, &["-o", "junit", "--config", "config.yaml", "recordings"]);
    let junit = String::from_utf8(junit.stdout).unwrap();
    assert!(
        junit.contains("<testcase name=\"allow-&gt;deny AuthorizationPolicy/locked-out\"")
            && junit.contains("<failure message="),
        "{junit}"
    );
}

#[test]
fn authorizers_answer_as_they_did() {
    let other = Authorizer::start(&Authority::new("authorizers"), |asked| {
        let is_joe = asked.review["spec"]["user"] == "joe";
        says(asked, json!({"allowed": is_joe, "reason": "they know"}))
    });
    let entry = "{type: Webhook, name: other, webhook: {timeout: 3s, subjectAccessReviewVersion: v1, \
                 connectionInfo: {type: KubeConfigFile, kubeConfigFile: other.kubeconfig}, failurePolicy: Deny}}";
    let process = Builder::new()
        .authorization(format!("{{webhooks: [{entry}]}}"))
        .file("other.kubeconfig", other.kubeconfig("/authz"))
        .recording(RECORDING)
        .spawn();
    let mut connection = process.connect();
    for user in ["joe", "joe", "ann"] {
        let spec = json!({"user": user, "nonResourceAttributes": {"path": "/x", "verb": "get"}});
        connection.authorize(v1(&spec.to_string()));
    }
    drop(connection);
    assert_eq!(other.asked().len(), 2, "one answer was kept");
    let process = end(process);
    let folder = folder(&process);
    let again = || replay(&folder, &["--config", "config.yaml", "recordings"]);
    assert_eq!(again(), (json!({"decided": 3, "unknown": 0, "changes": []}), 0));
    assert_eq!(other.asked().len(), 2, "nobody is asked");
    change(&process, "config.yaml", "name: other", "name: another");
    assert_eq!(again().0["unknown"], 3, "of that one nothing is recorded");
    change(
        &process,
        "config.yaml",
        entry.replace("name: other", "name: another").as_str(),
        "",
    );
    let said = again().0;
    let expected =
        [json!({"from": "allow", "to": "noOpinion", "cause": "Webhook/other", "count": 2, "allowed": false})];
    assert_eq!(changes(&said), expected, "{said:#}");
}

#[test]
fn a_recording_of_a_process_that_was_killed_is_read() {
    let mut process = Builder::new().recording(RECORDING).spawn();
    let mut connection = process.connect();
    for review in captured() {
        connection.authorize(review.to_string());
    }
    until("something is written", || {
        files(&process.file("recordings"))
            .iter()
            .any(|file| fs::metadata(file).unwrap().len() > 1000)
    });
    process.signal("KILL");
    process.wait();
    let (said, code) = replay(&folder(&process), &["--config", "config.yaml", "recordings"]);
    assert!(said["decided"].as_u64().unwrap() > 0 && code == 0, "{said}");
}
