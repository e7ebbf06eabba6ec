//! The Pod Security Standards of `config/policies/pod-security`, pod by pod.
//!
//! Each case names all the controls that refuse the pod, so that one which
//! refuses too much fails as one does that refuses too little.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, as it should"
)]

use portcullis::engine::Time;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use portcullis::api::AdmissionReview;
use portcullis::engine::admission::webhook::nobody;
use portcullis::engine::admission::{AdmissionSet, AdmissionSettings, Chain, Phase, Run};
use portcullis::engine::authorization::PolicySet;
use portcullis::json::Document;
use portcullis::manifest::{Options, Source, load};
use serde_json::{Value, json};

const NAMESPACES: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: privileged, labels: {pod-security.kubernetes.io/enforce: privileged}}
---
apiVersion: v1
kind: Namespace
metadata: {name: baseline, labels: {pod-security.kubernetes.io/enforce: baseline}}
---
apiVersion: v1
kind: Namespace
metadata: {name: restricted, labels: {pod-security.kubernetes.io/enforce: restricted}}
---
apiVersion: v1
kind: Namespace
metadata: {name: misspelt, labels: {pod-security.kubernetes.io/enforce: Baseline}}
---
apiVersion: v1
kind: Namespace
metadata: {name: unlabelled}
";

static SET: LazyLock<Arc<AdmissionSet>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/policies/pod-security");
    let mut sources = vec![source("namespaces", NAMESPACES.to_owned())];
    for level in ["baseline", "restricted"] {
        for entry in std::fs::read_dir(folder.join(level)).unwrap() {
            let path = entry.unwrap().path();
            sources.push(source(
                &path.display().to_string(),
                std::fs::read_to_string(&path).unwrap(),
            ));
        }
    }
    let (manifests, faults) = load(&sources, &Options::default());
    assert_eq!(faults.to_string(), "");
    let policies = manifests.unwrap().admission(&AdmissionSettings::default());
    Arc::clone(policies.for_cluster("default"))
});

fn source(file: &str, text: String) -> Source {
    Source {
        file: file.into(),
        text,
        cluster: None,
    }
}

// === what is asked ===

/// Whose pod, and what becomes of it.
struct Asked<'a> {
    namespace: &'a str,
    subresource: &'a str,
    object: &'a Value,
    old_object: Option<&'a Value>,
}

/// The controls that refuse, each with what it says.
fn refusals(asked: &Asked<'_>) -> Vec<(String, String)> {
    let operation = if asked.old_object.is_some() {
        "UPDATE"
    } else {
        "CREATE"
    };
    let review = json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "u",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "subResource": asked.subresource,
            "name": "p", "namespace": asked.namespace, "operation": operation,
            "userInfo": {"username": "alice"},
            "object": asked.object, "oldObject": asked.old_object,
        },
    });
    let document = Document::parse(review.to_string()).unwrap();
    let review = AdmissionReview::decode(&document).unwrap();
    let mut refusals = Vec::new();
    let access = PolicySet::default();
    for policy in SET.validating_policies() {
        let run = Run {
            only: Some(policy),
            ..Run::new(&access, Time::UNIX_EPOCH)
        };
        if let Some(denial) = Chain::run(Phase::Validate, &SET, &review.request, run, &mut nobody).denial {
            assert_eq!(denial.code, 403, "{}", denial.message);
            let message = denial.message.split_once(" denied request: ").unwrap().1;
            let control = policy.strip_prefix("pod-security-").unwrap();
            refusals.push((control.to_owned(), message.to_owned()));
        }
    }
    refusals
}

fn created(namespace: &str, pod: &Value) -> Vec<String> {
    let asked = Asked {
        namespace,
        subresource: "",
        object: pod,
        old_object: None,
    };
    refusals(&asked).into_iter().map(|(control, _)| control).collect()
}

fn updated(subresource: &str, old: &Value, new: &Value) -> Vec<String> {
    let asked = Asked {
        namespace: "baseline",
        subresource,
        object: new,
        old_object: Some(old),
    };
    refusals(&asked).into_iter().map(|(control, _)| control).collect()
}

// === pods ===

