//! Labels of namespaces, and policies that select by them.

use super::servers;
use crate::harness::eventually;
use serde_json::json;

pub(crate) fn a_label_that_changes_counts_as_soon_as_the_watch_tells() {
    let Some(servers) = servers::shared() else { return };
    servers.cluster.create_namespace("flipped");
    let rule = json!({
        "verbs": ["delete"], "apiGroups": [""], "resources": ["pods"],
        "namespaceSelector": {"matchLabels": {"tier": "prod"}},
    });
    let spec =
        json!({"effect": "Deny", "subjects": [{"kind": "Group", "name": "people"}], "resourceRules": [rule]});
    let policy = json!({"apiVersion": "portcullis.dev/v1alpha1", "kind": "AuthorizationPolicy",
        "metadata": {"name": "flipped"}, "spec": spec});
    let gateway = servers.gateway.client();
    let decided = |namespace: &str| {
        let asked = json!({"verb": "delete", "resource": "pods", "namespace": namespace, "name": "p"});
        servers::about_resource(&gateway, &asked)
    };
    let becomes = |expected: &str| assert!(eventually(|| decided("flipped") == expected), "{expected}");
    let revision = || servers.gateway.probe("/readyz?verbose").text();
    servers.apply("flipped.yaml", &policy.to_string());
    // A namespace that is not known may have any label; one that is known has those that it has.
    assert!(eventually(|| decided("never-made") == "deny"));
    becomes("noOpinion");
    for (change, expected) in [
        ("tier=prod", "deny"),
        ("tier=test", "noOpinion"),
        ("tier=prod", "deny"),
        ("tier-", "noOpinion"),
    ] {
        let before = revision();
        servers.kubectl(&["label", "--overwrite", "namespace", "flipped", change]);
        becomes(expected);
        assert_ne!(revision(), before, "{change}: another set is in force");
    }
    servers.kubectl(&["delete", "authorizationpolicy", "flipped"]);
}
