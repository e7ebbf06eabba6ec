//! What `init --watch` writes, put to use by exactly the commands that it prints: the gateway then
//! knows who may do what in its cluster.

use crate::binaries::{self, Binaries, Controllers};
use crate::cluster::Cluster;
use crate::harness::client::Client;
use crate::harness::folder::Folder;
use crate::harness::process::Process;
use crate::harness::{eventually, ports};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// An API server, the controller that makes tokens of service accounts, and a set-up.
struct Installation {
    cluster: Cluster,
    controllers: Process,
    programs: PathBuf,
    set_up: PathBuf,
    /// What `init` printed.
    printed: String,
    admin_port: u16,
}

impl Installation {
    fn new(binaries: &Binaries, controllers: &Controllers) -> Self {
        let cluster = Cluster::start(
            binaries,
            Folder::new("watch-set-up"),
            &[],
            &["--authorization-mode=Node,RBAC".to_owned()],
        );
        let set_up = cluster.folder().join("gateway");
        let output = program(&["init", set_up.to_str().unwrap(), "--watch"]);
        assert!(output.status.success(), "{output:?}");
        let (server, admin) = (ports::free(), ports::free());
        let configuration = set_up.join("portcullis.yaml");
        let text = fs::read_to_string(&configuration).unwrap();
        let text = text
            .replace(":8443", &format!(":{}", server.port()))
            .replace(":9090", &format!(":{}", admin.port()));
        fs::write(configuration, text).unwrap();
        Self {
            controllers: token_controller(&cluster, controllers),
            programs: binaries.kubectl.parent().unwrap().to_owned(),
            cluster,
            set_up,
            printed: String::from_utf8(output.stdout).unwrap(),
            admin_port: admin.port(),
        }
    }

    /// The commands that `init` printed.
    fn commands(&self) -> Vec<&str> {
        let commands: Vec<&str> = self
            .printed
            .lines()
            .filter_map(|line| line.strip_prefix("  "))
            .collect();
        assert_eq!(commands.len(), 3, "{}", self.printed);
        commands
    }

    /// Runs a command as an administrator types it, whose kubeconfig is where kubectl looks.
    fn type_in(&self, command: &str) -> Output {
        let path = format!("{}:{}", self.programs.display(), std::env::var("PATH").unwrap());
        Command::new("sh")
            .args(["-c", command])
            .env("PATH", path)
            .env("KUBECONFIG", self.cluster.kubeconfig("admin"))
            .env("HOME", self.cluster.folder().join("kubectl"))
            .output()
            .unwrap()
    }

    fn serve(&self, command: &str) -> Process {
        let gateway = Process::start(
            "portcullis",
            &self.set_up,
            None,
            Path::new("sh"),
            ["-c", &format!("exec {command}")],
        );
        let admin = Client::http(([127, 0, 0, 1], self.admin_port).into());
        let is_ready = || admin.get("/readyz").is_ok_and(|response| response.status == 200);
        assert!(eventually(is_ready), "{}", gateway.tail());
        gateway
    }

    /// Who may get pods, as the gateway's own files have it.
    fn who_can_get_pods(&self) -> Value {
        let configuration = self.set_up.join("portcullis.yaml");
        let arguments = ["who-can", "get", "pods", "-A", "-o", "json", "--config"];
        let output = program(&[&arguments[..], &[configuration.to_str().unwrap()]].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }
}

fn program(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_portcullis"))
        .args(arguments)
        .output()
        .unwrap()
}

/// kube-controller-manager, of which only that part runs.
fn token_controller(cluster: &Cluster, programs: &Controllers) -> Process {
    let folder = cluster.folder();
    let arguments = [
        format!("--kubeconfig={}", cluster.kubeconfig("admin").display()),
        "--controllers=serviceaccount-token-controller".to_owned(),
        "--leader-elect=false".to_owned(),
        "--secure-port=0".to_owned(),
        format!(
            "--service-account-private-key-file={}",
            folder.join("apiserver/server.key").display()
        ),
        format!("--root-ca-file={}", folder.join("apiserver/server.crt").display()),
    ];
    Process::start(
        "kube-controller-manager",
        folder,
        None,
        &programs.kube_controller_manager,
        arguments,
    )
}

pub(crate) fn the_commands_that_init_prints_let_the_gateway_know_the_rbac_of_its_cluster() {
    let (Some(binaries), Some(controllers)) = (binaries::find(), binaries::controllers()) else {
        return;
    };
    let installation = Installation::new(&binaries, &controllers);
    installation.cluster.bind_everything("jane");
    let [apply, credentials, serve] = installation.commands()[..] else {
        panic!("{}", installation.printed)
    };

    // In the wrong order it says which comes first.
    let early = installation.type_in(credentials);
    let said = String::from_utf8_lossy(&early.stderr);
    assert_eq!(early.status.code(), Some(2), "{early:?}");
    assert!(said.contains(apply), "{said}");

    for command in [apply, credentials] {
        let output = installation.type_in(command);
        assert!(
            output.status.success(),
            "{command}: {output:?}\n{}",
            installation.controllers.tail()
        );
    }
    let gateway = installation.serve(serve);
    let is_known = || installation.who_can_get_pods().to_string().contains("\"jane\"");
    assert!(
        eventually(is_known),
        "{}{}",
        installation.who_can_get_pods(),
        gateway.tail()
    );

    // With the account's token, and no more than it needs.
    let token = fs::read_to_string(installation.set_up.join("cluster/token")).unwrap();
    let may = |verb: &str, resource: &str| {
        let kubectl = installation.programs.join("kubectl");
        let command = format!(
            "{} --token {token} auth can-i {verb} {resource} -A",
            kubectl.display()
        );
        // Without the administrator's own credentials.
        let kubeconfig = installation.set_up.join("cluster/kubeconfig");
        let output = Command::new("sh")
            .args(["-c", &command])
            .env("KUBECONFIG", kubeconfig)
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).trim() == "yes"
    };
    for resource in [
        "clusterroles.rbac.authorization.k8s.io",
        "authorizationpolicies.portcullis.dev",
        "namespaces",
        "validatingadmissionpolicies.admissionregistration.k8s.io",
        "mutatingwebhookconfigurations.admissionregistration.k8s.io",
    ] {
        assert!(may("list", resource) && may("watch", resource), "{resource}");
        assert!(!may("update", resource), "{resource}");
    }
    assert!(!may("list", "secrets"));
}
