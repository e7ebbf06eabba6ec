//! AuthorizationPolicies: who is meant, what comes first, what changes nothing.

use super::*;

fn deny(name: &str) -> AuthorizationPolicy {
    AuthorizationPolicy {
        resource_rules: vec![rule(&["*"], &["*"])],
        ..policy(Effect::Deny, name)
    }
}

fn allow(name: &str) -> AuthorizationPolicy {
    AuthorizationPolicy {
        resource_rules: vec![rule(&["*"], &["*"])],
        ..policy(Effect::Allow, name)
    }
}

fn shadow(policy: AuthorizationPolicy) -> AuthorizationPolicy {
    AuthorizationPolicy {
        mode: Mode::Shadow,
        ..policy
    }
}

fn pods() -> Attributes<'static> {
    asks(user("alice", &["devs"]), "get pods ns p")
}

fn bound() -> Objects {
    Objects {
        roles: vec![role("", "view", vec![allows(&["get"], &["pods"])])],
        bindings: vec![binding("", "view", "view", vec![Subject::user("alice")])],
        policies: Vec::new(),
        ..Objects::default()
    }
}

#[test]
fn deny_then_rbac_then_allow_then_nothing() {
    let with = |policies: Vec<AuthorizationPolicy>| set(Objects { policies, ..bound() });
    let set = with(vec![allow("a"), deny("z"), deny("b")]);
    let denied = set.authorize(&pods(), Time::UNIX_EPOCH);
    assert_eq!(
        (denied.decision, &*denied.reason.to_string()),
        (Decision::Deny, "denied by AuthorizationPolicy \"b\"")
    );
    let cause = denied.cause.unwrap();
    assert_eq!(
        (cause.kind, &*cause.name, cause.rule),
        (CauseKind::AuthorizationPolicy, "b", Some(0))
    );

    let set = with(vec![allow("a")]);
    let by_rbac = set.authorize(&pods(), Time::UNIX_EPOCH);
    assert_eq!(
        (by_rbac.decision, by_rbac.cause.unwrap().kind),
        (Decision::Allow, CauseKind::ClusterRoleBinding)
    );

    let secrets = asks(user("alice", &[]), "get secrets ns s");
    let set = with(vec![allow("z"), allow("a")]);
    let allowed = set.authorize(&secrets, Time::UNIX_EPOCH);
    assert_eq!(
        (allowed.decision, &*allowed.reason.to_string()),
        (Decision::Allow, "allowed by AuthorizationPolicy \"a\"")
    );

    let set = with(Vec::new());
    let nothing = set.authorize(&secrets, Time::UNIX_EPOCH);
    assert_eq!(
        (nothing.decision, nothing.reason.is_empty(), nothing.cause),
        (Decision::NoOpinion, true, None)
    );
}

#[test]
fn the_reason_is_told_and_bounded() {
    let reported = AuthorizationPolicy {
        reason: "not here".into(),
        ..deny("p")
    };
    let set = policies(vec![reported]);
    let answer = set.authorize(&pods(), Time::UNIX_EPOCH);
    assert_eq!(
        answer.reason.to_string(),
        "denied by AuthorizationPolicy \"p\": not here"
    );
    let long = AuthorizationPolicy {
        reason: "ä".repeat(2_000),
        ..deny("p")
    };
    let set = policies(vec![long]);
    let reason = set.authorize(&pods(), Time::UNIX_EPOCH).reason.to_string();
    assert!(
        reason.len() <= 1024 && reason.len() > 1020 && reason.ends_with("ä…"),
        "{}",
        reason.len()
    );
}

