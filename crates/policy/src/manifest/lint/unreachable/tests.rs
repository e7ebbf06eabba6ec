//! A Deny is found by its words wherever comparing with all would find it.

use super::*;
use crate::authorization::{FailurePolicy, SubjectKind};

fn texts(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn mk_subject(kind: SubjectKind, namespace: &str, name: &str) -> Subject {
    Subject {
        kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

fn mk_deny(subject: Subject, resource_rules: Vec<ResourceRule>, paths: &[&str]) -> AuthorizationPolicy {
    let path_rule = |path: &&str| NonResourceRule {
        verbs: texts(&["get"]).into(),
        paths: vec![(*path).into()],
    };
    AuthorizationPolicy {
        name: String::new(),
        effect: Effect::Deny,
        mode: Mode::Enforce,
        subjects: vec![subject],
        exclude_subjects: Vec::new(),
        resource_rules,
        non_resource_rules: paths.iter().map(path_rule).collect(),
        conditions: Vec::new(),
        object_conditions: Vec::new(),
        liftable: false,
        failure_policy: FailurePolicy::Deny,
        validity: Validity::default(),
        reason: String::new(),
    }
}

fn mk_rule(resource: &str, namespaces: &[&str], names: &[&str]) -> ResourceRule {
    ResourceRule {
        verbs: texts(&["get"]).into(),
        api_groups: texts(&[""]).into(),
        resources: vec![resource.into()],
        namespaces: namespaces.iter().map(|&namespace| namespace.into()).collect(),
        names: texts(names),
        ..ResourceRule::default()
    }
}

/// Every combination of a few words.
fn denies() -> Vec<AuthorizationPolicy> {
    let subjects = [
        mk_subject(SubjectKind::User, "", "joe"),
        mk_subject(SubjectKind::User, "", "j*"),
        mk_subject(SubjectKind::User, "", "*"),
        mk_subject(SubjectKind::Group, "", "joe"),
        mk_subject(SubjectKind::ServiceAccount, "team-a", "joe"),
    ];
    let namespaces: [&[&str]; 6] = [&[], &[""], &["*"], &["team-*"], &["team-a"], &["team-a", "b"]];
    let mut denies = Vec::new();
    for subject in subjects {
        for paths in [["/x/y"], ["/x/*"], ["*"]] {
            denies.push(mk_deny(subject.clone(), Vec::new(), &paths));
        }
        for resource in ["pods", "pods/log", "*"] {
            for namespaces in namespaces {
                for names in [&[][..], &["x"], &["x", "y"]] {
                    let rule = mk_rule(resource, namespaces, names);
                    denies.push(mk_deny(subject.clone(), vec![rule.clone()], &[]));
                    let second = mk_rule("secrets", &[], &[]);
                    denies.push(mk_deny(subject.clone(), vec![second, rule], &["/x/*"]));
                }
            }
        }
    }
    denies
}

#[test]
fn whatever_covers_a_policy_is_among_those_that_it_is_compared_with() {
    let policies = denies();
    let denies = Denies::new(policies.iter().map(|policy| (policy, None)));
    let mut covered = 0;
    for policy in &policies {
        let candidates = denies.candidates(policy);
        for wide in policies.iter().filter(|wide| covers(wide, policy)) {
            covered += 1;
            let is_candidate = candidates.iter().any(|(deny, _)| std::ptr::eq(*deny, wide));
            assert!(is_candidate, "{wide:?}\ncovers\n{policy:?}");
        }
    }
    assert!(covered > 2 * policies.len(), "{covered}");
}

#[test]
fn a_policy_is_compared_with_few_of_many_denies_that_differ_in_one_word() {
    let joe = || mk_subject(SubjectKind::User, "", "joe");
    let by_subject = |n: usize| {
        let subject = mk_subject(SubjectKind::User, "", &format!("user-{n}"));
        mk_deny(subject, vec![mk_rule("pods", &[], &[])], &[])
    };
    let by_namespace = |n: usize| mk_deny(joe(), vec![mk_rule("pods", &[&format!("team-{n}")], &[])], &[]);
    let by_name = |n: usize| mk_deny(joe(), vec![mk_rule("pods", &[], &[&format!("pod-{n}")])], &[]);
    let by_path = |n: usize| mk_deny(joe(), Vec::new(), &[&format!("/x/{n}")]);
    let sorts: [&dyn Fn(usize) -> AuthorizationPolicy; 4] = [&by_subject, &by_namespace, &by_name, &by_path];
    for mk_policy in sorts {
        let policies: Vec<_> = (0..1000).map(mk_policy).collect();
        let denies = Denies::new(policies.iter().map(|policy| (policy, None)));
        let compared: usize = policies
            .iter()
            .map(|policy| denies.candidates(policy).len())
            .sum();
        assert!(compared < 10 * policies.len(), "{compared}");
    }
}

#[test]
fn a_deny_that_excludes_namespaces_covers_what_excludes_these_too() {
    let excluding = |excluded: &[&str]| ResourceRule {
        exclude_namespaces: excluded.iter().map(|&one| one.into()).collect(),
        ..mk_rule("pods", &[], &[])
    };
    for (wide, narrow, covers) in [
        (&[][..], &["kube-*"][..], true),
        (&["kube-*"], &["kube-*", "a"], true),
        (&["kube-system"], &["kube-*"], true),
        (&["kube-*"], &["kube-system"], false),
        (&["kube-*"], &[], false),
    ] {
        assert_eq!(
            rule_covers(&excluding(wide), &excluding(narrow)),
            covers,
            "{wide:?} {narrow:?}"
        );
    }
}