/// Sets what is in `change`, deeply; lists are replaced.
fn with(mut value: Value, change: &Value) -> Value {
    match (&mut value, change) {
        (Value::Object(fields), Value::Object(changes)) => {
            for (key, change) in changes {
                let old = fields.remove(key).unwrap_or(Value::Null);
                fields.insert(key.clone(), with(old, change));
            }
            value
        }
        _ => change.clone(),
    }
}

/// A pod that says nothing about security, which baseline takes.
fn mk_plain() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    })
}

/// A container that restricted takes.
fn mk_container() -> Value {
    json!({
        "name": "c", "image": "i",
        "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
    })
}

/// A pod that restricted takes.
fn mk_restricted() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [mk_container()],
        },
    })
}

/// The pod of the level, with `change`.
fn mk_pod(level: &str, change: &Value) -> Value {
    with(
        if level == "restricted" {
            mk_restricted()
        } else {
            mk_plain()
        },
        change,
    )
}

/// Pods of the level with a container that has `change`, once as each sort of container.
fn mk_pods_with_container(level: &str, change: &Value) -> Vec<Value> {
    let container = if level == "restricted" {
        mk_container()
    } else {
        json!({"name": "c", "image": "i"})
    };
    let changed = with(container.clone(), &json!({"name": "changed"}));
    let changed = with(changed, change);
    let sorts = ["containers", "initContainers", "ephemeralContainers"];
    let pods = sorts.map(|sort| {
        mk_pod(
            level,
            &json!({"spec": {"containers": [container], sort: [changed]}}),
        )
    });
    pods.to_vec()
}

