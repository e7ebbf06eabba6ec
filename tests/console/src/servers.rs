//! One API server and its gateway, of which the console shows the decisions; shared by the
//! tests, each of which has users and objects of its own.
//!
//! ```text
//!  Chromium ──HTTP──> console ┐
//!                             gateway ──watches──> relay ──> kube-apiserver
//!                                ▲  └──calls──> webhooks           │
//!                                └───────── authorizes, admits ────┘
//! ```

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::binaries::{self, Binaries};
use crate::chromium::{self, Browser};
use crate::cluster::{self, Cluster, User};
use crate::harness::client::{Client, Response};
use crate::harness::folder::Folder;
use crate::harness::gateway::{self, Gateway, Keys, Setup};
use crate::harness::kubeconfig::{self, Credential};
use crate::harness::pki::Authority;
use crate::harness::relay::Relay;
use crate::harness::webhooks::{Review, Webhooks};
use crate::harness::{api_server, eventually, ports};
use crate::lease::{Lease, Logs};
use crate::policies;

/// Whom the gateway is to the API server.
const GATEWAY: User = User {
    name: "portcullis",
    groups: &[],
};

/// Who asks.
const USERS: [User; 4] = [
    GATEWAY,
    User {
        name: "alice",
        groups: &["developers"],
    },
    User {
        name: "carol",
        groups: &["contractors"],
    },
    User {
        name: "dora",
        groups: &["developers"],
    },
];

/// The namespace of the tests.
pub(crate) const NAMESPACE: &str = "shop";

/// The API server, the gateway and what it calls.
pub(crate) struct Servers {
    pub(crate) cluster: Cluster,
    pub(crate) gateway: Gateway,
    pub(crate) console: SocketAddr,
    _webhooks: Webhooks,
    _relay: Relay,
}

/// What decides, and what a webhook says of a ConfigMap that it refuses.
struct Wording {
    manifests: &'static [&'static str],
    refusal: &'static str,
}

static SHARED: LazyLock<Servers> = LazyLock::new(|| {
    let hostile: &'static str = policies::hostile().leak();
    let manifests = [policies::AUTHORIZATION, policies::ADMISSION, hostile];
    let wording = Wording {
        manifests: Box::leak(Box::new(manifests)),
        refusal: policies::MARKUP,
    };
    Servers::start(&binaries::find().unwrap(), &wording)
});

/// The shared servers; `None` without the programs.
pub(crate) fn shared() -> Option<Lease<Servers>> {
    if std::env::var_os("PORTCULLIS_PROGRAM").is_none() {
        chromium::not_run("no built program in PORTCULLIS_PROGRAM; run `just console`");
        return None;
    }
    Lease::of(&SHARED)
}

/// A browser of one's own, and the shared servers, which are started only if there is a browser.
pub(crate) fn in_a_browser() -> Option<(Browser, Lease<Servers>)> {
    in_a_browser_with(&[])
}

/// The same with further arguments for the browser.
pub(crate) fn in_a_browser_with(arguments: &[&str]) -> Option<(Browser, Lease<Servers>)> {
    let browser = Browser::start_with(arguments)?;
    Some((browser, shared()?))
}

impl Servers {
    /// Servers of their own, in which nothing is hostile; `None` without the programs.
    pub(crate) fn presentable() -> Option<Self> {
        let wording = Wording {
            manifests: &[policies::AUTHORIZATION, policies::ADMISSION],
            refusal: "ConfigMaps of this name belong to the platform team",
        };
        Some(Self::start(&binaries::find()?, &wording))
    }

    fn start(binaries: &Binaries, wording: &Wording) -> Self {
        let folder = Folder::new("console");
        let (keys, authority, relay) = (Keys::new(), Authority::new("apiserver"), Relay::new());
        let label = json!([{"op": "add", "path": "/data", "value": {"added": "by a webhook"}}]);
        let refusal = wording.refusal;
        let webhooks = Webhooks::of(&keys.servers, &[])
            .always("/label", Review::patch(&label).warn(refusal))
            .on("/guard", move |called| {
                if called.object()["metadata"]["name"] == "guarded" {
                    return Review::deny(403, refusal).annotate("why", refusal).into();
                }
                Review::allow().into()
            })
            .start();
        let (address, console) = (ports::free(), ports::free());
        let home = folder.path().join("gateway");
        let registered = policies::webhooks(&webhooks);
        let names = ["authorization.yaml", "admission.yaml", "hostile.yaml"];
        let given = names.into_iter().zip(wording.manifests.iter().copied());
        let manifests: Vec<_> = given.chain([("webhooks.yaml", &*registered)]).collect();
        let token = cluster::token(GATEWAY.name);
        let watched = api_server::watched(&folder, "default", &relay, &authority, token);
        let gateway = Gateway::start_until(
            &Setup {
                folder: &home,
                address,
                keys: &keys,
                callers: Vec::new(),
                manifests: &manifests,
                more: json!({
                    "console": {"address": console.to_string()},
                    "clusters": [watched],
                    "admission": {"missingNamespace": "NameOnly"},
                }),
            },
            "/livez",
        );
        let flags = [
            api_server::authorization_flag(&folder, &keys, address),
            format!(
                "--admission-control-config-file={}",
                admission(&folder, &keys, address).display()
            ),
        ];
        let cluster = Cluster::start_as(binaries, folder, &authority, &USERS, &flags);
        relay.lead_to(cluster.address());
        cluster.bind_everything(GATEWAY.name);
        for file in ["crd/authorizationpolicies.yaml", "crd/admissionexceptions.yaml"] {
            apply(&cluster, &shipped(file));
        }
        let servers = Self {
            cluster,
            gateway,
            console,
            _webhooks: webhooks,
            _relay: relay,
        };
        servers.register(&keys.servers.pem(), address);
        servers
    }

