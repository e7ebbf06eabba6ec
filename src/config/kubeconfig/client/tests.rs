use std::collections::BTreeMap;

use super::*;

fn disk(text: &str) -> BTreeMap<PathBuf, Vec<u8>> {
    [
        ("/k/config", text),
        ("/k/cert.pem", "CERT"),
        ("/k/key.pem", "KEY"),
        ("/k/ca.pem", "CA"),
        ("/k/token", "t1\n"),
    ]
    .map(|(path, text)| (path.into(), text.as_bytes().to_vec()))
    .into()
}

fn hosts(text: &str) -> (ByHost, String) {
    let (hosts, faults) = by_host(&disk(text), Path::new("/k/config"));
    (hosts, faults.to_string())
}

fn valid(fields: &str) -> ClientUser {
    let (mut hosts, faults) = hosts(&format!("users: [{{name: u, user: {{{fields}}}}}]"));
    assert_eq!(faults, "");
    hosts.users.remove(0)
}

fn shown_to(names: &[&str], current: &str, target: &str) -> Option<String> {
    let users: Vec<String> = names
        .iter()
        .map(|name| format!("{{name: {name:?}, user: {{}}}}"))
        .collect();
    let text = format!(
        "users: [{}]\ncurrent-context: c\ncontexts: [{{name: c, context: {{user: {current:?}}}}}]",
        users.join(", ")
    );
    let (hosts, faults) = hosts(&text);
    assert_eq!(faults, "");
    hosts.user_for(target).map(|user| user.name.clone())
}

#[test]
fn the_user_is_the_one_whose_name_fits_best() {
    let all = [
        "svc.ns.svc:443",
        "*.ns.svc:443",
        "*.svc:443",
        "svc.ns.svc",
        "*.ns.svc",
        "*",
        "current",
    ];
    let expected = [
        "svc.ns.svc:443",
        "*.ns.svc:443",
        "*.svc:443",
        "svc.ns.svc",
        "*.ns.svc",
        "*",
        "current",
    ];
    for (index, expected) in expected.iter().enumerate() {
        let found = shown_to(&all[index..], "current", "svc.ns.svc:443");
        assert_eq!(found.as_deref(), Some(*expected), "of {:?}", &all[index..]);
    }
    assert_eq!(shown_to(&[], "current", "svc.ns.svc:443"), None);
}

#[test]
fn names_fit_to_the_letter() {
    let none = [
        ("svc.ns.svc", "svc.ns.svc:8443"),
        ("*.ns.svc", "svc.ns.svc:8443"),
        ("*.ns.svc:443", "ns.svc:443"),
        ("svc.*.svc", "svc.ns.svc:443"),
        ("SVC.ns.svc", "svc.ns.svc:443"),
        ("*ns.svc", "svc.ns.svc:443"),
    ];
    for (name, target) in none {
        assert_eq!(shown_to(&[name], "", target), None, "{name} {target}");
    }
    assert_eq!(
        shown_to(&["*.ns.svc:8443"], "", "svc.ns.svc:8443").as_deref(),
        Some("*.ns.svc:8443")
    );
    assert_eq!(shown_to(&["::1"], "", "[::1]:443").as_deref(), Some("::1"));
}

#[test]
fn reads_what_a_user_shows() {
    let user = valid("client-certificate: cert.pem, client-key: key.pem, tokenFile: token, token: t0");
    let pair = user.certificate.unwrap();
    assert_eq!(
        (pair.certificate, pair.key),
        (b"CERT".to_vec(), Secret::new("KEY"))
    );
    let bearer = user.bearer.unwrap();
    assert_eq!(
        bearer.token,
        Secret::new("t1"),
        "the file's, as client-go sends it"
    );
    assert_eq!(bearer.file, Some("/k/token".into()));
    let user = valid("client-certificate-data: Q0VSVA==, client-key-data: S0VZ, client-key: gone");
    assert_eq!(user.certificate.unwrap().key, Secret::new("KEY"));
    assert_eq!(valid("username: a, password: b").basic.unwrap().username, "a");
    assert!(valid("password: b").basic.is_none());
    assert!(valid("client-key: key.pem").certificate.is_none());
}

