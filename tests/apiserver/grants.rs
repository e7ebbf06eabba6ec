//! Allows and Denies with objectConditions: an API server that uses both halves of a set-up of `init`.
//!
//! ```text
//!  user ──▶ kube-apiserver ──── may a dev create Pods? ──▶ /authorize ─ yes, where the image is good
//!                  │                                            ▲ RBAC of the cluster is watched
//!                  └──────────── this Pod ────────────────▶ /validate ─ the image is bad: 403
//! ```

use crate::binaries::{self, Binaries};
use crate::cluster::{Cluster, User};
use crate::cluster_source::servers;
use crate::control_plane::servers::SetUp;
use crate::harness::api_server;
use crate::harness::authorizer::{Authorizer, says};
use crate::harness::client::Response;
use crate::harness::eventually;
use crate::harness::folder::Folder;
use crate::harness::pki::Authority;
use crate::harness::process::Process;
use crate::lease::{Lease, Logs};
use serde_json::{Value, json};
use std::fs;
use std::sync::LazyLock;

const GATEWAY: User = User {
    name: "portcullis",
    groups: &[],
};

/// One for each test.
const USERS: [User; 9] = [
    GATEWAY,
    dev("dora"),
    dev("dina"),
    dev("dirk"),
    dev("debby"),
    dev("dan"),
    dev("daisy"),
    dev("dwight"),
    User {
        name: "olga",
        groups: &["owners"],
    },
];

const fn dev(name: &'static str) -> User {
    User {
        name,
        groups: &["devs"],
    }
}

const NAMESPACE: &str = "grants";
const PODS: &str = "/api/v1/namespaces/grants/pods";
const CONFIGMAPS: &str = "/api/v1/namespaces/grants/configmaps";

/// Pods of one registry, and what carries one's name; nothing else is granted to these users.
const POLICIES: &str = r#"
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: devs-images}
spec:
  effect: Allow
  subjects: [{kind: Group, name: devs}]
  resourceRules:
  - {verbs: [create, update, patch], apiGroups: [""], resources: [pods], namespaces: [grants]}
  objectConditions:
  - name: registry
    expression: object.spec.containers.all(c, c.image.startsWith('registry.corp/'))
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: devs-look}
spec:
  effect: Allow
  subjects: [{kind: Group, name: devs}, {kind: Group, name: owners}]
  resourceRules:
  - {verbs: [get, list, watch], apiGroups: [""], resources: [pods, configmaps], namespaces: [grants]}
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: devs-exec}
spec:
  effect: Allow
  subjects: [{kind: Group, name: devs}]
  resourceRules:
  - {verbs: [get, create], apiGroups: [""], resources: [pods/exec], namespaces: [grants]}
  objectConditions: [{name: only-true, expression: "object.command == ['true']"}]
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: owners-own}
spec:
  effect: Allow
  subjects: [{kind: Group, name: owners}]
  resourceRules:
  - {verbs: [create, update, patch, delete, deletecollection], apiGroups: [""], resources: [configmaps], namespaces: [grants]}
  objectConditions:
  - name: is-own
    expression: object == null || object.metadata.labels.owner == request.userInfo.username
  - name: was-own
    expression: oldObject == null || oldObject.metadata.labels.owner == request.userInfo.username
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: no-privileged-names}
spec:
  effect: Deny
  subjects: [{kind: Group, name: devs}]
  resourceRules:
  - {verbs: [create, update, patch], apiGroups: [""], resources: [pods], namespaces: [grants]}
  objectConditions: [{name: bad, expression: "has(object.metadata.labels) && 'forbidden' in object.metadata.labels"}]
  reason: forbidden is forbidden
"#;

/// What a test removes.
const REMOVED: &str = r#"
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: for-a-while}
spec:
  effect: Allow
  subjects: [{kind: User, name: daisy}]
  resourceRules:
  - {verbs: [create], apiGroups: [""], resources: [configmaps], namespaces: [grants]}
  objectConditions: [{name: good, expression: "object.data.is == 'good'"}]
"#;

struct Servers {
    cluster: Cluster,
    set_up: SetUp,
    gateway: Process,
    /// Asked by the gateway about `dwight` alone.
    authorizer: Authorizer,
}

static SHARED: LazyLock<Servers> = LazyLock::new(|| Servers::start(&binaries::find().unwrap()));

fn shared() -> Option<Lease<Servers>> {
    Lease::of(&SHARED)
}

