mod writer;
use std::os::unix::fs::PermissionsExt;

use crate::recording::*;

fn settings(folder: &Path, bytes: u64) -> FolderBounds {
    FolderBounds {
        folder: folder.join("recordings"),
        max_bytes: bytes,
        max_age: Duration::from_secs(1600),
    }
}

/// So many seconds after a Monday's noon.
fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + seconds)
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder.join("recordings")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

fn total(folder: &Path) -> u64 {
    let files = names(folder).into_iter();
    let lengths = files.map(|name| fs::metadata(folder.join("recordings").join(name)).unwrap().len());
    lengths.sum()
}

#[test]
fn files_and_folder_are_the_owners_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = RecordingFiles::open(&settings(folder.path(), 1 << 20), at(0)).unwrap();
    files.append(b"{}\n", at(0)).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder.path().join("recordings")), 0o700);
    let [name] = names(folder.path()).try_into().unwrap();
    let path = folder.path().join("recordings").join(&name);
    assert_eq!(name, "recording-20231114T221320.000000Z.jsonl");
    assert_eq!(mode(&path), 0o600);
    let text = fs::read_to_string(path).unwrap();
    assert!(
        text.starts_with("{\"portcullisRecording\":1,") && text.ends_with("}\n{}\n"),
        "{text}"
    );
}

#[test]
fn the_oldest_files_go_so_that_all_together_stay_within_their_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = RecordingFiles::open(&settings(folder.path(), 1 << 20), at(0)).unwrap();
    let line = [b"x".repeat(9_999).as_slice(), b"\n"].concat();
    for second in 0..1000 {
        // Within one file's time: only their bytes begin new ones.
        files
            .append(&line, at(0) + Duration::from_millis(second))
            .unwrap();
        assert!(total(folder.path()) <= 1 << 20);
    }
    assert!(
        total(folder.path()) > (1 << 20) * 14 / 16,
        "no more is removed than has to be"
    );
    let first = names(folder.path()).remove(0);
    assert!(
        first.as_str() > "recording-20231114T221320.8",
        "the newest are kept, from {first}"
    );
}

#[test]
fn what_has_become_too_old_goes_although_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = RecordingFiles::open(&settings(folder.path(), 1 << 20), at(0)).unwrap();
    for second in [0, 50, 100, 150] {
        files.append(b"{}\n", at(second)).unwrap();
    }
    assert_eq!(
        names(folder.path()).len(),
        2,
        "a file has a sixteenth of the time"
    );
    assert!(files.maintain(at(1599)) <= Duration::from_secs(50));
    assert_eq!(names(folder.path()).len(), 2);
    files.maintain(at(1699));
    assert_eq!(names(folder.path()), ["recording-20231114T221500.000000Z.jsonl"]);
    files.maintain(at(1800));
    assert_eq!(names(folder.path()), [""; 0]);
    // The file that was written has ended too.
    files.append(b"{}\n", at(1801)).unwrap();
    assert_eq!(names(folder.path()), ["recording-20231114T224321.000000Z.jsonl"]);
}

#[test]
fn a_restart_goes_on_within_the_bounds_and_leaves_other_files_alone() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path(), 1 << 20);
    let line = [b"x".repeat(59_999).as_slice(), b"\n"].concat();
    for start in 0..40 {
        let mut files = RecordingFiles::open(&settings, at(start)).unwrap();
        files.append(&line, at(start)).unwrap();
        assert!(total(folder.path()) <= 1 << 20);
        if start == 0 {
            fs::write(settings.folder.join("notes.txt"), "mine").unwrap();
        }
    }
    assert_eq!(names(folder.path()).len(), 17 + 1);
    let smaller = FolderBounds {
        max_bytes: 200_000,
        ..settings.clone()
    };
    RecordingFiles::open(&smaller, at(40)).unwrap();
    assert_eq!(names(folder.path()).len(), 3 + 1);
    assert_eq!(
        fs::read_to_string(settings.folder.join("notes.txt")).unwrap(),
        "mine"
    );
}

#[test]
fn two_that_begin_at_once_write_files_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path(), 1 << 20);
    for _ in 0..2 {
        let mut files = RecordingFiles::open(&settings, at(0)).unwrap();
        files.append(b"{}\n", at(0)).unwrap();
    }
    assert_eq!(names(folder.path()).len(), 2);
}

/// A file that takes nothing, as one of a disk that is full.
fn full(open: OpenFile) -> OpenFile {
    let file = File::open(&open.path).unwrap();
    OpenFile { file, ..open }
}

#[test]
fn a_disk_that_is_full_leaves_no_file_without_lines() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = RecordingFiles::open(&settings(folder.path(), 1 << 20), at(0)).unwrap();
    files.open = Some(full(OpenFile::create(files.folder.path(), at(0)).unwrap()));
    files.append(b"{}\n", at(0)).unwrap_err();
    assert_eq!(names(folder.path()), [""; 0]);
    files.append(b"{}\n", at(1)).unwrap();
    let written = total(folder.path());
    files.open = files.open.take().map(full);
    files.append(b"{}\n", at(2)).unwrap_err();
    assert_eq!((names(folder.path()).len(), total(folder.path())), (1, written));
    files.append(b"{}\n", at(3)).unwrap();
    assert_eq!(names(folder.path()).len(), 2);
}

#[test]
fn what_is_written_to_a_folder_that_was_removed_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path(), 1 << 20);
    let mut files = RecordingFiles::open(&settings, at(0)).unwrap();
    files.append(b"{}\n", at(0)).unwrap();
    fs::remove_dir_all(&settings.folder).unwrap();
    files.append(b"{}\n", at(1)).unwrap_err();
    // Moved, it is not where it is looked for either.
    fs::create_dir(&settings.folder).unwrap();
    files.append(b"{}\n", at(2)).unwrap();
    fs::rename(&settings.folder, folder.path().join("moved")).unwrap();
    files.append(b"{}\n", at(3)).unwrap_err();
    // A file that was removed alone is followed by another.
    fs::create_dir(&settings.folder).unwrap();
    files.append(b"{}\n", at(4)).unwrap();
    fs::remove_file(settings.folder.join(names(folder.path()).remove(0))).unwrap();
    files.append(b"{}\n", at(5)).unwrap();
    assert_eq!(names(folder.path()), ["recording-20231114T221325.000000Z.jsonl"]);
}
