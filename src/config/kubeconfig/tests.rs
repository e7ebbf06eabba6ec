//! What is read of users, and what is refused.

mod secret;
use std::collections::BTreeMap;

use super::*;
use crate::config::Secret;

type Disk = BTreeMap<PathBuf, Vec<u8>>;

fn disk(entries: &[(&str, &str)]) -> Disk {
    entries
        .iter()
        .map(|(path, text)| (PathBuf::from(path), text.as_bytes().to_vec()))
        .collect()
}

fn read_text(text: &str) -> (Kubeconfig, String) {
    let files = disk(&[
        ("/k/config", text),
        ("/k/cert.pem", "PEM"),
        ("/abs/token", " \n t1 \r\n"),
        ("/k/empty", " "),
    ]);
    let (kubeconfig, faults) = read(&files, Path::new("/k/config"));
    (kubeconfig, faults.to_string())
}

fn user(fields: &str) -> User {
    let (mut kubeconfig, faults) = read_text(&format!("users: [{{name: u, user: {{{fields}}}}}]"));
    assert_eq!(faults, "");
    kubeconfig.users.remove(0)
}

fn faults(fields: &str) -> String {
    read_text(&format!("users: [{{name: u, user: {{{fields}}}}}]")).1
}

#[test]
fn reads_a_certificate_from_data_or_file() {
    assert_eq!(
        user("client-certificate-data: UEVN").certificate,
        Some(b"PEM".to_vec())
    );
    assert_eq!(
        user("client-certificate-data: \"UE\\n  VN\"").certificate,
        Some(b"PEM".to_vec())
    );
    assert_eq!(
        user("client-certificate: cert.pem").certificate,
        Some(b"PEM".to_vec())
    );
    assert_eq!(
        user("client-certificate: absent, client-certificate-data: UEVN").certificate,
        Some(b"PEM".to_vec()),
        "data wins, as with client-go"
    );
    assert_eq!(user("client-certificate: '', token: a").certificate, None);
}

#[test]
fn reads_a_token_and_the_content_of_a_token_file() {
    let both = user("token: t0, tokenFile: /abs/token");
    assert_eq!(both.token, Some(Secret::new("t0")));
    assert_eq!(both.file_token, Some(Secret::new("t1")));
    assert_eq!(user("tokenFile: ../abs/token").token, None);
}

#[test]
fn reads_a_name_and_password() {
    let basic = user("username: 'n', password: p").basic.unwrap();
    assert_eq!((basic.username.as_str(), basic.password), ("n", Secret::new("p")));
}

#[test]
fn passes_over_what_it_does_not_know() {
    let (kubeconfig, faults) = read_text(
        "apiVersion: v1\nkind: Config\npreferences: {x: 1}\nclusters: []\nnew: [1]\n\
         users: [{name: a, user: {token: t, as: root, new: {}}}, {name: b, user: {token: s}}]",
    );
    assert_eq!(faults, "");
    let names: Vec<&str> = kubeconfig.users.iter().map(|user| user.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(kubeconfig.users[1].place.path.to_string(), "users[1].user");
}

#[test]
fn lists_every_file_that_it_reads_or_misses() {
    let text =
        "users: [{name: a, user: {client-certificate: cert.pem, client-key: key.pem, tokenFile: gone}}]";
    let files: Vec<PathBuf> = ["/k/config", "/k/cert.pem", "/k/gone"].map(Into::into).into();
    assert_eq!(read_text(text).0.files, files);
}

#[test]
fn reports_what_cannot_be_known_or_read() {
    let table = [
        (
            "exec: {command: x}",
            "users[0].user.exec: Forbidden: its credential is not known in advance",
        ),
        (
            "auth-provider: {name: oidc}",
            "users[0].user.auth-provider: Forbidden: its credential is not known in advance",
        ),
        (
            "client-certificate: gone",
            "users[0].user.client-certificate: Unreadable: `/k/gone`: entity not found",
        ),
        (
            "client-certificate-data: '%'",
            "users[0].user.client-certificate-data: Invalid value: not base64",
        ),
        (
            "tokenFile: gone",
            "users[0].user.tokenFile: Unreadable: `/k/gone`: entity not found",
        ),
        (
            "tokenFile: empty",
            "users[0].user.tokenFile: Unreadable: `/k/empty`: is empty",
        ),
        (
            "tokenFile: empty, token: t",
            "warning: Unreadable: `/k/empty`: is empty; `token` is used instead",
        ),
        (
            "token: t, username: u",
            "users[0].user.username: Forbidden: a token and a password cannot",
        ),
        (
            "tokenFile: /abs/token, password: u",
            "users[0].user.username: Forbidden: a token and a password cannot",
        ),
        (
            "username: 'a:b', password: c",
            "users[0].user.username: Invalid value: must not contain `:`",
        ),
        (
            "token: 5",
            "users[0].user.token: Invalid type: must be a string: put it in quotes",
        ),
    ];
    for (fields, expected) in table {
        let found = faults(fields);
        assert!(
            found.contains(expected) && !found.contains('\n'),
            "{fields}: {found}"
        );
    }
}

#[test]
fn reports_a_file_that_names_nobody() {
    let table = [
        ("users: []", "users: Required value"),
        ("kind: Config", "users: Required value"),
        ("", "must contain exactly one kubeconfig"),
        (
            "kind: Pod\nusers: [{name: a}]",
            "kind: Unsupported value: must be `Config`",
        ),
        (
            "users: [{name: a}, {name: a}]",
            "users[1].name: Duplicate value: `a` is used twice",
        ),
        ("users: 7", "users: Invalid type: must be a list"),
        ("users: [", "Unreadable"),
    ];
    for (text, expected) in table {
        let found = read_text(text).1;
        assert!(found.contains(expected), "{text}: {found}");
    }
    let (_, faults) = read(&disk(&[]), Path::new("/gone"));
    assert_eq!(faults.to_string(), "/gone: Unreadable: entity not found");
}

#[test]
fn shows_no_secret() {
    let (kubeconfig, _) = read_text(
        "users: [{name: a, user: {token: s3cret}}, {name: b, user: {username: u, password: s3cret}}]",
    );
    assert!(!format!("{kubeconfig:?}").contains("s3cret"));
    for text in [
        "users: [{name: a, user: {token: s3cret",
        "users: [{name: a, user: {token: [s3cret]}}]",
    ] {
        let found = read_text(text).1;
        assert!(!found.is_empty() && !found.contains("s3cret"), "{found}");
    }
}
