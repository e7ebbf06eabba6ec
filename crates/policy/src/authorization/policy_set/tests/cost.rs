//! The work of a decision follows the rules that could apply, not those that
//! are loaded. Counted, not timed.

use super::*;

/// The most rules compared in deciding `asked`, in sets of 100 and of `many`.
fn visited(objects: impl Fn(usize) -> Objects, many: usize, asked: &[Attributes<'_>]) -> (usize, usize) {
    let most = |count: usize| {
        let set = set(objects(count));
        asked
            .iter()
            .map(|asked| set.authorize(asked, Time::UNIX_EPOCH).compared_rules)
            .max()
            .unwrap()
    };
    (most(100), most(many))
}

fn requests() -> Vec<Attributes<'static>> {
    let one = |name: &str| user(name, &["all", "devs"]);
    vec![
        asks(one("u7"), "get pods ns7 n7"),
        asks(one("u7"), "get r7 ns7 n7"),
        asks(one("u7"), "v7 pods ns7 n7"),
        asks(one("u7"), "get pods"),
        asks(one("u7"), "delete nodes ns7 n7"),
        asks(one("unknown"), "get pods ns7 n7"),
        opens(one("u7"), "/p7/x"),
    ]
}

fn bindings(count: usize, of: impl Fn(usize) -> (Role, Binding)) -> Objects {
    let (roles, bindings) = (0..count).map(of).unzip();
    Objects {
        roles,
        bindings,
        policies: Vec::new(),
        ..Objects::default()
    }
}

fn check(shape: &str, of: impl Fn(usize) -> (Role, Binding)) {
    let (few, many) = visited(|count| bindings(count, &of), 100_000, &requests());
    assert!(
        many <= few && many <= 24,
        "{shape}: {few} rules of 100, {many} of 100,000"
    );
}

#[test]
fn no_shape_of_role_bindings_makes_a_decision_look_at_more_rules() {
    let pods = || vec![allows(&["get", "list"], &["pods"])];
    let all = || vec![Subject::group("all")];
    check("a user each", |at| {
        (
            role("", &format!("r{at}"), pods()),
            binding(
                "ns7",
                &format!("b{at}"),
                &format!("r{at}"),
                vec![Subject::user(format!("u{at}"))],
            ),
        )
    });
    check("one group, a namespace each", |at| {
        (
            role("", "view", pods()),
            binding(&format!("ns{at}"), "b", "view", all()),
        )
    });
    check("one group, one namespace, a resource each", |at| {
        let name = format!("r{at}");
        (
            role("", &name, vec![allows(&["get"], &[&name])]),
            binding("ns7", &name, &name, all()),
        )
    });
    check("one group, cluster-wide, a verb each", |at| {
        let name = format!("r{at}");
        (
            role("", &name, vec![allows(&[&format!("v{at}")], &["pods"])]),
            binding("", &name, &name, all()),
        )
    });
    check("one group, cluster-wide, an object each", |at| {
        let name = format!("r{at}");
        let rule = crate::authorization::Rule {
            resource_names: vec![format!("n{at}")],
            ..allows(&["get"], &["pods"])
        };
        (role("", &name, vec![rule]), binding("", &name, &name, all()))
    });
    check("one group, cluster-wide, a path each", |at| {
        let name = format!("r{at}");
        let rule = crate::authorization::Rule {
            verbs: words(&["get"]),
            non_resource_urls: vec![format!("/p{at}/*").into()],
            ..Default::default()
        };
        (role("", &name, vec![rule]), binding("", &name, &name, all()))
    });
    check("one group, the same role again and again", |at| {
        (
            role("", "view", pods()),
            binding("ns7", &format!("b{at:06}"), "view", all()),
        )
    });
}

#[test]
fn a_role_of_many_rules_is_not_read_through() {
    let rules = |count: usize| {
        (0..count)
            .map(|at| allows(&["get"], &[&format!("r{at}")]))
            .collect()
    };
    let objects = |count: usize| Objects {
        roles: vec![role("", "large", rules(count))],
        bindings: vec![binding("ns7", "b", "large", vec![Subject::group("all")])],
        policies: Vec::new(),
        ..Objects::default()
    };
    let (few, many) = visited(objects, 100_000, &requests());
    assert!(many <= few && many <= 24, "{few} {many}");
}

