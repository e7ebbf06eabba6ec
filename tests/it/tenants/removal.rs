//! Files that were emptied or cut: what they take away is noticed, and bounded.

use std::fs;

use super::{ask, deny, faults_of};
use crate::support::process::Process;
use crate::support::{Builder, Gateway, get, kubeconfig, until};

/// Denies for `joe`, `jack` and `jim`, in a file of their own.
fn three_denies() -> String {
    ["joe", "jack", "jim"].map(|user| deny(user, user)).concat()
}

fn builder() -> Builder {
    Builder::new()
        .callers("\n- {kubeconfig: own.kubeconfig}\n- {kubeconfig: east.kubeconfig, cluster: east}\n")
        .file("own.kubeconfig", kubeconfig("own-token"))
        .file("east.kubeconfig", kubeconfig("east-token"))
        .file("shared/denies.yaml", three_denies())
        .file(
            "east/denies.yaml",
            deny("east-1", "joan") + &deny("east-2", "joan"),
        )
        .paths("[policies, shared, {path: east, cluster: east}]")
}

/// One that lets one change take away a single restriction.
fn bounded() -> Gateway {
    builder().reload("1h, maxRemoved: 1").start()
}

fn failure(gateway: &Gateway) -> String {
    let failure = gateway.state.last_failure();
    failure.map_or_else(String::new, |failure| failure.faults.to_string())
}

#[test]
fn an_empty_file_is_a_fault() {
    let gateway = builder().start();
    fs::write(gateway.file("shared/denies.yaml"), "").unwrap();
    until("it is found", || failure(&gateway).contains("shared/denies.yaml"));
    assert!(failure(&gateway).contains("is empty"), "{}", failure(&gateway));
    assert!(ask(&gateway, "own-token", "joe").1);
    fs::write(gateway.file("shared/denies.yaml"), "# nothing any longer\n").unwrap();
    until("what has no objects on purpose is in force", || {
        !ask(&gateway, "own-token", "joe").1
    });
}

#[test]
fn a_cut_file_takes_away_no_more_than_it_may() {
    let gateway = bounded();
    fs::write(gateway.file("shared/denies.yaml"), deny("joe", "joe")).unwrap();
    until("it is found", || !failure(&gateway).is_empty());
    let told = failure(&gateway);
    for part in [
        "AuthorizationPolicy/jack",
        "AuthorizationPolicy/jim",
        "reload.maxRemoved",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(ask(&gateway, "own-token", "jim").1);
    let two = deny("joe", "joe") + &deny("jack", "jack");
    fs::write(gateway.file("shared/denies.yaml"), two).unwrap();
    until("one may go", || !ask(&gateway, "own-token", "jim").1);
    assert!(ask(&gateway, "own-token", "jack").1);
}

#[test]
fn what_one_cluster_s_files_take_away_holds_back_these_alone() {
    let gateway = bounded();
    fs::write(gateway.file("east/denies.yaml"), "# cut\n").unwrap();
    until("it is found", || faults_of(&gateway, "east") == Some(1.0));
    let two = deny("joe", "joe") + &deny("jack", "jack");
    fs::write(gateway.file("shared/denies.yaml"), two).unwrap();
    until("others change", || !ask(&gateway, "own-token", "jim").1);
    assert!(ask(&gateway, "east-token", "joan").1, "the last good ones hold");
    assert_eq!(faults_of(&gateway, "east"), Some(1.0));
}

fn removed(process: &Process, kind: &str) -> bool {
    let series = format!(r#"portcullis_restrictions_removed_total{{kind="{kind}"}} 2"#);
    get(process.admin, "/metrics").1.contains(&series)
}

#[test]
fn each_restriction_that_is_gone_is_named() {
    let process = builder().spawn();
    fs::write(process.file("shared/denies.yaml"), deny("joe", "joe")).unwrap();
    until("they are counted", || removed(&process, "AuthorizationPolicy"));
    let is_named = |name: &str| {
        let log = process.log();
        let mut lines = log.lines();
        lines.any(|line| line.contains("a restriction is no longer in force") && line.contains(name))
    };
    until("they are named", || is_named("jack") && is_named("jim"));
    assert!(!is_named("joe"));
}
