//! Folders as they are, with links, pipes and devices in them.

mod digest;

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::*;
use crate::state::watched::WatchedObjects;
use portcullis_cel::Version;

fn names(folder: &Path, cluster: Option<&str>) -> (Vec<String>, Faults) {
    let entry = ManifestPath {
        path: folder.to_owned(),
        cluster: cluster.map(str::to_owned),
        bundle: None,
    };
    let (sources, faults) = read_manifests(&[entry]);
    let prefix = format!("{}/", folder.display());
    (
        sources
            .iter()
            .map(|source| source.file.replace(&prefix, ""))
            .collect(),
        faults,
    )
}

#[test]
fn a_folder_is_read_as_the_contract_says() {
    let folder = tempfile::tempdir().unwrap();
    for file in [
        "b.yaml",
        "a.yml",
        "sub/c.json",
        ".hidden.yaml",
        "note.txt",
        ".dir/d.yaml",
    ] {
        let path = folder.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "# none").unwrap();
    }
    let (names, faults) = names(folder.path(), None);
    assert_eq!(names, ["a.yml", "b.yaml", "sub/c.json"]);
    assert!(faults.is_empty());
}

#[test]
fn a_mounted_config_map_is_read_once() {
    let folder = tempfile::tempdir().unwrap();
    let real = folder.path().join("..2026_01_01");
    fs::create_dir(&real).unwrap();
    fs::write(real.join("p.yaml"), "# none").unwrap();
    std::os::unix::fs::symlink("..2026_01_01", folder.path().join("..data")).unwrap();
    std::os::unix::fs::symlink("..data/p.yaml", folder.path().join("p.yaml")).unwrap();
    assert_eq!(names(folder.path(), None).0, ["p.yaml"]);
}

#[test]
fn what_several_names_lead_to_counts_once() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().unwrap();
    for name in ["a", "b", "c"] {
        fs::create_dir(folder.path().join(name)).unwrap();
        fs::write(folder.path().join(name).join("p.yaml"), "# none").unwrap();
        for link in ["x", "y"] {
            symlink("..", folder.path().join(name).join(link)).unwrap();
        }
    }
    symlink("a/p.yaml", folder.path().join("z.yaml")).unwrap();
    for cluster in [None, Some("east")] {
        let (names, faults) = names(folder.path(), cluster);
        assert_eq!(names, ["a/p.yaml", "b/p.yaml", "c/p.yaml"]);
        assert!(faults.is_empty(), "{faults}");
    }
}

#[test]
fn what_is_no_regular_file_is_a_fault_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let made = std::process::Command::new("mkfifo")
        .arg(path("fifo.yaml"))
        .status();
    assert!(made.unwrap().success());
    std::os::unix::fs::symlink("/dev/zero", path("zero.json")).unwrap();
    fs::write(path("well.yaml"), "# none").unwrap();
    let (names, faults) = names(folder.path(), None);
    assert_eq!(names, ["well.yaml"]);
    let faults = faults.to_string();
    for fault in [
        "fifo.yaml: Unreadable: is a named pipe (FIFO); it must be a regular file\n",
        "zero.json: Unreadable: is a device; it must be a regular file",
    ] {
        assert!(faults.contains(fault), "{faults}");
    }
    let files = [path("fifo.yaml"), path("zero.json")];
    assert_ne!(
        fingerprint(&files, &Fingerprint::none(), SystemTime::now()),
        Fingerprint::none()
    );
}

#[test]
fn a_set_has_bounds_which_a_fault_names() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.yaml", "b.yaml", "c.yaml"] {
        fs::write(folder.path().join(name), "# ten bytes").unwrap();
    }
    let entry = ManifestPath {
        path: folder.path().to_owned(),
        cluster: None,
        bundle: None,
    };
    let read = |files, bytes| {
        let (sources, faults) = read_within(std::slice::from_ref(&entry), ReadLimits { files, bytes });
        (sources.len(), faults.together().to_string())
    };
    assert_eq!(read(4, 33), (3, String::new()));
    let (count, faults) = read(4, 32);
    assert_eq!(count, 2);
    let expected = "c.yaml: Unreadable: with this file, the manifests exceed the limit of 32 bytes";
    assert!(faults.contains(expected), "{faults}");
    // Whatever they are, and whatever they are called.
    fs::write(folder.path().join("note.txt"), "").unwrap();
    assert_eq!(read(4, 33), (3, String::new()));
    fs::write(folder.path().join(".hidden"), "").unwrap();
    let (count, faults) = read(4, 33);
    assert_eq!(count, 0);
    assert!(
        faults.contains("with this folder there are more than 4 files"),
        "{faults}"
    );
    fs::remove_file(folder.path().join(".hidden")).unwrap();
    fs::rename(
        folder.path().join("note.txt"),
        folder.path().join("n".repeat(255)),
    )
    .unwrap();
    assert_eq!(read(4, 33).0, 0, "a long name takes more");
}

