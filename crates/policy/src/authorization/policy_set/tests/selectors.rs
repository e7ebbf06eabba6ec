//! Rules for namespaces by their labels.

use std::collections::BTreeMap;

use super::*;
use crate::model::{LabelExpression, LabelSelector, NAMESPACE_NAME_LABEL};

/// `tier=prod`, `!team`, `tier!=prod`: a selector of one term.
fn selector(term: &str) -> LabelSelector {
    let expression = |key: &str, operator: &str, values: &[&str]| LabelExpression {
        key: key.into(),
        operator: operator.into(),
        values: texts(values),
    };
    let expression = if let Some((key, value)) = term.split_once("!=") {
        expression(key, "NotIn", &[value])
    } else if let Some((key, value)) = term.split_once('=') {
        expression(key, "In", &[value])
    } else if let Some(key) = term.strip_prefix('!') {
        expression(key, "DoesNotExist", &[])
    } else {
        expression(term, "Exists", &[])
    };
    LabelSelector::compile(&BTreeMap::new(), &[expression]).unwrap()
}

fn selecting(effect: Effect, term: &str) -> AuthorizationPolicy {
    AuthorizationPolicy {
        resource_rules: vec![crate::authorization::ResourceRule {
            namespace_selector: Some(selector(term)),
            ..rule(&["*"], &["*"])
        }],
        ..policy(effect, "a")
    }
}

/// `live` has `tier=prod`, `test` has `tier=test`, `bare` no label but its name.
fn with_namespaces(policies: Vec<AuthorizationPolicy>) -> PolicySet {
    let namespaces = [("live", Some("prod")), ("test", Some("test")), ("bare", None)];
    let labels = |(name, tier): (&str, Option<&str>)| {
        let tier = tier.map(|tier| ("tier".to_owned(), tier.to_owned()));
        let own = (NAMESPACE_NAME_LABEL.to_owned(), name.to_owned());
        (name.to_owned(), Arc::new(tier.into_iter().chain([own]).collect()))
    };
    set(Objects {
        policies,
        namespaces: namespaces.into_iter().map(labels).collect(),
        ..Objects::default()
    })
}

fn applies(effect: Effect, term: &str, request: &str) -> bool {
    let set = with_namespaces(vec![selecting(effect, term)]);
    let asked = asks(user("jane", &[]), request);
    let answer = set.authorize(&asked, Time::UNIX_EPOCH);
    let (explained, _) = set.explain(&asked, Time::UNIX_EPOCH);
    assert_eq!(answer.decision, explained.decision, "{term} {request}");
    answer.decision != Decision::NoOpinion
}

#[test]
fn a_known_namespace_is_selected_by_its_labels() {
    for (term, selected) in [
        ("tier=prod", ["live"].as_slice()),
        ("tier!=prod", &["test", "bare"]),
        ("tier", &["live", "test"]),
        ("!tier", &["bare"]),
        ("kubernetes.io/metadata.name=test", &["test"]),
    ] {
        for namespace in ["live", "test", "bare"] {
            for effect in [Effect::Allow, Effect::Deny] {
                let request = format!("get pods {namespace} p");
                assert_eq!(
                    applies(effect, term, &request),
                    selected.contains(&namespace),
                    "{effect:?} {term} {namespace}"
                );
            }
        }
    }
}

#[test]
fn unknown_labels_match_no_allow_and_every_deny() {
    for term in ["tier=prod", "tier!=prod", "tier", "!tier"] {
        assert!(!applies(Effect::Allow, term, "get pods new p"), "{term}");
        assert!(applies(Effect::Deny, term, "get pods new p"), "{term}");
    }
    for (term, selected) in [
        ("kubernetes.io/metadata.name=new", true),
        ("kubernetes.io/metadata.name=old", false),
        ("kubernetes.io/metadata.name!=old", true),
        ("kubernetes.io/metadata.name", true),
        ("!kubernetes.io/metadata.name", false),
    ] {
        for effect in [Effect::Allow, Effect::Deny] {
            assert_eq!(
                applies(effect, term, "get pods new p"),
                selected,
                "{effect:?} {term}"
            );
        }
    }
}

