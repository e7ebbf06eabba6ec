//! RBAC, through the whole walk.

use super::*;

fn objects() -> Objects {
    let many = |count: usize| {
        (0..count)
            .map(|at| allows(&["get"], &[&format!("r{at}")]))
            .collect::<Vec<_>>()
    };
    Objects {
        roles: vec![
            role("", "view", vec![allows(&["get", "list"], &["pods"])]),
            role("", "many", many(40)),
            role(
                "",
                "probe",
                vec![crate::authorization::Rule {
                    verbs: words(&["get"]),
                    non_resource_urls: patterns(&["/metrics", "/debug/*"]),
                    ..Default::default()
                }],
            ),
            role(
                "ns",
                "local",
                vec![allows(&["*"], &["secrets"]), allows(&["get"], &["pods"])],
            ),
        ],
        bindings: vec![
            binding(
                "ns",
                "b-view",
                "view",
                vec![Subject::user("alice"), Subject::service_account("", "robot")],
            ),
            binding(
                "ns",
                "a-view",
                "view",
                vec![Subject::user("bob"), Subject::group("devs")],
            ),
            binding(
                "",
                "z-view",
                "view",
                vec![Subject::service_account("ops", "robot"), Subject::user("carol")],
            ),
            binding("", "probes", "probe", vec![Subject::group("monitors")]),
            binding("ns", "probes", "probe", vec![Subject::user("alice")]),
            binding("", "many", "many", vec![Subject::user("carol")]),
            binding(
                "ns",
                "gone",
                "gone",
                vec![Subject::user("alice"), Subject::user("dave")],
            ),
            Binding {
                role: crate::authorization::RoleRef {
                    kind: crate::authorization::RoleKind::Role,
                    name: "local".into(),
                },
                ..binding("ns", "local", "", vec![Subject::user("erin")])
            },
        ],
        policies: Vec::new(),
        ..Objects::default()
    }
}

#[test]
fn reasons_and_causes_are_as_upstream() {
    let set = set(objects());
    let view = |name: &str| format!("RBAC: allowed by RoleBinding \"{name}/ns\" of ClusterRole \"view\" to ");
    for (request, reason) in [
        (
            asks(user("alice", &[]), "get pods ns p"),
            view("b-view") + "User \"alice\"",
        ),
        (
            asks(user("alice", &["devs"]), "get pods ns p"),
            view("a-view") + "Group \"devs\"",
        ),
        (
            asks(user("system:serviceaccount:ns:robot", &[]), "list pods ns"),
            view("b-view") + "ServiceAccount \"robot/ns\"",
        ),
        (
            asks(user("system:serviceaccount:ops:robot", &[]), "list pods ns"),
            "RBAC: allowed by ClusterRoleBinding \"z-view\" of ClusterRole \"view\" to \
             ServiceAccount \"robot/ops\""
                .to_owned(),
        ),
        (
            asks(user("erin", &[]), "get pods ns p"),
            "RBAC: allowed by RoleBinding \"local/ns\" of Role \"local\" to User \"erin\"".to_owned(),
        ),
        (
            opens(user("x", &["monitors"]), "/debug/pprof"),
            "RBAC: allowed by ClusterRoleBinding \"probes\" of ClusterRole \"probe\" to Group \"monitors\""
                .to_owned(),
        ),
    ] {
        let answer = set.authorize(&request, Time::UNIX_EPOCH);
        assert_eq!(
            (answer.decision, answer.reason.to_string()),
            (Decision::Allow, reason)
        );
    }
    let cause = set
        .authorize(&asks(user("erin", &[]), "get pods ns p"), Time::UNIX_EPOCH)
        .cause
        .unwrap();
    assert_eq!(
        (cause.kind, &*cause.namespace, &*cause.name),
        (CauseKind::RoleBinding, "ns", "local")
    );
    assert_eq!(cause.rule, Some(1));
    let cause = set
        .authorize(&asks(user("carol", &[]), "get r39 - x"), Time::UNIX_EPOCH)
        .cause
        .unwrap();
    assert_eq!(
        (cause.kind, cause.rule),
        (CauseKind::ClusterRoleBinding, Some(39))
    );
}

