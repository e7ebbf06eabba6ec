//! Pods: created, updated, deleted, exec'd, and the rest of what an API server
//! does with a review's answer.

use super::servers::{self, BY_TOKEN, KITTENS, assert_denied, object, wait_until};
use crate::cluster::Cluster;
use serde_json::{Value, json};

pub(super) const POLICIES: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: images}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}
  validations:
  - expression: "object.spec.containers.all(c, !c.image.endsWith(':latest'))"
    message: images need a version
    reason: Forbidden
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: images}
spec: {policyName: images, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: registry}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  validations:
  - expression: "!object.spec.containers.exists(c, c.image.startsWith('old.example/'))"
    messageExpression: "'pod ' + object.metadata.name + ' comes from the old registry'"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: registry}
spec: {policyName: registry, validationActions: [Warn, Audit]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: kept}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [DELETE], resources: [pods]}
    objectSelector: {matchLabels: {keep: "yes"}}
  validations:
  - {expression: "false", message: this pod stays}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: kept}
spec: {policyName: kept, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: exec}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CONNECT], resources: [pods/exec]}
  validations:
  - expression: "!('rm' in object.command)"
    messageExpression: "request.userInfo.username + ' removes nothing in ' + request.name"
    reason: Forbidden
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: exec}
spec: {policyName: exec, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: replicas}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [apps], apiVersions: [v1], operations: [UPDATE], resources: [deployments/scale]}
  validations:
  - expression: object.spec.replicas <= 5
    messageExpression: "'from ' + string(oldObject.spec.replicas) + ' to ' + string(object.spec.replicas) + ' is too far'"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: replicas}
spec: {policyName: replicas, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: config-maps}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}
  validations:
  - {expression: "object.metadata.name != 'unwanted'", message: nobody wants this config map}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: config-maps}
spec: {policyName: config-maps, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: team}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: >-
        has(object.metadata.annotations)
        ? [JSONPatch{op: 'add', path: '/metadata/annotations/' + jsonpatch.escapeKey('example.com/team'), value: object.metadata.namespace}]
        : [JSONPatch{op: 'add', path: '/metadata/annotations', value: {'example.com/team': object.metadata.namespace}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: team}
spec: {policyName: team}
"#;

const PODS: &str = "/api/v1/namespaces/kittens/pods";
const TEAM: &str = "/metadata/annotations/example.com~1team";

fn pod(name: &str, image: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": KITTENS},
        "spec": {"containers": [{"name": "main", "image": image}]},
    })
}

