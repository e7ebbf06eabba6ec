//! API servers that are watched, and what must not pass for one.

use std::io::{self, Read as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use openssl::ssl::{SslAcceptor, SslMethod};
use portcullis::config::Config;
use portcullis::reload::{
    AwaitedCluster, ManifestSource, Snapshot, SourceFiles, SourceStatus, Trigger, WatchedObjects,
};
use serde_json::{Value, json};

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
        let awaited = AwaitedCluster {
            until: Some(*self.until.lock().unwrap()),
            own_user: Some("gateway".to_owned()),
        };
        vec![Arc::new(WatchedObjects {
            cluster: "default".to_owned(),
            digest: [u8::from(is_known); 32],
            awaited: (!is_known).then_some(awaited),
            ..WatchedObjects::default()
        })]
    }

    fn follow(&self, _: &Snapshot) {}

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
