//! Patches change objects as Kyverno's do, or are refused.

use serde_json::{Value, json};

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

#[test]
fn what_merges_otherwise_is_refused_with_its_place() {
    let cases = [
        (json!({"spec": {"volumes": []}}), "spec.volumes"),
        (json!({"spec": {"hostname": null}}), "spec.hostname"),
        (json!({"spec": {"(hostname)": "a"}}), "spec.(hostname)"),
        (
            json!({"metadata": {"labels": {"a": "{{ request.object.spec.b }}"}}}),
            "metadata.labels.a",
        ),
        (
            json!({"metadata": {"labels": {"{{ request.name }}": "a"}}}),
            "metadata.labels.{{ request.name }}",
        ),
    ];
    for (patch, place) in cases {
        let refusals = refusals(&patching(&["Pod"], &patch));
        let place = format!("spec.rules[0].mutate.patchStrategicMerge.{place}: ");
        assert!(refusals[0].starts_with(&place), "{refusals:?}");
    }
    let atomic = refusals(&patching(
        &["Pod"],
        &json!({"spec": {"nodeSelector": {"a": "b"}}}),
    ));
    assert!(atomic[0].contains("which is atomic"), "{atomic:?}");
    let unknown = refusals(&patching(&["example.com/v1/Thing"], &json!({"spec": {"a": "b"}})));
    assert!(unknown[0].contains("types are not known"), "{unknown:?}");
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