    /// Registers the gateway, and waits until the API server asks it and it knows the cluster.
    fn register(&self, authority: &[u8], gateway: SocketAddr) {
        self.cluster.create_namespace(NAMESPACE);
        let group = "/apis/admissionregistration.k8s.io/v1";
        for (kind, collection, path) in [
            (
                "MutatingWebhookConfiguration",
                "mutatingwebhookconfigurations",
                "/mutate",
            ),
            (
                "ValidatingWebhookConfiguration",
                "validatingwebhookconfigurations",
                "/validate",
            ),
        ] {
            let configuration = registration(kind, &format!("https://{gateway}{path}"), authority);
            self.cluster
                .create(&format!("{group}/{collection}"), &configuration);
        }
        let synced = || {
            self.gateway
                .metric(r#"portcullis_cluster_synced{cluster="default"}"#)
                == Some(1.0)
        };
        assert!(eventually(synced), "{}", self.logs());
        let heard = || {
            self.create_config_map("admin", "probe-refused", &json!({}))
                .status
                == 422
        };
        assert!(eventually(heard), "{}", self.logs());
    }

    /// Has a user create a ConfigMap.
    pub(crate) fn create_config_map(&self, user: &str, name: &str, more: &Value) -> Response {
        let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        for (field, value) in more.as_object().into_iter().flatten() {
            object["metadata"][field] = value.clone();
        }
        let collection = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
        self.cluster.user(user).post(&collection, &object).unwrap()
    }

    /// Has somebody of any name get a path; the code of the answer.
    pub(crate) fn get_as(&self, user: &str, path: &str) -> u16 {
        let admin = self.cluster.admin().with_header("Impersonate-User", user);
        admin.get(path).unwrap().status
    }

    /// The file of the AuthorizationPolicies, roles, bindings and Namespaces that are in the API
    /// server now; the gateway watches them.
    fn watched_objects(&self) -> PathBuf {
        let kinds = "clusterroles,clusterrolebindings,roles,rolebindings,namespaces,authorizationpolicies.portcullis.dev";
        let run = self
            .cluster
            .kubectl("admin", &["get", kinds, "--all-namespaces", "--output", "json"]);
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("a test").replace("::", "-");
        let file = self.cluster.folder().join(format!("{name}.json"));
        std::fs::write(&file, run.stdout).unwrap();
        file
    }

    /// The JSON of a command, which is given what the gateway has: its files, and the objects of
    /// the API server.
    pub(crate) fn command(&self, arguments: &[impl AsRef<OsStr>]) -> Value {
        let run = Command::new(gateway::program())
            .args(arguments)
            .args(["--output", "json", "--manifests"])
            .args([self.gateway.manifests(), &self.watched_objects()])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&run.stderr);
        serde_json::from_slice(&run.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
    }

    /// What a form is answered for programs.
    pub(crate) fn post(&self, path: &str, form: &str) -> Value {
        let client = Client::http(self.console)
            .with_header("Accept", "application/json")
            .with_header("Content-Type", "application/x-www-form-urlencoded");
        let answer = client.send("POST", path, Some(form.as_bytes())).unwrap();
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.json()
    }

    /// The address of a page.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.console)
    }

    /// What a view is for programs.
    pub(crate) fn json(&self, path: &str) -> Value {
        let client = Client::http(self.console).with_header("Accept", "application/json");
        let answer = client.get(path).unwrap();
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.json()
    }
}

impl Logs for Servers {
    fn logs(&self) -> String {
        format!("{}{}", self.gateway.tail(), self.cluster.tails())
    }
}

/// The AdmissionConfiguration: how the API server proves to the gateway who it is.
fn admission(folder: &Folder, keys: &Keys, gateway: SocketAddr) -> PathBuf {
    let user = [(gateway.to_string(), Credential::Certificate(keys.caller.clone()))];
    let kubeconfig = folder.write("admission.kubeconfig", kubeconfig::by_host(&user));
    let plugin = |name: &str| {
        json!({"name": name, "configuration": {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "WebhookAdmissionConfiguration",
            "kubeConfigFile": kubeconfig,
        }})
    };
    let configuration = json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [plugin("ValidatingAdmissionWebhook"), plugin("MutatingAdmissionWebhook")],
    });
    folder.write("admission.yaml", configuration.to_string())
}

/// The gateway as webhook of the API server, for ConfigMaps.
fn registration(kind: &str, url: &str, authority: &[u8]) -> Value {
    use base64::Engine as _;
    let authority = base64::engine::general_purpose::STANDARD.encode(authority);
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": "portcullis"},
        "webhooks": [{
            "name": "gateway.portcullis.dev",
            "clientConfig": {"url": url, "caBundle": authority},
            "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["*"], "resources": ["configmaps"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "timeoutSeconds": 30,
        }],
    })
}

/// A file that the project ships in `config`.
fn shipped(file: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../config")).join(file)
}

fn apply(cluster: &Cluster, file: &Path) {
    let run = cluster.kubectl("admin", &["apply", "-f", file.to_str().unwrap()]);
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}
