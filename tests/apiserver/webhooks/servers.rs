//! One API server, one gateway, one server of webhooks, shared by these tests.

use super::{chain, past};
use crate::admission::{custom_resources, servers};
use crate::binaries::{self, Binaries};
use crate::cluster::Cluster;
use crate::harness::client::Response;
use crate::harness::folder::Folder;
use crate::harness::gateway::{Gateway, Keys, Setup};
use crate::harness::kubeconfig::{self, Credential};
use crate::harness::pki::Authority;
use crate::harness::webhooks::Webhooks;
use crate::harness::{eventually, ports};
use crate::lease::{Lease, Logs};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::sync::LazyLock;

/// The namespaces of which the API server asks the webhooks itself, and the gateway.
pub(super) const DIRECT: &str = "direct";
pub(super) const BEHIND: &str = "behind";

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

/// Everything that takes part.
pub(super) struct Servers {
    pub(super) cluster: Cluster,
    pub(super) gateway: Gateway,
    pub(super) webhooks: Webhooks,
}

static SHARED: LazyLock<Servers> = LazyLock::new(|| Servers::start(&binaries::find().unwrap()));

/// The shared servers; `None` without the programs.
pub(super) fn shared() -> Option<Lease<Servers>> {
    Lease::of(&SHARED)
}

impl Servers {
    fn start(binaries: &Binaries) -> Self {
        let folder = Folder::new("webhooks");
        let keys = Keys::new();
        let address = ports::free();
        let webhooks = chain::serve(&Authority::new("webhooks"), past::serve);
        let gateway = Gateway::start(&Setup {
            folder: &folder.path().join("gateway"),
            address,
            keys: &keys,
            callers: Vec::new(),
            manifests: &[
                (
                    "chain.yaml",
                    &documents(&chain::configurations(&webhooks, BEHIND, &json!({}))),
                ),
                ("past.yaml", &documents(&[past::configuration(&webhooks)])),
            ],
            more: json!({"upstreams": {
                "addresses": {past::HOST: webhooks.address().to_string()},
                // Webhooks of these tests fail on purpose, one after the other.
                "breaker": {"failures": 0},
            }}),
        });
        let user = Credential::Certificate(keys.caller.clone());
        let users = kubeconfig::by_host(&[(address.to_string(), user)]);
        let users = folder.write("webhooks.kubeconfig", users);
        let configuration = servers::configuration(&users, &users);
        let configuration = folder.write("admission.yaml", configuration);
        let flag = format!("--admission-control-config-file={}", configuration.display());
        let cluster = Cluster::start(binaries, folder, &[], &[flag]);
        let started = Self {
            cluster,
            gateway,
            webhooks,
        };
        started.prepare(&keys.servers.pem());
        started
    }

    /// Makes the namespaces, registers the webhooks and the gateway, and waits
    /// until the API server asks all of them.
    fn prepare(&self, authority: &[u8]) {
        for namespace in [DIRECT, BEHIND] {
            self.cluster.create_namespace(namespace);
        }
        custom_resources::define(&self.cluster);
        for configuration in chain::configurations(&self.webhooks, DIRECT, &selecting(DIRECT)) {
            self.register(&configuration);
        }
        for (phase, path) in [("Mutating", "mutate"), ("Validating", "validate")] {
            self.register(&gateway(phase, path, authority, self.gateway.address().port()));
        }
        for way in [DIRECT, BEHIND] {
            for &name in chain::MUTATING.iter().chain(chain::VALIDATING) {
                let heard = || self.refuses_to_probe(way, name);
                assert!(
                    eventually(heard),
                    "{name} of {way} is not asked\n{}",
                    self.gateway.tail()
                );
            }
        }
        // Admission hears of a definition later than the API itself.
        for way in [DIRECT, BEHIND] {
            let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "probe"},
                                "spec": {"size": 1}});
            let target = format!("/apis/example.com/v1/namespaces/{way}/widgets?dryRun=All");
            let heard = || self.cluster.admin().post(&target, &widget).unwrap().status == 201;
            assert!(eventually(heard), "no widget is admitted");
        }
    }

    fn register(&self, configuration: &Value) {
        let plural = configuration["kind"].as_str().unwrap().to_lowercase();
        self.cluster.create(&format!("{GROUP}/{plural}s"), configuration);
    }

    fn refuses_to_probe(&self, way: &str, webhook: &str) -> bool {
        let probe = json!({"apiVersion": "v1", "kind": "ConfigMap",
                           "metadata": {"name": "probe", "annotations": {webhook: "deny"}}});
        let target = format!("/api/v1/namespaces/{way}/configmaps?dryRun=All");
        let answer: Response = self.cluster.admin().post(&target, &probe).unwrap();
        answer
            .text()
            .contains(&format!("admission webhook \\\"{webhook}.example.com\\\" denied"))
    }
}

impl Logs for Servers {
    fn logs(&self) -> String {
        format!("{}{}", self.gateway.tail(), self.cluster.tails())
    }
}

fn documents(objects: &[Value]) -> String {
    objects.iter().map(|object| format!("---\n{object}\n")).collect()
}

fn selecting(namespace: &str) -> Value {
    json!({"matchLabels": {"kubernetes.io/metadata.name": namespace}})
}

/// The registration of the gateway.
fn gateway(phase: &str, path: &str, authority: &[u8], port: u16) -> Value {
    let mut rules = chain::rules_with(&["*"]);
    rules[0]["resources"]
        .as_array_mut()
        .unwrap()
        .push(json!("secrets"));
    let webhook = json!({
        "name": "gateway.portcullis.dev",
        "clientConfig": {
            "url": format!("https://127.0.0.1:{port}/{path}"),
            "caBundle": STANDARD.encode(authority),
        },
        "rules": rules,
        "namespaceSelector": selecting(BEHIND),
        "admissionReviewVersions": ["v1"],
        "sideEffects": "NoneOnDryRun",
        "timeoutSeconds": 30,
    });
    chain::configuration(phase, "gateway", &[webhook])
}
