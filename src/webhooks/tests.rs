//! Webhooks on the loopback address, called with the settings of a configuration.

mod clusters;
pub(crate) mod fixtures;
mod limits;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tempfile::TempDir;

use super::*;
use crate::config;
use crate::pki::Authority;
use fixtures::{FakeAction, FakeRequest, ok, reply};
use portcullis_policy::admission::FailurePolicy;
use portcullis_policy::admission::Reinvocation;
use portcullis_policy::admission::matching::Constraints;
use portcullis_policy::admission::webhook::{ClientConfig, WebhookTarget};

const JANE: Option<Requester<'_>> = Some(Requester {
    share: "default",
    user: "jane",
});

const PATIENCE: Duration = Duration::from_secs(30);

/// A configuration whose `upstreams` is `section`, and the folder that its paths start at.
fn config_in(folder: &Path, section: &str) -> Config {
    let text = format!(
        "apiVersion: config.portcullis.dev/v1alpha1\nkind: GatewayConfiguration\n\
         server: {{address: '127.0.0.1:18443', tls: {{certificate: s.crt, privateKey: s.key}}}}\n\
         upstreams: {section}\n"
    );
    let (config, faults) = config::parse(Path::new("gateway.yaml"), &text, folder);
    assert!(!faults.has_errors(), "{faults}");
    config.unwrap()
}

fn webhook(name: &str, target: WebhookTarget, ca_bundle: Vec<u8>) -> Arc<Webhook> {
    Arc::new(Webhook {
        configuration: "config".to_owned(),
        name: name.to_owned(),
        client: ClientConfig { target, ca_bundle },
        constraints: Constraints::default(),
        match_conditions: Vec::new(),
        failure_policy: FailurePolicy::Fail,
        timeout: Duration::from_secs(10),
        side_effects: None,
        version: None,
        reinvocation: Reinvocation::Never,
    })
}

/// A server with a certificate of its own authority, and the webhook that it is.
struct ServedPair {
    server: fixtures::FakeWebhook,
    webhook: Arc<Webhook>,
    authority: Authority,
}

impl ServedPair {
    fn new(respond: impl Fn(&FakeRequest) -> FakeAction + Send + Sync + 'static) -> Self {
        let authority = Authority::new("ca");
        let server = fixtures::FakeWebhook::start(&authority.server_elsewhere(&["127.0.0.1"]), respond);
        let target = WebhookTarget::Url(server.url("/hook"));
        let webhook = webhook("hook", target, authority.pem());
        Self {
            server,
            webhook,
            authority,
        }
    }

    fn sends(bytes: Vec<u8>) -> Self {
        Self::new(move |_| FakeAction::Send(bytes.clone()))
    }
}

fn build(
    folder: &Path,
    section: &str,
    webhooks: &[&Arc<Webhook>],
    previous: Option<&Upstreams>,
) -> Upstreams {
    let config = config_in(folder, section);
    let (read, faults) = Upstreams::read(&config, None, &mut HeldBack::new());
    assert_eq!(faults.to_string(), "");
    let built = read.with(
        webhooks.iter().copied().map(ConfiguredWebhook::everywhere),
        previous,
    );
    assert_eq!(built.warnings(&config).to_string(), "");
    built
}

fn call(upstreams: &Upstreams, webhook: &Arc<Webhook>) -> Result<String, String> {
    let called = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(upstreams.call(("default", webhook), "{}", PATIENCE, JANE, None, None));
    called
        .map(|reply| {
            reply.connection.release(true);
            String::from_utf8(reply.body.to_vec()).unwrap()
        })
        .map_err(|failure| failure.to_string())
}

fn no_files() -> TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn a_webhook_is_called_with_the_credential_of_its_host() {
    let pair = ServedPair::sends(ok(b"{}"));
    let folder = tempfile::tempdir().unwrap();
    let users = format!(
        "users: [{{name: '*', user: {{token: other}}}}, {{name: '{}', user: {{token: mine}}}}]",
        pair.server.address
    );
    std::fs::write(folder.path().join("users"), users).unwrap();
    let upstreams = build(folder.path(), "{kubeconfig: users}", &[&pair.webhook], None);
    assert_eq!(call(&upstreams, &pair.webhook).as_deref(), Ok("{}"));
    let request = pair.server.received().remove(0);
    assert_eq!(request.line, "POST /hook?timeout=30s HTTP/1.1");
    assert_eq!(request.headers["authorization"], "Bearer mine");
    assert_eq!(request.headers["user-agent"], "kube-apiserver-admission");
}

