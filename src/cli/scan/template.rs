//! The Pods that workloads would make of their templates.

use serde_json::{Map, Value, json};

/// The group, the kind, and where its template of Pods is.
const WORKLOADS: [(&str, &str, &str); 7] = [
    ("apps", "Deployment", "/spec/template"),
    ("apps", "StatefulSet", "/spec/template"),
    ("apps", "DaemonSet", "/spec/template"),
    ("apps", "ReplicaSet", "/spec/template"),
    ("", "ReplicationController", "/spec/template"),
    ("batch", "Job", "/spec/template"),
    ("batch", "CronJob", "/spec/jobTemplate/spec/template"),
];

/// The Pod that `owner`, in this namespace, would have made; none where it is no workload,
/// or one that another workload made, which is judged by itself.
///
/// As its controller asks for it: with labels and annotations of the template and a reference
/// to the owner. What the controller makes up (hashes, indexes) is left out.
pub(crate) fn pod_of(owner: &Value, namespace: &str) -> Option<Value> {
    let text = |pointer: &str| owner.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("/apiVersion"), text("/kind"));
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let is_own = |(of_group, of_kind, _): &&(&str, &str, &str)| (*of_group, *of_kind) == (group, kind);
    let (.., pointer) = WORKLOADS.iter().find(is_own)?;
    if is_controlled(owner) {
        return None;
    }
    let template = owner.pointer(pointer)?.as_object()?;
    let name = text("/metadata/name");
    let mut metadata = Map::new();
    for field in ["labels", "annotations", "finalizers"] {
        if let Some(value) = template.get("metadata").and_then(|metadata| metadata.get(field)) {
            metadata.insert(field.to_owned(), value.clone());
        }
    }
    if kind == "StatefulSet" {
        metadata.insert("name".to_owned(), json!(format!("{name}-0")));
    } else {
        metadata.insert("generateName".to_owned(), json!(format!("{name}-")));
    }
    if !namespace.is_empty() {
        metadata.insert("namespace".to_owned(), json!(namespace));
    }
    let (of_version, of_kind) = controller(api_version, kind);
    metadata.insert(
        "ownerReferences".to_owned(),
        json!([{
            "apiVersion": of_version, "kind": of_kind, "name": name, "uid": text("/metadata/uid"),
            "controller": true, "blockOwnerDeletion": true,
        }]),
    );
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata});
    if let (Some(spec), Some(pod)) = (template.get("spec"), pod.as_object_mut()) {
        pod.insert("spec".to_owned(), spec.clone());
    }
    Some(pod)
}

/// Whose the Pods are: a Deployment has ReplicaSets make them, a CronJob Jobs.
fn controller<'k>(api_version: &'k str, kind: &'k str) -> (&'k str, &'k str) {
    match kind {
        "Deployment" => (api_version, "ReplicaSet"),
        "CronJob" => (api_version, "Job"),
        kind => (api_version, kind),
    }
}

fn is_controlled(object: &Value) -> bool {
    let references = object
        .pointer("/metadata/ownerReferences")
        .and_then(Value::as_array);
    let controls = |reference: &Value| reference.get("controller") == Some(&Value::Bool(true));
    references.is_some_and(|references| references.iter().any(controls))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(api_version: &str, kind: &str, spec: &Value) -> Value {
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "web"}, "spec": spec})
    }

    #[test]
    fn each_workload_makes_pods_of_its_template() {
        let template =
            json!({"metadata": {"labels": {"app": "web"}, "name": "ignored"}, "spec": {"containers": []}});
        for (api_version, kind, owner, named) in [
            ("apps/v1", "Deployment", "ReplicaSet", false),
            ("apps/v1", "StatefulSet", "StatefulSet", true),
            ("apps/v1", "DaemonSet", "DaemonSet", false),
            ("apps/v1", "ReplicaSet", "ReplicaSet", false),
            ("v1", "ReplicationController", "ReplicationController", false),
            ("batch/v1", "Job", "Job", false),
            ("batch/v1", "CronJob", "Job", false),
        ] {
            let spec = match kind {
                "CronJob" => json!({"jobTemplate": {"spec": {"template": template}}}),
                _ => json!({"template": template}),
            };
            let pod = pod_of(&workload(api_version, kind, &spec), "shop").unwrap();
            let metadata = &pod["metadata"];
            assert_eq!(
                (&pod["kind"], &metadata["namespace"]),
                (&json!("Pod"), &json!("shop"))
            );
            assert_eq!(metadata["labels"], json!({"app": "web"}), "{kind}");
            assert_eq!(metadata["ownerReferences"][0]["kind"], owner, "{kind}");
            let name = if named { json!("web-0") } else { Value::Null };
            assert_eq!(metadata["name"], name, "{kind}");
            assert_eq!(pod["spec"], json!({"containers": []}));
        }
    }

    #[test]
    fn what_another_workload_made_and_what_makes_no_pods_has_none() {
        let spec = json!({"template": {"spec": {}}});
        let mut made = workload("apps/v1", "ReplicaSet", &spec);
        made["metadata"]["ownerReferences"] = json!([{"kind": "Deployment", "controller": true}]);
        assert_eq!(pod_of(&made, "shop"), None);
        assert_eq!(
            pod_of(&workload("example.com/v1", "Deployment", &spec), "shop"),
            None
        );
        assert_eq!(
            pod_of(&workload("apps/v1", "Deployment", &json!({})), "shop"),
            None
        );
    }
}
