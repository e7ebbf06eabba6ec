//! One API server with the gateway that watches it, shared by these tests: each
//! has objects of its own.

use crate::binaries::{self, Binaries};
use crate::cluster::{self, Cluster, User};
use crate::harness::api_server;
use crate::harness::client::Client;
use crate::harness::eventually;
use crate::harness::folder::Folder;
use crate::harness::gateway::{Gateway, Keys, Setup};
use crate::harness::pki::Authority;
use crate::harness::ports;
use crate::harness::relay::Relay;
use crate::lease::{Lease, Logs};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex};

/// Whom the gateway is to the API server.
pub(super) const GATEWAY: User = User {
    name: "portcullis",
    groups: &[],
};

/// Who asks for paths of the API server. One for each test.
pub(super) const USERS: [User; 3] = [
    GATEWAY,
    User {
        name: "carol",
        groups: &["people"],
    },
    User {
        name: "dave",
        groups: &["people"],
    },
];

/// The cluster of callers that name none.
pub(crate) const CLUSTER: &str = "default";

/// What is meant for the gateway has this label.
pub(super) const LABEL: (&str, &str) = ("run-by", "gateway");

/// The API server, the gateway, and what is between them.
pub(super) struct Servers {
    pub(super) cluster: Cluster,
    pub(super) gateway: Gateway,
    pub(super) relay: Relay,
    pub(super) keys: Keys,
    pub(super) authority: Authority,
    /// Where the gateway saves what it knows.
    pub(super) cache_file: PathBuf,
    /// Held by a test that cuts the relay, and by those that count failures.
    pub(super) quiet: Mutex<()>,
}

static SHARED: LazyLock<Servers> = LazyLock::new(|| Servers::start(&binaries::find().unwrap()));

/// The shared servers; `None` without the programs.
pub(super) fn shared() -> Option<Lease<Servers>> {
    Lease::of(&SHARED)
}

impl Servers {
    /// The gateway is there before the API server that it watches, and knows
    /// nothing of it. All that the API server decides about the gateway's own
    /// user it asks the gateway first.
    fn start(binaries: &Binaries) -> Self {
        let folder = Folder::new("cluster-source");
        let (keys, authority, relay) = (Keys::new(), Authority::new("apiserver"), Relay::new());
        let address = ports::free();
        let home = folder.path().join("gateway");
        let gateway = Gateway::start_until(
            &Setup {
                folder: &home,
                address,
                keys: &keys,
                callers: Vec::new(),
                manifests: &[("own.yaml", OWN)],
                more: json!({"clusters": [entry(&folder, CLUSTER, &relay, &authority)]}),
            },
            "/livez",
        );
        assert_eq!(
            gateway.probe("/readyz").status,
            503,
            "nothing is known of the cluster"
        );
        let flag = api_server::authorization_flag(&folder, &keys, address);
        let cluster = Cluster::start_as(binaries, folder, &authority, &USERS, &[flag]);
        relay.lead_to(cluster.address());
        for file in [
            "crd/authorizationpolicies.yaml",
            "crd/admissionexceptions.yaml",
            "cluster/gateway.yaml",
            "cluster/admission.yaml",
            "cluster/exceptions.yaml",
        ] {
            apply(&cluster, &shipped(file));
        }
        let synced = || gateway.metric(r#"portcullis_cluster_synced{cluster="default"}"#) == Some(1.0);
        assert!(eventually(synced), "{}{}", gateway.tail(), cluster.tails());
        assert!(eventually(|| defined(&cluster)), "{}", cluster.tails());
        Self {
            cache_file: home.join("default.json"),
            cluster,
            gateway,
            relay,
            keys,
            authority,
            quiet: Mutex::new(()),
        }
    }

    /// What the gateway answers about a user who gets a path.
    pub(super) fn decision(&self, user: &str, path: &str) -> Value {
        decision(&self.gateway.client(), user, path)
    }

    /// Waits until the gateway decides so.
    pub(super) fn wait_for(&self, user: &str, path: &str, expected: &str) {
        let mut last = Value::Null;
        let decided = eventually(|| {
            last = self.decision(user, path);
            outcome(&last) == expected
        });
        assert!(decided, "{user} gets {path}: {last}, not {expected}");
    }

    /// Runs kubectl as admin, which must succeed.
    pub(super) fn kubectl(&self, arguments: &[&str]) -> String {
        kubectl(&self.cluster, arguments)
    }

    /// Creates or changes objects as `kubectl apply` does.
    pub(super) fn apply(&self, name: &str, text: &str) {
        let file = self.cluster.folder().join(name);
        std::fs::write(&file, text).unwrap();
        apply(&self.cluster, &file);
    }

    pub(super) fn metric(&self, name: &str) -> f64 {
        let series = format!(r#"portcullis_{name}{{cluster="default"}}"#);
        self.gateway.metric(&series).unwrap_or_default()
    }
}

/// What the files of the gateway say.
const OWN: &str = "
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: of-the-files}
spec:
  effect: Deny
  subjects: [{kind: Group, name: people}]
  nonResourceRules: [{verbs: [get], paths: [/of-the-files]}]
  reason: the files say so
";

/// An entry of `clusters`, whose API server is behind the relay.
pub(super) fn entry(folder: &Folder, name: &str, relay: &Relay, authority: &Authority) -> Value {
    let mut entry = api_server::watched(folder, name, relay, authority, cluster::token(GATEWAY.name));
    entry["selector"] = json!({"matchLabels": {LABEL.0: LABEL.1}});
    // The webhooks of these tests are on this host.
    entry["upstreams"] = json!({"allowedAddresses": ["127.0.0.1"]});
    entry
}

/// What a gateway answers about carol's request for a resource.
pub(super) fn about_resource(gateway: &Client, attributes: &Value) -> &'static str {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": "carol", "groups": ["people"], "resourceAttributes": attributes},
    });
    let response = gateway.post("/authorize", &review).unwrap();
    assert_eq!(response.status, 200, "{}", response.text());
    outcome(&response.json()["status"])
}

