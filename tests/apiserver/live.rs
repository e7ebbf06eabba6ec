//! Commands that read a cluster: who-can, what-can, authorize, admit and scan with
//! `--kubeconfig`, and as kubectl's plugin.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::binaries;
use crate::cluster::{Cluster, User};
use crate::harness::eventually;
use crate::harness::folder::Folder;
use crate::lease::{Lease, Logs};

const USERS: [User; 3] = [
    User {
        name: "alice",
        groups: &[],
    },
    User {
        name: "bob",
        groups: &[],
    },
    User {
        name: "scanner",
        groups: &[],
    },
];

/// RBAC, a Deny, and policies that some of the Pods and ConfigMaps do not follow.
const OBJECTS: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: readers, namespace: shop}
rules: [{apiGroups: [""], resources: [secrets], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: readers, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: readers}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: scanner}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: portcullis-scan}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: scanner}]
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: no-contractors}
spec:
  effect: Deny
  subjects: [{kind: Group, name: contractors}]
  resourceRules: [{verbs: [get], apiGroups: [""], resources: [secrets], namespaceSelector: {matchLabels: {tier: prod}}}]
  reason: contractors see no secrets
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: owner}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}
  matchConditions: [{name: test, expression: "object.metadata.name.startsWith('test-')"}]
  validations:
  - expression: "!has(object.metadata.labels) || object.metadata.labels[params.data.label] != 'nobody'"
    message: somebody must own it
  - expression: "object.metadata.namespace != 'shop' || request.userInfo.username == 'root'"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: owner}
spec:
  policyName: owner
  validationActions: [Deny]
  paramRef: {name: limits, namespace: shop, parameterNotFoundAction: Deny}
  matchResources: {namespaceSelector: {matchLabels: {tier: prod}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: requests}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations: [{expression: "object.spec.containers.all(c, has(c.resources.requests))", message: no requests}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: requests}
spec: {policyName: requests, validationActions: [Audit]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: builder}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: builder, namespace: ci}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: debug, namespace: ci}
rules: [{apiGroups: [""], resources: [pods/exec], verbs: [create]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: debug, namespace: ci}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: debug}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: erin}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: run, namespace: ci}
rules: [{apiGroups: [""], resources: [pods], verbs: [create]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: run, namespace: ci}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: run}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: frank}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: ticket}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations: [{expression: "has(object.metadata.labels) && 'ticket' in object.metadata.labels", message: no ticket}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: ticket}
spec: {policyName: ticket, validationActions: [Deny], matchResources: {namespaceSelector: {matchLabels: {tier: build}}}}
"#;

/// As much of the CustomResourceDefinitions of OpenReports as a report needs.
const REPORTS: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: KINDs.openreports.io}
spec:
  group: openreports.io
  names: {kind: TITLE, listKind: TITLEList, plural: KINDs, singular: KIND}
  scope: SCOPE
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          source: {type: string}
          configuration:
            type: object
            required: [limits]
            properties:
              limits:
                type: object
                properties:
                  maxResults: {type: integer}
                  statusFilter: {type: array, items: {type: string, enum: [pass, fail, warn, error, skip]}}
          summary:
            type: object
            properties: {pass: {type: integer}, fail: {type: integer}, warn: {type: integer}, error: {type: integer}, skip: {type: integer}}
          results:
            type: array
            items:
              type: object
              required: [policy]
              properties:
                policy: {type: string}
                result: {type: string, enum: [pass, fail, warn, error, skip]}
                scored: {type: boolean}
                message: {type: string}
                timestamp:
                  type: object
                  required: [nanos, seconds]
                  properties: {seconds: {type: integer, format: int64}, nanos: {type: integer, format: int32}}
                properties: {type: object, additionalProperties: {type: string}}
                resources:
                  type: array
                  items:
                    type: object
                    properties: {apiVersion: {type: string}, kind: {type: string}, namespace: {type: string}, name: {type: string}, uid: {type: string}}
