//! What validation should have refused, given to the compiler all the same.

use super::*;
use crate::document;
use crate::field::Faults;
use crate::model::Validity;

/// The policy compiled without validation, and the faults.
fn compiled(spec: &str) -> (Option<AuthorizationPolicy>, Vec<String>) {
    let text = format!("kind: AuthorizationPolicy\nmetadata: {{name: p}}\nspec: {spec}");
    let document = document::parse(Some("f.yaml"), &text).unwrap().remove(0);
    let mut faults = Faults::new();
    let written = document.decode(&mut faults).unwrap();
    let checked = CompiledParts {
        conditions: Vec::new(),
        object_conditions: Vec::new(),
        validity: Validity::default(),
    };
    let policy = policy(written, checked, &mut Report::new(&document, &mut faults));
    let paths = faults.iter().map(|fault| fault.place.path.to_string());
    (policy, paths.collect())
}

#[test]
fn a_policy_with_a_word_that_means_nothing_is_no_policy() {
    let valid = "{effect: Deny, subjects: [{kind: User, name: a}], resourceRules: [{verbs: [get]}]}";
    let (policy, faults) = compiled(valid);
    assert_eq!((policy.unwrap().effect, faults.len()), (Effect::Deny, 0));
    for (wrong, at) in [
        (valid.replace("Deny", "deny"), "spec.effect"),
        (valid.replace("{effect", "{mode: shadow, effect"), "spec.mode"),
        (
            valid.replace("{effect", "{failurePolicy: Fail, effect"),
            "spec.failurePolicy",
        ),
        (valid.replace("User", "Robot"), "spec.subjects[0].kind"),
        (
            valid.replace(
                "resourceRules",
                "excludeSubjects: [{kind: user, name: b}], resourceRules",
            ),
            "spec.excludeSubjects[0].kind",
        ),
        (
            valid.replace(
                "[get]",
                "[get], namespaceSelector: {matchExpressions: [{key: k, operator: Is}]}",
            ),
            "spec.resourceRules[0].namespaceSelector",
        ),
    ] {
        let (policy, faults) = compiled(&wrong);
        assert!(policy.is_none(), "{wrong}");
        assert_eq!(faults, [at], "{wrong}");
    }
}

#[test]
fn a_binding_with_a_kind_that_is_none_is_no_binding() {
    let text = "{kind: RoleBinding}";
    let document = document::parse(Some("f.yaml"), text).unwrap().remove(0);
    let bind = |role: &str, subject: &str| {
        let role = rbac::RoleRef {
            kind: role.to_owned(),
            name: "r".to_owned(),
            api_group: None,
        };
        let subject = rbac::Subject {
            kind: subject.to_owned(),
            name: "s".to_owned(),
            ..rbac::Subject::default()
        };
        let mut faults = Faults::new();
        let mut report = Report::new(&document, &mut faults);
        let binding = binding(
            meta::ObjectMeta::default(),
            role,
            Some(vec![subject]),
            &mut report,
        );
        (binding.is_some(), faults.iter().count())
    };
    assert_eq!(bind("Role", "Group"), (true, 0));
    assert_eq!(bind("role", "Group"), (false, 1));
    assert_eq!(bind("ClusterRole", "group"), (false, 1));
    assert_eq!(bind("", ""), (false, 2));
}

#[test]
fn what_a_policy_does_not_say_has_its_default() {
    let said = "{effect: Deny, subjects: [{kind: User, name: a}], resourceRules: [{verbs: [get]}]}";
    let policy = compiled(said).0.unwrap();
    assert_eq!(
        (policy.mode, policy.failure_policy),
        (Mode::Enforce, FailurePolicy::Deny)
    );
    let other = compiled(&said.replace("{effect", "{failurePolicy: NoOpinion, mode: Shadow, effect"))
        .0
        .unwrap();
    assert_eq!(
        (other.mode, other.failure_policy),
        (Mode::Shadow, FailurePolicy::NoOpinion)
    );
}
