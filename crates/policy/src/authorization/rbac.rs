//! RBAC, exactly as in Kubernetes: rules, subjects, role references, aggregation, and paths.
//!
//! These functions are the reference; [`PolicySet`](super::PolicySet) gives the same results with
//! an index. Where kube-apiserver's order depends on its caches, objects are ordered by name here:
//! ClusterRoleBindings, then the RoleBindings of the request's namespace
//! (`pkg/registry/rbac/validation/rule.go`).

mod aggregation;
mod path;
mod rule;

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

use super::{Binding, Objects, Role, RoleKind, RoleRef, Subject, SubjectKind};
use crate::model::User;
use portcullis_cel::Version;

pub use aggregation::{aggregate, aggregated_rules};
pub use path::{AlwaysAllowPaths, InvalidPath, PathPattern, WildcardSet};
pub use rule::{Rule, RuleList, compare_rule, rule_allows};

pub(crate) use rule::RuleTable;

// Resolves bindings to the rules that they grant (`VisitRulesFor` of
// `pkg/registry/rbac/validation/rule.go`).

/// Finds roles by namespace and name.
#[derive(Debug)]
pub struct RoleResolver<'o, R> {
    roles: &'o [R],
    places: HashMap<(&'o str, &'o str), usize>,
}

/// The role of a binding does not exist, so the binding grants nothing. The message is that of
/// kube-apiserver.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RoleNotFoundError {
    /// The Role does not exist in the namespace of the binding.
    #[error("role.rbac.authorization.k8s.io {0:?} not found")]
    Role(String),
    /// The ClusterRole does not exist.
    #[error("clusterrole.rbac.authorization.k8s.io {0:?} not found")]
    ClusterRole(String),
}

/// The rules that apply to `user` in `namespace` (empty for cluster scope), and the errors of
/// bindings that apply but whose roles do not exist. Roles must be aggregated already.
///
/// Takes time linear in the bindings: it is meant for tools and tests.
#[must_use]
pub fn rules_for<'o>(
    objects: &'o Objects,
    user: &User<'_>,
    namespace: &str,
) -> (Vec<&'o Rule>, Vec<RoleNotFoundError>) {
    let roles = RoleResolver::new(&objects.roles);
    let (mut rules, mut errors) = (Vec::new(), Vec::new());
    for binding in in_order(&objects.bindings) {
        let in_scope = binding.is_cluster_wide() || binding.namespace == namespace;
        if !in_scope || applying_subject(&binding.subjects, user, &binding.namespace).is_none() {
            continue;
        }
        match roles.resolve(&binding.role, &binding.namespace) {
            Ok(role) => rules.extend(&role.rules),
            Err(error) => errors.push(error),
        }
    }
    (rules, errors)
}

fn in_order(bindings: &[Binding]) -> Vec<&Binding> {
    let mut bindings: Vec<&Binding> = bindings.iter().collect();
    bindings.sort_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
    bindings
}

// === impl RoleNotFoundError ===

impl RoleNotFoundError {
    /// The error that the role of `reference` does not exist.
    #[must_use]
    pub fn of(reference: &RoleRef) -> Self {
        let name = reference.name.clone();
        match reference.kind {
            RoleKind::Role => Self::Role(name),
            RoleKind::ClusterRole => Self::ClusterRole(name),
        }
    }
}

// === impl RoleResolver ===

impl<'o, R: Borrow<Role>> RoleResolver<'o, R> {
    /// Indexes `roles`. If two have the same name, the first is found.
    #[must_use]
    pub fn new(roles: &'o [R]) -> Self {
        let mut places = HashMap::with_capacity(roles.len());
        for (place, role) in roles.iter().map(Borrow::borrow).enumerate() {
            places
                .entry((role.namespace.as_str(), role.name.as_str()))
                .or_insert(place);
        }
        Self { roles, places }
    }

