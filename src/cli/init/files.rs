//! The files of a set-up, and the templates for them.
//!
//! In a template, `{{name}}` is replaced by a value, and `{{path:FILE}}` by the absolute path of a
//! file of the set-up, quoted for YAML.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::pki::{Authority, Host, Pair, Usage};
use super::platform::{
    ADMISSION, ADMISSION_NAME, AUTHORITY, AUTHORIZATION, AUTHORIZATION_NAME, CONFIGURATION, Examples, File,
    PORT, SERVER, SERVER_NAME, SetUp, TRUSTED, TemplateValues, quoted,
};
use super::watch;
use crate::cli::output::{self, CommandError};

/// All files of `set_up` in `directory`, the configuration last. Keys are new each time. `now` is
/// in seconds since 1970.
///
/// # Errors
///
/// A key or certificate cannot be made.
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
    let filling = template_values(directory, set_up, url_hosts(set_up.hosts, &names), &ca);
    files.extend(AUTHORITY.files(ca));
    files.extend(for_the_api_server(
        directory,
        set_up,
        url_hosts(set_up.hosts, &names),
        &filling,
    ));
    if let Some(platform) = set_up.platform {
        let of_platform = platform.files(&files, &filling);
        files.extend(of_platform);
    }
    // Creates the folder even if there is no policy.
    files.push(File::open(
        "policies/README.md",
        include_str!("templates/policies.md"),
    ));
    files.extend(examples(set_up.examples));
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
    // Keeps private keys out of git.
    files.push(File::open(".gitignore", "*.key\n"));
    let mut configuration = filling.fill(include_str!("templates/portcullis.yaml"));
    for line in include_str!("templates/console.yaml").lines() {
        // Otherwise the console is commented out.
        let is_off = set_up.examples != Examples::InForce && !line.starts_with('#');
        configuration.push_str(if is_off { "# " } else { "" });
        configuration.push_str(line);
        configuration.push('\n');
    }
    files.push(File::open(CONFIGURATION, configuration));
    Ok(files)
}

/// The files that kube-apiserver reads, and the webhook configurations.
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
    files.extend(webhook_configurations(set_up.is_static, filling));
    files
}

/// The webhook configurations, to be applied with kubectl or, if static, read by the API server
/// from files.
fn webhook_configurations(is_static: bool, filling: &TemplateValues<'_>) -> Vec<File> {
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

/// The manifests for `kubectl apply -k`. `files` are the other files of the set-up.
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

/// `hosts` and the names of loopback, without duplicates.
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

/// The kubeconfig for webhooks, in which the API server looks up users by host and port.
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

/// The hosts for URLs: `hosts`, or otherwise the first of `names`.
fn url_hosts<'a>(hosts: &'a [Host], names: &'a [Host]) -> &'a [Host] {
    if hosts.is_empty() {
        names.get(..1).unwrap_or_default()
    } else {
        hosts
    }
}

/// The address to listen on: all addresses of the machine, unless `hosts` are only loopback ones.
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

/// The values for the templates of `set_up`.
fn template_values<'a>(
    directory: &'a Path,
    set_up: &SetUp<'_>,
    hosts: &[Host],
    ca: &Pair,
) -> TemplateValues<'a> {
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
        ("registered", webhooks_readme_line(set_up).to_owned()),
        ("directory", output::argument(directory)),
        ("match-conditions", match_conditions(set_up)),
        ("static-validating", plugin("validating")),
        ("static-mutating", plugin("mutating")),
        ("exempt", exempt(set_up)),
        ("namespaces", excluded_namespaces(set_up).join(", ")),
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

/// The `matchConditions` of the webhook configurations, which exclude requests.
fn match_conditions(set_up: &SetUp<'_>) -> String {
    let mut conditions = include_str!("templates/match-conditions.yaml").to_owned();
    if set_up.is_static {
        conditions.push_str(include_str!("templates/static/match-conditions.yaml"));
    }
    conditions
}

/// The namespaces that the webhook configurations exclude.
fn excluded_namespaces(set_up: &SetUp<'_>) -> Vec<String> {
    let mut names = vec!["kube-system".to_owned()];
    names.extend(set_up.in_cluster.map(ToString::to_string));
    names.dedup();
    names
}

/// The `matchConditions` that exclude service accounts of the gateway's own namespace and of those
/// in `--exempt-namespace`.
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

