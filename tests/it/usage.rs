//! Counts of decisions, written by the server and read by `portcullis suggest`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::reviews::creation_of_pod;
use crate::support::{Builder, Gateway, JANE_GETS, until, v1};

/// The lines of all files, without the first of each.
fn lines(folder: &Path) -> Vec<Value> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let texts = entries.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    let texts: Vec<String> = texts.collect();
    let lines = texts.iter().flat_map(|text| text.lines().skip(1));
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The rows of `user`.
fn rows(folder: &Path, user: &str) -> Vec<Value> {
    let mut rows = lines(folder);
    rows.retain(|row| row["user"] == user);
    rows
}

fn count(rows: &[Value]) -> u64 {
    rows.iter().map(|row| row["count"].as_u64().unwrap()).sum()
}

fn end(mut gateway: Gateway) -> Gateway {
    gateway.stop();
    gateway.join();
    gateway
}

/// A review of who is not allowed anything.
fn asks(user: &str, name: &str) -> String {
    v1(JANE_GETS)
        .replace("\"jane\"", &json!(user).to_string())
        .replace("\"name\":\"p\"", &format!("\"name\":{}", json!(name)))
}

#[test]
fn decisions_are_counted_and_suggest_reads_the_counts() {
    let gateway = Builder::new().usage("{folder: usage}").start();
    let mut connection = gateway.connect();
    for _ in 0..3 {
        assert_eq!(connection.authorize(v1(JANE_GETS)).status, 200);
    }
    connection.authorize(asks("eve", "x"));
    let review = creation_of_pod(
        "ns",
        &json!({"metadata": {"name": "p"}, "data": {"k": "c2VjcmV0LXZhbHVl"}}),
    );
    let head = "POST /validate HTTP/1.1\r\nContent-Type: application/json";
    assert_eq!(
        connection.request(head, review.to_string().as_bytes()).status,
        200
    );
    let gateway = end(gateway);

    let folder = gateway.file("usage");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let file = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    assert_eq!((mode(&folder), mode(&file)), (0o700, 0o600), "the owner's alone");
    let mut jane = rows(&folder, "jane");
    jane.retain(|row| row["endpoint"] == "authorize");
    let [jane] = jane.try_into().unwrap();
    assert_eq!((&jane["count"], &jane["decision"]), (&json!(3), &json!("allow")));
    assert_eq!(
        jane["cause"],
        json!({"kind": "ClusterRoleBinding", "name": "jane-reads", "rule": 0})
    );
    let groups = jane["groupsDigest"].as_str().unwrap();
    assert!(
        lines(&folder)
            .iter()
            .any(|line| line["digest"] == groups && line["groups"].is_array())
    );
    let [eve] = rows(&folder, "eve").try_into().unwrap();
    assert_eq!(
        (&eve["decision"], &eve["cause"]),
        (&json!("noOpinion"), &Value::Null)
    );
    let admitted = lines(&folder)
        .into_iter()
        .find(|line| line["endpoint"] == "validate")
        .unwrap();
    assert_eq!(
        (
            &admitted["attributes"]["operation"],
            &admitted["attributes"]["name"]
        ),
        (&json!("CREATE"), &Value::Null)
    );
    assert!(!fs::read_to_string(file).unwrap().contains("c2VjcmV0"));

    let suggested = Command::new(env!("CARGO_BIN_EXE_portcullis"))
        .args(["suggest", "-o", "json", "--usage"])
        .arg(&folder)
        .output()
        .unwrap();
    let suggested: Value = serde_json::from_slice(&suggested.stdout).unwrap();
    assert_eq!(suggested["seen"]["decisions"], 5, "{suggested}");
    assert_eq!(
        suggested["objects"][0]["metadata"]["name"], "suggested:jane",
        "{suggested}"
    );
}

