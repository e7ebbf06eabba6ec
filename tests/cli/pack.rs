//! `portcullis pack`, and the commands that read what it writes. With DuckDB's Python package, the queries of
//! `docs/columns.md` are run, too (`PORTCULLIS_REQUIRE_DUCKDB`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::run::Portcullis;

fn decision(minute: u32, user: &str, name: &str, decision: &str, cluster: &str) -> String {
    let mut line = json!({"time": format!("2026-11-21T{:02}:{:02}:00.000000Z", 8 + minute / 60, minute % 60),
        "revision": "8f2c41d09a7b", "cluster": cluster, "caller": "kube-apiserver", "endpoint": "authorize",
        "uid": "", "user": user, "groups": ["dev", "system:authenticated"],
        "attributes": {"verb": "get", "namespace": "shop", "group": "apps", "version": "v1",
            "resource": "deployments", "name": name}, "decision": decision, "reason": "",
        "shadow": [], "durationSeconds": 0.000001});
    if decision != "noOpinion" {
        line["cause"] = json!({"kind": "RoleBinding", "namespace": "shop", "name": "developers", "rule": 0});
    }
    format!("{line}\n")
}

/// Two clusters and three hours.
fn log() -> String {
    let lines = (0..150).map(|minute| {
        let user = ["jane", "joe", "system:serviceaccount:shop:web"][minute as usize % 3];
        let answer = if minute % 5 == 0 { "noOpinion" } else { "allow" };
        let cluster = if minute % 10 == 9 { "west" } else { "east" };
        decision(minute, user, &format!("web-{}", minute % 4), answer, cluster)
    });
    lines.collect()
}

