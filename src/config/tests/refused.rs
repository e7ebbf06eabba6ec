//! What a configuration must not say, and where each fault is.

use super::*;

#[test]
fn every_fault_is_reported_in_one_run() {
    let text = "\
apiVersion: config.portcullis.dev/v1
kind: Gateway
server:
  address: localhost
  tls: {certificate: '', privatekey: s.key}
  shutdownTimeout: 25
admin: {address: 9090}
callers:
- kubeconfig: 3
  endpoints: [authorise, validate]
- cluster: east
- clientCertificate: {commonName: [a]}
- jwt: {issuer: i, algorithms: [none, HS256], leeway: 1x, claims: {sub: }}
manifests: [{paht: a}, 7, a, a]
authorization: {neverDeny: {users: ['a*', ''], serviceAccounts: [a], paths: [x, /a*b]}}
admission: {failurePolicy: fail, missingNamespace: true, celVersion: '1.33'}
limits: {bodyBytes: 0, inFlight: -1, inFlightBytes: 1k}
reload: {pollInterval: 0s}
decisionLog: {}
sevrer: {}
";
    let (config, faults) = read(text);
    assert_eq!(config, None);
    let expected = "\
gateway.yaml:1: apiVersion: Unsupported value: must be `config.portcullis.dev/v1alpha1`
gateway.yaml:2: kind: Unsupported value: must be `GatewayConfiguration`
gateway.yaml:4: server.address: Invalid value: `localhost` is not an IP address and port, such as `127.0.0.1:8443`
gateway.yaml:5: server.tls.privatekey: Unsupported value: unknown field `privatekey`: did you mean `privateKey`?
gateway.yaml:5: server.tls.certificate: Required value: must not be empty
gateway.yaml:5: server.tls.privateKey: Required value: the file with the certificate's private key
gateway.yaml:6: server.shutdownTimeout: Invalid type: must be a duration such as `25s` or `1m30s`
gateway.yaml:7: admin.address: Invalid type: must be a string: put it in quotes
gateway.yaml:9: callers[0].kubeconfig: Invalid type: must be a string: put it in quotes
gateway.yaml:10: callers[0].endpoints[0]: Unsupported value: `authorise`: supported values: `authorize`, `validate`, `mutate`, `console`; did you mean `authorize`?
gateway.yaml:11: callers[1]: Required value: set `kubeconfig`, `clientCertificate`, `jwt`, `pathToken` or `webhookToken`
gateway.yaml:12: callers[2].clientCertificate.commonName: Unsupported value: unknown field `commonName`: did you mean `commonNames`?
gateway.yaml:12: callers[2].clientCertificate: Required value: set `commonNames`, `organizations` or `sans`; otherwise every certificate of the CA would be accepted
gateway.yaml:13: callers[3].jwt.jwks: Required value: the file with the issuer's public keys
gateway.yaml:13: callers[3].jwt.audiences: Required value: set at least one; otherwise tokens for other services would be accepted
gateway.yaml:13: callers[3].jwt.algorithms[0]: Unsupported value: `none`: supported values: `RS256`, `RS384`, `RS512`, `PS256`, `PS384`, `PS512`, `ES256`, `ES384`, `EdDSA`
gateway.yaml:13: callers[3].jwt.algorithms[1]: Unsupported value: `HS256`: supported values: `RS256`, `RS384`, `RS512`, `PS256`, `PS384`, `PS512`, `ES256`, `ES384`, `EdDSA`
gateway.yaml:13: callers[3].jwt.leeway: Invalid value: `1x`: must be a duration such as `25s` or `1m30s`
gateway.yaml:13: callers[3].jwt.claims: Required value: claim `sub`: needs a value
gateway.yaml:14: manifests[0].paht: Unsupported value: unknown field `paht`: did you mean `path`?
gateway.yaml:14: manifests[0].path: Required value: a file or folder of Kubernetes YAML or JSON
gateway.yaml:14: manifests[1]: Invalid type: must be a mapping
gateway.yaml:14: manifests[1].path: Required value: a file or folder of Kubernetes YAML or JSON
gateway.yaml:14: manifests[3]: Duplicate value: `/etc/portcullis/a` is used twice
gateway.yaml:15: authorization.neverDeny.users[1]: Required value: must not be empty
gateway.yaml:15: authorization.neverDeny.users[0]: Invalid value: `a*`: must be an exact name, patterns are not supported
gateway.yaml:15: authorization.neverDeny.serviceAccounts[0]: Invalid value: `a` is not a namespace and a name, such as `kube-system/coredns`
gateway.yaml:15: authorization.neverDeny.paths[1]: Invalid value: `*` is allowed only at the end in `/a*b`
gateway.yaml:15: authorization.neverDeny: warning: Suspicious: replaces the default entries, so that a Deny can now apply to `system:nodes`, \
`system:kube-controller-manager`, `system:kube-scheduler`, `system:apiserver`, `kube-apiserver-kubelet-client`, \
`kube-system/namespace-controller`, `kube-system/generic-garbage-collector`, `/healthz`, `/healthz/*`, `/livez`, `/livez/*`, \
`/readyz`, `/readyz/*`, `/version`: add them here, or remove `neverDeny`
gateway.yaml:16: admission.celVersion: Unsupported value: `1.33`: supported values: `1.34`, `1.35`, `1.36`, `1.37`; did you mean `1.34`?
gateway.yaml:16: admission.failurePolicy: Unsupported value: `fail`: supported values: `Fail`, `Ignore`; did you mean `Fail`?
gateway.yaml:16: admission.missingNamespace: Invalid type: must be a string: put it in quotes
gateway.yaml:17: limits.bodyBytes: Invalid value: `0`: must be a whole number from 1
gateway.yaml:17: limits.inFlight: Invalid value: `-1`: must be a whole number from 1
gateway.yaml:17: limits.inFlightBytes: Invalid type: must be a whole number
gateway.yaml:18: reload.pollInterval: Invalid value: must be longer than 0s
gateway.yaml:19: decisionLog.path: Required value: a file, or `-` for standard output
gateway.yaml:20: sevrer: Unsupported value: unknown field `sevrer`: did you mean `server`?";
    assert_eq!(faults, expected);
}