"#;

struct LiveServer(Cluster);

static SHARED: LazyLock<LiveServer> = LazyLock::new(start);

impl Logs for LiveServer {
    fn logs(&self) -> String {
        self.0.tails()
    }
}

fn start() -> LiveServer {
    let cluster = Cluster::start(
        &binaries::find().unwrap(),
        Folder::new("live"),
        &USERS,
        &["--authorization-mode=RBAC".to_owned()],
    );
    for (name, tier) in [
        ("shop", "prod"),
        ("bank", "prod"),
        ("dev", "test"),
        ("ci", "build"),
    ] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"tier": tier}}});
        cluster.create("/api/v1/namespaces", &namespace);
    }
    let map = |name: &str, labels: Value, data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}, "data": data});
    cluster.create(
        "/api/v1/namespaces/shop/configmaps",
        &map("limits", json!({}), json!({"label": "owner"})),
    );
    cluster.create(
        "/api/v1/namespaces/shop/configmaps",
        &map("test-1", json!({"owner": "a"}), json!({})),
    );
    // More than a page.
    for number in 0..510 {
        let owner = if number == 505 { "nobody" } else { "a" };
        let name = format!("test-{number:03}");
        cluster.create(
            "/api/v1/namespaces/bank/configmaps",
            &map(&name, json!({"owner": owner}), json!({})),
        );
    }
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    cluster.create("/apis/apps/v1/namespaces/dev/deployments", &deployment);
    for name in ["builder", "default"] {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
        cluster.create("/api/v1/namespaces/ci/serviceaccounts", &account);
    }
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "build-1", "labels": {"ticket": "7"}}, "spec": {
        "serviceAccountName": "builder", "automountServiceAccountToken": false,
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1m"}}}]}});
    cluster.create("/api/v1/namespaces/ci/pods", &pod);
    for (kind, title, scope) in [
        ("report", "Report", "Namespaced"),
        ("clusterreport", "ClusterReport", "Cluster"),
    ] {
        let text = REPORTS
            .replace("KIND", kind)
            .replace("TITLE", title)
            .replace("SCOPE", scope);
        apply(&cluster, kind, &text);
    }
    let shipped =
        |file: &str| std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
    apply(&cluster, "crd", &shipped("config/crd/authorizationpolicies.yaml"));
    apply(&cluster, "scan", &shipped("deploy/scan/cronjob.yaml"));
    for path in [
        "/apis/portcullis.dev/v1alpha1/authorizationpolicies",
        "/apis/openreports.io/v1alpha1/reports",
        "/apis/openreports.io/v1alpha1/clusterreports",
    ] {
        assert!(eventually(|| cluster.status("admin", path) == 200), "{path}");
    }
    apply(&cluster, "objects", OBJECTS);
    LiveServer(cluster)
}

fn apply(cluster: &Cluster, name: &str, text: &str) {
    let file = cluster.folder().join(format!("{name}.yaml"));
    std::fs::write(&file, text).unwrap();
    let run = cluster.kubectl("admin", &["apply", "-f", file.to_str().unwrap()]);
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}

/// What a run printed, what it complained of, and how it ended.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// Runs the program as this user.
fn portcullis(cluster: &Cluster, user: &str, arguments: &str) -> Ran {
    Command::new(env!("CARGO_BIN_EXE_portcullis"))
        .args(arguments.split_whitespace())
        .arg("--kubeconfig")
        .arg(cluster.kubeconfig(user))
        .output()
        .unwrap()
        .into()
}

