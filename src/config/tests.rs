use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::engine::admission::FailurePolicy;
use crate::engine::admission::matching::MissingNamespace;
use crate::engine::authorization::rbac::AlwaysAllowPaths;
use crate::engine::authorization::{NeverDeny, ServiceAccount};

/// What every configuration needs, followed by what the test is about.
const HEAD: &str = "apiVersion: config.portcullis.dev/v1alpha1\nkind: GatewayConfiguration\n";
const SERVER: &str = "server: {tls: {certificate: s.crt, privateKey: s.key, clientCA: ca.crt}}\n";

fn read(text: &str) -> (Option<Config>, String) {
    let (config, faults) = parse(Path::new("gateway.yaml"), text, Path::new("/etc/portcullis"));
    (config, faults.to_string())
}

/// The configuration of `section` beside the least that is needed.
pub(super) fn config(section: &str) -> Config {
    let (config, faults) = read(&format!("{HEAD}{SERVER}{section}"));
    assert_eq!(faults, "");
    config.unwrap()
}

/// The faults of `section` beside the least that is needed, without the file's name.
pub(super) fn faults(section: &str) -> String {
    let (config, faults) = read(&format!("{HEAD}{SERVER}{section}"));
    assert_eq!(config, None, "{section}");
    faults.replace("gateway.yaml:", "")
}