    /// The role to which `reference` refers in a binding of `namespace`.
    ///
    /// # Errors
    /// The role does not exist.
    pub fn resolve(&self, reference: &RoleRef, namespace: &str) -> Result<&'o R, RoleNotFoundError> {
        let place = self.place(reference, namespace)?;
        let role = self.roles.get(place);
        role.ok_or_else(|| RoleNotFoundError::of(reference))
    }

    /// The index of this role in the roles passed to [`RoleResolver::new`].
    ///
    /// # Errors
    /// The role does not exist.
    pub fn place(&self, reference: &RoleRef, namespace: &str) -> Result<usize, RoleNotFoundError> {
        let scope = match reference.kind {
            // A ClusterRoleBinding has no namespace, so it cannot refer to a Role.
            RoleKind::Role => Some(namespace).filter(|namespace| !namespace.is_empty()),
            RoleKind::ClusterRole => Some(""),
        };
        let place = scope.and_then(|scope| self.places.get(&(scope, reference.name.as_str())));
        place.copied().ok_or_else(|| RoleNotFoundError::of(reference))
    }
}

// Whether a subject of a binding is the user of the request (`appliesToUser` of
// `pkg/registry/rbac/validation/rule.go`).

const MAX_UNINDEXED_COMPARISONS: usize = 256;
const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// Whether `subject` is `user`. `namespace` is the binding's, empty for a ClusterRoleBinding: it
/// applies to service accounts without their own namespace.
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

/// The index of the first of `subjects` that is `user`.
#[must_use]
pub fn applying_subject(subjects: &[Subject], user: &User<'_>, namespace: &str) -> Option<usize> {
    // Avoids comparing each of many subjects with each of many groups.
    if subjects.len().saturating_mul(user.groups.len()) <= MAX_UNINDEXED_COMPARISONS {
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

/// The RBAC objects that an API server creates when it starts
/// (`plugin/pkg/auth/authorizer/rbac/bootstrappolicy`), as manifests of kube-apiserver `version`,
/// or of the nearest known version: 1.36 or 1.37. Aggregated ClusterRoles have no rules of their
/// own.
#[must_use]
pub const fn bootstrap_policy(version: Version) -> &'static str {
    if version.minor() < Version::NEWEST.minor() {
        include_str!("rbac/bootstrap_policy/1.36.yaml")
    } else {
        include_str!("rbac/bootstrap_policy/1.37.yaml")
    }
}

#[cfg(test)]
mod tests {
    use super::super::Subject;
    use super::*;

    fn role(namespace: &str, name: &str, verb: &str) -> Role {
        let rules = vec![Rule {
            verbs: [verb].into_iter().collect(),
            ..Rule::default()
        }];
        Role {
            namespace: namespace.into(),
            name: name.into(),
            rules: rules.into(),
            ..Role::default()
        }
    }

    fn binding(namespace: &str, name: &str, kind: RoleKind, role: &str) -> Binding {
        Binding {
            namespace: namespace.into(),
            name: name.into(),
            role: RoleRef {
                kind,
                name: role.into(),
            },
            subjects: vec![Subject::user("alice")],
            until: None,
        }
    }

    #[test]
    fn cluster_wide_first_then_the_namespace_and_what_is_missing_stops_nothing() {
        let objects = Objects {
            roles: vec![
                role("", "view", "list"),
                role("ns", "view", "get"),
                role("other", "view", "watch"),
            ],
            bindings: vec![
                binding("other", "a", RoleKind::Role, "view"),
                binding("ns", "b", RoleKind::Role, "view"),
                binding("ns", "a", RoleKind::Role, "gone"),
                binding("", "z", RoleKind::ClusterRole, "view"),
                binding("", "y", RoleKind::Role, "view"),
                binding("", "x", RoleKind::ClusterRole, "gone"),
            ],
            policies: Vec::new(),
            ..Objects::default()
        };
        let alice = User {
            name: "alice".into(),
            ..User::default()
        };
        let verbs = |namespace: &str| -> Vec<String> {
            rules_for(&objects, &alice, namespace)
                .0
                .iter()
                .flat_map(|rule| rule.verbs.as_slice().to_vec())
                .collect()
        };
        assert_eq!(verbs("ns"), ["list", "get"]);
        assert_eq!(verbs(""), ["list"]);
        let errors: Vec<String> = rules_for(&objects, &alice, "ns")
            .1
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            errors,
            [
                "clusterrole.rbac.authorization.k8s.io \"gone\" not found",
                "role.rbac.authorization.k8s.io \"view\" not found",
                "role.rbac.authorization.k8s.io \"gone\" not found",
            ]
        );
    }

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