impl Servers {
    fn start(binaries: &Binaries) -> Self {
        let folder = Folder::new("grants");
        let set_up = SetUp::init(&folder.path().join("set-up"), &[]);
        fs::write(set_up.path("policies/grants.yaml"), POLICIES).unwrap();
        fs::write(set_up.path("policies/removed.yaml"), REMOVED).unwrap();
        let gateway = set_up.serve();
        let cluster = Cluster::start(binaries, folder, &USERS, &set_up.api_server_flags());
        for file in [
            "crd/authorizationpolicies.yaml",
            "crd/admissionexceptions.yaml",
            "crd/authorizationinvariants.yaml",
            "cluster/gateway.yaml",
            "cluster/admission.yaml",
        ] {
            servers::apply(&cluster, &servers::shipped(file));
        }
        let entry = json!({
            "name": servers::CLUSTER,
            "kubeconfig": cluster.kubeconfig(GATEWAY.name),
            "cacheFile": "default.json",
            "admission": "Watched",
        });
        let authorizer = Authorizer::start(&Authority::new("authorizer"), |asked| {
            let verb = asked.review["spec"]["resourceAttributes"]["verb"].as_str();
            says(asked, json!({"allowed": verb == Some("create")}))
        });
        let kubeconfig = set_up.path("kubeconfigs/other.kubeconfig");
        fs::write(&kubeconfig, authorizer.kubeconfig("/")).unwrap();
        let mut other = api_server::webhook("other", kubeconfig.as_ref());
        other["webhook"]["matchConditions"] = json!([{"expression": "request.user == 'dwight'"}]);
        set_up.rewrite("portcullis.yaml", |text| {
            format!("{text}clusters: [{entry}]\nauthorization: {{webhooks: [{other}]}}\n")
        });
        cluster.create_namespace(NAMESPACE);
        let webhooks = set_up.path("webhooks.yaml");
        servers::kubectl(&cluster, &["apply", "--validate=false", "-f", &webhooks]);
        let servers = Self {
            cluster,
            set_up,
            gateway,
            authorizer,
        };
        // New Allows grant a little later, and registrations are read a little later.
        let grants = || servers.post("dora", PODS, &pod("first", GOOD)).status == 201;
        assert!(eventually(grants), "{}", servers.logs());
        let refuses = || servers.post("dora", PODS, &pod("probe", BAD)).status == 403;
        assert!(eventually(refuses), "{}", servers.logs());
        servers.grants_end_with_the_registration();
        servers
    }

    /// What the gateway is no longer sure to see is not granted, and is again once it is. Every test would
    /// notice, so it is tried before them.
    fn grants_end_with_the_registration(&self) {
        let change = |policy: &str| {
            let patch =
                json!([{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": policy}]).to_string();
            let configuration = ["patch", "validatingwebhookconfiguration", "portcullis"];
            servers::kubectl(
                &self.cluster,
                &[&configuration[..], &["--type=json", "-p", &patch]].concat(),
            );
        };
        let post = || self.post("dora", PODS, &pod("registered-", GOOD));
        change("Ignore");
        let is_over = || {
            let response = post();
            response.status == 403 && response.text().contains("cannot create resource")
        };
        assert!(eventually(is_over), "{}", self.logs());
        change("Fail");
        assert!(eventually(|| post().status == 201), "{}", self.logs());
    }

    fn post(&self, user: &str, path: &str, object: &Value) -> Response {
        self.cluster.user(user).post(path, object).unwrap()
    }

    /// Fails unless the object is made, or refused by the policy of this name.
    fn check(&self, response: &Response, refused_by: Option<&str>) {
        match refused_by {
            None => assert!(response.status < 300, "{}\n{}", response.text(), self.logs()),
            Some(name) => {
                assert_eq!(response.status, 403, "{}", response.text());
                assert!(response.text().contains(name), "{}", response.text());
                assert_eq!(response.json()["reason"], "Forbidden");
            }
        }
    }
}

impl Logs for Servers {
    fn logs(&self) -> String {
        self.gateway.tail() + &self.cluster.tails()
    }
}

const GOOD: &str = "registry.corp/a";
const BAD: &str = "registry.example/a";

/// A name that ends in `-` is one to be completed.
fn pod(name: &str, image: &str) -> Value {
    let field = if name.ends_with('-') {
        "generateName"
    } else {
        "name"
    };
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {field: name},
        "spec": {"automountServiceAccountToken": false, "containers": [{"name": "a", "image": image}]},
    })
}

fn map(name: &str, owner: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"owner": owner}}})
}