#[test]
fn what_one_cluster_writes_leaves_the_others_their_room() {
    let folder = tempfile::tempdir().unwrap();
    let mut entries = Vec::new();
    for (name, cluster, files) in [
        ("east", Some("east"), 9),
        ("shared", None, 2),
        ("west", Some("west"), 2),
    ] {
        let path = folder.path().join(name);
        fs::create_dir(&path).unwrap();
        for file in 0..files {
            fs::write(path.join(format!("{file}.yaml")), "# ten bytes").unwrap();
        }
        let cluster = cluster.map(str::to_owned);
        entries.push(ManifestPath {
            path,
            cluster,
            bundle: None,
        });
    }
    let (files, bytes) = (100, 22 + 2 * 22);
    let (sources, mut faults) = read_within(&entries, ReadLimits { files, bytes });
    let clusters: Vec<_> = sources.iter().map(|source| source.cluster.as_deref()).collect();
    let (east, west) = (Some("east"), Some("west"));
    assert_eq!(clusters, [east, east, None, None, west, west]);
    assert_eq!(faults.of(None).len() + faults.of(west).len(), 0);
    let told = faults.of(east).to_string();
    assert!(told.contains("2.yaml: Unreadable: with this file, the manifests exceed the limit of 22 bytes"));
    assert_eq!(faults.of(east).len(), 1, "{told}");
}

#[test]
fn a_path_that_is_not_there_is_a_fault_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let (_, faults) = names(&folder.path().join("absent"), Some("east"));
    assert!(faults.to_string().contains("absent: Unreadable: "), "{faults}");
}

#[test]
fn the_revision_is_of_the_text_and_its_cluster() {
    let source = |text: &str, cluster: Option<&str>| Source {
        file: "anywhere".into(),
        text: text.into(),
        cluster: cluster.map(str::to_owned),
    };
    let revision = |config: &str, sources: &[Source]| {
        let files = ManifestFiles::of_sources(sources.to_vec(), Version::NEWEST);
        Revision::of_files([config], &files).name()
    };
    let one = revision("c", &[source("a", None)]);
    assert_eq!(one.len(), 12);
    assert_ne!(one, revision("c", &[source("a", Some("east"))]));
    assert_ne!(one, revision("c", &[source("a", None), source("", None)]));
    assert_ne!(one, revision("d", &[source("a", None)]));
}

#[test]
fn the_revision_is_of_what_is_beside_the_files_too() {
    let files = Revision::of_files(["c"], &ManifestFiles::default());
    let watched = |byte| {
        Arc::new(WatchedObjects {
            digest: [byte; 32],
            ..WatchedObjects::default()
        })
    };
    let names = [
        files.clone().name(),
        files.clone().with(&[watched(1)]).name(),
        files.clone().with(&[watched(2)]).name(),
        files.with(&[watched(1), watched(2)]).name(),
    ];
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), 4);
}

#[test]
fn links_to_files_and_folders_are_followed() {
    use std::os::unix::fs::symlink;
    let (folder, aside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::create_dir(aside.path().join("sub")).unwrap();
    fs::write(aside.path().join("sub/c.yaml"), "# none").unwrap();
    fs::write(aside.path().join("d.yaml"), "# none").unwrap();
    symlink(aside.path().join("sub"), folder.path().join("linked")).unwrap();
    symlink(aside.path().join("d.yaml"), folder.path().join("d.yaml")).unwrap();
    let (names, faults) = names(folder.path(), None);
    assert_eq!(
        (names, faults.to_string()),
        (
            vec!["d.yaml".to_owned(), "linked/c.yaml".to_owned()],
            String::new()
        )
    );
}

#[test]
fn files_are_looked_at_again_only_where_their_times_tell() {
    let folder = tempfile::tempdir().unwrap();
    let files = ["a.yaml", "b.yaml"].map(|name| folder.path().join(name));
    let later = SystemTime::now() + Duration::from_secs(3600);
    let none = Fingerprint::none();
    fs::write(&files[0], "a: 1").unwrap();
    let absent = fingerprint(&files, &none, later);
    fs::write(&files[1], "b: 1").unwrap();
    let both = fingerprint(&files, &absent, later);
    assert_ne!(both, absent);
    assert_eq!(
        fingerprint(&files, &both, later),
        fingerprint(&files, &none, later)
    );
    fs::write(&files[0], "a: 2").unwrap();
    assert_ne!(fingerprint(&files, &both, later), both);
    assert_ne!(fingerprint(&files, &both, SystemTime::now()), both);
    fs::write(&files[0], "a: 1").unwrap();
    assert_eq!(fingerprint(&files, &both, later), both);
}
