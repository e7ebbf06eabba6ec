mod subject;

use super::super::fixtures::{patterns, texts, words};
use super::*;
use crate::model::{Operator, Requirement, Selectors};

/// verb, group, resource, namespace, name
type RequestRow = [&'static str; 5];

fn rule() -> ResourceRule {
    let all = || words(&["*"]);
    ResourceRule {
        verbs: all(),
        api_groups: all(),
        resources: patterns(&["*"]),
        ..ResourceRule::default()
    }
}

fn request(asked: &RequestRow) -> ResourceAttributes<'static> {
    let [verb, group, resource, namespace, name] = asked.map(Into::into);
    ResourceAttributes {
        verb,
        group,
        resource,
        namespace,
        name,
        ..ResourceAttributes::default()
    }
}

fn compare(effect: Effect, rule: &ResourceRule, asked: &RequestRow) -> RuleMatch {
    let request = request(asked);
    let narrowness = Narrowness::new(&request.selectors);
    compare_resource_rule(
        effect,
        rule,
        &request,
        |_| SelectorMatch::No,
        &narrowness,
        &ClusterScoped::default(),
    )
}

fn check(
    effect: Effect,
    rule: &ResourceRule,
    criterion: Criterion,
    matches: &[RequestRow],
    no_match: &[RequestRow],
) {
    for asked in matches {
        assert_eq!(
            compare(effect, rule, asked),
            RuleMatch::Match,
            "{effect:?} {asked:?}"
        );
    }
    for asked in no_match {
        let expected = RuleMatch::Mismatch(criterion);
        assert_eq!(compare(effect, rule, asked), expected, "{effect:?} {asked:?}");
    }
}

#[test]
fn verbs_and_groups() {
    let verbs = ResourceRule {
        verbs: words(&["get", "list"]),
        ..rule()
    };
    let get = ["get", "", "pods", "", ""];
    let all = ["*", "", "pods", "", ""];
    let others = [
        ["GET", "", "pods", "", ""],
        ["watch", "", "pods", "", ""],
        ["", "", "pods", "", ""],
    ];
    check(
        Effect::Allow,
        &verbs,
        Criterion::Verbs,
        &[get],
        &[&others[..], &[all]].concat(),
    );
    check(Effect::Deny, &verbs, Criterion::Verbs, &[get, all], &others);
    check(Effect::Allow, &rule(), Criterion::Verbs, &[get, all], &[]);

    let groups = ResourceRule {
        api_groups: words(&["", "apps"]),
        ..rule()
    };
    let (core, apps) = (
        ["get", "", "pods", "", ""],
        ["get", "apps", "deployments", "", ""],
    );
    let (star, other) = (["get", "*", "pods", "", ""], ["get", "batch", "jobs", "", ""]);
    check(
        Effect::Allow,
        &groups,
        Criterion::ApiGroups,
        &[core, apps],
        &[star, other],
    );
    check(
        Effect::Deny,
        &groups,
        Criterion::ApiGroups,
        &[core, apps, star],
        &[other],
    );
}

#[test]
fn excluded_namespaces_are_left_out() {
    let all_but = |namespaces: &[&str]| ResourceRule {
        exclude_namespaces: patterns(&["kube-*", "ops"]),
        namespaces: patterns(namespaces),
        ..rule()
    };
    let among = [
        ["get", "", "pods", "team-a", "x"],
        ["list", "", "pods", "team-a", ""],
    ];
    let without = [["get", "", "nodes", "", "x"], ["list", "", "nodes", "", ""]];
    let excluded = [
        ["get", "", "pods", "kube-system", "x"],
        ["list", "", "secrets", "ops", ""],
    ];
    let of_all = [["list", "", "pods", "", ""], ["*", "", "pods", "", ""]];
    let criterion = Criterion::ExcludeNamespaces;
    let inside = [&among[..], &without].concat();
    let outside = [&excluded[..], &of_all].concat();
    check(Effect::Allow, &all_but(&[]), criterion, &inside, &outside);
    let touched = [&inside[..], &of_all].concat();
    check(Effect::Deny, &all_but(&[]), criterion, &touched, &excluded);
    let some = all_but(&["kube-*", "team-*"]);
    check(Effect::Allow, &some, criterion, &among, &excluded[..1]);
    check(
        Effect::Deny,
        &some,
        criterion,
        &[&among[..], &of_all].concat(),
        &excluded[..1],
    );
    // A request for a Namespace is for what is in it.
    let one = ["delete", "", "namespaces", "", "kube-system"];
    check(Effect::Allow, &all_but(&[]), criterion, &[], &[one]);
}

