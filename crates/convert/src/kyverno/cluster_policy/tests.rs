//! ClusterPolicies mean to Kubernetes what they mean to Kyverno, or are refused.

mod conditions;
mod mutate;
mod patterns;
mod reference;
mod rules;

use std::cell::Cell;

use serde_json::{Value, json};

use super::*;
use crate::test_reviews;
use portcullis_policy::admission::Phase;
use portcullis_policy::authorization::NeverDeny;
use portcullis_policy::document;
use portcullis_policy::explain::LoadedPolicies;
use portcullis_policy::explain::admission::OfflineReviewResult;

fn converted(policy: &Value) -> Conversion {
    let document = document::parse(Some("p.yaml"), &policy.to_string())
        .unwrap()
        .remove(0);
    convert(&document, &Exceptions::default(), Deadline::NEVER)
}

fn cluster_policy(rules: &Value) -> Value {
    json!({"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"},
        "spec": {"validationFailureAction": "Enforce", "rules": rules}})
}

/// A policy with one rule over `kinds`.
fn policy(kinds: &[&str], validate: &Value) -> Value {
    let matched = json!({"any": [{"resources": {"kinds": kinds}}]});
    cluster_policy(&json!([{"name": "r", "match": matched, "validate": validate}]))
}

fn refusals(policy: &Value) -> Vec<String> {
    let made = converted(policy);
    assert_eq!(made.objects, Vec::<Value>::new());
    let refusals = made.refusals.iter();
    refusals
        .map(|remark| format!("{}: {}", remark.place.path, remark.text))
        .collect()
}

fn loaded(made: &Conversion) -> LoadedPolicies {
    assert_eq!(made.refusals, []);
    let namespaces = json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "web", "labels": {"tier": "front"}}});
    let objects = made.objects.iter().chain([&namespaces]);
    let texts: Vec<String> = objects.map(document::to_yaml).collect();
    test_reviews::loaded(&texts)
}

/// A request about an object of a built-in or an invented kind.
#[derive(Debug, Clone)]
struct Request(Value);

fn request(resource: &str, object: &Value) -> Request {
    let api_version = object["apiVersion"].as_str().unwrap();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = json!({"group": group, "version": version, "kind": object["kind"]});
    let resource = json!({"group": group, "version": version, "resource": resource});
    let mut request = json!({
        "uid": "u", "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
        "operation": "CREATE", "userInfo": {"username": "jane", "groups": ["dev"]},
        "name": object["metadata"]["name"], "object": object, "oldObject": null,
    });
    if let Some(namespace) = object["metadata"]["namespace"].as_str() {
        request["namespace"] = namespace.into();
    }
    Request(request)
}

impl Request {
    fn with(mut self, field: &str, value: Value) -> Self {
        self.0[field] = value;
        self
    }

    fn is_denied(&self, by: &LoadedPolicies) -> bool {
        self.answered(by, &[Phase::Validate])
            .decided
            .unwrap()
            .outcome
            .denial
            .is_some()
    }

    fn answered(&self, by: &LoadedPolicies, phases: &'static [Phase]) -> OfflineReviewResult {
        let review =
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": self.0});
        test_reviews::answered(by, phases, &review.to_string())
    }
}

fn pod(spec: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": "web"}, "spec": spec})
}

fn owned(labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "x", "namespace": "web", "labels": labels}})
}