#[test]
fn subjects_name_users_groups_accounts_and_prefixes() {
    let alice = user("alice", &["devs", "team-a"]);
    let robot = user("system:serviceaccount:ns:robot", &[]);
    let nobody = user("", &[]);
    let applies = |subject: Subject, user: &crate::model::User<'static>| {
        let policy = AuthorizationPolicy {
            subjects: vec![subject],
            ..deny("p")
        };
        policies(vec![policy])
            .authorize(&asks(user.clone(), "get pods ns p"), Time::UNIX_EPOCH)
            .decision
            == Decision::Deny
    };
    for (subject, user) in [
        (Subject::user("alice"), &alice),
        (Subject::user("al*"), &alice),
        (Subject::user("alice*"), &alice),
        (Subject::user("system:serviceaccount:ns:*"), &robot),
        (Subject::group("devs"), &alice),
        (Subject::group("team-*"), &alice),
        (Subject::service_account("ns", "robot"), &robot),
        // Every request, one without groups too.
        (Subject::group("*"), &robot),
        (Subject::group("*"), &nobody),
        (Subject::user("*"), &nobody),
    ] {
        assert!(applies(subject.clone(), user), "{subject:?}");
    }
    for (subject, user) in [
        (Subject::user("ali"), &alice),
        (Subject::user("b*"), &alice),
        (Subject::user("a*e"), &alice),
        (Subject::user("devs"), &alice),
        (Subject::group("alice"), &alice),
        (Subject::group("dev"), &alice),
        (Subject::group("team-b*"), &alice),
        (Subject::group("g*"), &nobody),
        (Subject::service_account("ns", "rob*"), &robot),
        (Subject::service_account("ns", "*"), &robot),
        (Subject::service_account("", "robot"), &robot),
    ] {
        assert!(!applies(subject.clone(), user), "{subject:?}");
    }
}

#[test]
fn excluded_subjects_are_not_meant() {
    let excluding = |exclude: Vec<Subject>| {
        let policy = AuthorizationPolicy {
            exclude_subjects: exclude,
            ..deny("p")
        };
        policies(vec![policy])
            .authorize(&pods(), Time::UNIX_EPOCH)
            .decision
    };
    for subject in [
        Subject::user("alice"),
        Subject::user("a*"),
        Subject::group("devs"),
        Subject::group("*"),
    ] {
        assert_eq!(
            excluding(vec![Subject::user("x"), subject.clone()]),
            Decision::NoOpinion,
            "{subject:?}"
        );
    }
    assert_eq!(
        excluding(vec![Subject::user("bob"), Subject::group("d")]),
        Decision::Deny
    );
}

#[test]
fn any_rule_of_the_sort_asked_for_suffices() {
    let policy = AuthorizationPolicy {
        resource_rules: vec![rule(&["list"], &["pods"]), rule(&["get"], &["secrets"])],
        non_resource_rules: vec![paths(&["get"], &["/a"]), paths(&["*"], &["/b/*"])],
        ..policy(Effect::Deny, "p")
    };
    let set = policies(vec![policy]);
    let cause = |asked: &Attributes<'_>| {
        set.authorize(asked, Time::UNIX_EPOCH)
            .cause
            .map(|cause| cause.rule)
    };
    assert_eq!(cause(&asks(user("u", &[]), "list pods ns")), Some(Some(0)));
    assert_eq!(cause(&asks(user("u", &[]), "get secrets ns s")), Some(Some(1)));
    assert_eq!(cause(&opens(user("u", &[]), "/a")), Some(Some(2)));
    assert_eq!(cause(&opens(user("u", &[]), "/b/c")), Some(Some(3)));
    assert_eq!(cause(&asks(user("u", &[]), "get pods ns p")), None);
    assert_eq!(cause(&opens(user("u", &[]), "/b")), None);
}

