//! The controls of the level restricted.

use super::*;

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
