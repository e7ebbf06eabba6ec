//! Clusters that are followed, saved, changed and dropped.

pub(crate) mod fixtures;

use super::*;
use crate::cluster::kind::Name;
use crate::cluster::object::ReceivedObject;
use crate::cluster::saved::SnapshotSaver;
use crate::cluster::store::AbsenceEvidence;
use crate::cluster::weight::LeftOutReason;
use crate::config::{self, FileScope};

const KUBECONFIG: &str = "apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]
users: [{name: u, user: {tokenFile: token}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
";

/// A configuration with the cluster `east`, and its folder. As those of a tenant, its files are
/// in a folder of its own.
fn mk_config(limits: &str) -> (tempfile::TempDir, Config) {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    std::fs::create_dir_all(folder.path().join("clusters.d/east")).unwrap();
    // {"sub":"system:serviceaccount:portcullis:gateway"}
    let token = "e30.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6cG9ydGN1bGxpczpnYXRld2F5In0.e30";
    write("clusters.d/east/token", token);
    write("clusters.d/east/kubeconfig", KUBECONFIG);
    let entry = "name: east\nkubeconfig: kubeconfig\ncacheFile: east.saved\n";
    write("clusters.d/east/east.yaml", entry);
    let text = format!(
        "apiVersion: config.portcullis.dev/v1alpha1\nkind: GatewayConfiguration\n\
             server: {{address: '127.0.0.1:0', tls: {{certificate: a, privateKey: b}}}}\n\
             clusters: clusters.d\n{limits}"
    );
    let (config, faults) = config::parse(&folder.path().join("portcullis.yaml"), &text, folder.path());
    (folder, config.unwrap_or_else(|| panic!("{faults}")))
}

fn store(clusters: &Clusters) -> Arc<Store> {
    Arc::clone(&clusters.known().clusters["east"].store)
}

const API_VERSION: &str = "portcullis.dev/v1alpha1";

fn policies() -> WatchedKind {
    WatchedKind::of_object(API_VERSION, "AuthorizationPolicy")
}

/// A Deny with these further fields of its spec.
fn mk_policy(name: &str, fields: &str) -> (Name, Result<ReceivedObject, LeftOutReason>) {
    let spec = format!(
        r#"{{"effect":"Deny","subjects":[{{"kind":"User","name":"joe"}}],
            "resourceRules":[{{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}}]{fields}}}"#
    );
    let text = format!(
        r#"{{"apiVersion":"{API_VERSION}","kind":"AuthorizationPolicy","metadata":{{"name":"{name}"}},"spec":{spec}}}"#
    );
    let name = (String::new(), name.to_owned());
    let received = ReceivedObject::new(&policies(), API_VERSION, name.clone(), text.as_bytes());
    (name, received)
}

/// A Deny whose condition 1.36 does not know.
fn mk_conditional(name: &str) -> (Name, Result<ReceivedObject, LeftOutReason>) {
    let condition = r#","conditions":[{"name":"c","expression":"request.groups.includes('a')"}]"#;
    mk_policy(name, condition)
}

#[test]
fn a_cluster_of_which_nothing_is_known_is_awaited() {
    let (_folder, config) = mk_config("");
    let before = Instant::now();
    let watched = Clusters::new().objects(&config);
    let unsynced = watched[0].unsynced.as_ref().unwrap();
    let own_user = "system:serviceaccount:portcullis:gateway";
    assert_eq!(unsynced.own_user.as_deref(), Some(own_user));
    let until = unsynced.until.unwrap();
    assert!(until >= before + MAX_AWAITED && until <= Instant::now() + MAX_AWAITED);
}

#[test]
fn absence_is_accepted_where_an_administrator_says_so() {
    let (folder, config) = mk_config("");
    let policies = policies();
    let (name, received) = mk_policy("a", "");
    let saved = Store::new("east", None, Version::NEWEST);
    saved.apply(&policies, name, received);
    let path = folder.path().join("clusters.d/east/east.saved");
    SnapshotSaver::new(path, FileScope::Anywhere, "east")
        .save(&saved.unsaved(true))
        .unwrap();
    for (clusters, is_accepted) in [
        (Clusters::new(), false),
        (
            Clusters::accepting_absence(BTreeSet::from(["east".to_owned()])),
            true,
        ),
    ] {
        let watched = clusters.objects(&config);
        assert_eq!(watched[0].unsynced, None, "something was saved");
        let gone = store(&clusters).not_served(&policies, &AbsenceEvidence::Undefined);
        assert_eq!(gone.is_ok(), is_accepted, "{gone:?}");
    }
}

#[test]
fn requests_wait_where_changes_to_what_was_saved_are_damaged_and_then_what_was_saved_decides() {
    let (folder, config) = mk_config("");
    let policies = policies();
    let saved = Store::new("east", None, Version::NEWEST);
    let (name, received) = mk_policy("a", "");
    saved.apply(&policies, name, received);
    let path = folder.path().join("clusters.d/east/east.saved");
    let mut saver = SnapshotSaver::new(path.clone(), FileScope::Anywhere, "east");
    saver.save(&saved.unsaved(true)).unwrap();
    let (name, received) = mk_policy("b", "");
    saved.apply(&policies, name, received);
    saver.save(&saved.unsaved(false)).unwrap();
    let changes = path.with_extension("saved.changes");
    for (edit, objects) in [("", 2), ("x", 1)] {
        let text = std::fs::read_to_string(&changes).unwrap();
        std::fs::write(&changes, edit.to_owned() + &text).unwrap();
        let watched = Clusters::new().objects(&config);
        assert_eq!(watched[0].unsynced.is_some(), objects == 1);
        assert_eq!(watched[0].objects().count(), objects);
    }
}

/// Longer than any test runs.
const LONG: Duration = Duration::from_secs(20);

#[test]
fn compiling_for_another_version_holds_up_nobody() {
    let (_folder, config) = mk_config("");
    let (_other, for_36) = mk_config("admission: {celVersion: '1.36'}\n");
    let clusters = Clusters::new();
    clusters.objects(&config);
    let (store, policies) = (store(&clusters), policies());
    let (name, received) = mk_conditional("before");
    store.apply(&policies, name, received);
    let held_up = store.compiling.lock().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| clusters.objects(&for_36));
        let (answered, answer) = std::sync::mpsc::channel();
        let (clusters, store) = (&clusters, &store);
        scope.spawn(move || {
            while store.is_for(config.admission.cel_version) {
                std::thread::yield_now();
            }
            let (name, received) = mk_policy("meanwhile", "");
            store.apply(&policies, name, received);
            answered.send((clusters.status().len(), store.status().objects))
        });
        let answer = answer.recv_timeout(LONG);
        drop(held_up);
        assert_eq!(answer.unwrap(), (1, 2), "it waits until all is compiled");
    });
    assert_eq!(
        store.status().faulty,
        1,
        "what was there before is compiled again"
    );
}

#[test]
fn what_all_objects_may_take_is_as_configured() {
    let (_folder, config) = mk_config("limits: {watchedBytes: 16Mi}\n");
    assert_eq!(watched_bytes(&config), 16 << 20);
    let (_folder, config) = mk_config("");
    assert_eq!(
        watched_bytes(&config),
        memory_of_process().unwrap_or(ASSUMED_MEMORY) / 2
    );
}

#[test]
fn the_token_file_of_a_tenant_is_read_with_the_configuration_alone() {
    let (_folder, config) = mk_config("");
    let (context, _, faults) = context_of(&config.clusters[0]);
    let bearer = context.unwrap().user.unwrap().bearer.unwrap();
    assert!(bearer.file.is_none(), "{faults}");
}
