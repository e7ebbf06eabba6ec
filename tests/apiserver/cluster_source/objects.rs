//! RBAC and AuthorizationPolicies that come, change and go while requests are decided.

use super::servers;
use crate::harness::eventually;
use std::sync::PoisonError;

/// An AuthorizationPolicy about a path.
fn policy(name: &str, effect: &str, path: &str) -> String {
    format!(
        "apiVersion: portcullis.dev/v1alpha1\nkind: AuthorizationPolicy\n\
         metadata: {{name: {name}, labels: {{about: {path}}}}}\n\
         spec:\n  effect: {effect}\n  subjects: [{{kind: Group, name: people}}]\n  \
         nonResourceRules: [{{verbs: [get], paths: [/{path}]}}]\n---\n"
    )
}

pub(crate) fn kubectl_manages_the_roles_that_the_gateway_decides_by() {
    let Some(servers) = servers::shared() else { return };
    assert_eq!(servers::outcome(&servers.decision("carol", "/rbac")), "noOpinion");
    servers.kubectl(&[
        "create",
        "clusterrole",
        "rbac-test",
        "--verb=get",
        "--non-resource-url=/rbac",
    ]);
    servers.kubectl(&[
        "create",
        "clusterrolebinding",
        "rbac-test",
        "--clusterrole=rbac-test",
        "--user=carol",
    ]);
    servers.wait_for("carol", "/rbac", "allow");
    let reason = servers.decision("carol", "/rbac")["reason"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(reason.contains("rbac-test"), "{reason}");

    let patch = r#"{"rules": [{"verbs": ["get"], "nonResourceURLs": ["/rbac/other"]}]}"#;
    servers.kubectl(&["patch", "clusterrole", "rbac-test", "--type=merge", "-p", patch]);
    servers.wait_for("carol", "/rbac", "noOpinion");
    servers.wait_for("carol", "/rbac/other", "allow");

    servers.kubectl(&["delete", "clusterrolebinding", "rbac-test"]);
    servers.wait_for("carol", "/rbac/other", "noOpinion");
}

pub(crate) fn a_policy_of_the_api_server_decides_its_own_requests() {
    let Some(servers) = servers::shared() else { return };
    assert_eq!(servers.cluster.status("dave", "/version"), 200);
    servers.apply("deny-version.yaml", &policy("deny-version", "Deny", "version"));
    // `/version` is among the paths that no Deny holds up.
    servers.apply("deny-api.yaml", &policy("deny-api", "Deny", "api"));
    assert!(eventually(|| servers.cluster.status("dave", "/api") == 403));
    let refused = servers.cluster.user("dave").get("/api").unwrap();
    assert!(refused.text().contains("deny-api"), "{}", refused.text());
    assert_eq!(servers.cluster.status("dave", "/version"), 200);

    let shadow = r#"{"spec": {"mode": "Shadow"}}"#;
    servers.kubectl(&[
        "patch",
        "authorizationpolicy",
        "deny-api",
        "--type=merge",
        "-p",
        shadow,
    ]);
    assert!(
        eventually(|| servers.cluster.status("dave", "/api") == 200),
        "a shadow changes no answer"
    );
    servers.kubectl(&["delete", "authorizationpolicy", "deny-api", "deny-version"]);
    servers.wait_for("dave", "/version", "noOpinion");
}

pub(crate) fn policies_of_the_files_hold_beside_those_of_the_api_server() {
    let Some(servers) = servers::shared() else { return };
    servers.apply("beside.yaml", &policy("beside", "Deny", "beside"));
    // A user who may write to the API server cannot take away what the files say.
    let namesake = policy("of-the-files", "Allow", "of-the-files");
    servers.apply("of-the-files.yaml", &namesake);
    servers.wait_for("carol", "/beside", "deny");
    let denied = servers.decision("carol", "/of-the-files");
    let reason = denied["reason"].as_str().unwrap();
    assert!(reason.contains("the files say so"), "{reason}");
    servers.kubectl(&["delete", "authorizationpolicy", "beside", "of-the-files"]);
    servers.wait_for("carol", "/beside", "noOpinion");
    assert_eq!(
        servers::outcome(&servers.decision("carol", "/of-the-files")),
        "deny"
    );
}

pub(crate) fn a_deny_edited_into_nonsense_keeps_denying() {
    let Some(servers) = servers::shared() else { return };
    let condition = |expression: &str| {
        let spec =
            format!(r#"{{"spec": {{"conditions": [{{"name": "c", "expression": "{expression}"}}]}}}}"#);
        servers.kubectl(&[
            "patch",
            "authorizationpolicy",
            "nonsense",
            "--type=merge",
            "-p",
            &spec,
        ]);
    };
    servers.apply("nonsense.yaml", &policy("nonsense", "Deny", "nonsense"));
    servers.wait_for("carol", "/nonsense", "deny");
    condition("request.user = 7");
    assert!(eventually(|| servers.metric("cluster_invalid_objects") == 1.0));
    assert_eq!(servers::outcome(&servers.decision("carol", "/nonsense")), "deny");
    let detail = servers.gateway.probe("/readyz?verbose");
    assert_eq!(detail.status, 200);
    let expected = "cluster default: AuthorizationPolicy/nonsense: spec.conditions[0].expression: ";
    assert!(detail.text().contains(expected), "{}", detail.text());

    // No other object is held up by it.
    servers.apply(
        "beside-nonsense.yaml",
        &policy("beside-nonsense", "Deny", "beside-nonsense"),
    );
    servers.wait_for("carol", "/beside-nonsense", "deny");

    condition("request.user == 'dave'");
    servers.wait_for("carol", "/nonsense", "noOpinion");
    assert_eq!(servers.metric("cluster_invalid_objects"), 0.0);
    servers.kubectl(&["delete", "authorizationpolicy", "nonsense", "beside-nonsense"]);
}

pub(crate) fn a_collection_is_deleted_at_once() {
    let Some(servers) = servers::shared() else { return };
    let names: Vec<String> = (0..20).map(|number| format!("collection-{number}")).collect();
    let text: String = names
        .iter()
        .map(|name| policy(name, "Deny", "collection"))
        .collect();
    servers.apply("collection.yaml", &text);
    servers.wait_for("carol", "/collection", "deny");
    let collection = "/apis/portcullis.dev/v1alpha1/authorizationpolicies?labelSelector=about%3Dcollection";
    let response = servers.cluster.admin().delete(collection).unwrap();
    assert_eq!(response.status, 200, "{}", response.text());
    servers.wait_for("carol", "/collection", "noOpinion");
}

pub(crate) fn a_watch_that_breaks_goes_on_where_it_was() {
    let Some(servers) = servers::shared() else { return };
    let _alone = servers.quiet.lock().unwrap_or_else(PoisonError::into_inner);
    servers.apply("broken.yaml", &policy("broken", "Deny", "broken"));
    servers.wait_for("carol", "/broken", "deny");
    let failures = servers.metric("cluster_watch_failures_total");
    servers.relay.cut();
    assert!(eventually(
        || servers.metric("cluster_watch_failures_total") > failures
    ));

    // What is known holds on; what changes is not known yet.
    servers.kubectl(&["delete", "authorizationpolicy", "broken"]);
    servers.apply("mended.yaml", &policy("mended", "Deny", "mended"));
    assert_eq!(servers::outcome(&servers.decision("carol", "/broken")), "deny");
    assert_eq!(
        servers::outcome(&servers.decision("carol", "/mended")),
        "noOpinion"
    );

    servers.relay.lead_to(servers.cluster.address());
    servers.wait_for("carol", "/mended", "deny");
    servers.wait_for("carol", "/broken", "noOpinion");
    servers.kubectl(&["delete", "authorizationpolicy", "mended"]);
}
