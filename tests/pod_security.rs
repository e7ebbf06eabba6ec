//! The Pod Security Standards of `config/policies/pod-security`, pod by pod.
//!
//! Each case names all the controls that refuse the pod, so that one which
//! refuses too much fails as one does that refuses too little.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, as it should"
)]

#[path = "pod_security/baseline.rs"]
mod baseline;
#[path = "harness/inner.rs"]
mod inner;
#[path = "pod_security/restricted.rs"]
mod restricted;
#[path = "harness/reviews.rs"]
mod reviews;

use std::path::Path;
use std::sync::{Arc, LazyLock};

use inner::outcome;
use portcullis_policy::admission::{AdmissionSet, AdmissionSettings, Phase, RunOptions};
use portcullis_policy::authorization::PolicySet;
use portcullis_policy::manifest::{Options, Source, load};
use portcullis_policy::model::Time;
use reviews::creation_of_pod;
use serde_json::{Value, json};

const NAMESPACES: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: privileged, labels: {pod-security.kubernetes.io/enforce: privileged}}
---
apiVersion: v1
kind: Namespace
metadata: {name: baseline, labels: {pod-security.kubernetes.io/enforce: baseline}}
---
apiVersion: v1
kind: Namespace
metadata: {name: restricted, labels: {pod-security.kubernetes.io/enforce: restricted}}
---
apiVersion: v1
kind: Namespace
metadata: {name: misspelt, labels: {pod-security.kubernetes.io/enforce: Baseline}}
---
apiVersion: v1
kind: Namespace
metadata: {name: unlabelled}
";

static SET: LazyLock<Arc<AdmissionSet>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/policies/pod-security");
    let mut sources = vec![source("namespaces", NAMESPACES.to_owned())];
    for level in ["baseline", "restricted"] {
        for entry in std::fs::read_dir(folder.join(level)).unwrap() {
            let path = entry.unwrap().path();
            sources.push(source(
                &path.display().to_string(),
                std::fs::read_to_string(&path).unwrap(),
            ));
        }
    }
    let (manifests, faults) = load(&sources, &Options::default());
    assert_eq!(faults.to_string(), "");
    let policies = manifests.unwrap().admission(&AdmissionSettings::default());
    Arc::clone(policies.for_cluster("default"))
});

fn source(file: &str, text: String) -> Source {
    Source {
        file: file.into(),
        text,
        cluster: None,
    }
}

// === what is asked ===

/// Whose pod, and what becomes of it.
struct Asked<'a> {
    namespace: &'a str,
    subresource: &'a str,
    object: &'a Value,
    old_object: Option<&'a Value>,
}

/// The controls that refuse, each with what it says.
fn refusals(asked: &Asked<'_>) -> Vec<(String, String)> {
    let operation = if asked.old_object.is_some() {
        "UPDATE"
    } else {
        "CREATE"
    };
    let review = creation_of_pod(asked.namespace, asked.object);
    let review = reviews::admission(&with(
        review["request"].clone(),
        &json!({"subResource": asked.subresource, "operation": operation, "oldObject": asked.old_object}),
    ));
    let mut refusals = Vec::new();
    let access = PolicySet::default();
    for policy in SET.validating_policies() {
        let run = RunOptions {
            only: Some(policy),
            ..RunOptions::new(&access, Time::UNIX_EPOCH)
        };
        if let Some(denial) = outcome(Phase::Validate, &SET, &review, run).denial {
            assert_eq!(denial.code, 403, "{}", denial.message);
            let message = denial.message.split_once(" denied request: ").unwrap().1;
            let control = policy.strip_prefix("pod-security-").unwrap();
            refusals.push((control.to_owned(), message.to_owned()));
        }
    }
    refusals
}

fn created(namespace: &str, pod: &Value) -> Vec<String> {
    let asked = Asked {
        namespace,
        subresource: "",
        object: pod,
        old_object: None,
    };
    refusals(&asked).into_iter().map(|(control, _)| control).collect()
}

fn updated(subresource: &str, old: &Value, new: &Value) -> Vec<String> {
    let asked = Asked {
        namespace: "baseline",
        subresource,
        object: new,
        old_object: Some(old),
    };
    refusals(&asked).into_iter().map(|(control, _)| control).collect()
}

// === pods ===

/// Sets what is in `change`, deeply; lists are replaced.
fn with(mut value: Value, change: &Value) -> Value {
    match (&mut value, change) {
        (Value::Object(fields), Value::Object(changes)) => {
            for (key, change) in changes {
                let old = fields.remove(key).unwrap_or(Value::Null);
                fields.insert(key.clone(), with(old, change));
            }
            value
        }
        _ => change.clone(),
    }
}

/// A pod that says nothing about security, which baseline takes.
fn mk_plain() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    })
}

/// A container that restricted takes.
fn mk_container() -> Value {
    json!({
        "name": "c", "image": "i",
        "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
    })
}

/// A pod that restricted takes.
fn mk_restricted() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [mk_container()],
        },
    })
}

/// The pod of the level, with `change`.
fn mk_pod(level: &str, change: &Value) -> Value {
    with(
        if level == "restricted" {
            mk_restricted()
        } else {
            mk_plain()
        },
        change,
    )
}

