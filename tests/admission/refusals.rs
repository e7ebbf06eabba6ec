//! Denies and Limits that `/validate` enforces, where the API server asks no authorization webhook.

use super::*;

const POLICIES: &str = "
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: frozen}
spec:
  effect: Deny
  subjects: [{kind: Group, name: devs}]
  resourceRules:
  - {verbs: [create, update, patch, delete], apiGroups: [''], resources: [configmaps], namespaces: [ns]}
  - {verbs: [get, create], apiGroups: [''], resources: [pods/exec]}
  reason: no changes before Christmas
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: half}
spec:
  effect: Deny
  subjects: [{kind: Group, name: devs}]
  resourceRules:
  - {verbs: [update], apiGroups: [''], resources: [secrets]}
  - {verbs: [create], apiGroups: [''], resources: [pods/attach]}
  - {verbs: [deletecollection], apiGroups: [''], resources: [secrets]}
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: robots}
spec:
  effect: Limit
  subjects: [{kind: User, name: robot}]
  resourceRules: [{verbs: [create, patch], apiGroups: [''], resources: [configmaps]}]
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {name: trial}
spec:
  effect: Deny
  mode: Shadow
  subjects: [{kind: User, name: carol}]
  resourceRules: [{verbs: [create, update], apiGroups: [''], resources: [configmaps]}]
";

fn asked(operation: &str, resource: &str, name: &str, user: &Value) -> Value {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let object = json!({"metadata": {"name": "x"}});
    reviews::with(
        mk_review(&object),
        &json!({"request": reviews::with(mk_review(&object)["request"].clone(), &json!({
            "operation": operation, "name": name, "subResource": subresource, "userInfo": user, "oldObject": object,
            "resource": {"group": "", "version": "v1", "resource": resource},
        }))}),
    )
}

fn refused(is_on: bool, run: impl Fn(&mut RunOptions<'_>), review: &Value) -> Outcome {
    let manifests = manifests(POLICIES);
    let settings = AdmissionSettings {
        enforces_authorization: is_on,
        ..AdmissionSettings::default()
    };
    let set = manifests.admission(&settings).shared;
    let mut options = RunOptions::new(&*manifests.policies.shared, Time::UNIX_EPOCH);
    run(&mut options);
    outcome(Phase::Validate, &set, review, options)
}

#[test]
fn a_write_is_refused_where_every_question_behind_it_would_have_been() {
    let dev = json!({"username": "dana", "groups": ["devs"]});
    let robot = json!({"username": "robot"});
    let frozen = "denied by AuthorizationPolicy \"frozen\": no changes before Christmas";
    for (operation, resource, name, user, expected) in [
        ("CREATE", "configmaps", "x", &dev, frozen),
        ("UPDATE", "configmaps", "x", &dev, frozen),
        ("DELETE", "configmaps", "x", &dev, frozen),
        ("DELETE", "configmaps", "", &dev, "allowed"),
        ("CREATE", "secrets", "x", &dev, "allowed"),
        ("CONNECT", "pods/exec", "x", &dev, frozen),
        ("CONNECT", "pods/attach", "x", &dev, "allowed"),
        ("UPDATE", "secrets", "x", &dev, "allowed"),
        ("DELETE", "secrets", "x", &dev, "allowed"),
        (
            "DELETE",
            "secrets",
            "",
            &dev,
            "denied by AuthorizationPolicy \"half\"",
        ),
        ("CREATE", "configmaps", "x", &robot, "allowed"),
        ("UPDATE", "configmaps", "x", &robot, "allowed"),
        ("DELETE", "configmaps", "x", &robot, "beyond the limit robots"),
    ] {
        let review = asked(operation, resource, name, user);
        let outcome = refused(true, |_| {}, &review);
        assert_eq!(
            message(&outcome),
            expected,
            "{operation} {resource} {name} {user}"
        );
        if let Some(denial) = &outcome.denial {
            assert_eq!((denial.reason.as_ref(), denial.code), ("Forbidden", 403));
            assert!(outcome.cause.is_some());
        }
        assert_eq!(message(&refused(false, |_| {}, &review)), "allowed");
    }
}

#[test]
fn those_who_run_the_cluster_are_not_refused_nor_what_nobody_asks() {
    let of_groups = |groups: &[&str]| json!({"username": "dana", "groups": groups});
    for user in [
        of_groups(&["devs", "system:masters"]),
        of_groups(&["devs", "system:serviceaccounts:kube-system"]),
        json!({"username": "system:node:n", "groups": ["devs", "system:nodes"]}),
        json!({"username": "system:kube-scheduler", "groups": ["devs"]}),
        // By `neverDeny` alone.
        json!({"username": "system:apiserver", "groups": ["devs"]}),
    ] {
        let review = asked("CREATE", "configmaps", "x", &user);
        assert_eq!(message(&refused(true, |_| {}, &review)), "allowed", "{user}");
    }
    let review = asked("CREATE", "configmaps", "x", &of_groups(&["devs", "system:nodes"]));
    assert!(refused(true, |_| {}, &review).denial.is_some());
    assert_eq!(
        message(&refused(true, |run| run.requester_unknown = true, &review)),
        "allowed"
    );
    assert_eq!(
        message(&refused(true, |run| run.only = Some("p"), &review)),
        "allowed"
    );
}

#[test]
fn what_is_in_shadow_refuses_nothing_and_is_told() {
    let shadows = |operation| {
        let review = asked(operation, "configmaps", "x", &json!({"username": "carol"}));
        let outcome = refused(true, |_| {}, &review);
        assert_eq!(message(&outcome), "allowed");
        outcome.policy_shadows.len()
    };
    // An UPDATE may have been a patch.
    assert_eq!(
        (shadows("CREATE"), shadows("UPDATE"), shadows("DELETE")),
        (1, 0, 0)
    );
}
