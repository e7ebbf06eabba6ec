use super::backlog::SpoolError;
use super::*;

const LINE: &[u8] = br#"{"time":"2023-11-14T22:13:20.001234Z","revision":"abc","cluster":"e\"ast","caller":"k","endpoint":"authorize","decision":"noOpinion"}
"#;

fn mk_backlog(spool: Option<Spool>) -> Arc<Backlog> {
    Arc::new(Backlog {
        spool,
        state: Mutex::default(),
        changed: Condvar::new(),
        endpoint: Arc::default(),
        dropped: IntCounter::new("dropped", "dropped").unwrap(),
    })
}

fn mk_spool(folder: &std::path::Path, max_bytes: u64) -> Spool {
    Spool::open(&SpoolBounds {
        folder: folder.to_owned(),
        max_bytes,
    })
    .unwrap()
}

fn batch(lines: usize) -> Vec<u8> {
    LINE.repeat(lines)
}

#[test]
fn a_record_has_the_line_and_what_it_is_searched_by() {
    let record = record(LINE.trim_ascii_end(), 7);
    assert_eq!(record.time_unix_nano, 1_700_000_000_001_234_000);
    assert_eq!(record.observed_time_unix_nano, 7);
    let line = str::from_utf8(LINE).unwrap().trim_end();
    assert_eq!(record.body, Some(text(line)));
    let expected = [
        ("portcullis.cluster", "e\"ast"),
        ("portcullis.endpoint", "authorize"),
        ("portcullis.decision", "noOpinion"),
    ];
    assert_eq!(
        record.attributes,
        expected.map(|(key, value)| attribute(key, value))
    );
}

#[test]
fn a_request_has_whole_lines_of_a_bounded_size() {
    let lines = batch(2 * MAX_REQUEST_BYTES / LINE.len());
    let parts: Vec<&[u8]> = requests(&lines).collect();
    assert!(parts.len() >= 2);
    assert_eq!(parts.concat(), lines);
    for part in parts {
        assert!(part.len() <= MAX_REQUEST_BYTES && part.ends_with(b"\n"));
    }
    assert_eq!(requests(b"").count(), 0);
}

#[test]
fn what_waits_in_memory_is_bounded_and_what_is_lost_is_counted() {
    let backlog = mk_backlog(None);
    let mut writer = SegmentWriter::new(Arc::clone(&backlog));
    let lines = SEGMENT_BYTES / LINE.len() + 1;
    let fitting = MAX_PENDING_BYTES / (lines * LINE.len());
    for _ in 0..fitting + 2 {
        assert_eq!(writer.write(&mut batch(lines), lines as u64), 0);
    }
    assert_eq!(backlog.dropped.get(), 2 * lines as u64);
    // What is being sent takes its room until it is sent.
    let segment = backlog.next().unwrap();
    writer.write(&mut batch(lines), lines as u64);
    assert_eq!(backlog.dropped.get(), 3 * lines as u64);
    assert!(backlog.done(&segment));
    writer.write(&mut batch(lines), lines as u64);
    assert_eq!(backlog.dropped.get(), 3 * lines as u64);
    drop(writer);
    let left = std::iter::from_fn(|| backlog.next()).count();
    assert_eq!(left, fitting);
}

#[test]
fn a_spool_gives_back_the_oldest_first_and_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let spool = mk_spool(folder.path(), 3 * 4096);
    for lines in 1..=3 {
        spool.add(&batch(lines)).unwrap();
    }
    assert!(matches!(spool.add(LINE), Err(SpoolError::Full)));
    // What is no segment, and what a process began to write before it ended.
    let named = |name: &str| folder.path().join(name);
    let begun = named("00000000000000000001.jsonl.new");
    std::fs::create_dir(named("00000000000000000000.jsonl")).unwrap();
    std::fs::write(named("decisions.jsonl"), LINE).unwrap();
    std::os::unix::fs::symlink(named("decisions.jsonl"), named("00000000000000000002.jsonl")).unwrap();
    std::fs::write(&begun, "{").unwrap();
    drop(spool);
    let backlog = mk_backlog(Some(mk_spool(folder.path(), 4 * 4096)));
    assert!(!begun.exists());
    assert!(backlog.wait_for_spool());
    for lines in 1..=3 {
        let segment = backlog.next().unwrap();
        assert_eq!(segment.lines, batch(lines));
        assert!(backlog.done(&segment));
    }
    // What is sent makes room, and what comes meanwhile is sent, too.
    for _ in 0..4 {
        backlog.add(batch(1), 1).unwrap();
    }
    assert!(matches!(backlog.add(batch(1), 1), Err(SpoolError::Full)));
    assert_eq!(backlog.dropped.get(), 1);
    let first = backlog.next().unwrap();
    for file in std::fs::read_dir(folder.path()).unwrap() {
        let path = file.unwrap().path();
        if path.is_file() && !path.is_symlink() && !path.ends_with("decisions.jsonl") {
            std::fs::remove_file(path).unwrap();
        }
    }
    assert!(backlog.done(&first));
    backlog.add(batch(2), 2).unwrap();
    assert_eq!(backlog.next().unwrap().lines, batch(2));
    assert!(named("decisions.jsonl").exists(), "a file of somebody else");
    assert_eq!(backlog.dropped.get(), 1);
}

#[test]
fn of_two_with_one_spool_one_sends() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (mk_spool(folder.path(), 1 << 20), mk_spool(folder.path(), 1 << 20));
    assert!(one.lock());
    assert!(!other.lock());
    drop(one);
    assert!(other.lock());
}

#[test]
fn a_segment_that_cannot_be_removed_is_not_done() {
    let folder = tempfile::tempdir().unwrap();
    let backlog = mk_backlog(Some(mk_spool(folder.path(), 1 << 20)));
    let of = |name: &str| backlog::Segment {
        lines: batch(1),
        file: Some(folder.path().join(name)),
    };
    std::fs::create_dir_all(folder.path().join("0.jsonl/full")).unwrap();
    assert!(!backlog.done(&of("0.jsonl")));
    assert!(backlog.done(&of("gone.jsonl")));
}
