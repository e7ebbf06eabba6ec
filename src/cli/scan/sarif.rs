//! Findings as SARIF 2.1.0: a rule for each policy, a result for each refusal and warning.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::finding::{ScanFinding, ScanOutcome};
use crate::cli::sarif;
use portcullis_policy::explain::authorization::object;

/// The rule of what no policy refuses, but the gateway itself.
const GATEWAY: &str = "portcullis";

/// The log of one run.
pub(crate) fn log(findings: &[ScanFinding]) -> Value {
    let policies: BTreeSet<&str> = findings.iter().map(rule_of).collect();
    let rule = |policy: &str| json!({"id": policy, "shortDescription": {"text": description(policy)}});
    sarif::log(
        policies.into_iter().map(rule).collect(),
        findings.iter().map(result).collect(),
    )
}

fn rule_of(finding: &ScanFinding) -> &str {
    match &*finding.policy {
        "" => GATEWAY,
        policy => policy,
    }
}

fn description(policy: &str) -> String {
    match policy {
        GATEWAY => "Objects that the gateway itself refuses".to_owned(),
        policy => format!("What the policy {policy} refuses"),
    }
}

fn result(finding: &ScanFinding) -> Value {
    let object = object(&finding.kind, &finding.namespace, &finding.name);
    let message = if finding.message.is_empty() {
        "is refused"
    } else {
        &finding.message
    };
    let mut location = json!({
        "logicalLocations": [{"fullyQualifiedName": object, "name": &*finding.name, "kind": "resource"}],
    });
    if let (Some(physical), Some(location)) = (
        sarif::physical_location(&finding.file, finding.line, 0),
        location.as_object_mut(),
    ) {
        location.insert("physicalLocation".to_owned(), physical);
    }
    json!({
        "ruleId": rule_of(finding),
        "level": match finding.result {
            ScanOutcome::Fail | ScanOutcome::Error => "error",
            ScanOutcome::Warn => "warning",
            ScanOutcome::Pass | ScanOutcome::Skip => "none",
        },
        "message": {"text": format!("{object}: {message}")},
        "locations": [location],
    })
}
