//! The API server's own RBAC and Portcullis, side by side.
//!
//! ```text
//!  seed ─> random objects ─> API server ── kubectl get -o yaml ──> gateway
//!     └──> random reviews ──────┴──────────────────────────────────┘
//!                          same answer, same reason
//! ```

pub(crate) mod count;
pub(crate) mod objects;
pub(crate) mod random;
pub(crate) mod reviews;

use crate::binaries;
use crate::cluster::{Cluster, User};
use crate::harness::folder::Folder;
use crate::harness::gateway::{Gateway, Keys, Setup};
use crate::harness::{eventually, ports};
use count::Objects;
use random::Random;
use serde_json::{Value, json};
use std::sync::LazyLock;

/// How many reviews are compared.
const REVIEWS: usize = 600;

/// Repeats one run, or looks further than the usual one.
const SEED: &str = "PORTCULLIS_SEED";
const USUAL_SEED: u64 = 20_260_723;

/// An API server of mode RBAC; shared, its objects are those of one seed.
static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| {
    let users = [User {
        name: "alice",
        groups: &["devs"],
    }];
    let flags = ["--authorization-mode=RBAC".to_owned()];
    Cluster::start(&binaries::find().unwrap(), Folder::new("rbac"), &users, &flags)
});

/// The API server of mode RBAC; `None` without the programs.
pub(crate) fn cluster() -> Option<&'static Cluster> {
    binaries::find().map(|_| &*CLUSTER)
}

pub(crate) fn an_api_server_without_webhook_rules_by_its_own_rbac() {
    let Some(cluster) = cluster() else { return };
    assert_eq!(cluster.status("alice", "/api/v1/namespaces/default/pods"), 403);
    assert_eq!(cluster.status("alice", "/version"), 200);
}

pub(crate) fn random_reviews_are_answered_as_by_the_rbac_of_the_api_server() {
    let Some(cluster) = cluster() else { return };
    let seed = std::env::var(SEED).map_or(USUAL_SEED, |seed| seed.parse().unwrap());
    println!("{SEED}={seed}");
    let mut random = Random::new(seed);

    let objects = objects::generate(&mut random);
    create(cluster, &objects);
    let gateway = gateway_of(cluster, "differential");
    let listed = listed(cluster);
    let granted = reviews::granted(&objects);

    let mut differences = Vec::new();
    let mut tally = Tally::default();
    for _ in 0..REVIEWS {
        let spec = reviews::spec(&mut random, &granted);
        let theirs = cluster.review(&spec);
        let ours = ask(&gateway, &spec);
        let granting = listed.granting(&spec);
        tally.count(&theirs, granting);
        if let Some(difference) = compare(&theirs, &ours, granting) {
            differences.push(format!(
                "{difference}\n  spec   {spec}\n  theirs {theirs}\n  ours   {ours}"
            ));
        }
    }
    println!("{tally:?}");
    let shown = differences
        .iter()
        .take(10)
        .cloned()
        .collect::<Vec<_>>()
        .join("\n");
    assert!(
        differences.is_empty(),
        "{SEED}={seed}: {} of {REVIEWS} differ\n{shown}",
        differences.len()
    );
    assert!(
        tally.allowed > REVIEWS / 10 && tally.refused > REVIEWS / 10,
        "the reviews say too little: {tally:?}"
    );
    assert!(
        tally.by_one_binding > REVIEWS / 50,
        "too few reasons were compared: {tally:?}"
    );
}

#[derive(Debug, Default)]
struct Tally {
    allowed: usize,
    refused: usize,
    by_one_binding: usize,
}

impl Tally {
    fn count(&mut self, theirs: &Value, granting: usize) {
        match theirs["allowed"] == true {
            true => self.allowed += 1,
            false => self.refused += 1,
        }
        self.by_one_binding += usize::from(granting == 1);
    }
}

fn compare(theirs: &Value, ours: &Value, granting: usize) -> Option<&'static str> {
    let allowed = theirs["allowed"] == true;
    if (granting > 0) != allowed {
        return Some("this test counts wrongly");
    }
    if ours["allowed"] != theirs["allowed"] || ours["denied"] == true {
        return Some("another decision");
    }
    (granting == 1 && ours["reason"] != theirs["reason"]).then_some("another reason")
}

