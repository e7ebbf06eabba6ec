//! Recordings, written by the server and decided again by `portcullis replay`.

mod admission;
mod replay;
mod secrets;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::reviews::creation_of_pod;
use crate::support::process::Process;
use crate::support::{Builder, Gateway, JANE_GETS, by_time, get, until, v1};

/// The files of a recording, the oldest first.
fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Everything that was recorded, without the first line of each file.
fn lines(folder: &Path) -> Vec<Value> {
    let texts = files(folder).into_iter();
    let texts: Vec<String> = texts.map(|file| fs::read_to_string(file).unwrap()).collect();
    let lines = texts.iter().flat_map(|text| text.lines().skip(1));
    by_time(lines.map(|line| serde_json::from_str(line).unwrap()).collect())
}

/// The lines, once there are so many.
fn recorded(gateway: &Gateway, count: usize) -> Vec<Value> {
    let folder = gateway.file("recordings");
    let whole = |file: &PathBuf| fs::read_to_string(file).unwrap().ends_with('\n');
    until("the reviews are recorded", || {
        files(&folder).iter().all(whole) && lines(&folder).len() == count
    });
    lines(&folder)
}

#[test]
fn a_review_is_recorded_as_it_came_with_its_answer() {
    let gateway = Builder::new().recording("{folder: recordings}").start();
    let review = v1(JANE_GETS);
    // An API server ends its bodies with a line break, and may write more of them.
    let body = format!("{}\n", review.replacen(",", ",\n  ", 1));
    gateway.connect().authorize(&body);
    let line = recorded(&gateway, 1).remove(0);
    let revision = gateway.state.current().revision.to_string();
    assert_eq!(
        line["review"],
        serde_json::from_str::<Value>(&review).unwrap(),
        "{line}"
    );
    for (field, expected) in [
        ("endpoint", json!("authorize")),
        ("cluster", json!("default")),
        ("caller", json!("kube-apiserver")),
        ("revision", json!(revision)),
        ("decision", json!("allow")),
        (
            "cause",
            json!({"kind": "ClusterRoleBinding", "name": "jane-reads", "rule": 0}),
        ),
    ] {
        assert_eq!(line[field], expected, "{field} of {line}");
    }
    assert!(line["reason"].as_str().unwrap().contains("jane-reads"), "{line}");
    assert!(line["time"].as_str().unwrap().ends_with('Z'), "{line}");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let folder = gateway.file("recordings");
    assert_eq!(
        (mode(&folder), mode(&files(&folder)[0])),
        (0o700, 0o600),
        "the owner's alone"
    );
}

#[test]
fn what_is_no_review_is_not_recorded_and_nothing_is_lost() {
    let gateway = Builder::new().recording("{folder: recordings}").start();
    let mut connection = gateway.connect();
    assert_eq!(connection.authorize("{").status, 400);
    connection.authorize(v1(JANE_GETS));
    assert_eq!(recorded(&gateway, 1).len(), 1);
    assert!(gateway.metric("portcullis_recording_dropped_total") < 0.5);
}

#[test]
fn the_key_takes_effect_with_a_reload() {
    let gateway = Builder::new().start();
    let mut connection = gateway.connect();
    connection.authorize(v1(JANE_GETS));
    assert!(!gateway.file("recordings").exists());

    let without = fs::read_to_string(gateway.file("config.yaml")).unwrap();
    let with = |recording: &str| without.replace("recording: null", &format!("recording: {recording}"));
    gateway.reload(&[("config.yaml", with("{folder: recordings}").as_bytes())]);
    connection.authorize(v1(JANE_GETS));
    recorded(&gateway, 1);

    // Elsewhere, then nowhere.
    gateway.reload(&[("config.yaml", with("{folder: others}").as_bytes())]);
    connection.authorize(v1(JANE_GETS));
    until("it is recorded elsewhere", || {
        lines(&gateway.file("others")).len() == 1
    });
    gateway.reload(&[("config.yaml", without.as_bytes())]);
    connection.authorize(v1(JANE_GETS));
    assert_eq!(recorded(&gateway, 1).len(), 1);
    assert_eq!(lines(&gateway.file("others")).len(), 1);

    // A folder that others may use is no good: what is in force stays.
    let open = gateway.file("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(gateway.file("config.yaml"), with("{folder: open}")).unwrap();
    gateway.reloader.trigger().reload();
    until("the reload fails", || gateway.state.last_failure().is_some());
    let faults = gateway.state.last_failure().unwrap().faults.to_string();
    assert!(
        faults.contains("recording.folder") && faults.contains("chmod 700"),
        "{faults}"
    );
}

const DROPPED: &str = "portcullis_recording_dropped_total";

/// How many reviews a program has dropped.
fn dropped(process: &Process) -> u64 {
    let (_, metrics) = get(process.admin, "/metrics");
    let count = metrics.lines().find_map(|line| line.strip_prefix(DROPPED));
    count.map_or(0, |count| count.trim().parse().unwrap())
}

#[test]
fn a_full_disk_gets_no_empty_files_and_what_is_lost_is_counted() {
    let process = Builder::new()
        .recording("{folder: recordings}")
        .spawn_on_full_disk();
    for count in 1..=20 {
        assert_eq!(process.connect().authorize(v1(JANE_GETS)).status, 200);
        until("it is dropped", || dropped(&process) == count);
        let folder = process.file("recordings");
        assert_eq!(files(&folder), Vec::<PathBuf>::new());
    }
}

#[test]
fn what_goes_to_a_folder_that_was_removed_is_counted() {
    let process = Builder::new().recording("{folder: recordings}").spawn();
    let folder = process.file("recordings");
    process.connect().authorize(v1(JANE_GETS));
    until("it is recorded", || lines(&folder).len() == 1);
    fs::remove_dir_all(&folder).unwrap();
    for count in 1..=5 {
        assert_eq!(process.connect().authorize(v1(JANE_GETS)).status, 200);
        until("it is dropped", || dropped(&process) == count);
    }
    fs::create_dir(&folder).unwrap();
    process.connect().authorize(v1(JANE_GETS));
    until("it is recorded", || lines(&folder).len() == 1);
    assert_eq!(dropped(&process), 5);
}

/// A path for each nested value would take gigabytes.
#[test]
fn an_object_that_nests_deep_is_recorded_in_little_memory() {
    let process = Builder::new().recording("{folder: recordings}").spawn();
    let object = |levels: usize| {
        let (open, close) = (r#"{"kind":"Secret","data":"#.repeat(levels), "}".repeat(levels));
        format!(
            r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"p"}},"spec":{open}"hidden-value"{close}}}"#
        )
    };
    let review = |levels| {
        creation_of_pod("ns", &json!("OBJECT"))
            .to_string()
            .replace("\"OBJECT\"", &object(levels))
    };
    let mut connection = process.connect();
    let mut post = |levels| {
        let head = "POST /validate HTTP/1.1\r\nContent-Type: application/json";
        connection.request(head, review(levels).as_bytes()).status
    };
    assert_eq!(post(1), 200);
    let folder = process.file("recordings");
    until("it is recorded", || lines(&folder).len() == 1);
    let before = process.peak_memory();
    for _ in 0..5 {
        assert_eq!(post(9_900), 200);
    }
    until("they are recorded", || {
        let texts = files(&folder)
            .into_iter()
            .map(|file| fs::read_to_string(file).unwrap());
        texts.map(|text| text.lines().count() - 1).sum::<usize>() == 6
    });
    let text = fs::read_to_string(&files(&folder)[0]).unwrap();
    assert!(!text.contains("hidden-value"));
    assert!(
        process.peak_memory() < before + 64,
        "{} to {} MiB",
        before,
        process.peak_memory()
    );
}

