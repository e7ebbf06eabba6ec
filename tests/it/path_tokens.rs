//! Callers that are known by a token in the path.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::collector::Collector;
use crate::h2::{Connection as Http2, block_on};
use crate::harness::reviews::creation_of_pod;
use crate::support::client::Connection;
use crate::support::{Builder, Gateway, JANE_GETS, until, v1};

const CALLERS: &str = "
- clientCertificate: {commonNames: [kube-apiserver]}
- pathToken: {file: path-token}
";

const TOKEN: &str = "2b7e151628aed2a6abf7158809cf4f3c762e7160f38b4da56a784d9045190cfe";
const NEWER: &str = "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4";

/// Namespaces without a team are refused, and pods get a label.
const POLICIES: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: not-here}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: ['*'], resources: [pods]}]}
  validations: [{expression: \"object.metadata.namespace != 'closed'\"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: not-here}
spec: {policyName: not-here, validationActions: [Deny]}
";

fn builder() -> Builder {
    Builder::new()
        .callers(CALLERS)
        .manifests(POLICIES)
        .file("path-token", format!("{TOKEN}\n"))
}

fn pod(namespace: &str) -> String {
    creation_of_pod(
        namespace,
        &json!({"metadata": {"name": "p", "namespace": namespace}}),
    )
    .to_string()
}

fn post(connection: &mut Connection, path: &str, body: &str) -> (u16, Value) {
    let head = format!("POST {path} HTTP/1.1\r\nContent-Type: application/json");
    let response = connection.request(&head, body.as_bytes());
    (response.status, response.json())
}

fn stranger(gateway: &Gateway) -> Connection {
    gateway.stranger().connect(gateway.addresses.server)
}

/// Paths and what they are answered with.
fn paths() -> Vec<(String, u16)> {
    let upper = TOKEN.to_uppercase();
    let encoded = TOKEN.replacen('2', "%32", 1);
    vec![
        (format!("/t/{TOKEN}/validate?timeout=10s"), 200),
        (format!("/t/{TOKEN}/validate/not-here?timeout=10s"), 200),
        (format!("/t/{TOKEN}/mutate"), 200),
        (format!("/t/{encoded}/validate"), 200),
        (format!("/t/{TOKEN}/validate?token={NEWER}"), 200),
        (format!("/t/{TOKEN}/authorize?timeout=3s"), 403),
        (format!("/t/{NEWER}/authorize"), 401),
        (format!("/t/{NEWER}/validate"), 401),
        (format!("/t/{upper}/validate"), 401),
        (format!("/t/{}/validate", &TOKEN[..63]), 401),
        (format!("/t/{TOKEN}0/validate"), 401),
        (format!("/validate?token={TOKEN}"), 401),
        ("/validate".to_owned(), 401),
        ("/authorize".to_owned(), 401),
        (format!("/t/{TOKEN}/validate/gone"), 404),
        (format!("/t/{TOKEN}"), 404),
        (format!("/t/{TOKEN}/"), 404),
        (format!("/t//{TOKEN}/validate"), 404),
        (format!("//t/{TOKEN}/validate"), 404),
        (format!("/t/{TOKEN}//validate"), 404),
        (format!("/t/{TOKEN}%2Fvalidate"), 404),
        (format!("/T/{TOKEN}/validate"), 404),
        (format!("/t/{TOKEN}/t/{TOKEN}/validate"), 404),
        (format!("/t/{TOKEN}/metrics"), 404),
    ]
}

#[test]
fn the_token_stands_for_the_caller_on_either_version_of_http() {
    let gateway = builder().start();
    let mut connection = stranger(&gateway);
    for (path, expected) in paths() {
        let (status, body) = post(&mut connection, &path, &pod("ns"));
        assert_eq!(status, expected, "{path}: {body}");
        assert!(!body.to_string().contains(TOKEN), "{body}");
    }
    block_on(async {
        let connection = Http2::open_as(&gateway.stranger(), gateway.addresses.server).await;
        for (path, expected) in paths() {
            let (status, body) = connection.post(&path, pod("ns")).await.unwrap();
            assert_eq!(status, expected, "{path}: {body}");
        }
    });
    let (_, refused) = post(&mut connection, &format!("/t/{TOKEN}/validate"), &pod("closed"));
    assert_eq!(refused["response"]["allowed"], false);
    let counted = |code| {
        gateway.metric(&format!(
            r#"portcullis_http_requests_total{{code="{code}",endpoint="validate"}}"#
        ))
    };
    assert_eq!((counted("200"), counted("401")), (9.0, 12.0));
    let attempts = r#"portcullis_authentication_attempts_total{method="pathToken",result="success"}"#;
    assert!(gateway.metric(attempts) > 0.0);
}

#[test]
fn a_certificate_does_not_make_up_for_a_wrong_token_nor_a_token_for_a_certificate() {
    let gateway = builder().start();
    let mut of_api_server = gateway.connect();
    let wrong = post(&mut of_api_server, &format!("/t/{NEWER}/validate"), &pod("ns"));
    assert_eq!(wrong.0, 401);
    assert_eq!(post(&mut of_api_server, "/validate", &pod("ns")).0, 200);
    assert_eq!(of_api_server.authorize(v1(JANE_GETS)).status, 200);
    let mut connection = stranger(&gateway);
    assert_eq!(
        post(&mut connection, &format!("/t/{TOKEN}/validate"), &pod("ns")).0,
        200
    );
    assert_eq!(
        connection.authorize(v1(JANE_GETS)).status,
        401,
        "the connection proves nothing for its next request"
    );
}

#[test]
fn tokens_are_exchanged_without_a_lost_request_and_revoked_on_open_connections() {
    let gateway = builder().start();
    let mut connection = stranger(&gateway);
    let mut status = |token: &str| post(&mut connection, &format!("/t/{token}/validate"), &pod("ns")).0;
    assert_eq!((status(TOKEN), status(NEWER)), (200, 401));
    let both = format!("{TOKEN}\n{NEWER}\n");
    gateway.reload(&[("path-token", both.as_bytes())]);
    assert_eq!((status(TOKEN), status(NEWER)), (200, 200));
    gateway.reload(&[("path-token", NEWER.as_bytes())]);
    assert_eq!((status(TOKEN), status(NEWER)), (401, 200));
}

/// Every file below `folder` but that of the tokens.
fn written(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(written(&path));
        } else if !path.ends_with("path-token") {
            found.push((path.display().to_string(), fs::read(&path).unwrap()));
        }
    }
    found
}

