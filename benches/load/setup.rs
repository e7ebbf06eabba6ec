//! A set-up made by `portcullis init`, and manifests of a size.

use std::fmt::Write as _;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::floor;
use super::options::Options;
use super::workload::ADMISSION_POLICIES;

const CLIENT_CERTIFICATE: &str = "pki/authorization.crt";
const CLIENT_KEY: &str = "pki/authorization.key";

pub(crate) const PORTCULLIS: &str = env!("CARGO_BIN_EXE_portcullis");

pub(crate) struct Setup {
    folder: tempfile::TempDir,
    gateways: [GatewayPorts; 2],
}

/// How a gateway is configured.
#[derive(Debug, Clone, Copy)]
pub(crate) enum GatewayConfig {
    /// As the floor is, which has no decision log.
    Plain,
    /// With a decision log, into a file.
    Logging,
}

/// Where a gateway listens.
struct GatewayPorts {
    server: u16,
    admin: u16,
}

impl Setup {
    pub(crate) fn new(options: &Options) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let status = Command::new(PORTCULLIS)
            .arg("init")
            .arg(folder.path())
            .stdout(std::process::Stdio::null())
            .status()
            .expect("portcullis starts");
        assert!(status.success(), "portcullis init failed");
        let setup = Self {
            folder,
            gateways: [GatewayPorts::free(), GatewayPorts::free()],
        };
        let policies = setup.path("policies");
        fs::write(policies.join("rbac.yaml"), rbac(options.bindings)).expect("role bindings");
        fs::write(
            policies.join("policies.yaml"),
            authorization_policies(options.policies),
        )
        .expect("policies");
        fs::write(policies.join("admission.yaml"), ADMISSION_POLICIES).expect("admission policies");
        let mut upstreams = "";
        if options.has_webhooks() {
            fs::write(policies.join("webhooks.yaml"), webhooks()).expect("webhooks");
            fs::write(setup.path("upstreams.kubeconfig"), setup.upstreams()).expect("a kubeconfig");
            upstreams = "upstreams: {kubeconfig: upstreams.kubeconfig, caBundle: pki/ca.crt}\n";
        }
        for config in [GatewayConfig::Plain, GatewayConfig::Logging] {
            let text = setup.configuration_text(config) + upstreams;
            fs::write(setup.configuration(config), text).expect("a configuration");
        }
        setup
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn configuration(&self, config: GatewayConfig) -> PathBuf {
        self.path(match config {
            GatewayConfig::Plain => "load.yaml",
            GatewayConfig::Logging => "logging.yaml",
        })
    }

    /// Where a gateway of this configuration answers.
    pub(crate) const fn port(&self, config: GatewayConfig) -> u16 {
        self.ports(config).server
    }

    const fn ports(&self, config: GatewayConfig) -> &GatewayPorts {
        let [plain, logging] = &self.gateways;
        match config {
            GatewayConfig::Plain => plain,
            GatewayConfig::Logging => logging,
        }
    }

    fn configuration_text(&self, config: GatewayConfig) -> String {
        let GatewayPorts { server, admin } = self.ports(config);
        let log = match config {
            GatewayConfig::Plain => "",
            GatewayConfig::Logging => "decisionLog: {path: decisions.log}\n",
        };
        format!(
            "apiVersion: config.portcullis.dev/v1alpha1\n\
             kind: GatewayConfiguration\n\
             server:\n\
             \x20 address: 127.0.0.1:{server}\n\
             \x20 tls: {{certificate: pki/server.crt, privateKey: pki/server.key, clientCA: pki/ca.crt}}\n\
             admin: {{address: 127.0.0.1:{admin}}}\n\
             callers:\n\
             - {{kubeconfig: kubeconfigs/authorization.kubeconfig, endpoints: [authorize, validate, mutate]}}\n\
             manifests: [policies]\n\
             {log}"
        )
    }