#[test]
fn a_service_is_where_the_addresses_say_and_is_trusted_by_the_shared_bundle() {
    let authority = Authority::new("shared");
    let issued = authority.server_elsewhere(&["svc.ns.svc"]);
    let server = fixtures::FakeWebhook::start(&issued, |_| FakeAction::Send(ok(b"{}")));
    let target = WebhookTarget::Service {
        namespace: "ns".to_owned(),
        name: "svc".to_owned(),
        port: 8443,
        path: "/a/".to_owned(),
    };
    let webhook = webhook("hook", target, Authority::new("own").pem());
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("ca.crt"), authority.pem()).unwrap();
    let section = format!(
        "{{caBundle: ca.crt, addresses: {{'svc.ns.svc:8443': '{}'}}}}",
        server.address
    );
    let upstreams = build(folder.path(), &section, &[&webhook], None);
    assert_eq!(call(&upstreams, &webhook).as_deref(), Ok("{}"));
    let request = server.received().remove(0);
    assert_eq!(request.line, "POST /a?timeout=30s HTTP/1.1");
    assert_eq!(request.headers["host"], "svc.ns.svc:8443");
}

#[test]
fn connections_go_on_when_a_reload_leaves_them_as_they_are() {
    let pair = ServedPair::sends(ok(b"{}"));
    let folder = tempfile::tempdir().unwrap();
    let users = |token: &str| {
        let text = format!("users: [{{name: '*', user: {{token: {token}}}}}]");
        std::fs::write(folder.path().join("users"), text).unwrap();
    };
    users("t1");
    let first = build(folder.path(), "{kubeconfig: users}", &[&pair.webhook], None);
    call(&first, &pair.webhook).unwrap();
    users("t2");
    let second = build(
        folder.path(),
        "{kubeconfig: users}",
        &[&pair.webhook],
        Some(&first),
    );
    call(&second, &pair.webhook).unwrap();
    // Another bundle is another trust.
    let mut trusts_more = pair.authority.pem();
    trusts_more.extend(Authority::new("more").pem());
    let changed = webhook("hook", pair.webhook.client.target.clone(), trusts_more);
    let third = second.with([ConfiguredWebhook::everywhere(&changed)], Some(&second));
    call(&third, &changed).unwrap();
    let shown: Vec<(usize, String)> = pair
        .server
        .received()
        .into_iter()
        .map(|request| (request.connection, request.headers["authorization"].clone()))
        .collect();
    let expected = [(0, "Bearer t1"), (0, "Bearer t2"), (1, "Bearer t2")];
    assert_eq!(
        shown,
        expected.map(|(connection, token)| (connection, token.to_owned()))
    );
}

#[test]
fn series_are_there_before_the_first_call_and_go_with_the_webhook() {
    let pair = ServedPair::sends(reply("503 Service Unavailable", "", b""));
    let section = "{breaker: {failures: 1, openFor: 10m}}";
    let upstreams = build(no_files().path(), section, &[&pair.webhook], None);
    let metrics = Metrics::new().unwrap();
    let value = |series: &str| {
        let text = String::from_utf8(metrics.encode().unwrap()).unwrap();
        text.lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' ').map(str::to_owned))
    };
    let failures = r#"portcullis_upstream_requests_total{result="failure",webhook="config/hook"}"#;
    let calls = r#"portcullis_upstream_duration_seconds_count{webhook="config/hook"}"#;
    let open = r#"portcullis_upstream_breaker_open{webhook="config/hook"}"#;
    let values = || [failures, calls, open].map(value);
    upstreams.observe(&metrics, []);
    assert_eq!(values(), ["0", "0", "0"].map(|value| Some(value.to_owned())));
    for _ in 0..3 {
        call(&upstreams, &pair.webhook).unwrap_err();
    }
    assert_eq!(values(), ["3", "1", "1"].map(|value| Some(value.to_owned())));
    let after = build(no_files().path(), section, &[&pair.webhook], Some(&upstreams));
    call(&after, &pair.webhook).unwrap_err();
    assert_eq!(
        value(failures).as_deref(),
        Some("4"),
        "counted without being told again"
    );
    after.observe(&metrics, []);
    assert_eq!(values(), ["4", "1", "1"].map(|value| Some(value.to_owned())));
    after.with([], Some(&after)).observe(&metrics, []);
    assert_eq!(values(), [None, None, None]);
}