#[test]
fn rules_with_huge_products_are_compared_without_being_multiplied_out() {
    let list = |prefix: &str| (0..1_000).map(|at| format!("{prefix}{at}")).collect::<Vec<_>>();
    let rule = crate::authorization::Rule {
        verbs: list("v").into(),
        api_groups: list("g").into(),
        resources: list("r").into(),
        resource_names: list("n"),
        ..Default::default()
    };
    let set = set(Objects {
        roles: vec![role("", "huge", vec![rule; 20])],
        bindings: vec![binding("", "b", "huge", vec![Subject::user("u")])],
        policies: Vec::new(),
        ..Objects::default()
    });
    assert_eq!(
        set.authorize(&asks(user("u", &[]), "v999 r999.g999 ns n999"), Time::UNIX_EPOCH)
            .decision,
        Decision::Allow
    );
    assert_eq!(
        set.authorize(&asks(user("u", &[]), "v999 r999.g999 ns n1000"), Time::UNIX_EPOCH)
            .decision,
        Decision::NoOpinion
    );
}

#[test]
fn policies_for_everyone_are_found_by_any_of_their_fields() {
    type Shape = (&'static str, fn(usize) -> crate::authorization::ResourceRule);
    let shapes: [Shape; 6] = [
        ("verbs", |at| rule(&[&format!("v{at}")], &["*"])),
        ("groups", |at| crate::authorization::ResourceRule {
            api_groups: vec![format!("g{at}")].into(),
            ..rule(&["*"], &["*"])
        }),
        ("resources", |at| {
            rule(&["*"], &[&format!("r{at}/status"), &format!("r{at}")])
        }),
        ("namespaces", |at| crate::authorization::ResourceRule {
            namespaces: vec![format!("ns{at}").into()],
            ..rule(&["*"], &["*"])
        }),
        ("namespace prefixes", |at| crate::authorization::ResourceRule {
            namespaces: vec![format!("ns{at}-*").into()],
            ..rule(&["*"], &["*"])
        }),
        ("names", |at| crate::authorization::ResourceRule {
            names: vec![format!("n{at}")],
            ..rule(&["*"], &["*"])
        }),
    ];
    for (shape, of) in shapes {
        let objects = |count: usize| Objects {
            policies: (0..count)
                .map(|at| AuthorizationPolicy {
                    resource_rules: vec![of(at)],
                    ..policy(
                        if at % 2 == 0 { Effect::Deny } else { Effect::Allow },
                        &format!("p{at}"),
                    )
                })
                .collect(),
            ..Objects::default()
        };
        let one = user("u7", &["all"]);
        let asked = [
            asks(one.clone(), "v7 r7.g7 ns7 n7"),
            asks(one, "get pods ns7-x p"),
        ];
        let (few, many) = visited(objects, 2_000, &asked);
        assert!(many <= few && many <= 2, "{shape}: {few} of 100, {many} of 2,000");
    }
}

#[test]
fn a_user_of_thousands_of_groups_costs_a_look_up_each() {
    let objects = |count: usize| {
        bindings(count, |at| {
            (
                role("", "view", vec![allows(&["get"], &["pods"])]),
                binding(
                    "",
                    &format!("b{at}"),
                    "view",
                    vec![Subject::group(format!("g{at}"))],
                ),
            )
        })
    };
    let groups: Vec<String> = (0..5_000)
        .map(|at| format!("other{at}"))
        .chain(["g7".to_owned()])
        .collect();
    let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
    let (few, many) = visited(objects, 10_000, &[asks(user("u", &groups), "get pods ns p")]);
    assert_eq!((few, many), (1, 1));
}

#[test]
fn each_of_thousands_of_policies_decides_where_it_applies() {
    const COUNT: usize = 4_200;
    let policies = (0..COUNT).map(|at| AuthorizationPolicy {
        subjects: vec![Subject::group(if at % 2 == 0 {
            "*".to_owned()
        } else {
            format!("g{at}*")
        })],
        exclude_subjects: vec![Subject::user(format!("u{at}"))],
        resource_rules: vec![crate::authorization::ResourceRule {
            namespaces: vec![format!("ns{at}").into(), format!("team{at}-*").into()],
            ..rule(&["get"], &["pods"])
        }],
        ..policy(Effect::Deny, &format!("p{at:04}"))
    });
    let set = set(Objects {
        policies: policies.collect(),
        ..Objects::default()
    });
    for at in [
        0,
        1,
        62,
        63,
        64,
        65,
        127,
        4_031,
        4_032,
        4_095,
        4_096,
        4_097,
        COUNT - 1,
    ] {
        let groups = [format!("g{at}x")];
        let groups = groups.each_ref().map(String::as_str);
        for (name, namespace, verb, is_denied) in [
            ("u", format!("ns{at}"), "get", true),
            ("u", format!("team{at}-a"), "get", true),
            ("u", format!("team{at}"), "get", false),
            ("u", format!("ns{at}"), "list", false),
            (&*format!("u{at}"), format!("ns{at}"), "get", false),
        ] {
            let asked = asks(user(name, &groups), &format!("{verb} pods {namespace} n"));
            let authorization = set.authorize(&asked, Time::UNIX_EPOCH);
            let by = authorization.cause.map(|cause| cause.name.into_owned());
            assert_eq!(by, is_denied.then(|| format!("p{at:04}")), "{asked:?}");
        }
    }
}

fn words_of(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|at| format!("{prefix}{at}")).collect()
}

