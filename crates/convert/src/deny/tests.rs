//! What authorization denies, admission denies after conversion, and nothing else.

mod requests;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::conversion;
use crate::test_reviews::{answered, loaded};
use portcullis_policy::admission::Phase;
use portcullis_policy::document::{self, Document};
use portcullis_policy::explain::LoadedPolicies;
use portcullis_policy::model::{Deadline, Decision, Time};
use requests::{Admitted, requests};

const NAMESPACES: &str = "
{apiVersion: v1, kind: Namespace, metadata: {name: a, labels: {tier: prod}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: team-x, labels: {tier: test, owned: by-x}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: b}}
";

fn converted(policy: &Value) -> Conversion {
    let text = policy.to_string();
    let document: Document = document::parse(Some("deny.yaml"), &text).unwrap().remove(0);
    conversion::checked(
        &document,
        convert(&document, &NeverDeny::default()),
        Deadline::NEVER,
    )
}

fn yaml(made: &Conversion) -> String {
    let objects = made.objects.iter();
    objects
        .map(|object| format!("---\n{}", document::to_yaml(object)))
        .collect()
}

fn is_denied(by: &LoadedPolicies, request: &Admitted) -> bool {
    let answered = answered(by, &[Phase::Validate], &request.review());
    answered.decided.unwrap().outcome.denial.is_some()
}

/// Compares for every request; whether the policy was converted.
fn agrees(spec: &Value) -> bool {
    let policy = json!({"apiVersion": "portcullis.dev/v1alpha1", "kind": "AuthorizationPolicy",
        "metadata": {"name": "guard"}, "spec": spec});
    let made = converted(&policy);
    if made.objects.is_empty() {
        assert!(!made.refusals.is_empty());
        return false;
    }
    let text = yaml(&made);
    let before = loaded(&[policy.to_string(), NAMESPACES.to_owned()]);
    let after = loaded(&[text.clone(), NAMESPACES.to_owned()]);
    for request in requests() {
        let denied = is_denied(&after, &request);
        for asked in request.asked() {
            let decided = before
                .policies
                .for_cluster("default")
                .authorize(&asked, Time::UNIX_EPOCH);
            let expected = decided.decision == Decision::Deny;
            assert_eq!(denied, expected, "{request:?}\n{asked:?}\n{policy}\n{text}");
        }
    }
    true
}

#[test]
fn a_condition_with_an_error_refuses_in_the_selected_namespaces_alone() {
    for failure_policy in ["Deny", "NoOpinion"] {
        assert!(agrees(&json!({
            "effect": "Deny",
            "failurePolicy": failure_policy,
            "subjects": [{"kind": "User", "name": "jane"}],
            "resourceRules": [{"verbs": ["update", "patch"], "apiGroups": [""], "resources": ["pods"],
                "namespaceSelector": {"matchLabels": {"tier": "prod"}}}],
            "conditions": [{"name": "c", "expression": "request.extra['none'][0] == 'a'"}],
        })));
    }
}

fn subjects() -> impl Strategy<Value = Value> {
    let one = prop::sample::select(vec![
        json!({"kind": "User", "name": "jane"}),
        json!({"kind": "User", "name": "j*"}),
        json!({"kind": "User", "name": "*"}),
        json!({"kind": "Group", "name": "dev"}),
        json!({"kind": "Group", "name": "team-*"}),
        json!({"kind": "Group", "name": "*"}),
        json!({"kind": "ServiceAccount", "namespace": "a", "name": "robot"}),
        json!({"kind": "User", "name": "system:node:n1"}),
        json!({"kind": "User", "name": "system:kube-scheduler"}),
    ]);
    prop::collection::vec(one, 1..3).prop_map(Value::from)
}

fn some_of(values: Vec<Value>, most: usize) -> impl Strategy<Value = Value> {
    prop::collection::vec(prop::sample::select(values), 0..=most).prop_map(Value::from)
}

