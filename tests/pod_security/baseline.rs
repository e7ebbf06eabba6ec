//! The controls of the level baseline.

use super::*;

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
