//! The users that keep a cluster running, from the API server's audit log.

use portcullis_policy::authorization::CONTROL_PLANE;
use serde_json::Value;
use std::collections::BTreeSet;

/// Whom the test itself is.
const PEOPLE: [&str; 2] = ["admin", "dave"];

/// Who changed something. Nodes count as one: `system:node:*`.
pub(super) fn of_audit_log(log: &str) -> BTreeSet<String> {
    let events = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    events
        .filter(|event| {
            let changes = ["create", "update", "patch", "delete", "deletecollection"];
            changes.contains(&event["verb"].as_str().unwrap_or_default())
                && event["responseStatus"]["code"]
                    .as_u64()
                    .is_some_and(|code| code < 400)
        })
        .filter_map(|event| event["user"]["username"].as_str().map(str::to_owned))
        .filter(|user| !PEOPLE.contains(&user.as_str()))
        .map(|user| match user.strip_prefix("system:node:") {
            Some(_) => "system:node:*".to_owned(),
            None => user,
        })
        .collect()
}

/// Fails unless those are the ones that `check` protects.
pub(super) fn compare(found: &BTreeSet<String>) {
    // It is asked about by kubelets, and asks nothing itself.
    let asked_about = "kube-apiserver-kubelet-client".to_owned();
    let seen: BTreeSet<String> = found.iter().cloned().chain([asked_about]).collect();
    let protected: BTreeSet<String> = CONTROL_PLANE.iter().map(|name| (*name).to_owned()).collect();
    let unprotected: Vec<_> = seen.difference(&protected).collect();
    let unseen: Vec<_> = protected.difference(&seen).collect();
    assert!(
        unprotected.is_empty() && unseen.is_empty(),
        "not in CONTROL_PLANE: {unprotected:?}; in it and never seen: {unseen:?}"
    );
}
