//! What RBAC objects and AuthorizationPolicies would grant, judged by invariants at `/validate`.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use portcullis_policy::admission::{AdmissionSettings, Outcome, Phase, RunOptions};
use portcullis_policy::manifest::ValidationContext;
use portcullis_policy::model::{Deadline, Time};

use crate::inner::{manifests, outcome};
use crate::reviews;

/// Nobody but the vault reads Secrets of production; the role `secrets` reads Secrets, and `all` is what
/// is labelled for it, for the group `dev` in prod-a.
const AROUND: &str = r#"
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationInvariant
metadata: {name: prod-secrets}
spec:
  only: [{kind: Group, name: vault}]
  resourceRules: [{verbs: [get], apiGroups: [""], resources: [secrets], namespaces: ["prod-*"]}]
  enforcement: Refuse
  reason: PCI 7.2
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: secrets}
rules: [{verbs: [get], apiGroups: [""], resources: [secrets]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: all}
aggregationRule: {clusterRoleSelectors: [{matchLabels: {all: "true"}}]}
rules: []
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: dev, namespace: prod-a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: all}
subjects: [{kind: Group, apiGroup: rbac.authorization.k8s.io, name: dev}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: ops, namespace: prod-a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: secrets}
subjects: [{kind: Group, apiGroup: rbac.authorization.k8s.io, name: ops}]
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: not-ops}
spec:
  effect: Deny
  subjects: [{kind: Group, name: ops}]
  resourceRules: [{verbs: ["*"], apiGroups: [""], resources: [secrets]}]
"#;

fn binding(namespace: &str, role: &str, group: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "b", "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": group}],
    })
}

fn cluster_role(name: &str, labels: &Value, verbs: &[&str]) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name, "labels": labels},
        "rules": [{"verbs": verbs, "apiGroups": [""], "resources": ["secrets"]}],
    })
}

fn policy(name: &str, group: &str, excluded: &str, effect: &str) -> Value {
    json!({
        "apiVersion": "portcullis.dev/v1alpha1", "kind": "AuthorizationPolicy", "metadata": {"name": name},
        "spec": {
            "effect": effect,
            "subjects": [{"kind": "Group", "name": group}],
            "excludeSubjects": [{"kind": "Group", "name": excluded}],
            "resourceRules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]}],
        },
    })
}

/// What `jane` is told who writes `object`, or as `request` says.
fn told(around: &str, object: &Value, request: &Value) -> Outcome {
    told_until(around, object, request, Deadline::NEVER)
}

fn told_until(around: &str, object: &Value, request: &Value, deadline: Deadline<'_>) -> Outcome {
    let manifests = manifests(around);
    let admission = manifests.admission(&AdmissionSettings::default());
    let (group, version) = object["apiVersion"].as_str().unwrap().split_once('/').unwrap();
    let kind = object["kind"].as_str().unwrap();
    let resource = match kind {
        "AuthorizationPolicy" => "authorizationpolicies".to_owned(),
        kind => format!("{}s", kind.to_lowercase()),
    };
    let all = json!({
        "uid": "u", "operation": "CREATE", "name": object["metadata"]["name"],
        "namespace": object["metadata"]["namespace"].as_str().unwrap_or_default(),
        "kind": {"group": group, "version": version, "kind": kind},
        "resource": {"group": group, "version": version, "resource": resource},
        "userInfo": {"username": "jane", "groups": ["system:authenticated"]}, "object": object,
    });
    let review = reviews::admission(&reviews::with(all, request));
    let policies = manifests.policies.for_cluster("default");
    let set = admission.for_cluster("default");
    let validation = ValidationContext::new(policies, set);
    let run = RunOptions {
        own_kinds: Some(&validation),
        deadline,
        ..RunOptions::new(&**policies, Time::parse("2026-12-01T00:00:00Z").unwrap())
    };
    outcome(Phase::Validate, set, &review, run)
}

fn refusal(object: &Value, request: &Value) -> Option<String> {
    let denial = told(AROUND, object, request).denial?;
    assert_eq!((denial.code, denial.reason.as_ref()), (403, "Forbidden"));
    Some(denial.message)
}

