//! A start beside files of single clusters that have faults, without `reload.lastGood`.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use portcullis::cluster::Clusters;
use portcullis::state::{self, NoManifestSource, UnsyncedResponse};

use super::{ask, builder, deny, entry, faults_of, gauge_of};
use crate::support::{Builder, Gateway, get, kubeconfig, until};

fn unknown(gateway: &Gateway, cluster: &str) -> Option<f64> {
    gauge_of(gateway, "portcullis_cluster_unknown_policies", cluster)
}

/// With a caller of the cluster `west` too.
fn with_west() -> Builder {
    builder()
        .file("west.kubeconfig", kubeconfig("west-token"))
        .more_callers("- {kubeconfig: west.kubeconfig, cluster: west}\n")
}

#[test]
fn a_cluster_with_faulty_manifests_is_not_decided_and_the_others_are() {
    let gateway = with_west().file("east/more.yaml", "kind: [").start();
    assert_eq!(ask(&gateway, "own-token", "joe"), (200, false));
    assert_eq!(ask(&gateway, "west-token", "joe"), (200, false));
    assert_eq!(ask(&gateway, "nobody's", "joe").0, 401);
    // Even who would be denied by what can be read.
    for user in ["joe", "jane"] {
        assert_eq!(ask(&gateway, "east-token", user), (503, false));
    }
    assert_eq!(ask(&gateway, "east-token", "system:kube-scheduler"), (200, false));
    let of = |cluster| (unknown(&gateway, cluster), faults_of(&gateway, cluster));
    assert_eq!((of("east"), of("west").0), ((Some(1.0), Some(1.0)), Some(0.0)));
    let ready = get(gateway.addresses.admin, "/readyz?verbose").1;
    assert!(
        ready.contains("the policies of cluster east are not known"),
        "{ready}"
    );

    // However long that takes, and whatever else changes.
    let snapshot = Arc::clone(&gateway.state.current());
    let late = Instant::now() + Duration::from_secs(1_000_000);
    let unsynced = snapshot.unsynced("east").unwrap();
    assert_eq!(unsynced.answer("jane", false, late), UnsyncedResponse::Faulty);
    fs::write(gateway.file("policies/more.yaml"), deny("all", "ann")).unwrap();
    until("the change is in force", || ask(&gateway, "own-token", "ann").1);
    assert_eq!(ask(&gateway, "east-token", "jane").0, 503);

    fs::remove_file(gateway.file("east/more.yaml")).unwrap();
    until("what is mended is in force", || {
        ask(&gateway, "east-token", "joe") == (200, true)
    });
    assert_eq!(ask(&gateway, "east-token", "jane"), (200, false));
    assert_eq!(of("east"), (Some(0.0), Some(0.0)));
    // Now there are last good ones.
    fs::write(gateway.file("east/more.yaml"), "kind: [").unwrap();
    until("the fault is found", || faults_of(&gateway, "east") == Some(1.0));
    assert_eq!(
        (ask(&gateway, "east-token", "joe"), of("east").0),
        ((200, true), Some(0.0))
    );
}

#[test]
fn a_cluster_with_a_faulty_entry_is_not_decided() {
    let faulty = "name: west\nkubeconfig: [\n";
    let gateway = with_west().file("clusters.d/west/west.yaml", faulty).start();
    assert_eq!(ask(&gateway, "own-token", "joe"), (200, false));
    assert_eq!(ask(&gateway, "east-token", "joe"), (200, true));
    assert_eq!(ask(&gateway, "west-token", "joe").0, 503);
    assert_eq!(unknown(&gateway, "west"), Some(1.0));
    fs::write(gateway.file("clusters.d/west/west.yaml"), entry("west")).unwrap();
    until("what is mended is in force", || {
        ask(&gateway, "west-token", "joe").0 == 200
    });
}

#[test]
fn an_entry_without_a_name_may_be_that_of_any_cluster_that_has_none() {
    let gateway = with_west().file("clusters.d/north.yaml", "name: [").start();
    assert_eq!(ask(&gateway, "west-token", "joe").0, 200);
    for token in ["own-token", "east-token"] {
        assert_eq!(ask(&gateway, token, "joe").0, 503, "{token}");
    }
}

