//! Everything once, in its order, and what was found.

use crate::cluster::Cluster;
use serde_json::json;
use std::collections::{BTreeSet, HashMap};
use std::panic;
use std::sync::LazyLock;

use super::identities;
use super::kubelet::{self, NODES, expect};
use super::servers::{OWN_NAMESPACE, Servers, programs};
use super::workloads::{self, MERGE, Outcome};

/// How it stands with the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    /// It enforces the project's examples.
    Enforced,
    /// There is none.
    Down,
    /// It comes back.
    Back,
}

/// What a cluster does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Thing {
    Deployment,
    Job,
    Namespace,
    Tokens,
    Garbage,
    Leases,
    Aggregation,
    Kubelets,
    Probes,
    Enforcement,
}

/// What was found.
pub(super) struct Found {
    pub(super) outcomes: HashMap<(Phase, Thing), Outcome>,
    /// Whether the cluster could be had back without any gateway.
    pub(super) undone: Outcome,
    /// Who changed something, by the audit log.
    pub(super) identities: BTreeSet<String>,
    pub(super) logs: String,
}

impl Phase {
    pub(super) const ALL: [Self; 3] = [Self::Enforced, Self::Down, Self::Back];
}

static FOUND: LazyLock<Option<Found>> = LazyLock::new(|| panic::catch_unwind(run).ok());

/// What was found; `None` without the programs.
pub(super) fn found() -> Option<&'static Found> {
    programs()?;
    match &*FOUND {
        Some(found) => Some(found),
        None => panic!("the servers did not start: see the first of these tests"),
    }
}

/// The namespaces of one phase each, in which the examples deny.
const ENFORCED: &str = "prod-web";
const BACK: &str = "prod-back";
/// One whose deletion begins before the outage.
const GOING: &str = "prod-going";

struct Run {
    servers: Servers,
    outcomes: HashMap<(Phase, Thing), Outcome>,
}

fn run() -> Found {
    let (binaries, controllers) = programs().unwrap();
    let mut run = Run {
        servers: Servers::start(&binaries, &controllers),
        outcomes: HashMap::new(),
    };
    run.prepare()
        .unwrap_or_else(|error| panic!("{error}\n{}", run.servers.logs()));
    run.enforced();
    let begun = run.before_the_outage();
    run.servers.stop_gateway();
    run.down(begun);
    run.servers.start_gateway();
    run.back();
    run.servers.stop_gateway();
    let undone = undo(&run.servers);
    Found {
        undone,
        identities: identities::of_audit_log(&run.servers.audit_log()),
        logs: run.servers.logs(),
        outcomes: run.outcomes,
    }
}

impl Run {
    fn cluster(&self) -> &Cluster {
        &self.servers.cluster
    }

    fn note(&mut self, phase: Phase, thing: Thing, outcome: Outcome) {
        self.outcomes.insert((phase, thing), outcome);
    }