#[test]
fn a_pattern_on_pods_also_holds_for_what_makes_them() {
    let made = converted(&policy(
        &["Pod"],
        &json!({"pattern": {"spec": {"=(hostNetwork)": false}}, "message": "no\n host"}),
    ));
    let names: Vec<&str> = made
        .objects
        .iter()
        .filter(|object| object["kind"] == "ValidatingAdmissionPolicy")
        .filter_map(|object| object["metadata"]["name"].as_str())
        .collect();
    assert_eq!(names, ["p", "p-autogen", "p-autogen-cronjob"]);
    assert_eq!(made.objects[0]["spec"]["validations"][0]["message"], "no host");
    assert_eq!(made.objects[1]["spec"]["validationActions"], json!(["Deny"]));
    let by = loaded(&made);
    let template = |host: bool| json!({"spec": {"hostNetwork": host}});
    let of = |api: &str, kind: &str, spec: Value| json!({"apiVersion": api, "kind": kind, "metadata": {"name": "x", "namespace": "web"}, "spec": spec});
    for host in [true, false] {
        let deployment = of("apps/v1", "Deployment", json!({"template": template(host)}));
        let set = of("apps/v1", "ReplicaSet", json!({"template": template(host)}));
        let job = json!({"jobTemplate": {"spec": {"template": template(host)}}});
        let job = of("batch/v1", "CronJob", job);
        let denied = [
            request("pods", &pod(&json!({"hostNetwork": host}))),
            request("deployments", &deployment),
            request("cronjobs", &job),
        ];
        for request in denied {
            assert_eq!(request.is_denied(&by), host, "{request:?}");
        }
        // Kyverno's default filters leave them out, as what system nodes do.
        assert!(!request("replicasets", &set).is_denied(&by));
        let nodes = json!({"username": "n", "groups": ["system:nodes"]});
        let by_node = request("deployments", &deployment).with("userInfo", nodes);
        assert!(!by_node.is_denied(&by));
    }
    let ephemeral = request("pods", &pod(&json!({"hostNetwork": true})));
    let ephemeral = ephemeral
        .with("operation", "UPDATE".into())
        .with("oldObject", pod(&json!({})))
        .with("subResource", "ephemeralcontainers".into());
    assert!(ephemeral.is_denied(&by));
}

#[test]
fn the_annotation_and_a_selector_limit_what_is_derived() {
    let count = |policy: &Value| converted(policy).objects.len() / 2;
    let mut chosen = policy(&["Pod"], &json!({"pattern": {"spec": {"=(hostNetwork)": false}}}));
    for (controllers, expected) in [("none", 1), ("Deployment", 2), ("CronJob", 2), ("Job,CronJob", 3)] {
        chosen["metadata"]["annotations"]["pod-policies.kyverno.io/autogen-controllers"] = controllers.into();
        assert_eq!(count(&chosen), expected, "{controllers}");
    }
    chosen["metadata"]["annotations"] = json!({});
    chosen["spec"]["rules"][0]["match"]["any"][0]["resources"]["selector"] =
        json!({"matchLabels": {"a": "b"}});
    assert_eq!(count(&chosen), 1);
    assert_eq!(
        count(&policy(
            &["Pod", "Deployment"],
            &json!({"pattern": {"spec": {"a": 1}}})
        )),
        1
    );
}

#[test]
fn what_failed_before_may_be_kept() {
    let mut policy = policy(
        &["ConfigMap"],
        &json!({"pattern": {"metadata": {"labels": {"owner": "?*"}}}}),
    );
    let update = |before: &Value, after: &Value| {
        request("configmaps", after)
            .with("operation", "UPDATE".into())
            .with("oldObject", before.clone())
    };
    let (with, without) = (owned(&json!({"owner": "a"})), owned(&json!({})));
    let by = loaded(&converted(&policy));
    assert!(!update(&without, &without).is_denied(&by));
    assert!(update(&with, &without).is_denied(&by));
    assert!(request("configmaps", &without).is_denied(&by));
    policy["spec"]["rules"][0]["validate"]["allowExistingViolations"] = false.into();
    let by = loaded(&converted(&policy));
    assert!(update(&without, &without).is_denied(&by));
    // Kyverno cannot read preconditions of the old object, and takes nobody for its user.
    let mut bound = policy.clone();
    let rule = &mut bound["spec"]["rules"][0];
    rule["validate"]["allowExistingViolations"] = true.into();
    rule["match"]["any"][0]["subjects"] = json!([{"kind": "User", "name": "jane"}]);
    assert!(update(&without, &without).is_denied(&loaded(&converted(&bound))));
    bound["spec"]["rules"][0]["match"]["any"][0] = json!({"resources": {"kinds": ["ConfigMap"]}});
    bound["spec"]["rules"][0]["preconditions"] = json!([{"key": "a", "operator": "Equals", "value": "a"}]);
    assert!(update(&without, &without).is_denied(&loaded(&converted(&bound))));
    // An object that the rule was not about did not fail before.
    let rule = &mut policy["spec"]["rules"][0];
    rule["validate"]["allowExistingViolations"] = true.into();
    rule["exclude"] = json!({"any": [{"resources": {"selector": {"matchLabels": {"free": "yes"}}}}]});
    let by = loaded(&converted(&policy));
    assert!(update(&owned(&json!({"free": "yes"})), &without).is_denied(&by));
}

