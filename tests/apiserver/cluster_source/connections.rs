//! How the gateway reaches an API server: by which credential, over how many connections, and
//! again after it was away.

use super::servers::{self, CLUSTER, GATEWAY};
use crate::binaries;
use crate::cluster::{self, Cluster, User};
use crate::harness::eventually;
use crate::harness::folder::Folder;
use crate::harness::gateway::{Gateway, Keys, Setup};
use crate::harness::kubeconfig::{self, Credential};
use crate::harness::pki::Authority;
use crate::harness::ports;
use crate::harness::relay::Relay;
use serde_json::json;
use std::fs;

/// Whom the gateway is after its token was replaced.
const SUCCESSOR: User = User {
    name: "portcullis-successor",
    groups: &[],
};

/// An API server, and a gateway that watches it through a relay.
struct WatchedObjects {
    cluster: Cluster,
    relay: Relay,
    gateway: Gateway,
    folder: Folder,
}

fn policy(name: &str) -> String {
    format!(
        "apiVersion: portcullis.dev/v1alpha1\nkind: AuthorizationPolicy\nmetadata: {{name: {name}}}\n\
         spec:\n  effect: Deny\n  subjects: [{{kind: Group, name: people}}]\n  \
         nonResourceRules: [{{verbs: [get], paths: [/{name}]}}]\n"
    )
}

impl WatchedObjects {
    /// Who may sign certificates of users is `users`; `credential` is shown to the API server.
    fn start(name: &str, users: &Authority, credential: impl FnOnce(&Folder) -> Credential) -> Option<Self> {
        let binaries = binaries::find()?;
        let (folder, relay, keys) = (Folder::new(name), Relay::new(), Keys::new());
        let authority = Authority::new("apiserver");
        let home = Folder::new(&format!("{name}-apiserver"));
        let client_ca = home.write("users.crt", users.pem());
        let flags = [
            "--authorization-mode=RBAC".to_owned(),
            format!("--client-ca-file={}", client_ca.display()),
        ];
        let cluster = Cluster::start_as(&binaries, home, &authority, &[GATEWAY, SUCCESSOR], &flags);
        for file in [
            "crd/authorizationpolicies.yaml",
            "crd/admissionexceptions.yaml",
            "cluster/gateway.yaml",
        ] {
            servers::apply(&cluster, &servers::shipped(file));
        }
        assert!(eventually(|| servers::defined(&cluster)), "{}", cluster.tails());
        relay.lead_to(cluster.address());
        let server = format!("https://{}", relay.address());
        let text = kubeconfig::render(&server, &authority.pem(), &credential(&folder));
        let kubeconfig = folder.write("gateway/default.kubeconfig", text);
        let gateway = Gateway::start_until(
            &Setup {
                folder: &folder.path().join("gateway"),
                address: ports::free(),
                keys: &keys,
                callers: Vec::new(),
                manifests: &[],
                more: json!({"clusters": [{"name": CLUSTER, "kubeconfig": kubeconfig}]}),
            },
            "/livez",
        );
        Some(Self {
            cluster,
            relay,
            gateway,
            folder,
        })
    }

    fn apply(&self, name: &str) {
        servers::apply(
            &self.cluster,
            &self.folder.write(&format!("{name}.yaml"), policy(name)),
        );
    }

    /// Waits until the policy of this name decides.
    fn wait_for(&self, name: &str) {
        let client = self.gateway.client();
        let decides =
            || servers::outcome(&servers::decision(&client, "carol", &format!("/{name}"))) == "deny";
        assert!(eventually(decides), "{name}: {}", self.gateway.tail());
    }

    fn failures(&self) -> f64 {
        let series = r#"portcullis_cluster_watch_failures_total{cluster="default"}"#;
        self.gateway.metric(series).unwrap_or_default()
    }
}

pub(crate) fn all_watches_by_a_client_certificate_share_one_connection_and_find_a_restarted_api_server() {
    let users = Authority::new("users");
    let identity = users.client(GATEWAY.name, &[]);
    let started = WatchedObjects::start("connections-certificate", &users, |_| {
        Credential::Certificate(identity)
    });
    let Some(mut watched) = started else { return };
    watched.apply("first");
    watched.wait_for("first");
    assert_eq!((watched.relay.connections(), watched.failures()), (1, 0.0));

    watched.cluster.kill_apiserver();
    assert!(
        eventually(|| watched.failures() > 0.0),
        "{}",
        watched.gateway.tail()
    );
    watched.wait_for("first");
    watched.cluster.start_apiserver();
    watched.apply("second");
    watched.wait_for("second");
    let kubectl = |arguments: &[&str]| servers::kubectl(&watched.cluster, arguments);
    kubectl(&["delete", "authorizationpolicy", "first"]);
    let client = watched.gateway.client();
    let is_gone = || servers::outcome(&servers::decision(&client, "carol", "/first")) == "noOpinion";
    assert!(eventually(is_gone), "{}", watched.gateway.tail());
}

pub(crate) fn a_token_file_that_is_replaced_counts_while_the_watches_go_on() {
    let mut file = None;
    let started = WatchedObjects::start("connections-token", &Authority::new("users"), |folder| {
        let path = folder.write("gateway/token", cluster::token("nobody"));
        file = Some(path.clone());
        Credential::TokenFile(path)
    });
    let (Some(watched), Some(file)) = (started, file) else {
        return;
    };
    assert!(
        eventually(|| watched.failures() > 0.0),
        "{}",
        watched.gateway.tail()
    );
    fs::write(&file, cluster::token(GATEWAY.name)).unwrap();
    watched.apply("first");
    watched.wait_for("first");

    let binding = "portcullis-gateway";
    let subjects = json!({"subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": SUCCESSOR.name}]});
    let patch = subjects.to_string();
    servers::kubectl(
        &watched.cluster,
        &[
            "patch",
            "clusterrolebinding",
            binding,
            "--type=merge",
            "--patch",
            &patch,
        ],
    );
    fs::write(&file, cluster::token(SUCCESSOR.name)).unwrap();
    watched.apply("second");
    watched.wait_for("second");
}