pub(crate) fn a_pod_is_created_only_with_an_image_that_the_conditions_allow() {
    let Some(servers) = shared() else { return };
    let by = Some("devs-images");
    servers.check(&servers.post("dora", PODS, &pod("good", GOOD)), None);
    servers.check(&servers.post("dora", PODS, &pod("bad", BAD)), by);
    servers.check(&servers.post("dora", PODS, &pod("good-", GOOD)), None);
    servers.check(&servers.post("dora", PODS, &pod("bad-", BAD)), by);
    let dry = format!("{PODS}?dryRun=All");
    servers.check(&servers.post("dora", &dry, &pod("dry", GOOD)), None);
    servers.check(&servers.post("dora", &dry, &pod("dry", BAD)), by);
    let mut two = pod("two", GOOD);
    two["spec"]["containers"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "b", "image": BAD}));
    servers.check(&servers.post("dora", PODS, &two), by);
    // Another owner, finalizer or name changes nothing.
    let mut owned = pod("owned", BAD);
    owned["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Pod", "name": "good", "uid": "1"}]);
    servers.check(&servers.post("dora", PODS, &owned), by);
    // Nothing else is granted.
    let secrets = "/api/v1/namespaces/grants/secrets";
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
    assert_eq!(servers.post("dora", secrets, &secret).status, 403);
    assert_eq!(
        servers
            .post("dora", "/api/v1/namespaces/default/pods", &pod("p", GOOD))
            .status,
        403
    );
}

pub(crate) fn an_update_a_patch_and_an_apply_must_meet_them_too() {
    let Some(servers) = shared() else { return };
    let by = Some("devs-images");
    let dina = servers.cluster.user("dina");
    let at = |name: &str| format!("{PODS}/{name}");
    servers.check(&servers.post("dina", PODS, &pod("changed", GOOD)), None);
    let image = |image: &str| json!({"spec": {"containers": [{"name": "a", "image": image}]}});
    let patch = "application/strategic-merge-patch+json";
    servers.check(
        &dina
            .patch(&at("changed"), patch, &image("registry.corp/b"))
            .unwrap(),
        None,
    );
    servers.check(&dina.patch(&at("changed"), patch, &image(BAD)).unwrap(), by);
    let mut stored = dina.get(&at("changed")).unwrap().json();
    stored["spec"]["containers"][0]["image"] = BAD.into();
    servers.check(&dina.put(&at("changed"), &stored).unwrap(), by);
    stored["spec"]["containers"][0]["image"] = "registry.corp/c".into();
    servers.check(&dina.put(&at("changed"), &stored).unwrap(), None);
    // An apply that creates is a CREATE, whose reviews name the object.
    let apply = "application/apply-patch+yaml";
    let applied = |name: &str| format!("{}?fieldManager=dina", at(name));
    servers.check(
        &dina
            .patch(&applied("by-apply"), apply, &pod("by-apply", BAD))
            .unwrap(),
        by,
    );
    servers.check(
        &dina
            .patch(&applied("by-apply"), apply, &pod("by-apply", GOOD))
            .unwrap(),
        None,
    );
    servers.check(
        &dina
            .patch(
                &format!("{}&force=true", applied("by-apply")),
                apply,
                &pod("by-apply", BAD),
            )
            .unwrap(),
        by,
    );
    let subresource = dina.patch(
        &format!("{}/ephemeralcontainers", at("changed")),
        patch,
        &json!({}),
    );
    assert_eq!(subresource.unwrap().status, 403);
}

pub(crate) fn what_rbac_grants_passes_whatever_the_object_is() {
    let Some(servers) = shared() else { return };
    servers.cluster.bind_everything("dirk");
    let passes = || servers.post("dirk", PODS, &pod("by-rbac-", BAD)).status == 201;
    assert!(eventually(passes), "{}", servers.logs());
}