#[test]
fn reads_every_field() {
    let text = format!(
        "{HEAD}{}",
        r#"
server:
  address: 127.0.0.1:8443
  tls: {certificate: pki/server.crt, privateKey: /pki/server.key, clientCA: pki/ca.crt}
  drain: 20s
  connections: {max: 100, perAddress: 10, unauthenticated: 3s}
admin: {address: "[::1]:9090"}
callers:
- kubeconfig: kubeconfigs/authorization.kubeconfig
  endpoints: [authorize]
- clientCertificate: {commonNames: [kube-apiserver], organizations: [apiservers], sans: ["*.cp.example.com"]}
- jwt: {issuer: https://kubernetes.default.svc, audiences: [portcullis], jwks: jwks.json,
        algorithms: [RS256, ES256], leeway: 1m,
        claims: {sub: "system:serviceaccount:kube-system:apiserver", kubernetes.io: {namespace: kube-system}}}
  cluster: east
manifests:
- policies
- {path: /east, cluster: east}
authorization:
  neverDeny: {groups: [g], users: [u], serviceAccounts: [ns/sa], paths: [/a, /b/*]}
admission: {failurePolicy: Ignore, missingNamespace: NameOnly}
limits: {bodyBytes: 1024, inFlight: 2, inFlightBytes: 4096}
reload: {interval: 1m30s}
decisionLog: {path: log.jsonl}
"#
    );
    let (config, faults) = read(&text);
    assert!(
        faults.contains(": authorization.neverDeny: warning: ") && !faults.contains('\n'),
        "{faults}"
    );
    let config = config.unwrap();
    assert_eq!(config.server.address, "127.0.0.1:8443".parse().unwrap());
    assert_eq!(
        config.server.tls,
        Tls {
            certificate: "/etc/portcullis/pki/server.crt".into(),
            private_key: "/pki/server.key".into(),
            client_ca: Some("/etc/portcullis/pki/ca.crt".into()),
        }
    );
    assert_eq!(config.server.drain, Duration::from_secs(20));
    let connections = ConnectionLimits {
        max: 100,
        per_address: 10,
        unauthenticated: Duration::from_secs(3),
    };
    assert_eq!(config.server.connections, connections);
    assert_eq!(config.admin.address, "[::1]:9090".parse().unwrap());

    let [kubeconfig, certificate, token] = config.callers.as_slice() else {
        panic!("three callers")
    };
    assert_eq!(
        kubeconfig.kubeconfig,
        Some("/etc/portcullis/kubeconfigs/authorization.kubeconfig".into())
    );
    assert_eq!(kubeconfig.endpoints, [Endpoint::Authorize].into_iter().collect());
    assert_eq!(kubeconfig.cluster, "default");
    assert_eq!(kubeconfig.place.path.to_string(), "callers[0]");
    let expected = ClientCertificate {
        common_names: vec!["kube-apiserver".into()],
        organizations: vec!["apiservers".into()],
        sans: vec![SanPattern::DnsBelow("cp.example.com".into())],
    };
    assert_eq!(certificate.client_certificate, Some(expected));
    assert_eq!(certificate.endpoints, Endpoints::ALL);
    assert_eq!(token.cluster, "east");
    let jwt = token.jwt.clone().unwrap();
    assert_eq!(jwt.issuer, "https://kubernetes.default.svc");
    assert_eq!(jwt.audiences, ["portcullis"]);
    assert_eq!(jwt.jwks, Path::new("/etc/portcullis/jwks.json"));
    assert_eq!(
        jwt.algorithms,
        [jsonwebtoken::Algorithm::RS256, jsonwebtoken::Algorithm::ES256]
    );
    assert_eq!(jwt.leeway, Duration::from_secs(60));
    assert_eq!(jwt.claims["kubernetes.io"]["namespace"], "kube-system");

    let [shared, east] = config.manifests.as_slice() else {
        panic!("two manifests")
    };
    assert_eq!(
        shared,
        &ManifestPath {
            path: "/etc/portcullis/policies".into(),
            cluster: None
        }
    );
    assert_eq!(
        east,
        &ManifestPath {
            path: "/east".into(),
            cluster: Some("east".into())
        }
    );
    let never_deny = &config.authorization.never_deny;
    assert_eq!(never_deny.service_accounts, [ServiceAccount::new("ns", "sa")]);
    assert_eq!(never_deny.paths, AlwaysAllowPaths::new(&["/a"], &["/b/"]));
    assert_eq!(config.admission.failure_policy, FailurePolicy::Ignore);
    assert_eq!(config.admission.missing_namespace, MissingNamespace::NameOnly);
    assert_eq!(
        config.limits,
        Limits {
            body_bytes: 1024,
            in_flight: 2,
            in_flight_bytes: 4096
        }
    );
    assert_eq!(config.reload.interval, Duration::from_secs(90));
    let log = DecisionLog {
        path: LogPath::File("/etc/portcullis/log.jsonl".into()),
    };
    assert_eq!(config.decision_log, Some(log));
}

#[test]
fn what_is_absent_has_the_documented_default() {
    let config = config("");
    assert_eq!(config.server.address, "127.0.0.1:8443".parse().unwrap());
    assert_eq!(config.server.drain, Duration::from_secs(25));
    let connections = ConnectionLimits {
        max: 4096,
        per_address: 512,
        unauthenticated: Duration::from_secs(10),
    };
    assert_eq!(config.server.connections, connections);
    assert_eq!(config.admin.address, "127.0.0.1:9090".parse().unwrap());
    assert_eq!(config.callers, []);
    assert_eq!(config.manifests, []);
    assert_eq!(config.authorization.never_deny, NeverDeny::default());
    assert_eq!(config.admission, AdmissionDefaults::default());
    assert_eq!(config.admission.failure_policy, FailurePolicy::Fail);
    assert_eq!(config.admission.missing_namespace, MissingNamespace::Fail);
    let limits = Limits {
        body_bytes: 33_554_432,
        in_flight: 1024,
        in_flight_bytes: 268_435_456,
    };
    assert_eq!(config.limits, limits);
    assert_eq!(config.reload.interval, Duration::from_secs(60));
    assert_eq!(config.decision_log, None);
}

#[test]
fn nothing_written_is_as_good_as_absent() {
    let text = "admin:\ncallers:\nmanifests: null\nauthorization: {neverDeny: null}\nlimits: {}\n";
    let absent = config("");
    let written = Config {
        text: absent.text.clone(),
        ..config(text)
    };
    assert_eq!(written, absent);
}

#[test]
fn an_empty_never_deny_protects_nobody() {
    let (config, faults) = read(&format!("{HEAD}{SERVER}authorization: {{neverDeny: {{}}}}"));
    assert!(faults.contains("a Deny can hold up `system:nodes`"), "{faults}");
    let nobody = config.unwrap().authorization.never_deny;
    assert!(nobody.groups.is_empty() && nobody.users.is_empty());
    assert!(nobody.service_accounts.is_empty() && nobody.paths.is_empty());
}

#[test]
fn a_dash_logs_to_standard_output() {
    assert_eq!(
        config("decisionLog: {path: '-'}").decision_log,
        Some(DecisionLog {
            path: LogPath::Stdout
        })
    );
}

#[test]
fn a_jwt_caller_has_defaults_too() {
    let text = "callers: [{jwt: {issuer: i, audiences: [a], jwks: k}}]";
    let jwt = config(text).callers[0].jwt.clone().unwrap();
    assert_eq!(
        jwt.algorithms,
        [jsonwebtoken::Algorithm::RS256, jsonwebtoken::Algorithm::ES256]
    );
    assert_eq!(jwt.leeway, Duration::from_secs(30));
    assert!(jwt.claims.is_empty());
}

#[test]
fn every_fault_is_reported_in_one_run() {
    let text = "\
apiVersion: config.portcullis.dev/v1
kind: Gateway
server:
  address: localhost
  tls: {certificate: '', privatekey: s.key}
  drain: 25
admin: {address: 9090}
callers:
- kubeconfig: 3
  endpoints: [authorise, validate]
- cluster: east
- clientCertificate: {commonName: [a]}
- jwt: {issuer: i, algorithms: [none, HS256], leeway: 1x, claims: {sub: }}
manifests: [{paht: a}, 7, a, a]
authorization: {neverDeny: {users: ['a*'], serviceAccounts: [a], paths: [x, /a*b]}}
admission: {failurePolicy: fail, missingNamespace: true}
limits: {bodyBytes: 0, inFlight: -1, inFlightBytes: 1k}
reload: {interval: 0s}
decisionLog: {}
sevrer: {}
";
    let (config, faults) = read(text);
    assert_eq!(config, None);
    let expected = "\
gateway.yaml:1: apiVersion: Unsupported value: must be `config.portcullis.dev/v1alpha1`
gateway.yaml:2: kind: Unsupported value: must be `GatewayConfiguration`
gateway.yaml:4: server.address: Invalid value: `localhost` is not an IP address and port, such as `127.0.0.1:8443`
gateway.yaml:5: server.tls.privatekey: Unsupported value: unknown field `privatekey`
gateway.yaml:5: server.tls.certificate: Required value: must not be empty
gateway.yaml:5: server.tls.privateKey: Required value: the file of the certificate's key
gateway.yaml:6: server.drain: Invalid type: must be a duration such as `25s` or `1m30s`
gateway.yaml:7: admin.address: Invalid type: must be text
gateway.yaml:9: callers[0].kubeconfig: Invalid type: must be text
gateway.yaml:10: callers[0].endpoints[0]: Unsupported value: `authorise` is none of `authorize`, `validate`, `mutate`
gateway.yaml:11: callers[1]: Required value: name a `kubeconfig`, a `clientCertificate` or a `jwt`
gateway.yaml:12: callers[2].clientCertificate.commonName: Unsupported value: unknown field `commonName`
gateway.yaml:12: callers[2].clientCertificate: Required value: name `commonNames`, `organizations` or `sans`; else every client of the CA would do
gateway.yaml:13: callers[3].jwt.jwks: Required value: the file of the issuer's public keys
gateway.yaml:13: callers[3].jwt.audiences: Required value: name at least one, else a token meant for others would do
gateway.yaml:13: callers[3].jwt.algorithms[0]: Unsupported value: `none` is none of `RS256`, `RS384`, `RS512`, `PS256`, `PS384`, `PS512`, `ES256`, `ES384`, `EdDSA`
gateway.yaml:13: callers[3].jwt.algorithms[1]: Unsupported value: `HS256` is none of `RS256`, `RS384`, `RS512`, `PS256`, `PS384`, `PS512`, `ES256`, `ES384`, `EdDSA`
gateway.yaml:13: callers[3].jwt.leeway: Invalid value: `1x`: must be a duration such as `25s` or `1m30s`
gateway.yaml:13: callers[3].jwt.claims: Required value: claim `sub`: say what it must hold
gateway.yaml:14: manifests[0].paht: Unsupported value: unknown field `paht`
gateway.yaml:14: manifests[0].path: Required value: a file or folder of Kubernetes YAML or JSON
gateway.yaml:14: manifests[1]: Invalid type: must be a mapping
gateway.yaml:14: manifests[1].path: Required value: a file or folder of Kubernetes YAML or JSON
gateway.yaml:14: manifests[3]: Duplicate value: `/etc/portcullis/a` stands here twice
gateway.yaml:15: authorization.neverDeny.users[0]: Invalid value: `a*`: exact names alone, no pattern
gateway.yaml:15: authorization.neverDeny.serviceAccounts[0]: Invalid value: `a` is not a namespace and a name, such as `kube-system/coredns`
gateway.yaml:15: authorization.neverDeny.paths[1]: Invalid value: only a trailing * is allowed in `/a*b`
gateway.yaml:15: authorization.neverDeny: warning: Suspicious: replaces the default, so that a Deny can hold up `system:nodes`, \
`system:kube-controller-manager`, `system:kube-scheduler`, `system:apiserver`, `kube-apiserver-kubelet-client`, \
`kube-system/namespace-controller`, `kube-system/generic-garbage-collector`, `/healthz`, `/healthz/*`, `/livez`, `/livez/*`, \
`/readyz`, `/readyz/*`, `/version`: list them here too, or leave `neverDeny` out
gateway.yaml:16: admission.failurePolicy: Unsupported value: `fail` is none of `Fail`, `Ignore`
gateway.yaml:16: admission.missingNamespace: Invalid type: must be text
gateway.yaml:17: limits.bodyBytes: Invalid value: `0`: must be a whole number from 1
gateway.yaml:17: limits.inFlight: Invalid value: `-1`: must be a whole number from 1
gateway.yaml:17: limits.inFlightBytes: Invalid type: must be a whole number
gateway.yaml:18: reload.interval: Invalid value: must be longer than 0s
gateway.yaml:19: decisionLog.path: Required value: a file, or `-` for standard output
gateway.yaml:20: sevrer: Unsupported value: unknown field `sevrer`";
    assert_eq!(faults, expected);
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
            "4: authorization.neverDeny.paths[0]: Invalid value: only a trailing * is allowed in `{bad}`"
        );
        assert!(faults.contains(&expected), "{faults}");
    }
}

#[test]
fn other_authorizers_are_reached_by_their_kubeconfigs() {
    let found = faults(
        "authorization: {webhooks: [{type: RBAC, name: rbac}, {type: Webhook, name: w, webhook: {timeout: 3s, \
         subjectAccessReviewVersion: v1, failurePolicy: Deny, connectionInfo: {type: InClusterConfig}}}]}\n",
    );
    let expected = "\
4: authorization.webhooks[0].type: Unsupported value: `RBAC` is none of `Webhook`
4: authorization.webhooks[1].webhook.connectionInfo.type: Unsupported value: `InClusterConfig`: must be `KubeConfigFile`";
    assert_eq!(found, expected);
}

#[test]
#[cfg(not(feature = "cluster"))]
fn clusters_need_their_feature() {
    let expected = "4: clusters: Unsupported value: this program was built without the feature `cluster`, \
                    which watches API servers";
    assert_eq!(faults("clusters: [{name: east, kubeconfig: k}]"), expected);
}

#[test]
#[cfg(feature = "cluster")]
fn clusters_are_api_servers_to_watch() {
    let text = format!(
        "{HEAD}{SERVER}callers: []\nclusters:\n\
         - {{name: east, kubeconfig: k, snapshot: s}}\n\
         - {{name: west, kubeconfig: k, snapshot: t, selector: {{matchLabels: {{a: b, e: ''}}, matchExpressions: [\
         {{key: c, operator: NotIn, values: [d, e]}}, {{key: f, operator: DoesNotExist}}]}}}}\n"
    );
    let (config, faults) = read(&text);
    assert_eq!(faults, "");
    let clusters = config.unwrap().clusters;
    assert_eq!(clusters[0].kubeconfig, Path::new("/etc/portcullis/k"));
    assert_eq!(clusters[0].selector, None);
    let selector = clusters[1].selector.as_ref().unwrap();
    assert_eq!(selector.text, "a=b,e=,c notin (d,e),!f");
}

#[test]
#[cfg(feature = "cluster")]
fn faults_of_clusters_are_told_at_their_fields() {
    let text = "clusters:\n\
                - {kubeconfig: k, snapshot: s}\n\
                - {name: a, snapshot: s}\n\
                - {name: a, kubeconfig: k, snapshot: x}\n\
                - {name: a, kubeconfig: k, snapshot: x}\n\
                - {name: b, kubeconfig: k, selector: {}}\n\
                - {name: c, kubeconfig: k, snapshot: 'y', selector: {matchExpressions: [{key: a, operator: Gt, values: [b]}]}}\n\
                - {name: d, kubeconfig: k, snapshot: z, selector: {matchLabels: {a: 1}}}\n";
    let found = faults(text);
    let lines: Vec<&str> = found.lines().collect();
    let expected = [
        "5: clusters[0].name: Required value: the `cluster` of the callers",
        "6: clusters[1].kubeconfig: Required value: how to reach",
        "8: clusters[3].name: Duplicate value: `a` stands here twice",
        "8: clusters[3].snapshot: Duplicate value: another cluster is saved there",
        "9: clusters[4].snapshot: warning: Required value: without it a start needs",
        "9: clusters[4].selector: warning: Suspicious: this takes every policy",
        "10: clusters[5].selector: Invalid value: `Gt` is not a valid label selector operator",
        "11: clusters[6].selector.matchLabels.a: Invalid type: must be text",
    ];
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(expected), "{line}\n{expected}");
    }
    assert!(lines.len() >= expected.len(), "{found}");
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
                        the same credential speaks for `default` in callers[0]";
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
        "gateway.yaml: callers: Required value: nobody may call: name at least one caller"
    );
    config("callers: [{kubeconfig: k}]").require_callers().unwrap();
}

#[test]
fn one_document_to_a_file() {
    assert!(
        read("")
            .1
            .contains("Required value: the file holds no GatewayConfiguration")
    );
    assert!(
        read("a: 1\n---\nb: 2\n")
            .1
            .contains("Too many: one GatewayConfiguration to a file")
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
