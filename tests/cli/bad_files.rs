//! Files that cannot be used: `check` and `serve` say where, what is wrong and what to do, in
//! their own words rather than those of the libraries that read them.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;

use crate::run::{Portcullis, Run};

/// What only those who wrote a library understand.
const FOREIGN: [&str; 9] = [
    "os error",
    "invalid type",
    "struct ",
    " at line ",
    "EOF",
    "routines",
    ".c:",
    "DuplicateKeyPolicy",
    "serde",
];

const BAD_PEM: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

#[test]
fn a_fault_hides_no_other_of_its_object() {
    let portcullis = Portcullis::new();
    portcullis.write(
        "policy.yaml",
        "apiVersion: portcullis.dev/v1alpha1\nkind: AuthorizationPolicy\nmetadata: {name: a}\nspec:\n  effect: Deny\n  \
         subjects: [{kind: ServiceAccount, name: x}]\n  resourceRules:\n  - {verbs: [gett], apiGroups: [\"\"], \
         resources: [pod], names: 5}\n  conditions: [{expression: \"request.user == 1\"}]\n",
    );
    let run = portcullis.run("check policy.yaml");
    for (line, told) in [
        (8, "spec.resourceRules[0].names: Invalid type"),
        (6, "spec.subjects[0].namespace: Required value"),
        (9, "spec.conditions[0].name: Required value"),
        (9, "spec.conditions[0].expression: Invalid value"),
        (8, "did you mean `get`?"),
        (8, "did you mean `pods`?"),
    ] {
        let is_told = |said: &str| said.starts_with(&format!("policy.yaml:{line}:")) && said.contains(told);
        assert!(run.stdout.lines().any(is_told), "{told}: {run:?}");
    }
    assert!(run.stdout.ends_with("4 errors, 2 warnings\n"), "{run:?}");
}

#[test]
fn a_fault_of_a_suite_hides_no_other() {
    let portcullis = Portcullis::new();
    portcullis.write(
        "suite.yaml",
        "apiVersion: portcullis.dev/v1alpha1\nkind: PolicyTest\nfoo: 1\nmanifests: [policy.yaml]\ncases:\n\
         - {name: a, request: {user: jane, verb: get, resource: pods}, expect: {decision: denny, allowed: true}}\n\
         - {request: {user: jane, verb: get, resource: pods}, expect: {decision: allow, cause: Foo/x}}\n\
         - {name: b}\n",
    );
    let run = portcullis.run("test suite.yaml");
    for told in [
        "suite.yaml:3: PolicyTest: foo: Unsupported value: unknown field",
        "suite.yaml:7: PolicyTest: cases[1].name: Required value",
        "suite.yaml:8: PolicyTest: cases[2].expect: Required value",
        "suite.yaml:6: PolicyTest: cases[0].expect.allowed: Forbidden",
        "cases[0].expect.decision: Unsupported value: `denny`: supported values: `allow`, `deny`, `noOpinion`; did you mean `deny`?",
        "cases[1].expect.cause: Unsupported value: `Foo`",
    ] {
        assert!(run.stdout.contains(told), "{told}: {run:?}");
    }
    assert_eq!(run.code, 1, "{run:?}");
    portcullis.write(
        "suite.yaml",
        "apiVersion: portcullis.dev/v1alpha1\nkind: PolicyTest\nmanifests: [policy.yaml]\ncases: []\n",
    );
    let run = portcullis.run("test suite.yaml");
    assert!(run.stdout.contains("the suite has no cases: add one"), "{run:?}");
}

fn set_up() -> Portcullis {
    let portcullis = Portcullis::new();
    assert_eq!(portcullis.run("init gateway").code, 0);
    portcullis
}

fn said(run: &Run) -> String {
    let said = format!("{}{}", run.stdout, run.stderr);
    for foreign in FOREIGN {
        assert!(!said.contains(foreign), "`{foreign}`: {said}");
    }
    said
}

/// `check` and `serve` refuse the set-up, and both say `wanted`.
fn refused(portcullis: &Portcullis, wanted: &str) {
    for command in ["check", "serve"] {
        let run = portcullis.run(&format!("{command} --config gateway/portcullis.yaml"));
        assert_eq!(run.code, 1, "{command}: {run:?}");
        let said = said(&run);
        assert!(said.contains(wanted), "{command}, `{wanted}`: {said}");
    }
}

fn configuration(portcullis: &Portcullis) -> String {
    std::fs::read_to_string(portcullis.path("gateway/portcullis.yaml")).unwrap()
}

