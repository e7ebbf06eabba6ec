use super::*;
use crate::columns::{ColumnFile, ColumnFileError, StoredRow, column_files};

fn bounds(folder: &Path, bytes: u64) -> FolderBounds {
    FolderBounds {
        folder: folder.join("decisions"),
        max_bytes: bytes,
        max_age: Duration::from_secs(24 * 3600),
    }
}

/// Minutes after ten o'clock.
fn at(minutes: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_255_200 + minutes * 60)
}

fn counter() -> IntCounter {
    IntCounter::new("lost", "lines").unwrap()
}

fn line(cluster: &str, minute: u64, user: &str) -> String {
    let (hour, minute) = (10 + minute / 60, minute % 60);
    format!(
        "{{\"time\":\"2026-11-21T{hour:02}:{minute:02}:00Z\",\"cluster\":\"{cluster}\",\"endpoint\":\"authorize\",\
         \"user\":\"{user}\",\"groups\":[\"a\"],\"attributes\":{{\"verb\":\"get\"}},\"decision\":\"allow\"}}\n"
    )
}

fn open(bounds: &FolderBounds, dropped: &IntCounter, now: SystemTime) -> ColumnLog {
    ColumnLog::open(RowKind::Decision, bounds, dropped.clone(), now).unwrap()
}

/// How many rows the files of the folder have, by the folders below it.
fn rows(bounds: &FolderBounds) -> Vec<(String, u64)> {
    let mut found: Vec<(String, u64)> = Vec::new();
    for path in column_files(&bounds.folder).unwrap() {
        let mut count = 0;
        let file = ColumnFile::open(&path, RowKind::Decision).unwrap();
        let mut each = |row: StoredRow<'_>| {
            count += row.count;
            Ok::<(), ColumnFileError>(())
        };
        file.each_row(|_| true, true, &|_| {}, &mut each).unwrap();
        let folder = path.parent().unwrap().strip_prefix(&bounds.folder).unwrap();
        let folder = folder.display().to_string();
        match found.last_mut() {
            Some((last, sum)) if *last == folder => *sum += count,
            _ => found.push((folder, count)),
        }
    }
    found
}

#[test]
fn lines_become_files_by_cluster_and_hour_once_they_have_waited() {
    let folder = tempfile::tempdir().unwrap();
    let (bounds, dropped) = (bounds(folder.path(), 1 << 30), counter());
    let mut log = open(&bounds, &dropped, at(55));
    log.add_lines(
        (line("east", 55, "jane") + &line("west/1", 56, "joe")).as_bytes(),
        at(56),
    );
    log.add_lines(line("east", 61, "jane").as_bytes(), at(61));
    assert_eq!(rows(&bounds), []);
    assert_eq!(
        RecordingSink::maintain(&mut log, at(61)),
        Duration::from_secs(300)
    );
    RecordingSink::maintain(&mut log, at(66));
    let hour = |cluster: &str, hour: u32| format!("cluster={cluster}/date=2026-11-21/hour={hour}");
    let expected = [(hour("east", 10), 1), (hour("west%2F1", 10), 1)];
    assert_eq!(rows(&bounds), expected);
    // Where lines keep coming, nothing rests.
    log.add_lines(line("east", 71, "jane").as_bytes(), at(71));
    let expected = [
        (hour("east", 10), 1),
        (hour("east", 11), 2),
        (hour("west%2F1", 10), 1),
    ];
    assert_eq!(rows(&bounds), expected);
    log.add_lines(line("east", 71, "jill").as_bytes(), at(72));
    drop(log);
    assert_eq!(
        rows(&bounds)[1],
        (hour("east", 11), 3),
        "the last lines are not lost"
    );
    assert_eq!(dropped.get(), 0);
}

