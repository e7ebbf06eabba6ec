//! The program with webhooks behind it that behave, or misbehave, as they are told.
//!
//! ```text
//! test ──POST /validate/NAME──▶ portcullis ──▶ webhook
//!   └──────────── what came, what was answered, how soon ────┘
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "in a test, a panic is a failure"
)]

#[path = "../harness/mod.rs"]
mod harness;

mod call_settings;
mod connections;
mod faults;
mod protection;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use harness::folder::Folder;
use harness::gateway::{Gateway, Keys, Setup};
use harness::ports;
use harness::reviews::{creation_of_pod, with};

/// A webhook among the manifests.
struct Entry {
    /// The name of its configuration, and in lower case labels of its own.
    name: String,
    client_config: Value,
    failure_policy: &'static str,
    timeout_seconds: u8,
}

/// A gateway and what it needs to live.
struct Running {
    gateway: Gateway,
    folder: Folder,
}

impl Entry {
    /// A webhook at `url`, trusted by `authority`.
    fn at(name: &str, url: &str, authority: &[u8]) -> Self {
        Self {
            name: name.to_owned(),
            client_config: json!({"url": url, "caBundle": STANDARD.encode(authority)}),
            failure_policy: "Fail",
            timeout_seconds: 10,
        }
    }

    /// The name of the webhook itself.
    fn webhook(&self) -> String {
        format!("{}.hooks.example.com", self.name)
    }

    fn manifest(&self, kind: &str) -> String {
        let manifest = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": self.name},
            "webhooks": [{
                "name": self.webhook(),
                "clientConfig": self.client_config,
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
                "failurePolicy": self.failure_policy,
                "sideEffects": "None",
                "timeoutSeconds": self.timeout_seconds,
                "admissionReviewVersions": ["v1"],
            }],
        });
        format!("---\n{manifest}\n")
    }
}

impl Running {
    /// With these webhooks, both to validate and to mutate; `files` and `upstreams` as its configuration has them.
    fn start(name: &str, entries: &[Entry], upstreams: Value, files: &[(&str, &str)]) -> Self {
        let folder = Folder::new(name);
        for (file, content) in files {
            folder.write(file, content);
        }
        let manifests: String = entries
            .iter()
            .flat_map(|entry| ["Validating", "Mutating"].map(|phase| (entry, phase)))
            .map(|(entry, phase)| entry.manifest(&format!("{phase}WebhookConfiguration")))
            .collect();
        let gateway = Gateway::start(&Setup {
            folder: folder.path(),
            address: ports::free(),
            keys: &Keys::new(),
            callers: Vec::new(),
            manifests: &[("webhooks.yaml", &manifests)],
            more: json!({"upstreams": upstreams}),
        });
        Self { gateway, folder }
    }

    /// The `response` about a new pod, asked of the configuration `name` alone.
    fn ask(&self, name: &str) -> Value {
        self.ask_at(&format!("/validate/{name}?timeout=20s"))
    }

    /// The `response` about a new pod, asked at this target.
    fn ask_at(&self, target: &str) -> Value {
        let reply = self.gateway.client().post(target, &pod()).unwrap();
        assert_eq!(reply.status, 200, "{}\n{}", reply.text(), self.gateway.tail());
        reply.json()["response"].clone()
    }
}

/// The review of a new pod.
fn pod() -> Value {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}});
    let mut review = creation_of_pod("default", &pod);
    review["request"] = with(
        review["request"].take(),
        &json!({
            "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
            "requestResource": {"group": "", "version": "v1", "resource": "pods"},
            "options": null,
        }),
    );
    review
}
