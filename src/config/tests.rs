//! Every field, and what is absent.

mod refused;
mod schema;

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use portcullis_cel::Version;
use portcullis_policy::admission::FailurePolicy;
use portcullis_policy::admission::matching::MissingNamespace;
use portcullis_policy::authorization::rbac::AlwaysAllowPaths;
use portcullis_policy::authorization::{NeverDeny, ServiceAccount};

/// What every configuration needs, followed by what the test is about.
const HEAD: &str = "apiVersion: config.portcullis.dev/v1alpha1\nkind: GatewayConfiguration\n";
const SERVER: &str = "server: {tls: {certificate: s.crt, privateKey: s.key, clientCA: ca.crt}}\n";

fn read(text: &str) -> (Option<Config>, String) {
    let (config, faults) = parse(Path::new("gateway.yaml"), text, Path::new("/etc/portcullis"));
    (config, faults.to_string())
}

/// The configuration of `section` besides the least that is needed.
pub(crate) fn config(section: &str) -> Config {
    let (config, faults) = read(&format!("{HEAD}{SERVER}{section}"));
    assert_eq!(faults, "");
    config.unwrap()
}

/// The faults of `section` besides the least that is needed, without the file's name.
pub(crate) fn faults(section: &str) -> String {
    let (config, faults) = read(&format!("{HEAD}{SERVER}{section}"));
    assert_eq!(config, None, "{section}");
    faults.replace("gateway.yaml:", "")
}

#[test]
fn the_console_is_there_only_where_it_is_named() {
    assert_eq!(config("").console, None);
    let console = config("console: {}").console.unwrap();
    let expected = Console {
        address: "127.0.0.1:9091".parse().unwrap(),
        tls: None,
        max_decisions: 10_000,
    };
    assert_eq!(console, expected);
    assert!(console.is_loopback());
    let config = config(
        "console: {address: 0.0.0.0:9091, tls: {certificate: c.crt, privateKey: c.key}, maxDecisions: 5}\n\
         callers: [{kubeconfig: k, endpoints: [console]}]",
    );
    let console = config.console.as_ref().unwrap();
    assert!(!console.is_loopback());
    assert_eq!(console.max_decisions, 5);
    let tls = console.tls.as_ref().unwrap();
    // Its callers are those of reviews.
    assert_eq!(tls.client_ca, config.server.tls.client_ca);
    assert!(config.files().contains(&"/etc/portcullis/c.key".into()));
    assert_eq!(config.callers[0].endpoints, Endpoints::CONSOLE);
}

#[test]
fn reads_every_field() {
    let text = format!(
        "{HEAD}{}",
        r#"
server:
  address: 127.0.0.1:8443
  tls: {certificate: pki/server.crt, privateKey: /pki/server.key, clientCA: pki/ca.crt}
  shutdownTimeout: 20s
  connections: {max: 100, perAddress: 10, authenticationTimeout: 3s}
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
admission: {failurePolicy: Ignore, missingNamespace: NameOnly, celVersion: '1.36'}
limits: {bodyBytes: 1024, inFlight: 2, inFlightBytes: 4096, watchedBytes: 64Mi}
reload: {pollInterval: 1m30s}
decisionLog: {path: log.jsonl, trace: nearMisses}
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
    assert_eq!(config.server.shutdown_timeout, Duration::from_secs(20));
    let connections = ConnectionLimits {
        max: 100,
        per_address: 10,
        authentication_timeout: Duration::from_secs(3),
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
    assert_eq!(certificate.endpoints, Endpoints::REVIEWS);
    assert_eq!(token.cluster, "east");
    let jwt = token.jwt.clone().unwrap();
    assert_eq!(jwt.issuer, "https://kubernetes.default.svc");
    assert_eq!(jwt.audiences, ["portcullis"]);
    assert_eq!(jwt.jwks.as_deref(), Some(Path::new("/etc/portcullis/jwks.json")));
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
            cluster: None,
            bundle: None,
        }
    );
    assert_eq!(
        east,
        &ManifestPath {
            path: "/east".into(),
            cluster: Some("east".into()),
            bundle: None,
        }
    );
    let never_deny = &config.authorization.never_deny;
    assert_eq!(never_deny.service_accounts, [ServiceAccount::new("ns", "sa")]);
    assert_eq!(never_deny.paths, AlwaysAllowPaths::new(&["/a"], &["/b/"]));
    assert_eq!(config.admission.failure_policy, FailurePolicy::Ignore);
    assert_eq!(config.admission.missing_namespace, MissingNamespace::NameOnly);
    assert_eq!(config.admission.cel_version, Version::new(36));
    assert_eq!(
        config.limits,
        Limits {
            body_bytes: 1024,
            in_flight: 2,
            in_flight_bytes: 4096,
            watched_bytes: Some(64 << 20),
        }
    );
    assert_eq!(config.reload.poll_interval, Duration::from_secs(90));
    let log = DecisionLog {
        path: LogPath::File("/etc/portcullis/log.jsonl".into()),
        trace: LogTrace::NearMisses,
    };
    assert_eq!(config.decision_log, Some(log));
}

