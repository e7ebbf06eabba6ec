//! A gateway that starts while its API server is not there.

use super::servers::{self, CLUSTER};
use crate::harness::eventually;
use crate::harness::folder::Folder;
use crate::harness::gateway::{Gateway, Setup};
use crate::harness::ports;
use crate::harness::relay::Relay;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;

const POLICY: &str = "
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: saved}
spec:
  effect: Deny
  subjects: [{kind: Group, name: people}]
  nonResourceRules: [{verbs: [get], paths: [/saved]}]
";

pub(crate) fn what_was_saved_decides_until_the_api_server_is_there() {
    let Some(servers) = servers::shared() else { return };
    servers.apply("saved.yaml", POLICY);
    let saved = || fs::read_to_string(&servers.cache_file).unwrap_or_default();
    // What changed since the set was written as a whole.
    let changes =
        || fs::read_to_string(format!("{}.changes", servers.cache_file.display())).unwrap_or_default();
    // The set is read between two looks at the changes, which belong to it only if they are the same.
    let consistent = || {
        let (before, set, after) = (changes(), saved(), changes());
        let has_policy = [&set, &after]
            .iter()
            .any(|text| text.contains(r#""name":"saved""#));
        (before == after && has_policy).then_some((set, after))
    };
    let mut copied = None;
    assert!(
        eventually(|| {
            copied = consistent();
            copied.is_some()
        }),
        "{}{}",
        saved(),
        changes()
    );
    let (set, changes) = copied.unwrap();
    let mode = fs::metadata(&servers.cache_file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let (folder, relay) = (Folder::new("cluster-saved"), Relay::new());
    folder.write("gateway/default.json", set);
    folder.write("gateway/default.json.changes", changes);
    let gateway = Gateway::start(&Setup {
        folder: &folder.path().join("gateway"),
        address: ports::free(),
        keys: &servers.keys,
        callers: Vec::new(),
        manifests: &[],
        more: json!({"clusters": [servers::entry(&folder, CLUSTER, &relay, &servers.authority)]}),
    });
    let synced = || gateway.metric(r#"portcullis_cluster_synced{cluster="default"}"#);
    let outcome = || servers::outcome(&servers::decision(&gateway.client(), "carol", "/saved"));
    assert_eq!((outcome(), synced()), ("deny", Some(0.0)));
    let detail = gateway.probe("/readyz?verbose").text();
    assert!(
        detail.contains("cluster default is not synced yet: ")
            && detail.contains(" saved objects are in force"),
        "{detail}"
    );

    servers.kubectl(&["delete", "authorizationpolicy", "saved"]);
    servers.wait_for("carol", "/saved", "noOpinion");
    assert_eq!(outcome(), "deny", "nothing else is known here");
    relay.lead_to(servers.cluster.address());
    assert!(
        eventually(|| synced() == Some(1.0) && outcome() == "noOpinion"),
        "{}",
        gateway.tail()
    );
}

pub(crate) fn a_damaged_file_is_told_of_and_not_used() {
    let Some(servers) = servers::shared() else { return };
    let (folder, relay) = (Folder::new("cluster-damaged"), Relay::new());
    let damaged = "{\"apiVersion\": \"portcullis.dev/v1alpha1\"}\n";
    let file = folder.write("gateway/default.json", damaged);
    let gateway = Gateway::start_until(
        &Setup {
            folder: &folder.path().join("gateway"),
            address: ports::free(),
            keys: &servers.keys,
            callers: Vec::new(),
            manifests: &[("saved.yaml", POLICY)],
            more: json!({"clusters": [servers::entry(&folder, CLUSTER, &relay, &servers.authority)]}),
        },
        "/livez",
    );
    let decision = |path: &str| servers::outcome(&servers::decision(&gateway.client(), "carol", path));
    assert!(
        matches!(decision("/saved"), "later" | "deny"),
        "half a minute later the files hold alone"
    );
    assert!(
        gateway
            .tail()
            .contains("cannot use the cache file of the cluster"),
        "{}",
        gateway.tail()
    );
    let unready = gateway.probe("/readyz");
    assert_eq!(unready.status, 503);
    assert!(
        unready
            .text()
            .contains("[-]clusters failed: the objects of a cluster are not known yet"),
        "{}",
        unready.text()
    );
    assert_eq!(fs::read_to_string(file).unwrap(), damaged, "it is left as it was");
    relay.lead_to(servers.cluster.address());
    assert!(
        eventually(|| gateway.probe("/readyz").status == 200),
        "{}",
        gateway.tail()
    );
    assert!(eventually(|| decision("/saved") == "deny"), "{}", gateway.tail());
}

pub(crate) fn a_changed_kubeconfig_is_used_and_a_removed_cluster_forgotten_without_a_restart() {
    let Some(servers) = servers::shared() else { return };
    servers.apply("kept.yaml", &POLICY.replace("saved", "kept"));
    let (folder, relay) = (Folder::new("cluster-changed"), Relay::new());
    relay.lead_to(servers.cluster.address());
    let entry = servers::entry(&folder, CLUSTER, &relay, &servers.authority);
    let kubeconfig = folder.path().join("gateway/default.kubeconfig");
    let valid = fs::read_to_string(&kubeconfig).unwrap();
    fs::write(
        &kubeconfig,
        valid.replace("token-of-portcullis", "token-of-nobody"),
    )
    .unwrap();
    let gateway = Gateway::start_until(
        &Setup {
            folder: &folder.path().join("gateway"),
            address: ports::free(),
            keys: &servers.keys,
            callers: Vec::new(),
            manifests: &[],
            more: json!({"clusters": [entry]}),
        },
        "/livez",
    );
    let metric = |name: &str| gateway.metric(&format!(r#"portcullis_{name}{{cluster="default"}}"#));
    let outcome = || servers::outcome(&servers::decision(&gateway.client(), "carol", "/kept"));
    assert!(eventually(|| metric("cluster_watch_failures_total") > Some(0.0)));
    assert!(matches!(outcome(), "later" | "noOpinion"));
    assert_eq!(metric("cluster_synced"), Some(0.0));
    fs::write(&kubeconfig, &valid).unwrap();
    assert!(eventually(|| outcome() == "deny"), "{}", gateway.tail());
    assert_eq!(metric("cluster_synced"), Some(1.0));

    let file = folder.path().join("gateway/portcullis.yaml");
    let with = fs::read_to_string(&file).unwrap();
    let mut without: Value = serde_json::from_str(&with).unwrap();
    without["clusters"] = json!([]);
    fs::write(&file, without.to_string()).unwrap();
    assert!(eventually(|| outcome() == "noOpinion"), "{}", gateway.tail());
    assert_eq!(metric("cluster_synced"), None);
    fs::write(&file, &with).unwrap();
    assert!(
        eventually(|| outcome() == "deny" && metric("cluster_synced") == Some(1.0)),
        "{}",
        gateway.tail()
    );
    servers.kubectl(&["delete", "authorizationpolicy", "kept"]);
}
