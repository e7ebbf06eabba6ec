//! AccessRequests as users write them: what `/mutate` makes of them, and what `/validate` refuses.

use serde_json::{Value, json};

use portcullis_policy::admission::{AdmissionSettings, Outcome, Phase, RunOptions};
use portcullis_policy::authorization::{AccessRequestSettings, AccessRequestTrust, PolicySet};
use portcullis_policy::manifest::ValidationContext;
use portcullis_policy::model::Time;

use crate::inner::{manifests, outcome, patched};
use crate::reviews;

const NOW: &str = "2026-12-01T00:00:00Z";

/// Ann and Pat may ask for `edit` in `prod`; Ann, Bob and Cid may approve it there; Cid may lift `frozen`.
const AROUND: &str = r#"
apiVersion: v1
kind: List
items:
- {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: edit}, rules: []}
- {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: asks}, rules: [
    {verbs: [request], apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], resourceNames: [edit]}]}
- {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: approves}, rules: [
    {verbs: [approve], apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], resourceNames: [edit]}]}
- {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: lifts}, rules: [
    {verbs: [lift], apiGroups: [portcullis.dev], resources: [authorizationpolicies], resourceNames: [frozen]}]}
- {apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: asks, namespace: prod},
   roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: asks},
   subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ann}, {apiGroup: rbac.authorization.k8s.io, kind: User, name: pat}]}
- {apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: approves, namespace: prod},
   roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: approves},
   subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ann},
     {apiGroup: rbac.authorization.k8s.io, kind: User, name: bob}, {apiGroup: rbac.authorization.k8s.io, kind: User, name: cid}]}
- {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: lifts},
   roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: lifts},
   subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: cid}]}
- {apiVersion: portcullis.dev/v1alpha1, kind: AuthorizationPolicy, metadata: {name: frozen}, spec: {effect: Deny,
    liftable: true, subjects: [{kind: User, name: ann}],
    resourceRules: [{verbs: [update], apiGroups: [""], resources: [pods]}]}}
"#;

fn policies(around: &str) -> PolicySet {
    let manifests = manifests(around);
    let settings = AccessRequestSettings {
        max_duration_seconds: 8 * 3600,
        approvals: 1,
    };
    let trust = AccessRequestTrust {
        settings,
        since: None,
    };
    (**manifests.policies.for_cluster("default"))
        .clone()
        .with_access_request_trust(Some(trust))
}

fn run(phase: Phase, request: &Value) -> Outcome {
    run_with(AROUND, phase, request)
}

fn run_with(around: &str, phase: Phase, request: &Value) -> Outcome {
    let policies = policies(around);
    let admission = manifests(around).admission(&AdmissionSettings::default());
    let set = admission.for_cluster("default");
    let validation = ValidationContext::new(&policies, set);
    let run = RunOptions {
        own_kinds: Some(&validation),
        ..RunOptions::new(&policies, Time::parse(NOW).unwrap())
    };
    outcome(phase, set, &reviews::admission(request), run)
}

/// What is stored of a request once `/mutate` has changed it and the API server has dropped the status of
/// what is created; or the refusal of `/validate`.
fn stored(mut request: Value) -> Result<Value, String> {
    let mutated = run(Phase::Mutate, &request);
    assert!(mutated.denial.is_none());
    let object = patched(&request["object"], &mutated.patch);
    request["object"] = object.clone();
    validated(&request).map(|_| object)
}

/// The warnings of `/validate`, or its refusal.
fn validated(request: &Value) -> Result<Vec<String>, String> {
    let outcome = run(Phase::Validate, request);
    match outcome.denial {
        None => Ok(outcome.warnings.iter().map(str::to_owned).collect()),
        Some(denial) => Err(denial.message),
    }
}

fn asked() -> Value {
    json!({
        "apiVersion": "portcullis.dev/v1alpha1", "kind": "AccessRequest", "metadata": {"name": "inc-1"},
        "spec": {"role": "edit", "namespaces": ["prod"], "duration": "2h", "reason": "INC-1"},
    })
}

fn write(user: &str, operation: &str, subresource: &str, object: &Value, old: &Value) -> Value {
    json!({
        "uid": "u", "operation": operation, "name": "inc-1", "subResource": subresource,
        "kind": {"group": "portcullis.dev", "version": "v1alpha1", "kind": "AccessRequest"},
        "resource": {"group": "portcullis.dev", "version": "v1alpha1", "resource": "accessrequests"},
        "userInfo": {"username": user, "groups": ["g"]}, "object": object, "oldObject": old,
    })
}

