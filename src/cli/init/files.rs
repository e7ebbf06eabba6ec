//! The contents of a set-up's files.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::File;
use super::fill::{Filling, quoted};
use super::host::{Host, Namespace};
use super::pki::{Authority, Pair, Usage};
use super::policies;
use crate::cli::{Error, output};

/// The gateway's configuration, by whose presence a set-up is known.
pub(in crate::cli) const CONFIGURATION: &str = "portcullis.yaml";

/// The certificates of a set-up: where each is, with its key, and who signs anew.
pub(super) const SERVER: KeyFiles = KeyFiles("pki/server.crt", "pki/server.key");
pub(super) const AUTHORIZATION: KeyFiles = KeyFiles("pki/authorization.crt", "pki/authorization.key");
pub(super) const ADMISSION: KeyFiles = KeyFiles("pki/admission.crt", "pki/admission.key");
/// The authority that signs, in a folder that `serve` does not need.
pub(super) const AUTHORITY: KeyFiles = KeyFiles("ca/ca.crt", "ca/ca.key");
/// Every authority that is trusted.
pub(super) const TRUSTED: &str = "pki/ca.crt";

/// The common names of the certificates that a set-up begins with.
pub(super) const SERVER_NAME: &str = "portcullis";
pub(super) const AUTHORIZATION_NAME: &str = "kube-apiserver-authorization";
pub(super) const ADMISSION_NAME: &str = "kube-apiserver-admission";

const PORT: u16 = 8443;

/// Where a certificate and its key are, relative to the folder of the set-up.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyFiles(pub(super) &'static str, pub(super) &'static str);

/// What a set-up is to be.
#[derive(Debug, Default)]
pub(in crate::cli) struct SetUp<'a> {
    /// As whom the gateway is reached; none: from its own machine alone.
    pub(super) hosts: &'a [Host],
    /// The namespace in which the gateway runs, where it runs in the cluster.
    pub(super) in_cluster: Option<&'a Namespace>,
    /// Further namespaces whose service accounts are never asked about.
    pub(super) exempt: &'a [Namespace],
    /// Whether there are example policies.
    pub(super) examples: bool,
    /// Whether the registrations are static manifests.
    pub(super) is_static: bool,
}

/// Every file of `set_up` in `directory`, the configuration last. Keys are new each
/// time; `now` is in seconds since 1970.
///
/// # Errors
///
/// No key or certificate can be made.
pub(super) fn compose(directory: &Path, set_up: &SetUp<'_>, now: i64) -> Result<Vec<File>, Error> {
    let names = with_loopback(set_up.hosts);
    let authority = Authority::new("portcullis-ca", now)?;
    let ca = authority.pair()?;
    let mut files = Vec::new();
    for (place, name, usage) in [
        (SERVER, SERVER_NAME, Usage::Server(&names)),
        (AUTHORIZATION, AUTHORIZATION_NAME, Usage::Client),
        (ADMISSION, ADMISSION_NAME, Usage::Client),
    ] {
        files.extend(place.files(authority.issue(name, &usage)?));
    }
    files.push(File::open(TRUSTED, ca.certificate.clone()));
    let filling = filling(directory, set_up, url_hosts(set_up.hosts, &names), &ca);
    files.extend(AUTHORITY.files(ca));
    files.extend(for_the_api_server(
        directory,
        set_up,
        url_hosts(set_up.hosts, &names),
        &filling,
    ));
    // The folder is there even while there is no policy.
    files.push(File::open(
        "policies/README.md",
        include_str!("templates/policies.md"),
    ));
    if set_up.examples {
        files.extend(policies::examples());
    }
    if set_up.in_cluster.is_some() {
        let manifests = in_cluster(&filling, &files);
        files.extend(manifests);
    }
    files.push(File::open(
        "README.md",
        filling.fill(include_str!("templates/README.md")),
    ));
    // Whoever keeps this folder in git keeps its secrets out of it.
    files.push(File::open(".gitignore", "*.key\n"));
    files.push(File::open(
        CONFIGURATION,
        filling.fill(include_str!("templates/portcullis.yaml")),
    ));
    Ok(files)
}

// === impl SetUp ===

impl SetUp<'_> {
    /// One to try things with, on this machine alone.
    pub(in crate::cli) fn development() -> Self {
        Self {
            examples: true,
            ..Self::default()
        }
    }
}