#[test]
fn many_clusters_take_no_more_than_one() {
    let folder = tempfile::tempdir().unwrap();
    let (bounds, dropped) = (bounds(folder.path(), 1 << 30), counter());
    let mut log = open(&bounds, &dropped, at(0));
    for round in 0..3 {
        for cluster in 0..200 {
            log.add_lines(line(&format!("c{cluster}"), round, "jane").as_bytes(), at(round));
        }
        assert_eq!(rows(&bounds), [], "no file for each line");
    }
    assert!(log.bytes < MAX_WAITING_BYTES, "{}", log.bytes);
    // With names of their own, rows take too much, and the largest partitions are written.
    let long = "x".repeat(60_000);
    for number in 0..1_500 {
        let line = line(&format!("c{}", number % 3), 5, &format!("{number}{long}"));
        log.add_lines(line.as_bytes(), at(5));
        assert!(log.bytes <= MAX_WAITING_BYTES, "{}", log.bytes);
    }
    assert!((1..=3).contains(&rows(&bounds).len()));
    log.write_all(at(5));
    let written = rows(&bounds);
    assert_eq!(written.len(), 200);
    assert_eq!(written.iter().map(|(_, rows)| rows).sum::<u64>(), 2_100);
    assert_eq!((dropped.get(), log.bytes), (0, 0));
}

#[test]
fn what_cannot_be_written_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let (bounds, dropped) = (bounds(folder.path(), 1 << 30), counter());
    let mut log = open(&bounds, &dropped, at(0));
    let long = line(&"c".repeat(201), 0, "jane");
    log.add_lines(
        format!("{{}}\n{long}{}", line("east", 0, "jane")).as_bytes(),
        at(0),
    );
    assert_eq!(dropped.get(), 2);
    // A file where the folder has to be.
    std::fs::write(bounds.folder.join("cluster=east"), "").unwrap();
    log.write_all(at(1));
    assert_eq!(dropped.get(), 3);
    std::fs::remove_file(bounds.folder.join("cluster=east")).unwrap();
    log.add_lines(line("east", 2, "jane").as_bytes(), at(2));
    log.write_all(at(3));
    assert_eq!((rows(&bounds).len(), dropped.get()), (1, 3));
}

#[test]
fn the_oldest_files_are_removed_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let (mut bounds, dropped) = (bounds(folder.path(), 1 << 30), counter());
    let mut log = open(&bounds, &dropped, at(0));
    for minute in [0, 60, 120] {
        log.add_lines(
            (line("east", minute, "jane") + &line("west", minute, "joe")).as_bytes(),
            at(minute),
        );
    }
    drop(log);
    let hours = |bounds: &FolderBounds| {
        let hours = rows(bounds)
            .into_iter()
            .map(|(folder, _)| folder[folder.len() - 2..].to_owned());
        hours.collect::<Vec<String>>()
    };
    assert_eq!(hours(&bounds), ["10", "11", "12", "10", "11", "12"]);
    let own = bounds.folder.join("cluster=east/date=2026-11-21/hour=10");
    let others = [own.join("notes.parquet"), own.join("recordings-00.parquet")];
    others.iter().for_each(|path| std::fs::write(path, "").unwrap());
    let abandoned = own.join(".pack-x.tmp");
    std::fs::write(&abandoned, "").unwrap();
    // An hour after it was over, ten o'clock's are a day old.
    drop(open(&bounds, &dropped, at(25 * 60 - 1)));
    others.iter().for_each(|path| std::fs::remove_file(path).unwrap());
    assert_eq!(hours(&bounds).len(), 6);
    others.iter().for_each(|path| std::fs::write(path, "").unwrap());
    let later = SystemTime::now() + Duration::from_secs(7200);
    assert!(abandoned.exists());
    drop(open(&bounds, &dropped, at(25 * 60)));
    assert!(others.iter().all(|path| path.exists()), "others stay");
    others.iter().for_each(|path| std::fs::remove_file(path).unwrap());
    assert_eq!(hours(&bounds), ["11", "12", "11", "12"]);
    assert!(
        !bounds
            .folder
            .join("cluster=west/date=2026-11-21/hour=10")
            .exists()
    );
    // By bytes: the files of one hour take a fourth of what there is.
    bounds.max_age = Duration::from_secs(365 * 24 * 3600);
    let files = column_files(&bounds.folder).unwrap();
    let total: u64 = files
        .iter()
        .map(|path| std::fs::metadata(path).unwrap().len())
        .sum();
    bounds.max_bytes = total - 1;
    drop(open(&bounds, &dropped, later));
    assert!(!abandoned.exists(), "nobody completes it");
    let left = hours(&bounds);
    assert!(
        left == ["11", "12", "12"] || left == ["12", "11", "12"] || left == ["12", "12"],
        "{left:?}"
    );
    bounds.max_bytes = 0;
    drop(open(&bounds, &dropped, later));
    assert_eq!(hours(&bounds), [] as [&str; 0]);
}