#[test]
fn a_binding_that_breaks_an_invariant_is_refused_with_who_could_do_what() {
    assert_eq!(
        refusal(&binding("prod-b", "secrets", "dev"), &json!({})).unwrap(),
        "AuthorizationInvariant/prod-secrets: broken by RoleBinding/prod-b/b, rule 0, such as: somebody \
         (dev): get secrets in prod-b (PCI 7.2)"
    );
    assert_eq!(refusal(&binding("dev", "secrets", "dev"), &json!({})), None);
    assert_eq!(refusal(&binding("prod-b", "secrets", "vault"), &json!({})), None);
    // A Deny takes it away.
    assert_eq!(refusal(&binding("prod-b", "secrets", "ops"), &json!({})), None);
}

#[test]
fn a_warning_is_not_a_refusal() {
    let around = AROUND.replace("enforcement: Refuse", "enforcement: Warn");
    let outcome = told(&around, &binding("prod-b", "secrets", "dev"), &json!({}));
    assert!(outcome.denial.is_none());
    let warnings: Vec<&str> = outcome.warnings.iter().collect();
    assert!(
        warnings[0].starts_with("AuthorizationInvariant/prod-secrets: broken by RoleBinding/prod-b/b"),
        "{warnings:?}"
    );
}

#[test]
fn a_label_is_judged_where_it_brings_rules_into_an_aggregated_role() {
    let labelled = cluster_role("more", &json!({"all": "true"}), &["get"]);
    let message = refusal(&labelled, &json!({})).unwrap();
    assert!(message.contains("broken by RoleBinding/prod-a/dev"), "{message}");
    assert_eq!(
        refusal(&cluster_role("more", &json!({}), &["get"]), &json!({})),
        None
    );
}

#[test]
fn what_is_not_aggregated_is_not_taken_for_what_it_grants() {
    // So many that what all of them are made of is not worked out; the controller works it out.
    let role = |number: usize| {
        let all = json!({"clusterRoleSelectors": [{"matchLabels": {"all": "true"}}]});
        let mut role = cluster_role(&format!("all-{number}"), &json!({}), &[]);
        role["rules"] = json!([]);
        role["aggregationRule"] = all;
        format!("\n---\n{role}")
    };
    let around = AROUND.to_owned() + &(0..200).map(role).collect::<String>();
    let labelled = cluster_role("more", &json!({"all": "true"}), &["get"]);
    let denial = told(&around, &labelled, &json!({})).denial.unwrap();
    assert!(
        denial.message.contains("aggregate fewer of them"),
        "{}",
        denial.message
    );
    // What grants nothing by them is judged as before.
    assert!(
        told(&around, &binding("prod-b", "secrets", "dev"), &json!({}))
            .denial
            .is_some()
    );
    assert!(
        told(&around, &binding("prod-b", "secrets", "vault"), &json!({}))
            .denial
            .is_none()
    );
}

#[test]
fn a_role_that_is_bound_is_judged() {
    let update = json!({"operation": "UPDATE", "oldObject": {}});
    let around = AROUND.replace(
        "verbs: [\"*\"], apiGroups: [\"\"], resources: [secrets]",
        "verbs: [get], apiGroups: [\"\"], resources: [pods]",
    );
    // What is broken already is not what the write breaks.
    let same = cluster_role("secrets", &json!({}), &["get"]);
    assert!(told(&around, &same, &update).denial.is_none());
    assert_eq!(
        refusal(&cluster_role("all", &json!({}), &["list"]), &update),
        None
    );
    let without_role = AROUND.replace("metadata: {name: all}", "metadata: {name: other}");
    let created = cluster_role("all", &json!({}), &["get"]);
    let denial = told(&without_role, &created, &json!({})).denial.unwrap();
    assert!(
        denial.message.contains("RoleBinding/prod-a/dev"),
        "{}",
        denial.message
    );
}

