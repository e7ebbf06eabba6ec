//! What names mean, in folders with links in them.

use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;
use crate::config;

const CONFIGURATION: &str = "
apiVersion: config.portcullis.dev/v1alpha1
kind: GatewayConfiguration
server: {address: '127.0.0.1:0', tls: {certificate: s.crt, privateKey: s.key, clientCA: ca.crt}}
callers: [{clientCertificate: {commonNames: [api]}}]
manifests: [set, mounted, aliased/real]
";

/// A set of plain files, of a mounted ConfigMap, and of a folder that a link leads to; with one
/// file that has two names, one that a link leads to, and one that is a kubeconfig too.
fn mk_names(folder: &TempDir) -> SetNames {
    let path = |name: &str| folder.path().join(name);
    let write = |name: &str| fs::write(path(name), "").unwrap();
    for name in [
        "set",
        "set/sub",
        "mounted",
        "mounted/..1",
        "elsewhere",
        "elsewhere/real",
    ] {
        fs::create_dir(path(name)).unwrap();
    }
    for name in [
        "set/a.yaml",
        "set/sub/b.json",
        "set/two.yaml",
        "set/linked.yaml",
        "set/kubeconfig.yaml",
        "set/note.txt",
        "portcullis.yaml",
        "s.crt",
        "mounted/..1/m.yaml",
        "elsewhere/real/e.yaml",
    ] {
        write(name);
    }
    fs::hard_link(path("set/two.yaml"), path("two")).unwrap();
    symlink("linked.yaml", path("set/link.yaml")).unwrap();
    symlink("..1", path("mounted/..data")).unwrap();
    symlink("..data/m.yaml", path("mounted/m.yaml")).unwrap();
    symlink("elsewhere", path("aliased")).unwrap();
    let (config, faults) = config::parse(&path("portcullis.yaml"), CONFIGURATION, folder.path());
    let config = config.unwrap_or_else(|| panic!("{faults}"));
    let others = BTreeSet::from([path("set/kubeconfig.yaml")]);
    SetFiles::new(&path("portcullis.yaml"), &config, &others).take_names()
}

#[test]
fn only_what_is_plainly_a_file_of_manifests_is_read_alone() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let names = mk_names(&folder);
    // After the look at everything.
    for name in ["set/new", "set/new/sub"] {
        fs::create_dir(root.join(name)).unwrap();
    }
    symlink("sub", root.join("set/another")).unwrap();
    fs::write(root.join("set/new.yaml"), "").unwrap();
    fs::write(root.join("set/4913"), "").unwrap();
    for (name, expected) in [
        ("set/a.yaml", Some("set/a.yaml")),
        ("set/sub/b.json", Some("set/sub/b.json")),
        // No files of the set, and none leads to one: there, or not.
        ("set/4913", None),
        ("set/gone", None),
        ("elsewhere/gone", None),
        ("aliased/gone", None),
    ] {
        let rewritten = names.modified_files(&BTreeSet::from([root.join(name)]));
        let expected: BTreeSet<_> = expected.into_iter().map(|name| root.join(name)).collect();
        assert_eq!(rewritten, Some(expected), "{name}");
    }
    for name in [
        "set/new.yaml",
        "set/gone.yaml",
        "set/two.yaml",
        "set/linked.yaml",
        "set/link.yaml",
        "set/kubeconfig.yaml",
        "set/new",
        "set/another",
        "set/sub",
        "set",
        "portcullis.yaml",
        "s.crt",
        "s.key",
        "mounted/m.yaml",
        "mounted/..data",
        "mounted/..1",
        "mounted/..1/m.yaml",
        "aliased",
        "aliased/real",
        "aliased/real/e.yaml",
        "elsewhere/real",
        "elsewhere/real/e.yaml",
        "nowhere/at/all",
    ] {
        let with_one_more = BTreeSet::from([root.join("set/a.yaml"), root.join(name)]);
        assert_eq!(names.modified_files(&with_one_more), None, "{name}");
    }
    fs::remove_file(root.join("set/a.yaml")).unwrap();
    assert_eq!(
        names.modified_files(&BTreeSet::from([root.join("set/a.yaml")])),
        None
    );
    // A link on the way that is gone, by either name of its folder.
    fs::remove_file(root.join("mounted/..data")).unwrap();
    symlink("mounted", root.join("again")).unwrap();
    for name in ["mounted/..data", "again/..data"] {
        assert_eq!(
            names.modified_files(&BTreeSet::from([root.join(name)])),
            None,
            "{name}"
        );
    }
}