#[test]
fn what_is_bound_elsewhere_or_to_others_grants_nothing() {
    let set = set(objects());
    for request in [
        asks(user("alice", &[]), "get pods other p"),
        asks(user("alice", &[]), "list pods"),
        asks(user("alice", &[]), "delete pods ns p"),
        asks(user("alice", &[]), "get pods/log ns p"),
        asks(user("alice", &[]), "get pods.apps ns p"),
        asks(user("system:serviceaccount:other:robot", &[]), "get pods ns p"),
        asks(user("dave", &[]), "get pods ns p"),
        asks(user("erin", &[]), "get secrets other s"),
        asks(user("", &[]), "get pods ns p"),
        // Paths are granted cluster-wide only.
        opens(user("alice", &[]), "/metrics"),
        opens(user("x", &["monitors"]), "/debug"),
    ] {
        let answer = set.authorize(&request, Time::UNIX_EPOCH);
        assert_eq!(answer.decision, Decision::NoOpinion, "{request:?}");
        assert_eq!((answer.reason.is_empty(), answer.cause), (true, None));
    }
}

#[test]
fn what_is_missing_is_told_in_the_log_not_to_the_person() {
    let set = set(objects());
    let asked = asks(user("dave", &[]), "get pods ns p");
    let unmatched = set.unmatched(&asked, Time::UNIX_EPOCH);
    assert_eq!(
        unmatched.errors,
        ["clusterrole.rbac.authorization.k8s.io \"gone\" not found"]
    );
    assert_eq!(
        (unmatched.bindings, unmatched.policies, &unmatched.nearest[..]),
        (1, 0, &[][..])
    );
    assert_eq!(
        unmatched.to_string(),
        "none of the user's 1 bindings and 0 policies applies; \
         clusterrole.rbac.authorization.k8s.io \"gone\" not found"
    );
    let (_, trace) = set.explain(&asked, Time::UNIX_EPOCH);
    assert!(matches!(trace.events[..], [ref event] if matches!(event.finding, Finding::MissingRole { .. })));

    let unmatched = set.unmatched(&asks(user("erin", &[]), "get nodes ns n"), Time::UNIX_EPOCH);
    let nearest = &unmatched.nearest[0];
    assert_eq!(nearest.name, "local");
    assert_eq!(
        nearest.finding,
        Finding::NoMatch {
            rule: Some(0),
            criterion: Criterion::Resources
        }
    );
}

#[test]
fn the_trace_names_each_binding_of_the_user_up_to_the_first_that_allows() {
    let set = set(objects());
    let (answer, trace) = set.explain(&asks(user("carol", &[]), "get pods ns p"), Time::UNIX_EPOCH);
    assert_eq!(
        answer,
        set.authorize(&asks(user("carol", &[]), "get pods ns p"), Time::UNIX_EPOCH)
    );
    let reported: Vec<_> = trace
        .events
        .iter()
        .map(|event| (event.name.as_str(), &event.finding))
        .collect();
    assert_eq!(
        reported,
        [
            (
                "many",
                &Finding::NoMatch {
                    rule: Some(0),
                    criterion: Criterion::Resources
                }
            ),
            (
                "z-view",
                &Finding::Match {
                    rule: 0,
                    decision: Decision::Allow
                }
            ),
        ]
    );
}

#[test]
fn aggregated_roles_grant_what_they_gather() {
    let mut objects = objects();
    let labels = [("to-all".to_owned(), "yes".to_owned())].into();
    let selector = crate::model::LabelSelector::compile(&labels, &[]).unwrap();
    objects.roles[0].labels = labels;
    objects.roles.push(Role {
        aggregation: Some(vec![selector]),
        ..role("", "all", Vec::new())
    });
    objects
        .bindings
        .push(binding("", "all", "all", vec![Subject::user("frank")]));
    let set = set(objects);
    let answer = set.authorize(&asks(user("frank", &[]), "list pods"), Time::UNIX_EPOCH);
    assert_eq!(
        answer.reason.to_string(),
        "RBAC: allowed by ClusterRoleBinding \"all\" of ClusterRole \"all\" to User \"frank\""
    );
}

#[test]
fn a_reason_that_names_somebody_long_is_cut() {
    let name = "ü".repeat(2_000);
    let set = set(Objects {
        roles: vec![role("", "view", vec![allows(&["get"], &["pods"])])],
        bindings: vec![binding("", "b", "view", vec![Subject::user(name.clone())])],
        ..Objects::default()
    });
    let answer = set.authorize(&asks(user(&name, &[]), "get pods ns p"), Time::UNIX_EPOCH);
    assert_eq!(answer.decision, Decision::Allow);
    let reason = answer.reason.to_string();
    assert!(reason.len() <= 1024 && reason.ends_with('…'), "{}", reason.len());
}
