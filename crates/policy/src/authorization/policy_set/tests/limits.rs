//! Limits: what no rule holds is refused, whatever grants it.

use super::*;
use crate::authorization::{AllowedShare, OpenRequest, OpenResource, OpenTarget, ResourceRule, Within};
use crate::model::{Operator, Requirement, Selectors, Target, Validity};

fn limit(name: &str, rules: Vec<ResourceRule>) -> AuthorizationPolicy {
    AuthorizationPolicy {
        resource_rules: rules,
        subjects: vec![Subject::group("agents")],
        ..policy(Effect::Limit, name)
    }
}

/// Everything is granted to everybody, so that what is refused, policies refuse.
fn with(policies: Vec<AuthorizationPolicy>) -> PolicySet {
    let everything = AuthorizationPolicy {
        resource_rules: vec![rule(&["*"], &["*"])],
        non_resource_rules: vec![paths(&["*"], &["*"])],
        ..policy(Effect::Allow, "everything")
    };
    super::policies(policies.into_iter().chain([everything]).collect())
}

fn agent() -> User<'static> {
    user("a", &["agents"])
}

fn decides(set: &PolicySet, asked: &Attributes<'_>) -> (Decision, String) {
    let answer = set.authorize(asked, Time::UNIX_EPOCH);
    (answer.decision, answer.reason.to_string())
}

fn check(rule: ResourceRule, within: &[&str], beyond: &[&str]) {
    let set = with(vec![limit("l", vec![rule])]);
    for (requests, expected) in [(within, Decision::Allow), (beyond, Decision::Deny)] {
        for request in requests {
            let asked = asks(agent(), request);
            assert_eq!(decides(&set, &asked).0, expected, "{request}");
            let others = asks(user("a", &["people"]), request);
            assert_eq!(decides(&set, &others).0, Decision::Allow, "{request} of others");
        }
    }
}

#[test]
fn a_request_must_lie_wholly_within_a_rule() {
    check(
        rule(&["get", "list"], &["pods", "pods/log"]),
        &["get pods ns p", "list pods ns", "list pods", "get pods/log ns p"],
        &[
            "watch pods ns",
            "* pods ns p",
            "get pods/exec ns p",
            "get * ns p",
            "get pods/* ns p",
            "get secrets ns s",
        ],
    );
    check(
        ResourceRule {
            namespaces: patterns(&["team-*"]),
            ..rule(&["*"], &["*"])
        },
        &["list pods team-a", "get namespaces team-a team-a"],
        &["list pods", "list pods other", "get nodes - n", "list namespaces"],
    );
    check(
        ResourceRule {
            exclude_namespaces: patterns(&["kube-*"]),
            ..rule(&["*"], &["*"])
        },
        &["list pods a", "get nodes - n", "create namespaces"],
        &[
            "list pods kube-system",
            "list pods",
            "get namespaces kube-system kube-system",
        ],
    );
    check(
        ResourceRule {
            names: texts(&["web"]),
            ..rule(&["*"], &["pods"])
        },
        &["get pods ns web"],
        &["get pods ns db", "list pods ns", "create pods ns"],
    );
}

#[test]
fn what_it_has_no_rules_for_it_does_not_limit() {
    let resources = with(vec![limit("l", vec![rule(&["get"], &["pods"])])]);
    assert_eq!(
        decides(&resources, &opens(agent(), "/metrics")).0,
        Decision::Allow
    );
    let mut of_paths = limit("l", Vec::new());
    of_paths.non_resource_rules = vec![paths(&["get"], &["/api/*"])];
    let of_paths = with(vec![of_paths]);
    for (path, expected) in [
        ("/api/v1", Decision::Allow),
        ("/api", Decision::Deny),
        ("*", Decision::Deny),
    ] {
        assert_eq!(decides(&of_paths, &opens(agent(), path)).0, expected, "{path}");
    }
    assert_eq!(
        decides(&of_paths, &asks(agent(), "get secrets ns s")).0,
        Decision::Allow
    );
}