fn created(user: &str, object: &Value) -> Result<Value, String> {
    stored(write(user, "CREATE", "", object, &Value::Null))
}

fn updated(user: &str, old: &Value, change: impl FnOnce(&mut Value)) -> Result<Value, String> {
    let mut object = old.clone();
    change(&mut object);
    stored(write(user, "UPDATE", "status", &object, old))
}

fn approved(user: &str, old: &Value) -> Result<Value, String> {
    updated(user, old, |object| {
        let before = old.pointer("/status/approvals").and_then(Value::as_array);
        let mut approvals = before.cloned().unwrap_or_default();
        approvals.push(json!({"username": "somebody", "time": "1999-01-01T00:00:00Z"}));
        object["status"]["approvals"] = json!(approvals);
    })
}

/// Says `denied` or `withdrawn`.
fn said(user: &str, what: &str, old: &Value) -> Result<Value, String> {
    updated(user, old, |object| object["status"][what] = json!({}))
}

fn refuses(result: &Result<Value, String>, why: &str) {
    let message = result.as_ref().unwrap_err();
    assert!(message.contains(why), "{message}");
}

#[test]
fn the_requester_is_who_asks_and_nothing_is_approved_at_birth() {
    let mut forged = asked();
    forged["spec"]["requester"] = json!({"username": "cid", "groups": ["system:masters"]});
    forged["status"] = json!({"approvals": [{"username": "bob", "time": NOW}]});
    let object = created("ann", &forged).unwrap();
    assert_eq!(
        object["spec"]["requester"],
        json!({"username": "ann", "uid": "", "groups": ["g"]})
    );
    assert_eq!(object.get("status"), None);
    // Where /mutate is not called, or another webhook changes what it wrote.
    for request in [forged.clone(), asked()] {
        let unmutated = validated(&write("ann", "CREATE", "", &request, &Value::Null));
        assert!(unmutated.unwrap_err().contains("is not the user of the request"));
    }
    let mut with_status = object;
    with_status["status"] = forged["status"].clone();
    let kept = validated(&write("ann", "CREATE", "", &with_status, &Value::Null));
    assert!(kept.unwrap_err().contains("no status subresource"));
}

#[test]
fn who_asks_needs_the_verb_in_each_namespace() {
    refuses(
        &created("eve", &asked()),
        "User \"eve\" cannot request clusterroles.rbac.authorization.k8s.io \"edit\" in the namespace \"prod\"",
    );
    let mut wider = asked();
    wider["spec"]["namespaces"] = json!(["prod", "dev"]);
    refuses(&created("ann", &wider), "in the namespace \"dev\"");
    wider["spec"]["namespaces"] = json!([]);
    refuses(&created("ann", &wider), "in the whole cluster");
    let mut other = asked();
    other["spec"]["role"] = json!("cluster-admin");
    refuses(&created("ann", &other), "\"cluster-admin\"");
    for (field, value, why) in [
        ("duration", json!("9h"), "spec.duration: at most 28800s"),
        ("duration", json!("-1h"), "spec.duration: Invalid value"),
        (
            "namespaces",
            json!(["prod", "prod"]),
            "spec.namespaces[1]: Duplicate value",
        ),
        ("namespaces", json!(["*"]), "spec.namespaces[0]: Invalid value"),
        ("reason", json!(" "), "spec.reason: Required value"),
        ("role", json!("a/b"), "spec.role: Invalid value"),
        ("until", json!("x"), "spec.until: Unsupported value"),
    ] {
        let mut wrong = asked();
        wrong["spec"][field] = value;
        refuses(&created("ann", &wrong), why);
    }
}

#[test]
fn others_approve_with_the_verb_and_as_themselves() {
    let object = created("ann", &asked()).unwrap();
    refuses(
        &approved("eve", &object),
        "User \"eve\" cannot approve clusterroles",
    );
    // She has the verb, too.
    refuses(
        &approved("ann", &object),
        "you cannot approve or deny your own request",
    );
    refuses(
        &said("ann", "denied", &object),
        "you cannot approve or deny your own request",
    );
    let object = approved("bob", &object).unwrap();
    assert_eq!(
        object["status"]["approvals"],
        json!([{"username": "bob", "time": NOW}])
    );
    refuses(&approved("bob", &object), "you have approved it already");
    let object = approved("cid", &object).unwrap();
    let names: Vec<&Value> = object["status"]["approvals"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["username"])
        .collect();
    assert_eq!(names, ["bob", "cid"]);
    // Where /mutate is not called.
    for entry in [
        json!({"username": "cid", "time": NOW}),
        json!({"username": "bob", "time": "2026-12-01T00:05:00Z"}),
        json!({"username": "bob", "time": "2026-11-30T23:50:00Z"}),
        json!({"username": "bob", "time": NOW, "more": 1}),
        json!({}),
    ] {
        let old = created("ann", &asked()).unwrap();
        let mut object = old.clone();
        object["status"] = json!({"approvals": [entry]});
        let refused = validated(&write("bob", "UPDATE", "status", &object, &old));
        assert!(
            refused
                .unwrap_err()
                .contains("does not contain the user who writes it")
        );
    }
}