/// A key of RSA with 512 bits and its certificate.
fn weak_pair() -> (Vec<u8>, Vec<u8>) {
    use openssl::asn1::Asn1Time;
    use openssl::hash::MessageDigest;
    use openssl::pkey::PKey;
    use openssl::rsa::Rsa;
    use openssl::x509::X509Builder;

    let key = PKey::from_rsa(Rsa::generate(512).unwrap()).unwrap();
    let mut builder = X509Builder::new().unwrap();
    builder.set_pubkey(&key).unwrap();
    builder
        .set_not_before(&Asn1Time::days_from_now(0).unwrap())
        .unwrap();
    builder
        .set_not_after(&Asn1Time::days_from_now(90).unwrap())
        .unwrap();
    builder.sign(&key, MessageDigest::sha256()).unwrap();
    let certificate = builder.build().to_pem().unwrap();
    (certificate, key.private_key_to_pem_pkcs8().unwrap())
}

#[test]
fn certificates_and_keys_that_cannot_be_used_are_named() {
    for (file, content, wanted) in [
        (
            "pki/server.crt",
            "",
            "server.crt: server.tls.certificate: Invalid value: contains no certificate in PEM",
        ),
        (
            "pki/server.crt",
            BAD_PEM,
            "contains no certificate in PEM, or an invalid one",
        ),
        (
            "pki/server.key",
            "x",
            "server.key: server.tls.privateKey: Invalid value: contains no private key in PEM",
        ),
        (
            "pki/ca.crt",
            BAD_PEM,
            "ca.crt: server.tls.clientCA: Invalid value: contains no certificate in PEM",
        ),
    ] {
        let portcullis = set_up();
        portcullis.write(&format!("gateway/{file}"), content);
        refused(&portcullis, wanted);
    }
    let portcullis = set_up();
    let (certificate, key) = weak_pair();
    std::fs::write(portcullis.path("gateway/pki/server.crt"), certificate).unwrap();
    std::fs::write(portcullis.path("gateway/pki/server.key"), key).unwrap();
    refused(
        &portcullis,
        "server.crt: server.tls.certificate: Invalid value: its key is too short: use",
    );
}

