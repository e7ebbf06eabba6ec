//! AccessRequests: a role for a time, and the attacks of a user who wants it without being approved.
//!
//! ```text
//!  ann ── kubectl portcullis request ──▶ kube-apiserver ──▶ /mutate (who) ──▶ /validate (may she ask?)
//!  bob ── kubectl portcullis approve ──▶       │       ──▶ /mutate (who, when) ──▶ /validate (may he?)
//!  ann ── create a ConfigMap ─────────▶        └─────────▶ /authorize ─ yes, until the time is over
//! ```

use crate::binaries::{self, Binaries};
use crate::cluster::{Cluster, User};
use crate::cluster_source::servers;
use crate::control_plane::servers::SetUp;
use crate::harness::client::Response;
use crate::harness::eventually;
use crate::harness::folder::Folder;
use crate::harness::process::Process;
use crate::lease::{Lease, Logs};
use serde_json::{Value, json};
use std::fs;
use std::process::Command;
use std::sync::LazyLock;

const GATEWAY: User = User {
    name: "portcullis",
    groups: &[],
};

/// Ann, Amy and Abe ask; Bob and Cid approve, and Cid lifts; Eve has nothing but the right to write the objects.
const USERS: [User; 7] = [
    GATEWAY,
    person("ann"),
    person("amy"),
    person("abe"),
    person("bob"),
    person("cid"),
    person("eve"),
];

const fn person(name: &'static str) -> User {
    User {
        name,
        groups: &["people"],
    }
}

const REQUESTS: &str = "/apis/portcullis.dev/v1alpha1/accessrequests";
const CONFIGMAPS: &str = "/api/v1/namespaces/prod/configmaps";
const MERGE: &str = "application/merge-patch+json";

/// Who may ask, approve and lift; a role for ConfigMaps; and a Deny that can be lifted.
const OBJECTS: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: maps}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [create, get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: access-requests}
rules:
- {apiGroups: [portcullis.dev], resources: [accessrequests], verbs: [create, get, list, watch, update, patch]}
- {apiGroups: [portcullis.dev], resources: [accessrequests/status], verbs: [patch, update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: request-maps}
rules: [{apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], resourceNames: [maps], verbs: [request]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: approve-maps}
rules: [{apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], resourceNames: [maps], verbs: [approve]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: lift-frozen}
rules: [{apiGroups: [portcullis.dev], resources: [authorizationpolicies], resourceNames: [frozen], verbs: [lift]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: access-requests}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: access-requests}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: people}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: request-maps, namespace: prod}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: request-maps}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: ann}
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: amy}
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: abe}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: approve-maps, namespace: prod}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: approve-maps}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: amy}
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: bob}
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: cid}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: lift-frozen}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: lift-frozen}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: cid}]
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: frozen}
spec:
  effect: Deny
  liftable: true
  subjects: [{kind: User, name: abe}]
  resourceRules: [{verbs: [create], apiGroups: [""], resources: [configmaps], namespaces: [prod]}]
"#;

struct Servers {
    cluster: Cluster,
    gateway: Process,
}

static SHARED: LazyLock<Servers> = LazyLock::new(|| Servers::start(&binaries::find().unwrap()));

fn shared() -> Option<Lease<Servers>> {
    Lease::of(&SHARED)
}

impl Servers {
    fn start(binaries: &Binaries) -> Self {
        let folder = Folder::new("access-requests");
        let set_up = SetUp::init(&folder.path().join("set-up"), &[]);
        let gateway = set_up.serve();
        let cluster = Cluster::start(binaries, folder, &USERS, &set_up.api_server_flags());
        for file in [
            "crd/accessrequests.yaml",
            "crd/authorizationpolicies.yaml",
            "crd/admissionexceptions.yaml",
            "crd/authorizationinvariants.yaml",
            "cluster/gateway.yaml",
        ] {
            servers::apply(&cluster, &servers::shipped(file));
        }
        let entry = json!({
            "name": servers::CLUSTER,
            "kubeconfig": cluster.kubeconfig(GATEWAY.name),
            "cacheFile": "default.json",
            "admission": "Declared",
        });
        set_up.rewrite("portcullis.yaml", |text| {
            format!("{text}clusters: [{entry}]\nauthorization: {{accessRequests: {{maxDuration: 4h}}}}\n")
        });
        for namespace in ["prod", "dev"] {
            cluster.create_namespace(namespace);
        }
        let served = || cluster.status("admin", REQUESTS) == 200;
        assert!(eventually(served), "{}", cluster.tails());
        let objects = cluster.folder().join("objects.yaml");
        fs::write(&objects, OBJECTS).unwrap();
        servers::apply(&cluster, &objects);
        let webhooks = set_up.path("webhooks.yaml");
        servers::kubectl(&cluster, &["apply", "--validate=false", "-f", &webhooks]);
        let servers = Self { cluster, gateway };
        // The gateway knows the bindings, and the API server the registrations.
        let is_asked = || {
            let dry = format!("{REQUESTS}?dryRun=All");
            let (eve, ann) = (
                servers.post("eve", &dry, &asked("probe")),
                servers.post("ann", &dry, &asked("probe")),
            );
            eve.text().contains("cannot request clusterroles") && ann.status == 201
        };
        assert!(eventually(is_asked), "{}", servers.logs());
        servers
    }