#[test]
fn resources_follow_the_effect() {
    let pods = ResourceRule {
        resources: patterns(&["pods"]),
        ..rule()
    };
    let star = ["get", "", "*", "", ""];
    check(
        Effect::Allow,
        &pods,
        Criterion::Resources,
        &[["get", "", "pods", "", ""]],
        &[star],
    );
    check(
        Effect::Deny,
        &pods,
        Criterion::Resources,
        &[star],
        &[["get", "", "pods/log", "", ""]],
    );
}

#[test]
fn absent_namespaces_are_all_and_cluster_scope() {
    for effect in [Effect::Allow, Effect::Deny] {
        let all = [
            ["get", "", "pods", "a", ""],
            ["get", "", "nodes", "", "n"],
            ["list", "", "pods", "", ""],
        ];
        check(effect, &rule(), Criterion::Namespaces, &all, &[]);
    }
}

#[test]
fn namespaces_of_an_allow_must_hold_the_request() {
    let teams = ResourceRule {
        namespaces: patterns(&["team-*", "shared"]),
        ..rule()
    };
    check(
        Effect::Allow,
        &teams,
        Criterion::Namespaces,
        &[
            ["get", "", "pods", "team-a", "p"],
            ["list", "", "pods", "shared", ""],
            ["get", "", "pods", "team-", ""],
        ],
        &[
            ["get", "", "pods", "team", "p"],
            ["get", "", "pods", "shared2", "p"],
            ["list", "", "pods", "", ""],
            ["*", "", "pods", "", ""],
            ["list", "", "nodes", "", ""],
        ],
    );
    let none = ResourceRule {
        namespaces: patterns(&[""]),
        ..rule()
    };
    check(
        Effect::Allow,
        &none,
        Criterion::Namespaces,
        &[["list", "", "pods", "", ""], ["get", "", "nodes", "", "n"]],
        &[["get", "", "pods", "team-a", "p"]],
    );
    let some = ResourceRule {
        namespaces: patterns(&["*"]),
        ..rule()
    };
    let (namespaced, cluster) = (["get", "", "pods", "any", "p"], ["get", "", "nodes", "", "n"]);
    check(
        Effect::Allow,
        &some,
        Criterion::Namespaces,
        &[namespaced],
        &[cluster],
    );
}

#[test]
fn a_deny_by_namespace_touches_what_spans_namespaces() {
    for pattern in ["team-a", "team-*", "*"] {
        let teams = ResourceRule {
            namespaces: patterns(&[pattern]),
            ..rule()
        };
        check(
            Effect::Deny,
            &teams,
            Criterion::Namespaces,
            &[
                ["get", "", "pods", "team-a", "p"],
                ["list", "", "pods", "", ""],
                ["watch", "", "pods", "", ""],
                ["deletecollection", "", "pods", "", ""],
                ["*", "", "pods", "", ""],
                ["list", "", "*", "", ""],
                ["list", "*", "nodes", "", ""],
                ["list", "example.com", "nodes", "", ""],
                ["list", "", "pods", "", "named"],
            ],
            &[
                ["list", "", "nodes", "", ""],
                ["watch", "", "namespaces", "", ""],
                ["list", "rbac.authorization.k8s.io", "clusterroles", "", ""],
                ["get", "", "nodes", "", "n"],
                ["get", "example.com", "widgets", "", "w"],
                ["create", "", "pods", "", ""],
            ],
        );
    }
    let team = ResourceRule {
        namespaces: patterns(&["team-a"]),
        ..rule()
    };
    let other = ["list", "", "pods", "team-b", ""];
    check(Effect::Deny, &team, Criterion::Namespaces, &[], &[other]);
    let none = ResourceRule {
        namespaces: patterns(&[""]),
        ..rule()
    };
    check(
        Effect::Deny,
        &none,
        Criterion::Namespaces,
        &[["list", "", "nodes", "", ""], ["list", "", "pods", "", ""]],
        &[["list", "", "pods", "team-a", ""]],
    );
}

#[test]
fn names_of_an_allow_must_hold_the_request() {
    let named = ResourceRule {
        names: texts(&["a", "b*", ""]),
        ..rule()
    };
    check(
        Effect::Allow,
        &named,
        Criterion::Names,
        &[
            ["get", "", "pods", "ns", "a"],
            ["list", "", "pods", "ns", "a"],
            ["get", "", "pods", "ns", "b*"],
        ],
        &[
            ["get", "", "pods", "ns", "bc"],
            ["list", "", "pods", "ns", ""],
            ["create", "", "pods", "ns", ""],
            ["*", "", "pods", "ns", ""],
        ],
    );
}