#[test]
fn refuses_what_would_not_be_safe_or_is_incomplete() {
    for (fields, expected) in [
        (
            "exec: {command: x}",
            "users[0].user.exec: Forbidden: programs for credentials are not supported",
        ),
        (
            "auth-provider: {name: x}",
            "users[0].user.auth-provider: Forbidden: programs for credentials",
        ),
        (
            "as: root",
            "users[0].user.as: Forbidden: impersonation is not supported",
        ),
        (
            "client-certificate: cert.pem",
            "users[0].user.client-key: Required value: the private key of",
        ),
        (
            "client-certificate: cert.pem, client-key: gone",
            "users[0].user.client-key: Unreadable: `/k/gone`",
        ),
        (
            "tokenFile: gone",
            "users[0].user.tokenFile: Unreadable: `/k/gone`",
        ),
        (
            "token: t, username: u",
            "users[0].user.username: Forbidden: a token and a password cannot",
        ),
    ] {
        let (_, faults) = hosts(&format!("users: [{{name: u, user: {{{fields}}}}}]"));
        assert!(
            faults.contains(expected) && !faults.contains('\n'),
            "{fields}: {faults}"
        );
    }
}

#[test]
fn shows_no_secret() {
    let text = "users: [{name: a, user: {client-certificate-data: Q0VSVA==, client-key-data: czNjcmV0}}, \
                {name: b, user: {token: s3cret}}]";
    let (hosts, faults) = hosts(text);
    assert_eq!(faults, "");
    assert!(!format!("{hosts:?}").contains("s3cret"));
}

fn context_of(cluster: &str, rest: &str) -> (Option<Context>, Vec<PathBuf>, String) {
    let text = format!(
        "current-context: c\ncontexts: [{{name: c, context: {{cluster: s, user: u}}}}]\n\
         clusters: [{{name: s, cluster: {{{cluster}}}}}]\n{rest}"
    );
    let (context, files, faults) = of_context(&disk(&text), Path::new("/k/config"));
    (context, files, faults.to_string())
}

#[test]
fn reads_the_server_and_user_of_the_current_context() {
    let cluster = "server: https://a/b, certificate-authority: ca.pem, tls-server-name: 'n'";
    let users = "users: [{name: other, user: {exec: {}}}, {name: u, user: {token: t}}]";
    let (context, files, faults) = context_of(cluster, users);
    assert_eq!(faults, "");
    let Context { cluster, user } = context.unwrap();
    assert_eq!(cluster.server, "https://a/b");
    assert_eq!(cluster.server_name.as_deref(), Some("n"));
    assert_eq!(cluster.authorities, Some(b"CA".to_vec()));
    assert_eq!(user.unwrap().bearer.unwrap().token, Secret::new("t"));
    assert_eq!(files, [PathBuf::from("/k/config"), "/k/ca.pem".into()]);
}

#[test]
fn refuses_a_server_that_cannot_be_trusted_or_is_not_there() {
    let users = "users: [{name: u, user: {token: t}}]";
    for (cluster, rest, expected) in [
        (
            "server: http://a",
            users,
            "cluster.server: Invalid value: must be an https URL",
        ),
        (
            "certificate-authority: ca.pem",
            users,
            "cluster.server: Required value",
        ),
        (
            "server: https://a, insecure-skip-tls-verify: true",
            users,
            "insecure-skip-tls-verify: Forbidden: anybody could impersonate the server",
        ),
        (
            "server: https://a, proxy-url: 'http://p'",
            users,
            "proxy-url: Unsupported value: proxies are not supported",
        ),
        (
            "server: https://a",
            "users: []",
            "contexts[0].context.user: Not found: there is no `u`",
        ),
    ] {
        let (context, _, faults) = context_of(cluster, rest);
        assert!(
            context.is_none() && faults.contains(expected),
            "{cluster}: {faults}"
        );
    }
    let (_, _, faults) = of_context(&disk("current-context: gone"), Path::new("/k/config"));
    assert!(
        faults.to_string().contains("current-context: Not found"),
        "{faults}"
    );
}
