//! Who may see one cluster is shown nothing of another.

use std::fs;

use serde_json::{Value, json};

use crate::support::{Builder, Gateway, kubeconfig, v1};

/// Those who look, by their tokens; the callers of `east` and `west` are asked for reviews.
const CALLERS: &str = "
- {kubeconfig: of-east.kubeconfig, cluster: east}
- {kubeconfig: of-west.kubeconfig, cluster: west}
- {kubeconfig: looks-at-east.kubeconfig, cluster: east, endpoints: [console]}
- {kubeconfig: looks-at-all.kubeconfig, cluster: east, endpoints: [console], consoleClusters: ['*']}
";

const TOKENS: [&str; 4] = ["of-east", "of-west", "looks-at-east", "looks-at-all"];

/// A Deny of this cluster alone.
fn deny(cluster: &str) -> String {
    format!(
        "apiVersion: portcullis.dev/v1alpha1\nkind: AuthorizationPolicy\nmetadata: {{name: {cluster}-denies}}\nspec:\n  \
         effect: Deny\n  subjects: [{{kind: User, name: {cluster}-user}}]\n  \
         resourceRules: [{{verbs: ['*'], apiGroups: ['*'], resources: ['*']}}]\n"
    )
}

/// One decision for `east`, and several before and after it for `west`.
fn gateway() -> Gateway {
    let mut builder = Builder::new()
        .callers(CALLERS)
        .console("{address: '127.0.0.1:0', tls: {certificate: server.crt, privateKey: server.key}}")
        .file("east/deny.yaml", deny("east"))
        .file("west/deny.yaml", deny("west"))
        .paths("[policies, {path: east, cluster: east}, {path: west, cluster: west}]");
    for token in TOKENS {
        builder = builder.file(&format!("{token}.kubeconfig"), kubeconfig(token));
    }
    let gateway = builder.start();
    for cluster in ["west", "west", "east", "west"] {
        ask(&gateway, cluster);
    }
    gateway
}

/// Has something denied in this cluster.
fn ask(gateway: &Gateway, cluster: &str) {
    let spec = json!({"user": format!("{cluster}-user"), "groups": [format!("{cluster}-group")],
        "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": format!("{cluster}-ns")}});
    let head = format!(
        "POST /authorize HTTP/1.1\r\nContent-Type: application/json\r\nAuthorization: Bearer of-{cluster}"
    );
    let mut connection = gateway.stranger().connect(gateway.addresses.server);
    let answer = connection.request(&head, v1(&spec.to_string()).as_bytes());
    assert_eq!(answer.json()["status"]["denied"], true);
}

/// What `token` is shown at `path`, as `accept`, without the word `newest`: it holds a cluster's name.
fn seen(gateway: &Gateway, token: &str, path: &str, accept: &str) -> (u16, String) {
    let head = format!("GET {path} HTTP/1.1\r\nAccept: {accept}\r\nAuthorization: Bearer {token}");
    let mut connection = gateway.stranger().connect(gateway.addresses.console.unwrap());
    let answer = connection.request(&head, b"");
    let text = String::from_utf8(answer.body).unwrap();
    (answer.status, text.replace("newest", "new"))
}

fn json_of(gateway: &Gateway, token: &str, path: &str) -> Value {
    let (status, text) = seen(gateway, token, path, "application/json");
    assert_eq!(status, 200, "{path}: {text}");
    serde_json::from_str(&text).unwrap()
}

#[test]
fn no_view_of_one_cluster_names_another() {
    let gateway = gateway();
    for path in [
        "/",
        "/live",
        "/live/1",
        "/live/2",
        "/live/4",
        "/who-can?verb=get&resource=pods",
        "/what-can?user=jane",
        "/what-if?user=jane&verb=get&resource=pods",
        "/policies",
        "/policies/AuthorizationPolicy/-/east-denies",
        "/webhooks",
        "/clusters",
    ] {
        for accept in ["text/html", "application/json"] {
            let (_, text) = seen(&gateway, "looks-at-east", path, accept);
            assert!(!text.contains("west"), "{path} {accept}: {text}");
        }
    }
    for path in [
        "/who-can?verb=get&resource=pods&",
        "/policies?",
        "/what-can?user=jane&",
    ] {
        let (own, _) = seen(
            &gateway,
            "looks-at-east",
            &format!("{path}cluster=east"),
            "text/html",
        );
        let (other, text) = seen(
            &gateway,
            "looks-at-east",
            &format!("{path}cluster=west"),
            "text/html",
        );
        assert_eq!((own, other), (200, 400), "{path}");
        assert!(!text.contains("west-"), "{path}: {text}");
    }
    let policy = "/policies/AuthorizationPolicy/-/west-denies";
    assert_eq!(seen(&gateway, "looks-at-east", policy, "text/html").0, 404);
    let of_west = format!("{policy}?cluster=west");
    assert_eq!(seen(&gateway, "looks-at-all", &of_west, "text/html").0, 200);
}

#[test]
fn decisions_of_one_cluster_are_numbered_by_themselves() {
    let gateway = gateway();
    let own = json_of(&gateway, "looks-at-east", "/live");
    assert_eq!(
        (&own["new"], own["decisions"].as_array().unwrap().len()),
        (&json!(1), 1)
    );
    assert_eq!(own["decisions"][0]["line"]["user"], "east-user");
    let all = json_of(&gateway, "looks-at-all", "/live");
    assert_eq!(
        (&all["new"], all["decisions"].as_array().unwrap().len()),
        (&json!(4), 4)
    );
}

#[test]
fn a_stream_of_one_cluster_brings_nothing_of_another() {
    let gateway = gateway();
    let mut connection = gateway.stranger().connect(gateway.addresses.console.unwrap());
    connection
        .send(b"GET /live/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer looks-at-east\r\n\r\n");
    connection.read_until("retry: 2000\n\n");
    for cluster in ["west", "east", "west", "east"] {
        ask(&gateway, cluster);
    }
    let events = connection.read_until("id: 3\n");
    assert!(
        events.contains("east-user") && !events.contains("west"),
        "{events}"
    );
}

/// Who could see all clusters sees one from then on, also on a connection that is open.
#[test]
fn who_loses_the_other_clusters_loses_them_at_once() {
    let gateway = gateway();
    let head = "GET /live HTTP/1.1\r\nAuthorization: Bearer looks-at-all";
    let mut connection = gateway.stranger().connect(gateway.addresses.console.unwrap());
    assert!(connection.request(head, b"").text().contains("west-user"));
    let config = fs::read_to_string(gateway.file("config.yaml")).unwrap();
    let without = config.replace(", consoleClusters: ['*']", "");
    assert_ne!(config, without);
    gateway.reload(&[("config.yaml", without.as_bytes())]);
    let text = connection.request(head, b"").text().into_owned();
    assert!(text.contains("east-user") && !text.contains("west"), "{text}");
}