#[test]
fn decisions_and_reviews_are_written_as_columns_from_a_reload_to_the_next() {
    let gateway = Builder::new().recording("{folder: recordings}").start();
    let before = fs::read_to_string(gateway.file("config.yaml")).unwrap();
    let columns = before
        .replace("{path: decisions.log}", "{format: parquet, folder: decisions}")
        .replace("{folder: recordings}", "{folder: packed, format: parquet}");
    gateway.reload(&[("config.yaml", columns.as_bytes())]);
    let mut connection = gateway.connect();
    for _ in 0..3 {
        assert_eq!(connection.authorize(v1(JANE_GETS)).status, 200);
    }
    connection.authorize(v1(JANE_GETS).replace("\"jane\"", "\"eve\""));
    gateway.reload(&[("config.yaml", before.as_bytes())]);
    let packed = |name: &str| {
        let mut found = Vec::new();
        let mut folders = vec![gateway.file(name)];
        while let Some(folder) = folders.pop() {
            for path in files(&folder) {
                if path.is_dir() {
                    folders.push(path);
                } else {
                    found.push(path);
                }
            }
        }
        found.retain(|path| path.extension().is_some_and(|ending| ending == "parquet"));
        found
    };
    until("what waits is written", || {
        !packed("decisions").is_empty() && !packed("packed").is_empty()
    });
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (mode(&gateway.file("decisions")), mode(&packed("decisions")[0])),
        (0o700, 0o600)
    );
    let said = |arguments: &[&str], folder: &str| -> Value {
        let run = Command::new(env!("CARGO_BIN_EXE_portcullis"))
            .args(arguments)
            .args(["-o", "json"])
            .arg(gateway.file(folder))
            .output()
            .unwrap();
        serde_json::from_slice(&run.stdout).unwrap_or_else(|_| panic!("{run:?}"))
    };
    let suggested = said(&["suggest"], "decisions");
    assert_eq!(
        (&suggested["seen"]["lines"], &suggested["seen"]["allowed"]),
        (&json!(4), &json!(3))
    );
    let policies = gateway.file("policies").display().to_string();
    let replayed = said(&["replay", "--manifests", &policies], "packed");
    assert_eq!(
        (&replayed["decided"], &replayed["changes"]),
        (&json!(4), &json!([])),
        "{replayed}"
    );
}

/// A file of lines is opened at the start alone: until then decisions are written as columns.
#[test]
fn no_decision_is_lost_where_a_reload_asks_for_lines() {
    let builder = Builder::new().decision_log("{format: parquet, folder: decisions}");
    let mut process = builder.spawn();
    let config = fs::read_to_string(process.file("config.yaml")).unwrap();
    let lines = config.replace("{format: parquet, folder: decisions}", "{path: decisions.log}");
    fs::write(process.file("config.yaml"), lines).unwrap();
    process.signal("HUP");
    until("the reload is reported", || {
        process.log().contains("takes effect at the next start")
    });
    assert_eq!(process.connect().authorize(v1(JANE_GETS)).status, 200);
    process.signal("TERM");
    assert!(process.wait().success());
    let cluster = files(&process.file("decisions")).pop().unwrap();
    let hour = files(&files(&cluster)[0]).pop().unwrap();
    assert_eq!(files(&hour).len(), 1);
}