fn rules() -> impl Strategy<Value = Value> {
    let verbs = prop::sample::select(vec![
        json!(["create"]),
        json!(["update", "patch"]),
        json!(["delete"]),
        json!(["deletecollection"]),
        json!(["create", "update", "patch", "delete", "deletecollection"]),
        json!(["delete", "deletecollection"]),
        json!(["get", "create"]),
    ]);
    let groups = prop::sample::select(vec![
        json!([""]),
        json!(["apps"]),
        json!(["example.com"]),
        json!(["", "apps", "example.com"]),
    ]);
    let resources = prop::collection::vec(
        prop::sample::select(vec![
            json!("pods"),
            json!("pods/status"),
            json!("pods/eviction"),
            json!("pods/exec"),
            json!("pods/*"),
            json!("*/scale"),
            json!("deployments"),
            json!("namespaces"),
            json!("nodes"),
            json!("widgets"),
            json!("*"),
        ]),
        1..3,
    )
    .prop_map(Value::from);
    let namespaces = some_of(
        vec![json!("a"), json!("team-*"), json!(""), json!("*"), json!("b")],
        2,
    );
    let selector = prop::sample::select(vec![
        Value::Null,
        Value::Null,
        json!({"matchLabels": {"tier": "prod"}}),
        json!({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["prod", "dev"]}]}),
        json!({"matchExpressions": [{"key": "owned", "operator": "Exists"}]}),
        json!({"matchExpressions": [{"key": "owned", "operator": "DoesNotExist"},
            {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a", "b"]}]}),
    ]);
    let names = some_of(vec![json!("x"), json!("a")], 1);
    let excluded = some_of(vec![json!("b"), json!("team-x*"), json!("")], 2);
    (verbs, groups, resources, (namespaces, excluded), selector, names).prop_map(
        |(verbs, groups, resources, (namespaces, excluded), selector, names)| {
            let mut rule = json!({"verbs": verbs, "apiGroups": groups, "resources": resources,
                "namespaces": namespaces, "names": names});
            let written = namespaces.as_array().unwrap();
            let without = written.contains(&json!(""));
            // A rule of which nothing is left is a fault.
            let is_left = |one: &Value| *one == "a" || *one == "*" || *one == "team-*";
            if written.is_empty() || written.iter().any(is_left) {
                rule["excludeNamespaces"] = excluded;
            }
            if !selector.is_null() && !without {
                rule["namespaceSelector"] = selector;
            }
            rule
        },
    )
}

fn conditions() -> impl Strategy<Value = Value> {
    some_of(
        vec![
            json!("request.user != 'jane'"),
            json!("request.groups.exists(g, g == 'dev')"),
            json!("has(request.resourceAttributes) && request.resourceAttributes.name == 'x'"),
            json!(
                "!has(request.nonResourceAttributes) && request.resourceAttributes.namespace.startsWith('t')"
            ),
            json!("request.resourceAttributes.subresource == ''"),
            json!("request.resourceAttributes.verb in ['delete', 'create']"),
            json!("request.resourceAttributes.group + request.resourceAttributes.resource != 'nodes'"),
            json!("request.extra['none'][0] == 'a'"),
            json!("has(request.extra) && request.uid == ''"),
        ],
        2,
    )
    .prop_map(|expressions| {
        let named = expressions.as_array().unwrap().iter().enumerate();
        let named =
            named.map(|(index, expression)| json!({"name": format!("c{index}"), "expression": expression}));
        Value::from(named.collect::<Vec<_>>())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn admission_denies_what_authorization_denied(
        subjects in subjects(),
        excluded in some_of(vec![json!({"kind": "User", "name": "jim"}), json!({"kind": "Group", "name": "team-*"})], 1),
        rules in prop::collection::vec(rules(), 1..3),
        conditions in conditions(),
        failure_policy in prop::sample::select(vec!["Deny", "NoOpinion"]),
    ) {
        agrees(&json!({"effect": "Deny", "subjects": subjects, "excludeSubjects": excluded,
            "resourceRules": rules, "conditions": conditions, "failurePolicy": failure_policy}));
    }
}

fn deny(rule: &Value) -> Value {
    json!({"effect": "Deny", "subjects": [{"kind": "Group", "name": "dev"}], "resourceRules": [rule]})
}

#[test]
fn plain_denies_are_converted() {
    for rule in [
        json!({"verbs": ["create", "update", "patch", "delete", "deletecollection"], "apiGroups": ["apps"], "resources": ["*"]}),
        json!({"verbs": ["update", "patch", "delete"], "apiGroups": [""], "resources": ["pods", "namespaces"],
            "namespaceSelector": {"matchLabels": {"tier": "prod"}}}),
        json!({"verbs": ["delete", "deletecollection"], "apiGroups": ["*"], "resources": ["widgets"], "namespaces": ["a"], "names": ["x"]}),
        json!({"verbs": ["get", "create"], "apiGroups": [""], "resources": ["pods/exec", "pods/attach"], "namespaces": ["team-*"]}),
        json!({"verbs": ["*"], "apiGroups": [""], "resources": ["pods/exec"], "names": ["x"]}),
        json!({"verbs": ["create", "delete"], "apiGroups": [""], "resources": ["namespaces"], "namespaces": [""]}),
    ] {
        assert!(agrees(&deny(&rule)), "{rule}");
    }
}

#[test]
fn what_admission_cannot_tell_is_refused() {
    let rule = json!({"verbs": ["create"], "apiGroups": ["apps"], "resources": ["deployments"]});
    let with = |field: &str, value: Value| {
        let mut changed = rule.clone();
        changed[field] = value;
        deny(&changed)
    };
    let and = |field: &str, value: Value| {
        let mut spec = deny(&rule);
        spec[field] = value;
        spec
    };
    let core = |verbs: &[&str], resource: &str| {
        deny(&json!({"verbs": verbs, "apiGroups": [""], "resources": [resource]}))
    };
    for (spec, path, reason) in [
        (
            with("verbs", json!(["patch"])),
            "spec.resourceRules[0].verbs",
            "cannot distinguish `patch` from `update`: name both",
        ),
        (
            with("verbs", json!(["update", "create"])),
            "spec.resourceRules[0].verbs",
            "cannot distinguish `update` from `patch`",
        ),
        (
            with("verbs", json!(["create", "list"])),
            "spec.resourceRules[0].verbs",
            "`list` reads",
        ),
        (
            with("verbs", json!(["*"])),
            "spec.resourceRules[0].verbs",
            "`*` includes reads",
        ),
        (
            with("verbs", json!(["impersonate"])),
            "spec.resourceRules[0].verbs",
            "no request with the verb `impersonate`",
        ),
        (
            core(&["create"], "pods/exec"),
            "spec.resourceRules[0].verbs",
            "name `get`, too",
        ),
        (
            core(&["create"], "*"),
            "spec.resourceRules[0].resources",
            "`*` includes `pods/exec`",
        ),
        (
            core(&["create", "get"], "nodes/proxy"),
            "spec.resourceRules[0].verbs",
            "name `update`, `patch`, `delete`, too",
        ),
        (
            deny(&json!({"verbs": ["create"], "apiGroups": ["authorization.k8s.io"], "resources": ["*"]})),
            "spec.resourceRules[0].resources",
            "`localsubjectaccessreviews`, which admission policies never see",
        ),
        (
            and("notAfter", json!("2027-01-01T00:00:00Z")),
            "spec.notAfter",
            "know no clock",
        ),
        (
            and("notBefore", json!("2026-01-01T00:00:00Z")),
            "spec.notBefore",
            "know no clock",
        ),
        (and("effect", json!("Allow")), "spec.effect", "never grants"),
        (
            and("liftable", json!(true)),
            "spec.liftable",
            "know no AccessRequest",
        ),
        (
            and("nonResourceRules", json!([{"verbs": ["get"], "paths": ["/x"]}])),
            "spec.nonResourceRules[0]",
            "do not pass through admission",
        ),
        (
            deny(
                &json!({"verbs": ["deletecollection"], "apiGroups": ["apps"], "resources": ["deployments"],
                "unlessSelectors": {"label": [{"key": "a", "operator": "Exists"}]}}),
            ),
            "spec.resourceRules[0].unlessSelectors",
            "does not see the selectors",
        ),
        (
            and(
                "conditions",
                json!([{"name": "c", "expression": "size(request.resourceAttributes) > 0"}]),
            ),
            "spec.conditions[0].expression",
            "",
        ),
        (
            and(
                "conditions",
                json!([{"name": "c", "expression": "request.nonResourceAttributes.path == ''"}]),
            ),
            "spec.conditions[0].expression",
            "paths do not pass through admission",
        ),
    ] {
        let policy = json!({"apiVersion": "portcullis.dev/v1alpha1", "kind": "AuthorizationPolicy",
            "metadata": {"name": "guard"}, "spec": spec});
        let made = converted(&policy);
        assert_eq!(made.objects, Vec::<Value>::new(), "{spec}");
        let refusal = &made.refusals[0];
        assert_eq!(refusal.place.path.to_string(), path, "{refusal:?}");
        assert!(refusal.text.contains(reason), "{refusal:?}");
    }
}

#[test]
fn a_deny_is_not_refused_for_a_kind_that_does_not_know_its_verbs() {
    for (verb, expected) in [("delete", 0), ("create", 1)] {
        let rule = json!({"verbs": [verb], "apiGroups": ["authorization.k8s.io"], "resources": ["*"]});
        let policy = json!({"apiVersion": "portcullis.dev/v1alpha1", "kind": "AuthorizationPolicy",
            "metadata": {"name": "guard"}, "spec": deny(&rule)});
        let made = converted(&policy);
        assert_eq!(made.refusals.len(), expected, "{verb}: {:?}", made.refusals);
    }
}

#[test]
fn system_masters_are_never_denied_and_shadow_refuses_nothing() {
    let mut policy = json!({"apiVersion": "portcullis.dev/v1alpha1", "kind": "AuthorizationPolicy",
        "metadata": {"name": "guard"}, "spec": deny(&json!({"verbs": ["create"], "apiGroups": [""], "resources": ["pods"]}))});
    let mut request = requests().remove(0);
    assert!(is_denied(&loaded(&[yaml(&converted(&policy))]), &request));
    request.groups = &["dev", "system:masters"];
    assert!(!is_denied(&loaded(&[yaml(&converted(&policy))]), &request));
    request.groups = &["dev"];
    policy["spec"]["mode"] = "Shadow".into();
    policy["spec"]["conditions"] = json!([{"name": "c", "expression": "request.extra['none'][0] == 'a'"}]);
    assert!(!is_denied(&loaded(&[yaml(&converted(&policy))]), &request));
}
