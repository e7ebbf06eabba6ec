//! Generated rules that change Pods.

use serde_json::{Value, json};

use crate::generated::{Case, case, chance, one_of, pod};
use crate::random::Random;

pub(crate) fn scalars(random: &mut Random, count: usize) -> Case {
    let texts = json!([
        "a",
        "b",
        "{{ request.userInfo.username }}",
        "{{ request.object.metadata.labels.a || 'none' }}"
    ]);
    let mut metadata = json!({});
    for map in ["labels", "annotations"] {
        for key in ["a", "+(a)", "example.com/b", "+(example.com/b)"] {
            if chance(random, 25) {
                metadata[map][key] = one_of(random, &texts);
            }
        }
    }
    let mut spec = json!({});
    let fields = [
        ("dnsPolicy", json!(["Default", "ClusterFirst"])),
        ("+(dnsPolicy)", json!(["Default"])),
        ("hostNetwork", json!([true])),
        ("+(securityContext)", json!([{"runAsNonRoot": true}])),
        (
            "securityContext",
            json!([{"+(runAsUser)": 5}, {"runAsNonRoot": true, "+(fsGroup)": 1}]),
        ),
    ];
    for (field, values) in fields {
        if chance(random, 25) {
            spec[field] = one_of(random, &values);
        }
    }
    let rule = json!({"mutate": {"patchStrategicMerge": {"metadata": metadata, "spec": spec}}});
    case(random, count, &json!(["Pod"]), rule, pod)
}

/// A Pod with a list or a map here and there, whose elements have names of their own.
fn patched_pod(random: &mut Random) -> Value {
    let mut pod = pod(random);
    let spec = &mut pod["spec"];
    for container in spec["containers"].as_array_mut().into_iter().flatten() {
        if let Some(container) = container.as_object_mut() {
            container.remove("ports");
        }
        let fields = [
            (
                "env",
                json!([[{"name": "A", "value": "1"}], [{"name": "B", "value": "2"}, {"name": "A", "value": "3"}]]),
            ),
            (
                "volumeMounts",
                json!([[{"name": "v", "mountPath": "/a"}], [{"name": "w", "mountPath": "/b"}, {"name": "v", "mountPath": "/a"}]]),
            ),
            (
                "resources",
                json!([{"limits": {"cpu": "1"}}, {"requests": {"memory": "1Gi"}}]),
            ),
            ("imagePullPolicy", json!(["Always"])),
            ("args", json!([["a"], ["b", "c"]])),
        ];
        for (field, values) in fields {
            if chance(random, 40) {
                container[field] = one_of(random, &values);
            }
        }
    }
    let fields = [
        (
            "tolerations",
            json!([[{"key": "a", "operator": "Exists"}], [{"key": "b", "operator": "Exists"}, {"key": "a", "operator": "Exists"}]]),
        ),
        (
            "imagePullSecrets",
            json!([[{"name": "a"}], [{"name": "b"}, {"name": "a"}]]),
        ),
        ("nodeSelector", json!([{"a": "b"}])),
        ("priorityClassName", json!(["high"])),
    ];
    for (field, values) in fields {
        if chance(random, 40) {
            spec[field] = one_of(random, &values);
        }
    }
    pod
}

fn operation(random: &mut Random, place: &str) -> Value {
    let paths = json!([
        "/metadata/labels/a",
        "/metadata/annotations/example.com~1b",
        "/spec/tolerations/-",
        "/spec/tolerations/0",
        "/spec/priorityClassName",
        "/spec/nodeSelector/a",
        "/spec/securityContext/runAsNonRoot",
        "/spec/containers/0/env/-",
        "/spec/containers/0/args/-",
        "/spec/containers/0/resources/limits/cpu",
        "/spec/containers/-1/imagePullPolicy",
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution\
/nodeSelectorTerms/-1/matchExpressions/-1",
    ]);
    let of_element = json!([
        "env/-",
        "args/-",
        "args/0",
        "resources/limits/cpu",
        "imagePullPolicy",
        "securityContext/runAsNonRoot"
    ]);
    let path = match place {
        "" => one_of(random, &paths),
        place => format!("{place}/{}", one_of(random, &of_element).as_str().unwrap()).into(),
    };
    let path = path.as_str().unwrap().to_owned();
    let value = match path.rsplit('/').find(|step| step.len() > 2) {
        Some("tolerations") => json!({"key": "c", "operator": "Exists"}),
        Some("env") => json!({"name": "C", "value": "x"}),
        Some("nodeSelectorTerms" | "matchExpressions") => json!({"key": "k", "operator": "Exists"}),
        Some("runAsNonRoot") => json!(true),
        Some("imagePullPolicy") => json!("IfNotPresent"),
        _ => json!("2"),
    };
    let operation = one_of(random, &json!(["add", "add", "add", "replace", "remove"]));
    json!({"op": operation, "path": path, "value": value})
}

pub(crate) fn json_patches(random: &mut Random, count: usize) -> Case {
    let operations: Value = (0..1 + random.below(3)).map(|_| operation(random, "")).collect();
    let rule = json!({"mutate": {"patchesJson6902": operations.to_string()}});
    case(random, count, &json!(["Pod"]), rule, patched_pod)
}

