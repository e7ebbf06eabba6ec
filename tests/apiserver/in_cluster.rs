//! What `init --in-cluster` writes, installed as its README says.

use crate::control_plane::servers::{OWN_NAMESPACE, SetUp};
use crate::harness::folder::Folder;
use crate::scenario;
use serde_json::{Value, json};

pub(crate) fn kubectl_apply_k_installs_the_gateway_without_any_key_that_it_does_not_need() {
    let Some(servers) = scenario::shared() else { return };
    let folder = Folder::new("in-cluster");
    let set_up = SetUp::make(&folder.path().join("set-up"));
    let output = servers
        .cluster
        .kubectl("admin", &["apply", "-k", &set_up.path("")]);
    assert!(output.status.success(), "{output:?}");

    let get = |path: &str| -> Value {
        let response = servers.cluster.admin().get(path).unwrap();
        assert_eq!(response.status, 200, "{path}: {}", response.text());
        response.json()
    };
    let gateway = get(&format!(
        "/apis/apps/v1/namespaces/{OWN_NAMESPACE}/daemonsets/portcullis"
    ));
    let pod = &gateway["spec"]["template"]["spec"];
    assert_eq!(pod["hostNetwork"], json!(true));
    let mounts: Vec<&str> = pod["containers"][0]["volumeMounts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|mount| mount["mountPath"].as_str().unwrap())
        .collect();
    // Where the kubeconfigs and the configuration say that their files are.
    let paths = ["portcullis.yaml", "policies", "kubeconfigs", "pki"].map(|path| set_up.path(path));
    assert_eq!(mounts, paths);
    let secret = get(&format!(
        "/api/v1/namespaces/{OWN_NAMESPACE}/secrets/portcullis-pki"
    ));
    let keys: Vec<&String> = secret["data"].as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        [
            "admission.crt",
            "authorization.crt",
            "ca.crt",
            "server.crt",
            "server.key"
        ]
    );
}
