//! The alert rules, against the runbook and the metrics that there are.

use std::collections::BTreeSet;
use std::fs;

fn names(text: &str, prefix: &str) -> BTreeSet<String> {
    text.lines()
        .filter_map(|line| line.trim().strip_prefix(prefix))
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_alert_has_its_section_of_the_runbook_and_a_test() {
    let rules = fs::read_to_string("deploy/prometheus/alerts.yaml").unwrap();
    let tests = fs::read_to_string("deploy/prometheus/alerts_test.yaml").unwrap();
    let runbook = names(&fs::read_to_string("docs/runbook.md").unwrap(), "## ");
    let alerts = names(&rules, "- alert: ");
    assert!(!alerts.is_empty());
    for alert in &alerts {
        assert!(
            tests.contains(&format!("alertname: {alert}\n")),
            "{alert} has no test"
        );
    }
    let sections: BTreeSet<String> = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("runbook: docs/runbook.md#"))
        .map(str::to_owned)
        .collect();
    let anchors: BTreeSet<String> = runbook.iter().map(|name| name.to_lowercase()).collect();
    assert_eq!(sections, anchors, "sections that rules name, and that there are");
}
