//! What a cluster does of itself once somebody asked for it.

use crate::cluster::Cluster;
use crate::harness::client::Response;
use serde_json::{Value, json};
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::kubelet::{self, NODES, expect};

/// How long one thing may take: far longer than it does.
const LONGEST: Duration = Duration::from_secs(80);

pub(super) const MERGE: &str = "application/merge-patch+json";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";

/// What went wrong, in words.
pub(super) type Outcome = Result<(), String>;

/// Has kubelets do their part until `condition` holds.
pub(super) fn until(cluster: &Cluster, what: &str, mut condition: impl FnMut() -> bool) -> Outcome {
    let deadline = Instant::now() + LONGEST;
    while Instant::now() < deadline {
        kubelet::step(cluster);
        if condition() {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(100));
    }
    Err(format!("not within {} s: {what}", LONGEST.as_secs()))
}

/// The object at a path, `null` if there is none or it cannot be had.
pub(super) fn get(cluster: &Cluster, path: &str) -> Value {
    match cluster.admin().get(path) {
        Ok(response) if response.status == 200 => response.json(),
        _ => Value::Null,
    }
}

fn is_gone(cluster: &Cluster, path: &str) -> bool {
    cluster
        .admin()
        .get(path)
        .is_ok_and(|response| response.status == 404)
}

/// Asks again and again until it is accepted: a gateway comes back.
pub(super) fn retry(cluster: &Cluster, what: &str, mut ask: impl FnMut() -> io::Result<Response>) -> Outcome {
    let mut last = String::new();
    until(cluster, what, || match ask() {
        Ok(response) if matches!(response.status, 200..=202) => true,
        Ok(response) => {
            last = response.text();
            false
        }
        Err(error) => {
            last = error.to_string();
            false
        }
    })
    .map_err(|error| format!("{error}: {last}"))
}

/// Creates an object as admin, as often as it takes.
pub(super) fn create(cluster: &Cluster, collection: &str, object: &Value) -> Outcome {
    retry(cluster, &format!("create at {collection}"), || {
        cluster.admin().post(collection, object)
    })
}

/// A namespace with its service account.
pub(super) fn namespace(cluster: &Cluster, name: &str) -> Outcome {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    create(cluster, "/api/v1/namespaces", &object)?;
    let account = format!("/api/v1/namespaces/{name}/serviceaccounts/default");
    until(cluster, &format!("{name} has a service account"), || {
        !get(cluster, &account).is_null()
    })
}

fn pods(name: &str, node: Option<&str>) -> Value {
    let mut template = json!({
        "metadata": {"labels": {"app": name}},
        "spec": {
            "containers": [{"name": "c", "image": "registry.example.com/none"}],
            // Nodes that nobody looks after for a while keep their pods.
            "tolerations": [{"operator": "Exists", "effect": "NoExecute"}],
        },
    });
    if let Some(node) = node {
        template["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": node});
    }
    template
}

pub(super) fn deployment(name: &str, replicas: u32, node: Option<&str>) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": pods(name, node),
        },
    })
}

pub(super) fn deployments(namespace: &str) -> String {
    format!("/apis/apps/v1/namespaces/{namespace}/deployments")
}

/// The pods of a Deployment.
pub(super) fn pods_of(cluster: &Cluster, namespace: &str, name: &str) -> Vec<Value> {
    let path = format!("/api/v1/namespaces/{namespace}/pods?labelSelector=app%3D{name}");
    let list = get(cluster, &path);
    list["items"].as_array().cloned().unwrap_or_default()
}

/// A Deployment becomes pods that are bound to nodes and ready.
pub(super) fn deploy(cluster: &Cluster, namespace: &str, name: &str) -> Outcome {
    create(cluster, &deployments(namespace), &deployment(name, 3, None))?;
    is_ready(cluster, namespace, name, 3)
}

/// Waits until that many pods of a Deployment are bound and ready.
pub(super) fn is_ready(cluster: &Cluster, namespace: &str, name: &str, replicas: usize) -> Outcome {
    let path = format!("{}/{name}", deployments(namespace));
    until(
        cluster,
        &format!("{namespace}/{name} has {replicas} ready pods"),
        || {
            let bound = pods_of(cluster, namespace, name)
                .iter()
                .filter(|pod| pod["spec"]["nodeName"].is_string() && pod["status"]["phase"] == "Running")
                .count();
            bound == replicas && get(cluster, &path)["status"]["readyReplicas"] == replicas
        },
    )
}

/// A Job runs two pods, one after the other, and is complete.
pub(super) fn job(cluster: &Cluster, namespace: &str, name: &str) -> Outcome {
    let mut template = pods(name, None);
    template["spec"]["restartPolicy"] = json!("Never");
    let object = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"completions": 2, "parallelism": 1, "template": template},
    });
    let jobs = format!("/apis/batch/v1/namespaces/{namespace}/jobs");
    create(cluster, &jobs, &object)?;
    until(cluster, &format!("{namespace}/{name} is complete"), || {
        let status = get(cluster, &format!("{jobs}/{name}"))["status"].clone();
        let complete = |condition: &Value| condition["type"] == "Complete" && condition["status"] == "True";
        status["succeeded"] == 2
            && status["conditions"]
                .as_array()
                .is_some_and(|all| all.iter().any(complete))
    })
}

/// Has a namespace deleted, and says whether that was accepted.
pub(super) fn delete_namespace(cluster: &Cluster, name: &str) -> Outcome {
    retry(cluster, &format!("delete the namespace {name}"), || {
        cluster.admin().delete(&format!("/api/v1/namespaces/{name}"))
    })
}