#[test]
fn what_the_name_rules_out_is_ruled_out_of_an_unknown_namespace() {
    let both = LabelSelector::compile(
        &[
            (NAMESPACE_NAME_LABEL.to_owned(), "new".to_owned()),
            ("tier".to_owned(), "prod".to_owned()),
        ]
        .into(),
        &[],
    );
    let mut deny = selecting(Effect::Deny, "tier");
    deny.resource_rules[0].namespace_selector = both.ok();
    let set = with_namespaces(vec![deny]);
    for (request, decision) in [
        ("get pods new p", Decision::Deny),
        ("get pods other p", Decision::NoOpinion),
    ] {
        let asked = asks(user("jane", &[]), request);
        assert_eq!(
            set.authorize(&asked, Time::UNIX_EPOCH).decision,
            decision,
            "{request}"
        );
    }
}

#[test]
fn requests_over_all_namespaces_and_cluster_scoped_ones_are_as_for_namespaces() {
    for (request, denied) in [
        ("list pods", true),
        ("watch pods", true),
        ("deletecollection pods", true),
        ("* *", true),
        ("get pods", false),
        ("list nodes", false),
        ("list namespaces", false),
    ] {
        assert_eq!(applies(Effect::Deny, "tier=prod", request), denied, "{request}");
        assert!(!applies(Effect::Allow, "tier=prod", request), "{request}");
    }
}

#[test]
fn a_request_for_a_namespace_counts_as_in_it() {
    for (name, selected) in [("live", true), ("test", false)] {
        for effect in [Effect::Allow, Effect::Deny] {
            for request in [
                format!("delete namespaces - {name}"),
                format!("delete namespaces {name} {name}"),
                format!("update namespaces/status - {name}"),
            ] {
                assert_eq!(
                    applies(effect, "tier=prod", &request),
                    selected,
                    "{effect:?} {request}"
                );
            }
        }
    }
}

#[test]
fn labels_and_names_of_namespaces_hold_together() {
    let mut policy = selecting(Effect::Allow, "tier");
    policy.resource_rules[0].namespaces = patterns(&["l*"]);
    let set = with_namespaces(vec![policy]);
    for (namespace, decision) in [("live", Decision::Allow), ("test", Decision::NoOpinion)] {
        let asked = asks(user("jane", &[]), &format!("get pods {namespace} p"));
        assert_eq!(
            set.authorize(&asked, Time::UNIX_EPOCH).decision,
            decision,
            "{namespace}"
        );
    }
}

#[test]
fn the_trace_names_the_selector() {
    let set = with_namespaces(vec![selecting(Effect::Allow, "tier=prod")]);
    let (_, trace) = set.explain(&asks(user("jane", &[]), "get pods test p"), Time::UNIX_EPOCH);
    let finding = Finding::NoMatch {
        rule: Some(0),
        criterion: Criterion::NamespaceSelector,
    };
    assert_eq!(trace.events[0].finding, finding);
}

#[test]
fn a_decision_looks_at_no_more_rules_with_more_namespaces_and_selectors() {
    let visited = |count: usize| {
        let labels = |at: usize| {
            let own = (NAMESPACE_NAME_LABEL.to_owned(), format!("ns{at}"));
            let team = ("team".to_owned(), format!("t{at}"));
            (format!("ns{at}"), Arc::new([own, team].into()))
        };
        let policy = |at: usize| AuthorizationPolicy {
            name: format!("p{at}"),
            ..selecting(Effect::Deny, &format!("team=t{at}"))
        };
        let set = set(Objects {
            policies: (0..count).map(policy).collect(),
            namespaces: (0..10 * count).map(labels).collect(),
            ..Objects::default()
        });
        let asked = asks(user("jane", &[]), "get pods ns7 p");
        let answer = set.authorize(&asked, Time::UNIX_EPOCH);
        assert_eq!(answer.cause.unwrap().name, "p7");
        answer.compared_rules
    };
    assert_eq!([visited(10), visited(1_000)], [1, 1]);
}

/// `namespaces: [""]` is for what is in no namespace, whichever is asked about.
#[test]
fn what_is_in_no_namespace_is_listed_with_any_namespace() {
    let mut scale = rule(&["create"], &["*/scale"]);
    scale.namespaces = vec![crate::authorization::matching::NamespacePattern::from(
        String::new(),
    )];
    let set = policies(vec![AuthorizationPolicy {
        resource_rules: vec![scale],
        ..policy(Effect::Allow, "a")
    }]);
    let within = crate::authorization::Within::Namespace("shop".into());
    let listed = set
        .what_can(&user("jane", &[]), &within, Time::UNIX_EPOCH, Deadline::NEVER)
        .unwrap();
    assert_eq!(listed.len(), 1, "{listed:?}");
    let asked = asks(user("jane", &[]), "create nodes/scale");
    assert_eq!(set.authorize(&asked, Time::UNIX_EPOCH).decision, Decision::Allow);
}