#[test]
fn a_shadow_is_recorded_and_changes_nothing() {
    let shadows = || vec![shadow(deny("d")), shadow(allow("a"))];
    let note = |name: &str, decision| Shadow {
        kind: CauseKind::AuthorizationPolicy,
        name: name.into(),
        decision,
        error: None,
    };
    let noted = vec![note("a", Decision::Allow), note("d", Decision::Deny)];
    for (others, decision) in [
        (vec![], Decision::NoOpinion),
        (vec![deny("x")], Decision::Deny),
        (vec![allow("x")], Decision::Allow),
    ] {
        let set = policies([others, shadows()].concat());
        let answer = set.authorize(&pods(), Time::UNIX_EPOCH);
        assert_eq!((answer.decision, &answer.shadow), (decision, &noted));
    }
    let set = set(Objects {
        policies: shadows(),
        ..bound()
    });
    let by_rbac = set.authorize(&pods(), Time::UNIX_EPOCH);
    assert_eq!((by_rbac.decision, &by_rbac.shadow), (Decision::Allow, &noted));
}

#[test]
fn no_deny_holds_up_whom_never_deny_names() {
    let everything = || AuthorizationPolicy {
        non_resource_rules: vec![paths(&["*"], &["*"])],
        ..deny("all")
    };
    let default = policies(vec![
        everything(),
        shadow(AuthorizationPolicy {
            name: "s".into(),
            ..everything()
        }),
    ]);
    let nobody = PolicySet::new(
        Objects {
            policies: vec![everything()],
            ..Objects::default()
        },
        &NeverDeny::nobody(),
    );
    let any = "get pods ns p";
    for protected in [
        asks(user("system:node:n1", &["system:nodes"]), any),
        asks(user("system:kube-controller-manager", &[]), any),
        asks(user("system:kube-scheduler", &[]), any),
        asks(user("system:apiserver", &[]), any),
        asks(
            user("system:serviceaccount:kube-system:namespace-controller", &[]),
            any,
        ),
        asks(
            user("system:serviceaccount:kube-system:generic-garbage-collector", &[]),
            any,
        ),
        opens(user("x", &[]), "/healthz"),
        opens(user("x", &[]), "/livez/etcd"),
        opens(user("x", &[]), "/readyz"),
        opens(user("x", &[]), "version"),
    ] {
        let answer = default.authorize(&protected, Time::UNIX_EPOCH);
        assert_eq!(
            (answer.decision, answer.shadow),
            (Decision::NoOpinion, vec![]),
            "{protected:?}"
        );
        assert_eq!(
            nobody.authorize(&protected, Time::UNIX_EPOCH).decision,
            Decision::Deny,
            "{protected:?}"
        );
    }
    for open in [
        // The group counts only for nodes.
        asks(user("alice", &["system:nodes"]), any),
        asks(user("system:node:n1", &["other"]), any),
        asks(user("system:kube-controller-manager2", &[]), any),
        asks(user("x", &["system:kube-controller-manager"]), any),
        asks(
            user("system:serviceaccount:default:namespace-controller", &[]),
            any,
        ),
        asks(user("system:serviceaccount:kube-system:default", &[]), any),
        opens(user("x", &[]), "/healthzz"),
        opens(user("x", &[]), "/version/"),
        opens(user("x", &[]), "/metrics"),
    ] {
        assert_eq!(
            default.authorize(&open, Time::UNIX_EPOCH).decision,
            Decision::Deny,
            "{open:?}"
        );
    }
    let own = NeverDeny {
        groups: vec!["devs".into()],
        ..NeverDeny::nobody()
    };
    let own = PolicySet::new(
        Objects {
            policies: vec![everything()],
            ..Objects::default()
        },
        &own,
    );
    assert_eq!(
        own.authorize(&pods(), Time::UNIX_EPOCH).decision,
        Decision::NoOpinion
    );
    assert_eq!(
        own.authorize(&opens(user("x", &[]), "/healthz"), Time::UNIX_EPOCH)
            .decision,
        Decision::Deny
    );
}

#[test]
fn protection_lifts_denies_alone() {
    let allowed = Objects {
        policies: vec![deny("d"), allow("a")],
        ..Objects::default()
    };
    let node = asks(user("system:node:n1", &["system:nodes"]), "get pods ns p");
    assert_eq!(
        set(allowed).authorize(&node, Time::UNIX_EPOCH).decision,
        Decision::Allow
    );
}