#[test]
fn who_approves_what_lifts_a_policy_needs_the_verb_lift() {
    let mut lifting = asked();
    lifting["spec"]["lifts"] = json!(["frozen"]);
    let object = created("ann", &lifting).unwrap();
    refuses(
        &approved("bob", &object),
        "User \"bob\" cannot lift authorizationpolicies.portcullis.dev \"frozen\"",
    );
    said("bob", "denied", &object).unwrap();
    approved("cid", &object).unwrap();
}

#[test]
fn entries_are_only_added_one_a_request_and_an_end_is_final() {
    let object = created("ann", &asked()).unwrap();
    let with_bob = approved("bob", &object).unwrap();
    let changed = "a request may only add one entry to the status";
    refuses(
        &updated("cid", &with_bob, |object| {
            object["status"]["approvals"] = json!([{}])
        }),
        "a request may only add one entry to the status",
    );
    refuses(
        &updated("cid", &with_bob, |object| object["status"] = json!({})),
        changed,
    );
    refuses(
        &updated("cid", &with_bob, |object| {
            object["status"]["approvals"] = json!("x")
        }),
        changed,
    );
    refuses(
        &updated("cid", &with_bob, |object| {
            object["status"]["approvals"][0]["time"] = json!("2026-12-01T01:00:00Z")
        }),
        changed,
    );
    refuses(
        &updated("cid", &object, |object| {
            object["status"] = json!({"approvals": [{}, {}]})
        }),
        "a request may only add one entry:",
    );
    refuses(
        &updated("cid", &object, |object| {
            object["status"] = json!({"approvals": [{}], "withdrawn": {}})
        }),
        "a request may only add one entry:",
    );
    for what in ["denied", "withdrawn"] {
        let over = said("bob", what, &with_bob).unwrap();
        assert_eq!(over["status"][what], json!({"username": "bob", "time": NOW}));
        refuses(&approved("cid", &over), "final");
        refuses(
            &said(
                "cid",
                if what == "denied" { "withdrawn" } else { "denied" },
                &over,
            ),
            "final",
        );
        refuses(
            &updated("bob", &over, |object| object["status"][what] = Value::Null),
            changed,
        );
        refuses(
            &updated("bob", &over, |object| {
                object["status"].as_object_mut().unwrap().remove(what);
            }),
            changed,
        );
    }
    // The condition of a gateway, and a change without any entry.
    updated("gateway", &with_bob, |object| {
        object["status"]["conditions"] = json!([{"type": "InForce"}])
    })
    .unwrap();
}

#[test]
fn requester_and_approvers_withdraw_and_nobody_else() {
    let object = created("ann", &asked()).unwrap();
    let with_bob = approved("bob", &object).unwrap();
    for user in ["ann", "bob", "cid"] {
        said(user, "withdrawn", &with_bob).unwrap();
    }
    refuses(
        &said("eve", "withdrawn", &with_bob),
        "User \"eve\" cannot approve",
    );
    // A namesake of another uid is not the requester.
    let of_pat = created("pat", &asked()).unwrap();
    said("pat", "withdrawn", &of_pat).unwrap();
    let mut namesake = write("pat", "UPDATE", "status", &of_pat, &of_pat);
    namesake["object"]["status"]["withdrawn"] = json!({});
    namesake["userInfo"]["uid"] = json!("2");
    refuses(&stored(namesake), "User \"pat\" cannot approve");
}