    fn prepare(&self) -> Outcome {
        let cluster = self.cluster();
        for node in NODES.iter().take(2) {
            kubelet::register(cluster, node)?;
        }
        cluster.bind_everything("dave");
        let kubelet_client = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "kubelet-client"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:kubelet-api-admin"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "kube-apiserver-kubelet-client"}],
        });
        let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
        workloads::create(cluster, bindings, &kubelet_client)?;
        workloads::namespace(cluster, ENFORCED)?;
        workloads::aggregated_role(cluster)
    }

    fn enforced(&mut self) {
        let phase = Phase::Enforced;
        let cluster = &self.servers.cluster;
        let outcomes = [
            (Thing::Deployment, workloads::deploy(cluster, ENFORCED, "web")),
            (
                Thing::Tokens,
                workloads::tokens(cluster, ENFORCED, "web", ENFORCED),
            ),
            (Thing::Job, workloads::job(cluster, ENFORCED, "batch")),
            (Thing::Aggregation, workloads::aggregate(cluster, "pods")),
            (
                Thing::Leases,
                workloads::renew_leases(cluster, "2026-01-01T00:00:01.000000Z"),
            ),
            (
                Thing::Kubelets,
                kubelet::asks_about_the_api_server(cluster, NODES[0]),
            ),
            (Thing::Probes, kubelet::probes_the_api_server(cluster)),
            (Thing::Enforcement, enforcement(cluster)),
            (
                Thing::Garbage,
                workloads::collect_garbage(cluster, ENFORCED, "web"),
            ),
            (
                Thing::Namespace,
                workloads::delete_namespace(cluster, ENFORCED)
                    .and_then(|()| workloads::namespace_is_gone(cluster, ENFORCED)),
            ),
        ];
        for (thing, outcome) in outcomes {
            self.note(phase, thing, outcome);
        }
    }

    /// What is under way when the gateway goes: pods that wait for a node, pods that
    /// will have to be replaced, a namespace whose deletion has begun.
    fn before_the_outage(&self) -> Outcome {
        let cluster = self.cluster();
        let deployments = workloads::deployments("default");
        let waiting = workloads::deployment("waiting", 2, Some(kubelet::node(NODES[2])));
        workloads::create(cluster, &deployments, &waiting)?;
        workloads::create(cluster, &deployments, &workloads::deployment("replaced", 2, None))?;
        workloads::is_ready(cluster, "default", "replaced", 2)?;
        workloads::until(cluster, "two pods wait for a node", || {
            workloads::pods_of(cluster, "default", "waiting").len() == 2
        })?;
        workloads::lease_with_dependent(cluster)?;
        workloads::namespace(cluster, GOING)?;
        let content = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "content"}});
        workloads::create(
            cluster,
            &format!("/api/v1/namespaces/{GOING}/configmaps"),
            &content,
        )?;
        // The namespace controller begins five seconds later.
        workloads::delete_namespace(cluster, GOING)
    }

    fn down(&mut self, begun: Outcome) {
        let phase = Phase::Down;
        let cluster = &self.servers.cluster;
        let waiting = || {
            kubelet::register(cluster, NODES[2])?;
            workloads::is_ready(cluster, "default", "waiting", 2)
        };
        let namespace = || {
            workloads::namespace(cluster, OWN_NAMESPACE)?;
            workloads::deploy(cluster, OWN_NAMESPACE, "gateway")?;
            workloads::delete_namespace(cluster, OWN_NAMESPACE)?;
            workloads::namespace_is_gone(cluster, OWN_NAMESPACE)
        };
        let outcomes = [
            (
                Thing::Deployment,
                begun
                    .and_then(|()| waiting())
                    .and_then(|()| workloads::deploy(cluster, "kube-system", "addon")),
            ),
            (
                Thing::Tokens,
                workloads::tokens(cluster, "default", "waiting", "kube-system"),
            ),
            (Thing::Job, workloads::job(cluster, "kube-system", "batch")),
            (
                Thing::Leases,
                workloads::renew_leases(cluster, "2026-01-01T00:00:02.000000Z"),
            ),
            (Thing::Aggregation, aggregation_is(cluster, &["pods"])),
            (
                Thing::Kubelets,
                kubelet::asks_about_the_api_server(cluster, NODES[0]),
            ),
            (Thing::Probes, kubelet::probes_the_api_server(cluster)),
            (
                Thing::Garbage,
                workloads::collect_garbage(cluster, "kube-system", "addon"),
            ),
            (Thing::Namespace, namespace()),
            (Thing::Enforcement, outage(cluster)),
        ];
        for (thing, outcome) in outcomes {
            self.note(phase, thing, outcome);
        }
    }

    /// The first requests come before the gateway is ready.
    fn back(&mut self) {
        let phase = Phase::Back;
        let cluster = &self.servers.cluster;
        let outcomes = [
            (
                Thing::Deployment,
                workloads::namespace(cluster, BACK)
                    .and_then(|()| workloads::deploy(cluster, BACK, "web"))
                    .and_then(|()| workloads::is_ready(cluster, "default", "replaced", 2)),
            ),
            (Thing::Job, workloads::job(cluster, BACK, "batch")),
            (Thing::Tokens, workloads::tokens(cluster, BACK, "web", BACK)),
            (
                Thing::Aggregation,
                workloads::aggregate(cluster, "services")
                    .and_then(|()| aggregation_is(cluster, &["pods", "services"])),
            ),
            (
                Thing::Leases,
                workloads::renew_leases(cluster, "2026-01-01T00:00:03.000000Z"),
            ),
            (
                Thing::Kubelets,
                kubelet::asks_about_the_api_server(cluster, NODES[0]),
            ),
            (Thing::Probes, kubelet::probes_the_api_server(cluster)),
            (
                Thing::Garbage,
                workloads::dependent_is_gone(cluster)
                    .and_then(|()| workloads::collect_garbage(cluster, BACK, "web")),
            ),
            (Thing::Namespace, workloads::namespace_is_gone(cluster, GOING)),
            (Thing::Enforcement, enforcement_of_denies(cluster, BACK)),
        ];
        for (thing, outcome) in outcomes {
            self.note(phase, thing, outcome);
        }
    }
}