#[test]
fn each_evaluated_policy_is_told_of_once() {
    let unlike = AuthorizationPolicy {
        subjects: vec![Subject::user("bob")],
        ..deny("not-looked-at")
    };
    let names = |namespaces: &[&str]| crate::authorization::ResourceRule {
        namespaces: patterns(namespaces),
        names: texts(&["p"]),
        ..rule(&["get"], &["pods/log", "pods"])
    };
    let near = AuthorizationPolicy {
        resource_rules: vec![rule(&["get"], &["pods/exec"]), rule(&["get"], &["pods/log"])],
        ..policy(Effect::Deny, "near")
    };
    let hit = AuthorizationPolicy {
        resource_rules: vec![names(&["ns"]), names(&["n*"])],
        ..policy(Effect::Allow, "hit")
    };
    let set = policies(vec![
        unlike,
        near,
        hit,
        shadow(deny("s")),
        shadow(allow("t")),
        allow("z-not-reached"),
    ]);
    let mut reported = Vec::new();
    let names: Vec<_> = set.policies().map(|(_, name)| name.to_string()).collect();
    set.authorize_observed(
        &pods(),
        Time::UNIX_EPOCH,
        crate::model::Deadline::NEVER,
        &mut |policy: usize, evaluation| {
            reported.push((names[policy].clone(), evaluation));
        },
    );
    let reported: Vec<_> = reported
        .iter()
        .map(|(name, evaluation)| (name.as_str(), *evaluation))
        .collect();
    assert_eq!(
        reported,
        [
            ("s", PolicyResult::ShadowDeny),
            ("t", PolicyResult::ShadowAllow),
            ("near", PolicyResult::NoMatch),
            ("hit", PolicyResult::Match),
        ]
    );
}

#[test]
fn the_trace_says_of_each_policy_why_not() {
    let named = |name: &str, change: fn(&mut AuthorizationPolicy)| {
        let mut policy = deny(name);
        change(&mut policy);
        policy
    };
    let set = policies(vec![
        named("a", |policy| policy.subjects = vec![Subject::user("bob")]),
        named("b", |policy| {
            policy.exclude_subjects = vec![Subject::user("alice")]
        }),
        named("c", |policy| {
            policy.resource_rules = Vec::new();
            policy.non_resource_rules = vec![paths(&["*"], &["*"])];
        }),
        named("d", |policy| {
            policy.resource_rules = vec![rule(&["list"], &["*"])]
        }),
        named("e", |policy| {
            policy.resource_rules[0].api_groups = words(&["apps"])
        }),
        named("f", |policy| {
            policy.resource_rules = vec![rule(&["list"], &["*"]), rule(&["*"], &["nodes"])]
        }),
        named("g", |policy| {
            policy.resource_rules[0].namespaces = patterns(&["other"])
        }),
        named("h", |policy| policy.resource_rules[0].names = texts(&["other"])),
        named("i", |policy| {
            policy.conditions = vec![condition("request.user == 'bob'")]
        }),
        named("j", |_| {}),
        named("k", |_| {}),
    ]);
    let (answer, trace) = set.explain(&pods(), Time::UNIX_EPOCH);
    assert_eq!(answer.decision, Decision::Deny);
    let reported: Vec<_> = trace
        .events
        .iter()
        .map(|event| (event.name.as_str(), event.finding.clone()))
        .collect();
    let no = |rule, criterion| Finding::NoMatch { rule, criterion };
    assert_eq!(
        reported,
        [
            ("a", no(Some(0), Criterion::Subjects)),
            ("b", no(Some(0), Criterion::ExcludeSubjects)),
            ("c", no(None, Criterion::Target)),
            ("d", no(Some(0), Criterion::Verbs)),
            ("e", no(Some(0), Criterion::ApiGroups)),
            ("f", no(Some(1), Criterion::Resources)),
            ("g", no(Some(0), Criterion::Namespaces)),
            ("h", no(Some(0), Criterion::Names)),
            (
                "i",
                Finding::ConditionFalse {
                    rule: Some(0),
                    condition: "c".into()
                }
            ),
            (
                "j",
                Finding::Match {
                    rule: 0,
                    decision: Decision::Deny
                }
            ),
        ]
    );
    let json = serde_json::to_value(&trace.events[3]).unwrap();
    assert_eq!(
        json,
        serde_json::json!({
            "kind": "AuthorizationPolicy", "name": "d", "effect": "Deny", "mode": "Enforce",
            "result": "noMatch", "rule": 0, "criterion": "verbs",
        })
    );
}