#[test]
fn a_faulty_entry_in_a_folder_of_a_tenant_is_that_of_no_other() {
    let north = ("clusters.d/north/north.yaml", "name: [");
    let gateway = with_west()
        .file("north.kubeconfig", kubeconfig("north-token"))
        .more_callers(
            "- {kubeconfig: west.kubeconfig, cluster: west}\n- {kubeconfig: north.kubeconfig, cluster: north}\n",
        )
        .file(north.0, north.1)
        .start();
    for (token, status) in [
        ("own-token", 200),
        ("east-token", 200),
        ("west-token", 200),
        ("north-token", 503),
    ] {
        assert_eq!(ask(&gateway, token, "joe").0, status, "{token}");
    }
    // A file named after a cluster does not accuse it.
    fs::write(gateway.file(north.0), entry("north")).unwrap();
    until("what is mended is in force", || {
        ask(&gateway, "north-token", "joe").0 == 200
    });
    fs::write(gateway.file("clusters.d/north/east.yaml"), "name: [").unwrap();
    until("the fault is found", || {
        faults_of(&gateway, "north/east.yaml") == Some(1.0)
    });
    assert_eq!(faults_of(&gateway, "east"), Some(0.0));
    fs::write(gateway.file("east/deny.yaml"), deny("east-denies", "jane")).unwrap();
    until("the change is in force", || ask(&gateway, "east-token", "jane").1);
    assert_eq!(
        ask(&gateway, "own-token", "joe"),
        (200, false),
        "it was known before"
    );
}

#[test]
fn a_new_cluster_with_faulty_files_is_not_decided_either() {
    let gateway = builder()
        .file("north.kubeconfig", kubeconfig("north-token"))
        .start();
    let text = fs::read_to_string(gateway.file("config.yaml")).unwrap();
    let text = text.replace(
        "- {kubeconfig: own.kubeconfig}\n",
        "- {kubeconfig: own.kubeconfig}\n- {kubeconfig: north.kubeconfig, cluster: north}\n",
    );
    fs::create_dir(gateway.file("clusters.d/north")).unwrap();
    fs::write(gateway.file("clusters.d/north/n.yaml"), "name: north\n").unwrap();
    fs::write(gateway.file("config.yaml"), text).unwrap();
    until("the caller is known", || {
        ask(&gateway, "north-token", "joe").0 == 503
    });
    assert_eq!(ask(&gateway, "own-token", "joe").0, 200);
}

#[test]
fn a_cluster_of_which_nothing_can_be_learnt_is_not_decided() {
    let gateway = with_west().source(Arc::new(Clusters::new())).start();
    let late = Instant::now() + Duration::from_secs(1_000_000);
    let unsynced = gateway.state.current().unsynced("west").cloned().unwrap();
    assert_eq!(unsynced.answer("jane", false, late), UnsyncedResponse::Faulty);
    assert_eq!(ask(&gateway, "west-token", "joe").0, 503);
    assert_eq!(ask(&gateway, "own-token", "joe").0, 200);
}

#[test]
fn a_gateway_that_could_answer_nobody_does_not_start() {
    let gateway = builder().start();
    fs::write(gateway.file("east/more.yaml"), "kind: [").unwrap();
    let text = fs::read_to_string(gateway.file("config.yaml")).unwrap();
    let only_east: Vec<&str> = text
        .lines()
        .filter(|line| !line.contains("old.kubeconfig") && !line.contains("own.kubeconfig"))
        .collect();
    fs::write(gateway.file("config.yaml"), only_east.join("\n")).unwrap();
    let (snapshot, faults) = state::load(
        &gateway.file("config.yaml"),
        &NoManifestSource,
        None,
        SystemTime::now(),
    );
    assert!(snapshot.is_none());
    assert!(faults.to_string().contains("more.yaml"), "{faults}");
}

#[test]
fn what_is_unknown_is_not_forgotten_by_what_is_saved() {
    let gateway = with_west()
        .reload("1h, lastGood: last-good")
        .file("east/more.yaml", "kind: [")
        .start();
    until("it is saved", || gateway.file("last-good").exists());
    for now in ["kind: [", "kind: ["] {
        fs::write(gateway.file("policies/more.yaml"), now).unwrap();
        let saved =
            state::last_good(&gateway.file("config.yaml"), &NoManifestSource, SystemTime::now()).unwrap();
        assert!(saved.unsynced("east").is_some() && saved.unsynced("west").is_none());
    }
    fs::remove_file(gateway.file("policies/more.yaml")).unwrap();
    let (loaded, faults) = state::load(
        &gateway.file("config.yaml"),
        &NoManifestSource,
        None,
        SystemTime::now(),
    );
    assert!(
        loaded
            .unwrap_or_else(|| panic!("{faults}"))
            .unsynced("east")
            .is_some()
    );
}
