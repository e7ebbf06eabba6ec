//! Objects after a change: what Go reads them as and writes, or that it cannot.
//!
//! Each begins as Go writes it; then some of its values are removed, emptied, or replaced by others
//! of any type, and fields are added that no type has.

use portcullis_cel::json::Document;
use portcullis_policy::admission::GroupVersionKind;
use portcullis_policy::admission::apply::{DecodeMode, decode};
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::program::Oracle;
use crate::random::{Random, cases};

/// How objects are read, as the program calls it.
const READINGS: [(&str, DecodeMode); 3] = [
    ("strict", DecodeMode::Strict),
    ("lenient", DecodeMode::Lenient),
    ("apply", DecodeMode::Values),
];

/// A field that no type has.
const UNKNOWN: &str = "bogus";

#[derive(Serialize)]
struct Question {
    object: Value,
    how: &'static str,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Answer {
    object: Value,
    error: String,
}

struct Case {
    before: Value,
    after: Value,
    how: &'static str,
    reading: DecodeMode,
}

/// Objects in which many types occur.
fn objects() -> Vec<Value> {
    let of = |version: &str, kind: &str, rest: Value| {
        let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {
            "name": "a", "namespace": "b", "labels": {"a": "b"}, "annotations": {"c": "d", "e": ""},
            "finalizers": ["example.com/a"], "generation": 2, "creationTimestamp": "2026-01-02T03:04:05Z",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": "u", "controller": true}],
        }});
        object
            .as_object_mut()
            .unwrap()
            .extend(rest.as_object().unwrap().clone());
        object
    };
    let pod = json!({
        "containers": [{
            "name": "c", "image": "i", "command": ["a"], "env": [{"name": "A", "value": "1"},
                {"name": "B", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}}],
            "ports": [{"containerPort": 80, "protocol": "TCP"}],
            "resources": {"limits": {"cpu": "100m", "memory": "1Gi"}, "requests": {"cpu": 1}},
            "livenessProbe": {"httpGet": {"port": "web", "scheme": "HTTP"}, "periodSeconds": 10},
            "securityContext": {"runAsUser": 0, "privileged": false, "capabilities": {"drop": ["ALL"]}},
            "volumeMounts": [{"name": "v", "mountPath": "/v", "readOnly": true}], "tty": true,
        }],
        "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}, {"name": "w", "configMap": {"name": "m",
            "items": [{"key": "k", "path": "p", "mode": 0}], "optional": false}}],
        "securityContext": {"fsGroup": 1, "supplementalGroups": [1, 2], "sysctls": [{"name": "a", "value": "b"}]},
        "tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 0}],
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}}]}},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}],
        "nodeSelector": {"a": "b"}, "hostNetwork": true, "terminationGracePeriodSeconds": 0, "priority": 3,
        "overhead": {"cpu": "1"}, "dnsConfig": {"options": [{"name": "o", "value": "1"}]},
    });
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod});
    let rules =
        json!([{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]);
    vec![
        of(
            "v1",
            "Pod",
            json!({"spec": pod, "status": {"phase": "Running", "startTime": "2026-01-02T03:04:05Z"}}),
        ),
        of(
            "apps/v1",
            "Deployment",
            json!({"spec": {"replicas": 0, "minReadySeconds": 1, "selector": {"matchLabels": {"a": "b"}},
            "template": template, "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}}}}),
        ),
        of(
            "apps/v1",
            "StatefulSet",
            json!({"spec": {"serviceName": "s", "selector": {}, "template": template,
            "volumeClaimTemplates": [{"metadata": {"name": "v"}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}]}}),
        ),
        of(
            "batch/v1",
            "CronJob",
            json!({"spec": {"schedule": "* * * * *", "suspend": false,
            "jobTemplate": {"spec": {"template": template, "backoffLimit": 0}}}}),
        ),
        of(
            "v1",
            "ConfigMap",
            json!({"data": {"a": "1"}, "binaryData": {"b": "YQ=="}, "immutable": false}),
        ),
        of("v1", "Secret", json!({"data": {"a": "YWI="}, "type": "Opaque"})),
        of(
            "v1",
            "Service",
            json!({"spec": {"ports": [{"port": 80, "targetPort": "web", "name": "n"}],
            "selector": {"a": "b"}, "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 1}}}}),
        ),
        of(
            "v1",
            "PersistentVolume",
            json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": "d", "volumeHandle": "h", "volumeAttributes": {"a": "b"}}}}),
        ),
        of(
            "v1",
            "ResourceQuota",
            json!({"spec": {"hard": {"pods": "10", "requests.cpu": "1500m"}}}),
        ),
        of(
            "v1",
            "Node",
            json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule",
            "timeAdded": "2026-01-02T03:04:05Z"}], "podCIDRs": ["10.0.0.0/8"]},
            "status": {"capacity": {"cpu": "4"}, "images": [{"names": ["i"], "sizeBytes": 5}]}}),
        ),
        of(
            "events.k8s.io/v1",
            "Event",
            json!({"eventTime": "2026-01-02T03:04:05.000006Z", "reason": "r",
            "series": {"count": 2, "lastObservedTime": "2026-01-02T03:04:05.000006Z"}, "regarding": {"kind": "Pod"}}),
        ),
        of(
            "coordination.k8s.io/v1",
            "Lease",
            json!({"spec": {"holderIdentity": "h", "leaseDurationSeconds": 15,
            "renewTime": "2026-01-02T03:04:05.000006Z"}}),
        ),
        of(
            "networking.k8s.io/v1",
            "Ingress",
            json!({"spec": {"rules": [{"host": "h", "http": {"paths": [{"path": "/",
            "pathType": "Prefix", "backend": {"service": {"name": "s", "port": {"number": 80}}}}]}}], "tls": [{}]}}),
        ),
        of(
            "networking.k8s.io/v1",
            "NetworkPolicy",
            json!({"spec": {"podSelector": {}, "ingress": [{"from": [
            {"ipBlock": {"cidr": "10.0.0.0/8"}}], "ports": [{"port": "web"}, {"port": 80, "endPort": 90}]}]}}),
        ),
        of(
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            json!({"spec": {"maxReplicas": 3, "scaleTargetRef":
            {"kind": "Deployment", "name": "d"}, "metrics": [{"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "AverageValue", "averageValue": "100m"}}}]}}),
        ),
        of(
            "policy/v1",
            "PodDisruptionBudget",
            json!({"spec": {"minAvailable": "50%", "selector": {}}}),
        ),
        of(
            "rbac.authorization.k8s.io/v1",
            "ClusterRole",
            json!({"rules": [{"verbs": ["get"], "apiGroups": [""],
            "resources": ["pods"]}], "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}}),
        ),
        of(
            "rbac.authorization.k8s.io/v1",
            "RoleBinding",
            json!({"subjects": [{"kind": "User", "name": "u"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}}),
        ),
        of(
            "admissionregistration.k8s.io/v1",
            "ValidatingWebhookConfiguration",
            json!({"webhooks": [{"name": "w",
            "clientConfig": {"caBundle": "YQ==", "service": {"namespace": "n", "name": "s", "port": 443}},
            "rules": rules, "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 5}]}),
        ),
        of(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            json!({"spec": {"group": "g", "names": {"plural": "p",
            "kind": "K"}, "scope": "Namespaced", "versions": [{"name": "v1", "served": true, "storage": true, "schema":
            {"openAPIV3Schema": {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0.5,
            "maxLength": 5, "enum": [1, "2"], "default": {"x": 1}}}}}}]}}),
        ),
        of(
            "resource.k8s.io/v1",
            "ResourceClaim",
            json!({"spec": {"devices": {"requests": [{"name": "r", "exactly":
            {"deviceClassName": "c", "count": 1}}], "config": [{"opaque": {"driver": "d", "parameters": {"a": 1}}}]}}}),
        ),
        of(
            "storage.k8s.io/v1",
            "StorageClass",
            json!({"provisioner": "p", "allowVolumeExpansion": false,
            "parameters": {"a": "b"}, "mountOptions": ["m"]}),
        ),
    ]
}

/// Values of every type, right and wrong; maps with keys only where `has_unknown`.
fn value(random: &mut Random, has_unknown: bool) -> Value {
    let texts = [
        "",
        "a",
        "1",
        "100m",
        "1000m",
        "0.5Gi",
        "1e3",
        "1x",
        "YWI=",
        "YWI",
        "Y\nWI=",
        "YWJ=",
        "!",
        "2026-01-02T03:04:05Z",
        "2026-01-02T03:04:05.5+01:00",
        "2026-01-02T03:04:05.000006Z",
        "2026-01-02T03:04:05.000006+01:00",
        "2026-02-30T00:00:00Z",
        " 1 ",
        "25%",
    ];
    match random.below(10) {
        0 => Value::Null,
        1 => json!(random.below(2) == 1),
        2 => json!([0, 1, -1, 80, 5_000_000_000_i64, -9_007_199_254_740_993_i64][random.below(6)]),
        3 => json!([0.0, 1.5, 2.0, -0.5, 1e9][random.below(5)]),
        4 => json!([]),
        5 => json!({}),
        6 => json!([value(random, has_unknown)]),
        7 if has_unknown => json!({(*random.pick(&["a", "name", UNKNOWN])): value(random, has_unknown)}),
        _ => json!(*random.pick(&texts)),
    }
}

/// Changes something somewhere in `within`, and adds fields that may not be known where
/// `has_unknown`.
fn change(random: &mut Random, within: &mut Value, has_unknown: bool) {
    let is_deep = random.below(8) > 0;
    match within {
        Value::Object(map) if !map.is_empty() && is_deep => {
            let keys: Vec<String> = map.keys().filter(|key| !is_type_meta(key)).cloned().collect();
            let Some(key) = keys.get(random.below(keys.len().max(1))) else {
                return;
            };
            change(random, &mut map[key.as_str()], has_unknown);
        }
        Value::Array(items) if !items.is_empty() && is_deep => {
            let place = random.below(items.len());
            change(random, &mut items[place], has_unknown);
        }
        Value::Object(map) => change_map(random, map, has_unknown),
        Value::Array(items) => match random.below(3) {
            0 => items.clear(),
            1 => items.push(value(random, has_unknown)),
            _ => drop(items.pop()),
        },
        other => *other = value(random, has_unknown),
    }
}

fn is_type_meta(key: &str) -> bool {
    matches!(key, "apiVersion" | "kind")
}

fn change_map(random: &mut Random, map: &mut Map<String, Value>, has_unknown: bool) {
    let keys: Vec<String> = map.keys().filter(|key| !is_type_meta(key)).cloned().collect();
    let key = keys.get(random.below(keys.len().max(1)));
    match (random.below(4), key) {
        (0, Some(key)) => drop(map.remove(key)),
        (1, Some(key)) => drop(map.insert(key.clone(), value(random, has_unknown))),
        (2, _) if has_unknown => drop(map.insert(UNKNOWN.to_owned(), value(random, has_unknown))),
        _ if has_unknown => {
            let names = [
                "name",
                "labels",
                "replicas",
                "priority",
                "data",
                "value",
                "spec",
                "resources",
            ];
            map.insert((*random.pick(&names)).to_owned(), value(random, has_unknown));
        }
        _ => {}
    }
}

// === impl Case ===

impl Case {
    fn generate(random: &mut Random, objects: &[Value]) -> Self {
        let before = objects[random.below(objects.len())].clone();
        let mut after = before.clone();
        let (how, reading) = READINGS[random.below(READINGS.len())];
        for _ in 0..=random.below(3) {
            // Elsewhere what is not known is dropped there, and kept here.
            change(random, &mut after, reading == DecodeMode::Strict);
        }
        Self {
            before,
            after,
            how,
            reading,
        }
    }

    fn answer(&self) -> Answer {
        let [before, after] =
            [&self.before, &self.after].map(|value| Document::parse(value.to_string()).unwrap());
        let text = |field: &str| self.before[field].as_str().unwrap();
        let (group, version) = text("apiVersion")
            .split_once('/')
            .unwrap_or(("", text("apiVersion")));
        let kind = GroupVersionKind {
            group: group.into(),
            version: version.into(),
            kind: text("kind").into(),
        };
        match decode(&kind, before.root(), after.root(), self.reading) {
            Ok(decoded) => {
                let text = decoded.text.unwrap_or_else(|| self.after.to_string());
                let object: Value = serde_json::from_str(&text).unwrap();
                // What is not known makes no difference, and is an error only here.
                if self.reading == DecodeMode::Strict && !self.after.to_string().contains(UNKNOWN) {
                    assert_eq!(
                        decoded.is_changed,
                        semantic(&object) != semantic(&self.before),
                        "{} {}",
                        self.before,
                        self.after
                    );
                }
                Answer {
                    object,
                    error: String::new(),
                }
            }
            Err(error) => Answer {
                object: Value::Null,
                error: error.to_string(),
            },
        }
    }
}

/// Empty lists and maps are the same as none (`equality.Semantic`).
fn semantic(value: &Value) -> Value {
    match value {
        Value::Object(map) if map.is_empty() => Value::Null,
        Value::Array(items) if items.is_empty() => Value::Null,
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| (key.clone(), semantic(value)))
            .collect(),
        Value::Array(items) => items.iter().map(semantic).collect(),
        other => other.clone(),
    }
}

/// Where two values differ, and how.
fn differing(path: &str, expected: &Value, actual: &Value, found: &mut Vec<String>) {
    match (expected, actual) {
        (Value::Object(one), Value::Object(other)) => {
            let keys: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            for key in keys {
                let of = |map: &Map<String, Value>| map.get(key).cloned().unwrap_or(json!("<absent>"));
                differing(&format!("{path}/{key}"), &of(one), &of(other), found);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (place, (one, other)) in one.iter().zip(other).enumerate() {
                differing(&format!("{path}/{place}"), one, other, found);
            }
        }
        (one, other) if one == other => {}
        (one, other) => found.push(format!("{path}: {one}, not {other}")),
    }
}

pub(crate) fn changed_objects_are_what_their_go_types_make_of_them() {
    let Some(mut oracle) = Oracle::start("objects") else {
        return;
    };
    let questions: Vec<Question> = objects()
        .into_iter()
        .map(|object| Question {
            object,
            how: "strict",
        })
        .collect();
    let answers: Vec<Answer> = oracle.ask(&questions);
    let errors: Vec<&str> = answers
        .iter()
        .map(|answer| answer.error.as_str())
        .filter(|error| !error.is_empty())
        .collect();
    assert_eq!(errors, [""; 0]);
    let objects: Vec<Value> = answers.into_iter().map(|answer| answer.object).collect();

    let mut random = Random::of(7);
    let (mut refused, mut differences) = (0, Vec::new());
    let count = cases(20_000);
    for _ in 0..count.div_ceil(1_000) {
        let some: Vec<Case> = (0..1_000)
            .map(|_| Case::generate(&mut random, &objects))
            .collect();
        let questions: Vec<Question> = some
            .iter()
            .map(|case| Question {
                object: case.after.clone(),
                how: case.how,
            })
            .collect();
        let answers: Vec<Answer> = oracle.ask(&questions);
        for (case, expected) in some.iter().zip(answers) {
            refused += usize::from(!expected.error.is_empty());
            let actual = case.answer();
            let is_same = match expected.error.is_empty() {
                true => actual.error.is_empty() && actual.object == expected.object,
                false => !actual.error.is_empty(),
            };
            if !is_same {
                let mut found = Vec::new();
                differing("", &case.before, &case.after, &mut found);
                let change = found.join(", ");
                found.clear();
                differing("", &expected.object, &actual.object, &mut found);
                differences.push(format!(
                    "{} {}: {change}\n  Go {:?}\n  here {:?}\n  {}",
                    case.how,
                    case.before["kind"],
                    expected.error,
                    actual.error,
                    found.join(", ").chars().take(500).collect::<String>()
                ));
            }
        }
    }
    println!("{count} objects, {refused} refused");
    let shown: Vec<&str> = differences.iter().take(10).map(String::as_str).collect();
    assert!(
        differences.is_empty(),
        "{} of {count} differ\n{}",
        differences.len(),
        shown.join("\n")
    );
    assert!(
        refused > count / 10 && refused < count * 9 / 10,
        "the objects say too little: {refused}"
    );
}