#[test]
fn the_nearest_miss_of_a_user_is_named() {
    let near = AuthorizationPolicy {
        resource_rules: vec![crate::authorization::ResourceRule {
            namespaces: patterns(&["other"]),
            ..rule(&["get"], &["pods"])
        }],
        ..policy(Effect::Allow, "near")
    };
    let far = AuthorizationPolicy {
        resource_rules: vec![rule(&["get"], &["nodes"])],
        ..policy(Effect::Allow, "far")
    };
    let unmatched = policies(vec![far, near]).unmatched(&pods(), Time::UNIX_EPOCH);
    assert_eq!(
        unmatched.to_string(),
        "none of the user's 0 bindings and 2 policies applies; \
         nearest is AuthorizationPolicy `near`, whose rule 0 does not fit in `namespaces`"
    );
}

#[test]
fn the_nearest_misses_are_in_order_each_policy_once_and_few() {
    let allowing = |name: &str, rules: Vec<crate::authorization::ResourceRule>| AuthorizationPolicy {
        resource_rules: rules,
        ..policy(Effect::Allow, name)
    };
    let elsewhere = || crate::authorization::ResourceRule {
        namespaces: patterns(&["other"]),
        ..rule(&["get"], &["pods"])
    };
    let mut all: Vec<_> = (0..10)
        .map(|n| allowing(&format!("far-{n}"), vec![rule(&["get"], &["nodes"])]))
        .collect();
    all.push(allowing(
        "near",
        vec![
            rule(&["list"], &["pods"]),
            elsewhere(),
            rule(&["get"], &["nodes"]),
        ],
    ));
    all.push(allowing("verb", vec![rule(&["list"], &["pods"])]));
    all.push(allowing("also-near", vec![elsewhere()]));
    let unmatched = policies(all).unmatched(&pods(), Time::UNIX_EPOCH);
    let found: Vec<_> = unmatched
        .nearest
        .iter()
        .map(|event| match event.finding {
            Finding::NoMatch { rule, criterion } => (event.name.as_str(), rule, criterion),
            _ => panic!("{event:?}"),
        })
        .collect();
    let far = |name| (name, Some(0), Criterion::Resources);
    assert_eq!(
        found,
        [
            ("also-near", Some(0), Criterion::Namespaces),
            ("near", Some(1), Criterion::Namespaces),
            far("far-0"),
            far("far-1"),
            far("far-2"),
        ]
    );
}

#[test]
fn clusters_without_manifests_have_the_shared_ones() {
    let shared = std::sync::Arc::new(policies(vec![deny("shared")]));
    let east = std::sync::Arc::new(policies(vec![allow("east")]));
    let all = ClusterPolicySets {
        shared,
        clusters: [("east".to_owned(), east)].into(),
    };
    let decision = |cluster: &str| {
        all.for_cluster(cluster)
            .authorize(&pods(), Time::UNIX_EPOCH)
            .decision
    };
    assert_eq!(
        (decision("east"), decision("west")),
        (Decision::Allow, Decision::Deny)
    );
}
