//! The schemas of `config/schemas`, by which editors complete and check: every shipped
//! configuration and suite fits them, and mistakes do not.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::json_schema::violations;
use crate::project::{self, SetUp};

fn schema(name: &str) -> Value {
    serde_json::from_str(&project::text(&project::path(&format!(
        "config/schemas/{name}.json"
    ))))
    .unwrap()
}

/// Every YAML file below a folder of the project.
fn yaml_below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            yaml_below(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            found.push(path);
        }
    }
}

/// The documents of `kind` in the project and in a fresh set-up.
fn documents(kind: &str) -> Vec<(String, Value)> {
    let set_up = SetUp::with(&["--examples"]);
    let mut files = Vec::new();
    for folder in ["config", "docs", "deploy/demo", "kubeconfig-examples", "tests"] {
        yaml_below(&project::path(folder), &mut files);
    }
    yaml_below(&set_up.path(""), &mut files);
    let mut found = Vec::new();
    for file in files {
        let text = project::text(&file);
        if !text.contains(&format!("kind: {kind}")) {
            continue;
        }
        for document in project::documents(&file) {
            let value = document.root().to_json();
            if value["kind"] == kind {
                found.push((file.display().to_string(), value));
            }
        }
    }
    found
}

fn all_fit(kind: &str, name: &str, least: usize) {
    let schema = schema(name);
    let documents = documents(kind);
    assert!(documents.len() >= least, "{}", documents.len());
    for (file, value) in documents {
        let found = violations(&schema, &value);
        assert!(found.is_empty(), "{file}: {found:?}");
    }
}

#[test]
fn every_configuration_fits_its_schema() {
    all_fit("GatewayConfiguration", "gatewayconfiguration", 6);
}

#[test]
fn every_suite_fits_its_schema() {
    all_fit("PolicyTest", "policytest", 35);
}

#[test]
fn every_custom_resource_fits_its_schema() {
    all_fit("AuthorizationPolicy", "authorizationpolicy", 5);
    all_fit("AuthorizationInvariant", "authorizationinvariant", 1);
    all_fit("AdmissionException", "admissionexception", 1);
}

#[test]
fn mistakes_do_not_fit() {
    let configuration = json!({"apiVersion": "config.portcullis.dev/v1alpha1", "kind": "GatewayConfiguration",
        "server": {"tls": {"certificate": "s.crt", "privateKey": "s.key"}}});
    let with = |key: &str, value: Value| {
        let mut wrong = configuration.clone();
        wrong[key] = value;
        violations(&schema("gatewayconfiguration"), &wrong)
    };
    assert_eq!(with("limits", json!({"inFlight": 2})), [""; 0]);
    for (key, value, said) in [
        ("limits", json!({"inflight": 2}), "$.limits.inflight: unknown key"),
        ("limits", json!({"inFlight": 0}), "$.limits.inFlight: minimum 1"),
        (
            "reload",
            json!({"pollInterval": "1 minute"}),
            "$.reload.pollInterval: pattern",
        ),
        (
            "admission",
            json!({"failurePolicy": "fail"}),
            "$.admission.failurePolicy: enum",
        ),
        ("callers", json!([{"cluster": "a"}]), "$.callers[0]: anyOf"),
        ("manifests", json!([{"cluster": "a"}]), "$.manifests[0]: anyOf"),
        ("decisionLog", json!({}), "$.decisionLog: anyOf"),
        ("kind", json!("Config"), "$.kind: const"),
    ] {
        let found = with(key, value);
        assert!(
            found.iter().any(|found| found.starts_with(said)),
            "{said}: {found:?}"
        );
    }
    let suite = json!({"apiVersion": "portcullis.dev/v1alpha1", "kind": "PolicyTest", "manifests": ["a.yaml"],
        "cases": [{"name": "a", "request": {"verb": "get"}, "expect": {"decision": "denied"}}]});
    let found = violations(&schema("policytest"), &suite);
    assert!(
        found
            .iter()
            .any(|found| found.starts_with("$.cases[0].expect.decision: enum")),
        "{found:?}"
    );
}
