mod names;
mod selected;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::admission::{GroupVersionKind, GroupVersionResource, Operation, Request};
use crate::model::User;
use crate::model::{LabelExpression, LabelSelector};
use portcullis_cel::json::Document;

fn resource(text: &'static str) -> GroupVersionResource<'static> {
    let (group_version, resource) = text.rsplit_once('/').unwrap();
    let (group, version) = group_version.split_once('/').unwrap_or(("", group_version));
    GroupVersionResource {
        group: group.into(),
        version: version.into(),
        resource: resource.into(),
    }
}

fn kind(text: &'static str) -> GroupVersionKind<'static> {
    let GroupVersionResource {
        group,
        version,
        resource,
    } = resource(text);
    GroupVersionKind {
        group,
        version,
        kind: resource,
    }
}

/// A CREATE in the namespace `ns` of an object called `name`.
fn mk_request(of: &'static str, written: &'static Document<'static>) -> Request<'static> {
    Request {
        uid: "u".into(),
        kind: kind(of),
        resource: resource(of),
        subresource: "".into(),
        request_kind: kind(of),
        request_resource: resource(of),
        name: "name".into(),
        namespace: "ns".into(),
        operation: Operation::Create,
        user: User::default(),
        object: Some(written.root()),
        old_object: None,
        options: None,
        dry_run: false,
        written: written.root(),
    }
}

fn document(text: &'static str) -> &'static Document<'static> {
    Box::leak(Box::new(Document::parse(text).unwrap()))
}

fn empty() -> &'static Document<'static> {
    document(r#"{"metadata":{}}"#)
}

fn mk_rule(groups: &[&str], versions: &[&str], resources: &[&str]) -> MatchRule {
    let owned = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect();
    MatchRule {
        operations: Operations::ALL,
        api_groups: owned(groups),
        api_versions: owned(versions),
        resources: owned(resources),
        scope: RuleScope::All,
        resource_names: Vec::new(),
    }
}

fn mk_selector(key: &str, operator: &str, values: &[&str]) -> LabelSelector {
    let values = values.iter().map(|value| (*value).to_owned()).collect();
    let expression = LabelExpression {
        key: key.into(),
        operator: operator.into(),
        values,
    };
    LabelSelector::compile(&BTreeMap::new(), &[expression]).unwrap()
}

/// Deployments of several groups, in this order of registration.
fn mk_equivalents() -> Equivalents {
    let mut equivalents = Equivalents::new();
    for (of, is) in [
        ("extensions/v1beta1/deployments", "extensions/v1beta1/Deployment"),
        ("apps/v1/deployments", "apps/v1/Deployment"),
        ("apps/v1beta1/deployments", "apps/v1beta1/Deployment"),
    ] {
        equivalents.register("deployments", resource(of), "", kind(is));
    }
    equivalents.register(
        "",
        resource("example.com/v1/widgets"),
        "",
        GroupVersionKind::default(),
    );
    equivalents.register(
        "",
        resource("example.com/v2/widgets"),
        "",
        GroupVersionKind::default(),
    );
    equivalents
}

fn matched(constraints: &Constraints, request: &Request<'_>) -> Result<Option<String>, MatchError> {
    let namespaces = FixedNamespaces::new([
        Arc::new(Document::parse(r#"{"metadata":{"name":"prod","labels":{"env":"prod"}}}"#).unwrap()),
        Arc::new(Document::parse(r#"{"metadata":{"name":"plain"}}"#).unwrap()),
    ]);
    let subject = MatchInput {
        request,
        object: request.object,
        namespaces: &namespaces,
        missing: MissingNamespace::Fail,
        equivalents: &mk_equivalents(),
    };
    let matched = constraints.matches(subject)?;
    Ok(matched.map(|matched| format!("{}/{}", matched.kind().group, matched.kind().version)))
}

#[test]
fn resources_and_subresources() {
    let cases: [(&str, &[&str], &[&str]); 7] = [
        ("pods", &["pods"], &["pods/log", "nodes"]),
        ("*", &["pods", "nodes"], &["pods/log"]),
        ("*/*", &["pods", "pods/log"], &[]),
        ("pods/*", &["pods", "pods/log"], &["nodes", "nodes/status"]),
        ("*/status", &["pods/status"], &["pods", "pods/log"]),
        ("pods/log", &["pods/log"], &["pods", "pods/exec"]),
        ("", &[], &["pods"]),
    ];
    for (pattern, matching, others) in cases {
        let rule = mk_rule(&[""], &["v1"], &[pattern]);
        for (target, expected) in matching
            .iter()
            .map(|one| (one, true))
            .chain(others.iter().map(|one| (one, false)))
        {
            let (name, subresource) = target.split_once('/').unwrap_or((target, ""));
            let resource = GroupVersionResource {
                group: "".into(),
                version: "v1".into(),
                resource: name.into(),
            };
            let target = RuleTarget {
                resource: &resource,
                subresource,
                namespace: "ns",
                name: "",
                operation: Operation::Connect,
            };
            assert_eq!(rule.matches(target), expected, "{pattern} {target:?}");
        }
    }
}

#[test]
fn a_namespace_lives_in_the_cluster() {
    let request = mk_request("v1/namespaces", empty());
    for (scope, expected) in [
        (RuleScope::All, true),
        (RuleScope::Cluster, true),
        (RuleScope::Namespaced, false),
        (RuleScope::Unknown, false),
    ] {
        let rule = MatchRule {
            scope,
            ..mk_rule(&["*"], &["*"], &["*"])
        };
        let constraints = Constraints {
            rules: vec![rule],
            ..Constraints::default()
        };
        assert_eq!(
            matched(&constraints, &request).unwrap().is_some(),
            expected,
            "{scope:?}"
        );
    }
}

#[test]
fn no_rules_are_everything_to_a_policy_and_nothing_to_a_webhook() {
    let request = mk_request("apps/v1/deployments", empty());
    let policy = Constraints::default();
    assert!(matched(&policy, &request).unwrap().is_some());
    let webhook = Constraints {
        no_rules: NoRules::Nothing,
        ..Constraints::default()
    };
    assert!(matched(&webhook, &request).unwrap().is_none());
}

#[test]
fn an_exact_rule_comes_before_an_equivalent_one() {
    let request = mk_request("apps/v1/deployments", empty());
    let old = mk_rule(&["extensions"], &["v1beta1"], &["deployments"]);
    let new = mk_rule(&["apps"], &["v1"], &["deployments"]);
    let equivalent = Constraints {
        rules: vec![old.clone(), new],
        ..Constraints::default()
    };
    assert_eq!(
        matched(&equivalent, &request).unwrap().as_deref(),
        Some("apps/v1")
    );
    let only_old = Constraints {
        rules: vec![old.clone()],
        ..Constraints::default()
    };
    assert_eq!(
        matched(&only_old, &request).unwrap().as_deref(),
        Some("extensions/v1beta1")
    );
    let exact = Constraints {
        match_policy: MatchPolicy::Exact,
        ..only_old
    };
    assert_eq!(matched(&exact, &request).unwrap(), None);
}

#[test]
fn an_excluded_resource_does_not_match_under_another_name() {
    let request = mk_request("apps/v1/deployments", empty());
    let constraints = Constraints {
        rules: vec![mk_rule(&["*"], &["*"], &["*"])],
        exclude_rules: vec![mk_rule(&["extensions"], &["v1beta1"], &["deployments"])],
        ..Constraints::default()
    };
    assert_eq!(matched(&constraints, &request).unwrap(), None);
    let exact = Constraints {
        match_policy: MatchPolicy::Exact,
        ..constraints
    };
    assert!(matched(&exact, &request).unwrap().is_some());
}

#[test]
fn names_must_be_those_of_the_request() {
    let mut request = mk_request("apps/v1/deployments", empty());
    let rule = MatchRule {
        resource_names: vec!["name".into()],
        ..mk_rule(&["apps"], &["v1"], &["deployments"])
    };
    let constraints = Constraints {
        rules: vec![rule],
        ..Constraints::default()
    };
    assert!(matched(&constraints, &request).unwrap().is_some());
    request.name = "".into();
    assert!(matched(&constraints, &request).unwrap().is_none());
}

#[test]
fn a_converted_request_matches_what_was_sent_unless_exact() {
    let mut request = mk_request("apps/v1/deployments", empty());
    request.request_resource = resource("apps/v1beta1/deployments");
    request.request_kind = kind("apps/v1beta1/Deployment");
    request.kind = kind("apps/v1/Deployment");
    let v1 = Constraints {
        rules: vec![mk_rule(&["apps"], &["v1"], &["deployments"])],
        ..Constraints::default()
    };
    assert_eq!(matched(&v1, &request).unwrap().as_deref(), Some("apps/v1"));
    let exact = Constraints {
        match_policy: MatchPolicy::Exact,
        ..v1
    };
    assert_eq!(matched(&exact, &request).unwrap(), None);
}

#[test]
fn a_custom_resource_may_have_any_version_that_a_rule_names() {
    let request = mk_request("example.org/v1/gadgets", empty());
    let constraints = Constraints {
        rules: vec![mk_rule(&["example.org"], &["v2"], &["gadgets"])],
        ..Constraints::default()
    };
    let namespaces = FixedNamespaces::new([]);
    let equivalents = mk_equivalents();
    let subject = MatchInput {
        request: &request,
        object: None,
        namespaces: &namespaces,
        missing: MissingNamespace::Fail,
        equivalents: &equivalents,
    };
    let matched = constraints.matches(subject).unwrap().unwrap();
    assert!(
        matched
            .as_sent(&request)
            .unwrap_err()
            .to_string()
            .contains("example.org/v2")
    );
    let widgets = mk_request("example.com/v1/widgets", empty());
    let other = Constraints {
        rules: vec![mk_rule(&["example.com"], &["v2"], &["widgets"])],
        ..Constraints::default()
    };
    let fault = other
        .matches(MatchInput {
            request: &widgets,
            ..subject
        })
        .unwrap_err();
    assert_eq!(
        fault.to_string(),
        "unable to convert to example.com/v2, Resource=widgets: unknown kind"
    );
}

#[test]
fn an_unknown_namespace_names_what_would_make_it_known() {
    let name = "late".to_owned();
    let reported = MatchError::UnknownNamespace { name }.to_string();
    // The words of an API server, and then what to do.
    assert!(
        reported.starts_with("namespaces \"late\" not found: "),
        "{reported}"
    );
    for remedy in [
        "manifests",
        "`clusters`",
        "`admission.missingNamespace: NameOnly`",
    ] {
        assert!(reported.contains(remedy), "{remedy}: {reported}");
    }
}

#[test]
fn the_index_leaves_out_only_what_cannot_match() {
    let of = |group, version, resource| Constraints {
        rules: vec![mk_rule(&[group], &[version], &[resource])],
        ..Constraints::default()
    };
    let mut reads = of("apps", "v1", "deployments");
    reads.rules[0].operations = Operations::of(&["DELETE"]);
    let all = [
        of("apps", "v1", "deployments"),
        of("", "v1", "pods"),
        of("*", "*", "*"),
        of("extensions", "v1beta1", "deployments"),
        Constraints::default(),
        of("apps", "*", "*/scale"),
        reads,
        Constraints {
            no_rules: NoRules::Nothing,
            ..Constraints::default()
        },
    ];
    let of = |constraints| (constraints, Arc::new(()));
    let index = Index::new(all.iter().map(of), &mk_equivalents());
    let candidates = |request: &Request<'_>| -> Vec<usize> {
        let found = index.candidates(request).into_iter();
        found.map(|(place, _)| place).collect()
    };
    let request = mk_request("apps/v1/deployments", empty());
    assert_eq!(candidates(&request), [0, 2, 3, 4, 5]);
    for (place, constraints) in all.iter().enumerate() {
        let is_candidate = candidates(&request).contains(&place);
        assert!(
            is_candidate || matched(constraints, &request).unwrap().is_none(),
            "{place}"
        );
    }
}
