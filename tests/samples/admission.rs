//! What makes the API server ask about writes: AdmissionConfigurations and
//! webhook registrations.

use std::path::{Path, PathBuf};

use portcullis_policy::manifest::{self, Source};
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

/// Each webhook of the registrations in `path`, with the kind of its registration.
fn webhooks(path: &Path) -> Vec<(String, Value)> {
    let source = Source {
        file: path.display().to_string(),
        text: project::text(path),
        cluster: None,
    };
    let (_, faults) = manifest::load(&[source], &manifest::Options::default());
    assert!(!faults.has_errors(), "{faults}");
    let mut webhooks = Vec::new();
    for document in project::documents(path) {
        let registration = document.root().to_json();
        for webhook in registration["webhooks"].as_array().unwrap() {
            webhooks.push((registration["kind"].as_str().unwrap().to_owned(), webhook.clone()));
        }
    }
    let names: Vec<&str> = webhooks
        .iter()
        .map(|(_, webhook)| webhook["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "mutate.portcullis.dev",
            "access-requests.portcullis.dev",
            "validate.portcullis.dev",
            "access-requests.portcullis.dev",
            "policies.portcullis.dev"
        ]
    );
    webhooks
}

/// Those that ask about everything but what is left out.
fn wide(path: &Path) -> Vec<(String, Value)> {
    let own = ["policies.portcullis.dev", "access-requests.portcullis.dev"];
    let is_wide = |(_, webhook): &(String, Value)| !own.contains(&webhook["name"].as_str().unwrap());
    webhooks(path).into_iter().filter(is_wide).collect()
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
fn registrations_leave_out_the_namespaces_in_which_a_gateway_is_recreated() {
    let set_up = SetUp::new();
    for (path, namespaces) in [
        (
            project::path("kubeconfig-examples/webhooks.yaml"),
            json!(["kube-system", "portcullis"]),
        ),
        (set_up.path("webhooks.yaml"), json!(["kube-system"])),
    ] {
        for (kind, webhook) in wide(&path) {
            let expected = json!({"matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": namespaces},
            ]});
            assert_eq!(webhook["namespaceSelector"], expected, "{kind}");
            assert_eq!(webhook["failurePolicy"], "Fail", "{kind}");
        }
    }
}

/// Resources as `group/resource[/subresource]` that no registration asks about: what a
/// cluster needs to live while no gateway answers, and what has its own registration.
const LEFT_OUT: [&str; 24] = [
    "authentication.k8s.io/tokenreviews",
    "authentication.k8s.io/selfsubjectreviews",
    "authorization.k8s.io/subjectaccessreviews",
    "authorization.k8s.io/localsubjectaccessreviews",
    "/events",
    "events.k8s.io/events",
    "coordination.k8s.io/leases",
    "/nodes",
    "/nodes/status",
    "storage.k8s.io/csinodes",
    "storage.k8s.io/volumeattachments",
    "storage.k8s.io/volumeattachments/status",
    "certificates.k8s.io/certificatesigningrequests",
    "certificates.k8s.io/certificatesigningrequests/approval",
    "/endpoints",
    "discovery.k8s.io/endpointslices",
    "/pods/status",
    "apps/deployments/status",
    "example.com/widgets/status",
    "/namespaces/finalize",
    "/pods/binding",
    "/serviceaccounts/token",
    "portcullis.dev/authorizationpolicies",
    "portcullis.dev/admissionexceptions",
];

/// Those next to them that it does ask about.
const ASKED_ABOUT: [&str; 18] = [
    "/pods",
    "/pods/exec",
    "/pods/eviction",
    "/nodes/proxy",
    "/serviceaccounts",
    "/namespaces",
    "/secrets",
    "apps/deployments",
    "apps/deployments/scale",
    "batch/jobs",
    "rbac.authorization.k8s.io/clusterroles",
    "apiextensions.k8s.io/customresourcedefinitions",
    "example.com/events",
    "example.com/nodes",
    "example.com/leases",
    "example.com/endpoints",
    "example.com/serviceaccounts/token",
    "storage.k8s.io/storageclasses",
];