/// Waits until a namespace is gone.
pub(super) fn namespace_is_gone(cluster: &Cluster, name: &str) -> Outcome {
    until(cluster, &format!("the namespace {name} is gone"), || {
        is_gone(cluster, &format!("/api/v1/namespaces/{name}"))
    })
}

/// Tokens of the service account `default`: by request, as a kubelet for its pod
/// (`pods_in`: whose), and of a Secret, in `secrets_in`.
pub(super) fn tokens(cluster: &Cluster, namespace: &str, pods_of_app: &str, secrets_in: &str) -> Outcome {
    let path = |namespace: &str| format!("/api/v1/namespaces/{namespace}/serviceaccounts/default/token");
    let request =
        |spec: Value| json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    let is_token = |answer: &Value| {
        answer["status"]["token"]
            .as_str()
            .is_some_and(|token| !token.is_empty())
    };
    let answer = expect(201, cluster.admin().post(&path(namespace), &request(json!({}))))?;
    if !is_token(&answer) {
        return Err(format!("no token: {answer}"));
    }
    let pods = pods_of(cluster, namespace, pods_of_app);
    let pod = pods.first().ok_or("there is no pod")?;
    let node = format!(
        "system:node:{}",
        pod["spec"]["nodeName"].as_str().unwrap_or_default()
    );
    let node = NODES
        .iter()
        .find(|user| **user == node)
        .ok_or("it is bound nowhere")?;
    let bound = request(json!({"boundObjectRef": {
        "apiVersion": "v1", "kind": "Pod",
        "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"],
    }}));
    let answer = expect(201, cluster.user(node).post(&path(namespace), &bound))?;
    if !is_token(&answer) {
        return Err(format!("no token for a pod: {answer}"));
    }
    let name = format!("token-{namespace}");
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": "default"}},
    });
    let secrets = format!("/api/v1/namespaces/{secrets_in}/secrets");
    create(cluster, &secrets, &secret)?;
    until(cluster, &format!("the Secret {name} has a token"), || {
        get(cluster, &format!("{secrets}/{name}"))["data"]["token"].is_string()
    })
}

/// What a deleted Deployment owned goes after it.
pub(super) fn collect_garbage(cluster: &Cluster, namespace: &str, name: &str) -> Outcome {
    if pods_of(cluster, namespace, name).is_empty() {
        return Err(format!("{namespace}/{name} has no pods"));
    }
    let path = format!("{}/{name}", deployments(namespace));
    retry(cluster, &format!("delete {namespace}/{name}"), || {
        cluster.admin().delete(&path)
    })?;
    let sets = format!("/apis/apps/v1/namespaces/{namespace}/replicasets?labelSelector=app%3D{name}");
    until(cluster, &format!("what {namespace}/{name} owned is gone"), || {
        get(cluster, &sets)["items"].as_array().is_some_and(Vec::is_empty)
            && pods_of(cluster, namespace, name).is_empty()
    })
}

/// A Lease that owns a ConfigMap, both in `default`.
pub(super) fn lease_with_dependent(cluster: &Cluster) -> Outcome {
    let lease =
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "owner"}});
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    create(cluster, leases, &lease)?;
    let uid = get(cluster, &format!("{leases}/owner"))["metadata"]["uid"].clone();
    let owner = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "name": "owner", "uid": uid});
    let dependent = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "dependent", "ownerReferences": [owner]},
    });
    create(cluster, "/api/v1/namespaces/default/configmaps", &dependent)
}

/// Deletes that Lease, which no registration asks about.
pub(super) fn delete_lease(cluster: &Cluster) -> Outcome {
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/owner";
    expect(200, cluster.admin().delete(path)).map(|_| ())
}

/// Waits until its ConfigMap is gone, too.
pub(super) fn dependent_is_gone(cluster: &Cluster) -> Outcome {
    until(cluster, "what the Lease owned is gone", || {
        is_gone(cluster, "/api/v1/namespaces/default/configmaps/dependent")
    })
}

/// The leaders' leases are renewed, and the lease of a node by its kubelet.
pub(super) fn renew_leases(cluster: &Cluster, time: &str) -> Outcome {
    for leader in ["kube-controller-manager", "kube-scheduler"] {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{leader}");
        let renewed = || get(cluster, &path)["spec"]["renewTime"].clone();
        let before = renewed();
        until(cluster, &format!("{leader} renews its lease"), || {
            let now = renewed();
            now.is_string() && now != before
        })?;
    }
    kubelet::renew_lease(cluster, NODES[0], time)
}

/// A ClusterRole that others are aggregated into.
pub(super) fn aggregated_role(cluster: &Cluster) -> Outcome {
    let object = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "sum"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"sum": "yes"}}]}, "rules": [],
    });
    create(cluster, ROLES, &object)
}

/// A ClusterRole that becomes a part of it.
pub(super) fn aggregate(cluster: &Cluster, resource: &str) -> Outcome {
    let object = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": format!("part-{resource}"), "labels": {"sum": "yes"}},
        "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": [resource]}],
    });
    create(cluster, ROLES, &object)?;
    until(cluster, &format!("{resource} are part of the sum"), || {
        aggregated(cluster).contains(&resource.to_owned())
    })
}

/// What the aggregated ClusterRole grants.
pub(super) fn aggregated(cluster: &Cluster) -> Vec<String> {
    let role = get(cluster, &format!("{ROLES}/sum"));
    let rules = role["rules"].as_array().cloned().unwrap_or_default();
    rules
        .iter()
        .filter_map(|rule| rule["resources"][0].as_str().map(str::to_owned))
        .collect()
}
