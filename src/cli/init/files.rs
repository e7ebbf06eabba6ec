//! The files of a set-up, and the templates that they are made from.
//!
//! In a template, `{{name}}` stands for a value, and `{{path:FILE}}` for the absolute path of a file of
//! the set-up, quoted for YAML.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::File;
use super::host::{Host, Namespace};
use super::pki::{Authority, Pair, Usage};
use super::watch;
use crate::cli::{CommandError, init, output};

/// The gateway's configuration, by whose presence a set-up is known.
pub(crate) const CONFIGURATION: &str = "portcullis.yaml";

/// The certificates of a set-up: where each is, with its key, and who signs new ones.
pub(crate) const SERVER: KeyFiles = KeyFiles("pki/server.crt", "pki/server.key");
pub(crate) const AUTHORIZATION: KeyFiles = KeyFiles("pki/authorization.crt", "pki/authorization.key");
pub(crate) const ADMISSION: KeyFiles = KeyFiles("pki/admission.crt", "pki/admission.key");
/// The authority that signs, in a folder that `serve` does not need.
pub(crate) const AUTHORITY: KeyFiles = KeyFiles("ca/ca.crt", "ca/ca.key");
/// Every authority that is trusted.
pub(crate) const TRUSTED: &str = "pki/ca.crt";

/// The common names of the certificates that a set-up begins with.
pub(crate) const SERVER_NAME: &str = "portcullis";
pub(crate) const AUTHORIZATION_NAME: &str = "kube-apiserver-authorization";
pub(crate) const ADMISSION_NAME: &str = "kube-apiserver-admission";

/// Where a certificate and its key are, relative to the folder of the set-up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyFiles(pub(crate) &'static str, pub(crate) &'static str);

/// Every file of `set_up` in `directory`, the configuration last. Keys are new each
/// time; `now` is in seconds since 1970.
///
/// # Errors
///
/// No key or certificate can be made.
pub(crate) fn compose(directory: &Path, set_up: &SetUp<'_>, now: i64) -> Result<Vec<File>, CommandError> {
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
    files.extend(init::examples(set_up.examples));
    files.extend(set_up.builtin_roles.clone());
    files.extend(watch::files(set_up, &filling));
    if set_up.in_cluster.is_some() {
        let manifests = in_cluster(&filling, &files);
        files.extend(manifests);
    }
    files.push(File::open(
        "README.md",
        filling.fill(include_str!("templates/README.md")),
    ));
    // Secrets stay out of git where this folder is kept in it.
    files.push(File::open(".gitignore", "*.key\n"));
    let mut configuration = filling.fill(include_str!("templates/portcullis.yaml"));
    for line in include_str!("templates/console.yaml").lines() {
        // Otherwise it is there to be uncommented.
        let is_off = set_up.examples != Examples::InForce && !line.starts_with('#');
        configuration.push_str(if is_off { "# " } else { "" });
        configuration.push_str(line);
        configuration.push('\n');
    }
    files.push(File::open(CONFIGURATION, configuration));
    Ok(files)
}

// === impl KeyFiles ===

