//! The contents of a set-up's files.

mod gaps;
mod set_up;

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use super::File;
use super::fill::{Filling, quoted};
use super::host::Host;
use super::pki::{Authority, Pair, Usage};
use super::policies;
use crate::cli::Error;
use gaps::{filling, url_hosts};
use set_up::PORT;
pub(crate) use set_up::SetUp;

/// The gateway's configuration, by whose presence a set-up is known.
pub(crate) const CONFIGURATION: &str = "portcullis.yaml";

/// The certificates of a set-up: where each is, with its key, and who signs anew.
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
pub(crate) fn compose(directory: &Path, set_up: &SetUp<'_>, now: i64) -> Result<Vec<File>, Error> {
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
    let mut configuration = filling.fill(include_str!("templates/portcullis.yaml"));
    for line in include_str!("templates/console.yaml").lines() {
        // Otherwise it is there to be uncommented.
        let is_off = !set_up.console && !line.starts_with('#');
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

#[cfg(test)]
mod tests;
