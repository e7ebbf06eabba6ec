//! The programs, and the set-up of `portcullis init` that connects them to the gateway.

use crate::binaries::{self, Binaries, Controllers};
use crate::cluster::{ADMISSION_PLUGINS, Cluster, User};
use crate::harness::client::Client;
use crate::harness::folder::Folder;
use crate::harness::process::Process;
use crate::harness::{eventually, ports};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::kubelet::NODES;

/// The namespace of a gateway in the cluster.
pub(crate) const OWN_NAMESPACE: &str = "gate";

const CONTROLLER_MANAGER: &str = "system:kube-controller-manager";
const SCHEDULER: &str = "system:kube-scheduler";

const USERS: [User; 6] = [
    User {
        name: CONTROLLER_MANAGER,
        groups: &[],
    },
    User {
        name: SCHEDULER,
        groups: &[],
    },
    User {
        name: NODES[0],
        groups: &["system:nodes"],
    },
    User {
        name: NODES[1],
        groups: &["system:nodes"],
    },
    User {
        name: NODES[2],
        groups: &["system:nodes"],
    },
    User {
        name: "dave",
        groups: &["dev"],
    },
];

/// A cluster and the gateway's place in it.
pub(super) struct Servers {
    pub(super) cluster: Cluster,
    pub(super) set_up: SetUp,
    gateway: Option<Process>,
    controllers: Vec<Process>,
}

/// The folder that `init` wrote, with ports of its own.
pub(crate) struct SetUp {
    folder: PathBuf,
    server: SocketAddr,
    admin: SocketAddr,
}

impl Servers {
    /// Starts everything, and waits until the gateway and the API server are ready.
    pub(super) fn start(binaries: &Binaries, controllers: &Controllers) -> Self {
        let folder = Folder::new("control-plane");
        let set_up = SetUp::make(&folder.path().join("set-up"));
        let audit = folder.write("audit-policy.yaml", AUDIT_POLICY);
        let [authorization, admission] = set_up.api_server_flags();
        let mut servers = Self {
            gateway: Some(set_up.serve()),
            cluster: Cluster::start(
                binaries,
                folder,
                &USERS,
                &[
                    authorization,
                    admission,
                    format!("--audit-policy-file={}", audit.display()),
                    format!("--audit-log-path={}", audit.with_file_name("audit.log").display()),
                    ADMISSION_PLUGINS.to_owned(),
                ],
            ),
            set_up,
            controllers: Vec::new(),
        };
        servers.wait_for_gateway();
        servers.register();
        servers.start_controllers(controllers);
        servers
    }

    /// As the user who installs the gateway.
    fn register(&self) {
        let file = self.set_up.path("webhooks.yaml");
        let output = self
            .cluster
            .kubectl("admin", &["apply", "--validate=false", "-f", &file]);
        assert!(output.status.success(), "{output:?}");
    }

    fn start_controllers(&mut self, programs: &Controllers) {
        let folder = self.cluster.folder().to_owned();
        let key = folder.join("apiserver/server.key");
        let authority = folder.join("apiserver/server.crt");
        let common = |user: &str| {
            vec![
                format!("--kubeconfig={}", self.cluster.kubeconfig(user).display()),
                "--leader-elect=true".to_owned(),
                "--leader-elect-lease-duration=6s".to_owned(),
                "--leader-elect-renew-deadline=4s".to_owned(),
                "--leader-elect-retry-period=1s".to_owned(),
                "--secure-port=0".to_owned(),
            ]
        };
        let mut manager = common(CONTROLLER_MANAGER);
        manager.extend([
            "--use-service-account-credentials=true".to_owned(),
            format!("--service-account-private-key-file={}", key.display()),
            format!("--root-ca-file={}", authority.display()),
            // The test renews the nodes' leases when it has the time.
            "--node-monitor-grace-period=10m".to_owned(),
        ]);
        self.controllers = vec![
            Process::start(
                "kube-controller-manager",
                &folder,
                None,
                &programs.kube_controller_manager,
                manager,
            ),
            Process::start(
                "kube-scheduler",
                &folder,
                None,
                &programs.kube_scheduler,
                common(SCHEDULER),
            ),
        ];
    }

    /// Ends every gateway.
    pub(super) fn stop_gateway(&mut self) {
        self.gateway = None;
    }

    /// Starts one again, and does not wait for it.
    pub(super) fn start_gateway(&mut self) {
        self.gateway = Some(self.set_up.serve());
    }

    pub(super) fn wait_for_gateway(&self) {
        assert!(
            self.set_up.is_ready(),
            "the gateway is not ready\n{}",
            self.logs()
        );
    }

    /// The lines of the API server's audit log.
    pub(super) fn audit_log(&self) -> String {
        fs::read_to_string(self.cluster.folder().join("audit.log")).unwrap()
    }

