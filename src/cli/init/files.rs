//! The contents of a set-up's files.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::File;
use super::host::Host;
use super::pki::{Authority, Pair, Usage};
use crate::cli::Error;

/// The gateway's configuration, by whose presence a set-up is known.
pub(in crate::cli) const CONFIGURATION: &str = "portcullis.yaml";

const PORT: u16 = 8443;

/// The examples of `config/policies`; a set-up gets each of them.
const POLICIES: &[(&str, &str)] = &[
    (
        "policies/agents-own-node.yaml",
        include_str!("../../../config/policies/agents-own-node.yaml"),
    ),
    (
        "policies/discovery.yaml",
        include_str!("../../../config/policies/discovery.yaml"),
    ),
    (
        "policies/exec-trial.yaml",
        include_str!("../../../config/policies/exec-trial.yaml"),
    ),
    (
        "policies/own-tokens.yaml",
        include_str!("../../../config/policies/own-tokens.yaml"),
    ),
    (
        "policies/production-guard.yaml",
        include_str!("../../../config/policies/production-guard.yaml"),
    ),
    (
        "policies/team-readers.yaml",
        include_str!("../../../config/policies/team-readers.yaml"),
    ),
];

/// Every file of a set-up that lies in `directory` and is reached as `hosts`.
/// Keys are new each time; `now` is in seconds since 1970.
///
/// # Errors
///
/// No key or certificate can be made.
pub(super) fn compose(directory: &Path, hosts: &[Host], now: i64) -> Result<Vec<File>, Error> {
    let names = with_loopback(hosts);
    let authority = Authority::new("portcullis-ca", now)?;
    let ca = authority.pair()?;
    let server = authority.issue("portcullis", &Usage::Server(&names))?;
    let authorization = authority.issue("kube-apiserver-authorization", &Usage::Client)?;
    let admission = authority.issue("kube-apiserver-admission", &Usage::Client)?;

    let url_hosts = if hosts.is_empty() {
        names.get(..1).unwrap_or_default()
    } else {
        hosts
    };
    let fill = Filling::new(directory, url_hosts, &ca);
    let mut files = vec![
        secret(
            "kubeconfigs/authorization.kubeconfig",
            fill.authorization_kubeconfig(&authorization),
        ),
        secret(
            "kubeconfigs/admission.kubeconfig",
            admission_kubeconfig(url_hosts, &admission),
        ),
        open(
            "authorization-configuration.yaml",
            fill.template(include_str!("templates/authorization-configuration.yaml")),
        ),
        open(
            "admission-configuration.yaml",
            fill.template(include_str!("templates/admission-configuration.yaml")),
        ),
        open(
            "webhooks.yaml",
            fill.template(include_str!("templates/webhooks.yaml")),
        ),
        open("README.md", fill.template(include_str!("templates/README.md"))),
        // Whoever keeps this folder in git keeps its secrets out of it.
        open(".gitignore", "*.key\n*.kubeconfig\n"),
    ];
    files.extend(key_files(ca, server, authorization, admission));
    files.extend(POLICIES.iter().map(|(path, contents)| open(path, *contents)));
    files.push(open(
        CONFIGURATION,
        fill.template(include_str!("templates/portcullis.yaml")),
    ));
    Ok(files)
}

fn key_files(ca: Pair, server: Pair, authorization: Pair, admission: Pair) -> [File; 8] {
    [
        open("pki/ca.crt", ca.certificate),
        secret("pki/ca.key", ca.key),
        open("pki/server.crt", server.certificate),
        secret("pki/server.key", server.key),
        open("pki/authorization.crt", authorization.certificate),
        secret("pki/authorization.key", authorization.key),
        open("pki/admission.crt", admission.certificate),
        secret("pki/admission.key", admission.key),
    ]
}

fn open(path: &'static str, contents: impl Into<Vec<u8>>) -> File {
    File {
        path,
        contents: contents.into(),
        secret: false,
    }
}