/// Waits until the API server asks both webhooks.
pub(super) fn wait_until_heard(cluster: &Cluster) {
    let try_out = |image: &str| {
        let target = format!("{PODS}?dryRun=All");
        cluster.admin().post(&target, &pod("probe", image)).unwrap()
    };
    wait_until("validated", || try_out("probe:latest").status == 403);
    wait_until("mutated", || try_out("probe:1").json().pointer(TEAM).is_some());
    let target = format!("/api/v1/namespaces/{BY_TOKEN}/configmaps?dryRun=All");
    wait_until("by token", || {
        cluster
            .admin()
            .post(&target, &config_map("unwanted"))
            .unwrap()
            .status
            == 422
    });
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

/// How often the gateway knew a caller by this method.
fn known_by(servers: &servers::Servers, method: &str) -> f64 {
    let series = format!(r#"portcullis_authentication_attempts_total{{method="{method}",result="success"}}"#);
    servers.gateway.metric(&series).unwrap()
}

pub(crate) fn the_validating_plugin_proves_itself_by_certificate() {
    let Some(servers) = servers::shared() else { return };
    let before = known_by(&servers, "certificate");
    let answer = servers
        .cluster
        .admin()
        .post(PODS, &pod("certified", "cat:latest"))
        .unwrap();
    assert_denied(&answer, 403, "images need a version");
    assert!(known_by(&servers, "certificate") > before);
}

pub(crate) fn the_validating_plugin_proves_itself_by_token() {
    let Some(servers) = servers::shared() else { return };
    let before = known_by(&servers, "bearer");
    let target = format!("/api/v1/namespaces/{BY_TOKEN}/configmaps");
    let answer = servers
        .cluster
        .admin()
        .post(&target, &config_map("unwanted"))
        .unwrap();
    assert_denied(&answer, 422, "nobody wants this config map");
    assert!(known_by(&servers, "bearer") > before);
}

pub(crate) fn the_mutating_plugin_proves_itself_by_password() {
    let Some(servers) = servers::shared() else { return };
    let before = known_by(&servers, "basic");
    let answer = servers
        .cluster
        .admin()
        .post(PODS, &pod("by-password", "cat:1"))
        .unwrap();
    assert_eq!(object(&answer, 201).pointer(TEAM), Some(&json!(KITTENS)));
    assert!(known_by(&servers, "basic") > before);
}

pub(crate) fn a_pod_is_created_or_denied() {
    let Some(servers) = servers::shared() else { return };
    let admin = servers.cluster.admin();
    object(&admin.post(PODS, &pod("created", "cat:1")).unwrap(), 201);
    let denied = admin.post(PODS, &pod("denied", "cat:latest")).unwrap();
    assert_denied(
        &denied,
        403,
        "ValidatingAdmissionPolicy 'images' with binding 'images' denied request: images need a version",
    );
    assert_eq!(admin.get(&format!("{PODS}/denied")).unwrap().status, 404);
}

pub(crate) fn a_pod_is_stored_as_the_patch_makes_it() {
    let Some(servers) = servers::shared() else { return };
    let admin = servers.cluster.admin();
    let mut wanted = pod("mutated", "cat:1");
    wanted["metadata"]["annotations"] = json!({"example.com/a.b_c": "stays"});
    object(&admin.post(PODS, &wanted).unwrap(), 201);
    let stored = object(&admin.get(&format!("{PODS}/mutated")).unwrap(), 200);
    let expected = json!({"example.com/a.b_c": "stays", "example.com/team": KITTENS});
    assert_eq!(stored["metadata"]["annotations"], expected);
}

pub(crate) fn an_update_of_a_pod_is_denied_and_mutated() {
    let Some(servers) = servers::shared() else { return };
    let admin = servers.cluster.admin();
    let mut stored = object(&admin.post(PODS, &pod("updated", "cat:1")).unwrap(), 201);
    let target = format!("{PODS}/updated");

    stored["spec"]["containers"][0]["image"] = json!("cat:latest");
    assert_denied(
        &admin.put(&target, &stored).unwrap(),
        403,
        "images need a version",
    );

    stored["spec"]["containers"][0]["image"] = json!("cat:2");
    stored["metadata"]["annotations"] = json!({});
    let updated = object(&admin.put(&target, &stored).unwrap(), 200);
    assert_eq!(updated["spec"]["containers"][0]["image"], "cat:2");
    assert_eq!(updated.pointer(TEAM), Some(&json!(KITTENS)));
}

pub(crate) fn a_pod_is_deleted_or_kept() {
    let Some(servers) = servers::shared() else { return };
    let admin = servers.cluster.admin();
    object(&admin.post(PODS, &pod("loose", "cat:1")).unwrap(), 201);
    let mut kept = pod("kept", "cat:1");
    kept["metadata"]["labels"] = json!({"keep": "yes"});
    object(&admin.post(PODS, &kept).unwrap(), 201);

    object(&admin.delete(&format!("{PODS}/loose")).unwrap(), 200);
    assert_denied(
        &admin.delete(&format!("{PODS}/kept")).unwrap(),
        422,
        "this pod stays",
    );
    object(&admin.get(&format!("{PODS}/kept")).unwrap(), 200);
}

pub(crate) fn a_command_in_a_pod_is_let_through_or_denied() {
    let Some(servers) = servers::shared() else { return };
    let admin = servers.cluster.admin();
    object(&admin.post(PODS, &pod("exec", "cat:1")).unwrap(), 201);
    let exec = |command: &str| {
        let target = format!("{PODS}/exec/exec?stdout=true&command={command}");
        admin.send("POST", &target, None).unwrap()
    };
    assert_denied(&exec("rm"), 403, "admin removes nothing in exec");
    // No kubelet runs the pod, which the API server finds out after admission.
    let let_through = exec("ls");
    assert_eq!(let_through.status, 400, "{}", let_through.text());
    assert!(
        let_through.text().contains("does not have a host assigned"),
        "{}",
        let_through.text()
    );
}

pub(crate) fn a_deployment_is_scaled_or_not() {
    let Some(servers) = servers::shared() else { return };
    let admin = servers.cluster.admin();
    let deployments = "/apis/apps/v1/namespaces/kittens/deployments";
    let deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "scaled"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "scaled"}},
            "template": {
                "metadata": {"labels": {"app": "scaled"}},
                "spec": {"containers": [{"name": "main", "image": "cat:1"}]},
            },
        },
    });
    object(&admin.post(deployments, &deployment).unwrap(), 201);
    let scale = |replicas: u32| {
        let patch = json!({"spec": {"replicas": replicas}});
        let target = format!("{deployments}/scaled/scale");
        admin
            .patch(&target, "application/merge-patch+json", &patch)
            .unwrap()
    };
    assert_eq!(object(&scale(5), 200)["spec"]["replicas"], 5);
    assert_denied(&scale(6), 422, "from 5 to 6 is too far");
}