/// What a table says: the level, a change, and all the controls that refuse it.
type Case = (&'static str, Value, &'static [&'static str]);

fn check_pods(cases: &[Case]) {
    for (level, change, expected) in cases {
        assert_eq!(
            created(level, &mk_pod(level, change)),
            *expected,
            "{level}: {change}"
        );
    }
}

fn check_containers(cases: &[Case]) {
    for (level, change, expected) in cases {
        for pod in mk_pods_with_container(level, change) {
            assert_eq!(created(level, &pod), *expected, "{level}: {pod}");
        }
    }
}

// === levels ===

#[test]
fn pods_of_each_level_pass_it() {
    for namespace in ["privileged", "unlabelled", "baseline"] {
        assert_eq!(created(namespace, &mk_plain()), [""; 0], "{namespace}");
        assert_eq!(created(namespace, &mk_restricted()), [""; 0], "{namespace}");
    }
    assert_eq!(created("restricted", &mk_restricted()), [""; 0]);
}

#[test]
fn a_pod_that_says_nothing_is_not_restricted() {
    let expected = [
        "restricted-capabilities",
        "restricted-privilege-escalation",
        "restricted-run-as-non-root",
        "restricted-seccomp",
    ];
    for namespace in ["restricted", "misspelt"] {
        assert_eq!(created(namespace, &mk_plain()), expected, "{namespace}");
    }
}

#[test]
fn the_label_of_the_namespace_decides() {
    let privileged = json!({"spec": {"containers": [{"name": "c", "image": "i", "securityContext": {"privileged": true}}]}});
    let pod = mk_pod("baseline", &privileged);
    for namespace in ["privileged", "unlabelled"] {
        assert_eq!(created(namespace, &pod), [""; 0], "{namespace}");
    }
    assert_eq!(created("baseline", &pod), ["baseline-privileged"]);
    for namespace in ["restricted", "misspelt"] {
        let refusals = created(namespace, &pod);
        assert!(
            refusals.contains(&"baseline-privileged".to_owned()),
            "{refusals:?}"
        );
    }
}

#[test]
fn refusals_name_the_containers() {
    let change = json!({"spec": {"hostNetwork": true, "containers": [
        {"name": "a", "securityContext": {"privileged": true}},
        {"name": "b"},
        {"name": "c", "securityContext": {"privileged": true}},
    ]}});
    let pod = mk_pod("baseline", &change);
    let asked = Asked {
        namespace: "baseline",
        subresource: "",
        object: &pod,
        old_object: None,
    };
    let expected = [
        (
            "baseline-host-namespaces",
            "host namespaces: the pod must not set hostNetwork",
        ),
        (
            "baseline-privileged",
            "privileged: containers a, c must not set securityContext.privileged to true",
        ),
    ];
    let expected = expected.map(|(control, message)| (control.to_owned(), message.to_owned()));
    assert_eq!(refusals(&asked), expected);
}

// === updates ===

#[test]
fn an_update_is_judged_if_it_runs_something_new() {
    let bad = json!({"spec": {"hostPID": true, "containers": [{"name": "c", "image": "i"}],
        "initContainers": [{"name": "n", "image": "i"}],
        "ephemeralContainers": [{"name": "e", "image": "i"}, {"name": "f", "image": "i"}]}});
    let old = mk_pod("baseline", &bad);
    let refused = ["baseline-host-namespaces"];
    for insignificant in [
        json!({}),
        json!({"metadata": {"labels": {"a": "b"}, "finalizers": []}}),
        json!({"spec": {"tolerations": [{"operator": "Exists"}], "activeDeadlineSeconds": 5}}),
        json!({"spec": {"ephemeralContainers": [{"name": "f", "image": "i"}]}}),
    ] {
        let new = with(old.clone(), &insignificant);
        assert_eq!(updated("", &old, &new), [""; 0], "{insignificant}");
    }
    for significant in [
        json!({"spec": {"containers": [{"name": "c", "image": "j"}]}}),
        json!({"spec": {"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "i"}]}}),
        json!({"spec": {"initContainers": [{"name": "n", "image": "j"}]}}),
        json!({"spec": {"initContainers": []}}),
        json!({"spec": {"ephemeralContainers": [{"name": "e", "image": "j"}]}}),
        json!({"spec": {"ephemeralContainers": [{"name": "g", "image": "i"}]}}),
    ] {
        let new = with(old.clone(), &significant);
        assert_eq!(updated("", &old, &new), refused, "{significant}");
    }
}

#[test]
fn ephemeral_containers_are_judged_and_other_subresources_are_not() {
    let old = mk_plain();
    let debugger = json!({"name": "d", "image": "i", "securityContext": {"privileged": true}});
    let new = mk_pod("baseline", &json!({"spec": {"ephemeralContainers": [debugger]}}));
    assert_eq!(
        updated("ephemeralcontainers", &old, &new),
        ["baseline-privileged"]
    );
    assert_eq!(updated("status", &old, &new), [""; 0]);
}

// === baseline ===

#[test]
fn app_armor() {
    let annotated = |value: &str| {
        let key = "container.apparmor.security.beta.kubernetes.io/c";
        json!({"metadata": {"annotations": {key: value, "other": "unconfined"}}})
    };
    let profile = |kind: &str| json!({"securityContext": {"appArmorProfile": {"type": kind}}});
    let of_pod = |kind| json!({"spec": profile(kind)});
    let refused = &["baseline-app-armor"];
    check_pods(&[
        ("baseline", annotated("runtime/default"), &[]),
        ("baseline", annotated("localhost/mine"), &[]),
        ("baseline", annotated(""), &[]),
        ("baseline", annotated("unconfined"), refused),
        ("restricted", annotated("localhost"), refused),
        ("baseline", of_pod("RuntimeDefault"), &[]),
        ("baseline", of_pod("Localhost"), &[]),
        ("baseline", of_pod("Unconfined"), refused),
        ("restricted", of_pod(""), refused),
    ]);
    check_containers(&[
        ("baseline", profile("RuntimeDefault"), &[]),
        ("restricted", profile("Localhost"), &[]),
        ("baseline", profile("Unconfined"), refused),
        ("restricted", profile("Unconfined"), refused),
    ]);
}

#[test]
fn capabilities() {
    let add = |names: &[&str]| json!({"securityContext": {"capabilities": {"add": names}}});
    let dropping = |names: &[&str]| json!({"securityContext": {"capabilities": {"drop": names}}});
    let all = [
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    ];
    let refused = &["restricted-capabilities"];
    check_containers(&[
        ("baseline", add(&all), &[]),
        ("baseline", add(&[]), &[]),
        ("baseline", add(&["CHOWN", "NET_RAW"]), &["baseline-capabilities"]),
        ("baseline", add(&["chown"]), &["baseline-capabilities"]),
        ("baseline", add(&["CAP_CHOWN"]), &["baseline-capabilities"]),
        ("restricted", add(&["NET_BIND_SERVICE"]), &[]),
        ("restricted", add(&["CHOWN"]), refused),
        ("restricted", add(&["NET_RAW"]), refused),
        ("restricted", dropping(&["ALL", "CHOWN"]), &[]),
        ("restricted", dropping(&["CHOWN"]), refused),
        ("restricted", dropping(&["all"]), refused),
        ("restricted", dropping(&[]), refused),
    ]);
}

#[test]
fn host_namespaces() {
    for field in ["hostNetwork", "hostPID", "hostIPC"] {
        check_pods(&[
            ("baseline", json!({"spec": {field: false}}), &[]),
            (
                "baseline",
                json!({"spec": {field: true}}),
                &["baseline-host-namespaces"],
            ),
            (
                "restricted",
                json!({"spec": {field: true}}),
                &["baseline-host-namespaces"],
            ),
        ]);
    }
}

#[test]
fn volumes() {
    let volumes = |sources: &[&str]| {
        let volumes: Vec<_> = sources
            .iter()
            .map(|source| json!({"name": source, *source: {}}))
            .collect();
        json!({"spec": {"volumes": volumes}})
    };
    let harmless = [
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    ];
    check_pods(&[
        ("baseline", volumes(&harmless), &[]),
        ("restricted", volumes(&harmless), &[]),
        (
            "baseline",
            volumes(&["emptyDir", "hostPath"]),
            &["baseline-host-path-volumes"],
        ),
    ]);
    for other in [
        "awsElasticBlockStore",
        "azureDisk",
        "azureFile",
        "cephfs",
        "cinder",
        "fc",
        "flexVolume",
        "flocker",
        "gcePersistentDisk",
        "gitRepo",
        "glusterfs",
        "hostPath",
        "iscsi",
        "nfs",
        "photonPersistentDisk",
        "portworxVolume",
        "quobyte",
        "rbd",
        "scaleIO",
        "storageos",
        "vsphereVolume",
        "ofTomorrow",
    ] {
        check_pods(&[(
            "restricted",
            volumes(&["emptyDir", other]),
            &["restricted-volumes"],
        )]);
        if other != "hostPath" {
            check_pods(&[("baseline", volumes(&[other]), &[])]);
        }
    }
}

#[test]
fn host_ports() {
    let ports = |ports: Value| json!({"ports": ports});
    let refused = &["baseline-host-ports"];
    check_containers(&[
        ("baseline", ports(json!([{"containerPort": 80}])), &[]),
        (
            "baseline",
            ports(json!([{"containerPort": 80, "hostPort": 0}])),
            &[],
        ),
        (
            "baseline",
            ports(json!([{"containerPort": 80}, {"containerPort": 81, "hostPort": 81}])),
            refused,
        ),
        (
            "restricted",
            ports(json!([{"containerPort": 80, "hostPort": 80}])),
            refused,
        ),
    ]);
}

#[test]
fn host_probes_and_lifecycle() {
    for place in [
        "/livenessProbe",
        "/readinessProbe",
        "/startupProbe",
        "/lifecycle/postStart",
        "/lifecycle/preStop",
    ] {
        let at = |handler: Value| {
            place
                .rsplit('/')
                .filter(|key| !key.is_empty())
                .fold(handler, |inner, key| json!({key: inner}))
        };
        let refused = &["baseline-host-probes-and-lifecycle"];
        check_containers(&[
            ("baseline", at(json!({"exec": {"command": ["true"]}})), &[]),
            ("baseline", at(json!({"httpGet": {"port": 80}})), &[]),
            (
                "restricted",
                at(json!({"tcpSocket": {"port": 80, "host": ""}})),
                &[],
            ),
            (
                "baseline",
                at(json!({"httpGet": {"port": 80, "host": "127.0.0.1"}})),
                refused,
            ),
            (
                "restricted",
                at(json!({"tcpSocket": {"port": 80, "host": "db"}})),
                refused,
            ),
        ]);
    }
}

#[test]
fn privileged() {
    let set = |value: bool| json!({"securityContext": {"privileged": value}});
    check_containers(&[
        ("baseline", set(false), &[]),
        ("baseline", set(true), &["baseline-privileged"]),
        ("restricted", set(true), &["baseline-privileged"]),
    ]);
}

#[test]
fn proc_mount() {
    let mount = |kind: &str| json!({"securityContext": {"procMount": kind}});
    check_containers(&[
        ("baseline", mount("Default"), &[]),
        ("restricted", mount("Default"), &[]),
        ("baseline", mount("Unmasked"), &["baseline-proc-mount"]),
        ("baseline", mount(""), &["baseline-proc-mount"]),
        ("restricted", mount("Unmasked"), &["restricted-proc-mount"]),
    ]);
    let in_user_namespace = |level: &str, host_users: bool| {
        let pod = mk_pods_with_container(level, &mount("Unmasked")).remove(0);
        let pod = with(pod, &json!({"spec": {"hostUsers": host_users}}));
        created(level, &pod)
    };
    assert_eq!(in_user_namespace("baseline", false), [""; 0]);
    assert_eq!(in_user_namespace("baseline", true), ["baseline-proc-mount"]);
    assert_eq!(in_user_namespace("restricted", false), ["restricted-proc-mount"]);
}

#[test]
fn seccomp() {
    let profile = |kind: &str| json!({"securityContext": {"seccompProfile": {"type": kind}}});
    let of_pod = |kind| json!({"spec": profile(kind)});
    let absent = json!({"spec": {"securityContext": {"runAsNonRoot": true, "seccompProfile": null}}});
    let mut without = mk_pod("restricted", &absent);
    without["spec"]["securityContext"]
        .as_object_mut()
        .unwrap()
        .remove("seccompProfile");
    assert_eq!(created("restricted", &without), ["restricted-seccomp"]);
    let each = with(mk_container(), &profile("Localhost"));
    let each = with(
        without,
        &json!({"spec": {"containers": [each], "initContainers": [each]}}),
    );
    assert_eq!(created("restricted", &each), [""; 0]);
    check_pods(&[
        ("baseline", of_pod("RuntimeDefault"), &[]),
        ("restricted", of_pod("Localhost"), &[]),
        ("baseline", of_pod("Unconfined"), &["baseline-seccomp"]),
        ("restricted", of_pod("Unconfined"), &["restricted-seccomp"]),
    ]);
    check_containers(&[
        ("baseline", profile("Localhost"), &[]),
        ("restricted", profile("RuntimeDefault"), &[]),
        ("baseline", profile("Unconfined"), &["baseline-seccomp"]),
        ("baseline", profile(""), &["baseline-seccomp"]),
        ("restricted", profile("Unconfined"), &["restricted-seccomp"]),
        ("restricted", profile(""), &["restricted-seccomp"]),
    ]);
}

#[test]
fn selinux() {
    let options = |options: Value| json!({"securityContext": {"seLinuxOptions": options}});
    let refused = &["baseline-selinux"];
    for kind in [
        "",
        "container_t",
        "container_init_t",
        "container_kvm_t",
        "container_engine_t",
    ] {
        check_containers(&[("baseline", options(json!({"type": kind, "level": "s0"})), &[])]);
    }
    check_containers(&[
        ("restricted", options(json!({})), &[]),
        ("baseline", options(json!({"type": "spc_t"})), refused),
        ("baseline", options(json!({"user": "root"})), refused),
        (
            "restricted",
            options(json!({"type": "container_t", "role": "admin"})),
            refused,
        ),
    ]);
    check_pods(&[
        (
            "baseline",
            json!({"spec": options(json!({"type": "container_t"}))}),
            &[],
        ),
        (
            "baseline",
            json!({"spec": options(json!({"type": "spc_t"}))}),
            refused,
        ),
        (
            "restricted",
            json!({"spec": options(json!({"user": "u"}))}),
            refused,
        ),
    ]);
}

#[test]
fn sysctls() {
    let set = |name: &str| json!({"spec": {"securityContext": {"sysctls": [{"name": name, "value": "0"}]}}});
    for safe in [
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.ping_group_range",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_wmem",
    ] {
        check_pods(&[("baseline", set(safe), &[]), ("restricted", set(safe), &[])]);
    }
    for unsafe_one in [
        "kernel.msgmax",
        "net.ipv4.ip_forward",
        "net/ipv4/tcp_syncookies",
        "",
    ] {
        check_pods(&[("baseline", set(unsafe_one), &["baseline-sysctls"])]);
    }
}

#[test]
fn windows_host_process() {
    let set = |value: bool| json!({"securityContext": {"windowsOptions": {"hostProcess": value}}});
    let refused = &["baseline-windows-host-process"];
    check_containers(&[
        ("baseline", set(false), &[]),
        ("baseline", set(true), refused),
        ("restricted", set(true), refused),
    ]);
    check_pods(&[
        ("restricted", json!({"spec": set(false)}), &[]),
        ("baseline", json!({"spec": set(true)}), refused),
    ]);
}

// === restricted ===

#[test]
fn privilege_escalation() {
    let set = |value: bool| json!({"securityContext": {"allowPrivilegeEscalation": value}});
    check_containers(&[
        ("baseline", set(true), &[]),
        ("restricted", set(false), &[]),
        ("restricted", set(true), &["restricted-privilege-escalation"]),
    ]);
    let absent = json!({"spec": {"initContainers": [
        {"name": "n", "image": "i", "securityContext": {"capabilities": {"drop": ["ALL"]}}},
    ]}});
    check_pods(&[("restricted", absent, &["restricted-privilege-escalation"])]);
}

#[test]
fn run_as_non_root() {
    let set = |value: bool| json!({"securityContext": {"runAsNonRoot": value}});
    let refused = &["restricted-run-as-non-root"];
    check_containers(&[
        ("baseline", set(false), &[]),
        ("restricted", set(true), &[]),
        ("restricted", set(false), refused),
    ]);
    let each = with(mk_container(), &set(true));
    check_pods(&[
        ("restricted", json!({"spec": set(false)}), refused),
        (
            "restricted",
            json!({"spec": {"securityContext": {"runAsNonRoot": false}, "containers": [each]}}),
            refused,
        ),
        (
            "restricted",
            json!({"spec": {"hostUsers": false, "securityContext": {"runAsNonRoot": false}}}),
            &[],
        ),
    ]);
    let mut by_containers = mk_pod("restricted", &json!({"spec": {"containers": [each]}}));
    let context = by_containers["spec"]["securityContext"].as_object_mut().unwrap();
    context.remove("runAsNonRoot");
    assert_eq!(created("restricted", &by_containers), [""; 0]);
    let one_silent = with(
        by_containers,
        &json!({"spec": {"initContainers": [mk_container()]}}),
    );
    assert_eq!(created("restricted", &one_silent), refused);
    let in_user_namespace = with(one_silent, &json!({"spec": {"hostUsers": false}}));
    assert_eq!(created("restricted", &in_user_namespace), [""; 0]);
}

#[test]
fn run_as_user() {
    let set = |user: u32| json!({"securityContext": {"runAsUser": user}});
    let refused = &["restricted-run-as-user"];
    check_containers(&[
        ("baseline", set(0), &[]),
        ("restricted", set(1000), &[]),
        ("restricted", set(0), refused),
    ]);
    check_pods(&[
        ("restricted", json!({"spec": set(1000)}), &[]),
        ("restricted", json!({"spec": set(0)}), refused),
        (
            "restricted",
            json!({"spec": {"hostUsers": false, "securityContext": {"runAsUser": 0}}}),
            &[],
        ),
    ]);
}

#[test]
fn windows_has_no_linux_controls() {
    let windows = |change: &Value| {
        let pod = mk_pod(
            "baseline",
            &json!({"spec": {"os": {"name": "windows"}, "securityContext": {"runAsNonRoot": true}}}),
        );
        created("restricted", &with(pod, change))
    };
    assert_eq!(windows(&json!({})), [""; 0]);
    let added = json!({"spec": {"containers": [
        {"name": "c", "securityContext": {"capabilities": {"add": ["NET_RAW"]}, "seccompProfile": {"type": "Unconfined"}}},
    ]}});
    assert_eq!(windows(&added), [""; 0]);
    assert_eq!(
        windows(&json!({"spec": {"os": {"name": "linux"}}})),
        [
            "restricted-capabilities",
            "restricted-privilege-escalation",
            "restricted-seccomp"
        ]
    );
}
