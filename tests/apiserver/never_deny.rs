//! No Deny applies to the control plane, unless the configuration says so.

use crate::cluster::User;
use crate::scenario::{self, Part};

pub(crate) const PART: Part = Part {
    name: "never-deny",
    users: &[
        User {
            name: "lou",
            groups: &["locked-out"],
        },
        User {
            name: "system:node:node-1",
            groups: &["system:nodes", "locked-out"],
        },
        User {
            name: "not-a-node",
            groups: &["system:nodes", "locked-out"],
        },
        User {
            name: "system:kube-controller-manager",
            groups: &["locked-out"],
        },
        User {
            name: "system:kube-scheduler",
            groups: &["locked-out"],
        },
        User {
            name: "system:serviceaccount:kube-system:namespace-controller",
            groups: &["locked-out"],
        },
        User {
            name: "system:serviceaccount:kube-system:generic-garbage-collector",
            groups: &["locked-out"],
        },
        User {
            name: "system:serviceaccount:puppies:namespace-controller",
            groups: &["locked-out"],
        },
    ],
    policies: r#"
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: locked-out}
spec:
  effect: Deny
  subjects: [{kind: Group, name: locked-out}]
  resourceRules:
  - {verbs: ["*"], apiGroups: ["*"], resources: [pods]}
  nonResourceRules:
  - {verbs: ["*"], paths: ["/healthz*", "/livez*", "/readyz*", "/version*", "/metrics*"]}
"#,
};

const PODS: &str = "/api/v1/namespaces/kittens/pods";

pub(crate) fn no_deny_applies_to_the_control_plane() {
    let Some(servers) = scenario::shared() else { return };
    for user in [
        "system:node:node-1",
        "system:kube-controller-manager",
        "system:kube-scheduler",
        "system:serviceaccount:kube-system:namespace-controller",
        "system:serviceaccount:kube-system:generic-garbage-collector",
    ] {
        servers.cluster.grant_everything(user);
        assert_eq!(servers.cluster.status(user, PODS), 200, "{user}");
    }
}

pub(crate) fn a_deny_applies_to_users_that_only_resemble_the_control_plane() {
    let Some(servers) = scenario::shared() else { return };
    for user in ["not-a-node", "system:serviceaccount:puppies:namespace-controller"] {
        servers.cluster.grant_everything(user);
        assert_eq!(servers.cluster.status(user, PODS), 403, "{user}");
    }
}

pub(crate) fn no_deny_reaches_the_probes() {
    let Some(servers) = scenario::shared() else { return };
    servers.cluster.grant_everything("lou");
    for path in [
        "/healthz",
        "/healthz/ping",
        "/livez",
        "/livez/ping",
        "/readyz",
        "/readyz/ping",
        "/version",
    ] {
        assert_eq!(servers.cluster.status("lou", path), 200, "{path}");
    }
    for path in ["/metrics", PODS] {
        assert_eq!(servers.cluster.status("lou", path), 403, "{path}");
    }
}