// === impl KeyFiles ===

impl KeyFiles {
    /// The files that hold `pair`.
    pub(super) fn files(self, pair: Pair) -> [File; 2] {
        [
            File::secret(self.1, pair.key),
            File::open(self.0, pair.certificate),
        ]
    }
}

/// What kube-apiserver is given, and what is registered with it.
fn for_the_api_server(
    directory: &Path,
    set_up: &SetUp<'_>,
    hosts: &[Host],
    filling: &Filling<'_>,
) -> Vec<File> {
    let mut files = vec![
        File::open(
            "kubeconfigs/authorization.kubeconfig",
            filling.fill(include_str!("templates/authorization.kubeconfig")),
        ),
        File::open(
            "kubeconfigs/admission.kubeconfig",
            admission_kubeconfig(directory, hosts),
        ),
        File::open(
            "authorization-configuration.yaml",
            filling.fill(include_str!("templates/authorization-configuration.yaml")),
        ),
        File::open(
            "admission-configuration.yaml",
            filling.fill(include_str!("templates/admission-configuration.yaml")),
        ),
    ];
    files.extend(registrations(set_up.is_static, filling));
    files
}

/// The registrations: to be applied, or to be read by the API server from its disk.
fn registrations(is_static: bool, filling: &Filling<'_>) -> Vec<File> {
    let mutating = filling.fill(include_str!("templates/mutating.yaml"));
    let validating = filling.fill(include_str!("templates/validating.yaml"));
    if !is_static {
        let head = include_str!("templates/webhooks.head");
        return vec![File::open(
            "webhooks.yaml",
            format!("{head}{mutating}---\n{validating}"),
        )];
    }
    let head = include_str!("templates/static.head");
    vec![
        File::open("static/mutating/portcullis.yaml", format!("{head}{mutating}")),
        File::open("static/validating/portcullis.yaml", format!("{head}{validating}")),
    ]
}

/// What `kubectl apply -k` installs; `files` are those of the set-up so far.
fn in_cluster(filling: &Filling<'_>, files: &[File]) -> [File; 3] {
    let policies: String = files
        .iter()
        .filter(|file| file.path.starts_with("policies/"))
        .map(|file| format!("  - {}\n", file.path))
        .collect();
    let kustomization = include_str!("templates/in-cluster/kustomization.yaml");
    [
        File::open(
            "kustomization.yaml",
            filling.fill(&kustomization.replace("{{policies}}", &policies)),
        ),
        File::open(
            "namespace.yaml",
            filling.fill(include_str!("templates/in-cluster/namespace.yaml")),
        ),
        File::open(
            "gateway.yaml",
            filling.fill(include_str!("templates/in-cluster/gateway.yaml")),
        ),
    ]
}