/// What `who_can` says of `list namespaces`, whatever their names, for all that there are.
fn lists_namespaces(set: &PolicySet) -> Vec<crate::authorization::Grantee> {
    use crate::authorization::{OpenRequest, OpenResource, OpenTarget, Within};
    let request = OpenRequest {
        verb: "list".into(),
        target: OpenTarget::Resource(OpenResource {
            group: String::new(),
            resource: "namespaces".into(),
            subresource: String::new(),
            name: None,
            within: Within::AnyNamespace,
        }),
    };
    let grantees = set
        .who_can(&request, Time::UNIX_EPOCH, Deadline::NEVER)
        .unwrap()
        .into_iter();
    grantees.filter(|grantee| !grantee.via.is_empty()).collect()
}

/// `kubectl get namespaces --field-selector metadata.name=live` lists `live` alone.
#[test]
fn who_may_list_a_namespace_by_name_and_labels_is_found() {
    let set = with_namespaces(vec![selecting(Effect::Allow, "tier=prod")]);
    let [everyone] = &lists_namespaces(&set)[..] else {
        panic!("one is listed")
    };
    assert_eq!(everyone.via[0].limits, ["namespaceSelector: tier in (prod)"]);
    let request = "list namespaces - test";
    assert_eq!(
        set.authorize(&asks(user("jane", &[]), request), Time::UNIX_EPOCH)
            .decision,
        Decision::NoOpinion
    );
}

/// It is not listed where it is excluded, though a list of all of them is allowed.
#[test]
fn a_namespace_excluded_from_lists_by_name_is_a_limit() {
    let mut most = rule(&["list"], &["*"]);
    most.exclude_namespaces = vec!["kube-*".to_owned().into()];
    let set = policies(vec![AuthorizationPolicy {
        resource_rules: vec![most],
        ..policy(Effect::Allow, "a")
    }]);
    let decides = |request: &str| {
        let asked = asks(user("jane", &[]), request);
        set.authorize(&asked, Time::UNIX_EPOCH).decision
    };
    assert_eq!(decides("list namespaces"), Decision::Allow);
    assert_eq!(decides("list namespaces - kube-system"), Decision::NoOpinion);
    let [everyone] = &lists_namespaces(&set)[..] else {
        panic!("one is listed")
    };
    assert_eq!(everyone.via[0].limits, ["excludeNamespaces: kube-*"]);
}

/// A service account is in the groups alone that its name says: excluding another group leaves it denied.
#[test]
fn a_deny_excluding_a_group_leaves_nothing_to_a_service_account() {
    let account = vec![Subject::service_account("ci", "deployer")];
    let of_account = |effect, name: &str, excluded: Vec<Subject>| AuthorizationPolicy {
        subjects: account.clone(),
        exclude_subjects: excluded,
        resource_rules: vec![rule(&["*"], &["*"])],
        ..policy(effect, name)
    };
    let listed = |group: &str| {
        let set = policies(vec![
            of_account(Effect::Allow, "allows", Vec::new()),
            of_account(Effect::Deny, "denies", vec![Subject::group(group)]),
        ]);
        lists_namespaces(&set).len()
    };
    assert_eq!(listed("admins"), 0);
    assert_eq!(listed("system:serviceaccounts:other"), 0);
    assert_eq!(listed("system:serviceaccounts:ci"), 1);
}

#[test]
fn a_deny_by_labels_that_takes_some_namespaces_from_a_list_is_named() {
    let allow = AuthorizationPolicy {
        name: "b".into(),
        ..selecting(Effect::Allow, "!nothing")
    };
    let allow = AuthorizationPolicy {
        resource_rules: vec![rule(&["*"], &["*"])],
        ..allow
    };
    let set = with_namespaces(vec![selecting(Effect::Deny, "tier=prod"), allow]);
    let [everyone] = &lists_namespaces(&set)[..] else {
        panic!("one is listed")
    };
    assert_eq!(everyone.denied_by, ["a".into()]);
}