#[test]
fn match_and_exclude_are_about_the_same_requests() {
    let policy = |matched: Value, exclude: Value| {
        let rule = json!({"name": "r", "match": matched, "exclude": exclude,
            "validate": {"pattern": {"metadata": {"labels": {"owner": "?*"}}}}});
        let mut policy = cluster_policy(&json!([rule]));
        policy["spec"]["rules"][0]["validate"]["allowExistingViolations"] = false.into();
        policy
    };
    let one = |resources: Value| json!({"any": [{"resources": resources}]});
    let kinds = json!(["ConfigMap"]);
    let cases = [
        (one(json!({"kinds": kinds})), Value::Null, true),
        (one(json!({"kinds": ["v1/ConfigMap"]})), Value::Null, true),
        (one(json!({"kinds": ["Config*"]})), Value::Null, true),
        (one(json!({"kinds": ["*"]})), Value::Null, true),
        (one(json!({"kinds": ["apps/v1/ConfigMap"]})), Value::Null, false),
        (one(json!({"kinds": ["Secret"]})), Value::Null, false),
        (
            one(json!({"kinds": kinds, "names": ["y", "x*"]})),
            Value::Null,
            true,
        ),
        (one(json!({"kinds": kinds, "name": "y"})), Value::Null, false),
        (
            one(json!({"kinds": kinds, "namespaces": ["w?b"]})),
            Value::Null,
            true,
        ),
        (
            one(json!({"kinds": kinds, "namespaces": ["default"]})),
            Value::Null,
            false,
        ),
        (
            one(json!({"kinds": kinds, "annotations": {"a/*": "b"}})),
            Value::Null,
            true,
        ),
        (
            one(json!({"kinds": kinds, "annotations": {"a/x": "c"}})),
            Value::Null,
            false,
        ),
        (
            one(json!({"kinds": kinds, "selector": {"matchLabels": {"app": "?*"}}})),
            Value::Null,
            true,
        ),
        (
            one(json!({"kinds": kinds, "selector": {"matchLabels": {"app": "z"}}})),
            Value::Null,
            false,
        ),
        (
            one(json!({"kinds": kinds, "selector": {"matchExpressions": [
                {"key": "app", "operator": "NotIn", "values": ["z"]},
                {"key": "none", "operator": "DoesNotExist"}]}})),
            Value::Null,
            true,
        ),
        (
            one(json!({"kinds": kinds, "namespaceSelector": {"matchLabels": {"tier": "front"}}})),
            Value::Null,
            true,
        ),
        (
            one(json!({"kinds": kinds, "namespaceSelector": {"matchLabels": {"tier": "x"}}})),
            Value::Null,
            false,
        ),
        (
            one(json!({"kinds": kinds, "operations": ["UPDATE"]})),
            Value::Null,
            false,
        ),
        (
            json!({"all": [{"resources": {"kinds": kinds}}, {"resources": {"names": ["y"]}}]}),
            Value::Null,
            false,
        ),
        (
            json!({"any": [{"resources": {"kinds": kinds, "names": ["y"]}}, {"resources": {"kinds": kinds}}]}),
            Value::Null,
            true,
        ),
        (json!({"resources": {"kinds": kinds}}), Value::Null, true),
        (
            json!({"any": [{"resources": {"kinds": kinds}, "subjects": [{"kind": "User", "name": "jan?"}]}]}),
            Value::Null,
            true,
        ),
        (
            json!({"any": [{"resources": {"kinds": kinds}, "subjects": [{"kind": "Group", "name": "ops"}]}]}),
            Value::Null,
            false,
        ),
        (
            one(json!({"kinds": kinds})),
            one(json!({"namespaces": ["w*"]})),
            false,
        ),
        (
            one(json!({"kinds": kinds})),
            one(json!({"kinds": ["Secret"]})),
            true,
        ),
        (
            one(json!({"kinds": kinds})),
            one(json!({"kinds": kinds, "operations": ["DELETE"]})),
            true,
        ),
        (
            one(json!({"kinds": kinds})),
            json!({"all": [{"resources": {"names": ["x"]}}, {"resources": {"names": ["y"]}}]}),
            true,
        ),
        (
            one(json!({"kinds": kinds})),
            json!({"any": [{"subjects": [{"kind": "Group", "name": "d*"}]}]}),
            false,
        ),
        (one(json!({"kinds": kinds})), json!({}), true),
    ];
    let mut object = owned(&json!({"app": "web"}));
    object["metadata"]["annotations"] = json!({"a/x": "b"});
    for (matched, exclude, expected) in cases {
        let policy = policy(matched, exclude);
        let by = loaded(&converted(&policy));
        assert_eq!(
            request("configmaps", &object).is_denied(&by),
            expected,
            "{policy}"
        );
    }
}

