//! One API server whose webhooks are one gateway, shared by these tests: each
//! has objects of its own.

use super::{as_sent, custom_resources, differential, pods};
use crate::binaries::{self, Binaries};
use crate::cluster::Cluster;
use crate::harness::client::Response;
use crate::harness::folder::Folder;
use crate::harness::gateway::{Gateway, Keys, Setup};
use crate::harness::kubeconfig::{self, Credential};
use crate::harness::{eventually, ports};
use crate::lease::{Lease, Logs};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::LazyLock;

/// The namespace of which the API server asks by token.
pub(super) const BY_TOKEN: &str = "by-token";
/// Of every other it asks by certificate.
pub(super) const KITTENS: &str = "kittens";

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

/// The API server and its gateway.
pub(super) struct Servers {
    pub(super) cluster: Cluster,
    pub(super) gateway: Gateway,
}

static SHARED: LazyLock<Servers> = LazyLock::new(|| Servers::start(&binaries::find().unwrap()));

/// The shared servers; `None` without the programs.
pub(super) fn shared() -> Option<Lease<Servers>> {
    Lease::of(&SHARED)
}

impl Servers {
    fn start(binaries: &Binaries) -> Self {
        let folder = Folder::new("admission");
        let keys = Keys::new();
        let address = ports::free();
        let port = address.port();
        let validating = [
            (
                format!("127.0.0.1:{port}"),
                Credential::Certificate(keys.clients.client("validator", &[])),
            ),
            (
                format!("localhost:{port}"),
                Credential::Token("token-of-the-validator".to_owned()),
            ),
        ];
        let password = Credential::Basic {
            username: "mutator".to_owned(),
            password: "open: sesame".to_owned(),
        };
        let mutating = [(format!("127.0.0.1:{port}"), password)];
        let validating = folder.write("validating.kubeconfig", kubeconfig::by_host(&validating));
        let mutating = folder.write("mutating.kubeconfig", kubeconfig::by_host(&mutating));
        let configuration = folder.write("admission.yaml", configuration(&validating, &mutating));
        let gateway = Gateway::start(&Setup {
            folder: &folder.path().join("gateway"),
            address,
            keys: &keys,
            // The gateway is given the very kubeconfigs that the API server uses.
            callers: vec![caller(&validating, "validate"), caller(&mutating, "mutate")],
            manifests: &[
                ("pods.yaml", pods::POLICIES),
                ("custom_resources.yaml", custom_resources::POLICIES),
                ("as_sent.yaml", as_sent::POLICIES),
                ("differential.yaml", &differential::manifest()),
            ],
            more: Value::Null,
        });
        let flag = format!("--admission-control-config-file={}", configuration.display());
        let cluster = Cluster::start(binaries, folder, &[], &[flag]);
        for namespace in [KITTENS, BY_TOKEN] {
            cluster.create_namespace(namespace);
        }
        differential::prepare(&cluster);
        custom_resources::define(&cluster);
        register(&cluster, &keys.servers.pem(), port);
        pods::wait_until_heard(&cluster);
        Self { cluster, gateway }
    }
}

impl Logs for Servers {
    fn logs(&self) -> String {
        format!("{}{}", self.gateway.tail(), self.cluster.tails())
    }
}

fn caller(kubeconfig: &Path, endpoint: &str) -> Value {
    json!({"kubeconfig": kubeconfig, "endpoints": [endpoint]})
}

/// The AdmissionConfiguration: how each plugin proves to its webhooks who it is.
pub(crate) fn configuration(validating: &Path, mutating: &Path) -> String {
    let plugin = |name: &str, kubeconfig: &Path| {
        json!({"name": name, "configuration": {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "WebhookAdmissionConfiguration",
            "kubeConfigFile": kubeconfig,
        }})
    };
    json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [
            plugin("ValidatingAdmissionWebhook", validating),
            plugin("MutatingAdmissionWebhook", mutating),
        ],
    })
    .to_string()
}

/// Registers the gateway for what the tests do.
fn register(cluster: &Cluster, authority: &[u8], port: u16) {
    let webhook = |name: &str, host: &str, path: &str, operator: &str| {
        json!({
            "name": format!("{name}.portcullis.dev"),
            "clientConfig": {
                "url": format!("https://{host}:{port}{path}"),
                "caBundle": STANDARD.encode(authority),
            },
            "rules": [{
                "operations": ["*"],
                "apiGroups": ["", "apps", "example.com"],
                "apiVersions": ["*"],
                "resources": [
                    "pods", "pods/exec", "configmaps", "deployments", "deployments/scale", "services", "widgets", "widgets/*", "controllerrevisions",
                ],
            }],
            "namespaceSelector": {"matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": operator, "values": [BY_TOKEN]},
            ]},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            // Far longer than an answer takes, even from an unoptimised build.
            "timeoutSeconds": 30,
        })
    };
    let configuration = |kind: &str, webhooks: Value| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": "portcullis"},
            "webhooks": webhooks,
        })
    };
    let validating = json!([
        webhook("certificate", "127.0.0.1", "/validate", "NotIn"),
        webhook("token", "localhost", "/validate", "In"),
    ]);
    let mutating = json!([webhook("password", "127.0.0.1", "/mutate", "NotIn")]);
    cluster.create(
        &format!("{GROUP}/mutatingwebhookconfigurations"),
        &configuration("MutatingWebhookConfiguration", mutating),
    );
    cluster.create(
        &format!("{GROUP}/validatingwebhookconfigurations"),
        &configuration("ValidatingWebhookConfiguration", validating),
    );
}

/// Shows that a request was refused, with this code, for this reason.
pub(super) fn assert_denied(response: &Response, code: u16, message: &str) {
    assert_eq!(response.status, code, "{}", response.text());
    let reported = response.json()["message"].as_str().unwrap_or_default().to_owned();
    assert!(reported.contains("denied the request: "), "{reported}");
    assert!(reported.ends_with(message), "{reported}");
}

/// The object in an answer, which must have this code.
pub(super) fn object(response: &Response, code: u16) -> Value {
    assert_eq!(response.status, code, "{}", response.text());
    response.json()
}

/// Asks `request` until the API server has heard of what it depends on.
pub(super) fn wait_until(what: &str, request: impl FnMut() -> bool) {
    assert!(eventually(request), "{what}");
}
