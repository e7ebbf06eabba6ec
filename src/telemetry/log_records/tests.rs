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
    // A file that is no segment, and what a process began to write before it ended.
    std::fs::create_dir(folder.path().join("00.jsonl")).unwrap();
    std::fs::write(folder.path().join("01.jsonl.new"), "{").unwrap();
    drop(spool);
    let backlog = mk_backlog(Some(mk_spool(folder.path(), 4 * 4096)));
    assert!(!folder.path().join("01.jsonl.new").exists());
    assert!(backlog.wait_for_spool());
    for lines in 1..=3 {
        let segment = backlog.next().unwrap();
        assert_eq!(segment.lines, batch(lines));
        assert!(backlog.done(&segment));
    }
    backlog.state().is_closed = true;
    assert!(backlog.next().is_none());
    assert_eq!(backlog.dropped.get(), 0);
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
