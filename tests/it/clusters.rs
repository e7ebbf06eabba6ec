//! API servers that are watched, and what must not pass for one.

use std::io::{self, Read as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use openssl::ssl::{SslAcceptor, SslMethod};
use portcullis::cluster::Clusters;
use portcullis::config::Config;
use portcullis::state::{
    ManifestSource, Snapshot, SourceFiles, SourceStatus, Trigger, UnsyncedCluster, WatchedObjects,
};
use portcullis_policy::model::{Attributes, Decision, ResourceAttributes, Target, Time, User};
use serde_json::{Value, json};

use crate::harness::api_servers::{ApiServers, Behaviour};
use crate::harness::pki::Authority;
use crate::support::{Builder, Gateway, JANE_GETS, get, until, v1};

/// A server with a certificate of `authority`, and how often it was asked something.
fn server(authority: &Authority) -> (SocketAddr, Arc<AtomicUsize>) {
    let identity = authority.server();
    let mut builder = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server()).unwrap();
    builder.set_private_key(&identity.key).unwrap();
    builder.set_certificate(&identity.certificate).unwrap();
    let acceptor = builder.build();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            // Who does not trust it ends the handshake.
            let Ok(mut stream) = acceptor.accept(stream) else {
                continue;
            };
            if stream.read(&mut [0; 1]).is_ok_and(|read| read > 0) {
                count.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    (address, asked)
}

fn kubeconfig(address: SocketAddr, authority: &str) -> String {
    format!(
        "apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: 'https://{address}'{authority}}}}}]
users: [{{name: u, user: {{token: secret}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
"
    )
}

/// The gateway's first attempts to watch `address`, trusting `authority` by its kubeconfig,
/// if there is one, and `system` by the system.
fn watched(
    address: SocketAddr,
    authority: Option<&Authority>,
    system: &Authority,
    is_over: impl Fn(&str) -> bool,
) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("system.crt");
    std::fs::write(&file, system.pem()).unwrap();
    let process = Builder::new()
        .file("cluster.crt", authority.map_or_else(Vec::new, Authority::pem))
        .file(
            "cluster.kubeconfig",
            kubeconfig(
                address,
                authority.map_or("", |_| ", certificate-authority: cluster.crt"),
            ),
        )
        .clusters("[{name: default, kubeconfig: cluster.kubeconfig}]")
        .spawn_with(&[("SSL_CERT_FILE", file.to_str().unwrap())]);
    until("it was tried", || is_over(&get(process.admin, "/metrics").1));
}

#[test]
fn only_the_ca_of_the_kubeconfig_is_trusted() {
    let [own, system] = ["own", "system"].map(Authority::new);
    let (address, asked) = server(&system);
    watched(address, Some(&own), &system, has_failed);
    assert_eq!(asked.load(Ordering::SeqCst), 0, "the token was shown to nobody");

    let (address, asked) = server(&own);
    watched(address, Some(&own), &system, |_| asked.load(Ordering::SeqCst) > 0);
}

#[test]
fn without_a_ca_in_the_kubeconfig_those_of_the_system_are_trusted() {
    let [own, system] = ["own", "system"].map(Authority::new);
    let (address, asked) = server(&own);
    watched(address, None, &system, has_failed);
    assert_eq!(asked.load(Ordering::SeqCst), 0, "the token was shown to nobody");

    let (address, asked) = server(&system);
    watched(address, None, &system, |_| asked.load(Ordering::SeqCst) > 0);
}

/// Whether the API server could not be watched several times.
fn has_failed(metrics: &str) -> bool {
    let failures = metrics
        .lines()
        .find_map(|line| line.strip_prefix(r#"portcullis_cluster_watch_failures_total{cluster="default"} "#));
    failures.is_some_and(|value| value.parse::<f64>().unwrap() >= 5.0)
}

/// An API server of which nothing is known until it is told.
struct UnknownCluster {
    is_known: AtomicBool,
    until: Mutex<Instant>,
}

impl UnknownCluster {
    fn until(until: Instant) -> Arc<Self> {
        Arc::new(Self {
            is_known: AtomicBool::new(false),
            until: Mutex::new(until),
        })
    }
}

impl ManifestSource for UnknownCluster {
    fn start(&self, _: Trigger) -> io::Result<()> {
        Ok(())
    }

    fn check(&self, _: &Config) -> SourceFiles {
        SourceFiles::default()
    }

    fn objects(&self, _: &Config) -> Vec<Arc<WatchedObjects>> {
        let is_known = self.is_known.load(Ordering::SeqCst);
        let unsynced = UnsyncedCluster {
            until: Some(*self.until.lock().unwrap()),
            own_user: Some("gateway".to_owned()),
        };
        vec![Arc::new(WatchedObjects {
            cluster: "default".to_owned(),
            digest: [u8::from(is_known); 32],
            unsynced: (!is_known).then_some(unsynced),
            ..WatchedObjects::default()
        })]
    }

    fn snapshot_applied(&self, _: &Snapshot) {}

    fn status(&self) -> Vec<SourceStatus> {
        Vec::new()
    }
}

/// What `user`, who asks for pods, is answered: the HTTP status, `Retry-After`, and the review's status.
fn answer(gateway: &Gateway, user: &str) -> (u16, Option<String>, Value) {
    let review = v1(&json!({
        "user": user,
        "resourceAttributes": {"verb": "get", "version": "v1", "resource": "pods", "namespace": "ns"},
    })
    .to_string());
    let answer = gateway.connect().authorize(review);
    let retry = answer.header("retry-after").map(str::to_owned);
    (answer.status, retry, answer.json()["status"].clone())
}

/// Whether a Pod of `user` is admitted; the HTTP status where there is another answer.
fn admits(gateway: &Gateway, user: &str) -> Result<bool, u16> {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "name": "a",
            "namespace": "team",
            "operation": "CREATE",
            "userInfo": {"username": user},
            "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "team"}},
        },
    });
    let head = "POST /validate HTTP/1.1\r\nContent-Type: application/json";
    let answer = gateway.connect().request(head, review.to_string().as_bytes());
    match answer.status {
        200 => Ok(answer.json()["response"]["allowed"] == true),
        status => Err(status),
    }
}

#[test]
fn requests_wait_until_something_is_known_of_their_cluster_but_for_those_it_needs_to_start() {
    const SCHEDULER: &str = "system:kube-scheduler";
    let source = UnknownCluster::until(Instant::now() + Duration::from_secs(24 * 3_600));
    let gateway = Builder::new()
        .east()
        .source(Arc::clone(&source) as Arc<dyn ManifestSource>)
        .start();
    let later = answer(&gateway, "jane");
    assert_eq!((later.0, later.1.as_deref()), (503, Some("1")));
    assert_eq!(admits(&gateway, "jane"), Err(503));
    for user in [SCHEDULER, "gateway"] {
        let (status, _, said) = answer(&gateway, user);
        assert_eq!(status, 200, "{user}");
        assert_eq!(said["allowed"], false, "{user}: {said}");
        assert_ne!(said["denied"], true, "{user}: {said}");
        assert_eq!(admits(&gateway, user), Ok(true), "{user}");
    }
    let east =
        "POST /authorize HTTP/1.1\r\nContent-Type: application/json\r\nAuthorization: Bearer east-token";
    let mut connection = gateway.stranger().connect(gateway.addresses.server);
    let answered = connection.request(east, v1(JANE_GETS).as_bytes());
    assert_eq!(answered.status, 200, "another cluster is as it was");

    source.is_known.store(true, Ordering::SeqCst);
    gateway.reload(&[]);
    let (status, _, said) = answer(&gateway, "jane");
    assert_eq!((status, &said["allowed"]), (200, &json!(true)));
}

#[test]
fn a_cluster_that_stays_unknown_is_decided_by_the_files() {
    let gateway = Builder::new()
        .source(UnknownCluster::until(Instant::now()))
        .start();
    let (status, _, said) = answer(&gateway, "jane");
    assert_eq!((status, &said["allowed"]), (200, &json!(true)));
    assert_eq!(admits(&gateway, "jane"), Ok(true));
}

/// An Allow whose object must carry a label, and two callers: one of another cluster.
const CONDITIONAL: &str = "
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: labelled}
spec:
  effect: Allow
  subjects: [{kind: User, name: dora}]
  resourceRules: [{verbs: [create], apiGroups: [''], resources: [pods]}]
  objectConditions: [{name: is, expression: 'has(object.metadata.labels.team)'}]
";

const CALLERS: &str = "
- {clientCertificate: {commonNames: [kube-apiserver]}}
- {pathToken: {file: own-tokens}}
- {pathToken: {file: other-tokens}, cluster: other}
";

const OWN_TOKEN: &str = "2b7e151628aed2a6abf7158809cf4f3c762e7160f38b4da56a784d9045190cfe";
const OTHER_TOKEN: &str = "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4";

/// A gateway that watches the webhook configurations of one API server.
struct WatchedRegistrations {
    servers: ApiServers,
    gateway: Gateway,
}

impl WatchedRegistrations {
    fn start() -> Self {
        let servers = ApiServers::start(&Authority::new("clusters"), 1, |_| Vec::new());
        let gateway = Builder::new()
            .manifests(CONDITIONAL)
            .callers(CALLERS)
            .file("own-tokens", OWN_TOKEN)
            .file("other-tokens", OTHER_TOKEN)
            .file("own.kubeconfig", servers.kubeconfig(0))
            .clusters("[{name: default, kubeconfig: own.kubeconfig, admission: Watched}]")
            .source(Arc::new(Clusters::new()))
            .start();
        gateway.state.start_source(gateway.reloader.trigger()).unwrap();
        Self { servers, gateway }
    }

    /// A configuration that counts, but for what `change` changes of its webhook.
    fn put(&self, change: impl FnOnce(&mut Value)) {
        let bundle = openssl::base64::encode_block(&self.gateway.authority.pem());
        let mut webhook = json!({
            "name": "validate.portcullis.dev",
            "clientConfig": {"url": "https://localhost:8443/validate", "caBundle": bundle},
            "rules": [{
                "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"], "scope": "*",
            }],
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        });
        change(&mut webhook);
        self.servers.put(
            0,
            &json!({
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "ValidatingWebhookConfiguration",
                "metadata": {"name": "portcullis", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"},
                "webhooks": [webhook],
            }),
        );
    }

    /// Why dora's pod is not granted, long after everything was read; `None` where it is.
    fn why_not(&self) -> Option<String> {
        let asked = Attributes {
            user: User {
                name: "dora".into(),
                ..User::default()
            },
            target: Target::Resource(Box::new(ResourceAttributes {
                verb: "create".into(),
                version: "v1".into(),
                resource: "pods".into(),
                namespace: "team".into(),
                ..ResourceAttributes::default()
            })),
        };
        let later = Time::from(SystemTime::now() + Duration::from_secs(3_600));
        let snapshot = self.gateway.state.current();
        let set = snapshot.policies.for_cluster("default");
        let is_granted = set.authorize(&asked, later).decision == Decision::Allow;
        (!is_granted).then(|| set.unmatched(&asked, later).to_string())
    }

    #[track_caller]
    fn becomes(&self, expected: Option<&str>) {
        let is_so = || match (self.why_not(), expected) {
            (None, None) => true,
            (Some(why), Some(expected)) => why.contains(expected),
            _ => false,
        };
        until(&format!("{expected:?} holds, not {:?}", self.why_not()), is_so);
    }
}

#[test]
fn what_webhook_configurations_send_is_granted_as_long_as_they_do() {
    let watched = WatchedRegistrations::start();
    watched.becomes(Some("no ValidatingWebhookConfiguration calls its `/validate`"));
    watched.put(|_| ());
    watched.becomes(None);
    let url = |path: &str| format!("https://localhost:8443{path}").into();
    let with_url = |path: &str| {
        let url = url(path);
        watched.put(|webhook| webhook["clientConfig"]["url"] = url);
    };
    with_url("/validate/name");
    watched.becomes(Some("no ValidatingWebhookConfiguration calls its `/validate`"));
    with_url(&format!("/t/{OWN_TOKEN}/validate"));
    watched.becomes(None);
    for token in [OTHER_TOKEN, "unknown"] {
        with_url(&format!("/t/{token}/validate"));
        watched.becomes(Some("no entry of `callers` accepts the token"));
        watched.put(|_| ());
        watched.becomes(None);
    }
    watched.put(|webhook| webhook["failurePolicy"] = "Ignore".into());
    watched.becomes(Some(
        "portcullis/validate.portcullis.dev: its failurePolicy is not Fail",
    ));
    let detail = get(watched.gateway.addresses.admin, "/readyz?verbose").1;
    assert!(
        detail.contains("portcullis/validate.portcullis.dev does not count: its failurePolicy is not Fail"),
        "{detail}"
    );
    watched.put(|webhook| webhook["clientConfig"]["url"] = "https://elsewhere.example.com/validate".into());
    watched.becomes(Some("it calls `elsewhere.example.com`"));
    let other = openssl::base64::encode_block(&Authority::new("ca").pem());
    watched.put(|webhook| webhook["clientConfig"]["caBundle"] = other.into());
    watched.becomes(Some("its caBundle does not verify the gateway's certificate"));
    watched.put(|webhook| {
        webhook["matchConditions"] = json!([{"name": "one", "expression": "object.metadata.name != ''"}])
    });
    watched.becomes(Some("its matchCondition `one`"));
    watched.put(|_| ());
    watched.becomes(None);
    watched
        .servers
        .delete(0, "validatingwebhookconfigurations", "", "portcullis");
    watched.becomes(Some("no ValidatingWebhookConfiguration calls its `/validate`"));
}

#[test]
fn while_it_is_not_certain_which_webhook_configurations_there_are_nothing_is_granted() {
    let watched = WatchedRegistrations::start();
    watched.put(|_| ());
    watched.becomes(None);
    let unsure = Some("no webhook configuration of the cluster is sure to send the request");
    for behaviour in [Behaviour::NotFound, Behaviour::EmptyListsWithoutGroups] {
        watched.servers.behave(0, behaviour);
        watched.becomes(unsure);
        watched.servers.behave(0, Behaviour::Serves);
        watched.becomes(None);
    }
    watched.servers.behave(0, Behaviour::EmptyLists);
    watched.becomes(unsure);
}