#[test]
fn an_allow_or_a_deny_that_is_narrowed_or_deleted_is_judged() {
    let message = refusal(&policy("more", "dev", "nobody", "Allow"), &json!({})).unwrap();
    assert!(
        message.contains("broken by AuthorizationPolicy/more"),
        "{message}"
    );
    assert_eq!(
        refusal(&policy("more", "vault", "nobody", "Allow"), &json!({})),
        None
    );

    let update = json!({"operation": "UPDATE", "oldObject": {}});
    let narrowed = policy("not-ops", "ops", "on-call", "Deny");
    let message = refusal(&narrowed, &update).unwrap();
    assert!(
        message.contains("(on-call, ops): get secrets in prod-a"),
        "{message}"
    );
    assert_eq!(refusal(&policy("not-ops", "ops", "vault", "Deny"), &update), None);

    let deny = policy("not-ops", "ops", "nobody", "Deny");
    let delete = json!({"operation": "DELETE", "oldObject": deny, "object": null});
    let message = refusal(&deny, &delete).unwrap();
    assert!(message.contains("broken by RoleBinding/prod-a/ops"), "{message}");
    let other = policy("other", "ops", "nobody", "Deny");
    assert_eq!(refusal(&other, &delete), None);
}

#[test]
fn those_who_must_not_be_held_back_are_not_judged() {
    let breaks = binding("prod-b", "secrets", "dev");
    for (user, groups) in [
        ("admin", vec!["system:masters"]),
        (
            "system:serviceaccount:kube-system:a",
            vec!["system:serviceaccounts:kube-system"],
        ),
    ] {
        let request = json!({"userInfo": {"username": user, "groups": groups}});
        assert_eq!(refusal(&breaks, &request), None, "{user}");
    }
    let subresource = json!({"subResource": "status"});
    assert_eq!(refusal(&breaks, &subresource), None);
}

#[test]
fn an_invariant_that_is_broken_already_is_stored_with_a_warning() {
    let invariant = json!({
        "apiVersion": "portcullis.dev/v1alpha1", "kind": "AuthorizationInvariant",
        "metadata": {"name": "nobody"},
        "spec": {
            "only": [], "enforcement": "Refuse",
            "subjects": [{"kind": "Group", "name": "vault"}],
            "resourceRules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]}],
        },
    });
    let grants = serde_json::to_string(&binding("dev", "secrets", "vault")).unwrap();
    let outcome = told(&format!("{AROUND}---\n{grants}\n"), &invariant, &json!({}));
    assert!(outcome.denial.is_none(), "{:?}", outcome.denial);
    let warnings: Vec<&str> = outcome.warnings.iter().collect();
    assert!(
        warnings[0].starts_with("AuthorizationInvariant/nobody: broken by RoleBinding/dev/b"),
        "{warnings:?}"
    );
    assert!(told(AROUND, &invariant, &json!({})).warnings.is_empty());
}

#[test]
fn an_invariant_may_be_deleted_whatever_it_holds_up() {
    let invariant = json!({
        "apiVersion": "portcullis.dev/v1alpha1", "kind": "AuthorizationInvariant",
        "metadata": {"name": "prod-secrets"},
        "spec": {
            "only": [{"kind": "Group", "name": "vault"}], "enforcement": "Refuse",
            "resourceRules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]}],
        },
    });
    let grants = serde_json::to_string(&binding("prod-a", "secrets", "dev")).unwrap();
    for around in [AROUND.to_owned(), format!("{AROUND}---\n{grants}\n")] {
        let deleted = json!({"operation": "DELETE", "oldObject": invariant, "object": null});
        for request in [deleted.clone(), reviews::with(deleted, &json!({"name": ""}))] {
            let outcome = told(&around, &invariant, &request);
            assert!(outcome.denial.is_none(), "{:?}", outcome.denial);
            assert!(outcome.warnings.is_empty());
        }
    }
}

