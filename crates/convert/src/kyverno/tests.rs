//! Kyverno's policies mean to Kubernetes what they mean to Kyverno, or are refused.

use serde_json::{Value, json};

use super::*;
use crate::conversion;
use portcullis_policy::document;
use portcullis_policy::model::Deadline;

fn converted(kind: &str, spec: &Value) -> Conversion {
    let policy = json!({"apiVersion": "policies.kyverno.io/v1", "kind": kind,
        "metadata": {"name": "p"}, "spec": spec});
    let document = document::parse(Some("p.yaml"), &policy.to_string())
        .unwrap()
        .remove(0);
    conversion::checked(&document, convert(&document, kind), Deadline::NEVER)
}

fn rules(resources: &[&str], operations: &[&str]) -> Value {
    json!({"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": operations,
        "resources": resources}]})
}

fn validating(expression: &str, operations: &[&str]) -> Value {
    json!({
        "matchConstraints": rules(&["configmaps"], operations),
        "validations": [{"expression": expression, "message": "no"}],
    })
}

/// The expressions of the first validation of each policy made.
fn expressions(made: &Conversion) -> Vec<&str> {
    let policies = made
        .objects
        .iter()
        .filter(|object| object["kind"] == "ValidatingAdmissionPolicy");
    policies
        .filter_map(|policy| policy["spec"]["validations"][0]["expression"].as_str())
        .collect()
}

fn refusals(made: &Conversion) -> Vec<String> {
    assert_eq!(made.objects, Vec::<Value>::new());
    let refusals = made.refusals.iter();
    refusals
        .map(|remark| format!("{}: {}", remark.place.path, remark.text))
        .collect()
}

#[test]
fn a_policy_becomes_a_policy_and_its_binding() {
    let mut spec = validating("has(object.data)", &["CREATE", "UPDATE"]);
    spec["validations"][0]["message"] = "a\n  b\n".into();
    spec["matchConditions"] = json!([{"name": "c", "expression": "request.operation == 'CREATE'"}]);
    spec["evaluation"] = json!({"admission": {"enabled": true}, "background": {"enabled": false}});
    spec["webhookConfiguration"] = json!({"timeoutSeconds": 5});
    let made = converted("ValidatingPolicy", &spec);
    let spec = |object: usize| made.objects[object]["spec"].clone();
    assert_eq!(made.objects.len(), 2, "{:?}", made.refusals);
    assert_eq!(
        spec(0),
        json!({
            "failurePolicy": "Fail",
            "matchConstraints": rules(&["configmaps"], &["CREATE", "UPDATE"]),
            "matchConditions": [{"name": "c", "expression": "request.operation == 'CREATE'"}],
            "validations": [{"expression": "has(object.data)", "message": "a b"}],
        })
    );
    assert_eq!(spec(1), json!({"policyName": "p", "validationActions": ["Deny"]}));
    let mut audited = validating("has(object.data)", &["CREATE"]);
    audited["validationActions"] = json!(["Audit", "Warn"]);
    audited["failurePolicy"] = "Ignore".into();
    let made = converted("ValidatingPolicy", &audited);
    assert_eq!(made.objects[0]["spec"]["failurePolicy"], "Ignore");
    assert_eq!(
        made.objects[1]["spec"]["validationActions"],
        json!(["Audit", "Warn"])
    );
}

