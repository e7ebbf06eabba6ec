//! What is read again, and what is not.

use std::fs;
use std::time::Duration;

use super::*;
use portcullis_policy::manifest::{ObjectSet, Options};

/// So long after the files were written that their times tell.
fn later() -> SystemTime {
    SystemTime::now() + Duration::from_secs(3600)
}

fn read(folder: &Path, earlier: Option<&ManifestFiles>, keeps_texts: bool, now: SystemTime) -> ManifestFiles {
    let entry = ManifestPath {
        path: folder.to_owned(),
        cluster: None,
    };
    let earlier = EarlierFiles::new(earlier, Version::NEWEST, now);
    let (files, faults) = ManifestFiles::read_paths(&[entry], keeps_texts, earlier);
    assert_eq!(faults.together().to_string(), "");
    files
}

fn binding(name: &str, user: &str) -> String {
    format!(
        "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {{name: {name}}}\n\
         roleRef: {{kind: ClusterRole, name: view}}\nsubjects: [{{kind: User, name: {user}}}]\n"
    )
}

fn same(one: &ManifestFiles, other: &ManifestFiles) -> Vec<bool> {
    let files = one.0.iter().zip(&other.0);
    files.map(|(one, other)| Arc::ptr_eq(one, other)).collect()
}

fn same_objects(one: &ManifestFiles, other: &ManifestFiles) -> Vec<bool> {
    let (one, other) = (one.objects(), other.objects());
    one.iter()
        .zip(&other)
        .map(|(one, other)| Arc::ptr_eq(one, other))
        .collect()
}

#[test]
fn a_file_that_was_not_written_is_not_read_again() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.yaml"), binding("a", "jane")).unwrap();
    fs::write(folder.path().join("b.yaml"), binding("b", "jane")).unwrap();
    let before = read(folder.path(), None, false, later());
    assert_eq!(
        same(&read(folder.path(), Some(&before), false, later()), &before),
        [true, true]
    );
    // In place, with as many bytes.
    fs::write(folder.path().join("b.yaml"), binding("b", "joan")).unwrap();
    let after = read(folder.path(), Some(&before), false, later());
    assert_eq!(same(&after, &before), [true, false]);
    assert_eq!(same_objects(&after, &before), [true, false]);
    // By another file in its place, as editors and mounts do it.
    fs::write(folder.path().join("new"), binding("a", "joan")).unwrap();
    fs::rename(folder.path().join("new"), folder.path().join("a.yaml")).unwrap();
    assert_eq!(
        same(&read(folder.path(), Some(&after), false, later()), &after),
        [false, true]
    );
}

#[test]
fn every_file_is_read_where_times_are_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.yaml"), binding("a", "jane")).unwrap();
    let before = read(folder.path(), None, false, later());
    let entry = ManifestPath {
        path: folder.path().to_owned(),
        cluster: None,
    };
    let earlier = EarlierFiles {
        times: FileTimes::Ignored,
        ..EarlierFiles::new(Some(&before), Version::NEWEST, later())
    };
    let (after, _) = ManifestFiles::read_paths(&[entry], false, earlier);
    assert_eq!(
        (same(&after, &before), same_objects(&after, &before)),
        (vec![false], vec![true])
    );
}

#[test]
fn files_are_read_again_for_another_version_of_cel() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.yaml"), binding("a", "jane")).unwrap();
    let before = read(folder.path(), None, false, later());
    let entry = ManifestPath {
        path: folder.path().to_owned(),
        cluster: None,
    };
    let earlier = EarlierFiles::new(Some(&before), Version::new(36), later());
    let (after, _) = ManifestFiles::read_paths(&[entry], false, earlier);
    assert_eq!(same_objects(&after, &before), [false]);
    assert_eq!(after.objects()[0].version(), Version::new(36));
}

#[test]
fn a_file_that_was_just_written_is_read_again_and_parsed_only_if_it_says_something_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.yaml");
    fs::write(&path, binding("a", "jane")).unwrap();
    let now = SystemTime::now();
    let before = read(folder.path(), None, false, now);
    let after = read(folder.path(), Some(&before), false, now);
    assert_eq!(
        (same(&after, &before), same_objects(&after, &before)),
        (vec![false], vec![true])
    );
}

#[test]
fn texts_are_read_for_a_set_that_is_to_be_saved() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.yaml"), binding("a", "jane")).unwrap();
    let before = read(folder.path(), None, false, later());
    assert_eq!(before.sources().count(), 0);
    let after = read(folder.path(), Some(&before), true, later());
    assert_eq!(
        after.sources().map(|source| source.text).collect::<Vec<_>>(),
        [binding("a", "jane")]
    );
    assert_eq!(same_objects(&after, &before), [true]);
}

#[test]
fn objects_that_stay_in_a_file_that_changes_are_shared() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.yaml");
    fs::write(&path, binding("a", "jane") + &binding("b", "jane")).unwrap();
    let before = read(folder.path(), None, false, later());
    fs::write(
        &path,
        format!("# moved\n{}{}", binding("b", "joan"), binding("a", "jane")),
    )
    .unwrap();
    let after = read(folder.path(), Some(&before), false, later());
    let set = |files: &ManifestFiles| ObjectSet::new(files.objects(), &Options::default(), None);
    let ((before, _), (after, faults)) = (set(&before), set(&after));
    let (before, after) = (before.unwrap(), after.unwrap());
    let difference = after.since(&before);
    let names = |objects: &[&Arc<_>]| {
        objects
            .iter()
            .map(|object: &&Arc<portcullis_policy::manifest::ValidatedObject>| object.identity().to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&difference.added), ["ClusterRoleBinding/b"]);
    assert_eq!(names(&difference.removed), ["ClusterRoleBinding/b"]);
    // The lines are those of now: `a` has moved down.
    let lines: Vec<u32> = faults.iter().map(|fault| fault.place.line).collect();
    assert_eq!(lines, [6, 12]);
}