#[test]
fn replay_weighs_what_changes_by_the_counts() {
    let gateway = Builder::new()
        .usage("{folder: usage}")
        .recording("{folder: recordings}")
        .start();
    let mut connection = gateway.connect();
    for _ in 0..3 {
        connection.authorize(v1(JANE_GETS));
    }
    let review = creation_of_pod("ns", &json!({"metadata": {"name": "p"}}));
    let head = "POST /validate HTTP/1.1\r\nContent-Type: application/json";
    connection.request(head, review.to_string().as_bytes());
    let gateway = end(gateway);
    // Without what allowed her, and with what refuses each Pod.
    fs::create_dir(gateway.file("new")).unwrap();
    let policies = "apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: none}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [''], apiVersions: ['*'], operations: [CREATE], resources: [pods]}]
  validations: [{expression: 'false'}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: none}
spec: {policyName: none, validationActions: [Deny]}
";
    fs::write(gateway.file("new/all.yaml"), policies).unwrap();
    let replayed = Command::new(env!("CARGO_BIN_EXE_portcullis"))
        .current_dir(gateway.file(""))
        .args(["replay", "--manifests", "new", "--weigh", "usage", "-o", "json"])
        .args(["--", "recordings"])
        .output()
        .unwrap();
    let replayed: Value = serde_json::from_slice(&replayed.stdout).unwrap();
    let changes = replayed["changes"].as_array().unwrap().iter();
    let weights: Vec<_> = changes
        .map(|change| (&change["to"], &change["asked"]["count"]))
        .collect();
    assert_eq!(
        weights,
        [(&json!("noOpinion"), &json!(3)), (&json!("deny"), &json!(1))],
        "{replayed}"
    );
}

#[test]
fn who_asks_for_very_much_changes_nothing_of_what_is_counted_of_others() {
    let gateway = Builder::new().usage("{folder: usage, maxBytes: 64Mi}").start();
    let mut connection = gateway.connect();
    for number in 0..2_000 {
        assert_eq!(
            connection
                .authorize(asks("mallory", &format!("name-{number}")))
                .status,
            200
        );
        if number % 100 == 0 {
            connection.authorize(asks("eve", &format!("mine-{number}")));
        }
    }
    connection.authorize(asks("mallory", &"n".repeat(1 << 16)));
    connection.authorize(asks(&"u".repeat(1 << 16), "x"));
    until("they are counted", || {
        gateway.metric("portcullis_usage_other_total") > 1_000.0
    });
    assert!(gateway.metric("portcullis_usage_dropped_total") < 0.5);
    let gateway = end(gateway);
    let folder = gateway.file("usage");
    let (mallory, eve) = (rows(&folder, "mallory"), rows(&folder, "eve"));
    assert_eq!((eve.len(), count(&eve)), (20, 20));
    assert_eq!(count(&mallory), 2_001, "nothing is lost");
    assert!((100..1_000).contains(&mallory.len()), "{} rows", mallory.len());
    let total: usize = lines(&folder).iter().map(|line| line.to_string().len()).sum();
    assert!(total < 1 << 20, "{total} bytes");
}

#[test]
fn the_key_takes_effect_with_a_reload() {
    let gateway = Builder::new().start();
    let mut connection = gateway.connect();
    connection.authorize(v1(JANE_GETS));
    let without = fs::read_to_string(gateway.file("config.yaml")).unwrap();
    let with = |usage: &str| without.replace("usage: null", &format!("usage: {usage}"));
    gateway.reload(&[("config.yaml", with("{folder: usage}").as_bytes())]);
    connection.authorize(v1(JANE_GETS));
    // What was counted is written when it ends.
    gateway.reload(&[("config.yaml", with("{folder: others}").as_bytes())]);
    until("it is written", || {
        count(&rows(&gateway.file("usage"), "jane")) == 1
    });
    connection.authorize(v1(JANE_GETS));
    connection.authorize(v1(JANE_GETS));
    gateway.reload(&[("config.yaml", without.as_bytes())]);
    until("it is written", || {
        count(&rows(&gateway.file("others"), "jane")) == 2
    });
    connection.authorize(v1(JANE_GETS));

    // A folder that others may use is no good: what is in force stays.
    let open = gateway.file("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(gateway.file("config.yaml"), with("{folder: open}")).unwrap();
    gateway.reloader.trigger().reload();
    until("the reload fails", || gateway.state.last_failure().is_some());
    let faults = gateway.state.last_failure().unwrap().faults.to_string();
    assert!(
        faults.contains("usage.folder") && faults.contains("chmod 700"),
        "{faults}"
    );
    let gateway = end(gateway);
    assert_eq!(count(&rows(&gateway.file("usage"), "jane")), 1);
    assert_eq!(count(&rows(&gateway.file("others"), "jane")), 2);
}