/// `hosts` and the names of this machine, each once.
fn with_loopback(hosts: &[Host]) -> Vec<Host> {
    let mut names = hosts.to_vec();
    let loopback = [
        Host::Name("localhost".to_owned()),
        Host::Address(Ipv4Addr::LOCALHOST.into()),
        Host::Address(Ipv6Addr::LOCALHOST.into()),
    ];
    for name in loopback {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The hosts that stand in URLs: those that were named, else this machine.
fn url_hosts<'a>(hosts: &'a [Host], names: &'a [Host]) -> &'a [Host] {
    if hosts.is_empty() {
        names.get(..1).unwrap_or_default()
    } else {
        hosts
    }
}

/// The address to listen on: every one of the machine, unless only the machine itself is to come.
fn listen(hosts: &[Host]) -> String {
    if hosts.iter().all(Host::is_loopback) {
        format!("127.0.0.1:{PORT}")
    } else if hosts
        .iter()
        .all(|host| matches!(host, Host::Address(address) if address.is_ipv6()))
    {
        format!("[::]:{PORT}")
    } else {
        format!("0.0.0.0:{PORT}")
    }
}

/// The API server looks credentials up by host and port: one user for each.
fn admission_kubeconfig(directory: &Path, hosts: &[Host]) -> String {
    let certificate = quoted(&directory.join(ADMISSION.0));
    let key = quoted(&directory.join(ADMISSION.1));
    let mut text = include_str!("templates/admission.kubeconfig").to_owned();
    for host in hosts {
        let _ = write!(
            text,
            "- name: \"{host}:{PORT}\"\n  user:\n    client-certificate: {certificate}\n    client-key: {key}\n",
        );
    }
    text
}

/// What the templates of `set_up` leave open.
fn filling<'a>(directory: &'a Path, set_up: &SetUp<'_>, hosts: &[Host], ca: &Pair) -> Filling<'a> {
    let listed: Vec<String> = hosts.iter().map(|host| format!("`{host}`")).collect();
    let host = hosts.first().map(ToString::to_string).unwrap_or_default();
    let name = if set_up.is_static {
        "portcullis.static.k8s.io"
    } else {
        "portcullis"
    };
    let plugin = |kind| {
        if set_up.is_static {
            include_str!("templates/static/admission.yaml").replace("KIND", kind)
        } else {
            String::new()
        }
    };
    let values = vec![
        ("put-to-use", put_to_use(set_up).to_owned()),
        ("registered", registered(set_up).to_owned()),
        ("directory", output::argument(directory)),
        (
            "match-conditions",
            include_str!("templates/match-conditions.yaml").to_owned(),
        ),
        ("static-validating", plugin("validating")),
        ("static-mutating", plugin("mutating")),
        ("exempt", exempt(set_up)),
        ("namespaces", left_out(set_up).join(", ")),
        (
            "namespace",
            set_up.in_cluster.map(ToString::to_string).unwrap_or_default(),
        ),
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("name", name.to_owned()),
        ("host", host),
        ("hosts", listed.join(", ")),
        ("listen", listen(hosts)),
        ("ca", STANDARD.encode(&ca.certificate)),
    ];
    Filling::new(directory, values)
}

/// The namespaces whose objects the registrations leave out.
fn left_out(set_up: &SetUp<'_>) -> Vec<String> {
    let mut names = vec!["kube-system".to_owned()];
    names.extend(set_up.in_cluster.map(ToString::to_string));
    names.dedup();
    names
}

/// The matchConditions for the service accounts of further namespaces: the gateway's
/// own, and those that were named.
fn exempt(set_up: &SetUp<'_>) -> String {
    let mut namespaces: Vec<String> = set_up
        .in_cluster
        .into_iter()
        .chain(set_up.exempt)
        .map(ToString::to_string)
        .filter(|namespace| namespace != "kube-system")
        .collect();
    namespaces.sort();
    namespaces.dedup();
    namespaces
        .iter()
        .map(|namespace| {
            format!("    - expression: \"!('system:serviceaccounts:{namespace}' in request.groups)\"\n")
        })
        .collect()
}

/// How the README says to put the registrations in force.
const fn registered(set_up: &SetUp<'_>) -> &'static str {
    if set_up.is_static {
        "| `static/` | read by the API server (1.37 and later), as the file above says |"
    } else {
        "| `webhooks.yaml` | `kubectl apply -f webhooks.yaml`, once the gateway serves |"
    }
}

/// How the README says to run the gateway.
const fn put_to_use(set_up: &SetUp<'_>) -> &'static str {
    if set_up.in_cluster.is_some() {
        include_str!("templates/in-cluster/put-to-use.md")
    } else {
        include_str!("templates/put-to-use.md")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(names: &[&str]) -> Vec<Host> {
        names.iter().map(|name| name.parse().unwrap()).collect()
    }

    fn files(set_up: &SetUp<'_>) -> Vec<File> {
        compose(Path::new("/srv/gate \"way\": x"), set_up, 1_790_000_000).unwrap()
    }

    fn text(set_up: &SetUp<'_>, path: &str) -> String {
        let file = files(set_up).into_iter().find(|file| file.path == path).unwrap();
        String::from_utf8(file.contents).unwrap()
    }

    /// Has `act` see a set-up of each kind.
    fn each_kind(act: impl Fn(&SetUp<'_>)) {
        let hosts = hosts(&["a.example.com", "::1"]);
        let namespace = "gate".parse().unwrap();
        let exempt = ["tools".parse().unwrap()];
        act(&SetUp::default());
        act(&SetUp {
            hosts: &hosts,
            exempt: &exempt,
            is_static: true,
            ..SetUp::default()
        });
        act(&SetUp {
            in_cluster: Some(&namespace),
            examples: true,
            ..SetUp::default()
        });
    }

    #[test]
    fn no_template_keeps_a_gap() {
        each_kind(|set_up| {
            for file in files(set_up) {
                let text = String::from_utf8(file.contents).unwrap();
                assert!(!text.contains("{{"), "{}", file.path);
            }
        });
    }

    #[test]
    fn keys_are_secret_and_nothing_else() {
        each_kind(|set_up| {
            for file in files(set_up) {
                assert_eq!(file.secret, file.path.ends_with(".key"), "{}", file.path);
            }
        });
    }

    #[test]
    fn every_yaml_file_can_be_read_whatever_the_folder_is_called() {
        each_kind(|set_up| {
            for file in files(set_up) {
                if !file.path.ends_with(".yaml") && !file.path.ends_with(".kubeconfig") {
                    continue;
                }
                let text = String::from_utf8(file.contents).unwrap();
                let documents = crate::document::parse(Some(file.path), &text).unwrap();
                assert!(!documents.is_empty(), "{}", file.path);
            }
        });
    }

    #[test]
    fn the_configuration_comes_last() {
        each_kind(|set_up| assert_eq!(files(set_up).last().unwrap().path, CONFIGURATION));
    }

    #[test]
    fn the_key_of_the_authority_is_the_only_one_of_its_folder() {
        each_kind(|set_up| {
            let keys: Vec<&str> = files(set_up)
                .iter()
                .map(|file| file.path)
                .filter(|path| path.starts_with("ca/"))
                .collect();
            assert_eq!(keys, ["ca/ca.key", "ca/ca.crt"]);
        });
    }

    #[test]
    fn examples_come_only_when_asked_for() {
        let policies = |examples| {
            let set_up = SetUp {
                examples,
                ..SetUp::default()
            };
            let files = files(&set_up);
            let is_manifest =
                |file: &&File| file.path.starts_with("policies/") && file.path.ends_with(".yaml");
            files.iter().filter(is_manifest).count()
        };
        assert_eq!(policies(false), 0);
        assert!(policies(true) >= 12);
    }

    #[test]
    fn the_gateway_listens_where_its_hosts_are() {
        assert_eq!(listen(&hosts(&["localhost", "127.0.0.1"])), "127.0.0.1:8443");
        assert_eq!(listen(&hosts(&["localhost", "a.example.com"])), "0.0.0.0:8443");
        assert_eq!(listen(&hosts(&["fd00::1"])), "[::]:8443");
    }

    #[test]
    fn admission_credentials_are_found_by_host_and_port() {
        let hosts = hosts(&["a.example.com", "::1"]);
        let set_up = SetUp {
            hosts: &hosts,
            ..SetUp::default()
        };
        let kubeconfig = text(&set_up, "kubeconfigs/admission.kubeconfig");
        assert!(kubeconfig.contains("- name: \"a.example.com:8443\""));
        assert!(kubeconfig.contains("- name: \"[::1]:8443\""));
    }

    #[test]
    fn kubeconfigs_name_files_by_absolute_path_and_embed_nothing() {
        for path in [
            "kubeconfigs/authorization.kubeconfig",
            "kubeconfigs/admission.kubeconfig",
        ] {
            let kubeconfig = text(&SetUp::default(), path);
            assert!(
                kubeconfig.contains("client-key: \"/srv/gate \\\"way\\\": x/pki/"),
                "{kubeconfig}"
            );
            assert!(!kubeconfig.contains("-data"), "{kubeconfig}");
        }
    }

    #[test]
    fn the_gateway_s_own_namespace_is_left_out_of_everything() {
        let namespace = "gate".parse().unwrap();
        let exempt = ["tools".parse().unwrap(), "kube-system".parse().unwrap()];
        let set_up = SetUp {
            in_cluster: Some(&namespace),
            exempt: &exempt,
            ..SetUp::default()
        };
        let configuration = text(&set_up, "authorization-configuration.yaml");
        for namespace in ["kube-system", "gate", "tools"] {
            let condition = format!("!('system:serviceaccounts:{namespace}' in request.groups)");
            assert_eq!(configuration.matches(&condition).count(), 1, "{configuration}");
        }
        let registrations = text(&set_up, "webhooks.yaml");
        assert_eq!(registrations.matches("values: [kube-system, gate]").count(), 2);
    }
}
