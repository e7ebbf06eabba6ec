//! Webhooks whose configurations are watched: their author chooses what the gateway calls.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::harness::api_servers::ApiServers;
use crate::harness::kubeconfig::{Credential, by_host};
use crate::harness::pki::Authority;
use crate::harness::reviews::creation_of_pod;
use crate::harness::webhooks::{Review, Webhooks};
use crate::support::process::Process;
use crate::support::{Builder, kubeconfig, until};

/// The label of configurations that are watched.
const SELECTOR: &str = "selector: {matchLabels: {gateway: portcullis}}\n";

/// Of three API servers, with a webhook each: the one of the number that a test asks for.
struct Fleet {
    hook: Webhooks,
    gateway: Process,
    _servers: ApiServers,
}

/// A configuration of one webhook for pods.
fn configuration(hook: &Webhooks, url: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "hook", "resourceVersion": "1", "labels": {"gateway": "portcullis"}},
        "webhooks": [{
            "name": "hook.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "failurePolicy": "Fail", "clientConfig": {"url": url, "caBundle": hook.ca_bundle()},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"]}],
        }],
    })
}

fn with_token(token: &str) -> String {
    by_host(&[("*".to_owned(), Credential::Token(token.to_owned()))])
}

impl Fleet {
    /// Clusters whose webhooks are at these URLs, where `PORT` stands for the port of the only
    /// server, with more fields of their entries.
    fn start(clusters: &[(&str, &str)]) -> Self {
        let hook = Webhooks::of(&Authority::new("webhooks"), &["hook.example.com"])
            .otherwise(|_| Review::allow().into())
            .start();
        let port = hook.address().port().to_string();
        let objects = |cluster: usize| -> Vec<Arc<str>> {
            let url = clusters[cluster].0.replace("PORT", &port);
            vec![configuration(&hook, &url).to_string().into()]
        };
        let servers = ApiServers::start(&Authority::new("clusters"), clusters.len(), objects);
        let shared = format!(
            "{{kubeconfig: shared.kubeconfig, addresses: {{'hook.example.com:443': '127.0.0.1:{port}'}}}}"
        );
        let mut builder = Builder::new()
            .file("shared.kubeconfig", with_token("of-the-gateway"))
            .upstreams(shared);
        let mut callers = String::new();
        for (cluster, (_, more)) in clusters.iter().enumerate() {
            let more = more.replace("PORT", &port);
            let entry = format!("name: c{cluster}\nkubeconfig: api.kubeconfig\n{SELECTOR}{more}");
            builder = builder
                .file(&format!("clusters.d/c{cluster}/entry.yaml"), entry)
                .file(
                    &format!("clusters.d/c{cluster}/api.kubeconfig"),
                    servers.kubeconfig(cluster),
                )
                .file(
                    &format!("clusters.d/c{cluster}/own.kubeconfig"),
                    with_token(&format!("of-c{cluster}")),
                )
                .file(
                    &format!("caller-{cluster}.kubeconfig"),
                    kubeconfig(&format!("caller-{cluster}")),
                );
            callers += &format!("- {{kubeconfig: caller-{cluster}.kubeconfig, cluster: c{cluster}}}\n");
        }
        let gateway = builder.callers(callers).clusters("clusters.d").spawn();
        let fleet = Self {
            hook,
            gateway,
            _servers: servers,
        };
        for cluster in 0..clusters.len() {
            until("the webhook is in force", || {
                fleet.create_pod(cluster)["allowed"] == false || !fleet.shown().is_empty()
            });
        }
        fleet
    }

    /// What the gateway answers to the creation of a pod in this cluster; `null` where it knows
    /// nothing of the cluster yet.
    fn create_pod(&self, cluster: usize) -> Value {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ns"}, "spec": {}});
        let head = format!(
            "POST /validate?timeout=10s HTTP/1.1\r\nContent-Type: application/json\r\nAuthorization: Bearer caller-{cluster}"
        );
        let mut connection = self.gateway.stranger().connect(self.gateway.server);
        let answer = connection.request(&head, creation_of_pod("ns", &pod).to_string().as_bytes());
        // Of a cluster of which nothing is known yet.
        if answer.status == 503 {
            return Value::Null;
        }
        assert_eq!(answer.status, 200);
        answer.json()["response"].clone()
    }

    /// The credentials that the webhook was shown since the last time.
    fn shown(&self) -> Vec<Option<String>> {
        let authorization = |headers: &[(String, String)]| {
            let field = headers.iter().find(|(name, _)| name == "authorization");
            field.map(|(_, value)| value.clone())
        };
        let calls = self.hook.take(|_| true);
        calls.iter().map(|call| authorization(&call.headers)).collect()
    }
}

#[test]
fn webhooks_of_watched_clusters_learn_no_other_s_credentials() {
    const ALLOWED: &str = "upstreams: {allowedAddresses: [127.0.0.1]}\n";
    const OWN: &str =
        "upstreams: {kubeconfig: own.kubeconfig, addresses: {'hook.example.com:443': '127.0.0.1:PORT'}}\n";
    let url = "https://hook.example.com/";
    let fleet = Fleet::start(&[("https://127.0.0.1:PORT/", ALLOWED), (url, OWN), (url, ALLOWED)]);
    assert_eq!(fleet.create_pod(0)["allowed"], true);
    assert_eq!(fleet.shown(), [None]);
    assert_eq!(fleet.create_pod(1)["allowed"], true);
    assert_eq!(fleet.shown(), [Some("Bearer of-c1".to_owned())]);
    // Where another cluster, or the gateway's administrator, says that the name leads is not asked.
    assert_eq!(fleet.create_pod(2)["allowed"], false);
    assert_eq!(fleet.shown(), []);
}

#[test]
fn webhooks_of_watched_clusters_do_not_reach_the_gateway_s_host() {
    const URLS: [&str; 8] = [
        "https://127.0.0.1:PORT/",
        "https://127.1.2.3:PORT/",
        "https://localhost:PORT/",
        "https://0.0.0.0:PORT/",
        "https://[::1]:PORT/",
        "https://[::]:PORT/",
        "https://[::ffff:127.0.0.1]:PORT/",
        "https://169.254.169.254:PORT/",
    ];
    let clusters = URLS.map(|url| (url, "upstreams: {allowedAddresses: [0.0.0.0/0, '::/0']}\n"));
    let fleet = Fleet::start(&clusters);
    for (cluster, url) in URLS.iter().enumerate() {
        let response = fleet.create_pod(cluster);
        assert_eq!(response["allowed"], false, "{url}: {response}");
        let message = response["status"]["message"].as_str().unwrap();
        assert!(message.contains("is loopback or link-local"), "{url}: {message}");
    }
    assert_eq!(fleet.shown(), []);
}
