//! The condition `InForce`: written where the configuration says so, and never more.

use super::servers::{self, CLUSTER, Servers};
use crate::harness::eventually;
use crate::harness::folder::Folder;
use crate::harness::gateway::{Gateway, Setup};
use crate::harness::ports;
use crate::harness::relay::Relay;
use serde_json::{Value, json};

const COLLECTION: &str = "/apis/portcullis.dev/v1alpha1/authorizationpolicies";

const REFUSED: &str = "cannot write the status of objects";

const IN_FILES: &str = "
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: status-files}
spec: {effect: Deny, subjects: [{kind: User, name: x}], nonResourceRules: [{verbs: [get], paths: [/x]}]}
";

const EXCEPTION: &str = "
apiVersion: portcullis.dev/v1alpha1
kind: AdmissionException
metadata: {name: status-exception}
spec:
  policies: [nothing]
  match:
    resourceRules:
    - {apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods], resourceNames: [a]}
  notAfter: 2999-01-01T00:00:00Z
  reason: a test
";

/// A gateway that writes statuses.
struct Writing {
    gateway: Gateway,
    _folder: Folder,
}

impl Writing {
    fn start(servers: &Servers, name: &str) -> Self {
        let (folder, relay) = (Folder::new(name), Relay::new());
        relay.lead_to(servers.cluster.address());
        let mut entry = servers::entry(&folder, CLUSTER, &relay, &servers.authority);
        entry["writeStatus"] = true.into();
        let gateway = Gateway::start_until(
            &Setup {
                folder: &folder.path().join("gateway"),
                address: ports::free(),
                keys: &servers.keys,
                callers: Vec::new(),
                manifests: &[("files.yaml", IN_FILES)],
                more: json!({"clusters": [entry]}),
            },
            "/livez",
        );
        let synced = || gateway.metric(r#"portcullis_cluster_synced{cluster="default"}"#) == Some(1.0);
        assert!(eventually(synced), "{}", gateway.tail());
        Self {
            gateway,
            _folder: folder,
        }
    }
}

fn policy(name: &str, more: &Value) -> String {
    let mut spec = json!({
        "effect": "Deny",
        "subjects": [{"kind": "Group", "name": "people"}],
        "nonResourceRules": [{"verbs": ["get"], "paths": [format!("/{name}")]}],
    });
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    let metadata = json!({"name": name});
    json!({"apiVersion": "portcullis.dev/v1alpha1", "kind": "AuthorizationPolicy", "metadata": metadata, "spec": spec})
        .to_string()
}

fn object(servers: &Servers, collection: &str, name: &str) -> Value {
    servers
        .cluster
        .admin()
        .get(&format!("{collection}/{name}"))
        .unwrap()
        .json()
}

/// Waits until the object's newest version is told to be in force or not, for this reason.
fn wait_for(servers: &Servers, collection: &str, name: &str, status: &str, reason: &str) -> Value {
    let mut last = Value::Null;
    let reported = eventually(|| {
        last = object(servers, collection, name);
        let condition = &last["status"]["conditions"][0];
        condition["type"] == "InForce"
            && condition["status"] == status
            && condition["reason"] == reason
            && condition["observedGeneration"] == last["metadata"]["generation"]
    });
    assert!(reported, "{name}: {status} {reason}: {last:#}");
    assert_eq!(
        last["status"]["conditions"].as_array().map(Vec::len),
        Some(1),
        "{last}"
    );
    last["status"]["conditions"][0].clone()
}

pub(crate) fn the_status_says_whether_an_object_is_in_force() {
    let Some(servers) = servers::shared() else { return };
    let writing = Writing::start(&servers, "cluster-status");
    let gateway = &writing.gateway;
    let decision = |path: &str| servers::outcome(&servers::decision(&gateway.client(), "carol", path));
    let policy_is = |name, status, reason| wait_for(&servers, COLLECTION, name, status, reason);

    // Without the right to write it, everything else goes on, and one line says so.
    servers.apply("status-1.yaml", &policy("status-first", &json!({})));
    assert!(eventually(|| decision("/status-first") == "deny"));
    assert!(
        eventually(|| gateway.log().contains(REFUSED)),
        "{}",
        gateway.tail()
    );
    servers.apply("status-2.yaml", &policy("status-second", &json!({})));
    assert!(eventually(|| decision("/status-second") == "deny"));
    assert_eq!(
        object(&servers, COLLECTION, "status-first")["status"],
        Value::Null
    );

    // With the right, each change is told, and by `kubectl get` too.
    servers::apply(&servers.cluster, &servers::shipped("cluster/status.yaml"));
    let granted = || {
        servers
            .cluster
            .review(&json!({"user": "portcullis", "resourceAttributes": {
        "verb": "patch", "group": "portcullis.dev", "resource": "authorizationpolicies",
        "subresource": "status", "name": "status-first"}}))["allowed"]
            == true
    };
    assert!(eventually(granted));
    servers.apply(
        "status-1.yaml",
        &policy("status-first", &json!({"reason": "changed"})),
    );
    let first = policy_is("status-first", "True", "InForce");
    assert_eq!(gateway.log().matches(REFUSED).count(), 1, "{}", gateway.tail());
    let table = servers.kubectl(&["get", "azp", "status-first"]);
    let words: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(words[..4], ["status-first", "Deny", "Enforce", "True"], "{table}");

    servers.apply(
        "status-1.yaml",
        &policy("status-first", &json!({"mode": "Shadow"})),
    );
    let shadow = policy_is("status-first", "True", "Shadow");
    assert_eq!(
        first["lastTransitionTime"], shadow["lastTransitionTime"],
        "it is as true as before"
    );
    let faulty = json!({"conditions": [{"name": "c", "expression": "request.user = 7"}]});
    servers.apply("status-1.yaml", &policy("status-first", &faulty));
    let reported = policy_is("status-first", "False", "Faulty");
    let message = reported["message"].as_str().unwrap();
    assert!(
        message.starts_with("spec.conditions[0].expression: "),
        "{message}"
    );
    assert!(
        message.ends_with("; the version before stays in force"),
        "{message}"
    );
    servers.apply(
        "status-1.yaml",
        &policy("status-first", &json!({"notAfter": "2001-01-01T00:00:00Z"})),
    );
    policy_is("status-first", "False", "Expired");
    servers.apply(
        "status-1.yaml",
        &policy("status-first", &json!({"notBefore": "2999-01-01T00:00:00Z"})),
    );
    policy_is("status-first", "False", "NotYetValid");
    servers.apply("status-files.yaml", &policy("status-files", &json!({})));
    policy_is("status-files", "False", "InFiles");

    let exceptions = "/apis/portcullis.dev/v1alpha1/admissionexceptions";
    servers.apply("status-exception.yaml", EXCEPTION);
    wait_for(
        &servers,
        exceptions,
        "status-exception",
        "False",
        "ExceptionsNotTaken",
    );

    // Another gateway finds everything said, and stores nothing again.
    policy_is("status-second", "True", "InForce");
    drop(writing);
    let version = || object(&servers, COLLECTION, "status-first")["metadata"]["resourceVersion"].clone();
    let before = version();
    let other = Writing::start(&servers, "cluster-status-other");
    // It writes in the order of names.
    servers.apply("status-3.yaml", &policy("status-third", &json!({})));
    policy_is("status-third", "True", "InForce");
    assert_eq!(version(), before, "{}", other.gateway.tail());

    let names = ["status-first", "status-second", "status-third", "status-files"];
    servers.kubectl(&[&["delete", "azp"][..], &names].concat());
    servers.kubectl(&["delete", "adx", "status-exception"]);
}