#[test]
fn each_of_several_must_hold_a_request_and_the_first_by_name_gives_the_reason() {
    let reads = limit("b-reads", vec![rule(&["get", "list"], &["*"])]);
    let pods = AuthorizationPolicy {
        reason: "pods alone".to_owned(),
        ..limit("d-pods", vec![rule(&["*"], &["pods"])])
    };
    let deny = |name: &str| AuthorizationPolicy {
        resource_rules: vec![rule(&["delete"], &["*"])],
        ..policy(Effect::Deny, name)
    };
    let set = with(vec![pods, reads, deny("c-deny")]);
    for (request, expected) in [
        ("get pods ns p", None),
        ("create pods ns", Some("beyond the limit b-reads")),
        ("get secrets ns s", Some("beyond the limit d-pods: pods alone")),
        ("create secrets ns", Some("beyond the limit b-reads")),
        ("delete secrets ns s", Some("beyond the limit b-reads")),
    ] {
        let (decision, reason) = decides(&set, &asks(agent(), request));
        let denied = (decision == Decision::Deny).then_some(reason.as_str());
        assert_eq!(denied, expected, "{request}");
    }
    // Denies and Limits stand in one order.
    let narrow = limit("z", vec![rule(&["get"], &["pods"])]);
    let set = with(vec![narrow, deny("a-deny")]);
    let (_, reason) = decides(&set, &asks(agent(), "delete pods ns p"));
    assert_eq!(reason, "denied by AuthorizationPolicy \"a-deny\"");
    let answer = set
        .authorize(&asks(agent(), "watch pods ns"), Time::UNIX_EPOCH)
        .into_owned();
    let cause = answer.cause.unwrap();
    assert_eq!((&*cause.name, cause.rule), ("z", None));
}

#[test]
fn selectors_are_as_in_an_allow() {
    let narrow = |value: &'static str| Selectors {
        field: vec![Requirement {
            key: "spec.nodeName".into(),
            operator: Operator::In,
            values: vec![value.into()],
        }],
        label: Vec::new(),
    };
    let set = with(vec![limit(
        "l",
        vec![ResourceRule {
            selectors: narrow("n1"),
            ..rule(&["list"], &["pods"])
        }],
    )]);
    let asked = |selectors: Selectors<'static>| {
        let mut asked = asks(agent(), "list pods");
        if let Target::Resource(resource) = &mut asked.target {
            resource.selectors = selectors;
        }
        decides(&set, &asked).0
    };
    assert_eq!(asked(narrow("n1")), Decision::Allow);
    assert_eq!(asked(narrow("n2")), Decision::Deny);
    assert_eq!(asked(Selectors::default()), Decision::Deny);
}

#[test]
fn conditions_decide_whether_it_applies_and_its_failure_policy_what_an_error_does() {
    const ERROR: &str = "request.nonResourceAttributes.path == '/'";
    let decision = |condition: &str, failure_policy| {
        let set = with(vec![AuthorizationPolicy {
            conditions: vec![super::condition(condition)],
            failure_policy,
            ..limit("l", vec![rule(&["get"], &["pods"])])
        }]);
        // What a rule holds is not refused, whatever the result of the condition.
        assert_eq!(decides(&set, &asks(agent(), "get pods ns p")).0, Decision::Allow);
        decides(&set, &asks(agent(), "get secrets ns s"))
    };
    let (deny, none) = (FailurePolicy::Deny, FailurePolicy::NoOpinion);
    assert_eq!(decision("request.user == 'a'", deny).0, Decision::Deny);
    assert_eq!(decision("request.user == 'b'", deny).0, Decision::Allow);
    assert_eq!(
        decision(ERROR, deny),
        (
            Decision::Deny,
            "beyond the limit l (condition \"c\" could not be evaluated)".to_owned()
        )
    );
    assert_eq!(decision(ERROR, none).0, Decision::Allow);
}