#[test]
fn what_is_absent_has_the_documented_default() {
    let config = config("");
    assert_eq!(config.server.address, "127.0.0.1:8443".parse().unwrap());
    assert_eq!(config.server.shutdown_timeout, Duration::from_secs(25));
    let connections = ConnectionLimits {
        max: 4096,
        per_address: 512,
        authentication_timeout: Duration::from_secs(10),
    };
    assert_eq!(config.server.connections, connections);
    assert_eq!(config.admin.address, "127.0.0.1:9090".parse().unwrap());
    assert_eq!(config.callers, []);
    assert_eq!(config.manifests, []);
    assert_eq!(config.authorization.never_deny, NeverDeny::default());
    assert_eq!(config.admission, AdmissionDefaults::default());
    assert_eq!(config.admission.failure_policy, FailurePolicy::Fail);
    assert_eq!(config.admission.missing_namespace, MissingNamespace::Fail);
    assert_eq!(config.admission.cel_version, Version::NEWEST);
    let limits = Limits {
        body_bytes: 33_554_432,
        in_flight: 1024,
        in_flight_bytes: 268_435_456,
        watched_bytes: None,
    };
    assert_eq!(config.limits, limits);
    assert_eq!(config.reload.poll_interval, Duration::from_secs(60));
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
    assert!(
        faults.contains("a Deny can now apply to `system:nodes`"),
        "{faults}"
    );
    let nobody = config.unwrap().authorization.never_deny;
    assert!(nobody.groups.is_empty() && nobody.users.is_empty());
    assert!(nobody.service_accounts.is_empty() && nobody.paths.is_empty());
}