#[test]
fn what_a_user_can_is_given_up_at_the_deadline() {
    // A million combinations, all of which are denied.
    let product = crate::authorization::Rule {
        verbs: words_of("v", 100).into(),
        api_groups: words_of("g", 100).into(),
        resources: words_of("r", 100).into(),
        ..Default::default()
    };
    let set = set(Objects {
        roles: vec![role("", "product", vec![product])],
        bindings: vec![binding("", "b", "product", vec![Subject::user("u")])],
        policies: vec![AuthorizationPolicy {
            subjects: vec![Subject::user("u")],
            resource_rules: vec![crate::authorization::ResourceRule {
                api_groups: words(&["*"]),
                ..rule(&["*"], &["*"])
            }],
            ..policy(Effect::Deny, "all")
        }],
        ..Objects::default()
    });
    let asked = std::cell::Cell::new(0);
    let expired = || {
        asked.set(asked.get() + 1);
        asked.get() > 100
    };
    let within = crate::authorization::Within::AnyNamespace;
    let answer = set.what_can(
        &user("u", &[]),
        &within,
        Time::UNIX_EPOCH,
        Deadline::new(&expired),
    );
    assert_eq!(answer, None);
    assert!(asked.get() < 110, "{}", asked.get());
}

#[test]
fn an_answer_that_nobody_reads_is_not_made() {
    let objects = |count: usize| Objects {
        roles: vec![role("", "view", vec![allows(&["get"], &["pods"])])],
        bindings: vec![binding(
            "",
            "b",
            "view",
            words_of("u", count).into_iter().map(Subject::user).collect(),
        )],
        policies: (0..count)
            .map(|at| AuthorizationPolicy {
                subjects: vec![Subject::group("g*")],
                resource_rules: vec![crate::authorization::ResourceRule {
                    names: vec![format!("n{at}")],
                    ..rule(&["get"], &["pods"])
                }],
                ..policy(Effect::Deny, &format!("p{at:04}"))
            })
            .collect(),
        ..Objects::default()
    };
    let request = crate::authorization::OpenRequest {
        verb: "get".to_owned(),
        target: crate::authorization::OpenTarget::Resource(crate::authorization::OpenResource {
            group: String::new(),
            resource: "pods".to_owned(),
            subresource: String::new(),
            name: None,
            within: crate::authorization::Within::AnyNamespace,
        }),
    };
    let who = |count| set(objects(count)).who_can(&request, Time::UNIX_EPOCH, Deadline::NEVER);
    let few = who(20).unwrap();
    assert_eq!((few.len(), few[1].denied_by.len()), (21, 20), "{:?}", few[1]);
    assert_eq!(who(1_500), None);
    let expired = Deadline::new(&|| true);
    assert_eq!(
        set(objects(20)).who_can(&request, Time::UNIX_EPOCH, expired),
        None
    );
}