#[test]
fn a_path_token_stands_alone_and_for_admission_only() {
    let (_, faults) = read(&format!(
        "{HEAD}{SERVER}callers:\n\
         - {{pathToken: {{file: t}}, kubeconfig: k, endpoints: [validate, authorize, console]}}\n\
         - {{pathToken: {{}}, consoleClusters: ['*']}}\n"
    ));
    for expected in [
        "callers[0].kubeconfig: Invalid value: cannot be combined with `pathToken`: add a separate entry for \
        it",
        "callers[0].endpoints[1]: Unsupported value: `authorize`: a caller with `pathToken` may only use \
        `validate` and `mutate`: users of the cluster can learn its token",
        "callers[0].endpoints[2]: Unsupported value: `console`: a caller with `pathToken` may only use",
        "callers[1].pathToken.file: Required value: the file with the tokens, one in each line",
        "callers[1].consoleClusters: Invalid value: has no effect on a caller that may not see the console",
    ] {
        assert!(faults.contains(expected), "{expected}\n{faults}");
    }
}

#[test]
fn a_webhook_token_stands_alone_for_urls_of_admission() {
    let urls = "'https://p.p.svc:443/validate', 'https://p/mutate/x', 'https://p/authorize', p, \
                'http://p/validate', 'https://p/validate?timeout=1s', 'https:///validate', 'https://p/validated'";
    let (_, faults) = read(&format!(
        "{HEAD}{SERVER}callers:\n\
         - {{webhookToken: {{issuer: i, audiences: [{urls}]}}, jwt: {{}}, endpoints: [authorize]}}\n\
         - {{webhookToken: {{claims: {{}}}}}}\n"
    ));
    for expected in [
        "callers[0].jwt: Invalid value: cannot be combined with `webhookToken`: add a separate entry for it",
        "callers[0].endpoints[0]: Unsupported value: `authorize`: a caller with `webhookToken` may only use",
        "callers[1].webhookToken.issuer: Required value",
        "callers[1].webhookToken.audiences: Required value",
        "callers[1].webhookToken.claims: Unsupported value",
    ] {
        assert!(faults.contains(expected), "{expected}\n{faults}");
    }
    for index in 0..8 {
        let is_fault = faults.contains(&format!(
            "callers[0].webhookToken.audiences[{index}]: Invalid value"
        ));
        assert_eq!(is_fault, index >= 2, "{index}\n{faults}");
    }
}

