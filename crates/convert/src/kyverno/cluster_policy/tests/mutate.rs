//! Patches change objects as Kyverno's do, or are refused.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{Request, cluster_policy, converted, loaded, pod, refusals, request};
use portcullis_policy::admission::Phase;
use portcullis_policy::explain::LoadedPolicies;

fn patching(kinds: &[&str], patch: &Value) -> Value {
    let matched = json!({"any": [{"resources": {"kinds": kinds}}]});
    cluster_policy(&json!([{"name": "r", "match": matched, "mutate": {"patchStrategicMerge": patch}}]))
}

/// The object of the request as it is admitted.
fn patched(request: &Request, by: &LoadedPolicies) -> Value {
    let answered = request.answered(by, &[Phase::Mutate]);
    let decided = answered.decided.unwrap();
    assert_eq!(decided.outcome.denial, None);
    decided.object.map_or_else(
        || request.0["object"].clone(),
        |object| serde_json::from_str(&object).unwrap(),
    )
}

#[test]
fn scalars_are_set_and_added_where_they_are_missing() {
    let patch = json!({
        "metadata": {"labels": {"team": "{{ request.userInfo.username || 'none' }}"}, "annotations": {"+(a/b)": "new"}},
        "spec": {"dnsPolicy": "Default", "securityContext": {"+(runAsUser)": 1000, "runAsNonRoot": true}},
    });
    let by = loaded(&converted(&patching(&["Pod"], &patch)));
    let mut object = pod(&json!({"dnsPolicy": "ClusterFirst"}));
    let made = patched(&request("pods", &object), &by);
    assert_eq!(made["metadata"]["labels"], json!({"team": "jane"}));
    assert_eq!(made["metadata"]["annotations"], json!({"a/b": "new"}));
    assert_eq!(
        made["spec"],
        json!({"dnsPolicy": "Default", "securityContext": {"runAsUser": 1000, "runAsNonRoot": true}})
    );
    object["metadata"]["annotations"] = json!({"a/b": "old"});
    object["spec"]["securityContext"] = json!({"runAsUser": 5});
    let made = patched(&request("pods", &object), &by);
    assert_eq!(made["metadata"]["annotations"], json!({"a/b": "old"}));
    assert_eq!(
        made["spec"]["securityContext"],
        json!({"runAsUser": 5, "runAsNonRoot": true})
    );
}

#[test]
fn a_patch_of_pods_is_one_of_what_makes_them() {
    let by = loaded(&converted(&patching(
        &["Pod"],
        &json!({"spec": {"dnsPolicy": "Default"}}),
    )));
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "x", "namespace": "web"}, "spec": {"template": {"spec": {}}}});
    let made = patched(&request("deployments", &deployment), &by);
    assert_eq!(made["spec"]["template"]["spec"], json!({"dnsPolicy": "Default"}));
    let system = request("deployments", &deployment).with("namespace", "kube-system".into());
    assert_eq!(patched(&system, &by), deployment);
}

/// A policy with one rule, for Pods alone.
fn changing(mutate: &Value) -> Value {
    let matched = json!({"any": [{"resources": {"kinds": ["Pod"]}}]});
    let mut policy = cluster_policy(&json!([{"name": "r", "match": matched, "mutate": mutate}]));
    policy["metadata"]["annotations"] = json!({"pod-policies.kyverno.io/autogen-controllers": "none"});
    policy
}

/// The Pod with this spec as it is admitted.
fn changed_pod(mutate: &Value, spec: &Value) -> Value {
    let by = loaded(&converted(&changing(mutate)));
    patched(&request("pods", &pod(spec)), &by)
}

fn json_patch(operations: &Value) -> Value {
    json!({"patchesJson6902": operations.to_string()})
}