pub(crate) fn who_can_and_what_can_read_rbac_and_denies_of_the_cluster() {
    let Some(server) = Lease::of(&SHARED) else { return };
    let run = portcullis(&server.0, "admin", "who-can get secrets -n shop -o json");
    assert_eq!(run.code, Some(0), "{run:?}");
    let printed: Value = serde_json::from_str(&run.stdout).unwrap();
    let subjects = printed["subjects"].as_array().unwrap();
    let alice = subjects
        .iter()
        .find(|subject| subject["name"] == "alice")
        .unwrap();
    assert_eq!(
        (&alice["via"][0]["name"], &alice["deniedBy"]),
        (&json!("readers"), &json!(["no-contractors"]))
    );
    let elsewhere = portcullis(&server.0, "admin", "who-can get secrets -n dev");
    assert!(!elsewhere.stdout.contains("alice"), "{elsewhere:?}");
    let run = portcullis(&server.0, "admin", "what-can --user alice -n shop");
    assert!(run.stdout.contains("RoleBinding/shop/readers, rule 0"), "{run:?}");
    for (group, decision) in [("guests", Some(0)), ("contractors", Some(1))] {
        let question =
            format!("authorize --user alice --group {group} --verb get --resource secrets -n shop");
        let run = portcullis(&server.0, "admin", &question);
        assert_eq!(run.code, decision, "{run:?}");
    }
}

/// The Pod that a step needs is one that runs, or one that the policies of the cluster refuse.
pub(crate) fn escalations_name_pods_that_run_and_policies_that_refuse_others() {
    let Some(server) = Lease::of(&SHARED) else { return };
    let ask = |user: &str| portcullis(&server.0, "admin", &format!("escalations --from {user}"));
    let erin = ask("erin");
    let by_exec = "  create pods/exec in ci -> ServiceAccount ci/builder (RoleBinding/ci/debug)\n    Pod ci/build-1 runs as it\n";
    assert!(erin.code == Some(0) && erin.stdout.contains(by_exec), "{erin:?}");
    let none = "  create pods/exec in ci -> ServiceAccount ci/default (RoleBinding/ci/debug)\n    if a Pod \
        runs as it, which none does now\n";
    assert!(erin.stdout.contains(none), "{erin:?}");
    let frank = ask("frank");
    let refused = "  create pods in ci -> ServiceAccount ci/builder (RoleBinding/ci/run)\n    the simplest \
        Pod of this kind is refused by ValidatingAdmissionPolicy/ticket: ";
    assert!(
        frank.code == Some(0) && frank.stdout.contains(refused),
        "{frank:?}"
    );
    assert!(frank.stdout.contains("no ticket"), "{frank:?}");
}

/// As `serve` merges them: where both have an object, that of the files holds.
const OF_THE_GATEWAY: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: of-the-files, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: readers}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: carol}]
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: no-contractors}
spec:
  effect: Deny
  subjects: [{kind: Group, name: temps}]
  resourceRules: [{verbs: [get], apiGroups: [""], resources: [secrets], namespaceSelector: {matchLabels: {tier: prod}}}]
  reason: temps see no secrets
"#;