#[test]
fn a_binding_to_a_role_that_is_not_known_is_refused_for_now() {
    let outcome = told(AROUND, &binding("prod-b", "unknown", "dev"), &json!({}));
    let message = outcome.denial.unwrap().message;
    assert!(
        message.contains("not decided: the ClusterRole `unknown`, to which"),
        "{message}"
    );
    assert!(outcome.awaits_role);
    // What it grants to the vault, or elsewhere, breaks nothing.
    for (namespace, group) in [("prod-b", "vault"), ("dev", "dev")] {
        let outcome = told(AROUND, &binding(namespace, "unknown", group), &json!({}));
        assert!(outcome.denial.is_none() && !outcome.awaits_role, "{outcome:?}");
    }
    // A gateway that is given no RBAC at all knows of no role, ever.
    let (invariant, _) = AROUND.split_once("---").unwrap();
    let outcome = told(invariant, &binding("prod-b", "unknown", "dev"), &json!({}));
    assert!(outcome.denial.is_none() && !outcome.awaits_role, "{outcome:?}");
    let warnings: Vec<&str> = outcome.warnings.iter().collect();
    assert!(warnings[0].contains("not decided"), "{warnings:?}");
    let around = AROUND.replace("enforcement: Refuse", "enforcement: Warn");
    let outcome = told(&around, &binding("prod-b", "unknown", "dev"), &json!({}));
    assert!(outcome.denial.is_none() && !outcome.awaits_role, "{outcome:?}");
}

#[test]
fn a_role_that_every_api_server_has_is_known() {
    for role in ["cluster-admin", "admin"] {
        let message = refusal(&binding("prod-b", role, "dev"), &json!({})).unwrap();
        let broken = "AuthorizationInvariant/prod-secrets: broken by RoleBinding/prod-b/b";
        assert!(message.starts_with(broken), "{message}");
    }
    assert_eq!(refusal(&binding("prod-b", "view", "dev"), &json!({})), None);
}

#[test]
fn a_policy_that_is_taken_away_is_judged_whoever_takes_it_and_however() {
    let deny = policy("not-ops", "ops", "nobody", "Deny");
    let collector = json!({
        "username": "system:serviceaccount:kube-system:generic-garbage-collector",
        "groups": ["system:serviceaccounts", "system:serviceaccounts:kube-system"],
    });
    let deleted = json!({"operation": "DELETE", "oldObject": deny, "object": null});
    // With `deletecollection` only the object has a name.
    let of_many = reviews::with(deleted.clone(), &json!({"name": ""}));
    // The garbage collector deletes what somebody gave an owner that is not there.
    let collected = reviews::with(deleted.clone(), &json!({"userInfo": collector}));
    // The finalizers of what was deleted before are taken away.
    let mut ending = deny.clone();
    ending["metadata"]["deletionTimestamp"] = json!("2026-11-30T00:00:00Z");
    let ended = json!({"operation": "UPDATE", "oldObject": ending, "object": ending});
    let ended_by_controller = reviews::with(ended.clone(), &json!({"userInfo": collector}));
    for request in [deleted, of_many, collected, ended, ended_by_controller] {
        let message = refusal(&deny, &request);
        let broken = "broken by RoleBinding/prod-a/ops";
        assert!(
            message.as_ref().is_some_and(|message| message.contains(broken)),
            "{message:?} for {request}"
        );
    }
    let unnamed = json!({"operation": "DELETE", "name": "", "oldObject": null, "object": null});
    assert!(refusal(&deny, &unnamed).is_some());
}

#[test]
fn what_is_not_proven_in_time_is_refused() {
    let late = Deadline::new(&|| true);
    let outcome = told_until(AROUND, &binding("dev", "secrets", "dev"), &json!({}), late);
    let denial = outcome.denial.unwrap();
    assert!(
        denial
            .message
            .contains("not decided: the comparison takes too long"),
        "{}",
        denial.message
    );
}

#[test]
fn an_attempt_ends_before_the_proof() {
    let needs_more = AtomicBool::new(false);
    let attempt = Deadline {
        expired: &|| false,
        needs_more_memory: Some(&needs_more),
    };
    told_until(AROUND, &binding("prod-b", "secrets", "dev"), &json!({}), attempt);
    assert!(needs_more.into_inner());
    let other = AtomicBool::new(false);
    let attempt = Deadline {
        expired: &|| false,
        needs_more_memory: Some(&other),
    };
    let pod =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "namespace": "b"}});
    told_until(AROUND, &pod, &json!({}), attempt);
    assert!(!other.load(Ordering::Relaxed));
}