/// A review of a request that creates this resource in the namespace `default`.
fn review(resource: &str) -> Value {
    let mut parts = resource.split('/');
    let (group, plural) = (parts.next().unwrap(), parts.next().unwrap());
    let mut request = json!({
        "uid": "1",
        "kind": {"group": group, "version": "v1", "kind": "Thing"},
        "resource": {"group": group, "version": "v1", "resource": plural},
        "name": "a", "namespace": "default", "operation": "CREATE", "userInfo": {"username": "jane"},
        "object": {"apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": {"name": "a", "namespace": "default"}},
    });
    if group == "portcullis.dev" {
        // What is written of these kinds is judged by the gateway itself, policies or not.
        request["operation"] = json!("DELETE");
        request["oldObject"] = request["object"].take();
    }
    if let Some(subresource) = parts.next() {
        request["subResource"] = json!(subresource);
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
}

#[test]
fn registrations_leave_out_only_what_a_cluster_needs_without_a_gateway() {
    let set_up = SetUp::new();
    let conditions = wide(&set_up.path("webhooks.yaml"))[0].1["matchConditions"].clone();
    for path in [
        project::path("kubeconfig-examples/webhooks.yaml"),
        set_up.path("webhooks.yaml"),
    ] {
        for (kind, webhook) in wide(&path) {
            assert_eq!(webhook["matchConditions"], conditions, "{kind}");
        }
    }
    // A policy of the same conditions that refuses whatever it is asked about.
    set_up.write_policy(&json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "asked"},
        "spec": {
            "matchConstraints": {"resourceRules": [
                {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"]},
            ]},
            "matchConditions": conditions,
            "validations": [{"expression": "false"}],
        },
    }));
    for resource in LEFT_OUT {
        assert!(set_up.admits(&review(resource)), "{resource}");
    }
    for resource in ASKED_ABOUT {
        assert!(!set_up.admits(&review(resource)), "{resource}");
    }
}

#[test]
fn a_bad_policy_can_be_removed_while_no_gateway_answers() {
    let set_up = SetUp::new();
    for path in [
        project::path("kubeconfig-examples/webhooks.yaml"),
        set_up.path("webhooks.yaml"),
    ] {
        let (_, webhook) = webhooks(&path).pop().unwrap();
        assert_eq!(webhook["failurePolicy"], "Ignore");
        assert_eq!(
            webhook["rules"],
            json!([{
                "apiGroups": ["portcullis.dev"],
                "apiVersions": ["*"],
                "resources": ["authorizationpolicies", "authorizationinvariants", "admissionexceptions"],
                "operations": ["CREATE", "UPDATE", "DELETE"],
                "scope": "*",
            }])
        );
        assert_eq!(webhook.get("matchConditions"), None);
    }
}

#[test]
fn access_requests_are_written_only_where_a_gateway_answers_both() {
    let set_up = SetUp::new();
    for path in [
        project::path("kubeconfig-examples/webhooks.yaml"),
        set_up.path("webhooks.yaml"),
    ] {
        let own = webhooks(&path).into_iter();
        let own: Vec<_> = own
            .filter(|(_, webhook)| webhook["name"] == "access-requests.portcullis.dev")
            .collect();
        let kinds: Vec<&str> = own.iter().map(|(kind, _)| kind.as_str()).collect();
        assert_eq!(
            kinds,
            ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]
        );
        for (_, webhook) in own {
            assert_eq!(webhook["failurePolicy"], "Fail");
            assert_eq!(
                webhook["rules"][0]["resources"],
                json!(["accessrequests", "accessrequests/status"])
            );
            assert_eq!(webhook["rules"][0]["operations"], json!(["CREATE", "UPDATE"]));
            for absent in ["matchConditions", "namespaceSelector", "objectSelector"] {
                assert_eq!(webhook.get(absent), None);
            }
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
