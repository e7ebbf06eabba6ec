//! `portcullis init`.

use std::os::unix::fs::PermissionsExt;

use crate::run::Portcullis;

#[test]
fn writes_a_whole_set_up_and_says_what_to_do_next() {
    let portcullis = Portcullis::new();
    let run = portcullis.run("init gateway --host gateway.example.com");
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stdout.contains("portcullis serve --config"), "{run:?}");
    for path in [
        "portcullis.yaml",
        "README.md",
        "authorization-configuration.yaml",
        "admission-configuration.yaml",
        "webhooks.yaml",
        "kubeconfigs/authorization.kubeconfig",
        "kubeconfigs/admission.kubeconfig",
        "pki/ca.crt",
        "pki/server.crt",
        "policies/discovery.yaml",
    ] {
        assert!(portcullis.path("gateway").join(path).is_file(), "{path}");
    }
    let kubeconfig =
        std::fs::read_to_string(portcullis.path("gateway/kubeconfigs/authorization.kubeconfig")).unwrap();
    assert!(
        kubeconfig.contains("server: https://gateway.example.com:8443/authorize"),
        "{kubeconfig}"
    );
}

#[test]
fn what_holds_a_key_is_for_its_owner_alone() {
    let portcullis = Portcullis::new();
    assert_eq!(portcullis.run("init .").code, 0);
    for path in ["pki/ca.key", "pki/server.key", "kubeconfigs/admission.kubeconfig"] {
        let mode = std::fs::metadata(portcullis.path(path))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{path}");
    }
}

#[test]
fn overwrites_nothing_and_writes_nothing_beside_it() {
    let portcullis = Portcullis::new();
    portcullis.write("gateway/pki/server.key", "mine");
    let run = portcullis.run("init gateway");
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.stderr.contains("already has pki/server.key"), "{run:?}");
    assert_eq!(
        std::fs::read_to_string(portcullis.path("gateway/pki/server.key")).unwrap(),
        "mine"
    );
    assert!(!portcullis.path("gateway/portcullis.yaml").exists());
}

#[test]
fn leaves_a_set_up_that_is_there_alone_when_told() {
    let portcullis = Portcullis::new();
    assert_eq!(portcullis.run("init gateway --if-absent").code, 0);
    let before = std::fs::read(portcullis.path("gateway/pki/ca.crt")).unwrap();
    let run = portcullis.run("init gateway --if-absent");
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(
        std::fs::read(portcullis.path("gateway/pki/ca.crt")).unwrap(),
        before
    );
}

#[test]
fn lists_its_files_as_json() {
    let portcullis = Portcullis::new();
    let run = portcullis.run("init gateway -o json");
    let written: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    let files = written["files"].as_array().unwrap();
    assert!(files.iter().any(|file| file == "portcullis.yaml"), "{run:?}");
    assert!(
        files
            .iter()
            .all(|file| portcullis.path("gateway").join(file.as_str().unwrap()).is_file())
    );
}

#[test]
fn a_host_that_is_none_is_wrong_usage() {
    let run = Portcullis::new().run("init gateway --host https://gateway");
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.stderr.contains("expected a DNS name"), "{run:?}");
}
