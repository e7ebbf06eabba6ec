//! A cluster whose API server can be given neither an authorization webhook nor credentials for
//! admission webhooks: the gateway knows it by the token in the path, and enforces Denies there. And one that makes
//! tokens for its webhook configurations.

use crate::binaries;
use crate::cluster::{Cluster, User};
use crate::harness::folder::Folder;
use crate::harness::gateway::{Gateway, Keys, Setup};
use crate::harness::ports;
use crate::harness::reviews::creation_of_pod;
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

/// The configuration whose webhook calls `/validate` by its URL alone.
fn registration_by_url(url: &str, keys: &Keys) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "portcullis"},
        "webhooks": [{
            "name": "validate.portcullis.dev",
            "clientConfig": {"url": url, "caBundle": STANDARD.encode(keys.servers.pem())},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "auth"}},
            "rules": [{"operations": ["*"], "apiGroups": ["", "apps"], "apiVersions": ["*"], "resources": ["*"]}],
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
        }],
    })
}

pub(crate) fn a_token_that_the_api_server_makes_is_for_its_configuration_and_groups() {
    let Some(binaries) = binaries::find() else { return };
    let flags = [
        "--authorization-mode=RBAC".to_owned(),
        "--feature-gates=APIServerWebhookAuthenticationToken=true".to_owned(),
    ];
    let cluster = Cluster::start(&binaries, Folder::new("webhook-token"), &USERS[..1], &flags);
    cluster.create_namespace("auth");
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "webhook-auth"}});
    cluster.create("/api/v1/namespaces/auth/serviceaccounts", &account);
    let rbac = "rbac.authorization.k8s.io";
    cluster.create(
        &format!("/apis/{rbac}/v1/clusterroles"),
        &json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": "attest"}, "rules": [{
            "apiGroups": ["authentication.k8s.io"], "resources": ["admissionReviewAPIGroups"], "verbs": ["attest"],
        }]}),
    );
    cluster.create(
        &format!("/apis/{rbac}/v1/clusterrolebindings"),
        &json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "attest"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "attest"},
            "subjects": [{"kind": "ServiceAccount", "name": "webhook-auth", "namespace": "auth"}]}),
    );
    let (keys, address) = (Keys::new(), ports::free());
    let url = format!("https://{address}/validate");
    let gateway = Gateway::start(&Setup {
        folder: &cluster.folder().join("gateway"),
        address,
        keys: &keys,
        callers: vec![
            json!({"webhookToken": {"issuer": "https://kubernetes.default.svc", "audiences": [url]}}),
        ],
        manifests: &[("policies.yaml", POLICIES)],
        more: json!({
            "clusters": [{"name": "default", "kubeconfig": cluster.kubeconfig("admin"), "admission": "Watched"}],
        }),
    });
    let configurations = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    cluster.create(configurations, &registration_by_url(&url, &keys));
    let token = |group: &str| {
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {
            "audiences": [url],
            "boundObjectRef": {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "ValidatingWebhookConfiguration",
                "name": "portcullis",
            },
            "attestations": {"admissionReviewAPIGroups": [group]},
        }});
        let path = "/api/v1/namespaces/auth/serviceaccounts/webhook-auth/token";
        let mut made = None;
        let is_made = || {
            let response = cluster.admin().post(path, &request).unwrap();
            made = response.json()["status"]["token"].as_str().map(str::to_owned);
            made.is_some()
        };
        assert!(crate::harness::eventually(is_made), "{}", cluster.tails());
        made.unwrap()
    };
    let status = |token: &str, group: &str, path: &str| {
        let mut review = creation_of_pod("auth", &json!({"metadata": {"name": "p", "namespace": "auth"}}));
        review["request"]["resource"]["group"] = group.into();
        let client = gateway.client_with(None).with_token(token);
        client.post(path, &review).unwrap().status
    };
    let (all, apps) = (token("*"), token("apps"));
    let is_known = || status(&all, "", "/validate") == 200;
    assert!(crate::harness::eventually(is_known), "{}", gateway.tail());
    for (token, group, path, expected) in [
        (&all, "apps", "/validate", 200),
        (&apps, "apps", "/validate", 200),
        (&apps, "", "/validate", 403),
        (&apps, "batch", "/validate", 403),
        (&all, "", "/mutate", 401),
        (&all, "", "/authorize", 401),
    ] {
        let answered = status(token, group, path);
        assert_eq!(answered, expected, "{group} {path}: {}", gateway.tail());
    }
    // A token for the API server itself, of the same issuer and account.
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let path = "/api/v1/namespaces/auth/serviceaccounts/webhook-auth/token";
    let own = cluster.admin().post(path, &request).unwrap().json();
    assert_eq!(
        status(own["status"]["token"].as_str().unwrap(), "", "/validate"),
        401
    );

    // Kubernetes 1.37 makes such tokens and sends none: what docs/configuration.md says.
    let arguments = ["create", "configmap", "a", "-n", "auth"];
    let output = cluster.kubectl("admin", &arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("failed calling webhook") && said.contains("Unauthorized"),
        "{said}"
    );

    let deleted = cluster.kubectl(
        "admin",
        &["delete", "validatingwebhookconfiguration", "portcullis"],
    );
    assert!(deleted.status.success());
    cluster.create(configurations, &registration_by_url(&url, &keys));
    let newer = token("*");
    let is_known = || status(&newer, "", "/validate") == 200;
    assert!(crate::harness::eventually(is_known), "{}", gateway.tail());
    assert_eq!(status(&all, "", "/validate"), 401);
    for token in [&all, &apps, &newer] {
        assert!(!gateway.log().contains(token.as_str()));
    }
}
