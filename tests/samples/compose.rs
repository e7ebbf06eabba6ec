//! docker-compose.yml: the gateway, and the webhook behind it.

use std::process::Command;

use portcullis::config;
use serde_json::Value;

use crate::project;

fn services() -> Value {
    project::documents(&project::path("docker-compose.yml"))[0]
        .root()
        .to_json()["services"]
        .clone()
}

fn texts(list: &Value) -> Vec<&str> {
    let list = list.as_array().unwrap();
    list.iter().map(|item| item.as_str().unwrap()).collect()
}

/// Where a path of the project is in the gateway's container.
fn mounted(services: &Value, inside: &str) -> std::path::PathBuf {
    let volumes = texts(&services["gateway"]["volumes"]);
    let parts = volumes.iter().map(|volume| volume.split(':').collect::<Vec<_>>());
    let outside = parts
        .filter(|parts| parts[1] == inside)
        .map(|parts| parts[0])
        .next();
    project::path(outside.unwrap().trim_start_matches("./"))
}

#[test]
fn the_gateway_has_a_sound_configuration_with_what_init_makes() {
    let services = services();
    let command = texts(&services["gateway"]["command"]);
    let (config, faults) = config::load(&mounted(&services, command[2]));
    assert_eq!(faults.to_string(), "");
    let config = config.unwrap();
    let made = |service: &str| texts(&services[service]["command"])[1].to_owned();
    assert!(config.server.tls.certificate.starts_with(made("init")));
    let authority = config.upstreams.ca_bundle.as_ref().unwrap();
    assert!(authority.starts_with(made("init-webhook")));
    let webhooks = mounted(&services, "/etc/portcullis/webhooks");
    assert_eq!(
        config.manifests[1].path.to_str(),
        Some("/etc/portcullis/webhooks")
    );
    project::sound_manifests(&project::files(&webhooks, ".yaml"));
}

#[test]
fn the_webhook_is_at_the_address_of_its_configuration_and_certificate() {
    let services = services();
    let file = mounted(&services, "/etc/portcullis/webhooks").join("agnhost.yaml");
    for document in project::documents(&file) {
        let manifest = document.root().to_json();
        let url = manifest["webhooks"][0]["clientConfig"]["url"].as_str().unwrap();
        let (host, port) = url["https://".len()..]
            .split('/')
            .next()
            .unwrap()
            .split_once(':')
            .unwrap();
        assert!(texts(&services["init-webhook"]["command"]).ends_with(&["--host", host]));
        assert!(texts(&services[host]["command"]).contains(&format!("--port={port}").as_str()));
    }
}

#[test]
fn the_cases_of_the_webhook_pass() {
    let run = Command::new(env!("CARGO_BIN_EXE_portcullis"))
        .arg("test")
        .arg(project::path("config/examples/webhooks"))
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
}