#[test]
fn a_policy_of_a_namespace_is_about_it_alone() {
    let mut policy = policy(
        &["ConfigMap"],
        &json!({"pattern": {"metadata": {"labels": {"owner": "?*"}}}}),
    );
    policy["kind"] = "Policy".into();
    for (namespace, expected) in [("web", true), ("other", false)] {
        policy["metadata"]["namespace"] = namespace.into();
        let by = loaded(&converted(&policy));
        assert_eq!(request("configmaps", &owned(&json!({}))).is_denied(&by), expected);
    }
}

#[test]
fn cel_is_taken_over() {
    let mut policy = policy(
        &["ConfigMap"],
        &json!({"message": "shared", "cel": {
            "variables": [{"name": "v", "expression": "object.metadata.name"}],
            "expressions": [{"expression": "variables.v != 'x'"}, {"expression": "true", "message": "own"}]}}),
    );
    policy["spec"]["rules"][0]["match"]["any"][0]["resources"]["operations"] = json!(["CREATE"]);
    policy["spec"]["rules"][0]["celPreconditions"] =
        json!([{"name": "c", "expression": "has(object.metadata.labels)"}]);
    policy["spec"]["failurePolicy"] = "Ignore".into();
    let made = converted(&policy);
    let spec = &made.objects[0]["spec"];
    assert_eq!(spec["validations"][0]["message"], "shared");
    assert_eq!(spec["validations"][1]["message"], "own");
    assert_eq!(spec["failurePolicy"], "Fail");
    assert_eq!(
        spec["matchConstraints"]["resourceRules"][0]["operations"],
        json!(["CREATE"])
    );
    let by = loaded(&made);
    assert!(request("configmaps", &owned(&json!({}))).is_denied(&by));
    let plain =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "web"}});
    assert!(!request("configmaps", &plain).is_denied(&by));
}

#[test]
fn actions_are_those_of_the_rule_or_the_policy() {
    let actions = |action: &str, own: Value, warns: bool| {
        let mut validate = json!({"pattern": {"metadata": {"name": "?*"}}});
        validate["failureAction"] = own;
        let mut policy = policy(&["ConfigMap"], &validate);
        policy["spec"]["validationFailureAction"] = action.into();
        policy["spec"]["emitWarning"] = warns.into();
        converted(&policy).objects[1]["spec"]["validationActions"].clone()
    };
    assert_eq!(actions("enforce", Value::Null, false), json!(["Deny"]));
    assert_eq!(actions("Audit", "Enforce".into(), true), json!(["Deny"]));
    assert_eq!(actions("Enforce", "Audit".into(), false), json!(["Audit"]));
    assert_eq!(actions("Audit", Value::Null, true), json!(["Warn", "Audit"]));
}

