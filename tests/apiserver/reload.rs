//! Policies that change while an API server asks.

use crate::cluster::User;
use crate::scenario::{self, Part};
use std::fs;

pub(crate) const PART: Part = Part {
    name: "reload",
    users: &[User {
        name: "rita",
        groups: &[],
    }],
    policies: "",
};

const PODS: &str = "/api/v1/namespaces/kittens/pods";

const RITA_READS_PODS: &str = "
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: rita-reads-pods}
spec:
  effect: Allow
  subjects: [{kind: User, name: rita}]
  resourceRules:
  - {verbs: [get, list], apiGroups: [''], resources: [pods]}
";

pub(crate) fn the_next_request_is_decided_by_the_policies_just_loaded() {
    let Some(servers) = scenario::shared() else { return };
    let file = servers.gateway.manifests().join("rita.yaml");
    assert_eq!(servers.cluster.status("rita", PODS), 403);

    servers
        .gateway
        .reload_after(|| fs::write(&file, RITA_READS_PODS).unwrap());
    assert_eq!(servers.cluster.status("rita", PODS), 200);

    let as_deny = RITA_READS_PODS.replace("Allow", "Deny");
    servers
        .gateway
        .reload_after(|| fs::write(&file, &as_deny).unwrap());
    let refused = servers.cluster.user("rita").get(PODS).unwrap();
    assert_eq!(refused.status, 403);
    assert!(refused.text().contains("rita-reads-pods"), "{}", refused.text());

    servers.gateway.reload_after(|| fs::remove_file(&file).unwrap());
    let refused = servers.cluster.user("rita").get(PODS).unwrap();
    assert_eq!(refused.status, 403);
    assert!(!refused.text().contains("rita-reads-pods"), "{}", refused.text());
}