    fn post(&self, user: &str, path: &str, object: &Value) -> Response {
        self.cluster.user(user).post(path, object).unwrap()
    }

    /// Merges into the status of the AccessRequest `name`.
    fn says(&self, user: &str, name: &str, status: &Value) -> Response {
        let path = format!("{REQUESTS}/{name}/status");
        let patch = json!({"status": status});
        self.cluster.user(user).patch(&path, MERGE, &patch).unwrap()
    }

    fn stored(&self, name: &str) -> Value {
        self.cluster
            .admin()
            .get(&format!("{REQUESTS}/{name}"))
            .unwrap()
            .json()
    }

    fn creates_map(&self, user: &str, name: &str) -> bool {
        matches!(self.post(user, CONFIGMAPS, &map(name)).status, 201 | 409)
    }

    /// Runs `portcullis` as `user`; what it says, if it succeeds.
    fn portcullis(&self, user: &str, arguments: &[&str]) -> Result<String, String> {
        let run = Command::new(env!("CARGO_BIN_EXE_portcullis"))
            .args(arguments)
            .arg("--kubeconfig")
            .arg(self.cluster.kubeconfig(user))
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match run.status.success() {
            true => Ok(text(&run.stdout)),
            false => Err(text(&run.stderr)),
        }
    }
}

