//! Test fixtures: builders of roles, bindings, policies and attributes.

use proptest::prelude::ProptestConfig;

use crate::authorization::rbac::WildcardSet;
use crate::authorization::{
    AuthorizationPolicy, Binding, Condition, Effect, FailurePolicy, Mode, NeverDeny, NonResourceRule,
    Objects, PolicySet, ResourceRule, Role, RoleKind, RoleRef, Rule, Subject,
};
use crate::model::{Attributes, ResourceAttributes, Target, User, Validity};
use portcullis_cel::Version;

pub(crate) fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

pub(crate) fn words(words: &[&str]) -> WildcardSet {
    words.iter().copied().collect()
}

pub(crate) fn patterns<'p, P: From<&'p str>>(patterns: &[&'p str]) -> Vec<P> {
    patterns.iter().map(|&pattern| pattern.into()).collect()
}

pub(crate) fn user(name: &str, groups: &[&str]) -> User<'static> {
    User {
        name: name.to_owned().into(),
        groups: groups.iter().map(|&group| group.to_owned().into()).collect(),
        ..User::default()
    }
}

/// `verb resource[.group][/subresource] [namespace] [name]`; `-` for no namespace.
pub(crate) fn asks(user: User<'static>, request: &str) -> Attributes<'static> {
    let mut words = request.split(' ').map(str::to_owned);
    let mut word = || words.next().unwrap_or_default();
    let (verb, resource, namespace, name) = (word(), word(), word(), word());
    let (resource, subresource) = resource.split_once('/').unwrap_or((&resource, ""));
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    let attributes = ResourceAttributes {
        verb: verb.into(),
        group: group.to_owned().into(),
        resource: resource.to_owned().into(),
        subresource: subresource.to_owned().into(),
        namespace: namespace.trim_start_matches('-').to_owned().into(),
        name: name.into(),
        ..ResourceAttributes::default()
    };
    Attributes {
        user,
        target: Target::Resource(Box::new(attributes)),
    }
}

pub(crate) fn opens(user: User<'static>, path: &str) -> Attributes<'static> {
    Attributes {
        user,
        target: Target::NonResource {
            path: path.to_owned().into(),
            verb: "get".into(),
        },
    }
}

pub(crate) fn role(namespace: &str, name: &str, rules: Vec<Rule>) -> Role {
    Role {
        namespace: namespace.into(),
        name: name.into(),
        rules: rules.into(),
        ..Role::default()
    }
}

pub(crate) fn allows(verbs: &[&str], resources: &[&str]) -> Rule {
    Rule {
        verbs: words(verbs),
        api_groups: words(&[""]),
        resources: words(resources),
        ..Rule::default()
    }
}

/// A binding to a ClusterRole.
pub(crate) fn binding(namespace: &str, name: &str, role: &str, subjects: Vec<Subject>) -> Binding {
    let role = RoleRef {
        kind: RoleKind::ClusterRole,
        name: role.into(),
    };
    Binding {
        namespace: namespace.into(),
        name: name.into(),
        role,
        subjects,
        until: None,
    }
}

/// A policy for everyone, without rules.
pub(crate) fn policy(effect: Effect, name: &str) -> AuthorizationPolicy {
    AuthorizationPolicy {
        name: name.into(),
        effect,
        mode: Mode::Enforce,
        subjects: vec![Subject::group("*")],
        exclude_subjects: Vec::new(),
        resource_rules: Vec::new(),
        non_resource_rules: Vec::new(),
        conditions: Vec::new(),
        object_conditions: Vec::new(),
        liftable: false,
        failure_policy: FailurePolicy::Deny,
        validity: Validity::default(),
        reason: String::new(),
    }
}

/// A rule for resources of any group.
pub(crate) fn rule(verbs: &[&str], resources: &[&str]) -> ResourceRule {
    ResourceRule {
        verbs: words(verbs),
        api_groups: words(&["*"]),
        resources: patterns(resources),
        ..ResourceRule::default()
    }
}

pub(crate) fn paths(verbs: &[&str], paths: &[&str]) -> NonResourceRule {
    NonResourceRule {
        verbs: words(verbs),
        paths: patterns(paths),
    }
}

pub(crate) fn condition(expression: &str) -> Condition {
    Condition::compile(Version::NEWEST, "c", expression).unwrap()
}

pub(crate) fn set(objects: Objects) -> PolicySet {
    PolicySet::new(objects, &NeverDeny::default())
}

pub(crate) fn policies(policies: Vec<AuthorizationPolicy>) -> PolicySet {
    set(Objects {
        policies,
        ..Objects::default()
    })
}

/// So many attempts, or as many as `PROPTEST_CASES` says: each tries many requests.
pub(crate) fn cases(usual: u32) -> ProptestConfig {
    let asked = ProptestConfig::default();
    ProptestConfig {
        // It has 256 where nothing was asked for.
        cases: if asked.cases == 256 { usual } else { asked.cases },
        failure_persistence: None,
        ..asked
    }
}
