//! Kubeconfigs, read as the gateway reads them.

use std::io;
use std::path::{Path, PathBuf};

use portcullis::config::Files;
use portcullis::config::kubeconfig::client::{by_host, of_context};
use portcullis::config::kubeconfig::{self, Kubeconfig};
use serde_json::Value;

use crate::project::{self, ON_API_SERVER, SetUp};

/// The API server's machine: the certificates of a set-up, under the examples' names.
struct ApiServer<'a>(&'a SetUp);

impl Files for ApiServer<'_> {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        if path == Path::new(ON_API_SERVER).join("authorization.token") {
            return Ok(b"a-token\n".to_vec());
        }
        match path.strip_prefix(ON_API_SERVER) {
            Ok(name) => std::fs::read(self.0.path("pki").join(name)),
            Err(_) => std::fs::read(path),
        }
    }
}

fn valid(set_up: &SetUp, path: &Path) -> Kubeconfig {
    let (kubeconfig, faults) = kubeconfig::read(&ApiServer(set_up), path);
    assert_eq!(faults.to_string(), "", "{}", path.display());
    assert!(!kubeconfig.users.is_empty(), "{}", path.display());
    kubeconfig
}

fn example(name: &str) -> PathBuf {
    project::path("kubeconfig-examples").join(name)
}

#[test]
fn every_example_names_users_that_the_gateway_accepts() {
    let set_up = SetUp::new();
    for file in project::files(&project::path("kubeconfig-examples"), ".kubeconfig") {
        if !file.ends_with("upstreams.kubeconfig") {
            valid(&set_up, &file);
        }
    }
}

#[test]
fn the_example_for_webhooks_behind_the_gateway_has_each_way_to_name_and_to_show() {
    /// The gateway's machine.
    struct Machine;
    impl Files for Machine {
        fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
            if path.starts_with("/etc/portcullis") {
                return Ok(b"PEM or token".to_vec());
            }
            std::fs::read(path)
        }
    }
    let (hosts, faults) = by_host(&Machine, &example("upstreams.kubeconfig"));
    assert_eq!(faults.to_string(), "");
    let shown = |target: &str| hosts.user_for(target);
    assert!(shown("policy.infra.svc:443").is_some_and(|user| user.certificate.is_some()));
    assert!(shown("any.tools.svc:8443").is_some_and(|user| user.bearer.is_some()));
    assert!(shown("hooks.example.com:9443").is_some_and(|user| user.basic.is_some()));
    assert!(shown("hooks.example.com:443").is_none());
}

#[test]
fn a_set_up_s_kubeconfigs_lead_to_their_certificates() {
    let set_up = SetUp::new();
    for file in project::files(&set_up.path("kubeconfigs"), ".kubeconfig") {
        let kubeconfig = valid(&set_up, &file);
        assert!(
            kubeconfig.users.iter().all(|user| user.certificate.is_some()),
            "{}",
            file.display()
        );
    }
}

#[test]
fn the_examples_show_a_certificate_and_a_token() {
    let set_up = SetUp::new();
    let by_certificate = valid(&set_up, &example("authorization-by-certificate.kubeconfig"));
    assert!(by_certificate.users[0].certificate.is_some());
    let by_token = valid(&set_up, &example("authorization-by-token.kubeconfig"));
    assert!(by_token.users[0].file_token.is_some());
}

/// The API server takes the user of the current context, and posts to the cluster's URL as it is.
#[test]
fn authorization_kubeconfigs_lead_to_the_endpoint() {
    let set_up = SetUp::new();
    for path in [
        example("authorization-by-certificate.kubeconfig"),
        example("authorization-by-token.kubeconfig"),
        set_up.path("kubeconfigs/authorization.kubeconfig"),
    ] {
        let kubeconfig = project::documents(&path)[0].root().to_json();
        let named = |list: &str, name: &Value| {
            let items = kubeconfig[list].as_array().unwrap();
            items
                .iter()
                .find(|item| item["name"] == *name)
                .unwrap_or_else(|| panic!("no {name} in {list}"))
        };
        let context = &named("contexts", &kubeconfig["current-context"])["context"];
        named("users", &context["user"]);
        let cluster = &named("clusters", &context["cluster"])["cluster"];
        assert_eq!(cluster["server"], "https://portcullis.example.com:8443/authorize");
    }
}

/// A machine on which every file is there that an example names.
struct Anywhere;

impl Files for Anywhere {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(path).or_else(|_| Ok(b"content\n".to_vec()))
    }
}

#[test]
fn the_example_of_another_authorizer_leads_to_it() {
    let path = project::path("config/kubeconfigs/other-authorizer.kubeconfig");
    let (context, _, faults) = of_context(&Anywhere, &path);
    assert_eq!(faults.to_string(), "");
    let context = context.unwrap();
    assert_eq!(context.cluster.server, "https://authorizer.example.com/authorize");
    assert!(context.user.unwrap().bearer.is_some());
}