fn secret(path: &'static str, contents: impl Into<Vec<u8>>) -> File {
    File {
        path,
        contents: contents.into(),
        secret: true,
    }
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
fn admission_kubeconfig(hosts: &[Host], pair: &Pair) -> String {
    let certificate = STANDARD.encode(&pair.certificate);
    let key = STANDARD.encode(&pair.key);
    let mut text = include_str!("templates/admission.kubeconfig").to_owned();
    for host in hosts {
        let _ = write!(
            text,
            "- name: \"{host}:{PORT}\"\n  user:\n    client-certificate-data: {certificate}\n    client-key-data: {key}\n",
        );
    }
    text
}

/// What templates leave open, as pairs of `{{name}}` and value.
struct Filling<'a> {
    directory: &'a Path,
    values: Vec<(&'static str, String)>,
}

// === impl Filling ===

impl<'a> Filling<'a> {
    fn new(directory: &'a Path, hosts: &[Host], ca: &Pair) -> Self {
        let listed: Vec<String> = hosts.iter().map(|host| format!("`{host}`")).collect();
        let values = vec![
            (
                "{{host}}",
                hosts.first().map(ToString::to_string).unwrap_or_default(),
            ),
            ("{{hosts}}", listed.join(", ")),
            ("{{listen}}", listen(hosts)),
            ("{{ca}}", STANDARD.encode(&ca.certificate)),
        ];
        Self { directory, values }
    }

    fn template(&self, template: &str) -> String {
        let mut text = template.to_owned();
        for (name, value) in &self.values {
            text = text.replace(name, value);
        }
        for path in [
            "kubeconfigs/authorization.kubeconfig",
            "kubeconfigs/admission.kubeconfig",
        ] {
            text = text.replace(
                &format!("{{{{directory:{path}}}}}"),
                &quoted(&self.directory.join(path)),
            );
        }
        text
    }

    fn authorization_kubeconfig(&self, pair: &Pair) -> String {
        self.template(include_str!("templates/authorization.kubeconfig"))
            .replace("{{certificate}}", &STANDARD.encode(&pair.certificate))
            .replace("{{key}}", &STANDARD.encode(&pair.key))
    }
}

/// As a YAML double-quoted scalar: JSON's strings are a subset of those.
fn quoted(path: &Path) -> String {
    serde_json::Value::from(path.to_string_lossy()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(names: &[&str]) -> Vec<Host> {
        names.iter().map(|name| name.parse().unwrap()).collect()
    }

    fn text(hosts: &[Host], path: &str) -> String {
        let files = compose(Path::new("/srv/gate \"way\""), hosts, 1_790_000_000).unwrap();
        let file = files.into_iter().find(|file| file.path == path).unwrap();
        String::from_utf8(file.contents).unwrap()
    }

    #[test]
    fn no_template_keeps_a_gap() {
        for file in compose(Path::new("/srv"), &hosts(&["a.example.com"]), 1_790_000_000).unwrap() {
            let text = String::from_utf8(file.contents).unwrap();
            assert!(!text.contains("{{"), "{}", file.path);
        }
    }

    #[test]
    fn keys_and_kubeconfigs_are_secret_and_nothing_else() {
        for file in compose(Path::new("/srv"), &[], 1_790_000_000).unwrap() {
            let holds_key = file.path.ends_with(".key") || file.path.ends_with(".kubeconfig");
            assert_eq!(file.secret, holds_key, "{}", file.path);
        }
    }

    #[test]
    fn every_yaml_file_can_be_read_whatever_the_folder_is_called() {
        for file in compose(
            Path::new("/srv/gate \"way\": x"),
            &hosts(&["a.example.com", "::1"]),
            1_790_000_000,
        )
        .unwrap()
        {
            if !file.path.ends_with(".yaml") && !file.path.ends_with(".kubeconfig") {
                continue;
            }
            let text = String::from_utf8(file.contents).unwrap();
            let documents = crate::document::parse(Some(file.path), &text).unwrap();
            assert!(!documents.is_empty(), "{}", file.path);
        }
    }

    #[test]
    fn the_configuration_comes_last() {
        let files = compose(Path::new("/srv"), &[], 1_790_000_000).unwrap();
        assert_eq!(files.last().unwrap().path, CONFIGURATION);
    }

    #[test]
    fn the_gateway_listens_where_its_hosts_are() {
        assert_eq!(listen(&hosts(&["localhost", "127.0.0.1"])), "127.0.0.1:8443");
        assert_eq!(listen(&hosts(&["localhost", "a.example.com"])), "0.0.0.0:8443");
        assert_eq!(listen(&hosts(&["fd00::1"])), "[::]:8443");
    }

    #[test]
    fn admission_credentials_are_found_by_host_and_port() {
        let kubeconfig = text(
            &hosts(&["a.example.com", "::1"]),
            "kubeconfigs/admission.kubeconfig",
        );
        assert!(kubeconfig.contains("- name: \"a.example.com:8443\""));
        assert!(kubeconfig.contains("- name: \"[::1]:8443\""));
    }
}
