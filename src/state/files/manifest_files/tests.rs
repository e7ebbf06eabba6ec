//! What is read again, and what is not.

use std::fs;
use std::time::Duration;

use super::*;
use crate::config::HeldBack;
use portcullis_policy::manifest::{ObjectSet, Options};

/// So long after the files were written that their times tell.
fn later() -> SystemTime {
    SystemTime::now() + Duration::from_secs(3600)
}

fn read(folder: &Path, earlier: Option<&ManifestFiles>, keeps_texts: bool, now: SystemTime) -> ManifestFiles {
    let entry = ManifestPath {
        path: folder.to_owned(),
        cluster: None,
        bundle: None,
    };
    let earlier = EarlierFiles::new(earlier, Version::NEWEST, now);
    let (files, faults) =
        ManifestFiles::read_paths(&[entry], ManifestMemory::of_process(), keeps_texts, earlier);
    assert_eq!(faults.together().to_string(), "");
    files
}

fn binding(name: &str, user: &str) -> String {
    format!(
        "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {{name: {name}}}\n\
         roleRef: {{kind: ClusterRole, name: readers}}\nsubjects: [{{kind: User, name: {user}}}]\n"
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
        bundle: None,
    };
    let earlier = EarlierFiles {
        times: FileTimes::Ignored,
        ..EarlierFiles::new(Some(&before), Version::NEWEST, later())
    };
    let (after, _) = ManifestFiles::read_paths(&[entry], ManifestMemory::of_process(), false, earlier);
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
        bundle: None,
    };
    let earlier = EarlierFiles::new(Some(&before), Version::new(36), later());
    let (after, _) = ManifestFiles::read_paths(&[entry], ManifestMemory::of_process(), false, earlier);
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

/// What objects may take in a test: of each one more than 1,000 bytes are counted.
const MEMORY: ManifestMemory = ManifestMemory { bytes: 100_000 };

#[test]
fn what_the_files_of_a_cluster_become_is_charged_to_it_alone() {
    let folder = tempfile::tempdir().unwrap();
    let entry = |cluster: Option<&str>| {
        let path = folder.path().join(cluster.unwrap_or("all"));
        fs::create_dir_all(&path).unwrap();
        ManifestPath {
            path,
            cluster: cluster.map(str::to_owned),
            bundle: None,
        }
    };
    let paths = [None, Some("a"), Some("b")].map(entry);
    let bindings = |name: &str, count: usize| -> String {
        (0..count)
            .map(|number| binding(&format!("{name}{number}"), "jane"))
            .collect()
    };
    // A quarter of the memory for each of two clusters.
    for (path, name, count) in [(&paths[0], "x", 2), (&paths[1], "a", 3), (&paths[2], "b", 3)] {
        fs::write(path.path.join("f.yaml"), bindings(name, count)).unwrap();
    }
    let read = |earlier: Option<&ManifestFiles>| {
        let earlier = EarlierFiles::new(earlier, Version::NEWEST, later());
        ManifestFiles::read_paths(&paths, MEMORY, false, earlier).0
    };
    let faults = |files: &ManifestFiles| ObjectSet::new(files.objects(), &Options::default(), None).1;
    let errors = |files: &ManifestFiles| {
        let mut held = HeldBack::new();
        let mut found = files.by_cluster(faults(files));
        found.hold_back_clusters(&mut held);
        assert!(!found.together().has_errors());
        held
    };
    let before = read(None);
    assert_eq!(errors(&before), HeldBack::new());
    assert!(before.fit(MEMORY, &paths));
    fs::write(paths[1].path.join("f.yaml"), bindings("a", 60)).unwrap();
    fs::write(paths[2].path.join("f.yaml"), bindings("b", 4)).unwrap();
    let after = read(Some(&before));
    let held = errors(&after);
    assert_eq!(held.keys().collect::<Vec<_>>(), ["a"]);
    let message = held["a"].to_string();
    assert!(message.contains("a/f.yaml:"), "{message}");
    assert!(
        message.contains("the manifests of the cluster `a` take more memory"),
        "{message}"
    );
    // What those for every cluster need leaves less to each.
    fs::write(paths[1].path.join("f.yaml"), bindings("a", 1)).unwrap();
    fs::write(paths[0].path.join("f.yaml"), bindings("x", 42)).unwrap();
    let less = read(Some(&before));
    assert_eq!(errors(&less).keys().collect::<Vec<_>>(), ["b"]);
    assert!(!before.fit(ManifestMemory { bytes: 10_000 }, &paths));
}
