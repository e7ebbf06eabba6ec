//! Nodes that are there by name alone: what their kubelets would tell the API
//! server of pods, said by the test.

use crate::cluster::Cluster;
use crate::harness::client::Client;
use serde_json::{Value, json};

/// The users of the nodes; the third registers only in the outage.
pub(super) const NODES: [&str; 3] = ["system:node:node-1", "system:node:node-2", "system:node:node-3"];

const MERGE: &str = "application/merge-patch+json";

/// Registers the node of this user, ready for pods.
pub(super) fn register(cluster: &Cluster, user: &str) -> Result<(), String> {
    let name = node(user);
    let object = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {
            "capacity": {"cpu": "64", "memory": "64Gi", "pods": "110"},
            "allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "Test", "message": "",
                "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        },
    });
    expect(201, cluster.user(user).post("/api/v1/nodes", &object))?;
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": name, "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": "2026-01-01T00:00:00.000000Z"},
    });
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    expect(201, cluster.user(user).post(leases, &lease)).map(|_| ())
}

/// Renews the lease of this node, to a time that was not there before.
pub(super) fn renew_lease(cluster: &Cluster, user: &str, time: &str) -> Result<(), String> {
    let path = format!(
        "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{}",
        node(user)
    );
    let renewal = json!({"spec": {"renewTime": time}});
    let renewed = expect(200, cluster.user(user).patch(&path, MERGE, &renewal))?;
    if renewed["spec"]["renewTime"] == time {
        return Ok(());
    }
    Err(format!("the lease says {renewed}"))
}

/// What the kubelets of all nodes do next: pods that are new start, those of jobs are
/// done with it, those that are deleted go.
pub(super) fn step(cluster: &Cluster) {
    for user in NODES {
        let client = cluster.user(user);
        let path = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{}", node(user));
        let Ok(response) = client.get(&path) else { continue };
        if response.status != 200 {
            continue;
        }
        let pods = response.json();
        for pod in pods["items"].as_array().into_iter().flatten() {
            play(&client, pod);
        }
    }
}

/// What fails is tried again at the next step.
fn play(client: &Client, pod: &Value) {
    let path = format!(
        "/api/v1/namespaces/{}/pods/{}",
        pod["metadata"]["namespace"].as_str().unwrap(),
        pod["metadata"]["name"].as_str().unwrap()
    );
    let phase = |phase: &str| {
        let ready = if phase == "Running" { "True" } else { "False" };
        let status = json!({"status": {"phase": phase, "conditions": [
            {"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ]}});
        let _ = client.patch(&format!("{path}/status"), MERGE, &status);
    };
    let is_of_a_job = pod["metadata"]["ownerReferences"][0]["kind"] == "Job";
    if !pod["metadata"]["deletionTimestamp"].is_null() {
        let _ = client.delete(&format!("{path}?gracePeriodSeconds=0"));
    } else if pod["status"]["phase"] == "Pending" {
        phase("Running");
    } else if pod["status"]["phase"] == "Running" && is_of_a_job {
        phase("Succeeded");
    }
}

/// As the kubelet of this node asks whether the API server may have logs and exec.
pub(super) fn asks_about_the_api_server(cluster: &Cluster, user: &str) -> Result<(), String> {
    // Logs of containers; exec, attach and port-forward; logs of the node; metrics.
    for (verb, subresource) in [
        ("get", "proxy"),
        ("create", "proxy"),
        ("get", "log"),
        ("get", "metrics"),
    ] {
        let review = crate::harness::reviews::authorization(&json!({
            "user": "kube-apiserver-kubelet-client", "groups": ["system:authenticated"],
            "resourceAttributes": {
                "verb": verb, "version": "v1", "resource": "nodes", "subresource": subresource, "name": node(user),
            },
        }));
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let answer = expect(201, cluster.user(user).post(path, &review))?;
        if answer["status"]["allowed"] != true {
            return Err(format!("{verb} nodes/{subresource}: {}", answer["status"]));
        }
    }
    Ok(())
}

/// The probes of the API server's static pod, for which the kubelet has no credentials.
pub(super) fn probes_the_api_server(cluster: &Cluster) -> Result<(), String> {
    for path in ["/livez", "/readyz", "/healthz"] {
        let response = cluster.nobody().get(path).map_err(|error| error.to_string())?;
        if response.status != 200 {
            return Err(format!("{path}: {} {}", response.status, response.text()));
        }
    }
    Ok(())
}

/// The node of a user.
pub(super) fn node(user: &str) -> &str {
    user.strip_prefix("system:node:").unwrap()
}

/// The body of an answer, if it has this status; `null` if that is not JSON.
pub(super) fn expect(
    status: u16,
    response: std::io::Result<crate::harness::client::Response>,
) -> Result<Value, String> {
    match response {
        Ok(response) if response.status == status => {
            Ok(serde_json::from_slice(&response.body).unwrap_or_default())
        }
        Ok(response) => Err(format!("status {}: {}", response.status, response.text())),
        Err(error) => Err(error.to_string()),
    }
}
