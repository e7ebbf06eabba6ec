//! Invariants: what is made of the objects of users to prove them.

use portcullis_cel::json::Document;
use portcullis_policy::admission::{AdmissionSettings, OwnKindValidator, RunOptions};
use portcullis_policy::api::AdmissionReview;
use portcullis_policy::authorization::PolicySet;
use portcullis_policy::authorization::proof::{InvariantProof, InvariantStatus, UnknownRoles, WorkLimit};
use portcullis_policy::manifest::ValidationContext;
use portcullis_policy::model::{Deadline, Time};
use serde_json::{Value, json};

use crate::inner::manifests;
use crate::measure;

const LIMIT: WorkLimit<'static> = WorkLimit {
    parts: 10_000,
    deadline: Deadline::NEVER,
};

fn invariant() -> Value {
    json!({
        "apiVersion": "portcullis.dev/v1alpha1", "kind": "AuthorizationInvariant", "metadata": {"name": "i"},
        "spec": {
            "only": [{"kind": "Group", "name": "vault"}], "enforcement": "Refuse",
            "resourceRules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["*"], "namespaces": ["prod"]}],
        },
    })
}

fn role(rules: &Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": "r", "namespace": "prod"}, "rules": rules,
    })
}

fn binding(subjects: &[Value]) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "b", "namespace": "prod"}, "subjects": subjects,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
    })
}

fn subject(kind: &str, name: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name})
}

/// Many rules, and conditions as long as all of these.
fn conditional(condition: &str) -> Value {
    let rule = |name: &String| json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "names": [name], "namespaces": ["prod"]});
    let rules: Vec<Value> = words("n", 1_500).iter().map(rule).collect();
    json!({
        "apiVersion": "portcullis.dev/v1alpha1", "kind": "AuthorizationPolicy", "metadata": {"name": "p"},
        "spec": {
            "effect": "Allow", "subjects": [{"kind": "Group", "name": "dev"}], "resourceRules": rules,
            "conditions": [{"name": "c", "expression": condition}],
        },
    })
}

fn words(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|at| format!("{prefix}{at:x}")).collect()
}

/// Objects that are products of what they name, as a user may write them who is bound to everything.
fn products() -> Vec<(&'static str, usize, PolicySet)> {
    let dev = [subject("Group", "dev")];
    let of = |kind: &str, count| -> Vec<Value> {
        words("s", count).iter().map(|name| subject(kind, name)).collect()
    };
    let rule = |resources: Vec<String>, names: Vec<String>| json!({"verbs": ["get"], "apiGroups": [""], "resources": resources, "resourceNames": names});
    let rules = |count| -> Vec<Value> {
        let of = |name: &String| rule(vec!["pods".to_owned()], vec![name.clone()]);
        words("n", count).iter().map(of).collect()
    };
    let objects = [
        (
            "names and subresources",
            rule(words("a/", 9_000), words("n", 9_000)),
            dev.to_vec(),
        ),
        (
            "subresources",
            rule(words("a/", 40_000), Vec::new()),
            dev.to_vec(),
        ),
        ("rules and groups", json!(rules(1_500)), of("Group", 3_000)),
        ("rules and users", json!(rules(1_500)), of("User", 3_000)),
    ];
    let sets = objects.map(|(name, rules, subjects)| {
        let rules = if rules.is_array() { rules } else { json!([rules]) };
        set_of(name, &[role(&rules), binding(&subjects), invariant()])
    });
    let long = format!("request.user.contains('{}')", "a".repeat(50_000));
    let groups: Vec<String> = words("g", 60)
        .iter()
        .map(|name| format!("g == '{name}'"))
        .collect();
    let groups = format!("request.groups.exists(g, {})", groups.join(" || "));
    let nested = (0..30).fold("request.uid.contains('x')".to_owned(), |inner, at| {
        format!("(request.user.contains('{at}') || (request.uid.contains('{at}') && {inner}))")
    });
    let conditions = [
        ("long condition", long),
        ("groups", groups),
        ("nested condition", nested),
    ];
    let conditional = conditions.map(|(name, text)| set_of(name, &[conditional(&text), invariant()]));
    sets.into_iter().chain(conditional).collect()
}

fn set_of(name: &'static str, objects: &[Value]) -> (&'static str, usize, PolicySet) {
    let text: Vec<String> = objects.iter().map(Value::to_string).collect();
    let set = manifests(&text.join("\n---\n"))
        .policies
        .for_cluster("default")
        .as_ref()
        .clone();
    (name, text.concat().len(), set)
}

#[test]
fn a_proof_takes_memory_in_proportion_to_the_objects() {
    let _turn = crate::turn();
    let now = Time::parse("2026-12-01T00:00:00Z").unwrap();
    measure("proof", 400.0, products(), |set| {
        let Ok(proof) = InvariantProof::of_set(set, now, LIMIT) else {
            return;
        };
        let invariant = set.invariants().next().unwrap();
        let status = proof.status(invariant, UnknownRoles::Undecided);
        assert!(!matches!(status, InvariantStatus::Holds), "{status:?}");
    });
}

/// An object of RBAC that an API server takes: no larger, and as many values as there may be.
fn largest() -> Vec<(&'static str, usize, String)> {
    let list = vec!["a"; 700_000];
    let fields: serde_json::Map<String, Value> = words("f:", 250_000)
        .into_iter()
        .map(|name| (name, json!({})))
        .collect();
    let mut managed = role(&json!([]));
    managed["metadata"]["managedFields"] = json!([{"fieldsV1": fields}]);
    let subjects: Vec<Value> = vec![subject("User", "a"); 40_000];
    let objects = [
        (
            "verbs",
            role(&json!([{"verbs": list, "apiGroups": [""], "resources": ["pods"]}])),
        ),
        ("managed fields", managed),
        ("subjects", binding(&subjects)),
    ];
    let review = |(name, object): (&'static str, Value)| {
        let kind = object["kind"].as_str().unwrap().to_owned();
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "u", "operation": "CREATE", "name": object["metadata"]["name"], "namespace": "prod",
                "kind": {"group": "rbac.authorization.k8s.io", "version": "v1", "kind": kind},
                "resource": {
                    "group": "rbac.authorization.k8s.io", "version": "v1",
                    "resource": format!("{}s", kind.to_lowercase()),
                },
                "userInfo": {"username": "jane"}, "object": object,
            },
        });
        let text = review.to_string();
        (name, text.len(), text)
    };
    objects.map(review).into()
}

#[test]
fn a_write_is_judged_in_memory_in_proportion_to_it() {
    let _turn = crate::turn();
    let now = Time::parse("2026-12-01T00:00:00Z").unwrap();
    let manifests = manifests(&invariant().to_string());
    let admission = manifests.admission(&AdmissionSettings::default());
    let validation = ValidationContext::new(
        manifests.policies.for_cluster("default"),
        admission.for_cluster("default"),
    );
    measure("judged write", 50.0, largest(), |text| {
        let document = Document::parse(text.clone()).unwrap();
        let review = AdmissionReview::decode(&document).unwrap();
        let run = RunOptions::new(&**manifests.policies.for_cluster("default"), now);
        validation.validate(&review.request, run).unwrap();
    });
}
