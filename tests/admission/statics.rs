//! Policies of files whose names end in `.static.k8s.io`: they judge policies, and no other does.

use super::*;
use portcullis_cel::Version;
use portcullis_policy::document;
use portcullis_policy::manifest::{ObjectSet, Options, ValidatedObject, assemble, read};

const HEAD: &str = "apiVersion: admissionregistration.k8s.io/v1, kind: ";

/// A policy that refuses whatever the group of policies and `configmaps` has, with its binding.
fn refusing(name: &str, binding: &str) -> String {
    let rules = "resourceRules: [{apiGroups: ['', admissionregistration.k8s.io], apiVersions: ['*'], \
                 operations: ['*'], resources: ['*']}]";
    format!(
        "---\n{{{HEAD}ValidatingAdmissionPolicy, metadata: {{name: {name}}}, spec: {{matchConstraints: {{{rules}}}, \
         validations: [{{expression: 'false', message: 'by {name}'}}]}}}}\n---\n{{{HEAD}\
         ValidatingAdmissionPolicyBinding, metadata: {{name: {binding}}}, spec: {{policyName: {name}, \
         validationActions: [Deny]}}}}\n"
    )
}

/// The deletion of such an object.
fn deletion(group: &str, kind: &str, resource: &str) -> Value {
    let object = json!({"apiVersion": format!("{group}/v1"), "kind": kind, "metadata": {"name": "guard"}});
    reviews::admission(&json!({
        "uid": "u",
        "kind": {"group": group, "version": "v1", "kind": kind},
        "resource": {"group": group, "version": "v1", "resource": resource},
        "name": "guard", "operation": "DELETE",
        "userInfo": {"username": "mallory"}, "object": null, "oldObject": object,
    }))
}

fn of_a_policy() -> Value {
    deletion(
        "admissionregistration.k8s.io",
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
    )
}

fn files(text: &str) -> ObjectSet {
    let (objects, faults) = read(&[inner::source(text)], &Options::default());
    objects.unwrap_or_else(|| panic!("{faults}"))
}

fn set_of(objects: Vec<Arc<ValidatedObject>>) -> Arc<AdmissionSet> {
    let manifests = assemble(&objects, &Options::default());
    let admission = manifests.admission(&AdmissionSettings::default());
    Arc::clone(admission.for_cluster("default"))
}

#[test]
fn only_a_static_policy_bound_by_a_static_binding_judges_policies() {
    let judged = |name: &str, binding: &str| {
        let outcome = validated(&mk_set(&refusing(name, binding)), &of_a_policy());
        message(&outcome).to_owned()
    };
    assert!(judged("p.static.k8s.io", "p.static.k8s.io").ends_with("denied request: by p.static.k8s.io"));
    assert_eq!(judged("p", "p"), "allowed");
    assert_eq!(judged("p.static.k8s.io", "p"), "allowed");
    assert_eq!(judged("p", "p.static.k8s.io"), "allowed");
}

#[test]
fn what_is_watched_never_judges_policies_whatever_its_name() {
    let text = refusing("p.static.k8s.io", "p.static.k8s.io");
    let watched = document::parse(None, &text).unwrap().into_iter();
    let watched =
        watched.map(|document| ValidatedObject::read(document, "default".into(), Version::NEWEST).unwrap());
    let set = set_of(watched.map(Arc::new).collect());
    assert_eq!(message(&validated(&set, &of_a_policy())), "allowed");
    let config_map = mk_review(&json!({"metadata": {"name": "c"}}));
    assert_ne!(message(&validated(&set, &config_map)), "allowed");
    let set = set_of(files(&text).objects().cloned().collect());
    assert_ne!(message(&validated(&set, &of_a_policy())), "allowed");
}

#[test]
fn static_policies_go_first() {
    let both = refusing("a", "a") + &refusing("p.static.k8s.io", "p.static.k8s.io");
    let config_map = mk_review(&json!({"metadata": {"name": "c"}}));
    let outcome = validated(&mk_set(&both), &config_map);
    assert!(
        message(&outcome).ends_with("by p.static.k8s.io"),
        "{}",
        message(&outcome)
    );
}

#[test]
fn a_static_policy_changes_policies_and_others_do_not() {
    let labelling = |name: &str| {
        let rules = "resourceRules: [{apiGroups: [admissionregistration.k8s.io], apiVersions: ['*'], \
                     operations: [UPDATE], resources: ['*']}]";
        let expression = "Object{metadata: Object.metadata{labels: {\"by\": \"policy\"}}}";
        format!(
            "{{{HEAD}MutatingAdmissionPolicy, metadata: {{name: {name}}}, spec: {{reinvocationPolicy: Never, \
             matchConstraints: {{{rules}}}, mutations: [{{patchType: ApplyConfiguration, applyConfiguration: \
             {{expression: '{expression}'}}}}]}}}}\n---\n{{{HEAD}MutatingAdmissionPolicyBinding, metadata: {{name: \
             {name}}}, spec: {{policyName: {name}}}}}\n"
        )
    };
    let (kind, group) = ("MutatingAdmissionPolicyBinding", "admissionregistration.k8s.io");
    let object = json!({"apiVersion": format!("{group}/v1"), "kind": kind, "metadata": {"name": "b"},
                        "spec": {"policyName": "p"}});
    let mut review = deletion(group, kind, "mutatingadmissionpolicybindings");
    review["request"]["operation"] = json!("UPDATE");
    review["request"]["object"] = object;
    let access = PolicySet::default();
    let changed = |name: &str| {
        let set = mk_set(&labelling(name));
        let run = RunOptions::new(&access, Time::UNIX_EPOCH);
        let outcome = outcome(Phase::Mutate, &set, &review, run);
        assert_eq!(message(&outcome), "allowed");
        !outcome.patch.is_empty()
    };
    assert!(changed("p.static.k8s.io"));
    assert!(!changed("p"));
}
