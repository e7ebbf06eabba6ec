//! The built `portcullis` program, serving.

use super::client::{Client, Response};
use super::eventually;
use super::pki::{Authority, Identity};
use super::ports;
use super::process::Process;
use serde_json::{Value, json};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The keys that a gateway and its callers hold.
pub(crate) struct Keys {
    /// Signs what the gateway shows.
    pub(crate) servers: Authority,
    /// Signs what its callers show.
    pub(crate) clients: Authority,
    /// A caller of the common name `kube-apiserver`.
    pub(crate) caller: Identity,
}

impl Keys {
    pub(crate) fn new() -> Self {
        let clients = Authority::new("clients");
        let caller = clients.client("kube-apiserver", &["apiservers"]);
        Self {
            servers: Authority::new("servers"),
            clients,
            caller,
        }
    }
}

/// A gateway to be started.
pub(crate) struct Setup<'a> {
    /// Where its files go; made if it is not there.
    pub(crate) folder: &'a Path,
    pub(crate) address: SocketAddr,
    pub(crate) keys: &'a Keys,
    /// Entries of `callers`; the caller of [`Keys`] is one without being named.
    pub(crate) callers: Vec<Value>,
    /// Files of its manifests folder: name and content.
    pub(crate) manifests: &'a [(&'a str, &'a str)],
    /// What else its configuration says.
    pub(crate) more: Value,
}

/// A gateway that serves.
pub(crate) struct Gateway {
    process: Process,
    address: SocketAddr,
    admin: SocketAddr,
    folder: PathBuf,
    manifests: PathBuf,
    authority: Vec<u8>,
    caller: Identity,
}

impl Gateway {
    /// Writes the configuration, starts the program, and waits until it is
    /// ready.
    ///
    /// # Panics
    /// When it does not become ready; with its log.
    pub(crate) fn start(setup: &Setup<'_>) -> Self {
        Self::start_until(setup, "/readyz")
    }

    /// Like [`Gateway::start`], waiting until this path of its admin listener
    /// answers 200.
    ///
    /// # Panics
    /// When it does not; with its log.
    pub(crate) fn start_until(setup: &Setup<'_>, awaited: &str) -> Self {
        let manifests = setup.folder.join("policies");
        fs::create_dir_all(&manifests).unwrap();
        for (name, content) in setup.manifests {
            fs::write(manifests.join(name), content).unwrap();
        }
        let admin = ports::free();
        let config = write_config(setup, admin);
        let program = program();
        let arguments = ["serve".as_ref(), "--config".as_ref(), config.as_os_str()];
        let process = Process::start("portcullis", setup.folder, None, &program, arguments);
        let mut gateway = Self {
            process,
            address: setup.address,
            admin,
            folder: setup.folder.to_owned(),
            manifests,
            authority: setup.keys.servers.pem(),
            caller: setup.keys.caller.clone(),
        };
        let probe = Client::http(admin);
        let mut ended = false;
        let ready = eventually(|| {
            ended = !gateway.process.runs();
            ended || probe.get(awaited).is_ok_and(|response| response.status == 200)
        });
        assert!(
            ready && !ended,
            "the gateway did not become ready\n{}",
            gateway.tail()
        );
        gateway
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// A client that the gateway knows by its certificate.
    pub(crate) fn client(&self) -> Client {
        self.client_with(Some(&self.caller))
    }

    /// A client with another certificate, or none.
    pub(crate) fn client_with(&self, identity: Option<&Identity>) -> Client {
        Client::https(self.address, &self.authority, identity)
    }

    /// The folder of its manifests, which it watches.
    pub(crate) fn manifests(&self) -> &Path {
        &self.manifests
    }

    /// What a path of its admin listener answers.
    pub(crate) fn probe(&self, path: &str) -> Response {
        Client::http(self.admin).get(path).unwrap()
    }

    /// The value of one series, written as `/metrics` writes it.
    pub(crate) fn metric(&self, series: &str) -> Option<f64> {
        let metrics = Client::http(self.admin).get("/metrics").ok()?.text();
        let line = metrics
            .lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
        line.trim().parse().ok()
    }

    /// Lets `change` touch the manifests and waits until the gateway has
    /// loaded them again.
    ///
    /// # Panics
    /// When no reload succeeded.
    pub(crate) fn reload_after(&self, change: impl FnOnce()) {
        let reloads = || {
            self.metric(r#"portcullis_reloads_total{result="success"}"#)
                .unwrap_or_default()
        };
        let before = reloads();
        change();
        assert!(
            eventually(|| reloads() > before),
            "the gateway did not reload\n{}",
            self.tail()
        );
    }

    /// The lines of its decision log so far.
    pub(crate) fn decisions(&self) -> Vec<Value> {
        let log = fs::read_to_string(self.folder.join("decisions.jsonl")).unwrap_or_default();
        let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    pub(crate) fn tail(&self) -> String {
        self.process.tail()
    }

    /// The whole log so far.
    pub(crate) fn log(&self) -> String {
        self.process.log()
    }
}

/// The built program: the one that cargo built with the tests, or for tests of another package
/// the one that `PORTCULLIS_PROGRAM` names.
///
/// # Panics
/// When there is neither.
pub(crate) fn program() -> PathBuf {
    let built = option_env!("CARGO_BIN_EXE_portcullis").map(PathBuf::from);
    let named = || std::env::var_os("PORTCULLIS_PROGRAM").map(PathBuf::from);
    built
        .or_else(named)
        .expect("PORTCULLIS_PROGRAM names the built program")
}

fn write_config(setup: &Setup<'_>, admin: SocketAddr) -> PathBuf {
    let write = |name: &str, content: &[u8]| {
        fs::write(setup.folder.join(name), content).unwrap();
        name.to_owned()
    };
    let server = setup.keys.servers.server();
    let mut callers = vec![json!({"clientCertificate": {"commonNames": ["kube-apiserver"]}})];
    callers.extend(setup.callers.iter().cloned());
    let mut config = json!({
        "apiVersion": "config.portcullis.dev/v1alpha1",
        "kind": "GatewayConfiguration",
        "server": {
            "address": setup.address.to_string(),
            "tls": {
                "certificate": write("server.crt", &server.pem()),
                "privateKey": write("server.key", &server.key_pem()),
                "clientCA": write("clients.crt", &setup.keys.clients.pem()),
            },
        },
        "admin": {"address": admin.to_string()},
        "callers": callers,
        "manifests": ["policies"],
        "decisionLog": {"path": "decisions.jsonl"},
    });
    for (key, value) in setup.more.as_object().into_iter().flatten() {
        config[key] = value.clone();
    }
    let path = setup.folder.join("portcullis.yaml");
    fs::write(&path, format!("{config:#}\n")).unwrap();
    path
}
