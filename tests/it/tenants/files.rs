//! Files that others than the gateway's administrator write.

use std::fs;
use std::os::unix::fs::symlink;

use super::{ask, deny, entry, faults_of, gateway, revoke};
use crate::support::{get, until};

#[test]
fn faulty_manifests_of_one_cluster_delay_no_revocation() {
    let gateway = gateway();
    assert_eq!(ask(&gateway, "old-token", "jane").0, 200);
    assert_eq!(ask(&gateway, "east-token", "joe"), (200, true));
    assert_eq!(
        (faults_of(&gateway, "east"), faults_of(&gateway, "west")),
        (Some(0.0), Some(0.0))
    );

    fs::write(gateway.file("east/more.yaml"), "kind: [").unwrap();
    fs::write(gateway.file("east/deny.yaml"), deny("east-denies", "nobody")).unwrap();
    revoke(&gateway, "old-token", "");
    assert_eq!(ask(&gateway, "own-token", "jane").0, 200);
    assert_eq!(
        ask(&gateway, "east-token", "joe"),
        (200, true),
        "the last good ones hold"
    );
    assert_eq!(
        (faults_of(&gateway, "east"), faults_of(&gateway, "west")),
        (Some(1.0), Some(0.0))
    );
    let ready = get(gateway.addresses.admin, "/readyz?verbose").1;
    assert!(
        ready.contains("the files of cluster east are not in force as they are: they have 1 error"),
        "{ready}"
    );

    fs::remove_file(gateway.file("east/more.yaml")).unwrap();
    until("what is mended is in force", || {
        !ask(&gateway, "east-token", "joe").1
    });
    assert_eq!(faults_of(&gateway, "east"), Some(0.0));
}

#[test]
fn a_faulty_entry_of_one_cluster_delays_no_revocation() {
    let gateway = gateway();
    fs::write(gateway.file("clusters.d/west/west.yaml"), "name: [").unwrap();
    fs::create_dir(gateway.file("clusters.d/north")).unwrap();
    fs::write(gateway.file("clusters.d/north/north.yaml"), entry("north")).unwrap();
    revoke(&gateway, "old-token", "");
    let names = || -> Vec<String> {
        let snapshot = gateway.state.current();
        snapshot
            .config
            .clusters
            .iter()
            .map(|entry| entry.name.clone())
            .collect()
    };
    until("the new cluster is followed", || names() == ["north", "west"]);
    assert_eq!(
        (faults_of(&gateway, "north"), faults_of(&gateway, "west")),
        (Some(0.0), Some(1.0))
    );
}

#[test]
fn what_holds_for_all_is_not_in_force_in_part() {
    let gateway = gateway();
    fs::write(gateway.file("policies/more.yaml"), "kind: [").unwrap();
    let text = fs::read_to_string(gateway.file("config.yaml")).unwrap();
    fs::write(
        gateway.file("config.yaml"),
        text.replace("- {kubeconfig: old.kubeconfig}\n", ""),
    )
    .unwrap();
    until("the fault is found", || {
        let failure = gateway.state.last_failure();
        failure.is_some_and(|failure| failure.faults.to_string().contains("more.yaml"))
    });
    assert_eq!(ask(&gateway, "old-token", "jane").0, 200);
}

#[test]
fn links_of_one_cluster_lead_to_nobody_else_s_files() {
    let gateway = gateway();
    fs::create_dir(gateway.file("west")).unwrap();
    fs::write(gateway.file("west/secret.yaml"), deny("of-west", "jane")).unwrap();
    for (name, target) in [("link.yaml", "west/secret.yaml"), ("folder", "west")] {
        symlink(gateway.file(target), gateway.file("east").join(name)).unwrap();
        until("it is refused", || faults_of(&gateway, "east") == Some(1.0));
        let held = || {
            let held_back = &gateway.state.current().held_back;
            held_back.get("east").map(ToString::to_string)
        };
        until("its files are held back", || held().is_some());
        let held = held().unwrap();
        assert!(
            held.contains("is outside of") && !held.contains("of-west"),
            "{held}"
        );
        assert_eq!(ask(&gateway, "east-token", "jane"), (200, false));
        fs::remove_file(gateway.file("east").join(name)).unwrap();
        until("it is gone", || faults_of(&gateway, "east") == Some(0.0));
    }
    // Those that lead to where they are do.
    fs::create_dir(gateway.file("east/..data")).unwrap();
    fs::write(gateway.file("east/..data/more.yaml"), deny("more", "jane")).unwrap();
    symlink("..data/more.yaml", gateway.file("east/more.yaml")).unwrap();
    until("it is in force", || ask(&gateway, "east-token", "jane").1);
}