    /// What the gateway shows to webhooks: as the API server, so that both can be asked alike.
    fn upstreams(&self) -> String {
        format!(
            "apiVersion: v1\nkind: Config\nusers:\n- name: '*'\n  user:\n    client-certificate: {}\n    client-key: {}\n",
            self.path(CLIENT_CERTIFICATE).display(),
            self.path(CLIENT_KEY).display()
        )
    }

    /// The API server's own certificate and key, as PEM.
    pub(crate) fn client(&self) -> (Vec<u8>, Vec<u8>) {
        let file = |name| fs::read(self.path(name)).expect("a file of `portcullis init`");
        (file(CLIENT_CERTIFICATE), file(CLIENT_KEY))
    }
}

// === impl GatewayPorts ===

impl GatewayPorts {
    fn free() -> Self {
        Self {
            server: free_port(),
            admin: free_port(),
        }
    }
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").port()
}

/// Bindings as a large cluster has them: a group for each team, a role for each namespace.
fn rbac(bindings: usize) -> String {
    let mut text = String::from(
        "apiVersion: rbac.authorization.k8s.io/v1\n\
         kind: ClusterRole\n\
         metadata: {name: edit}\n\
         rules:\n\
         - {apiGroups: [''], resources: [pods, services, configmaps], verbs: [get, list, watch, create, update]}\n\
         - {apiGroups: [apps], resources: [deployments], verbs: ['*']}\n",
    );
    for index in 0..bindings {
        let _ = write!(
            text,
            "---\n\
             apiVersion: rbac.authorization.k8s.io/v1\n\
             kind: RoleBinding\n\
             metadata: {{name: edit-{index}, namespace: team-{}}}\n\
             roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}}\n\
             subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: Group, name: team-{index}}}]\n",
            index % 1000
        );
    }
    text
}

/// Policies of which half speak of everybody, and none decides the question that is asked.
fn authorization_policies(policies: usize) -> String {
    let mut text = String::new();
    for index in 0..policies {
        let (effect, subject) = match index % 4 {
            0 => ("Deny", "*".to_owned()),
            1 => ("Deny", format!("agents-{index}")),
            2 => ("Allow", "*".to_owned()),
            _ => ("Allow", format!("readers-{index}")),
        };
        let _ = write!(
            text,
            "---\n\
             apiVersion: portcullis.dev/v1alpha1\n\
             kind: AuthorizationPolicy\n\
             metadata: {{name: policy-{index}}}\n\
             spec:\n\
             \x20 effect: {effect}\n\
             \x20 subjects: [{{kind: Group, name: '{subject}'}}]\n\
             \x20 resourceRules:\n\
             \x20 - {{verbs: [delete], apiGroups: ['example-{index}.com'], resources: [widgets]}}\n"
        );
    }
    text
}

/// How many mutating webhooks are asked one after another.
pub(crate) const CHAIN: usize = 10;

/// The webhooks behind the gateway: `one` validates, `ten` mutate.
fn webhooks() -> String {
    let mut text = configuration(
        "ValidatingWebhookConfiguration",
        "one",
        &["/hook/validate".to_owned()],
    );
    let paths: Vec<String> = (0..CHAIN)
        .map(|number| format!("/hook/mutate/{number}"))
        .collect();
    text.push_str(&configuration("MutatingWebhookConfiguration", "ten", &paths));
    text
}

fn configuration(kind: &str, name: &str, paths: &[String]) -> String {
    let mut text = format!(
        "---\napiVersion: admissionregistration.k8s.io/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nwebhooks:\n"
    );
    for (number, path) in paths.iter().enumerate() {
        let _ = write!(
            text,
            "- name: hook-{number}.load.example.com\n\
             \x20 clientConfig: {{url: 'https://127.0.0.1:{}{path}'}}\n\
             \x20 rules: [{{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}}]\n\
             \x20 sideEffects: None\n\
             \x20 admissionReviewVersions: [v1]\n",
            floor::PORT
        );
    }
    text
}
