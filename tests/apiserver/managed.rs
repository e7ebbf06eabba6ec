//! A cluster whose API server can be given neither an authorization webhook nor credentials for
//! admission webhooks: the gateway knows it by the token in the path, and enforces Denies there.

use crate::binaries;
use crate::cluster::{Cluster, User};
use crate::harness::folder::Folder;
use crate::harness::gateway::{Gateway, Keys, Setup};
use crate::harness::ports;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

const TOKEN: &str = "2b7e151628aed2a6abf7158809cf4f3c762e7160f38b4da56a784d9045190cfe";

const USERS: [User; 2] = [
    User {
        name: "dana",
        groups: &["devs"],
    },
    User {
        name: "olga",
        groups: &["operators"],
    },
];

const POLICIES: &str = "
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: frozen}
spec:
  effect: Deny
  subjects: [{kind: Group, name: devs}]
  resourceRules:
  - {verbs: [create, update, patch, delete, deletecollection], apiGroups: [''], resources: [configmaps], namespaces: [prod]}
  - {verbs: [get, list], apiGroups: [''], resources: [services]}
  reason: no changes before Christmas
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: half}
spec:
  effect: Deny
  subjects: [{kind: Group, name: devs}]
  resourceRules: [{verbs: [update], apiGroups: [''], resources: [configmaps], namespaces: [test]}]
";

fn registration(gateway: &Gateway, keys: &Keys, failure_policy: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "portcullis"},
        "webhooks": [{
            "name": "validate.portcullis.dev",
            "clientConfig": {
                "url": format!("https://{}/t/{TOKEN}/validate", gateway.address()),
                "caBundle": STANDARD.encode(keys.servers.pem()),
            },
            "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["*"], "resources": ["configmaps"]}],
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": failure_policy,
        }],
    })
}

pub(crate) fn writes_are_denied_by_admission_where_the_api_server_asks_no_webhook() {
    let Some(binaries) = binaries::find() else { return };
    let folder = Folder::new("managed");
    let token = folder.write("path-token", TOKEN);
    let keys = Keys::new();
    let gateway = Gateway::start(&Setup {
        folder: &folder.path().join("gateway"),
        address: ports::free(),
        keys: &keys,
        callers: vec![json!({"pathToken": {"file": token}})],
        manifests: &[("policies.yaml", POLICIES)],
        more: json!({"admission": {"enforceAuthorization": true}}),
    });
    let cluster = Cluster::start(
        &binaries,
        folder,
        &USERS,
        &["--authorization-mode=RBAC".to_owned()],
    );
    for namespace in ["prod", "test"] {
        cluster.create_namespace(namespace);
    }
    for user in ["dana", "olga"] {
        cluster.grant_everything(user);
    }
    let configurations = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    cluster.create(configurations, &registration(&gateway, &keys, "Fail"));
    let kubectl = |user: &str, command: &str| {
        let arguments: Vec<&str> = command.split(' ').collect();
        let output = cluster.kubectl(user, &arguments);
        match output.status.success() {
            true => "done".to_owned(),
            false => String::from_utf8(output.stderr).unwrap(),
        }
    };
    let denied = "denied the request: denied by AuthorizationPolicy \"frozen\": no changes before Christmas";
    let is_denied = || kubectl("dana", "create configmap probe -n prod").contains(denied);
    assert!(crate::harness::eventually(is_denied), "{}", gateway.tail());
    for (user, command, expected) in [
        ("dana", "create configmap a -n prod", denied),
        ("dana", "create configmap a -n test", "done"),
        ("olga", "create configmap a -n prod", "done"),
        ("dana", "label configmap a -n prod team=a", denied),
        ("dana", "delete configmap a -n prod", denied),
        ("dana", "delete configmaps --all -n prod", denied),
        // A patch is no update, and the other way round: only both are refused.
        ("dana", "label configmap a -n test team=a", "done"),
        ("dana", "get services -n prod", "done"),
        ("admin", "label configmap a -n prod team=a", "done"),
        ("olga", "delete configmap a -n prod", "done"),
    ] {
        let said = kubectl(user, command);
        assert!(
            said.contains(expected),
            "{user}: {command}: {said}\n{}",
            gateway.tail()
        );
    }
    let decisions = gateway.decisions();
    let of_frozen = decisions
        .iter()
        .find(|line| line["cause"]["name"] == "frozen")
        .unwrap();
    assert_eq!(
        (&of_frozen["caller"], &of_frozen["decision"]),
        (&json!("pathToken"), &json!("deny"))
    );
    assert!(!gateway.log().contains(TOKEN));

    // Why it keeps strangers out, and no more: the API server tells the URL to every client that asked.
    drop(gateway);
    let said = kubectl("dana", "create configmap b -n prod");
    assert!(
        said.contains("failed calling webhook") && said.contains(TOKEN),
        "{said}"
    );
}