/// Pods of the level with a container that has `change`, once as each sort of container.
fn mk_pods_with_container(level: &str, change: &Value) -> Vec<Value> {
    let container = if level == "restricted" {
        mk_container()
    } else {
        json!({"name": "c", "image": "i"})
    };
    let changed = with(container.clone(), &json!({"name": "changed"}));
    let changed = with(changed, change);
    let sorts = ["containers", "initContainers", "ephemeralContainers"];
    let pods = sorts.map(|sort| {
        mk_pod(
            level,
            &json!({"spec": {"containers": [container], sort: [changed]}}),
        )
    });
    pods.to_vec()
}

/// What a table says: the level, a change, and all the controls that refuse it.
type Case = (&'static str, Value, &'static [&'static str]);

fn check_pods(cases: &[Case]) {
    for (level, change, expected) in cases {
        assert_eq!(
            created(level, &mk_pod(level, change)),
            *expected,
            "{level}: {change}"
        );
    }
}

fn check_containers(cases: &[Case]) {
    for (level, change, expected) in cases {
        for pod in mk_pods_with_container(level, change) {
            assert_eq!(created(level, &pod), *expected, "{level}: {pod}");
        }
    }
}

// === levels ===

#[test]
fn pods_of_each_level_pass_it() {
    for namespace in ["privileged", "unlabelled", "baseline"] {
        assert_eq!(created(namespace, &mk_plain()), [""; 0], "{namespace}");
        assert_eq!(created(namespace, &mk_restricted()), [""; 0], "{namespace}");
    }
    assert_eq!(created("restricted", &mk_restricted()), [""; 0]);
}

#[test]
fn a_pod_that_says_nothing_is_not_restricted() {
    let expected = [
        "restricted-capabilities",
        "restricted-privilege-escalation",
        "restricted-run-as-non-root",
        "restricted-seccomp",
    ];
    for namespace in ["restricted", "misspelt"] {
        assert_eq!(created(namespace, &mk_plain()), expected, "{namespace}");
    }
}

#[test]
fn the_label_of_the_namespace_decides() {
    let privileged = json!({"spec": {"containers": [{"name": "c", "image": "i", "securityContext": {"privileged": true}}]}});
    let pod = mk_pod("baseline", &privileged);
    for namespace in ["privileged", "unlabelled"] {
        assert_eq!(created(namespace, &pod), [""; 0], "{namespace}");
    }
    assert_eq!(created("baseline", &pod), ["baseline-privileged"]);
    for namespace in ["restricted", "misspelt"] {
        let refusals = created(namespace, &pod);
        assert!(
            refusals.contains(&"baseline-privileged".to_owned()),
            "{refusals:?}"
        );
    }
}

#[test]
fn refusals_name_the_containers() {
    let change = json!({"spec": {"hostNetwork": true, "containers": [
        {"name": "a", "securityContext": {"privileged": true}},
        {"name": "b"},
        {"name": "c", "securityContext": {"privileged": true}},
    ]}});
    let pod = mk_pod("baseline", &change);
    let asked = Asked {
        namespace: "baseline",
        subresource: "",
        object: &pod,
        old_object: None,
    };
    let expected = [
        (
            "baseline-host-namespaces",
            "host namespaces: the pod must not set hostNetwork",
        ),
        (
            "baseline-privileged",
            "privileged: containers a, c must not set securityContext.privileged to true",
        ),
    ];
    let expected = expected.map(|(control, message)| (control.to_owned(), message.to_owned()));
    assert_eq!(refusals(&asked), expected);
}

// === updates ===

#[test]
fn an_update_is_judged_if_it_runs_something_new() {
    let bad = json!({"spec": {"hostPID": true, "containers": [{"name": "c", "image": "i"}],
        "initContainers": [{"name": "n", "image": "i"}],
        "ephemeralContainers": [{"name": "e", "image": "i"}, {"name": "f", "image": "i"}]}});
    let old = mk_pod("baseline", &bad);
    let refused = ["baseline-host-namespaces"];
    for insignificant in [
        json!({}),
        json!({"metadata": {"labels": {"a": "b"}, "finalizers": []}}),
        json!({"spec": {"tolerations": [{"operator": "Exists"}], "activeDeadlineSeconds": 5}}),
        json!({"spec": {"ephemeralContainers": [{"name": "f", "image": "i"}]}}),
    ] {
        let new = with(old.clone(), &insignificant);
        assert_eq!(updated("", &old, &new), [""; 0], "{insignificant}");
    }
    for significant in [
        json!({"spec": {"containers": [{"name": "c", "image": "j"}]}}),
        json!({"spec": {"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "i"}]}}),
        json!({"spec": {"initContainers": [{"name": "n", "image": "j"}]}}),
        json!({"spec": {"initContainers": []}}),
        json!({"spec": {"ephemeralContainers": [{"name": "e", "image": "j"}]}}),
        json!({"spec": {"ephemeralContainers": [{"name": "g", "image": "i"}]}}),
    ] {
        let new = with(old.clone(), &significant);
        assert_eq!(updated("", &old, &new), refused, "{significant}");
    }
}

#[test]
fn ephemeral_containers_are_judged_and_other_subresources_are_not() {
    let old = mk_plain();
    let debugger = json!({"name": "d", "image": "i", "securityContext": {"privileged": true}});
    let new = mk_pod("baseline", &json!({"spec": {"ephemeralContainers": [debugger]}}));
    assert_eq!(
        updated("ephemeralcontainers", &old, &new),
        ["baseline-privileged"]
    );
    assert_eq!(updated("status", &old, &new), [""; 0]);
}
