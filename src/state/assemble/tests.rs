use super::*;
use crate::state::tests::fixtures::{mk_snapshot, now};
use portcullis_policy::model::{Attributes, Deadline, Decision, ResourceAttributes, Target, User};

const RBAC: &str = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: reader}\n\
    rules: [{verbs: [get], apiGroups: [''], resources: [pods]}]\n---\n\
    apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: readers}\n\
    roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}\n\
    subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: jane}]\n---\n";

fn mk_deny(user: &str) -> String {
    format!(
        "apiVersion: portcullis.dev/v1alpha1\nkind: AuthorizationPolicy\nmetadata: {{name: stop}}\n\
         spec:\n  effect: Deny\n  subjects: [{{kind: User, name: {user}}}]\n  \
         resourceRules: [{{verbs: [get], apiGroups: [''], resources: [pods]}}]\n"
    )
}

fn decision(policies: &ClusterPolicySets, user: &'static str) -> Decision {
    let resource = ResourceAttributes {
        verb: "get".into(),
        resource: "pods".into(),
        namespace: "n".into(),
        ..ResourceAttributes::default()
    };
    let attributes = Attributes {
        user: User {
            name: user.into(),
            ..User::default()
        },
        target: Target::Resource(Box::new(resource)),
    };
    policies
        .for_cluster("default")
        .authorize(&attributes, now().into())
        .decision
}

fn mk_source(text: &str) -> Source {
    Source {
        file: "pasted".into(),
        text: text.into(),
        cluster: None,
    }
}

fn names(identities: &[ObjectIdentity]) -> Vec<String> {
    identities.iter().map(ToString::to_string).collect()
}

#[test]
fn what_is_on_trial_decides_beside_what_is_in_force_and_changes_nothing_of_it() {
    let (_folder, snapshot) = mk_snapshot(RBAC, "");
    let (trial, faults) = snapshot.trial(&mk_source(&mk_deny("jane")), now(), Deadline::NEVER);
    let trial = trial.unwrap_or_else(|| panic!("{faults}"));
    assert_eq!(decision(&snapshot.policies, "jane"), Decision::Allow);
    assert_eq!(decision(&trial.policies, "jane"), Decision::Deny);
    assert_eq!(names(&trial.objects), ["AuthorizationPolicy/stop"]);
    assert!(trial.replaced.is_empty());
}

#[test]
fn what_is_on_trial_stands_in_the_place_of_the_same_object() {
    let (_folder, snapshot) = mk_snapshot(&format!("{RBAC}{}", mk_deny("jane")), "");
    let (trial, faults) = snapshot.trial(&mk_source(&mk_deny("joe")), now(), Deadline::NEVER);
    let trial = trial.unwrap_or_else(|| panic!("{faults}"));
    assert_eq!(decision(&snapshot.policies, "jane"), Decision::Deny);
    assert_eq!(decision(&trial.policies, "jane"), Decision::Allow);
    assert_eq!(decision(&trial.policies, "joe"), Decision::Deny);
    assert_eq!(names(&trial.replaced), ["AuthorizationPolicy/stop"]);
}

#[test]
fn only_what_is_wrong_with_what_is_on_trial_is_said() {
    // A binding of a role that is not there is warned of.
    let odd = RBAC.replace("name: reader}\nsubjects", "name: nowhere}\nsubjects");
    let (_folder, snapshot) = mk_snapshot(&odd, "");
    let (trial, faults) = snapshot.trial(&mk_source(&mk_deny("jane")), now(), Deadline::NEVER);
    assert!(trial.is_some());
    assert!(
        faults
            .iter()
            .all(|fault| fault.place.file.as_deref() == Some("pasted")),
        "{faults}"
    );
    let (trial, faults) = snapshot.trial(
        &mk_source(&mk_deny("jane").replace("Deny", "Refuse")),
        now(),
        Deadline::NEVER,
    );
    assert!(trial.is_none());
    let fault = faults.iter().next().unwrap();
    assert_eq!(
        (fault.place.file.as_deref(), fault.place.line),
        (Some("pasted"), 5),
        "{faults}"
    );
    let (trial, faults) = snapshot.trial(&mk_source("kind: ["), now(), Deadline::NEVER);
    assert!(trial.is_none() && faults.has_errors());
}

#[test]
fn a_role_on_trial_completes_a_binding_in_force() {
    let bound = RBAC.replace(
        "metadata: {name: reader}\nrules",
        "metadata: {name: other}\nrules",
    );
    let (_folder, snapshot) = mk_snapshot(&bound, "");
    assert_eq!(decision(&snapshot.policies, "jane"), Decision::NoOpinion);
    let role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: reader}\n\
        rules: [{verbs: [get], apiGroups: [''], resources: [pods]}]\n";
    let (trial, faults) = snapshot.trial(&mk_source(role), now(), Deadline::NEVER);
    let trial = trial.unwrap_or_else(|| panic!("{faults}"));
    assert_eq!(decision(&trial.policies, "jane"), Decision::Allow);
}
