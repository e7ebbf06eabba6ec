//! The users that keep a cluster running: nodes, controllers and the API server.

/// The identities that a cluster cannot do without: each was seen, in the audit log of a
/// kube-apiserver, to change something while Deployments and Jobs ran, a namespace was
/// deleted, tokens were made, garbage was collected and ClusterRoles were aggregated; and
/// the one that kubelets ask about. A name that ends in `*` is a prefix.
///
/// A test against a real control plane compares its audit log with this list
/// (`the_users_that_check_protects_are_those_in_the_audit_log`).
pub const CONTROL_PLANE: &[&str] = &[
    "kube-apiserver-kubelet-client",
    "system:apiserver",
    "system:kube-controller-manager",
    "system:kube-scheduler",
    "system:node:*",
    "system:serviceaccount:kube-system:clusterrole-aggregation-controller",
    "system:serviceaccount:kube-system:deployment-controller",
    "system:serviceaccount:kube-system:generic-garbage-collector",
    "system:serviceaccount:kube-system:job-controller",
    "system:serviceaccount:kube-system:namespace-controller",
    "system:serviceaccount:kube-system:node-controller",
    "system:serviceaccount:kube-system:replicaset-controller",
    "system:serviceaccount:kube-system:root-ca-cert-publisher",
    "system:serviceaccount:kube-system:service-account-controller",
    "system:serviceaccount:kube-system:service-cidrs-controller",
    "system:serviceaccount:kube-system:ttl-controller",
];
