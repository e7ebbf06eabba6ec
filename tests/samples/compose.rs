//! docker-compose.yml: the gateway, and the webhook behind it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
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
    let authority = config.upstreams.access.ca_bundle.as_ref().unwrap();
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

/// The volumes of a service by the places where it sees them.
fn volumes<'s>(services: &'s Value, service: &str) -> Vec<(&'s str, &'s str)> {
    let volumes = services[service]["volumes"].as_array().map(Vec::as_slice);
    let texts = volumes
        .unwrap_or_default()
        .iter()
        .map(|volume| volume.as_str().unwrap());
    texts
        .map(|volume| {
            let mut parts = volume.split(':');
            (parts.next().unwrap(), parts.next().unwrap())
        })
        .collect()
}

/// What is in a folder, by the path from there.
fn contents(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().to_str().unwrap();
                found.insert(name.to_owned());
            }
        }
    }
    found
}

#[test]
fn no_service_that_listens_sees_all_of_the_set_up() {
    let services = services();
    for (service, _) in services.as_object().unwrap() {
        let sees_state = volumes(&services, service)
            .iter()
            .any(|(volume, _)| *volume == "state");
        let is_over_soon = services[service]["network_mode"] == "none";
        assert!(!sees_state || is_over_soon, "{service}");
    }
    let own = |service| volumes(&services, service)[0];
    assert_eq!(own("webhook"), ("webhook", "/etc/webhook"));
    assert_eq!(own("gateway"), ("gateway", "/var/lib/portcullis"));
    assert_eq!(volumes(&services, "webhook").len(), 1);
}

/// Makes the set-ups as the services do, and runs what `place` runs, in folders of the test.
#[test]
fn each_service_gets_the_files_that_it_needs_and_no_other_key() {
    let services = services();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for volume in ["state", "gateway", "webhook"] {
        fs::create_dir(path(volume)).unwrap();
    }
    for service in ["init", "init-webhook"] {
        let arguments = texts(&services[service]["command"]);
        let made = arguments[1].rsplit('/').next().unwrap();
        let run = Command::new(env!("CARGO_BIN_EXE_portcullis"))
            .arg("init")
            .arg(path("state").join(made))
            .args(&arguments[2..])
            .output()
            .unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    }
    let command = texts(&services["place"]["command"]);
    let mut script = command[2].replace("chown -R 65532:65532", ": ");
    for volume in ["state", "gateway", "webhook"] {
        let inside = format!(" /{volume}");
        script = script.replace(&inside, &format!(" {}", path(volume).display()));
    }
    let run = Command::new("sh").args(["-ec", &script]).output().unwrap();
    assert!(
        run.status.success(),
        "{script}\n{}",
        String::from_utf8_lossy(&run.stderr)
    );

    let webhook: Vec<_> = contents(&path("webhook")).into_iter().collect();
    assert_eq!(webhook, ["server.crt", "server.key"]);
    let gateway = contents(&path("gateway"));
    let keys: Vec<_> = gateway.iter().filter(|name| name.ends_with(".key")).collect();
    assert_eq!(keys, ["gateway/pki/server.key"]);
    let (config, _) = config::load(&mounted(&services, texts(&services["gateway"]["command"])[2]));
    let config = config.unwrap();
    let tls = &config.server.tls;
    let named = [&tls.certificate, &tls.private_key]
        .into_iter()
        .chain(&tls.client_ca);
    let kubeconfigs = config
        .callers
        .iter()
        .filter_map(|caller| caller.kubeconfig.as_ref());
    for file in named.chain(&config.upstreams.access.ca_bundle).chain(kubeconfigs) {
        let inside = file.strip_prefix("/var/lib/portcullis").unwrap();
        assert!(gateway.contains(inside.to_str().unwrap()), "{}", inside.display());
    }
    let certificates = ["gateway/pki/authorization.crt", "gateway/pki/admission.crt"];
    assert!(
        certificates.iter().all(|name| gateway.contains(*name)),
        "{gateway:?}"
    );
    assert!(gateway.iter().any(|name| name.starts_with("gateway/policies/")));
}
