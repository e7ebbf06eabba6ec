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

/// The words of `text` that name a metric of ours or of the process.
fn metrics(text: &str) -> BTreeSet<&str> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(|c: char| !is_of_name(c))
        .filter(|word| word.starts_with("portcullis_") || word.starts_with("process_"))
        .collect()
}

/// The metrics that `expressions` name and docs/metrics.md does not; they must name `least`.
pub(crate) fn undocumented(expressions: &str, least: usize) -> Vec<&str> {
    let documented = fs::read_to_string("docs/metrics.md").unwrap();
    let table: String = documented
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    let known = metrics(&table);
    let named = metrics(expressions);
    assert!(named.len() >= least, "{named:?}");
    let is_known = |name: &&str| {
        let family = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|ending| name.strip_suffix(ending));
        let is_of_process = name.starts_with("process_") && known.contains("process_");
        is_of_process || known.contains(*name) || family.is_some_and(|family| known.contains(family))
    };
    named.into_iter().filter(|name| !is_known(name)).collect()
}

#[test]
fn alert_rules_name_only_metrics_that_are_documented() {
    let rules = fs::read_to_string("deploy/prometheus/alerts.yaml").unwrap();
    let expressions: String = rules
        .lines()
        .filter(|line| !line.trim().starts_with('#'))
        .collect();
    let unknown = undocumented(&expressions, 6);
    assert!(unknown.is_empty(), "not in docs/metrics.md: {unknown:?}");
}