#[test]
fn the_token_is_written_nowhere_and_what_it_decides_is_marked() {
    let collector = Collector::start();
    let tracing = format!("{{endpoint: '{}', sampleRatio: 1}}", collector.endpoint());
    let mut process = builder()
        .recording("{folder: recordings}")
        .tracing(tracing)
        .spawn_with(&[("PORTCULLIS_LOG", "trace")]);
    let mut connection = process.stranger().connect(process.server);
    for (path, expected) in paths() {
        assert_eq!(post(&mut connection, &path, &pod("ns")).0, expected, "{path}");
    }
    let path = format!("/t/{TOKEN}/validate");
    assert_eq!(post(&mut connection, &path, "{").0, 400);
    let get = format!("GET {path} HTTP/1.1");
    assert_eq!(connection.request(&get, b"").status, 405);
    block_on(async {
        let connection = Http2::open_as(&process.stranger(), process.server).await;
        assert_eq!(connection.post(&path, pod("closed")).await.unwrap().0, 200);
    });
    until("its spans are sent", || collector.spans().len() > 20);
    for received in collector.spans() {
        let span = format!("{:?}", received.span);
        assert!(!span.contains(TOKEN), "{span}");
    }
    let metrics = crate::support::get(process.admin, "/metrics").1;
    assert!(!metrics.contains(TOKEN) && metrics.contains("pathToken"));
    process.signal("TERM");
    assert!(process.wait().success());
    let files = written(&process.file(""));
    for (name, content) in &files {
        assert!(!String::from_utf8_lossy(content).contains(TOKEN), "{name}");
    }
    let log = process.log();
    assert!(log.contains("unknown token in the path"), "{log}");
    let marked = |part: &str| {
        let of_part = files.iter().filter(|(name, _)| name.contains(part));
        let text = of_part
            .map(|(_, content)| String::from_utf8_lossy(content))
            .collect::<String>();
        text.matches(r#""caller":"pathToken""#).count()
    };
    assert!(marked("decisions.log") > 4 && marked("recordings") > 4);
}
