use std::fs;
use std::time::Duration;

use super::super::*;

/// Else who fills the room of a set would have changes of others go unnoticed.
#[test]
fn a_change_is_noticed_beyond_the_bytes_of_a_set() {
    let folder = tempfile::tempdir().unwrap();
    let files = ["a", "b"].map(|name| folder.path().join(name));
    fs::write(&files[0], "ten bytes.").unwrap();
    fs::write(&files[1], "before").unwrap();
    let later = SystemTime::now() + Duration::from_secs(10);
    let look = |earlier: &Fingerprint| fingerprint_within(10, &files, earlier, later);
    let before = look(&Fingerprint::none());
    assert!(look(&before) == before);
    fs::write(&files[1], "after").unwrap();
    assert!(look(&before) != before);
}

#[test]
fn what_is_known_of_a_file_counts_as_far_as_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let files = ["a", "b"].map(|name| folder.path().join(name));
    files
        .iter()
        .for_each(|file| fs::write(file, "ten bytes.").unwrap());
    let later = SystemTime::now() + Duration::from_secs(10);
    let with_room = fingerprint_within(20, &files, &Fingerprint::none(), later);
    let without = fingerprint_within(15, &files, &with_room, later);
    let known: Vec<bool> = without.0.iter().map(|seen| seen.content.is_some()).collect();
    assert_eq!(known, [true, false]);
}

#[test]
fn what_was_just_written_has_no_stamp_and_other_content_has_another() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.yaml");
    fs::write(&path, "a: 1\n").unwrap();
    let first = fs::metadata(&path).unwrap();
    let written = first.modified().unwrap();
    assert_eq!(FileStamp::at(&first, written + Duration::from_secs(1)), None);
    // A clock behind the file system's.
    assert_eq!(FileStamp::at(&first, written - Duration::from_secs(60)), None);
    let later = written + Duration::from_secs(3);
    let stamp = FileStamp::at(&first, later).unwrap();
    assert_eq!(FileStamp::at(&fs::metadata(&path).unwrap(), later), Some(stamp));
    // The same size, in the same inode.
    fs::write(&path, "a: 2\n").unwrap();
    let second = fs::metadata(&path).unwrap();
    assert_ne!(
        FileStamp::at(&second, written + Duration::from_secs(60)),
        Some(stamp)
    );
    // The same size and time, behind a link that leads elsewhere now.
    fs::write(folder.path().join("b.yaml"), "a: 3\n").unwrap();
    let link = folder.path().join("link.yaml");
    std::os::unix::fs::symlink("b.yaml", &link).unwrap();
    let third = fs::metadata(&link).unwrap();
    assert_ne!(
        FileStamp::at(&third, written + Duration::from_secs(60)),
        Some(stamp)
    );
}