#[test]
fn a_deny_by_name_touches_collections_but_no_create_without_name() {
    let named = ResourceRule {
        names: texts(&["a"]),
        ..rule()
    };
    check(
        Effect::Deny,
        &named,
        Criterion::Names,
        &[
            ["get", "", "pods", "ns", "a"],
            ["create", "", "pods", "ns", "a"],
            ["list", "", "pods", "ns", ""],
            ["watch", "", "pods", "ns", ""],
            ["deletecollection", "", "pods", "ns", ""],
            ["*", "", "pods", "ns", ""],
            ["list", "", "nodes", "", ""],
        ],
        &[
            ["create", "", "pods", "ns", ""],
            ["get", "", "pods", "ns", "b"],
            ["list", "", "pods", "ns", "b"],
            ["*", "", "pods", "ns", "b"],
        ],
    );
    let empty = ResourceRule {
        names: texts(&[""]),
        ..rule()
    };
    check(
        Effect::Deny,
        &empty,
        Criterion::Names,
        &[],
        &[["create", "", "pods", "ns", ""]],
    );
}

#[test]
fn selectors_narrow_an_allow_and_lift_a_deny() {
    let node = |values: &[&'static str]| Selectors {
        field: vec![Requirement {
            key: "spec.nodeName".into(),
            operator: Operator::In,
            values: values.iter().map(|&value| value.into()).collect(),
        }],
        label: Vec::new(),
    };
    let written = ResourceRule {
        selectors: node(&["node-1", "node-2"]),
        ..rule()
    };
    let asked = |selectors| ResourceAttributes {
        selectors,
        ..request(&["list", "", "pods", "", ""])
    };
    let compare = |effect, request: ResourceAttributes<'_>| {
        let narrowness = Narrowness::new(&request.selectors);
        compare_resource_rule(
            effect,
            &written,
            &request,
            |_| SelectorMatch::No,
            &narrowness,
            &ClusterScoped::default(),
        )
    };
    for narrow in [node(&["node-1"]), node(&["node-1", "node-2"])] {
        assert_eq!(compare(Effect::Allow, asked(narrow.clone())), RuleMatch::Match);
        assert_eq!(
            compare(Effect::Deny, asked(narrow)),
            RuleMatch::Mismatch(Criterion::UnlessSelectors)
        );
    }
    for wide in [Selectors::default(), node(&["node-1", "node-3"]), node(&[])] {
        assert_eq!(
            compare(Effect::Allow, asked(wide.clone())),
            RuleMatch::Mismatch(Criterion::Selectors)
        );
        assert_eq!(compare(Effect::Deny, asked(wide)), RuleMatch::Match);
    }
}

#[test]
fn paths_match_as_in_rbac() {
    let rule = |verbs: &[&str], paths: &[&str]| NonResourceRule {
        verbs: words(verbs),
        paths: patterns(paths),
    };
    let debug = rule(&["get"], &["/debug/*", "/metrics"]);
    for effect in [Effect::Allow, Effect::Deny] {
        for path in ["/debug/pprof", "/debug/", "/metrics"] {
            assert_eq!(
                compare_path_rule(effect, &debug, path, "get"),
                RuleMatch::Match,
                "{path}"
            );
        }
        for path in ["/debug", "/metrics/", "/", ""] {
            assert_eq!(
                compare_path_rule(effect, &debug, path, "get"),
                RuleMatch::Mismatch(Criterion::Paths),
                "{path}"
            );
        }
        assert_eq!(
            compare_path_rule(effect, &debug, "/metrics", "post"),
            RuleMatch::Mismatch(Criterion::Verbs)
        );
        assert_eq!(
            compare_path_rule(effect, &rule(&["*"], &["*"]), "/x", "post"),
            RuleMatch::Match
        );
    }
    assert_eq!(
        compare_path_rule(Effect::Allow, &debug, "/metrics", "*"),
        RuleMatch::Mismatch(Criterion::Verbs)
    );
    assert_eq!(
        compare_path_rule(Effect::Deny, &debug, "/metrics", "*"),
        RuleMatch::Match
    );
    assert_eq!(
        compare_path_rule(Effect::Allow, &debug, "*", "get"),
        RuleMatch::Mismatch(Criterion::Paths)
    );
    assert_eq!(
        compare_path_rule(Effect::Deny, &debug, "*", "get"),
        RuleMatch::Match
    );
}