fn parquet(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(parquet(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

#[test]
fn suggest_says_the_same_of_a_log_and_of_what_was_packed() {
    let portcullis = Portcullis::new();
    portcullis.write("decisions.log", &log());
    let packed = portcullis.run("pack decisions.log --into packed");
    assert_eq!(packed.code, 0, "{packed:?}");
    assert!(
        packed.stdout.contains("decisions.log: 150 decisions in 6 files"),
        "{packed:?}"
    );
    let of_log = portcullis.run("suggest decisions.log --cluster east -o json");
    let of_packed = portcullis.run("suggest packed --cluster east -o json");
    assert_eq!(of_packed.code, 0, "{of_packed:?}");
    let [mut log, mut packed] = [&of_log, &of_packed].map(|run| {
        let value: Value = serde_json::from_str(&run.stdout).unwrap();
        value
    });
    // Where they were read, and how the times are written.
    for value in [&mut log, &mut packed] {
        for key in ["files", "from", "to"] {
            value["seen"].as_object_mut().unwrap().remove(key);
        }
    }
    assert_eq!(log, packed);
    portcullis.write("empty/readme.txt", "");
    let none = portcullis.run("suggest empty");
    assert_eq!(none.code, 2, "{none:?}");
    assert!(
        none.stderr.contains("there is no Parquet file in `empty`"),
        "{none:?}"
    );
}

#[test]
fn packing_twice_changes_nothing_and_a_fault_leaves_nothing() {
    let portcullis = Portcullis::new();
    portcullis.write("decisions.log", &log());
    portcullis.run("pack decisions.log --into packed");
    let once = parquet(&portcullis.path("packed"));
    assert_eq!(once.len(), 6);
    portcullis.run("pack decisions.log --into packed");
    assert_eq!(parquet(&portcullis.path("packed")), once);

    portcullis.write("broken.log", &format!("{}not JSON\n{}", log(), log()));
    let run = portcullis.run("pack broken.log --into other");
    assert_eq!(run.code, 2, "{run:?}");
    assert!(
        run.stderr
            .contains("cannot pack `broken.log`, line 151: not a line of JSON"),
        "{run:?}"
    );
    assert!(run.stderr.contains("`--skip-broken` skips such lines"), "{run:?}");
    assert!(!portcullis.path("other").exists() || parquet(&portcullis.path("other")).is_empty());

    let run = portcullis.run("pack broken.log --into other --skip-broken -o json");
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(report["packed"][0]["rows"], 300, "{run:?}");
    assert_eq!(report["packed"][0]["broken"], 1, "{run:?}");
    assert!(run.stderr.contains("warning: broken.log:151"), "{run:?}");
}

#[test]
fn what_is_no_log_is_refused_with_its_place() {
    let portcullis = Portcullis::new();
    let whole = decision(0, "jane", "web", "allow", "east");
    portcullis.write("later.log", &whole.replace("\"uid\"", "\"later\""));
    portcullis.write("cut.log", &format!("{whole}{}", &whole[..40]));
    portcullis.write(
        "mixed.log",
        &format!("{whole}{{\"portcullisRecording\":1,\"program\":\"p\"}}\n"),
    );
    portcullis.write("newer.jsonl", "{\"portcullisRecording\":9,\"program\":\"p\"}\n");
    for (file, expected) in [
        ("later.log", "line 1: the member `later` is not known"),
        (
            "mixed.log",
            "line 2: a recording begins after lines of a decision log",
        ),
        ("newer.jsonl", "format 9 of recordings is newer"),
    ] {
        let run = portcullis.run(&format!("pack {file} --into packed"));
        assert_eq!(run.code, 2, "{run:?}");
        assert!(run.stderr.contains(expected), "{run:?}");
    }
    let run = portcullis.run("pack cut.log --into packed");
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stderr.contains("cut.log:2: cut off"), "{run:?}");
}

#[test]
fn a_file_that_does_not_say_its_cluster_or_is_damaged_is_refused() {
    let portcullis = Portcullis::new();
    portcullis.write("decisions.log", &log());
    portcullis.run("pack decisions.log --into packed");
    let one = &parquet(&portcullis.path("packed"))[0];
    fs::copy(one, portcullis.path("moved.parquet")).unwrap();
    let run = portcullis.run("suggest moved.parquet");
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.stderr.contains("`cluster=NAME`"), "{run:?}");

    let bytes = fs::read(one).unwrap();
    fs::write(one, &bytes[..bytes.len() - 9]).unwrap();
    let run = portcullis.run("suggest packed --cluster east");
    assert_eq!(run.code, 2, "{run:?}");
    assert!(
        run.stderr.contains("it is not a complete Parquet file"),
        "{run:?}"
    );
}

/// Each query of the page for a database.
fn queries(database: &str) -> Vec<String> {
    let page = fs::read_to_string("docs/columns.md").unwrap();
    let (_, page) = page.split_once(&format!("## {database}\n")).unwrap();
    let (page, _) = page.split_once("\n## ").unwrap();
    let blocks = page
        .split("```sql\n")
        .skip(1)
        .map(|block| block.split("```").next().unwrap());
    let queries = blocks.flat_map(|block| block.split(';')).map(str::trim);
    queries
        .filter(|query| !query.is_empty())
        .map(str::to_owned)
        .collect()
}

/// What a database answers to the queries of the page; `print` prints the answer to `query` by its Python
/// `module`. `None` where there is no such module, and `required` is not set.
fn answers(database: &str, module: &str, print: &str, required: &str) -> Option<Vec<Value>> {
    let queries = queries(database);
    assert!(queries.len() >= 2, "{queries:?}");
    let has_module = Command::new("python3")
        .args(["-c", &format!("import {module}")])
        .output();
    if !has_module.is_ok_and(|run| run.status.success()) {
        assert!(
            std::env::var_os(required).is_none(),
            "python3 has no module {module}: pip install {module}"
        );
        eprintln!("not run: python3 has no module {module}");
        return None;
    }
    let portcullis = Portcullis::new();
    portcullis.write("decisions.log", &log());
    assert_eq!(portcullis.run("pack decisions.log --into packed").code, 0);
    let program = format!(
        "import json, sys, {module}\nfor query in json.load(sys.stdin):\n    print(json.dumps({print}, default=str))\n"
    );
    portcullis.write("queries.json", &json!(queries).to_string());
    let run = Command::new("python3")
        .args(["-c", &program])
        .current_dir(portcullis.path("."))
        .stdin(fs::File::open(portcullis.path("queries.json")).unwrap())
        .output()
        .unwrap();
    let (out, error) = (
        String::from_utf8_lossy(&run.stdout),
        String::from_utf8_lossy(&run.stderr),
    );
    assert!(run.status.success(), "{error}");
    let answers: Vec<Value> = out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(answers.len(), queries.len(), "{out}");
    for (query, answer) in queries.iter().zip(&answers) {
        assert_ne!(answer, &json!([]), "{query}");
    }
    // The first counts decisions by cluster.
    let expected = json!([
        ["east", "allow", 105],
        ["east", "noOpinion", 30],
        ["west", "allow", 15]
    ]);
    assert_eq!(answers[0], expected);
    Some(answers)
}

#[test]
fn duckdb_reads_what_was_packed_by_the_queries_of_the_page() {
    let print = "duckdb.sql(query).fetchall()";
    let answers = answers("DuckDB", "duckdb", print, "PORTCULLIS_REQUIRE_DUCKDB");
    assert!(answers.is_none_or(|answers| answers.len() >= 4));
}

#[test]
fn clickhouse_reads_what_was_packed_by_the_queries_of_the_page() {
    let print = "json.loads('[' + str(chdb.query(query, 'JSONCompactEachRow')).replace('\\n', ',').rstrip(',') + ']')";
    answers("ClickHouse", "chdb", print, "PORTCULLIS_REQUIRE_CHDB");
}