/// An own file of a thousand bytes, of an hour of a cluster.
fn make_file(folder: &Path, name: &str) {
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(folder.join(name), [0; 1000]).unwrap();
}

/// Waits until the files are compared, without taking note of the result.
fn compared(folder: &PartitionFolder) {
    while folder.is_comparing() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What is added between two comparisons counts in the second.
#[test]
fn files_take_no_more_than_they_may_whenever_they_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let bounds = bounds(folder.path(), 10_000);
    let mut own = PartitionFolder::open(&bounds, RowKind::Decision, at(0)).unwrap();
    let hour = bounds.folder.join("cluster=a/date=2026-11-21/hour=10");
    let mut number = 0;
    for minute in [120, 240] {
        own.maintain(at(minute));
        compared(&own);
        for _ in 0..9 {
            number += 1;
            make_file(&hour, &format!("decisions-{number:03}.parquet"));
            own.add(1000, at(minute));
        }
    }
    own.wait();
    let left = std::fs::read_dir(&hour).unwrap().count();
    assert!(left <= 11, "{left} files of a thousand bytes");
}

#[test]
fn what_is_behind_a_link_is_neither_counted_nor_removed() {
    let folder = tempfile::tempdir().unwrap();
    let bounds = bounds(folder.path(), 1 << 20);
    let [old, new] = ["date=2026-11-01", "date=2026-11-21"];
    let archive = folder.path().join("archive");
    make_file(&archive.join("hour=10"), "decisions-a.parquet");
    make_file(
        &bounds.folder.join("cluster=a").join(old).join("hour=10"),
        "decisions-b.parquet",
    );
    let kept = bounds.folder.join("cluster=a").join(new).join("hour=10");
    make_file(&kept, "decisions-c.parquet");
    std::fs::create_dir_all(bounds.folder.join("cluster=b")).unwrap();
    std::os::unix::fs::symlink(&archive, bounds.folder.join("cluster=b").join(old)).unwrap();
    let mut own = PartitionFolder::open(&bounds, RowKind::Decision, at(0)).unwrap();
    own.wait();
    assert!(!bounds.folder.join("cluster=a").join(old).exists());
    assert!(archive.join("hour=10/decisions-a.parquet").exists());
    assert!(kept.join("decisions-c.parquet").exists());
}

/// Lines are taken between the files of many clusters that are due at once.
#[test]
fn no_more_than_some_files_are_written_before_lines_are_taken() {
    let folder = tempfile::tempdir().unwrap();
    let (bounds, dropped) = (bounds(folder.path(), 1 << 30), counter());
    let mut log = open(&bounds, &dropped, at(0));
    for cluster in 0..MAX_DUE_FILES + 1 {
        log.add_lines(line(&format!("c{cluster}"), 0, "jane").as_bytes(), at(0));
    }
    assert_eq!(log.write_due(at(10)), Duration::ZERO);
    assert_eq!(rows(&bounds).len(), MAX_DUE_FILES);
    assert_eq!(log.write_due(at(10)), MAX_WAIT);
    assert_eq!(rows(&bounds).len(), MAX_DUE_FILES + 1);
}

/// A writer that a reload has ended still has rows to write when the gateway ends.
#[test]
fn a_stop_waits_for_the_writer_before_a_reload_too() {
    let folder = tempfile::tempdir().unwrap();
    let before = bounds(folder.path(), 1 << 30);
    let queue = SwitchedQueue::<FolderBounds, Vec<u8>>::new();
    let start = |bounds: &FolderBounds| {
        let settings = QueueSettings {
            thread: "decision-files",
            limit: MAX_PENDING_BYTES,
            dropped: counter(),
        };
        WriteQueue::start(open(bounds, &counter(), at(0)), settings)
    };
    queue.apply(Some(&before), start).unwrap();
    for cluster in 0..100 {
        let line = line(&format!("c{cluster}"), 0, "jane");
        queue.push(|queue| queue.push(line.len(), |pending| pending.extend_from_slice(line.as_bytes())));
    }
    queue.apply(None, start).unwrap();
    assert!(queue.flush(Duration::from_secs(60)));
    assert_eq!(rows(&before).len(), 100);
}
