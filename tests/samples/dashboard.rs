//! The dashboard for Grafana: its queries, against the metrics that there are.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use serde_json::Value;

use super::alerts::undocumented;

fn dashboard() -> Value {
    serde_json::from_str(&fs::read_to_string("deploy/grafana/portcullis.json").unwrap()).unwrap()
}

fn panels(dashboard: &Value) -> Vec<&Value> {
    dashboard["panels"].as_array().unwrap().iter().collect()
}

/// Each query with the title of its panel, as Grafana sends it for every instance.
fn queries(dashboard: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for panel in panels(dashboard) {
        let title = panel["title"].as_str().unwrap();
        let targets = panel["targets"].as_array().cloned().unwrap_or_default();
        assert!(
            panel["type"] == "row" || !targets.is_empty(),
            "{title} has no query"
        );
        for target in targets {
            let query = target["expr"]
                .as_str()
                .unwrap()
                .replace("$__rate_interval", "1m")
                .replace("$job", "portcullis")
                .replace("$instance", ".*");
            assert!(!query.contains('$'), "{title}: {query}");
            found.push((title.to_owned(), query));
        }
    }
    found
}

#[test]
fn every_panel_names_only_metrics_that_are_documented() {
    let dashboard = dashboard();
    let queries = queries(&dashboard);
    assert!(queries.len() > 30, "{}", queries.len());
    for (title, query) in &queries {
        let unknown = undocumented(query, 0);
        assert!(unknown.is_empty(), "{title}: not in docs/metrics.md: {unknown:?}");
    }
}

/// What an administrator would look for first is there.
#[test]
fn the_dashboard_shows_every_metric_of_the_gateway() {
    let dashboard = dashboard();
    let queries: String = queries(&dashboard)
        .into_iter()
        .map(|(_, query)| query + "\n")
        .collect();
    let page = fs::read_to_string("docs/metrics.md").unwrap();
    let documented: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `portcullis_"))
        .map(|rest| rest.split(['{', '`']).next().unwrap())
        .collect();
    let missing: Vec<_> = documented
        .into_iter()
        .filter(|name| !queries.contains(&format!("portcullis_{name}")))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn panels_have_their_own_place_and_number() {
    let dashboard = dashboard();
    let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels(&dashboard) {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{}", panel["title"]);
        let at = |field: &str| panel["gridPos"][field].as_u64().unwrap();
        assert!(at("x") + at("w") <= 24, "{}", panel["title"]);
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(cells.insert((x, y)), "{} covers another panel", panel["title"]);
            }
        }
    }
}

/// With promtool (Debian's package prometheus); `just alerts` requires it.
#[test]
fn prometheus_can_read_every_query() {
    let queries = queries(&dashboard());
    let rules: Vec<Value> = queries
        .iter()
        .enumerate()
        .map(|(at, (_, query))| serde_json::json!({"record": format!("query:{at}"), "expr": query}))
        .collect();
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    let groups = serde_json::json!({"groups": [{"name": "dashboard", "rules": rules}]});
    fs::write(file.path(), groups.to_string()).unwrap();
    let run = Command::new("promtool")
        .args(["check", "rules", "--lint=none"])
        .arg(file.path())
        .output();
    match run {
        Ok(run) => {
            let output = [run.stdout, run.stderr].concat();
            let output = String::from_utf8_lossy(&output);
            assert!(run.status.success(), "{output}");
            assert!(
                output.contains(&format!("{} rules found", queries.len())),
                "{output}"
            );
        }
        Err(error) => assert!(
            std::env::var_os("PORTCULLIS_REQUIRE_PROMTOOL").is_none(),
            "promtool: {error}"
        ),
    }
}