pub(crate) fn the_files_of_the_gateway_and_the_cluster_answer_together() {
    let Some(server) = Lease::of(&SHARED) else { return };
    let folder = Folder::new("live-files");
    let set_up = folder.path().join("gateway");
    let output = Command::new(env!("CARGO_BIN_EXE_portcullis"))
        .arg("init")
        .arg(&set_up)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    std::fs::write(set_up.join("policies/own.yaml"), OF_THE_GATEWAY).unwrap();
    let config = format!("--config {}", set_up.join("portcullis.yaml").display());
    let ask = |question: &str, config: &str| portcullis(&server.0, "admin", &format!("{question} {config}"));

    let who = ask("who-can get secrets -n shop -o json", &config);
    assert_eq!(who.code, Some(0), "{who:?}");
    for name in ["alice", "carol"] {
        assert!(
            who.stdout.contains(&format!("\"name\": \"{name}\"")),
            "{name}: {who:?}"
        );
    }
    assert_eq!(who.stderr, "");
    // The labels of the Namespace are the cluster's, the Deny that of the files.
    for (group, code) in [("temps", 1), ("contractors", 0)] {
        let question =
            format!("authorize --user alice --group {group} --verb get --resource secrets -n shop");
        let run = ask(&question, &config);
        assert_eq!(run.code, Some(code), "{run:?}");
        assert_eq!(run.stdout.contains("temps see no secrets"), code == 1, "{run:?}");
        assert_eq!(run.stderr, "");
    }
    // The cluster alone, and that something is missing.
    let question = "authorize --user alice --group temps --verb get --resource secrets -n shop";
    let run = ask(question, "");
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(
        run.stderr.contains("name its configuration with `--config`"),
        "{run:?}"
    );

    let log = json!({"time": "2026-11-21T08:00:00.000000Z", "revision": "8f2c41d09a7b", "cluster": "default",
        "caller": "kube-apiserver", "endpoint": "authorize", "uid": "", "user": "alice", "groups": [],
        "attributes": {"verb": "get", "namespace": "shop", "version": "v1", "resource": "secrets", "name": "db"},
        "decision": "allow", "reason": "", "shadow": [], "durationSeconds": 0.000001,
        "cause": {"kind": "RoleBinding", "namespace": "shop", "name": "readers", "rule": 0}});
    let log = folder.write("decisions.log", format!("{log}\n"));
    let suggested = ask(&format!("suggest {} -o json", log.display()), &config);
    assert_eq!(suggested.code, Some(0), "{suggested:?}");
    for unused in ["of-the-files", "scanner"] {
        assert!(suggested.stdout.contains(unused), "{unused}: {suggested:?}");
    }
}

pub(crate) fn who_lacks_a_permission_is_told_which() {
    let Some(server) = Lease::of(&SHARED) else { return };
    for command in ["who-can get secrets", "scan -A"] {
        let run = portcullis(&server.0, "bob", command);
        assert_eq!(run.code, Some(2), "{run:?}");
        for said in [
            "User \"bob\" cannot list resource",
            ": allow this user to get and list `",
        ] {
            assert!(run.stderr.contains(said), "{run:?}");
        }
    }
    let run = portcullis(&server.0, "admin", "who-can get secrets --manifests /nowhere");
    assert_eq!(run.code, Some(2), "{run:?}");
    let run = portcullis(&server.0, "admin", "who-can get secrets --context nowhere");
    assert!(
        run.code == Some(2) && run.stderr.contains("`--context`"),
        "{run:?}"
    );
}

pub(crate) fn as_the_plugin_of_kubectl_it_asks_the_cluster_of_the_context() {
    let Some(server) = Lease::of(&SHARED) else { return };
    let folder = tempfile::tempdir().unwrap();
    symlink(
        env!("CARGO_BIN_EXE_portcullis"),
        folder.path().join("kubectl-portcullis"),
    )
    .unwrap();
    let mut kubeconfig: Value =
        serde_json::from_str(&std::fs::read_to_string(server.0.kubeconfig("admin")).unwrap()).unwrap();
    kubeconfig["contexts"][0]["context"]["namespace"] = json!("shop");
    let file = folder.path().join("config");
    std::fs::write(&file, kubeconfig.to_string()).unwrap();
    let path = std::env::join_paths([folder.path().into(), std::path::PathBuf::from("/bin")]).unwrap();
    let run: Ran = Command::new(&binaries::find().unwrap().kubectl)
        .args(["portcullis", "who-can", "get", "secrets"])
        .env("PATH", path)
        .env("KUBECONFIG", &file)
        .env("HOME", folder.path())
        .output()
        .unwrap()
        .into();
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.contains("RoleBinding/shop/readers, rule 0"), "{run:?}");
}