impl Logs for Servers {
    fn logs(&self) -> String {
        self.gateway.tail() + &self.cluster.tails()
    }
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

fn asked(name: &str) -> Value {
    json!({
        "apiVersion": "portcullis.dev/v1alpha1", "kind": "AccessRequest", "metadata": {"name": name},
        "spec": {"role": "maps", "namespaces": ["prod"], "duration": "2h", "reason": "INC-1"},
    })
}

fn refuses(response: &Response, why: &str) {
    let text = response.text();
    assert!(matches!(response.status, 403 | 422), "{} {text}", response.status);
    assert!(text.contains(why), "{text}");
}

pub(crate) fn a_role_that_was_asked_for_and_approved_is_there_until_it_is_withdrawn() {
    let Some(servers) = shared() else { return };
    assert!(!servers.creates_map("ann", "early"));
    let request = [
        "request", "maps", "-n", "prod", "--for", "2h", "--reason", "INC-1",
    ];
    let said = servers.portcullis("ann", &request).unwrap();
    assert!(
        said.contains("created: ann asks for maps in prod for 2h"),
        "{said}"
    );
    let name = said
        .split('/')
        .nth(1)
        .and_then(|rest| rest.split(' ').next())
        .unwrap()
        .to_owned();
    assert!(name.starts_with("maps-"), "{name}");
    let refused = servers.portcullis("ann", &["approve", &name]).unwrap_err();
    assert!(
        refused.contains("you cannot approve or deny your own request"),
        "{refused}"
    );
    let said = servers.portcullis("bob", &["approve", &name]).unwrap();
    assert_eq!(
        said,
        format!(
            "accessrequest.portcullis.dev/{name} approved by bob: ann asks for maps in prod for 2h (INC-1)\n"
        )
    );
    assert!(
        eventually(|| servers.creates_map("ann", "granted")),
        "{}",
        servers.logs()
    );
    let dev = "/api/v1/namespaces/dev/configmaps";
    assert_eq!(servers.post("ann", dev, &map("elsewhere")).status, 403);
    assert!(!servers.creates_map("eve", "others"));
    let said = servers.portcullis("ann", &["withdraw", &name]).unwrap();
    assert_eq!(
        said,
        format!(
            "accessrequest.portcullis.dev/{name} withdrawn by ann: ann asks for maps in prod for 2h (INC-1)\n"
        )
    );
    let mut number = 0;
    let ended = eventually(|| {
        number += 1;
        servers
            .post("ann", CONFIGMAPS, &map(&format!("late-{number}")))
            .status
            == 403
    });
    assert!(ended, "{}", servers.logs());
    let refused = servers.portcullis("bob", &["approve", &name]).unwrap_err();
    assert!(refused.contains("final"), "{refused}");
}

/// Whatever Amy writes, who may approve but not what she asks for, is hers and grants nothing.
pub(crate) fn nobody_approves_their_own_or_in_the_name_of_others() {
    let Some(servers) = shared() else { return };
    // Born approved, and asked for by somebody else.
    let mut forged = asked("forged");
    let entry = json!({"username": "bob", "time": "2026-01-01T00:00:00Z"});
    forged["spec"]["requester"] = json!({"username": "bob", "uid": "1", "groups": ["system:masters"]});
    forged["status"] = json!({"approvals": [entry]});
    assert_eq!(servers.post("amy", REQUESTS, &forged).status, 201);
    let stored = servers.stored("forged");
    assert_eq!(stored["spec"]["requester"]["username"], "amy");
    assert_eq!(stored.get("status"), None);
    // In the name of others, through both ways to the status.
    let own = "you cannot approve or deny your own request";
    refuses(
        &servers.says("amy", "forged", &json!({"approvals": [entry]})),
        own,
    );
    let path = format!("{REQUESTS}/forged");
    let amy = servers.cluster.user("amy");
    let through_main = amy
        .patch(&path, MERGE, &json!({"status": {"approvals": [entry]}}))
        .unwrap();
    assert_eq!(through_main.status, 200, "{}", through_main.text());
    assert_eq!(servers.stored("forged").get("status"), None);
    let add = json!([{"op": "add", "path": "/status", "value": {"approvals": [entry]}}]);
    let by_json_patch = amy
        .patch(&format!("{path}/status"), "application/json-patch+json", &add)
        .unwrap();
    refuses(&by_json_patch, own);
    let mut whole = servers.stored("forged");
    whole["status"] = json!({"approvals": [entry]});
    refuses(&amy.put(&format!("{path}/status"), &whole).unwrap(), own);
    let applied = json!({
        "apiVersion": "portcullis.dev/v1alpha1", "kind": "AccessRequest", "metadata": {"name": "forged"},
        "status": {"approvals": [entry]},
    });
    let apply = format!("{path}/status?fieldManager=amy&force=true");
    refuses(
        &amy.patch(&apply, "application/apply-patch+yaml", &applied)
            .unwrap(),
        own,
    );
    // Eve, who may not approve at all.
    refuses(
        &servers.says("eve", "forged", &json!({"approvals": [entry]})),
        "cannot approve clusterroles",
    );
    assert!(!servers.creates_map("amy", "forged"));
}

pub(crate) fn what_is_asked_for_never_changes_and_entries_are_only_added() {
    let Some(servers) = shared() else { return };
    assert_eq!(servers.post("amy", REQUESTS, &asked("fixed")).status, 201);
    let path = format!("{REQUESTS}/fixed");
    let amy = servers.cluster.user("amy");
    for spec in [
        json!({"role": "cluster-admin"}),
        json!({"namespaces": null}),
        json!({"duration": "4h"}),
        json!({"more": true}),
    ] {
        let changed = amy.patch(&path, MERGE, &json!({"spec": spec})).unwrap();
        refuses(&changed, "never changes");
    }
    let restored = amy.patch(&path, MERGE, &json!({"spec": {"requester": {"username": "eve"}}}));
    assert_eq!(restored.unwrap().status, 200);
    assert_eq!(servers.stored("fixed")["spec"]["requester"]["username"], "amy");
    // Bob writes what he saw, and so does Cid, who did not see what Bob wrote.
    let bob = servers.says("bob", "fixed", &json!({"approvals": [{}]}));
    assert_eq!(bob.status, 200, "{}", bob.text());
    let only_added = "a request may only add one entry to the status";
    let forged = json!([{"username": "bob", "time": "2026-01-01T00:00:00Z"}, {}]);
    refuses(
        &servers.says("cid", "fixed", &json!({"approvals": forged})),
        only_added,
    );
    refuses(
        &servers.says("eve", "fixed", &json!({"approvals": []})),
        only_added,
    );
    refuses(&servers.says("eve", "fixed", &Value::Null), only_added);
    refuses(
        &servers.says("eve", "fixed", &json!({"withdrawn": {}})),
        "cannot approve clusterroles",
    );
    let denied = servers.says("cid", "fixed", &json!({"denied": {}}));
    assert_eq!(denied.status, 200, "{}", denied.text());
    assert_eq!(servers.stored("fixed")["status"]["denied"]["username"], "cid");
    refuses(
        &servers.says("cid", "fixed", &json!({"denied": null})),
        only_added,
    );
    assert!(!servers.creates_map("amy", "fixed"));
    // More than may be asked for.
    let mut longer = asked("longer");
    longer["spec"]["duration"] = json!("5h");
    refuses(&servers.post("amy", REQUESTS, &longer), "at most 14400s");
    let mut wider = asked("wider");
    wider["spec"]["namespaces"] = json!(["dev"]);
    refuses(
        &servers.post("amy", REQUESTS, &wider),
        "cannot request clusterroles",
    );
    let dry = servers.post("eve", &format!("{REQUESTS}?dryRun=All"), &asked("dry"));
    refuses(&dry, "cannot request clusterroles");
}

pub(crate) fn a_deny_is_lifted_where_whoever_approves_may_lift_it() {
    let Some(servers) = shared() else { return };
    let mut lifting = asked("lifting");
    lifting["spec"]["lifts"] = json!(["frozen"]);
    assert_eq!(servers.post("abe", REQUESTS, &lifting).status, 201);
    refuses(
        &servers.post("abe", CONFIGMAPS, &map("frozen")),
        "denied by AuthorizationPolicy",
    );
    refuses(
        &servers.says("bob", "lifting", &json!({"approvals": [{}]})),
        "cannot lift authorizationpolicies",
    );
    let approved = servers.says("cid", "lifting", &json!({"approvals": [{}]}));
    assert_eq!(approved.status, 200, "{}", approved.text());
    assert!(
        eventually(|| servers.creates_map("abe", "thawed")),
        "{}",
        servers.logs()
    );
}