#[test]
fn elements_are_merged_by_their_keys_and_come_first() {
    let merge = |patch: Value| json!({"patchStrategicMerge": {"spec": patch}});
    let before = json!({"containers": [
        {"name": "a", "image": "x:1", "env": [{"name": "P", "value": "1"}, {"name": "Q", "value": "2"}], "resources": {}},
        {"name": "b", "image": "y:1", "resources": {}},
    ]});
    let env = json!([{"name": "Q", "value": "3"}, {"name": "R", "value": "4"}]);
    let cases = [
        (
            json!({"containers": [{"(name)": "*", "env": env}]}),
            json!([
                {"name": "a", "image": "x:1", "resources": {},
                    "env": [{"name": "Q", "value": "3"}, {"name": "R", "value": "4"}, {"name": "P", "value": "1"}]},
                {"name": "b", "image": "y:1", "env": env, "resources": {}},
            ]),
        ),
        (
            json!({"containers": [{"name": "new", "image": "z"}, {"name": "b", "imagePullPolicy": "Always"}]}),
            json!([
                {"name": "new", "image": "z", "resources": {}},
                {"name": "b", "image": "y:1", "imagePullPolicy": "Always", "resources": {}},
                before["containers"][0],
            ]),
        ),
        (
            json!({"containers": [{"(name)": "*", "(image)": "y:*", "imagePullPolicy": "Always"}]}),
            json!([
                {"name": "b", "image": "y:1", "imagePullPolicy": "Always", "resources": {}},
                before["containers"][0],
            ]),
        ),
    ];
    for (patch, expected) in cases {
        let mutate = merge(patch.clone());
        let made = changed_pod(&mutate, &before);
        assert_eq!(made["spec"]["containers"], expected, "{patch}");
        // An API server has an error where an element of a list of its object is in the value of an operation.
        let text = json!(converted(&changing(&mutate)).objects).to_string();
        let mut values = text.split("value: ").skip(1);
        let in_value = values.find(|value| {
            value
                .split('}')
                .next()
                .is_some_and(|value| value.contains("filter("))
        });
        assert_eq!(in_value, None, "{patch}");
    }
    // Lists without a merge key are replaced.
    let made = changed_pod(
        &merge(json!({"tolerations": [{"key": "k", "operator": "Exists"}]})),
        &json!({"containers": [], "tolerations": [{"key": "j", "operator": "Exists"}]}),
    );
    assert_eq!(
        made["spec"]["tolerations"],
        json!([{"key": "k", "operator": "Exists"}])
    );
}

#[test]
fn conditions_in_a_patch_leave_the_object_alone() {
    let merge =
        |spec: Value| json!({"patchStrategicMerge": {"metadata": {"labels": {"seen": "yes"}}, "spec": spec}});
    let is_seen =
        |patch: &Value, spec: &Value| changed_pod(patch, spec)["metadata"]["labels"]["seen"] == "yes";
    let any_image = merge(json!({"containers": [{"<(image)": "corp/*"}]}));
    let of = |images: &[&str]| {
        let containers: Vec<Value> = images
            .iter()
            .map(|image| json!({"name": image, "image": image}))
            .collect();
        json!({"containers": containers})
    };
    assert!(is_seen(&any_image, &of(&["x", "corp/y"])));
    assert!(!is_seen(&any_image, &of(&["x"])));
    assert!(is_seen(&any_image, &of(&[])));
    assert!(!is_seen(&any_image, &json!({})));
    let volumes = merge(json!({"volumes": [{"<(emptyDir)": {}}]}));
    assert!(is_seen(
        &volumes,
        &json!({"volumes": [{"name": "v", "emptyDir": {}}]})
    ));
    assert!(!is_seen(
        &volumes,
        &json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]})
    ));
    let dns = merge(json!({"(dnsPolicy)": "Cluster*"}));
    assert!(is_seen(&dns, &json!({"dnsPolicy": "ClusterFirst"})));
    assert!(!is_seen(&dns, &json!({"dnsPolicy": "Default"})));
    assert!(!is_seen(&dns, &json!({})));
}