pub(crate) fn a_cluster_is_scanned_page_by_page_and_reports_are_written() {
    let Some(server) = Lease::of(&SHARED) else { return };
    let cluster = &server.0;
    // Of a namespace of which nothing is judged any more.
    let stale = json!({"apiVersion": "openreports.io/v1alpha1", "kind": "Report", "metadata": {"name": "portcullis"}});
    cluster.create("/apis/openreports.io/v1alpha1/namespaces/default/reports", &stale);
    let run = portcullis(cluster, "scanner", "scan -A --write-reports");
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(
        run.stdout.contains(
            "ConfigMap/bank/test-505: fail: somebody must own it (policy `owner`, binding `owner`)\n"
        ),
        "{run:?}"
    );
    assert!(
        run.stdout.contains(
            "Deployment/dev/web: warn: the Pod that it creates: no requests (policy `requests`, binding \
            `requests`)\n"
        ),
        "{run:?}"
    );
    assert!(
        run.stdout.contains(
            "skip: policy `owner`: `request.userInfo` is not known during a scan: ConfigMap/shop/test-1\n"
        ),
        "{run:?}"
    );
    assert!(
        run.stdout.contains(": 512 pass, 1 fail, 1 warn, 0 error, 1 skip"),
        "{run:?}"
    );
    let get = |path: &str| cluster.admin().get(path).unwrap().json();
    let reports = get("/apis/openreports.io/v1alpha1/reports");
    let namespaces: Vec<&Value> = (reports["items"].as_array().unwrap().iter())
        .map(|report| &report["metadata"]["namespace"])
        .collect();
    assert_eq!(namespaces, ["bank", "ci", "dev", "portcullis", "shop"]);
    let bank = &reports["items"][0];
    assert_eq!(
        bank["summary"],
        json!({"pass": 509, "fail": 1, "warn": 0, "error": 0, "skip": 0})
    );
    let results = bank["results"].as_array().unwrap();
    assert_eq!(results.len(), 1, "{bank}");
    assert_eq!(results[0]["resources"][0]["name"], "test-505");
    assert!(results[0]["resources"][0]["uid"].is_string(), "{bank}");
    // Again, over what is there.
    let again = portcullis(cluster, "scanner", "scan -n bank --write-reports");
    assert_eq!(again.code, Some(1), "{again:?}");
    assert!(
        again
            .stdout
            .ends_with("510 objects: 509 pass, 1 fail, 0 warn, 0 error, 0 skip\n"),
        "{again:?}"
    );
}

pub(crate) fn manifests_are_judged_by_the_policies_of_the_cluster() {
    let Some(server) = Lease::of(&SHARED) else { return };
    let file = server.0.folder().join("new.yaml");
    std::fs::write(
        &file,
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: test-new, namespace: bank, labels: {owner: nobody}}\n",
    )
    .unwrap();
    let run = portcullis(&server.0, "admin", &format!("scan -f {}", file.display()));
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(
        run.stdout
            .contains(":3:45: ConfigMap/bank/test-new: fail: somebody must own it"),
        "{run:?}"
    );
}

pub(crate) fn a_definition_in_manifests_is_no_match_for_what_the_cluster_serves() {
    let Some(server) = Lease::of(&SHARED) else { return };
    let file = server.0.folder().join("defined.yaml");
    let object = "apiVersion: openreports.io/v1alpha1\nkind: Report\nmetadata: {name: a, namespace: bank}\n";
    let definition = "---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n\
                      metadata: {name: foos.openreports.io}\n\
                      spec: {group: openreports.io, scope: Namespaced, names: {kind: Report, plural: foos}}\n";
    for command in ["scan", "admit"] {
        for (definition, is_taken) in [("", true), (definition, false)] {
            std::fs::write(&file, format!("{object}{definition}")).unwrap();
            let run = portcullis(&server.0, "admin", &format!("{command} -f {}", file.display()));
            assert_eq!(run.code == Some(0), is_taken, "{run:?}");
            assert!(!run.stderr.contains("is not known"), "{run:?}");
            let said = "is `reports` (namespaced) by what the cluster serves";
            assert_eq!(run.stderr.contains(said), !is_taken, "{run:?}");
        }
    }
}
