//! What a gateway is to be like, and its files.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use portcullis::state::{self, ManifestSource, NoManifestSource};
use tempfile::TempDir;

use super::gateway::Gateway;
use super::process::{Process, Surroundings};
use crate::harness::pki::Authority;

/// Two policies and a binding: agents see the pods of their own node, `locked` may nothing.
const POLICIES: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: readers}
rules:
- {apiGroups: [''], resources: [pods], verbs: [get, list, watch]}
- {nonResourceURLs: [/openapi/v2], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: jane-reads}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: readers}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: jane}]
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: locked-out}
spec:
  effect: Deny
  subjects: [{kind: Group, name: locked}]
  resourceRules: [{verbs: ['*'], apiGroups: ['*'], resources: ['*']}]
  nonResourceRules: [{verbs: ['*'], paths: ['*']}]
  reason: this account is locked
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: trial}
spec:
  effect: Deny
  mode: Shadow
  subjects: [{kind: User, name: jane}]
  resourceRules: [{verbs: [list], apiGroups: [''], resources: [pods]}]
";

/// By certificate all endpoints, by token some.
const CALLERS: &str = "
- clientCertificate: {commonNames: [kube-apiserver]}
- {kubeconfig: authorization.kubeconfig, endpoints: [authorize]}
- {kubeconfig: admission.kubeconfig, endpoints: [validate, mutate]}
";