pub(crate) fn a_dry_run_is_judged_and_stores_nothing() {
    let Some(servers) = servers::shared() else { return };
    let admin = servers.cluster.admin();
    let target = format!("{PODS}?dryRun=All");
    let tried = admin.post(&target, &pod("tried", "cat:1")).unwrap();
    assert_eq!(object(&tried, 201).pointer(TEAM), Some(&json!(KITTENS)));
    let denied = admin.post(&target, &pod("tried", "cat:latest")).unwrap();
    assert_denied(&denied, 403, "images need a version");
    assert_eq!(admin.get(&format!("{PODS}/tried")).unwrap().status, 404);
}

pub(crate) fn a_warning_reaches_the_user() {
    let Some(servers) = servers::shared() else { return };
    let admin = servers.cluster.admin();
    let warned = admin.post(PODS, &pod("warned", "old.example/cat:1")).unwrap();
    object(&warned, 201);
    let expected = "299 - \"Validation failed for ValidatingAdmissionPolicy 'registry' with binding 'registry': \
                    pod warned comes from the old registry\"";
    assert_eq!(warned.header_values("Warning"), [expected]);
    let quiet = admin.post(PODS, &pod("not-warned", "cat:1")).unwrap();
    object(&quiet, 201);
    assert!(quiet.header_values("Warning").is_empty(), "{quiet:?}");
}

pub(crate) fn a_pod_is_applied_by_the_server_or_denied() {
    let Some(servers) = servers::shared() else { return };
    let admin = servers.cluster.admin();
    let apply = |image: &str| {
        let target = format!("{PODS}/applied?fieldManager=tests");
        admin
            .patch(&target, "application/apply-patch+yaml", &pod("applied", image))
            .unwrap()
    };
    assert_denied(&apply("cat:latest"), 403, "images need a version");
    let created = object(&apply("cat:1"), 201);
    assert_eq!(created.pointer(TEAM), Some(&json!(KITTENS)));
    assert_denied(&apply("cat:latest"), 403, "images need a version");
    let updated = object(&apply("cat:2"), 200);
    assert_eq!(updated["spec"]["containers"][0]["image"], "cat:2");
    assert_eq!(updated.pointer(TEAM), Some(&json!(KITTENS)), "{updated}");
}