#[test]
fn operations_make_parents_and_pass_over_what_is_missing() {
    let toleration = |key: &str| json!({"key": key, "operator": "Exists"});
    let cases = [
        (
            json!([{"op": "add", "path": "/spec/tolerations/-", "value": toleration("n")}]),
            json!({}),
            json!({"tolerations": [toleration("n")]}),
        ),
        (
            json!([{"op": "add", "path": "/spec/tolerations/-", "value": toleration("n")}]),
            json!({"tolerations": [toleration("o")]}),
            json!({"tolerations": [toleration("o"), toleration("n")]}),
        ),
        (
            json!([{"op": "add", "path": "/spec/tolerations/-", "value": toleration("n")},
                {"op": "add", "path": "/spec/tolerations/-", "value": toleration("m")}]),
            json!({}),
            json!({"tolerations": [toleration("n"), toleration("m")]}),
        ),
        (
            json!([{"op": "add", "path": "/spec/securityContext/runAsNonRoot", "value": true},
                {"op": "add", "path": "/spec/securityContext/runAsUser", "value": 5}]),
            json!({}),
            json!({"securityContext": {"runAsNonRoot": true, "runAsUser": 5}}),
        ),
        (
            json!([{"op": "remove", "path": "/spec/securityContext/runAsUser"}]),
            json!({}),
            json!({}),
        ),
        (
            json!([{"op": "remove", "path": "/spec/nodeName"}]),
            json!({"nodeName": "n"}),
            json!({}),
        ),
        (
            json!([{"op": "replace", "path": "/spec/nodeName", "value": "m"}]),
            json!({"nodeName": "n"}),
            json!({"nodeName": "m"}),
        ),
    ];
    for (operations, before, after) in cases {
        let mut made = changed_pod(&json_patch(&operations), &before);
        made["spec"].as_object_mut().unwrap().remove("containers");
        assert_eq!(made["spec"], after, "{operations} {before}");
    }
    let by = loaded(&converted(&changing(&json_patch(
        &json!([{"op": "replace", "path": "/spec/nodeName", "value": "m"}]),
    ))));
    let answered = request("pods", &pod(&json!({}))).answered(&by, &[Phase::Mutate]);
    assert!(answered.decided.unwrap().outcome.denial.is_some());
    let policy = &converted(&changing(&json_patch(
        &json!([{"op": "add", "path": "/spec/tolerations/-", "value": toleration("n")}]),
    )))
    .objects[0];
    assert_eq!(policy["spec"]["reinvocationPolicy"], "Never");
}

#[test]
fn what_reads_its_own_change_runs_once() {
    let patch = json!({"metadata": {"labels": {"+(a)": "{{ request.userInfo.username }}",
        "b": "{{ request.object.metadata.labels.a || 'none' }}"}}});
    let made = changed_pod(&json!({"patchStrategicMerge": patch}), &json!({}));
    assert_eq!(made["metadata"]["labels"], json!({"a": "jane", "b": "none"}));
}

#[test]
fn loops_change_each_element() {
    let before = json!({"containers": [{"name": "a", "image": "x:1", "resources": {}}, {"name": "b", "image": "y:1", "resources": {}}],
        "volumes": [{"name": "h", "hostPath": {"path": "/"}}, {"name": "e", "emptyDir": {}}, {"name": "i", "hostPath": {"path": "/i"}}]});
    let looped = |each: Value| json!({"foreach": [each]});
    let made = changed_pod(
        &looped(
            json!({"list": "request.object.spec.containers", "patchesJson6902":
            "- op: add\n  path: /spec/containers/{{elementIndex}}/env/-\n  value: {name: IMAGE, value: \"{{ element.image }}\"}"}),
        ),
        &before,
    );
    assert_eq!(
        made["spec"]["containers"][1]["env"],
        json!([{"name": "IMAGE", "value": "y:1"}])
    );
    let made = changed_pod(
        &looped(
            json!({"list": "request.object.spec.volumes", "order": "Descending",
            "preconditions": {"all": [{"key": "{{ element.hostPath.path || '' }}", "operator": "NotEquals", "value": ""}]},
            "patchesJson6902": "- op: remove\n  path: /spec/volumes/{{elementIndex}}"}),
        ),
        &before,
    );
    assert_eq!(made["spec"]["volumes"], json!([{"name": "e", "emptyDir": {}}]));
    let made = changed_pod(
        &looped(json!({"list": "request.object.spec.containers",
            "patchStrategicMerge": {"metadata": {"annotations": {"of/{{ element.name }}": "{{ element.image }}"}}}})),
        &before,
    );
    assert_eq!(
        made["metadata"]["annotations"],
        json!({"of/a": "x:1", "of/b": "y:1"})
    );
    let made = changed_pod(
        &looped(
            json!({"list": "request.object.spec.[initContainers, containers][]",
            "patchStrategicMerge": {"spec": {"containers": [{"(name)": "{{element.name}}",
                "resources": {"requests": {"+(cpu)": "1", "memory": "1Mi"}}}]}}}),
        ),
        &before,
    );
    assert_eq!(
        made["spec"]["containers"][1]["resources"],
        json!({"requests": {"cpu": "1", "memory": "1Mi"}})
    );
    let only_added = looped(json!({"list": "request.object.spec.containers",
        "patchStrategicMerge": {"spec": {"containers": [{"(name)": "{{element.name}}",
            "resources": {"requests": {"+(cpu)": "1"}}}]}}}));
    let refused = &refusals(&changing(&only_added))[0];
    assert!(refused.contains("puts the others first"), "{refused}");
}

