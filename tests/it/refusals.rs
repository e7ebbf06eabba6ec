//! What the log says of those who were refused.

use crate::harness::pki::{Authority, Identity};
use crate::support::process::Process;
use crate::support::{Builder, Client, until};

fn client<'c>(process: &'c Process, certificate: Option<&'c Identity>) -> Client<'c> {
    Client {
        certificate,
        ..process.stranger()
    }
}

/// The line of the log that says `what`.
fn line(process: &Process, what: &str) -> String {
    until(what, || process.log().contains(what));
    let log = process.log();
    log.lines().find(|line| line.contains(what)).unwrap().to_owned()
}

fn assert_says(line: &str, expected: &[&str]) {
    for text in expected {
        assert!(line.contains(text), "{text}: {line}");
    }
}

#[test]
fn a_certificate_of_nobody_is_named_with_what_mends_it() {
    let process = Builder::new().spawn();
    let foreign = Authority::new("the other CA").client("kube-apiserver", &["masters"]);
    let refused = client(&process, Some(&foreign))
        .connect(process.server)
        .authorize("{}");
    assert_eq!(refused.status, 401);
    let said = line(&process, "certificate not trusted");
    let expected = [
        "CN = kube-apiserver",
        "O = masters",
        "CN = the other CA",
        "fingerprint=",
        "server.tls.clientCA",
    ];
    assert_says(&said, &expected);
    assert!(
        !refused.text().contains("clientCA"),
        "that is for the administrator alone"
    );
}

#[test]
fn strangers_do_not_hide_who_has_a_certificate_of_the_client_ca() {
    let process = Builder::new().spawn();
    // The first takes the line of this second from other strangers, not from a known client.
    assert_eq!(
        process.stranger().connect(process.server).authorize("{}").status,
        401
    );
    let known = process.authority().client("nobody-knows-me", &[]);
    assert_eq!(
        client(&process, Some(&known))
            .connect(process.server)
            .authorize("{}")
            .status,
        401
    );
    let said = line(&process, "nobody-knows-me");
    assert_says(&said, &["unknown credential", "no entry of `callers`"]);
    assert_says(
        &line(&process, "no credential"),
        &["configure the API server with the kubeconfig"],
    );
}

#[test]
fn a_token_is_named_by_what_it_claims() {
    let process = Builder::new().spawn();
    let mut connection = process.stranger().connect(process.server);
    // {"alg":"RS256"} . {"iss":"https://kubernetes.default.svc","sub":"system:serviceaccount:a:b"}
    let token = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJodHRwczovL2t1YmVybmV0ZXMuZGVmYXVsdC5zdmMiLCJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6YTpiIn0.c2ln";
    let head = format!(
        "POST /authorize HTTP/1.1\r\nContent-Type: application/json\r\nAuthorization: Bearer {token}"
    );
    assert_eq!(connection.request(&head, b"{}").status, 401);
    let said = line(&process, "authentication failed");
    assert_says(
        &said,
        &[
            "https://kubernetes.default.svc",
            "system:serviceaccount:a:b",
            "remedy=",
        ],
    );
    assert!(!said.contains(token), "{said}");
}

#[test]
fn a_handshake_without_the_certificate_that_is_demanded_is_logged() {
    let process = Builder::new()
        .callers("- clientCertificate: {commonNames: [kube-apiserver]}")
        .spawn();
    // In TLS 1.3 the client learns of its refusal when it reads.
    if let Ok(mut connection) = process.stranger().connect_with(process.server, |_| {}) {
        assert!(connection.is_closed());
    }
    let said = line(&process, "TLS handshake failed");
    assert_says(&said, &["sent none", "client-certificate", "peer="]);
}

#[test]
fn a_client_that_does_not_know_the_gateways_ca_is_logged() {
    let process = Builder::new().spawn();
    let other = Authority::new("other");
    let client = Client {
        authority: &other,
        certificate: None,
    };
    assert!(client.connect_with(process.server, |_| {}).is_err());
    let said = line(&process, "TLS handshake failed");
    assert_says(
        &said,
        &["does not accept the certificate", "certificate-authority"],
    );
}
