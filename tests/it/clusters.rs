//! API servers that are watched, and what must not pass for one.

use std::io::Read as _;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use openssl::ssl::{SslAcceptor, SslMethod};

use crate::harness::pki::Authority;
use crate::support::{Builder, get, until};

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
