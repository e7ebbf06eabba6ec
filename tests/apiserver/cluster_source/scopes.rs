//! Custom resources without namespace, as their definitions say.

use super::servers;
use crate::harness::eventually;
use serde_json::{Value, json};

fn definition(scope: &str) -> String {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "regions.scopes.example.com"},
        "spec": {
            "group": "scopes.example.com",
            "scope": scope,
            "names": {"plural": "regions", "singular": "region", "kind": "Region", "listKind": "RegionList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    })
    .to_string()
}

const POLICY: &str = "
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: scopes}
spec:
  effect: Deny
  subjects: [{kind: Group, name: people}]
  resourceRules:
  - {verbs: [list], apiGroups: [scopes.example.com, apps], resources: ['*'], namespaces: [team]}
";

pub(crate) fn a_deny_by_namespace_leaves_lists_of_cluster_scoped_custom_resources() {
    let Some(servers) = servers::shared() else { return };
    let gateway = servers.gateway.client();
    let list = |group: &str, resource: &str, namespace: &str| -> Value {
        json!({"verb": "list", "group": group, "resource": resource, "namespace": namespace})
    };
    let regions = || servers::about_resource(&gateway, &list("scopes.example.com", "regions", ""));
    servers.apply("scopes.yaml", POLICY);
    assert!(
        eventually(|| regions() == "deny"),
        "nobody knows yet whether it has namespaces"
    );

    servers.apply("regions.yaml", &definition("Cluster"));
    assert!(eventually(|| regions() == "noOpinion"));
    for (group, resource, namespace) in [
        ("scopes.example.com", "regions", "team"),
        ("scopes.example.com", "others", ""),
        ("apps", "deployments", ""),
        ("*", "regions", ""),
    ] {
        let asked = list(group, resource, namespace);
        assert_eq!(servers::about_resource(&gateway, &asked), "deny", "{asked}");
    }

    // A scope cannot be changed, but a definition can be created again.
    servers.kubectl(&["delete", "crd", "regions.scopes.example.com"]);
    assert!(eventually(|| regions() == "deny"));
    servers.apply("regions.yaml", &definition("Namespaced"));
    servers.kubectl(&[
        "wait",
        "--for=condition=Established",
        "crd/regions.scopes.example.com",
    ]);
    assert_eq!(regions(), "deny");
    servers.kubectl(&["delete", "crd", "regions.scopes.example.com"]);
    servers.kubectl(&["delete", "authorizationpolicy", "scopes"]);
}
