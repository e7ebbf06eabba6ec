//! Whether a subject of a binding is the user who asks (`appliesToUser` of
//! `pkg/registry/rbac/validation/rule.go`).

use std::collections::HashSet;

use foldhash::fast::RandomState;

use crate::authorization::{Subject, SubjectKind};
use crate::engine::User;

const FEW_COMPARISONS: usize = 256;
const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// Whether `subject` is `user`. `namespace` is that of the binding, empty for a
/// ClusterRoleBinding: a service account without its own is looked for there.
#[must_use]
pub fn subject_applies(subject: &Subject, user: &User<'_>, namespace: &str) -> bool {
    match &subject.kind {
        SubjectKind::User => user.name == subject.name,
        SubjectKind::Group => user.groups.iter().any(|group| *group == subject.name),
        SubjectKind::ServiceAccount => {
            let namespace = if subject.namespace.is_empty() {
                namespace
            } else {
                &subject.namespace
            };
            !namespace.is_empty() && is_service_account(&user.name, namespace, &subject.name)
        }
    }
}

/// The first of `subjects` that is `user`, by its place.
#[must_use]
pub fn applying_subject(subjects: &[Subject], user: &User<'_>, namespace: &str) -> Option<usize> {
    // Many subjects and many groups are not each compared with each.
    if subjects.len().saturating_mul(user.groups.len()) <= FEW_COMPARISONS {
        return subjects
            .iter()
            .position(|subject| subject_applies(subject, user, namespace));
    }
    let groups: HashSet<&str, RandomState> = user.groups.iter().map(AsRef::as_ref).collect();
    subjects.iter().position(|subject| match subject.kind {
        SubjectKind::Group => groups.contains(subject.name.as_str()),
        _ => subject_applies(subject, user, namespace),
    })
}

fn is_service_account(user: &str, namespace: &str, name: &str) -> bool {
    user.strip_prefix(SERVICE_ACCOUNT_PREFIX)
        .and_then(|rest| rest.strip_prefix(namespace))
        .and_then(|rest| rest.strip_prefix(':'))
        .is_some_and(|rest| rest == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user<'a>(name: &'a str, groups: &[&'a str]) -> User<'a> {
        User {
            name: name.into(),
            groups: groups.iter().map(|&group| group.into()).collect(),
            ..User::default()
        }
    }

    fn subject(kind: &str, namespace: &str, name: &str) -> Subject {
        Subject {
            kind: SubjectKind::parse(kind).unwrap(),
            name: name.into(),
            namespace: namespace.into(),
        }
    }

    #[test]
    fn kinds_and_names_are_exact() {
        let alice = user("alice", &["devs", "*"]);
        let robot = user("system:serviceaccount:ns:robot", &[]);
        for (subject, user, namespace) in [
            (subject("User", "", "alice"), &alice, ""),
            (subject("User", "ignored", "alice"), &alice, ""),
            (subject("Group", "", "devs"), &alice, ""),
            (subject("Group", "", "*"), &alice, ""),
            (subject("ServiceAccount", "ns", "robot"), &robot, ""),
            (subject("ServiceAccount", "", "robot"), &robot, "ns"),
            (subject("ServiceAccount", "ns", "robot"), &robot, "other"),
            (subject("User", "", "system:serviceaccount:ns:robot"), &robot, ""),
        ] {
            assert!(subject_applies(&subject, user, namespace), "{subject:?}");
        }
        for (subject, user, namespace) in [
            (subject("User", "", "al*"), &alice, ""),
            (subject("User", "", "*"), &alice, ""),
            (subject("Group", "", "alice"), &alice, ""),
            (subject("ServiceAccount", "", "robot"), &robot, ""),
            (subject("ServiceAccount", "n", "s:robot"), &robot, ""),
            (subject("ServiceAccount", "ns", ""), &robot, ""),
        ] {
            assert!(!subject_applies(&subject, user, namespace), "{subject:?}");
        }
    }

    #[test]
    fn a_kind_that_is_none_is_no_subject() {
        for kind in ["user", "Robot", "", "Users", "Group "] {
            assert_eq!(SubjectKind::parse(kind), None, "{kind}");
        }
        for kind in SubjectKind::NAMES {
            assert_eq!(SubjectKind::parse(kind).map(SubjectKind::as_str), Some(kind));
        }
    }

    #[test]
    fn the_first_subject_that_applies_is_named() {
        let subjects = [
            subject("User", "", "bob"),
            subject("Group", "", "devs"),
            subject("User", "", "alice"),
        ];
        assert_eq!(
            applying_subject(&subjects, &user("alice", &["devs"]), ""),
            Some(1)
        );
        assert_eq!(applying_subject(&subjects, &user("carol", &[]), ""), None);
        let many: Vec<String> = (0..1_000).map(|group| format!("g{group}")).collect();
        let mut many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(applying_subject(&subjects, &user("alice", &many), ""), Some(2));
        many.push("devs");
        assert_eq!(applying_subject(&subjects, &user("alice", &many), ""), Some(1));
    }
}