#[test]
fn faults_are_told_where_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("ca.crt", "no certificate");
    write(
        "users",
        "users: [{name: a, user: {client-certificate-data: QQ==, client-key-data: QQ==}}, {name: b, \
         user: {token: \"a\\tb\\x01\"}}]",
    );
    let faults = |section: &str| {
        let config = config_in(folder.path(), section);
        let (_, faults) = Upstreams::read(&config, None, &mut HeldBack::new());
        assert!(faults.has_errors(), "{section}");
        faults
            .to_string()
            .replace(&format!("{}/", folder.path().display()), "")
    };
    for (section, expected) in [
        (
            "{caBundle: ca.crt}",
            "gateway.yaml:4: upstreams.caBundle: Invalid value: `ca.crt`: contains no certificate",
        ),
        (
            "{caBundle: gone}",
            "gateway.yaml:4: upstreams.caBundle: Unreadable: `gone`: ",
        ),
        ("{kubeconfig: gone}", "gone: Unreadable"),
        (
            "{kubeconfig: users}",
            "users:1: users[0].user: Invalid value: user `a`: the client certificate is not valid PEM",
        ),
        (
            "{kubeconfig: users}",
            "users:1: users[1].user: Invalid value: user `b`: a host, user agent or credential",
        ),
    ] {
        let found = faults(section);
        assert!(found.contains(expected), "{section}: {found}");
    }
    let files: Vec<_> = files(&config_in(folder.path(), "{kubeconfig: users, caBundle: ca.crt}"));
    assert_eq!(files, [folder.path().join("users"), folder.path().join("ca.crt")]);
}

#[test]
fn a_webhook_that_cannot_be_called_is_a_warning_and_fails() {
    let target = || WebhookTarget::Url("https://hooks.example.com/".to_owned());
    let webhook = webhook("hook", target(), b"no certificate".to_vec());
    let section = "{shadow: [hook, config/hook, gone]}";
    let config = config_in(no_files().path(), section);
    let upstreams = Upstreams::read(&config, None, &mut HeldBack::new())
        .0
        .with([ConfiguredWebhook::everywhere(&webhook)], None);
    assert_eq!(
        upstreams.warnings(&config).to_string(),
        "webhook/config/hook: warning: Invalid value: the CA bundle has no certificate in PEM, or an invalid \
        one: it cannot be called, and its failurePolicy applies\ngateway.yaml:4: upstreams.shadow: warning: \
        Not found: there is no webhook `gone` among the manifests"
    );
    let failure = call(&upstreams, &webhook).unwrap_err();
    assert!(failure.starts_with("failed to call webhook: the CA bundle has no certificate"));
    let stranger = super::tests::webhook("other", target(), Vec::new());
    let failure = call(&upstreams, &stranger).unwrap_err();
    assert!(failure.contains("not among the manifests in force"), "{failure}");
}

#[test]
fn calls_end_early_enough_for_the_reply_to_arrive() {
    let since = Instant::now();
    for (allowed, calls) in [(30_000, 29_900), (1_000, 900), (50, 45), (0, 0)] {
        let of = |milliseconds| since + Duration::from_millis(milliseconds);
        assert_eq!(call_deadline(since, of(allowed)), of(calls), "{allowed}");
    }
    let late = since + Duration::from_secs(1);
    assert_eq!(call_deadline(late, since), since);
}
