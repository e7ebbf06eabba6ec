//! A kube-apiserver with its etcd, in a folder of their own.

use crate::binaries::Binaries;
use crate::harness::client::{Client, Response};
use crate::harness::folder::Folder;
use crate::harness::kubeconfig::{self, Credential};
use crate::harness::pki::Authority;
use crate::harness::process::Process;
use crate::harness::{eventually, ports};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Who may do everything: the group that an API server never asks about.
const ADMIN: User = User {
    name: "admin",
    groups: &["system:masters"],
};

/// The flag by which a test says that it has service accounts made.
pub(crate) const ADMISSION_PLUGINS: &str = "--disable-admission-plugins=";

/// Someone the API server knows by a token.
#[derive(Clone, Copy)]
pub(crate) struct User {
    pub(crate) name: &'static str,
    pub(crate) groups: &'static [&'static str],
}

/// A running API server.
pub(crate) struct Cluster {
    // Dropped in this order: the API server before its store.
    apiserver: Option<Process>,
    command: (PathBuf, Vec<String>),
    etcd: Process,
    address: SocketAddr,
    authority: Vec<u8>,
    kubectl: PathBuf,
    folder: Folder,
}

impl Cluster {
    /// Starts etcd and an API server that knows `users` and was given `flags`
    /// (its authorization), and waits until it is ready.
    ///
    /// # Panics
    /// When it does not become ready; with both logs.
    pub(crate) fn start(binaries: &Binaries, folder: Folder, users: &[User], flags: &[String]) -> Self {
        Self::start_as(binaries, folder, &Authority::new("apiserver"), users, flags)
    }

    /// Like [`Cluster::start`], with a certificate that this authority signs.
    pub(crate) fn start_as(
        binaries: &Binaries,
        folder: Folder,
        authority: &Authority,
        users: &[User],
        flags: &[String],
    ) -> Self {
        let (etcd, store) = start_etcd(binaries, folder.path());
        let address = ports::free();
        let mut arguments = server_arguments(&folder, authority, address, &store, users);
        arguments.extend_from_slice(flags);
        if !flags.iter().any(|flag| flag.starts_with(ADMISSION_PLUGINS)) {
            // Nobody makes service accounts for the pods of a test.
            arguments.push(format!("{ADMISSION_PLUGINS}ServiceAccount"));
        }
        let home = folder.path().join("apiserver");
        let program = &binaries.kube_apiserver;
        let apiserver = Process::start("kube-apiserver", &home, None, program, &arguments);
        let mut cluster = Self {
            apiserver: Some(apiserver),
            command: (program.clone(), arguments),
            etcd,
            address,
            authority: authority.pem(),
            kubectl: binaries.kubectl.clone(),
            folder,
        };
        for user in [ADMIN].iter().chain(users) {
            let credential = Credential::Token(token(user.name));
            let config = kubeconfig::render(&format!("https://{address}"), &cluster.authority, &credential);
            cluster.folder.write(&kubeconfig_of(user.name), config);
        }
        cluster.wait_until_ready();
        cluster
    }

    fn wait_until_ready(&mut self) {
        let admin = self.admin();
        let mut ended = false;
        let ready = eventually(|| {
            let runs = self.apiserver.as_mut().is_some_and(Process::runs);
            ended = !runs || !self.etcd.runs();
            ended || admin.get("/readyz").is_ok_and(|response| response.status == 200)
        });
        assert!(
            ready && !ended,
            "the API server did not become ready\n{}",
            self.tails()
        );
    }

    /// Kills the API server, whose store goes on.
    pub(crate) fn kill_apiserver(&mut self) {
        self.apiserver = None;
    }

    /// Starts it again, at the same address, and waits until it is ready.
    ///
    /// # Panics
    /// As [`Cluster::start`].
    pub(crate) fn start_apiserver(&mut self) {
        let home = self.folder.path().join("apiserver");
        let (program, arguments) = &self.command;
        self.apiserver = Some(Process::start("kube-apiserver", &home, None, program, arguments));
        self.wait_until_ready();
    }

    /// Where the API server listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// A client that is the user of that name.
    pub(crate) fn user(&self, name: &str) -> Client {
        Client::https(self.address, &self.authority, None).with_token(&token(name))
    }

    pub(crate) fn admin(&self) -> Client {
        self.user(ADMIN.name)
    }

    /// A client without credentials, as a kubelet that probes the API server is.
    pub(crate) fn nobody(&self) -> Client {
        Client::https(self.address, &self.authority, None)
    }

    /// The code of the answer when a user gets a path.
    pub(crate) fn status(&self, user: &str, target: &str) -> u16 {
        self.user(user).get(target).unwrap().status
    }

