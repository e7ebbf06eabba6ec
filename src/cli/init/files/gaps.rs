//! What the templates leave open, filled in for one set-up.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::set_up::{PORT, SetUp};
use crate::cli::init::fill::Filling;
use crate::cli::init::host::Host;
use crate::cli::init::pki::Pair;
use crate::cli::output;

/// The hosts that stand in URLs: those that were named, else this machine.
pub(crate) fn url_hosts<'a>(hosts: &'a [Host], names: &'a [Host]) -> &'a [Host] {
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
pub(crate) fn filling<'a>(directory: &'a Path, set_up: &SetUp<'_>, hosts: &[Host], ca: &Pair) -> Filling<'a> {
    let listed: Vec<String> = hosts.iter().map(|host| format!("`{host}`")).collect();
    let host = hosts.first().map(ToString::to_string).unwrap_or_default();
    let name = if set_up.is_static {
        "portcullis.static.k8s.io"
    } else {
        "portcullis"
    };
    let plugin = |kind| {
        if set_up.is_static {
            include_str!("../templates/static/admission.yaml").replace("KIND", kind)
        } else {
            String::new()
        }
    };
    let values = vec![
        ("put-to-use", put_to_use(set_up).to_owned()),
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
    Filling::new(directory, values)
}

/// What the registrations leave out by what is asked.
fn match_conditions(set_up: &SetUp<'_>) -> String {
    let mut conditions = include_str!("../templates/match-conditions.yaml").to_owned();
    if set_up.is_static {
        conditions.push_str(include_str!("../templates/static/match-conditions.yaml"));
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
        include_str!("../templates/in-cluster/put-to-use.md")
    } else {
        include_str!("../templates/put-to-use.md")
    }
}
