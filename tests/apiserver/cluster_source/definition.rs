//! The CustomResourceDefinition that is shipped: what it accepts, refuses and shows.

use super::servers::{self, shipped};
use serde_json::{Value, json};

const COLLECTION: &str = "/apis/portcullis.dev/v1alpha1/authorizationpolicies";

fn policy(spec: Value) -> Value {
    json!({
        "apiVersion": "portcullis.dev/v1alpha1",
        "kind": "AuthorizationPolicy",
        "metadata": {"name": "sample"},
        "spec": spec,
    })
}

pub(crate) fn every_shipped_policy_is_accepted() {
    let Some(servers) = servers::shared() else { return };
    let mut accepted = 0;
    for entry in std::fs::read_dir(shipped("policies")).unwrap() {
        let file = entry.unwrap().path();
        let name = file.to_str().unwrap();
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        if name.ends_with(".yaml") && !name.ends_with("_test.yaml") && text.contains("AuthorizationPolicy") {
            servers.kubectl(&["apply", "--dry-run=server", "--validate=strict", "-f", name]);
            accepted += 1;
        }
    }
    assert!(accepted >= 5, "{accepted}");
}

pub(crate) fn what_no_gateway_would_take_is_refused() {
    let Some(servers) = servers::shared() else { return };
    let subjects = json!([{"kind": "Group", "name": "*"}]);
    let rule = |more: Value| {
        let mut rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
        rule.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!({"effect": "Deny", "subjects": subjects, "resourceRules": [rule]})
    };
    let with = |field: &str, value: Value| {
        let mut spec = rule(json!({}));
        spec[field] = value;
        spec
    };
    let valid = [
        rule(json!({})),
        rule(
            json!({"namespaces": ["", "*", "team-*", "a"], "resources": ["*", "pods/*", "*/scale", "pods/log"]}),
        ),
        rule(json!({"unlessSelectors": {"label": [{"key": "a", "operator": "Exists"}]}})),
        json!({"effect": "Allow", "subjects": [{"kind": "ServiceAccount", "namespace": "n", "name": "a"}],
            "nonResourceRules": [{"verbs": ["*"], "paths": ["*", "/a/*"]}]}),
    ];
    for spec in valid {
        let response = servers
            .cluster
            .admin()
            .post(&format!("{COLLECTION}?dryRun=All"), &policy(spec.clone()))
            .unwrap();
        assert_eq!(response.status, 201, "{spec}: {}", response.text());
    }
    let faulty = [
        (with("effect", json!("deny")), "spec.effect"),
        (with("mode", json!("Off")), "spec.mode"),
        (with("subjects", json!([])), "spec.subjects"),
        (
            with(
                "subjects",
                json!([{"kind": "Group", "name": "a", "namespace": "n"}]),
            ),
            "a ServiceAccount needs a namespace",
        ),
        (
            with("subjects", json!([{"kind": "ServiceAccount", "name": "a"}])),
            "a ServiceAccount needs a namespace",
        ),
        (
            with("subjects", json!([{"kind": "User", "name": "a*b"}])),
            "`*` is allowed only once",
        ),
        (
            with("resourceRules", json!([])),
            "a policy needs at least one rule",
        ),
        (with("failurePolicy", json!("Allow")), "spec.failurePolicy"),
        (
            with("conditions", json!([{"name": "a", "expression": ""}])),
            "spec.conditions[0].expression",
        ),
        (
            with(
                "conditions",
                json!([{"name": "a", "expression": "x"}, {"name": "a", "expression": "y"}]),
            ),
            "Duplicate value",
        ),
        (rule(json!({"verbs": []})), "resourceRules[0].verbs"),
        (rule(json!({"verbs": ["g*t"]})), "resourceRules[0].verbs[0]"),
        (
            rule(json!({"resources": ["*/*"]})),
            "resourceRules[0].resources[0]",
        ),
        (
            rule(json!({"namespaces": ["a*b"]})),
            "resourceRules[0].namespaces[0]",
        ),
        (
            rule(json!({"selectors": {}})),
            "`selectors` is allowed only in an Allow",
        ),
        (
            json!({"effect": "Allow", "failurePolicy": "Deny", "subjects": subjects,
                "nonResourceRules": [{"verbs": ["get"], "paths": ["/a"]}]}),
            "`failurePolicy` is allowed only in a Deny",
        ),
        (
            json!({"effect": "Deny", "subjects": subjects, "nonResourceRules": [{"verbs": ["get"], "paths": ["a"]}]}),
            "nonResourceRules[0].paths[0]",
        ),
    ];
    for (spec, expected) in faulty {
        let response = servers
            .cluster
            .admin()
            .post(&format!("{COLLECTION}?dryRun=All"), &policy(spec.clone()))
            .unwrap();
        assert_eq!(response.status, 422, "{spec}: {}", response.text());
        assert!(response.text().contains(expected), "{spec}: {}", response.text());
    }
}

pub(crate) fn kubectl_shows_effect_and_mode() {
    let Some(servers) = servers::shared() else { return };
    let spec = json!({
        "effect": "Deny",
        "subjects": [{"kind": "User", "name": "nobody"}],
        "nonResourceRules": [{"verbs": ["get"], "paths": ["/shown"]}],
    });
    let mut shown = policy(spec);
    shown["metadata"]["name"] = "shown".into();
    servers.cluster.create(COLLECTION, &shown);
    let table = servers.kubectl(&["get", "azp", "shown"]);
    let words: Vec<&str> = table.split_whitespace().collect();
    assert_eq!(
        words[..9],
        [
            "NAME", "EFFECT", "MODE", "ENDS", "INFORCE", "AGE", "shown", "Deny", "Enforce"
        ],
        "{table}"
    );
    servers.kubectl(&["delete", "azp", "shown"]);
}