/// A shipped definition, to be changed.
pub(super) fn definition(plural: &str) -> Value {
    let text = std::fs::read_to_string(shipped(&format!("crd/{plural}.yaml"))).unwrap();
    portcullis_policy::document::parse(None, &text).unwrap()[0]
        .root()
        .to_json()
}

/// What a gateway answers about a user who gets a path; `null` where it knows nothing of the
/// cluster yet.
pub(super) fn decision(gateway: &Client, user: &str, path: &str) -> Value {
    let review = crate::harness::reviews::authorization(&json!({
        "user": user,
        "groups": ["people"],
        "nonResourceAttributes": {"verb": "get", "path": path},
    }));
    let response = gateway.post("/authorize", &review).unwrap();
    if response.status == 503 {
        return Value::Null;
    }
    assert_eq!(response.status, 200, "{}", response.text());
    response.json()["status"].clone()
}

/// `allow`, `deny`, `noOpinion` or `later`.
pub(super) fn outcome(status: &Value) -> &'static str {
    if status.is_null() {
        return "later";
    }
    match (status["allowed"] == true, status["denied"] == true) {
        (true, _) => "allow",
        (_, true) => "deny",
        _ => "noOpinion",
    }
}

/// A file that the project ships in `config`.
pub(crate) fn shipped(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("config").join(file)
}

pub(crate) fn apply(cluster: &Cluster, file: &Path) {
    kubectl(cluster, &["apply", "-f", file.to_str().unwrap()]);
}

/// Runs kubectl as admin, which must succeed.
pub(crate) fn kubectl(cluster: &Cluster, arguments: &[&str]) -> String {
    let run = cluster.kubectl("admin", arguments);
    let reported = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(run.status.success(), "{arguments:?}: {}", reported(&run.stderr));
    reported(&run.stdout)
}

/// Whether the API server serves all of our own kinds, which it begins to one after the other.
pub(super) fn defined(cluster: &Cluster) -> bool {
    ["authorizationpolicies", "admissionexceptions"]
        .iter()
        .all(|plural| {
            let path = format!("/apis/portcullis.dev/v1alpha1/{plural}");
            cluster.status("admin", &path) == 200
        })
}

impl Logs for Servers {
    fn logs(&self) -> String {
        format!("{}{}", self.gateway.tail(), self.cluster.tails())
    }
}