#[test]
fn a_condition_on_what_is_removed_has_no_error_once_it_is_gone() {
    let removes = json!({"patchesJson6902": json!([{"op": "remove", "path": "/spec/volumes"}]).to_string()});
    let mut policy = changing(&removes);
    policy["spec"]["rules"][0]["preconditions"] = json!({"all": [
        {"key": "{{ request.object.spec.volumes[].name | length(@) }}", "operator": "GreaterThan", "value": 0},
    ]});
    let made = converted(&policy);
    assert_eq!(made.objects[0]["spec"]["reinvocationPolicy"], "Never");
    let pod = pod(&json!({"containers": [], "volumes": [{"name": "a"}]}));
    let patched = patched(&request("pods", &pod), &loaded(&made));
    assert_eq!(patched["spec"], json!({"containers": []}));
}

#[test]
fn what_changes_otherwise_is_refused_with_its_place() {
    let cases = [
        (json!({"spec": {"hostname": null}}), "spec.hostname"),
        (json!({"spec": {"X(hostname)": "a"}}), "spec.X(hostname)"),
        (json!({"spec": {"surprise": "a"}}), "spec.surprise"),
        (
            json!({"spec": {"containers": [{"name": "a", "ports": [{"containerPort": 1}]}]}}),
            "spec.containers[0].ports",
        ),
        (
            json!({"spec": {"containers": [{"name": "{{ request.name }}"}]}}),
            "spec.containers[0]",
        ),
        (
            json!({"spec": {"containers": [{"(name)": "*", "+(image)": "a"}]}}),
            "spec.containers[0]",
        ),
        (
            json!({"metadata": {"labels": {"a": "{{ request.object.spec.b }}"}}}),
            "metadata.labels.a",
        ),
        (
            json!({"metadata": {"{{ request.name }}": "a"}}),
            "metadata.{{ request.name }}",
        ),
    ];
    for (patch, place) in cases {
        let refusals = refusals(&changing(&json!({"patchStrategicMerge": patch})));
        let place = format!("spec.rules[0].mutate.patchStrategicMerge.{place}: ");
        assert!(refusals[0].starts_with(&place), "{refusals:?}");
    }
    let operation = |op: &str, path: &str, value: Value| json!({"op": op, "path": path, "value": value});
    let cases = [
        (
            json!([operation("copy", "/spec/nodeName", Value::Null)]),
            "[0].op",
        ),
        (
            json!([operation("add", "/spec/surprise", "a".into())]),
            "[0].path",
        ),
        (
            json!([operation("add", "/spec/securityContext", json!({"a": 1}))]),
            "[0].value",
        ),
        (
            json!([operation("add", "/spec/nodeName/{{ request.name }}", "a".into())]),
            "[0].path",
        ),
        (
            json!([
                operation("remove", "/spec/nodeName", Value::Null),
                operation("add", "/spec/nodeName", "a".into())
            ]),
            "[1].path",
        ),
        (
            json!([
                operation("add", "/spec/tolerations/0", json!({})),
                operation("remove", "/spec/tolerations/1", Value::Null)
            ]),
            "[1].path",
        ),
    ];
    for (operations, place) in cases {
        let refusals = refusals(&changing(&json_patch(&operations)));
        let place = format!("spec.rules[0].mutate.patchesJson6902{place}: ");
        assert!(refusals[0].starts_with(&place), "{refusals:?}");
    }
    let unquoted = json!({"patchesJson6902": "- {op: add, path: /spec/nodeName, value: {{ request.userInfo.username }}}"});
    assert!(refusals(&changing(&unquoted))[0].contains("write it in double quotes"));
    let again = json!({"foreach": [
        {"list": "request.object.spec.volumes", "order": "Descending", "patchesJson6902": "- {op: remove, path: '/spec/volumes/{{elementIndex}}'}"},
        {"list": "request.object.spec.volumes", "patchesJson6902": "- {op: remove, path: '/spec/volumes/{{elementIndex}}/name'}"},
    ]});
    assert!(refusals(&changing(&again))[0].contains("which Kyverno looks at again"));
}