impl KeyFiles {
    /// The files that hold `pair`.
    pub(crate) fn files(self, pair: Pair) -> [File; 2] {
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
    filling: &TemplateValues<'_>,
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
fn registrations(is_static: bool, filling: &TemplateValues<'_>) -> Vec<File> {
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
fn in_cluster(filling: &TemplateValues<'_>, files: &[File]) -> [File; 3] {
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

/// Fills the templates of one set-up.
pub(crate) struct TemplateValues<'a> {
    directory: &'a Path,
    values: Vec<(&'static str, String)>,
}

impl<'a> TemplateValues<'a> {
    /// `values`: what each name stands for. A value is not itself a template, but those
    /// of names further back may stand in it.
    pub(crate) const fn new(directory: &'a Path, values: Vec<(&'static str, String)>) -> Self {
        Self { directory, values }
    }

    /// The folder of the set-up.
    pub(crate) const fn directory(&self) -> &'a Path {
        self.directory
    }

    /// `template` without gaps.
    pub(crate) fn fill(&self, template: &str) -> String {
        let mut text = template.to_owned();
        for (name, value) in &self.values {
            text = text.replace(&format!("{{{{{name}}}}}"), value);
        }
        self.with_paths(&text)
    }

    fn with_paths(&self, text: &str) -> String {
        let mut parts = text.split("{{path:");
        let mut filled = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (path, rest) = part.split_once("}}").unwrap_or((part, ""));
            filled.push_str(&quoted(&self.directory.join(path)));
            filled.push_str(rest);
        }
        filled
    }
}

/// As a YAML double-quoted scalar: JSON's strings are a subset of those.
pub(crate) fn quoted(path: &Path) -> String {
    serde_json::Value::from(path.to_string_lossy()).to_string()
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
pub(crate) fn listen(hosts: &[Host]) -> String {
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

/// What the templates of `set_up` leave open.
fn filling<'a>(directory: &'a Path, set_up: &SetUp<'_>, hosts: &[Host], ca: &Pair) -> TemplateValues<'a> {
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
        ("watched", if_watched(set_up, WATCHED)),
        ("to-watch", to_watch(set_up).to_owned()),
        (
            "clusters",
            if_watched(set_up, include_str!("templates/watch/clusters.yaml")),
        ),
        ("watch-resource", if_watched(set_up, "- cluster\n")),
        (
            "watch-dns",
            if_watched(set_up, include_str!("templates/in-cluster/watch-dns")),
        ),
        (
            "watch-mounts",
            if_watched(set_up, include_str!("templates/in-cluster/watch-mounts")),
        ),
        (
            "watch-volumes",
            if_watched(set_up, include_str!("templates/in-cluster/watch-volumes")),
        ),
        ("watch", set_up.watch.to_string()),
        ("state", watch::cache_file(directory, set_up).to_owned()),
        ("watch-commands", watch::commands(directory).join("\n       ")),
        ("registered", registered(set_up).to_owned()),
        ("directory", output::argument(directory)),
        ("match-conditions", match_conditions(set_up)),
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
    TemplateValues::new(directory, values)
}

/// What the registrations leave out by what is asked.
fn match_conditions(set_up: &SetUp<'_>) -> String {
    let mut conditions = include_str!("templates/match-conditions.yaml").to_owned();
    if set_up.is_static {
        conditions.push_str(include_str!("templates/static/match-conditions.yaml"));
    }
    conditions
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
        "| `static/` | read by the API server (1.37 and later), as `admission-configuration.yaml` says. If you applied a `webhooks.yaml` before, delete those registrations, or each request comes twice |"
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

/// `text`, in a set-up whose gateway watches its cluster.
fn if_watched(set_up: &SetUp<'_>, text: &str) -> String {
    if set_up.watch {
        text.to_owned()
    } else {
        String::new()
    }
}

/// The line of the README about the files of `--watch`.
const WATCHED: &str = "| `cluster/` | `kubectl apply -k cluster`; the gateway, to watch the cluster |\n";

/// How the README says to let the gateway watch the cluster, where that is a step of its own.
const fn to_watch(set_up: &SetUp<'_>) -> &'static str {
    if set_up.watch && set_up.in_cluster.is_none() {
        include_str!("templates/watch/put-to-use.md")
    } else {
        ""
    }
}

/// The port of the gateway.
pub(crate) const PORT: u16 = 8443;

/// What a set-up is to be.
#[derive(Debug, Default)]
pub(crate) struct SetUp<'a> {
    /// As whom the gateway is reached; none: from its own machine alone.
    pub(crate) hosts: &'a [Host],
    /// The namespace in which the gateway runs, where it runs in the cluster.
    pub(crate) in_cluster: Option<&'a Namespace>,
    /// Further namespaces whose service accounts are never asked about.
    pub(crate) exempt: &'a [Namespace],
    /// Which examples there are.
    pub(crate) examples: Examples,
    /// Whether the registrations are static manifests.
    pub(crate) is_static: bool,
    /// Whether the gateway watches the cluster.
    pub(crate) watch: bool,
    /// The manifests of what Kubernetes makes of RBAC by itself.
    pub(crate) builtin_roles: Option<File>,
}

/// The examples of a set-up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Examples {
    #[default]
    None,
    /// Policies, with Denies in mode Shadow: there may be a cluster to lock out.
    InShadow,
    /// Policies in force, RBAC, objects, a recording and a log to try each command with, and a
    /// console for this machine alone.
    InForce,
}

// === impl SetUp ===

impl SetUp<'_> {
    /// One to try things with, on this machine alone.
    pub(crate) fn development() -> Self {
        Self {
            examples: Examples::InForce,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests;
