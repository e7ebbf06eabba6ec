//! Roles, and those who are bound to them.

use portcullis_policy::authorization::{
    Binding, NeverDeny, Objects, PolicySet, Role, RoleKind, RoleRef, Rule, Subject,
};

use crate::measure;

fn words(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|at| format!("{prefix}{at}")).collect()
}

/// A thousand combinations in thirty words.
fn product(at: usize) -> Rule {
    Rule {
        verbs: words("verb", 10).into(),
        api_groups: words("group", 10).into(),
        resources: words(&format!("resource{at}-"), 10).into(),
        ..Rule::default()
    }
}

/// A rule that names one object by a long name.
fn long_name(at: usize) -> Rule {
    Rule {
        verbs: words("get", 1).into(),
        api_groups: words("", 1).into(),
        resources: words("pods", 1).into(),
        resource_names: vec![format!("{at}{}", "x".repeat(2_000))],
        ..Rule::default()
    }
}

fn set(rule: fn(usize) -> Rule) -> Objects {
    let of = |at: usize| {
        let name = format!("b{at}");
        let rules: Vec<Rule> = (0..20).map(|number| rule(100 * at + number)).collect();
        let role = Role {
            namespace: "team".to_owned(),
            name: name.clone(),
            rules: rules.into(),
            ..Role::default()
        };
        let binding = Binding {
            namespace: "team".to_owned(),
            name: name.clone(),
            role: RoleRef {
                kind: RoleKind::Role,
                name,
            },
            subjects: words("user", 200).into_iter().map(Subject::user).collect(),
            until: None,
        };
        (role, binding)
    };
    let (roles, bindings) = (0..12).map(of).unzip();
    Objects {
        roles,
        bindings,
        ..Objects::default()
    }
}

#[test]
fn subjects_of_many_bindings_take_no_more_than_these_for_roles_however_large() {
    let _turn = crate::turn();
    let sets = [("products", set(product)), ("long names", set(long_name))];
    let sets = sets.map(|(name, objects)| {
        let named = objects.bindings.iter().map(|binding| binding.subjects.len());
        let named: usize = named.sum();
        (name, named, objects)
    });
    // A byte is here one mention of a subject, which counts as 600 bytes of `limits.watchedBytes`.
    measure("bound subjects", 1_600.0, sets, |objects| {
        let _set = PolicySet::new(objects.clone(), &NeverDeny::default());
    });
}

#[test]
fn a_role_takes_what_its_words_take_whatever_products_they_are() {
    let _turn = crate::turn();
    // A byte is here one word, of which each counts as 400 bytes and more.
    measure("role", 400.0, [("products", 30 * 1_000, ())], |()| {
        let rules: Vec<Rule> = (0..1_000).map(product).collect();
        let _role = Role {
            rules: rules.into(),
            ..Role::default()
        };
    });
}
