//! The manifests of `deploy/`, as kubectl and helm render them: an API server takes each,
//! and all of them run the gateway in the same way as `init --in-cluster`.

pub(crate) mod chart;
pub(crate) mod helm;

use crate::control_plane::servers::{OWN_NAMESPACE, SetUp};
use crate::harness::folder::Folder;
use crate::harness::reviews;
use crate::scenario::{self, Scenario};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

const NAMESPACE: &str = "portcullis";

fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The documents of a text.
fn documents(text: &str) -> Vec<Value> {
    let documents =
        portcullis_policy::document::parse(None, text).unwrap_or_else(|fault| panic!("{fault}\n{text}"));
    let values = documents.iter().map(|document| document.root().to_json());
    values.filter(|value| !value.is_null()).collect()
}

fn kustomize(servers: &Scenario, folder: &Path) -> String {
    let folder = folder.to_str().unwrap();
    let output = servers.cluster.kubectl("admin", &["kustomize", folder]);
    assert!(output.status.success(), "{folder}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn overlay(servers: &Scenario, name: &str) -> Vec<Value> {
    documents(&kustomize(servers, &project("deploy/kustomize").join(name)))
}

fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    objects
        .iter()
        .find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
        .unwrap_or_else(|| panic!("no {kind}/{name}"))
}