#[test]
fn a_file_that_is_not_there_or_may_not_be_read_says_what_to_do() {
    let absent = "Unreadable: there is no such file or folder: put it there, or correct the path";
    for file in ["pki/server.key", "kubeconfigs/admission.kubeconfig", "policies"] {
        let portcullis = set_up();
        let path = portcullis.path(format!("gateway/{file}"));
        std::fs::rename(&path, path.with_extension("away")).unwrap();
        refused(&portcullis, absent);
    }
    let portcullis = set_up();
    let key = portcullis.path("gateway/pki/server.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o000)).unwrap();
    let run = portcullis.run_unprivileged("check --config gateway/portcullis.yaml");
    assert_eq!(run.code, 1, "{run:?}");
    let wanted = "Unreadable: permission denied: allow the user";
    assert!(said(&run).contains(wanted), "{run:?}");
    for arguments in [
        "check absent",
        "check --config absent",
        "test absent",
        "serve --config absent",
    ] {
        let run = portcullis.run(arguments);
        assert_eq!(run.code, 2, "{run:?}");
        assert!(
            said(&run).contains("`absent`: there is no such file or folder"),
            "{run:?}"
        );
    }
}

#[test]
fn kubeconfigs_and_key_sets_that_are_none_are_named_with_their_place() {
    let config = "apiVersion: v1\nkind: Config\n";
    for (users, wanted) in [
        (
            "a: [",
            "authorization.kubeconfig:3: Unreadable: a value is missing here, or the indentation is \
             wrong (column 4)",
        ),
        (
            "users: {a: b}",
            "authorization.kubeconfig:3: users: Invalid type: must be a list",
        ),
        (
            "users: [{name: 1}]",
            "authorization.kubeconfig:3: users[0].name: Invalid type: must be a string: put it in quotes",
        ),
        (
            "users: []\nusers: []",
            "authorization.kubeconfig:4: Unreadable: duplicate key `users`, also on line 3",
        ),
        (
            "users: [{name: a, user: {client-certificate-data: '!'}}]",
            "authorization.kubeconfig:3: users[0].user.client-certificate-data: Invalid value: not base64",
        ),
    ] {
        let portcullis = set_up();
        let text = format!("{config}{users}\n");
        portcullis.write("gateway/kubeconfigs/authorization.kubeconfig", &text);
        refused(&portcullis, wanted);
    }
    for (keys, wanted) in [
        ("{", "jwks.json:1:1: Unreadable: not JSON: it ends too early"),
        (
            "{\n  \"keys\": ]}",
            "jwks.json:2:11: Unreadable: not JSON: expected value",
        ),
        (
            "[]",
            "jwks.json: Unreadable: not a JWKS, which is a mapping whose field `keys` is a list",
        ),
        (
            "{\"keys\": 1}",
            "jwks.json: Unreadable: not a JWKS, which is a mapping whose field `keys` is a list",
        ),
        (
            "{\"keys\": [1]}",
            "jwks.json: Required value: no key can check a token",
        ),
    ] {
        let portcullis = set_up();
        let jwt = "- jwt: {issuer: 'https://a', audiences: [a], jwks: jwks.json, algorithms: [RS256], \
                   claims: {sub: a}}\nmanifests:";
        let configured = configuration(&portcullis).replace("manifests:", jwt);
        portcullis.write("gateway/portcullis.yaml", &configured);
        portcullis.write("gateway/jwks.json", keys);
        refused(&portcullis, wanted);
    }
}

#[test]
fn manifests_that_are_none_are_named_with_their_place() {
    let role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: a, namespace: b}\n";
    for (file, text, wanted) in [
        (
            "a.yaml",
            format!("{role}rules: {{verbs: a}}\n"),
            "a.yaml:4: Role/b/a: rules: Invalid type: a mapping, where a list belongs",
        ),
        (
            "a.yaml",
            format!("{role}rules: [{{verbs: get}}]\n"),
            "a.yaml:4: Role/b/a: rules[0].verbs: Invalid type: the text `get`, where a list belongs",
        ),
        ("a.yaml", "a: b: c\n".to_owned(), "a.yaml:1: Unreadable: "),
        (
            "a.json",
            "{\"apiVersion\": \"v1\"".to_owned(),
            "a.json:1: Unreadable: expected `,` or `}` in the mapping `{…}`",
        ),
        (
            "a.yaml",
            format!("{role}rules: []\nrules: []\n"),
            "a.yaml:5: Unreadable: duplicate key `rules`, also on line 4",
        ),
    ] {
        let portcullis = set_up();
        portcullis.write(&format!("gateway/policies/{file}"), &text);
        refused(&portcullis, wanted);
    }
}

#[test]
fn what_clusters_and_webhooks_are_called_with_is_named_where_it_is_damaged() {
    let portcullis = set_up();
    let kubeconfig = "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
        contexts: [{name: a, context: {cluster: a, user: a}}]\n\
        users: [{name: a, user: {token: t}}]\n\
        clusters: [{name: a, cluster: {server: 'https://a', certificate-authority: damaged.crt}}]\n";
    portcullis.write("gateway/east.kubeconfig", kubeconfig);
    portcullis.write("gateway/damaged.crt", BAD_PEM);
    let more = "clusters: [{name: east, kubeconfig: east.kubeconfig, cacheFile: east.json}]\n\
                upstreams: {caBundle: damaged.crt}\n";
    let configured = configuration(&portcullis) + more;
    portcullis.write("gateway/portcullis.yaml", &configured);
    refused(
        &portcullis,
        "clusters[0].kubeconfig: Invalid value: `certificate-authority` contains no certificate in \
         PEM, or an invalid one",
    );
    refused(&portcullis, "upstreams.caBundle: Invalid value: ");
}

#[test]
fn a_decision_log_that_cannot_be_written_is_told_before_it_is_needed() {
    let portcullis = set_up();
    let configured = configuration(&portcullis);
    let with = |path: &str| configured.replace("path: \"-\"", &format!("path: {path}"));
    portcullis.write("gateway/portcullis.yaml", &with("policies"));
    refused(&portcullis, "gateway/policies` is a folder: name a file in it");
    portcullis.write("gateway/portcullis.yaml", &with("absent/log"));
    refused(&portcullis, "gateway/absent` does not exist: create it");
    portcullis.write("gateway/log", "");
    portcullis.write("gateway/portcullis.yaml", &with("log"));
    let run = portcullis.run("check --config gateway/portcullis.yaml");
    assert_eq!(run.code, 0, "{run:?}");
}