pub(crate) fn an_authorizer_behind_the_gateway_is_asked_before_a_refusal() {
    let Some(servers) = shared() else { return };
    servers.check(&servers.post("dwight", PODS, &pod("dwight-good", GOOD)), None);
    let before = servers.authorizer.asked().len();
    servers.check(&servers.post("dwight", PODS, &pod("dwight-bad", BAD)), None);
    let asked = servers.authorizer.asked().split_off(before);
    let attributes = &asked.first().expect("it is asked").review["spec"]["resourceAttributes"];
    assert_eq!(
        (
            &attributes["verb"],
            &attributes["resource"],
            attributes.get("name")
        ),
        (&json!("create"), &json!("pods"), None)
    );
    // It allows no update.
    let dwight = servers.cluster.user("dwight");
    let image = json!({"spec": {"containers": [{"name": "a", "image": BAD}]}});
    let patch = "application/strategic-merge-patch+json";
    let updated = dwight
        .patch(&format!("{PODS}/dwight-good"), patch, &image)
        .unwrap();
    servers.check(&updated, Some("devs-images"));
}

pub(crate) fn a_command_is_run_only_where_the_conditions_allow_it() {
    let Some(servers) = shared() else { return };
    servers.check(&servers.post("debby", PODS, &pod("run", GOOD)), None);
    let exec = |command: &str| format!("{PODS}/run/exec?container=a&stdout=true&command={command}");
    let debby = servers.cluster.user("debby");
    for ask in [debby.post(&exec("sh"), &Value::Null), debby.get(&exec("sh"))] {
        servers.check(&ask.unwrap(), Some("devs-exec"));
    }
    // Nobody runs the pod, of which the API server says so.
    let allowed = debby.post(&exec("true"), &Value::Null).unwrap();
    assert_ne!(allowed.status, 403, "{}", allowed.text());
}

pub(crate) fn users_write_and_delete_what_carries_their_name_alone() {
    let Some(servers) = shared() else { return };
    let by = Some("owners-own");
    let olga = servers.cluster.user("olga");
    let admin = servers.cluster.admin();
    servers.check(&servers.post("olga", CONFIGMAPS, &map("own", "olga")), None);
    servers.check(&servers.post("olga", CONFIGMAPS, &map("mine", "otto")), by);
    servers.check(&admin.post(CONFIGMAPS, &map("others", "otto")).unwrap(), None);
    let at = |name: &str| format!("{CONFIGMAPS}/{name}");
    // Taken over, and given away.
    servers.check(&olga.put(&at("others"), &map("others", "olga")).unwrap(), by);
    servers.check(&olga.put(&at("own"), &map("own", "otto")).unwrap(), by);
    servers.check(&olga.delete(&at("others")).unwrap(), by);
    // Of a collection, each object is judged: the first that is somebody else's ends it.
    let response = olga.delete(CONFIGMAPS).unwrap();
    assert_eq!(response.status, 403, "{}", response.text());
    assert_eq!(admin.get(&at("others")).unwrap().status, 200);
    servers.check(&servers.post("olga", CONFIGMAPS, &map("own-two", "olga")), None);
    servers.check(&olga.delete(&at("own-two")).unwrap(), None);
}

pub(crate) fn a_deny_with_conditions_refuses_what_meets_them() {
    let Some(servers) = shared() else { return };
    let mut forbidden = pod("forbidden", GOOD);
    forbidden["metadata"]["labels"] = json!({"forbidden": "yes"});
    let refused = servers.post("dan", PODS, &forbidden);
    servers.check(&refused, Some("no-privileged-names"));
    assert!(
        refused.text().contains("forbidden is forbidden"),
        "{}",
        refused.text()
    );
    servers.check(&servers.post("dan", PODS, &pod("not-forbidden", GOOD)), None);
}

/// What an API server has cached of a policy that is gone lets nothing pass that the policy would not.
pub(crate) fn a_removed_allow_leaves_no_time_in_which_anything_passes() {
    let Some(servers) = shared() else { return };
    let data = |name: String, is: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"is": is}});
    let granted = || {
        let name = "daisy-good".to_owned();
        matches!(
            servers.post("daisy", CONFIGMAPS, &data(name, "good")).status,
            201 | 409
        )
    };
    assert!(eventually(granted), "{}", servers.logs());
    servers.check(
        &servers.post("daisy", CONFIGMAPS, &data("daisy-bad".to_owned(), "bad")),
        Some("for-a-while"),
    );
    fs::remove_file(servers.set_up.path("policies/removed.yaml")).unwrap();
    let mut number = 0;
    let ended = eventually(|| {
        number += 1;
        let bad = servers.post("daisy", CONFIGMAPS, &data(format!("daisy-bad-{number}"), "bad"));
        assert_eq!(bad.status, 403, "{}", bad.text());
        // Once the API server asks again, it is told that nothing grants it.
        !bad.text().contains("for-a-while")
    });
    assert!(ended, "{}", servers.logs());
}