#[test]
fn the_spec_never_changes_whoever_asks() {
    let object = created("ann", &asked()).unwrap();
    for (pointer, value) in [
        ("/spec/role", json!("cluster-admin")),
        ("/spec/namespaces", json!(["prod", "dev"])),
        ("/spec/duration", json!("8h")),
    ] {
        let mut wider = object.clone();
        *wider.pointer_mut(pointer).unwrap() = value;
        for subresource in ["", "status"] {
            refuses(
                &stored(write("ann", "UPDATE", subresource, &wider, &object)),
                "spec: never changes",
            );
        }
    }
    // What is left out or forged of the requester, /mutate restores.
    let mut other = object.clone();
    other["spec"]["requester"] = json!({"username": "eve"});
    other["metadata"]["labels"] = json!({"a": "b"});
    let restored = stored(write("eve", "UPDATE", "", &other, &object)).unwrap();
    assert_eq!(restored["spec"], object["spec"]);
}

#[test]
fn one_that_is_as_large_as_it_may_be_can_be_ended_and_nothing_else() {
    let mut object = approved("bob", &created("ann", &asked()).unwrap()).unwrap();
    let room = (64 << 10) - object.to_string().len();
    object["metadata"]["annotations"] = json!({"a": "x".repeat(room - 25)});
    for what in ["denied", "withdrawn"] {
        let over = said("bob", what, &object).unwrap();
        assert_eq!(over["status"][what], json!({"username": "bob", "time": NOW}));
        assert!(over.to_string().len() > 64 << 10);
    }
    refuses(&approved("cid", &object), "more than 65536 bytes");
    refuses(
        &updated("cid", &object, |object| {
            object["status"]["more"] = json!("x".repeat(100))
        }),
        "more than 65536 bytes",
    );
}

#[test]
fn what_cannot_be_one_is_refused() {
    let mut large = asked();
    large["metadata"]["annotations"] = json!({"a": "x".repeat(70_000)});
    refuses(&created("ann", &large), "more than 65536 bytes");
    let object = created("ann", &asked()).unwrap();
    let no_old = validated(&write("bob", "UPDATE", "status", &object, &Value::Null));
    assert!(no_old.unwrap_err().contains("no object before the change"));
}

/// Nobody but a robot may delete pods, which `edit` lets its subjects do.
const INVARIANTS: &str = r#"
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: edit}
rules: [{verbs: [delete], apiGroups: [""], resources: [pods]}]
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationInvariant
metadata: {name: pods-stay}
spec:
  enforcement: Refuse
  only: [{kind: User, name: robot}]
  resourceRules: [{verbs: [delete], apiGroups: [""], resources: [pods]}]
"#;

#[test]
fn an_approval_that_breaks_an_invariant_is_refused_as_a_binding_would_be() {
    let around = AROUND.replacen(
        "- {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: edit}, rules: []}\n",
        "",
        1,
    );
    let around = format!("{around}{INVARIANTS}");
    let object = created("ann", &asked()).unwrap();
    let whole = approved("bob", &object).unwrap();
    let validated = |request: &Value| run_with(&around, Phase::Validate, request).denial;
    let approval = write("bob", "UPDATE", "status", &whole, &object);
    let denial = validated(&approval).unwrap();
    assert!(
        denial
            .message
            .contains("AuthorizationInvariant/pods-stay: broken by"),
        "{}",
        denial.message
    );
    let warns = around.replace("enforcement: Refuse", "enforcement: Warn");
    let outcome = run_with(&warns, Phase::Validate, &approval);
    assert!(outcome.denial.is_none());
    assert!(
        outcome
            .warnings
            .iter()
            .any(|warning| warning.contains("pods-stay"))
    );
    // What ends one, and what an approval that is too early says, breaks nothing.
    let mut denied = object.clone();
    denied["status"] = json!({"denied": {"username": "bob", "time": NOW}});
    assert!(validated(&write("bob", "UPDATE", "status", &denied, &object)).is_none());
    // A role that may have been written a moment ago is waited for, and then refused.
    let mut other = whole.clone();
    other["spec"]["role"] = json!("unknown");
    let mut before = object.clone();
    before["spec"]["role"] = json!("unknown");
    let approver = around.replace("resourceNames: [edit]", "resourceNames: [edit, unknown]");
    let request = write("bob", "UPDATE", "status", &other, &before);
    let denial = run_with(&approver, Phase::Validate, &request).denial.unwrap();
    assert!(
        denial
            .message
            .contains("the requested ClusterRole `unknown` is not known"),
        "{}",
        denial.message
    );
    // Administrators are not held up.
    let mut by_admin = approval;
    by_admin["userInfo"] = json!({"username": "admin", "groups": ["system:masters"]});
    let mut entries = whole.clone();
    entries["status"]["approvals"][0]["username"] = json!("admin");
    by_admin["object"] = entries;
    assert!(validated(&by_admin).is_none());
}
