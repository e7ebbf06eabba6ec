//! Changed files are noticed, and a bad one changes nothing.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use crate::support::{Builder, Gateway, JANE_GETS, until, v1};

/// Joe may get `/x`, says this policy.
const JOE_MAY: &str = "
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: joe-may}
spec:
  effect: Allow
  subjects: [{kind: User, name: joe}]
  nonResourceRules: [{verbs: [get], paths: [/x]}]
";

fn joe_may(gateway: &Gateway) -> bool {
    let ask = v1(r#"{"user":"joe","nonResourceAttributes":{"path":"/x","verb":"get"}}"#);
    gateway.connect().authorize(&ask).json()["status"]["allowed"] == true
}

/// A folder as the kubelet mounts a ConfigMap: links through `..data`.
fn mount(folder: &Path, version: &str, manifest: &str) {
    fs::create_dir(folder.join(version)).unwrap();
    fs::write(folder.join(version).join("mounted.yaml"), manifest).unwrap();
    symlink(version, folder.join("..new")).unwrap();
    fs::rename(folder.join("..new"), folder.join("..data")).unwrap();
}

#[test]
fn the_swap_of_a_link_is_noticed() {
    let gateway = Gateway::usual();
    let folder = gateway.file("policies");
    mount(&folder, "..1", "");
    symlink("..data/mounted.yaml", folder.join("mounted.yaml")).unwrap();
    assert!(!joe_may(&gateway));
    mount(&folder, "..2", JOE_MAY);
    until("the new version is in force", || joe_may(&gateway));
}

#[test]
fn what_no_watch_tells_of_is_found_by_the_poll() {
    let gateway = Builder::new().reload("100ms").start();
    let aside = tempfile::tempdir().unwrap();
    let path = |name: &str| aside.path().join(name);
    fs::create_dir_all(path("a/real")).unwrap();
    fs::create_dir_all(path("b/real")).unwrap();
    fs::write(path("a/real/joe.yaml"), "").unwrap();
    fs::write(path("b/real/joe.yaml"), JOE_MAY).unwrap();
    // The link in the middle is in a folder that holds no file of ours.
    symlink(path("a/real"), path("middle")).unwrap();
    symlink(path("middle/joe.yaml"), gateway.file("policies/joe.yaml")).unwrap();
    gateway.reload(&[]);
    assert!(!joe_may(&gateway));
    fs::remove_file(path("middle")).unwrap();
    symlink(path("b/real"), path("middle")).unwrap();
    until("the other end is in force", || joe_may(&gateway));
}

#[test]
fn a_bad_file_keeps_the_last_good_set_until_it_is_mended() {
    let gateway = Gateway::usual();
    gateway.reload(&[("policies/more.yaml", JOE_MAY.as_bytes())]);
    assert!(joe_may(&gateway));
    let good = Arc::clone(&gateway.state.current());

    let faulty = JOE_MAY.replace("effect: Allow", "effect: Perhaps");
    fs::write(gateway.file("policies/more.yaml"), faulty).unwrap();
    until("the fault is found", || gateway.state.last_failure().is_some());
    let faults = gateway.state.last_failure().unwrap().faults.to_string();
    assert!(
        faults.contains("more.yaml:6: AuthorizationPolicy/joe-may: spec.effect: "),
        "{faults}"
    );
    assert!(Arc::ptr_eq(&good, &gateway.state.current()));
    assert!(joe_may(&gateway));

    fs::write(gateway.file("policies/more.yaml"), "").unwrap();
    until("the mended file is in force", || !joe_may(&gateway));
    assert!(gateway.state.last_failure().is_none());
}

#[test]
fn a_token_that_a_file_replaces_is_accepted_at_once_and_the_old_one_still() {
    let gateway = Gateway::usual();
    let ask = v1(JANE_GETS);
    let status = |token: &str| {
        let mut connection = gateway.stranger().connect(gateway.addresses.server);
        let head = format!(
            "POST /authorize HTTP/1.1\r\nContent-Type: application/json\r\nAuthorization: Bearer {token}"
        );
        connection.request(&head, ask.as_bytes()).status
    };
    assert_eq!((status("right-token"), status("newer-token")), (200, 401));
    let kubeconfig = fs::read_to_string(gateway.file("authorization.kubeconfig")).unwrap();
    let newer = kubeconfig.replace("right-token", "newer-token");
    gateway.reload(&[("authorization.kubeconfig", newer.as_bytes())]);
    assert_eq!((status("right-token"), status("newer-token")), (200, 200));
}