#[test]
fn what_has_no_counterpart_is_refused_with_its_place() {
    let matched = json!({"any": [{"resources": {"kinds": ["ConfigMap"]}}]});
    let rule = |field: &str, value: Value| {
        let mut rule = json!({"name": "r", "match": matched, "validate": {"pattern": {"data": "*"}}});
        rule[field] = value;
        cluster_policy(&json!([rule]))
    };
    let cases = [
        (rule("generate", json!({})), "spec.rules[0].generate"),
        (rule("verifyImages", json!([{}])), "spec.rules[0].verifyImages"),
        (
            rule("context", json!([{"name": "a", "apiCall": {}}])),
            "spec.rules[0].context[0].apiCall",
        ),
        (rule("surprise", json!(1)), "spec.rules[0].surprise"),
        (
            rule("match", json!({"any": [{"resources": {"kinds": ["Node"]}}]})),
            "spec.rules[0].match",
        ),
        (
            rule("match", json!({"any": [{"subjects": []}]})),
            "spec.rules[0].match",
        ),
        (
            rule("exclude", json!({"any": [{"clusterRoles": ["admin"]}]})),
            "spec.rules[0].exclude.any[0].clusterRoles",
        ),
        (
            rule("validate", json!({"pattern": {"data": [{"+(a)": "b"}]}})),
            "spec.rules[0].validate.pattern.data[0].+(a)",
        ),
        (
            rule(
                "validate",
                json!({"anyPattern": [{"a": "b"}, {"data": "{{ request.name }}"}]}),
            ),
            "spec.rules[0].validate.anyPattern[1].data",
        ),
        (
            rule(
                "validate",
                json!({"pattern": {"metadata": {"labels": {"a": true}}}}),
            ),
            "spec.rules[0].validate.pattern.metadata.labels.a",
        ),
        (
            rule("validate", json!({"podSecurity": {}})),
            "spec.rules[0].validate.podSecurity.level",
        ),
        (
            rule(
                "validate",
                json!({"cel": {
                    "variables": [{"name": "v", "expression": "object.?data"}],
                    "expressions": [
                        {"expression": "size(variables.v.orValue({})) > 0"},
                        {"expression": "object.metadata.name.orValue('') != ''"},
                    ],
                }}),
            ),
            "spec.rules[0].validate.cel.expressions[1].expression",
        ),
    ];
    for (policy, place) in cases {
        let refusals = refusals(&policy);
        assert_eq!(refusals.len(), 1, "{refusals:?}");
        assert!(refusals[0].starts_with(&format!("{place}: ")), "{refusals:?}");
    }
}

#[test]
fn one_rule_that_is_refused_refuses_the_policy() {
    let mut policy = policy(&["ConfigMap"], &json!({"pattern": {"data": "*"}}));
    let mut second = policy["spec"]["rules"][0].clone();
    second["name"] = "second".into();
    policy["spec"]["rules"]
        .as_array_mut()
        .unwrap()
        .push(second.clone());
    let names = |policy: &Value| -> Vec<Value> {
        let objects = converted(policy).objects;
        objects
            .iter()
            .map(|object| object["metadata"]["name"].clone())
            .collect()
    };
    assert_eq!(names(&policy), ["p-r", "p-r", "p-second", "p-second"]);
    policy["spec"]["rules"][1]["generate"] = json!({});
    assert_eq!(refusals(&policy).len(), 1);
}

#[test]
fn what_is_not_whole_at_the_deadline_is_not_converted() {
    let rule = |number: usize| {
        json!({"name": format!("r{number}"), "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
            "validate": {"message": "m", "pattern": {"data": {format!("k{number}"): "?*"}}}})
    };
    let rules = Value::Array((0..20).map(rule).collect());
    let documents = document::parse(Some("p.yaml"), &cluster_policy(&rules).to_string()).unwrap();
    let never_deny = NeverDeny::default();
    let (asked, most) = (Cell::new(0), Cell::new(usize::MAX));
    let expired = || {
        asked.set(asked.get() + 1);
        asked.get() > most.get()
    };
    let convert = || crate::convert(&documents, &never_deny, Deadline::new(&expired));
    assert_eq!(convert().unwrap().objects.len(), 40);
    let all = asked.get();
    assert!(all > 2 * 20, "{all}");
    // Whenever it passes, little follows.
    for passes in [0, 1, all / 3, all - 1] {
        asked.set(0);
        most.set(passes);
        assert!(convert().is_none(), "{passes}");
        assert!(asked.get() < passes + 20, "{passes}: {}", asked.get());
    }
}
