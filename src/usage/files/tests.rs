use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};

use super::*;
use crate::telemetry::decision_log::{CountedQuestion, LoggedQuestion, Record};
use crate::usage::{RowPlace, UsageError, UsageReader, UsageRow, read_usage};
use portcullis_policy::model::{Attributes, Decision, Target, User};

/// So many seconds after ten past an hour.
fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_700_000_400 + seconds)
}

fn counters() -> UsageCounters {
    let counter = || IntCounter::new("a", "b").unwrap();
    UsageCounters {
        dropped: counter(),
        other: counter(),
    }
}

fn writer(folder: &Path, max_age: u64, now: SystemTime) -> UsageWriter {
    let bounds = FolderBounds {
        folder: folder.join("usage"),
        max_bytes: 64 << 20,
        max_age: Duration::from_secs(max_age * HOUR_SECONDS),
    };
    UsageWriter::open(&bounds, counters(), Arc::new(AtomicUsize::new(1)), now).unwrap()
}

/// Counts that `user` asked for a path.
fn count(writer: &mut UsageWriter, user: &str, now: SystemTime) {
    let asked = Attributes {
        user: User {
            name: user.into(),
            ..User::default()
        },
        target: Target::NonResource {
            path: "/metrics".into(),
            verb: "get".into(),
        },
    };
    let record = Record {
        time: now,
        revision: "",
        cluster: "default",
        caller: "",
        question: LoggedQuestion::Authorization(&asked),
        decision: Decision::NoOpinion,
        reason: "",
        cause: None,
        near_misses: &[],
        shadow: &[],
        exceptions: &[],
        webhooks: &[],
        evaluation_error: "",
        duration: Duration::ZERO,
        redaction: None,
    };
    let (mut batch, mut text) = (UsageBatch::default(), String::new());
    let question = CountedQuestion::write(&record, &mut text);
    batch.push(question, &text);
    writer.count(&batch, now);
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder.join("usage")).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// What was read, as `user: count, first, last`.
#[derive(Default)]
struct Rows(Vec<(String, u64, String, String)>, Vec<String>);

impl UsageReader for Rows {
    type Error = UsageError;

    fn row(&mut self, row: UsageRow<'_>, _: RowPlace<'_>) -> Result<(), UsageError> {
        let texts = [row.user, row.first, row.last].map(String::from);
        let [user, first, last] = texts;
        self.0.push((user, row.count, first, last));
        Ok(())
    }

    fn broken(&mut self, place: RowPlace<'_>, why: &str) {
        self.1.push(format!("{}: {why}", place.line));
    }
}

fn read(folder: &Path) -> Rows {
    let mut rows = Rows::default();
    read_usage(&[folder.join("usage")], &mut rows).unwrap();
    rows.0.sort();
    rows
}

#[test]
fn counts_go_to_the_file_of_the_hour_once_a_minute() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), 2, at(0));
    count(&mut writer, "jane", at(0));
    assert_eq!(writer.save_due(at(59)), Duration::from_secs(1));
    assert_eq!(names(folder.path()), [""; 0]);
    writer.save_due(at(60));
    let [name] = names(folder.path()).try_into().unwrap();
    assert!(
        name.starts_with("usage-20231114T22Z-") && name.ends_with(".jsonl"),
        "{name}"
    );
    let path = folder.path().join("usage").join(&name);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder.path().join("usage")), mode(&path)), (0o700, 0o600));
    let text = fs::read_to_string(&path).unwrap();
    let header: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&header["portcullisUsage"], &header["hour"]),
        (&json!(1), &json!("2023-11-14T22:00:00Z"))
    );

    count(&mut writer, "jane", at(70));
    writer.save_due(at(130));
    assert_eq!(names(folder.path()), [name]);
    let (from, to) = ("2023-11-14T22:20:00Z", "2023-11-14T22:21:10Z");
    assert_eq!(
        read(folder.path()).0,
        [("jane".to_owned(), 2, from.to_owned(), to.to_owned())]
    );
}