/// Without a gateway, and for good: as `system:masters`, and at the API server's files.
fn undo(servers: &Servers) -> Outcome {
    let cluster = &servers.cluster;
    let pods = "/api/v1/namespaces/default/pods";
    expect(500, cluster.user("dave").get(pods)).map_err(|error| format!("dave: {error}"))?;
    let file = servers.set_up.path("webhooks.yaml");
    let output = cluster.kubectl("admin", &["delete", "-f", &file]);
    if !output.status.success() {
        return Err(format!("the registrations cannot be deleted: {output:?}"));
    }
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "undone"}});
    workloads::create(cluster, "/api/v1/namespaces/default/configmaps", &object)?;
    servers.set_up.take_authorizer_out();
    workloads::until(cluster, "dave may read pods again", || {
        cluster.status("dave", pods) == 200
    })
}

fn aggregation_is(cluster: &Cluster, expected: &[&str]) -> Outcome {
    let found = workloads::aggregated(cluster);
    if found == expected {
        return Ok(());
    }
    Err(format!("{found:?}, not {expected:?}"))
}

/// The examples hold: people's requests are denied, and dangerous pods refused.
fn enforcement(cluster: &Cluster) -> Outcome {
    enforcement_of_denies(cluster, ENFORCED)?;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "dangerous"},
        "spec": {"hostNetwork": true, "containers": [{"name": "c", "image": "i"}]},
    });
    let refused = cluster
        .admin()
        .post(&format!("/api/v1/namespaces/{ENFORCED}/pods"), &pod);
    let refused = expect(403, refused)?;
    let message = refused["message"].as_str().unwrap_or_default();
    if message.contains("validate.portcullis.dev") && message.contains("hostNetwork") {
        return Ok(());
    }
    Err(format!("refused for another reason: {message}"))
}

/// A developer, who RBAC lets do everything, deletes nothing in production.
fn enforcement_of_denies(cluster: &Cluster, namespace: &str) -> Outcome {
    let path = format!("/api/v1/namespaces/{namespace}/pods/none");
    let refused = expect(403, cluster.user("dave").delete(&path))?;
    let message = refused["message"].as_str().unwrap_or_default();
    if message.contains("only the platform team deletes in production") {
        return Ok(());
    }
    Err(format!("refused for another reason: {message}"))
}

/// Without a gateway every user is refused, and so is every write that is;
/// what could not be done is not lost: it is left for when the gateway is back.
fn outage(cluster: &Cluster) -> Outcome {
    let pods = "/api/v1/namespaces/default/pods";
    expect(500, cluster.user("dave").get(pods)).map_err(|error| format!("dave: {error}"))?;
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "refused"}});
    let created = cluster
        .admin()
        .post("/api/v1/namespaces/default/configmaps", &object);
    expect(500, created).map_err(|error| format!("a write of admin: {error}"))?;
    if workloads::get(cluster, &format!("/api/v1/namespaces/{GOING}/configmaps/content")).is_null() {
        return Err("the namespace was emptied without a gateway".to_owned());
    }
    // These two are for the phase after this one.
    let pod = workloads::pods_of(cluster, "default", "replaced");
    let name = pod
        .first()
        .and_then(|pod| pod["metadata"]["name"].as_str())
        .ok_or("no pod")?;
    let node = pod
        .first()
        .and_then(|pod| pod["spec"]["nodeName"].as_str())
        .unwrap_or_default();
    let failed = json!({"status": {"phase": "Failed"}});
    let user = cluster.user(&format!("system:node:{node}"));
    expect(200, user.patch(&format!("{pods}/{name}/status"), MERGE, &failed))?;
    workloads::delete_lease(cluster)
}