#[test]
fn never_deny_takes_the_paths_that_always_allow_paths_takes() {
    let read = |paths: &str| {
        let (config, faults) = read(&format!(
            "{HEAD}{SERVER}authorization: {{neverDeny: {{paths: [{paths}]}}}}\n"
        ));
        (config.map(|config| config.authorization.never_deny.paths), faults)
    };
    let (taken, _) = read(r#"metrics, "", /logs/*, //x, /*"#);
    let expected = AlwaysAllowPaths::new(&["metrics", "", "//x"], &["logs/", ""]);
    assert_eq!(taken, Some(expected));
    let (all, _) = read(r#""*""#);
    assert!(all.unwrap().contains("/anything"));
    for bad in ["/a*b", "**", "/a**", "*/a"] {
        let (taken, faults) = read(&format!("\"{bad}\""));
        assert_eq!(taken, None);
        let expected = format!(
            "4: authorization.neverDeny.paths[0]: Invalid value: `*` is allowed only at the end in `{bad}`"
        );
        assert!(faults.contains(&expected), "{faults}");
    }
}

#[test]
fn faults_of_clusters_are_told_at_their_fields() {
    let text = "clusters:\n\
                - {kubeconfig: k, cacheFile: s}\n\
                - {name: a, cacheFile: s}\n\
                - {name: a, kubeconfig: k, cacheFile: x}\n\
                - {name: a, kubeconfig: k, cacheFile: x}\n\
                - {name: b, kubeconfig: k, selector: {}}\n\
                - {name: c, kubeconfig: k, cacheFile: 'y', selector: {matchExpressions: [{key: a, operator: Gt, values: [b]}]}}\n\
                - {name: d, kubeconfig: k, cacheFile: z, selector: {matchLabels: {a: 1}}}\n";
    let found = faults(text);
    let lines: Vec<&str> = found.lines().collect();
    let expected = [
        "5: clusters[0].name: Required value: the `cluster` of this API server's callers",
        "6: clusters[1].kubeconfig: Required value: the kubeconfig for",
        "8: clusters[3].name: Duplicate value: `a` is used twice",
        "8: clusters[3].cacheFile: Duplicate value: another cluster uses this file",
        "9: clusters[4].cacheFile: warning: Required value: without it, a restarted",
        "9: clusters[4].selector: warning: Suspicious: this selects every policy",
        "10: clusters[5].selector: Invalid value: `Gt` is not a valid label selector operator",
        "11: clusters[6].selector.matchLabels.a: Invalid type: must be a string: put it in quotes",
    ];
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(expected), "{line}\n{expected}");
    }
    assert!(lines.len() >= expected.len(), "{found}");
}