/// Starts gateways that differ in little.
pub(crate) struct Builder {
    pub(super) folder: TempDir,
    address: SocketAddr,
    manifests: String,
    authorization: String,
    limits: &'static str,
    shutdown_timeout: &'static str,
    connections: &'static str,
    callers: String,
    reload: &'static str,
    upstreams: String,
    pub(super) source: Arc<dyn ManifestSource>,
    pub(super) reload_limit: Duration,
    more_callers: &'static str,
    clusters: String,
    paths: &'static str,
    recording: &'static str,
    usage: &'static str,
    tracing: Option<String>,
    console: String,
    decision_log: &'static str,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            manifests: String::new(),
            authorization: "{}".to_owned(),
            limits: "{}",
            shutdown_timeout: "25s",
            connections: "{}",
            callers: CALLERS.to_owned(),
            reload: "1h",
            upstreams: "{}".to_owned(),
            source: Arc::new(NoManifestSource),
            reload_limit: state::RELOAD_TIMEOUT,
            more_callers: "",
            clusters: "[]".to_owned(),
            paths: "[policies]",
            recording: "null",
            usage: "null",
            tracing: None,
            console: "null".to_owned(),
            decision_log: "{path: decisions.log}",
        }
    }

    /// `limits` of the configuration, as YAML.
    pub(crate) fn limits(self, limits: &'static str) -> Self {
        Self { limits, ..self }
    }

    /// More manifests, as YAML.
    pub(crate) fn manifests(self, manifests: impl Into<String>) -> Self {
        Self {
            manifests: manifests.into(),
            ..self
        }
    }

    /// `server.address` of the configuration.
    pub(crate) fn address(self, address: SocketAddr) -> Self {
        Self { address, ..self }
    }

    /// `authorization` of the configuration, as YAML in one line.
    pub(crate) fn authorization(self, authorization: impl Into<String>) -> Self {
        let authorization = authorization.into();
        Self {
            authorization,
            ..self
        }
    }

    /// One file more, to which the configuration refers.
    pub(crate) fn file(self, name: &str, content: impl AsRef<[u8]>) -> Self {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    /// `server.shutdownTimeout` of the configuration.
    pub(crate) fn shutdown_timeout(self, shutdown_timeout: &'static str) -> Self {
        Self {
            shutdown_timeout,
            ..self
        }
    }

    /// `server.connections` of the configuration, as YAML.
    pub(crate) fn connections(self, connections: &'static str) -> Self {
        Self { connections, ..self }
    }

    /// `callers` of the configuration, as YAML.
    pub(crate) fn callers(self, callers: impl Into<String>) -> Self {
        let callers = callers.into();
        Self { callers, ..self }
    }

    /// `reload.pollInterval` of the configuration.
    pub(crate) fn reload(self, reload: &'static str) -> Self {
        Self { reload, ..self }
    }

    /// `upstreams` of the configuration, as YAML.
    pub(crate) fn upstreams(self, upstreams: impl Into<String>) -> Self {
        Self {
            upstreams: upstreams.into(),
            ..self
        }
    }

    /// One caller more, for the cluster `east`, with the token `east-token`.
    pub(crate) fn east(self) -> Self {
        let with_file = self.file("east.kubeconfig", kubeconfig("east-token"));
        Self {
            more_callers: "- {kubeconfig: east.kubeconfig, cluster: east}\n",
            ..with_file
        }
    }

    /// More `callers` of the configuration, as YAML.
    pub(crate) fn more_callers(self, more_callers: &'static str) -> Self {
        Self { more_callers, ..self }
    }

    /// `clusters` of the configuration, as YAML in one line.
    pub(crate) fn clusters(self, clusters: impl Into<String>) -> Self {
        let clusters = clusters.into();
        Self { clusters, ..self }
    }

    /// `manifests` of the configuration, as YAML in one line.
    pub(crate) fn paths(self, paths: &'static str) -> Self {
        Self { paths, ..self }
    }

    /// `recording` of the configuration, as YAML in one line.
    pub(crate) fn recording(self, recording: &'static str) -> Self {
        Self { recording, ..self }
    }

    /// `usage` of the configuration, as YAML in one line.
    pub(crate) fn usage(self, usage: &'static str) -> Self {
        Self { usage, ..self }
    }

    /// `decisionLog` of the configuration, as YAML in one line.
    pub(crate) fn decision_log(self, decision_log: &'static str) -> Self {
        Self { decision_log, ..self }
    }

    /// `tracing` of the configuration, as YAML in one line.
    pub(crate) fn tracing(self, tracing: String) -> Self {
        let tracing = Some(tracing);
        Self { tracing, ..self }
    }

    /// `console` of the configuration, as YAML in one line.
    pub(crate) fn console(self, console: impl Into<String>) -> Self {
        let console = console.into();
        Self { console, ..self }
    }

    /// What comes from elsewhere than files.
    pub(crate) fn source(self, source: Arc<dyn ManifestSource>) -> Self {
        Self { source, ..self }
    }

    /// How long a reload may take before it is reported.
    pub(crate) fn reload_limit(self, reload_limit: Duration) -> Self {
        Self { reload_limit, ..self }
    }

    /// Starts it in this process.
    pub(crate) fn start(self) -> Gateway {
        let authority = self.write();
        Gateway::start(self, authority)
    }

    /// Starts the program.
    pub(crate) fn spawn(self) -> Process {
        let authority = self.write();
        Process::start(self.folder, authority, &Surroundings::default())
    }

    /// Starts the program with no more open files than `descriptors`.
    pub(crate) fn spawn_within(self, descriptors: usize) -> Process {
        let surroundings = Surroundings {
            descriptors: Some(descriptors),
            ..Surroundings::default()
        };
        let authority = self.write();
        Process::start(self.folder, authority, &surroundings)
    }

    /// Starts the program, whose log says everything and is read by nobody.
    pub(crate) fn spawn_unread(self) -> Process {
        let surroundings = Surroundings {
            environment: &[("PORTCULLIS_LOG", "trace")],
            is_log_unread: true,
            ..Surroundings::default()
        };
        let authority = self.write();
        Process::start(self.folder, authority, &surroundings)
    }

    /// Starts the program where no file takes a byte.
    pub(crate) fn spawn_on_full_disk(self) -> Process {
        let surroundings = Surroundings {
            is_disk_full: true,
            ..Surroundings::default()
        };
        let authority = self.write();
        Process::start(self.folder, authority, &surroundings)
    }

    /// Starts the program with so much more in its environment.
    pub(crate) fn spawn_with(self, environment: &[(&str, &str)]) -> Process {
        let surroundings = Surroundings {
            environment,
            ..Surroundings::default()
        };
        let authority = self.write();
        Process::start(self.folder, authority, &surroundings)
    }

    /// Writes the files; the CA that made the certificates.
    fn write(&self) -> Authority {
        let authority = Authority::new("ca");
        let server = authority.server();
        let path = |name: &str| self.folder.path().join(name);
        fs::create_dir(path("policies")).unwrap();
        fs::write(path("policies/all.yaml"), POLICIES).unwrap();
        let manifests = format!("# more\n{}", self.manifests);
        fs::write(path("policies/more.yaml"), manifests).unwrap();
        fs::write(path("ca.crt"), authority.pem()).unwrap();
        fs::write(path("server.crt"), server.pem()).unwrap();
        fs::write(path("server.key"), server.key_pem()).unwrap();
        fs::write(path("authorization.kubeconfig"), kubeconfig("right-token")).unwrap();
        fs::write(path("admission.kubeconfig"), kubeconfig("admission-token")).unwrap();
        fs::write(path("config.yaml"), self.configuration()).unwrap();
        authority
    }

    fn configuration(&self) -> String {
        format!(
            "apiVersion: config.portcullis.dev/v1alpha1
kind: GatewayConfiguration
server:
  address: {address}
  tls: {{certificate: server.crt, privateKey: server.key, clientCA: ca.crt}}
  shutdownTimeout: {shutdown_timeout}
  connections: {connections}
admin: {{address: 127.0.0.1:0}}
callers:
{callers}
{more_callers}manifests: {paths}
authorization: {authorization}
limits: {limits}
reload: {{pollInterval: {reload}}}
upstreams: {upstreams}
decisionLog: {decision_log}
clusters: {clusters}
recording: {recording}
usage: {usage}
console: {console}
{tracing}",
            address = self.address,
            authorization = self.authorization,
            shutdown_timeout = self.shutdown_timeout,
            connections = self.connections,
            callers = self.callers,
            limits = self.limits,
            reload = self.reload,
            more_callers = self.more_callers,
            clusters = self.clusters,
            paths = self.paths,
            recording = self.recording,
            usage = self.usage,
            upstreams = self.upstreams,
            console = self.console,
            decision_log = self.decision_log,
            tracing = self
                .tracing
                .as_ref()
                .map(|tracing| format!("tracing: {tracing}\n"))
                .unwrap_or_default(),
        )
    }
}

pub(crate) fn kubeconfig(token: &str) -> String {
    format!(
        "apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: 'https://localhost'}}}}]
users: [{{name: u, user: {{token: {token}}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
"
    )
}