#[test]
fn what_makes_pods_is_covered_as_kyverno_covers_it() {
    let expression = "object.spec.hostNetwork != true && object.metadata.name != '' && \
                      object.metadata.namespace != 'x' && object.metadata.namespaces != ''";
    let mut spec = validating(expression, &["CREATE"]);
    spec["matchConstraints"] = rules(&["pods"], &["CREATE"]);
    spec["matchConstraints"]["namespaceSelector"] = json!({"matchLabels": {"a": "b"}});
    let made = converted("ValidatingPolicy", &spec);
    assert_eq!(
        expressions(&made),
        [
            expression,
            "object.spec.template.spec.hostNetwork != true && object.spec.template.metadata.name != '' && \
             object.metadata.namespace != 'x' && object.spec.template.metadata.namespaces != ''",
            "object.spec.jobTemplate.spec.template.spec.hostNetwork != true && \
             object.spec.jobTemplate.spec.template.metadata.name != '' && \
             object.metadata.namespace != 'x' && object.spec.jobTemplate.spec.template.metadata.namespaces != ''",
        ]
    );
    let defaults = &made.objects[2];
    assert_eq!(defaults["metadata"]["name"], "p-autogen-defaults");
    assert_eq!(
        defaults["spec"]["matchConstraints"],
        json!({
            "namespaceSelector": {"matchLabels": {"a": "b"}},
            "resourceRules": [
                {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"],
                    "resources": ["daemonsets", "deployments", "replicasets", "statefulsets"]},
                {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"]},
            ],
        })
    );
    spec["autogen"] = json!({"podControllers": {"controllers": ["cronjobs"]}});
    assert_eq!(converted("ValidatingPolicy", &spec).objects.len(), 4);
    spec["autogen"] = json!({"podControllers": {"controllers": []}});
    assert_eq!(converted("ValidatingPolicy", &spec).objects.len(), 2);
    spec["autogen"] = Value::Null;
    spec["matchConstraints"]["objectSelector"] = json!({"matchLabels": {"a": "b"}});
    assert_eq!(converted("ValidatingPolicy", &spec).objects.len(), 2);
}

#[test]
fn an_object_that_is_not_there_is_empty_to_kyverno() {
    let adapted = |expression: &str, operations: &[&str]| {
        let made = converted("ValidatingPolicy", &validating(expression, operations));
        assert_eq!(made.refusals, [], "{expression}");
        expressions(&made)[0].to_owned()
    };
    for expression in [
        "has(oldObject.data)",
        "oldObject == null",
        "oldObject.?data.hasValue()",
    ] {
        assert_eq!(adapted(expression, &["UPDATE"]), expression);
    }
    for (expression, operation, expected) in [
        (
            "has(oldObject.data)",
            "CREATE",
            "has((oldObject == null ? dyn({}) : oldObject).data)",
        ),
        (
            "oldObject == null",
            "*",
            "(oldObject == null ? dyn({}) : oldObject) == null",
        ),
        ("oldObject.data.a == 'b'", "CREATE", "oldObject.data.a == 'b'"),
        (
            "has(object.data)",
            "DELETE",
            "has((object == null ? dyn({}) : object).data)",
        ),
        (
            "object.?data.hasValue() || has(oldObject.data)",
            "DELETE",
            "(object == null ? dyn({}) : object).?data.hasValue() || has(oldObject.data)",
        ),
    ] {
        assert_eq!(adapted(expression, &[operation]), expected);
    }
}

#[test]
fn what_kyverno_has_beside_kubernetes_is_refused() {
    let with = |field: &str, value: Value| {
        let mut spec = validating("true", &["CREATE"]);
        spec[field] = value;
        spec
    };
    let of = |expression: &str| validating(expression, &["CREATE"]);
    let mut named = validating("true", &["CREATE"]);
    named["matchConstraints"]["resourceRules"][0]["resourceNames"] = json!(["a"]);
    let mut namespaces = validating("namespaceObject != null", &["CREATE"]);
    namespaces["matchConstraints"]["resourceRules"][0]["resources"] = json!(["*"]);
    for (spec, expected) in [
        (
            of("resource.Get('v1', 'configmaps', 'a', 'b').data.c == 'd'"),
            "spec.validations[0].expression: Kubernetes has no `resource` for this expression",
        ),
        (
            of("image(object.data.a).registry() == 'b'"),
            "spec.validations[0].expression: Kubernetes has no `image` for this expression",
        ),
        (
            of("exceptions.allowedImages.size() > 0"),
            "spec.validations[0].expression: Kubernetes has no `exceptions` for this expression",
        ),
        (
            of("object.data.orValue({}).size() > 0"),
            "spec.validations[0].expression: 1:20: `.orValue()` of what is no optional value",
        ),
        (
            of("request.object.data.a == ''"),
            "spec.validations[0].expression: an API server would refuse it: ",
        ),
        (
            with("evaluation", json!({"mode": "JSON"})),
            "spec.evaluation.mode: ",
        ),
        (
            with("evaluation", json!({"admission": {"enabled": false}})),
            "spec.evaluation.admission: it decides nothing",
        ),
        (
            with("images", json!([])),
            "spec.images: this field has no counterpart",
        ),
        (
            with("matchConstraints", Value::Null),
            "spec.matchConstraints: it matches no resource",
        ),
        (
            named,
            "spec.matchConstraints.resourceRules[0].resourceNames: Kyverno also takes a name",
        ),
        (
            namespaces,
            "spec.validations[0].expression: of a Namespace itself",
        ),
    ] {
        let refused = refusals(&converted("ValidatingPolicy", &spec));
        assert!(refused[0].starts_with(expected), "{refused:?}");
    }
    for kind in [
        "ImageValidatingPolicy",
        "GeneratingPolicy",
        "DeletingPolicy",
        "NamespacedValidatingPolicy",
        "PolicyException",
        "Other",
    ] {
        assert_eq!(refusals(&converted(kind, &json!({}))).len(), 1);
    }
}

#[test]
fn optional_variables_stay_optional() {
    let mut spec = validating("variables.a.orValue('b') == 'b'", &["CREATE"]);
    spec["variables"] = json!([{"name": "a", "expression": "object.?data.?a"}]);
    assert_eq!(converted("ValidatingPolicy", &spec).refusals, []);
    spec["variables"] = json!([{"name": "a", "expression": "object.data"}]);
    assert_eq!(refusals(&converted("ValidatingPolicy", &spec)).len(), 1);
}

fn mutating(mutations: Value) -> Value {
    json!({"matchConstraints": rules(&["pods"], &["CREATE"]), "mutations": mutations})
}

fn apply(expression: &str) -> Value {
    json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
}

#[test]
fn a_mutating_policy_is_converted_with_what_makes_pods() {
    let mut spec = mutating(json!([apply("Object{spec: Object.spec{hostNetwork: false}}")]));
    spec["matchConditions"] =
        json!([{"name": "c", "expression": "has(object.metadata.labels) && object.metadata.name != ''"}]);
    let made = converted("MutatingPolicy", &spec);
    assert_eq!(made.refusals, []);
    let policies: Vec<&Value> = made.objects.iter().step_by(2).collect();
    let expression =
        |policy: usize| &policies[policy]["spec"]["mutations"][0]["applyConfiguration"]["expression"];
    assert_eq!(expression(0), "Object{spec: Object.spec{hostNetwork: false}}");
    assert_eq!(
        expression(1),
        "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{hostNetwork: false}}}}"
    );
    assert_eq!(
        expression(2),
        "Object{spec: Object.spec{jobTemplate: Object.spec.jobTemplate{spec: Object.spec.jobTemplate.spec{\
         template: Object.spec.jobTemplate.spec.template{spec: \
         Object.spec.jobTemplate.spec.template.spec{hostNetwork: false}}}}}}"
    );
    assert_eq!(
        policies[1]["spec"]["matchConditions"][0]["expression"],
        "has(object.spec.template.metadata.labels) && object.metadata.name != ''"
    );
    assert_eq!(policies[0]["spec"]["reinvocationPolicy"], "Never");
    assert_eq!(made.objects[1]["spec"], json!({"policyName": "p"}));
}

/// The JSON patch that adds something at this path, which is an expression.
fn patching(path: &str) -> Value {
    let expression = format!("[JSONPatch{{op: 'add', path: {path}, value: [{{'key': 'a'}}]}}]");
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

#[test]
fn a_patch_of_what_not_every_kind_has_is_refused() {
    let dropped = "is dropped, and Kubernetes refuses every such object with 500";
    let lone = json!({"podControllers": {"controllers": []}});
    for (resources, autogen, path, refused) in [
        (
            &["pods"][..],
            None,
            "'/spec/tolerations'",
            Some("a DaemonSet does not have `/spec/tolerations`"),
        ),
        (&["pods"], Some(&lone), "'/spec/tolerations'", None),
        (&["pods"], None, "'/metadata/labels/a'", None),
        (
            &["pods"],
            None,
            "'/metadata/labels/' + object.metadata.name",
            None,
        ),
        (
            &["pods"],
            Some(&lone),
            "'/spec/' + object.metadata.name",
            Some("a Pod may not have where it is put"),
        ),
        (&["pods"], Some(&lone), "'/spec/containers/0/env/-'", None),
        (
            &["pods"],
            Some(&lone),
            "'/spec/containers/' + '0' + '/bogus'",
            Some("a Pod does not have"),
        ),
        (
            &["pods", "services"],
            None,
            "'/spec/tolerations'",
            Some("a Service does not have"),
        ),
        (
            &["*"],
            None,
            "'/spec/tolerations'",
            Some("each object does not have"),
        ),
        (&["*"], None, "'/metadata/annotations/a~1b'", None),
        (&["widgets"], None, "'/spec/tolerations'", None),
    ] {
        let mut spec = mutating(json!([patching(path)]));
        spec["matchConstraints"] = rules(resources, &["CREATE"]);
        if resources == ["widgets"] {
            spec["matchConstraints"]["resourceRules"][0]["apiGroups"] = json!(["example.com"]);
        }
        if let Some(autogen) = autogen {
            spec["autogen"] = autogen.clone();
        }
        let made = converted("MutatingPolicy", &spec);
        let Some(refused) = refused else {
            assert_eq!(made.refusals, [], "{resources:?} {path}");
            continue;
        };
        let refusals = refusals(&made);
        let place = format!("spec.mutations[0].jsonPatch.expression: {refused}");
        assert!(refusals[0].starts_with(&place), "{refusals:?}");
        assert!(refusals[0].contains(dropped), "{refusals:?}");
    }
}

#[test]
fn mutations_that_kubernetes_would_refuse_are_refused() {
    let patch = json!({"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'remove', path: '/a'}]"}});
    let mut twice = mutating(json!([patch, patch]));
    twice["variables"] = json!([{"name": "v", "expression": "object.spec"}]);
    let mut existing = mutating(json!([patch]));
    existing["evaluation"] = json!({"mutateExisting": {"enabled": true}});
    let mut custom = mutating(json!([apply("Object{spec: Object.spec{a: 1}}")]));
    custom["matchConstraints"]["resourceRules"][0]["resources"] = json!(["widgets"]);
    for (spec, expected) in [
        (
            mutating(json!([apply(
                "Object{spec: Object.spec{tolerations: [Object.spec.tolerations{key: 'a'}]}}"
            )])),
            "spec.mutations[0].applyConfiguration.expression: Kubernetes refuses to apply `spec.tolerations`",
        ),
        (
            mutating(json!([apply(
                "Object{metadata: Object.metadata{labels: Object.metadata.labels{a: 'b'}}}"
            )])),
            "spec.mutations[0]: what Kyverno derives from it",
        ),
        (
            custom,
            "spec.mutations[0].applyConfiguration.expression: it is for resources whose types are not known",
        ),
        (
            twice,
            "spec.variables[0]: Kyverno evaluates it before the first mutation",
        ),
        (
            existing,
            "spec.evaluation.mutateExisting: admission policies change the object of the request alone",
        ),
    ] {
        let refused = refusals(&converted("MutatingPolicy", &spec));
        assert!(refused[0].starts_with(expected), "{refused:?}");
    }
    let alone = json!({"podControllers": {"controllers": []}});
    let mut labels = mutating(json!([apply(
        "Object{metadata: Object.metadata{labels: Object.metadata.labels{a: 'b'}}}"
    )]));
    labels["autogen"] = alone;
    assert_eq!(converted("MutatingPolicy", &labels).refusals, []);
}