#[test]
fn files_that_may_not_be_written_are_told_before_they_are_needed() {
    let portcullis = set_up();
    let configured = configuration(&portcullis).replace("path: \"-\"", "path: shut/log");
    let configured = configured + "\nreload: {lastGood: shut/state/last-good}\n";
    portcullis.write("gateway/portcullis.yaml", &configured);
    let shut = portcullis.path("gateway/shut");
    std::fs::create_dir(&shut).unwrap();
    let check = "check --config gateway/portcullis.yaml";
    assert_eq!(portcullis.run_unprivileged(check).code, 0);

    std::fs::set_permissions(&shut, std::fs::Permissions::from_mode(0o555)).unwrap();
    let run = portcullis.run_unprivileged(check);
    assert_eq!(run.code, 1, "{run:?}");
    let words = "gateway/shut`: permission denied: allow the user that this program runs as to read it";
    for wanted in ["decisionLog.path: ", "reload.lastGood: warning: "] {
        let told = said(&run);
        let line = told.lines().find(|line| line.contains(wanted)).expect(wanted);
        assert!(line.contains(words), "{told}");
    }
    // `serve` says the same.
    let serve = portcullis.run_unprivileged("serve --config gateway/portcullis.yaml");
    assert_eq!(serve.code, 1, "{serve:?}");
    assert!(said(&serve).contains(words), "{serve:?}");
}

#[test]
fn an_address_at_which_nobody_can_listen_says_what_to_do() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let taken = format!("127.0.0.1:{port}");
    // TEST-NET-1 (RFC 5737) is nobody's.
    for (address, wanted) in [
        (
            taken.as_str(),
            "another process uses this address: stop it, or set another port",
        ),
        (
            "192.0.2.1:8443",
            "this machine does not have this address: set one that it has",
        ),
    ] {
        let portcullis = set_up();
        let configured = configuration(&portcullis)
            .replace("\"127.0.0.1:8443\"", address)
            .replace("127.0.0.1:9090", "127.0.0.1:0");
        portcullis.write("gateway/portcullis.yaml", &configured);
        let run = portcullis.run("serve --config gateway/portcullis.yaml");
        assert_eq!(run.code, 2, "{run:?}");
        let wanted = format!("cannot listen at `{address}`: {wanted}");
        assert!(said(&run).contains(&wanted), "`{wanted}`: {run:?}");
    }
}

#[test]
fn a_configuration_that_is_no_yaml_says_why_there_is_no_last_good_set() {
    let portcullis = set_up();
    portcullis.write("gateway/portcullis.yaml", "server: [\n");
    let run = portcullis.run("serve --config gateway/portcullis.yaml");
    assert_eq!(run.code, 1, "{run:?}");
    let said = said(&run);
    for wanted in [
        "portcullis.yaml:1: Unreadable: ",
        "`gateway/portcullis.yaml` is not YAML, so it does not name the last good set",
    ] {
        assert!(said.contains(wanted), "`{wanted}`: {said}");
    }
}

/// Files that stand elsewhere on the command line, and words that YAML takes for others.
#[test]
fn what_is_no_configuration_is_said_once_with_the_option_for_it() {
    let portcullis = Portcullis::new();
    let binding = "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: dev, namespace: y}\n\
                   roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}\n";
    portcullis.write("policies/dev.yaml", binding);
    let run = portcullis.run("check --config policies/dev.yaml");
    assert_eq!(
        run.stdout,
        "policies/dev.yaml:2: RoleBinding/dev: kind: Unsupported value: a RoleBinding of rbac.authorization.k8s.io/v1 is not a \
         GatewayConfiguration: name manifests with `--manifests`, or for `check` without an option\n1 error, 0 warnings\n"
    );
    let run = portcullis.run("check --config policies");
    assert_eq!(run.code, 2);
    assert!(
        run.stderr
            .contains("`policies` is a folder, not a file: name folders of manifests"),
        "{run:?}"
    );
    let run = portcullis.run("check policies");
    assert!(
        run.stdout
            .contains("put it in quotes, because YAML also reads `y`, `yes` and `on` as `true`"),
        "{run:?}"
    );
    let run = portcullis.run("who-can get pods --kubeconfig nope");
    assert_eq!(run.code, 2);
    assert!(
        run.stderr
            .contains("cannot connect to the cluster: `nope`: there is no such file or folder"),
        "{run:?}"
    );
    let everywhere = "authorize --user jane --verb list --resource pods -A --manifests policies";
    assert!(portcullis.run(everywhere).stderr.contains("put it in quotes"));
    assert_eq!(portcullis.run(&everywhere.replace("-A", "-A -n shop")).code, 2);
}
