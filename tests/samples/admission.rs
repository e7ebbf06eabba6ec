//! What makes the API server ask about writes: AdmissionConfigurations and
//! webhook registrations.

use std::path::{Path, PathBuf};

use portcullis::manifest::{self, Source};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::project::{self, ON_API_SERVER, SetUp};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AdmissionConfiguration {
    api_version: String,
    kind: String,
    plugins: Vec<Plugin>,
}

#[derive(Deserialize)]
struct Plugin {
    name: String,
    configuration: WebhookAdmission,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WebhookAdmission {
    api_version: String,
    kind: String,
    kube_config_file: PathBuf,
}

/// The kubeconfigs that both plugins name.
fn kubeconfigs(path: &Path) -> Vec<PathBuf> {
    let configuration: AdmissionConfiguration = project::decode(path);
    assert_eq!(configuration.api_version, "apiserver.config.k8s.io/v1");
    assert_eq!(configuration.kind, "AdmissionConfiguration");
    let mut names: Vec<&str> = configuration
        .plugins
        .iter()
        .map(|plugin| plugin.name.as_str())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"]);
    for plugin in &configuration.plugins {
        assert_eq!(plugin.configuration.api_version, "apiserver.config.k8s.io/v1");
        assert_eq!(plugin.configuration.kind, "WebhookAdmissionConfiguration");
        assert!(plugin.configuration.kube_config_file.is_absolute());
    }
    configuration
        .plugins
        .into_iter()
        .map(|plugin| plugin.configuration.kube_config_file)
        .collect()
}

#[test]
fn admission_configurations_name_a_kubeconfig_that_is_there() {
    let set_up = SetUp::new();
    for file in kubeconfigs(&set_up.path("admission-configuration.yaml")) {
        assert!(file.is_file(), "{}", file.display());
    }
    for file in kubeconfigs(&project::path("kubeconfig-examples/admission-configuration.yaml")) {
        let name = file.strip_prefix(ON_API_SERVER).unwrap();
        assert!(
            project::path("kubeconfig-examples").join(name).is_file(),
            "{}",
            file.display()
        );
    }
}

/// The only webhook of each registration in `path`, by its kind.
fn webhooks(path: &Path) -> Vec<(String, Value)> {
    let documents = project::documents(path);
    let source = Source {
        file: path.display().to_string(),
        text: project::text(path),
        cluster: None,
    };
    let (_, faults) = manifest::load(&[source], &manifest::Options::default());
    assert!(!faults.has_errors(), "{faults}");
    let registrations: Vec<Value> = documents
        .iter()
        .map(|document| document.root().to_json())
        .collect();
    let kinds: Vec<&Value> = registrations
        .iter()
        .map(|registration| &registration["kind"])
        .collect();
    assert_eq!(
        kinds,
        ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]
    );
    registrations
        .into_iter()
        .map(|registration| {
            assert_eq!(registration["webhooks"].as_array().unwrap().len(), 1);
            (
                registration["kind"].as_str().unwrap().to_owned(),
                registration["webhooks"][0].clone(),
            )
        })
        .collect()
}

/// The users of an admission kubeconfig, which are called as the hosts they are for.
fn hosts(path: &Path) -> Vec<String> {
    let kubeconfig = project::documents(path)[0].root().to_json();
    let users = kubeconfig["users"].as_array().unwrap();
    users
        .iter()
        .map(|user| user["name"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn registrations_leave_out_what_must_go_on_without_a_gateway() {
    let set_up = SetUp::new();
    for path in [
        project::path("kubeconfig-examples/webhooks.yaml"),
        set_up.path("webhooks.yaml"),
    ] {
        for (kind, webhook) in webhooks(&path) {
            let excluded = &webhook["namespaceSelector"]["matchExpressions"][0];
            assert_eq!(excluded["key"], "kubernetes.io/metadata.name", "{kind}");
            assert_eq!(excluded["operator"], "NotIn", "{kind}");
            assert!(
                excluded["values"]
                    .as_array()
                    .unwrap()
                    .contains(&json!("kube-system")),
                "{kind}"
            );
            let condition = webhook["matchConditions"][0]["expression"].as_str().unwrap();
            assert!(
                condition.contains("'coordination.k8s.io'") && condition.contains("'leases'"),
                "{kind}"
            );
        }
    }
}

#[test]
fn registrations_lead_to_an_endpoint_for_which_there_are_credentials() {
    let set_up = SetUp::new();
    for (path, kubeconfig) in [
        (
            project::path("kubeconfig-examples/webhooks.yaml"),
            project::path("kubeconfig-examples/admission.kubeconfig"),
        ),
        (
            set_up.path("webhooks.yaml"),
            set_up.path("kubeconfigs/admission.kubeconfig"),
        ),
    ] {
        for (kind, webhook) in webhooks(&path) {
            let endpoint = if kind.starts_with("Mutating") {
                "mutate"
            } else {
                "validate"
            };
            let url = webhook["clientConfig"]["url"].as_str().unwrap();
            let (host, path) = url.strip_prefix("https://").unwrap().split_once('/').unwrap();
            assert_eq!(path, endpoint);
            assert!(hosts(&kubeconfig).contains(&host.to_owned()), "{host}");
        }
    }
}