#[test]
fn a_dash_logs_to_standard_output() {
    assert_eq!(
        config("decisionLog: {path: '-'}").decision_log,
        Some(DecisionLog {
            path: LogPath::Stdout,
            trace: LogTrace::None,
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
fn other_authorizers_are_reached_by_their_kubeconfigs() {
    let found = faults(
        "authorization: {webhooks: [{type: RBAC, name: rbac}, {type: Webhook, name: w, webhook: {timeout: 3s, \
         subjectAccessReviewVersion: v1, failurePolicy: Deny, connectionInfo: {type: InClusterConfig}}}]}\n",
    );
    let expected = "\
4: authorization.webhooks[0].type: Unsupported value: `RBAC`: supported values: `Webhook`
4: authorization.webhooks[1].webhook.connectionInfo.type: Unsupported value: `InClusterConfig`: must be `KubeConfigFile`";
    assert_eq!(found, expected);
}

/// A folder of `clusters` with these files, and what a configuration says that names it.
fn with_cluster_folder(files: &[(&str, &str)]) -> (tempfile::TempDir, Option<Config>, String) {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join("clusters.d").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let text = format!("{HEAD}{SERVER}clusters: clusters.d\n");
    let (config, faults) = parse(Path::new("gateway.yaml"), &text, folder.path());
    let faults = faults.to_string().replace(folder.path().to_str().unwrap(), "");
    (folder, config, faults)
}

#[test]
fn a_folder_of_clusters_has_a_file_for_each() {
    let (folder, config, faults) = with_cluster_folder(&[
        (
            "west.yml",
            "{name: west, kubeconfig: west.kubeconfig, cacheFile: .state/west.json}",
        ),
        ("east/east.yaml", "name: east\nkubeconfig: k\ncacheFile: s\n"),
        (".hidden.yaml", "not: read"),
        ("west.kubeconfig", "kind: Config"),
    ]);
    assert_eq!(faults, "");
    let config = config.unwrap();
    let names: Vec<_> = config
        .clusters
        .iter()
        .map(|cluster| cluster.name.as_str())
        .collect();
    assert_eq!(names, ["east", "west"]);
    let clusters = folder.path().join("clusters.d");
    assert_eq!(config.clusters[0].cache_file, Some(clusters.join("east/s")));
    assert_eq!(config.clusters[1].kubeconfig, clusters.join("west.kubeconfig"));
    assert_eq!(
        config.clusters[1].cache_file,
        Some(clusters.join(".state/west.json"))
    );

    let saved = config.cluster_folder.as_ref().unwrap().files.clone();
    std::fs::remove_dir_all(&clusters).unwrap();
    let (again, _) = parse_saved(&config.file, &config.text, folder.path(), &saved);
    assert_eq!(again, Some(config), "as it was saved");
}

#[test]
fn faults_of_a_cluster_are_told_in_its_file() {
    let (_, config, faults) = with_cluster_folder(&[
        ("a.yaml", "name: east\nkubeconfig: k\ncacheFile: s\n"),
        ("b.yaml", "name: east\nkubeconfig: k\ncacheFile: s\nwhat: 1\n"),
        ("c.yaml", "name: x\n---\nname: y\n"),
        ("d.yaml", "name: ["),
        ("e.yaml", "name: z\nkubeconfig: k\nsnapshot: z\n"),
    ]);
    assert_eq!(config, None);
    for expected in [
        "/clusters.d/a.yaml:1: name: Duplicate value: `east` is used twice (here and in `/clusters.d/b.yaml`)",
        "/clusters.d/b.yaml:1: name: Duplicate value: `east` is used twice (here and in `/clusters.d/a.yaml`)",
        "/clusters.d/b.yaml:3: cacheFile: Duplicate value: another cluster uses this file",
        "/clusters.d/b.yaml:4: what: Unsupported value: unknown field `what`",
        "/clusters.d/c.yaml: Invalid value: 2 documents: a file contains one entry of `clusters`",
        "/clusters.d/d.yaml:1",
        "/clusters.d/e.yaml:3: snapshot: Unsupported value: renamed to `cacheFile`",
    ] {
        assert!(faults.contains(expected), "{expected}\n{faults}");
    }
    let (_, config, faults) = with_cluster_folder(&[("README.md", "")]);
    assert_eq!(config.unwrap().clusters, []);
    assert!(
        faults.contains("clusters: warning: Not found: this folder contains no file"),
        "{faults}"
    );
    let (_, config, faults) = with_cluster_folder(&[]);
    assert_eq!(config, None);
    assert!(
        faults.contains("/clusters.d: Unreadable: there is no such"),
        "{faults}"
    );
}

#[test]
fn files_of_an_entry_stay_below_its_folder() {
    let entry = |more: &str| format!("name: east\nkubeconfig: k\ncacheFile: s\n{more}\n");
    for (entry, expected) in [
        (
            entry("").replace(": k", ": ../west/k"),
            "kubeconfig: Forbidden: `../west/k` leads out of",
        ),
        (
            entry("").replace(": k", ": /etc/k"),
            "kubeconfig: Forbidden: `/etc/k` leads out of",
        ),
        (
            entry("").replace(": s", ": ../east-2/s"),
            "cacheFile: Forbidden: `../east-2/s` leads out of",
        ),
        (
            entry("upstreams: {kubeconfig: ../u}"),
            "upstreams.kubeconfig: Forbidden: `../u`",
        ),
        (
            entry("upstreams: {caBundle: ../../server.key}"),
            "upstreams.caBundle: Forbidden",
        ),
        (
            entry("").replace(": s", ": s.json"),
            "cacheFile: Invalid value: in this folder a file of this name",
        ),
    ] {
        let (_, config, faults) = with_cluster_folder(&[("east/east.yaml", &entry)]);
        assert_eq!(config, None, "{entry}");
        assert!(faults.contains("/clusters.d/east/east.yaml:"), "{faults}");
        assert!(faults.contains(expected), "{expected}\n{faults}");
    }
    for name in ["s.changes", "s.new", "s"] {
        let west = format!("name: west\nkubeconfig: k\ncacheFile: {name}\n");
        let (_, config, faults) = with_cluster_folder(&[("a.yaml", &entry("")), ("b.yaml", &west)]);
        assert_eq!(config, None, "{name}");
        assert!(
            faults.contains("another cluster uses this file"),
            "{name}: {faults}"
        );
    }
}

#[test]
fn clusters_are_api_servers_to_watch() {
    let text = format!(
        "{HEAD}{SERVER}callers: []\nclusters:\n\
         - {{name: east, kubeconfig: k, cacheFile: s}}\n\
         - {{name: west, kubeconfig: k, cacheFile: t, selector: {{matchLabels: {{a: b, e: ''}}, matchExpressions: [\
         {{key: c, operator: NotIn, values: [d, e]}}, {{key: f, operator: DoesNotExist}}]}}}}\n\
         - {{name: north, kubeconfig: k, cacheFile: u, acceptExceptions: true}}\n\
         - {{name: south, kubeconfig: k, cacheFile: v, writeStatus: true}}\n"
    );
    let (config, faults) = read(&text);
    assert_eq!(faults, "");
    let clusters = config.unwrap().clusters;
    assert_eq!(clusters[0].kubeconfig, Path::new("/etc/portcullis/k"));
    assert_eq!(clusters[0].selector, None);
    let selector = clusters[1].selector.as_ref().unwrap();
    assert_eq!(selector.text, "a=b,e=,c notin (d,e),!f");
    let flags: Vec<_> = clusters
        .iter()
        .map(|cluster| (cluster.accept_exceptions, cluster.writes_status))
        .collect();
    assert_eq!(
        flags,
        [(false, false), (false, false), (true, false), (false, true)]
    );
}
