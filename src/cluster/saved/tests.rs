use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::config::FileScope;
use portcullis_cel::Version;

const ROLE: &str = r#"{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"a","namespace":"n"},"rules":[]}"#;
const LIMIT: &str = r#"{"apiVersion":"example.com/v2","kind":"Limit","max":3,"metadata":{"name":"b"}}"#;

const MEMORY: usize = 64 << 20;

fn write_all(path: &Path, objects: &[&str]) {
    let mut saved = SavedObjects::default();
    objects.iter().for_each(|object| saved.add(object));
    write(path, "east", &saved, &saved.digest()).unwrap();
}

fn saved() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("east.json");
    write_all(&path, &[ROLE, LIMIT]);
    (folder, path)
}

#[test]
fn what_was_written_is_read() {
    let (_folder, path) = saved();
    let read = read((&path, &FileScope::Anywhere), "east", MEMORY)
        .unwrap()
        .unwrap();
    let read: Vec<_> = read.objects.collect();
    let kinds: Vec<String> = read.iter().map(|(kind, ..)| kind.to_string()).collect();
    assert_eq!(kinds, ["Role.rbac.authorization.k8s.io", "Limit.example.com"]);
    let texts: Vec<_> = read
        .into_iter()
        .map(|(.., received)| received.unwrap().read(&"east".into(), Version::NEWEST).unwrap())
        .map(|read| read.text.get().into_owned())
        .collect();
    assert_eq!(texts, [ROLE, LIMIT]);
}

#[test]
fn only_the_owner_may_read_it() {
    let (folder, path) = saved();
    write_all(&path, &[ROLE]);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let files = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(files, 1, "nothing is left beside it");
}

#[test]
fn no_file_is_no_set() {
    let folder = tempfile::tempdir().unwrap();
    assert!(
        read(
            (&folder.path().join("absent"), &FileScope::Anywhere),
            "east",
            MEMORY
        )
        .unwrap()
        .is_none()
    );
}

#[test]
fn a_damaged_file_is_not_used() {
    let (_folder, path) = saved();
    let text = fs::read_to_string(&path).unwrap();
    let damages = [
        String::new(),
        "{}\n".to_owned(),
        text.replace("\"max\":3", "\"max\":4"),
        text.trim_end().to_owned(),
        text.lines().take(2).map(|line| format!("{line}\n")).collect(),
        text.replace("v1alpha1", "v9"),
        format!("{text}{ROLE}\n"),
        text.replace("\"objects\":2", "\"objects\":3"),
    ];
    for damage in damages {
        assert_ne!(damage, text);
        fs::write(&path, &damage).unwrap();
        let error = read((&path, &FileScope::Anywhere), "east", MEMORY).err();
        assert!(
            matches!(error, Some(CacheFileError::Damaged(_))),
            "{damage}: {error:?}"
        );
    }
    fs::write(&path, [0xff, 0xfe]).unwrap();
    assert!(matches!(
        read((&path, &FileScope::Anywhere), "east", MEMORY),
        Err(CacheFileError::Damaged(_))
    ));
}

#[test]
fn a_file_of_more_than_objects_may_take_is_not_read() {
    let (_folder, path) = saved();
    let bytes = fs::read(&path).unwrap().len();
    let read = |memory| read((&path, &FileScope::Anywhere), "east", memory);
    assert!(read(TEXT_SHARE * bytes).is_ok());
    let error = read(TEXT_SHARE * (bytes - 1)).err();
    assert!(matches!(error, Some(CacheFileError::Read(_))), "{error:?}");
}

#[test]
fn a_set_of_another_cluster_is_not_used() {
    let (_folder, path) = saved();
    assert!(
        matches!(read((&path, &FileScope::Anywhere), "west", MEMORY), Err(CacheFileError::OtherCluster(east)) if east == "east")
    );
}

fn role(name: &str, verb: &str) -> String {
    format!(
        r#"{{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{{"name":"{name}","namespace":"n"}},"rules":[{{"apiGroups":[""],"resources":["pods"],"verbs":["{verb}"]}}]}}"#
    )
}

fn kind() -> WatchedKind {
    WatchedKind::of_object("rbac.authorization.k8s.io/v1", "Role")
}

fn all(objects: &[String]) -> UnsavedObjects {
    let mut saved = SavedObjects::default();
    objects.iter().for_each(|object| saved.add(object));
    UnsavedObjects::All(saved)
}

fn changed(set: &[String], deleted: &[&str]) -> UnsavedObjects {
    let mut changes = SavedChanges::default();
    set.iter().for_each(|object| changes.set(object.clone()));
    let name = |name: &str| ("n".to_owned(), name.to_owned());
    deleted
        .iter()
        .for_each(|deleted| changes.delete(&kind(), &name(deleted)));
    UnsavedObjects::Changed(changes)
}

fn restored(path: &Path) -> RestoredSet {
    let read = read((path, &FileScope::Anywhere), "east", 64 << 20);
    read.unwrap().unwrap()
}

