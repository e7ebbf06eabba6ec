//! Lists that are allowed only when their selectors are narrow enough.

use crate::cluster::User;
use crate::scenario::{self, Part};

pub(crate) const PART: Part = Part {
    name: "selectors",
    users: &[
        User {
            name: "fiona",
            groups: &[],
        },
        User {
            name: "agent",
            groups: &[],
        },
        User {
            name: "larry",
            groups: &[],
        },
        User {
            name: "lena",
            groups: &[],
        },
    ],
    policies: r#"
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: fiona-sees-node-1}
spec:
  effect: Allow
  subjects: [{kind: User, name: fiona}]
  resourceRules:
  - verbs: [list, watch]
    apiGroups: [""]
    resources: [pods]
    selectors: {field: [{key: spec.nodeName, operator: In, values: [node-1]}]}
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: agents-see-their-own-node}
spec:
  effect: Deny
  subjects: [{kind: User, name: agent}]
  resourceRules:
  - verbs: [list, watch]
    apiGroups: [""]
    resources: [pods]
    unlessSelectors: {field: [{key: spec.nodeName, operator: In, values: [node-1]}]}
  reason: agents see the pods of their own node
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: larry-sees-team-a}
spec:
  effect: Allow
  subjects: [{kind: User, name: larry}]
  resourceRules:
  - verbs: [list, watch, deletecollection]
    apiGroups: [""]
    resources: [pods]
    namespaces: [kittens]
    selectors: {label: [{key: team, operator: In, values: [a]}]}
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: lena-sees-what-is-public}
spec:
  effect: Deny
  subjects: [{kind: User, name: lena}]
  resourceRules:
  - verbs: [list, watch]
    apiGroups: [""]
    resources: [pods]
    unlessSelectors: {label: [{key: secret, operator: DoesNotExist}]}
  reason: lena sees what is public
"#,
};

/// Asks for each query whether a user may list pods with it.
fn assert_lists(user: &str, allowed: &[&str], refused: &[&str]) {
    let Some(servers) = scenario::shared() else { return };
    let list = |query: &str| {
        servers
            .cluster
            .status(user, &format!("/api/v1/namespaces/kittens/pods?{query}"))
    };
    for query in allowed {
        assert_eq!(list(query), 200, "{user} with `{query}`");
    }
    for query in refused {
        assert_eq!(list(query), 403, "{user} with `{query}`");
    }
}

pub(crate) fn a_list_is_allowed_when_its_field_selector_is_narrow_enough() {
    assert_lists(
        "fiona",
        &[
            "fieldSelector=spec.nodeName%3Dnode-1",
            "fieldSelector=spec.nodeName%3D%3Dnode-1",
            "fieldSelector=spec.nodeName%3Dnode-1,status.phase!%3DFailed",
            "watch=true&timeoutSeconds=1&fieldSelector=spec.nodeName%3Dnode-1",
        ],
        &[
            "",
            "fieldSelector=spec.nodeName%3Dnode-2",
            "fieldSelector=spec.nodeName!%3Dnode-1",
            "fieldSelector=metadata.name%3Dnode-1",
            "labelSelector=spec.nodeName%3Dnode-1",
        ],
    );
}

pub(crate) fn a_deny_spares_a_list_whose_field_selector_is_narrow_enough() {
    let Some(servers) = scenario::shared() else { return };
    servers.cluster.grant_everything("agent");
    assert_lists(
        "agent",
        &["fieldSelector=spec.nodeName%3Dnode-1"],
        &[
            "",
            "fieldSelector=spec.nodeName%3Dnode-2",
            "fieldSelector=status.phase%3DRunning",
        ],
    );
    assert_eq!(
        servers
            .cluster
            .status("agent", "/api/v1/namespaces/kittens/configmaps"),
        200
    );
    let every_node = servers.cluster.user("agent").get("/api/v1/pods").unwrap();
    assert!(
        every_node
            .text()
            .contains("agents see the pods of their own node"),
        "{}",
        every_node.text()
    );
}

pub(crate) fn a_list_is_allowed_when_its_label_selector_is_narrow_enough() {
    assert_lists(
        "larry",
        &[
            "labelSelector=team%3Da",
            "labelSelector=team%20in%20(a)",
            "labelSelector=team%3Da,tier!%3Ddb",
            "labelSelector=team%20in%20(a,b),team%20in%20(a,c)",
        ],
        &[
            "",
            "labelSelector=team%3Db",
            "labelSelector=team",
            "labelSelector=team!%3Db",
            "labelSelector=team%20in%20(a,b)",
            "labelSelector=team%20notin%20(b)",
            "fieldSelector=metadata.name%3Da",
        ],
    );
}

pub(crate) fn a_deletion_of_many_is_allowed_when_its_label_selector_is_narrow_enough() {
    let Some(servers) = scenario::shared() else { return };
    let larry = servers.cluster.user("larry");
    let pods = "/api/v1/namespaces/kittens/pods";
    assert_eq!(
        larry
            .delete(&format!("{pods}?labelSelector=team%3Da"))
            .unwrap()
            .status,
        200
    );
    assert_eq!(
        larry
            .delete(&format!("{pods}?labelSelector=team"))
            .unwrap()
            .status,
        403
    );
    assert_eq!(larry.delete(pods).unwrap().status, 403);
}

pub(crate) fn a_deny_spares_a_list_whose_label_selector_is_narrow_enough() {
    let Some(servers) = scenario::shared() else { return };
    servers.cluster.grant_everything("lena");
    assert_lists(
        "lena",
        &["labelSelector=!secret", "labelSelector=team%3Da,!secret"],
        &[
            "",
            "labelSelector=secret",
            "labelSelector=secret!%3Dyes",
            "labelSelector=!other",
        ],
    );
}