#[test]
fn what_a_patch_says_cannot_leave_its_text() {
    let hostile = "x'}] + [JSONPatch{op: 'remove', path: '/spec'}] //\\";
    let made = changed_pod(
        &json!({"patchStrategicMerge": {"metadata": {"labels": {hostile: hostile}}}}),
        &json!({}),
    );
    assert_eq!(made["metadata"]["labels"], json!({hostile: hostile}));
    let made = changed_pod(
        &json_patch(
            &json!([{"op": "add", "path": format!("/metadata/labels/{}", hostile.replace('/', "~1")), "value": hostile}]),
        ),
        &json!({}),
    );
    assert_eq!(made["metadata"]["labels"], json!({hostile: hostile}));
    // The value of a variable ends no text either.
    let named = json!({"patchesJson6902": "- op: add\n  path: /metadata/labels/a\n  value: \"{{ request.userInfo.username }}\""});
    let by = loaded(&converted(&changing(&named)));
    for (name, is_denied) in [
        ("jane", false),
        ("a\"\n- op: remove", true),
        ("a\\", true),
        ("{{ x }}", true),
    ] {
        let user = json!({"username": name, "groups": []});
        let answered = request("pods", &pod(&json!({})))
            .with("userInfo", user)
            .answered(&by, &[Phase::Mutate]);
        assert_eq!(
            answered.decided.unwrap().outcome.denial.is_some(),
            is_denied,
            "{name}"
        );
    }
}

/// Variables by name, each with its fields, in the order of a list.
fn variables() -> impl Strategy<Value = Vec<Value>> {
    let of_one = (prop::option::of("[0-2]"), any::<bool>()).prop_map(|(value, is_optional)| {
        let mut fields = Map::new();
        fields.extend(value.map(|value| ("value".to_owned(), value.into())));
        if is_optional {
            fields.insert("valueFrom".to_owned(), json!({"fieldRef": {"fieldPath": "a"}}));
        }
        fields
    });
    prop::collection::btree_map("[A-D]", of_one, 0..4)
        .prop_map(|all| {
            let named = all.into_iter().map(|(name, mut fields)| {
                fields.insert("name".to_owned(), name.into());
                Value::Object(fields)
            });
            named.collect::<Vec<Value>>()
        })
        .prop_shuffle()
}

/// What Kustomize makes of the two lists.
fn merged_by_name(patch: &[Value], list: &[Value]) -> Vec<Value> {
    let named = |list: &[Value], name: &Value| list.iter().find(|item| item["name"] == *name).cloned();
    let first = patch.iter().map(|item| {
        let mut merged = named(list, &item["name"]).unwrap_or_else(|| json!({}));
        for (field, value) in item.as_object().unwrap() {
            merged[field] = value.clone();
        }
        merged
    });
    let others = list
        .iter()
        .filter(|item| named(patch, &item["name"]).is_none())
        .cloned();
    first.chain(others).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn merged_lists_agree_with_the_reference(patch in variables(), list in variables()) {
        prop_assume!(!patch.is_empty());
        let mutate = json!({"patchStrategicMerge": {"spec": {"containers": [{"name": "c", "env": patch}]}}});
        let made = changed_pod(&mutate, &json!({"containers": [{"name": "c", "env": list}]}));
        let env = made["spec"]["containers"][0]["env"].as_array().cloned().unwrap_or_default();
        let expected: Vec<Value> = merged_by_name(&patch, &list);
        prop_assert_eq!(env, expected);
    }
}

#[test]
fn rules_that_change_objects_run_in_their_order() {
    let matched = json!({"any": [{"resources": {"kinds": ["Pod"]}}]});
    let set = |name: &str, value: &str| {
        json!({"name": name, "match": matched,
            "mutate": {"patchStrategicMerge": {"metadata": {"labels": {"a": value}}}}})
    };
    let made = converted(&cluster_policy(&json!([set("z", "first"), set("a", "last")])));
    let names: Vec<&str> = made
        .objects
        .iter()
        .filter(|object| object["kind"] == "MutatingAdmissionPolicy")
        .map(|object| object["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "p-1-z",
            "p-1-autogen-z",
            "p-1-autogen-cronjob-z",
            "p-2-a",
            "p-2-autogen-a",
            "p-2-autogen-cronjob-a"
        ]
    );
    let object = patched(&request("pods", &pod(&json!({}))), &loaded(&made));
    assert_eq!(object["metadata"]["labels"]["a"], "last");
}
