//! The control plane works, whatever the gateway does.
//!
//! A real kube-apiserver, kube-controller-manager and kube-scheduler with a gateway that
//! `portcullis init --in-cluster` set up: its authorizer comes first, with failurePolicy
//! Deny, and its registrations match every write, with failurePolicy Fail. The test acts
//! as the kubelets. There are three phases:
//!
//! ```text
//! Enforced   the project's example Denies and Pod Security policies hold
//! Down       no gateway answers
//! Back       one was started again, and is not yet ready when the first request comes
//! ```
//!
//! Starting all of it takes a quarter of a minute, so it runs once, and each test checks
//! the results for one function of a cluster.

pub(crate) mod identities;
pub(crate) mod kubelet;
pub(crate) mod run;
pub(crate) mod servers;
pub(crate) mod workloads;

use run::{Phase, Thing, found};

/// Fails with what was found in any phase that went wrong.
fn holds(thing: Thing) {
    let Some(found) = found() else { return };
    let failed: Vec<String> = Phase::ALL
        .into_iter()
        .filter_map(|phase| match found.outcomes.get(&(phase, thing)) {
            Some(Ok(())) => None,
            Some(Err(error)) => Some(format!("{phase:?}: {error}")),
            None => Some(format!("{phase:?}: was not tried")),
        })
        .collect();
    assert!(
        failed.is_empty(),
        "{thing:?}: {}\n{}",
        failed.join("\n"),
        found.logs
    );
}

pub(crate) fn a_deployment_becomes_bound_pods_whatever_the_gateway_does() {
    holds(Thing::Deployment);
}

pub(crate) fn a_job_runs_its_course_whatever_the_gateway_does() {
    holds(Thing::Job);
}

pub(crate) fn a_namespace_is_deleted_to_the_end_whatever_the_gateway_does() {
    holds(Thing::Namespace);
}

pub(crate) fn service_account_tokens_are_made_whatever_the_gateway_does() {
    holds(Thing::Tokens);
}

pub(crate) fn garbage_is_collected_whatever_the_gateway_does() {
    holds(Thing::Garbage);
}

pub(crate) fn leases_are_renewed_whatever_the_gateway_does() {
    holds(Thing::Leases);
}

pub(crate) fn aggregation_of_cluster_roles_holds_whatever_the_gateway_does() {
    holds(Thing::Aggregation);
}

pub(crate) fn kubelets_serve_logs_and_exec_whatever_the_gateway_does() {
    holds(Thing::Kubelets);
}

pub(crate) fn probes_of_the_api_server_succeed_whatever_the_gateway_does() {
    holds(Thing::Probes);
}

pub(crate) fn policies_are_enforced_and_requests_are_refused_during_an_outage() {
    holds(Thing::Enforcement);
}

pub(crate) fn without_a_gateway_an_administrator_can_recover_the_cluster() {
    let Some(found) = found() else { return };
    assert_eq!(found.undone, Ok(()), "{}", found.logs);
}

/// What check protects is what a control plane was seen to need, no more and no less.
pub(crate) fn the_users_that_check_protects_are_those_in_the_audit_log() {
    let Some(found) = found() else { return };
    identities::compare(&found.identities);
}
