//! AdmissionReviews. The expectation of a line is the whole answer in words.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::{Folder, Gateway, ask_at, start, text};

const POLICIES: &str = include_str!("admission-policies.yaml");

#[test]
fn admission_reviews_in_v1_are_answered_as_expected() {
    assert_answered(
        include_str!("admission-v1.jsonl"),
        include_str!("admission-v1.expected"),
    );
}

#[test]
fn admission_reviews_in_v1beta1_are_answered_as_expected() {
    assert_answered(
        include_str!("admission-v1beta1.jsonl"),
        include_str!("admission-v1beta1.expected"),
    );
}

fn assert_answered(capture: &str, expected: &str) {
    let folder = Folder::new("captures");
    let gateway = start(&folder, POLICIES);
    let expected: Vec<&str> = expected.lines().filter(|line| !line.starts_with('#')).collect();
    let answered: Vec<String> = capture
        .lines()
        .enumerate()
        .map(|(index, line)| answer(&gateway, index + 1, &serde_json::from_str(line).unwrap()))
        .collect();
    let differences: Vec<String> = expected
        .iter()
        .zip(&answered)
        .filter(|(expected, answered)| *expected != answered)
        .map(|(expected, answered)| format!("- {expected}\n+ {answered}\n"))
        .collect();
    assert!(differences.is_empty(), "{}", differences.concat());
    assert_eq!(expected.len(), answered.len(), "{}", answered.join("\n"));
}

/// `LINE QUESTION => ANSWER`
fn answer(gateway: &Gateway, line: usize, review: &Value) -> String {
    let (body, path) = (&review["body"], text(review, "path"));
    let path = path
        .replace("/mutating", "/mutate")
        .replace("/validating", "/validate");
    let reply = ask_at(gateway, review, &path);
    for key in ["apiVersion", "kind"] {
        assert_eq!(reply[key], body[key], "line {line}: {reply}");
    }
    assert_eq!(
        reply["response"]["uid"], body["request"]["uid"],
        "line {line}: {reply}"
    );
    let phase = path.split('?').next().unwrap_or_default().trim_start_matches('/');
    format!(
        "{line} {phase} {} => {}",
        question(&body["request"]),
        outcome(&reply["response"])
    )
}

/// `alice: UPDATE deployments.apps/scale web in kittens`
fn question(request: &Value) -> String {
    let part = |before: &str, text: &str| match text {
        "" => String::new(),
        text => format!("{before}{text}"),
    };
    let resource = &request["requestResource"];
    format!(
        "{}: {} {}{}{}{}{}",
        text(&request["userInfo"], "username"),
        text(request, "operation"),
        text(resource, "resource"),
        part(".", text(resource, "group")),
        part("/", text(request, "subResource")),
        part(" ", text(request, "name")),
        part(" in ", text(request, "namespace")),
    )
}

fn outcome(response: &Value) -> String {
    let mut parts = vec![if response["allowed"] == true {
        "allow".to_owned()
    } else {
        let status = &response["status"];
        format!("deny {} {}", status["code"], text(status, "message"))
    }];
    for warning in response["warnings"].as_array().into_iter().flatten() {
        parts.push(format!("warning {}", warning.as_str().unwrap()));
    }
    for (key, value) in response["auditAnnotations"].as_object().into_iter().flatten() {
        parts.push(format!("note {key}: {}", value.as_str().unwrap()));
    }
    if let Some(patch) = response["patch"].as_str() {
        assert_eq!(response["patchType"], "JSONPatch");
        let patch: Value = serde_json::from_slice(&STANDARD.decode(patch).unwrap()).unwrap();
        for operation in patch.as_array().unwrap() {
            let (op, path) = (text(operation, "op"), text(operation, "path"));
            parts.push(format!("{op} {path} {}", operation["value"]));
        }
    }
    parts.join("; ")
}