#[test]
fn a_former_name_of_a_field_is_refused_with_its_new_name() {
    let server = |field: &str| SERVER.replace("server: {", &format!("server: {{{field}, "));
    let section = |text: &str| format!("{SERVER}{text}");
    for (text, old, new) in [
        (server("drain: 25s"), "3: server.drain", "server.shutdownTimeout"),
        (
            server("connections: {unauthenticated: 10s}"),
            "3: server.connections.unauthenticated",
            "server.connections.authenticationTimeout",
        ),
        (
            section("recording: {folder: r, bytes: 1Gi}"),
            "4: recording.bytes",
            "recording.maxBytes",
        ),
        (
            section("recording: {folder: r, age: 24h}"),
            "4: recording.age",
            "recording.maxAge",
        ),
        (
            section("console: {decisions: 1}"),
            "4: console.decisions",
            "console.maxDecisions",
        ),
        (
            section("reload: {interval: 60s}"),
            "4: reload.interval",
            "reload.pollInterval",
        ),
        (
            section("clusters: [{name: a, kubeconfig: k, snapshot: s}]"),
            "4: clusters[0].snapshot",
            "clusters[0].cacheFile",
        ),
        (
            section("clusters: [{name: a, kubeconfig: k, exceptions: true}]"),
            "4: clusters[0].exceptions",
            "clusters[0].acceptExceptions",
        ),
    ] {
        let (config, found) = read(&format!("{HEAD}{text}"));
        assert_eq!(config, None);
        let expected = format!("gateway.yaml:{old}: Unsupported value: renamed to `{new}`");
        assert!(found.lines().any(|line| line == expected), "{found}\n{expected}");
    }
    // Only where the new name belongs.
    let found = faults("limits: {drain: 1s}");
    assert_eq!(
        found,
        "4: limits.drain: Unsupported value: unknown field `drain`: supported fields: `bodyBytes`, `inFlight`, `inFlightBytes`, `watchedBytes`"
    );
}

#[test]
fn limits_that_no_body_could_meet_are_a_fault() {
    let found = faults("limits: {bodyBytes: 10, inFlightBytes: 9}");
    assert!(
        found.starts_with("4: limits.inFlightBytes: Invalid value: 9 is less than bodyBytes, 10"),
        "{found}"
    );
}

#[test]
fn two_listeners_need_two_addresses() {
    let found = faults("admin: {address: 127.0.0.1:8443}");
    assert!(found.starts_with("4: admin.address: Duplicate value"), "{found}");
    for taken in ["127.0.0.1:8443", "127.0.0.1:9090"] {
        let found = faults(&format!("console: {{address: '{taken}'}}"));
        assert!(
            found.starts_with("4: console.address: Duplicate value"),
            "{found}"
        );
    }
}

#[test]
fn a_console_that_others_reach_needs_tls_and_somebody_who_may_use_it() {
    for address in ["0.0.0.0:9091", "10.0.0.1:9091", "'[::]:9091'"] {
        let found = faults(&format!("console: {{address: {address}}}"));
        assert!(found.starts_with("4: console.tls: Required value: "), "{found}");
    }
    let tls = "tls: {certificate: c.crt, privateKey: c.key}";
    let caller = "callers: [{kubeconfig: k, endpoints: [authorize]}]";
    let found = faults(&format!("console: {{address: 0.0.0.0:9091, {tls}}}\n{caller}"));
    assert!(
        found.starts_with("4: console: Invalid value: with `tls` only callers"),
        "{found}"
    );
    let found = faults("console: {tls: {certificate: c.crt, clientCA: ca.crt}}");
    for fault in [
        "console.tls.clientCA: Unsupported value: unknown field",
        "console.tls.privateKey: Required value",
    ] {
        assert!(found.contains(fault), "{found}");
    }
    assert!(faults("console: {maxDecisions: 0}").starts_with("4: console.maxDecisions: "));
}

#[test]
fn patterns_of_certificates_need_an_authority() {
    let text = format!(
        "{HEAD}server: {{tls: {{certificate: c, privateKey: k}}}}\n\
         callers: [{{clientCertificate: {{commonNames: [a]}}}}]"
    );
    let (config, faults) = read(&text);
    assert_eq!(config, None);
    assert!(
        faults.contains("callers[0].clientCertificate: Invalid value: needs `server.tls.clientCA`"),
        "{faults}"
    );
}