fn texts(path: &Path) -> Vec<String> {
    let read = restored(path).objects;
    let text = |received: crate::cluster::object::ReceivedObject| {
        let read = received.read(&"east".into(), Version::NEWEST).unwrap();
        read.text.get().into_owned()
    };
    let mut texts: Vec<String> = read.map(|(.., received)| text(received.unwrap())).collect();
    texts.sort();
    texts
}

/// A set with two changes.
fn saved_by() -> (tempfile::TempDir, PathBuf, SnapshotSaver) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("east.json");
    let mut saver = SnapshotSaver::new(path.clone(), FileScope::Anywhere, "east");
    saver.save(&all(&[role("a", "get"), role("b", "get")])).unwrap();
    saver
        .save(&changed(&[role("a", "list"), role("c", "get")], &[]))
        .unwrap();
    saver.save(&changed(&[], &["b"])).unwrap();
    (folder, path, saver)
}

#[test]
fn what_changed_is_read_with_the_set() {
    let (_folder, path, mut saver) = saved_by();
    assert_eq!(texts(&path), [role("a", "list"), role("c", "get")]);
    saver.save(&changed(&[], &[])).unwrap();
    saver
        .save(&changed(&[role("b", "watch")], &["c", "absent"]))
        .unwrap();
    assert_eq!(texts(&path), [role("a", "list"), role("b", "watch")]);
    let mode = fs::metadata(changes_path(&path)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "only the owner may read it");
    // Another set ends them.
    saver.save(&all(&[role("d", "get")])).unwrap();
    assert_eq!(texts(&path), [role("d", "get")]);
    assert!(!changes_path(&path).exists());
}

#[test]
fn changes_that_are_not_whole_or_of_another_set_are_not_used() {
    let (folder, path, _) = saved_by();
    let lines = fs::read_to_string(changes_path(&path)).unwrap();
    let first = [role("a", "list"), role("b", "get"), role("c", "get")];
    for (torn, lacks) in [
        (lines.trim_end(), false),
        (lines[..lines.len() - 9].trim_end(), false),
        (&lines.replace("\"b\"", "\"c\""), true),
    ] {
        fs::write(changes_path(&path), torn).unwrap();
        assert_eq!(texts(&path), first, "{torn}");
        assert_eq!(restored(&path).lacks_changes, lacks, "{torn}");
    }
    let later = lines.split_inclusive('\n').nth(1).unwrap();
    for useless in [later, "", "\n", "no digest\n", &lines.replace("list", "edit")] {
        fs::write(changes_path(&path), useless).unwrap();
        assert_eq!(texts(&path), [role("a", "get"), role("b", "get")], "{useless}");
        assert_eq!(restored(&path).lacks_changes, !useless.is_empty(), "{useless}");
    }
    fs::remove_file(changes_path(&path)).unwrap();
    fs::create_dir(changes_path(&path)).unwrap();
    assert_eq!(texts(&path), [role("a", "get"), role("b", "get")]);
    assert!(restored(&path).lacks_changes, "what cannot be read");
    let other = folder.path().join("west.json");
    SnapshotSaver::new(other.clone(), FileScope::Anywhere, "east")
        .save(&all(&[role("e", "get")]))
        .unwrap();
    fs::write(changes_path(&other), &lines).unwrap();
    assert_eq!(texts(&other), [role("e", "get")]);
}

#[test]
fn all_is_saved_again_where_something_else_wrote_to_its_place() {
    let remove = |path: &Path| fs::remove_file(path).unwrap();
    let others: [&dyn Fn(&Path); 3] = [
        &|path| remove(&changes_path(path)),
        &|path| remove(path),
        // Another gateway on the same file.
        &|path| {
            SnapshotSaver::new(path.to_owned(), FileScope::Anywhere, "east")
                .save(&all(&[role("e", "get")]))
                .unwrap();
        },
    ];
    for other in others {
        let (_folder, path, mut saver) = saved_by();
        other(&path);
        assert!(saver.save(&changed(&[role("d", "get")], &[])).is_err());
        assert!(saver.wants_all());
        saver.save(&all(&[role("d", "get")])).unwrap();
        saver.save(&changed(&[role("d", "list")], &[])).unwrap();
        assert_eq!(texts(&path), [role("d", "list")]);
    }
}

#[test]
fn all_is_saved_again_after_many_changes_or_a_failure() {
    let (_folder, path, mut saver) = saved_by();
    let mut rounds = 0;
    while !saver.wants_all() {
        rounds += 1;
        saver
            .save(&changed(&[role("a", &format!("verb-{rounds}"))], &[]))
            .unwrap();
    }
    assert!((100..1_000).contains(&rounds), "{rounds}");
    assert_eq!(
        texts(&path),
        [role("a", &format!("verb-{rounds}")), role("c", "get")]
    );
    saver.save(&all(&[role("a", "get")])).unwrap();
    assert!(!saver.wants_all());
    fs::create_dir(changes_path(&path)).unwrap();
    assert!(saver.save(&changed(&[role("a", "list")], &[])).is_err());
    assert!(saver.wants_all());
    assert!(saver.save(&changed(&[role("a", "list")], &[])).is_err());
}