#[test]
fn hours_restarts_and_replicas_are_merged_by_adding() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = writer(folder.path(), 1_000_000, at(0));
    count(&mut first, "jane", at(0));
    // The next hour begins, and the clock is set back: each has a file of its own.
    count(&mut first, "jane", at(3600));
    count(&mut first, "eve", at(10));
    drop(first);
    let mut second = writer(folder.path(), 1_000_000, at(20));
    count(&mut second, "jane", at(20));
    second.save(at(20));
    assert_eq!(names(folder.path()).len(), 4);
    let rows = read(folder.path());
    assert_eq!(rows.1, [""; 0]);
    let expected = |user: &str, count, first: &str, last: &str| {
        (user.to_owned(), count, first.to_owned(), last.to_owned())
    };
    assert_eq!(
        rows.0,
        [
            expected("eve", 1, "2023-11-14T22:20:10Z", "2023-11-14T22:20:10Z"),
            expected("jane", 3, "2023-11-14T22:20:00Z", "2023-11-14T23:20:00Z"),
        ]
    );
}

#[test]
fn old_files_go_and_others_stay() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), 2, at(0));
    fs::write(folder.path().join("usage/notes.txt"), "mine").unwrap();
    // What a killed process left beside its file.
    fs::write(folder.path().join("usage/usage-20231114T21Z-0.jsonl.new"), "{").unwrap();
    for hour in 0..4 {
        count(&mut writer, "jane", at(hour * HOUR_SECONDS));
        writer.save(at(hour * HOUR_SECONDS));
    }
    let names = names(folder.path());
    let hours: Vec<&str> = names.iter().filter_map(|name| name.get(6..18)).collect();
    assert_eq!(hours, ["20231115T00Z", "20231115T01Z"], "{names:?}");
    assert_eq!(names[0], "notes.txt");
}

#[test]
fn what_cannot_be_written_is_tried_again_and_counted_once_the_hour_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), 2, at(0));
    let usage = folder.path().join("usage");
    fs::remove_dir(&usage).unwrap();
    fs::write(&usage, "in the way").unwrap();
    count(&mut writer, "jane", at(0));
    writer.save_due(at(60));
    assert_eq!(writer.counters.dropped.get(), 0);
    fs::remove_file(&usage).unwrap();
    writer.save_due(at(120));
    assert_eq!(read(folder.path()).0.len(), 1, "the folder is there again");

    count(&mut writer, "jane", at(130));
    fs::remove_dir_all(&usage).unwrap();
    fs::write(&usage, "in the way").unwrap();
    writer.save_due(at(3600));
    assert_eq!(writer.counters.dropped.get(), 1);
}

#[test]
fn what_is_no_file_of_usage_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let usage = folder.path().join("usage");
    let read = || {
        read_usage(std::slice::from_ref(&usage), &mut Rows::default())
            .unwrap_err()
            .to_string()
    };
    fs::create_dir(&usage).unwrap();
    assert!(read().contains("there is no file of usage"), "{}", read());
    let path = usage.join("usage-20231114T22Z-0.jsonl");
    fs::write(&path, "{\"time\":\"\"}\n").unwrap();
    assert!(
        read().contains("does not contain `portcullisUsage`"),
        "{}",
        read()
    );
    fs::write(&path, "").unwrap();
    assert!(
        read().contains("does not contain `portcullisUsage`"),
        "{}",
        read()
    );
    fs::write(&path, "{\"portcullisUsage\":2}\n").unwrap();
    assert!(read().contains("newer than this program"), "{}", read());

    let header = "{\"portcullisUsage\":1}\n";
    let counts = "\"count\":2,\"first\":\"2023-11-14T22:13:20Z\",\"last\":\"2023-11-14T22:13:20Z\"";
    // In another order, as another program wrote it; no row; without its end.
    let lines = format!(
        "{{{counts},\"user\":\"jane\"}}\nno row\n{{\"user\":5,{counts}}}\n{{\"user\":\"eve\",{counts}"
    );
    fs::write(&path, format!("{header}{lines}")).unwrap();
    let mut rows = Rows::default();
    read_usage(std::slice::from_ref(&usage), &mut rows).unwrap();
    assert_eq!(rows.0.len(), 1);
    assert_eq!((rows.0[0].0.as_str(), rows.0[0].1), ("jane", 2));
    assert_eq!(rows.1.len(), 3, "{:?}", rows.1);
}
