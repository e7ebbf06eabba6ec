//! Reviews that a real API server sent, replayed over the network.
//!
//! For each line of a capture, `NAME.expected` names the decision, the object
//! that makes it, and the question (which this test derives again, so that
//! neither file can slip past the other).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "captures/admission.rs"]
mod admission;
mod harness;

use harness::client::Client;
use harness::folder::Folder;
use harness::gateway::{Gateway, Keys, Setup};
use harness::ports;
use serde_json::Value;

const POLICIES: &str = include_str!("captures/policies.yaml");

#[test]
fn reviews_in_v1_are_decided_as_expected() {
    assert_decided(
        include_str!("captures/sar-v1.jsonl"),
        include_str!("captures/sar-v1.expected"),
    );
}

#[test]
fn reviews_in_v1beta1_are_decided_as_expected() {
    assert_decided(
        include_str!("captures/sar-v1beta1.jsonl"),
        include_str!("captures/sar-v1beta1.expected"),
    );
}

fn assert_decided(capture: &str, expectations: &str) {
    let folder = Folder::new("captures");
    let gateway = start(&folder, POLICIES);
    let reviews: Vec<Value> = capture
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let expectations: Vec<Expectation> = expectations
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(Expectation::parse)
        .collect();
    assert_eq!(
        reviews.len(),
        expectations.len(),
        "a line without expectation, or the reverse"
    );

    let mut faults = Vec::new();
    for (index, (review, expectation)) in reviews.iter().zip(&expectations).enumerate() {
        let body = &review["body"];
        assert_eq!(
            (index + 1, question(&body["spec"])),
            (expectation.line, expectation.question.to_owned())
        );
        if let Err(fault) = expectation.check(body, &ask(&gateway, review)) {
            faults.push(format!(
                "line {}, {}: {fault}",
                expectation.line, expectation.question
            ));
        }
    }
    assert!(faults.is_empty(), "{}\n{}", faults.join("\n"), gateway.tail());
}

fn start(folder: &Folder, policies: &str) -> Gateway {
    Gateway::start(&Setup {
        folder: folder.path(),
        address: ports::free(),
        keys: &Keys::new(),
        callers: Vec::new(),
        manifests: &[("policies.yaml", policies)],
        more: Value::Null,
    })
}

/// One line of an expectation file.
struct Expectation<'f> {
    line: usize,
    decision: &'f str,
    /// The object that decides; `-` for none.
    cause: &'f str,
    question: &'f str,
}

impl<'f> Expectation<'f> {
    fn parse(line: &'f str) -> Self {
        fn word(text: &str) -> (&str, &str) {
            let text = text.trim_start();
            text.split_once(' ').unwrap_or((text, ""))
        }
        let (number, rest) = word(line);
        let (decision, rest) = word(rest);
        let (cause, question) = word(rest);
        Self {
            line: number.parse().unwrap(),
            decision,
            cause,
            question: question.trim(),
        }
    }

    fn check(&self, request: &Value, reply: &Value) -> Result<(), String> {
        let status = &reply["status"];
        let decision = match (status["allowed"] == true, status["denied"] == true) {
            (true, false) => "allow",
            (false, true) => "deny",
            (false, false) => "noOpinion",
            (true, true) => "both",
        };
        let reason = status["reason"].as_str().unwrap_or_default();
        let same_kind = ["apiVersion", "kind"]
            .iter()
            .all(|key| reply[key] == request[key]);
        let named = match self.cause {
            "-" => reason.is_empty(),
            cause => reason.contains(cause),
        };
        if decision == self.decision && same_kind && named {
            return Ok(());
        }
        Err(format!(
            "expected {} by {}, got {reply}",
            self.decision, self.cause
        ))
    }
}

/// Sends the recorded body to the recorded path with the recorded headers.
fn ask(gateway: &Gateway, review: &Value) -> Value {
    ask_at(gateway, review, review["path"].as_str().unwrap())
}

fn ask_at(gateway: &Gateway, review: &Value, path: &str) -> Value {
    let mut client: Client = gateway.client();
    for (name, value) in review["headers"].as_object().unwrap() {
        // The client writes these two itself.
        if !["content-length", "content-type"].contains(&name.to_lowercase().as_str()) {
            client = client.with_header(name, value.as_str().unwrap());
        }
    }
    let response = client.post(path, &review["body"]).unwrap();
    assert_eq!(response.status, 200, "{}", response.text());
    response.json()
}

/// `alice: get pods/log p1 in kittens [field requirements] [label requirements]`
fn question(spec: &Value) -> String {
    let user = spec["user"].as_str().unwrap();
    if let Some(attributes) = spec.get("nonResourceAttributes") {
        return format!(
            "{user}: {} {}",
            text(attributes, "verb"),
            text(attributes, "path")
        );
    }
    let attributes = &spec["resourceAttributes"];
    let part = |before: &str, key: &str| match text(attributes, key) {
        "" => String::new(),
        value => format!("{before}{value}"),
    };
    let selectors = match (attributes.get("fieldSelector"), attributes.get("labelSelector")) {
        (None, None) => String::new(),
        (fields, labels) => format!(" {} {}", requirements(fields), requirements(labels)),
    };
    format!(
        "{user}:{}{}{}{}{}{}{selectors}",
        part(" ", "verb"),
        part(" ", "resource"),
        part(".", "group"),
        part("/", "subresource"),
        part(" ", "name"),
        part(" in ", "namespace"),
    )
}

fn requirements(selector: Option<&Value>) -> String {
    let list = selector
        .and_then(|selector| selector["requirements"].as_array())
        .cloned()
        .unwrap_or_default();
    let one = |requirement: &Value| {
        let values = requirement["values"].as_array().cloned().unwrap_or_default();
        let values: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
        let text = format!(
            "{} {} {}",
            text(requirement, "key"),
            text(requirement, "operator"),
            values.join("|")
        );
        text.trim_end().to_owned()
    };
    format!("[{}]", list.iter().map(one).collect::<Vec<_>>().join(", "))
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}