/// Has the API server take `text` without storing it. The namespace has to be there.
fn applies(servers: &Scenario, what: &str, text: &str) {
    let namespace = format!("/api/v1/namespaces/{NAMESPACE}");
    if servers.cluster.status("admin", &namespace) == 404 {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        // Another test may be faster.
        servers
            .cluster
            .admin()
            .post("/api/v1/namespaces", &object)
            .unwrap();
    }
    let folder = Folder::new("installs");
    let file = folder.write("rendered.yaml", text);
    let output = servers.cluster.kubectl(
        "admin",
        &[
            "apply",
            "--server-side",
            "--dry-run=server",
            "-f",
            file.to_str().unwrap(),
        ],
    );
    assert!(output.status.success(), "{what}: {output:?}\n{text}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said, "", "{what}: warnings");
}

/// The policies of the shipped Pod Security Standards that refuse `pod` in a namespace of
/// the level restricted.
fn refusals(pod: &Value) -> Vec<String> {
    let folder = Folder::new("refusals");
    let standards = project("config/policies/pod-security");
    folder.write(
        "namespaces.yaml",
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: restricted, labels: \
         {pod-security.kubernetes.io/enforce: restricted}}\n",
    );
    let review = folder.write(
        "review.json",
        reviews::creation_of_pod("restricted", pod).to_string(),
    );
    let output = run_portcullis(&["init", folder.path().join("set-up").to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let configuration = folder.path().join("set-up/portcullis.yaml");
    let levels = ["baseline", "restricted"].map(|level| standards.join(level));
    let manifests = json!([folder.path().join("namespaces.yaml"), levels[0], levels[1]]);
    let text = std::fs::read_to_string(&configuration).unwrap();
    let text = text.replace("manifests:\n- policies\n", &format!("manifests: {manifests}\n"));
    std::fs::write(&configuration, text).unwrap();
    let mut refusing = Vec::new();
    let mut tried = 0;
    for file in levels.iter().flat_map(|level| std::fs::read_dir(level).unwrap()) {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for policy in documents(&text)
            .iter()
            .filter(|object| object["kind"] == "ValidatingAdmissionPolicy")
        {
            let name = policy["metadata"]["name"].as_str().unwrap();
            let output = run_portcullis(&[
                "admit",
                "--config",
                configuration.to_str().unwrap(),
                "--review",
                review.to_str().unwrap(),
                "--phase",
                "validate",
                "--policy",
                name,
            ]);
            let said = String::from_utf8_lossy(&output.stdout);
            match output.status.code() {
                Some(0) => {}
                Some(1) if said.starts_with("deny: ") => refusing.push(name.to_owned()),
                _ => panic!("{name}: {output:?}"),
            }
            tried += 1;
        }
    }
    assert!(tried > 15, "{tried}");
    refusing.sort();
    refusing
}

fn run_portcullis(arguments: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_portcullis"))
        .args(arguments)
        .output()
        .unwrap()
}

/// What runs in a pod, without what only some kinds of installation have: where it may
/// run, where its files come from, and the image of a registry.
fn common(pod: &Value) -> Value {
    let mut pod = pod.clone();
    for place in [
        "topologySpreadConstraints",
        "nodeSelector",
        "tolerations",
        "priorityClassName",
        "volumes",
        "serviceAccountName",
        "automountServiceAccountToken",
        "enableServiceLinks",
        "dnsPolicy",
    ] {
        pod.as_object_mut().unwrap().remove(place);
    }
    // For the group of projected files, which files of a host have already.
    pod["securityContext"].as_object_mut().unwrap().remove("fsGroup");
    let container = pod["containers"][0].as_object_mut().unwrap();
    for place in ["volumeMounts", "image", "imagePullPolicy"] {
        container.remove(place);
    }
    pod
}

pub(crate) fn an_api_server_takes_every_overlay() {
    let Some(servers) = scenario::shared() else { return };
    for name in ["base", "overlays/in-cluster", "overlays/static-pod"] {
        let text = kustomize(&servers, &project("deploy/kustomize").join(name));
        applies(&servers, name, &text);
    }
}

pub(crate) fn a_static_pod_a_deployment_and_what_init_writes_run_the_same() {
    let Some(servers) = scenario::shared() else { return };
    let folder = Folder::new("installs");
    let set_up = folder.path().join("set-up");
    let output = run_portcullis(&[
        "init",
        set_up.to_str().unwrap(),
        "--watch",
        "--in-cluster",
        OWN_NAMESPACE,
    ]);
    assert!(output.status.success(), "{output:?}");
    let of_init = kustomize(&servers, &set_up).replace(set_up.to_str().unwrap(), "/etc/portcullis");
    let of_init = documents(&of_init);
    let of_init = &find(&of_init, "DaemonSet", "portcullis")["spec"]["template"]["spec"];
    let deployment = overlay(&servers, "overlays/in-cluster");
    let deployment = &find(&deployment, "Deployment", "portcullis")["spec"]["template"]["spec"];
    let static_pod = overlay(&servers, "overlays/static-pod");
    let static_pod = &find(&static_pod, "Pod", "portcullis")["spec"];
    assert_eq!(common(deployment), common(of_init));
    assert_eq!(common(static_pod), common(of_init));
    for mounted in ["/containers/0/volumeMounts", "/volumes"] {
        let by_name = |pod: &Value| {
            let mut items = pod.pointer(mounted).unwrap().as_array().unwrap().clone();
            // The names of generated ConfigMaps end in a digest of what is in them.
            let digest = |item: &mut Value| item.as_object_mut().unwrap().remove("configMap");
            items.iter_mut().for_each(|item| drop(digest(item)));
            items.sort_by_key(|item| item["name"].to_string());
            items
        };
        assert_eq!(by_name(deployment), by_name(of_init));
    }
}

pub(crate) fn only_host_network_and_loopback_probes_are_more_than_restricted_allows() {
    let Some(servers) = scenario::shared() else { return };
    let pod_of = |objects: &[Value]| {
        let template = &find(objects, "Deployment", "portcullis")["spec"]["template"];
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"]})
    };
    let base = pod_of(&overlay(&servers, "base"));
    assert_eq!(refusals(&base), [""; 0]);
    let on_host = pod_of(&overlay(&servers, "overlays/in-cluster"));
    let expected = ["host-namespaces", "host-probes-and-lifecycle"];
    assert_eq!(
        refusals(&on_host),
        expected.map(|control| format!("pod-security-baseline-{control}"))
    );
    let mut privileged = base;
    privileged["spec"]["containers"][0]["securityContext"] = json!({"privileged": true});
    assert!(refusals(&privileged).len() > 2);
}

/// The ServiceAccount of the gateway may do what the user of a gateway outside may do.
pub(crate) fn the_component_watch_binds_the_service_account() {
    let Some(servers) = scenario::shared() else { return };
    let objects = overlay(&servers, "overlays/in-cluster");
    let binding = find(&objects, "ClusterRoleBinding", "portcullis-gateway");
    let account = json!([{"kind": "ServiceAccount", "name": "portcullis", "namespace": NAMESPACE}]);
    assert_eq!(binding["subjects"], account);
    let role = std::fs::read_to_string(project("config/cluster/gateway.yaml")).unwrap();
    let role = documents(&role);
    assert_eq!(
        find(&objects, "ClusterRole", "portcullis-gateway"),
        find(&role, "ClusterRole", "portcullis-gateway")
    );
}

/// The folder of `init` is where the manifests say, so that `kubectl apply -k` of it makes
/// the Secrets that they mount.
pub(crate) fn the_secrets_of_init_are_those_that_the_manifests_mount() {
    let Some(servers) = scenario::shared() else { return };
    let folder = Folder::new("installs");
    let set_up = SetUp::init(
        &folder.path().join("set-up"),
        &["--watch", "--in-cluster", OWN_NAMESPACE],
    );
    let made = documents(&kustomize(&servers, Path::new(&set_up.path(""))));
    let overlay = overlay(&servers, "overlays/in-cluster");
    let volumes = &find(&overlay, "Deployment", "portcullis")["spec"]["template"]["spec"]["volumes"];
    for volume in volumes.as_array().unwrap() {
        if volume.get("emptyDir").is_some() {
            continue;
        }
        let name = volume["secret"]["secretName"].as_str();
        let name = name.or(volume["configMap"]["name"].as_str()).unwrap();
        // Its own ConfigMap has a digest in its name, too.
        let name = if name.starts_with("portcullis-cluster-") {
            "portcullis-cluster"
        } else {
            name
        };
        // The name of the configuration has the digest of its contents there.
        let is_made = made.iter().any(|object| {
            let made = object["metadata"]["name"].as_str().unwrap();
            made == name || made.starts_with(&format!("{name}-"))
        });
        assert!(is_made, "{name}");
    }
}