/// The line of the README on how to put the webhook configurations into force.
const fn webhooks_readme_line(set_up: &SetUp<'_>) -> &'static str {
    if set_up.is_static {
        "| `static/` | read by the API server (1.37 and later), as `admission-configuration.yaml` says. If \
        you applied a `webhooks.yaml` before, delete those webhook configurations, or the gateway gets each \
        request twice |"
    } else {
        "| `webhooks.yaml` | `kubectl apply -f webhooks.yaml`, once the gateway serves |"
    }
}

/// The section of the README on how to run the gateway.
const fn put_to_use(set_up: &SetUp<'_>) -> &'static str {
    if set_up.in_cluster.is_some() {
        include_str!("templates/in-cluster/put-to-use.md")
    } else {
        include_str!("templates/put-to-use.md")
    }
}

/// `text`, if the gateway watches its cluster; otherwise empty.
fn if_watched(set_up: &SetUp<'_>, text: &str) -> String {
    if set_up.watch {
        text.to_owned()
    } else {
        String::new()
    }
}

/// The line of the README about the files of `--watch`.
const WATCHED: &str = "| `cluster/` | `kubectl apply -k cluster`; the gateway, to watch the cluster |\n";

/// The section of the README on how to let the gateway watch the cluster, unless it runs in the
/// cluster.
const fn to_watch(set_up: &SetUp<'_>) -> &'static str {
    if set_up.watch && set_up.in_cluster.is_none() {
        include_str!("templates/watch/put-to-use.md")
    } else {
        ""
    }
}

/// An example policy with its test suites.
struct Example {
    path: &'static str,
    text: &'static str,
    suite_path: &'static str,
    /// The suite for the policy as it is, and the one for its Denies in mode Shadow.
    suite: &'static str,
    shadow_suite: &'static str,
}

macro_rules! example {
    ($name:literal, $suite:expr) => {
        Example {
            path: concat!("policies/", $name, ".yaml"),
            text: include_str!(concat!("../../../config/policies/", $name, ".yaml")),
            suite_path: concat!("policies/", $name, "_test.yaml"),
            suite: include_str!(concat!("../../../config/policies/", $name, "_test.yaml")),
            shadow_suite: include_str!($suite),
        }
    };
}

const EXAMPLE_POLICIES: [Example; 7] = [
    example!("agents-own-node", "templates/suites/agents-own-node_test.yaml"),
    example!("contractors", "../../../config/policies/contractors_test.yaml"),
    example!("discovery", "../../../config/policies/discovery_test.yaml"),
    example!("exec-trial", "../../../config/policies/exec-trial_test.yaml"),
    example!("own-tokens", "templates/suites/own-tokens_test.yaml"),
    example!("production-guard", "templates/suites/production-guard_test.yaml"),
    example!("team-readers", "../../../config/policies/team-readers_test.yaml"),
];

/// The line that makes a policy deny, and the lines that follow it in mode Shadow.
const DENY: &str = "  effect: Deny\n";
const SHADOW: &str =
    "  # Evaluated, logged and counted, but not enforced: remove this line to enforce it.\n  mode: Shadow\n";

macro_rules! development {
    ($($path:literal),+ $(,)?) => {
        [$(($path, include_str!(concat!("templates/development/", $path)))),+]
    };
}

/// Further files of a development set-up.
const DEVELOPMENT: [(&str, &str); 11] = development![
    "policies/developers.yaml",
    "policies/images.yaml",
    "policies/namespaces.yaml",
    "examples/README.md",
    "examples/deployment.yaml",
    "examples/chart.yaml",
    "examples/kyverno.yaml",
    "examples/main.yaml",
    "examples/pull-request.yaml",
    "examples/decisions.log",
    "examples/recording.jsonl",
];

/// The example policies with their suites, and in a development set-up also objects, logs and
/// recordings to try commands with.
pub(crate) fn examples(which: Examples) -> Vec<File> {
    let policies = EXAMPLE_POLICIES.iter().flat_map(|example| {
        let (text, suite) = match which {
            Examples::InForce => (example.text.to_owned(), example.suite),
            _ => (with_denies_in_shadow(example.text), example.shadow_suite),
        };
        [
            File::open(example.path, text),
            File::open(example.suite_path, suite),
        ]
    });
    let development = DEVELOPMENT.iter().map(|(path, text)| File::open(path, *text));
    match which {
        Examples::None => Vec::new(),
        Examples::InShadow => policies.collect(),
        Examples::InForce => policies.chain(development).collect(),
    }
}

/// `policy`, with its Denies in mode Shadow.
fn with_denies_in_shadow(policy: &str) -> String {
    if policy.contains("  mode: Shadow\n") {
        return policy.to_owned();
    }
    policy.replace(DENY, &format!("{DENY}{SHADOW}"))
}

#[cfg(test)]
mod tests;