#[test]
fn one_credential_speaks_for_one_cluster() {
    for entry in [
        "kubeconfig: k",
        "clientCertificate: {commonNames: [a]}",
        "jwt: {issuer: i, audiences: [a], jwks: k}",
    ] {
        let found = faults(&format!("callers: [{{{entry}}}, {{{entry}, cluster: east}}]"));
        let expected = "4: callers[1].cluster: Invalid value: `east`: \
                        the same credential is for the cluster `default` in callers[0]";
        assert_eq!(found, expected, "{entry}");
        config(&format!(
            "callers: [{{{entry}, endpoints: [authorize]}}, {{{entry}, endpoints: [mutate]}}]"
        ));
    }
}

#[test]
fn without_callers_it_loads_but_is_not_to_be_served() {
    let fault = config("").require_callers().unwrap_err();
    assert_eq!(
        fault.to_string(),
        "gateway.yaml: callers: Required value: without an entry nobody may call the gateway: add at least \
        one caller"
    );
    config("callers: [{kubeconfig: k}]").require_callers().unwrap();
}

#[test]
fn one_document_to_a_file() {
    assert!(
        read("")
            .1
            .contains("Required value: the file contains no GatewayConfiguration")
    );
    assert!(
        read("a: 1\n---\nb: 2\n")
            .1
            .contains("Too many: a file may contain only one GatewayConfiguration")
    );
    assert!(read("- a\n").1.contains("Invalid type: must be a mapping"));
    assert!(read("a: [").1.starts_with("gateway.yaml:1: Unreadable"));
}

#[test]
fn a_file_that_cannot_be_read_is_a_fault_that_names_it() {
    let mut files = BTreeMap::from([(PathBuf::from("latin"), vec![0xe4])]);
    let (config, found) = load_from(&files, Path::new("absent"));
    assert_eq!(
        (config, found.to_string()),
        (None, "absent: Unreadable: entity not found".into())
    );
    let (config, found) = load_from(&files, Path::new("latin"));
    assert_eq!(
        (config, found.to_string()),
        (None, "latin: Unreadable: not UTF-8".into())
    );

    files.insert("/etc/p/g.yaml".into(), format!("{HEAD}{SERVER}").into_bytes());
    let (config, found) = load_from(&files, Path::new("/etc/p/g.yaml"));
    assert_eq!(found.to_string(), "");
    let config = config.unwrap();
    let expected: Vec<PathBuf> = ["/etc/p/g.yaml", "/etc/p/s.crt", "/etc/p/s.key", "/etc/p/ca.crt"]
        .map(Into::into)
        .into();
    assert_eq!(config.files(), expected);
}

#[test]
fn how_long_and_how_much_is_kept_has_a_least_bound() {
    let refusal = |text: &str| read(text).1;
    for (text, expected) in [
        (
            "usage: {folder: u, maxBytes: 63Mi}",
            "must be a whole number of bytes from `64Mi`",
        ),
        ("usage: {folder: u, maxAge: 59m}", "must be at least `1h`"),
        ("usage: {folder: u, maxAge: 0d}", "must be at least `1h`"),
        ("usage: {folder: u, maxAge: 90}", "must be a duration such as"),
        (
            "usage: {folder: u, maxAge: 1000000d}",
            "must be a duration such as",
        ),
        ("usage: {}", "usage.folder: Required value"),
        ("recording: {folder: r, maxAge: 59s}", "must be at least `1m`"),
    ] {
        let found = refusal(text);
        assert!(found.contains(expected), "{text}: {found}");
    }
    let usage = super::config("usage: {folder: u, maxAge: 7d, maxBytes: 64Mi}")
        .usage
        .unwrap();
    assert_eq!(
        (usage.max_bytes, usage.max_age.as_secs()),
        (64 << 20, 7 * 24 * 3600)
    );
}