    pub(super) fn logs(&self) -> String {
        let gateway = self.gateway.iter().map(Process::tail);
        let others = self.controllers.iter().map(Process::tail);
        gateway.chain(others).chain([self.cluster.tails()]).collect()
    }
}

/// Where Pod Security is enforced.
const NAMESPACES: &str = "\
apiVersion: v1
kind: Namespace
metadata: {name: prod-web, labels: {pod-security.kubernetes.io/enforce: baseline}}
";

/// Who did what, of which identities are read.
const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules: [{level: Metadata}]
";

impl SetUp {
    /// Has `init` write a set-up, gives it ports that are free, and has it enforce the
    /// project's examples.
    pub(crate) fn make(folder: &Path) -> Self {
        let set_up = Self::init(folder, &["--in-cluster", OWN_NAMESPACE]);
        set_up.rewrite("portcullis.yaml", |text| {
            text + "admission: {missingNamespace: NameOnly}\n"
        });
        fs::write(folder.join("policies/namespaces.yaml"), NAMESPACES).unwrap();
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/policies");
        for from in [examples.clone(), examples.join("pod-security/baseline")] {
            set_up.enforce(&from);
        }
        set_up
    }

    /// The flags of an API server that asks this gateway.
    pub(crate) fn api_server_flags(&self) -> [String; 2] {
        [
            format!(
                "--authorization-config={}",
                self.path("authorization-configuration.yaml")
            ),
            format!(
                "--admission-control-config-file={}",
                self.path("admission-configuration.yaml")
            ),
        ]
    }

    /// Has `init` write a set-up on loopback, and gives it ports that are free.
    pub(crate) fn init(folder: &Path, arguments: &[&str]) -> Self {
        let output = Command::new(env!("CARGO_BIN_EXE_portcullis"))
            .arg("init")
            .arg(folder)
            .args(["--host", "127.0.0.1"])
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let set_up = Self {
            folder: folder.to_owned(),
            server: ports::free(),
            admin: ports::free(),
        };
        let files = [
            "portcullis.yaml",
            "webhooks.yaml",
            "static/mutating/portcullis.yaml",
            "static/validating/portcullis.yaml",
            "kubeconfigs/authorization.kubeconfig",
            "kubeconfigs/admission.kubeconfig",
        ];
        for file in files.into_iter().filter(|file| folder.join(file).exists()) {
            set_up.rewrite(file, |text| {
                text.replace(":8443", &format!(":{}", set_up.server.port()))
                    .replace(":9090", &format!(":{}", set_up.admin.port()))
            });
        }
        set_up
    }

    /// Takes every policy of a folder, and every one that is in Shadow out of it.
    fn enforce(&self, folder: &Path) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if name.ends_with(".yaml") && !name.ends_with("_test.yaml") {
                let text = fs::read_to_string(&path).unwrap().replace("  mode: Shadow\n", "");
                fs::write(self.folder.join("policies").join(name), text).unwrap();
            }
        }
    }

    /// Takes the gateway out of the AuthorizationConfiguration.
    pub(super) fn take_authorizer_out(&self) {
        self.rewrite("authorization-configuration.yaml", |text| {
            let (before, rest) = text.split_once("- type: Webhook").unwrap();
            let (_, others) = rest.split_once("- type: Node").unwrap();
            format!("{before}- type: Node{others}")
        });
    }

    /// Replaces a file at once: a reader meanwhile finds none of it empty.
    pub(crate) fn rewrite(&self, file: &str, change: impl FnOnce(String) -> String) {
        let path = self.folder.join(file);
        let text = fs::read_to_string(&path).unwrap();
        let new = path.with_extension("new");
        fs::write(&new, change(text)).unwrap();
        fs::rename(new, path).unwrap();
    }

    /// Waits until its gateway is ready; `false` if that takes too long.
    pub(crate) fn is_ready(&self) -> bool {
        let admin = Client::http(self.admin);
        eventually(|| admin.get("/readyz").is_ok_and(|response| response.status == 200))
    }

    pub(crate) fn serve(&self) -> Process {
        let program = Path::new(env!("CARGO_BIN_EXE_portcullis"));
        let arguments = [
            "serve".to_owned(),
            "--config".to_owned(),
            self.path("portcullis.yaml"),
        ];
        Process::start("portcullis", &self.folder, None, program, arguments)
    }

    /// Where its gateway serves metrics and probes.
    pub(crate) fn admin_address(&self) -> SocketAddr {
        self.admin
    }

    pub(crate) fn path(&self, file: &str) -> String {
        self.folder.join(file).to_str().unwrap().to_owned()
    }
}

/// The programs, where all of them are there.
pub(super) fn programs() -> Option<(Binaries, Controllers)> {
    Some((binaries::find()?, binaries::controllers()?))
}