    /// Creates an object at a collection's path, as admin.
    pub(crate) fn create(&self, collection: &str, object: &Value) {
        let response = self.admin().post(collection, object).unwrap();
        assert_eq!(response.status, 201, "{}", response.text());
    }

    pub(crate) fn create_namespace(&self, name: &str) {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.create("/api/v1/namespaces", &namespace);
    }

    /// Binds a user to `cluster-admin` in the API server's own RBAC, and waits
    /// until its authorizer has seen it.
    pub(crate) fn grant_everything(&self, user: &str) {
        self.bind_everything(user);
        let probe = json!({"user": user, "nonResourceAttributes": {"path": "/granted", "verb": "get"}});
        assert!(
            eventually(|| self.review(&probe)["allowed"] == true),
            "{user} has no grant"
        );
    }

    /// Binds a user to `cluster-admin` in the API server's own RBAC, of which
    /// its authorizer hears a little later.
    pub(crate) fn bind_everything(&self, user: &str) {
        let group = "rbac.authorization.k8s.io";
        let binding = json!({
            "apiVersion": format!("{group}/v1"),
            "kind": "ClusterRoleBinding",
            "metadata": {"name": format!("{user}-may-do-everything")},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        });
        self.create(&format!("/apis/{group}/v1/clusterrolebindings"), &binding);
    }

    /// What the API server answers to a SubjectAccessReview of this spec.
    pub(crate) fn review(&self, spec: &Value) -> Value {
        let review = crate::harness::reviews::authorization(spec);
        let response: Response = self
            .admin()
            .post("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review)
            .unwrap();
        assert_eq!(response.status, 201, "{spec}: {}", response.text());
        response.json()["status"].clone()
    }

    /// Runs kubectl as a user.
    pub(crate) fn kubectl(&self, user: &str, arguments: &[&str]) -> Output {
        Command::new(&self.kubectl)
            .arg("--kubeconfig")
            .arg(self.kubeconfig(user))
            .args(arguments)
            .env("HOME", self.folder.path().join("kubectl"))
            .output()
            .unwrap()
    }

    /// The kubeconfig with which a program is that user.
    pub(crate) fn kubeconfig(&self, user: &str) -> PathBuf {
        self.folder.path().join(kubeconfig_of(user))
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The last lines of both logs.
    pub(crate) fn tails(&self) -> String {
        let apiserver = self.apiserver.as_ref().map(Process::tail);
        format!("{}{}", self.etcd.tail(), apiserver.unwrap_or_default())
    }
}

/// The token of a user, made from the name.
pub(crate) fn token(user: &str) -> String {
    format!("token-of-{}", user.replace(':', "-"))
}

/// Where the kubeconfig is with which kubectl is that user.
fn kubeconfig_of(user: &str) -> String {
    format!("kubectl/{}.kubeconfig", user.replace(':', "-"))
}

fn start_etcd(binaries: &Binaries, folder: &Path) -> (Process, String) {
    let client = format!("http://{}", ports::free());
    let peer = format!("http://{}", ports::free());
    let arguments = [
        "--data-dir=data".to_owned(),
        "--unsafe-no-fsync".to_owned(),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
    ];
    // A cluster in a static is never dropped: its folder goes with its store.
    (
        Process::start(
            "etcd",
            &folder.join("etcd"),
            Some(folder),
            &binaries.etcd,
            arguments,
        ),
        client,
    )
}

fn server_arguments(
    folder: &Folder,
    authority: &Authority,
    address: SocketAddr,
    store: &str,
    users: &[User],
) -> Vec<String> {
    let identity = authority.server();
    let certificate = folder.write("apiserver/server.crt", identity.pem());
    let key = folder.write("apiserver/server.key", identity.key_pem());
    let tokens = folder.write("apiserver/tokens.csv", tokens(users));
    let key = key.display();
    vec![
        format!("--etcd-servers={store}"),
        format!("--bind-address={}", address.ip()),
        format!("--secure-port={}", address.port()),
        format!("--tls-cert-file={}", certificate.display()),
        format!("--tls-private-key-file={key}"),
        format!("--token-auth-file={}", tokens.display()),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-signing-key-file={key}"),
        format!("--service-account-key-file={}", certificate.display()),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
    ]
}

/// A line for each user: token, name, uid and groups.
fn tokens(users: &[User]) -> String {
    let line = |user: &User| {
        let User { name, groups } = user;
        format!("{},{name},uid-of-{name},\"{}\"\n", token(name), groups.join(","))
    };
    [ADMIN].iter().chain(users).map(line).collect()
}