fn create(cluster: &Cluster, objects: &[objects::Object]) {
    for namespace in objects::NAMESPACES {
        cluster.create_namespace(namespace);
    }
    for object in objects.iter().chain(&objects::sentinels()) {
        cluster.create(&object.collection, &object.value);
    }
    let namespace = objects::NAMESPACES[0];
    let of_role = json!({
        "user": "sentinel",
        "resourceAttributes": {"verb": "get", "resource": "sentinels", "namespace": namespace},
    });
    let of_cluster_role =
        json!({"user": "sentinel", "nonResourceAttributes": {"verb": "get", "path": "/sentinel"}});
    for spec in [of_role, of_cluster_role] {
        assert!(
            eventually(|| cluster.review(&spec)["allowed"] == true),
            "RBAC did not hear of the objects"
        );
    }
}

/// A gateway whose manifests are what kubectl exports of the cluster.
fn gateway_of(cluster: &Cluster, name: &str) -> Gateway {
    let kinds = "clusterroles,clusterrolebindings,roles,rolebindings";
    let export = cluster.kubectl("admin", &["get", kinds, "--all-namespaces", "--output=yaml"]);
    assert!(
        export.status.success(),
        "{}",
        String::from_utf8_lossy(&export.stderr)
    );
    let export = String::from_utf8(export.stdout).unwrap();
    Gateway::start(&Setup {
        folder: &cluster.folder().join(name),
        address: ports::free(),
        keys: &Keys::new(),
        callers: Vec::new(),
        manifests: &[("export.yaml", &export)],
        more: Value::Null,
    })
}

fn listed(cluster: &Cluster) -> Objects {
    let list = |plural: &str| {
        let list = cluster
            .admin()
            .get(&format!("/apis/{}/v1/{plural}", objects::GROUP))
            .unwrap()
            .json();
        list["items"].as_array().unwrap().clone()
    };
    Objects {
        cluster_roles: list("clusterroles"),
        roles: list("roles"),
        cluster_role_bindings: list("clusterrolebindings"),
        role_bindings: list("rolebindings"),
    }
}

/// What the gateway answers to a review of this spec.
fn ask(gateway: &Gateway, spec: &Value) -> Value {
    let review = crate::harness::reviews::authorization(spec);
    let response = gateway.client().post("/authorize?timeout=30s", &review).unwrap();
    assert_eq!(response.status, 200, "{spec}: {}", response.text());
    response.json()["status"].clone()
}

/// Only the controller manager aggregates, and none runs here: the API
/// server's own `admin`, `edit` and `view` have no rules of their own.
pub(crate) fn the_roles_that_kubernetes_aggregates_are_aggregated() {
    let Some(cluster) = cluster() else { return };
    let gateway = gateway_of(cluster, "aggregation");
    let binding = |role: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": format!("{role}s"), "namespace": "kittens"},
            "roleRef": {"apiGroup": objects::GROUP, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": objects::GROUP, "kind": "Group", "name": format!("{role}s")}],
        })
        .to_string()
    };
    let bindings = ["view", "edit", "admin"].map(binding).join("\n---\n");
    let file = gateway.manifests().join("bindings.yaml");
    gateway.reload_after(|| std::fs::write(&file, &bindings).unwrap());

    let may = |group: &str, verb: &str, api_group: &str, resource: &str| {
        let attributes =
            json!({"verb": verb, "group": api_group, "resource": resource, "namespace": "kittens"});
        ask(
            &gateway,
            &json!({"groups": [group], "resourceAttributes": attributes}),
        )["allowed"]
            == true
    };
    for group in ["views", "edits", "admins"] {
        assert!(may(group, "list", "", "pods"), "{group} see pods");
        assert!(!may(group, "list", "", "nodes"), "{group} see no nodes");
    }
    for (group, writes, binds) in [
        ("views", false, false),
        ("edits", true, false),
        ("admins", true, true),
    ] {
        assert_eq!(
            may(group, "create", "apps", "deployments"),
            writes,
            "{group} make deployments"
        );
        assert_eq!(may(group, "get", "", "secrets"), writes, "{group} see secrets");
        assert_eq!(
            may(group, "create", objects::GROUP, "rolebindings"),
            binds,
            "{group} bind roles"
        );
    }
}