fn container_patch(random: &mut Random, name: &str, of: &Value) -> Value {
    let mut item = json!({name: of});
    let is_plain = !name.starts_with('(');
    let fields = [
        ("image", json!(["nginx:2"])),
        ("imagePullPolicy", json!(["Always", "Never"])),
        (
            "env",
            json!([[{"name": "A", "value": "9"}], [{"name": "C", "value": "9"}, {"name": "A", "value": "9"}]]),
        ),
        (
            "volumeMounts",
            json!([[{"name": "x", "mountPath": "/a"}], [{"name": "x", "mountPath": "/x", "readOnly": true}]]),
        ),
        (
            "securityContext",
            json!([{"runAsNonRoot": true, "capabilities": {"drop": ["ALL"]}}]),
        ),
        ("args", json!([["z"]])),
        (
            "resources",
            json!([{"limits": {"cpu": "2"}}, {"requests": {"memory": "2Gi", "cpu": "1"}}]),
        ),
    ];
    for (field, values) in fields {
        if chance(random, 35) {
            item[field] = one_of(random, &values);
        }
    }
    if !is_plain && chance(random, 20) {
        item["(image)"] = one_of(random, &json!(["nginx*", "*:7", "!redis*"]));
    }
    item
}

pub(crate) fn merges(random: &mut Random, count: usize) -> Case {
    let mut spec = json!({});
    let containers = match random.below(5) {
        0 => json!([container_patch(random, "name", &json!("c0"))]),
        1 => json!([
            container_patch(random, "name", &json!("c1")),
            container_patch(random, "name", &json!("new"))
        ]),
        2 => json!([{"<(image)": one_of(random, &json!(["nginx*", "redis:7", "*"]))}]),
        _ => {
            let names = one_of(random, &json!(["*", "?*", "c1", "c?", "!c0"]));
            json!([container_patch(random, "(name)", &names)])
        }
    };
    if chance(random, 80) {
        spec["containers"] = containers;
    }
    let fields = [
        (
            "volumes",
            json!([[{"name": "v", "emptyDir": {"medium": "Memory"}}], [{"name": "z", "emptyDir": {}}, {"name": "w", "hostPath": {"path": "/z"}}]]),
        ),
        (
            "imagePullSecrets",
            json!([[{"name": "a"}], [{"name": "c"}, {"name": "b"}]]),
        ),
        ("tolerations", json!([[{"key": "z", "operator": "Exists"}]])),
        ("+(tolerations)", json!([[{"key": "z", "operator": "Exists"}]])),
        ("nodeSelector", json!([{"c": "d", "+(a)": "e"}])),
        ("(dnsPolicy)", json!(["Default", "Cluster*", "*"])),
        (
            "securityContext",
            json!([{"+(runAsUser)": 5}, {"seccompProfile": {"type": "RuntimeDefault"}}, {}]),
        ),
    ];
    for (field, values) in fields {
        if chance(random, 20) {
            spec[field] = one_of(random, &values);
        }
    }
    let mut patch = json!({"spec": spec});
    if chance(random, 30) {
        patch["metadata"] = one_of(
            random,
            &json!([{"labels": {"+(a)": "n"}}, {"annotations": {"(x)": "*", "y": "1"}},
            {"labels": {"<(a)": "a", "b": "1"}}, {"annotations": {"y": "1"}}]),
        );
    }
    let rule = json!({"mutate": {"patchStrategicMerge": patch}});
    case(random, count, &json!(["Pod"]), rule, patched_pod)
}

pub(crate) fn loops(random: &mut Random, count: usize) -> Case {
    let conditions = json!([
        {"key": "{{ element.image }}", "operator": "Equals", "value": "nginx*"},
        {"key": "{{ element.imagePullPolicy || '' }}", "operator": "NotEquals", "value": "Always"},
        {"key": "{{ elementIndex }}", "operator": "Equals", "value": 0},
    ]);
    let lists = json!([
        "request.object.spec.containers",
        "request.object.spec.containers[]"
    ]);
    let mut each = json!({"list": one_of(random, &lists)});
    match random.below(6) {
        0 | 1 => {
            let operations: Value = (0..1 + random.below(2))
                .map(|_| operation(random, "/spec/containers/{{elementIndex}}"))
                .collect();
            each["patchesJson6902"] = operations.to_string().into();
        }
        2 => {
            each = json!({"list": "request.object.spec.volumes[]", "order": "Descending",
                "preconditions": {"all": [{"key": "{{ element.hostPath.path || '' }}", "operator": "NotEquals", "value": ""}]},
                "patchesJson6902": "- op: remove\n  path: /spec/volumes/{{elementIndex}}"});
        }
        3 => {
            each["list"] = one_of(
                random,
                &json!([
                    "request.object.spec.[initContainers, containers][]",
                    "request.object.spec.containers"
                ]),
            );
            each["patchStrategicMerge"] = json!({"metadata": {"annotations": {"example.com/{{ element.name }}": "{{ element.image }}"}}});
        }
        _ => {
            let key = one_of(random, &json!(["(name)", "name"]));
            let mut item = container_patch(random, key.as_str().unwrap(), &json!("{{ element.name }}"));
            if key == "(name)" && chance(random, 50) {
                item["resources"] = json!({"requests": {"+(memory)": "1Mi", "+(cpu)": "1"}});
            }
            each["patchStrategicMerge"] = json!({"spec": {"containers": [item]}});
        }
    }
    if each["preconditions"].is_null() && chance(random, 50) {
        each["preconditions"] = json!({"all": [one_of(random, &conditions)]});
    }
    let rule = json!({"mutate": {"foreach": [each]}});
    case(random, count, &json!(["Pod"]), rule, patched_pod)
}
