//! What is read, and what is said where it cannot be used.

use std::path::PathBuf;

use super::fixtures::{World, at, certificate_data, client};
use crate::pki::Authority;

#[test]
fn every_file_that_matters_is_listed_read_or_not() {
    let ca = Authority::new("ca");
    let mut world = World::new(
        &ca,
        "- {kubeconfig: a/k}\n- {kubeconfig: gone}\n- {jwt: {issuer: i, audiences: [a], jwks: j}}\n",
    );
    world.kubeconfig("a/k", &[("u", "client-certificate: c"), ("v", "tokenFile: /t")]);
    let (authenticator, faults) = world.try_build(None, at(0));
    let expected: Vec<PathBuf> = ["/a/c", "/a/k", "/ca.crt", "/gone", "/j", "/t"]
        .map(Into::into)
        .into();
    assert_eq!(
        authenticator.files().iter().cloned().collect::<Vec<_>>(),
        expected
    );
    let expected = "\
/a/k:3: users[0].user.client-certificate: Unreadable: `/a/c`: entity not found
/a/k:3: users[1].user.tokenFile: Unreadable: `/t`: entity not found
/a/k:3: users[0].user: warning: Required value: user `u` has no credential, so no caller can use it
/a/k:3: users[1].user: warning: Required value: user `v` has no credential, so no caller can use it
/gone: Unreadable: entity not found
/j: Unreadable: entity not found";
    assert_eq!(faults, expected);
}

#[test]
fn a_client_ca_without_certificates_is_a_fault() {
    let table: [(&[u8], &str); 2] = [
        (
            b"",
            "/ca.crt: server.tls.clientCA: Invalid value: contains no certificate in PEM",
        ),
        (
            b"x",
            "/ca.crt: server.tls.clientCA: Invalid value: contains no certificate in PEM",
        ),
    ];
    for (content, expected) in table {
        let mut world = World::new(
            &Authority::new("ca"),
            "- {clientCertificate: {commonNames: [a]}}\n",
        );
        world.write("ca.crt", content);
        let faults = world.try_build(None, at(0)).1;
        assert!(faults.starts_with(expected), "{faults}");
    }
}

#[test]
fn what_cannot_be_a_credential_is_a_fault() {
    let long = format!("token: {}", "a".repeat(40_000));
    let table = [
        (
            "token: a b",
            "/k:3: users[0].user.token: Invalid value: cannot be sent in a header",
        ),
        (
            long.as_str(),
            "/k:3: users[0].user.token: Invalid value: cannot be sent in a header",
        ),
        (
            "client-certificate-data: YQ==",
            "/k:3: users[0].user.client-certificate: Invalid value: contains no certificate",
        ),
        (
            "as: x",
            "/k:3: users[0].user: warning: Required value: user `u` has no credential",
        ),
    ];
    for (user, expected) in table {
        let mut world = World::new(&Authority::new("ca"), "- {kubeconfig: k}\n");
        world.kubeconfig("k", &[("u", user)]);
        let faults = world.try_build(None, at(0)).1;
        assert!(faults.starts_with(expected), "{faults}");
    }
}

#[test]
fn nothing_prints_a_secret() {
    let ca = Authority::new("ca");
    let mut world = World::new(&ca, "- {kubeconfig: k}\n");
    let certificate = certificate_data(&client(&ca, "a"));
    world.kubeconfig(
        "k",
        &[
            ("u", "token: s3cret"),
            ("v", "username: nn, password: s3cret"),
            ("w", &certificate),
        ],
    );
    let first = world.build();
    let printed = format!(
        "{first:?} {:?} {:?} {:?}",
        first.tokens, first.passwords, first.users
    );
    assert!(
        !printed.contains("s3cret") && printed.contains("[redacted]"),
        "{printed}"
    );
    world.kubeconfig("k", &[("u", "token: [s3cret]"), ("v", "token: 's3 cret'")]);
    let faults = world.try_build(None, at(0)).1;
    assert!(
        !faults.is_empty() && !faults.contains("cret'") && !faults.contains("s3"),
        "{faults}"
    );
}

#[test]
fn secrets_are_kept_as_digests_alone() {
    let mut world = World::new(&Authority::new("ca"), "- {kubeconfig: k}\n");
    world.kubeconfig("k", &[("u", "token: s3cret")]);
    let authenticator = world.build();
    let digest = authenticator
        .digester
        .digest(super::super::Purpose::Token, b"s3cret");
    assert!(authenticator.tokens.contains_key(&digest));
    let of_another = World::build(&world);
    assert!(
        !of_another.tokens.contains_key(&digest),
        "each process has a key of its own"
    );
}