#[test]
fn never_deny_excluded_subjects_shadow_and_time_are_as_in_a_deny() {
    let everybody = AuthorizationPolicy {
        subjects: vec![Subject::group("*")],
        exclude_subjects: vec![Subject::user("root-agent")],
        ..limit("l", vec![rule(&["get"], &["pods"])])
    };
    let set = with(vec![everybody.clone()]);
    let secrets = |user| asks(user, "get secrets ns s");
    assert_eq!(decides(&set, &secrets(agent())).0, Decision::Deny);
    let outside = [
        user("root-agent", &["agents"]),
        user("system:kube-scheduler", &[]),
        user("system:node:n", &["system:nodes"]),
    ];
    for user in outside {
        assert_eq!(decides(&set, &secrets(user)).0, Decision::Allow);
    }
    let shadow = with(vec![AuthorizationPolicy {
        mode: Mode::Shadow,
        ..everybody.clone()
    }]);
    let answer = shadow.authorize(&secrets(agent()), Time::UNIX_EPOCH);
    assert_eq!(answer.decision, Decision::Allow);
    let shadows: Vec<_> = answer
        .shadow
        .iter()
        .map(|one| (&*one.name, one.decision))
        .collect();
    assert_eq!(shadows, [("l", Decision::Deny)]);
    let within = shadow.authorize(&asks(agent(), "get pods ns p"), Time::UNIX_EPOCH);
    assert!(within.shadow.is_empty());
    let end = Time::parse("2026-12-01T08:00:00Z");
    let ended = with(vec![AuthorizationPolicy {
        validity: Validity {
            not_before: None,
            not_after: end,
        },
        ..everybody
    }]);
    let at = |time| ended.authorize(&secrets(agent()), time).decision;
    assert_eq!(at(Time::UNIX_EPOCH), Decision::Deny);
    assert_eq!(at(end.unwrap()), Decision::Allow);
}

#[test]
fn each_result_is_reported_and_the_trace_says_why() {
    let report = |mode, request: &str| {
        let set = with(vec![AuthorizationPolicy {
            mode,
            ..limit("l", vec![rule(&["get"], &["pods"])])
        }]);
        let mut reported = Vec::new();
        let mut observer = |policy: usize, result| {
            if policy == 0 {
                reported.push(result);
            }
        };
        let asked = asks(agent(), request);
        set.authorize_observed(&asked, Time::UNIX_EPOCH, Deadline::NEVER, &mut observer);
        let (_, trace) = set.explain(&asked, Time::UNIX_EPOCH);
        (reported, trace.events[0].finding.clone())
    };
    let beyond = |rule, criterion| Finding::BeyondLimit {
        rule,
        criterion,
        decision: Decision::Deny,
    };
    assert_eq!(
        report(Mode::Enforce, "get pods ns p"),
        (vec![PolicyResult::NoMatch], Finding::WithinLimit { rule: 0 })
    );
    assert_eq!(
        report(Mode::Enforce, "get secrets ns p"),
        (vec![PolicyResult::Match], beyond(Some(0), Criterion::Resources))
    );
    assert_eq!(
        report(Mode::Shadow, "watch pods ns p"),
        (vec![PolicyResult::ShadowDeny], beyond(Some(0), Criterion::Verbs))
    );
}

#[test]
fn what_a_limit_holds_is_what_a_user_is_said_to_be_able_to_do() {
    let set = with(vec![
        limit("l", vec![rule(&["get", "list"], &["*"])]),
        limit(
            "m",
            vec![ResourceRule {
                names: texts(&["web"]),
                ..rule(&["*"], &["pods"])
            }],
        ),
    ]);
    let can = |verb: &str, resource: &str| {
        let request = OpenRequest {
            verb: verb.to_owned(),
            target: OpenTarget::Resource(OpenResource {
                group: String::new(),
                resource: resource.to_owned(),
                subresource: String::new(),
                name: None,
                within: Within::Namespace("ns".to_owned()),
            }),
        };
        set.allowance(&agent(), &request, Time::UNIX_EPOCH)
    };
    // Two Limits leave what lies in both: Pods called web.
    assert_eq!(can("get", "pods"), AllowedShare::Partial);
    assert_eq!(can("create", "pods"), AllowedShare::None);
    assert_eq!(can("get", "secrets"), AllowedShare::None);
    let within = Within::AnyNamespace;
    let rules = set
        .what_can(&agent(), &within, Time::UNIX_EPOCH, Deadline::NEVER)
        .unwrap();
    let listed: Vec<_> = rules
        .iter()
        .map(|one| (one.via.rule, one.denied_by.len()))
        .collect();
    // The rule for paths is not limited.
    assert_eq!(listed, [(0, 2), (1, 0)], "{rules:#?}");
}
