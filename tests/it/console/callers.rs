//! The console with TLS: callers whose `endpoints` hold `console`, and nobody else.

use crate::support::{Builder, Client, Gateway};

const CALLERS: &str = "
- clientCertificate: {commonNames: [kube-apiserver]}
  endpoints: [authorize]
- clientCertificate: {commonNames: [operator]}
  endpoints: [console]
- {kubeconfig: authorization.kubeconfig, endpoints: [authorize]}
- {kubeconfig: admission.kubeconfig, endpoints: [console]}
";

fn with_tls() -> Gateway {
    Builder::new()
        .callers(CALLERS)
        .console("{address: '127.0.0.1:0', tls: {certificate: server.crt, privateKey: server.key}}")
        .start()
}

fn status(gateway: &Gateway, client: &Client<'_>, head: &str) -> u16 {
    let console = gateway.addresses.console.unwrap();
    client.connect(console).request(head, b"").status
}

#[test]
fn with_tls_a_caller_of_the_console_is_answered_and_nobody_else() {
    let gateway = with_tls();
    let operator = gateway.authority.client("operator", &[]);
    let as_operator = Client {
        authority: &gateway.authority,
        certificate: Some(&operator),
    };
    let stranger = gateway.stranger();
    let page = "GET / HTTP/1.1";
    let with = |token: &str| format!("{page}\r\nAuthorization: Bearer {token}");
    assert_eq!(status(&gateway, &as_operator, page), 200);
    assert_eq!(
        status(&gateway, &gateway.client(), page),
        403,
        "may ask /authorize alone"
    );
    assert_eq!(status(&gateway, &stranger, page), 401);
    assert_eq!(status(&gateway, &stranger, &with("admission-token")), 200);
    assert_eq!(status(&gateway, &stranger, &with("right-token")), 403);
    assert_eq!(status(&gateway, &stranger, &with("wrong-token")), 401);
    // A caller of the console alone decides nothing.
    let review =
        "POST /authorize HTTP/1.1\r\nContent-Type: application/json\r\nAuthorization: Bearer admission-token";
    let answer = stranger.connect(gateway.addresses.server).request(review, b"{}");
    assert_eq!(answer.status, 403);
}

/// Styles and scripts too: whether a gateway is there, and of which version, is nobody's business.
#[test]
fn a_stranger_sees_nothing_of_any_path() {
    let gateway = with_tls();
    let revision = gateway.state.current().revision.to_string();
    for path in [
        "/",
        "/live/events",
        "/live/1",
        "/assets/console.js",
        "/nowhere",
        "/what-if?user=jane",
    ] {
        let console = gateway.addresses.console.unwrap();
        let head = format!("GET {path} HTTP/1.1");
        let answer = gateway.stranger().connect(console).request(&head, b"");
        assert_eq!(answer.status, 401, "{path}");
        let body = String::from_utf8_lossy(&answer.body);
        assert!(!body.contains(&revision), "{path}: {body}");
        assert!(!body.contains(env!("CARGO_PKG_VERSION")), "{path}: {body}");
    }
}

/// A caller that loses the endpoint loses it on connections that it has open, too.
#[test]
fn a_caller_that_is_gone_is_gone_at_once() {
    let gateway = with_tls();
    let console = gateway.addresses.console.unwrap();
    let head = "GET / HTTP/1.1\r\nAuthorization: Bearer admission-token";
    let mut connection = gateway.stranger().connect(console);
    assert_eq!(connection.request(head, b"").status, 200);
    let config = std::fs::read_to_string(gateway.file("config.yaml")).unwrap();
    let without = config.replace(
        "- {kubeconfig: admission.kubeconfig, endpoints: [console]}",
        "- {kubeconfig: admission.kubeconfig, endpoints: [validate]}",
    );
    assert_ne!(config, without);
    gateway.reload(&[("config.yaml", without.as_bytes())]);
    assert_eq!(connection.request(head, b"").status, 403);
}
