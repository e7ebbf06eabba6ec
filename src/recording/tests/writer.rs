use std::fs;
use std::path::Path;

use crate::config::Endpoint;
use crate::recording::*;
use crate::recording::{RecordedBody, RecordedDecision};
use portcullis_policy::model::Decision;

fn writer(folder: &Path) -> RecordingWriter {
    let settings = config::RecordingSettings {
        files: config::FolderBounds {
            folder: folder.join("recordings"),
            max_bytes: 1 << 20,
            max_age: Duration::from_secs(3600),
        },
        format: config::FileFormat::Json,
        redact: Vec::new(),
    };
    RecordingWriter::new(
        Box::new(RecordingFiles::open(&settings.files, SystemTime::now()).unwrap()),
        &settings,
    )
}

fn review(body: &str) -> RecordedReview {
    RecordedReview {
        time: SystemTime::UNIX_EPOCH,
        endpoint: Endpoint::Authorize,
        name: None,
        cluster: "default".to_owned(),
        caller: "api".to_owned(),
        revision: "0123".into(),
        decision: RecordedDecision {
            decision: Decision::NoOpinion,
            reason: String::new(),
            cause: None,
            error: String::new(),
            patch: String::new(),
        },
        opinions: Vec::new(),
        calls: Vec::new(),
        body: RecordedBody::Access(body.as_bytes().into()),
    }
}

/// How many lines of reviews there are.
fn lines(folder: &Path) -> usize {
    let entries = fs::read_dir(folder.join("recordings")).unwrap();
    let texts = entries.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    texts.map(|text| text.lines().count() - 1).sum()
}

#[test]
fn what_cannot_be_written_is_counted_and_later_reviews_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path());
    let recordings = folder.path().join("recordings");
    fs::remove_dir(&recordings).unwrap();
    // As of a disk that takes no more files.
    assert_eq!(writer.write(&mut vec![review("{}"), review("{}")], 2), 2);
    assert!(writer.is_broken);
    fs::create_dir(&recordings).unwrap();
    let mut batch = vec![review("{}"), review("{\n\n}\n")];
    assert_eq!(writer.write(&mut batch, 2), 0);
    assert!(batch.is_empty() && !writer.is_broken);
    assert_eq!(lines(folder.path()), 2);
}

#[test]
fn what_goes_to_a_folder_that_was_removed_counts_as_lost() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path());
    assert_eq!(writer.write(&mut vec![review("{}")], 1), 0);
    fs::remove_dir_all(folder.path().join("recordings")).unwrap();
    assert_eq!(writer.write(&mut vec![review("{}"), review("{}")], 2), 2);
}

#[test]
fn lines_are_written_before_they_gather() {
    let folder = tempfile::tempdir().unwrap();
    let settings = config::RecordingSettings {
        files: config::FolderBounds {
            folder: folder.path().join("recordings"),
            max_bytes: 1 << 30,
            max_age: Duration::from_secs(3600),
        },
        format: config::FileFormat::Json,
        redact: Vec::new(),
    };
    let mut writer = RecordingWriter::new(
        Box::new(RecordingFiles::open(&settings.files, SystemTime::now()).unwrap()),
        &settings,
    );
    let body = format!("{{\"a\":\"{}\"}}", "x".repeat(300_000));
    for _ in 0..20 {
        assert_eq!(writer.add(&review(&body)), 0);
        assert!(
            writer.lines.len() < BATCH_BYTES + body.len(),
            "{}",
            writer.lines.len()
        );
    }
    assert!(lines(folder.path()) >= 16);
}

#[test]
fn what_cannot_be_read_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path());
    let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
    let mut batch = vec![review("{}"), review("{"), review(&deep), review("{}")];
    assert_eq!(writer.write(&mut batch, 4), 2);
    assert_eq!(lines(folder.path()), 2);
}

#[test]
fn a_batch_is_divided_among_files_and_what_fits_into_none_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path());
    let body = |length: usize| format!("{{\"a\":\"{}\"}}", "x".repeat(length));
    let mut batch = vec![
        review(&body(40_000)),
        review(&body(40_000)),
        review(&body(100_000)),
        review(&body(10)),
    ];
    assert_eq!(writer.write(&mut batch, 4), 1);
    assert_eq!(lines(folder.path()), 3);
}

#[test]
fn bytes_that_are_no_text_read_as_they_were_decided() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path());
    let mut odd = review("");
    odd.body = RecordedBody::Access(b"{\"user\":\"a\xff\xfeb\"}\n".as_slice().into());
    assert_eq!(writer.write(&mut vec![odd], 1), 0);
    let entry = fs::read_dir(folder.path().join("recordings")).unwrap().next();
    let text = fs::read_to_string(entry.unwrap().unwrap().path()).unwrap();
    let line = portcullis_cel::json::Document::parse(text.lines().nth(1).unwrap()).unwrap();
    let user = line.root().pointer("/review/user").unwrap();
    assert_eq!(user.as_str().unwrap(), "a\u{fffd}\u{fffd}b");
}
